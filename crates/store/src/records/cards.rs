//! Cards (physical GPUs): where they were, what they counted, and what operators noted.

use super::{Records, TimeColumns, micros};
use crate::{EventRecord, StoreError};
use duckdb::params;
use duckdb::types::Value;
use serde::{Deserialize, Serialize};
use takt_jobs::{CardChange, CardCounter, CardPlacement};
use takt_model::{Timestamp, UnixTime};

/// A reading of a card over its life.
#[derive(Debug, Clone, PartialEq)]
pub struct CardReading {
    /// The card.
    pub card: String,
    /// Name of the reading.
    pub reading: String,
    /// Its life.
    pub counter: CardCounter,
}

/// What a round found out about cards.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CardNews {
    /// Placements that began, ended or changed.
    pub placements: Vec<CardPlacement>,
    /// Readings to be stored anew.
    pub readings: Vec<CardReading>,
    /// Changes.
    pub changes: Vec<CardChange>,
}

impl CardNews {
    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.placements.is_empty() && self.readings.is_empty() && self.changes.is_empty()
    }
}

/// A note of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardNote {
    /// The card.
    pub card: String,
    /// Time of writing.
    pub at: UnixTime,
    /// Who wrote it.
    pub author: String,
    /// The text.
    pub text: String,
}

/// A run that held a card and has ended without completing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardRun {
    /// UUID of the card then.
    pub uuid: String,
    /// Job id.
    pub job_id: String,
    /// User.
    pub user: String,
    /// Account.
    pub account: String,
    /// Slurm's state.
    pub state: String,
    /// End of the run.
    pub end: UnixTime,
    /// First and last time at which the run was seen to hold the card.
    pub held: [UnixTime; 2],
}

/// Faults of one kind that are read of a card and day. A job can write lines of its own kind without an end, and must not hide
/// what the hardware did.
const MOST_FAULTS_A_DAY: u32 = 5;

/// Kinds of events that are faults of a card.
const FAULT_KINDS: &str = "'xid', 'gpu_lost', 'gpu_init_failed'";

/// Parameters of the statements about one card, or about all.
fn of_card(cluster: &str, card: Option<&str>) -> Vec<Value> {
    vec![cluster.to_owned().into(), card.map(str::to_owned).into()]
}

