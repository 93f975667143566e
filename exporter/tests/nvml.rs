//! GPUs, through the stand-in for NVIDIA's library.

#![allow(clippy::unwrap_used, reason = "a test that cannot have its surroundings shall end")]

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use support::{Running, stand_in};
use tempfile::TempDir;

/// An exporter with simulated GPUs.
struct Node {
    directory: TempDir,
    exporter: Running,
}

impl Node {
    fn new(script: &str) -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("script"), script).unwrap();
        let path: PathBuf = directory.path().join("script");
        let exporter = Running::takt(&[&stand_in()], &[("NVML_STAND_IN_SCRIPT", &path)]);
        Self { directory, exporter }
    }

    fn becomes(&self, script: &str) {
        let draft = self.directory.path().join("draft");
        std::fs::write(&draft, script).unwrap();
        std::fs::rename(draft, self.directory.path().join("script")).unwrap();
    }

    /// The GPUs' series whose name holds `part`, without the UUID's first label where there is only one GPU.
    fn series(&self, part: &str) -> BTreeMap<String, f64> {
        let mut series = self.exporter.series("?collect[]=nvml");
        series.retain(|name, _| name.contains("takt_gpu_") && name.contains(part));
        series
    }

    fn wait_for(&self, what: &str, part: &str) {
        self.exporter.wait_for(what, |page| page.contains(part));
    }
}

const A: &str = "GPU-aaaaaaaa-0000-0000-0000-000000000000";
const B: &str = "GPU-bbbbbbbb-0000-0000-0000-000000000000";

fn named(rest: &str) -> String {
    format!("profile rtx5090 2\ngpu 0 uuid {A}\ngpu 1 uuid {B}\n{rest}")
}

fn up(uuid: &str, reason: &str, value: u8) -> String {
    format!("takt_gpu_up{{uuid=\"{uuid}\",reason=\"{reason}\"}} {value}\n")
}

