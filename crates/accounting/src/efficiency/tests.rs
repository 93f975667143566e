use super::*;
use proptest::prelude::*;
use proptest::{collection, sample};
use takt_model::{Labels, METRIC_NAME, Timestamp};

const HOUR: i64 = 3600;
const GIB: f64 = (1_u64 << 30) as f64;

fn run(gpus: u64, hours: i64) -> JobRun {
    JobRun {
        cluster: "lab".into(),
        job_id: "7".into(),
        start: Some(UnixTime(0)),
        end: Some(UnixTime(hours * HOUR)),
        state: "COMPLETED".into(),
        nodes: Some(1),
        cpus: Some(8),
        gpus: Some(gpus),
        mem_bytes: Some(64 << 30),
        timelimit: Some((hours * HOUR) as u64 * 4),
        ..JobRun::default()
    }
}

fn labels(metric: &str, pairs: &[(&str, &str)]) -> Labels {
    let mut labels: Labels = pairs.iter().copied().collect();
    labels.set(METRIC_NAME, metric);
    labels
}

/// One sample each 15 s of the run.
fn every_15s(hours: i64, value: impl Fn(i64) -> f64) -> Vec<MeterSample> {
    (0..hours * 240)
        .map(|n| (Timestamp(n * 15_000), Some(value(n * 15))))
        .collect()
}

/// A node whose GPUs have these utilizations, with `own` a process of the run's and `others` one of another job's.
fn node(run: &JobRun, utilization: &[(&str, f64)], own: &[&str], others: &[&str]) -> NodeMeter {
    let rules = EfficiencyConfig::default();

    let hours = run.end.unwrap().0 / HOUR;
    let mut meter = NodeMeter::new(
        "g1",
        run,
        rules.window(UnixTime(0), run.end.unwrap()),
        &rules,
    );
    for (uuid, value) in utilization {
        meter.add(
            &labels("takt_gpu_info", &[("uuid", uuid)]),
            &every_15s(hours, |_| 1.0),
        );
        meter.add(
            &labels("takt_gpu_utilization_ratio", &[("uuid", uuid)]),
            &every_15s(hours, |_| *value),
        );
        meter.add(
            &labels("takt_gpu_memory_used_bytes", &[("uuid", uuid)]),
            &every_15s(hours, |at| 1e9 + at as f64),
        );
        meter.add(
            &labels("takt_gpu_memory_total_bytes", &[("uuid", uuid)]),
            &every_15s(hours, |_| 32e9),
        );
        meter.add(
            &labels("takt_gpu_power_watts", &[("uuid", uuid)]),
            &every_15s(hours, |_| 300.0),
        );
        meter.add(
            &labels("takt_gpu_energy_joules_total", &[("uuid", uuid)]),
            // 300 W on a counter that began before the run.
            &every_15s(hours, |at| 5e6 + 300.0 * at as f64),
        );
    }
    // `999` is the number of another job.
    for (job, uuids) in [(run.job_id.as_str(), own), ("999", others)] {
        for uuid in uuids {
            let info = labels(
                "takt_gpu_job_info",
                &[("uuid", uuid), ("jobid", job), ("user", "u")],
            );
            meter.add(&info, &every_15s(hours, |_| 1.0));
        }
    }
    meter
}

fn seen(run: &JobRun, meter: NodeMeter) -> Efficiency {
    assess(run, &[meter.finish(run.gpus)], &EfficiencyConfig::default()).unwrap()
}

