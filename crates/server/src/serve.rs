//! The server: a store, what fills it, and the pages and routes that answer from it.

use crate::SqlServer;
use crate::alerting::{self, Alerts};
use crate::answers::{self, AnswerConfig, AnswerError};
use crate::assess;
use crate::config::Config;
use crate::failure::{Failure, OrUsage};
use crate::http::{self, Access, App};
use crate::own_series::OwnSeries;
use crate::process_usage;
use crate::reports;
use anyhow::Context;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Router, middleware};
use jiff::tz::TimeZone;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use takt_alerts::run::Handle;
use takt_collector::schedulers::poll::Poller;
use takt_collector::schedulers::{PollStatus, SharesConfig};
use takt_collector::scrape::ScrapeManager;
use takt_model::error_chain;
use takt_store::CONFIGURED;
use takt_store::{DataDir, Health, Holder, Records, Store, StoreError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// After the end is asked for, requests in flight get this long.
const GRACE: Duration = Duration::from_secs(5);

/// A database that became invalid is opened anew after this long: whatever broke it (a full disk) may last.
const REOPEN_PAUSE: Duration = Duration::from_secs(5);

/// How far the clock may be behind what is stored, and how often it is looked at. NTP slews less than that; where a clock was
/// set, nothing could be stored until it has caught up.
const CLOCK_BEHIND: Duration = Duration::from_secs(60);
const CLOCK_CHECK: Duration = Duration::from_secs(5);

/// How long a server waits for a command that has the data directory: a report or an import ends by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a server stopped serving.
enum End {
    /// It was asked to.
    Asked,
    /// DuckDB lost the database: everything is opened anew.
    Invalidated,
    /// The clock was set back: opened anew, the store goes on at what the clock shows now.
    ClockWentBack,
}

/// Where the configuration is from: asked at the start, and again at every reload.
pub type Source = Arc<dyn Fn() -> anyhow::Result<Config> + Send + Sync>;

/// Serves `dir` until `shutdown` says so. `ready` is called once, with the address, when the first request can be
/// answered.
pub async fn run(
    source: Source,
    dir: &Path,
    mut shutdown: watch::Receiver<bool>,
    pages: Pages,
    ready: impl FnOnce(SocketAddr, &str),
) -> Result<(), Failure> {
    let mut config = source().usage()?;
    let token = config.server.token().context("server").usage()?;
    let access = Access::new(
        &token,
        config
            .server
            .read_token()
            .context("server")
            .usage()?
            .as_deref(),
    );
    let mut ready = Some(ready);
    loop {
        let address = &config.server.listen_address;
        let mut registry = Registry::default();
        let Some(dir) = claim(dir, &mut shutdown).await? else {
            return Ok(());
        };
        let store = Arc::new(Store::open(dir, &config.store, &mut registry)?);
        let cluster = cluster(&config, &store).await?;
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let bound = listener.local_addr()?;
        let asked_at = SocketAddr::new(
            if bound.ip().is_unspecified() {
                [127, 0, 0, 1].into()
            } else {
                bound.ip()
            },
            bound.port(),
        );
        store.publish(&Holder {
            pid: std::process::id(),
            address: Some(asked_at.to_string()),
            token: Some(token.clone()),
        })?;
        let serving = Serving {
            config: &config,
            source: Arc::clone(&source),
            pages: Arc::clone(&pages),
            cluster: &cluster,
            access: access.clone(),
            registry,
            listener,
            asked_at,
        };
        if let Some(ready) = ready.take() {
            ready(asked_at, &cluster);
        }
        match serving.until(store, &mut shutdown).await? {
            End::Asked => return Ok(()),
            End::Invalidated => {
                tracing::error!("the database became invalid and is opened anew");
                tokio::time::sleep(REOPEN_PAUSE).await;
            }
            End::ClockWentBack => {
                tracing::warn!(
                    "the clock was set back; the store is opened anew to go on from there"
                )
            }
        }
        // What was reloaded meanwhile.
        if let Ok(reloaded) = source() {
            (config.scrape, config.alerts, config.email) =
                (reloaded.scrape, reloaded.alerts, reloaded.email);
        }
    }
}

/// Returns once the clock is far behind the newest stored sample.
async fn clock_went_back(store: &Store) {
    while takt_model::Timestamp::from(SystemTime::now()) >= store.watermark().minus(CLOCK_BEHIND) {
        tokio::time::sleep(CLOCK_CHECK).await;
    }
}

/// Claims `dir`, which a command may have for a moment (at the start, or while an invalid database is opened anew) and
/// another server for good. `None` where the end was asked for meanwhile.
async fn claim(
    dir: &Path,
    shutdown: &mut watch::Receiver<bool>,
) -> Result<Option<DataDir>, Failure> {
    let began = Instant::now();
    let mut told = false;
    while !*shutdown.borrow() {
        match DataDir::claim(dir) {
            Err(StoreError::Held {
                pid, address: None, ..
            }) if began.elapsed() < PATIENCE => {
                if !told {
                    tracing::info!(pid, "a command has the data directory; waiting for its end");
                }
                told = true;
                let _ = tokio::time::timeout(Duration::from_millis(100), shutdown.changed()).await;
            }
            claimed => return Ok(Some(claimed?)),
        }
    }
    Ok(None)
}

/// The cluster's name: the configuration's, the local Slurm's, that of the only cluster there are records of, `local`.
async fn cluster(config: &Config, store: &Store) -> Result<String, Failure> {
    if let Some(name) = &config.cluster {
        return Ok(name.clone());
    }
    if config.jobs.poll
        && let Ok(slurm) = takt_collector::schedulers::detect(&config.jobs).await
    {
        return Ok(slurm.cluster);
    }
    let mut known = Records::of(store.database()).clusters()?;
    let only = if known.len() == 1 { known.pop() } else { None };
    Ok(only.map_or_else(|| answers::LOCAL_CLUSTER.to_owned(), |only| only.cluster))
}

/// One opening of the data directory.
struct Serving<'c> {
    config: &'c Config,
    source: Source,
    pages: Pages,
    cluster: &'c str,
    access: Access,
    registry: Registry,
    listener: TcpListener,
    asked_at: SocketAddr,
}