#[test]
fn an_rtx_5090_in_base_units() {
    let node = Node::new(&format!(
        "profile rtx5090\ngpu 0 uuid {A}\ngpu 0 utilization 97 40\ngpu 0 power 431.5\ngpu 0 power-limit 575\ngpu 0 energy 1000\n\
         gpu 0 temperature 71\ngpu 0 memory-used 1GiB\ngpu 0 memory-total 32607MiB\ngpu 0 clocks 2407 14001\ngpu 0 fan 30 45\n\
         gpu 0 pci 00000000:41:00.0\ngpu 0 minor 3\ngpu 0 encoder 5\ngpu 0 decoder 0\n"
    ));
    let series = node.series("");
    let value = |name: &str, labels: &str| {
        let series_name = series.keys().find(|key| key.contains(&format!("takt_gpu_{name}{{")) && key.contains(labels));
        series_name.map(|name| series[name])
    };
    assert_eq!(value("up", ""), Some(1.0));
    assert_eq!(value("info", r#"minor="3""#), Some(1.0));
    assert_eq!(value("info", r#"pci_bus_id="00000000:41:00.0""#), Some(1.0));
    assert_eq!(value("info", r#"model="NVIDIA GeForce RTX 5090""#), Some(1.0));
    assert_eq!(value("utilization_ratio", ""), Some(0.97));
    assert_eq!(value("memory_utilization_ratio", ""), Some(0.4));
    assert_eq!(value("encoder_utilization_ratio", ""), Some(0.05));
    assert_eq!(value("decoder_utilization_ratio", ""), Some(0.0));
    assert_eq!(value("power_watts", ""), Some(431.5));
    assert_eq!(value("power_limit_watts", ""), Some(575.0));
    assert_eq!(value("temperature_celsius", r#"sensor="gpu""#), Some(71.0));
    assert_eq!(value("memory_used_bytes", ""), Some(f64::from(1 << 30)));
    assert_eq!(value("memory_total_bytes", ""), Some(32_607.0 * 1_048_576.0));
    assert_eq!(value("clock_hertz", r#"domain="graphics""#), Some(2.407e9));
    assert_eq!(value("clock_hertz", r#"domain="memory""#), Some(14.001e9));
    assert_eq!(value("fan_ratio", r#"fan="1""#), Some(0.45));
    assert_eq!(value("processes", ""), Some(0.0));
    assert!(value("energy_joules_total", "").is_some_and(|joules| (1000.0..100_000.0).contains(&joules)));
    // A GeForce's memory has no sensor for NVML: left out, not 0.
    assert_eq!(value("temperature_celsius", r#"sensor="memory""#), None);
    assert!(series.keys().all(|name| name.contains(A)), "all carry the uuid");
}

#[test]
fn what_fails_or_is_missing_is_left_out() {
    let node = Node::new(
        "profile rtx5090\nhide nvmlDeviceGetEncoderUtilization\ngpu 0 unsupported nvmlDeviceGetPowerUsage\n\
         gpu 0 fail nvmlDeviceGetUtilizationRates 999\n",
    );
    assert_eq!(node.series("_up").len(), 1);
    assert_eq!(node.series("encoder").len() + node.series("power_watts").len() + node.series("utilization").len(), 1);
    assert_eq!(node.series("temperature").len(), 1);
}

#[test]
fn a_lost_gpu_is_told_and_its_sibling_stays() {
    let node = Node::new(&named(""));
    node.wait_for("both up", &(up(A, "", 1)));
    node.becomes(&named("gpu 0 lost\n"));
    node.wait_for("lost", &up(A, "lost", 0));
    assert!(node.exporter.page("").contains(&up(B, "", 1)));
    assert_eq!(node.series("utilization_ratio").keys().filter(|name| name.contains(A)).count(), 0);
    assert_eq!(node.series("takt_gpu_utilization_ratio").keys().filter(|name| name.contains(B)).count(), 1);
    node.becomes(&named("gpu 0 gone\n"));
    node.wait_for("gone", &up(A, "not_enumerated", 0));
    assert!(node.exporter.page("").contains(&up(B, "", 1)));
    node.becomes(&named(""));
    node.wait_for("back", &up(A, "", 1));
}

#[test]
fn a_driver_that_is_unloaded_and_loaded_again_is_survived() {
    let node = Node::new(&named(""));
    node.wait_for("up", &up(A, "", 1));
    node.becomes(&named("init 9\nfail nvmlDevice* 1\n"));
    node.wait_for("unloaded", &up(A, "driver_not_loaded", 0));
    node.becomes(&named("init 18\nfail nvmlDevice* 18\n"));
    node.wait_for("of another version", &up(A, "driver_mismatch", 0));
    assert!(node.exporter.page("").contains(r#"node_scrape_collector_success{collector="nvml"} 0"#));
    assert!(node.exporter.page("").contains(r#"takt_exporter_collector_absent{collector="nvml"} 0"#));
    node.becomes(&named(""));
    node.wait_for("loaded", &up(A, "", 1));
    assert!(node.exporter.page("").contains(r#"node_scrape_collector_success{collector="nvml"} 1"#));
}

#[test]
fn without_a_driver_nothing_fails() {
    for script in ["init 9\n", "init 12\n"] {
        let node = Node::new(script);
        assert!(node.series("").is_empty());
        let page = node.exporter.page("");
        assert!(page.contains(r#"takt_exporter_collector_absent{collector="nvml"} 1"#), "{script}: {page}");
    }
}

#[test]
fn a_driver_that_hangs_holds_up_no_page() {
    let node = Node::new(&named("sleep nvmlDeviceGetTemperature 30000\n"));
    for scrape in 0..50 {
        let began = Instant::now();
        let page = node.exporter.page("");
        let took = began.elapsed();
        assert!(took < Duration::from_millis(100), "scrape {scrape}: {took:?}");
        assert!(page.contains(r#"node_scrape_collector_success{collector="nvml"} 0"#));
        assert!(page.contains(r#"node_scrape_collector_success{collector="filesystem"} 1"#));
    }
}

#[test]
fn processes_are_shown_by_user() {
    let pid = std::process::id();
    let node = Node::new(&named(&format!("gpu 1 process {pid} 512MiB both\ngpu 1 process 4194304 1GiB compute\n")));
    let counts = node.series("takt_gpu_processes");
    assert_eq!(counts.values().copied().collect::<Vec<_>>(), [0.0, 2.0]);
    node.wait_for("known to the jobs", "takt_gpu_process_without_job");
    let mut without_job = node.exporter.series("");
    without_job.retain(|name, _| name.starts_with("takt_gpu_process_without_job"));
    assert_eq!(without_job.len(), 1, "the other has ended: {without_job:?}");
    assert!(without_job.iter().all(|(name, count)| name.contains(B) && *count == 1.0));
}
