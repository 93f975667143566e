//! One target: its URL and the labels of its series.

use super::config::TargetConfig;
use super::discovery::ADDRESS;
use super::job::Job;
use super::units::PromDuration;
use reqwest::Url;
use std::time::Duration;
use takt_model::ConfigError;
use takt_model::Labels;
use takt_model::shown::{refuse_user, shown_address};

/// Label with the cluster of a series.
const CLUSTER: &str = "cluster";
const NODE: &str = "node";
const JOB: &str = "job";
const INSTANCE: &str = "instance";

/// Labels that control the scrape. They are removed afterwards, as are all labels that begin with
/// `__`.
const SCHEME: &str = "__scheme__";
const METRICS_PATH: &str = "__metrics_path__";
const INTERVAL: &str = "__scrape_interval__";
const TIMEOUT: &str = "__scrape_timeout__";
const PARAM: &str = "__param_";

/// The form of a discovered target's address. Without a port, that of the scheme is used, as in Prometheus.
const ADDRESS_FORM: &str =
    "host:port with a port from 1 to 65535, or a host alone for port 80 (http) or 443 (https)";

/// A checked target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub url: Url,
    /// Labels that every series of the target gets.
    pub labels: Labels,
    /// Number of labels that Takt added itself (`cluster` and `node`): `label_limit` does not count
    /// them.
    pub added_labels: usize,
    /// Labels before relabelling.
    pub discovered: Labels,
    pub interval: Duration,
    pub timeout: Duration,
}

/// The reason why relabelling left an invalid target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{label}: expected {expected}, found {found:?}")]
pub(super) struct TargetError {
    label: &'static str,
    expected: &'static str,
    found: String,
}

impl Target {
    /// Creates a target of `[[scrape.targets]]`. `index` is its position in the list, for messages.
    pub fn listed(
        config: &TargetConfig,
        job: &Job,
        cluster: &str,
        index: usize,
    ) -> Result<Self, ConfigError> {
        let key = |name: &str| format!("targets[{index}].{name}");

        let url = match (config.address.as_str(), config.url.as_str()) {
            ("", "") => return Err(ConfigError::new(key("address"), "host:port", "nothing")),
            (address, "") => url_of_address(address).ok_or_else(|| {
                ConfigError::new(key("address"), "host:port", shown_address(address))
            })?,
            ("", url) => {
                refuse_user(
                    &key("url"),
                    url,
                    "use [[scrape.configs]] with basic_auth instead",
                )?;
                Url::parse(url)
                    .ok()
                    .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
                    .ok_or_else(|| ConfigError::new(key("url"), "an http or https address", url))?
            }
            _ => {
                return Err(ConfigError::new(
                    format!("targets[{index}]"),
                    "address or url",
                    "both",
                ));
            }
        };

        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();

        let mut labels = Labels::new();
        // The labels that Takt sets identify the target. A user's value would be overwritten without notice.
        for (name, value) in &config.labels {
            if [CLUSTER, NODE, JOB, INSTANCE].contains(&name.as_str()) {
                return Err(ConfigError::new(
                    key("labels"),
                    "a label that takt does not set itself",
                    name,
                ));
            }
            if !is_label_name(name) {
                return Err(ConfigError::new(key("labels"), "a label name", name));
            }
            labels.set(name, value);
        }

        labels.set(JOB, &config.job);
        labels.set(INSTANCE, &format!("{host}:{port}"));
        labels.set(
            NODE,
            if config.node.is_empty() {
                bare_host(host)
            } else {
                &config.node
            },
        );
        labels.set(CLUSTER, cluster);

        // No relabelling applies to this list, so both label sets are the same.
        let discovered = labels.clone();
        Ok(Self {
            url,
            labels,
            added_labels: 0,
            discovered,
            interval: job.interval,
            timeout: job.timeout,
        })
    }

    /// Applies the job's relabelling to a discovered target; `None` if the rules drop it. Each step
    /// is as in Prometheus.
    pub fn discovered(
        found: &Labels,
        job: &Job,
        cluster: &str,
    ) -> Result<Option<Self>, TargetError> {
        let discovered = with_defaults(found, job);
        let mut labels = discovered.clone();

        if !job.relabel.apply(&mut labels) {
            return Ok(None);
        }

        let interval = duration(&labels, INTERVAL)?;
        let timeout = duration(&labels, TIMEOUT)?;

        // A rule can raise the timeout above the interval, which the check of the configuration does not see.
        if timeout > interval {
            let found = labels.get(TIMEOUT).unwrap_or_default().to_owned();
            return Err(TargetError {
                label: TIMEOUT,
                expected: "at most __scrape_interval__",
                found,
            });
        }

        let url = url(&labels, job)?;

        // `instance` is the address as relabelling left it: the URL has lost the port if it is the scheme's own.
        let address = labels.get(ADDRESS).unwrap_or_default().to_owned();
        let mut own: Labels = labels
            .iter()
            .filter(|(name, _)| !name.starts_with("__"))
            .collect();

        let host = url.host_str().unwrap_or_default();

        // The count comes before the labels are added below.
        let added_labels = [NODE, CLUSTER]
            .into_iter()
            .filter(|name| own.get(name).is_none())
            .count();

        for (name, value) in [
            (INSTANCE, address.as_str()),
            (NODE, bare_host(host)),
            (CLUSTER, cluster),
        ] {
            if own.get(name).is_none() {
                own.set(name, value);
            }
        }

        Ok(Some(Self {
            url,
            labels: own,
            added_labels,
            discovered,
            interval,
            timeout,
        }))
    }

