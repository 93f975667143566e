//! Implements the traits of the alert engine over the store: queries, samples, and the tables that
//! commit together.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use takt_alerts::ports::{
    AlertStore, IsDown, Query, QueryError, RuleQueries, Sample, SampleSink, StoreError,
};
use takt_alerts::routing::maintenance::Maintenance;
use takt_alerts::run::Outside;
use takt_alerts::{Batch, Snapshot};
use takt_model::{Event, Labels, Timestamp, error_chain};
use takt_promql::{Limits, Options, Value, quoted};
use takt_slurm::JobRun;
use takt_slurm::Reservation;
use takt_store::JobFilter;
use takt_store::{AlertRecords, Group, Health, Records, Store};

use super::{context, rows};
use std::mem;

/// Timeout of a rule's expression.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout of an expression on the engine's thread: jobs and GPUs of a message.
const AT_ONCE_TIMEOUT: Duration = Duration::from_millis(300);

/// The store as the alert engine uses it.
pub struct OverStore {
    queries: Arc<StoreQueries>,
    records: AlertRecords,
    written: RefCell<Writer>,
}

/// The store's samples and job records.
struct StoreQueries {
    store: Arc<Store>,
    cluster: String,
}

/// Writes series without a target: the results of rules and the server's own series.
pub struct Writer {
    group: Group,
    /// The last reserved timestamp: rows of a group of series need increasing timestamps.
    last: Timestamp,
    /// The series of the last row, to end those that disappear.
    row: BTreeSet<Labels>,
}

impl Writer {
    /// Creates a writer with its own group of series.
    pub fn new(store: &Store) -> Self {
        Self {
            group: store.group(),
            last: Timestamp::from(SystemTime::now()),
            row: BTreeSet::new(),
        }
    }

    /// Writes samples with the timestamp of their evaluation. Other series may already have later
    /// samples, so these are written with their own timestamps.
    pub fn write(&mut self, samples: &[Sample]) -> Result<(), StoreError> {
        if samples.is_empty() {
            return Ok(());
        }
        let now = Timestamp::from(SystemTime::now()).max(Timestamp(self.last.0 + 1));
        let failed = |error: takt_store::ClockWentBack| StoreError(error.to_string());
        let ticket = self.group.ticket(now).map_err(failed)?;
        self.last = ticket.at();
        let columns: Vec<_> = samples
            .iter()
            .filter_map(|sample| {
                let value = sample.value.unwrap_or(takt_store::STALE);
                Some((
                    self.group.column(&sample.labels)?,
                    takt_store::Sample {
                        at: sample.at,
                        value,
                    },
                ))
            })
            .collect();
        self.group.commit(ticket, &[], &columns).map_err(failed)?;
        match samples.len() - columns.len() {
            0 => Ok(()),
            others => Err(StoreError(format!(
                "{others} series are written by another source"
            ))),
        }
    }

    /// Writes all series at `at`. Series of the previous row that this row lacks end.
    pub fn write_row(&mut self, row: Vec<(Labels, f64)>, at: Timestamp) -> Result<(), StoreError> {
        let before = mem::replace(
            &mut self.row,
            row.iter().map(|(labels, _)| labels.clone()).collect(),
        );
        let gone: Vec<_> = before
            .difference(&self.row)
            .map(|labels| Sample {
                labels: labels.clone(),
                at,
                value: None,
            })
            .collect();
        let samples = row
            .into_iter()
            .map(|(labels, value)| Sample {
                labels,
                at,
                value: Some(value),
            })
            .chain(gone)
            .collect::<Vec<_>>();
        self.write(&samples)
    }
}

impl OverStore {
    /// Opens the tables. The job records are those of `cluster`.
    pub fn new(
        store: Arc<Store>,
        cluster: &str,
        now: Timestamp,
    ) -> Result<Self, takt_store::StoreError> {
        let records = AlertRecords::open(store.database(), now)?;
        let written = RefCell::new(Writer::new(&store));
        let cluster = cluster.to_owned();
        Ok(Self {
            queries: Arc::new(StoreQueries { store, cluster }),
            records,
            written,
        })
    }
}

impl StoreQueries {
    /// Returns the newest run of a job in Slurm's records, by the number that the exporter reports;
    /// `None` without records, or if they cannot be read.
    fn job(&self, number: &str) -> Option<JobRun> {
        let filter = JobFilter {
            cluster: Some(self.cluster.clone()),
            job_number: Some(number.to_owned()),
            limit: Some(1),
            ..JobFilter::default()
        };
        Records::of(self.store.database())
            .jobs(&filter)
            .inspect_err(|error| tracing::warn!(error = error_chain(error), "cannot look up a job"))
            .ok()?
            .into_iter()
            .next()
    }
}

/// Evaluates an expression over a source of series: the store's, or that of a test.
pub fn instant(
    source: &dyn takt_promql::Source,
    expr: &str,
    at: Timestamp,
) -> Result<Vec<(Labels, f64)>, QueryError> {
    evaluate(source, expr, at, true, QUERY_TIMEOUT)
}