/// What pages are made from.
#[derive(Clone)]
pub struct PageState {
    /// Samples and records.
    pub store: Arc<Store>,
    /// Targets and their health.
    pub scrape: Arc<ScrapeManager>,
    /// State of the scheduler poller; `None` where no scheduler is polled.
    pub polls: Option<watch::Receiver<PollStatus>>,
    /// Active alerts.
    pub alerts: Handle,
    /// Name of the cluster.
    pub cluster: Arc<str>,
    /// Time zone of the cluster.
    pub zone: TimeZone,
}

/// The routes of the pages. The server knows no page: whoever starts it hands the pages in.
pub type Pages = Arc<dyn Fn(PageState) -> Router + Send + Sync>;

impl Serving<'_> {
    /// Starts asking the local Slurm, unless the configuration says not to.
    fn poll(
        &self,
        store: &Store,
        zone: &TimeZone,
    ) -> Option<(JoinHandle<()>, watch::Receiver<PollStatus>)> {
        let config = &self.config.jobs;
        let zone = zone.iana_name().unwrap_or("UTC").to_owned();
        config.poll.then(|| {
            let database = Arc::clone(store.database());
            let poller = Poller::new(config.clone(), database, self.config.cluster.clone(), zone);
            let (send, receive) = watch::channel(PollStatus::default());
            (tokio::spawn(poller.run(send)), receive)
        })
    }

    /// Starts to serve SQL over PostgreSQL's protocol. Where nobody chose its address and another has it, there is none.
    async fn sql(&self, store: &Store) -> Result<Option<JoinHandle<()>>, Failure> {
        let config = &self.config.sql;
        let Some(address) = config.address() else {
            return Ok(None);
        };
        let server = SqlServer::new(Arc::clone(store.database()), config)
            .context("sql")
            .usage()?;
        match TcpListener::bind(address).await {
            Ok(listener) => {
                tracing::info!(address = %listener.local_addr()?, "serving SQL");
                Ok(Some(tokio::spawn(server.serve(listener))))
            }
            Err(error) if config.listen_address.is_none() => {
                tracing::warn!(address, %error, "SQL is not served; sql.listen_address chooses another address");
                Ok(None)
            }
            Err(error) => Err(anyhow::Error::new(error)
                .context(format!("cannot listen on {address} for SQL"))
                .into()),
        }
    }

    async fn until(
        mut self,
        store: Arc<Store>,
        shutdown: &mut watch::Receiver<bool>,
    ) -> Result<End, Failure> {
        let zone = match &self.config.timezone {
            Some(name) => takt_slurm::time_zone(name)?,
            None => TimeZone::system(),
        };
        let scrape = ScrapeManager::start(
            Arc::clone(&store),
            self.config.scrape.clone(),
            self.cluster,
            &mut self.registry,
        )?;
        let scrape = Arc::new(scrape);
        configure_shares(&store, self.cluster, &self.config.fairshare)?;
        let sql = self.sql(&store).await?;
        let alerts = Alerts::start(
            self.config,
            self.cluster,
            self.asked_at,
            &store,
            &scrape,
            &mut self.registry,
        )?;
        let reloaded = Gauge::default();
        reloaded.set(1);
        let help = "Whether the configuration could be read the last time it was to be";
        self.registry.register(
            "takt_server_config_reload_successful",
            help,
            reloaded.clone(),
        );
        let reload = Reload {
            source: Arc::clone(&self.source),
            scrape: Arc::clone(&scrape),
            alerts: alerts.reload(),
            reloaded,
        };
        let hangups = tokio::spawn(reload.clone().at_hangups());
        let (poller, polls) = self.poll(&store, &zone).unzip();
        let watching = tokio::spawn(process_usage::watch(
            Arc::clone(&store),
            self.cluster.to_owned(),
            polls.clone(),
        ));
        let noting = tokio::spawn(note_fairshare(Arc::clone(&store), self.cluster.to_owned()));
        let page = PageState {
            store: Arc::clone(&store),
            scrape: Arc::clone(&scrape),
            polls: polls.clone(),
            alerts: alerts.handle(),
            cluster: self.cluster.into(),
            zone: zone.clone(),
        };
        let registry = Arc::new(self.registry);
        let own = OwnSeries {
            store: Arc::clone(&store),
            registry: Arc::clone(&registry),
            cluster: self.cluster.to_owned(),
            address: self.asked_at,
            polls,
        };
        let own = tokio::spawn(own.keep_writing());
        let app = App {
            store: Arc::clone(&store),
            config: Arc::new(AnswerConfig::of(self.config)),
            registry,
            scraping: Arc::clone(&scrape) as Arc<dyn http::Scraping>,
            started: jiff::Timestamp::now(),
        };
        let routes = Router::new()
            .route("/-/reload", post(reload_now).with_state(reload))
            .merge(http::router(app))
            .merge(alerts.router())
            .merge((self.pages)(page))
            .layer(middleware::from_fn_with_state(self.access, http::check))
            .into_make_service_with_connect_info::<SocketAddr>();

        let (stop, stopped) = watch::channel(false);
        let mut stopped_too = stopped.clone();
        let assessing = tokio::spawn(assess::keep_assessing(
            Arc::clone(&store),
            self.cluster.to_owned(),
            self.config.efficiency.clone(),
            Duration::from_secs(self.config.store.retention_days * 86_400),
            stopped.clone(),
        ));
        let sending = tokio::spawn(reports::keep_sending(
            Arc::clone(&store),
            self.cluster.to_owned(),
            self.config.clone(),
            zone,
            stopped.clone(),
        ));
        let serve = axum::serve(self.listener, routes)
            .with_graceful_shutdown(async move { drop(stopped_too.wait_for(|stop| *stop).await) });
        let serve = tokio::spawn(serve.into_future());
        let mut health = store.health();
        let end = tokio::select! {
            _ = shutdown.wait_for(|asked| *asked) => End::Asked,
            _ = health.wait_for(|health| matches!(health, Health::Invalidated(_))) => End::Invalidated,
            () = alerts.stopped() => End::Invalidated,
            () = clock_went_back(&store) => End::ClockWentBack,
        };
        stop.send_replace(true);
        let serving = serve.abort_handle();
        if tokio::time::timeout(GRACE, serve).await.is_err() {
            tracing::warn!("requests in flight were cut off");
            serving.abort();
        }
        alerts.shutdown().await;
        sending.abort();
        // Only that it has ended matters; an abort is what we asked for.
        let _ = sending.await;
        if let Err(error) = assessing.await {
            tracing::error!(error = %error, "assessing runs had panicked");
        }
        for task in [poller, sql]
            .into_iter()
            .flatten()
            .chain([hangups, noting, watching, own])
        {
            task.abort();
            // Only that it has ended matters; an abort is what we asked for.
            let _ = task.await;
        }
        if let Some(scrape) = Arc::into_inner(scrape) {
            scrape.shutdown().await;
        }
        // The last one to hold the store closes it; closing writes what waits and blocks.
        tokio::task::spawn_blocking(move || drop(store)).await?;
        Ok(end)
    }
}

