//! Fair share as Slurm's multifactor priority plugin computes it, from job records alone.
//!
//! Pure: no I/O, no SQL, no clock. Names are Slurm's: raw and norm shares, raw, norm and effective usage, level FS, fair
//! share. The way of the data: associations make an [`AssociationTree`]; ticks and resets make a [`DecayTable`]; runs
//! are charged to the tree, which makes [`Usage`]; shares and usage make [`ShareRow`]s, the lines of `sshare -l -a`, and
//! an [`Explanation`] in words. `takt_slurm::share_text` reads the texts of
//! Slurm's tools.
//!
//! What a recomputation cannot know: resets that nobody wrote down, weights and shares as they were in the past, when
//! slurmctld was down or started again (ticks), and runs that were purged.

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
