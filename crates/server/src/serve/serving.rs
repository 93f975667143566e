//! The tasks and routes of a server whose store is open, until it ends.

use super::periodic::{forecast_starts, note_calendar, note_fairshare, watch_cards, watch_clock};
use super::{End, PATIENCE, Source};
use crate::alerting::{self, Absence, Alerts, link_key};
use crate::config::{Config, CurrentConfig};
use crate::devices::DeviceSeries;
use crate::doctor::{LiveSources, ServerDoctor};
use crate::failure::{Failure, OrUsage};
use crate::lake::{self, LakeMetrics};
use crate::open_files::OpenFiles;
use crate::own_series::OwnSeries;
use crate::reload::Reload;
use crate::remote_write::{Destination, RemoteWriteMetrics};
use crate::slurm_roles::SlurmFollower;
use crate::tasks::Supervisor;
use crate::{dispatch, process_usage, strips};
use anyhow::Context;
use axum::{Router, middleware};
use jiff::tz::TimeZone;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use takt_access::new_secret;
use takt_api::{App, AppParts, Connections, PageState, Pushing, Scraping};
use takt_collector::push::{PushMetrics, Senders};
use takt_collector::schedulers::poll::Poller;
use takt_collector::schedulers::{PollStatus, SharesConfig};
use takt_collector::scrape::{ScrapeManager, TargetFiles};
use takt_connections::ClassPlaces;
use takt_identity::{Access, GuardedRouter, guarded, register_places};
use takt_postgres::{SqlMetrics, SqlServer, session_places};
use takt_questions::{AlertDesk, AnswerConfig, assess};
use takt_store::{CONFIGURED, Health, MemoryBudget, Records, Store, spawn_blocking};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::time;
use tokio_util::sync::CancellationToken;

/// Time for requests in flight after the shutdown signal.
const GRACE: Duration = Duration::from_secs(5);

/// Time for the letter under way when the server ends.
const LAST_LETTER: Duration = Duration::from_secs(3);

/// Maximum lag of the clock behind the newest stored sample, and the interval between two checks.
/// NTP corrects smaller lags by slewing. A clock that was set back further would block storing
/// until it has caught up.
const CLOCK_BEHIND: Duration = Duration::from_secs(60);
const CLOCK_CHECK: Duration = Duration::from_secs(5);

/// How late pushed samples may arrive that remote write sends on. A sender collects samples for some
/// seconds, and longer while it tries again.
const PUSH_LATENESS: Duration = Duration::from_secs(60);

