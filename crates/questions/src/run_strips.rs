//! Utilization of runs as strips, for lists of jobs: of ended runs from their kept curves, of running
//! ones from the strips of their GPUs in memory.

use super::period::the_cluster;
use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::SystemTime;
use takt_access::{Need, Owner, Viewer};
use takt_accounting::efficiency::Curve;
use takt_model::UnixTime;
use takt_store::{GpuPlace, Records, RunStrip, SLOTS, Slot, Store, slot_of};

/// Maximum number of runs in a question.
const MOST_RUNS: usize = 500;

/// Maximum number of steps of a strip.
const STEPS: usize = 60;

/// Asks for the strips of runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunStripsQuestion {
    /// Job ids, separated by commas.
    pub jobs: String,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

/// The strip of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStripAnswer {
    /// Job id.
    pub job_id: String,
    /// Time of submission.
    pub submit: UnixTime,
    /// Mean utilization of the run's GPUs, 0 to 1, from its start to its end or until now. Of a run
    /// that has run for more than seven days: of the last seven.
    pub utilization: Curve,
    /// Mean of all steps of a running run; `None` if it has ended: its efficiency is exact.
    pub mean_so_far: Option<f64>,
}

impl Question for RunStripsQuestion {
    const PATH: &'static str = "/api/takt/v1/jobs/strips";
    const NEED: Need = Need::SignedIn;
    type Answer = Vec<RunStripAnswer>;
    type Data = Store;

    fn answer(
        &self,
        viewer: &Viewer,
        store: &Store,
        config: &AnswerConfig,
    ) -> Result<Vec<RunStripAnswer>, AnswerError> {
        let ids: Vec<&str> = self.jobs.split(',').filter(|id| !id.is_empty()).collect();
        if ids.len() > MOST_RUNS {
            let error = format!("at most {MOST_RUNS} jobs in one question");
            return Err(AnswerError::Usage(error));
        }

        let records = Records::of(store.database());
        let asked = self
            .cluster
            .as_deref()
            .or(config.accounting.cluster.as_deref());
        let cluster = the_cluster(&records, asked, config.accounting.home.as_deref())?.cluster;

        let now = UnixTime::from(SystemTime::now());
        let mut strips = Vec::new();

        for run in records.strips_of(&cluster, &ids)? {
            if !viewer.sees_measurements(Owner::new(&run.user, &run.account)) {
                continue;
            }
            let found = match (&run.utilization, run.start, run.end) {
                // A run that has ended has a kept strip, and a running one those of its GPUs. Others have none.
                (Some(text), ..) => Some((Curve::of_text(text, 1.0), None)),
                (None, Some(start), None) => so_far(store, &cluster, &run, start, now)?,
                _ => None,
            };
            if let Some((utilization, mean_so_far)) = found {
                strips.push(RunStripAnswer {
                    job_id: run.job_id,
                    submit: run.submit,
                    utilization: shortened(&utilization),
                    mean_so_far,
                });
            }
        }
        Ok(strips)
    }
}

/// Utilization of a running run by slot, and its mean; `None` if no GPU of it is known.
fn so_far(
    store: &Store,
    cluster: &str,
    run: &RunStrip,
    start: UnixTime,
    now: UnixTime,
) -> Result<Option<(Curve, Option<f64>)>, AnswerError> {
    // The slot that is being written counts, so the strip reaches until now.
    let until = slot_of(now) + 1;
    let first = slot_of(start).max(until - SLOTS);

    let held = Records::of(store.database()).gpus_of(cluster, &run.job_id, run.submit)?;
    let mut gpus: BTreeMap<(String, String), Vec<Slot>> = BTreeMap::new();
    for gpu in held {
        // A GPU that only Slurm's index names has no strip.
        if let Some(uuid) = gpu.uuid {
            let place = GpuPlace {
                node: gpu.node,
                uuid,
            };
            let slots = store.strips().read_one(&place, first, until);
            gpus.insert((place.node, place.uuid), slots);
        }
    }

    let curves: Vec<Curve> = gpus
        .into_values()
        .map(|slots| Curve(slots.into_iter().map(Slot::utilization_ratio).collect()))
        .collect();

    let mean = Curve::mean(&curves.iter().collect::<Vec<_>>());
    if !mean.is_measured() {
        return Ok(None);
    }
    // One step over all of them is the mean.
    let whole = mean.part(0, mean.0.len(), mean.0.len());
    let mean_so_far = whole.0.first().copied().flatten();
    Ok(Some((mean, mean_so_far)))
}

/// The curve with at most [`STEPS`] steps.
fn shortened(curve: &Curve) -> Curve {
    let steps = curve.0.len();
    curve.part(0, steps, steps.div_ceil(STEPS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{import, store_in};
    use takt_access::{Privacy, Role, Way};
    use takt_jobs::JobRun;
    use takt_store::RunCurves;
    use tempfile::tempdir;

    #[test]
    fn kept_strips_are_shown_to_those_who_see_the_job() {
        let root = tempdir().unwrap();
        let store = store_in(root.path());
        let records = Records::of(store.database());
        let run = |job_id: &str, end: Option<i64>| JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit: UnixTime(100),
            start: Some(UnixTime(200)),
            end: end.map(UnixTime),
            user: "ann".into(),
            ..JobRun::default()
        };
        // 7 has a kept strip; 8 has ended without one, 9 runs on no known GPU, and 10 is no job.
        let runs = [run("7", Some(900)), run("8", Some(900)), run("9", None)];
        import(store.database(), None, runs);
        let text = Curve(vec![Some(1.0); 120]).to_text(1.0);
        let curves = RunCurves {
            cluster: "lab".into(),
            job_id: "7".into(),
            submit: UnixTime(100),
            end: UnixTime(900),
            utilization: Some(text),
            report: "{}".into(),
        };
        records.keep_curves(&[curves]).unwrap();

        let ask = |viewer: &Viewer, jobs: &str| {
            let question = RunStripsQuestion {
                jobs: jobs.into(),
                cluster: None,
            };
            question.answer(viewer, &store, &AnswerConfig::default())
        };
        let seen = ask(&Viewer::server(), "7,8,9,10").unwrap();
        assert_eq!(seen.len(), 1, "{seen:?}");
        // 120 kept steps become 60.
        assert_eq!(seen[0].utilization, Curve(vec![Some(1.0); 60]));
        assert_eq!(seen[0].mean_so_far, None);

        let bob = Viewer::new(Role::User, Way::Socket, Privacy::Usage).with_user("bob");
        assert!(ask(&bob, "7").unwrap().is_empty());

        let many = vec!["1"; MOST_RUNS + 1].join(",");
        assert!(ask(&bob, &many).is_err());
    }
}
