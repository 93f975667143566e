//! Faults of a card: XIDs, and whether they stay away after a reset.

use super::{CardFacts, reading};
use serde::{Deserialize, Serialize};
use takt_model::UnixTime;

/// A fault that the kernel or NVML reported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardFault {
    /// The card.
    pub card: String,
    /// When, by the node's clock.
    pub at: UnixTime,
    /// Node.
    pub node: String,
    /// PCI address.
    pub slot: String,
    /// The XID; `None` for a card that fell off the bus or did not start without one.
    pub xid: Option<u32>,
    /// What kind of fault it is.
    pub kind: FaultKind,
    /// Boot of the node's kernel; `None` if the event does not name it.
    pub boot_id: Option<String>,
    /// User of the process that the driver names.
    pub user: Option<String>,
    /// Meaning of the XID, in NVIDIA's words; or the kind of event.
    pub meaning: String,
    /// The kernel's line; empty if the viewer may not see it.
    pub line: String,
}

impl CardFault {
    /// `XID 79`, or the kind of the event.
    pub fn code(&self) -> String {
        match self.xid {
            Some(xid) => format!("XID {xid}"),
            None => self.meaning.clone(),
        }
    }
}

/// What kind of fault an XID is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// An application's error: a bad access, an assertion.
    Application,
    /// The card stopped working and needs a reset or more.
    Hardware,
    /// The card corrected or contained an error, or asks for attention.
    Warning,
    /// Nothing that speaks against the card.
    #[default]
    Note,
}

impl FaultKind {
    /// The kind of an XID with this severity in Takt's table of XIDs (docs/events.md).
    pub fn of(xid: u32, severity: &str) -> Self {
        match (xid, severity) {
            // A high rate of corrected errors is information for an operator, and a sign of wear.
            (92, _) => Self::Warning,
            (_, "user") => Self::Application,
            (_, "critical") => Self::Hardware,
            (_, "warning") => Self::Warning,
            _ => Self::Note,
        }
    }
}

/// Days after which a hardware fault no longer counts.
const FORGOTTEN_DAYS: i64 = 90;

/// How the hardware faults of a card went on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultCourse {
    /// No hardware fault in the last 90 days.
    None,
    /// A hardware fault; no reset since.
    Unresolved {
        /// Last fault.
        last: UnixTime,
    },
    /// A reset, reboot or move since the fault, and no fault since.
    Quiet {
        /// Last fault.
        last: UnixTime,
        /// The reset.
        reset: UnixTime,
    },
    /// The fault came back after a reset, reboot or move.
    Returned {
        /// The reset.
        reset: UnixTime,
        /// Last fault.
        last: UnixTime,
    },
}

/// A step of the state machine, in order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// First, as the fault of a card that was reset in the same second came after it.
    Reset,
    Fault,
}

impl FaultCourse {
    /// Follows the faults and resets of a card.
    pub fn of(facts: &CardFacts) -> Self {
        let faults = facts
            .faults
            .iter()
            .filter(|fault| fault.kind == FaultKind::Hardware)
            .filter(|fault| facts.is_within(fault.at, FORGOTTEN_DAYS));
        let resets = resets(facts).into_iter();

        let mut steps: Vec<(UnixTime, Step)> = faults
            .map(|fault| (fault.at, Step::Fault))
            .chain(resets.map(|at| (at, Step::Reset)))
            .collect();
        steps.sort_unstable();

        let mut course = Self::None;
        for (at, step) in steps {
            course = course.after(step, at);
        }
        course
    }

    fn after(self, step: Step, at: UnixTime) -> Self {
        match (self, step) {
            (Self::None, Step::Reset) => Self::None,
            (Self::None | Self::Unresolved { .. }, Step::Fault) => Self::Unresolved { last: at },
            (Self::Unresolved { last } | Self::Quiet { last, .. }, Step::Reset) => {
                Self::Quiet { last, reset: at }
            }
            (Self::Quiet { reset, .. } | Self::Returned { reset, .. }, Step::Fault) => {
                Self::Returned { reset, last: at }
            }
            // What came back once may come back again: another reset is no proof.
            (returned @ Self::Returned { .. }, Step::Reset) => returned,
        }
    }
}

/// Times at which the card was reset, rebooted with its node, or moved.
fn resets(facts: &CardFacts) -> Vec<UnixTime> {
    let of_driver = facts
        .changes
        .iter()
        .filter(|change| change.reading == reading::ENERGY && change.before.is_some())
        .map(|change| change.at);
    // The first placement is no move.
    let of_moves = facts
        .placements
        .iter()
        .skip(1)
        .map(|placement| placement.from);

    let boots: Vec<_> = facts
        .faults
        .iter()
        .filter(|fault| fault.boot_id.is_some())
        .collect();
    let of_boots = boots
        .windows(2)
        .filter(|pair| pair[0].boot_id != pair[1].boot_id)
        .map(|pair| pair[1].at);

    of_driver.chain(of_moves).chain(of_boots).collect()
}
