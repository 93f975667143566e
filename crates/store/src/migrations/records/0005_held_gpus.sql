-- Which GPUs a run held, as slurmctld or the exporter on the node said while it did.
CREATE TABLE IF NOT EXISTS job_gpus (
    cluster VARCHAR NOT NULL,
    job_id VARCHAR NOT NULL,
    submit_time TIMESTAMP_S,             -- NULL: the exporter does not know it
    node VARCHAR NOT NULL,
    gpu_index BIGINT,                    -- GRES index (slurmctld); not NVML's
    uuid VARCHAR,                        -- NVML's (exporter)
    first_seen TIMESTAMP_S NOT NULL,
    last_seen TIMESTAMP_S NOT NULL,
    source VARCHAR NOT NULL              -- slurmctld, exporter
);
