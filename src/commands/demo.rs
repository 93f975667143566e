//! `takt demo`: the whole of Takt with a simulated cluster.

use super::{one_thread, refuse_server};
use crate::cli::{Demo as DemoArgs, DemoSlurm, Place};
use crate::output::stdout;
use anyhow::Context;
use jiff::Timestamp as Now;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Instant;
use takt_access::Viewer;
use takt_demo::{Cluster, Demo, HistorySink, MailFolder, PROGRAMS, Ports, Size, Stop};
use takt_model::{Labels, Timestamp};
use takt_server::answers::{self, AnswerConfig, AssessQuestion, Question};
use takt_server::config::Config;
use takt_server::serve as server;
use takt_server::{Failure, OrUsage};
use takt_store::{STALE, Sample, SeriesId, Store};
use tokio::sync::watch;

/// Default address of the pages.
const ADDRESS: &str = "127.0.0.1:9856";

/// Number of past samples that are written together.
const BATCH: usize = 500_000;

/// Number of past samples that are sealed together.
const SEALED_TOGETHER: usize = 4_000_000;

/// Runs the command.
pub fn run(place: &Place, asked: &DemoArgs) -> Result<(), Failure> {
    refuse_server(place, "demo")?;
    let began = Instant::now();
    let folder = Folder::new(asked.keep.as_deref())?;
    let size = Size::of(asked.nodes)
        .context("--nodes: expected 3, 30 or 300")
        .usage()?;
    let now = Now::now().as_second();
    let demo = Arc::new(Demo::new(Cluster::new(size), now));
    let http = listener()?;
    let smtp = listener()?;
    let settings = Settings {
        listen_address: listen_address(asked),
        cluster: http.local_addr()?,
        mail: smtp.local_addr()?,
    };
    let config_file = folder.path().join("takt.toml");
    settings.write(&demo, folder.path(), &config_file)?;
    let source: server::Source = Arc::new(move || {
        let text = std::fs::read_to_string(&config_file)
            .with_context(|| format!("cannot read {}", config_file.display()))?;
        Config::parse(&text, &config_file)
    });
    let config = source().usage()?;
    let mails = MailFolder::new(&folder.path().join("mail"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let shutdown = server::signals().context("cannot listen for signals")?;
        let ports = Ports {
            http: tokio::net::TcpListener::from_std(http)?,
            smtp: tokio::net::TcpListener::from_std(smtp)?,
        };
        let cluster = tokio::spawn(takt_demo::serve(Arc::clone(&demo), ports, mails));
        let mut filling = None;
        let data = folder.path().join("data");
        let served = server::run(source, &data, shutdown.clone(), super::PARTS, |ready| {
            welcome(&demo, ready.address, &settings, folder.path());
            let history = History {
                demo: Arc::clone(&demo),
                now,
                store: Arc::downgrade(ready.store),
                stop: shutdown,
            };
            let config = AnswerConfig::of(&config);
            filling = Some(std::thread::spawn(move || history.fill(&config, began)));
        })
        .await;
        cluster.abort();
        if let Some(filling) = filling {
            // A panic was printed when it happened.
            let _ = filling.join();
        }
        served
    });
    folder.end();
    served
}

/// Returns a socket on a free port.
fn listener() -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on 127.0.0.1")?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns the address of the pages: the usual one, or a free port if another server has it.
fn listen_address(asked: &DemoArgs) -> String {
    let usual = || match TcpListener::bind(ADDRESS) {
        Ok(_) => ADDRESS.to_owned(),
        Err(_) => "127.0.0.1:0".to_owned(),
    };
    asked.listen_address.clone().unwrap_or_else(usual)
}

/// Folder of the demo.
enum Folder {
    Temporary(tempfile::TempDir),
    Kept(PathBuf),
}

impl Folder {
    fn new(keep: Option<&Path>) -> Result<Self, Failure> {
        let folder = match keep {
            Some(path) => {
                std::fs::create_dir(path)
                    .with_context(|| format!("--keep: cannot create {}", path.display()))
                    .usage()?;
                Self::Kept(std::path::absolute(path)?)
            }
            None => Self::Temporary(
                tempfile::Builder::new()
                    .prefix("takt-demo-")
                    .tempdir()
                    .context("cannot create a temporary directory")?,
            ),
        };
        for name in ["mail", "slurm"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        Ok(folder)
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(path) => path,
        }
    }

