//! dcgm-exporter's names.

use super::*;

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
            .split_once("hostname=\"")?
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
        "gpu=\"0\",UUID=\"{A}\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia0\",modelName=\"NVIDIA H100 80GB HBM3\",hostname=\"{hostname}\",DCGM_FI_DRIVER_VERSION=\"580.95.05\""
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

/// The names of DCGM 4.7 have base units; the label of the host was renamed before them.
#[test]
fn dcgm_names_are_those_of_the_release_that_is_asked_for() {
    let script = format!(
        "profile h100\ngpu 0 uuid {A}\ngpu 0 utilization 58 10\ngpu 0 power 431.5\ngpu 0 energy \
         1000\ngpu 0 clocks 1755 2619\ngpu 0 memory-used 1GiB\n"
    );
    let page = |flag| {
        let node = Node::with(&script, &[flag, "--path.kmsg=/nonexistent"]);
        node.wait_for("activity", "DCGM_FI_PROF_")
    };

    let old = page("--gpu.dcgm-names=4.7");
    assert!(old.contains("DCGM_FI_DEV_GPU_UTIL{") && old.contains(",Hostname=\""));
    assert!(!old.contains(",hostname="));

    let new = page("--gpu.dcgm-names=4.9");
    let value = |name: &str| {
        let start = format!("{name}{{");
        let line = new.lines().find(|line| line.starts_with(&start))?;
        assert!(
            line.contains(",hostname=\"") && line.contains(",DCGM_FI_SYSTEM_DRIVER_VERSION=\"")
        );
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    for (name, expected) in [
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.58),
        ("DCGM_FI_DEV_MEMORY_UTIL_RATIO", 0.1),
        ("DCGM_FI_DEV_BOARD_POWER_WATTS", 431.5),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1.755e9),
        ("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", 2.619e9),
        ("DCGM_FI_DEV_FB_USED_BYTES", 1_073_741_824.0),
        ("DCGM_FI_DEV_ROW_REMAP_FAILED", 0.0),
        ("DCGM_FI_DEV_XID_ERROR", 0.0),
    ] {
        assert_eq!(value(name), Some(expected), "{name}:\n{new}");
    }
    assert!(value("DCGM_FI_DEV_GPU_TEMP_CELSIUS").is_some());
    assert!(value("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO").is_some());
    assert!(new.contains("# TYPE DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL counter\n"));
    for gone in [
        "DCGM_FI_DEV_GPU_UTIL{",
        "DCGM_FI_DEV_FB_USED{",
        "DCGM_FI_DEV_XID_ERRORS{",
    ] {
        assert!(!new.contains(gone), "{gone}:\n{new}");
    }
}
