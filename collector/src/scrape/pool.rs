//! One job: the discovery of its targets, and a scraper for each of them.
//!
//! One task receives the lists of the providers and the orders of the manager in turn. Each of them
//! results in a set of wanted targets. The task stops the scrapers of other targets, starts the
//! missing ones, and leaves the rest undisturbed.

use super::discovery::{Listener, Provider, ProviderReport};
use super::fetch::Fetcher;
use super::http::HttpError;
use super::job::Job;
use super::manager::ReadyJob;
use super::relabel::RelabelStep;
use super::scraper::{Scraper, ScraperContext, ScraperEnd};
use super::status::{DiscoveryProblem, TargetHealth, TargetStatus};
use super::target::Target;
use reqwest::{Client, RequestBuilder, Url};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use takt_model::Labels;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

/// Time between two checks for scrapers that ended early.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of lists that wait for the task.
const QUEUE: usize = 16;

/// Handle of a running job.
#[derive(Debug)]
pub(super) struct Pool {
    access: TargetAccess,
    listed: Vec<Target>,
    view: Arc<RwLock<JobView>>,
    /// The latest order. A newer order replaces it, so the queue is bounded.
    orders: watch::Sender<JobOrder>,
    task: JoinHandle<()>,
}

/// The state of the job that other tasks can read.
#[derive(Debug, Default)]
struct JobView {
    targets: Vec<Arc<Mutex<TargetStatus>>>,
    dropped: Vec<Labels>,
    problems: Vec<String>,
}

/// Access to a job's targets with the certificates, passwords and tokens of its scrapes, for
/// requests other than scrapes.
#[derive(Debug, Clone)]
pub struct TargetAccess {
    job: Arc<Job>,
    /// Made by the first request.
    client: Arc<OnceLock<Client>>,
}

impl TargetAccess {
    fn new(job: Arc<Job>) -> Self {
        Self {
            job,
            client: Arc::default(),
        }
    }

    /// Returns a request for `url` on one of the targets. Redirects are not followed: a target must
    /// not choose where the server sends requests and passwords.
    ///
    /// # Errors
    /// If a certificate, password or token cannot be read.
    pub async fn get(&self, url: &Url) -> Result<RequestBuilder, HttpError> {
        let http = &self.job.http;
        let client = if http.server_name(url).is_some() {
            http.without_redirects().client_for(url)?
        } else if let Some(client) = self.client.get() {
            client.clone()
        } else {
            let client = http.without_redirects().client()?;
            self.client.get_or_init(|| client).clone()
        };

        let (request_url, headers) = http.request(url);
        http.authorize(client.get(request_url).headers(headers))
            .await
    }

    /// Returns whether the settings are unchanged.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.job, &other.job)
    }
}

#[derive(Debug, Clone)]
enum JobOrder {
    Use(ReadyJob),
    End(ScraperEnd),
}

impl Pool {
    /// Starts the task. Targets that the configuration lists are visible when this function
    /// returns.
    pub fn start(shared: Arc<ScraperContext>, ready: ReadyJob) -> Self {
        let access = TargetAccess::new(Arc::clone(&ready.job));
        let listed = ready.listed.clone();

        let view = Arc::default();

        let (orders, receiver) = watch::channel(JobOrder::Use(ready.clone()));
        let mut task = JobTask::new(shared, ready, Arc::clone(&view));
        task.start_missing(task.wanted());

        Self {
            access,
            listed,
            view,
            orders,
            task: tokio::spawn(task.run(receiver)),
        }
    }

    pub fn name(&self) -> &str {
        &self.access.job.config.job_name
    }

    /// Switches to another configuration of the same job.
    pub fn update(&mut self, mut ready: ReadyJob) {
        let is_same = self.access.job.is_same(&ready.job);
        if is_same && self.listed == ready.listed {
            return;
        }

        if is_same {
            // Keep the settings, so that unchanged targets continue undisturbed.
            ready.job = Arc::clone(&self.access.job);
        } else {
            self.access = TargetAccess::new(Arc::clone(&ready.job));
        }

        self.listed = ready.listed.clone();
        self.orders.send_replace(JobOrder::Use(ready));
    }

    /// Ends all scrapes and waits for them.
    pub async fn end(self, how: ScraperEnd) {
        self.orders.send_replace(JobOrder::End(how));
        if let Err(error) = self.task.await {
            tracing::error!(job = self.access.job.config.job_name, %error, "a job's task failed");
        }
    }

