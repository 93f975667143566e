//! Forecasts of the starts of waiting jobs: made from many replays of the queue, recorded, and graded when the jobs start.
//!
//! `model` turns what the store knows into a queue to replay, `grade` judges earlier forecasts, `shown` has what people see.

mod blocked;
mod change;
mod grade;
mod model;
mod shown;
#[cfg(test)]
mod tests;

pub use blocked::{AwaitedRun, BlockedAnswer, BlockedQuestion, StartChange};
pub use grade::ForecastGrades;
pub use model::{QueueFacts, QueueModel, UnmodelledRule, WaitingJob};
pub(crate) use shown::{ForecastBook, add_forecasts};
pub use shown::{ForecastState, StartForecast};

use crate::AnswerError;
use crate::queue::{running_runs, waiting_rows};
use grade::{GRADED_DAYS, grade};
use jiff::Timestamp;
use model::queue_model;
use shown::FARTHEST_SECONDS;
use std::cmp::Reverse;
use std::time::{Duration, Instant};
use takt_model::UnixTime;
use takt_simulate::{Calibration, Forecast, KnownStart, RunTimes, forecast};
use takt_store::{
    Database, EndedRatio, ForecastRound, ForecastTimes, GradedForecast, ListedJob, NotedForecast,
    OpenRun, Records,
};

/// Replays of a queue. P10 and P90 of 50 replays are their fifth from each end.
const REPLAYS: u32 = 50;

/// Time for the replays of a round. A round that takes longer is made of fewer replays.
const ROUND_TIME: Duration = Duration::from_secs(5);

/// Waiting jobs that are replayed, the first by priority. Those far behind do not delay them.
const MOST_WAITING: usize = 2000;

/// Age of the last poll, in seconds, from which on a queue is too old to be replayed.
const POLLED_SECONDS: i64 = 900;

/// Days of ended jobs, and most of them, from which run times are drawn.
const RUN_TIME_DAYS: i64 = 60;
const MOST_ENDED: usize = 50_000;

/// Most forecasts that are graded.
const MOST_GRADED: usize = 20_000;

/// Forecasts the starts of the waiting jobs of a cluster, records the forecasts, and grades earlier ones. Returns the time
/// that this took; `None` if nothing waits, or if the scheduler was not polled lately.
///
/// # Errors
/// If the store fails.
pub fn forecast_starts(
    database: &Database,
    cluster: &str,
) -> Result<Option<Duration>, AnswerError> {
    let began = Instant::now();
    let records = Records::of(database);
    let now = UnixTime::from(Timestamp::now());
    let polled = records.last_poll_of(cluster)?;
    let is_current = polled.is_some_and(|polled| polled + POLLED_SECONDS > now);
    if !is_current || records.queue_counts(cluster)?.pending == 0 {
        return Ok(None);
    }

    let (facts, left_out) = queue_facts(&records, cluster, now)?;
    let ended = records.ended_ratios(cluster, now - RUN_TIME_DAYS * 86_400, MOST_ENDED)?;
    let replayed = Instant::now();
    let mut replays = 0;
    let (model, found) = forecast_queue(&facts, &run_times(&ended), |done| {
        replays = done;
        done < REPLAYS && replayed.elapsed() < ROUND_TIME
    });
    let cpu_seconds = replayed.elapsed().as_secs_f64();

    let since = now - GRADED_DAYS * 86_400;
    let graded = records.graded_forecasts(cluster, since, MOST_GRADED)?;
    let noted = noted_forecasts(&facts, &found, &calibration(&graded));
    records.note_forecasts(cluster, &noted, now)?;
    let round = ForecastRound {
        made_at: now,
        waiting_jobs: (facts.waiting.len() + left_out) as u64,
        forecast_jobs: noted.len() as u64,
        replays: u64::from(replays),
        cpu_seconds,
        not_modelled: rules_text(model.not_modelled, left_out),
        grades: grade(&graded),
    };
    records.note_forecast_round(cluster, &round)?;
    Ok(Some(began.elapsed()))
}

