//! Space and inodes of the mounted file systems.
//!
//! Sources: `/proc/1/mountinfo` (that of init, which sees all; else our own, else the older
//! `mounts`) and the system call `statfs`, which may not come back when the mount's server is gone.
//! Such mounts are asked by a thread each, so one dead server costs no other mount its values.

mod watch;

use self::watch::{MountAnswer, Watches};
use crate::collector::{CollectError, Collector, MAX_DEVICES, ParseError, flag};
use crate::file::{MountList, unescape};
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use std::borrow::Cow;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

/// Flags of the collector `filesystem`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct FilesystemOptions {
    /// Mount points to leave out.
    #[arg(
        id = "mount-points-exclude",
        long = "collector.filesystem.mount-points-exclude",
        value_name = "REGEXP"
    )]
    #[arg(alias = "collector.filesystem.ignored-mount-points")]
    #[arg(
        default_value = r"^/(dev|proc|run/credentials/.+|sys|var/lib/docker/.+|var/lib/containers/storage/.+)($|/)"
    )]
    pub mount_points_exclude: NamePattern,
    /// Mount points to keep, all others being left out.
    #[arg(
        long = "collector.filesystem.mount-points-include",
        value_name = "REGEXP"
    )]
    #[arg(conflicts_with = "mount-points-exclude")]
    pub mount_points_include: Option<NamePattern>,
    /// Types of file systems to leave out.
    #[arg(
        id = "fs-types-exclude",
        long = "collector.filesystem.fs-types-exclude",
        value_name = "REGEXP"
    )]
    #[arg(alias = "collector.filesystem.ignored-fs-types")]
    #[arg(
        default_value = r"^(autofs|binfmt_misc|bpf|cgroup2?|configfs|debugfs|devpts|devtmpfs|fusectl|hugetlbfs|iso9660|mqueue|nsfs|overlay|proc|procfs|pstore|rpc_pipefs|securityfs|selinuxfs|squashfs|erofs|sysfs|tracefs)$"
    )]
    pub fs_types_exclude: NamePattern,
    /// Types of file systems to keep, all others being left out.
    #[arg(
        long = "collector.filesystem.fs-types-include",
        value_name = "REGEXP",
        conflicts_with = "fs-types-exclude"
    )]
    pub fs_types_include: Option<NamePattern>,
    /// Flag of node_exporter, accepted without effect: a mount that hangs delays no page.
    #[arg(
        long = "collector.filesystem.mount-timeout",
        value_name = "DURATION",
        hide = true
    )]
    pub mount_timeout: Option<String>,
    /// Flag of node_exporter, accepted without effect: each mount that may hang has a thread of its
    /// own.
    #[arg(
        long = "collector.filesystem.stat-workers",
        value_name = "COUNT",
        hide = true
    )]
    pub stat_workers: Option<usize>,
}

struct Filesystem {
    mounts: Mounts,
    rootfs: PathBuf,
    mount_points: NameFilter,
    fs_types: NameFilter,
    statfs: StatFs,
    watches: Watches,
}

/// The system call, or what stands for it in a test.
type StatFs = fn(&Path) -> io::Result<MountSpace>;

const LABELS: &[&str] = &["device", "mountpoint", "fstype"];
const SIZE: Metric = Metric::gauge(
    "node_filesystem_size_bytes",
    "Filesystem size in bytes.",
    LABELS,
);
const FREE: Metric = Metric::gauge(
    "node_filesystem_free_bytes",
    "Filesystem free space in bytes.",
    LABELS,
);
const AVAIL: Metric = Metric::gauge(
    "node_filesystem_avail_bytes",
    "Filesystem space available to non-root users in bytes.",
    LABELS,
);
const FILES: Metric = Metric::gauge(
    "node_filesystem_files",
    "Filesystem total file nodes.",
    LABELS,
);
const FILES_FREE: Metric = Metric::gauge(
    "node_filesystem_files_free",
    "Filesystem total free file nodes.",
    LABELS,
);
const READONLY: Metric = Metric::gauge(
    "node_filesystem_readonly",
    "Filesystem read-only status.",
    LABELS,
);
const DEVICE_ERROR: Metric = Metric::gauge(
    "node_filesystem_device_error",
    "Whether an error occurred while getting statistics for the given device.",
    LABELS,
);
const MOUNT_INFO: Metric = Metric::gauge(
    "node_filesystem_mount_info",
    "Filesystem mount information.",
    &["device", "major", "minor", "mountpoint"],
);
const METRICS: &[Metric] = &[
    SIZE,
    FREE,
    AVAIL,
    FILES,
    FILES_FREE,
    READONLY,
    DEVICE_ERROR,
    MOUNT_INFO,
];

