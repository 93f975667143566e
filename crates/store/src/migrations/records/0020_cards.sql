-- Cards (physical GPUs). `card` is NVML's serial number, or the UUID where a card has none or shares it with another GPU of
-- its board. Nothing deletes these rows: a card's past counts when it comes back, and they are few.

-- Times in which a card was in a slot. (cluster, card, from_time) is the identity.
CREATE TABLE IF NOT EXISTS card_placements (
    cluster VARCHAR NOT NULL,
    card VARCHAR NOT NULL,
    serial VARCHAR,                      -- NULL: the card has none
    uuid VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    driver VARCHAR NOT NULL,             -- when the card was last seen there; so are the next two
    vbios VARCHAR,                       -- NULL: unknown
    gpu_index BIGINT,                    -- NVML's; NULL: unknown
    node VARCHAR NOT NULL,
    slot VARCHAR NOT NULL,               -- PCI address
    from_time TIMESTAMP_S NOT NULL,      -- first sighting
    last_seen TIMESTAMP_S NOT NULL,      -- last sighting, up to ten minutes late
    to_time TIMESTAMP_S                  -- the last sighting before the card left; NULL: it is there, as far as known
);

-- What each reading of a card was in all its life.
CREATE TABLE IF NOT EXISTS card_counters (
    cluster VARCHAR NOT NULL,
    card VARCHAR NOT NULL,
    reading VARCHAR NOT NULL,            -- docs/cards.md
    last_value DOUBLE NOT NULL,
    highest DOUBLE NOT NULL,
    lowest DOUBLE NOT NULL,
    total DOUBLE NOT NULL,               -- of a counter, over all resets
    resets BIGINT NOT NULL,
    first_seen TIMESTAMP_S NOT NULL,
    last_seen TIMESTAMP_S NOT NULL,      -- up to an hour late
    changed_at TIMESTAMP_S NOT NULL
);

-- Changes of flags, codes and counts that seldom change, and new beginnings of counters.
CREATE TABLE IF NOT EXISTS card_changes (
    cluster VARCHAR NOT NULL,
    card VARCHAR NOT NULL,
    happened_at TIMESTAMP_S NOT NULL,    -- when it was noticed
    reading VARCHAR NOT NULL,
    value_before DOUBLE,                 -- NULL: the first reading
    value DOUBLE NOT NULL
);

-- Notes of operators. They may name people, so SQL of users does not reach them.
CREATE TABLE IF NOT EXISTS access.card_notes (
    cluster VARCHAR NOT NULL,
    card VARCHAR NOT NULL,
    written_at BIGINT NOT NULL,          -- UTC seconds
    author VARCHAR NOT NULL,
    note VARCHAR NOT NULL
);
