-- Use of each ended run over time. Samples are deleted after their retention; these rows stay.
CREATE TABLE IF NOT EXISTS run_curves (
    cluster VARCHAR NOT NULL,
    job_id VARCHAR NOT NULL,
    submit_time TIMESTAMP_S NOT NULL,
    run_end_time TIMESTAMP_S NOT NULL,   -- the end for which it was measured; a corrected end is measured again
    utilization VARCHAR,                 -- mean utilization of the GPUs, a character a step; NULL without a measured GPU
    report VARCHAR NOT NULL              -- axis, nodes and GPUs with their curves, and the cause of a failure (JSON)
);
