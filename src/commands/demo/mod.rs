//! `takt demo`: the whole of Takt with a simulated cluster.

mod history;
mod settings;

use super::{one_thread, refuse_server};
use crate::cli::Place;
use crate::output::stdout;
use anyhow::Context;
use clap::Args;
use history::History;
use jiff::Timestamp as Now;
use settings::Settings;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Instant, SystemTime};
use takt_access::Viewer;
use takt_demo::{Cluster, Demo, MailFolder, Ports, Size, Stop};
use takt_model::UnixTime;
use takt_questions::{Question, TokenOrder};
use takt_server::config::{Config, CurrentConfig};
use takt_server::serve::{self as server, Ready};
use takt_server::{Failure, OrUsage};
use tempfile::TempDir;

#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Number of simulated nodes: 3, 30 or 300
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = demo_nodes)]
    pub nodes: u32,
    /// Address of the web pages and the API [default: 127.0.0.1:9856, or a free port]
    #[arg(long, value_name = "ADDRESS")]
    pub listen_address: Option<String>,
    /// Also print a link that shows the pages as this user of the simulated cluster sees them
    #[arg(long = "as", value_name = "USER")]
    pub as_user: Option<String>,
    /// Speed of jobs and faults after the start: with 10, an hour passes in 6 minutes
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=30))]
    pub speed: u8,
    /// Keep the data in this new directory; without it they are deleted at the end
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

fn demo_nodes(text: &str) -> Result<u32, String> {
    let nodes = text.parse().ok();
    nodes
        .filter(|nodes| Size::of(*nodes).is_some())
        .ok_or_else(|| "expected 3, 30 or 300".to_owned())
}

#[derive(Debug, Clone, Args)]
pub struct DemoSlurm {
    /// URL of the simulated cluster
    pub url: String,
    /// The command of Slurm
    pub program: String,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<String>,
}

/// Default address of the pages.
const ADDRESS: &str = "127.0.0.1:9856";

/// Runs the command.
pub fn run(place: &Place, asked: &DemoArgs) -> Result<(), Failure> {
    refuse_server(place, "demo")?;

    let began = Instant::now();
    let size = Size::of(asked.nodes)
        .context("--nodes: expected 3, 30 or 300")
        .usage()?;

    let cluster = Cluster::new(size);
    if let Some(user) = &asked.as_user {
        check_user(&cluster, user).usage()?;
    }

    let folder = Folder::new(asked.keep.as_deref())?;
    let now = UnixTime::from(Now::now());
    let demo = Arc::new(Demo::new(cluster, now, asked.speed));

    // The ports are open before the configuration is written, which names them.
    let http = listener()?;
    let smtp = listener()?;
    let settings = Settings {
        listen_address: listen_address(asked),
        cluster: http.local_addr()?,
        mail: smtp.local_addr()?,
    };

    let config_file = folder.path().join("takt.toml");
    settings.write(&demo, folder.path(), &config_file)?;

    // Read again at each reload, as a user of the demo may edit the file.
    let source: server::Source = Arc::new(move || {
        let text = fs::read_to_string(&config_file)
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
            if let Some(user) = &asked.as_user
                && let Err(error) = welcome_user(ready, user, &config, folder.path())
            {
                tracing::error!(error = format!("{error:#}"), "cannot sign in {user}");
            }

            let history = History {
                demo: Arc::clone(&demo),
                now,
                store: Arc::downgrade(ready.store),
                stop: shutdown,
                rules: config.efficiency.clone(),
            };
            let pages = ready.address;
            filling = Some(thread::spawn(move || {
                if history.fill(began) {
                    print_tour(&takt_demo::tour(&history.demo, now), pages);
                }
            }));
        })
        .await;

        // The cluster serves until the server has ended, or its last scrapes would look like
        // faults.
        cluster.abort();
        if let Some(filling) = filling {
            // A panic was printed when it happened.
            let _ = filling.join();
        }
        served
    });

    // After the threads, which write into it.
    folder.end();
    served
}

/// Refuses a user who is not in the simulated cluster.
fn check_user(cluster: &Cluster, user: &str) -> anyhow::Result<()> {
    let names: Vec<&str> = cluster.users.iter().map(|user| user.name).collect();
    anyhow::ensure!(
        cluster.user(user).is_some(),
        "--as: the simulated cluster has no user {user:?}; its users are {}",
        names.join(", ")
    );
    Ok(())
}

/// Returns a socket on a free port.
fn listener() -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on 127.0.0.1")?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns the address of the pages: the usual one, or a free port if another server has it.
fn listen_address(asked: &DemoArgs) -> String {
    asked
        .listen_address
        .clone()
        .unwrap_or_else(|| match TcpListener::bind(ADDRESS) {
            // The socket is closed again at once; the server opens its own.
            Ok(_) => ADDRESS.to_owned(),
            Err(_) => "127.0.0.1:0".to_owned(),
        })
}

/// Folder of the demo.
enum Folder {
    Temporary(TempDir),
    Kept(PathBuf),
}

impl Folder {
    fn new(keep: Option<&Path>) -> Result<Self, Failure> {
        let folder = match keep {
            Some(path) => {
                // An existing folder is refused: it may hold data.
                fs::create_dir(path)
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
            fs::create_dir(folder.path().join(name))?;
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

/// Prints how to see the pages and how to ask as a user of the simulated cluster.
fn welcome_user(
    ready: &Ready<'_>,
    user: &str,
    config: &Config,
    folder: &Path,
) -> anyhow::Result<()> {
    let link = ready
        .access
        .sign_in_link(user)?
        .context("too many links are open")?;

    let order = TokenOrder {
        name: Some("demo".to_owned()),
        owner: Some(user.to_owned()),
        ..TokenOrder::default()
    };
    let database = ready.store.database();
    let answer = order.answer(
        &Viewer::server(),
        database,
        &CurrentConfig::new(config.clone(), SystemTime::now()).answer_config(),
    )?;

    let file = folder.join(format!("{user}-token"));
    fs::write(&file, answer.token.unwrap_or_default())?;
    // The server takes the holder of this token for the user, and /tmp is shared.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;

    let minutes = link.seconds / 60;
    let address = ready.address;
    let file = file.display();
    let mut out = stdout();

    writeln!(out, "As {user}:\n")?;
    writeln!(
        out,
        "  Web pages     {} (open it within {minutes} minutes)",
        link.url
    )?;
    writeln!(
        out,
        "  Commands      export TAKT_SERVER=http://{address} TAKT_TOKEN_FILE={file}\n"
    )?;
    Ok(())
}

fn print_tour(stops: &[Stop], pages: SocketAddr) {
    let _ = writeln!(stdout(), "\nWorth a look:");
    for Stop {
        text,
        command,
        page,
    } in stops
    {
        let _ = writeln!(
            stdout(),
            "  {text}\n      {command:<30} http://{pages}{page}"
        );
    }
    let _ = writeln!(stdout(), "\nPress Ctrl-C to stop.\n");
}

/// Answers as one of Slurm's commands of the demo.
pub fn slurm_program(asked: &DemoSlurm) -> Result<(), Failure> {
    let url = format!("{}/slurm/{}", asked.url, asked.program);
    let text = one_thread()?.block_on(async {
        let response = reqwest::Client::builder()
            .no_proxy()
            .build()?
            .post(url)
            // One argument a line; the demo's Slurm is never called with line breaks.
            .body(asked.args.join("\n"))
            .send()
            .await
            .context("the demo has ended")?;
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
