//! Flags of the web server. Each collector declares its own flags.

use clap::Args;
use std::path::PathBuf;

/// Flags of the web server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Web")]
pub struct WebOptions {
    /// Address to listen on, HOST:PORT; without a host on all addresses. May be repeated.
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = ":9855", value_parser = address)]
    pub listen_address: Vec<String>,
    /// Maximum number of simultaneous scrapes; further ones get 503. 0 means no limit.
    #[arg(long = "web.max-requests", value_name = "COUNT", default_value_t = 40)]
    pub max_requests: usize,
    /// Path of the metrics page.
    #[arg(long = "web.telemetry-path", value_name = "PATH", default_value = "/metrics", value_parser = path)]
    pub telemetry_path: String,
    /// Use the sockets passed by systemd instead of --web.listen-address.
    #[arg(long = "web.systemd-socket")]
    pub systemd_socket: bool,
    /// Leave out the metrics of the exporter's own process (process_*).
    #[arg(long = "web.disable-exporter-metrics")]
    pub disable_exporter_metrics: bool,
    /// Flag of node_exporter, accepted without effect: one thread answers.
    #[arg(long = "runtime.gomaxprocs", value_name = "COUNT", hide = true)]
    pub gomaxprocs: Option<usize>,
    /// TLS, passwords and headers, in the format of Prometheus' exporter-toolkit. Reloaded when it
    /// changes.
    #[arg(long = "web.config.file", value_name = "PATH")]
    pub config_file: Option<PathBuf>,
}

/// Parses the path of the metrics page; other pages have paths of their own.
fn path(text: &str) -> Result<String, String> {
    const TAKEN: [&str; 2] = ["/events", "/-/healthy"];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    if text.starts_with('/') && text.chars().all(is_plain) && !TAKEN.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err("expected a path such as /metrics, and not one of another page".to_owned())
    }
}

/// Parses `HOST:PORT`, or `:PORT`.
fn address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':').map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err("expected HOST:PORT, such as 127.0.0.1:9855 or :9855".to_owned()),
    }
}
