-- How well each run used what it held, computed once it has ended. Columns as in `accounting::efficiency::Efficiency`,
-- where each is explained; NULL is "not measured". (cluster, job_id, submit_time) is the run's identity.
CREATE TABLE IF NOT EXISTS run_efficiency (
    cluster VARCHAR NOT NULL,
    job_id VARCHAR NOT NULL,
    submit_time TIMESTAMP_S NOT NULL,
    run_end_time TIMESTAMP_S NOT NULL,   -- the end it was computed for; a run whose end is corrected is computed again
    assessed_at TIMESTAMP_S NOT NULL,
    held_seconds BIGINT NOT NULL,
    held_gpu_seconds DOUBLE,
    coverage_ratio DOUBLE NOT NULL,
    gpus_measured BIGINT NOT NULL,
    gpus_idle BIGINT NOT NULL,
    gpu_utilization_mean DOUBLE,
    gpu_utilization_p95 DOUBLE,
    gpu_idle_ratio DOUBLE,
    gpu_idle_longest_seconds DOUBLE,
    gpu_memory_peak_bytes DOUBLE,
    gpu_memory_total_bytes DOUBLE,
    gpu_power_mean_watts DOUBLE,
    gpu_energy_joules DOUBLE,
    gpu_sm_mean DOUBLE,
    gpu_tensor_mean DOUBLE,
    cpu_seconds DOUBLE,
    cpu_ratio DOUBLE,
    memory_peak_bytes DOUBLE,
    memory_ratio DOUBLE,
    network_bytes DOUBLE,
    nfs_bytes DOUBLE,
    link_bound_ratio DOUBLE,
    is_network_bound BOOLEAN NOT NULL,
    used_gpu_seconds DOUBLE NOT NULL,
    waste_idle_gpu_seconds DOUBLE NOT NULL,
    waste_streak_gpu_seconds DOUBLE NOT NULL,
    waste_low_gpu_seconds DOUBLE NOT NULL,
    lost_gpu_seconds DOUBLE NOT NULL,
    lost_cpu_seconds DOUBLE NOT NULL,
    unmeasured_gpu_seconds DOUBLE NOT NULL,
    limit_excess_gpu_seconds DOUBLE NOT NULL,
    fault VARCHAR
);

-- Hours given back by an operator. A ledger: a row is never changed; one that was a mistake is revoked by another that
-- names it.
CREATE TABLE IF NOT EXISTS credits (
    id BIGINT NOT NULL,
    cluster VARCHAR NOT NULL,
    "user" VARCHAR NOT NULL,
    account VARCHAR NOT NULL,
    job_id VARCHAR,                      -- the run whose hours were lost; NULL where it is a gift
    submit_time TIMESTAMP_S,
    gpu_seconds DOUBLE NOT NULL,
    cpu_seconds DOUBLE NOT NULL,
    credited_to TIMESTAMP_S NOT NULL,    -- the instant whose month it counts for: the run's end
    reason VARCHAR NOT NULL,
    granted_by VARCHAR NOT NULL,
    granted_at TIMESTAMP_S NOT NULL,
    revokes BIGINT                       -- the credit that this row takes back
);

-- Which report went to whom, and what it said: a late record makes a correction, and nothing is sent twice.
CREATE TABLE IF NOT EXISTS report_log (
    cluster VARCHAR NOT NULL,
    month VARCHAR NOT NULL,              -- 2026-10
    kind VARCHAR NOT NULL,               -- user, account, cluster
    subject VARCHAR NOT NULL,            -- whose it is
    recipient VARCHAR NOT NULL,
    edition BIGINT NOT NULL,             -- 1, then 2 for its correction, …
    digest VARCHAR NOT NULL,             -- of the figures
    sent_at TIMESTAMP_S NOT NULL
);
