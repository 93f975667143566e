//! Gathers what the records know of cards, for their verdicts.

use super::alerts::shown_labels;
use super::{AnswerError, did_you_mean};
use std::collections::{BTreeMap, BTreeSet};
use takt_access::{OTHER_USER, Owner, Viewer};
use takt_alerts::events::xid::XidTable;
use takt_diagnosis::card::{CardFacts, CardFault, FaultKind, KilledJob};
use takt_jobs::CardPlacement;
use takt_model::UnixTime;
use takt_store::{CardRun, EventRecord, Records};

/// Maximum number of faults that are read; older ones are left out.
const MOST_FAULTS: usize = 50_000;

/// Seconds between a fault and the end of a job that it ended: Slurm notices a lost node after minutes.
const KILLED_WITHIN_SECONDS: i64 = 900;

/// Seconds by which clocks, and the sightings of cards and jobs, may differ.
const SLACK_SECONDS: i64 = 300;

/// States of runs that a fault of a card may end. Others have another reason.
const KILLED_STATES: [&str; 4] = ["FAILED", "NODE_FAIL", "BOOT_FAIL", "REQUEUED"];

/// All cards of a cluster with their faults.
pub(super) struct CardRecords<'r> {
    records: Records<'r>,
    cluster: String,
    /// Placements of all cards, the oldest first.
    placements: Vec<CardPlacement>,
    /// Faults of all cards, the oldest first, as everyone may see them, and the texts of each for the viewer.
    faults: Vec<ReadFault>,
}

/// A fault with all that is known of it, and the same for the viewer.
struct ReadFault {
    fault: CardFault,
    shown: CardFault,
}

impl<'r> CardRecords<'r> {
    /// Reads the placements and the faults.
    pub fn read(viewer: &Viewer, records: Records<'r>, cluster: &str) -> Result<Self, AnswerError> {
        let placements = records.card_placements(cluster, None)?;
        let events = records.card_faults(MOST_FAULTS)?;
        // By node, as a cluster may have thousands of cards and a hundred thousand faults.
        let mut of_nodes: BTreeMap<&str, Vec<&CardPlacement>> = BTreeMap::new();
        for placement in &placements {
            of_nodes.entry(&placement.node).or_default().push(placement);
        }
        // By card, when it was first seen in each of its places, in order.
        let mut begins: BTreeMap<&str, Vec<UnixTime>> = BTreeMap::new();
        for placement in &placements {
            begins
                .entry(&placement.card)
                .or_default()
                .push(placement.from);
        }
        let left_at = |placement: &CardPlacement| {
            let begins = begins.get(placement.card.as_str())?;
            begins.iter().copied().find(|from| *from > placement.from)
        };

        let faults = events
            .into_iter()
            .filter_map(|event| {
                let of_node = of_nodes.get(event.texts[0].as_str())?;
                read_fault(viewer, of_node, &left_at, event)
            })
            .collect();
        Ok(Self {
            records,
            cluster: cluster.to_owned(),
            placements,
            faults,
        })
    }

    /// The names of the cards.
    pub fn cards(&self) -> BTreeSet<&str> {
        let cards = self
            .placements
            .iter()
            .map(|placement| placement.card.as_str());
        cards.collect()
    }

    /// The placements of a card, the oldest first.
    pub fn placements_of(&self, card: &str) -> Vec<CardPlacement> {
        let of_card = self
            .placements
            .iter()
            .filter(|placement| placement.card == card);
        of_card.cloned().collect()
    }

    /// Returns the card of a serial number or UUID; `None` if it is unknown.
    pub fn card_of(&self, name: &str) -> Option<&str> {
        // A card without a serial number has an empty one.
        let has_name = |placement: &&CardPlacement| {
            let names = [&placement.card, &placement.serial, &placement.uuid];
            !name.is_empty() && names.into_iter().any(|known| known == name)
        };
        // The newest placement counts: a board may get another UUID in its life.
        self.placements
            .iter()
            .rfind(has_name)
            .map(|placement| placement.card.as_str())
    }

    /// Names that are near to an unknown one, as the end of a message.
    pub fn near(&self, name: &str) -> String {
        did_you_mean(name, self.cards())
    }

    /// The faults of a card as the viewer may see them.
    pub fn shown_faults(&self, card: &str) -> Vec<CardFault> {
        let of_card = self.faults.iter().filter(|one| one.fault.card == card);
        of_card.map(|one| one.shown.clone()).collect()
    }

