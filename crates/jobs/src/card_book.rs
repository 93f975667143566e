//! Which card (physical GPU) was in which slot, from when to when.
//!
//! A node that is down says nothing about its cards, so it ends no placement. A placement ends when the card is seen
//! elsewhere, when another card is seen in its slot, or when the card comes back after a time in which it could have been
//! anywhere.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use takt_model::UnixTime;

/// Seconds without a sighting after which a card that comes back gets a new placement, even in its old slot: 30 days.
/// Holidays and repairs of a node are shorter.
pub const UNSEEN_SECONDS: i64 = 30 * 86_400;

/// Seconds by which [`CardPlacement::seen`] may lag in the records. Cards are seen each minute; not each is written.
const NOTE_SECONDS: i64 = 600;

/// Seconds by which a clock is waited for after it was set back.
const CLOCK_SECONDS: i64 = 3600;

/// Maximum length of a text of a sighting, in bytes. NVML's are shorter than 100.
const MAX_TEXT_BYTES: usize = 128;

/// A card that an exporter reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardSighting {
    /// When the exporter said so.
    pub at: UnixTime,
    /// Serial number from NVML; empty if the card has none.
    pub serial: String,
    /// UUID from NVML.
    pub uuid: String,
    /// Model from NVML.
    pub model: String,
    /// Version of the driver.
    pub driver: String,
    /// Version of the board's firmware; empty if unknown.
    pub vbios: String,
    /// Name of the node.
    pub node: String,
    /// PCI address.
    pub slot: String,
    /// Index of the GPU in its node, from NVML.
    pub index: Option<u32>,
}

/// A time in which a card was in a slot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardPlacement {
    /// The card: its serial number, or its UUID if it has none or shares it with another GPU of its board.
    pub card: String,
    /// Serial number; empty if it has none.
    pub serial: String,
    /// UUID.
    pub uuid: String,
    /// Model.
    pub model: String,
    /// Version of the driver when it was last seen there.
    pub driver: String,
    /// Version of the board's firmware when it was last seen there; empty if unknown.
    pub vbios: String,
    /// Name of the node.
    pub node: String,
    /// PCI address.
    pub slot: String,
    /// Index of the GPU in the node when it was last seen there.
    pub index: Option<u32>,
    /// First sighting.
    pub from: UnixTime,
    /// Last sighting, up to ten minutes late.
    pub seen: UnixTime,
    /// End: the last sighting. `None`: the card is there, as far as anyone knows.
    pub to: Option<UnixTime>,
}

impl CardPlacement {
    /// Seconds from the first to the last sighting.
    pub fn seconds(&self) -> i64 {
        self.seen - self.from
    }

    /// Whether this is the slot.
    pub fn is_at(&self, node: &str, slot: &str) -> bool {
        self.node == node && self.slot == slot
    }

    /// Whether the card may have been there at `at`.
    pub fn covers(&self, at: UnixTime) -> bool {
        self.from <= at && self.to.is_none_or(|to| at <= to)
    }

    /// Takes what may change while a card stays: driver, firmware, and on some boards the UUID.
    fn renew(&mut self, sighting: &CardSighting, now: UnixTime) {
        self.seen = self.seen.max(now);
        self.slot.clone_from(&sighting.slot);
        self.uuid.clone_from(&sighting.uuid);
        self.driver.clone_from(&sighting.driver);
        self.vbios.clone_from(&sighting.vbios);
        self.index = sighting.index;
    }

    fn begun(card: String, sighting: &CardSighting, now: UnixTime) -> Self {
        Self {
            card,
            serial: real_serial(&sighting.serial).unwrap_or_default().to_owned(),
            uuid: sighting.uuid.clone(),
            model: sighting.model.clone(),
            driver: sighting.driver.clone(),
            vbios: sighting.vbios.clone(),
            node: sighting.node.clone(),
            slot: sighting.slot.clone(),
            index: sighting.index,
            from: now,
            seen: now,
            to: None,
        }
    }
}

/// Node and PCI address.
type SlotKey = (String, String);

