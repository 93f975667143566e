//! All cards (physical GPUs) with their verdicts.

use super::card_facts::CardRecords;
use super::period::the_cluster;
use super::{AnswerConfig, AnswerError, Question};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use takt_access::{Need, Viewer};
use takt_diagnosis::card::{CardFacts, CardVerdict, FaultKind, judge_card};
use takt_model::UnixTime;
use takt_store::{Database, Records};

/// Asks for all cards, the worst first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CardsQuestion {
    /// Only cards that are in this node.
    pub node: Option<String>,
    /// Only cards with this verdict.
    pub verdict: Option<CardVerdict>,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

/// A card of the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CardLine {
    /// The card: its serial number, or its UUID.
    pub card: String,
    /// Serial number; empty if it has none.
    pub serial: String,
    /// UUID.
    pub uuid: String,
    /// Model.
    pub model: String,
    /// Node in which it is, as far as known; `None`: it was taken out.
    pub node: Option<String>,
    /// PCI address there.
    pub slot: Option<String>,
    /// Since when it is there; of a card that was taken out, since when it was in its last slot.
    pub since: UnixTime,
    /// Last sighting.
    pub seen: UnixTime,
    /// The verdict.
    pub verdict: CardVerdict,
    /// The worst criterion that is met; empty for a healthy card.
    pub criterion: String,
    /// XIDs and losses that were reported, in 400 days at most.
    pub faults: usize,
    /// Those that no application causes.
    pub hardware_faults: usize,
    /// Jobs that its faults ended.
    pub jobs_killed: usize,
}

impl Question for CardsQuestion {
    const PATH: &'static str = "/api/takt/v1/cards";
    const NEED: Need = Need::SignedIn;
    type Answer = Vec<CardLine>;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<Vec<CardLine>, AnswerError> {
        let records = Records::of(database);
        let asked = self
            .cluster
            .as_deref()
            .or(config.accounting.cluster.as_deref());
        let cluster = the_cluster(&records, asked, config.accounting.home.as_deref())?.cluster;

        let now = Timestamp::now().into();
        let cards = CardRecords::read(viewer, records, &cluster)?;
        let facts = cards.facts(viewer, None, now)?;
        let mut lines: Vec<CardLine> = facts.iter().filter_map(line).collect();
        lines.retain(|line| {
            self.verdict.is_none_or(|verdict| verdict == line.verdict)
                && (self.node.is_none() || self.node == line.node)
        });
        lines.sort_by(|a, b| {
            let key =
                |line: &CardLine| (Reverse(line.verdict), line.node.clone(), line.slot.clone());
            key(a).cmp(&key(b)).then_with(|| a.card.cmp(&b.card))
        });
        Ok(lines)
    }
}

fn line(facts: &CardFacts) -> Option<CardLine> {
    let last = facts.placements.last()?;
    let is_there = last.to.is_none();
    let diagnosis = judge_card(facts);
    let hardware = facts
        .faults
        .iter()
        .filter(|fault| fault.kind == FaultKind::Hardware);
    Some(CardLine {
        card: facts.card.clone(),
        serial: last.serial.clone(),
        uuid: last.uuid.clone(),
        model: last.model.clone(),
        node: is_there.then(|| last.node.clone()),
        slot: is_there.then(|| last.slot.clone()),
        since: last.from,
        seen: last.seen,
        verdict: diagnosis.verdict,
        criterion: diagnosis
            .findings
            .first()
            .map(|one| one.criterion.clone())
            .unwrap_or_default(),
        faults: facts.faults.len(),
        hardware_faults: hardware.count(),
        jobs_killed: facts.killed.len(),
    })
}
