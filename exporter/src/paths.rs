//! Mount points of the kernel's file systems and files that other programs write.

use clap::Args;
use std::path::PathBuf;

/// Locations of the kernel's files.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Paths")]
pub struct Paths {
    /// Mount point of procfs.
    #[arg(long = "path.procfs", value_name = "PATH", default_value = "/proc")]
    pub procfs: PathBuf,
    /// Mount point of sysfs.
    #[arg(long = "path.sysfs", value_name = "PATH", default_value = "/sys")]
    pub sysfs: PathBuf,
    /// Mount point of the node's root file system.
    #[arg(long = "path.rootfs", value_name = "PATH", default_value = "/")]
    pub rootfs: PathBuf,
    /// Directory of udev's device properties.
    #[arg(
        long = "path.udev.data",
        value_name = "PATH",
        default_value = "/run/udev/data"
    )]
    pub udev_data: PathBuf,
    /// The kernel log: the device, or a file to which another program appends lines.
    #[arg(long = "path.kmsg", value_name = "PATH", default_value = "/dev/kmsg")]
    pub kmsg: PathBuf,
}
