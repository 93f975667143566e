//! Software RAID: which arrays are whole, and which are being repaired.
//!
//! Sources: `/proc/mdstat`, three lines or more an array, and `/sys/block/md*/md`. Each may have
//! arrays that the other lacks.

use crate::collector::{CollectError, Collector, MAX_DEVICES, OrAbsent, ParseError, flag};
use crate::file::KernelFile;
use crate::paths::Paths;
use crate::sysfs;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

struct Mdadm {
    mdstat: KernelFile,
    block: PathBuf,
}

const STATE: Metric = Metric::gauge(
    "node_md_state",
    "Indicates the state of md-device.",
    &["device", "state"],
);
const DISKS: Metric = Metric::gauge(
    "node_md_disks",
    "Number of active/failed/spare disks of device.",
    &["device", "state"],
);
const REQUIRED: Metric = Metric::gauge(
    "node_md_disks_required",
    "Total number of disks of device.",
    &["device"],
);
const BLOCKS: Metric = Metric::gauge(
    "node_md_blocks",
    "Total number of blocks on device.",
    &["device"],
);
const SYNCED: Metric = Metric::gauge(
    "node_md_blocks_synced",
    "Number of blocks synced on device.",
    &["device"],
);
const RAID_DISKS: Metric = Metric::gauge(
    "node_md_raid_disks",
    "Number of raid disks on device.",
    &["device"],
);
const DEGRADED: Metric = Metric::gauge(
    "node_md_degraded",
    "Number of degraded disks on device.",
    &["device"],
);
/// A state that is none of [`STATES`].
const OTHER: &str = "";
const STATES: [&str; 5] = ["active", "inactive", "recovering", "resync", "check"];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Mdadm {
        mdstat: KernelFile::new(paths.procfs.join("mdstat")),
        block: paths.sysfs.join("block"),
    })
}

impl Collector for Mdadm {
    fn metrics(&self) -> &'static [Metric] {
        &[STATE, DISKS, REQUIRED, BLOCKS, SYNCED, RAID_DISKS, DEGRADED]
    }

    fn max_series(&self) -> usize {
        13 * MAX_DEVICES
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let arrays = self.mdstat.parse(parse).or_absent("no software RAID")?;

        for Array {
            device,
            state,
            active,
            failed,
            spare,
            required,
            blocks,
            synced,
        } in &arrays
        {
            for name in STATES {
                let is_it = flag(name == *state);
                out.push(&STATE, &[device.as_str(), name], is_it);
            }
            for (name, count) in [("active", active), ("failed", failed), ("spare", spare)] {
                out.push(&DISKS, &[device.as_str(), name], *count as f64);
            }

            out.push(&REQUIRED, &[device], *required as f64);
            out.push(&BLOCKS, &[device], *blocks as f64);
            out.push(&SYNCED, &[device], *synced as f64);
        }

        for device in sysfs::names(&self.block, "md").unwrap_or_default() {
            push_disks(&self.block.join(&device).join("md"), &device, out);
        }
        Ok(())
    }
}

/// Pushes the disks that a whole array has, and those that are missing.
fn push_disks(md: &Path, device: &str, out: &mut Samples) {
    // Containers of firmware RAID have no disks of their own.
    let level = sysfs::text(&md.join("level")).unwrap_or_default();
    let has_disks = !["", "container", "imsm", "ddf"].contains(&level.as_str());
    let disks = sysfs::text(&md.join("raid_disks"));
    if has_disks && let Some(disks) = disks.as_deref().and_then(raid_disks) {
        out.push(&RAID_DISKS, &[device], disks as f64);
    }

    // Arrays without redundancy have no such file: they have all disks, or do not run.
    if md.exists() {
        let degraded: u64 = sysfs::number(&md.join("degraded")).unwrap_or(0);
        out.push(&DEGRADED, &[device], degraded as f64);
    }
}

/// `11`, or `11 (10)` while the array grows from 10 disks to 11.
fn raid_disks(text: &str) -> Option<u64> {
    text.split(' ').next()?.parse().ok()
}

