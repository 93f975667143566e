//! What happened to a card, in order of time.

use super::{CardFacts, CardFault, reading};
use serde::{Deserialize, Serialize};
use takt_jobs::{CardChange, CardPlacement};
use takt_model::{UnixTime, words};

/// Seconds within which the same fault again is the same line.
const SAME_FAULT_SECONDS: i64 = 3600;

/// Maximum number of lines; older ones are left out, and counted in the first line.
const MOST_LINES: usize = 400;

/// A line of a card's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardEvidence {
    /// When.
    pub at: UnixTime,
    /// What, as a sentence.
    pub text: String,
}

pub(super) fn evidence(facts: &CardFacts) -> Vec<CardEvidence> {
    let mut lines = Vec::new();
    let mut say = |at: UnixTime, text: String| lines.push(CardEvidence { at, text });

    for (position, placement) in facts.placements.iter().enumerate() {
        let before = position
            .checked_sub(1)
            .and_then(|one| facts.placements.get(one));
        say(placement.from, arrival(before, placement));
    }
    for (first, last, count) in runs(&facts.faults) {
        let times = match count {
            1 => String::new(),
            count => {
                let within = words::duration((last.at - first.at) as f64);
                format!(", {count} times within {within}")
            }
        };
        let meaning = if first.xid.is_some() {
            format!(": {}", first.meaning)
        } else {
            String::new()
        };
        say(
            first.at,
            format!(
                "{}{meaning} ({} in {}){times}",
                first.code(),
                first.slot,
                first.node
            ),
        );
    }
    for change in &facts.changes {
        say(change.at, in_words(change));
    }
    for job in &facts.killed {
        let name = if job.job_id.is_empty() {
            "a job"
        } else {
            &format!("job {}", job.job_id)
        };
        say(
            job.end,
            format!("{name} ended as {} after {}", job.state, job.fault),
        );
    }

    lines.sort_by_key(|line| line.at);
    let cut = lines.len().saturating_sub(MOST_LINES);
    if cut > 0 {
        lines.drain(..cut);
        let text = format!("{cut} earlier lines are left out");
        let at = lines.first().map(|line| line.at).unwrap_or_default();
        lines.insert(0, CardEvidence { at, text });
    }
    lines
}

fn arrival(before: Option<&CardPlacement>, placement: &CardPlacement) -> String {
    let place = format!("{} in {}", placement.slot, placement.node);
    match before {
        None => format!("first seen: {place}, driver {}", placement.driver),
        Some(before) if before.is_at(&placement.node, &placement.slot) => {
            format!("seen again: {place}")
        }
        Some(before) => format!("moved: {place}, before {} in {}", before.slot, before.node),
    }
}

/// Faults with the same code, each soon after the one before: the first, the last, and their number.
fn runs(faults: &[CardFault]) -> Vec<(&CardFault, &CardFault, usize)> {
    let mut runs: Vec<(&CardFault, &CardFault, usize)> = Vec::new();
    for fault in faults {
        match runs.last_mut() {
            Some((first, last, count))
                if first.code() == fault.code()
                    && first.node == fault.node
                    && fault.at - last.at < SAME_FAULT_SECONDS =>
            {
                *last = fault;
                *count += 1;
            }
            _ => runs.push((fault, fault, 1)),
        }
    }
    runs
}

fn in_words(change: &CardChange) -> String {
    let is_set = change.value > 0.0;
    let text = match change.reading.as_str() {
        reading::ROW_REMAP_FAILED if is_set => "flag set: replacing a row of the memory failed",
        reading::SRAM_THRESHOLD if is_set => "flag set: too many uncorrectable errors in SRAM",
        reading::ROW_REMAP_PENDING if is_set => "a row of the memory waits to be replaced",
        reading::LOST if is_set => "does not answer",
        reading::LOST => "answers again",
        reading::ENERGY => "driver loaded anew: a reset, a reboot or another driver",
        _ => {
            let name = change.reading.replace('_', " ");
            return match change.before {
                Some(before) => format!("{name}: {before} becomes {}", change.value),
                None => format!("{name}: {} when first read", change.value),
            };
        }
    };
    text.to_owned()
}
