//! The series of each kind of GPU: GeForce, data centre, MIG, NVLink, virtual machines.

use super::*;
use std::process;

#[test]
fn an_rtx_5090_in_base_units() {
    // The script has percent, MiB and MHz, as NVML does.
    let node = Node::new(&format!(
        "profile rtx5090\ngpu 0 uuid {A}\ngpu 0 utilization 97 40\ngpu 0 power 431.5\ngpu 0 \
         power-limit 575\ngpu 0 energy 1000\n\
         gpu 0 temperature 71\ngpu 0 memory-used 1GiB\ngpu 0 memory-total 32607MiB\ngpu 0 clocks \
         2407 14001\ngpu 0 fan 30 45\n\
         gpu 0 pci 00000000:41:00.0\ngpu 0 minor 3\ngpu 0 encoder 5\ngpu 0 decoder 0\ngpu 0 jpeg \
         7\ngpu 0 persistence 0\n"
    ));
    let series = node.series("");
    let value = |name: &str, labels: &str| {
        series
            .keys()
            .find(|key| key.contains(&format!("takt_gpu_{name}{{")) && key.contains(labels))
            .map(|name| series[name])
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
    assert_eq!(value("persistence_enabled", ""), Some(0.0));

    // The energy grows while the test runs.
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
    // A function that the driver lacks, a value that the GPU lacks, and a call that fails.
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

/// Returns the values of one metric by the labels behind the UUID.
pub(super) fn by_label(node: &Node, name: &str, uuid: &str) -> BTreeMap<String, f64> {
    let begin = format!("takt_gpu_{name}{{uuid=\"{uuid}\"");
    node.exporter
        .page("?collect[]=nvml")
        .lines()
        .filter_map(|line| line.strip_prefix(&begin)?.rsplit_once("} "))
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
    // Two of NVML's reasons: 0x04 is the software's power cap, and 0x80 the power brake.
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
    // A value that the GPU lacks is no failed call.
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

    // An H100 has 18 links, one of which is down.
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

    // The script has 60 %, and the times of two readings are not exact.
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
    // NVML packs a bit error rate as a mantissa and a negative exponent of ten: here 3 and 12.
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
    // Only a guest has a licence.
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
    // A process that exists: the test's own.
    let pid = process::id();
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
    // GPU instance 5 is the second part.
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

    // A link at rest is slow to save power, which is no fault.
    let page = node.wait_for("at rest", &degraded(0));
    assert!(
        page.contains(&format!(
            "takt_gpu_pcie_link_generation{{uuid=\"{A}\",kind=\"current\"}} 1\n"
        )),
        "slow at rest"
    );

    // Half of the lanes.
    node.becomes(&script("gpu 0 utilization 0 0\ngpu 0 pcie 1 8\n"));
    node.wait_for("narrow", &degraded(1));
    node.becomes(&script("gpu 0 utilization 90 10\ngpu 0 pcie 5 16\n"));
    node.wait_for("well under load", &degraded(0));
    node.becomes(&script("gpu 0 utilization 90 10\ngpu 0 pcie 3 16\n"));
    node.wait_for("slow under load", &degraded(1));
}

#[test]
fn throttle_times_are_read_by_every_drivers_numbers() {
    for driver in ["570.86", "580.65.06", "580.95.05"] {
        // The bits of NVML's reasons for the three below.
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
                    // A slow machine may see more than a second.
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