#[derive(Debug, PartialEq, Default)]
struct Array {
    device: String,
    state: &'static str,
    active: u64,
    failed: u64,
    spare: u64,
    required: u64,
    blocks: u64,
    synced: u64,
}

/// An array's first line begins at the margin, the others do not.
fn parse(text: &str) -> Result<Vec<Array>, ParseError> {
    let lines: Vec<_> = text.lines().enumerate().collect();
    let mut arrays = Vec::new();
    for (number, first) in &lines {
        if !is_first(first) {
            continue;
        }

        let rest = lines[number + 1..].iter().map(|(_, line)| *line);
        let rest: Vec<_> = rest.take_while(|line| is_indented(line)).collect();
        let array = parse_array(first, &rest).ok_or(ParseError {
            line: number + 1,
            expected: "an array and its blocks",
        })?;
        arrays.push(array);
    }
    Ok(arrays)
}

fn is_first(line: &str) -> bool {
    let is_about_all = ["Personalities", "unused", "read_ahead"]
        .iter()
        .any(|word| line.starts_with(word));
    !line.is_empty() && !is_indented(line) && !is_about_all
}

fn is_indented(line: &str) -> bool {
    line.starts_with([' ', '\t'])
}

/// `md0 : active raid1 sdb1[1] sda1[0](F)`, then `248896 blocks [2/1] [_U]`, then perhaps the
/// progress of a repair.
fn parse_array(first: &str, rest: &[&str]) -> Option<Array> {
    let mut words = first.split_ascii_whitespace();
    let device = words.next()?;
    let state = words.nth(1)?;
    let status = rest.first()?;
    let blocks = status.split_ascii_whitespace().next()?.parse().ok()?;

    // Whatever stands in brackets behind a disk is its place.
    let words = || first.split_ascii_whitespace();
    let disks = words().skip(3).filter(|word| word.contains('['));
    let disks = disks.count() as u64;
    let marked = |mark: &str| first.matches(mark).count() as u64;

    // `[required/active]`
    let counts = status.split(['[', ']']).find_map(|part| {
        let (required, active) = part.split_once('/')?;
        Some((required.parse().ok()?, active.parse().ok()?))
    });
    let is_without_redundancy = words().any(|word| ["raid0", "linear"].contains(&word));
    let (required, active) = match (state, counts) {
        // They have all their disks, or do not run.
        _ if is_without_redundancy => (disks, disks),
        ("inactive", _) => (0, 0),
        (_, Some(counts)) => counts,
        (_, None) => (disks, disks),
    };

    let state = match state {
        "active" => "active",
        "inactive" => "inactive",
        // `broken`: raid0 that lost a disk.
        _ => OTHER,
    };
    let mut array = Array {
        device: device.to_owned(),
        state,
        active,
        failed: marked("(F)"),
        spare: marked("(S)"),
        required,
        blocks,
        synced: blocks,
    };

    if let Some((line, state)) = rest[1..].iter().find_map(|line| progress(line)) {
        array.state = state;
        // `(done/all)`; a repair that has not begun has done nothing.
        let mut parts = line.split(['(', ')']);
        let done = parts.find_map(|part| part.split_once('/')?.0.parse().ok());
        array.synced = done.unwrap_or(0);
    }
    Some(array)
}