/// The cards and where they are.
#[derive(Debug, Clone, Default)]
pub struct CardBook {
    /// Placements that have not ended, by card, each with the time of its last sighting in the records.
    open: BTreeMap<String, (CardPlacement, UnixTime)>,
    /// Serial numbers that several GPUs of a board share.
    shared: BTreeSet<String>,
    latest: UnixTime,
}

impl CardBook {
    /// Reads a book from recorded placements, in any order.
    pub fn of(placements: impl IntoIterator<Item = CardPlacement>) -> Self {
        let mut book = Self::default();
        for placement in placements {
            // Only a shared serial number was not taken as the card's name.
            if !placement.serial.is_empty() && placement.card != placement.serial {
                book.shared.insert(placement.serial.clone());
            }
            book.latest = book.latest.max(placement.seen);
            if placement.to.is_none() {
                let seen = placement.seen;
                book.open.insert(placement.card.clone(), (placement, seen));
            }
        }
        book
    }

    /// Returns the open placements by UUID.
    pub fn by_uuid(&self) -> BTreeMap<&str, &CardPlacement> {
        let open = self.open.values();
        open.map(|(placement, _)| (placement.uuid.as_str(), placement))
            .collect()
    }

    /// Records the cards that exporters report at `now`. Returns the placements that began, ended or changed; card and
    /// begin are their identity.
    pub fn observe(
        &mut self,
        sightings: impl IntoIterator<Item = CardSighting>,
        now: UnixTime,
    ) -> Vec<CardPlacement> {
        // A clock that was set back must not begin a placement before an older one ends.
        // One that was wrong by more than that is not waited for.
        if now < self.latest && self.latest - now <= CLOCK_SECONDS {
            return Vec::new();
        }
        self.latest = now;

        let seen = self.settle(sightings);
        let mut changed = self.renumber(&seen, now);

        for (card, sighting) in &seen {
            let is_same = self.open.get(card).is_some_and(|(placement, _)| {
                placement.is_at(&sighting.node, &sighting.slot)
                    && now - placement.seen <= UNSEEN_SECONDS
            });
            if is_same {
                changed.extend(self.renew(card, sighting, now));
                continue;
            }

            // It is here, so it is not where it was, and neither is the card that was here.
            changed.extend(self.end(card));
            let occupant = self.open.values().find_map(|(placement, _)| {
                placement
                    .is_at(&sighting.node, &sighting.slot)
                    .then(|| placement.card.clone())
            });
            if let Some(occupant) = occupant {
                changed.extend(self.end(&occupant));
            }

            let begun = CardPlacement::begun(card.clone(), sighting, now);
            changed.push(begun.clone());
            self.open.insert(card.clone(), (begun, now));
        }
        changed
    }

    /// Names the cards of the sightings. Of several sightings of a card, and of several cards in a slot, the latest counts.
    fn settle(
        &mut self,
        sightings: impl IntoIterator<Item = CardSighting>,
    ) -> BTreeMap<String, CardSighting> {
        let mut sightings: Vec<CardSighting> = sightings.into_iter().filter(is_usable).collect();
        sightings.sort_by_key(|sighting| sighting.at);

        let mut uuids: BTreeMap<&str, &str> = BTreeMap::new();
        for sighting in &sightings {
            if let Some(serial) = real_serial(&sighting.serial)
                && uuids
                    .insert(serial, &sighting.uuid)
                    .is_some_and(|other| other != sighting.uuid)
            {
                self.shared.insert(serial.to_owned());
            }
        }

        let mut by_card: BTreeMap<String, CardSighting> = BTreeMap::new();
        for sighting in sightings {
            let serial = real_serial(&sighting.serial).filter(|one| !self.shared.contains(*one));
            let card = serial.unwrap_or(&sighting.uuid).to_owned();

            // Of two sightings at the same time, that in the known place is no news and counts.
            let is_at_home = |one: &CardSighting| {
                let known = self.open.get(&card);
                known.is_some_and(|(placement, _)| placement.is_at(&one.node, &one.slot))
            };
            let is_kept = by_card
                .get(&card)
                .is_some_and(|other| other.at == sighting.at && is_at_home(other));
            if !is_kept {
                by_card.insert(card, sighting);
            }
        }

        let mut by_slot: BTreeMap<SlotKey, (UnixTime, String)> = BTreeMap::new();
        for (card, sighting) in &by_card {
            let slot = (sighting.node.clone(), sighting.slot.clone());
            let newest = by_slot.entry(slot).or_insert((sighting.at, card.clone()));
            if newest.0 < sighting.at {
                *newest = (sighting.at, card.clone());
            }
        }
        let placed: BTreeSet<String> = by_slot.into_values().map(|(_, card)| card).collect();
        by_card.retain(|card, _| placed.contains(card));
        by_card
    }