    /// What is known of some cards, without the names of jobs that the viewer may not see. The verdict is the same for
    /// every viewer.
    pub fn facts(
        &self,
        viewer: &Viewer,
        card: Option<&str>,
        now: UnixTime,
    ) -> Result<Vec<CardFacts>, AnswerError> {
        let mut all: BTreeMap<&str, CardFacts> = BTreeMap::new();
        for placement in &self.placements {
            if card.is_some_and(|card| card != placement.card) {
                continue;
            }
            let facts = all.entry(&placement.card).or_insert_with(|| CardFacts {
                card: placement.card.clone(),
                now,
                ..CardFacts::default()
            });
            facts.placements.push(placement.clone());
        }

        for reading in self.records.card_readings(&self.cluster, card)? {
            if let Some(facts) = all.get_mut(reading.card.as_str()) {
                facts.readings.insert(reading.reading, reading.counter);
            }
        }
        for change in self.records.card_changes(&self.cluster, card)? {
            if let Some(facts) = all.get_mut(change.card.as_str()) {
                facts.changes.push(change);
            }
        }
        for one in &self.faults {
            if let Some(facts) = all.get_mut(one.fault.card.as_str()) {
                facts.faults.push(one.fault.clone());
            }
        }

        // Only for cards with hardware faults: the others have no question of card or slot, and killed no job.
        let mut failed = Vec::new();
        for facts in all.values_mut() {
            if facts
                .faults
                .iter()
                .any(|fault| fault.kind == FaultKind::Hardware)
            {
                self.add_neighbours(facts);
                failed.push(facts);
            }
        }
        let uuids: BTreeSet<&String> = failed
            .iter()
            .flat_map(|facts| &facts.placements)
            .map(|placement| &placement.uuid)
            .collect();
        let uuids: Vec<String> = uuids.into_iter().cloned().collect();
        let runs = self.records.failed_runs_on(&self.cluster, &uuids)?;
        for facts in failed {
            facts.killed = runs
                .iter()
                .filter_map(|run| killed(viewer, facts, run))
                .collect();
        }

        Ok(all.into_values().collect())
    }

    /// Adds the other cards of the slots in which the card was, and their faults.
    fn add_neighbours(&self, facts: &mut CardFacts) {
        let slots: BTreeSet<(&str, &str)> = facts
            .placements
            .iter()
            .map(|placement| (placement.node.as_str(), placement.slot.as_str()))
            .collect();
        let is_other = |card: &str, node: &str, slot: &str| {
            card != facts.card && slots.contains(&(node, slot))
        };

        let others = self
            .placements
            .iter()
            .filter(|one| is_other(&one.card, &one.node, &one.slot));
        let faults = self
            .faults
            .iter()
            .map(|one| &one.fault)
            .filter(|one| is_other(&one.card, &one.node, &one.slot));
        let (others, faults) = (others.cloned().collect(), faults.cloned().collect());
        (facts.others, facts.faults_of_others) = (others, faults);
    }
}

/// Reads a fault of a card that was in the node. Returns `None` for another one: its message may name a card that was never
/// seen.
fn read_fault(
    viewer: &Viewer,
    placements: &[&CardPlacement],
    left_at: &dyn Fn(&CardPlacement) -> Option<UnixTime>,
    event: EventRecord,
) -> Option<ReadFault> {
    let [node, kind, labels, line] = event.texts;
    let labels: BTreeMap<String, String> = serde_json::from_str(&labels).unwrap_or_default();
    let label = |name: &str| labels.get(name).cloned();
    let at = event.at.whole_seconds();
    let named = (label("uuid"), label("pci_bus_id"));
    let placement = placement_of(placements, left_at, named, at)?;

    let xid = label("xid").and_then(|xid| xid.parse::<u32>().ok());
    let known = xid.map(|xid| XidTable::shipped().get(xid));
    let fault = CardFault {
        card: placement.card.clone(),
        at,
        node,
        slot: placement.slot.clone(),
        xid,
        kind: match (xid, &known) {
            (Some(xid), Some(known)) => FaultKind::of(xid, &known.severity),
            // The card fell off the bus, or did not start.
            _ => FaultKind::Hardware,
        },
        boot_id: label("boot_id"),
        user: label("user").or_else(|| label("uid")),
        meaning: known.map_or_else(|| kind.replace('_', " "), |known| known.meaning),
        line,
    };

    let visible = shown_labels(viewer, &labels);
    let shown = CardFault {
        user: label("user").filter(|_| visible.shows("user")),
        // The kernel's line may name a process.
        line: if visible.is_all() {
            fault.line.clone()
        } else {
            String::new()
        },
        ..fault.clone()
    };
    Some(ReadFault { fault, shown })
}

/// The placement in which a card had a fault: the last that began before it. An exporter sees a card some seconds after
/// the kernel does.
fn placement_of<'p>(
    placements: &[&'p CardPlacement],
    left_at: &dyn Fn(&CardPlacement) -> Option<UnixTime>,
    (uuid, slot): (Option<String>, Option<String>),
    at: UnixTime,
) -> Option<&'p CardPlacement> {
    let is_it = |placement: &CardPlacement| match (&uuid, &slot) {
        (Some(uuid), _) => placement.uuid == *uuid,
        (None, Some(slot)) => placement.slot == *slot,
        (None, None) => false,
    };
    let mut here = placements
        .iter()
        .copied()
        .filter(|placement| is_it(placement));
    let began = here
        .clone()
        .rfind(|placement| placement.from <= at + SLACK_SECONDS)
        // A card that was seen elsewhere since had left. One that fell off the bus was not seen, and has its later faults.
        .filter(|placement| left_at(placement).is_none_or(|left| at <= left + SLACK_SECONDS));
    // Only a UUID tells that a card was there before it was first seen.
    began.or_else(|| here.next().filter(|_| uuid.is_some()))
}