/// The line, and the state that it stands for, if it is that of a repair.
fn progress(line: &str) -> Option<(&str, &'static str)> {
    let states = [
        ("recovery", "recovering"),
        ("check", "check"),
        ("resync", "resync"),
        ("reshape", OTHER),
    ];
    let (_, state) = states.iter().find(|(word, _)| line.contains(word))?;
    Some((line, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_of_an_array_that_grows() {
        assert_eq!(raid_disks("11"), Some(11));
        assert_eq!(raid_disks("11 (10)"), Some(11));
        assert_eq!(raid_disks(""), None);
    }

    /// As node_exporter: disks of all arrays in sysfs, whatever `/proc/mdstat` lists.
    #[test]
    fn an_array_may_be_in_sysfs_only() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file(
            "proc/mdstat",
            "Personalities : [raid1]\nunused devices: <none>\n",
        );
        file("sys/block/md20/md/level", "raid5\n");
        file("sys/block/md20/md/raid_disks", "5 (4)\n");
        file("sys/block/md20/md/degraded", "1\n");
        file("sys/block/md127/md/level", "container\n");
        file("sys/block/md127/md/raid_disks", "0\n");
        file("sys/block/md3/size", "0\n");
        file("sys/block/sda/size", "0\n");
        let mut collector = Mdadm {
            mdstat: KernelFile::new(root.path().join("proc/mdstat")),
            block: root.path().join("sys/block"),
        };
        let mut samples = Samples::new();
        collector.collect(&mut samples).unwrap();
        let mut page = String::new();
        takt_model::exposition::write_page(
            takt_model::exposition::Format::Text,
            [&samples],
            &mut page,
        );
        let series: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            series,
            [
                r#"node_md_degraded{device="md127"} 0"#,
                r#"node_md_degraded{device="md20"} 1"#,
                r#"node_md_raid_disks{device="md20"} 5"#,
            ]
        );
    }

    #[test]
    fn arrays() {
        let text = "\
Personalities : [raid1] [raid0] [raid6]
md0 : active raid1 sdb1[1] sda1[0](F) sdc1[2](S)
      248896 blocks [2/1] [_U]
      bitmap: 1/2 pages [4KB], 65536KB chunk

md1 : active raid0 sdd1[0] sde1[1]
      314159265 blocks 64k chunks

md2 : active raid6 sdf1[2] sdg1[0]
      1000 blocks super 1.2 level 6, 64k chunk, algorithm 2 [8/8] [UUUUUUUU]
      [==>..................]  recovery = 8.5% (85/1000) finish=15.0min speed=1K/sec

md3 : active raid1 sdh1[1] sdi1[0]
      1000 blocks [2/2] [UU]
      \tresync=DELAYED

md4 : inactive raid1 sdj1[0](S)
      1000 blocks super 1.2

md5 : inactive raid1 sdk1[0](F) sdl1[1](S)
      1000 blocks [2/2] [UU]

md6 : inactive raid0 sdm1[0] sdn1[1]
      1000 blocks super 1.2 512k chunks

md7 : broken raid0 sdo1[0] sdp1[1]
      1000 blocks super 1.2 512k chunks

md8 : active raid10 sdq[0] sdr[1] sds[2] sdt[3]
      8000 blocks super 1.2 512K chunks 2 near-copies [4/4] [UUUU]
      [=>...................]  reshape = 9.0% (720/8000) finish=0.1min speed=100K/sec

unused devices: <none>
";
        let arrays = parse(text).unwrap();
        let told: Vec<_> = arrays
            .iter()
            .map(|a| {
                (
                    a.device.as_str(),
                    a.state,
                    a.active,
                    a.failed,
                    a.spare,
                    a.required,
                    a.blocks,
                    a.synced,
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("md0", "active", 1, 1, 1, 2, 248_896, 248_896),
                ("md1", "active", 2, 0, 0, 2, 314_159_265, 314_159_265),
                ("md2", "recovering", 8, 0, 0, 8, 1000, 85),
                ("md3", "resync", 2, 0, 0, 2, 1000, 0),
                ("md4", "inactive", 0, 0, 1, 0, 1000, 1000),
                ("md5", "inactive", 0, 1, 1, 0, 1000, 1000),
                ("md6", "inactive", 2, 0, 0, 2, 1000, 1000),
                ("md7", "", 2, 0, 0, 2, 1000, 1000),
                ("md8", "", 4, 0, 0, 4, 8000, 720),
            ]
        );
        assert_eq!(
            parse("Personalities :\nunused devices: <none>\n"),
            Ok(vec![])
        );
        assert_eq!(parse("md0 : active raid1 sda1[0]\n").unwrap_err().line, 1);
        assert!(parse("md0\n 5 blocks\n").is_err());
    }
}
