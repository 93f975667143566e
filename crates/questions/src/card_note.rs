//! A note of an operator about a card.

use super::card_facts::CardRecords;
use super::period::the_cluster;
use super::{AnswerConfig, AnswerError, Question, RequestForm};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use takt_access::{Need, Role, Viewer};
use takt_store::{CardNote, Database, Records};

/// Maximum length of a note, in characters.
const MAX_NOTE_CHARS: usize = 1000;

/// Maximum number of notes about a card.
const MOST_NOTES: usize = 1000;

/// Stores a note about a card. Answers with the note.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CardNoteOrder {
    /// Serial number, or UUID.
    pub card: String,
    /// The text.
    pub text: String,
    /// Person who writes it, if the viewer is a program; of a user, the name counts that the server knows.
    pub by: String,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

impl Question for CardNoteOrder {
    const PATH: &'static str = "/api/takt/v1/card";
    const REQUEST: RequestForm = RequestForm::PostJson;
    const NEED: Need = Need::Change(Role::Support);
    type Answer = CardNote;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<CardNote, AnswerError> {
        let text = checked(&self.text)?;
        let records = Records::of(database);
        let asked = self
            .cluster
            .as_deref()
            .or(config.accounting.cluster.as_deref());
        let cluster = the_cluster(&records, asked, config.accounting.home.as_deref())?.cluster;

        let cards = CardRecords::read(viewer, records, &cluster)?;
        let card = cards.card_of(&self.card).ok_or_else(|| {
            let near = cards.near(&self.card);
            AnswerError::Usage(format!("no card {} is known{near}", self.card))
        })?;
        if records.card_notes(&cluster, Some(card))?.len() >= MOST_NOTES {
            let error = format!("card {card} has {MOST_NOTES} notes, which is the most");
            return Err(AnswerError::Usage(error));
        }

        viewer.note_act(format!("note about card {card}"));
        let author: String = viewer.user().unwrap_or(&self.by).chars().take(64).collect();
        let note = CardNote {
            card: card.to_owned(),
            at: Timestamp::now().into(),
            author,
            text: text.to_owned(),
        };
        records.add_card_note(&cluster, &note)?;
        Ok(note)
    }
}

/// Returns the text of a note without spaces around it.
fn checked(text: &str) -> Result<&str, AnswerError> {
    let text = text.trim();
    let length = text.chars().count();
    if length == 0 || length > MAX_NOTE_CHARS {
        let error = format!("a note has 1 to {MAX_NOTE_CHARS} characters, found {length}");
        return Err(AnswerError::Usage(error));
    }
    if text.chars().any(char::is_control) {
        let error = "a note is one line: it has a line feed or another control character";
        return Err(AnswerError::Usage(error.to_owned()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::database;
    use crate::{CardQuestion, CardsQuestion};
    use takt_access::{Privacy, Way};
    use takt_jobs::CardPlacement;
    use takt_store::CardNews;

    #[test]
    fn a_note_names_its_author_and_is_for_operators() {
        let (_root, database) = database();
        let placement = CardPlacement {
            card: "1650001".into(),
            serial: "1650001".into(),
            uuid: "GPU-1".into(),
            node: "g1".into(),
            slot: "0000:01:00.0".into(),
            ..CardPlacement::default()
        };
        let news = CardNews {
            placements: vec![placement],
            ..CardNews::default()
        };
        Records::of(&database).note_cards("lab", &news).unwrap();

        let mut config = AnswerConfig::default();
        config.accounting.home = Some("lab".into());
        let order = |card: &str, text: &str| CardNoteOrder {
            card: card.into(),
            text: text.into(),
            by: "root".into(),
            cluster: None,
        };
        let bob = Viewer::new(Role::Support, Way::Socket, Privacy::Private).with_user("bob");
        let ask = |order: CardNoteOrder| order.answer(&bob, &database, &config);
        // By the UUID, too; of a person, the name counts that the server knows.
        let note = ask(order("GPU-1", " reseated ")).unwrap();
        assert_eq!(
            (note.card.as_str(), note.author.as_str(), note.text.as_str()),
            ("1650001", "bob", "reseated")
        );
        for (card, text, says) in [
            (
                "1650009",
                "x",
                "no card 1650009 is known; did you mean 1650001?",
            ),
            ("1650001", " ", "1 to 1000 characters, found 0"),
            ("1650001", "a\nb", "control character"),
        ] {
            let error = ask(order(card, text)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }

        let notes = |viewer: &Viewer| {
            let question = CardQuestion {
                card: "1650001".into(),
                cluster: None,
            };
            let answer = question.answer(viewer, &database, &config).unwrap();
            answer.card.unwrap().notes.len()
        };
        let ann = Viewer::new(Role::User, Way::Socket, Privacy::Open).with_user("ann");
        assert_eq!((notes(&bob), notes(&ann)), (1, 0));
        let listed = CardsQuestion::default()
            .answer(&ann, &database, &config)
            .unwrap();
        assert_eq!((listed.len(), listed[0].node.as_deref()), (1, Some("g1")));
    }
}