#[test]
fn a_run_that_works_on_one_gpu_and_holds_two() {
    let run = run(2, 10);
    // One GPU works all the time, and the other never does.
    let mut meter = node(&run, &[("a", 0.9), ("b", 0.0)], &["a"], &[]);
    meter.add(
        &labels("takt_job_cpu_seconds_total", &[("jobid", "7")]),
        &every_15s(10, |at| at as f64 * 2.0),
    );
    meter.add(
        &labels("takt_job_memory_peak_bytes", &[("jobid", "7")]),
        &every_15s(10, |_| 10.0 * GIB),
    );
    let seen = seen(&run, meter);
    assert_eq!(seen.gpus_measured, 2);
    assert_eq!(seen.gpus_idle, 1);
    assert_eq!(seen.held_gpu_seconds, Some(72_000.0));
    assert!(
        (seen.coverage_ratio - 1.0).abs() < 1e-9,
        "{}",
        seen.coverage_ratio
    );
    assert!((seen.gpu_utilization_mean.unwrap() - 0.45).abs() < 1e-9);
    assert!(
        (seen.waste_idle_gpu_seconds - 36_000.0).abs() < 1e-6
            && (seen.used_gpu_seconds - 36_000.0).abs() < 1e-6
    );
    assert_eq!(seen.gpu_idle_longest_seconds, Some(36_000.0));
    // Two boards of 300 W for ten hours, except the last 15 s of the counter.
    assert!((seen.gpu_energy_joules.unwrap() - 2.0 * 300.0 * 35_985.0).abs() < 1.0);
    assert!((seen.cpu_ratio.unwrap() - 0.25).abs() < 0.001);
    assert!((seen.memory_ratio.unwrap() - 10.0 / 64.0).abs() < 1e-9);
    let advice = hints(&run, &seen, &EfficiencyConfig::default());
    let lines: Vec<String> = advice
        .iter()
        .map(|advice| advice.fix.line(advice.amount))
        .collect();
    assert_eq!(
        lines,
        [
            "#SBATCH --gpus=1",
            "#SBATCH --ntasks=1 --cpus-per-task=3",
            "#SBATCH --mem=13G",
            "#SBATCH --time=12:30:00"
        ]
    );
    assert_eq!(advice[0].why, "1 of its 2 GPUs did nothing");
    assert_eq!(advice[2].why, "10.0 GiB of 64 GiB were used at the highest");

    // No advice that a failure forbids stands beside it, whatever was measured.
    for state in [
        "COMPLETED",
        "FAILED",
        "TIMEOUT",
        "OUT_OF_MEMORY",
        "NODE_FAIL",
        "PREEMPTED",
        "DEADLINE",
    ] {
        let run = JobRun {
            state: state.into(),
            ..run.clone()
        };
        let advice = hints(&run, &seen, &EfficiencyConfig::default());
        let fixes: Vec<FixKind> = advice.iter().map(|advice| advice.fix).collect();
        // Less memory after running out of it, and less time after any other end, would make it worse.
        let is_killed = state == "OUT_OF_MEMORY";
        assert_eq!(!fixes.contains(&FixKind::LessMemory), is_killed, "{state}");
        let is_long = state != "COMPLETED";
        assert_eq!(!fixes.contains(&FixKind::LessTime), is_long, "{state}");
    }
}

#[test]
fn activity_is_counted_by_part() {
    let run = run(1, 1);
    let mut meter = node(&run, &[("a", 0.9)], &["a"], &[]);
    for (part, value) in [("sm", 0.5), ("tensor", 0.25), ("dram", 0.75)] {
        let activity = labels("takt_gpu_activity_ratio", &[("uuid", "a"), ("part", part)]);
        meter.add(&activity, &every_15s(1, |_| value));
    }
    let seen = seen(&run, meter);
    let sm = seen.gpu_sm_mean.unwrap();
    let tensor = seen.gpu_tensor_mean.unwrap();
    assert!(
        (sm - 0.5).abs() < 1e-9 && (tensor - 0.25).abs() < 1e-9,
        "{sm} {tensor}"
    );
}

