//! The usual causes that a vendor wants to see ruled out before a return.

use super::{CardFacts, FaultKind, FaultOrigin, OriginReport, reading};
use serde::{Deserialize, Serialize};
use takt_model::words;

/// Whether a cause is ruled out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseState {
    /// The evidence speaks against it.
    RuledOut,
    /// The evidence speaks for it.
    Suspected,
    /// Nothing tells.
    Unknown,
}

/// A cause, and what speaks for or against it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuledCause {
    /// The cause.
    pub cause: String,
    /// Whether it is ruled out.
    pub state: CauseState,
    /// The evidence.
    pub evidence: String,
}

/// XID of a power connector that is not plugged in.
const NO_POWER: u32 = 54;

pub(super) fn causes(facts: &CardFacts, origin: &OriginReport) -> Vec<RuledCause> {
    let slot = match origin.origin {
        FaultOrigin::Card => CauseState::RuledOut,
        FaultOrigin::Slot => CauseState::Suspected,
        FaultOrigin::Unknown => CauseState::Unknown,
    };
    vec![
        cause("slot, board or riser", slot, origin.why.clone()),
        held_down(facts, "cooling", reading::THERMAL, "heat"),
        power(facts),
        seating(facts),
        application(facts),
        cause(
            "driver",
            CauseState::Unknown,
            "Takt does not know whether the fault comes with another version, too".to_owned(),
        ),
    ]
}

fn cause(cause: &str, state: CauseState, evidence: String) -> RuledCause {
    RuledCause {
        cause: cause.to_owned(),
        state,
        evidence,
    }
}

fn held_down(facts: &CardFacts, name: &str, of: &str, by: &str) -> RuledCause {
    let Some(counter) = facts.readings.get(of) else {
        let evidence = format!("the driver does not count how long {by} held the clocks down");
        return cause(name, CauseState::Unknown, evidence);
    };

    let watched = words::duration((counter.seen - counter.first_seen) as f64);
    if counter.total > 0.0 {
        let held = words::duration(counter.total);
        let evidence = format!("{by} held the clocks down for {held} in all");
        return cause(name, CauseState::Suspected, evidence);
    }
    // Zero after an hour says little.
    let state = if counter.seen - counter.first_seen >= 86_400 {
        CauseState::RuledOut
    } else {
        CauseState::Unknown
    };
    cause(
        name,
        state,
        format!("{by} never held the clocks down in {watched}"),
    )
}

fn power(facts: &CardFacts) -> RuledCause {
    if facts.faults.iter().any(|fault| fault.xid == Some(NO_POWER)) {
        let evidence = "XID 54: auxiliary power was not connected".to_owned();
        return cause("power", CauseState::Suspected, evidence);
    }
    held_down(facts, "power", reading::POWER_BRAKE, "the power supply")
}

fn seating(facts: &CardFacts) -> RuledCause {
    let name = "seating and PCIe link";
    let (Some(width), Some(most)) = (
        facts.readings.get(reading::LINK_WIDTH),
        facts.last(reading::LINK_WIDTH_MAX),
    ) else {
        return cause(
            name,
            CauseState::Unknown,
            "the width of the link was never read".to_owned(),
        );
    };

    if width.lowest < most {
        let evidence = format!("the link had {} of {most} lanes at times", width.lowest);
        return cause(name, CauseState::Suspected, evidence);
    }
    let evidence = format!("the link always had all of its {most} lanes");
    cause(name, CauseState::RuledOut, evidence)
}

fn application(facts: &CardFacts) -> RuledCause {
    let count = |kind| {
        facts
            .faults
            .iter()
            .filter(|fault| fault.kind == kind)
            .count()
    };
    let (hardware, of_applications) = (count(FaultKind::Hardware), count(FaultKind::Application));
    let (state, evidence) = match (hardware, of_applications) {
        (0, 0) => (CauseState::Unknown, "no fault is known".to_owned()),
        (0, _) => (
            CauseState::Suspected,
            "all XIDs are such as applications cause".to_owned(),
        ),
        _ => (
            CauseState::RuledOut,
            format!("{hardware} faults are such as no application causes"),
        ),
    };
    cause("application", state, evidence)
}