/// The server with one opening of the data directory.
pub(super) struct Serving<'c> {
    pub config: &'c Config,
    pub source: Source,
    /// When the configuration was read.
    pub read_at: SystemTime,
    pub pages: fn(PageState) -> GuardedRouter,
    pub cluster: &'c str,
    pub access: Access,
    pub registry: Registry,
    pub listener: TcpListener,
    pub local_address: SocketAddr,
    /// The time without a store that ends with this opening.
    pub absence: &'c mut Option<Absence>,
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

    /// Asks the devices around the nodes, if some are configured.
    fn devices(&self, tasks: &mut Supervisor, store: &Arc<Store>) {
        if self.config.devices.is_empty() {
            return;
        }
        let series = DeviceSeries {
            store: Arc::clone(store),
            cluster: self.cluster.to_owned(),
            devices: self.config.devices.clone(),
        };
        tasks.spawn("devices", move |stop| {
            until_stopped(stop, series.clone().keep_storing())
        });
    }

    /// Writes the data lake, if one is configured.
    fn lake(&mut self, tasks: &mut Supervisor, store: &Arc<Store>) {
        if self.config.lake.path.is_none() {
            return;
        }
        let metrics = LakeMetrics::register(&mut self.registry);
        let store = Arc::clone(store);
        let config = self.config.lake.clone();
        let min_free_bytes = self.config.store.min_free_bytes;
        tasks.spawn("lake", move |stop| {
            lake::keep_writing(
                Arc::clone(&store),
                config.clone(),
                min_free_bytes,
                metrics.clone(),
                stop,
            )
        });
    }

    /// Serves SQL over PostgreSQL's protocol. If the default port is in use, logs a warning and
    /// serves no SQL.
    async fn sql(
        &mut self,
        tasks: &mut Supervisor,
        store: &Store,
        memory: &MemoryBudget,
        places: Arc<ClassPlaces>,
    ) -> Result<(), Failure> {
        let config = self.config.sql.clone();
        let Some(address) = config.address() else {
            return Ok(());
        };

        let database = Arc::clone(store.database());
        let access = self.access.clone();
        let metrics = SqlMetrics::register(&mut self.registry);
        let server = SqlServer::new(
            Arc::clone(&database),
            &config,
            access.clone(),
            Arc::clone(&places),
            metrics.clone(),
            memory.clone(),
        );
        let memory = memory.clone();
        let mut server = Some(server.context("sql").usage()?);

        let listener = match TcpListener::bind(address).await {
            Ok(listener) => listener.into_std()?,
            Err(error) if config.listen_address.is_none() => {
                tracing::warn!(
                    address, %error,
                    "no SQL for psql and Grafana: set sql.listen_address to a free address, or to \"\""
                );
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
            let places = Arc::clone(&places);
            let metrics = metrics.clone();
            let memory = memory.clone();
            let listener = listener.try_clone();
            async move {
                let started = async {
                    let server = match first {
                        Some(server) => server,
                        None => SqlServer::new(database, &config, access, places, metrics, memory)?,
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
                    Ok(listener) => takt_api::serve(listener, routes, connections, stop).await,
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
        let listener = takt_api::listen_on_socket(path)
            .with_context(|| format!("cannot listen on the socket {}", path.display()))?;
        tasks.spawn("socket", move |stop| {
            let listener = listener.try_clone().and_then(UnixListener::from_std);
            let routes = routes.clone();
            let connections = Arc::clone(&connections);
            async move {
                match listener {
                    Ok(listener) => {
                        takt_api::serve_socket(listener, routes, connections, stop).await
                    }
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
        let reload_config = reload.current.clone();
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
        let cluster = self.cluster.to_owned();
        tasks.spawn("cards", move |stop| {
            until_stopped(stop, watch_cards(Arc::clone(&of), cluster.clone()))
        });

        let of = Arc::clone(store);
        let targets = Arc::downgrade(scrape);
        tasks.spawn("clock", move |stop| {
            until_stopped(stop, watch_clock(Arc::clone(&of), targets.clone()))
        });

        let of = Arc::clone(store);
        tasks.spawn("strips", move |stop| {
            strips::keep_filling(Arc::clone(&of), stop)
        });

        let of = Arc::clone(store);
        let cluster = self.cluster.to_owned();
        let accounting = self.config.accounting();
        tasks.spawn("fairshare-history", move |stop| {
            let noted = note_fairshare(Arc::clone(&of), cluster.clone(), accounting.clone());
            until_stopped(stop, noted)
        });

        if polls.is_some() {
            let of = Arc::clone(store);
            let cluster = self.cluster.to_owned();
            tasks.spawn("forecasts", move |stop| {
                until_stopped(stop, forecast_starts(Arc::clone(&of), cluster.clone()))
            });
        }

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
        let sent_to: Vec<String> = self
            .config
            .remote_write
            .iter()
            .map(crate::RemoteWriteConfig::name)
            .collect();
        tasks.spawn("efficiency", move |stop| {
            let of = Arc::clone(&of);
            let cluster = cluster.clone();
            assess::keep_assessing(of, cluster, rules.clone(), reach, sent_to.clone(), stop)
        });

        if dispatch::is_sending(self.config) {
            let of = Arc::clone(store);
            let cluster = self.cluster.to_owned();
            let config = reload_config;
            let access = self.access.clone();
            tasks.spawn("reports", move |stop| {
                let sent = dispatch::keep_sending(
                    Arc::clone(&of),
                    cluster.clone(),
                    config.clone(),
                    access.clone(),
                    stop.clone(),
                );
                soon_after(stop, sent)
            });
        }
    }

    /// Admits the programs that push samples.
    fn pushing(
        &mut self,
        tasks: &mut Supervisor,
        store: &Arc<Store>,
        memory: &MemoryBudget,
    ) -> Result<Pushing, Failure> {
        let tokens = self.config.sender_tokens().usage()?;
        let config = &self.config.push;
        self.access.admit_senders(tokens);
        let metrics = PushMetrics::register(&mut self.registry);
        let senders = Arc::new(Senders::new(config, self.cluster, store, metrics));
        let aged = Arc::clone(&senders);
        tasks.spawn("push", move |stop| {
            let senders = Arc::clone(&aged);
            until_stopped(stop, async move { senders.keep_aging().await })
        });
        Ok(Pushing::new(senders, config, memory.clone()))
    }

    /// Serves until a shutdown, or until the store has to be opened again. Calls `announce` as soon as requests are answered.
    pub async fn until(
        mut self,
        store: Arc<Store>,
        announce: impl FnOnce(&Arc<Store>) -> Result<(), Failure>,
        shutdown: &mut watch::Receiver<bool>,
    ) -> Result<End, Failure> {
        let zone = self.config.zone();
        let files = OpenFiles::share_out(self.config)
            .context("scrape")
            .usage()?;
        // These need the disk. If they fail, no task holds the store yet.
        configure_shares(&store, self.cluster, &self.config.fairshare)?;
        let accounting = self.config.accounting();
        takt_questions::note_calendar(store.database(), Some(self.cluster), &accounting)?;
        let alerts = Alerts::start(
            self.config,
            self.cluster,
            self.local_address,
            &store,
            &mut self.registry,
        )?;
        if let Some(absence) = self.absence.take() {
            alerts.note_absence(&absence).await;
            absence.end().await;
        }
        let scrape = ScrapeManager::start(
            Arc::clone(&store),
            self.config.scrape.clone(),
            self.cluster,
            TargetFiles::new(files.targets),
            &mut self.registry,
        )?;
        let scrape = Arc::new(scrape);
        let (connections, places) = takt_api::connections(files.http, &mut self.registry);
        let connections = Arc::new(connections);
        let mut tasks = Supervisor::new(&mut self.registry);
        let follower = SlurmFollower::new(
            self.access.clone(),
            self.config,
            Arc::clone(&store),
            self.cluster,
        );
        follower.first().await;
        let budget = self.config.server.memory_budget_bytes();
        let memory = MemoryBudget::register(budget, &mut self.registry);
        let sql_places = session_places(files.sql);
        let classes = places.classes().chain([Arc::clone(&sql_places)]);
        register_places(&mut self.registry, classes.collect());
        self.sql(&mut tasks, &store, &memory, sql_places).await?;
        let reload = Reload::new(
            Arc::clone(&scrape),
            alerts.reload(),
            CurrentConfig::new(self.config.clone(), self.read_at)
                .with_source(Arc::clone(&self.source)),
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
        self.devices(&mut tasks, &store);
        self.lake(&mut tasks, &store);
        let pushing = self.pushing(&mut tasks, &store, &memory)?;
        let fresh = new_secret().map_err(anyhow::Error::from)?;
        let secret = Records::of(store.database()).secret("fingerprints", &fresh)?;
        let live = LiveSources {
            targets: Arc::downgrade(&scrape),
            polls: polls.clone(),
            unknown_privacy: follower.unknown_privacy(),
        };
        let mut answers = AnswerConfig {
            doctor: Some(Arc::new(ServerDoctor::new(reload.current.clone(), live))),
            alerts: AlertDesk::new(alerts.handle(), secret)
                .with_links(link_key(&store)?, alerts.has_links()),
            memory: memory.clone(),
            ..reload.current.answer_config()
        };
        answers.accounting.home = Some(self.cluster.to_owned());
        let answers = Arc::new(answers);
        let page = PageState {
            store: Arc::clone(&store),
            scrape: Arc::clone(&scrape),
            polls: polls.clone(),
            cluster: self.cluster.into(),
            zone: zone.clone(),
            config: Arc::clone(&answers),
            reload: Arc::new(reload.clone()),
            stop: tasks.stop_token(),
        };
        let registry = Arc::new(self.registry);
        let own = OwnSeries {
            store: Arc::clone(&store),
            registry: Arc::clone(&registry),
            cluster: self.cluster.to_owned(),
            address: self.local_address,
            polls,
            answers: Arc::clone(&answers),
        };
        tasks.spawn("own-series", move |stop| {
            until_stopped(stop, own.clone().keep_writing())
        });
        let app = App::new(AppParts {
            store: Arc::clone(&store),
            config: answers,
            registry,
            scraping: Arc::clone(&scrape) as Arc<dyn Scraping>,
            started: jiff::Timestamp::now(),
        });
        tasks.spawn("roles", move |stop| {
            until_stopped(stop, follower.clone().keep_following())
        });
        let pages = alerts.router().merge((self.pages)(page));
        let routes = reload
            .router()
            .merge(takt_api::router(app))
            .merge(takt_api::push_router(pushing))
            .merge(takt_api::with_held_answers(pages, memory));
        let routes = places
            .layer(guarded(routes, self.access))
            .layer(middleware::map_response(takt_api::protect));

        let socket = takt_api::socket_path(self.config.server.socket_file.as_deref());
        if let Some(path) = socket {
            Self::socket(&mut tasks, &path, routes.clone(), Arc::clone(&connections))?;
        }
        Self::http(&mut tasks, self.listener, routes, connections)?;
        announce(&store)?;
        let mut health = store.health();
        let end = tokio::select! {
            _ = shutdown.wait_for(|requested| *requested) => End::Shutdown,
            _ = health.wait_for(|health| matches!(health, Health::Invalidated(_))) => End::Invalidated,
            () = alerts.stopped() => End::Invalidated,
            () = clock_went_back(&store) => End::ClockWentBack,
        };
        // Their clients get an error; nothing waits for them.
        let database = Arc::clone(store.database());
        spawn_blocking(move || database.stop_sql()).await?;
        tasks.shutdown(GRACE).await;
        alerts.shutdown().await;
        if let Some(scrape) = Arc::into_inner(scrape) {
            scrape.shutdown().await;
        }
        let_go(&store).await;
        // Closing blocks: it writes the waiting samples.
        spawn_blocking(move || drop(store)).await?;
        Ok(end)
    }
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
        time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs an endless future until `stop` is cancelled, then drops it.
async fn until_stopped(stop: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = task => {}
    }
}

/// Runs a future that ends by itself soon after `stop` is cancelled: a mail that the mail server has taken would be sent
/// again after the next start. Drops it if it takes longer.
async fn soon_after(stop: CancellationToken, task: impl Future<Output = ()>) {
    let too_late = async {
        stop.cancelled().await;
        time::sleep(LAST_LETTER).await;
    };
    tokio::select! {
        () = too_late => {}
        () = task => {}
    }
}

/// Stores the configured shares. A cluster without records needs none.
fn configure_shares(store: &Store, cluster: &str, config: &SharesConfig) -> Result<(), Failure> {
    let settings = config.settings().unwrap_or_default();
    let now = jiff::Timestamp::now().into();
    Ok(Records::of(store.database()).note_share_settings(cluster, CONFIGURED, &settings, now)?)
}

/// Waits until the clock is far behind the newest stored sample.
async fn clock_went_back(store: &Store) {
    while takt_model::Timestamp::from(SystemTime::now()) >= store.watermark().minus(CLOCK_BEHIND) {
        time::sleep(CLOCK_CHECK).await;
    }
}