#[test]
fn gpus_are_only_a_runs_own_where_that_is_certain() {
    let run = run(1, 1);
    let four = [("a", 0.9), ("b", 0.0), ("c", 0.5), ("d", 0.0)];
    // One GPU is held; four are on the node, of which two do nothing.
    let of = |own: &[&str], others: &[&str]| {
        node(&run, &four, own, others)
            .finish(Some(1))
            .gpus
            .iter()
            .map(|gpu| gpu.uuid.clone())
            .collect::<Vec<_>>()
            .concat()
    };
    assert_eq!(of(&["a"], &["c"]), "a");
    // It ran nothing; all GPUs but one have processes of others.
    assert_eq!(of(&[], &["a", "b", "c"]), "d");
    // Two GPUs remain, so neither can be assigned.
    assert_eq!(of(&[], &["a", "c"]), "");
    // An array task has another number in its cgroup, so its own process looks like another job's.
    let task = JobRun {
        job_id: "7_1".into(),
        ..run.clone()
    };
    let two = [("a", 0.9), ("b", 0.0)];
    assert_eq!(node(&task, &two, &[], &["a"]).finish(Some(1)).gpus.len(), 0);
    assert_eq!(
        node(&task, &two, &[], &["a"]).finish(Some(2)).gpus.len(),
        2,
        "a whole node has all of them"
    );
    // The only job of its user that was there exactly during the run is the run.
    let seen_as = |user: &str, jobs: &[(&str, i64)]| {
        let task = JobRun {
            user: user.into(),
            ..task.clone()
        };
        let mut meter = node(&task, &[("a", 0.9), ("b", 0.0), ("c", 0.0)], &[], &[]);
        // Samples of a job that began later than the run.
        for (uuid, (job, from)) in ["a", "b"].iter().zip(jobs) {
            let info = labels(
                "takt_gpu_job_info",
                &[("uuid", uuid), ("jobid", job), ("user", "ann")],
            );
            let samples: Vec<_> = every_15s(1, |_| 1.0)
                .into_iter()
                .filter(|(at, _)| at.0 / 1000 >= *from)
                .collect();
            meter.add(&info, &samples);
        }
        meter
            .finish(Some(1))
            .gpus
            .iter()
            .map(|gpu| gpu.uuid.clone())
            .collect::<Vec<_>>()
            .concat()
    };
    assert_eq!(seen_as("ann", &[("8", 0)]), "a");
    assert_eq!(seen_as("ann", &[("8", 600), ("9", 0)]), "b");
    assert_eq!(seen_as("ann", &[("8", 0), ("9", 0)]), "");
    assert_eq!(seen_as("bob", &[("8", 0)]), "");
    // A known number makes guessing unnecessary.
    let numbered = JobRun {
        raw_job_id: Some("999".into()),
        ..task
    };
    assert_eq!(
        node(&numbered, &four, &[], &["b"]).finish(Some(1)).gpus[0].uuid,
        "b"
    );
    assert_eq!(
        node(&numbered, &four, &["c"], &[])
            .finish(Some(1))
            .gpus
            .len(),
        0,
        "7_1 is not a number of a node's"
    );
}

#[test]
fn nothing_is_said_of_what_was_hardly_measured() {
    let run = run(1, 10);
    let rules = EfficiencyConfig::default();
    // Samples of four hours of ten.
    let mut meter = NodeMeter::new(
        "g1",
        &run,
        rules.window(UnixTime(0), UnixTime(36_000)),
        &rules,
    );
    meter.add(
        &labels("takt_gpu_info", &[("uuid", "a")]),
        &every_15s(4, |_| 1.0),
    );
    meter.add(
        &labels("takt_gpu_utilization_ratio", &[("uuid", "a")]),
        &every_15s(4, |_| 0.0),
    );
    let seen = seen(&run, meter);
    assert!((0.4..0.41).contains(&seen.coverage_ratio));
    assert_eq!(seen.split().wasted(), 0.0);
    assert_eq!(seen.unmeasured_gpu_seconds, 36_000.0);
    assert!(hints(&run, &seen, &rules).is_empty());
    // Invalid readings of a driver are not measurements.
    let mut meter = NodeMeter::new(
        "g1",
        &run,
        rules.window(UnixTime(0), UnixTime(36_000)),
        &rules,
    );
    meter.add(
        &labels("takt_gpu_utilization_ratio", &[("uuid", "a")]),
        &every_15s(10, |_| 1.4e16),
    );

    assert_eq!(
        assess(&run, &[meter.finish(Some(1))], &rules)
            .unwrap()
            .coverage_ratio,
        0.0
    );
    // No node reported anything.
    assert_eq!(
        assess(&run, &[], &rules).unwrap().unmeasured_gpu_seconds,
        36_000.0
    );
    assert_eq!(assess(&JobRun { start: None, ..run }, &[], &rules), None);
}

