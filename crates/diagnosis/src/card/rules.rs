//! The criteria, each with its source.

use super::{CardFacts, CardVerdict, FaultCourse, FaultKind, reading};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use takt_model::{UnixTime, words};

/// A criterion that is met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardFinding {
    /// What it means for the card.
    pub verdict: CardVerdict,
    /// Since when it is met, or when it last happened.
    pub since: UnixTime,
    /// The criterion, as a sentence.
    pub criterion: String,
    /// Where the criterion comes from.
    pub source: String,
    /// What to do.
    pub action: String,
}

const ROW_REMAPPING: &str =
    "NVIDIA, GPU Memory Error Management: RMA policy thresholds for row remapping";
const SRAM: &str = "NVIDIA, GPU Memory Error Management: SRAM uncorrectable error threshold";
const XIDS: &str = "NVIDIA, Xid Errors";
const NVML: &str = "NVML";
const TAKT: &str = "Takt";

/// What a return needs besides a flag.
const TO_RETURN: &str = "run NVIDIA's field diagnostic: a return needs one that confirms the flag; save \
     nvidia-bug-report.sh first, then takt card bundle";

/// Days in which a sign counts that may pass.
const RECENT_DAYS: i64 = 30;

/// Days in which errors of applications are compared.
const APPLICATION_DAYS: i64 = 7;

/// Users whose applications fail on one card before the card is suspected.
const MANY_USERS: usize = 3;

/// Seconds that heat may hold a card down in its life: ten hours.
const MUCH_HEAT: f64 = 36_000.0;

/// Returns the criteria that are met, the worst first.
pub(super) fn findings(facts: &CardFacts, course: FaultCourse) -> Vec<CardFinding> {
    let all = [
        row_remap_failed(facts),
        sram(facts),
        lost(facts),
        recovery_action(facts),
        of_course(facts, course),
        uncorrected(facts),
        link(facts),
        pending(facts),
        warnings(facts),
        applications(facts),
        heat(facts),
    ];
    let mut met: Vec<CardFinding> = all.into_iter().flatten().collect();
    // Stable: among equals, the order above.
    met.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    met
}

fn finding(
    verdict: CardVerdict,
    since: UnixTime,
    criterion: impl Into<String>,
    source: &str,
    action: &str,
) -> CardFinding {
    CardFinding {
        verdict,
        since,
        criterion: criterion.into(),
        source: source.to_owned(),
        action: action.to_owned(),
    }
}

/// A finding if a flag is set.
fn flag(
    facts: &CardFacts,
    name: &str,
    verdict: CardVerdict,
    criterion: &str,
    source: &str,
    action: &str,
) -> Option<CardFinding> {
    let since = facts.set_since(name).filter(|_| facts.is_set(name))?;
    Some(finding(verdict, since, criterion, source, action))
}

fn row_remap_failed(facts: &CardFacts) -> Option<CardFinding> {
    let criterion = "the driver reports that replacing a row of the memory failed";
    let name = reading::ROW_REMAP_FAILED;
    flag(
        facts,
        name,
        CardVerdict::Return,
        criterion,
        ROW_REMAPPING,
        TO_RETURN,
    )
}

fn sram(facts: &CardFacts) -> Option<CardFinding> {
    let criterion = "the driver reports more uncorrectable errors in SRAM than the card may have";
    flag(
        facts,
        reading::SRAM_THRESHOLD,
        CardVerdict::Return,
        criterion,
        SRAM,
        TO_RETURN,
    )
}

fn lost(facts: &CardFacts) -> Option<CardFinding> {
    let action = "look at XIDs and at the node; power-cycle the node, then reseat the card";
    let criterion = "the card does not answer";
    flag(
        facts,
        reading::LOST,
        CardVerdict::Inspect,
        criterion,
        NVML,
        action,
    )
}

fn recovery_action(facts: &CardFacts) -> Option<CardFinding> {
    let action = match facts.last(reading::RECOVERY_ACTION)? as i64 {
        1 => "reset the GPU",
        2 => "reboot the node",
        3 => "drain the GPU's peers and restart them",
        4 => "drain and reset the GPU",
        _ => "see the kernel's line of XID 154",
    };
    let criterion = "the driver demands a recovery action";
    flag(
        facts,
        reading::RECOVERY_ACTION,
        CardVerdict::Inspect,
        criterion,
        NVML,
        action,
    )
}

fn of_course(facts: &CardFacts, course: FaultCourse) -> Option<CardFinding> {
    match course {
        FaultCourse::None => None,
        FaultCourse::Unresolved { last } => Some(finding(
            CardVerdict::Inspect,
            last,
            "a hardware fault, and no reset since",
            XIDS,
            "drain the node and reset the GPU, or power-cycle the node after XID 79",
        )),
        FaultCourse::Returned { last, .. } => Some(finding(
            CardVerdict::Inspect,
            last,
            "a hardware fault came back after a reset, a reboot or a move",
            XIDS,
            "swap the card with another slot, and see where the fault goes; run the field diagnostic",
        )),
        FaultCourse::Quiet { last, .. } => facts.is_within(last, RECENT_DAYS).then(|| {
            finding(
                CardVerdict::Watch,
                last,
                "a hardware fault, which has not come back since the reset",
                XIDS,
                "watch whether it comes back",
            )
        }),
    }
}

