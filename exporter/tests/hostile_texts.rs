//! Texts that users, devices, networks and servers choose, in all files of a node: each is the value of a label, or
//! nothing. None makes a series, a label or a line. SECURITY.md lists the sources.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use support::{Running, fixtures, paths, series};
use takt_model::exposition::Format;
use tempfile::TempDir;

/// Ends a label, a line and a record, if nothing escapes it; and is no UTF-8.
const FORGED: &[u8] =
    b"x\"} 1\nforged{a=\"\\\t\x1b[31m\xff\xe2\x80\xae forged 1\n# TYPE forged gauge\nforged 1\n";

/// The same as the kernel writes it into lists of mounts.
const FORGED_MOUNT: &str = r#"x"}\0401\012forged{a="\134\011forged\0401\012forged\0401\012"#;

/// A name of a network link: anything but blanks, `/` and `:`.
const LINK: &str = "ev\"il}\\";

const ON_REQUEST: &[&str] = &[
    "buddyinfo",
    "cgroups",
    "cpu.info",
    "drbd",
    "drm",
    "interrupts",
    "lnstat",
    "meminfo_numa",
    "nvmesubsystem",
    "pcidevice",
    "processes",
    "slabinfo",
    "softirqs",
    "swap",
    "wifi",
    "xfrm",
    "zoneinfo",
];

/// Part of the names of lists of the kernel's own words, which nobody else writes.
const OF_THE_KERNEL: &str = "available";

/// Copies a tree. Files of texts (not numbers) in `sys` and `udev` get the forged text at their end.
fn copy(from: &Path, to: &Path, is_text: bool) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            symlink(fs::read_link(&source).unwrap(), target).unwrap();
        } else if kind.is_dir() {
            let name = entry.file_name();
            copy(
                &source,
                &target,
                is_text || name == "sys" && from.file_name().unwrap() != "proc" || name == "udev",
            );
        } else {
            let mut bytes = fs::read(&source).unwrap();
            let is_number = bytes
                .first()
                .is_none_or(|byte| byte.is_ascii_digit() || *byte == b'-');
            let is_kernels = entry.file_name().to_string_lossy().contains(OF_THE_KERNEL);
            if is_text && !is_number && !is_kernels {
                bytes.truncate(bytes.trim_ascii_end().len());
                bytes.extend(FORGED);
            }
            fs::write(target, bytes).unwrap();
        }
    }
}

fn append(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut bytes = fs::read(path).unwrap_or_default();
    bytes.extend(text.as_bytes());
    fs::write(path, bytes).unwrap();
}

