//! Curves of ended runs: their use over time, which outlives the samples.
//!
//! This module knows texts, not curves: the server writes and reads them.

use super::{Records, TimeColumns, micros};
use crate::StoreError;
use duckdb::params;
use duckdb::types::Value;
use std::iter;
use takt_jobs::JobRun;
use takt_model::UnixTime;

/// The curves of an ended run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunCurves {
    /// Cluster of the run.
    pub cluster: String,
    /// Job id.
    pub job_id: String,
    /// Time of submission.
    pub submit: UnixTime,
    /// End of the run.
    pub end: UnixTime,
    /// Mean utilization of its GPUs by step; `None` without a measured GPU.
    pub utilization: Option<String>,
    /// Curves by node and GPU.
    pub report: String,
}

/// A run with the short form of its curves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStrip {
    /// Job id.
    pub job_id: String,
    /// Time of submission.
    pub submit: UnixTime,
    /// Start; `None` before it.
    pub start: Option<UnixTime>,
    /// End; `None` before it.
    pub end: Option<UnixTime>,
    /// User of the job.
    pub user: String,
    /// Account of the job.
    pub account: String,
    /// Mean utilization of its GPUs by step, if it was kept.
    pub utilization: Option<String>,
}

impl Records<'_> {
    /// Stores curves in place of earlier ones of the same runs.
    ///
    /// # Errors
    /// If DuckDB fails; nothing is stored then.
    pub fn keep_curves(&self, found: &[RunCurves]) -> Result<(), StoreError> {
        if found.is_empty() {
            return Ok(());
        }
        self.writing("store the curves of runs", |db| {
            db.execute_batch(
                "CREATE TEMP TABLE drawn (cluster VARCHAR, job_id VARCHAR, submit BIGINT, run_end BIGINT,
                     utilization VARCHAR, report VARCHAR)",
            )?;

            let mut staged = db.appender_to_catalog_and_db("drawn", "temp", "main")?;
            for one in found {
                let submit = micros(one.submit);
let end = micros(one.end);
                staged.append_row(params![
                    one.cluster,
                    one.job_id,
                    submit,
                    end,
                    one.utilization,
                    one.report
                ])?;
            }

            // All rows must be in the table before the statements below read it.
            staged.flush()?;
            drop(staged);

            // Curves that were kept for an earlier end of a run go.
            db.execute_batch(
                "DELETE FROM records.run_curves AS c USING drawn AS d
                     WHERE c.cluster = d.cluster AND c.job_id = d.job_id
                       AND c.submit_time = make_timestamp(d.submit)::TIMESTAMP_S;
                 INSERT INTO records.run_curves
                     SELECT cluster, job_id, make_timestamp(submit), make_timestamp(run_end), utilization, report
                     FROM drawn;
                 DROP TABLE drawn",
            )
        })
    }

    /// Returns the curves by node and GPU of an ended run; `None` if they were not kept for this end.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn curves_of(&self, run: &JobRun) -> Result<Option<String>, StoreError> {
        // Curves for another end would show a part of the run, or more than the run.
        let found = self.list(
            "read the curves of a run",
            "SELECT report FROM records.run_curves
             WHERE cluster = ? AND job_id = ? AND submit_time = make_timestamp(?::BIGINT)::TIMESTAMP_S
               AND run_end_time = make_timestamp(?::BIGINT)::TIMESTAMP_S",
            vec![
                run.cluster.clone().into(),
                run.job_id.clone().into(),
                micros(run.submit).into(),
                micros(run.end.unwrap_or_default()).into(),
            ],
            |row| row.get(0),
        )?;
        Ok(found.into_iter().next())
    }

    /// Returns the runs with these job ids, with their kept utilization.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn strips_of(&self, cluster: &str, job_ids: &[&str]) -> Result<Vec<RunStrip>, StoreError> {
        if job_ids.is_empty() {
            return Ok(Vec::new());
        }

        // Ids are parameters, so no text of a client becomes SQL.
        let places = vec!["?"; job_ids.len()].join(", ");
        let ids = || job_ids.iter().map(|id| Value::from((*id).to_owned()));
        let names = || iter::once(Value::from(cluster.to_owned())).chain(ids());

        self.list(
            "read the strips of runs",
            &format!(
                "SELECT j.job_id, epoch_ms(j.submit_time) // 1000, epoch_ms(j.start_time) // 1000,
                        epoch_ms(j.end_time) // 1000, coalesce(j.\"user\", ''), coalesce(j.account, ''), c.utilization
                 FROM (SELECT * FROM records.jobs WHERE cluster = ? AND job_id IN ({places})) AS j
                 LEFT JOIN (SELECT * FROM records.run_curves WHERE cluster = ? AND job_id IN ({places})) AS c
                     ON c.job_id = j.job_id AND c.submit_time = j.submit_time AND c.run_end_time = j.end_time"
            ),
            names().chain(names()).collect(),
            |row| {
                Ok(RunStrip {
                    job_id: row.get(0)?,
                    submit: row.time(1)?,
                    start: row.time_if_set(2)?,
                    end: row.time_if_set(3)?,
                    user: row.get(4)?,
                    account: row.get(5)?,
                    utilization: row.get(6)?,
                })
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Corrections, DataDir, Database, Origin, Settings, Shifted};
    use std::convert::Infallible;
    use takt_jobs::Entry;
    use tempfile::tempdir;

    #[test]
    fn curves_are_kept_for_the_end_of_a_run() {
        let root = tempdir().unwrap();
        let dir = DataDir::claim(root.path()).unwrap();
        let database = Database::open(&dir, &Settings::default()).unwrap();
        let records = Records::of(&database);
        let run = |job_id: &str, end: i64| JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit: UnixTime(100),
            start: Some(UnixTime(160)),
            end: Some(UnixTime(end)),
            user: "ann".into(),
            ..JobRun::default()
        };
        let origin = Origin {
            source: "sacct",
            name: "test",
            timezone: None,
            complete_until: None,
            shifted: Shifted::Refuse,
            corrections: Corrections::Accept,
        };
        let runs = [run("7", 900), run("8", 900)];
        records
            .import(
                &origin,
                runs.map(|run| Ok::<_, Infallible>(Entry::Run(run))),
            )
            .unwrap();
        let curves = |end: i64, report: &str| RunCurves {
            cluster: "lab".into(),
            job_id: "7".into(),
            submit: UnixTime(100),
            end: UnixTime(end),
            utilization: Some("(~ ".into()),
            report: report.into(),
        };

        // These curves end before the run does.
        records.keep_curves(&[curves(800, "first")]).unwrap();
        assert_eq!(records.curves_of(&run("7", 900)).unwrap(), None);
        records.keep_curves(&[curves(900, "second")]).unwrap();
        let kept = |run: &JobRun| records.curves_of(run).unwrap();
        assert_eq!(kept(&run("7", 900)).as_deref(), Some("second"));
        assert_eq!(kept(&run("7", 800)), None, "one row a run");
        let mut strips = records.strips_of("lab", &["7", "8", "9"]).unwrap();
        strips.sort_by(|a, b| a.job_id.cmp(&b.job_id));
        let shown: Vec<_> = strips
            .iter()
            .map(|strip| (strip.job_id.as_str(), strip.utilization.as_deref()))
            .collect();
        assert_eq!(shown, [("7", Some("(~ ")), ("8", None)]);
        assert!(records.strips_of("other", &["7"]).unwrap().is_empty());
    }
}