    /// Returns the URL without values of parameters that may be secrets.
    pub fn shown_url(&self) -> String {
        shown_address(self.url.as_str())
    }

    /// Returns whether the scrapes of both targets are equal. Labels of the discovery may change
    /// (for example a node's state) without disturbing them.
    pub fn is_scraped_like(&self, other: &Self) -> bool {
        (&self.url, &self.labels, self.interval, self.timeout)
            == (&other.url, &other.labels, other.interval, other.timeout)
    }

    /// Returns the labels under which a scraped series is stored. If series and target have the
    /// same label, the series' own becomes `exported_…`: no page can make its series look like
    /// another node's. With `honor_labels`, the page's value stays. `emptied` lists labels that the
    /// page sets to an empty value, so that the target's value is not added.
    pub fn series_labels(&self, scraped: Labels, honor_labels: bool, emptied: &[String]) -> Labels {
        let mut labels = scraped;

        if honor_labels {
            for (name, value) in self.labels.iter() {
                if labels.get(name).is_none() && !emptied.iter().any(|emptied| emptied == name) {
                    labels.set(name, value);
                }
            }
            return labels;
        }

        let mut conflicts = Vec::new();
        for (name, value) in self.labels.iter() {
            conflicts.extend(labels.remove(name).map(|own| (name, own)));
            labels.set(name, value);
        }

        // The shortest name first, so that it gets the shortest new name, as in Prometheus.
        conflicts.sort_by_key(|(name, _)| name.len());
        for (name, own) in conflicts {
            let mut renamed = format!("exported_{name}");
            while labels.get(&renamed).is_some() {
                renamed.insert_str(0, "exported_");
            }
            labels.set(&renamed, &own);
        }
        labels
    }
}

/// Adds the settings of the scrape configuration to the labels of a discovered target.
fn with_defaults(found: &Labels, job: &Job) -> Labels {
    let config = &job.config;
    let interval = PromDuration(job.interval).to_string();
    let timeout = PromDuration(job.timeout).to_string();

    let mut labels = found.clone();

    let of_job = [
        (JOB, config.job_name.as_str()),
        (INTERVAL, &interval),
        (TIMEOUT, &timeout),
        (METRICS_PATH, &config.metrics_path),
        (SCHEME, &config.scheme),
    ];

    // Only the first value of a parameter becomes a label, as in Prometheus; `url` adds the others again.
    let params: Vec<(String, &String)> = config
        .params
        .iter()
        .filter_map(|(name, values)| Some((format!("{PARAM}{name}"), values.first()?)))
        .collect();

    for (name, value) in of_job.into_iter().chain(
        params
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    ) {
        // A label from the discovery wins over the setting of the job.
        if labels.get(name).is_none() {
            labels.set(name, value);
        }
    }
    labels
}

fn duration(labels: &Labels, label: &'static str) -> Result<Duration, TargetError> {
    let found = labels.get(label).unwrap_or_default().to_owned();
    let parsed = PromDuration::try_from(found.clone());
    parsed.map(|duration| duration.0).map_err(|_| TargetError {
        label,
        expected: "a duration such as 15s",
        found,
    })
}

