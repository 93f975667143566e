-- The time zone, the prices and the budgets of each cluster, as takt.toml has them, for queries of users.

-- A time in which the clocks of a cluster keep one offset from UTC. Instants are UTC.
CREATE TABLE IF NOT EXISTS time_offsets (
    cluster VARCHAR NOT NULL,
    timezone VARCHAR NOT NULL,
    from_time TIMESTAMP_S NOT NULL,
    until_time TIMESTAMP_S NOT NULL,
    offset_seconds BIGINT NOT NULL       -- positive east of Greenwich
);

-- Prices, and the time in which they are valid.
CREATE TABLE IF NOT EXISTS rate_cards (
    cluster VARCHAR NOT NULL,
    from_time TIMESTAMP_S NOT NULL,
    until_time TIMESTAMP_S,              -- NULL for the last card
    currency VARCHAR,
    gpu_hour DOUBLE NOT NULL,
    gpu_models VARCHAR NOT NULL,         -- JSON: price of a GPU-hour by model
    cpu_hour DOUBLE NOT NULL,
    mem_gib_hour DOUBLE NOT NULL,
    kwh DOUBLE NOT NULL,
    co2_g_per_kwh DOUBLE NOT NULL
);

-- Budgets, with their use in the current month or year.
CREATE TABLE IF NOT EXISTS budgets (
    cluster VARCHAR NOT NULL,
    "user" VARCHAR,                      -- NULL for the budget of an account
    account VARCHAR,                     -- NULL for the budget of a user
    period VARCHAR NOT NULL,             -- month, year
    from_time TIMESTAMP_S NOT NULL,
    until_time TIMESTAMP_S NOT NULL,
    unit VARCHAR NOT NULL,               -- GPU-hours, or the currency
    amount DOUBLE NOT NULL,
    used DOUBLE NOT NULL,
    noted_at TIMESTAMP_S NOT NULL        -- when `used` was computed
);

-- Partitions of the node, separated by commas.
ALTER TABLE nodes ADD COLUMN IF NOT EXISTS partitions VARCHAR;
