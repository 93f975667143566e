//! Reservations, and the reasons why runs wait.

use super::{OpenRun, Records, TimeColumns, micros};
use crate::StoreError;
use crate::database::Writing;
use duckdb::{Connection, Row, params};
use takt_jobs::{Owner, Reservation};
use takt_model::UnixTime;

/// A waiting run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRun {
    /// The run.
    pub run: OpenRun,
    /// Slurm's reason for waiting.
    pub reason: String,
    /// Start time planned by slurmctld.
    pub expected_start: Option<UnixTime>,
    /// Slurm's priority. `None` if it is unknown.
    pub priority: Option<u32>,
    /// What the job asks for besides amounts, a time and a partition: `features`, `licenses`, …
    pub demands: Vec<String>,
}

/// Last reported reason of a waiting run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownReason {
    /// Slurm's reason for waiting.
    pub reason: String,
    /// First report of this reason by slurmctld.
    pub since: UnixTime,
    /// Last report.
    pub last_seen: UnixTime,
    /// Start time planned by slurmctld.
    pub expected_start: Option<UnixTime>,
    /// Slurm's priority at the last report. `None` if it is unknown.
    pub priority: Option<u32>,
    /// What the job asks for besides amounts, a time and a partition.
    pub demands: Vec<String>,
}

/// Columns of `job_reasons` that [`known_reason`] reads, of a table `r`.
pub(super) const REASON_COLUMNS: &str =
    "r.reason, epoch_ms(r.first_seen) // 1000, epoch_ms(r.last_seen) // 1000,
    epoch_ms(r.expected_start) // 1000, r.priority, r.demands";

/// Reads [`REASON_COLUMNS`] from the column `at` on.
pub(super) fn known_reason(row: &Row<'_>, at: usize) -> duckdb::Result<KnownReason> {
    let demands: Option<String> = row.get(at + 5)?;
    let demands = demands.unwrap_or_default();
    let names = demands.split(',').filter(|name| !name.is_empty());
    Ok(KnownReason {
        reason: row.get(at)?,
        since: row.time(at + 1)?,
        last_seen: row.time(at + 2)?,
        expected_start: row.time_if_set(at + 3)?,
        priority: row.get(at + 4)?,
        demands: names.map(str::to_owned).collect(),
    })
}

