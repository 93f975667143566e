-- Events of exporters: XIDs, links, NFS servers, and whatever else the kernel log of a node says. Only ever appended to.
CREATE TABLE IF NOT EXISTS events (
    happened_at TIMESTAMP_MS NOT NULL,   -- by the node's clock, UTC
    node VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,               -- docs/events.md
    labels VARCHAR NOT NULL,             -- JSON
    message VARCHAR NOT NULL             -- the kernel's line
);
