//! The real program with simulated disks and a simulated BMC: a preloaded library answers instead
//! of the kernel (`tests/hardware-stand-in`).

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

mod support;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;
use support::Running;
use takt_model::{Event, EventKind};
use tempfile::{TempDir, tempdir};

/// A node with scripted devices.
struct Node(TempDir);

impl Node {
    /// Starts a node with disks of these names and vendors.
    fn new(disks: &[(&str, &str)], script: &str) -> Self {
        let node = Self(tempdir().unwrap());
        fs::create_dir_all(node.path("sys/block")).unwrap();
        for (name, vendor) in disks {
            fs::create_dir_all(node.path(&format!("sys/block/{name}/device/power"))).unwrap();
            fs::write(
                node.path(&format!("sys/block/{name}/device/vendor")),
                vendor,
            )
            .unwrap();
        }
        node.write("script", script);
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let beside = self.path("beside");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.path(name)).unwrap();
    }

    fn start(&self, collectors: &[&str]) -> Running {
        let library = env::current_exe()
            .unwrap()
            .with_file_name("libhardware_stand_in.so");
        assert!(library.exists(), "{} is missing", library.display());
        let mut flags = vec![
            "--collector.disable-defaults".to_owned(),
            format!("--path.sysfs={}", self.path("sys").display()),
            format!("--path.kmsg={}", self.path("kmsg").display()),
            format!("--state-directory={}", self.path("state").display()),
        ];
        flags.extend(collectors.iter().map(|name| format!("--collector.{name}")));
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        Running::takt(
            &flags,
            &[
                ("LD_PRELOAD", &library),
                ("HARDWARE_STAND_IN_SCRIPT", &self.path("script")),
            ],
        )
    }
}

/// Returns the series whose names begin with `prefix`.
fn only(series: BTreeMap<String, f64>, prefix: &str) -> Vec<String> {
    series
        .into_iter()
        .filter(|(name, _)| name.starts_with(prefix))
        .map(|(name, value)| format!("{name} {value}"))
        .collect()
}

fn success(exporter: &Running, collector: &str) -> f64 {
    exporter
        .wait_for("read", |page| {
            page.contains(&format!(
                "read_timestamp_seconds{{collector=\"{collector}\"}}"
            ))
        })
        .lines()
        .find(|line| line.contains(&format!("collector_success{{collector=\"{collector}\"}}")))
        .unwrap()
        .rsplit_once(' ')
        .unwrap()
        .1
        .parse()
        .unwrap()
}

#[test]
fn disks_report_health_and_refusing_disks_have_no_series() {
    let script = "
disk sda attribute 5 100 36 8
disk sda attribute 9 90 0 1000
disk sda attribute 187 99 0 2
disk sda attribute 194 60 0 41
disk sda attribute 197 100 0 3
disk sda attribute 199 200 0 7
disk sda written 1000
disk sdb fails
disk sdb attribute 5 30 36 4000
disk sdc refuses
disk sdd sas 00 00 26
disk sde sas 5d 10 2a
";
    let disks = [
        ("sda", "ATA"),
        ("sdb", "ATA     \n"),
        ("sdc", "ATA"),
        ("sdd", "SEAGATE"),
        ("sde", "HGST"),
    ];
    let node = Node::new(&disks, script);
    // IDENTIFY DEVICE, as the kernel shows it: this disk has device statistics, and sectors of
    // 4,096 bytes.
    let mut page = vec![0; 60 + 512];
    for (word, value) in [(87, 0x4020_u16), (106, 0x5000), (117, 2048)] {
        page[60 + 2 * word..][..2].copy_from_slice(&value.to_le_bytes());
    }
    fs::write(node.path("sys/block/sda/device/vpd_pg89"), page).unwrap();
    let exporter = node.start(&["disk_health"]);
    assert_eq!(success(&exporter, "disk_health"), 1.0);
    let expected = [
        r#"takt_disk_asleep{device="sda"} 0"#,
        r#"takt_disk_asleep{device="sdb"} 0"#,
        r#"takt_disk_asleep{device="sdd"} 0"#,
        r#"takt_disk_asleep{device="sde"} 0"#,
        r#"takt_disk_failing_attributes{device="sda"} 0"#,
        r#"takt_disk_failing_attributes{device="sdb"} 1"#,
        r#"takt_disk_healthy{device="sda"} 1"#,
        r#"takt_disk_healthy{device="sdb"} 0"#,
        r#"takt_disk_healthy{device="sdd"} 1"#,
        r#"takt_disk_healthy{device="sde"} 0"#,
        r#"takt_disk_interface_crc_errors_total{device="sda"} 7"#,
        r#"takt_disk_pending_sectors{device="sda"} 3"#,
        r#"takt_disk_power_on_seconds_total{device="sda"} 3600000"#,
        r#"takt_disk_reallocated_sectors_total{device="sda"} 8"#,
        r#"takt_disk_reallocated_sectors_total{device="sdb"} 4000"#,
        r#"takt_disk_reported_uncorrectable_errors_total{device="sda"} 2"#,
        r#"takt_disk_temperature_celsius{device="sda"} 41"#,
        r#"takt_disk_temperature_celsius{device="sdd"} 38"#,
        r#"takt_disk_temperature_celsius{device="sde"} 42"#,
        r#"takt_disk_written_bytes_total{device="sda"} 4096000"#,
    ];
    assert_eq!(only(exporter.series(""), "takt_disk_"), expected);
}