    /// Returns the access to the job's targets.
    pub fn access(&self) -> TargetAccess {
        self.access.clone()
    }

    pub fn targets(&self) -> Vec<TargetStatus> {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner);
        view.targets
            .iter()
            .map(|status| {
                status
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone()
            })
            .collect()
    }

    pub fn relabel_steps(&self, labels: Labels) -> Vec<RelabelStep> {
        self.access.job.relabel.steps(labels)
    }

    pub fn dropped(&self) -> Vec<Labels> {
        self.view
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .dropped
            .clone()
    }

    /// Returns why lists of targets cannot be read, and listed targets not be scraped.
    pub fn discovery_problems(&self) -> Vec<DiscoveryProblem> {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner);
        let of_job = |problem: &String| DiscoveryProblem {
            job: self.name().to_owned(),
            problem: problem.clone(),
        };
        view.problems.iter().map(of_job).collect()
    }
}

/// The task of a job.
struct JobTask {
    shared: Arc<ScraperContext>,
    job: Arc<Job>,
    client: Client,
    listed: Vec<Target>,
    /// Lists by provider; `None` until the provider has sent its first list.
    lists: Vec<Option<Vec<Labels>>>,
    /// Why providers failed, by provider.
    failures: Vec<Vec<String>>,
    running: HashMap<Labels, RunningScraper>,
    view: Arc<RwLock<JobView>>,
}

/// A running scraper.
struct RunningScraper {
    target: Target,
    job: Arc<Job>,
    status: Arc<Mutex<TargetStatus>>,
    /// Whether all scrapes fail because the job has too many targets.
    is_refused: bool,
    /// Whether the configuration has the target, and no other list.
    is_fixed: bool,
    end: Option<oneshot::Sender<ScraperEnd>>,
    task: JoinHandle<()>,
}

impl Drop for RunningScraper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RunningScraper {
    /// Ends the scraper. The caller awaits the returned future.
    fn end(mut self, how: ScraperEnd) -> impl Future<Output = ()> {
        if let Some(end) = self.end.take() {
            // The receiver is gone if the task has panicked.
            let _ = end.send(how);
        }

        async move {
            if let Err(error) = (&mut self.task).await {
                tracing::error!(target_url = self.target.shown_url(), %error, "a scrape's task failed");
            }
        }
    }
}

/// The wanted targets.
#[derive(Default)]
struct WantedTargets {
    /// Targets in the order of discovery, with distinct labels.
    targets: Vec<Target>,
    /// Labels of the targets that the configuration has.
    fixed: HashSet<Labels>,
    dropped: Vec<Labels>,
    /// Failures of providers, and why targets that they found cannot be scraped.
    problems: Vec<String>,
    /// Whether every provider has sent its list.
    is_complete: bool,
}

impl JobTask {
    fn new(shared: Arc<ScraperContext>, ready: ReadyJob, view: Arc<RwLock<JobView>>) -> Self {
        let ReadyJob {
            job,
            client,
            listed,
        } = ready;

        let failures = vec![Vec::new(); job.providers.len()];
        let lists = job
            .providers
            .iter()
            .map(|provider| provider.fixed())
            .collect();

        Self {
            shared,
            job,
            client,
            listed,
            lists,
            failures,
            running: HashMap::new(),
            view,
        }
    }

    async fn run(mut self, mut orders: watch::Receiver<JobOrder>) {
        let (mut providers, mut found) = self.start_providers();

        let mut check = tokio::time::interval(CHECK_INTERVAL);
        let how = loop {
            tokio::select! {
                biased;
                changed = orders.changed() => {
                    if changed.is_err() {
                        // The handle was dropped without an order, so the series are not ended.
                        break ScraperEnd::Replaced;
                    }
                    let order = orders.borrow_and_update().clone();
                    match order {
                        JobOrder::Use(ready) => {
                            // `end_unwanted` decides below which scrapers the new settings leave undisturbed.
                            let Self { shared, running, view, .. } = self;
                            self = Self { running, ..Self::new(shared, ready, view) };
                            (providers, found) = self.start_providers();
                        }
                        JobOrder::End(how) => break how,
                    }
                }
                Some(report) = found.recv() => {
                    let mut changed = self.take(report);
                    // Waiting reports are taken together, so that the scrapers change once for all of them.
                    while let Ok(report) = found.try_recv() {
                        changed |= self.take(report);
                    }
                    if !changed {
                        continue;
                    }
                }
                _ = check.tick() => {
                    if !self.remove_failed() {
                        continue;
                    }
                }
            }

            let wanted = self.wanted();
            self.end_unwanted(&wanted).await;
            self.start_missing(wanted);
        };

        drop(providers);
        let ended = self.running.drain().map(|(_, running)| running.end(how));
        futures_util::future::join_all(ended.collect::<Vec<_>>()).await;
        self.show(JobView::default());
    }

