//! A second systemd on this machine. It has namespaces of its own and sees this machine's files
//! through an overlay, so its writes do not change them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::mount::Mount;
use super::process::{Daemon, wait_for};
use super::takt::Run;
use super::{Skip, need_file, need_program, need_root};
use std::fs;

/// Configuration of a server that scrapes the exporter of the machine.
pub const CONFIG: &str = r#"
cluster = "lab"
[jobs]
poll = false
[sql]
listen_address = ""
[store]
min_free_bytes = 0
[scrape]
interval_seconds = 0.5
timeout_seconds = 0.5
[[scrape.targets]]
address = "127.0.0.1:9855"
node = "g01"
"#;

/// Mounts the file systems of the namespaces, then starts systemd. `$1` is the folder of the
/// machine.
const BOOT: &str = r#"
set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/files,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /sys "$1/root/sys"
mount --rbind /dev "$1/root/dev"
mount -t tmpfs tmpfs "$1/root/run"
mount -t tmpfs tmpfs "$1/root/tmp"
container=other exec chroot "$1/root" /lib/systemd/systemd --system --unit=basic.target
"#;

/// Dropping it ends all its processes.
pub struct Machine {
    _daemon: Daemon,
    /// Process id of its first process on this machine.
    init: i32,
    _disk: Mount,
}

impl Machine {
    /// Boots it from `directory`, with `files` laid over this machine's files.
    pub fn boot(directory: &Path, prepare: impl FnOnce(&Path)) -> Result<Self, Skip> {
        need_root()?;
        for program in ["unshare", "nsenter", "systemctl"] {
            need_program(program)?;
        }
        need_file("/lib/systemd/systemd", "systemd")?;
        // An overlay's upper folder cannot lie on an overlay, which a container's disk often is.
        let disk = Mount::tmpfs(directory, "size=2g");
        for folder in ["files", "work", "root"] {
            fs::create_dir(directory.join(folder)).unwrap();
        }
        prepare(&directory.join("files"));
        let mut command = Command::new("unshare");
        // The first process of a PID namespace takes all others with it, so nothing outlives the
        // test.
        command.args([
            "--fork",
            "--kill-child=SIGKILL",
            "--pid",
            "--mount",
            "--ipc",
            "--uts",
            "--net",
        ]);
        command.args(["bash", "-c", BOOT, "boot"]).arg(directory);
        let mut daemon = Daemon::start("systemd", command, &directory.join("boot.log"));
        let children = PathBuf::from(format!("/proc/{0}/task/{0}/children", daemon.pid()));
        let init = daemon.wait_until("booting", Duration::from_secs(30), || {
            let child = fs::read_to_string(&children).ok()?.trim().parse().ok()?;
            // The shell has replaced itself by systemd.
            (fs::read_to_string(format!("/proc/{child}/comm"))
                .ok()?
                .trim()
                == "systemd")
                .then_some(child)
        });
        let machine = Self {
            _daemon: daemon,
            init,
            _disk: disk,
        };
        machine.wait_until("running", |machine| {
            machine
                .run(["systemctl", "is-system-running"])
                .stdout
                .contains("running")
                .then_some(())
        });
        Ok(machine)
    }

    /// Runs a program in it and waits for its end.
    pub fn run<A>(&self, arguments: impl IntoIterator<Item = A>) -> Run
    where
        A: AsRef<OsStr>,
    {
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &self.init.to_string(),
            "--mount",
            "--pid",
            "--ipc",
            "--uts",
            "--net",
            "--root",
        ]);
        Run::of(
            &command
                .args(["--wdns=/", "--"])
                .args(arguments)
                .output()
                .unwrap(),
        )
    }

    /// Waits until a command in it succeeds.
    pub fn wait_until<T>(&self, what: &str, mut ready: impl FnMut(&Self) -> Option<T>) -> T {
        wait_for(what, Duration::from_secs(60), || ready(self))
    }
}
