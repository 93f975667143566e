-- Blocks are sorted by this number of the metric's name first (store/block/plan.rs computes it).
ALTER TABLE series ADD COLUMN IF NOT EXISTS metric_hash INTEGER;
