//! A target with scripted responses, and a scraping store in a fresh directory.

use prometheus_client::registry::Registry;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use takt_collector::scrape::{
    ScrapeConfig, ScrapeManager, TargetConfig, TargetFiles, TargetHealth,
};
use takt_model::Matcher;
use takt_model::Timestamp;
use takt_store::{DataDir, Sample, SeriesData, Store, StoreConfig, StoreError, is_stale};

/// The response of a target to one request.
pub enum Answer {
    /// A page with this content type.
    Page(&'static str, String),
    /// These bytes, then the end of the connection.
    Raw(Vec<u8>),
    /// These bytes repeatedly, until the client closes the connection.
    Endless(Vec<u8>),
    /// No response.
    Silence,
}

pub const TEXT: &str = "text/plain; version=0.0.4";
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An HTTP server on loopback.
pub struct Target {
    pub address: SocketAddr,
}

impl Target {
    /// Starts a server. `answer` gets the request's head and its number, counted from 1.
    pub fn start(answer: impl Fn(&str, u64) -> Answer + Send + Sync + 'static) -> Self {
        // Port 0 lets the kernel choose a free port, so tests can run at the same time.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(answer);
        let count = Arc::new(AtomicU64::new(0));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = Arc::clone(&answer);
                let count = Arc::clone(&count);
                // One thread for each connection: `Silence` and `Endless` block theirs.
                thread::spawn(move || serve(stream, &*answer, &count));
            }
        });
        Self { address }
    }

    /// Starts a server with TLS as `takt.test`. Clients need a certificate of the tests' authority.
    pub fn start_tls(answer: impl Fn(&str, u64) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(answer);
        let count = Arc::new(AtomicU64::new(0));
        let config = Arc::new(tls_config());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = Arc::clone(&answer);
                let count = Arc::clone(&count);
                let config = Arc::clone(&config);
                thread::spawn(move || {
                    let session = ServerConnection::new(config).unwrap();
                    serve(StreamOwned::new(session, stream), &*answer, &count);
                });
            }
        });
        Self { address }
    }
}

/// Returns the path of a file in `tls/`.
pub fn tls_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/scrape/tls")
        .join(name)
}