impl Records<'_> {
    /// Records the reservations that slurmdbd reports since a time, in place of those it reported
    /// before.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_reservations(
        &self,
        cluster: &str,
        listed: &[Reservation],
        since: UnixTime,
    ) -> Result<(), StoreError> {
        self.writing("remember the reservations", |db| {
            db.execute(
                "DELETE FROM records.reservations
                 WHERE cluster = ? AND to_time >= make_timestamp(?::BIGINT)::TIMESTAMP_S",
                params![cluster, micros(since)],
            )?;
            listed
                .iter()
                .try_for_each(|kept| keep(db, cluster, kept, "slurmdbd"))
        })
    }

    /// Records the reservations that slurmctld reports at `now`. A reservation missing before its
    /// end has ended now.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_live_reservations(
        &self,
        cluster: &str,
        listed: &[Reservation],
        now: UnixTime,
    ) -> Result<(), StoreError> {
        let known = self.reservations(cluster, now)?;
        self.writing("remember the reservations", |db| {
            db.execute(
                "DELETE FROM records.reservations
                 WHERE cluster = ? AND to_time > make_timestamp(?::BIGINT)::TIMESTAMP_S",
                params![cluster, micros(now)],
            )?;

            let is_listed = |kept: &&Reservation| {
                listed
                    .iter()
                    .any(|t| t.name == kept.name && t.from == kept.from)
            };

            for gone in known
                .iter()
                .filter(|kept| !is_listed(kept) && kept.from < now)
            {
                keep(
                    db,
                    cluster,
                    &Reservation {
                        to: now,
                        ..gone.clone()
                    },
                    "slurmctld",
                )?;
            }

            listed
                .iter()
                .try_for_each(|kept| keep(db, cluster, kept, "slurmctld"))
        })
    }

    /// Returns the reservations of a cluster that had not ended by `from`.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn reservations(
        &self,
        cluster: &str,
        from: UnixTime,
    ) -> Result<Vec<Reservation>, StoreError> {
        self.list(
            "list the reservations",
            "SELECT name, flags, node_list, cpus, gpus, owners, epoch_ms(from_time) // 1000, epoch_ms(to_time) // 1000
             FROM records.reservations
             WHERE cluster = ? AND to_time > make_timestamp(?::BIGINT)::TIMESTAMP_S
             ORDER BY from_time, name",
            vec![cluster.to_owned().into(), micros(from).into()],
            |row| {
                let owners: String = row.get(5)?;
                Ok(Reservation {
                    name: row.get(0)?,
                    flags: row.get(1)?,
                    node_list: row.get(2)?,
                    cpus: row.get(3)?,
                    gpus: row.get(4)?,
                    owners: owners.split(',').filter(|owner| !owner.is_empty()).map(owner).collect(),
                    from: row.time(6)?,
                    to: row.time(7)?,
                })
            },
        )
    }

    /// Records why runs wait at `now`. A reason that persists stays one row.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_waiting(
        &self,
        cluster: &str,
        waiting: &[WaitingRun],
        now: UnixTime,
    ) -> Result<(), StoreError> {
        if waiting.is_empty() {
            return Ok(());
        }
        self.writing_aside("note why runs wait", |db| {
            db.execute_batch(
                "CREATE TEMP TABLE waiting (job_id VARCHAR, submit_time BIGINT, reason VARCHAR, expected_start BIGINT,
                     priority UINTEGER, demands VARCHAR)",
            )?;

            let mut staged = db.appender_to_catalog_and_db("waiting", "temp", "main")?;
            for WaitingRun { run, reason, expected_start, priority, demands } in waiting {
                let demands = (!demands.is_empty()).then(|| demands.join(","));
                staged.append_row(params![
                    run.job_id,
                    micros(run.submit),
                    reason,
                    expected_start.map(micros),
                    priority,
                    demands
                ])?;
            }
            drop(staged);

            let same =
                "g.cluster = ? AND g.job_id = w.job_id AND g.submit_time = make_timestamp(w.submit_time)::TIMESTAMP_S
                 AND g.reason = w.reason
                 AND g.last_seen = (SELECT max(l.last_seen) FROM records.job_reasons AS l WHERE l.cluster = g.cluster
                     AND l.job_id = g.job_id AND l.submit_time = g.submit_time)";
            db.execute(
                &format!(
                    "UPDATE records.job_reasons AS g SET last_seen = make_timestamp(?::BIGINT)::TIMESTAMP_S,
                         expected_start = make_timestamp(w.expected_start)::TIMESTAMP_S,
                         priority = w.priority, demands = w.demands
                     FROM waiting AS w WHERE {same}"
                ),
                params![micros(now), cluster],
            )?;

            db.execute(
                "INSERT INTO records.job_reasons (cluster, job_id, submit_time, reason, expected_start, first_seen,
                     last_seen, priority, demands)
                 SELECT ?, w.job_id, make_timestamp(w.submit_time)::TIMESTAMP_S, w.reason,
                     make_timestamp(w.expected_start)::TIMESTAMP_S, t.now, t.now, w.priority, w.demands
                 FROM waiting AS w, (SELECT make_timestamp(?::BIGINT)::TIMESTAMP_S AS now) AS t
                 WHERE NOT EXISTS (SELECT 1 FROM records.job_reasons AS g WHERE g.cluster = ? AND g.job_id = w.job_id
                     AND g.submit_time = make_timestamp(w.submit_time)::TIMESTAMP_S AND g.reason = w.reason
                     AND g.last_seen = t.now)",
                params![cluster, micros(now), cluster],
            )?;

            db.execute_batch("DROP TABLE waiting")
        })
    }

    /// Returns the last reported reason of a waiting run; `None` if it is unknown.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn reason(
        &self,
        cluster: &str,
        job_id: &str,
        submit: UnixTime,
    ) -> Result<Option<KnownReason>, StoreError> {
        let found = self.list(
            "look up why a run waits",
            &format!(
                "SELECT {REASON_COLUMNS} FROM records.job_reasons AS r
                 WHERE cluster = ? AND job_id = ? AND submit_time = make_timestamp(?::BIGINT)::TIMESTAMP_S
                 ORDER BY last_seen DESC, first_seen DESC LIMIT 1"
            ),
            vec![cluster.to_owned().into(), job_id.to_owned().into(), micros(submit).into()],
            |row| known_reason(row, 0),
        )?;
        Ok(found.into_iter().next())
    }

    /// Runs several changes in one transaction.
    pub(super) fn writing(
        &self,
        what: &'static str,
        change: impl FnOnce(&Connection) -> duckdb::Result<()>,
    ) -> Result<(), StoreError> {
        self.write(self.database.writing(), what, change)
    }

    /// Runs several changes in one transaction, of tables that no answer about a period reads.
    pub(super) fn writing_aside(
        &self,
        what: &'static str,
        change: impl FnOnce(&Connection) -> duckdb::Result<()>,
    ) -> Result<(), StoreError> {
        self.write(self.database.writing().aside(), what, change)
    }

    fn write(
        &self,
        _writing: Writing<'_>,
        what: &'static str,
        change: impl FnOnce(&Connection) -> duckdb::Result<()>,
    ) -> Result<(), StoreError> {
        let db = self.database.connect()?;
        let changed = (|| {
            db.execute_batch("BEGIN")?;
            change(&db)?;
            db.execute_batch("COMMIT")
        })();
        changed.map_err(|error| {
            // If the rollback fails too, no transaction is open.
            let _ = db.execute_batch("ROLLBACK");
            StoreError::sql(what)(error)
        })
    }
}