#[test]
fn a_sleeping_disk_is_not_woken() {
    let disks = [("sda", "ATA"), ("sdb", "ATA")];
    let node = Node::new(
        &disks,
        "disk sda mode 0\ndisk sda attribute 5 100 36 8\ndisk sdb attribute 5 100 36 8\n",
    );
    // The kernel has suspended this disk: opening it would wake it.
    fs::write(
        node.path("sys/block/sdb/device/power/runtime_status"),
        "suspended\n",
    )
    .unwrap();
    let exporter = node.start(&["disk_health"]);
    assert_eq!(success(&exporter, "disk_health"), 1.0);
    let asleep = [
        r#"takt_disk_asleep{device="sda"} 1"#,
        r#"takt_disk_asleep{device="sdb"} 1"#,
    ];
    assert_eq!(only(exporter.series(""), "takt_disk_"), asleep);
    assert!(!node.path("script.woken").exists());
}

#[test]
fn a_disk_without_permission_counts_as_absent() {
    let node = Node::new(&[("sda", "ATA")], "disk sda denied\n");
    let exporter = node.start(&["disk_health"]);
    assert_eq!(success(&exporter, "disk_health"), 0.0);
    let page = exporter.series("");
    assert_eq!(
        page[r#"takt_exporter_collector_absent{collector="disk_health"}"#],
        1.0
    );
    assert_eq!(only(page, "takt_disk_"), Vec::<String>::new());
}

const A_DAY: u32 = 86_400;

fn now() -> u32 {
    SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs() as u32
}

/// Returns a line of the script with a log record of sensor 0x51 (IPMI 2.0, §32.1). Kind 0x6f is an
/// event of the sensor's type, 0xef its end.
fn record(id: u16, time: u32, sensor_type: u8, kind: u8, event: u8) -> String {
    let id = id.to_le_bytes();
    let time = time.to_le_bytes();
    let record = [
        &id[..],
        &[2],
        &time,
        &[0x20, 0, 4, sensor_type, 0x51, kind, event, 0xff, 0xff],
    ]
    .concat();
    let record: Vec<_> = record.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("bmc entry {}\n", record.join(" "))
}

/// Returns all events that the exporter keeps.
fn told(node: &Node) -> Vec<Event> {
    fs::read_to_string(node.path("state/events.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter_map(|line| serde_json::from_value(line.get("event")?.clone()).unwrap())
        .collect()
}

#[test]
fn the_log_of_the_bmc_is_sent_as_events() {
    // The BMC's clock is a day behind the node's.
    let clock = now() - A_DAY;
    let bmc = format!("bmc clock {clock}\nbmc chassis 09 00 08\n");
    let old = record(1, clock - 9000, 0x08, 0x6f, 0x01);
    let node = Node::new(&[], &format!("{bmc}{old}"));
    let exporter = node.start(&["ipmi", "events"]);
    assert_eq!(success(&exporter, "ipmi"), 1.0);
    let expected = [
        r#"takt_ipmi_chassis_fault{fault="cooling"} 1"#,
        r#"takt_ipmi_chassis_fault{fault="drive"} 0"#,
        r#"takt_ipmi_chassis_fault{fault="power"} 1"#,
        r#"takt_ipmi_chassis_fault{fault="power_control"} 0"#,
        r#"takt_ipmi_chassis_fault{fault="power_overload"} 0"#,
        "takt_ipmi_log_entries 1",
        "takt_ipmi_log_free_bytes 16368",
        "takt_ipmi_log_overflown 0",
    ];
    assert_eq!(only(exporter.series(""), "takt_ipmi_"), expected);
    assert!(
        told(&node).is_empty(),
        "what was there before the first start"
    );
    drop(exporter);

    // The node loses power while the exporter is stopped. The return of power and the boot are no
    // events.
    let lost = record(2, clock - 600, 0x08, 0x6f, 0x03);
    let back = record(3, clock - 590, 0x08, 0xef, 0x03);
    let booted = record(4, clock - 5, 0x1f, 0x6f, 0x01);
    let log = format!("{bmc}{old}{lost}{back}{booted}");
    node.write("script", &log);
    let exporter = node.start(&["ipmi", "events"]);
    exporter.wait_for("told", |page| {
        page.contains("takt_events_total{kind=\"hardware_log\"} 1\n")
    });
    let events = told(&node);
    assert_eq!((events.len(), events[0].kind), (1, EventKind::HardwareLog));
    let labels =
        r#"{event="input lost", sensor="0x51", sensor_type="power_supply", severity="critical"}"#;
    assert_eq!(events[0].labels.to_string(), labels);
    assert!(
        events[0]
            .message
            .starts_with("BMC: power_supply, sensor 0x51: input lost (record 0200"),
        "{events:?}"
    );
    // Ten minutes before the reading, although the BMC's clock differs.
    let earliest = f64::from(clock + A_DAY - 600);
    let latest = f64::from(now() - 600 + 1);
    let at = events[0].at.as_seconds();
    assert!(
        (earliest..=latest).contains(&at),
        "{earliest} {at} {latest}"
    );
    drop(exporter);

    // The log is cleared, and its ids start again. Events sent before are not sent again.
    node.write(
        "script",
        &format!(
            "{bmc}{}bmc overflow\n",
            record(1, clock - 1, 0x0c, 0x6f, 0x21)
        ),
    );
    let exporter = node.start(&["ipmi", "events"]);
    exporter.wait_for("told", |page| {
        page.contains("takt_events_total{kind=\"hardware_log\"} 1\n")
    });
    assert_eq!(exporter.series("")["takt_ipmi_log_overflown"], 1.0);
    let events = told(&node);
    assert_eq!(events.len(), 2);
    assert_eq!(
        events[1].labels.get("event"),
        Some("uncorrectable ECC error")
    );
}

#[test]
fn a_bmc_that_is_slow_or_silent_holds_up_no_page() {
    let node = Node::new(&[], "bmc slow 700\n");
    let exporter = node.start(&["ipmi"]);
    exporter.wait_for("told at last", |page| {
        page.contains("takt_ipmi_log_entries 0\n")
    });
    drop(exporter);
    node.write("script", "bmc silent\n");
    let exporter = node.start(&["ipmi"]);
    let page = exporter.page("");
    assert!(
        page.contains("node_scrape_collector_success{collector=\"ipmi\"} 0\n"),
        "{page}"
    );
    assert!(!page.contains("takt_ipmi_"), "{page}");
    let is_read = "takt_exporter_collector_read_timestamp_seconds{collector=\"ipmi\"}";
    assert!(!page.contains(is_read), "the page waited for it: {page}");
}

#[test]
fn a_node_without_a_bmc_has_no_ipmi_series() {
    let node = Node::new(&[], "");
    let exporter = node.start(&["ipmi"]);
    assert_eq!(success(&exporter, "ipmi"), 0.0);
    let page = exporter.series("");
    assert_eq!(
        page[r#"takt_exporter_collector_absent{collector="ipmi"}"#],
        1.0
    );
    assert_eq!(only(page, "takt_ipmi_"), Vec::<String>::new());
}
