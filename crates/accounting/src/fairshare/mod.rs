//! Fair share of Slurm's multifactor priority plugin, computed from job records.
//!
//! Names are Slurm's: raw and norm shares, raw, norm and effective usage, level FS, fair share.
//! Associations make an [`AssociationTree`]; ticks and resets make a [`DecayTable`]; runs are
//! charged to the tree, which gives [`Usage`]; shares and usage make [`ShareRow`]s, the lines of
//! `sshare -l -a`, and an [`Explanation`]. `takt_slurm::share_text` parses the output of Slurm's
//! tools.
//!
//! The computation cannot know about unrecorded resets, earlier weights and shares, outages and
//! restarts of slurmctld (ticks), and purged runs.

mod classic;
mod decay;
mod explain;
mod factor;
mod fair_tree;
mod priority;
mod reset;
mod row;
mod tree;
mod usage;

pub use decay::{Decay, DecayTable, DecayedSeconds, Ticks};
pub use explain::{
    Above, DecidedBy, Explainer, Explanation, Place, Planned, PlannedJob, Prospect, Step,
};
pub use factor::{Standing, standings};
pub use priority::{
    JobSize, Priority, PriorityFactors, PriorityWeights, age_factor, job_size_factor,
};
pub use reset::{Calendar, Date, FixedOffset, ResetSchedule};
pub use row::{ShareRow, share_rows};
pub use row::{finite_or_infinite, infinite};
pub use tree::{AssociationId, AssociationTree, TreeError};
pub use usage::{Accumulator, LeftOut, Run, Usage, usage};
