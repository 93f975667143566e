//! Implements the traits of the alert engine over the store: queries, samples, and the tables that
//! commit together.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use takt_access::MessageLink;
use takt_alerts::outbox::Row;
use takt_alerts::ports::{
    AlertStore, ComparedValues, ExporterState, ExporterStates, Query, QueryError, RuleQueries,
    Sample, SampleSink, StoreError,
};
use takt_alerts::routing::maintenance::Maintenance;
use takt_alerts::run::{Doubt, JobsAt, Outside};
use takt_alerts::{Batch, Snapshot};
use takt_collector::schedulers::NOT_READ;
use takt_jobs::{JobRun, Reservation};
use takt_model::{Event, EventKind, Labels, Timestamp, error_chain};
use takt_promql::{Expression, Limits, Options, Value, quoted};
use takt_store::JobFilter;
use takt_store::{AlertRecords, ClockState, Group, Health, Records, Store};

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
    /// Key of the links in messages; empty without any.
    link_key: String,
    /// Whether messages get links, as last configured.
    has_links: Arc<AtomicBool>,
}

/// How long a link in a message is valid.
const LINK_SECONDS: i64 = 86_400;

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
        self.write_at(samples, |at| at)
    }

    /// Like [`write`](Self::write), with the timestamps that `stored` returns for the samples'.
    fn write_at(
        &mut self,
        samples: &[Sample],
        stored: impl Fn(Timestamp) -> Timestamp,
    ) -> Result<(), StoreError> {
        if samples.is_empty() {
            // A row without samples would still take a timestamp.
            return Ok(());
        }
        // Timestamps of a group must increase, also if the clock was set back.
        let now = Timestamp::from(SystemTime::now()).max(Timestamp(self.last.0 + 1));
        let failed = |error: takt_store::ClockWentBack| StoreError(error.to_string());
        let ticket = self.group.ticket(now).map_err(failed)?;
        self.last = ticket.at();

        // A series that another group writes has no column here, and is counted below.
        let columns: Vec<_> = samples
            .iter()
            .filter_map(|sample| {
                let value = sample.value.unwrap_or(takt_store::STALE);
                Some((
                    self.group.column(&sample.labels)?,
                    takt_store::Sample {
                        at: stored(sample.at),
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

    /// Takes these series for those of the previous row: an earlier start of the server wrote them.
    pub fn adopt(&mut self, series: impl IntoIterator<Item = Labels>) {
        self.row.extend(series);
    }

    /// Writes all series at `at`. Series of the previous row that this row lacks end.
    pub fn write_row(&mut self, row: Vec<(Labels, f64)>, at: Timestamp) -> Result<(), StoreError> {
        let before = mem::replace(
            &mut self.row,
            row.iter().map(|(labels, _)| labels.clone()).collect(),
        );
        let gone: Vec<_> = before
            .difference(&self.row)
            // A stale marker ends a series at once. Otherwise it would be found for another five minutes.
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
            link_key: String::new(),
            has_links: Arc::default(),
        })
    }

    /// Gives messages links that acknowledge their alerts, signed with this key, while `has_links` is true.
    pub fn with_links(self, key: String, has_links: Arc<AtomicBool>) -> Self {
        Self {
            link_key: key,
            has_links,
            ..self
        }
    }
}

impl StoreQueries {
    fn clock(&self) -> ClockState {
        self.store.database().clock_state()
    }

    /// Returns the timestamp of the samples that were scraped at `at` by the engine's clock.
    fn of_samples(&self, at: Timestamp) -> Timestamp {
        self.clock().of_samples(at)
    }

    /// Returns the newest run of a job in Slurm's records, by the number that the exporter reports;
    /// `None` without records, or if they cannot be read.
    fn job(&self, number: &str) -> Option<JobRun> {
        let filter = JobFilter {
            cluster: Some(self.cluster.clone()),
            job_number: Some(number.to_owned()),
            // The newest run: numbers come round again.
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
    let samples = samples(source, expr, at, lazy, timeout)?.into_iter();
    Ok(samples
        // A native histogram is not a number to compare or record.
        .filter(|sample| sample.histogram.is_none())
        .map(|sample| (sample.labels, sample.point.value))
        .collect())
}

/// As [`instant`], with native histograms.
pub fn instant_samples(
    source: &dyn takt_promql::Source,
    expr: &str,
    at: Timestamp,
) -> Result<Vec<takt_promql::Sample>, QueryError> {
    samples(source, expr, at, true, QUERY_TIMEOUT)
}

fn samples(
    source: &dyn takt_promql::Source,
    expr: &str,
    at: Timestamp,
    lazy: bool,
    timeout: Duration,
) -> Result<Vec<takt_promql::Sample>, QueryError> {
    let limits = Limits {
        deadline: Some(Instant::now() + timeout),
        ..Limits::default()
    };
    let options = Options {
        limits,
        lazy,
        ..Options::default()
    };

    let answer = parsed(expr)
        .and_then(|parsed| takt_promql::instant_parsed(source, &parsed, expr, at, &options))
        .map_err(|error| QueryError(error_chain(&error)))?;
    match answer.value {
        Value::Vector(samples) => Ok(samples),
        Value::Scalar(point) => Ok(vec![takt_promql::Sample {
            labels: Labels::new(),
            point,
            histogram: None,
        }]),
        other => Err(QueryError(format!(
            "a rule needs a vector or a scalar, this is a {}",
            other.kind()
        ))),
    }
}

/// Most expressions that are kept parsed: more than the rules of a large site.
const PARSED_MAX: usize = 4096;

/// The expression, from memory if it was evaluated before: rules evaluate the same ones at each interval, and parsing compiles
/// their regular expressions.
fn parsed(expr: &str) -> Result<Arc<Expression>, takt_promql::Error> {
    static KNOWN: Mutex<BTreeMap<String, Arc<Expression>>> = Mutex::new(BTreeMap::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    // The lock is not held while parsing, so two threads may parse the same expression once.
    if let Some(parsed) = known().get(expr) {
        return Ok(Arc::clone(parsed));
    }

    let parsed = Arc::new(takt_promql::parse(expr)?);
    let mut known = known();
    // Cleared as a whole: rules are few, and expressions of removed rules must not stay forever.
    if known.len() >= PARSED_MAX {
        known.clear();
    }
    known.insert(expr.to_owned(), Arc::clone(&parsed));
    Ok(parsed)
}

/// Fails if the expression cannot be evaluated, or if its result is not a vector or scalar.
pub fn check(expr: &str) -> Result<(), QueryError> {
    // Without samples, every expression is cheap, and its type shows all the same.
    let nothing = takt_promql::Memory::new();
    evaluate(&nothing, expr, Timestamp(0), false, QUERY_TIMEOUT).map(drop)
}

impl RuleQueries for StoreQueries {
    fn exporter_states(&self, at: Timestamp, watched_since: Timestamp) -> ExporterStates {
        // The engine's clock may be held back while the samples have the machine's time.
        let [at, watched_since] = [at, watched_since].map(|at| self.of_samples(at));
        exporter_states(&*self.store, at, watched_since)
    }
}

impl Query for StoreQueries {
    fn instant(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError> {
        instant(&*self.store, expr, self.of_samples(at))
    }

    fn instant_until(
        &self,
        expr: &str,
        at: Timestamp,
        until: Instant,
    ) -> Result<Vec<(Labels, f64)>, QueryError> {
        let timeout = until.saturating_duration_since(Instant::now());
        let at = self.of_samples(at);
        evaluate(&*self.store, expr, at, true, timeout.min(QUERY_TIMEOUT))
    }

    fn check(&self, expr: &str) -> Result<(), QueryError> {
        check(expr)
    }

    fn gpu_index(&self, labels: &Labels, at: Timestamp) -> Option<String> {
        context::gpu_index(&*self.store, labels, self.of_samples(at))
    }

    fn context(
        &self,
        compared: Option<ComparedValues<'_>>,
        labels: &Labels,
        since: Timestamp,
        at: Timestamp,
    ) -> Vec<(String, String)> {
        let [since, at] = [since, at].map(|at| self.of_samples(at));
        let mut words = context::context(
            &*self.store,
            &|id| self.job(id),
            compared,
            labels,
            since,
            at,
        );
        let is_meant = |run: &JobRun| context::is_of(run, labels.get("user").unwrap_or_default());
        let job = labels
            .get("jobid")
            .and_then(|id| self.job(id))
            .filter(is_meant)
            .map(|run| ("jobs".to_owned(), context::job_words(&run)));
        words.extend(job);
        words
    }
}

impl SampleSink for OverStore {
    fn write(&self, samples: &[Sample]) -> Result<(), StoreError> {
        let clock = self.queries.clock();
        let mut written = self.written.borrow_mut();
        written.write_at(samples, |at| clock.of_samples(at))
    }
}

impl AlertStore for OverStore {
    fn load(&self) -> Result<Snapshot, StoreError> {
        rows::load(&self.records, self.now())
    }

    fn commit(&self, batch: &Batch, at: Timestamp) -> Result<(), StoreError> {
        self.records
            .commit(&rows::changes(batch, at)?)
            .map_err(|error| StoreError(format!("{error:#}")))
    }
}

/// Returns a function that says whether the exporter of a series answered at a time. If `up` cannot
/// be read, it says that each did: the rules then behave as in Prometheus.
///
/// An exporter without `up` is no target any more, or was not scraped yet. Within the lookback after
/// a gap (`watched_since`) it counts as down, and all do while none was scraped. One whose samples are
/// from before the gap is awaited.
pub fn exporter_states(
    source: &dyn takt_promql::Source,
    at: Timestamp,
    watched_since: Timestamp,
) -> ExporterStates {
    // Without `up`, nothing counts as down.
    let up = instant(source, "up", at).unwrap_or_default();
    let down = up.iter().filter(|(_, value)| *value == 0.0);
    let down = Exporters::of(down.map(|(labels, _)| labels));
    let answering = up.iter().filter(|(_, value)| *value == 1.0);
    let answering = Exporters::of(answering.map(|(labels, _)| labels));

    let awaits = at < watched_since.plus_ms(Options::default().lookback_ms);
    let gap = awaits.then(|| AfterGap {
        known: Exporters::of(up.iter().map(|(labels, _)| labels)),
        scraped: scraped_since(source, "up", at, watched_since),
        own: Exporters::of(named(source, OWN_ROW, at).iter()),
        are_own_new: are_own_series_new(source, at, watched_since),
    });

    Box::new(move |labels: &Labels| {
        if let Some(state) = gap.as_ref().and_then(|gap| gap.state(labels)) {
            return state;
        }

        let is_down = match (labels.get("instance"), labels.get("node")) {
            (Some(instance), _) => down.instances.contains(instance),
            // A node may have several exporters. It is down if none of them answers.
            (None, Some(node)) => down.nodes.contains(node) && !answering.nodes.contains(node),
            (None, None) => false,
        };
        if is_down {
            ExporterState::Down
        } else {
            ExporterState::Answers
        }
    })
}

/// A series of each row that the server writes about itself.
const OWN_ROW: &str = "takt_store_disk_size_bytes{job=\"takt-server\"}";

/// Exporters by address and by node.
#[derive(Default)]
struct Exporters {
    instances: BTreeSet<String>,
    nodes: BTreeSet<String>,
}

impl Exporters {
    fn of<'l>(series: impl Iterator<Item = &'l Labels>) -> Self {
        let mut found = Self::default();
        for labels in series {
            let value = |name: &str| labels.get(name).map(str::to_owned);
            found.instances.extend(value("instance"));
            found.nodes.extend(value("node"));
        }
        found
    }
}

/// The exporters within the lookback after a gap.
struct AfterGap {
    /// Those with samples, which may be from before the gap.
    known: Exporters,
    /// Those that were scraped since.
    scraped: Exporters,
    /// The server itself, which is not scraped.
    own: Exporters,
    are_own_new: bool,
}

impl AfterGap {
    /// The state of the exporter of a series; `None` if it was scraped since the gap: `up` decides.
    fn state(&self, labels: &Labels) -> Option<ExporterState> {
        let instance = labels.get("instance");
        let is_own = labels.get("job") == Some("takt-server")
            || instance.is_some_and(|instance| self.own.instances.contains(instance));
        if is_own && self.are_own_new {
            return Some(ExporterState::Answers);
        } else if is_own {
            return Some(ExporterState::Awaited);
        }

        let has = |of: &Exporters| match (instance, labels.get("node")) {
            (Some(instance), _) => of.instances.contains(instance),
            (None, Some(node)) => of.nodes.contains(node),
            (None, None) => !of.instances.is_empty(),
        };
        if has(&self.scraped) {
            None
        } else if has(&self.known) {
            Some(ExporterState::Awaited)
        } else {
            Some(ExporterState::Down)
        }
    }
}

/// The labels of the series that `expr` selects.
fn named(source: &dyn takt_promql::Source, expr: &str, at: Timestamp) -> Vec<Labels> {
    let found = instant(source, expr, at).unwrap_or_default();
    found.into_iter().map(|(labels, _)| labels).collect()
}

/// The exporters of the series that `selector` selects and that have a sample since this time.
fn scraped_since(
    source: &dyn takt_promql::Source,
    selector: &str,
    at: Timestamp,
    since: Timestamp,
) -> Exporters {
    let seconds = since.as_seconds();
    let found = named(source, &format!("timestamp({selector}) >= {seconds}"), at);
    Exporters::of(found.iter())
}

/// Whether the server has written its own series since a gap, with Slurm's first answer if it polls Slurm.
fn are_own_series_new(source: &dyn takt_promql::Source, at: Timestamp, since: Timestamp) -> bool {
    let is_written = !scraped_since(source, OWN_ROW, at, since)
        .instances
        .is_empty();
    let unread = format!(
        "takt_source_problem{{job=\"takt-server\",problem={}}}",
        quoted(NOT_READ)
    );
    is_written && named(source, &unread, at).is_empty()
}

/// Returns the expression of the jobs that hold a GPU; of a divided one, those that hold the part.
/// Whether a job held its resources at an instant, by the scheduler's record; `None` without one that
/// decides it. The scheduler's times are whole seconds.
fn held_at(run: Option<&JobRun>, at: Timestamp) -> Option<bool> {
    let run = run?;
    // A record with whole seconds decides nothing about the second in which the job begins or ends.
    let second = at.whole_seconds();
    if run.end.is_some_and(|end| end < second) || run.start.is_some_and(|start| start > second) {
        return Some(false);
    }

    let is_inside = run.start? < second && run.end.is_some_and(|end| end > second);
    is_inside.then_some(true)
}

fn holders_of_gpu(node: &str, uuid: &str, gpu_instance: Option<&str>) -> String {
    let uuid = quoted(uuid);
    let of_gpu = format!("takt_gpu_job_info{{node={node},uuid={uuid}}}");
    let Some(instance) = gpu_instance.map(quoted) else {
        return of_gpu;
    };
    // Jobs hold a part by the part's UUID.
    let parts = format!("takt_gpu_mig_info{{node={node},uuid={uuid},gpu_instance={instance}}}");
    format!(
        "{of_gpu} or takt_gpu_job_info{{node={node}}} and on (uuid) label_replace({parts}, \
         \"uuid\", \"$1\", \"mig_uuid\", \"(.+)\")"
    )
}

impl OverStore {
    /// The jobs that an expression names at an instant, with their users.
    fn holders(&self, expr: &str, at: Timestamp) -> BTreeMap<String, String> {
        let at = self.queries.clock().of_samples(at);
        let found = at_once(&*self.queries.store, expr, at).unwrap_or_default();
        let named = |(labels, _): &(Labels, f64)| {
            let id = labels.get("jobid").filter(|id| !id.is_empty())?;
            let user = labels.get("user").unwrap_or_default();
            Some((id.to_owned(), user.to_owned()))
        };
        // A job may have several series: the first one with a user's name counts.
        let mut jobs = BTreeMap::new();
        for (id, user) in found.iter().filter_map(named) {
            let known: &mut String = jobs.entry(id).or_default();
            if known.is_empty() {
                *known = user;
            }
        }
        jobs
    }

    /// The user with this number on the node.
    fn user_of(&self, node: &str, uid: &str, at: Timestamp) -> Option<String> {
        let uid = quoted(uid);
        let expr = format!("takt_job_user_info{{node={node},uid={uid}}}");
        let at = self.queries.clock().of_samples(at);
        let found = at_once(&*self.queries.store, &expr, at).ok()?;
        let user = found.first()?.0.get("user")?;
        (!user.is_empty()).then(|| user.to_owned())
    }
}

impl Outside for OverStore {
    fn now(&self) -> Timestamp {
        self.queries.clock().alerting_time()
    }

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

    fn acknowledge_url(&self, row: &Row, place: String) -> Option<String> {
        if !self.has_links.load(Ordering::Relaxed) {
            return None;
        }

        let link = MessageLink {
            message: row.id,
            until: row.created_at.whole_seconds().0 + LINK_SECONDS,
            place,
        };

        let secret = link.signed(&self.link_key);
        let base = &row.message.external_url;
        Some(format!("{base}/acknowledge?link={secret}"))
    }

    /// Returns the job that the event names, by number or by SLUID, or the jobs that held the GPU or
    /// the part of it (MIG) at that time. Slurm's records supply names, and users that the exporter
    /// did not know.
    fn jobs_at(&self, event: &Event) -> JobsAt {
        let label = |name: &str| event.labels.get(name);
        let Some(node) = label("node").map(quoted) else {
            return JobsAt::Certain(Vec::new());
        };

        // A node's clock may be ahead; the server has no samples of that time yet.
        let now = self.queries.clock().alerting_time();
        let at = event.at.min(now);
        let (then, later) = match (label("jobid"), label("sluid"), label("uuid")) {
            (Some(job), ..) => {
                // The exporter may know a job by its cgroup alone, or by the GPU that it holds.
                let job = quoted(job);
                let known = format!(
                    "{{__name__=~\"takt_job_info|takt_gpu_job_info\",node={node},jobid={job}}}"
                );
                (self.holders(&known, at), None)
            }
            (None, Some(sluid), _) => {
                let sluid = quoted(sluid);
                // Without a number, the exporter shows the SLUID as one: that is no job of Slurm's records.
                let known = format!("takt_job_info{{node={node},sluid={sluid},jobid!={sluid}}}");
                (self.holders(&known, at), None)
            }
            (None, None, Some(uuid)) => {
                let held = holders_of_gpu(&node, uuid, label("gpu_instance"));
                // The holders are asked for again now, as a job may have ended between two scrapes.
                let later = (at < now).then(|| self.holders(&held, now));
                (self.holders(&held, at), later)
            }
            (None, None, None) => return JobsAt::Certain(Vec::new()),
        };

        let mut jobs = then.clone();
        jobs.extend(later.clone().unwrap_or_default());
        if let Some(named) = label("jobid") {
            jobs.entry(named.to_owned()).or_default();
        }

        let mut is_certain = true;
        let mut found = Vec::new();
        for (id, user) in jobs {
            let run = self.queries.job(&id);
            let held = held_at(run.as_ref(), at);
            // One that was there before and after was there in between.
            let is_both = later
                .as_ref()
                .is_none_or(|later| then.contains_key(&id) && later.contains_key(&id));
            let is_named = label("jobid").is_some() || label("sluid").is_some();
            // A job that is named by the event is meant, whatever the records say of its time.
            if held == Some(false) && !is_named {
                continue;
            }
            is_certain &= is_both || is_named || held == Some(true);

            let mut labels: Labels = [("jobid", id)].into_iter().collect();
            let of_run = run.as_ref().map(|run| run.user.clone());
            // A node that cannot resolve the user's name has its number, or nothing: the scheduler knows the name.
            let known = match context::is_number(&user) {
                true => of_run.or(Some(user).filter(|user| !user.is_empty())),
                false => Some(user),
            };
            let user =
                known.or_else(|| self.user_of(&node, label("uid").filter(|_| is_named)?, at));
            if let Some(user) = user {
                labels.set("user", &user);
            }
            // Whoever the exporter names is told no name of another one's job.
            let is_theirs = |run: &JobRun| {
                let user = labels.get("user");
                user.is_none_or(|user| context::is_of(run, user))
            };
            if let Some(name) = run.filter(is_theirs).and_then(|run| run.name) {
                labels.set("job_name", &name);
            }
            found.push(labels);
        }

        // The exporter names the cgroup of a process that belongs to no job.
        let is_outside = event.kind == EventKind::Xid && label("cgroup").is_some();
        match found.len() {
            0 => JobsAt::Certain(found),
            _ if is_outside => JobsAt::Possible(found, Doubt::ProcessWithoutJob),
            1 => JobsAt::Certain(found),
            _ if is_certain => JobsAt::Certain(found),
            _ => JobsAt::Possible(found, Doubt::JobsChanged),
        }
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
    use takt_model::METRIC_NAME;
    use takt_store::STALE;
    use tempfile::tempdir;

    #[test]
    fn an_exporter_that_was_not_scraped_since_a_gap_counts_as_down_and_old_samples_as_awaited() {
        use ExporterState::{Answers, Awaited, Down};
        let at = Timestamp::from_seconds;
        let mut samples = takt_promql::Memory::new();
        let up = [
            (METRIC_NAME, "up"),
            ("instance", "g01:9855"),
            ("node", "g01"),
        ];
        samples.add(up.into_iter().collect(), [(at(1000), Some(1.0))]);

        let state = |labels: &[(&str, &str)], now: i64, since: i64| {
            exporter_states(&samples, at(now), at(since))(&labels.iter().copied().collect())
        };

        assert_eq!(state(&[("instance", "g01:9855")], 1010, 990), Answers);
        assert_eq!(state(&[("instance", "g02:9855")], 1010, 990), Down);
        assert_eq!(state(&[("node", "g02")], 1010, 990), Down);

        // The sample of a restart that came a second later is from before.
        assert_eq!(state(&[("instance", "g01:9855")], 1010, 1001), Awaited);
        assert_eq!(state(&[("node", "g01")], 1010, 1001), Awaited);
        assert_eq!(state(&[], 1010, 1001), Awaited);

        assert_eq!(state(&[], 1010, 990), Answers, "some exporter was scraped");
        assert_eq!(state(&[], 5000, 4990), Down, "none was scraped");
        // Watched for long: the exporter was removed from the targets.
        let instance = [("instance", "g02:9855")];
        assert_eq!(state(&instance, 1010, 10), Answers, "no target any more");
    }

    /// Alerts about slurmctld stayed for five minutes after each start: the server has no `up`.
    #[test]
    fn the_servers_own_series_are_awaited_until_slurm_was_asked_and_never_down() {
        use ExporterState::{Answers, Awaited};
        let at = Timestamp::from_seconds;
        let own = [("job", "takt-server"), ("instance", "head:9856")];
        let series = |metric: &str, more: &[(&str, &str)]| -> Labels {
            let labels = own.iter().chain(more).copied();
            labels.chain([(METRIC_NAME, metric)]).collect()
        };

        let mut samples = takt_promql::Memory::new();
        let row = [990, 1001, 1016].map(|second| (at(second), Some(1.0)));
        samples.add(series("takt_store_disk_size_bytes", &[]), row);
        let unread = series("takt_source_problem", &[("problem", NOT_READ)]);
        samples.add(unread, [(at(1001), Some(1.0)), (at(1016), None)]);

        let state = |labels: &[(&str, &str)], now: i64| {
            exporter_states(&samples, at(now), at(1000))(&labels.iter().copied().collect())
        };
        // Before the first row, with a row before the first answer, and after it.
        let states = [1000, 1005, 1016].map(|now| state(&own, now));
        assert_eq!(states, [Awaited, Awaited, Answers]);
        assert_eq!(state(&own[1..], 1016), Answers, "a sum by instance");
        assert_eq!(
            state(&own, 1600),
            Answers,
            "rows end, and it is still no target"
        );
    }

    /// Labels of the series of a job that holds a GPU of g01.
    fn held(job: &str, user: &str) -> Labels {
        let labels = [
            (METRIC_NAME, "takt_gpu_job_info"),
            ("node", "g01"),
            ("uuid", "GPU-1"),
            ("jobid", job),
            ("user", user),
        ];
        labels.into_iter().collect()
    }

    /// A node whose clock was ten minutes ahead: the owner of the job got no mail.
    #[test]
    fn jobs_of_an_event_are_found_although_the_nodes_clock_is_ahead() {
        let folder = tempdir().unwrap();
        let store = Arc::new(store_in(folder.path()));
        let now = Timestamp::from(SystemTime::now());

        let group = store.group();
        for (job, user) in [("7", "ada"), ("8", "")] {
            group.column(&held(job, user)).unwrap();
        }

        for labels in [
            [("jobid", "9"), ("uuid", "MIG-1"), ("user", "eve")].as_slice(),
            &[("jobid", "10"), ("uuid", "MIG-2"), ("user", "eve")],
        ] {
            let named = [(METRIC_NAME, "takt_gpu_job_info"), ("node", "g01")];
            let labels = named.iter().chain(labels).copied().collect();
            group.column(&labels).unwrap();
        }

        for (part, instance) in [("MIG-1", "5"), ("MIG-2", "6")] {
            let labels = [
                (METRIC_NAME, "takt_gpu_mig_info"),
                ("node", "g01"),
                ("uuid", "GPU-2"),
                ("mig_uuid", part),
                ("gpu_instance", instance),
            ];
            group.column(&labels.into_iter().collect()).unwrap();
        }

        for (job, sluid) in [
            ("11", "s5K1KKYAYG5D00"),
            ("s5K1KKYAYG5D01", "s5K1KKYAYG5D01"),
        ] {
            let labels = [
                (METRIC_NAME, "takt_job_info"),
                ("node", "g01"),
                ("jobid", job),
                ("user", "eve"),
                ("sluid", sluid),
            ];
            group.column(&labels.into_iter().collect()).unwrap();
        }

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
        let certain = |jobs: &[&Labels]| JobsAt::Certain(jobs.iter().copied().cloned().collect());
        let ada = job(&[("jobid", "7"), ("user", "ada")]);
        let bob = job(&[("jobid", "8"), ("user", "bob"), ("job_name", "sweep")]);

        assert_eq!(over.jobs_at(&event(0, &[])), certain(&[&ada, &bob]));
        assert_eq!(over.jobs_at(&event(600, &[])), certain(&[&ada, &bob]));
        assert_eq!(over.jobs_at(&event(0, &[("jobid", "8")])), certain(&[&bob]));

        // A divided GPU: the jobs on the part.
        let part = [("uuid", "GPU-2"), ("gpu_instance", "5")];
        let eve = |job_id| job(&[("jobid", job_id), ("user", "eve")]);
        assert_eq!(over.jobs_at(&event(0, &part)), certain(&[&eve("9")]));
        // A job whose cgroup has the SLUID alone; a number that nobody knows is none.
        let killed = |sluid| Event {
            kind: EventKind::OomKill,
            labels: job(&[("node", "g01"), ("sluid", sluid)]),
            ..event(0, &[])
        };
        assert_eq!(
            over.jobs_at(&killed("s5K1KKYAYG5D00")),
            certain(&[&eve("11")])
        );
        assert_eq!(over.jobs_at(&killed("s5K1KKYAYG5D01")), certain(&[]));
    }

    #[test]
    fn a_uid_in_place_of_a_name_is_the_user_of_the_record() {
        let folder = tempdir().unwrap();
        let store = Arc::new(store_in(folder.path()));
        let now = Timestamp::from(SystemTime::now());
        // The node's directory service does not answer.
        let group = store.group();
        for job in ["7", "8"] {
            group.column(&held(job, "61001")).unwrap();
        }
        let ticket = group.ticket(now.minus(Duration::from_secs(5))).unwrap();
        group.commit(ticket, &[1.0, 1.0], &[]).unwrap();

        let run = JobRun {
            cluster: "lab".into(),
            job_id: "7".into(),
            submit: now.minus(Duration::from_secs(600)).whole_seconds(),
            start: Some(now.minus(Duration::from_secs(500)).whole_seconds()),
            user: "ada".into(),
            state: "RUNNING".into(),
            ..JobRun::default()
        };
        import(store.database(), None, [run]);

        let over = OverStore::new(Arc::clone(&store), "lab", now).unwrap();
        let place = [("node", "g01"), ("uuid", "GPU-1")];
        let event = Event {
            id: 1,
            at: now,
            kind: EventKind::Xid,
            labels: place.into_iter().collect(),
            message: "NVRM: Xid".to_owned(),
        };
        let (JobsAt::Certain(found) | JobsAt::Possible(found, _)) = over.jobs_at(&event);
        let users: Vec<_> = found
            .iter()
            .map(|job| (job.get("jobid"), job.get("user")))
            .collect();
        // No record names the user of job 8.
        assert_eq!(
            users,
            [(Some("7"), Some("ada")), (Some("8"), Some("61001"))]
        );
    }

    /// Job 7 ended and job 8 began between two scrapes; the XID came in that second.
    #[test]
    fn an_event_between_two_jobs_is_nobodys_until_the_process_or_the_records_tell() {
        let folder = tempdir().unwrap();
        let store = Arc::new(store_in(folder.path()));
        let now = Timestamp::from(SystemTime::now());
        let group = store.group();
        for (job, user) in [("7", "ada"), ("8", "bob")] {
            group.column(&held(job, user)).unwrap();
        }

        let users = [
            (METRIC_NAME, "takt_job_user_info"),
            ("node", "g01"),
            ("user", "eve"),
            ("uid", "1003"),
        ];
        group.column(&users.into_iter().collect()).unwrap();
        // Two scrapes, with the event between them.
        for (ago, row) in [(20, [1.0, STALE, 1.0]), (5, [STALE, 1.0, 1.0])] {
            let ticket = group.ticket(now.minus(Duration::from_secs(ago))).unwrap();
            group.commit(ticket, &row, &[]).unwrap();
        }

        let over = OverStore::new(Arc::clone(&store), "lab", now).unwrap();
        let labels = |pairs: &[(&str, &str)]| pairs.iter().copied().collect::<Labels>();
        let event = |more: &[(&str, &str)]| {
            let place = [("node", "g01"), ("uuid", "GPU-1")];
            Event {
                id: 1,
                at: now.minus(Duration::from_secs(10)),
                kind: EventKind::Xid,
                labels: place.iter().chain(more).copied().collect(),
                message: "NVRM: Xid".to_owned(),
            }
        };
        let ada = labels(&[("jobid", "7"), ("user", "ada")]);
        let bob = labels(&[("jobid", "8"), ("user", "bob")]);
        let both = JobsAt::Possible(vec![ada, bob.clone()], Doubt::JobsChanged);
        assert_eq!(over.jobs_at(&event(&[])), both);

        // The exporter knew the job of the process, by its cgroup; no scrape has seen job 9.
        let nine = labels(&[("jobid", "9"), ("user", "eve")]);
        let named = event(&[("jobid", "9"), ("uid", "1003")]);
        assert_eq!(over.jobs_at(&named), JobsAt::Certain(vec![nine]));

        // The scheduler's records.
        let ended = now.minus(Duration::from_secs(12)).whole_seconds();
        let runs = [
            ("7", "ada", None, Some(ended)),
            ("8", "bob", Some(ended), None),
        ];

        let runs = runs.map(|(id, user, start, end)| JobRun {
            cluster: "lab".into(),
            job_id: id.into(),
            submit: now.minus(Duration::from_secs(600)).whole_seconds(),
            start: start.or(Some(now.minus(Duration::from_secs(500)).whole_seconds())),
            end,
            user: user.into(),
            state: if end.is_some() {
                "COMPLETED"
            } else {
                "RUNNING"
            }
            .into(),
            ..JobRun::default()
        });
        import(store.database(), None, runs);
        assert_eq!(
            over.jobs_at(&event(&[])),
            JobsAt::Certain(vec![bob.clone()])
        );
        // A program outside of jobs made the fault on the GPU that bob's job holds.
        let outside = event(&[("pid", "9"), ("cgroup", "/user.slice/session-3.scope")]);
        let doubt = JobsAt::Possible(vec![bob], Doubt::ProcessWithoutJob);
        assert_eq!(over.jobs_at(&outside), doubt);
    }
}
