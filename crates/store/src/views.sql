-- Views for queries of users. They exist in memory and are created at every start, so they always match the program.
-- docs/sql.md documents them. metric_views.rs creates the views of single metrics, in the schema metrics.
USE memory;

CREATE SCHEMA metrics;

CREATE VIEW job_gpus AS SELECT * FROM records.job_gpus;

CREATE VIEW scheduler_nodes AS SELECT * EXCLUDE (partitions) FROM records.nodes;

CREATE VIEW partition_nodes AS
SELECT cluster, unnest(string_split(partitions, ',')) AS "partition", node FROM records.nodes WHERE partitions <> '';

-- At each instant at most one interval of a node, and one size of a cluster: an interval ends where a newer one begins, and
-- one within an older interval is left out. Else amounts would be summed twice; records.node_events has what was reported.
CREATE VIEW node_events AS
SELECT * REPLACE (least(to_time, lead(from_time) OVER (PARTITION BY cluster, node ORDER BY from_time)) AS to_time)
FROM (
    SELECT * FROM records.node_events
    QUALIFY coalesce(coalesce(to_time, 'infinity') >= max(coalesce(to_time, 'infinity')) OVER (
        PARTITION BY cluster, node ORDER BY from_time ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true)
);

CREATE VIEW reservations AS SELECT * FROM records.reservations;

CREATE VIEW job_reasons AS SELECT * FROM records.job_reasons;

-- A forecast is right if the run started within its band of 80 %, or within a minute of it.
CREATE VIEW forecasts AS
SELECT f.*, j.start_time,
    j.start_time BETWEEN f.p10 - INTERVAL 1 MINUTE AND f.p90 + INTERVAL 1 MINUTE AS is_right,
    epoch(j.start_time) - epoch(f.p50) AS error_seconds
FROM records.forecasts AS f LEFT JOIN records.jobs AS j USING (cluster, job_id, submit_time);

CREATE VIEW forecast_rounds AS SELECT * FROM records.forecast_rounds;

CREATE VIEW card_placements AS SELECT * FROM records.card_placements;

CREATE VIEW card_counters AS SELECT * FROM records.card_counters;

CREATE VIEW card_changes AS SELECT * FROM records.card_changes;

CREATE VIEW fairshare AS SELECT * FROM records.fairshare;

CREATE VIEW share_settings AS SELECT * FROM records.share_settings;

CREATE VIEW budgets AS SELECT * FROM records.budgets;

CREATE VIEW rate_cards AS
SELECT * REPLACE (CAST(gpu_models::JSON AS MAP(VARCHAR, DOUBLE)) AS gpu_models) FROM records.rate_cards;

CREATE VIEW time_offsets AS SELECT * FROM records.time_offsets;

-- The time on the clocks of a cluster at an instant (UTC); UTC for a cluster without a known time zone.
CREATE MACRO local_time(of_cluster, instant) AS instant + to_seconds(coalesce((
    SELECT arg_max(o.offset_seconds, o.from_time) FROM records.time_offsets AS o
    WHERE o.cluster = of_cluster AND o.from_time <= instant), 0));

-- Days of each cluster, from one midnight of its clocks to the next. A day whose midnight the clocks skip begins when
-- they were put forward.
CREATE VIEW days AS
WITH dates AS (
    SELECT cluster, timezone, from_time, until_time, offset_seconds, unnest(generate_series(
        date_trunc('day', from_time + to_seconds(offset_seconds)),
        until_time + to_seconds(offset_seconds) - INTERVAL 1 SECOND, INTERVAL 1 DAY)) AS date
    FROM records.time_offsets
), starts AS (
    SELECT cluster, timezone, date, max(until_time) AS until_time,
        min(greatest(date - to_seconds(offset_seconds), from_time::TIMESTAMP)) AS day_start
    FROM dates GROUP BY ALL
)
SELECT cluster, timezone, date::DATE AS day, date_trunc('month', date)::DATE AS month, day_start,
    coalesce(lead(day_start) OVER (PARTITION BY cluster ORDER BY day_start), until_time::TIMESTAMP) AS day_end
FROM starts;

CREATE VIEW series AS SELECT id, metric, labels FROM hot.series;

-- layout.rs creates `samples`, `recent` (the samples of the last hours), samples_5m and samples_1h from the blocks. All
-- other views use them.

CREATE VIEW alert_transitions AS SELECT * FROM records.alert_transitions;

CREATE VIEW events AS SELECT * FROM records.events;

CREATE VIEW notifications AS
SELECT id, channel, instead_of, group_key, reason, status, alerts, state, created_at, updated_at, attempts, error, body
FROM records.notifications;

CREATE VIEW silences AS SELECT * EXCLUDE (body) FROM records.silences;

-- The verdict names the fault that ended the run, or what became of most of its GPU time.
CREATE VIEW run_efficiency AS
SELECT *, CASE
    WHEN fault IS NOT NULL THEN 'lost to a fault: ' || fault
    WHEN held_gpu_seconds IS NULL THEN 'number of GPUs unknown'
    WHEN held_gpu_seconds = 0 THEN 'no GPUs'
    ELSE CASE greatest(used_gpu_seconds, unmeasured_gpu_seconds, waste_idle_gpu_seconds, waste_streak_gpu_seconds,
            waste_low_gpu_seconds)
        WHEN unmeasured_gpu_seconds THEN 'GPUs mostly not measured'
        WHEN used_gpu_seconds THEN 'GPUs mostly used'
        WHEN waste_idle_gpu_seconds THEN 'GPUs mostly never used'
        WHEN waste_streak_gpu_seconds THEN 'GPUs mostly idle for long'
        ELSE 'GPUs mostly lightly used' END
    END AS verdict
FROM records.run_efficiency;

CREATE VIEW credits AS SELECT * FROM records.credits;

CREATE VIEW rejects AS SELECT * FROM records.rejects;

CREATE VIEW remote_write AS SELECT * FROM records.remote_write;

CREATE VIEW imports AS SELECT * FROM records.imports;

-- The audit log. Statements of admins find the rows, because their sessions search the schema admin first; statements of
-- others cannot name that schema (gate.rs), and find a table without rows.
CREATE SCHEMA admin;

CREATE VIEW admin.audit AS SELECT * FROM records.access.audit;

CREATE VIEW audit AS SELECT * FROM records.access.audit WHERE false;

-- A run that has not ended counts until the last report of its scheduler.
CREATE VIEW jobs AS
SELECT j.* EXCLUDE (import_id),
    epoch(j.start_time - coalesce(j.eligible_time, j.submit_time))::BIGINT AS wait_seconds,
    greatest(0, epoch(coalesce(j.end_time, p.heard) - j.start_time)::BIGINT - coalesce(j.suspended_seconds, 0))
        AS run_seconds
FROM records.jobs AS j
LEFT JOIN (SELECT cluster, max(told_until) AS heard FROM records.polls GROUP BY cluster) AS p
    ON p.cluster = j.cluster;

-- Resources held by each run, with the time. NULL if the amount is unknown.
CREATE VIEW job_usage AS
SELECT cluster, job_id, submit_time, start_time, end_time, state, "user", account, "partition", qos, gpu_model,
    run_seconds, nodes * run_seconds AS node_seconds, cpus * run_seconds AS cpu_seconds,
    gpus * run_seconds AS gpu_seconds, mem_bytes::DOUBLE * run_seconds AS memory_byte_seconds,
    billing * run_seconds AS billing_seconds
FROM jobs
WHERE start_time IS NOT NULL;

-- Price of an hour of each run, once for each rate card that was valid while it ran. The measured energy is spread evenly
-- over the run.
CREATE VIEW job_prices AS
SELECT j.cluster, j.job_id, j.submit_time, j."user", j.account, j."partition",
    greatest(j.start_time, c.from_time) AS from_time, least(j.end_time, c.until_time) AS until_time, c.currency,
    coalesce(j.gpus, 0) * coalesce(map_extract_value(c.gpu_models, j.gpu_model), c.gpu_hour)
        + coalesce(j.cpus, 0) * c.cpu_hour
        + coalesce(j.mem_bytes, 0) / 1073741824 * c.mem_gib_hour AS money_per_hour,
    coalesce(e.kw * c.kwh, 0) AS energy_money_per_hour, coalesce(e.kw * c.co2_g_per_kwh, 0) AS co2_grams_per_hour
FROM jobs AS j
JOIN rate_cards AS c ON c.cluster = j.cluster AND coalesce(j.end_time > c.from_time, true)
    AND coalesce(c.until_time > j.start_time, true)
LEFT JOIN (SELECT cluster, job_id, submit_time, gpu_energy_joules / greatest(held_seconds, 1) / 1000 AS kw
           FROM records.run_efficiency) AS e
    ON e.cluster = j.cluster AND e.job_id = j.job_id AND e.submit_time = j.submit_time
WHERE j.start_time IS NOT NULL;

CREATE VIEW users AS
SELECT cluster, "user", list_sort(list(DISTINCT account)) AS accounts, count(*) AS runs,
    count(*) FILTER (state = 'RUNNING') AS running, count(*) FILTER (state = 'PENDING') AS pending,
    min(submit_time) AS first_submit, max(submit_time) AS last_submit,
    sum(gpus * run_seconds)::DOUBLE AS gpu_seconds, sum(cpus * run_seconds)::DOUBLE AS cpu_seconds
FROM jobs
GROUP BY cluster, "user";

-- The last value of each series in the last hours; NULL if the series has ended (arg_max would skip the NULL).
CREATE VIEW latest AS
SELECT metric, labels, max(ts) AS ts, arg_max_null(value, ts) AS value FROM recent GROUP BY metric, labels;

CREATE VIEW nodes AS
SELECT (u.labels ->> '$.cluster') AS cluster, (u.labels ->> '$.node') AS node, (u.labels ->> '$.instance') AS instance,
    u.value = 1 AS up, u.ts AS last_seen, coalesce(g.gpus, 0) AS gpus
FROM latest AS u
LEFT JOIN (
    SELECT (labels ->> '$.cluster') AS cluster, (labels ->> '$.node') AS node, count(DISTINCT labels ->> '$.uuid') AS gpus
    FROM latest WHERE metric = 'takt_gpu_info' AND value IS NOT NULL GROUP BY ALL
) AS g ON g.cluster = (u.labels ->> '$.cluster') AND g.node = (u.labels ->> '$.node')
WHERE u.metric = 'up' AND (u.labels ->> '$.node') IS NOT NULL;

-- The state is the server's (takt_cluster_gpu_state), so that SQL, pages and commands count alike. It is NULL for a GPU that is no
-- longer there. A GPU whose exporter has not answered for hours has its state and no other value.
CREATE VIEW gpus AS
WITH seen AS (
    SELECT (labels ->> '$.cluster') AS cluster, (labels ->> '$.node') AS node, (labels ->> '$.uuid') AS uuid, metric, labels,
        ts, value
    FROM latest
    WHERE metric IN ('takt_gpu_info', 'takt_gpu_up', 'takt_gpu_utilization_ratio', 'takt_gpu_power_watts',
        'takt_gpu_memory_used_bytes', 'takt_gpu_memory_total_bytes', 'takt_cluster_gpu_state')
)
SELECT cluster, node, uuid,
    coalesce(any_value(labels ->> '$.index') FILTER (metric = 'takt_gpu_info'),
        any_value(labels ->> '$.index') FILTER (metric = 'takt_cluster_gpu_state')) AS index,
    any_value(labels ->> '$.model') FILTER (metric = 'takt_gpu_info') AS model,
    any_value(labels ->> '$.driver') FILTER (metric = 'takt_gpu_info') AS driver,
    bool_and(value = 1) FILTER (metric = 'takt_gpu_up') AS up,
    coalesce(max(ts) FILTER (metric <> 'takt_cluster_gpu_state'), max(ts)) AS last_seen,
    any_value(value) FILTER (metric = 'takt_gpu_utilization_ratio') AS utilization_ratio,
    any_value(value) FILTER (metric = 'takt_gpu_power_watts') AS power_watts,
    any_value(value) FILTER (metric = 'takt_gpu_memory_used_bytes') AS memory_used_bytes,
    any_value(value) FILTER (metric = 'takt_gpu_memory_total_bytes') AS memory_total_bytes,
    arg_max(labels ->> '$.state', ts) FILTER (metric = 'takt_cluster_gpu_state' AND value = 1) AS state
FROM seen
WHERE uuid IS NOT NULL
GROUP BY cluster, node, uuid;