fn url(labels: &Labels, job: &Job) -> Result<Url, TargetError> {
    let get = |label: &'static str| labels.get(label).unwrap_or_default();
    let scheme = get(SCHEME);
    let address = get(ADDRESS);

    // Addresses may carry a password, so messages show them without it.
    let wrong = |label, expected, found: &str| {
        Err(TargetError {
            label,
            expected,
            found: shown_address(found),
        })
    };

    if !matches!(scheme, "http" | "https") {
        return wrong(SCHEME, "http or https", scheme);
    }

    let parsed = Url::parse(&format!("{scheme}://{address}")).ok();
    // Anything besides host and port would end up in another part of the URL, and spaces in none.
    let is_address = |url: &Url| {
        !address.contains(['/', '?', '#', '@', '\\'])
            && !address.contains(char::is_whitespace)
            && url.has_host()
            && url.port() != Some(0)
            && address.len() >= url.authority().len()
    };

    let Some(mut url) = parsed.filter(is_address) else {
        return wrong(ADDRESS, ADDRESS_FORM, address);
    };

    // As in Go, the path is not percent-encoded yet.
    url.set_path(&get(METRICS_PATH).replace('%', "%25"));

    let mut params = job.config.params.clone();
    for (name, value) in labels.iter() {
        if let Some(name) = name.strip_prefix(PARAM) {
            let values = params.entry(name.to_owned()).or_default();
            // The label replaces the first value, which is where `with_defaults` took it from.
            values.splice(..values.len().min(1), [value.to_owned()]);
        }
    }

    // `query_pairs_mut` would leave a lone `?` in the URL if it got no pair.
    if params.values().any(|values| !values.is_empty()) {
        let pairs = params
            .iter()
            .flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
        url.query_pairs_mut().extend_pairs(pairs);
    }
    Ok(url)
}

fn url_of_address(address: &str) -> Option<Url> {
    let (host, port) = address.rsplit_once(':')?;

    port.parse::<u16>().ok().filter(|&port| port > 0)?;

    let url = Url::parse(&format!("http://{address}/metrics")).ok()?;

    // Anything besides host and port would end up in another part of the address.
    let is_plain = url
        .host_str()
        .is_some_and(|parsed| parsed.eq_ignore_ascii_case(host));

    is_plain.then_some(url)
}