/// Reads the configuration anew, while the server serves.
#[derive(Clone)]
struct Reload {
    source: Source,
    scrape: Arc<ScrapeManager>,
    alerts: alerting::Reload,
    /// Whether it went well the last time.
    reloaded: Gauge,
}

impl Reload {
    /// Follows the new `[scrape]`, `[alerts]` and `[email]`; what cannot be followed changes nothing.
    async fn now(&self) -> anyhow::Result<()> {
        let result = self.read_and_follow().await;
        self.reloaded.set(i64::from(result.is_ok()));
        result
    }

    async fn read_and_follow(&self) -> anyhow::Result<()> {
        let source = Arc::clone(&self.source);
        let read = tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
            let config = source()?;
            let alerts = alerting::load(&config)?;
            Ok((config, alerts))
        });
        let (config, alerts) = read.await??;
        self.scrape.reload(&config.scrape)?;
        self.alerts.follow(&config, alerts).await?;
        tracing::info!(
            "the configuration was read anew; [scrape], [alerts] and [email] are in force, other sections need a restart"
        );
        Ok(())
    }

    async fn at_hangups(self) {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut hangups) = signal(SignalKind::hangup()) else {
            return;
        };
        while hangups.recv().await.is_some() {
            if let Err(error) = self.now().await {
                tracing::error!(
                    error = format!("{error:#}"),
                    "cannot read the configuration anew; the old one stays"
                );
            }
        }
    }
}

