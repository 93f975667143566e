//! Forecasts of the starts of waiting runs, and their grades.

use super::{OpenRun, Records, TimeColumns, micros};
use crate::StoreError;
use duckdb::{Row, params};
use std::collections::HashMap;
use takt_model::UnixTime;

/// Times before which a run starts with some probability.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForecastTimes {
    /// With 10 %.
    pub p10: UnixTime,
    /// With 50 %.
    pub p50: UnixTime,
    /// With 90 %.
    pub p90: UnixTime,
}

/// When a waiting run starts, as it was forecast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedForecast {
    /// The run.
    pub run: OpenRun,
    /// The forecast.
    pub times: ForecastTimes,
    /// The forecast of the replays alone, before its correction by earlier ones.
    pub replayed: ForecastTimes,
    /// Start time planned by slurmctld when the forecast was made.
    pub slurm_start: Option<UnixTime>,
}

/// The last forecast of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownForecast {
    /// Time at which it was made.
    pub made_at: UnixTime,
    /// The forecast.
    pub times: ForecastTimes,
}

/// The first forecast of a run, and the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GradedForecast {
    /// Time at which it was made.
    pub made_at: UnixTime,
    /// Time before which it was to start with a probability of 50 %.
    pub p50: UnixTime,
    /// The forecast of the replays alone.
    pub replayed: ForecastTimes,
    /// Start time planned by slurmctld when the forecast was made.
    pub slurm_start: Option<UnixTime>,
    /// Start.
    pub start: UnixTime,
    /// Whether it started within the band, or within a minute of it.
    pub is_right: bool,
}

/// One round of forecasts, with the grades at that time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ForecastRound {
    /// Time at which it was made.
    pub made_at: UnixTime,
    /// Jobs that waited.
    pub waiting_jobs: u64,
    /// Jobs for which a start was found.
    pub forecast_jobs: u64,
    /// Replays of the queue.
    pub replays: u64,
    /// Time that the replays took, in seconds.
    pub cpu_seconds: f64,
    /// Rules that the replays do not know, in JSON.
    pub not_modelled: String,
    /// Grades of the forecasts before it.
    pub grades: ForecastSummary,
}

/// Grades of forecasts of runs that have started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ForecastSummary {
    /// Number of graded forecasts.
    pub graded: u64,
    /// Starts within the band.
    pub right: u64,
    /// Median of the absolute error, in seconds.
    pub median_error_seconds: Option<i64>,
    /// Sum of the absolute errors over the sum of the waits that were left. `None` if nothing waited.
    pub error_ratio: Option<f64>,
    /// Graded ones for which slurmctld had planned a start, too.
    pub slurm_graded: u64,
    /// Median of slurmctld's absolute error on these, in seconds.
    pub slurm_median_error_seconds: Option<i64>,
    /// Median of the absolute error of the forecasts of these runs, in seconds.
    pub paired_median_error_seconds: Option<i64>,
}

/// The share of its time limit that an ended run has run.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedRatio {
    /// Unix user.
    pub user: String,
    /// Job name; empty if Slurm gave none.
    pub name: String,
    /// Elapsed time over time limit.
    pub ratio: f64,
}

