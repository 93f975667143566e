//! The server: the store, the tasks that fill it, and the routes that answer from it.

use crate::SqlServer;
use crate::alerting::{self, Alerts};
use crate::answers::{self, AccountingConfig, AnswerConfig};
use crate::assess;
use crate::config::{Config, read_token};
use crate::failure::{Failure, OrUsage};
use crate::http::access::SlurmFollower;
use crate::http::{self, Access, App, AppParts, Connections, GuardedRouter, Pushing};
use crate::opening::OpeningPage;
use crate::own_series::OwnSeries;
use crate::process_usage;
use crate::reload::Reload;
pub use crate::reload::Source;
use crate::remote_write::{Destination, RemoteWriteMetrics};
use crate::reports;
use crate::strips;
use crate::tasks::Supervisor;
use anyhow::Context;
use axum::{Router, middleware};
use jiff::tz::TimeZone;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use takt_alerts::run::Handle;
use takt_collector::push::{PushMetrics, Senders};
use takt_collector::schedulers::poll::Poller;
use takt_collector::schedulers::{PollStatus, SharesConfig};
use takt_collector::scrape::ScrapeManager;
use takt_model::error_chain;
use takt_store::CONFIGURED;
use takt_store::{DataDir, Health, Holder, Records, Store, StoreError};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Time for requests in flight after the shutdown signal.
const GRACE: Duration = Duration::from_secs(5);

/// Pause before the server reopens an invalid database: its cause (a full disk) may last.
const REOPEN_PAUSE: Duration = Duration::from_secs(5);

/// Maximum lag of the clock behind the newest stored sample, and the interval between two checks.
/// NTP corrects smaller lags by slewing. A clock that was set back further would block storing
/// until it has caught up.
const CLOCK_BEHIND: Duration = Duration::from_secs(60);
const CLOCK_CHECK: Duration = Duration::from_secs(5);

/// How late pushed samples may arrive that remote write sends on. A sender collects samples for some
/// seconds, and longer while it tries again.
const PUSH_LATENESS: Duration = Duration::from_secs(60);

/// Maximum wait for a command that uses the data directory. Reports and imports end by themselves.
const PATIENCE: Duration = Duration::from_secs(30);

/// The reason for the end of serving.
enum End {
    /// The shutdown signal.
    Shutdown,
    /// DuckDB invalidated the database: the server reopens everything.
    Invalidated,
    /// The clock was set back: after reopening, the store continues at the clock's time.
    ClockWentBack,
}

/// A server that is about to answer its first request.
#[derive(Debug)]
pub struct Ready<'s> {
    /// Address of the pages and the API on this machine.
    pub address: SocketAddr,
    /// Address that the server listens on, for instance `0.0.0.0:9856`.
    pub listen_address: SocketAddr,
    /// Name of the cluster.
    pub cluster: &'s str,
    /// The store. The server ends only after all other references to it are dropped.
    pub store: &'s Arc<Store>,
    /// Sign-in of users.
    pub access: &'s Access,
}

