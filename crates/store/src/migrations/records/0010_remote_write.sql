-- Destinations of remote write, and how far each is.
CREATE TABLE IF NOT EXISTS remote_write (
    destination VARCHAR PRIMARY KEY,
    acknowledged TIMESTAMP_MS NOT NULL,  -- all samples up to this time are acknowledged
    sending TIMESTAMP_MS                 -- end of the span that is being sent; NULL: none
);
