//! The alert engine in the server: reads its configuration, implements its traits over the store,
//! and delivers the exporters' events to it.

mod absence;
mod context;
mod events;
#[cfg(test)]
mod hostile;
mod in_memory;
mod outside;
mod pack;
mod rows;
#[cfg(test)]
mod scenarios;
mod severities;

pub use absence::Absence;
pub use in_memory::InMemory;
pub use outside::{Writer, exporter_states, instant, instant_samples};
pub use pack::Rules;
pub use severities::{doubt_of_page, doubts_of_routing, doubts_of_rules};

use crate::config::Config;
use crate::failure::{Failure, OrUsage};
use anyhow::{Context, anyhow};
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use events::EngineSink;
use outside::OverStore;
use prometheus_client::registry::Registry;
use reqwest::Url;
use rustix::system;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};
use takt_access::{Need, Role, RouteNeeds, new_secret};
use takt_alerts::Engine;
use takt_alerts::api::{self, ActedBy, Api, PostedBy};
use takt_alerts::engine::Server;
use takt_alerts::events::xid::XidTable;
use takt_alerts::group::Defaults;
use takt_alerts::notify::channels::Channels;
use takt_alerts::notify::owner::Addresses;
use takt_alerts::ports::StoreError;
use takt_alerts::routing::Settings;
use takt_alerts::routing::config::Config as Routing;
use takt_alerts::routing::matcher::{MatchOp, Matcher, Matchers};
use takt_alerts::run::{AlertMetrics, Alerting, Handle, Heartbeat, WatchConfig, store_failure};
use takt_collector::events::{Exporter, RequestFactory, listen};
use takt_collector::scrape::{ScrapeManager, StreamFile, TargetAccess, TargetFiles};
use takt_identity::{By, GuardedRouter, user_by_number};
use takt_model::{Labels, error_chain};
use takt_reports::ReportsConfig;
use takt_store::{Records, Store};
use tokio::sync::OnceCell;
use tokio::task::AbortHandle;
use tokio::time;

/// Interval between two checks for new targets.
const TARGETS_EVERY: Duration = Duration::from_secs(5);

/// Rules, routes and channels, read and checked.
pub struct Loaded {
    /// The rules.
    pub rules: Rules,
    /// The routes: which channels get which alerts.
    pub routing: Routing,
    /// The notification channels.
    pub channels: Channels,
    /// Mistakes in templates of messages: Takt's own texts replace those.
    pub template_mistakes: Vec<String>,
}

/// Reads and checks the whole configuration of alerting.
pub fn load(config: &Config) -> anyhow::Result<Loaded> {
    let alerts = &config.alerts;
    let section = match &config.file {
        Some(file) => format!("{}: [alerts]", file.display()),
        None => "[alerts]".to_owned(),
    };

    let rules = if alerts.enabled {
        pack::load(alerts.shipped_rules, &alerts.rule_dirs, &alerts.thresholds)
            .with_context(|| section.clone())?
    } else {
        Rules::default()
    };
    // Without alerts, the engine still runs: a route to a receiver without channels sends nothing.
    let (name, text, base) = match (&alerts.alertmanager_file, alerts.enabled) {
        (_, false) => (
            "none".to_owned(),
            "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n".to_owned(),
            PathBuf::new(),
        ),
        (Some(path), true) => {
            let text = std::fs::read_to_string(path).with_context(|| {
                format!(
                    "{section}: alertmanager_file: cannot read {}",
                    path.display()
                )
            })?;
            (
                path.display().to_string(),
                text,
                path.parent().unwrap_or(Path::new("")).to_owned(),
            )
        }
        (None, true) => {
            alerts
                .check_secrets()
                .map_err(|error| config.located(&error.in_section("alerts")))?;
            (
                section.clone(),
                alerts.in_long_form(pack::ROUTES, config.knows_owners()),
                PathBuf::new(),
            )
        }
    };

    let mut routing = Routing::read(&name, &text).map_err(|mistake| anyhow!("{mistake}"))?;
    // Relative paths of templates begin at the folder of the configuration that names them.
    let mut template_mistakes = routing.read_templates(&base);

    let reports = config.reports.clone();
    let owners = Addresses::new(move |user| owner_address(&reports, user));
    let channels =
        Channels::build(&routing, &config.email, &owners, &base).map_err(|mut mistake| {
            // The short form's lines are not lines of any file.
            if alerts.alertmanager_file.is_none() {
                mistake.line = 0;
            }
            anyhow!("{}", mistake.in_file(&name))
        })?;

    let mistakes = channels.template_mistakes().iter();
    template_mistakes.extend(mistakes.map(|one| one.clone().in_file(&name).to_string()));

    Ok(Loaded {
        rules,
        routing,
        channels,
        template_mistakes,
    })
}