    /// Follows nodes whose PCI addresses changed: a new network card shifts the numbers of several GPUs, whose order stays.
    /// Nobody moved them.
    fn renumber(
        &mut self,
        seen: &BTreeMap<String, CardSighting>,
        now: UnixTime,
    ) -> Vec<CardPlacement> {
        let mut nodes: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for (card, sighting) in seen {
            let of_node = nodes.entry(&sighting.node).or_default();
            of_node.push((&sighting.slot, card));
        }

        let mut changed = Vec::new();
        for (node, mut after) in nodes {
            let mut before: Vec<(&str, &str)> = self
                .open
                .values()
                .filter(|(placement, _)| placement.node == node)
                .map(|(placement, _)| (placement.slot.as_str(), placement.card.as_str()))
                .collect();
            after.sort_unstable();
            before.sort_unstable();

            let is_same_order = before
                .iter()
                .map(|(_, card)| card)
                .eq(after.iter().map(|(_, card)| card));
            let shifted = before
                .iter()
                .zip(&after)
                .filter(|(old, new)| old.0 != new.0)
                .count();
            // One card alone may well have been moved to another slot.
            if !is_same_order || shifted < 2 {
                continue;
            }

            let cards: Vec<String> = after.iter().map(|(_, card)| (*card).to_owned()).collect();
            for card in cards {
                if let Some((placement, noted)) = self.open.get_mut(&card)
                    && let Some(sighting) = seen.get(&card)
                {
                    placement.renew(sighting, now);
                    *noted = now;
                    changed.push(placement.clone());
                }
            }
        }
        changed
    }

    fn renew(
        &mut self,
        card: &str,
        sighting: &CardSighting,
        now: UnixTime,
    ) -> Option<CardPlacement> {
        let (placement, noted) = self.open.get_mut(card)?;
        let before = placement.clone();
        placement.renew(sighting, now);

        let is_as_before = CardPlacement {
            seen: before.seen,
            ..placement.clone()
        } == before;
        if is_as_before && now - *noted < NOTE_SECONDS {
            return None;
        }
        *noted = now;
        Some(placement.clone())
    }

    fn end(&mut self, card: &str) -> Option<CardPlacement> {
        let (placement, _) = self.open.remove(card)?;
        Some(CardPlacement {
            to: Some(placement.seen),
            ..placement
        })
    }
}

/// A serial number that names a card. Boards without one have a placeholder.
fn real_serial(serial: &str) -> Option<&str> {
    let serial = serial.trim();
    let is_real = serial.chars().any(|c| !matches!(c, '0' | ' '))
        && !["n/a", "[n/a]", "unknown", "none"].contains(&serial.to_ascii_lowercase().as_str());
    is_real.then_some(serial)
}