    /// Removes scrapers whose task has ended early, which only a panic does. The next round starts
    /// them again. Returns whether there were such scrapers.
    fn remove_failed(&mut self) -> bool {
        let before = self.running.len();
        self.running.retain(|_, running| {
            let is_failed = running.task.is_finished();
            if is_failed {
                tracing::error!(
                    target_url = running.target.shown_url(),
                    "a scraper ended early; restarting"
                );
                self.shared.metrics.scraper_restarts.inc();
            }
            !is_failed
        });
        self.running.len() < before
    }

    fn start_providers(&self) -> (JoinSet<()>, mpsc::Receiver<ProviderReport>) {
        let (send, receive) = mpsc::channel(QUEUE);
        let mut providers = JoinSet::new();

        for (number, provider) in self
            .job
            .providers
            .iter()
            .enumerate()
            .filter(|(_, provider)| provider.fixed().is_none())
        {
            providers.spawn(provider.clone().run(Listener {
                provider: number,
                job: self.job.config.job_name.clone(),
                found: send.clone(),
                metrics: self.shared.metrics.clone(),
            }));
        }

        (providers, receive)
    }

    /// Stores what a provider has found. Returns whether it differs from what it found before.
    fn take(&mut self, report: ProviderReport) -> bool {
        let list = &mut self.lists[report.provider];
        let failures = &mut self.failures[report.provider];
        let is_new_list = report.targets.is_some() && *list != report.targets;
        let changed = is_new_list || *failures != report.problems;

        if is_new_list {
            *list = report.targets;
        }
        *failures = report.problems;
        changed
    }

    fn wanted(&self) -> WantedTargets {
        let is_complete = self.lists.iter().all(Option::is_some);
        let mut wanted = WantedTargets {
            targets: self.listed.clone(),
            problems: self.failures.iter().flatten().cloned().collect(),
            is_complete,
            ..WantedTargets::default()
        };

        let mut known: HashSet<Labels> = wanted
            .targets
            .iter()
            .map(|target| target.labels.clone())
            .collect();
        wanted.fixed.clone_from(&known);
        let job = self.job.config.job_name.as_str();

        let lists = self.job.providers.iter().zip(&self.lists);
        let found = lists.flat_map(|(provider, list)| {
            let targets = list.iter().flatten();
            targets.map(move |found| (provider, found))
        });
        for (provider, found) in found {
            match Target::discovered(found, &self.job, &self.shared.cluster) {
                Ok(Some(target)) if known.insert(target.labels.clone()) => {
                    if provider.fixed().is_some() {
                        wanted.fixed.insert(target.labels.clone());
                    }
                    wanted.targets.push(target)
                }
                // As in Prometheus, targets with equal scrapes count once.
                Ok(Some(target))
                    if wanted
                        .targets
                        .iter()
                        .any(|one| one.is_scraped_like(&target)) => {}
                Ok(Some(target)) => {
                    let url = target.shown_url();
                    let labels = target.labels;
                    tracing::warn!(job, url, %labels, "a target has the labels of another and is not scraped");
                    wanted.dropped.push(target.discovered);
                }
                Ok(None) => wanted.dropped.push(found.clone()),
                Err(error) => {
                    tracing::warn!(job, %error, target = %found, "a target cannot be scraped");
                    // `ScrapeConfig::invalid_targets` reports targets of the configuration.
                    if !matches!(provider, Provider::Static(_)) {
                        wanted.problems.push(error.to_string());
                    }
                    wanted.dropped.push(found.clone());
                }
            }
        }
        wanted
    }

