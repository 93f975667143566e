//! `kill -9` at the requests of a round that writes a lake on S3: at the reads and puts of a round that corrects,
//! replaces and deletes, and at the parts of large files.

use crate::crash::{
    ENDPOINT, Tables, VERIFIES, check_ended, check_killed, check_round, config, copy,
    other_process, prepare, tables,
};
use crate::lab::Lab;
use crate::s3;
use crate::s3_server::{Fate, Request, S3};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Number of series without order whose files of samples have more than a part (8 MiB).
const SERIES: u64 = 2200;

/// The round under test: a store before it, and its lake before and after it.
struct Scene<'s> {
    s3: &'s S3,
    root: TempDir,
    store: TempDir,
    before: Tables,
    after: Tables,
    /// The requests of the round.
    requests: Vec<Request>,
}

/// Copies all files on S3 into a new folder. Returns that of the lake.
fn download(s3: &S3, folder: &Path) -> PathBuf {
    let _ = fs::remove_dir_all(folder);
    s3.save(folder);
    folder.join("of/lab")
}

impl<'s> Scene<'s> {
    fn new(s3: &'s S3, mut lab: Lab, prepare: impl FnOnce(&mut Lab)) -> Self {
        let root = TempDir::with_prefix("takt-lake-kills-").unwrap();
        lab.use_s3(s3.own_endpoint());
        prepare(&mut lab);
        let files = download(s3, &root.path().join("before"));
        let mut scene = Self {
            s3,
            before: tables(&lab, &files),
            store: lab.close(),
            root,
            after: Tables::new(),
            requests: Vec::new(),
        };

        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let status = scene.round(move |request| {
            log.lock().unwrap().push(request.clone());
            Fate::Pass
        });
        assert!(status.success(), "{status}");
        scene.requests = std::mem::take(&mut requests.lock().unwrap());
        let (lab, files) = scene.seen();
        scene.after = tables(&lab, &files);
        assert_eq!(lab.verify(), [""; 0]);
        scene
    }

    fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    /// The round under test in a process of its own.
    fn round(&self, judge: impl FnMut(&Request) -> Fate + Send + 'static) -> ExitStatus {
        let _ = fs::remove_dir_all(self.work());
        copy(self.store.path(), &self.work());
        self.s3.restore(&self.root.path().join("before"));
        self.s3.judge(judge);
        let status = self.process(&[]);
        self.s3.judge(|_| Fate::Pass);
        status
    }

    fn process(&self, more: &[(&str, &str)]) -> ExitStatus {
        let endpoint = self.s3.endpoint();
        let mut command = other_process(&self.work(), more);
        command.env(ENDPOINT, endpoint).stdout(Stdio::null());
        self.s3.run(&mut command)
    }

    /// The store after the last round, and a copy of the lake's files.
    fn seen(&self) -> (Lab, PathBuf) {
        let mut lab = Lab::again(&self.work(), config());
        lab.use_s3(self.s3.own_endpoint());
        let files = download(self.s3, &self.root.path().join("seen"));
        (lab, files)
    }

    /// Kills the round at its request with this index, and lets the next round complete the lake.
    fn kill(&self, index: usize, fate: Fate) {
        let request = &self.requests[index];
        let step = format!("{fate:?} at {index}: {} {}", request.method, request.target);
        let mut left = index;
        let status = self.round(move |_| {
            let is_it = left == 0;
            left = left.wrapping_sub(1);
            if is_it { fate } else { Fate::Pass }
        });
        assert_eq!(status.signal(), Some(9), "{step}: {status}");
        let (lab, files) = self.seen();
        check_killed(&lab, &files, [&self.before, &self.after], &step);
        drop(lab);
        let status = self.process(&[(VERIFIES, "1")]);
        assert!(status.success(), "{step}: {status}");
        let (lab, files) = self.seen();
        check_ended(&lab, &files, &self.after, &step);
    }

    /// Kills the round at each chosen request: when S3 has it, and in the middle of the body. Returns the number of
    /// kills.
    fn kill_at_each(&self, choose: impl Fn(usize, &Request) -> bool) -> usize {
        let mut kills = 0;
        for (index, request) in self.requests.iter().enumerate() {
            if !choose(index, request) {
                continue;
            }
            self.kill(index, Fate::Kill);
            kills += 1;
            if request.method == "PUT" {
                self.kill(index, Fate::KillCut);
                kills += 1;
            }
        }
        kills
    }
}

/// Kills the round that [`prepare`] has prepared at each `stride`-th request, on each server.
fn kill_each(test: &str, stride: usize) {
    for s3 in s3::start_all(test) {
        let scene = Scene::new(&s3, Lab::new(), prepare);
        check_round(&scene.before, &scene.after);
        let requests = scene.requests.len();
        let puts = scene.requests.iter().filter(|it| it.method == "PUT");
        let puts = puts.count();
        assert!(requests > 40 && puts > 10, "{:?}", scene.requests);

        let kills = scene.kill_at_each(|index, _| index % stride == 0);
        eprintln!("{test}: {kills} kills at {requests} requests with {puts} puts");
    }
}

#[test]
fn a_round_on_s3_may_be_killed_at_some_requests() {
    kill_each("a_round_on_s3_may_be_killed_at_some_requests", 29);
}

#[test]
#[ignore = "takes minutes"]
fn a_round_on_s3_may_be_killed_at_each_request() {
    kill_each("a_round_on_s3_may_be_killed_at_each_request", 1);
}

/// A file of more than 8 MiB is sent in parts. The file is visible after the last request.
#[test]
#[ignore = "takes minutes"]
fn a_round_may_be_killed_at_each_part_of_a_file() {
    for s3 in s3::start_all("a_round_may_be_killed_at_each_part_of_a_file") {
        // Nothing is on S3 before.
        let scene = Scene::new(&s3, Lab::with_noise(SERIES), |_| {});
        let is_part = |request: &Request| request.target.contains("upload");
        let parts = scene.requests.iter().filter(|request| is_part(request));
        let puts = parts.clone().filter(|request| request.method == "PUT");
        assert!(
            parts.count() >= 8 && puts.count() >= 4,
            "{:?}",
            scene.requests
        );
        let kills = scene.kill_at_each(|_, request| is_part(request));
        assert!(kills >= 12, "{kills}");
    }
}