/// As [`instant`], for the engine's thread: events wait for it.
pub(super) fn at_once(
    source: &dyn takt_promql::Source,
    expr: &str,
    at: Timestamp,
) -> Result<Vec<(Labels, f64)>, QueryError> {
    evaluate(source, expr, at, true, AT_ONCE_TIMEOUT)
}

fn evaluate(
    source: &dyn takt_promql::Source,
    expr: &str,
    at: Timestamp,
    lazy: bool,
    timeout: Duration,
) -> Result<Vec<(Labels, f64)>, QueryError> {
    let limits = Limits {
        deadline: Some(Instant::now() + timeout),
        ..Limits::default()
    };
    let options = Options {
        limits,
        lazy,
        ..Options::default()
    };
    let answer = takt_promql::instant(source, expr, at, &options)
        .map_err(|error| QueryError(error_chain(&error)))?;
    match answer.value {
        Value::Vector(samples) => Ok(samples
            .into_iter()
            // A native histogram is not a number to compare or record.
            .filter(|sample| sample.histogram.is_none())
            .map(|sample| (sample.labels, sample.point.value))
            .collect()),
        Value::Scalar(point) => Ok(vec![(Labels::new(), point.value)]),
        other => Err(QueryError(format!(
            "a rule needs a vector or a scalar, this is a {}",
            other.kind()
        ))),
    }
}

/// Fails if the expression cannot be evaluated, or if its result is not a vector or scalar.
pub fn check(expr: &str) -> Result<(), QueryError> {
    let nothing = takt_promql::Memory::new();
    evaluate(&nothing, expr, Timestamp(0), false, QUERY_TIMEOUT).map(drop)
}

impl RuleQueries for StoreQueries {
    fn exporters_down(&self, at: Timestamp) -> IsDown {
        exporters_down(&*self.store, at)
    }
}

impl Query for StoreQueries {
    fn instant(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError> {
        instant(&*self.store, expr, at)
    }

    fn check(&self, expr: &str) -> Result<(), QueryError> {
        check(expr)
    }

    fn gpu_index(&self, labels: &Labels, at: Timestamp) -> Option<String> {
        context::gpu_index(&*self.store, labels, at)
    }

    fn context(
        &self,
        expr: Option<&str>,
        labels: &Labels,
        since: Timestamp,
        at: Timestamp,
    ) -> Vec<(String, String)> {
        let mut words = context::context(&*self.store, &|id| self.job(id), expr, labels, since, at);
        let job = labels
            .get("jobid")
            .and_then(|id| self.job(id))
            .map(|run| ("jobs".to_owned(), context::job_words(&run)));
        words.extend(job);
        words
    }
}

impl SampleSink for OverStore {
    fn write(&self, samples: &[Sample]) -> Result<(), StoreError> {
        self.written.borrow_mut().write(samples)
    }
}

impl AlertStore for OverStore {
    fn load(&self) -> Result<Snapshot, StoreError> {
        rows::load(&self.records, SystemTime::now().into())
    }

    fn commit(&self, batch: &Batch, at: Timestamp) -> Result<(), StoreError> {
        self.records
            .commit(&rows::changes(batch, at)?)
            .map_err(|error| StoreError(format!("{error:#}")))
    }
}

/// Returns a function that says whether the exporter of a series was down at a time. If `up` cannot
/// be read, it says that no exporter was down: the rules then behave as in Prometheus.
pub(super) fn exporters_down(source: &dyn takt_promql::Source, at: Timestamp) -> IsDown {
    let up = instant(source, "up", at).unwrap_or_default();
    let instances: BTreeSet<String> = up
        .iter()
        .filter(|(_, value)| *value == 0.0)
        .map(|(labels, _)| labels)
        .filter_map(|labels| labels.get("instance").map(str::to_owned))
        .collect();
    let nodes = |is_up: bool| -> BTreeSet<String> {
        up.iter()
            .filter(|(_, value)| (*value == 1.0) == is_up)
            .filter_map(|(labels, _)| labels.get("node").map(str::to_owned))
            .collect()
    };
    let nodes: BTreeSet<String> = nodes(false).difference(&nodes(true)).cloned().collect();
    Box::new(
        move |labels| match (labels.get("instance"), labels.get("node")) {
            (Some(instance), _) => instances.contains(instance),
            (None, Some(node)) => nodes.contains(node),
            (None, None) => false,
        },
    )
}

impl Outside for OverStore {
    fn queries(&self) -> Arc<dyn RuleQueries> {
        self.queries.clone()
    }