/// Returns the host without the brackets of an IPv6 address.
fn bare_host(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn is_label_name(name: &str) -> bool {
    !name.starts_with("__")
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::super::{JobConfig, ScrapeConfig};
    use super::*;

    fn job(config: serde_json::Value) -> Job {
        let config: JobConfig = serde_json::from_value(config).unwrap();
        Job::new(
            JobConfig {
                job_name: "j".to_owned(),
                ..config
            },
            &ScrapeConfig::default(),
            "c",
        )
        .unwrap()
    }

    fn target(address: &str) -> Target {
        let config = TargetConfig {
            address: address.to_owned(),
            ..TargetConfig::default()
        };
        Target::listed(&config, &job(serde_json::json!({})), "lab", 0).unwrap()
    }

    fn found(
        config: serde_json::Value,
        labels: &[(&str, &str)],
    ) -> Result<Option<(String, String)>, String> {
        let target = Target::discovered(&labels.iter().copied().collect(), &job(config), "lab");
        target
            .map(|target| target.map(|target| (target.url.to_string(), target.labels.to_string())))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_in_the_address_is_used_and_not_shown() {
        let config = TargetConfig {
            url: "https://bmc.example/p?token=s3cret".to_owned(),
            ..TargetConfig::default()
        };
        let target = Target::listed(&config, &job(serde_json::json!({})), "c", 0).unwrap();
        assert_eq!(target.url.query(), Some("token=s3cret"));
        assert_eq!(target.shown_url(), "https://bmc.example/p?token=<hidden>");

        // A discovered address with a user is invalid, so its message is a second place that could show the password.
        let found = [(ADDRESS, "me:s3cret@g01:1")].into_iter().collect();
        let error = Target::discovered(&found, &job(serde_json::json!({})), "c").unwrap_err();
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }

    #[test]
    fn the_node_is_the_host_unless_it_is_named() {
        let g01 = target("g01:9855");
        assert_eq!(g01.url.as_str(), "http://g01:9855/metrics");
        assert_eq!(
            g01.labels.to_string(),
            r#"{cluster="lab", instance="g01:9855", job="node", node="g01"}"#
        );
        assert_eq!(target("[::1]:80").labels.get(NODE), Some("::1"));
        assert_eq!(target("[::1]:80").labels.get(INSTANCE), Some("[::1]:80"));

        // Port 443 is not in the URL, and `instance` still has it.
        let named = TargetConfig {
            url: "https://bmc.example/p?x=1".to_owned(),
            node: "g02".to_owned(),
            job: "bmc".to_owned(),
            labels: [("rack".to_owned(), "a".to_owned())].into(),
            ..TargetConfig::default()
        };
        assert_eq!(
            Target::listed(&named, &job(serde_json::json!({})), "lab", 0)
                .unwrap()
                .labels
                .to_string(),
            r#"{cluster="lab", instance="bmc.example:443", job="bmc", node="g02", rack="a"}"#
        );
    }

    #[test]
    fn relabelling_decides_where_and_as_what() {
        use serde_json::json;
        let plain = found(
            json!({}),
            &[(ADDRESS, "g01:9100"), ("__meta_x", "y"), ("rack", "a")],
        );
        assert_eq!(
            plain.unwrap().unwrap(),
            (
                "http://g01:9100/metrics".to_owned(),
                r#"{cluster="lab", instance="g01:9100", job="j", node="g01", rack="a"}"#.to_owned()
            )
        );
        // As used with the SNMP and blackbox exporters.
        let probe = json!({
            "metrics_path": "/probe",
            "params": {"module": ["http", "tcp"], "a": ["b c"]},
            "relabel_configs": [
                {"source_labels": ["__address__"], "target_label": "__param_target"},
                {"source_labels": ["__param_target"], "target_label": "instance"},
                {"target_label": "__address__", "replacement": "[fd00::1]:9115"},
                {"target_label": "__scheme__", "replacement": "https"},
                {"target_label": "__scrape_interval__", "replacement": "1m"},
                {"target_label": "cluster", "replacement": "other"},
            ],
        });

        assert_eq!(
            found(probe, &[(ADDRESS, "http://x.example/")]).unwrap().unwrap(),
            (
                "https://[fd00::1]:9115/probe?a=b+c&module=http&module=tcp&target=http%3A%2F%2Fx.example%2F".to_owned(),
                r#"{cluster="other", instance="http://x.example/", job="j", node="fd00::1"}"#.to_owned()
            )
        );
        // A path is taken literally, not percent-decoded.
        let encoded = found(json!({"metrics_path": "/a%20b c"}), &[(ADDRESS, "g01:1")]);
        assert_eq!(encoded.unwrap().unwrap().0, "http://g01:1/a%2520b%20c");

        let drop = json!({"relabel_configs": [{"source_labels": ["job"], "regex": "j", "action": "drop"}]});
        assert_eq!(found(drop, &[(ADDRESS, "g01:1")]), Ok(None));
    }

    #[test]
    fn invalid_targets_give_their_reason() {
        use serde_json::json;
        let set = |label: &str, value: &str| json!({"relabel_configs": [{"target_label": label, "replacement": value}]});
        let address =
            |found: &str| format!("__address__: expected {ADDRESS_FORM}, found {found:?}");
        for (config, labels, message) in [
            // No `__address__` at all.
            (json!({}), &[("x", "y")][..], address("")),
            (
                json!({}),
                &[(ADDRESS, "http://g01:1/metrics")],
                address("http://g01:1/metrics"),
            ),
            // The `url` crate refuses a port above 65535, and takes 0, which no server can have.
            (json!({}), &[(ADDRESS, "g01:99999")], address("g01:99999")),
            (json!({}), &[(ADDRESS, "g01:0")], address("g01:0")),
            (json!({}), &[(ADDRESS, "g01:9100 ")], address("g01:9100 ")),
            // The remaining targets are valid until relabelling changes them.
            (
                set(SCHEME, "ftp"),
                &[(ADDRESS, "g01:1")],
                "__scheme__: expected http or https, found \"ftp\"".to_owned(),
            ),
            (
                set(INTERVAL, "soon"),
                &[(ADDRESS, "g01:1")],
                "__scrape_interval__: expected a duration such as 15s, found \"soon\"".to_owned(),
            ),
            (
                set(TIMEOUT, "1h"),
                &[(ADDRESS, "g01:1")],
                "__scrape_timeout__: expected at most __scrape_interval__, found \"1h\"".to_owned(),
            ),
        ] {
            assert_eq!(found(config, labels), Err(message));
        }
    }

    /// A `label_limit` that suffices in Prometheus suffices here.
    #[test]
    fn labels_that_we_add_are_counted() {
        let added = |labels: &[(&str, &str)]| {
            let labels = labels.iter().copied().chain([(ADDRESS, "g01:1")]).collect();
            Target::discovered(&labels, &job(serde_json::json!({})), "lab")
                .unwrap()
                .unwrap()
                .added_labels
        };
        assert_eq!(added(&[]), 2);
        assert_eq!(added(&[(NODE, "x")]), 1);
        assert_eq!(added(&[(NODE, "x"), (CLUSTER, "y")]), 0);
    }

    #[test]
    fn a_page_cannot_pass_for_another_node() {
        // `exported_node` is taken already, so `node` needs the prefix twice.
        let scraped = [
            ("__name__", "up"),
            ("node", "g02"),
            ("exported_node", "g03"),
            ("x", "1"),
        ]
        .into_iter()
        .collect();
        assert_eq!(
            target("g01:1")
                .series_labels(scraped, false, &[])
                .to_string(),
            r#"up{cluster="lab", exported_exported_node="g02", exported_node="g03", instance="g01:1", job="node", node="g01", x="1"}"#
        );
    }

    #[test]
    fn an_honoured_label_stays_even_if_it_is_empty() {
        let scraped: Labels = [("__name__", "up"), ("node", "g02")].into_iter().collect();
        assert_eq!(
            target("g01:1")
                .series_labels(scraped, true, &["instance".to_owned()])
                .to_string(),
            r#"up{cluster="lab", job="node", node="g02"}"#
        );
    }
}