/// The files that [`load`] reads and that change what is sent: `alertmanager_file` and the rules of `rule_dirs`.
pub fn files(config: &Config) -> Vec<PathBuf> {
    let alerts = &config.alerts;
    let rules = alerts
        .rule_dirs
        .iter()
        .filter_map(|dir| pack::files(dir).ok());
    let routes = alerts.alertmanager_file.iter().cloned();
    routes.chain(rules.flatten()).collect()
}

/// The address of a user, whom a node may have named by uid.
fn owner_address(reports: &ReportsConfig, user: &str) -> Option<String> {
    if !context::is_number(user) || reports.addresses.contains_key(user) {
        return reports.address_of(user);
    }
    // A mail to `61001@lab.example` reaches nobody, or somebody else.
    reports.address_of(&user_by_number(user)?)
}

/// Needs of the routes of [`api::router`]. Labels and annotations of alerts name users and their jobs.
const ROUTES: [(&str, RouteNeeds); 11] = {
    let read = RouteNeeds::read(Need::Samples);
    let change = RouteNeeds::get_or_change(Need::Samples, Role::Support);
    [
        ("/api/v2/status", read),
        ("/api/v2/receivers", read),
        ("/api/v2/alerts", change),
        ("/api/v2/alerts/groups", read),
        ("/api/v2/alerts/route", read),
        ("/api/v2/alerts/test", RouteNeeds::change(Role::Support)),
        ("/api/v2/alerts/close", RouteNeeds::change(Role::Support)),
        ("/api/v2/silences", change),
        ("/api/v2/silence/{id}", change),
        ("/api/v1/rules", read),
        ("/api/v1/alerts", read),
    ]
};

/// The running alert engine of a server.
pub struct Alerts {
    alerting: Alerting,
    api: Api,
    reload: Reload,
}

/// Applies another configuration to the running engine.
#[derive(Clone)]
pub struct Reload {
    handle: Handle,
    cluster: String,
    address: SocketAddr,
    /// Whether messages get links that acknowledge their alerts.
    has_links: Arc<AtomicBool>,
}

impl Reload {
    /// Applies a checked configuration. The new rules, routes and channels are in use when this
    /// returns.
    pub async fn follow(&self, config: &Config, loaded: Loaded) -> anyhow::Result<()> {
        let Loaded {
            rules,
            routing,
            channels,
            ..
        } = loaded;

        let server = server(config, &self.cluster, self.address);
        self.has_links
            .store(config.alerts.acknowledge_links, Ordering::Relaxed);
        // Channels first: the rules and routes of the new configuration may name new ones.
        self.handle.use_channels(channels, watch_config(config))?;
        self.handle
            .change(move |engine, now| {
                engine.set_server(server);
                // The engine takes rules and routes in one change, so no alert is routed by half of a configuration.
                (
                    (),
                    engine.reload(
                        &rules.files,
                        &rules.events,
                        XidTable::shipped().clone(),
                        routing,
                        now,
                    ),
                )
            })
            .await?;
        Ok(())
    }
}

