//! Card or slot: after a swap, did the fault stay with the slot, or move with the card?

use super::{CardFacts, CardFault, FaultKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use takt_jobs::CardPlacement;
use takt_model::{UnixTime, words};

/// Days without a fault after which a card, or a slot, counts as free of it.
const FREE_DAYS: i64 = 7;

/// Where the fault is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultOrigin {
    /// It moves with the card.
    Card,
    /// It stays with the slot: board, riser, cable, power or cooling there.
    Slot,
    /// The evidence does not tell.
    #[default]
    Unknown,
}

/// Where the fault is, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginReport {
    /// Where it is.
    pub origin: FaultOrigin,
    /// The reason, as a sentence.
    pub why: String,
}

/// Node and PCI address.
type SlotName<'f> = (&'f str, &'f str);

/// Decides from the hardware faults of the card and of other cards in the same slots.
pub(super) fn origin(facts: &CardFacts) -> OriginReport {
    let own: Vec<&CardFault> = hardware(&facts.faults).collect();
    let slots: BTreeSet<SlotName> = own.iter().map(|fault| slot(fault)).collect();
    let others: Vec<&CardFault> = hardware(&facts.faults_of_others)
        .filter(|fault| slots.contains(&slot(fault)))
        .collect();

    let (Some(last), Some(first_slot)) = (own.last(), slots.first()) else {
        return unknown("the card had no hardware fault");
    };
    let shown = |one: &SlotName| format!("{} in {}", one.1, one.0);

    // The fault was in several slots: it came along with the card.
    if slots.len() > 1 {
        let places = slots.iter().map(shown).collect::<Vec<_>>().join(" and ");
        return match others.first() {
            None => report(
                FaultOrigin::Card,
                format!(
                    "it moved with the card: hardware faults at {places}, and of no other card there"
                ),
            ),
            Some(other) => unknown(format!(
                "hardware faults of this card at {places}, but also of card {} at {}",
                other.card,
                shown(&slot(other))
            )),
        };
    }

    let place = shown(first_slot);
    let free = free_elsewhere(facts, *first_slot, last.at);
    let free_words = words::duration(free.unwrap_or(0) as f64);
    match (others.first(), free) {
        (Some(other), Some(seconds)) if seconds >= FREE_DAYS * 86_400 => report(
            FaultOrigin::Slot,
            format!(
                "it stayed with the slot: card {} had hardware faults at {place}, too, and this card had none elsewhere for {free_words}",
                other.card
            ),
        ),
        (Some(other), _) => unknown(format!(
            "card {} had hardware faults at {place}, too, but this card was not elsewhere for {FREE_DAYS} days without a fault",
            other.card
        )),
        (None, Some(seconds)) if seconds >= FREE_DAYS * 86_400 => {
            match successor(facts, *first_slot, last.at) {
                Some(card) => unknown(format!(
                    "neither this card, elsewhere for {free_words}, nor card {card} at {place} has had a hardware fault since the swap"
                )),
                None => unknown(format!(
                    "the card was elsewhere for {free_words} without a fault, but no other card was at {place} for {FREE_DAYS} days"
                )),
            }
        }
        (None, Some(_)) => unknown(format!(
            "the card left {place} less than {FREE_DAYS} days ago, and has had no fault since"
        )),
        (None, None) => unknown(format!(
            "all hardware faults were at {place}, and the card was nowhere else since; swap it with a card of another slot"
        )),
    }
}

fn report(origin: FaultOrigin, why: String) -> OriginReport {
    OriginReport { origin, why }
}

fn unknown(why: impl Into<String>) -> OriginReport {
    report(FaultOrigin::Unknown, why.into())
}

fn hardware(faults: &[CardFault]) -> impl Iterator<Item = &CardFault> {
    // A fault whose slot is unknown tells nothing about slots.
    faults
        .iter()
        .filter(|fault| fault.kind == FaultKind::Hardware && !fault.slot.is_empty())
}

fn slot(fault: &CardFault) -> SlotName<'_> {
    (&fault.node, &fault.slot)
}

/// Seconds for which the card was in other slots after its last fault; `None` if it was in none.
fn free_elsewhere(facts: &CardFacts, slot: SlotName<'_>, last: UnixTime) -> Option<i64> {
    let elsewhere = facts
        .placements
        .iter()
        .filter(|placement| !placement.is_at(slot.0, slot.1) && placement.seen > last);
    elsewhere
        .map(|placement| (placement.seen - placement.from.max(last)).max(0))
        .reduce(|sum, seconds| sum + seconds)
}

/// Another card that was in the slot long enough after the fault.
fn successor<'f>(facts: &'f CardFacts, slot: SlotName<'_>, last: UnixTime) -> Option<&'f str> {
    let is_long = |placement: &&CardPlacement| {
        placement.is_at(slot.0, slot.1)
            && placement.seen - placement.from.max(last) >= FREE_DAYS * 86_400
    };
    facts
        .others
        .iter()
        .find(is_long)
        .map(|placement| placement.card.as_str())
}