    fn end(self) {
        if let Self::Temporary(folder) = self
            && let Err(error) = folder.close()
        {
            tracing::warn!(%error, "cannot delete the data of the demo");
        }
    }
}

/// Addresses of the demo.
struct Settings {
    listen_address: String,
    /// Exporters, Slurm and Slack.
    cluster: SocketAddr,
    mail: SocketAddr,
}

impl Settings {
    /// Writes the configuration, Slurm's commands and the token for Slack.
    fn write(&self, demo: &Demo, folder: &Path, config_file: &Path) -> anyhow::Result<()> {
        let url = format!("http://{}", self.cluster);
        std::fs::write(folder.join("slack-token"), "xoxb-demo-token-0000\n")?;
        let token = folder.join("slack-token");
        std::fs::set_permissions(token, std::fs::Permissions::from_mode(0o600))?;
        let takt = std::env::current_exe().context("cannot find the takt program")?;
        let takt = takt.to_string_lossy().replace('\'', r"'\''");
        for program in PROGRAMS {
            let path = folder.join("slurm").join(program);
            let script = format!("#!/bin/sh\nexec '{takt}' demo-slurm {url} {program} \"$@\"\n");
            std::fs::write(&path, script)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        }
        let text = self.config(demo);
        std::fs::write(config_file, text)
            .with_context(|| format!("cannot write {}", config_file.display()))
    }

    fn config(&self, demo: &Demo) -> String {
        let Self {
            listen_address,
            cluster,
            mail,
        } = self;
        let targets: Vec<String> = demo
            .cluster
            .nodes
            .iter()
            .map(|node| format!("\"{}:9855\"", node.name))
            .collect();
        let targets = targets.join(", ");
        let (interval, gap) = match demo.cluster.size {
            Size::Three => (5, 700),
            Size::Thirty => (10, 1300),
            Size::ThreeHundred => (15, 3700),
        };
        let name = demo.cluster.name;
        format!(
            r##"# Configuration of `takt demo`.
cluster = "{name}"
data_dir = "data"

[server]
listen_address = "{listen_address}"

# One process answers for all nodes, so that the address differs from the label `instance`.
[[scrape.configs]]
job_name = "node"
scrape_interval = "{interval}s"
scrape_timeout = "4s"
static_configs = [{{ targets = [{targets}] }}]
relabel_configs = [
    {{ source_labels = ["__address__"], target_label = "instance" }},
    {{ source_labels = ["__address__"], regex = "(.*):9855", target_label = "node" }},
    {{ source_labels = ["node"], target_label = "__metrics_path__", replacement = "/$1/metrics" }},
    {{ target_label = "__address__", replacement = "{cluster}" }},
]

[store]
retention_days = 60
min_free_bytes = 67108864

# The commands in this folder answer for the simulated Slurm.
[jobs]
slurm_bin = "slurm"
interval_seconds = 15
history_days = 36

# The readings of past weeks are several minutes apart.
[efficiency]
max_gap_seconds = {gap}

[alerts]
interval_seconds = 5
slack_channel = "#gpu-alerts"
slack_token_file = "slack-token"
slack_api_url = "http://{cluster}/slack/api"
email_to = ["ops@demo.example"]

[email]
server = "{mail}"
tls = "none"
from = "Takt <takt@demo.example>"

[reports]
domain = "demo.example"
"##
        )
    }
}

fn welcome(demo: &Demo, address: SocketAddr, settings: &Settings, folder: &Path) {
    let Settings { cluster, .. } = settings;
    let _ = writeln!(
        stdout(),
        "\nTakt with a simulated cluster: {} nodes, {} GPUs, {} users.\n\n\
         \x20 Web pages     http://{address}/\n\
         \x20 Slack         http://{cluster}/slack\n\
         \x20 Mail          http://{cluster}/mail\n\
         \x20 An exporter   http://{cluster}/{}/metrics\n\
         \x20 Commands      export TAKT_CONFIG={}\n",
        demo.cluster.nodes.len(),
        demo.cluster.gpus(),
        demo.cluster.users.len(),
        demo.cluster.nodes[0].name,
        folder.join("takt.toml").display(),
    );
}

fn print_tour(stops: &[Stop]) {
    let _ = writeln!(stdout(), "\nWorth a look:");
    for stop in stops {
        let _ = writeln!(stdout(), "  {}\n      {}", stop.text, stop.look);
    }
    let _ = writeln!(stdout(), "\nPress Ctrl-C to stop.\n");
}

