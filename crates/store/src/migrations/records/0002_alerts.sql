-- What the alert engine must not forget, in its own words (JSON): one row a thing, replaced as a whole.
CREATE TABLE IF NOT EXISTS alert_state (
    kind VARCHAR NOT NULL,               -- instance, event, alert, flapping, log, running
    key VARCHAR NOT NULL,
    body VARCHAR NOT NULL
);

-- Every step in the life of every alert; only ever appended to. Instants are UTC.
CREATE TABLE IF NOT EXISTS alert_transitions (
    happened_at TIMESTAMP_MS NOT NULL,
    rule VARCHAR NOT NULL,               -- file:group/name
    alertname VARCHAR NOT NULL,
    severity VARCHAR,
    node VARCHAR,
    fingerprint VARCHAR NOT NULL,
    labels VARCHAR NOT NULL,
    state_before VARCHAR NOT NULL,       -- inactive, pending, firing, unknown
    state_after VARCHAR NOT NULL,
    value DOUBLE,
    reason VARCHAR NOT NULL
);

-- One row a message to one channel: the outbox, and what became of it.
CREATE TABLE IF NOT EXISTS notifications (
    id BIGINT NOT NULL,
    channel VARCHAR NOT NULL,            -- receiver/kind/number
    instead_of VARCHAR,                  -- the channel that gave the message up
    group_key VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,             -- first_firing, new_in_group, some_resolved, resolved, still_firing
    status VARCHAR NOT NULL,             -- firing, resolved
    alerts BIGINT NOT NULL,              -- how many it names
    state VARCHAR NOT NULL,              -- queued, sending, sent, gave_up, superseded
    is_open BOOLEAN NOT NULL,
    created_at TIMESTAMP_MS NOT NULL,
    updated_at TIMESTAMP_MS NOT NULL,
    attempts BIGINT NOT NULL,
    error VARCHAR,
    handle VARCHAR,                      -- what the channel calls the message that began a thread
    body VARCHAR NOT NULL
);

CREATE TABLE IF NOT EXISTS silences (
    id VARCHAR NOT NULL,
    starts_at TIMESTAMP_MS NOT NULL,
    ends_at TIMESTAMP_MS NOT NULL,
    updated_at TIMESTAMP_MS NOT NULL,
    created_by VARCHAR NOT NULL,
    comment VARCHAR NOT NULL,
    matchers VARCHAR NOT NULL,
    body VARCHAR NOT NULL
);