    /// Ends the scrapers that are unwanted or have other settings, and waits for them. Their series
    /// are then free.
    async fn end_unwanted(&mut self, wanted: &WantedTargets) {
        let is_over_limit = self.is_over_limit(wanted);
        let by_labels: HashMap<&Labels, &Target> = wanted
            .targets
            .iter()
            .map(|target| (&target.labels, target))
            .collect();

        let job = &self.job;
        let is_over = |labels: &Labels, running: &RunningScraper| match by_labels.get(labels) {
            Some(target) => {
                !target.is_scraped_like(&running.target)
                    || !Arc::ptr_eq(job, &running.job)
                    || running.is_refused != is_over_limit
            }
            // The target may still be on a list that has not come yet, unless it was on none of these.
            None => wanted.is_complete || running.is_fixed,
        };

        let over: Vec<Labels> = self
            .running
            .iter()
            .filter(|(labels, running)| is_over(labels, running))
            .map(|(labels, _)| labels.clone())
            .collect();

        let mut ended = Vec::new();
        for labels in over {
            let how = if by_labels.contains_key(&labels) {
                ScraperEnd::Replaced
            } else {
                ScraperEnd::Gone
            };
            ended.extend(self.running.remove(&labels).map(|running| running.end(how)));
        }

        futures_util::future::join_all(ended).await;
    }

    fn is_over_limit(&self, wanted: &WantedTargets) -> bool {
        let limit = self.job.config.target_limit;
        limit > 0 && wanted.targets.len() > limit
    }

    fn start_missing(&mut self, wanted: WantedTargets) {
        let is_over_limit = self.is_over_limit(&wanted);
        let mut targets = Vec::with_capacity(wanted.targets.len());

        for target in wanted.targets {
            let is_fixed = wanted.fixed.contains(&target.labels);
            if let Some(running) = self.running.get_mut(&target.labels) {
                running.is_fixed = is_fixed;
                targets.push(Arc::clone(&running.status));
                continue;
            }
            // Relabelling may set `job` for discovered targets, but not for the targets of
            // `[[scrape.targets]]`.

            let is_listed = self.listed.contains(&target);
            let pool = if is_listed {
                target.labels.get("job").unwrap_or_default()
            } else {
                self.job.config.job_name.as_str()
            };

            let status = Arc::new(Mutex::new(TargetStatus::new(&target, pool)));
            targets.push(Arc::clone(&status));

            match Fetcher::new(&self.job, &target, &self.client) {
                Ok(fetcher) => {
                    let mut running = self.scrape(target, fetcher, status, is_over_limit);
                    running.is_fixed = is_fixed;
                    self.running.insert(running.target.labels.clone(), running);
                }
                Err(error) => {
                    let mut status = status.lock().unwrap_or_else(PoisonError::into_inner);
                    (status.health, status.error) =
                        (TargetHealth::Down, Some(takt_model::error_chain(&error)));
                }
            }
        }

        // Keep the targets of providers that have not sent a list since the configuration changed.
        let shown = targets.len();
        let kept: Vec<_> = self
            .running
            .values()
            .filter(|running| {
                !targets[..shown]
                    .iter()
                    .any(|one| Arc::ptr_eq(one, &running.status))
            })
            .map(|running| Arc::clone(&running.status))
            .collect();
        targets.extend(kept);

        self.show(JobView {
            targets,
            dropped: wanted.dropped,
            problems: wanted.problems,
        });
    }

    fn scrape(
        &self,
        target: Target,
        fetcher: Fetcher,
        status: Arc<Mutex<TargetStatus>>,
        is_refused: bool,
    ) -> RunningScraper {
        // A refused target still gets a scraper, which writes `up` 0.
        let fetcher = if is_refused {
            fetcher.refusing()
        } else {
            fetcher
        };

        let (end, ended) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        let job = Arc::clone(&self.job);

        let scraper = Scraper::new(
            shared,
            Arc::clone(&job),
            target.clone(),
            fetcher,
            Arc::clone(&status),
        );

        RunningScraper {
            target,
            job,
            status,
            is_refused,
            is_fixed: false,
            end: Some(end),
            task: tokio::spawn(scraper.run(ended)),
        }
    }

    fn show(&self, view: JobView) {
        let mut shown = self.view.write().unwrap_or_else(PoisonError::into_inner);

        // All jobs share the gauge, so each adds its own change.
        self.shared
            .metrics
            .targets
            .inc_by(view.targets.len() as i64 - shown.targets.len() as i64);

        *shown = view;
    }
}
