//! Tables of the alert engine: state, transitions, outbox and silences, committed in one
//! transaction.
//!
//! This module knows tables, not alerts. Bodies are opaque texts of the engine; the other columns
//! serve SQL queries.

use super::reserve::Reserve;
use super::{Database, StoreError};
use duckdb::{Connection, ToSql, params};
use std::collections::BTreeMap;
use std::time::Duration;
use takt_model::Timestamp;

/// Time for which transitions and delivered messages are kept.
const HISTORY: Duration = Duration::from_secs(400 * 86_400);

/// Time for which the first message of a thread is kept after its last change.
const THREAD: Duration = Duration::from_secs(14 * 86_400);

/// Returns the microseconds since 1970, which DuckDB makes timestamps from.
fn micros(at: Timestamp) -> i64 {
    at.0.saturating_mul(1000)
}

/// A connection to the alert tables.
#[derive(Debug)]
pub struct AlertRecords {
    db: Connection,
    reserve: Reserve,
}

/// Changes that are committed together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AlertChanges {
    /// State bodies by kind and key; `None` deletes the entry.
    pub state: BTreeMap<(&'static str, String), Option<String>>,
    /// Transitions to append.
    pub transitions: Vec<TransitionRecord>,
    /// Events of exporters to append.
    pub events: Vec<EventRecord>,
    /// Messages by number.
    pub notifications: BTreeMap<u64, NotificationRecord>,
    /// Silences by id; `None` deletes the silence.
    pub silences: BTreeMap<String, Option<SilenceRecord>>,
}

/// A row of `alert_transitions`.
#[derive(Debug, Clone, PartialEq)]
pub struct TransitionRecord {
    /// Time of the transition.
    pub at: Timestamp,
    /// Rule, alertname, severity, node, fingerprint, labels, state before, state after, reason.
    pub texts: [String; 9],
    /// Value of the rule's expression.
    pub value: f64,
}

/// A row of `events`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// Time of the event by the node's clock.
    pub at: Timestamp,
    /// Node, kind, labels as JSON, message.
    pub texts: [String; 4],
}

/// A row of `notifications`.
#[derive(Debug, Clone, PartialEq)]
pub struct NotificationRecord {
    /// Channel, group key, reason, status, state, body.
    pub texts: [String; 6],
    /// Channel that gave up the message, last error, handle.
    pub optional: [Option<String>; 3],
    /// Number of alerts, number of attempts.
    pub counts: [i64; 2],
    /// Time of creation, time of the last change.
    pub instants: [Timestamp; 2],
    /// Whether the message may still change.
    pub is_open: bool,
}

/// A row of `silences`.
#[derive(Debug, Clone, PartialEq)]
pub struct SilenceRecord {
    /// Begin, end and last change.
    pub instants: [Timestamp; 3],
    /// Creator, comment, matchers, body.
    pub texts: [String; 4],
}

/// An ended episode of an alert, from firing to inactive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedAlert {
    /// Alertname, severity (may be empty), fingerprint, labels as JSON.
    pub texts: [String; 4],
    /// Begin of the condition, and end.
    pub period: [Timestamp; 2],
}

impl EndedAlert {
    /// Returns the last `most` episodes that ended since `since`, the newest first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn since(
        database: &Database,
        since: Timestamp,
        most: usize,
    ) -> Result<Vec<Self>, StoreError> {
        // Everything between two ends is one episode, even if the exporter was unreachable in
        // between.
        let sql = "
            WITH steps AS (
                SELECT *, count(*) FILTER (state_after = 'inactive') OVER (
                    PARTITION BY rule, fingerprint ORDER BY happened_at, rowid ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS episode
                FROM records.alert_transitions
                WHERE fingerprint IN (SELECT fingerprint FROM records.alert_transitions
                                      WHERE state_after = 'inactive' AND happened_at >= make_timestamp(?1 * 1000))
            )
            SELECT any_value(alertname), coalesce(any_value(severity), ''), fingerprint, any_value(labels),
                   epoch_ms(min(happened_at) FILTER (state_after IN ('pending', 'firing'))) AS began, epoch_ms(max(happened_at)) AS ended
            FROM steps GROUP BY rule, fingerprint, episode
            HAVING bool_or(state_after = 'firing') AND bool_or(state_after = 'inactive') AND ended >= ?1
            ORDER BY ended DESC, fingerprint LIMIT ?2";

        let db = database.reader()?;
        let read = || -> duckdb::Result<Vec<Self>> {
            db.prepare(sql)?
                .query_map(params![since.0, most], |row| {
                    let texts = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
                    Ok(Self {
                        texts,
                        period: [Timestamp(row.get(4)?), Timestamp(row.get(5)?)],
                    })
                })?
                .collect()
        };

        read().map_err(StoreError::sql("read ended alerts"))
    }

    /// Returns the names and severities of all alerts in the history; either may be empty.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn known(database: &Database) -> Result<Vec<[String; 2]>, StoreError> {
        let sql = "SELECT DISTINCT coalesce(alertname, ''), coalesce(severity, '') FROM records.alert_transitions";

        let db = database.reader()?;
        let read = || -> duckdb::Result<Vec<[String; 2]>> {
            db.prepare(sql)?
                .query_map([], |row| Ok([row.get(0)?, row.get(1)?]))?
                .collect()
        };

        read().map_err(StoreError::sql("read the names of alerts"))
    }
}