/// The job of a run that a hardware fault of the card ended.
fn killed(viewer: &Viewer, facts: &CardFacts, run: &CardRun) -> Option<KilledJob> {
    let is_of_card = facts
        .placements
        .iter()
        .any(|placement| placement.uuid == run.uuid);
    if !is_of_card || !KILLED_STATES.contains(&run.state.as_str()) {
        return None;
    }
    let [first, last] = run.held;
    let fault = facts.faults.iter().find(|fault| {
        let until_end = run.end - fault.at;
        fault.kind == FaultKind::Hardware
            && (first - SLACK_SECONDS..=last + SLACK_SECONDS).contains(&fault.at)
            && (-SLACK_SECONDS..=KILLED_WITHIN_SECONDS).contains(&until_end)
    })?;

    let job = KilledJob {
        job_id: run.job_id.clone(),
        user: run.user.clone(),
        account: run.account.clone(),
        state: run.state.clone(),
        end: run.end,
        fault: fault.code(),
    };
    // The job counts, without its names.
    if viewer.sees_job(Owner::new(&run.user, &run.account)) {
        return Some(job);
    }
    Some(KilledJob {
        job_id: String::new(),
        user: OTHER_USER.to_owned(),
        account: String::new(),
        ..job
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(card: &str, uuid: &str, slot: &str, from: i64) -> CardPlacement {
        CardPlacement {
            card: card.into(),
            uuid: uuid.into(),
            node: "g1".into(),
            slot: slot.into(),
            from: UnixTime(from),
            ..CardPlacement::default()
        }
    }

    #[test]
    fn a_fault_is_of_the_card_that_was_there_then() {
        let placements = [
            placement("1", "GPU-1", "a", 1000),
            placement("2", "GPU-2", "a", 9000),
            placement("1", "GPU-1", "b", 9000),
        ];
        let of = |uuid: Option<&str>, slot: Option<&str>, at: i64| {
            let [uuid, slot] = [uuid, slot].map(|one| one.map(str::to_owned));
            // Card 1 was seen in its second slot at 9000.
            let left_at = |placement: &CardPlacement| {
                let has_left = placement.card == "1" && placement.from.0 == 1000;
                has_left.then_some(UnixTime(9000))
            };
            let found = placement_of(&placements.each_ref(), &left_at, (uuid, slot), UnixTime(at));
            found.map(|one| (one.card.as_str(), one.from.0))
        };
        assert_eq!(of(Some("GPU-1"), Some("a"), 5000), Some(("1", 1000)));
        assert_eq!(of(Some("GPU-1"), None, 9999), Some(("1", 9000)));
        assert_eq!(of(None, Some("a"), 5000), Some(("1", 1000)));
        assert_eq!(of(None, Some("a"), 8900), Some(("2", 9000)));
        // Before the first sighting, and cards that were never seen.
        assert_eq!(of(Some("GPU-1"), None, 10), Some(("1", 1000)));
        assert_eq!(of(None, Some("a"), 10), None);
        assert_eq!(of(Some("GPU-9"), Some("a"), 5000), None);
        assert_eq!(of(None, None, 5000), None);
    }

    #[test]
    fn a_job_that_ends_soon_after_a_hardware_fault_was_killed() {
        let fault = |kind, at: i64| CardFault {
            kind,
            at: UnixTime(at),
            xid: Some(79),
            ..CardFault::default()
        };
        let facts = CardFacts {
            placements: vec![placement("1", "GPU-1", "a", 0)],
            faults: vec![
                fault(FaultKind::Application, 2000),
                fault(FaultKind::Hardware, 5000),
            ],
            ..CardFacts::default()
        };
        let run = |state: &str, held: [i64; 2], end: i64| CardRun {
            uuid: "GPU-1".into(),
            job_id: "7".into(),
            user: "ann".into(),
            account: "a".into(),
            state: state.into(),
            end: UnixTime(end),
            held: held.map(UnixTime),
        };
        let is_killed = |run| killed(&Viewer::server(), &facts, &run).is_some();
        assert!(is_killed(run("NODE_FAIL", [4000, 4990], 5600)));
        assert!(
            !is_killed(run("NODE_FAIL", [4000, 4990], 7000)),
            "long after"
        );
        assert!(
            !is_killed(run("NODE_FAIL", [6000, 6500], 6600)),
            "not held then"
        );
        assert!(
            !is_killed(run("FAILED", [1000, 2000], 2010)),
            "an application's error"
        );
        assert!(
            !is_killed(run("CANCELLED", [4000, 4990], 5010)),
            "another reason"
        );
        let other = CardRun {
            uuid: "GPU-2".into(),
            ..run("FAILED", [4000, 4990], 5010)
        };
        assert!(!is_killed(other), "another card");
    }
}
