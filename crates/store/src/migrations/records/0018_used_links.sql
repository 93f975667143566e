-- Links in messages that were used, each once. SQL of users does not reach the schema `access`.
CREATE TABLE IF NOT EXISTS access.used_links (
    message UBIGINT NOT NULL,            -- number of the message whose alerts were acknowledged
    until_time BIGINT NOT NULL           -- UTC seconds; the link is invalid from then on, and forgotten
);
