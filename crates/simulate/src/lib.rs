//! A scheduler in memory: replays jobs on nodes by Slurm's rules, measures how far a replay is from the
//! records, and compares two replays.

mod back_test;
mod calibration;
mod forecast;
mod input;
mod limits;
mod node;
mod past;
mod scheduler;
mod start_study;
mod what_if;

pub use back_test::{BackTest, BackTestRow, Waited, back_test, size_class};
pub use calibration::{Calibration, KnownStart};
pub use forecast::{Forecast, ForecastJob, RunTimes, forecast};
pub use input::{
    BackfillSettings, Closure, FairShare, Limit, LimitScope, Running, SimulatedCluster,
    SimulatedJob, SimulatedNode,
};
pub use past::{ChangeEffect, PastJob, PastPeriod, PastReplay, PeriodChange, PeriodUse};
pub use scheduler::{Outcome, Placed, replay};
pub use start_study::{AwaitedJob, StartStudy, study_start};
pub use what_if::{
    ChangeInterval, PeriodDifference, WaitDifference, WaitFigures, WaitGroup, WaitTrend,
    compare_periods,
};
