-- Reservations: when what was kept for whom. (cluster, name, from_time) is the identity; one that was changed has several rows.
CREATE TABLE IF NOT EXISTS reservations (
    cluster VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    flags VARCHAR NOT NULL,              -- Slurm's words: MAINT,IGNORE_JOBS,SPEC_NODES
    node_list VARCHAR,
    cpus BIGINT NOT NULL,
    gpus BIGINT,                         -- NULL: Slurm names CPUs only
    owners VARCHAR NOT NULL,             -- who may use it: account or account/user, with commas
    from_time TIMESTAMP_S NOT NULL,
    to_time TIMESTAMP_S NOT NULL,
    source VARCHAR NOT NULL              -- slurmdbd, slurmctld
);

-- The reservation that a run was submitted to.
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS reservation VARCHAR;

-- Why a run waited, in Slurm's words, as long as slurmctld said so.
CREATE TABLE IF NOT EXISTS job_reasons (
    cluster VARCHAR NOT NULL,
    job_id VARCHAR NOT NULL,
    submit_time TIMESTAMP_S NOT NULL,
    reason VARCHAR NOT NULL,
    expected_start TIMESTAMP_S,          -- when slurmctld meant to start it, as it said last
    first_seen TIMESTAMP_S NOT NULL,
    last_seen TIMESTAMP_S NOT NULL
);