fn keep(db: &Connection, cluster: &str, kept: &Reservation, source: &str) -> duckdb::Result<()> {
    let owners: Vec<String> = kept.owners.iter().map(owner_text).collect();
    db.execute(
        "INSERT INTO records.reservations VALUES (?, ?, ?, ?, ?, ?, ?, make_timestamp(?::BIGINT)::TIMESTAMP_S,
             make_timestamp(?::BIGINT)::TIMESTAMP_S, ?)",
        params![
            cluster,
            kept.name,
            kept.flags,
            kept.node_list,
            kept.cpus,
            kept.gpus,
            owners.join(","),
            micros(kept.from),
            micros(kept.to),
            source
        ],
    )
    .map(drop)
}

/// Writes an owner as `account` or `account/user`.
fn owner_text(owner: &Owner) -> String {
    match &owner.user {
        Some(user) => format!("{}/{user}", owner.account),
        None => owner.account.clone(),
    }
}

fn owner(text: &str) -> Owner {
    match text.split_once('/') {
        Some((account, user)) => Owner {
            account: account.to_owned(),
            user: Some(user.to_owned()),
        },
        None => Owner {
            account: text.to_owned(),
            user: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataDir, Database, Settings};
    use std::slice;
    use tempfile::tempdir;

    fn database(root: &std::path::Path) -> Database {
        Database::open(&DataDir::claim(root).unwrap(), &Settings::default()).unwrap()
    }

    fn reservation(name: &str, from: i64, to: i64) -> Reservation {
        Reservation {
            name: name.into(),
            flags: "SPEC_NODES".into(),
            node_list: Some("g1".into()),
            cpus: 8,
            gpus: None,
            owners: vec![
                Owner {
                    account: "lab".into(),
                    user: Some("ann".into()),
                },
                Owner {
                    account: "bio".into(),
                    user: None,
                },
            ],
            from: UnixTime(from),
            to: UnixTime(to),
        }
    }

    #[test]
    fn a_reservation_deleted_early_has_ended_and_one_deleted_before_its_start_is_removed() {
        let root = tempdir().unwrap();
        let database = database(root.path());
        let records = Records::of(&database);
        let class = reservation("class", 100, 1000);
        let later = reservation("later", 2000, 3000);
        records
            .note_live_reservations("lab", &[class.clone(), later.clone()], UnixTime(200))
            .unwrap();
        records
            .note_live_reservations("lab", &[class.clone(), later.clone()], UnixTime(260))
            .unwrap();
        assert_eq!(
            records.reservations("lab", UnixTime(0)).unwrap(),
            [class.clone(), later]
        );
        records
            .note_live_reservations("lab", &[], UnixTime(400))
            .unwrap();
        let ended = Reservation {
            to: UnixTime(400),
            ..class.clone()
        };
        assert_eq!(records.reservations("lab", UnixTime(0)).unwrap(), [ended]);
        // Reports of slurmdbd take precedence.
        records
            .note_reservations("lab", slice::from_ref(&class), UnixTime(0))
            .unwrap();
        assert_eq!(records.reservations("lab", UnixTime(0)).unwrap(), [class]);
        assert_eq!(records.reservations("lab", UnixTime(1000)).unwrap(), []);
    }

    #[test]
    fn a_reason_lasts_until_the_next_one() {
        let root = tempdir().unwrap();
        let database = database(root.path());
        let records = Records::of(&database);
        let waiting = |reason: &str, expected_start| WaitingRun {
            run: OpenRun {
                job_id: "7_1".into(),
                submit: UnixTime(50),
            },
            reason: reason.into(),
            expected_start: Option::map(expected_start, UnixTime),
            // Slurm raises it with the age of the job.
            priority: expected_start.map(|_| 7),
            demands: vec!["features".into(), "licenses".into()],
        };
        for (now, reason, expected) in [
            (100, "Priority", None),
            (160, "Priority", Some(900)),
            (220, "Resources", Some(800)),
            (280, "Priority", None),
        ] {
            records
                .note_waiting("lab", &[waiting(reason, expected)], UnixTime(now))
                .unwrap();
        }
        let known = records.reason("lab", "7_1", UnixTime(50)).unwrap().unwrap();
        assert_eq!(known.reason.as_str(), "Priority");
        assert_eq!(known.since, UnixTime(280));
        assert_eq!(known.last_seen, UnixTime(280));
        assert_eq!(known.expected_start, None);
        assert_eq!(known.priority, None);
        assert_eq!(known.demands, ["features", "licenses"]);
        let rows: i64 = database
            .connect()
            .unwrap()
            .query_row("SELECT count(*) FROM records.job_reasons", [], |row| {
                row.get(0)
            })
            .unwrap();
        assert_eq!(rows, 3);
        assert_eq!(records.reason("lab", "7", UnixTime(50)).unwrap(), None);
    }
}