/// Writes the history of the demo into the store of the running server.
struct History {
    demo: Arc<Demo>,
    now: i64,
    store: Weak<Store>,
    stop: watch::Receiver<bool>,
}

impl History {
    fn fill(&self, config: &AnswerConfig, began: Instant) {
        let (sender, receiver) = sync_channel::<Vec<(SeriesId, Sample)>>(1);
        let spans = takt_demo::spans(self.demo.cluster.size, self.now);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut unsealed = 0;
                for batch in receiver {
                    let Some(store) = self.store.upgrade() else {
                        return;
                    };
                    unsealed += batch.len();
                    if let Err(error) = store.write_past(batch) {
                        tracing::error!(%error, "cannot write the history");
                    }
                    // Unsealed samples are in memory.
                    if unsealed >= SEALED_TOGETHER {
                        unsealed = 0;
                        if let Err(error) = store.seal() {
                            tracing::error!(%error, "cannot seal the history");
                        }
                    }
                }
            });
            let mut samples = PastSamples {
                store: &self.store,
                sender: Some(sender),
                batch: Vec::new(),
            };
            for span in spans {
                for node in 0..self.demo.cluster.nodes.len() {
                    if *self.stop.borrow() {
                        return;
                    }
                    takt_demo::history(&self.demo, node, span, &mut samples);
                }
                samples.send();
            }
        });
        if *self.stop.borrow() {
            return;
        }
        if let Err(error) = self.finish(config) {
            tracing::error!(error = format!("{error:#}"), "the history is incomplete");
        }
        let seconds = began.elapsed().as_secs_f64();
        let _ = writeln!(
            stdout(),
            "Five weeks of history are complete ({seconds:.0} s after the start)."
        );
        print_tour(&takt_demo::tour(&self.demo, self.now));
    }

    /// Computes what a server that had run for weeks would have computed.
    fn finish(&self, config: &AnswerConfig) -> anyhow::Result<()> {
        let Some(store) = self.store.upgrade() else {
            return Ok(());
        };
        store.seal()?;
        let date = |at: i64| -> anyhow::Result<String> {
            Ok(Now::from_second(at)?.strftime("%Y-%m-%d").to_string())
        };
        let question = AssessQuestion {
            from: Some(date(self.now - 36 * 86_400)?),
            to: Some(date(self.now + 86_400)?),
            again: true,
            cluster: Some(self.demo.cluster.name.to_owned()),
            ..AssessQuestion::default()
        };
        question.answer(&Viewer::server(), &store, config)?;
        let name = self.demo.cluster.name;
        Ok(answers::note_fairshare(store.database(), name, 3600)?)
    }
}

/// Collects past samples into batches.
struct PastSamples<'s> {
    store: &'s Weak<Store>,
    sender: Option<SyncSender<Vec<(SeriesId, Sample)>>>,
    batch: Vec<(SeriesId, Sample)>,
}

impl PastSamples<'_> {
    fn send(&mut self) {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        if let Some(sender) = &self.sender
            && sender.send(batch).is_err()
        {
            // The server has ended.
            self.sender = None;
        }
    }
}

impl HistorySink for PastSamples<'_> {
    type Series = Option<SeriesId>;

    fn series(&mut self, labels: &Labels) -> Option<SeriesId> {
        self.store
            .upgrade()
            .map(|store| store.series_number(labels))
    }

    fn sample(&mut self, series: Option<SeriesId>, at: Timestamp, value: Option<f64>) {
        let value = value.unwrap_or(STALE);
        self.batch
            .extend(series.map(|series| (series, Sample { at, value })));
        if self.batch.len() >= BATCH {
            self.send();
        }
    }
}

/// Answers as one of Slurm's commands of the demo.
pub fn slurm_program(asked: &DemoSlurm) -> Result<(), Failure> {
    let url = format!("{}/slurm/{}", asked.url, asked.program);
    let text = one_thread()?.block_on(async {
        let http = reqwest::Client::builder().no_proxy().build()?;
        let response = http.post(url).body(asked.args.join("\n")).send().await;
        let response = response.context("the demo has ended")?;
        let is_success = response.status().is_success();
        let text = response.text().await?;
        if is_success {
            Ok(text)
        } else {
            Err(anyhow::anyhow!(text))
        }
    })?;
    Ok(stdout().write_all(text.as_bytes())?)
}