impl Alerts {
    /// Reads the configuration, restores the stored state and starts the engine.
    pub fn start(
        config: &Config,
        cluster: &str,
        address: SocketAddr,
        store: &Arc<Store>,
        registry: &mut Registry,
    ) -> Result<Self, Failure> {
        let loaded = load(config).usage()?;
        for doubt in config.doubts(Some(&loaded)) {
            tracing::warn!("{doubt}");
        }

        let Loaded {
            rules,
            routing,
            channels,
            ..
        } = loaded;

        let (samples, events) = rules.count();
        tracing::info!(
            rules = samples,
            event_rules = events,
            channels = channels.names().count(),
            "alerting"
        );

        let engine = Engine::new(
            server(config, cluster, address),
            &rules.files,
            &rules.events,
            XidTable::shipped().clone(),
            routing,
        );
        // A link is only a problem where a message leaves this machine.
        if channels.names().next().is_some() {
            warn_of_local_links(config, address.port());
        }

        let has_links = Arc::new(AtomicBool::new(config.alerts.acknowledge_links));
        let outside = OverStore::new(Arc::clone(store), cluster, SystemTime::now().into())?
            .with_links(link_key(store)?, Arc::clone(&has_links));

        let metrics = AlertMetrics::register(registry);
        let alerting = Alerting::start(engine, outside, channels, watch_config(config), metrics)?;
        let handle = alerting.handle();

        let api = Api {
            handle: handle.clone(),
            started: jiff::Timestamp::now(),
        };

        let reload = Reload {
            handle,
            cluster: cluster.to_owned(),
            address,
            has_links,
        };
        Ok(Self {
            alerting,
            api,
            reload,
        })
    }

    /// Returns whether messages have links that acknowledge; a reload may change it.
    pub fn has_links(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.reload.has_links)
    }

    /// Returns the handle for reloads.
    pub fn reload(&self) -> Reload {
        self.reload.clone()
    }

    /// Returns Alertmanager's API and Prometheus' routes about rules.
    pub fn router(&self) -> GuardedRouter {
        let router = api::router(self.api.clone()).layer(middleware::from_fn(note_sender));
        GuardedRouter::of(router, &ROUTES)
    }

    /// Returns the handle of the running engine.
    pub fn handle(&self) -> Handle {
        self.api.handle.clone()
    }

    /// Sends the alert about a time without a store, which ends by itself.
    pub async fn note_absence(&self, absence: &Absence) {
        let error = StoreError(absence.reason.clone());
        let since = absence.since;
        // Posted like an alert of another program, since no rule of this engine has evaluated it.
        let handle = self.handle();
        let noted = handle.change(move |engine, now| {
            let (batch, _) = engine.post(vec![store_failure(since, &error, now)], now);
            ((), batch)
        });
        if let Err(error) = noted.await {
            tracing::warn!(%error, "cannot store the alert about the missing store");
        }
    }

    /// Waits until the engine stops by itself, which only a failure causes.
    pub async fn stopped(&self) {
        while !self.alerting.is_stopped() {
            time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Stops the engine. Messages in transit get a moment to complete.
    pub async fn shutdown(self) {
        let ended = takt_store::spawn_blocking(move || drop(self.alerting)).await;
        if let Err(error) = ended {
            tracing::error!(%error, "the alert engine failed to stop");
        }
    }
}

fn watch_config(config: &Config) -> WatchConfig {
    let interval = Duration::from_secs(config.alerts.heartbeat_seconds);

    let heartbeat = config
        .alerts
        .heartbeat_url
        .clone()
        .map(|url| Heartbeat { url, interval });
    WatchConfig {
        heartbeat,
        patience: Duration::from_secs(config.alerts.patience_seconds),
    }
}

/// Returns the key of the links in messages, the same for the life of the data directory.
///
/// # Errors
/// If the store fails, or the kernel has no random numbers.
pub fn link_key(store: &Store) -> anyhow::Result<String> {
    // The store keeps the first key. A fresh one is only used if it has none.
    let fresh = new_secret()?;
    Ok(Records::of(store.database()).secret("acknowledge_links", &fresh)?)
}

/// Returns the URL in messages: the configured one, else that of the listening address. A server
/// that listens on all addresses is named by this machine's name, which other machines know.
pub fn external_url(config: &Config, port: u16) -> String {
    if let Some(url) = config.public_url() {
        return url.trim_end_matches('/').to_owned();
    }
    let listening: Option<SocketAddr> = config.server.listen_address.parse().ok();
    // Port 0 asks for any free port, so the port is that of the listener and not of the configuration.
    match listening.map(|address| address.ip()) {
        Some(ip) if !ip.is_unspecified() => format!("http://{}", SocketAddr::new(ip, port)),
        _ => format!("http://{}:{port}", host_name()),
    }
}

/// Logs a warning if messages link to an address that only this machine can open.
pub fn warn_of_local_links(config: &Config, port: u16) {
    let url = external_url(config, port);

    let host = Url::parse(&url).ok();
    let host = host.as_ref().and_then(Url::host_str).unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_local = host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified());

    if is_local {
        tracing::warn!(
            url,
            "messages link to an address that other machines cannot open; set alerts.external_url \
             to the address that people use"
        );
    }
}

