-- Nodes as the scheduler last told of them.
CREATE TABLE IF NOT EXISTS nodes (
    cluster VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    state VARCHAR NOT NULL,              -- Slurm's words: IDLE, MIXED+DRAIN
    reason VARCHAR,
    cpus BIGINT,
    gpus BIGINT,
    mem_bytes BIGINT,
    recorded_at TIMESTAMP_S NOT NULL
);

-- When a node could not be used, and what the cluster had (node is ''): one row an interval. (cluster, node, from_time) is
-- its identity.
CREATE TABLE IF NOT EXISTS node_events (
    cluster VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    reason VARCHAR,
    cpus BIGINT,
    gpus BIGINT,
    mem_bytes BIGINT,
    from_time TIMESTAMP_S NOT NULL,
    to_time TIMESTAMP_S,                 -- NULL while it lasts
    source VARCHAR NOT NULL              -- slurmdbd, slurmctld
);
