//! A real mount that never answers: a FUSE file system whose server answers only FUSE_INIT.
//!
//! The exporter gets a mount namespace of its own, so nothing else on the machine sees the mount,
//! and the list of mounts from a fixture, which names it. It needs root and /dev/fuse.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod support;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::Running;
use tempfile::tempdir;

const FUSE_INIT: u32 = 26;
const FUSE_STATFS: u32 = 17;

/// The server of the file system. When it ends, the kernel releases the waiting processes.
struct Server {
    ends: Arc<AtomicBool>,
    asked: mpsc::Receiver<u32>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(device: File) -> Self {
        let (sender, asked) = mpsc::channel();
        let ends = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let ends = Arc::clone(&ends);
            move || serve(device, &sender, &ends)
        });
        Self {
            ends,
            asked,
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Answers FUSE_INIT and no other request; records the requests.
fn serve(mut device: File, asked: &mpsc::Sender<u32>, ends: &AtomicBool) {
    let mut request = vec![0; 1 << 17];
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    while !ends.load(Ordering::Relaxed) {
        if poll(&mut [PollFd::new(&device, PollFlags::IN)], Some(&tick)) != Ok(1) {
            continue;
        }
        // Reading fails until the file system is mounted.
        let Ok(40..) = device.read(&mut request) else {
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        let code = u32::from_ne_bytes(request[4..8].try_into().unwrap());
        if code == FUSE_INIT {
            // The header (length, error, the question's number), then version 7.31 and what is left
            // at zero.
            let mut answer = Vec::from(80_u32.to_ne_bytes());
            answer.extend([0; 4]);
            answer.extend(&request[8..16]);
            answer.extend([7_u32, 31].iter().flat_map(|number| number.to_ne_bytes()));
            answer.resize(80, 0);
            device.write_all(&answer).unwrap();
        } else {
            asked.send(code).unwrap();
        }
    }
}

#[test]
fn a_mount_that_never_answers_delays_not_even_the_first_page() {
    let fuse = match File::options().read(true).write(true).open("/dev/fuse") {
        Ok(fuse) if process::geteuid().is_root() => fuse,
        Ok(_) => return eprintln!("SKIPPED: only root can mount"),
        Err(error) => return eprintln!("SKIPPED: cannot open /dev/fuse ({error})"),
    };
    let node = tempdir().unwrap();
    let mountpoint = node.path().join("hangs");
    fs::create_dir_all(&mountpoint).unwrap();
    fs::create_dir_all(node.path().join("proc/1")).unwrap();
    let mounts = format!(
        "nowhere {} fuse.nowhere rw 0 0\nrootfs / ext4 rw 0 0\n",
        mountpoint.display()
    );
    fs::write(node.path().join("proc/1/mounts"), mounts).unwrap();

    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        fuse.as_raw_fd()
    );
    let target = CString::new(mountpoint.to_str().unwrap()).unwrap();
    let options = CString::new(options).unwrap();
    let mount_it = move || {
        // SAFETY: the process is new and has one thread.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        mount_change(
            c"/",
            MountPropagationFlags::REC | MountPropagationFlags::PRIVATE,
        )?;
        mount(
            c"nowhere",
            &*target,
            c"fuse",
            MountFlags::empty(),
            &*options,
        )?;
        Ok(())
    };
    let procfs = format!("--path.procfs={}", node.path().join("proc").display());
    let flags = [
        procfs.as_str(),
        "--path.rootfs=/",
        "--collector.disable-defaults",
        "--collector.filesystem",
        "--collector.time",
    ];
    let server = Server::start(fuse.try_clone().unwrap());
    let began = Instant::now();
    let exporter = Running::takt_prepared(&flags, &[], |command| {
        // SAFETY: what runs between fork and exec are system calls only.
        unsafe { command.pre_exec(mount_it) };
    });
    let mut first = None;
    for scrape in 0..20 {
        let asking = Instant::now();
        let page = exporter.page("");
        assert!(
            asking.elapsed() < Duration::from_secs(2),
            "scrape {scrape} took {:?}",
            asking.elapsed()
        );
        assert!(
            page.contains("node_time_seconds ")
                && page.contains(r#"mountpoint="/",fstype="ext4"} "#),
            "{page}"
        );
        first.get_or_insert((page, began.elapsed()));
        thread::sleep(Duration::from_millis(20));
    }
    let (page, after) = first.unwrap();
    assert!(after < Duration::from_secs(20), "{after:?}");
    let hung = |metric: &str| {
        format!(
            r#"{metric}{{device="nowhere",mountpoint="{}",fstype="fuse.nowhere""#,
            mountpoint.display()
        )
    };
    assert!(
        !page.contains(&hung("node_filesystem_size_bytes")),
        "{page}"
    );
    exporter.wait_for("told of", |page| {
        page.contains(&format!(
            "{},device_error=\"mountpoint timeout\"}} 1\n",
            hung("node_filesystem_device_error")
        ))
    });
    // The exporter must have asked the mount, and only once: not every scrape may block another
    // thread.
    let questions: Vec<u32> = server.asked.try_iter().collect();
    assert_eq!(
        questions
            .iter()
            .filter(|code| **code == FUSE_STATFS)
            .count(),
        1,
        "{questions:?}"
    );
    // Otherwise the exporter, which waits for an answer, could not be killed.
    drop((fuse, server));
}
