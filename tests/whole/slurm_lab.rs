//! The Slurm lab itself, on which other tests build.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::slurm::{Job, Mode, Service, SlurmLab, Usage};
use crate::support::{or_skip, process};
use std::fs;

/// A limit that a busy machine does not reach.
const SOON: Duration = Duration::from_secs(90);

/// Jobs of several users run, and the database has their records afterwards.
#[test]
fn jobs_run_and_are_accounted() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };
    let trained = lab.submit(
        "alice",
        &["-J", "train", "--gres=gpu:a100:1", "-t", "5"],
        "echo $CUDA_VISIBLE_DEVICES; sleep 3",
    );
    lab.submit("bob", &["-J", "array", "-a", "0-3%2", "-t", "5"], "sleep 1");
    lab.submit("carol", &["-J", "fails", "-t", "5"], "exit 3");
    let spread = lab.submit(
        "dave",
        &["-J", "spread", "-N2", "-n4", "--gres=gpu:1", "-t", "5"],
        "sleep 2",
    );
    lab.wait_for_state(spread, "RUNNING", SOON);
    lab.wait_until_idle(SOON);

    let fields = "JobIDRaw,JobID,JobName,User,Account,State,ExitCode,ElapsedRaw,AllocTRES,NNodes";
    let sacct = lab.run(&[
        "sacct",
        "-a",
        "-D",
        "-X",
        "-P",
        "-n",
        "-S",
        "1970-01-01",
        "-o",
        fields,
    ]);
    let jobs: Vec<Vec<_>> = sacct
        .lines()
        .map(|line| line.split('|').collect())
        .collect();
    let one = |name: &str| {
        jobs.iter()
            .find(|job| job[2] == name)
            .unwrap_or_else(|| panic!("no {name} in\n{sacct}"))
    };
    // One row a task of the array.
    assert_eq!(jobs.len(), 7, "{sacct}");

    let train = one("train");
    assert_eq!(train[0], trained.to_string());
    assert_eq!(train[3..7], ["alice", "lab-a", "COMPLETED", "0:0"]);
    assert!(
        (3..60).contains(&train[7].parse::<u32>().unwrap()),
        "{train:?}"
    );
    let tres: BTreeSet<_> = train[8].split(',').collect();
    assert!(
        tres.is_superset(&BTreeSet::from([
            "cpu=1",
            "gres/gpu=1",
            "gres/gpu:a100=1",
            "node=1"
        ])),
        "{tres:?}"
    );
    let output = fs::read_to_string(
        lab.directory()
            .join(format!("home/alice/slurm-{trained}.out")),
    )
    .unwrap();
    assert!(
        ["0\n", "1\n"].contains(&output.as_str()),
        "CUDA_VISIBLE_DEVICES is {output:?}"
    );

    let array: BTreeSet<_> = jobs
        .iter()
        .filter(|job| job[2] == "array")
        .map(|job| job[1].rsplit('_').next())
        .collect();
    assert_eq!(array, ["0", "1", "2", "3"].map(Some).into());
    assert_eq!(one("fails")[3..7], ["carol", "lab-b", "FAILED", "3:0"]);
    assert_eq!(one("spread")[9], "2");
    assert!(
        one("spread")[8].contains("gres/gpu=2"),
        "{:?}",
        one("spread")
    );
}

/// Without slurmdbd the accounting commands fail, and finished jobs are in the completion file.
#[test]
fn without_slurmdbd_ended_jobs_are_in_the_jobcomp_file() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithoutDbd)) else {
        return;
    };
    let job = lab.submit(
        "carol",
        &["-J", "short", "--gres=gpu:1", "-t", "5"],
        "sleep 1",
    );
    lab.wait_until_idle(SOON);
    assert!(!lab.try_run(&["sacct"]).status.success());
    // slurmctld writes the record some time after the end.
    let record = process::wait_for("a record of the job", SOON, || {
        fs::read_to_string(lab.jobcomp())
            .unwrap()
            .lines()
            .find(|line| line.starts_with(&format!("JobId={job} ")))
            .map(str::to_owned)
    });
    for field in [
        "UserId=carol(61003)",
        "Name=short",
        "JobState=COMPLETED",
        "NodeCnt=1",
    ] {
        assert!(record.contains(field), "no {field} in {record}");
    }
}