/// Whether the texts of a sighting are such as NVML gives them. Labels come from the network.
fn is_usable(sighting: &CardSighting) -> bool {
    let required = [&sighting.uuid, &sighting.node, &sighting.slot];
    let all = [
        &sighting.serial,
        &sighting.model,
        &sighting.driver,
        &sighting.vbios,
    ];
    // The exporter's name for a device that the driver does not list.
    !sighting.uuid.starts_with("unknown-")
        && required.iter().all(|text| !text.is_empty())
        && required
            .iter()
            .chain(&all)
            .all(|text| text.len() <= MAX_TEXT_BYTES && !text.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const DAY: i64 = 86_400;

    fn seen(serial: &str, uuid: &str, node: &str, slot: u32) -> CardSighting {
        CardSighting {
            serial: serial.into(),
            uuid: uuid.into(),
            node: node.into(),
            slot: format!("0000:{slot:02x}:00.0"),
            model: "H100".into(),
            ..CardSighting::default()
        }
    }

    /// Rounds of sightings, and the placements after them: card, node, first and last byte of the slot, from, seen, to.
    fn life(rounds: Vec<(i64, Vec<CardSighting>)>) -> Vec<CardPlacement> {
        let mut book = CardBook::default();
        let mut placements: BTreeMap<(UnixTime, String), CardPlacement> = BTreeMap::new();
        for (now, sightings) in rounds {
            let sightings = sightings.into_iter().map(|one| CardSighting {
                at: UnixTime(now),
                ..one
            });
            for changed in book.observe(sightings, UnixTime(now)) {
                placements.insert((changed.from, changed.card.clone()), changed);
            }
            // As after a restart of the server.
            book = CardBook::of(placements.values().cloned());
        }
        placements.into_values().collect()
    }

    fn short(placements: &[CardPlacement]) -> Vec<(&str, &str, i64, i64, Option<i64>)> {
        placements
            .iter()
            .map(|one| {
                (
                    one.card.as_str(),
                    one.node.as_str(),
                    one.from.0,
                    one.seen.0,
                    one.to.map(|to| to.0),
                )
            })
            .collect()
    }

    #[test]
    fn a_node_that_is_down_keeps_its_cards_and_a_card_elsewhere_has_left() {
        let [a, b] = ["1", "2"].map(|serial| seen(serial, &format!("GPU-{serial}"), "g1", 1));
        let a_in_g2 = CardSighting {
            node: "g2".into(),
            ..a.clone()
        };
        let rounds = vec![
            (0, vec![a.clone()]),
            (600, vec![a]),
            // Down for ten days, then a card is in g2, and days later another one in its old slot.
            (10 * DAY, vec![]),
            (11 * DAY, vec![a_in_g2.clone()]),
            (12 * DAY, vec![a_in_g2, b]),
        ];
        assert_eq!(
            short(&life(rounds)),
            [
                ("1", "g1", 0, 600, Some(600)),
                ("1", "g2", 11 * DAY, 12 * DAY, None),
                ("2", "g1", 12 * DAY, 12 * DAY, None),
            ]
        );
    }

    #[test]
    fn a_card_that_comes_back_after_200_days_gets_a_new_placement() {
        let a = seen("1", "GPU-1", "g1", 1);
        let rounds = vec![
            (0, vec![a.clone()]),
            (20 * DAY, vec![a.clone()]),
            (220 * DAY, vec![a]),
        ];
        assert_eq!(
            short(&life(rounds)),
            [
                ("1", "g1", 0, 20 * DAY, Some(20 * DAY)),
                ("1", "g1", 220 * DAY, 220 * DAY, None)
            ]
        );
    }

    #[test]
    fn cards_without_a_serial_and_gpus_of_one_board_stay_apart() {
        let names = |serial: &str| {
            let rounds = vec![(
                0,
                vec![
                    seen(serial, "GPU-1", "g1", 1),
                    seen(serial, "GPU-2", "g1", 2),
                ],
            )];
            life(rounds)
                .into_iter()
                .map(|one| (one.card, one.serial))
                .collect::<Vec<_>>()
        };
        let by_uuid =
            |serial: &str| ["GPU-1", "GPU-2"].map(|uuid| (uuid.to_owned(), serial.to_owned()));
        for none in ["", "0", "0000000000000", "N/A", "[N/A]"] {
            assert_eq!(names(none), by_uuid(""), "{none}");
        }
        assert_eq!(names("165"), by_uuid("165"));

        // One of them is lost: the other keeps its name.
        let pair = [seen("165", "GPU-1", "g1", 1), seen("165", "GPU-2", "g1", 2)];
        let rounds = vec![(0, pair.to_vec()), (600, vec![pair[0].clone()])];
        assert_eq!(
            short(&life(rounds)),
            [("GPU-1", "g1", 0, 600, None), ("GPU-2", "g1", 0, 0, None)]
        );
    }

    #[test]
    fn a_swap_within_a_node_moves_both_and_a_new_number_of_the_bus_moves_none() {
        let [a, b] =
            ["1", "2"].map(|serial| move |slot| seen(serial, &format!("GPU-{serial}"), "g1", slot));
        let swapped = life(vec![(0, vec![a(1), b(2)]), (600, vec![a(2), b(1)])]);
        assert_eq!(swapped.len(), 4);
        assert_eq!(
            swapped
                .iter()
                .filter(|one| one.to == Some(UnixTime(0)))
                .count(),
            2
        );

        let shifted = life(vec![(0, vec![a(1), b(2)]), (600, vec![a(2), b(3)])]);
        assert_eq!(
            short(&shifted),
            [("1", "g1", 0, 600, None), ("2", "g1", 0, 600, None)]
        );
        assert_eq!(shifted[1].slot, "0000:03:00.0");

        // Only one card has another address: it was moved.
        assert_eq!(
            life(vec![(0, vec![a(1), b(2)]), (600, vec![a(1), b(3)])]).len(),
            3
        );
    }

    #[test]
    fn the_latest_sighting_counts_and_bad_texts_count_for_nothing() {
        let mut book = CardBook::default();
        let old = CardSighting {
            at: UnixTime(50),
            ..seen("1", "GPU-1", "g1", 1)
        };
        let new = CardSighting {
            at: UnixTime(60),
            ..seen("1", "GPU-1", "g2", 1)
        };
        let bad = [
            seen("3", "", "g1", 3),
            seen("4", "GPU-4", "g\n1", 4),
            seen(&"5".repeat(500), "GPU-5", "g1", 5),
        ];
        let changed = book.observe([new, old].into_iter().chain(bad), UnixTime(60));
        assert_eq!(short(&changed), [("1", "g2", 60, 60, None)]);
        assert_eq!(book.by_uuid()["GPU-1"].node, "g2");

        // The clock was set back.
        assert!(
            book.observe([seen("2", "GPU-2", "g1", 1)], UnixTime(10))
                .is_empty()
        );
    }

    fn slot_of(placement: &CardPlacement) -> SlotKey {
        (placement.node.clone(), placement.slot.clone())
    }

    /// Seconds that the intervals cover; fails if two overlap.
    fn disjoint(mut intervals: Vec<(i64, i64)>) -> Result<i64, TestCaseError> {
        intervals.sort_unstable();
        for pair in intervals.windows(2) {
            prop_assert!(pair[0].1 <= pair[1].0, "{pair:?} overlap");
        }
        Ok(intervals.iter().map(|(from, to)| to - from).sum())
    }

    proptest! {
        /// Cards are moved at will between four slots; hours of cards and hours of slots are the same, and nothing is counted
        /// twice.
        #[test]
        fn the_hours_of_cards_are_those_of_slots(
            rounds in vec((1_i64..40 * DAY, vec((0_u32..5, 0_u32..4), 0..5)), 1..20)
        ) {
            let mut now = 0;
            let mut times = Vec::new();
            for (step, placed) in rounds {
                now += step;
                let sighting = |(card, slot): &(u32, u32)| {
                    seen(&format!("9{card}"), &format!("GPU-{card}"), &format!("g{}", slot % 2), slot / 2)
                };
                times.push((now, placed.iter().map(sighting).collect()));
            }

            let placements = life(times);
            let mut by_card: BTreeMap<&str, Vec<(i64, i64)>> = BTreeMap::new();
            let mut by_slot: BTreeMap<SlotKey, Vec<(i64, i64)>> = BTreeMap::new();
            for one in &placements {
                let interval = (one.from.0, one.from.0 + one.seconds());
                by_card.entry(&one.card).or_default().push(interval);
                by_slot.entry(slot_of(one)).or_default().push(interval);
            }

            let mut card_seconds = 0;
            for intervals in by_card.into_values() {
                card_seconds += disjoint(intervals)?;
            }
            let mut slot_seconds = 0;
            for intervals in by_slot.into_values() {
                slot_seconds += disjoint(intervals)?;
            }
            prop_assert_eq!(card_seconds, slot_seconds);

            // A card, and a slot, has at most one placement that lasts.
            let open: Vec<_> = placements.iter().filter(|one| one.to.is_none()).collect();
            let cards: BTreeSet<_> = open.iter().map(|one| &one.card).collect();
            let slots: BTreeSet<_> = open.iter().map(|one| slot_of(one)).collect();
            prop_assert_eq!((cards.len(), slots.len()), (open.len(), open.len()));
        }
    }
}
