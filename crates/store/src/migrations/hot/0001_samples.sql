-- Every series that was ever stored, with the id its samples carry.
CREATE TABLE IF NOT EXISTS series (
    id INTEGER NOT NULL,
    metric VARCHAR NOT NULL,
    labels VARCHAR NOT NULL -- a JSON object of the other labels, names in byte order
);

-- The samples of the last hours: append-only, in order of time, no index. A NULL value says that the series ended
-- here (Prometheus' staleness marker, which DuckDB could not keep as a NaN).
CREATE TABLE IF NOT EXISTS samples (
    series INTEGER NOT NULL,
    ts TIMESTAMP_MS NOT NULL,
    value DOUBLE
);