/// Returns a node with forged texts, made from a fixture.
fn node(tree: &str) -> TempDir {
    let directory = TempDir::new().unwrap();
    let node = directory.path();
    copy(&fixtures().join(tree), node, false);

    let proc = node.join("proc");
    let fuse = format!(
        "{FORGED_MOUNT} /home/eve/{FORGED_MOUNT} fuse.{FORGED_MOUNT} rw,user_id=1000 0 0\n"
    );
    let info = format!(
        "90 1 0:90 / /home/eve/{FORGED_MOUNT} rw - fuse.{FORGED_MOUNT} {FORGED_MOUNT} rw\n"
    );
    let own = fs::canonicalize(proc.join("self")).unwrap_or_else(|_| proc.join("self"));
    for process in [own, proc.join("1")] {
        fs::create_dir_all(&process).unwrap();
        append(&process.join("mounts"), &fuse);
        append(&process.join("mountinfo"), &info);
    }
    append(
        &proc.join("self/mountstats"),
        &format!(
            "device {FORGED_MOUNT}:/x mounted on /{FORGED_MOUNT} with fstype nfs4 statvers=1.1\n\tage:\t7\n"
        ),
    );
    append(
        &proc.join("net/dev"),
        &format!("{LINK}: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"),
    );
    append(
        &proc.join("mdstat"),
        &format!("md_{LINK} : active raid0 sda[0] sdb[1]\n      7 blocks\n"),
    );
    let process = proc.join("4242");
    fs::create_dir_all(&process).unwrap();
    let stat = [
        &b"4242 ("[..],
        FORGED,
        b") D 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 100 1 1 1\n",
    ]
    .concat();
    fs::write(process.join("stat"), stat).unwrap();
    fs::write(process.join("comm"), FORGED).unwrap();
    fs::write(process.join("cmdline"), FORGED).unwrap();

    let link = node.join("sys/class/net").join(LINK);
    fs::create_dir_all(&link).unwrap();
    fs::write(link.join("ifalias"), FORGED).unwrap();
    fs::write(link.join("operstate"), "up\n").unwrap();
    fs::write(link.join("flags"), "0x1003\n").unwrap();
    fs::write(link.join("ifindex"), "77\n").unwrap();

    // A disk that was plugged in.
    let udev = node.join("udev/b8:0");
    if udev.exists() {
        let mut bytes = fs::read(&udev).unwrap();
        bytes.extend(b"\nE:ID_MODEL=x\"} 1 forged \xff\n");
        fs::write(udev, bytes).unwrap();
    }

    let textfiles = node.join("textfile");
    fs::create_dir_all(&textfiles).unwrap();
    fs::write(textfiles.join("eve.prom"), FORGED).unwrap();
    let escaped =
        "# HELP site_text forged 1\\nforged 1\\\\\nsite_text{a=\"x\\\"} 1\\nforged 1\\\\\"} 1\n";
    fs::write(textfiles.join("site.prom"), escaped).unwrap();
    directory
}

#[test]
fn no_text_of_a_node_makes_a_series() {
    let mut reached = String::new();
    for tree in ["made-up/much-hardware", "made-up/odd-node"] {
        let node = node(tree);
        let mut flags = paths(node.path());
        flags
            .extend(["--nvml.library=/nonexistent", "--path.kmsg=/nonexistent"].map(str::to_owned));
        flags.extend(ON_REQUEST.iter().map(|name| format!("--collector.{name}")));
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let exporter = Running::takt(&flags, &[]);
        let page = exporter.wait_for("read", |page| {
            page.contains("node_textfile_scrape_error 1\n")
                && page.contains("node_filesystem_readonly{")
        });
        let (_, open) = exporter.get(
            "/metrics",
            "Accept: application/openmetrics-text;version=1.0.0\r\n",
        );

        // Both are well formed, and no name of a metric or a label is forged.
        for (format, page) in [(Format::Text, &page), (Format::OpenMetrics, &open)] {
            for name in series(format, page).keys() {
                assert!(!name.starts_with("forged"), "{name}");
            }
            for line in page.lines() {
                assert!(
                    line.len() < 16_384,
                    "a line of {} bytes: {line}",
                    line.len()
                );
                let is_forged = ["forged", "# TYPE forged", "# HELP forged"]
                    .iter()
                    .any(|begin| line.starts_with(begin));
                assert!(!is_forged, "{line}");
            }
        }
        reached += &page;
    }

    // Where the text is a label, it is there as a whole.
    for begin in [
        "node_filesystem_device_error{device=\"x\\\"}\\\\0401\\\\012forged{",
        "takt_nfs_mount_hung_seconds{mountpoint=\"/x\\\"} 1\\nforged{",
        "node_network_info{",
        "node_dmi_info{",
        "node_disk_info{",
        "node_hwmon_sensor_label{",
        "node_power_supply_info{",
        "node_md_blocks{device=\"md_ev\\\"il}\\\\\"} 7",
        "site_text{a=\"x\\\"} 1\\nforged 1\\\\\"} 1\n",
    ] {
        let is_there = reached.match_indices(begin).any(|(at, _)| {
            let line = reached[at..].lines().next().unwrap();
            line.contains("forged") || line.contains("ev\\\"il")
        });
        assert!(is_there, "{begin} has no text:\n{reached}");
    }
}
