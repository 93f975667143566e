//! promtool's format for tests of rules: what a series is, and which alerts must fire when.

pub mod series;
