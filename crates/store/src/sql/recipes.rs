//! Statements to start from, and the list of tables. Times are relative to the newest record.

/// Name and text of statements that people can start from.
pub const RECIPES: [(&str, &str); 5] = [
    (
        "GPU-hours of the last month's jobs, by user",
        "SELECT \"user\", round(sum(gpu_seconds) / 3600, 1) AS gpu_hours
FROM job_usage
WHERE start_time >= date_trunc('month', (SELECT max(start_time) FROM job_usage))
GROUP BY \"user\"
ORDER BY gpu_hours DESC",
    ),
    (
        "GPUs by model",
        "SELECT model, count(*) AS gpus FROM gpus GROUP BY model ORDER BY gpus DESC",
    ),
    (
        "jobs that failed within a day",
        "SELECT job_id, \"user\", state, end_time, exit_code
FROM jobs
WHERE end_time > (SELECT max(end_time) FROM jobs) - INTERVAL 1 DAY AND state <> 'COMPLETED'
ORDER BY end_time DESC",
    ),
    (
        "why jobs wait",
        "SELECT reason, count(*) AS jobs
FROM job_reasons
WHERE last_seen > (SELECT max(last_seen) FROM job_reasons) - INTERVAL 5 MINUTES
GROUP BY reason
ORDER BY jobs DESC",
    ),
    (
        "alerts of the last week",
        "SELECT alertname, count(*) AS fired
FROM alert_transitions
WHERE state_after = 'firing'
    AND happened_at > (SELECT max(happened_at) FROM alert_transitions) - INTERVAL 7 DAYS
GROUP BY alertname
ORDER BY fired DESC",
    ),
];

/// Lists the tables, each with its columns.
pub const TABLES: &str = "SELECT table_name,
    string_agg(column_name, ', ' ORDER BY ordinal_position) AS columns
FROM information.columns
WHERE table_schema = 'public'
GROUP BY table_name
ORDER BY table_name";