/// Types whose `statfs` needs no server and no other process.
const LOCAL: [&str; 18] = [
    "bcachefs", "btrfs", "devtmpfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs",
    "ntfs3", "ramfs", "reiserfs", "squashfs", "tmpfs", "vfat", "xfs", "zfs",
];

pub(crate) fn new(paths: &Paths, options: &FilesystemOptions) -> Box<dyn Collector> {
    Box::new(Filesystem::new(paths, options, statfs))
}

impl Filesystem {
    fn new(paths: &Paths, options: &FilesystemOptions, statfs: StatFs) -> Self {
        let FilesystemOptions {
            mount_points_exclude,
            mount_points_include,
            fs_types_exclude,
            fs_types_include,
            ..
        } = options.clone();
        Self {
            mounts: Mounts::new(&paths.procfs),
            rootfs: paths.rootfs.clone(),
            mount_points: NameFilter::new(mount_points_include, mount_points_exclude),
            fs_types: NameFilter::new(fs_types_include, fs_types_exclude),
            statfs,
            watches: Watches::new(statfs),
        }
    }
}

impl Collector for Filesystem {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let (mount_points, fs_types, rootfs) =
            (&mut self.mount_points, &mut self.fs_types, &self.rootfs);

        self.mounts.list().parse(|text| {
            let mut seen = HashSet::new();
            let mut mounts = Vec::new();

            for mount in parse(text) {
                let mut mount = mount?;
                mount.seen_from(rootfs);
                // The filters are about the node's paths, not those of a container that has its root elsewhere.
                let is_chosen = mount_points.passes(&mount.point) && fs_types.passes(mount.fs_type);

                // Two lines with equal labels would be one series twice, which makes the page invalid.
                if is_chosen && seen.insert(mount.labels().map(str::to_owned)) {
                    mounts.push(mount);
                }
            }

            let paths = |mount: &Mount<'_>| rootfs.join(mount.point.trim_start_matches('/'));

            // All remote mounts are asked before the first answer is awaited, so their delays do not add up.
            let remote = mounts.iter().filter(|mount| !mount.is_local());
            let remote = remote.map(|mount| (mount.labels(), paths(mount)));
            self.watches.ask(remote);

            for mount in &mounts {
                let answer = if mount.is_local() {
                    MountAnswer::from((self.statfs)(&paths(mount)))
                } else {
                    self.watches.answer(mount.labels())
                };
                mount.push(answer, out);
            }
            Ok(())
        })
    }
}

/// Where the list of mounts may be. Init's is not to be seen everywhere.
struct Mounts([MountList; 4]);

impl Mounts {
    fn new(procfs: &Path) -> Self {
        let names = ["1/mountinfo", "1/mounts", "self/mountinfo", "self/mounts"];
        Self(names.map(|name| MountList::new(procfs.join(name))))
    }

    /// The first that can be read, or the last.
    fn list(&mut self) -> &mut MountList {
        let first = self.0.iter_mut().position(MountList::opens);
        &mut self.0[first.unwrap_or(self.0.len() - 1)]
    }
}

/// Space from `statfs`, in bytes and inodes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct MountSpace {
    size: f64,
    free: f64,
    avail: f64,
    files: f64,
    files_free: f64,
}

fn statfs(path: &Path) -> io::Result<MountSpace> {
    let stat = rustix::fs::statfs(path)?;
    // As in node_exporter, a block has `f_bsize` bytes.
    let bytes = |blocks: u64| blocks as f64 * stat.f_bsize as f64;

    Ok(MountSpace {
        size: bytes(stat.f_blocks),
        free: bytes(stat.f_bfree),
        avail: bytes(stat.f_bavail),
        files: stat.f_files as f64,
        files_free: stat.f_ffree as f64,
    })
}

/// A line of the list of mounts.
#[derive(Debug, PartialEq)]
struct Mount<'a> {
    device: &'a str,
    point: Cow<'a, str>,
    fs_type: &'a str,
    read_only: bool,
    /// The device's numbers, which the older list lacks.
    numbers: Option<(&'a str, &'a str)>,
}

