-- By which number the nodes know a run whose id is an array's task or a component; NULL where it is its id.
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS raw_job_id VARCHAR;
