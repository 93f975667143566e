//! The disks of the Btrfs that are mounted, asked of the kernel.

use crate::file::unescape;
use crate::ioctl::ioctl;
use rustix::fs::{Mode, OFlags, open};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A disk, and the errors that Btrfs has met on it.
#[derive(Debug, PartialEq)]
pub(super) struct BtrfsDisk {
    /// Name of the device, without `/dev/`.
    pub name: String,
    /// UUID that Btrfs gave the disk, without hyphens.
    pub uuid: String,
    /// Bytes in which Btrfs has placed something.
    pub used_bytes: u64,
    pub total_bytes: u64,
    /// In the order of [`Self::ERRORS`].
    pub errors: [u64; 5],
}

impl BtrfsDisk {
    pub const ERRORS: [&str; 5] = ["write", "read", "flush", "corruption", "generation"];
}

/// `_IOR(0x94, 31, struct btrfs_ioctl_fs_info_args)`: highest disk number, number of disks, UUID,
/// and more.
const FS_INFO: (u32, usize) = (0x8400_941f, 1024);
/// `_IOWR(0x94, 30, struct btrfs_ioctl_dev_info_args)`: number, UUID, bytes used, bytes, …, path.
const DEV_INFO: (u32, usize) = (0xd000_941e, 4096);
/// `_IOWR(0x94, 52, struct btrfs_ioctl_get_dev_stats)`: number, how many values, flags, values.
const DEV_STATS: (u32, usize) = (0xc408_9434, 1032);
const PATH_AT: usize = 4096 - 1024;
/// No file system has more disks.
const MAX_DISKS: u64 = 1024;

/// The disks of each file system that is mounted and can be opened, by its UUID without hyphens.
pub(super) fn disks(mounts: &Path, rootfs: &Path) -> BTreeMap<String, Vec<BtrfsDisk>> {
    // Users choose devices and places of their FUSE mounts, with any bytes.
    let bytes = std::fs::read(mounts).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);

    let mut systems = BTreeMap::new();
    let mut asked = Vec::new();

    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(device), Some(point), Some("btrfs")) = (words.next(), words.next(), words.next())
        else {
            continue;
        };

        // One mounted in several places is asked once.
        if asked.contains(&device) {
            continue;
        }

        let point = unescape(point);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let point = rootfs.join(point.trim_start_matches('/'));
        let Ok(directory) = open(point, flags, Mode::empty()) else {
            continue;
        };

        if let Some((uuid, disks)) = ask(&directory) {
            asked.push(device);
            systems.insert(uuid, disks);
        }
    }
    systems
}

/// UUID of the file system without hyphens, and its disks; `None` if the kernel does not answer.
fn ask(directory: &OwnedFd) -> Option<(String, Vec<BtrfsDisk>)> {
    let info = call(directory, FS_INFO, 0)?;
    let last = number(&info, 0);
    let count = number(&info, 1);

    let mut disks = Vec::new();
    // The numbers have gaps.
    for id in 0..=last.min(MAX_DISKS) {
        let disk = call(directory, DEV_INFO, id);
        let stats = call(directory, DEV_STATS, id);
        let (Some(disk), Some(stats)) = (disk, stats) else {
            continue;
        };

        disks.push(parse(&disk, &stats));
        if disks.len() as u64 == count {
            break;
        }
    }

    Some((hex(&info[16..32]), disks))
}

fn call(directory: &OwnedFd, (request, size): (u32, usize), id: u64) -> Option<Vec<u8>> {
    let mut buffer = vec![0_u64; size / 8];
    buffer[0] = id;
    if request == DEV_STATS.0 {
        buffer[1] = BtrfsDisk::ERRORS.len() as u64;
    }

    // SAFETY: the buffer has the length and alignment of this request's struct and outlives the
    // call.
    let result = unsafe { ioctl(directory, request, buffer.as_mut_ptr()) };
    result.ok()?;

    let bytes = buffer.iter().flat_map(|word| word.to_ne_bytes());
    Some(bytes.collect())
}

fn parse(disk: &[u8], stats: &[u8]) -> BtrfsDisk {
    let path = disk[PATH_AT..].split(|byte| *byte == 0).next();
    let path = String::from_utf8_lossy(path.unwrap_or_default());
    let name = path.rsplit('/').next().unwrap_or_default();

    BtrfsDisk {
        name: name.to_owned(),
        uuid: hex(&disk[8..24]),
        used_bytes: number(disk, 3),
        total_bytes: number(disk, 4),
        errors: std::array::from_fn(|at| number(stats, 3 + at)),
    }
}

/// The word of eight bytes at a place.
fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_read_as_the_kernel_lays_it_out() {
        let mut disk = vec![0; DEV_INFO.1];
        disk[8..24].copy_from_slice(&[0xab; 16]);
        disk[24..32].copy_from_slice(&5_u64.to_ne_bytes());
        disk[32..40].copy_from_slice(&8_u64.to_ne_bytes());
        disk[PATH_AT..PATH_AT + 8].copy_from_slice(b"/dev/sdb");
        let mut stats = vec![0; DEV_STATS.1];
        stats[24 + 8 * 3] = 7;
        let expected = BtrfsDisk {
            name: "sdb".into(),
            uuid: "ab".repeat(16),
            used_bytes: 5,
            total_bytes: 8,
            errors: [0, 0, 0, 7, 0],
        };
        assert_eq!(parse(&disk, &stats), expected);
    }
}
