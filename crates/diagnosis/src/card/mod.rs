//! The verdict on a card (a physical GPU): healthy, watch, inspect or return, with its evidence.
//!
//! A card is returned for two reasons only, both flags that NVIDIA's driver sets: row remapping failed, or too many
//! uncorrectable errors in its SRAM. Takt never derives them from counts. All else is inspected or watched.

mod causes;
mod evidence;
mod faults;
mod origin;
mod rules;
#[cfg(test)]
mod tests;

pub use causes::{CauseState, RuledCause};
pub use evidence::CardEvidence;
pub use faults::{CardFault, FaultCourse, FaultKind};
pub use origin::{FaultOrigin, OriginReport};
pub use rules::CardFinding;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use takt_jobs::{CardChange, CardCounter, CardPlacement};
use takt_model::UnixTime;

/// Names of the readings of a card that a verdict reads. docs/cards.md has all readings.
pub mod reading {
    /// 1 while the driver says that a row of the memory could not be replaced.
    pub const ROW_REMAP_FAILED: &str = "row_remap_failed";
    /// 1 while a row will be replaced at the next reset.
    pub const ROW_REMAP_PENDING: &str = "row_remap_pending";
    /// 1 while a page will be given up at the next reset (up to Volta).
    pub const RETIRED_PENDING: &str = "retired_pages_pending";
    /// 1 while the driver says that the SRAM has too many uncorrectable errors.
    pub const SRAM_THRESHOLD: &str = "sram_threshold_exceeded";
    /// What the driver demands, as `takt_gpu_recovery_action`; 0: nothing.
    pub const RECOVERY_ACTION: &str = "recovery_action";
    /// 1 while the card does not answer.
    pub const LOST: &str = "lost";
    /// Uncorrectable ECC errors since the card was made.
    pub const UNCORRECTED: &str = "ecc_uncorrected_aggregate";
    /// Lanes of the PCIe link now.
    pub const LINK_WIDTH: &str = "pcie_link_width";
    /// Lanes that card and slot can use together.
    pub const LINK_WIDTH_MAX: &str = "pcie_link_width_max";
    /// Joules since the driver was loaded: they begin anew with a reset, a reboot or a new driver.
    pub const ENERGY: &str = "energy_joules";
    /// Seconds for which heat held the clocks down.
    pub const THERMAL: &str = "throttle_seconds_hw_thermal";
    /// Seconds for which the power supply held the clocks down.
    pub const POWER_BRAKE: &str = "throttle_seconds_hw_power_brake";
}

/// What is known of a card.
#[derive(Debug, Clone, Default)]
pub struct CardFacts {
    /// The card.
    pub card: String,
    /// Its placements, the oldest first.
    pub placements: Vec<CardPlacement>,
    /// Placements of other cards in the same slots.
    pub others: Vec<CardPlacement>,
    /// Its faults, the oldest first.
    pub faults: Vec<CardFault>,
    /// Faults of other cards in the same slots.
    pub faults_of_others: Vec<CardFault>,
    /// Its readings by name.
    pub readings: BTreeMap<String, CardCounter>,
    /// Changes of its readings, the oldest first.
    pub changes: Vec<CardChange>,
    /// Jobs that its faults ended, the oldest first.
    pub killed: Vec<KilledJob>,
    /// The present.
    pub now: UnixTime,
}

/// A job that ended with a fault of the card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KilledJob {
    /// Job id; empty if the viewer may not see the job.
    pub job_id: String,
    /// User.
    pub user: String,
    /// Account.
    pub account: String,
    /// Slurm's state.
    pub state: String,
    /// End of the run.
    pub end: UnixTime,
    /// Code of the fault, as `XID 79`.
    pub fault: String,
}

/// The verdict on a card. A later one is worse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CardVerdict {
    /// Nothing speaks against the card.
    #[default]
    Healthy,
    /// Something happened that may come back.
    Watch,
    /// The card or its slot needs a person.
    Inspect,
    /// A criterion of NVIDIA for a return is met.
    Return,
}

impl CardVerdict {
    /// The verdict as a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Watch => "watch",
            Self::Inspect => "inspect",
            Self::Return => "return",
        }
    }
}

/// The verdict with its reasons.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CardDiagnosis {
    /// The verdict.
    pub verdict: CardVerdict,
    /// Criteria that are met, the worst first; empty for a healthy card.
    pub findings: Vec<CardFinding>,
    /// Whether the fault is in the card or in its slot.
    pub origin: OriginReport,
    /// Usual causes, and what speaks for and against each.
    pub causes: Vec<RuledCause>,
    /// What happened, the oldest first.
    pub evidence: Vec<CardEvidence>,
}

/// Judges a card.
pub fn judge_card(facts: &CardFacts) -> CardDiagnosis {
    let course = FaultCourse::of(facts);
    let findings = rules::findings(facts, course);
    let origin = origin::origin(facts);

    CardDiagnosis {
        verdict: findings
            .first()
            .map(|finding| finding.verdict)
            .unwrap_or_default(),
        causes: causes::causes(facts, &origin),
        evidence: evidence::evidence(facts),
        findings,
        origin,
    }
}

impl CardFacts {
    /// Last value of a reading; `None` if it was never read.
    fn last(&self, name: &str) -> Option<f64> {
        self.readings.get(name).map(|counter| counter.last)
    }

    /// Whether a flag is set.
    fn is_set(&self, name: &str) -> bool {
        self.last(name).is_some_and(|value| value > 0.0)
    }

    /// When a flag was last set; the last change is the only one for a flag that is set now.
    fn set_since(&self, name: &str) -> Option<UnixTime> {
        self.readings.get(name).map(|counter| counter.changed_at)
    }

    /// Whether less than this many days have passed since `at`.
    fn is_within(&self, at: UnixTime, days: i64) -> bool {
        self.now - at < days * 86_400
    }
}