/// Serves `dir` until `shutdown` becomes true. Calls `ready` once, when the server can answer the
/// first request.
pub async fn run(
    source: Source,
    dir: &Path,
    mut shutdown: watch::Receiver<bool>,
    parts: Parts,
    ready: impl FnOnce(&Ready<'_>),
) -> Result<(), Failure> {
    let mut config = source().usage()?;
    config.warn_of_open_secrets();
    let token = config.server.token().context("server").usage()?;
    let access = Access::new(
        &config.auth,
        &token,
        config
            .server
            .read_token()
            .context("server")
            .usage()?
            .as_deref(),
    )
    .context("auth")
    .usage()?;
    let mut ready = Some(ready);
    loop {
        let address = &config.server.listen_address;
        let mut registry = Registry::default();
        (parts.process_metrics)(&mut registry);
        let Some(dir) = claim(dir, &mut shutdown).await? else {
            return Ok(());
        };
        let (listener, while_opening) = listen_twice(address)
            .await
            .with_context(|| format!("cannot listen on {address} (listen_address in [server])"))?;
        let opening = OpeningPage::start(while_opening);
        let store_config = config.store.clone();
        let (store, registry) = tokio::task::spawn_blocking(move || {
            Store::open(dir, &store_config, &mut registry).map(|store| (store, registry))
        })
        .await??;
        let store = Arc::new(store);
        let database = store.database();
        database.isolate_sql(parts.query_process, &config.store)?;
        let cluster = cluster(&config, &store).await?;
        drop(opening);
        let bound = listener.local_addr()?;
        let local_address = SocketAddr::new(
            if bound.ip().is_unspecified() {
                [127, 0, 0, 1].into()
            } else {
                bound.ip()
            },
            bound.port(),
        );
        store.publish(&Holder {
            pid: std::process::id(),
            address: Some(local_address.to_string()),
            token: Some(token.clone()),
        })?;
        let serving = Serving {
            config: &config,
            source: Arc::clone(&source),
            pages: parts.pages,
            cluster: &cluster,
            access: access.clone(),
            registry,
            listener,
            local_address,
        };
        access.attach(&store, local_address);
        if let Some(ready) = ready.take() {
            ready(&Ready {
                address: local_address,
                listen_address: bound,
                cluster: &cluster,
                store: &store,
                access: &access,
            });
        }
        match serving.until(store, &mut shutdown).await? {
            End::Shutdown => return Ok(()),
            End::Invalidated => {
                tracing::error!("the database became invalid; reopening it");
                tokio::time::sleep(REOPEN_PAUSE).await;
            }
            End::ClockWentBack => {
                tracing::warn!(
                    "the clock was set back; reopening the store to continue from its time"
                )
            }
        }
        // The configuration may have been reloaded meanwhile.
        if let Ok(reloaded) = source() {
            (config.scrape, config.alerts, config.email) =
                (reloaded.scrape, reloaded.alerts, reloaded.email);
        }
    }
}

/// Returns two listeners at the same address: one for the time while the store opens.
async fn listen_twice(address: &str) -> std::io::Result<(TcpListener, TcpListener)> {
    let listener = TcpListener::bind(address).await?.into_std()?;
    let other = listener.try_clone()?;
    Ok((
        TcpListener::from_std(listener)?,
        TcpListener::from_std(other)?,
    ))
}

/// Waits until the clock is far behind the newest stored sample.
async fn clock_went_back(store: &Store) {
    while takt_model::Timestamp::from(SystemTime::now()) >= store.watermark().minus(CLOCK_BEHIND) {
        tokio::time::sleep(CLOCK_CHECK).await;
    }
}

/// Claims `dir`. A command may hold it for a moment (at the start, or while the server reopens an
/// invalid database), another server for longer. Returns `None` if the shutdown signal came
/// meanwhile.
async fn claim(
    dir: &Path,
    shutdown: &mut watch::Receiver<bool>,
) -> Result<Option<DataDir>, Failure> {
    let began = Instant::now();
    let mut logged = false;
    while !*shutdown.borrow() {
        match DataDir::claim(dir) {
            Err(StoreError::Held {
                pid, address: None, ..
            }) if began.elapsed() < PATIENCE => {
                if !logged {
                    tracing::info!(
                        pid,
                        "a command uses the data directory; waiting for its end"
                    );
                }
                logged = true;
                let _ = tokio::time::timeout(Duration::from_millis(100), shutdown.changed()).await;
            }
            claimed => {
                let claimed = claimed?;
                if claimed.is_open_to_others() {
                    let path = claimed.path().display();
                    tracing::warn!("other users can read the data directory: chmod 700 {path}");
                }
                return Ok(Some(claimed));
            }
        }
    }
    Ok(None)
}

/// Returns the cluster's name: from the configuration, from the local Slurm, from the only cluster
/// with records, or `local`.
async fn cluster(config: &Config, store: &Store) -> Result<String, Failure> {
    if let Some(name) = &config.cluster {
        return Ok(name.clone());
    }
    if config.jobs.poll
        && let Ok(cluster) = takt_collector::schedulers::detect(&config.jobs).await
    {
        return Ok(cluster);
    }
    let mut known = Records::of(store.database()).clusters()?;
    let only = if known.len() == 1 { known.pop() } else { None };
    Ok(only.map_or_else(|| answers::LOCAL_CLUSTER.to_owned(), |only| only.cluster))
}

/// The server with one opening of the data directory.
struct Serving<'c> {
    config: &'c Config,
    source: Source,
    pages: fn(PageState) -> GuardedRouter,
    cluster: &'c str,
    access: Access,
    registry: Registry,
    listener: TcpListener,
    local_address: SocketAddr,
}