impl Records<'_> {
    /// Returns the placements of cards, the oldest first: those of `card`, or of all cards.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn card_placements(
        &self,
        cluster: &str,
        card: Option<&str>,
    ) -> Result<Vec<CardPlacement>, StoreError> {
        self.list(
            "list the placements of cards",
            "SELECT card, coalesce(serial, ''), uuid, model, driver, coalesce(vbios, ''), gpu_index, node, slot,
                    epoch_ms(from_time) // 1000, epoch_ms(last_seen) // 1000, epoch_ms(to_time) // 1000
             FROM records.card_placements WHERE cluster = ? AND coalesce(card = ?, true) ORDER BY from_time, card",
            of_card(cluster, card),
            |row| {
                Ok(CardPlacement {
                    card: row.get(0)?,
                    serial: row.get(1)?,
                    uuid: row.get(2)?,
                    model: row.get(3)?,
                    driver: row.get(4)?,
                    vbios: row.get(5)?,
                    index: row.get(6)?,
                    node: row.get(7)?,
                    slot: row.get(8)?,
                    from: row.time(9)?,
                    seen: row.time(10)?,
                    to: row.time_if_set(11)?,
                })
            },
        )
    }

    /// Returns the readings of cards over their lives, of `card` or of all.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn card_readings(
        &self,
        cluster: &str,
        card: Option<&str>,
    ) -> Result<Vec<CardReading>, StoreError> {
        self.list(
            "list the readings of cards",
            "SELECT card, reading, last_value, highest, lowest, total, resets, epoch_ms(first_seen) // 1000,
                    epoch_ms(last_seen) // 1000, epoch_ms(changed_at) // 1000
             FROM records.card_counters WHERE cluster = ? AND coalesce(card = ?, true) ORDER BY card, reading",
            of_card(cluster, card),
            |row| {
                Ok(CardReading {
                    card: row.get(0)?,
                    reading: row.get(1)?,
                    counter: CardCounter {
                        last: row.get(2)?,
                        highest: row.get(3)?,
                        lowest: row.get(4)?,
                        total: row.get(5)?,
                        resets: row.get(6)?,
                        first_seen: row.time(7)?,
                        seen: row.time(8)?,
                        changed_at: row.time(9)?,
                    },
                })
            },
        )
    }

    /// Returns the changes of cards, the oldest first: of `card`, or of all.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn card_changes(
        &self,
        cluster: &str,
        card: Option<&str>,
    ) -> Result<Vec<CardChange>, StoreError> {
        self.list(
            "list the changes of cards",
            "SELECT card, epoch_ms(happened_at) // 1000, reading, value_before, value
             FROM records.card_changes WHERE cluster = ? AND coalesce(card = ?, true) ORDER BY happened_at, card, reading",
            of_card(cluster, card),
            |row| {
                Ok(CardChange {
                    card: row.get(0)?,
                    at: row.time(1)?,
                    reading: row.get(2)?,
                    before: row.get(3)?,
                    value: row.get(4)?,
                })
            },
        )
    }

    /// Returns the notes about cards, the oldest first: about `card`, or about all.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn card_notes(
        &self,
        cluster: &str,
        card: Option<&str>,
    ) -> Result<Vec<CardNote>, StoreError> {
        self.list(
            "list the notes about cards",
            "SELECT card, written_at, author, note
             FROM records.access.card_notes WHERE cluster = ? AND coalesce(card = ?, true) ORDER BY written_at, rowid",
            of_card(cluster, card),
            |row| {
                Ok(CardNote {
                    card: row.get(0)?,
                    at: row.time(1)?,
                    author: row.get(2)?,
                    text: row.get(3)?,
                })
            },
        )
    }

    /// Returns the faults of cards that exporters reported, the oldest first: the newest `most`.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn card_faults(&self, most: usize) -> Result<Vec<EventRecord>, StoreError> {
        let sql = format!(
            "SELECT * FROM (
                 SELECT epoch_ms(happened_at) AS happened, node, kind, labels, message FROM records.events
                 WHERE kind IN ({FAULT_KINDS})
                 QUALIFY row_number() OVER (PARTITION BY node, labels ->> 'pci_bus_id', labels ->> 'xid', happened_at::DATE
                                            ORDER BY happened_at DESC) <= {MOST_FAULTS_A_DAY}
                 ORDER BY happened_at DESC LIMIT ?)
             ORDER BY happened"
        );
        self.list(
            "read the faults of cards",
            &sql,
            vec![(most as i64).into()],
            |row| {
                Ok(EventRecord {
                    at: Timestamp(row.get(0)?),
                    texts: [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?],
                })
            },
        )
    }

    /// Returns the runs that held one of these GPUs and ended without completing, the oldest first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn failed_runs_on(
        &self,
        cluster: &str,
        uuids: &[String],
    ) -> Result<Vec<CardRun>, StoreError> {
        let wanted = uuids.iter().map(|uuid| Value::from(uuid.clone()));
        let places = vec!["?"; uuids.len()].join(", ");
        // Without a UUID no run can match, and an empty list is no SQL.
        if places.is_empty() {
            return Ok(Vec::new());
        }

        let sql = format!(
            "SELECT g.uuid, j.job_id, j.\"user\", j.account, j.state, epoch_ms(j.end_time) // 1000,
                    epoch_ms(min(g.first_seen)) // 1000, epoch_ms(max(g.last_seen)) // 1000
             FROM records.job_gpus AS g
             JOIN records.jobs AS j
                 ON j.cluster = g.cluster AND j.job_id = g.job_id AND j.submit_time = g.submit_time
             WHERE g.cluster = ? AND g.uuid IN ({places}) AND j.end_time IS NOT NULL AND j.state <> 'COMPLETED'
             GROUP BY g.uuid, j.job_id, j.submit_time, j.\"user\", j.account, j.state, j.end_time
             ORDER BY j.end_time, j.job_id"
        );
        let values = [cluster.to_owned().into()].into_iter().chain(wanted);
        self.list(
            "list the failed runs of cards",
            &sql,
            values.collect(),
            |row| {
                Ok(CardRun {
                    uuid: row.get(0)?,
                    job_id: row.get(1)?,
                    user: row.get(2)?,
                    account: row.get(3)?,
                    state: row.get(4)?,
                    end: row.time(5)?,
                    held: [row.time(6)?, row.time(7)?],
                })
            },
        )
    }

    /// Stores what a round found out about cards.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_cards(&self, cluster: &str, news: &CardNews) -> Result<(), StoreError> {
        if news.is_empty() {
            return Ok(());
        }
        self.writing_aside("note where cards are", |db| {
            db.execute_batch(
                "CREATE TEMP TABLE placement (card VARCHAR, serial VARCHAR, uuid VARCHAR, model VARCHAR, driver VARCHAR,
                     vbios VARCHAR, gpu_index BIGINT, node VARCHAR, slot VARCHAR, from_time BIGINT, last_seen BIGINT,
                     to_time BIGINT);
                 CREATE TEMP TABLE counter (card VARCHAR, reading VARCHAR, last_value DOUBLE, highest DOUBLE, lowest DOUBLE,
                     total DOUBLE, resets BIGINT, first_seen BIGINT, last_seen BIGINT, changed_at BIGINT);
                 CREATE TEMP TABLE change (card VARCHAR, happened_at BIGINT, reading VARCHAR, value_before DOUBLE,
                     value DOUBLE)",
            )?;

            let mut staged = db.appender_to_catalog_and_db("placement", "temp", "main")?;
            for one in &news.placements {
                staged.append_row(params![
                    one.card,
                    Some(&one.serial).filter(|serial| !serial.is_empty()),
                    one.uuid,
                    one.model,
                    one.driver,
                    Some(&one.vbios).filter(|vbios| !vbios.is_empty()),
                    one.index,
                    one.node,
                    one.slot,
                    micros(one.from),
                    micros(one.seen),
                    one.to.map(micros)
                ])?;
            }
            drop(staged);

            let mut staged = db.appender_to_catalog_and_db("counter", "temp", "main")?;
            for CardReading { card, reading, counter } in &news.readings {
                staged.append_row(params![
                    card,
                    reading,
                    counter.last,
                    counter.highest,
                    counter.lowest,
                    counter.total,
                    counter.resets,
                    micros(counter.first_seen),
                    micros(counter.seen),
                    micros(counter.changed_at)
                ])?;
            }
            drop(staged);

            let mut staged = db.appender_to_catalog_and_db("change", "temp", "main")?;
            for one in &news.changes {
                staged.append_row(params![
                    one.card,
                    micros(one.at),
                    one.reading,
                    one.before,
                    one.value
                ])?;
            }
            // The rows are in the tables only after the appenders have been dropped.
            drop(staged);

            // A placement that began and ended within a round comes twice; the one that has ended is the newer one.
            db.execute(
                "DELETE FROM records.card_placements AS p USING placement AS n
                 WHERE p.cluster = ? AND p.card = n.card AND p.from_time = make_timestamp(n.from_time)::TIMESTAMP_S",
                params![cluster],
            )?;
            db.execute(
                "INSERT INTO records.card_placements
                 SELECT ?, card, serial, uuid, model, driver, vbios, gpu_index, node, slot,
                     make_timestamp(from_time)::TIMESTAMP_S, make_timestamp(last_seen)::TIMESTAMP_S,
                     make_timestamp(to_time)::TIMESTAMP_S
                 FROM placement
                 QUALIFY row_number() OVER (PARTITION BY card, from_time ORDER BY last_seen DESC, to_time NULLS LAST) = 1",
                params![cluster],
            )?;
            db.execute(
                "DELETE FROM records.card_counters AS c USING counter AS n
                 WHERE c.cluster = ? AND c.card = n.card AND c.reading = n.reading",
                params![cluster],
            )?;
            db.execute(
                "INSERT INTO records.card_counters
                 SELECT ?, card, reading, last_value, highest, lowest, total, resets,
                     make_timestamp(first_seen)::TIMESTAMP_S, make_timestamp(last_seen)::TIMESTAMP_S,
                     make_timestamp(changed_at)::TIMESTAMP_S
                 FROM counter",
                params![cluster],
            )?;
            db.execute(
                "INSERT INTO records.card_changes
                 SELECT ?, card, make_timestamp(happened_at)::TIMESTAMP_S, reading, value_before, value FROM change",
                params![cluster],
            )?;

            db.execute_batch("DROP TABLE placement; DROP TABLE counter; DROP TABLE change")
        })
    }

    /// Stores a note about a card.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn add_card_note(&self, cluster: &str, note: &CardNote) -> Result<(), StoreError> {
        self.writing_aside("note a text about a card", |db| {
            db.execute(
                "INSERT INTO records.access.card_notes VALUES (?, ?, ?, ?, ?)",
                params![cluster, note.card, note.at.0, note.author, note.text],
            )
            .map(drop)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Store;
    use super::*;

    #[test]
    fn cards_are_read_back_as_they_were_stored() {
        let store = Store::new();
        let records = store.records();
        let placement = |card: &str, from: i64, seen: i64, to: Option<i64>| CardPlacement {
            card: card.into(),
            serial: if card == "GPU-2" { "" } else { card }.into(),
            uuid: format!("GPU-{card}"),
            model: "H100".into(),
            driver: "580.1".into(),
            vbios: "96".into(),
            index: Some(3),
            node: "g1".into(),
            slot: "0000:01:00.0".into(),
            from: UnixTime(from),
            seen: UnixTime(seen),
            to: to.map(UnixTime),
        };
        let counter = CardCounter::new(2.0, UnixTime(5));
        let reading = |counter| CardReading {
            card: "1".into(),
            reading: "row_remap_failed".into(),
            counter,
        };
        let change = CardChange {
            card: "1".into(),
            at: UnixTime(9),
            reading: "row_remap_failed".into(),
            before: Some(0.0),
            value: 1.0,
        };

        let first = CardNews {
            placements: vec![placement("1", 0, 0, None), placement("GPU-2", 0, 0, None)],
            readings: vec![reading(counter)],
            changes: vec![],
        };
        records.note_cards("lab", &first).unwrap();

        // The same placement and the same reading later; and one that began and ended in one round.
        let mut later = counter;
        later.resets = 3;
        later.seen = UnixTime(70);
        let second = CardNews {
            placements: vec![
                placement("1", 0, 60, Some(60)),
                placement("1", 70, 70, None),
                placement("1", 70, 70, Some(70)),
            ],
            readings: vec![reading(later)],
            changes: vec![change.clone()],
        };
        records.note_cards("lab", &second).unwrap();
        records.note_cards("lab", &CardNews::default()).unwrap();

        assert_eq!(
            records.card_placements("lab", None).unwrap(),
            [
                placement("1", 0, 60, Some(60)),
                placement("GPU-2", 0, 0, None),
                placement("1", 70, 70, Some(70)),
            ]
        );
        assert_eq!(records.card_placements("lab", Some("1")).unwrap().len(), 2);
        assert!(records.card_placements("other", None).unwrap().is_empty());
        assert_eq!(
            records.card_readings("lab", None).unwrap(),
            [reading(later)]
        );
        assert_eq!(records.card_changes("lab", Some("1")).unwrap(), [change]);
        assert!(records.card_changes("lab", Some("2")).unwrap().is_empty());

        let note = CardNote {
            card: "1".into(),
            at: UnixTime(80),
            author: "ann".into(),
            text: "reseated; 'quoted'".into(),
        };
        records.add_card_note("lab", &note).unwrap();
        assert_eq!(records.card_notes("lab", Some("1")).unwrap(), [note]);
        assert!(records.failed_runs_on("lab", &[]).unwrap().is_empty());
        assert!(
            records
                .failed_runs_on("lab", &["GPU-1".to_owned()])
                .unwrap()
                .is_empty()
        );
        assert!(records.card_faults(10).unwrap().is_empty());
    }
}