/// Name of this machine, as `hostname` prints it.
fn host_name() -> String {
    let name = system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name
    }
}

/// Names who posts and changes alerts.
async fn note_sender(By(viewer): By, mut request: Request, next: Next) -> Response {
    // Handlers of the API know no viewer, so the name of the caller and the note travel with the request.
    request.extensions_mut().insert(PostedBy(viewer.caller()));
    request.extensions_mut().insert(ActedBy {
        user: viewer.user().map(str::to_owned),
        note: Arc::clone(viewer.act()),
    });
    next.run(request).await
}

/// Returns the settings of messages, for a server that listens where `config` says.
pub fn settings(config: &Config) -> Settings {
    let address: Option<SocketAddr> = config.server.listen_address.parse().ok();
    settings_at(config, address.map_or(0, |address| address.port()))
}

fn settings_at(config: &Config, port: u16) -> Settings {
    let severity = &config.alerts.page_severity;
    let pages = Matcher::new("severity", MatchOp::Equal, severity)
        .ok()
        .filter(|_| !severity.is_empty());

    Settings {
        external_url: external_url(config, port),
        timezone: config.zone().iana_name().map(str::to_owned),
        pages: pages.map(|matcher| Matchers(vec![matcher])),
    }
}

fn server(config: &Config, cluster: &str, address: SocketAddr) -> Server {
    Server {
        external_labels: [("cluster", cluster)].into_iter().collect::<Labels>(),
        defaults: Defaults {
            interval: config.alerts.interval(),
            query_offset: Duration::ZERO,
        },
        settings: settings_at(config, address.port()),
        posted_max: config.alerts.posted_max,
    }
}

/// Subscribes to the events of every target, and follows changes of the targets.
pub async fn listen_to_all(scrape: Weak<ScrapeManager>, handle: Handle) {
    let mut listening: HashMap<String, EventSubscription> = HashMap::new();
    while let Some(scrape) = scrape.upgrade() {
        let targets = scrape.accessible().into_iter();
        let files = scrape.files();
        // The manager ends with the server, and this task must not keep it alive.
        drop(scrape);
        let targets: HashMap<Url, (Labels, TargetAccess)> = targets
            // Targets without `/metrics` at the end are other programs, which have no events.
            .filter_map(|(target, access)| {
                Some((events_url(&target.url)?, (target.labels, access)))
            })
            .collect();
        // A change of labels or access ends the subscription, and a new one begins below.
        listening.retain(|url, known| {
            Url::parse(url)
                .ok()
                .and_then(|url| targets.get(&url))
                .is_some_and(|(labels, access)| {
                    *labels == known.labels && access.is_same(&known.access)
                })
        });

        for (url, (labels, access)) in targets {
            listening.entry(url.to_string()).or_insert_with(|| {
                EventSubscription::start(url, labels, access, files.clone(), handle.clone())
            });
        }

        time::sleep(TARGETS_EVERY).await;
    }
}

/// A subscription to the events of one exporter. It ends when dropped.
struct EventSubscription {
    labels: Labels,
    access: TargetAccess,
    task: AbortHandle,
}

impl EventSubscription {
    fn start(
        url: Url,
        labels: Labels,
        access: TargetAccess,
        files: TargetFiles,
        handle: Handle,
    ) -> Self {
        let exporter = Exporter {
            url: url.to_string(),
            labels: labels.clone(),
        };
        let with = access.clone();

        // From the first request on, until the subscription ends.
        let file: Arc<OnceCell<StreamFile>> = Arc::default();
        let requests: RequestFactory = Box::new(move || {
            let access = with.clone();
            let url = url.clone();
            let files = files.clone();
            let file = Arc::clone(&file);
            Box::pin(async move {
                // A stream stays open for days, so it counts against the limit of open files.
                let taken = async || files.for_stream().await.ok_or(());
                let free = file.get_or_try_init(taken).await;
                free.map_err(|()| "no open file is free: raise LimitNOFILE= of takt.service")?;
                access.get(&url).await.map_err(|error| error_chain(&error))
            })
        });

        let task = tokio::spawn(listen(requests, exporter, EngineSink(handle))).abort_handle();
        Self {
            labels,
            access,
            task,
        }
    }
}