async fn reload_now(State(reload): State<Reload>) -> Response {
    match reload.now().await {
        Ok(()) => "reloaded\n".into_response(),
        Err(error) => {
            let error = format!("{error:#}; the old configuration stays");
            AnswerError::failed(error).into_response()
        }
    }
}

/// Remembers what the configuration says of shares. A cluster of which nothing is recorded yet has none to remember.
fn configure_shares(store: &Store, cluster: &str, config: &SharesConfig) -> Result<(), Failure> {
    let settings = config.settings().unwrap_or_default();
    let now = jiff::Timestamp::now().as_second();
    Ok(Records::of(store.database()).note_share_settings(cluster, CONFIGURED, &settings, now)?)
}

/// Notes fair share once an hour, for its history.
async fn note_fairshare(store: Arc<Store>, cluster: String) {
    const HOUR: Duration = Duration::from_secs(3600);
    const SOON: Duration = Duration::from_secs(60);
    loop {
        tokio::time::sleep(SOON).await;
        let (store, cluster) = (Arc::clone(&store), cluster.clone());
        let note = move || {
            answers::note_fairshare(store.database(), &cluster, HOUR.as_secs().cast_signed())
        };
        match tokio::task::spawn_blocking(note).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %error_chain(&error), "cannot note the fair share")
            }
            Err(_) => return,
        }
    }
}

/// Becomes true at Ctrl-C or SIGTERM.
pub fn signals() -> anyhow::Result<watch::Receiver<bool>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (send, receive) = watch::channel(false);
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::spawn(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        send.send_replace(true);
    });
    Ok(receive)
}
