//! Reads `scrape_configs` and the scrape settings of `global` from an existing `prometheus.yml`.

use super::job::JobConfig;
use super::units::PromDuration;
use std::path::Path;
use std::time::Duration;
use takt_model::ConfigError;
use takt_model::yaml::Node;

/// Prometheus' defaults for `scrape_interval` and `scrape_timeout`.
const INTERVAL: PromDuration = PromDuration(Duration::from_secs(60));
const TIMEOUT: PromDuration = PromDuration(Duration::from_secs(10));

/// Keys of `global` that are defaults for every scrape configuration.
const GLOBAL: [&str; 9] = [
    "scrape_native_histograms",
    "scrape_interval",
    "scrape_timeout",
    "body_size_limit",
    "sample_limit",
    "label_limit",
    "label_name_length_limit",
    "label_value_length_limit",
    "target_limit",
];

/// Keys of a scrape configuration that affect how Prometheus works, but not its results.
const WITHOUT_EFFECT: [&str; 8] = [
    "enable_http2",
    "scrape_protocols",
    "keep_dropped_targets",
    "metric_name_validation_scheme",
    "metric_name_escaping_scheme",
    "scrape_classic_histograms",
    "always_scrape_classic_histograms",
    "convert_classic_histograms_to_nhcb",
];

/// Returns the scrape configurations of the file at `path`. All other parts of the file (rules,
/// alerting, remote storage) are ignored.
pub(super) fn scrape_configs(path: &Path) -> Result<Vec<JobConfig>, ConfigError> {
    let wrong = |why: String| {
        let found = format!("{}: {why}", path.display());
        ConfigError::new(
            "prometheus_config",
            "a Prometheus configuration with scrape_configs",
            found,
        )
    };

    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let mut jobs = parse(&text).map_err(wrong)?;

    // As in Prometheus, relative paths count from the folder of the file.
    let base = path.parent().unwrap_or(Path::new(""));

    jobs.iter_mut().for_each(|job| job.resolve_paths(base));
    Ok(jobs)
}

fn parse(text: &str) -> Result<Vec<JobConfig>, String> {
    let root = Node::read(text).map_err(|error| error.to_string())?;
    if let Some(files) = root.get("scrape_config_files") {
        return Err(format!(
            "line {}: scrape_config_files are not read; name their scrape_configs here",
            files.line()
        ));
    }

    let jobs = root.get("scrape_configs").ok_or("no scrape_configs")?;
    jobs.list()
        .map_err(|error| error.to_string())?
        .iter()
        .map(|job| one(job.clone(), root.get("global")))
        .collect()
}

fn one(mut job: Node, global: Option<&Node>) -> Result<JobConfig, String> {
    // A duration of 0 counts as unset.
    for key in ["scrape_interval", "scrape_timeout"] {
        if job.get(key).is_some_and(is_zero) {
            job.remove(&[key]);
        }
    }

    let has_own_timeout = job.get("scrape_timeout").is_some();
    // The rest would be unknown keys, which fail.
    job.remove(&WITHOUT_EFFECT);

    for key in GLOBAL {
        if let Some(node) = global
            .and_then(|global| global.get(key))
            .filter(|node| !is_zero(node))
        {
            job.set_default(key, node);
        }
    }

    // The errors of all other keys name the job, so its name is read first.
    let name = job
        .get("job_name")
        .map(|name| name.clone().parse::<String>());

    let mut job: JobConfig = job.parse().map_err(|error| {
        let said = unsupported(&error.to_string());
        match name {
            Some(Ok(name)) => format!("job {name:?}, {said}"),
            _ => said,
        }
    })?;

    let interval = *job.scrape_interval.get_or_insert(INTERVAL);
    let timeout = job.scrape_timeout.get_or_insert(TIMEOUT);
    // Only an inherited timeout is shortened to the interval, as in Prometheus.
    if !has_own_timeout {
        *timeout = interval.min(*timeout);
    }
    Ok(job)
}