/// Forecasts the start of each waiting job of a queue, in their order. `None` if no replay starts it soon enough to be told.
pub fn forecast_queue(
    facts: &QueueFacts,
    times: &RunTimes,
    goes_on: impl FnMut(u32) -> bool,
) -> (QueueModel, Vec<Option<Forecast>>) {
    let model = queue_model(facts);
    let starts = forecast(&model.cluster, &model.jobs, times, facts.now, goes_on);

    let farthest = facts.now + FARTHEST_SECONDS;
    let of_job = |at: &Option<usize>| starts[(*at)?].filter(|found| found.p90 < farthest);
    let found = model.waiting.iter().map(of_job).collect();
    (model, found)
}

/// The run times of ended runs, the last ended first.
pub fn run_times(ended: &[EndedRatio]) -> RunTimes {
    let mut times = RunTimes::default();
    for one in ended {
        times.add(
            &one.user.as_str().into(),
            &one.name.as_str().into(),
            one.ratio,
        );
    }
    times
}

/// Reads the queue, and the number of waiting jobs that are left out.
fn queue_facts(
    records: &Records<'_>,
    cluster: &str,
    now: UnixTime,
) -> Result<(QueueFacts, usize), AnswerError> {
    let mut waiting: Vec<WaitingJob> = waiting_rows(records, cluster, now)?
        .into_iter()
        .map(waiting_job)
        .collect();
    let left_out = waiting.len().saturating_sub(MOST_WAITING);
    waiting.sort_by_key(|one| (Reverse(one.priority), one.run.submit));
    waiting.truncate(MOST_WAITING);

    let facts = QueueFacts {
        now,
        nodes: records.nodes_now(cluster)?,
        reservations: records.reservations(cluster, now)?,
        running: running_runs(records, cluster, now)?,
        waiting,
    };
    Ok((facts, left_out))
}

fn waiting_job(row: ListedJob) -> WaitingJob {
    let Some(known) = row.reason else {
        return WaitingJob {
            run: row.run,
            ..WaitingJob::default()
        };
    };
    WaitingJob {
        run: row.run,
        reason: Some(known.reason),
        priority: known.priority,
        demands: known.demands,
        slurm_start: known.expected_start,
    }
}

/// The correction by earlier forecasts of jobs that have started.
fn calibration(graded: &[GradedForecast]) -> Calibration {
    let known: Vec<KnownStart> = graded
        .iter()
        .map(|one| KnownStart {
            made_at: one.made_at,
            forecast: Forecast {
                p10: one.replayed.p10,
                p50: one.replayed.p50,
                p90: one.replayed.p90,
            },
            start: one.start,
        })
        .collect();
    Calibration::of(&known)
}

fn noted_forecasts(
    facts: &QueueFacts,
    found: &[Option<Forecast>],
    calibration: &Calibration,
) -> Vec<NotedForecast> {
    let pairs = facts.waiting.iter().zip(found);
    pairs
        .filter_map(|(one, found)| {
            let replayed = (*found)?;
            Some(NotedForecast {
                run: OpenRun {
                    job_id: one.run.job_id.clone(),
                    submit: one.run.submit,
                },
                times: forecast_times(calibration.apply(replayed, facts.now)),
                replayed: forecast_times(replayed),
                slurm_start: one.slurm_start,
            })
        })
        .collect()
}

fn forecast_times(found: Forecast) -> ForecastTimes {
    ForecastTimes {
        p10: found.p10,
        p50: found.p50,
        p90: found.p90,
    }
}

fn rules_text(mut rules: Vec<UnmodelledRule>, left_out: usize) -> String {
    if left_out > 0 {
        rules.push(UnmodelledRule {
            rule: format!("jobs behind the first {MOST_WAITING}"),
            count: Some(left_out),
        });
    }
    serde_json::to_string(&rules).unwrap_or_default()
}