impl Drop for EventSubscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the URL of the events, which is next to the metrics page.
fn events_url(metrics: &str) -> Option<Url> {
    let mut url = Url::parse(metrics).ok()?;
    let beside = url.path().strip_suffix("/metrics")?.to_owned();
    // A query of the metrics page selects metrics, which events do not have.
    url.set_path(&format!("{beside}/events"));
    url.set_query(None);
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::tempdir;

    #[test]
    fn events_are_beside_the_metrics() {
        let url = |metrics| events_url(metrics).map(String::from);
        assert_eq!(
            url("http://g01:9855/metrics").as_deref(),
            Some("http://g01:9855/events")
        );
        assert_eq!(
            url("https://g01/x/metrics?a=b").as_deref(),
            Some("https://g01/x/events")
        );
        assert_eq!(url("http://g01:9855/page"), None);
    }

    #[test]
    fn the_short_form_is_a_configuration_and_reaches_every_channel() {
        let folder = tempdir().unwrap();

        for name in ["token", "webhook"] {
            fs::write(folder.path().join(name), "http://127.0.0.1:1/secret\n").unwrap();
        }

        let text = "
            [alerts]
            email_to = ['ann@lab.example', 'bob@lab.example']
            slack_channel = '#gpu'
            slack_token_file = 'token'
            slack_webhook_file = 'webhook'
            webhook_url = 'http://127.0.0.1:1/hook'
            ntfy_topic = 'lab'
            [email]
            server = 'mail.lab.example'
            from = 'takt@lab.example'";
        let config = Config::parse(text, &folder.path().join("takt.toml")).unwrap();

        let loaded = load(&config).unwrap();
        let of_job = [("severity", "info"), ("notify", "user"), ("user", "ada")]
            .into_iter()
            .collect::<Labels>();
        let receivers = |loaded: &Loaded| -> Vec<String> {
            loaded
                .routing
                .route_test(&of_job)
                .into_iter()
                .map(|to| to.receiver)
                .collect()
        };
        assert_eq!(
            receivers(&loaded),
            ["digest"],
            "where nobody's address is known"
        );

        let known = Config::parse(
            &format!("{text}\n[reports]\ndomain = 'lab.example'"),
            &folder.path().join("takt.toml"),
        );
        assert_eq!(
            receivers(&load(&known.unwrap()).unwrap()),
            ["owners", "nobody"]
        );

        let operators: Vec<_> = loaded
            .channels
            .names()
            .filter(|name| name.starts_with("operators/"))
            .collect();
        assert_eq!(
            operators,
            [
                "operators/email/0",
                "operators/email/1",
                "operators/ntfy/0",
                "operators/slack/0",
                "operators/slack/1",
                "operators/webhook/0"
            ]
        );

        let receivers = |severity: &str| {
            let labels = [("alertname", "X"), ("severity", severity)]
                .into_iter()
                .collect::<Labels>();
            loaded.routing.route_test(&labels)[0].receiver.clone()
        };
        assert_eq!(
            [
                receivers("critical"),
                receivers("warning"),
                receivers("none")
            ],
            ["operators", "operators", "nobody"]
        );
        assert!(!loaded.routing.inhibit_rules.is_empty());
    }

    #[test]
    fn a_mistake_in_the_short_form_names_no_line() {
        let config = Config::parse(
            "alerts.slack_webhook_file = '/nonexistent'",
            Path::new("takt.toml"),
        );
        let mistake = load(&config.unwrap()).err().unwrap().to_string();
        assert!(
            mistake.starts_with(
                "[alerts]: receiver `operators`, `api_url_file`: cannot read /nonexistent: "
            ),
            "{mistake}"
        );
    }

    #[test]
    fn five_lines_are_enough() {
        let folder = tempdir().unwrap();
        fs::write(
            folder.path().join("slack"),
            "https://hooks.slack.example/services/T/B/s",
        )
        .unwrap();
        let text = "alerts.slack_webhook_file = 'slack'\nalerts.email_to = ['ops@lab.example']\n[email]\n\
                    server = 'mail.lab.example'\nfrom = 'takt@lab.example'";
        assert_eq!(text.lines().count(), 5);
        let config = Config::parse(text, &folder.path().join("takt.toml")).unwrap();
        assert_eq!(load(&config).unwrap().channels.names().count(), 4);
    }
}
