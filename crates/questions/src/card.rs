//! One card (physical GPU): its verdict, with all that the verdict rests on.

use super::card_facts::CardRecords;
use super::period::the_cluster;
use super::{AnswerConfig, AnswerError, Question};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use takt_access::{Need, Viewer};
use takt_diagnosis::card::{CardDiagnosis, CardFault, KilledJob, judge_card};
use takt_jobs::{CardChange, CardCounter, CardPlacement};
use takt_store::{CardNote, Database, Records};

/// Asks for a card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CardQuestion {
    /// Serial number, or UUID.
    pub card: String,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

/// The answer: the card, or why there is none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CardAnswer {
    /// The card; `None` if no card with this name was ever seen.
    pub card: Option<CardReport>,
    /// Of an unknown card: a name that may be meant, as the end of a message.
    pub near: String,
}

/// A card.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CardReport {
    /// The card: its serial number, or its UUID.
    pub card: String,
    /// Cluster.
    pub cluster: String,
    /// Verdict, criteria, card or slot, causes, evidence.
    pub diagnosis: CardDiagnosis,
    /// Where it was, the oldest first.
    pub placements: Vec<CardPlacement>,
    /// Its faults, the oldest first. The kernel's lines and users are left out where the viewer may not see them.
    pub faults: Vec<CardFault>,
    /// Its readings over its life.
    pub readings: Vec<CardReadingLine>,
    /// Changes of its readings, the oldest first.
    pub changes: Vec<CardChange>,
    /// Jobs that its faults ended, the oldest first.
    pub killed: Vec<KilledJob>,
    /// Notes of operators, the oldest first; empty for viewers who do not see everything of all users.
    pub notes: Vec<CardNote>,
}

/// A reading of a card over its life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CardReadingLine {
    /// Name of the reading (docs/cards.md).
    pub reading: String,
    /// Its values.
    #[serde(flatten)]
    pub counter: CardCounter,
}

impl CardReport {
    /// The last placement, which has the card's identity as it was last seen.
    pub fn last_placement(&self) -> CardPlacement {
        self.placements.last().cloned().unwrap_or_default()
    }
}

impl Question for CardQuestion {
    const PATH: &'static str = "/api/takt/v1/card";
    const NEED: Need = Need::SignedIn;
    type Answer = CardAnswer;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<CardAnswer, AnswerError> {
        let records = Records::of(database);
        let asked = self
            .cluster
            .as_deref()
            .or(config.accounting.cluster.as_deref());
        let cluster = the_cluster(&records, asked, config.accounting.home.as_deref())?.cluster;

        let cards = CardRecords::read(viewer, records, &cluster)?;
        let Some(card) = cards.card_of(&self.card) else {
            return Ok(CardAnswer {
                card: None,
                near: cards.near(&self.card),
            });
        };

        let facts = cards.facts(viewer, Some(card), Timestamp::now().into())?;
        let Some(facts) = facts.into_iter().next() else {
            return Ok(CardAnswer::default());
        };

        // Operators write names of people into their notes.
        let notes = if viewer.sees_all() {
            records.card_notes(&cluster, Some(card))?
        } else {
            Vec::new()
        };
        let diagnosis = judge_card(&facts);
        let readings = facts
            .readings
            .into_iter()
            .map(|(reading, counter)| CardReadingLine { reading, counter });
        let report = CardReport {
            card: card.to_owned(),
            diagnosis,
            placements: cards.placements_of(card),
            faults: cards.shown_faults(card),
            readings: readings.collect(),
            changes: facts.changes,
            killed: facts.killed,
            notes,
            cluster,
        };
        Ok(CardAnswer {
            card: Some(report),
            near: String::new(),
        })
    }
}
