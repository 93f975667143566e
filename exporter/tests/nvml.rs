//! GPUs, through the stand-in for NVIDIA's library.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

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
        // The kernel log of this machine may contain any events.
        Self::with(script, &["--path.kmsg=/nonexistent"])
    }

    fn with(script: &str, flags: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("script"), script).unwrap();
        let path: PathBuf = directory.path().join("script");
        let library = stand_in();
        let flags = [flags, &[&library]].concat();
        let exporter = Running::takt(&flags, &[("NVML_STAND_IN_SCRIPT", &path)]);
        Self {
            directory,
            exporter,
        }
    }

    fn becomes(&self, script: &str) {
        let draft = self.directory.path().join("draft");
        std::fs::write(&draft, script).unwrap();
        std::fs::rename(draft, self.directory.path().join("script")).unwrap();
    }

    /// Returns the GPU series whose name and labels contain `part`.
    fn series(&self, part: &str) -> BTreeMap<String, f64> {
        let mut series = self.exporter.series("?collect[]=nvml");
        series.retain(|name, _| name.contains("takt_gpu_") && name.contains(part));
        series
    }

    fn wait_for(&self, what: &str, part: &str) -> String {
        self.exporter.wait_for(what, |page| page.contains(part))
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
        "profile rtx5090\ngpu 0 uuid {A}\ngpu 0 utilization 97 40\ngpu 0 power 431.5\ngpu 0 \
         power-limit 575\ngpu 0 energy 1000\n\
         gpu 0 temperature 71\ngpu 0 memory-used 1GiB\ngpu 0 memory-total 32607MiB\ngpu 0 clocks \
         2407 14001\ngpu 0 fan 30 45\n\
         gpu 0 pci 00000000:41:00.0\ngpu 0 minor 3\ngpu 0 encoder 5\ngpu 0 decoder 0\ngpu 0 jpeg \
         7\n"
    ));
    let series = node.series("");
    let value = |name: &str, labels: &str| {
        let series_name = series
            .keys()
            .find(|key| key.contains(&format!("takt_gpu_{name}{{")) && key.contains(labels));
        series_name.map(|name| series[name])
    };
    assert_eq!(value("up", ""), Some(1.0));
    assert_eq!(value("info", r#"minor="3""#), Some(1.0));
    assert_eq!(value("info", r#"pci_bus_id="0000:41:00.0""#), Some(1.0));
    assert_eq!(
        value("info", r#"model="NVIDIA GeForce RTX 5090""#),
        Some(1.0)
    );
    assert_eq!(value("utilization_ratio", ""), Some(0.97));
    assert_eq!(value("memory_utilization_ratio", ""), Some(0.4));
    assert_eq!(value("encoder_utilization_ratio", ""), Some(0.05));
    assert_eq!(value("decoder_utilization_ratio", ""), Some(0.0));
    assert_eq!(value("jpeg_utilization_ratio", ""), Some(0.07));
    assert_eq!(value("optical_flow_utilization_ratio", ""), Some(0.0));
    assert_eq!(value("power_watts", ""), Some(431.5));
    assert_eq!(value("power_limit_watts", ""), Some(575.0));
    assert_eq!(value("temperature_celsius", r#"sensor="gpu""#), Some(71.0));
    assert_eq!(value("memory_used_bytes", ""), Some(f64::from(1 << 30)));
    assert_eq!(
        value("memory_total_bytes", ""),
        Some(32_607.0 * 1_048_576.0)
    );
    assert_eq!(value("clock_hertz", r#"domain="graphics""#), Some(2.407e9));
    assert_eq!(value("clock_hertz", r#"domain="memory""#), Some(14.001e9));
    assert_eq!(value("fan_ratio", r#"fan="1""#), Some(0.45));
    assert_eq!(value("processes", ""), Some(0.0));
    assert!(
        value("energy_joules_total", "")
            .is_some_and(|joules| (1000.0..100_000.0).contains(&joules))
    );
    // A GeForce's memory has no sensor for NVML: left out, not 0.
    assert_eq!(value("temperature_celsius", r#"sensor="memory""#), None);
    assert!(
        series.keys().all(|name| name.contains(A)),
        "all carry the uuid"
    );
}

#[test]
fn failing_and_missing_values_are_left_out() {
    let node = Node::new(
        "profile rtx5090\nhide nvmlDeviceGetEncoderUtilization\ngpu 0 unsupported \
         nvmlDeviceGetPowerUsage\n\
         gpu 0 fail nvmlDeviceGetUtilizationRates 999\n",
    );
    assert_eq!(node.series("_up").len(), 1);
    for (name, count) in [
        ("encoder_utilization_ratio", 0),
        ("decoder_utilization_ratio", 1),
        ("power_watts", 0),
        ("utilization_ratio", 0),
        ("temperature_celsius", 1),
    ] {
        assert_eq!(
            node.series(&format!("takt_gpu_{name}{{")).len(),
            count,
            "{name}"
        );
    }
}

#[test]
fn a_lost_gpu_is_reported_and_the_other_stays() {
    let node = Node::new(&named(""));
    node.wait_for("both up", &(up(A, "", 1)));
    node.becomes(&named("gpu 0 lost\n"));
    node.wait_for("lost", &up(A, "lost", 0));
    assert!(node.exporter.page("").contains(&up(B, "", 1)));
    assert_eq!(
        node.series("utilization_ratio")
            .keys()
            .filter(|name| name.contains(A))
            .count(),
        0
    );
    assert_eq!(
        node.series("takt_gpu_utilization_ratio")
            .keys()
            .filter(|name| name.contains(B))
            .count(),
        1
    );
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
    assert!(
        node.exporter
            .page("")
            .contains(r#"node_scrape_collector_success{collector="nvml"} 0"#)
    );
    assert!(
        node.exporter
            .page("")
            .contains(r#"takt_exporter_collector_absent{collector="nvml"} 0"#)
    );
    node.becomes(&named(""));
    node.wait_for("loaded", &up(A, "", 1));
    assert!(
        node.exporter
            .page("")
            .contains(r#"node_scrape_collector_success{collector="nvml"} 1"#)
    );
}

/// A process that has NVML open keeps the driver from being unloaded.
#[test]
fn nvml_is_closed_on_request_and_opened_again() {
    use rustix::process::{Pid, Signal, kill_process};
    let node = Node::new(&named(""));
    node.wait_for("up", &up(A, "", 1));
    let pid = Pid::from_raw(node.exporter.pid() as i32).unwrap();
    let is_open = || {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", node.exporter.pid())).unwrap();
        maps.contains("libnvml_stand_in")
    };
    assert!(is_open());
    kill_process(pid, Signal::USR1).unwrap();
    let page = node.wait_for("let go", &up(A, "let_go", 0));
    assert!(
        page.contains(&up(B, "let_go", 0)) && !page.contains("takt_gpu_utilization_ratio{"),
        "{page}"
    );
    node.exporter.wait_for("closed", |_| !is_open());
    kill_process(pid, Signal::USR2).unwrap();
    node.wait_for("taken up", &up(A, "", 1));
}

#[test]
fn without_a_driver_nothing_fails() {
    for script in ["init 9\n", "init 12\n"] {
        let node = Node::new(script);
        assert!(node.series("").is_empty());
        let page = node.exporter.page("");
        assert!(
            page.contains(r#"takt_exporter_collector_absent{collector="nvml"} 1"#),
            "{script}: {page}"
        );
    }
}

#[test]
fn a_driver_that_hangs_holds_up_no_page() {
    let node = Node::new(&named("sleep nvmlDeviceGetTemperature 30000\n"));
    for scrape in 0..50 {
        let began = Instant::now();
        let page = node.exporter.page("");
        let took = began.elapsed();
        assert!(
            took < Duration::from_millis(100),
            "scrape {scrape}: {took:?}"
        );
        assert!(page.contains(r#"node_scrape_collector_success{collector="nvml"} 0"#));
        assert!(page.contains(r#"node_scrape_collector_success{collector="filesystem"} 1"#));
    }
}

#[test]
fn processes_are_shown_by_user() {
    let pid = std::process::id();
    let node = Node::new(&named(&format!(
        "gpu 1 process {pid} 512MiB both\ngpu 1 process 4194304 1GiB compute\n"
    )));
    let counts = node.series("takt_gpu_processes");
    assert_eq!(counts.values().copied().collect::<Vec<_>>(), [0.0, 2.0]);
    node.wait_for("known to the jobs", "takt_gpu_process_without_job");
    let mut without_job = node.exporter.series("");
    without_job.retain(|name, _| name.starts_with("takt_gpu_process_without_job"));
    assert_eq!(without_job.len(), 1, "the other has ended: {without_job:?}");
    assert!(
        without_job
            .iter()
            .all(|(name, count)| name.contains(B) && *count == 1.0)
    );
    let mut memory = node.exporter.series("");
    memory.retain(|name, _| name.starts_with("takt_gpu_process_memory_used_bytes"));
    // The kernel cuts a program's name after 15 bytes.
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    let (name, bytes) = memory.iter().next().unwrap();
    assert_eq!((memory.len(), *bytes), (1, f64::from(512 << 20)));
    assert!(
        name.contains(&format!("command=\"{}\"", comm.trim())),
        "{name}"
    );
}

/// Returns the values of one metric by the labels behind the UUID.
fn by_label(node: &Node, name: &str, uuid: &str) -> BTreeMap<String, f64> {
    let begin = format!("takt_gpu_{name}{{uuid=\"{uuid}\"");
    let page = node.exporter.page("?collect[]=nvml");
    let of_gpu = page
        .lines()
        .filter_map(|line| line.strip_prefix(&begin)?.rsplit_once("} "));
    of_gpu
        .map(|(labels, value)| {
            (
                labels.trim_start_matches(',').to_owned(),
                value.parse().unwrap(),
            )
        })
        .collect()
}

/// Returns the value whose labels contain `part`.
fn value(node: &Node, name: &str, uuid: &str, labels: &str) -> Option<f64> {
    by_label(node, name, uuid)
        .into_iter()
        .find(|(found, _)| found.contains(labels))
        .map(|(_, value)| value)
}

#[test]
fn a_geforce_has_only_its_supported_series() {
    let node = Node::new(&format!(
        "profile rtx5090\ngpu 0 uuid {A}\ngpu 0 utilization 90 40\ngpu 0 throttle 0x84\ngpu 0 \
         pcie-replay 7\n"
    ));
    let one = |name: &str, labels: &str| value(&node, name, A, labels);
    assert_eq!(one("throttle", "sw_power_cap"), Some(1.0));
    assert_eq!(one("throttle", "hw_power_brake"), Some(1.0));
    assert_eq!(one("throttle", "hw_thermal"), Some(0.0));
    assert_eq!(by_label(&node, "throttle", A).len(), 9);
    assert_eq!(one("pcie_link_generation", "max"), Some(5.0));
    assert_eq!(one("pcie_link_width", "current"), Some(16.0));
    assert_eq!(one("pcie_degraded", ""), Some(0.0));
    assert_eq!(one("pcie_replays_total", ""), Some(7.0));
    assert!(one("pcie_bytes_total", "rx").is_some());
    assert_eq!(one("pcie_errors_total", "bad_tlp"), Some(0.0));
    assert_eq!(one("power_limit_max_watts", ""), Some(600.0));
    assert_eq!(one("power_limit_min_watts", ""), Some(400.0));
    assert_eq!(one("temperature_limit_celsius", "shutdown"), Some(101.0));
    assert_eq!(one("temperature_limit_celsius", "target"), Some(84.0));
    assert_eq!(one("clock_max_hertz", "graphics"), Some(3.09e9));
    assert_eq!(one("performance_state", ""), Some(1.0));
    assert_eq!(one("recovery_action", ""), Some(0.0));
    assert_eq!(one("bar1_total_bytes", ""), Some(32_768.0 * 1_048_576.0));
    // Data-centre GPUs have these; on a GeForce they must not be 0.
    for name in [
        "ecc_",
        "row_remap",
        "retired",
        "nvlink",
        "mig",
        "activity",
        "sram",
        "temperature_margin",
        "module_power",
        "vgpu",
        "fabric",
    ] {
        assert!(
            node.series(&format!("takt_gpu_{name}")).is_empty(),
            "{name}: {:?}",
            node.series(name)
        );
    }
    assert_eq!(one("temperature_limit_celsius", "memory_max"), None);
    assert_eq!(node.series("call_errors"), BTreeMap::new());
}

#[test]
fn an_h100_has_errors_links_and_activity() {
    let node = Node::new(&format!(
        "profile h100\ngpu 0 uuid {A}\ngpu 0 utilization 60 10\ngpu 0 ecc corrected volatile \
         12\ngpu 0 ecc uncorrected aggregate 3\n\
         gpu 0 remapped 4 1 1 0\ngpu 0 sram-threshold exceeded\ngpu 0 nvlink 5 down\ngpu 0 \
         nvlink-errors 17 replay 9\n\
         gpu 0 recovery-action 2\ngpu 0 temperature 60\ngpu 0 memory-temperature 71\n"
    ));
    // Activity is the mean between two readings.
    node.wait_for("activity", "takt_gpu_activity_ratio");
    let one = |name: &str, labels: &str| value(&node, name, A, labels);
    assert_eq!(one("ecc_enabled", ""), Some(1.0));
    assert_eq!(
        one("ecc_errors_total", r#"type="corrected",scope="volatile""#),
        Some(12.0)
    );
    assert_eq!(
        one(
            "ecc_errors_total",
            r#"type="uncorrected",scope="aggregate""#
        ),
        Some(3.0)
    );
    assert_eq!(
        one("ecc_errors_total", r#"type="corrected",scope="aggregate""#),
        Some(0.0)
    );
    assert_eq!(one("row_remap_rows", "uncorrected"), Some(1.0));
    assert_eq!(one("row_remap_pending", ""), Some(1.0));
    assert_eq!(one("row_remap_failed", ""), Some(0.0));
    assert_eq!(one("row_remap_banks", "max"), Some(635.0));
    assert_eq!(one("sram_threshold_exceeded", ""), Some(1.0));
    assert_eq!(one("recovery_action", ""), Some(2.0));
    assert_eq!(one("temperature_celsius", "memory"), Some(71.0));
    assert_eq!(one("temperature_margin_celsius", ""), Some(27.0));
    let links = by_label(&node, "nvlink_up", A);
    assert_eq!((links.len(), links.values().sum::<f64>()), (18, 17.0));
    assert_eq!(
        one("nvlink_errors_total", r#"link="17",type="replay""#),
        Some(9.0)
    );
    assert_eq!(
        one("nvlink_errors_total", r#"link="16",type="crc""#),
        Some(0.0)
    );
    assert!(one("nvlink_bytes_total", "tx").is_some());
    assert_eq!(one("mig_enabled", ""), Some(0.0));
    let graphics = one("activity_ratio", r#"part="graphics""#).unwrap();
    assert!((graphics - 0.6).abs() < 0.02, "{graphics}");
    assert!(
        one("activity_ratio", r#"part="fp64""#).is_none(),
        "not supported there"
    );
    // Hopper's pages are remapped, not retired.
    assert!(node.series("retired").is_empty());
    assert_eq!(node.series("call_errors"), BTreeMap::new());
}

#[test]
fn an_older_data_centre_gpu_has_its_own_ways() {
    let node = Node::new(&format!(
        "profile a100\ngpu 0 uuid {A}\ngpu 0 retired 3 1 1\ngpu 0 nvlink-errors 11 crc-data 5\ngpu \
         0 nvlink-errors 2 recovery 1\n"
    ));
    let one = |name: &str, labels: &str| value(&node, name, A, labels);
    assert_eq!(one("retired_pages", "double_bit"), Some(1.0));
    assert_eq!(one("retired_pages_pending", ""), Some(1.0));
    assert_eq!(
        one("nvlink_errors_total", r#"link="11",type="crc_data""#),
        Some(5.0)
    );
    assert_eq!(
        one("nvlink_errors_total", r#"link="2",type="recovery""#),
        Some(1.0)
    );
    assert!(node.series("activity").is_empty() && node.series("sram").is_empty());
}

#[test]
fn nvlink_5_has_figures_of_its_own() {
    use nvml_wrapper_sys::bindings::field_id::*;
    let node = Node::new(&format!(
        "profile b200\ngpu 0 uuid {A}\ngpu 0 field-value {NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS} 17 \
         5\n\
         gpu 0 field-value {NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS} 3 2\n\
         gpu 0 field-value {NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER} 4 {}\ngpu 0 nvlink 9 down\ngpu \
         0 fabric degraded\n",
        3 << 8 | 12
    ));
    let one = |name: &str, labels: &str| value(&node, name, A, labels);
    assert_eq!(
        one("nvlink_errors_total", r#"link="17",type="receive""#),
        Some(5.0)
    );
    assert_eq!(
        one("nvlink_errors_total", r#"link="16",type="receive""#),
        Some(0.0)
    );
    assert_eq!(
        one("nvlink_errors_total", r#"link="3",type="recovery""#),
        Some(2.0)
    );
    assert_eq!(
        one("nvlink_errors_total", r#"type="crc""#),
        None,
        "which NVLink 5 does not count"
    );
    assert!(
        one("nvlink_bit_error_ratio", r#"link="4",type="effective""#)
            .is_some_and(|ratio| (ratio - 3e-12).abs() < 1e-20)
    );
    assert_eq!(
        one("nvlink_speed_bytes_per_second", r#"link="0""#),
        Some(53.125e9)
    );
    assert_eq!(one("nvlink_up", r#"link="9""#), Some(0.0));
    assert!(
        one("nvlink_bytes_total", "tx").is_some(),
        "the sum of its links"
    );
    assert_eq!(
        (one("fabric_ready", ""), one("fabric_degraded", "")),
        (Some(1.0), Some(1.0))
    );
    assert_eq!(
        one("temperature_margin_limit_celsius", "shutdown"),
        Some(-5.0)
    );
    assert_eq!(node.series("call_errors"), BTreeMap::new());
    node.becomes(&format!(
        "profile b200\ngpu 0 uuid {A}\ngpu 0 fabric joining\n"
    ));
    node.wait_for(
        "not in the fabric yet",
        &format!("takt_gpu_fabric_ready{{uuid=\"{A}\"}} 0\n"),
    );
}

#[test]
fn virtual_machines_are_reported_by_host_and_guest() {
    let host = Node::new(&format!(
        "profile a100\ngpu 0 uuid {A}\ngpu 0 virtualization vgpu-host\ngpu 0 vgpu vm-7 2GiB GRID \
         A100-10C\n\
         gpu 0 vgpu vm-8 0 GRID A100-20C\n"
    ));
    let one = |name: &str, labels: &str| value(&host, name, A, labels);
    assert_eq!(one("virtualization_info", r#"mode="vgpu_host""#), Some(1.0));
    assert_eq!(one("vgpus", ""), Some(2.0));
    assert_eq!(
        one("vgpu_info", r#"vm="vm-7",type="GRID A100-10C""#),
        Some(1.0)
    );
    assert_eq!(
        one("vgpu_memory_used_bytes", "VGPU-vm-7-"),
        Some(2_147_483_648.0)
    );
    assert_eq!(one("vgpu_licensed", ""), None);
    let script = |licence| {
        format!(
            "profile a100\ngpu 0 uuid {A}\ngpu 0 virtualization vgpu-guest\ngpu 0 licence \
             {licence}\n"
        )
    };
    let guest = Node::with(
        &script("missing"),
        &["--gpu.dcgm-names", "--path.kmsg=/nonexistent"],
    );
    assert_eq!(value(&guest, "vgpu_licensed", A, ""), Some(0.0));
    assert_eq!(value(&guest, "vgpus", A, ""), None);
    guest.becomes(&script("there"));
    guest.wait_for(
        "the licence",
        &format!("takt_gpu_vgpu_licensed{{uuid=\"{A}\"}} 1\n"),
    );
    assert!(
        guest
            .exporter
            .page("")
            .contains("DCGM_FI_DEV_VGPU_LICENSE_STATUS{")
    );
}

#[test]
fn a_gpu_in_parts_shows_each_and_its_job() {
    let pid = std::process::id();
    let node = Node::new(&format!(
        "profile h100\ngpu 0 uuid {A}\ngpu 0 part 1 0 3g.40gb 40GiB 10GiB\ngpu 0 part 5 0 1g.10gb \
         10GiB 0\n\
         gpu 0 process {pid} 1GiB compute\ngpu 0 instance {pid} 5\n"
    ));
    node.wait_for("activity of parts", "takt_gpu_mig_activity_ratio");
    let info = by_label(&node, "mig_info", A);
    assert_eq!(info.len(), 2);
    assert!(
        info.keys()
            .any(|labels| labels
                .contains(r#"gpu_instance="1",compute_instance="0",profile="3g.40gb""#)),
        "{info:?}"
    );
    assert_eq!(
        value(&node, "mig_memory_total_bytes", A, "MIG-0-"),
        Some(40.0 * 1_073_741_824.0)
    );
    assert_eq!(
        value(&node, "mig_memory_used_bytes", A, "MIG-0-"),
        Some(10.0 * 1_073_741_824.0)
    );
    assert_eq!(value(&node, "mig_enabled", A, ""), Some(1.0));
    // NVML knows no utilization of a divided GPU.
    assert_eq!(value(&node, "utilization_ratio", A, ""), None);
    let used = node.wait_for("its process", "takt_gpu_process_without_job{uuid=\"MIG-1-");
    assert!(
        !used.contains(&format!("takt_gpu_process_without_job{{uuid=\"{A}\"")),
        "{used}"
    );
}

#[test]
fn a_link_is_degraded_when_it_is_narrow_or_slow_under_load() {
    let script = |rest: &str| format!("profile rtx5090\ngpu 0 uuid {A}\n{rest}");
    let node = Node::new(&script("gpu 0 utilization 0 0\n"));
    let degraded = |is_so: u8| format!("takt_gpu_pcie_degraded{{uuid=\"{A}\"}} {is_so}\n");
    let page = node.wait_for("at rest", &degraded(0));
    assert!(
        page.contains(&format!(
            "takt_gpu_pcie_link_generation{{uuid=\"{A}\",kind=\"current\"}} 1\n"
        )),
        "slow at rest"
    );
    node.becomes(&script("gpu 0 utilization 0 0\ngpu 0 pcie 1 8\n"));
    node.wait_for("narrow", &degraded(1));
    node.becomes(&script("gpu 0 utilization 90 10\ngpu 0 pcie 5 16\n"));
    node.wait_for("well under load", &degraded(0));
    node.becomes(&script("gpu 0 utilization 90 10\ngpu 0 pcie 3 16\n"));
    node.wait_for("slow under load", &degraded(1));
}

#[test]
fn a_hung_gpu_is_reported_and_the_other_keeps_its_values() {
    let node = Node::new(&named("gpu 1 temperature 50\n"));
    node.wait_for("up", &up(A, "", 1));
    node.becomes(&named(
        "gpu 0 sleep nvmlDeviceGetPowerUsage 30000\ngpu 1 temperature 51\n",
    ));
    let page = node.wait_for("hung", &up(A, "hung", 0));
    assert!(page.contains(&up(B, "", 1)));
    // The values of the other GPU are new ones.
    node.becomes(&named(
        "gpu 0 sleep nvmlDeviceGetPowerUsage 30000\ngpu 1 temperature 52\n",
    ));
    let page = node.wait_for(
        "the sibling's new temperature",
        &format!("takt_gpu_temperature_celsius{{uuid=\"{B}\",sensor=\"gpu\"}} 52\n"),
    );
    assert!(page.contains(&up(A, "hung", 0)), "{page}");
    assert!(
        !page.contains(&format!("takt_gpu_power_watts{{uuid=\"{A}\"}}")),
        "{page}"
    );
}

/// Starts an exporter that keeps state, and returns its signal when the library ends it.
fn crashes(state: &str, script: &std::path::Path) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_takt-exporter"));
    let mut child = command
        .args(["--web.listen-address=127.0.0.1:0", state, &stand_in()])
        .args(["--path.kmsg=/nonexistent"])
        .env("NVML_STAND_IN_SCRIPT", script)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.signal();
        }
        if Instant::now() > until {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_library_that_crashes_ends_the_exporter_three_times_and_no_more() {
    const SEGV: i32 = 11;
    const ABRT: i32 = 6;
    let directory = TempDir::new().unwrap();
    let state = format!("--state-directory={}/state", directory.path().display());
    let script = directory.path().join("script");
    for (kind, signal) in [("segv", SEGV), ("abort", ABRT), ("segv", SEGV)] {
        std::fs::write(&script, named(&format!("crash nvmlDeviceGetName {kind}\n"))).unwrap();
        assert_eq!(crashes(&state, &script), Some(signal));
    }
    // The fourth start does not load the library for a while, and the page is served.
    let exporter = Running::takt(
        &[&state, &stand_in(), "--path.kmsg=/nonexistent"],
        &[("NVML_STAND_IN_SCRIPT", &script)],
    );
    for _ in 0..10 {
        let page = exporter.page("");
        assert!(page.contains("node_load1 ") && !page.contains("takt_gpu_up{"));
        assert!(page.contains(r#"node_scrape_collector_success{collector="nvml"} 0"#));
        assert!(page.contains(r#"takt_exporter_collector_absent{collector="nvml"} 0"#));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_exporter_that_is_ended_was_not_ended_by_the_library() {
    let directory = TempDir::new().unwrap();
    let state = format!("--state-directory={}/state", directory.path().display());
    let script = directory.path().join("script");
    std::fs::write(&script, named("sleep * 30000\n")).unwrap();
    let start = || {
        Running::takt(
            &[&state, &stand_in(), "--path.kmsg=/nonexistent"],
            &[("NVML_STAND_IN_SCRIPT", &script)],
        )
    };
    for _ in 0..5 {
        assert_eq!(start().end(), Some(0));
    }
    std::fs::write(&script, named("")).unwrap();
    start().wait_for("up", |page| page.contains(&up(A, "", 1)));
}

#[test]
fn when_nvml_hangs_each_gpu_is_reported() {
    let node = Node::new(&named(""));
    node.wait_for("up", &up(A, "", 1));
    node.becomes(&named("sleep * 30000\n"));
    let page = node.wait_for("hung", &up(A, "hung", 0));
    assert!(page.contains(&up(B, "hung", 0)));
    assert!(page.contains(r#"node_scrape_collector_success{collector="nvml"} 0"#));
}

#[test]
fn a_gpu_that_is_missing_after_a_restart_is_reported() {
    let state = TempDir::new().unwrap();
    let flag = format!("--state-directory={}", state.path().display());
    let start = |rest: &str| Node::with(&named(rest), &[&flag, "--path.kmsg=/nonexistent"]);
    start("").wait_for("both up", &up(B, "", 1));
    let node = start("gpu 0 gone\n");
    let page = node.wait_for("missed", &up(A, "not_enumerated", 0));
    assert!(page.contains(&up(B, "", 1)));
    drop(node);
    // A GPU that is lost from the start has no UUID; it is identified by its PCI address.
    let node = start("gpu 1 lost\n");
    let page = node.wait_for("lost", &up(B, "lost", 0));
    assert!(
        page.contains(&up(A, "", 1)) && !page.contains("unknown-"),
        "{page}"
    );
}

#[test]
fn throttle_times_are_read_by_every_drivers_numbers() {
    for driver in ["570.86", "580.65.06", "580.95.05"] {
        let node = Node::new(&format!(
            "driver {driver}\nprofile rtx5090\ngpu 0 uuid {A}\ngpu 0 throttle 0xe0\n"
        ));
        let seconds = || {
            ["sw_thermal", "hw_thermal", "hw_power_brake"]
                .map(|reason| value(&node, "throttle_seconds_total", A, &format!("\"{reason}\"")))
        };
        let grows = |page: &str| {
            let line = |reason| {
                format!("takt_gpu_throttle_seconds_total{{uuid=\"{A}\",reason=\"{reason}\"}} 0.")
            };
            ["sw_thermal", "hw_thermal", "hw_power_brake"]
                .into_iter()
                .all(|reason| {
                    page.contains(&line(reason))
                        || page.contains(&line(reason).replace(" 0.", " 1."))
                })
        };
        node.exporter.wait_for("counting", grows);
        assert!(
            seconds()
                .iter()
                .all(|seconds| seconds.is_some_and(|seconds| seconds > 0.0)),
            "{driver}: {:?}",
            seconds()
        );
    }
}

#[test]
fn failures_are_counted_by_call() {
    let node = Node::new(&format!(
        "profile rtx5090\ngpu 0 uuid {A}\ngpu 0 fail nvmlDeviceGetPowerUsage 999\ngpu 0 fail \
         nvmlDeviceGetEncoderUtilization 3\n"
    ));
    let errors = by_label(&node, "call_errors_total", A);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors.iter().all(|(labels, count)| labels
            .contains(r#"call="GetPowerUsage",error="Unknown""#)
            && *count >= 1.0),
        "{errors:?}"
    );
}

#[test]
fn dcgm_names_have_dcgms_labels_and_units() {
    let script = format!(
        "profile h100\ngpu 0 uuid {A}\ngpu 0 utilization 58 10\ngpu 0 power 431.5\ngpu 0 energy \
         1000\ngpu 0 clocks 1755 2619\n\
         gpu 0 memory-used 1GiB\ngpu 0 throttle 0x84\ngpu 0 pci 00000000:1B:00.0\ngpu 0 \
         nvlink-errors 3 replay 2\ngpu 0 nvlink-errors 4 replay 5\n"
    );
    let node = Node::with(&script, &["--gpu.dcgm-names", "--path.kmsg=/nonexistent"]);
    let page = node.wait_for("activity", "DCGM_FI_PROF_GR_ENGINE_ACTIVE");
    let labels = |line: &str| {
        let hostname = line
            .split_once("Hostname=\"")?
            .1
            .split_once('"')?
            .0
            .to_owned();
        Some((hostname, line.to_owned()))
    };
    let (hostname, _) = page
        .lines()
        .find(|line| line.starts_with("DCGM_FI_DEV_GPU_UTIL{"))
        .and_then(labels)
        .unwrap();
    assert!(!hostname.is_empty());
    let labels = format!(
        "gpu=\"0\",UUID=\"{A}\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia0\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"{hostname}\",DCGM_FI_DRIVER_VERSION=\"580.95.05\""
    );
    for (name, value) in [
        ("DCGM_FI_DEV_GPU_UTIL", "58"),
        ("DCGM_FI_DEV_POWER_USAGE", "431.5"),
        ("DCGM_FI_DEV_SM_CLOCK", "1755"),
        ("DCGM_FI_DEV_FB_USED", "1024"),
        ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "7"),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "0"),
        ("DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX", "640"),
        ("DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", "700"),
        ("DCGM_FI_DEV_SHUTDOWN_TEMP", "92"),
        ("DCGM_FI_DEV_MAX_SM_CLOCK", "1980"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "132"),
        ("DCGM_FI_DEV_XID_ERRORS", "0"),
    ] {
        assert!(
            page.contains(&format!("{name}{{{labels}}} {value}\n")),
            "{name} {value}:\n{page}"
        );
    }
    assert!(page.contains("# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n"));
    assert!(
        !page.contains("DCGM_FI_DEV_RETIRED_SBE"),
        "not supported there"
    );
    node.becomes(&format!("{script}xid 0 48\n"));
    node.wait_for(
        "the last XID",
        &format!("DCGM_FI_DEV_XID_ERRORS{{{labels}}} 48\n"),
    );
    // In OpenMetrics, where counters end in _total, the page can be read too.
    let (_, open) = node.exporter.get(
        "/metrics?collect[]=nvml",
        "Accept: application/openmetrics-text;version=1.0.0\r\n",
    );
    let open = support::series(takt_model::exposition::Format::OpenMetrics, &open);
    assert!(
        open.keys()
            .any(|name| name.starts_with("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")),
        "{:?}",
        open.keys().next()
    );
    // Without the flag these series do not exist.
    assert!(!Node::new(&script).exporter.page("").contains("DCGM_"));
}

#[test]
fn an_xid_is_counted_once_by_any_source() {
    let directory = TempDir::new().unwrap();
    let log = directory.path().join("log");
    std::fs::write(&log, "").unwrap();
    let flag = format!("--path.kmsg={}", log.display());
    let base = format!("profile rtx5090\ngpu 0 uuid {A}\ngpu 0 pci 00000000:06:00.0\n");
    let node = Node::with(&base, &[&flag]);
    let count = |xid: u32, count: u32| {
        format!("takt_gpu_xid_errors_total{{uuid=\"{A}\",xid=\"{xid}\"}} {count}\n")
    };
    // The kernel log counts from the boot: an XID from long before is not the one that NVML reports
    // now.
    let write = |line: &str| {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let mut file = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
        std::io::Write::write_all(
            &mut file,
            format!("6,1,{:.0},-;{line}\n", seconds * 1e6).as_bytes(),
        )
        .unwrap();
    };
    let page = node.wait_for("there before it happens", &count(79, 0));
    assert!(page.contains(&count(13, 0)));
    // Reported by NVML only, …
    node.becomes(&format!("{base}xid 0 13\n"));
    node.wait_for("told by NVML", &count(13, 1));
    // … by the kernel only, …
    write(
        "NVRM: Xid (PCI:0000:06:00): 31, pid=7, name=python, Ch 0000000a, intr 00000000. MMU Fault",
    );
    node.wait_for("told by the kernel", &count(31, 1));
    // … and by both.
    write("NVRM: Xid (PCI:0000:06:00): 48, pid='<unknown>', name=<unknown>, DBE");
    node.becomes(&format!("{base}xid 0 13\nxid 0 48\n"));
    node.wait_for("told by the kernel", &count(48, 1));
    // NVML reports the next XID later, so all earlier ones are counted once this one is.
    node.becomes(&format!("{base}xid 0 13\nxid 0 48\nxid 0 62\n"));
    let page = node.wait_for("told by both", &count(62, 1));
    assert!(page.contains(&count(48, 1)), "{page}");
    assert!(
        page.contains(&count(13, 1)) && page.contains(&count(31, 1)),
        "{page}"
    );
}
