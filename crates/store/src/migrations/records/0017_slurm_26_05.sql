-- Slurm's unique ids of a run, since Slurm 26.05. A run stays (cluster, job_id, submit_time): Slurm draws a new SLUID
-- whenever it begins a new record, at a requeue and at a resize. original_sluid joins the records of a resized run.
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS sluid VARCHAR;
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS original_sluid VARCHAR;
-- The largest memory of a run whose memory shrank while it ran, in bytes; mem_bytes is the last one. NULL for other runs.
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS mem_bytes_most BIGINT;
