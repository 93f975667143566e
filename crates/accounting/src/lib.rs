//! Usage, capacity, fair share, efficiency and monthly sheets: plain arithmetic over plain values. No I/O, no SQL, no
//! clock.

mod accounts;
mod budget;
pub mod capacity;
mod credit;
pub mod efficiency;
pub mod fairshare;
mod period;
mod policy;
mod rates;
pub mod reconcile;
pub mod reservation;
pub mod sheet;
mod usage;

pub use accounts::Accounts;
pub use budget::{BudgetConfig, BudgetPeriod, BudgetUse};
pub use credit::{Credit, in_force};
pub use period::{Period, PeriodError, Slice, Unit};
pub use policy::{Breach, PolicyWindow};
pub use rates::{Cost, Held, RateCard, Rates, RatesConfig};
pub use usage::{Figures, Group, GroupBy, Row, Usage, UsageReport, usage};
