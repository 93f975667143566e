//! Arithmetic over what jobs held: no I/O, no SQL, no clock.

pub mod fairshare;
mod period;
mod usage;

pub use period::{Period, PeriodError};
pub use usage::{Figures, Group, GroupBy, Row, Usage, UsageReport, usage};
