//! The nodes of a Slurm cluster as targets: `slurm_sd_configs`.
//!
//! Takt runs `scontrol show nodes` on the machine of the server. A node that is down or drained
//! keeps its target, so that Takt reports that the node does not answer.

use super::super::units::PromDuration;
use super::{ADDRESS, Listener};
use crate::schedulers::{PollError, ask_slurm};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use takt_model::Labels;

/// Every node of the Slurm that this machine belongs to, by `scontrol show nodes`. The label `node`
/// is the NodeName.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SlurmSdConfig {
    /// Port of the exporter on every node.
    pub port: u16,
    /// Interval between two reads of the node list.
    pub refresh_interval: PromDuration,
    /// Directory of `scontrol`. Default: PATH.
    pub slurm_bin: Option<PathBuf>,
}

impl Default for SlurmSdConfig {
    fn default() -> Self {
        Self {
            port: 9855,
            refresh_interval: PromDuration(Duration::from_secs(60)),
            slurm_bin: None,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct SlurmSd(SlurmSdConfig);

impl SlurmSd {
    pub fn new(config: &SlurmSdConfig) -> Self {
        Self(config.clone())
    }

    pub async fn run(self, to: Listener) {
        loop {
            let read = self.ask().await;
            if to.send("slurm_sd_configs", read).await.is_err() {
                return;
            }
            tokio::time::sleep(self.0.refresh_interval.0).await;
        }
    }

    async fn ask(&self) -> Result<Vec<Labels>, PollError> {
        let answer = ask_slurm(
            self.0.slurm_bin.as_deref(),
            "scontrol",
            ["--oneliner", "show", "nodes"],
        )
        .await?;

        Ok(nodes(&String::from_utf8_lossy(&answer), self.0.port))
    }
}

/// Fields of a node that become labels.
const FIELDS: [(&str, &str); 6] = [
    ("NodeHostName", "__meta_slurm_node_hostname"),
    ("State", "__meta_slurm_node_state"),
    ("Partitions", "__meta_slurm_node_partitions"),
    ("Gres", "__meta_slurm_node_gres"),
    ("AvailableFeatures", "__meta_slurm_node_features"),
    ("Arch", "__meta_slurm_node_arch"),
];

/// Reads one node per line, `NodeName=… Key=Value …`. Values may contain spaces (`OS`, `Reason`),
/// but not those of the fields read here, which come before the texts that operators write.
fn nodes(text: &str, port: u16) -> Vec<Labels> {
    let field = |line: &str, key: &str| {
        line.split(' ')
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
    };
    let node = |line: &str| {
        // A text of an operator may have line breaks. Only a line that begins a record is a node.
        let name = field(line, "NodeName").filter(|_| line.starts_with("NodeName="))?;
        let address = field(line, "NodeAddr").unwrap_or_else(|| name.clone());

        let mut labels = Labels::new();
        for (key, label) in FIELDS {
            // `(null)` is Slurm's word for an empty value.
            let value = field(line, key).filter(|value| value != "(null)");
            labels.set(label, value.as_deref().unwrap_or_default());
        }
        labels.set("__meta_slurm_node_name", &name);

        labels.set("node", &name);

        // Only IPv6 addresses have colons, and a port needs brackets around them.
        let is_v6 = address.contains(':');
        labels.set(
            ADDRESS,
            &if is_v6 {
                format!("[{address}]:{port}")
            } else {
                format!("{address}:{port}")
            },
        );
        Some(labels)
    };

    text.lines().filter_map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_a_line() {
        // The reason of g01 imitates a state and a second node.
        let text = "NodeName=g01 Arch=x86_64 CoresPerSocket=8 CPUAlloc=0 AvailableFeatures=a100,nvlink \
                    ActiveFeatures=a100 Gres=gpu:a100:4(S:0-1) NodeAddr=10.0.0.1 NodeHostName=gpu01 Version=22.05.8 \
                    OS=Linux 6.1.0 #1 SMP State=IDLE+DRAIN Partitions=gpu,debug Reason=bad NIC State=x [root@t]\n\
                    its NodeName=g66 NodeAddr=10.6.6.6\n\
                    NodeName=g02 NodeAddr=fd00::2 AvailableFeatures=(null) State=DOWN\n\nNo nodes in the system\n";
        let found: Vec<String> = nodes(text, 9855).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                r#"{__address__="10.0.0.1:9855", __meta_slurm_node_arch="x86_64", __meta_slurm_node_features="a100,nvlink", __meta_slurm_node_gres="gpu:a100:4(S:0-1)", __meta_slurm_node_hostname="gpu01", __meta_slurm_node_name="g01", __meta_slurm_node_partitions="gpu,debug", __meta_slurm_node_state="IDLE+DRAIN", node="g01"}"#,
                r#"{__address__="[fd00::2]:9855", __meta_slurm_node_name="g02", __meta_slurm_node_state="DOWN", node="g02"}"#,
            ]
        );
    }
}