fn uncorrected(facts: &CardFacts) -> Option<CardFinding> {
    let rises: Vec<UnixTime> = facts
        .changes
        .iter()
        .filter(|change| change.reading == reading::UNCORRECTED)
        .filter(|change| change.before.is_some_and(|before| change.value > before))
        .filter(|change| facts.is_within(change.at, RECENT_DAYS))
        .map(|change| change.at)
        .collect();
    let verdict = match rises.len() {
        0 => return None,
        1 => CardVerdict::Watch,
        _ => CardVerdict::Inspect,
    };

    let criterion = format!(
        "uncorrectable ECC errors appeared {} in {RECENT_DAYS} days",
        match rises.len() {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        }
    );
    let action =
        "reset the GPU, so that rows are replaced; the field diagnostic tells if it comes back";
    rises
        .last()
        .map(|last| finding(verdict, *last, criterion, TAKT, action))
}

fn link(facts: &CardFacts) -> Option<CardFinding> {
    let width = facts.readings.get(reading::LINK_WIDTH)?;
    let most = facts.last(reading::LINK_WIDTH_MAX)?;
    // A card that does not answer has no link.
    if width.last > 0.0 && width.last < most {
        let criterion = format!("the PCIe link has {} of {most} lanes", width.last);
        let action = "reseat the card; if it stays, try another slot, then the riser";
        return Some(finding(
            CardVerdict::Inspect,
            width.changed_at,
            criterion,
            TAKT,
            action,
        ));
    }

    let narrowed = facts.changes.iter().rfind(|change| {
        change.reading == reading::LINK_WIDTH
            && change.before.is_some_and(|before| change.value < before)
            // A card that is lost has no link, and another slot may have fewer lanes.
            && change.value > 0.0
            && change.value < most
            && facts.is_within(change.at, RECENT_DAYS)
    })?;
    let criterion = format!(
        "the PCIe link had {} of {most} lanes for a while",
        narrowed.value
    );
    Some(finding(
        CardVerdict::Watch,
        narrowed.at,
        criterion,
        TAKT,
        "reseat the card when the node is drained",
    ))
}

fn pending(facts: &CardFacts) -> Option<CardFinding> {
    let criterion = "a row of the memory, or a page, will be replaced at the next reset";
    let action = "drain the node and reset the GPU";
    [reading::ROW_REMAP_PENDING, reading::RETIRED_PENDING]
        .into_iter()
        .find_map(|name| {
            flag(
                facts,
                name,
                CardVerdict::Watch,
                criterion,
                ROW_REMAPPING,
                action,
            )
        })
}

fn warnings(facts: &CardFacts) -> Option<CardFinding> {
    let last = facts.faults.iter().rfind(|fault| {
        fault.kind == FaultKind::Warning && facts.is_within(fault.at, RECENT_DAYS)
    })?;
    let criterion = format!("{}: {}", last.code(), last.meaning);
    Some(finding(
        CardVerdict::Watch,
        last.at,
        criterion,
        XIDS,
        "watch whether it comes back",
    ))
}

fn applications(facts: &CardFacts) -> Option<CardFinding> {
    let mut faults = facts.faults.iter().filter(|fault| {
        fault.kind == FaultKind::Application && facts.is_within(fault.at, APPLICATION_DAYS)
    });
    // One user's broken program says nothing of the card, however many jobs run it.
    let users: BTreeSet<&str> = faults
        .clone()
        .filter_map(|fault| fault.user.as_deref())
        .collect();
    if users.len() < MANY_USERS {
        return None;
    }
    let criterion = format!(
        "applications of {} users failed on it in {APPLICATION_DAYS} days",
        users.len()
    );
    let action =
        "compare with other cards; memory faults of the card can look like errors of applications";
    faults
        .next_back()
        .map(|last| finding(CardVerdict::Watch, last.at, criterion, TAKT, action))
}

fn heat(facts: &CardFacts) -> Option<CardFinding> {
    let heat = facts.readings.get(reading::THERMAL)?;
    (heat.total >= MUCH_HEAT && facts.is_within(heat.changed_at, RECENT_DAYS)).then(|| {
        let criterion = format!(
            "heat held its clocks down for {} in all",
            words::duration(heat.total)
        );
        let action = "look at the air flow, the fans and the dust of this slot";
        finding(CardVerdict::Watch, heat.changed_at, criterion, TAKT, action)
    })
}
