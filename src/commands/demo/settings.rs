//! Configuration of the demo's server.

use anyhow::Context;
use std::env;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use takt_demo::{Demo, PROGRAMS, Size};

/// Addresses of the demo.
pub struct Settings {
    /// Address of the pages.
    pub listen_address: String,
    /// Exporters, Slurm and Slack.
    pub cluster: SocketAddr,
    /// The mail server.
    pub mail: SocketAddr,
}

impl Settings {
    /// Writes the configuration, Slurm's commands and the token for Slack.
    pub fn write(&self, demo: &Demo, folder: &Path, config_file: &Path) -> anyhow::Result<()> {
        let url = format!("http://{}", self.cluster);
        fs::write(folder.join("slack-token"), "xoxb-demo-token-0000\n")?;
        let token = folder.join("slack-token");
        // The server refuses a secret that others can read.
        fs::set_permissions(token, fs::Permissions::from_mode(0o600))?;
        let takt = env::current_exe().context("cannot find the takt program")?;
        // The path stands in single quotes in a shell script.
        let takt = takt.to_string_lossy().replace('\'', r"'\''");
        for program in PROGRAMS {
            let path = folder.join("slurm").join(program);
            let script = format!("#!/bin/sh\nexec '{takt}' slurm-of-demo {url} {program} \"$@\"\n");
            fs::write(&path, script)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        let text = self.config(demo);
        fs::write(config_file, text)
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
        // Large clusters are scraped less often, so that the demo fits a laptop.
        let (interval, gap) = match demo.cluster.size {
            Size::Three => (5, 700),
            Size::Thirty => (10, 1300),
            Size::ThreeHundred => (15, 7300),
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
