-- GPU type of a node, in Slurm's words; several are joined with +. NULL: Slurm does not name it.
ALTER TABLE nodes ADD COLUMN IF NOT EXISTS gpu_model VARCHAR;

-- Slurm's priority of a waiting run, as it said last; NULL: unknown. What the run asks for besides amounts, a time and a
-- partition, with commas: features, licenses, … NULL: nothing that is known of.
ALTER TABLE job_reasons ADD COLUMN IF NOT EXISTS priority UINTEGER;
ALTER TABLE job_reasons ADD COLUMN IF NOT EXISTS demands VARCHAR;

-- When a waiting run starts: of each run the first forecast, by which forecasts are graded, and the last one, which is
-- shown. (cluster, job_id, submit_time, kind) is the identity.
CREATE TABLE IF NOT EXISTS forecasts (
    cluster VARCHAR NOT NULL,
    job_id VARCHAR NOT NULL,
    submit_time TIMESTAMP_S NOT NULL,
    kind VARCHAR NOT NULL,               -- first, last
    made_at TIMESTAMP_S NOT NULL,
    p10 TIMESTAMP_S NOT NULL,            -- it starts before this time with a probability of 10 %
    p50 TIMESTAMP_S NOT NULL,
    p90 TIMESTAMP_S NOT NULL,
    replayed_p10 TIMESTAMP_S NOT NULL,   -- the same of the replays alone, before the correction by earlier forecasts
    replayed_p50 TIMESTAMP_S NOT NULL,
    replayed_p90 TIMESTAMP_S NOT NULL,
    slurm_start TIMESTAMP_S              -- when slurmctld meant to start it then; NULL: it had not said
);

-- The last round of forecasts of each day (UTC), with the grades of the 30 days before it.
CREATE TABLE IF NOT EXISTS forecast_rounds (
    cluster VARCHAR NOT NULL,
    made_at TIMESTAMP_S NOT NULL,
    waiting_jobs BIGINT NOT NULL,
    forecast_jobs BIGINT NOT NULL,       -- those for which a start was found
    replays BIGINT NOT NULL,
    cpu_seconds DOUBLE NOT NULL,         -- time that the replays took
    not_modelled VARCHAR NOT NULL,       -- JSON: rules of the site that the replays do not know, and jobs that have them
    graded BIGINT NOT NULL,              -- forecasts of runs that have started
    "right" BIGINT NOT NULL,             -- of these, starts within the band from p10 to p90
    median_error_seconds BIGINT,         -- of |start - p50|
    error_ratio DOUBLE,                  -- sum of |start - p50| over the sum of the waits that were left
    slurm_graded BIGINT NOT NULL,        -- graded ones for which slurmctld had a time, too
    slurm_median_error_seconds BIGINT,   -- of |start - slurm_start|
    paired_median_error_seconds BIGINT   -- of |start - p50| of the same runs
);
