//! A scheduler in memory: replays jobs on nodes by Slurm's rules, measures how far a replay is from the
//! records, and compares two replays.

mod back_test;
mod calibration;
mod forecast;
mod input;
mod limits;
mod node;
mod scheduler;

pub use back_test::{BackTest, BackTestRow, Waited, back_test, size_class};
pub use calibration::{Calibration, KnownStart};
pub use forecast::{Forecast, ForecastJob, RunTimes, forecast};
pub use input::{
    BackfillSettings, Closure, FairShare, Limit, LimitScope, Running, SimulatedCluster,
    SimulatedJob, SimulatedNode,
};
pub use scheduler::{Outcome, Placed, replay};
