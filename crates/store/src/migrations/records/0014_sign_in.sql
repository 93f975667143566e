-- Signing in with a password, and with groups of a directory service.
CREATE TABLE IF NOT EXISTS access.passwords (
    "user" VARCHAR NOT NULL,
    hash VARCHAR NOT NULL,               -- Argon2id, PHC's form
    set_by VARCHAR NOT NULL,
    set_at TIMESTAMP_S NOT NULL
);

-- Groups of the user that give a role, one on each line; of the services that signed the user in.
ALTER TABLE access.sessions ADD COLUMN IF NOT EXISTS groups VARCHAR DEFAULT '';