#[test]
fn idle_streaks_and_low_utilization() {
    let run = run(1, 10);
    let rules = EfficiencyConfig::default();
    let mut meter = NodeMeter::new(
        "g1",
        &run,
        rules.window(UnixTime(0), UnixTime(36_000)),
        &rules,
    );
    meter.add(
        &labels("takt_gpu_info", &[("uuid", "a")]),
        &every_15s(10, |_| 1.0),
    );
    // Six hours at 30 %, then nothing.
    let work = |at: i64| if at < 6 * HOUR { 0.3 } else { 0.0 };
    meter.add(
        &labels("takt_gpu_utilization_ratio", &[("uuid", "a")]),
        &every_15s(10, work),
    );
    let seen = seen(&run, meter);
    assert!((seen.waste_streak_gpu_seconds - 4.0 * 3600.0).abs() < 15.0);
    assert!((seen.waste_low_gpu_seconds - 6.0 * 3600.0 * 0.7).abs() < 15.0);
    assert!((seen.used_gpu_seconds - 6.0 * 3600.0 * 0.3).abs() < 15.0);
    assert_eq!(hints(&run, &seen, &rules)[0].fix, FixKind::EndIdle);
}

#[test]
fn a_fault_loses_all_that_the_run_held() {
    let node_failed = JobRun {
        state: "NODE_FAIL".into(),
        ..run(2, 5)
    };
    let lost = assess(&node_failed, &[], &EfficiencyConfig::default()).unwrap();
    assert_eq!(lost.lost_gpu_seconds, 36_000.0);
    assert_eq!(lost.lost_cpu_seconds, 144_000.0);
    assert_eq!(lost.fault.as_deref(), Some("node failed"));
    assert_eq!(lost.unmeasured_gpu_seconds, 0.0);
    let failed = |state: &str, xid: &str, first_ms: i64| {
        // The first error is in the run or before it, and the counter stays.
        let run = JobRun {
            state: state.into(),
            ..run(1, 5)
        };
        let mut meter = node(&run, &[("a", 0.9)], &["a"], &[]);
        let errors = labels("takt_gpu_xid_errors_total", &[("uuid", "a"), ("xid", xid)]);
        meter.add(
            &errors,
            &[
                (Timestamp(first_ms), Some(1.0)),
                (Timestamp(3_600_000), Some(1.0)),
            ],
        );
        seen(&run, meter).fault
    };
    assert_eq!(
        failed("FAILED", "79", 1_800_000).as_deref(),
        Some("xid 79 on g1")
    );
    assert_eq!(
        failed("FAILED", "79", -30_000),
        None,
        "an error from before the run"
    );
    assert_eq!(
        failed("FAILED", "13", 1_800_000),
        None,
        "the program's own fault"
    );
    assert_eq!(
        failed("COMPLETED", "79", 1_800_000),
        None,
        "nothing was lost"
    );
}