/// The sources of the pages. A page reaches them with the viewer who reads it.
#[derive(Clone)]
pub struct PageState {
    /// Samples and records.
    pub store: Arc<Store>,
    /// Targets and their health.
    pub scrape: Arc<ScrapeManager>,
    /// State of the scheduler poller; `None` without a scheduler.
    pub polls: Option<watch::Receiver<PollStatus>>,
    /// Active alerts.
    pub alerts: Handle,
    /// Name of the cluster.
    pub cluster: Arc<str>,
    /// Time zone of the cluster.
    pub zone: TimeZone,
    /// Configuration of the answers.
    pub config: Arc<AnswerConfig>,
    /// Reads the configuration again.
    pub reload: Reload,
    /// Cancelled when the server stops: live pages end their streams.
    pub stop: CancellationToken,
}

/// Parts of a server from other crates: the server renders no pages and does not read `/proc`.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// Makes the routes of the pages.
    pub pages: fn(PageState) -> GuardedRouter,
    /// Registers metrics of the process.
    pub process_metrics: fn(&mut Registry),
    /// Makes the command of the query process ([`takt_store::sql::serve`]).
    pub query_process: fn() -> Command,
}

impl Serving<'_> {
    /// Polls the local Slurm, unless the configuration disables it.
    fn poll(
        &self,
        tasks: &mut Supervisor,
        store: &Store,
        zone: &TimeZone,
    ) -> Option<watch::Receiver<PollStatus>> {
        if !self.config.jobs.poll {
            return None;
        }
        let config = self.config.jobs.clone();
        let cluster = self.config.cluster.clone();
        let zone = zone.iana_name().unwrap_or("UTC").to_owned();
        let database = Arc::clone(store.database());
        let (status, receiver) = watch::channel(PollStatus::default());
        tasks.spawn("scheduler", move |stop| {
            // The status of the task's previous run is outdated.
            status.send_replace(PollStatus::default());
            let database = Arc::clone(&database);
            let poller = Poller::new(config.clone(), database, cluster.clone(), zone.clone());
            until_stopped(stop, poller.run(status.clone()))
        });
        Some(receiver)
    }

    /// Serves SQL over PostgreSQL's protocol. If the default port is in use, logs a warning and
    /// serves no SQL.
    async fn sql(&self, tasks: &mut Supervisor, store: &Store) -> Result<(), Failure> {
        let config = self.config.sql.clone();
        let Some(address) = config.address() else {
            return Ok(());
        };
        let database = Arc::clone(store.database());
        let access = self.access.clone();
        let mut server = Some(
            SqlServer::new(Arc::clone(&database), &config, access.clone())
                .context("sql")
                .usage()?,
        );
        let listener = match TcpListener::bind(address).await {
            Ok(listener) => listener.into_std()?,
            Err(error) if config.listen_address.is_none() => {
                tracing::warn!(address, %error, "SQL is disabled; set sql.listen_address to another address");
                return Ok(());
            }
            Err(error) => {
                return Err(anyhow::Error::new(error)
                    .context(format!(
                        "cannot listen on {address} for SQL (listen_address in [sql])"
                    ))
                    .into());
            }
        };
        tracing::info!(address = %listener.local_addr()?, "serving SQL");
        tasks.spawn("sql", move |stop| {
            let first = server.take();
            let database = Arc::clone(&database);
            let config = config.clone();
            let access = access.clone();
            let listener = listener.try_clone();
            async move {
                let started = async {
                    let server = match first {
                        Some(server) => server,
                        None => SqlServer::new(database, &config, access)?,
                    };
                    anyhow::Ok((server, TcpListener::from_std(listener?)?))
                };
                match started.await {
                    Ok((server, listener)) => until_stopped(stop, server.serve(listener)).await,
                    Err(error) => {
                        tracing::error!(error = format!("{error:#}"), "cannot serve SQL");
                    }
                }
            }
        });
        Ok(())
    }

    /// Serves HTTP requests. Requests in flight get the supervisor's grace.
    fn http(
        tasks: &mut Supervisor,
        listener: TcpListener,
        routes: Router,
        connections: Arc<Connections>,
    ) -> Result<(), Failure> {
        let listener = listener.into_std()?;
        tasks.spawn("http", move |stop| {
            let listener = listener.try_clone().and_then(TcpListener::from_std);
            let routes = routes.clone();
            let connections = Arc::clone(&connections);
            async move {
                match listener {
                    Ok(listener) => http::serve(listener, routes, connections, stop).await,
                    Err(error) => tracing::error!(%error, "cannot serve HTTP"),
                }
            }
        });
        Ok(())
    }

    /// Serves commands of this machine on a Unix socket.
    fn socket(
        tasks: &mut Supervisor,
        path: &Path,
        routes: Router,
        connections: Arc<Connections>,
    ) -> Result<(), Failure> {
        let listener = http::listen_on_socket(path)
            .with_context(|| format!("cannot listen on the socket {}", path.display()))?;
        tasks.spawn("socket", move |stop| {
            let listener = listener.try_clone().and_then(UnixListener::from_std);
            let routes = routes.clone();
            let connections = Arc::clone(&connections);
            async move {
                match listener {
                    Ok(listener) => http::serve_socket(listener, routes, connections, stop).await,
                    Err(error) => tracing::error!(%error, "cannot serve the Unix socket"),
                }
            }
        });
        Ok(())
    }

    /// Starts the tasks that do not depend on others.
    fn background(
        &self,
        tasks: &mut Supervisor,
        store: &Arc<Store>,
        scrape: &Arc<ScrapeManager>,
        alerts: &Alerts,
        reload: &Reload,
        polls: &Option<watch::Receiver<PollStatus>>,
    ) {
        let reload = reload.clone();
        tasks.spawn("reload", move |stop| {
            until_stopped(stop, reload.clone().at_hangups())
        });

        let targets = Arc::downgrade(scrape);
        let handle = alerts.handle();
        tasks.spawn("events", move |stop| {
            until_stopped(
                stop,
                alerting::listen_to_all(targets.clone(), handle.clone()),
            )
        });

        let of = Arc::clone(store);
        let cluster = self.cluster.to_owned();
        let status = polls.clone();
        tasks.spawn("process-usage", move |stop| {
            let watched = process_usage::watch(Arc::clone(&of), cluster.clone(), status.clone());
            until_stopped(stop, watched)
        });

        let of = Arc::clone(store);
        tasks.spawn("strips", move |stop| {
            strips::keep_filling(Arc::clone(&of), stop)
        });

        let of = Arc::clone(store);
        let cluster = self.cluster.to_owned();
        tasks.spawn("fairshare-history", move |stop| {
            until_stopped(stop, note_fairshare(Arc::clone(&of), cluster.clone()))
        });

        let of = Arc::clone(store);
        let cluster = self.cluster.to_owned();
        let accounting = self.config.accounting();
        tasks.spawn("calendar", move |stop| {
            let noted = note_calendar(Arc::clone(&of), cluster.clone(), accounting.clone());
            until_stopped(stop, noted)
        });

        let of = Arc::clone(store);
        let cluster = self.cluster.to_owned();
        let rules = self.config.efficiency.clone();
        let reach = Duration::from_secs(self.config.store.retention_days * 86_400);
        tasks.spawn("efficiency", move |stop| {
            assess::keep_assessing(Arc::clone(&of), cluster.clone(), rules.clone(), reach, stop)
        });

        if reports::is_sending(self.config) {
            let of = Arc::clone(store);
            let cluster = self.cluster.to_owned();
            let config = self.config.clone();
            let access = self.access.clone();
            tasks.spawn("reports", move |stop| {
                let sent = reports::keep_sending(
                    Arc::clone(&of),
                    cluster.clone(),
                    config.clone(),
                    access.clone(),
                    stop.clone(),
                );
                until_stopped(stop, sent)
            });
        }
    }

    /// Admits the programs that push samples.
    fn pushing(&mut self, tasks: &mut Supervisor, store: &Arc<Store>) -> Result<Pushing, Failure> {
        let config = &self.config.push;
        let tokens = config.senders.iter().map(|sender| {
            let token = read_token(&sender.token_file)?;
            Ok((token, sender.name.as_str().into()))
        });
        let tokens: anyhow::Result<Vec<_>> = tokens.collect();
        let tokens = tokens.context("push.senders").usage()?;
        check_tokens(&tokens).usage()?;
        self.access.admit_senders(tokens);
        let metrics = PushMetrics::register(&mut self.registry);
        let senders = Arc::new(Senders::new(config, self.cluster, store, metrics));
        let aged = Arc::clone(&senders);
        tasks.spawn("push", move |stop| {
            let senders = Arc::clone(&aged);
            until_stopped(stop, async move { senders.keep_aging().await })
        });
        Ok(Pushing::new(senders, config))
    }

    async fn until(
        mut self,
        store: Arc<Store>,
        shutdown: &mut watch::Receiver<bool>,
    ) -> Result<End, Failure> {
        let zone = self.config.zone();
        let scrape = ScrapeManager::start(
            Arc::clone(&store),
            self.config.scrape.clone(),
            self.cluster,
            &mut self.registry,
        )?;
        let scrape = Arc::new(scrape);
        configure_shares(&store, self.cluster, &self.config.fairshare)?;
        let accounting = self.config.accounting();
        answers::note_calendar(store.database(), Some(self.cluster), &accounting)?;
        let connections = Arc::new(Connections::new(&mut self.registry));
        let mut tasks = Supervisor::new(&mut self.registry);
        let follower = SlurmFollower::new(
            self.access.clone(),
            self.config,
            Arc::clone(&store),
            self.cluster,
        );
        follower.first().await;
        self.sql(&mut tasks, &store).await?;
        let alerts = Alerts::start(
            self.config,
            self.cluster,
            self.local_address,
            &store,
            &mut self.registry,
        )?;
        let reload = Reload::new(
            Arc::clone(&self.source),
            Arc::clone(&scrape),
            alerts.reload(),
            &mut self.registry,
        );
        let polls = self.poll(&mut tasks, &store, &zone);
        self.background(&mut tasks, &store, &scrape, &alerts, &reload, &polls);
        let remote_write = RemoteWriteMetrics::register(&mut self.registry);
        for config in &self.config.remote_write {
            let lateness = if self.config.push.senders.is_empty() {
                Duration::ZERO
            } else {
                PUSH_LATENESS
            };
            let destination = Destination::new(config, &store, &remote_write, lateness)
                .context("remote_write")
                .usage()?;
            tasks.spawn("remote-write", move |stop| {
                until_stopped(stop, destination.clone().keep_sending())
            });
        }
        let pushing = self.pushing(&mut tasks, &store)?;
        let answers = Arc::new(AnswerConfig::of(self.config));
        let page = PageState {
            store: Arc::clone(&store),
            scrape: Arc::clone(&scrape),
            polls: polls.clone(),
            alerts: alerts.handle(),
            cluster: self.cluster.into(),
            zone: zone.clone(),
            config: Arc::clone(&answers),
            reload: reload.clone(),
            stop: tasks.stop_token(),
        };
        let registry = Arc::new(self.registry);
        let own = OwnSeries {
            store: Arc::clone(&store),
            registry: Arc::clone(&registry),
            cluster: self.cluster.to_owned(),
            address: self.local_address,
            polls,
        };
        tasks.spawn("own-series", move |stop| {
            until_stopped(stop, own.clone().keep_writing())
        });
        let app = App::new(AppParts {
            store: Arc::clone(&store),
            config: answers,
            registry,
            scraping: Arc::clone(&scrape) as Arc<dyn http::Scraping>,
            started: jiff::Timestamp::now(),
        });
        tasks.spawn("roles", move |stop| {
            until_stopped(stop, follower.clone().keep_following())
        });
        let routes = reload
            .router()
            .merge(http::router(app))
            .merge(http::push_router(pushing))
            .merge(alerts.router())
            .merge((self.pages)(page));
        let routes =
            http::guarded(routes, self.access).layer(middleware::map_response(http::protect));

        let socket = http::socket_path(self.config.server.socket_file.as_deref());
        if let Some(path) = socket {
            Self::socket(&mut tasks, &path, routes.clone(), Arc::clone(&connections))?;
        }
        Self::http(&mut tasks, self.listener, routes, connections)?;
        let mut health = store.health();
        let end = tokio::select! {
            _ = shutdown.wait_for(|requested| *requested) => End::Shutdown,
            _ = health.wait_for(|health| matches!(health, Health::Invalidated(_))) => End::Invalidated,
            () = alerts.stopped() => End::Invalidated,
            () = clock_went_back(&store) => End::ClockWentBack,
        };
        // Their clients get an error; nothing waits for them.
        let database = Arc::clone(store.database());
        tokio::task::spawn_blocking(move || database.stop_sql()).await?;
        tasks.shutdown(GRACE).await;
        alerts.shutdown().await;
        if let Some(scrape) = Arc::into_inner(scrape) {
            scrape.shutdown().await;
        }
        let_go(&store).await;
        // Closing blocks: it writes the waiting samples.
        tokio::task::spawn_blocking(move || drop(store)).await?;
        Ok(end)
    }
}

