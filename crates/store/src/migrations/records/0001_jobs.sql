-- What takt knows of each cluster. The time zone is the one its job records are written in and its months are cut by.
CREATE TABLE IF NOT EXISTS clusters (
    cluster VARCHAR NOT NULL,
    timezone VARCHAR NOT NULL
);

-- Up to when a source has told everything, each time it did: live polling goes on from there.
CREATE TABLE IF NOT EXISTS polls (
    cluster VARCHAR NOT NULL,
    source VARCHAR NOT NULL,             -- sacct, …
    told_until TIMESTAMP_S NOT NULL
);

-- One row a run: (cluster, job_id, submit_time) is its identity. Instants are UTC. NULL is unknown, never zero.
CREATE TABLE IF NOT EXISTS jobs (
    cluster VARCHAR NOT NULL,
    job_id VARCHAR NOT NULL,             -- 123, 123_4 (array task), 123+0 (part of a heterogeneous job)
    submit_time TIMESTAMP_S NOT NULL,
    eligible_time TIMESTAMP_S,
    start_time TIMESTAMP_S,
    end_time TIMESTAMP_S,                -- NULL while it runs
    state VARCHAR NOT NULL,              -- Slurm's word: COMPLETED, FAILED, RUNNING, …
    "user" VARCHAR NOT NULL,
    account VARCHAR NOT NULL,
    "partition" VARCHAR NOT NULL,
    qos VARCHAR,
    job_name VARCHAR,
    nodes BIGINT,                        -- nodes to billing: what it held; NULL where it never got a node
    cpus BIGINT,
    gpus BIGINT,                         -- NULL: nobody saw how many
    gpu_model VARCHAR,
    mem_bytes BIGINT,
    billing BIGINT,
    alloc_tres VARCHAR,                  -- as Slurm wrote it
    req_tres VARCHAR,
    node_list VARCHAR,
    elapsed_seconds BIGINT,
    suspended_seconds BIGINT,
    timelimit_seconds BIGINT,            -- NULL: none
    exit_code VARCHAR,
    source VARCHAR NOT NULL,             -- who told: sacct, jobcomp, …
    recorded_at TIMESTAMP_S NOT NULL
);

-- Rows that could not be understood, kept as they came.
CREATE TABLE IF NOT EXISTS rejects (
    source VARCHAR NOT NULL,             -- the file, or the poller
    line BIGINT,
    reason VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    recorded_at TIMESTAMP_S NOT NULL
);