/// Names an unsupported key without the list of all others.
fn unsupported(said: &str) -> String {
    let parts = said
        .split_once("unknown field `")
        .and_then(|(before, rest)| {
            let (key, others) = rest.split_once('`')?;
            others.contains("expected one of").then_some((before, key))
        });

    match parts {
        Some((before, key)) if key.ends_with("_sd_configs") => format!(
            "{before}Takt has no {key}; it has static_configs, file_sd_configs, http_sd_configs \
             and slurm_sd_configs"
        ),
        Some((before, key)) => format!("{before}Takt does not support the key {key}"),
        None => said.to_owned(),
    }
}

fn is_zero(node: &Node) -> bool {
    // A zero may have a unit, as in `0s`.
    let digits = |text: &str| {
        text.trim_end_matches(|c: char| c.is_ascii_lowercase())
            .to_owned()
    };
    node.text().is_ok_and(|text| {
        !digits(text).is_empty() && digits(text).bytes().all(|digit| digit == b'0')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_file() {
        let jobs = parse(
            "global:\n  scrape_interval: 30s\n  evaluation_interval: 30s\n  external_labels: {site: a}\n\
             rule_files: [rules/*.yml]\n\
             scrape_configs:\n\
             - job_name: node\n  enable_http2: false\n  static_configs:\n  - targets: [g01:9100]\n    labels: {rack: 1}\n\
             - job_name: fast\n  scrape_interval: 5s\n  sample_limit: 10\n  relabel_configs:\n\
             \x20 - source_labels: [__address__]\n    regex: (.*):.*\n    target_label: node\n    replacement: ${1}\n",
        )
        .unwrap();
        let seconds = |duration: Option<PromDuration>| duration.unwrap().0.as_secs();
        assert_eq!(seconds(jobs[0].scrape_interval), 30);
        assert_eq!(seconds(jobs[0].scrape_timeout), 10);
        assert_eq!(seconds(jobs[1].scrape_interval), 5);

        // Prometheus' default of 10 s, shortened to the interval.
        assert_eq!(seconds(jobs[1].scrape_timeout), 5);
        assert_eq!(jobs[0].static_configs[0].labels["rack"], "1");
        assert_eq!(jobs[1].sample_limit, 10);
        assert_eq!(jobs[1].relabel_configs[0].replacement.as_str(), "${1}");
    }

    #[test]
    fn a_time_of_nothing_is_not_set() {
        let jobs = parse(
            "global: {scrape_interval: 30s, scrape_timeout: 0s}\n\
             scrape_configs: [{job_name: a, scrape_interval: 0s, scrape_timeout: 0, fallback_scrape_protocol: PrometheusText0.0.4}]\n",
        )
        .unwrap();
        let seconds = |duration: Option<PromDuration>| duration.unwrap().0.as_secs();
        assert_eq!(seconds(jobs[0].scrape_interval), 30);
        assert_eq!(seconds(jobs[0].scrape_timeout), 10);
    }

    #[test]
    fn unsupported_keys_are_named() {
        for (text, message) in [
            ("global: {}\n", "no scrape_configs"),
            (
                "scrape_config_files: [a.yml]\n",
                "line 1: scrape_config_files are not read; name their scrape_configs here",
            ),
            (
                "scrape_configs:\n- job_name: k\n  kubernetes_sd_configs: [{role: pod}]\n",
                "job \"k\", line 3: Takt has no kubernetes_sd_configs; it has static_configs, ",
            ),
            (
                "scrape_configs:\n- job_name: k\n  proxy_url: http://p:3128\n",
                "job \"k\", line 3: Takt does not support the key proxy_url",
            ),
            // Takt takes secrets from files only.
            (
                "scrape_configs:\n- job_name: k\n  basic_auth: {username: u, password: p}\n",
                "job \"k\", line 3: unknown field `password`, expected `username` or `password_file`",
            ),
            (
                "scrape_configs:\n- job_name: k\n  scrape_interval: 15\n",
                "job \"k\", line 3: expected a duration such as 15s or 1m30s, found \"15\"",
            ),
            (
                "scrape_configs:\n- job_name: k\n  relabel_configs: [{action: explode}]\n",
                "job \"k\", line 3: unknown variant `explode`, expected one of `replace`, `keep`",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