impl AlertRecords {
    /// Opens a connection and deletes old history, by the time that has surely passed. `now` is the
    /// current time.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn open(database: &Database, now: Timestamp) -> Result<Self, StoreError> {
        let db = database.connect()?;
        // A clock that is wrong must not delete history.
        let passed = now.min(database.clock_state().surely_passed());
        let before = micros(passed.minus(HISTORY));

        let sql = format!(
            "CREATE TEMP TABLE new_state (kind VARCHAR, key VARCHAR, body VARCHAR);
             CREATE TEMP TABLE new_transitions (happened_at BIGINT, rule VARCHAR, alertname VARCHAR, severity VARCHAR, node VARCHAR,
                 fingerprint VARCHAR, labels VARCHAR, state_before VARCHAR, state_after VARCHAR, reason VARCHAR, value DOUBLE);
             CREATE TEMP TABLE new_events (happened_at BIGINT, node VARCHAR, kind VARCHAR, labels VARCHAR, message VARCHAR);
             CREATE TEMP TABLE new_notifications (id BIGINT, channel VARCHAR, group_key VARCHAR, reason VARCHAR,
                 status VARCHAR, state VARCHAR, body VARCHAR, instead_of VARCHAR, error VARCHAR, handle VARCHAR,
                 alerts BIGINT, attempts BIGINT, created_at BIGINT, updated_at BIGINT, is_open BOOLEAN);
             CREATE TEMP TABLE new_silences (id VARCHAR, starts_at BIGINT, ends_at BIGINT, updated_at BIGINT,
                 created_by VARCHAR, comment VARCHAR, matchers VARCHAR, body VARCHAR);
             DELETE FROM records.alert_transitions WHERE happened_at < make_timestamp({before});
             DELETE FROM records.events WHERE happened_at < make_timestamp({before});
             DELETE FROM records.notifications WHERE NOT is_open AND updated_at < make_timestamp({before});"
        );

        // On a full disk, even a deletion needs space.
        let reserve = Reserve::open(database.path());
        let prepare = || {
            db.execute_batch(&sql)
                .map_err(StoreError::sql("prepare the tables of alerts"))
        };
        reserve.use_for(prepare)?;

