-- What a scheduler, or takt.toml, said of shares and prices, each time that it changed.
CREATE TABLE IF NOT EXISTS share_settings (
    cluster VARCHAR NOT NULL,
    source VARCHAR NOT NULL,             -- slurm, takt.toml
    recorded_at TIMESTAMP_S NOT NULL,
    settings VARCHAR NOT NULL            -- JSON: associations, priority, partitions, qos
);

-- Fair share as it was, noted once an hour by the server. Recomputed from job records; NULL as sshare leaves it empty.
CREATE TABLE IF NOT EXISTS fairshare (
    cluster VARCHAR NOT NULL,
    noted_at TIMESTAMP_S NOT NULL,
    account VARCHAR NOT NULL,
    "user" VARCHAR,                      -- NULL for an account
    "partition" VARCHAR,                 -- where the association holds for one only
    raw_shares BIGINT,                   -- NULL: parent, and the root
    norm_shares DOUBLE NOT NULL,
    raw_usage DOUBLE NOT NULL,           -- billing units x seconds, faded
    norm_usage DOUBLE NOT NULL,
    effective_usage DOUBLE NOT NULL,
    level_fs DOUBLE,                     -- infinite where nothing was used
    fair_share DOUBLE
);