impl Records<'_> {
    /// Records forecasts that were made at `made_at`: as the last one of each run, and as its first one if it has none.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_forecasts(
        &self,
        cluster: &str,
        forecasts: &[NotedForecast],
        made_at: UnixTime,
    ) -> Result<(), StoreError> {
        if forecasts.is_empty() {
            return Ok(());
        }
        self.writing_aside("note forecasts of starts", |db| {
            db.execute_batch(
                "CREATE TEMP TABLE forecast (job_id VARCHAR, submit_time BIGINT, p10 BIGINT, p50 BIGINT, p90 BIGINT,
                     replayed_p10 BIGINT, replayed_p50 BIGINT, replayed_p90 BIGINT, slurm_start BIGINT)",
            )?;
            let mut staged = db.appender_to_catalog_and_db("forecast", "temp", "main")?;
            for one in forecasts {
                staged.append_row(params![
                    one.run.job_id,
                    micros(one.run.submit),
                    micros(one.times.p10),
                    micros(one.times.p50),
                    micros(one.times.p90),
                    micros(one.replayed.p10),
                    micros(one.replayed.p50),
                    micros(one.replayed.p90),
                    one.slurm_start.map(micros)
                ])?;
            }
            drop(staged);

            let same = "f.cluster = ? AND f.job_id = w.job_id AND f.submit_time = make_timestamp(w.submit_time)::TIMESTAMP_S";
            db.execute(
                &format!("DELETE FROM records.forecasts AS f USING forecast AS w WHERE {same} AND f.kind = 'last'"),
                params![cluster],
            )?;
            for (kind, condition) in [
                ("first", format!("NOT EXISTS (SELECT 1 FROM records.forecasts AS f WHERE {same} AND f.kind = 'first')")),
                ("last", "? IS NOT NULL".to_owned()),
            ] {
                db.execute(
                    &format!(
                        "INSERT INTO records.forecasts
                         SELECT ?, w.job_id, make_timestamp(w.submit_time)::TIMESTAMP_S, '{kind}',
                             make_timestamp(?::BIGINT)::TIMESTAMP_S, make_timestamp(w.p10)::TIMESTAMP_S,
                             make_timestamp(w.p50)::TIMESTAMP_S, make_timestamp(w.p90)::TIMESTAMP_S,
                             make_timestamp(w.replayed_p10)::TIMESTAMP_S, make_timestamp(w.replayed_p50)::TIMESTAMP_S,
                             make_timestamp(w.replayed_p90)::TIMESTAMP_S,
                             make_timestamp(w.slurm_start)::TIMESTAMP_S
                         FROM forecast AS w WHERE {condition}"
                    ),
                    params![cluster, micros(made_at), cluster],
                )?;
            }

            db.execute_batch("DROP TABLE forecast")
        })
    }

    /// Returns the last forecast of each waiting run of a cluster, or of one job's, by job id and time of submission.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn forecasts(
        &self,
        cluster: &str,
        job_id: Option<&str>,
    ) -> Result<HashMap<(String, UnixTime), KnownForecast>, StoreError> {
        let rows = self.list(
            "look up the forecasts",
            "SELECT f.job_id, epoch_ms(f.submit_time) // 1000, epoch_ms(f.made_at) // 1000, epoch_ms(f.p10) // 1000,
                 epoch_ms(f.p50) // 1000, epoch_ms(f.p90) // 1000
             FROM records.forecasts AS f
             SEMI JOIN records.jobs AS j ON j.cluster = f.cluster AND j.job_id = f.job_id
                 AND j.submit_time = f.submit_time AND j.start_time IS NULL AND j.end_time IS NULL
             WHERE f.cluster = ? AND f.kind = 'last' AND f.job_id = coalesce(?, f.job_id)",
            vec![
                cluster.to_owned().into(),
                job_id.map(str::to_owned).into(),
            ],
            |row| {
                let known = KnownForecast {
                    made_at: row.time(2)?,
                    times: times(row, 3)?,
                };
                Ok(((row.get(0)?, row.time(1)?), known))
            },
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Returns the first forecasts that were made since a time, of runs that have started since: at most this many, the
    /// newest. A run that had started when it was forecast, unknown to the last poll, is left out.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn graded_forecasts(
        &self,
        cluster: &str,
        since: UnixTime,
        most: usize,
    ) -> Result<Vec<GradedForecast>, StoreError> {
        self.list(
            "grade the forecasts",
            &format!(
                "SELECT epoch_ms(made_at) // 1000, epoch_ms(p50) // 1000, epoch_ms(slurm_start) // 1000,
                     epoch_ms(start_time) // 1000, is_right, epoch_ms(replayed_p10) // 1000,
                     epoch_ms(replayed_p50) // 1000, epoch_ms(replayed_p90) // 1000
                 FROM memory.main.forecasts
                 WHERE cluster = ? AND kind = 'first' AND made_at >= make_timestamp(?::BIGINT)::TIMESTAMP_S
                   AND start_time >= made_at
                 ORDER BY made_at DESC LIMIT {most}"
            ),
            vec![cluster.to_owned().into(), micros(since).into()],
            |row| {
                Ok(GradedForecast {
                    made_at: row.time(0)?,
                    p50: row.time(1)?,
                    slurm_start: row.time_if_set(2)?,
                    start: row.time(3)?,
                    is_right: row.get(4)?,
                    replayed: times(row, 5)?,
                })
            },
        )
    }

    /// Records a round of forecasts, in place of the one before on the same day (UTC).
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_forecast_round(
        &self,
        cluster: &str,
        round: &ForecastRound,
    ) -> Result<(), StoreError> {
        let day = round.made_at.round_down(86_400);
        let grades = round.grades;
        self.writing_aside("note the round of forecasts", |db| {
            db.execute(
                "DELETE FROM records.forecast_rounds
                 WHERE cluster = ? AND made_at >= make_timestamp(?::BIGINT)::TIMESTAMP_S",
                params![cluster, micros(day)],
            )?;
            db.execute(
                "INSERT INTO records.forecast_rounds
                 VALUES (?, make_timestamp(?::BIGINT)::TIMESTAMP_S, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                params![
                    cluster,
                    micros(round.made_at),
                    round.waiting_jobs,
                    round.forecast_jobs,
                    round.replays,
                    round.cpu_seconds,
                    round.not_modelled,
                    grades.graded,
                    grades.right,
                    grades.median_error_seconds,
                    grades.error_ratio,
                    grades.slurm_graded,
                    grades.slurm_median_error_seconds,
                    grades.paired_median_error_seconds
                ],
            )?;
            Ok(())
        })
    }

    /// Returns the last round of forecasts. `None` if there was none.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn last_forecast_round(&self, cluster: &str) -> Result<Option<ForecastRound>, StoreError> {
        let found = self.list(
            "read the round of forecasts",
            "SELECT epoch_ms(made_at) // 1000, waiting_jobs, forecast_jobs, replays, cpu_seconds, not_modelled, graded,
                 \"right\", median_error_seconds, error_ratio, slurm_graded, slurm_median_error_seconds,
                 paired_median_error_seconds
             FROM records.forecast_rounds WHERE cluster = ? ORDER BY made_at DESC LIMIT 1",
            vec![cluster.to_owned().into()],
            |row| {
                Ok(ForecastRound {
                    made_at: row.time(0)?,
                    waiting_jobs: row.get(1)?,
                    forecast_jobs: row.get(2)?,
                    replays: row.get(3)?,
                    cpu_seconds: row.get(4)?,
                    not_modelled: row.get(5)?,
                    grades: ForecastSummary {
                        graded: row.get(6)?,
                        right: row.get(7)?,
                        median_error_seconds: row.get(8)?,
                        error_ratio: row.get(9)?,
                        slurm_graded: row.get(10)?,
                        slurm_median_error_seconds: row.get(11)?,
                        paired_median_error_seconds: row.get(12)?,
                    },
                })
            },
        )?;
        Ok(found.into_iter().next())
    }

    /// Returns how much of their time limits the runs ran that ended since a time: at most this many, the last ended first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn ended_ratios(
        &self,
        cluster: &str,
        since: UnixTime,
        most: usize,
    ) -> Result<Vec<EndedRatio>, StoreError> {
        self.list(
            "read how long runs ran",
            &format!(
                "SELECT \"user\", coalesce(job_name, ''), elapsed_seconds / timelimit_seconds
                 FROM records.jobs
                 WHERE cluster = ? AND end_time >= make_timestamp(?::BIGINT)::TIMESTAMP_S
                   AND start_time IS NOT NULL AND elapsed_seconds IS NOT NULL AND timelimit_seconds > 0
                 ORDER BY end_time DESC, job_id LIMIT {most}"
            ),
            vec![cluster.to_owned().into(), micros(since).into()],
            |row| {
                Ok(EndedRatio {
                    user: row.get(0)?,
                    name: row.get(1)?,
                    ratio: row.get(2)?,
                })
            },
        )
    }
}

fn times(row: &Row<'_>, at: usize) -> duckdb::Result<ForecastTimes> {
    Ok(ForecastTimes {
        p10: row.time(at)?,
        p50: row.time(at + 1)?,
        p90: row.time(at + 2)?,
    })
}
