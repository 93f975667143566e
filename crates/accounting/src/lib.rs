//! Usage, capacity, fair share, efficiency and monthly reports: plain arithmetic on plain values,
//! without I/O, SQL or a clock.

mod accounts;
mod budget;
pub mod capacity;
mod credit;
pub mod efficiency;
pub mod energy;
mod failure;
pub mod fairshare;
pub mod period;
mod policy;
pub mod queue;
mod rates;
pub mod reconcile;
pub mod reservation;
mod run_out;
pub mod sheet;
mod usage;
pub mod waste;

pub use accounts::Accounts;
pub use budget::{BudgetConfig, BudgetPeriod, BudgetUse};
pub use credit::{Credit, in_force};
pub use failure::{Evidence, Failure, FailureCause, Traces, XidMeaning, failure, has_failed};
pub use period::{Period, PeriodError, TimeSlice, Unit};
pub use policy::{Breach, PolicyWindow};
pub use rates::{Cost, HeldAmounts, RateCard, Rates, RatesConfig};
pub use run_out::{LEAST_DAYS, RunOut, run_out};
pub use usage::{Figures, Group, GroupBy, MOST_ROWS, Row, Usage, UsageReport, usage};
