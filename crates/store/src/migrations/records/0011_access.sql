-- Access control: tokens, sessions and the audit log. SQL of users does not reach the schema `access`: the gate of sql/
-- allows the schemas of the views only.
CREATE SCHEMA IF NOT EXISTS access;

CREATE TABLE IF NOT EXISTS access.tokens (
    id BIGINT NOT NULL,
    hash VARCHAR NOT NULL,               -- SHA-256 of the token, hexadecimal
    name VARCHAR NOT NULL,
    owner VARCHAR,                       -- Unix user; NULL for a program
    role VARCHAR NOT NULL,
    created_by VARCHAR NOT NULL,
    created_at TIMESTAMP_S NOT NULL,
    expires_at TIMESTAMP_S,              -- NULL: never
    used_at TIMESTAMP_S,                 -- NULL: never used
    revoked_at TIMESTAMP_S               -- NULL: valid
);

CREATE TABLE IF NOT EXISTS access.sessions (
    hash VARCHAR NOT NULL,               -- SHA-256 of the cookie, hexadecimal
    "user" VARCHAR NOT NULL,
    way VARCHAR NOT NULL,                -- how the user signed in: link
    created_at TIMESTAMP_S NOT NULL,
    seen_at TIMESTAMP_S NOT NULL,
    address VARCHAR NOT NULL,
    browser VARCHAR NOT NULL
);

CREATE TABLE IF NOT EXISTS access.audit (
    happened_at TIMESTAMP NOT NULL,
    "user" VARCHAR,                      -- Unix user; NULL for a program or a stranger
    role VARCHAR NOT NULL,
    way VARCHAR NOT NULL,
    address VARCHAR NOT NULL,
    action VARCHAR NOT NULL,             -- method and route, or sign_in, sign_out, refused
    object VARCHAR NOT NULL,
    outcome VARCHAR NOT NULL
);

-- Slurm's PrivateData when slurmctld last answered.
CREATE TABLE IF NOT EXISTS access.private_data (
    cluster VARCHAR NOT NULL,
    value VARCHAR NOT NULL,
    read_at TIMESTAMP_S NOT NULL
);