impl Mount<'_> {
    fn labels(&self) -> [&str; 3] {
        [self.device, &self.point, self.fs_type]
    }

    fn is_local(&self) -> bool {
        LOCAL.contains(&self.fs_type)
    }

    /// Returns the mount point's path on the node, whose root is mounted at `rootfs`.
    fn seen_from(&mut self, rootfs: &Path) {
        if rootfs != Path::new("/")
            && let Ok(inside) = Path::new(&*self.point).strip_prefix(rootfs)
        {
            self.point = Path::new("/")
                .join(inside)
                .to_string_lossy()
                .into_owned()
                .into();
        }
    }

    fn push(&self, answer: MountAnswer, out: &mut Samples) {
        let labels = &self.labels();
        match &answer {
            MountAnswer::Space(_) => {
                out.push(&DEVICE_ERROR, labels, 0.0);
                out.push(&READONLY, labels, flag(self.read_only));
            }
            MountAnswer::Error(why) => {
                // As in node_exporter, only a mount that fails has the label with the reason.
                let [device, point, fs_type] = *labels;
                let labels = [
                    ("device", device),
                    ("mountpoint", point),
                    ("fstype", fs_type),
                    ("device_error", why),
                ];
                for (metric, value) in [(&DEVICE_ERROR, 1.0), (&READONLY, flag(self.read_only))] {
                    out.push_foreign(metric.name, metric.kind, metric.help, &labels, value);
                }
            }
        }

        if let Some((major, minor)) = self.numbers {
            out.push(&MOUNT_INFO, &[self.device, major, minor, &self.point], 1.0);
        }

        if let MountAnswer::Space(space) = answer {
            out.push(&SIZE, labels, space.size);
            out.push(&FREE, labels, space.free);
            out.push(&AVAIL, labels, space.avail);
            out.push(&FILES, labels, space.files);
            out.push(&FILES_FREE, labels, space.files_free);
        }
    }
}

fn parse(text: &str) -> impl Iterator<Item = Result<Mount<'_>, ParseError>> {
    text.lines().enumerate().map(|(number, line)| {
        // Only mountinfo has this separator; blanks within a path are escaped.
        let mount = if line.contains(" - ") {
            parse_mountinfo(line)
        } else {
            parse_mounts(line)
        };
        mount.ok_or(ParseError {
            line: number + 1,
            expected: "a mount's device, point, type and options",
        })
    })
}

/// `/dev/sda1 / ext4 rw,relatime 0 0`
fn parse_mounts(line: &str) -> Option<Mount<'_>> {
    let mut words = line.split_ascii_whitespace();
    let [device, point, fs_type, options] =
        [words.next()?, words.next()?, words.next()?, words.next()?];

    Some(Mount {
        device,
        point: unescape(point),
        fs_type,
        read_only: has(options, "ro"),
        numbers: None,
    })
}

/// `36 35 98:0 / / rw,noatime shared:1 - ext3 /dev/sda1 rw,errors=continue`: the mount's options,
/// and, behind any number of fields, those of the file system.
fn parse_mountinfo(line: &str) -> Option<Mount<'_>> {
    let (mount, system) = line.split_once(" - ")?;
    // The first two fields are the numbers of the mount and of its parent.
    let mut words = mount.split_ascii_whitespace().skip(2);
    let [numbers, _, point, options] = [words.next()?, words.next()?, words.next()?, words.next()?];

    let mut words = system.split(' ');
    let [fs_type, device, of_system] = [words.next()?, words.next()?, words.next()?];

    Some(Mount {
        device,
        point: unescape(point),
        fs_type,
        // `emergency_ro` is ext4's option after an error of the disk.
        read_only: has(options, "ro") || has(of_system, "ro") || has(of_system, "emergency_ro"),
        numbers: Some(numbers.split_once(':')?),
    })
}