#[test]
fn gpus_that_wait_for_a_full_link() {
    let rules = EfficiencyConfig::default();
    let run = JobRun {
        nodes: Some(2),
        gpus: Some(2),
        ..run(2, 2)
    };
    let bound = |bytes_a_second: f64, utilization: f64, others: &[&str]| {
        // Each node has one GPU of the run, and a link of 2.5 Gbit/s.
        let nodes = ["g1", "g2"].map(|_| {
            let mut meter = node(&run, &[("a", utilization), ("b", 0.0)], &["a"], others);
            for (metric, rate) in [
                ("receive", bytes_a_second),
                ("transmit", bytes_a_second / 10.0),
            ] {
                let bytes = labels(
                    &format!("node_network_{metric}_bytes_total"),
                    &[("device", "eth0")],
                );
                meter.add(&bytes, &every_15s(2, |at| at as f64 * rate));
            }
            meter.add(
                &labels("node_network_speed_bytes", &[("device", "eth0")]),
                &every_15s(2, |_| 312_500_000.0),
            );
            meter.finish(Some(1))
        });
        assess(&run, &nodes, &rules).unwrap()
    };
    let waiting = bound(300e6, 0.3, &[]);
    assert!(waiting.is_network_bound && waiting.link_bound_ratio.unwrap() > 0.99);
    // 2 nodes, 300 MB/s in and 30 MB/s out, over the time between the first and the last sample.
    assert!((waiting.network_bytes.unwrap() - 2.0 * 330e6 * 7185.0).abs() < 1e6);
    assert_eq!(
        hints(&run, &waiting, &rules)[0].fix.line(1),
        "#SBATCH --nodes=1"
    );
    assert!(
        !bound(300e6, 0.9, &[]).is_network_bound,
        "its GPUs are busy all the same"
    );
    assert!(
        !bound(100e6, 0.3, &[]).is_network_bound,
        "the link is not full"
    );
    assert_eq!(
        bound(300e6, 0.3, &["b"]).link_bound_ratio,
        None,
        "another job may have filled it"
    );
}

proptest! {
    /// Each allocated GPU-second counts once, for all inputs.
    #[test]
    fn the_split_adds_up(
        gpus in 1_u64..5,
        hours in 1_i64..30,
        seen in collection::vec((0.0_f64..=1.0, 0.0_f64..=1.0, 0.0_f64..=1.0, 0.0_f64..=1.0), 0..5),
        state in sample::select(vec!["COMPLETED", "FAILED", "NODE_FAIL"]),
    ) {
        let run = JobRun {
            state: state.into(),
            ..run(gpus, hours)
        };
        let seconds = (hours * HOUR) as f64;
        let figures = |(covered, mean, idle, streak): (f64, f64, f64, f64)| ActivityFigures {
            covered_seconds: covered * seconds,
            mean,
            p95: 1.0,
            idle_ratio: idle,
            idle_longest_seconds: 0.0,
            idle_streak_seconds: covered * seconds * idle * streak,
            working_mean: mean,
        };
        let gpu = |values| GpuFigures {
            node: "g1".into(),
            uuid: "u".into(),
            activity: Some(figures(values)),
            ..GpuFigures::default()
        };
        let gpus_seen: Vec<GpuFigures> = seen.into_iter().take(gpus as usize).map(gpu).collect();
        let node = NodeFigures {
            // Fewer GPUs may be measured than are held.
            gpus: gpus_seen,
            ..NodeFigures::default()
        };
        let found = assess(&run, &[node], &EfficiencyConfig::default()).unwrap();
        let split = found.split();
        let held = gpus as f64 * seconds;
        prop_assert!(
            (split.held() - held).abs() <= 1e-6 * held,
            "{split:?} of {held}"
        );
        let parts = [
            split.used,
            split.idle,
            split.streak,
            split.low,
            split.lost,
            split.unmeasured,
        ];
        prop_assert!(parts.iter().all(|part| *part >= -1e-9));
        prop_assert!((0.0..=1.0).contains(&found.coverage_ratio));
        // Stored values are read back unchanged.
        let json = serde_json::to_value(&found).unwrap();
        prop_assert_eq!(serde_json::from_value::<Efficiency>(json).unwrap(), found);
    }
}
