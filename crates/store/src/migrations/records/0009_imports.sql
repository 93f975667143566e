-- Imports of files, and the import that stored a run; NULL after a correction by another source, and for polled runs.
CREATE TABLE IF NOT EXISTS imports (
    id BIGINT NOT NULL,
    source VARCHAR NOT NULL,             -- sacct, jobcomp
    name VARCHAR NOT NULL,               -- name of the file
    timezone VARCHAR,                    -- of the file's times; NULL: the machine's, without a name
    imported_at TIMESTAMP NOT NULL,
    runs_inserted BIGINT NOT NULL,
    runs_updated BIGINT NOT NULL,
    undone_at TIMESTAMP                  -- NULL: not undone
);

ALTER TABLE jobs ADD COLUMN IF NOT EXISTS import_id BIGINT;
