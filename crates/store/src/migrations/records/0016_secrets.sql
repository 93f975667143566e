-- Random secrets of this data directory, by what they are for. SQL of users does not reach the schema `access`.
CREATE TABLE IF NOT EXISTS access.secrets (
    purpose VARCHAR NOT NULL,            -- fingerprints: hides the labels behind the fingerprints of alerts
    secret VARCHAR NOT NULL
);