        Ok(Self { db, reserve })
    }

    /// Commits all changes. On a full disk, takes the space that is reserved for this.
    ///
    /// # Errors
    /// If DuckDB fails; nothing is committed then.
    pub fn commit(&self, changes: &AlertChanges) -> Result<(), StoreError> {
        // The reserve is filled now, because this commit may be the one that finds the disk full.
        self.reserve.fill();
        self.reserve.use_for(|| self.attempt(changes))
    }

    fn attempt(&self, changes: &AlertChanges) -> Result<(), StoreError> {
        let attempt = || -> duckdb::Result<()> {
            self.db.execute_batch("BEGIN")?;
            self.put_state(changes)?;
            self.put_transitions(changes)?;
            self.put_events(changes)?;
            self.put_notifications(changes)?;
            self.put_silences(changes)?;
            self.db.execute_batch("COMMIT")
        };
        attempt().map_err(|error| {
            // The first error is returned. If the rollback fails too, no transaction is open.
            let _ = self.db.execute_batch("ROLLBACK");
            StoreError::sql("commit alerts")(error)
        })
    }

    /// Returns key and body of all entries of a kind of state.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn state(&self, kind: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.rows(
            "SELECT key, body FROM records.alert_state WHERE kind = ? ORDER BY key",
            params![kind],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    }

    /// Returns the bodies of all silences.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn silences(&self) -> Result<Vec<String>, StoreError> {
        self.rows("SELECT body FROM records.silences ORDER BY id", [], |row| {
            row.get(0)
        })
    }

    /// Returns the bodies of messages that may still change, and of those that began the last
    /// thread of their group on their channel. `now` is the current time.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn notifications(&self, now: Timestamp) -> Result<Vec<String>, StoreError> {
        let since = micros(now.minus(THREAD));
        let sql = format!(
            "SELECT body FROM records.notifications WHERE is_open OR id IN (
                 SELECT max(id) FROM records.notifications
                 WHERE handle IS NOT NULL AND updated_at > make_timestamp({since}) GROUP BY channel, group_key)
             ORDER BY id"
        );
        self.rows(&sql, [], |row| row.get(0))
    }

    /// Returns the next message number: one more than the largest one ever used.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn next_notification(&self) -> Result<u64, StoreError> {
        let sql = "SELECT coalesce(max(id), 0) + 1 FROM records.notifications";
        self.db
            .query_row(sql, [], |row| row.get(0))
            .map_err(StoreError::sql("read alerts"))
    }

    fn rows<T>(
        &self,
        sql: &str,
        given: impl duckdb::Params,
        of: impl FnMut(&duckdb::Row<'_>) -> duckdb::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let read =
            || -> duckdb::Result<Vec<T>> { self.db.prepare(sql)?.query_map(given, of)?.collect() };
        read().map_err(StoreError::sql("read alerts"))
    }

    /// Appends rows to a temporary table, to compare sets instead of rows.
    fn stage<'r>(
        &self,
        table: &str,
        rows: impl Iterator<Item = Vec<&'r dyn ToSql>>,
    ) -> duckdb::Result<()> {
        // Rows of an attempt that failed may still be there.
        self.db
            .execute_batch(&format!("DELETE FROM temp.{table}"))?;
        let mut appender = self.db.appender_to_catalog_and_db(table, "temp", "main")?;
        for row in rows {
            appender.append_row(row.as_slice())?;
        }
        appender.flush()
    }

    fn put_state(&self, changes: &AlertChanges) -> duckdb::Result<()> {
        if changes.state.is_empty() {
            return Ok(());
        }
        let rows = changes
            .state
            .iter()
            .map(|((kind, key), body)| vec![kind as &dyn ToSql, key, body]);
        self.stage("new_state", rows)?;
        // An entry with a body is replaced; one without a body is only deleted.
        self.db.execute_batch(
            "DELETE FROM records.alert_state AS old USING temp.new_state AS new
                 WHERE old.kind = new.kind AND old.key = new.key;
             INSERT INTO records.alert_state SELECT kind, key, body FROM temp.new_state WHERE body IS NOT NULL;",
        )
    }

    fn put_transitions(&self, changes: &AlertChanges) -> duckdb::Result<()> {
        if changes.transitions.is_empty() {
            return Ok(());
        }

        let rows = changes.transitions.iter().map(|one| {
            let mut row: Vec<&dyn ToSql> = vec![&one.at.0];
            row.extend(one.texts.iter().map(|text| text as &dyn ToSql));
            row.push(&one.value);
            row
        });

        self.stage("new_transitions", rows)?;
        self.db.execute_batch(
            "INSERT INTO records.alert_transitions
             SELECT make_timestamp(happened_at * 1000)::TIMESTAMP_MS, rule, alertname, nullif(severity, ''), nullif(node, ''),
                    fingerprint, labels, state_before, state_after, value, reason
             FROM temp.new_transitions",
        )
    }

    fn put_events(&self, changes: &AlertChanges) -> duckdb::Result<()> {
        if changes.events.is_empty() {
            return Ok(());
        }
        let rows = changes.events.iter().map(|one| {
            let mut row: Vec<&dyn ToSql> = vec![&one.at.0];
            row.extend(one.texts.iter().map(|text| text as &dyn ToSql));
            row
        });
        self.stage("new_events", rows)?;
        self.db.execute_batch(
            "INSERT INTO records.events
             SELECT make_timestamp(happened_at * 1000)::TIMESTAMP_MS, node, kind, labels, message FROM temp.new_events",
        )
    }

    fn put_notifications(&self, changes: &AlertChanges) -> duckdb::Result<()> {
        if changes.notifications.is_empty() {
            return Ok(());
        }

        // The values are in the order of the columns of `new_notifications`.
        let rows = changes.notifications.iter().map(|(id, one)| {
            let mut row: Vec<&dyn ToSql> = vec![id];
            row.extend(one.texts.iter().map(|text| text as &dyn ToSql));
            row.extend(one.optional.iter().map(|text| text as &dyn ToSql));
            row.extend(one.counts.iter().map(|count| count as &dyn ToSql));
            row.extend(one.instants.iter().map(|at| &at.0 as &dyn ToSql));
            row.push(&one.is_open);
            row
        });

        self.stage("new_notifications", rows)?;
        self.db.execute_batch(
            "DELETE FROM records.notifications WHERE id IN (SELECT id FROM temp.new_notifications);
             INSERT INTO records.notifications
             SELECT id, channel, instead_of, group_key, reason, status, alerts, state, is_open,
                    make_timestamp(created_at * 1000)::TIMESTAMP_MS, make_timestamp(updated_at * 1000)::TIMESTAMP_MS,
                    attempts, error, handle, body
             FROM temp.new_notifications",
        )
    }

    fn put_silences(&self, changes: &AlertChanges) -> duckdb::Result<()> {
        if changes.silences.is_empty() {
            return Ok(());
        }

        let rows = changes
            .silences
            .iter()
            .filter_map(|(id, one)| one.as_ref().map(|one| (id, one)))
            .map(|(id, one)| {
                let mut row: Vec<&dyn ToSql> = vec![id];
                row.extend(one.instants.iter().map(|at| &at.0 as &dyn ToSql));
                row.extend(one.texts.iter().map(|text| text as &dyn ToSql));
                row
            });

        self.stage("new_silences", rows)?;
        // A changed silence is deleted, too, because it is inserted again.
        for id in changes.silences.keys() {
            self.db
                .execute("DELETE FROM records.silences WHERE id = ?", [id])?;
        }

        self.db.execute_batch(
            "INSERT INTO records.silences
             SELECT id, make_timestamp(starts_at * 1000)::TIMESTAMP_MS, make_timestamp(ends_at * 1000)::TIMESTAMP_MS,
                    make_timestamp(updated_at * 1000)::TIMESTAMP_MS, created_by, comment, matchers, body
             FROM temp.new_silences",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataDir, Settings};
    use takt_model::UnixTime;
    use tempfile::tempdir;

    fn notification(state: &str, is_open: bool, handle: Option<&str>) -> NotificationRecord {
        let texts =
            ["ops/slack/0", "{}", "first_firing", "firing", state, "body"].map(str::to_owned);
        NotificationRecord {
            texts: texts.map(|text| {
                if text == "body" {
                    format!("{state} {handle:?}")
                } else {
                    text
                }
            }),
            optional: [None, None, handle.map(str::to_owned)],
            counts: [1, 1],
            instants: [1_000, 2_000].map(Timestamp),
            is_open,
        }
    }

    #[test]
    fn the_next_process_reads_committed_changes() {
        let root = tempdir().unwrap();
        let open = || {
            let dir = DataDir::claim(root.path()).unwrap();
            let database = Database::open(&dir, &Settings::default()).unwrap();
            (
                AlertRecords::open(&database, Timestamp(10_000)).unwrap(),
                database,
                dir,
            )
        };
        let (records, database, dir) = open();
        let text = |text: &str| Some(text.to_owned());
        let transition = TransitionRecord {
            at: Timestamp(1_500),
            texts: [
                "r", "Hot", "critical", "", "00ff", "{}", "pending", "firing", "breached",
            ]
            .map(str::to_owned),
            value: 91.5,
        };
        let event = EventRecord {
            at: Timestamp(2_500),
            texts: ["g1", "xid", r#"{"xid":"79"}"#, "NVRM: Xid 79"].map(str::to_owned),
        };
        let silence = SilenceRecord {
            instants: [1, 2, 3].map(Timestamp),
            texts: ["ada", "new fan", "{}", "s1"].map(str::to_owned),
        };
        let changes = AlertChanges {
            state: [
                (("log", "a".to_owned()), text("1")),
                (("log", "b".to_owned()), text("2")),
            ]
            .into(),
            transitions: vec![transition],
            events: vec![event.clone()],
            notifications: [
                (7, notification("queued", true, None)),
                (8, notification("sent", false, Some("C1/1.2"))),
            ]
            .into(),
            silences: [("s1".to_owned(), Some(silence)), ("s0".to_owned(), None)].into(),
        };
        records.commit(&changes).unwrap();

        let again = AlertChanges {
            state: [
                (("log", "a".to_owned()), None),
                (("log", "b".to_owned()), text("3")),
            ]
            .into(),
            notifications: [(7, notification("sending", true, None))].into(),
            ..AlertChanges::default()
        };
        records.commit(&again).unwrap();
        drop((records, database, dir));

        let (records, database, _dir) = open();
        assert_eq!(
            records.state("log").unwrap(),
            [("b".to_owned(), "3".to_owned())]
        );
        assert_eq!(records.silences().unwrap(), ["s1"]);
        assert_eq!(
            records.notifications(Timestamp(10_000)).unwrap(),
            ["sending None", "sent Some(\"C1/1.2\")"]
        );
        assert_eq!(records.next_notification().unwrap(), 9);
        let db = database.connect().unwrap();
        let seen: (String, Option<String>, f64) = db
            .query_row(
                "SELECT strftime(happened_at, '%S.%g'), node, value FROM alert_transitions",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .unwrap();
        assert_eq!(seen, ("01.500".to_owned(), None, 91.5));
        let logged = |from, to| crate::Records::of(&database).events(from, to, 10).unwrap();
        assert_eq!(logged(UnixTime(0), UnixTime(10)), [event]);
        assert_eq!(logged(UnixTime(3), UnixTime(10)), []);
    }

    #[test]
    fn an_episode_ends_once() {
        let root = tempdir().unwrap();
        let dir = DataDir::claim(root.path()).unwrap();
        let database = Database::open(&dir, &Settings::default()).unwrap();
        let records = AlertRecords::open(&database, Timestamp(0)).unwrap();
        let steps = [
            (10, "a", "inactive", "pending"),
            (20, "a", "pending", "firing"),
            (30, "a", "firing", "unknown"),
            (40, "a", "unknown", "firing"),
            (50, "a", "firing", "inactive"),
            (60, "a", "inactive", "firing"),
            (70, "a", "firing", "inactive"),
            // Never fired; still firing; ended long ago.
            (55, "b", "inactive", "pending"),
            (65, "b", "pending", "inactive"),
            (66, "c", "inactive", "firing"),
            (1, "d", "inactive", "firing"),
            (2, "d", "firing", "inactive"),
        ];
        let transitions = steps.map(|(at, fingerprint, from, to)| TransitionRecord {
            at: Timestamp(at),
            texts: ["r", "Hot", "", "", fingerprint, "{}", from, to, "expr"].map(str::to_owned),
            value: 1.0,
        });
        records
            .commit(&AlertChanges {
                transitions: transitions.into(),
                ..AlertChanges::default()
            })
            .unwrap();
        let ended = |since, most| {
            EndedAlert::since(&database, Timestamp(since), most)
                .unwrap()
                .into_iter()
                .map(|one| (one.texts[2].clone(), one.period.map(|at| at.0)))
                .collect::<Vec<_>>()
        };
        let a = |instants| ("a".to_owned(), instants);
        // It began with its condition, before it fired.
        assert_eq!(ended(50, 9), [a([60, 70]), a([10, 50])]);
        assert_eq!(ended(51, 9), [a([60, 70])]);
        assert_eq!(ended(0, 1), [a([60, 70])]);
    }

    #[test]
    fn a_commit_that_fails_leaves_nothing_and_the_next_one_works() {
        let root = tempdir().unwrap();
        let dir = DataDir::claim(root.path()).unwrap();
        let database = Database::open(&dir, &Settings::default()).unwrap();
        let records = AlertRecords::open(&database, Timestamp(0)).unwrap();
        let mut changes = AlertChanges::default();
        changes
            .state
            .insert(("log", "a".to_owned()), Some("1".to_owned()));
        changes
            .notifications
            .insert(u64::MAX, notification("queued", true, None));
        assert!(
            records.commit(&changes).is_err(),
            "the number is too large for the table"
        );
        assert!(records.state("log").unwrap().is_empty());
        changes.notifications.clear();
        records.commit(&changes).unwrap();
        assert_eq!(records.state("log").unwrap().len(), 1);
    }
}