/// Whether the comma-separated options include `wanted`.
fn has(options: &str, wanted: &str) -> bool {
    options.split(',').any(|option| option == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::defaults;
    use std::time::{Duration, Instant};
    use takt_model::exposition::{Format, write_page};

    #[test]
    fn mounts() {
        let text =
            "/dev/vda / ext4 rw,relatime 0 0\nsrv:/x /my\\040home\\134\\11 nfs4 ro,vers=4.2 0 0\n";
        let mounts: Vec<_> = parse(text).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            mounts[0],
            Mount {
                device: "/dev/vda",
                point: "/".into(),
                fs_type: "ext4",
                read_only: false,
                numbers: None
            }
        );
        assert_eq!(mounts[1].labels(), ["srv:/x", "/my home\\\\11", "nfs4"]);
        assert!(mounts[1].read_only && !mounts[1].is_local());
        assert_eq!(
            parse("/dev/vda / ext4\n").next().unwrap().unwrap_err().line,
            1
        );
        let text = "36 1 254:1 / /data rw,noatime shared:1 master:2 - ext4 /dev/vdb \
             ro,errors=remount-ro\n36 1 x - a\n";
        let mounts: Vec<_> = parse(text).collect();
        let mount = mounts[0].as_ref().unwrap();
        assert_eq!(
            (mount.labels(), mount.numbers),
            (["/dev/vdb", "/data", "ext4"], Some(("254", "1")))
        );
        assert!(
            mount.read_only,
            "an error of the disk makes the file system read-only, not the mount"
        );
        assert!(mounts[1].is_err());
    }

    #[test]
    fn the_nodes_root_is_taken_off() {
        let point = |point: &'static str, rootfs: &str| {
            let mut mount = Mount {
                device: "d",
                point: point.into(),
                fs_type: "ext4",
                read_only: false,
                numbers: None,
            };
            mount.seen_from(Path::new(rootfs));
            mount.point.into_owned()
        };
        assert_eq!(point("/host", "/host"), "/");
        assert_eq!(point("/host/home", "/host"), "/home");
        assert_eq!(point("/hostile", "/host"), "/hostile");
        assert_eq!(point("/home", "/"), "/home");
    }

    fn page(filesystem: &mut Filesystem) -> Vec<String> {
        let mut samples = Samples::new();
        let mut page = String::new();
        filesystem.collect(&mut samples).unwrap();
        write_page(Format::Text, [&samples], &mut page);
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter(|line| line.contains("device_error{") || line.contains("size"))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn a_dead_server_costs_no_other_mount_its_values() {
        fn statfs(path: &Path) -> io::Result<MountSpace> {
            match path.to_str() {
                Some("/dead") => std::thread::sleep(Duration::from_secs(3600)),
                Some("/forbidden") => return Err(io::ErrorKind::PermissionDenied.into()),
                _ => {}
            }
            Ok(MountSpace {
                size: 1e9,
                ..MountSpace::default()
            })
        }
        let procfs = tempfile::tempdir().unwrap();
        std::fs::create_dir(procfs.path().join("self")).unwrap();
        let mounts = "srv:/a /dead nfs4 rw 0 0\n/dev/vda / ext4 rw 0 0\nsrv2:/b /alive nfs rw 0 \
             0\n/dev/vdb /forbidden xfs rw 0 0\n";
        std::fs::write(procfs.path().join("self/mounts"), mounts).unwrap();
        let paths = Paths {
            procfs: procfs.path().to_owned(),
            ..defaults()
        };
        let mut filesystem = Filesystem::new(&paths, &defaults(), statfs);
        for reading in 0..3 {
            let began = Instant::now();
            assert_eq!(
                page(&mut filesystem),
                [
                    r#"node_filesystem_device_error{device="srv:/a",mountpoint="/dead",fstype="nfs4",device_error="mountpoint timeout"} 1"#,
                    r#"node_filesystem_device_error{device="/dev/vda",mountpoint="/",fstype="ext4"} 0"#,
                    r#"node_filesystem_device_error{device="srv2:/b",mountpoint="/alive",fstype="nfs"} 0"#,
                    r#"node_filesystem_device_error{device="/dev/vdb",mountpoint="/forbidden",fstype="xfs",device_error="permission denied"} 1"#,
                    r#"node_filesystem_size_bytes{device="/dev/vda",mountpoint="/",fstype="ext4"} 1000000000"#,
                    r#"node_filesystem_size_bytes{device="srv2:/b",mountpoint="/alive",fstype="nfs"} 1000000000"#,
                ]
            );
            // The dead one is asked once and waited for once.
            assert!(
                reading == 0 || began.elapsed() < watch::PATIENCE,
                "{:?}",
                began.elapsed()
            );
        }
    }
}