    fn maintenance(&self, now: Timestamp) -> Option<Vec<Maintenance>> {
        let StoreQueries { store, cluster } = &*self.queries;
        let kept = Records::of(store.database())
            .reservations(cluster, now.whole_seconds())
            .inspect_err(|error| {
                tracing::warn!(error = error_chain(error), "cannot look up reservations")
            });
        let work = kept
            .ok()?
            .into_iter()
            .filter(Reservation::is_maintenance)
            .map(|kept| Maintenance {
                nodes: kept.nodes().into_iter().collect(),
                name: kept.name,
                cluster: cluster.clone(),
                from: kept.from.into(),
                to: kept.to.into(),
            })
            .collect();
        Some(work)
    }

    /// Returns the job that the event names, or the jobs that held the GPU at that time. Slurm's
    /// records supply names, and users that the exporter did not know.
    fn jobs_at(&self, event: &Event) -> Vec<Labels> {
        let label = |name: &str| event.labels.get(name);
        let expr = match (label("node"), label("uuid"), label("jobid")) {
            (Some(node), Some(uuid), _) => {
                let node = quoted(node);
                let uuid = quoted(uuid);
                format!("takt_gpu_job_info{{node={node},uuid={uuid}}}")
            }
            (Some(node), None, Some(job)) => {
                let node = quoted(node);
                let job = quoted(job);
                format!("takt_job_info{{node={node},jobid={job}}}")
            }
            _ => return Vec::new(),
        };
        // A node's clock may be ahead; the server has no samples of that time yet.
        let at = event.at.min(SystemTime::now().into());
        let found = at_once(&*self.queries.store, &expr, at).unwrap_or_default();
        let mut jobs: BTreeMap<String, String> = found
            .iter()
            .filter_map(|(labels, _)| {
                let id = labels.get("jobid").filter(|id| !id.is_empty())?;
                let user = labels.get("user").unwrap_or_default();
                Some((id.to_owned(), user.to_owned()))
            })
            .collect();
        if let Some(named) = label("jobid") {
            jobs.retain(|id, _| id == named);
            jobs.entry(named.to_owned()).or_default();
        }
        jobs.into_iter()
            .map(|(id, user)| {
                let run = self.queries.job(&id);
                let mut labels: Labels = [("jobid", id)].into_iter().collect();
                let of_run = run.as_ref().map(|run| run.user.clone());
                if let Some(user) = Some(user).filter(|user| !user.is_empty()).or(of_run) {
                    labels.set("user", &user);
                }
                if let Some(name) = run.and_then(|run| run.name) {
                    labels.set("job_name", &name);
                }
                labels
            })
            .collect()
    }

    fn storage_problem(&self) -> Option<String> {
        match &*self.queries.store.health().borrow() {
            Health::Writing => None,
            Health::Waiting(reason) | Health::Invalidated(reason) => Some(reason.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{import, store_in};
    use takt_model::{EventKind, METRIC_NAME};
    use tempfile::tempdir;

    /// A node whose clock was ten minutes ahead: the owner of the job got no mail.
    #[test]
    fn jobs_of_an_event_are_found_although_the_nodes_clock_is_ahead() {
        let folder = tempdir().unwrap();
        let store = Arc::new(store_in(folder.path()));
        let now = Timestamp::from(SystemTime::now());
        let group = store.group();
        let held = |job: &str, user: &str| {
            let labels = [
                (METRIC_NAME, "takt_gpu_job_info"),
                ("node", "g01"),
                ("uuid", "GPU-1"),
                ("jobid", job),
                ("user", user),
            ];
            group.column(&labels.into_iter().collect()).unwrap()
        };
        held("7", "ada");
        held("8", "");
        let row = vec![1.0; group.width()];
        let ticket = group.ticket(now).unwrap();
        group.commit(ticket, &row, &[]).unwrap();
        import(
            store.database(),
            None,
            [JobRun {
                cluster: "lab".into(),
                job_id: "8".into(),
                submit: now.whole_seconds(),
                user: "bob".into(),
                state: "RUNNING".into(),
                name: Some("sweep".into()),
                ..JobRun::default()
            }],
        );
        let over = OverStore::new(Arc::clone(&store), "lab", now).unwrap();
        let event = |ahead: u64, more: &[(&str, &str)]| Event {
            id: 1,
            at: now.plus(Duration::from_secs(ahead)),
            kind: EventKind::Xid,
            labels: [("node", "g01"), ("uuid", "GPU-1")]
                .iter()
                .chain(more)
                .copied()
                .collect(),
            message: String::new(),
        };
        let job = |pairs: &[(&str, &str)]| pairs.iter().copied().collect::<Labels>();
        let ada = job(&[("jobid", "7"), ("user", "ada")]);
        let bob = job(&[("jobid", "8"), ("user", "bob"), ("job_name", "sweep")]);
        assert_eq!(over.jobs_at(&event(0, &[])), [ada.clone(), bob.clone()]);
        assert_eq!(over.jobs_at(&event(600, &[])), [ada, bob.clone()]);
        assert_eq!(over.jobs_at(&event(0, &[("jobid", "8")])), [bob]);
    }
}
