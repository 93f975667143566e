//! Forecasts as people see them: a time with its grades, or why there is none.

use super::grade::ForecastGrades;
use super::model::{UnmodelledRule, obstacle};
use crate::listed_run::ListedRun;
use crate::period::the_zone;
use crate::{AnswerConfig, AnswerError};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use takt_jobs::JobRun;
use takt_model::UnixTime;
use takt_store::{ForecastTimes, KnownCluster, KnownForecast, Records};

/// Age of a forecast, in seconds, from which on it is no longer shown: several rounds are missing.
const FRESH_SECONDS: i64 = 1800;

/// Longest forecast, in seconds. A later start is too far away to be told.
pub(super) const FARTHEST_SECONDS: i64 = 30 * 86_400;

/// When a waiting run starts, or why that is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartForecast {
    /// Time of the forecast. `None` if none is shown.
    pub made_at: Option<UnixTime>,
    /// Time before which it starts with a probability of 10 %.
    pub p10: Option<UnixTime>,
    /// Time before which it starts with a probability of 50 %.
    pub p50: Option<UnixTime>,
    /// Time before which it starts with a probability of 90 %.
    pub p90: Option<UnixTime>,
    /// The forecast and its grades as a sentence, or why there is no forecast.
    pub words: String,
    /// The times alone, such as `19:40 (19:20 to 21:10)`, or `unknown`.
    pub brief: String,
}

/// The forecasts of a cluster's queue and how good they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ForecastState {
    /// Time of the last forecasts. `None` if there were none.
    pub made_at: Option<UnixTime>,
    /// Jobs that waited then.
    pub waiting_jobs: u64,
    /// Jobs for which a start was found.
    pub forecast_jobs: u64,
    /// Replays of the queue.
    pub replays: u64,
    /// Time that the replays took, in seconds.
    pub cpu_seconds: f64,
    /// Grades of the forecasts of the last month.
    pub grades: ForecastGrades,
    /// Whether times are shown.
    pub are_shown: bool,
    /// The grades as a sentence, or why no time is shown.
    pub words: String,
    /// Rules and wishes that the replays do not know.
    pub not_modelled: Vec<UnmodelledRule>,
}

/// The forecasts of one cluster.
pub(crate) struct ForecastBook {
    state: ForecastState,
    known: HashMap<(String, UnixTime), KnownForecast>,
    zone: TimeZone,
    now: UnixTime,
}

impl ForecastBook {
    /// Reads the forecasts of the waiting runs of a cluster, or of one job.
    ///
    /// # Errors
    /// If the store fails, or the time zone of the cluster is not known.
    pub(crate) fn read(
        records: &Records<'_>,
        cluster: &KnownCluster,
        job_id: Option<&str>,
        config: &AnswerConfig,
        now: UnixTime,
    ) -> Result<Self, AnswerError> {
        Ok(Self {
            state: forecast_state(records, &cluster.cluster)?,
            known: records.forecasts(&cluster.cluster, job_id)?,
            zone: the_zone(cluster, &config.accounting)?,
            now,
        })
    }

    /// The forecasts and their grades.
    pub(crate) fn into_state(self) -> ForecastState {
        self.state
    }