fn tls_config() -> ServerConfig {
    let _ = ring::default_provider().install_default();
    let certificate = |name| CertificateDer::from_pem_file(tls_file(name)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.pem")).unwrap();

    let clients = WebPkiClientVerifier::builder(Arc::new(roots))
        .build()
        .unwrap();
    let key = PrivateKeyDer::from_pem_file(tls_file("server.key")).unwrap();
    let builder = ServerConfig::builder().with_client_cert_verifier(clients);
    builder
        .with_single_cert(vec![certificate("server.pem")], key)
        .unwrap()
}

fn serve(
    mut stream: impl Read + Write,
    answer: &(dyn Fn(&str, u64) -> Answer + Send + Sync),
    count: &AtomicU64,
) {
    while let Some(head) = read_head(&mut stream) {
        let sent = match answer(&head, count.fetch_add(1, Ordering::SeqCst) + 1) {
            Answer::Page(kind, page) => {
                let length = page.len();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
                );
                stream.write_all((head + &page).as_bytes())
            }
            // The error ends the connection, since raw bytes need not say where a response ends.
            Answer::Raw(bytes) => stream
                .write_all(&bytes)
                .and(Err(ErrorKind::ConnectionAborted.into())),
            Answer::Endless(bytes) => loop {
                if let Err(error) = stream.write_all(&bytes) {
                    break Err(error);
                }
            },
            Answer::Silence => {
                // Longer than every timeout of the tests, and short enough to end if a client forgets the connection.
                thread::sleep(Duration::from_secs(60));
                Err(ErrorKind::TimedOut.into())
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(length) => head.extend_from_slice(&buffer[..length]),
        }
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// A store with running scrapes, and their runtime.
pub struct Scraping {
    pub store: Arc<Store>,
    pub manager: ScrapeManager,
    pub registry: Registry,
    runtime: tokio::runtime::Runtime,
}

pub fn config(interval_ms: u64, targets: Vec<TargetConfig>) -> ScrapeConfig {
    let seconds = interval_ms as f64 / 1e3;
    // The timeout equals the interval, so that a slow machine fails as few scrapes as possible.
    ScrapeConfig {
        interval_seconds: seconds,
        timeout_seconds: Some(seconds),
        targets,
        ..ScrapeConfig::default()
    }
}

/// Returns the scrape configurations of a user's settings.
pub fn jobs(interval_ms: u64, jobs: serde_json::Value) -> ScrapeConfig {
    ScrapeConfig {
        configs: serde_json::from_value(jobs).unwrap(),
        ..config(interval_ms, Vec::new())
    }
}

pub fn target(address: SocketAddr, node: &str) -> TargetConfig {
    TargetConfig {
        address: address.to_string(),
        node: node.to_owned(),
        ..TargetConfig::default()
    }
}

pub fn open(directory: &Path, registry: &mut Registry) -> Store {
    let config = StoreConfig {
        // Short, so that tests that wait for durable samples are quick.
        commit_interval_ms: 100,
        // Machines that run tests may have less free space than a server needs.
        min_free_bytes: 0,
        ..StoreConfig::default()
    };
    Store::open(claim(directory), &config, registry).unwrap()
}

/// Claims a directory that this process may have closed a moment ago. While another test starts a
/// program, that program briefly holds every lock of this process.
fn claim(directory: &Path) -> DataDir {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match DataDir::claim(directory) {
            Err(StoreError::Held { .. }) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            claimed => return claimed.unwrap(),
        }
    }
}

impl Scraping {
    pub fn start(directory: &Path, config: ScrapeConfig) -> Self {
        // As `takt` does in main. Fails if another test came first.
        let _ = ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let mut registry = Registry::default();
        let store = Arc::new(open(directory, &mut registry));

        // The manager spawns its tasks when it starts, so it needs the runtime's context.
        let guard = runtime.enter();
        let manager = ScrapeManager::start(
            Arc::clone(&store),
            config,
            "lab",
            TargetFiles::default(),
            &mut registry,
        )
        .unwrap();
        drop(guard);
        Self {
            store,
            manager,
            registry,
            runtime,
        }
    }

    /// Switches to another configuration.
    pub fn reload(&self, config: &ScrapeConfig) {
        let _guard = self.runtime.enter();
        self.manager.reload(config).unwrap();
    }

    /// Stops the scrapes, commits, and returns the store.
    pub fn stop(self) -> Store {
        self.runtime.block_on(self.manager.shutdown());

        // The manager holds the store, which has to have one owner to be returned.
        drop(self.manager);
        drop(self.runtime);
        Arc::into_inner(self.store).unwrap()
    }

    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_so(self) {
            assert!(
                Instant::now() < deadline,
                "waited in vain until {what}: {:?}",
                self.manager.targets()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until every target has this health. Fails if the list of targets stays empty.
    pub fn wait_for_health(&self, health: TargetHealth) {
        self.wait_until(&format!("{health:?}"), |all| {
            let targets = all.manager.targets();
            !targets.is_empty() && targets.iter().all(|one| one.health == health)
        });
    }
}

pub fn now() -> Timestamp {
    SystemTime::now().into()
}

/// Returns all samples of a metric's series, with end markers as `None`.
pub fn values(store: &Store, metric: &str) -> Vec<(String, Vec<Option<f64>>)> {
    let found = store
        .range(&[Matcher::metric(metric)], Timestamp(0), now())
        .unwrap();
    let show = |sample: &Sample| Some(sample.value).filter(|&value| !is_stale(value));
    found
        .iter()
        .map(|series| {
            (
                series.labels.to_string(),
                series.samples.iter().map(show).collect(),
            )
        })
        .collect()
}

pub fn instant(store: &Store, metric: &str) -> Vec<SeriesData> {
    store
        .instant(&[Matcher::metric(metric)], now(), Duration::from_secs(300))
        .unwrap()
}