/// Slurm reports injected jobs of past months to the second.
#[test]
fn injected_jobs_appear_in_sreport_to_the_second() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };

    // September and October 2026, and some hours before and after.
    let september = 1_788_220_800;
    let october = 1_790_812_800;
    let november = 1_793_491_200;
    let jobs = history(september - 3 * 86_400, november + 3 * 86_400);
    assert!(jobs.len() > 500, "{}", jobs.len());
    assert!(
        jobs.iter()
            .any(|job| job.start.is_some_and(|start| start < october) && job.end > october)
    );
    lab.inject(&jobs);
    for (from, to, start, end) in [
        ("2026-09-01", "2026-10-01", september, october),
        ("2026-10-01", "2026-11-01", october, november),
    ] {
        assert_eq!(lab.sreport(from, to), expected(&jobs, start, end), "{from}");
    }

    let listed = lab.run(&[
        "sacct",
        "-a",
        "-D",
        "-X",
        "-n",
        "-P",
        "-S",
        "2026-08-01",
        "-E",
        "2026-11-10",
        "-o",
        "JobID,User,State",
    ]);
    assert_eq!(listed.lines().count(), jobs.len());
    assert!(
        listed.lines().any(|line| line.ends_with("|erin|COMPLETED")),
        "a user who was made for the injection"
    );
    assert!(
        listed.lines().any(|line| line.contains("|CANCELLED by ")),
        "{listed}"
    );
}

/// A program of the lab can be stopped and started again. The lab leaves no job and no process
/// behind.
#[test]
fn services_stop_and_return_and_nothing_is_left() {
    let Some(mut lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };
    lab.stop(Service::Slurmdbd);
    assert!(!lab.try_run(&["sacct"]).status.success());
    let job = lab.submit("bob", &["-t", "5"], "sleep 600");
    lab.wait_for_state(job, "RUNNING", SOON);
    lab.start_service(Service::Slurmdbd);
    process::wait_for("the job in sacct", SOON, || {
        lab.run(&["sacct", "-a", "-X", "-n", "-P", "-o", "JobIDRaw,State"])
            .contains(&format!("{job}|RUNNING"))
            .then_some(())
    });
    let directory = lab.directory().to_owned();
    drop(lab);
    assert!(!directory.exists());
    let directory = directory.display().to_string();

    // Each process of the lab has the lab's directory in its environment.
    let left: Vec<_> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.parse::<u32>().is_ok())
        })
        .filter(|entry| {
            fs::read(entry.path().join("environ"))
                .is_ok_and(|e| String::from_utf8_lossy(&e).contains(&directory))
        })
        .map(|entry| fs::read_to_string(entry.path().join("comm")))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Returns consecutive jobs on each of the lab's six GPUs, so that usage stays within capacity.
/// Among them are jobs without GPUs, jobs on two nodes, cancelled and failed jobs, and jobs of a
/// user that the lab does not know.
fn history(from: i64, to: i64) -> Vec<Job> {
    let users = [
        ("alice", "lab-a"),
        ("bob", "lab-a"),
        ("carol", "lab-b"),
        ("dave", "lab-b"),
        ("erin", "guests"),
    ];
    let mut jobs = Vec::new();
    let mut random = Random(2026);
    for slot in 0..6 {
        let (node, gpu_type) = [("node0", "a100"), ("node1", "a100"), ("node2", "l40s")][slot / 2];
        let mut free = from;
        while free < to {
            let id = 100_000 + jobs.len() as u32;
            let (user, account) = users[random.below(5) as usize];
            let start = free + random.below(7200);
            let end = start + 1 + random.below(86_400);
            let mut job = Job::new(
                id,
                user,
                account,
                start - 1 - random.below(3600),
                start,
                end,
            );
            job.nodes = vec![node];
            job.cpus = 1 + random.below(4) as u32;
            job.memory_mib = 1000 * u64::from(job.cpus);
            match random.below(10) {
                0 => {
                    (job.start, job.end, job.state) = (None, start, "CANCELLED");
                }
                1 => job.state = "FAILED",
                2 | 3 => {}
                _ => (job.gpus, job.gpu_type) = (1, Some(gpu_type)),
            }
            free = job.end;
            jobs.push(job);
        }
    }
    jobs
}

/// Returns CPU and GPU seconds of each account and user between two instants.
fn expected(jobs: &[Job], from: i64, to: i64) -> BTreeMap<(String, String), Usage> {
    let mut usage = BTreeMap::<_, Usage>::new();
    for job in jobs {
        let Some(start) = job.start else { continue };
        // Negative for a job outside of the period.
        let seconds = u64::try_from(job.end.min(to) - start.max(from)).unwrap_or(0);
        if seconds > 0 {
            let entry = usage
                .entry((job.account.clone(), job.user.clone()))
                .or_default();
            entry.cpu_seconds += seconds * u64::from(job.cpus);
            entry.gpu_seconds += seconds * u64::from(job.gpus);
        }
    }
    usage
}

/// A generator that gives the same numbers in every run (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as i64 % bound
    }
}