    /// Adds the forecasts of waiting runs.
    pub(crate) fn add_to<'r>(&self, listed: impl IntoIterator<Item = &'r mut ListedRun>) {
        for one in listed.into_iter().filter(|one| is_waiting(&one.run)) {
            one.start_forecast = Some(self.of(one));
        }
    }

    fn of(&self, one: &ListedRun) -> StartForecast {
        let why = one.waiting.as_ref();
        let reason = why.map(|why| why.reason.as_str());
        if let Some(obstacle) = obstacle(&one.run, reason, why.and_then(|why| why.priority)) {
            return unknown(format!("no forecast: {obstacle}"));
        }
        if let Some(refusal) = self.state.grades.refusal() {
            return unknown(format!("no forecast: {refusal}"));
        }

        let identity = (one.run.job_id.clone(), one.run.submit);
        let known = self.known.get(&identity);
        match known.filter(|known| known.made_at + FRESH_SECONDS > self.now) {
            Some(known) => self.shown(known, why.map_or(&[], |why| &why.demands)),
            None => unknown(self.why_none(&one.run)),
        }
    }

    fn shown(&self, known: &KnownForecast, demands: &[String]) -> StartForecast {
        let ForecastTimes { p10, p50, p90 } = known.times;
        let [from, likely, to] = [p10, p50, p90].map(|at| self.clock(at));
        let times = if p90 <= self.now {
            format!("should have started by {to}")
        } else if from == to {
            format!("starts at about {likely}")
        } else {
            format!("starts between {from} and {to}, most likely at {likely}")
        };
        let missing = match demands {
            [] => String::new(),
            some => format!("; not modelled: its {}", some.join(", ")),
        };

        StartForecast {
            made_at: Some(known.made_at),
            p10: Some(p10),
            p50: Some(p50),
            p90: Some(p90),
            words: format!("{times}; {}{missing}", self.state.grades.words()),
            brief: if from == to {
                likely
            } else {
                format!("{likely} ({from} to {to})")
            },
        }
    }

    fn why_none(&self, run: &JobRun) -> String {
        let Some(made_at) = self.state.made_at else {
            return "no forecast yet: the server makes them while it polls Slurm and jobs wait"
                .to_owned();
        };
        if run.submit + FRESH_SECONDS > self.now {
            return "no forecast yet: it follows within minutes of the submission".to_owned();
        }
        if made_at + FRESH_SECONDS <= self.now {
            return format!(
                "no forecast: the server has made none since {}",
                self.clock(made_at)
            );
        }
        format!(
            "no forecast: no replay has started it within {} days",
            FARTHEST_SECONDS / 86_400
        )
    }

    fn clock(&self, at: UnixTime) -> String {
        clock(at, self.now, &self.zone)
    }
}

/// A time of day; with the day if that is another one.
pub(super) fn clock(at: UnixTime, now: UnixTime, zone: &TimeZone) -> String {
    let zoned = |at: UnixTime| -> Zoned {
        Timestamp::try_from(at)
            .unwrap_or_default()
            .to_zoned(zone.clone())
    };
    let (at, now) = (zoned(at), zoned(now));
    let is_soon = (at.timestamp().as_second() - now.timestamp().as_second()).abs() < 6 * 86_400;
    let format = match () {
        () if at.date() == now.date() => "%H:%M",
        () if is_soon => "%a %H:%M",
        () => "%Y-%m-%d %H:%M",
    };
    at.strftime(format).to_string()
}

/// The forecasts of a cluster's queue and their grades, as they were last recorded.
pub(super) fn forecast_state(
    records: &Records<'_>,
    cluster: &str,
) -> Result<ForecastState, AnswerError> {
    let Some(round) = records.last_forecast_round(cluster)? else {
        return Ok(ForecastState {
            are_shown: true,
            words: ForecastGrades::default().words(),
            ..ForecastState::default()
        });
    };

    let grades = ForecastGrades::of(&round.grades);
    Ok(ForecastState {
        made_at: Some(round.made_at),
        waiting_jobs: round.waiting_jobs,
        forecast_jobs: round.forecast_jobs,
        replays: round.replays,
        cpu_seconds: round.cpu_seconds,
        grades,
        are_shown: grades.are_shown(),
        words: grades.refusal().unwrap_or_else(|| grades.words()),
        // A text of another version says nothing.
        not_modelled: serde_json::from_str(&round.not_modelled).unwrap_or_default(),
    })
}

/// Adds the forecasts of the waiting runs of a list, which may be of several clusters.
///
/// # Errors
/// If the store fails.
pub(crate) fn add_forecasts(
    records: &Records<'_>,
    config: &AnswerConfig,
    now: UnixTime,
    listed: &mut [ListedRun],
) -> Result<(), AnswerError> {
    if !listed.iter().any(|one| is_waiting(&one.run)) {
        return Ok(());
    }
    for cluster in records.clusters()? {
        let of_cluster: Vec<&mut ListedRun> = listed
            .iter_mut()
            .filter(|one| one.run.cluster == cluster.cluster && is_waiting(&one.run))
            .collect();
        // Thousands may wait, of which a job's own page needs one.
        let job_id = match &*of_cluster {
            [] => continue,
            [one] => Some(one.run.job_id.clone()),
            _ => None,
        };
        ForecastBook::read(records, &cluster, job_id.as_deref(), config, now)?.add_to(of_cluster);
    }
    Ok(())
}

fn is_waiting(run: &JobRun) -> bool {
    run.start.is_none() && run.end.is_none()
}

fn unknown(words: String) -> StartForecast {
    StartForecast {
        words,
        brief: "unknown".to_owned(),
        ..StartForecast::default()
    }
}
