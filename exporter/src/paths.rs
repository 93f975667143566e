//! Mount points of the kernel's file systems and files that other programs write.

use clap::Args;
use std::path::PathBuf;

/// Where the kernel's files are.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Paths")]
pub struct Paths {
    /// Where procfs is mounted.
    #[arg(long = "path.procfs", value_name = "PATH", default_value = "/proc")]
    pub procfs: PathBuf,
    /// Where sysfs is mounted.
    #[arg(long = "path.sysfs", value_name = "PATH", default_value = "/sys")]
    pub sysfs: PathBuf,
    /// Where the node's root is mounted.
    #[arg(long = "path.rootfs", value_name = "PATH", default_value = "/")]
    pub rootfs: PathBuf,
    /// Where udev keeps what it knows of the devices.
    #[arg(
        long = "path.udev.data",
        value_name = "PATH",
        default_value = "/run/udev/data"
    )]
    pub udev_data: PathBuf,
    /// The kernel log: the device, or a file that something else writes a line at a time.
    #[arg(long = "path.kmsg", value_name = "PATH", default_value = "/dev/kmsg")]
    pub kmsg: PathBuf,
}
