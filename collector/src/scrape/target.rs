//! One target: where its page is and which labels its series get.

use super::config::TargetConfig;
use crate::ConfigError;
use reqwest::Url;
use takt_model::Labels;

/// The labels that say where a series comes from.
const CLUSTER: &str = "cluster";
const NODE: &str = "node";
const JOB: &str = "job";
const INSTANCE: &str = "instance";

/// A target, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub url: Url,
    /// The labels that every series of the target gets.
    pub labels: Labels,
}

impl Target {
    /// `index` is the target's place in the list, for the messages.
    pub fn new(config: &TargetConfig, cluster: &str, index: usize) -> Result<Self, ConfigError> {
        let key = |name: &str| format!("targets[{index}].{name}");
        let url = match (config.address.as_str(), config.url.as_str()) {
            ("", "") => return Err(ConfigError::new(key("address"), "host:port", "nothing")),
            (address, "") => {
                url_of_address(address).ok_or_else(|| ConfigError::new(key("address"), "host:port", address))?
            }
            ("", url) => Url::parse(url)
                .ok()
                .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
                .ok_or_else(|| ConfigError::new(key("url"), "an http or https address", url))?,
            _ => return Err(ConfigError::new(format!("targets[{index}]"), "address or url", "both")),
        };
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        let mut labels = Labels::new();
        for (name, value) in &config.labels {
            if [CLUSTER, NODE, JOB, INSTANCE].contains(&name.as_str()) {
                return Err(ConfigError::new(key("labels"), "a label that takt does not set itself", name));
            }
            if !is_label_name(name) {
                return Err(ConfigError::new(key("labels"), "a label name", name));
            }
            labels.set(name, value);
        }
        labels.set(CLUSTER, cluster);
        labels.set(JOB, &config.job);
        labels.set(INSTANCE, &format!("{host}:{port}"));
        labels.set(
            NODE,
            match config.node.as_str() {
                "" => host.trim_start_matches('[').trim_end_matches(']'),
                node => node,
            },
        );
        Ok(Self { url, labels })
    }

    /// The labels under which a scraped series is stored. Where it has a label that the target sets, it keeps its own
    /// as `exported_…`: nothing that a page says can make its series look like another node's.
    pub fn series_labels(&self, scraped: Labels) -> Labels {
        let mut labels = scraped;
        for (name, value) in self.labels.iter() {
            if let Some(own) = labels.remove(name) {
                let mut renamed = format!("exported_{name}");
                while labels.get(&renamed).is_some() || self.labels.get(&renamed).is_some() {
                    renamed.insert_str(0, "exported_");
                }
                labels.set(&renamed, &own);
            }
            labels.set(name, value);
        }
        labels
    }
}

fn url_of_address(address: &str) -> Option<Url> {
    let (host, port) = address.rsplit_once(':')?;
    port.parse::<u16>().ok().filter(|&port| port > 0)?;
    let url = Url::parse(&format!("http://{address}/metrics")).ok()?;
    // What is more than a host and a port would show up elsewhere in the address.
    let is_plain = url.host_str().is_some_and(|parsed| parsed.eq_ignore_ascii_case(host));
    is_plain.then_some(url)
}

fn is_label_name(name: &str) -> bool {
    !name.starts_with("__")
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(address: &str) -> Target {
        let config = TargetConfig { address: address.to_owned(), ..TargetConfig::default() };
        Target::new(&config, "lab", 0).unwrap()
    }

    #[test]
    fn the_node_is_the_host_unless_it_is_named() {
        let g01 = target("g01:9855");
        assert_eq!(g01.url.as_str(), "http://g01:9855/metrics");
        assert_eq!(g01.labels.to_string(), r#"{cluster="lab", instance="g01:9855", job="node", node="g01"}"#);
        assert_eq!(target("[::1]:80").labels.get(NODE), Some("::1"));
        assert_eq!(target("[::1]:80").labels.get(INSTANCE), Some("[::1]:80"));
        let named = TargetConfig {
            url: "https://bmc.example/p?x=1".to_owned(),
            node: "g02".to_owned(),
            job: "bmc".to_owned(),
            labels: [("rack".to_owned(), "a".to_owned())].into(),
            ..TargetConfig::default()
        };
        assert_eq!(
            Target::new(&named, "lab", 0).unwrap().labels.to_string(),
            r#"{cluster="lab", instance="bmc.example:443", job="bmc", node="g02", rack="a"}"#
        );
    }

    #[test]
    fn a_page_cannot_pass_for_another_node() {
        let scraped = [("__name__", "up"), ("node", "g02"), ("exported_node", "g03"), ("x", "1")].into_iter().collect();
        assert_eq!(
            target("g01:1").series_labels(scraped).to_string(),
            r#"up{cluster="lab", exported_exported_node="g02", exported_node="g03", instance="g01:1", job="node", node="g01", x="1"}"#
        );
    }
}