/// Checks that each sender has its own token.
fn check_tokens(tokens: &[(String, Arc<str>)]) -> anyhow::Result<()> {
    for (at, (token, name)) in tokens.iter().enumerate() {
        let mut earlier = tokens[..at].iter();
        if let Some((_, other)) = earlier.find(|(known, _)| known == token) {
            anyhow::bail!("push.senders: {other} and {name} have the same token");
        }
    }
    Ok(())
}

/// Waits until no task holds the store: a pass over samples ends at its next reading. The data
/// directory becomes free with the last holder.
async fn let_go(store: &Arc<Store>) {
    let began = Instant::now();
    while Arc::strong_count(store) > 1 {
        if began.elapsed() > PATIENCE {
            tracing::warn!("a task still reads the store; the data directory is closed after it");
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs an endless future until `stop` is cancelled, then drops it.
async fn until_stopped(stop: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = task => {}
    }
}

/// Stores the configured shares. A cluster without records needs none.
fn configure_shares(store: &Store, cluster: &str, config: &SharesConfig) -> Result<(), Failure> {
    let settings = config.settings().unwrap_or_default();
    let now = jiff::Timestamp::now().into();
    Ok(Records::of(store.database()).note_share_settings(cluster, CONFIGURED, &settings, now)?)
}

/// Stores the fair share once an hour, for its history.
async fn note_fairshare(store: Arc<Store>, cluster: String) {
    const HOUR: Duration = Duration::from_secs(3600);
    const SOON: Duration = Duration::from_secs(60);
    loop {
        tokio::time::sleep(SOON).await;
        let store = Arc::clone(&store);
        let cluster = cluster.clone();
        let note = move || {
            answers::note_fairshare(store.database(), &cluster, HOUR.as_secs().cast_signed())
        };
        match tokio::task::spawn_blocking(note).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %error_chain(&error), "cannot store the fair share")
            }
            Err(_) => return,
        }
    }
}

/// Stores time zones, prices and budgets for SQL every ten minutes: clusters may be added, and
/// budgets are used.
async fn note_calendar(store: Arc<Store>, cluster: String, config: AccountingConfig) {
    const INTERVAL: Duration = Duration::from_secs(600);
    loop {
        let store = Arc::clone(&store);
        let cluster = cluster.clone();
        let config = config.clone();
        let note = move || {
            answers::note_calendar(store.database(), Some(&cluster), &config)?;
            answers::note_budgets(store.database(), Some(&cluster), &config)
        };
        match tokio::task::spawn_blocking(note).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %error_chain(&error), "cannot store prices and budgets")
            }
            Err(_) => return,
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Returns a receiver that becomes true at Ctrl-C or SIGTERM.
pub fn signals() -> anyhow::Result<watch::Receiver<bool>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (send, receive) = watch::channel(false);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        send.send_replace(true);
    });
    Ok(receive)
}
