use super::*;
use takt_accounting::efficiency::{Curve, Efficiency, Grade, Split, Verdict};
use takt_accounting::{Cost, Evidence, FailureCause};
use takt_model::UnixTime;
use takt_questions::{ClusterEvent, JobHint, StartChange, StartForecast, WhyWaiting};

/// 2026-10-05 12:00 in UTC.
const NOON: UnixTime = UnixTime(1_791_201_600);

fn pending() -> JobReport {
    JobReport {
        run: JobRun {
            cluster: "lab".into(),
            job_id: "4711".into(),
            submit: NOON,
            state: "PENDING".into(),
            user: "ann".into(),
            account: "vision".into(),
            partition: "gpu".into(),
            // A user's escape sequence must not reach the terminal of the one who looks.
            name: Some("train\u{1b}[2J".into()),
            req_tres: Some("cpu=8,mem=64G,node=1,gres/gpu=2".into()),
            timelimit: Some(7200),
            ..JobRun::default()
        },
        phase: JobPhase::Pending,
        waited_seconds: 600,
        ran_seconds: None,
        ends_by: None,
        limit_ratio: None,
        waiting: None,
        start_forecast: None,
        verdict: None,
        efficiency: None,
        cpu_unmeasured: None,
        memory_unmeasured: None,
        split_gpu_hours: None,
        wasted_gpu_hours: None,
        cost: None,
        currency: None,
        hints: Vec::new(),
        failure: None,
        axis: None,
        by_node: Vec::new(),
        pace: None,
    }
}

fn shown(report: JobReport) -> String {
    shown_with(report, Vec::new())
}

fn shown_with(report: JobReport, events: Vec<ClusterEvent>) -> String {
    let answer = JobAnswer {
        job_id: "4711".into(),
        timezone: "Europe/Oslo".into(),
        at: NOON + 600,
        report: None,
        array: None,
        runs: Vec::new(),
        same_name: Vec::new(),
        neighbours: Vec::new(),
        events,
    };
    let text = one_run(&answer, &report, None);
    // Lines wrap at the width, not in the middle of a word by the terminal.
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    text
}

/// The page of a running job showed a fault that the command did not.
#[test]
fn faults_of_a_running_job_are_shown_as_on_its_page() {
    let report = JobReport {
        phase: JobPhase::Running,
        ..pending()
    };
    let event = ClusterEvent {
        at: NOON + 60,
        until: None,
        kind: "hardware".into(),
        node: "g01".into(),
        uuid: None,
        gpu_index: Some("3".into()),
        name: "XID 79".into(),
        severity: String::new(),
        text: "GPU has fallen off the bus\u{1b}[2J".into(),
        fingerprint: None,
        user: None,
    };
    let text = shown_with(report, vec![event]);
    let line = "g01 GPU 3: XID 79 GPU has fallen off the bus";
    assert!(text.contains("Happened") && text.contains(line), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn a_pending_job_shows_why_it_waits_and_when_it_starts() {
    let report = JobReport {
        waiting: Some(WhyWaiting {
            reason: "Priority".into(),
            words: "other jobs in partition gpu have a higher priority; takt fairshare --explain \
                    says why"
                .into(),
            since: NOON,
            expected_start: Some(NOON + 3600),
            priority: Some(7),
            demands: Vec::new(),
        }),
        start_forecast: Some(StartForecast {
            words: "starts between 14:20 and 16:10, most likely at 14:40; of the last 120 forecasts 83 % were right"
                .into(),
            ..StartForecast::default()
        }),
        ..pending()
    };
    assert_eq!(
        shown(report),
        "\
Job 4711  train\u{fffd}[2J                                                      PENDING
ann of account vision, partition gpu

It waits    (Priority) other jobs in partition gpu have a higher priority; takt
            fairshare --explain says why
            Slurm has given this reason since 2026-10-05 14:00
            Slurm expects to start it at 2026-10-05 15:00
Forecast    starts between 14:20 and 16:10, most likely at 14:40; of the last
            120 forecasts 83 % were right

Submitted   2026-10-05 14:00, waited 10 min
Requested   cpu=8,mem=64G,node=1,gres/gpu=2
"
    );
}

#[test]
fn a_pending_job_shows_what_blocks_it_and_what_starts_it_sooner() {
    let blocked = BlockedAnswer {
        words: vec![
            "nodes that would do start no jobs: g02 (DOWN)".into(),
            "1 running job has to end first: 4700 of bob\u{1b} (about 15:10)".into(),
        ],
        changes: vec![StartChange {
            kind: "time".into(),
            option: "--time=02:00:00".into(),
            start: NOON,
            sooner_seconds: 7200,
            words: "a time limit of 2:00 h instead of 24:00 h (--time=02:00:00): 19:40 instead of Thu 08:00".into(),
        }],
        ..BlockedAnswer::default()
    };
    // The title comes before.
    let mut page = Page {
        text: "Job 4711\nann\n\n".to_owned(),
        zone: TimeZone::UTC,
    };
    page.why(&pending(), Some(&blocked));
    assert_eq!(
        page.text,
        "\
Job 4711
ann

It waits    the reason is not known yet
Waits for   nodes that would do start no jobs: g02 (DOWN)
            1 running job has to end first: 4700 of bob\u{fffd} (about 15:10)
Sooner with a time limit of 2:00 h instead of 24:00 h (--time=02:00:00): 19:40
            instead of Thu 08:00

"
    );
}

#[test]
fn a_failed_job_shows_the_cause_its_use_and_the_lines_to_change() {
    let gpu = |index: &str, mean: f64, values: Vec<Option<f64>>| GpuReport {
        index: Some(index.into()),
        utilization_mean: Some(mean),
        idle_ratio: Some(1.0 - mean),
        memory_peak_bytes: Some(30.0 * GIB),
        memory_total_bytes: Some(32.0 * GIB),
        power_mean_watts: Some(412.3),
        utilization: Curve(values),
        ..GpuReport::default()
    };
    let node = NodeReport {
        node: "g1".into(),
        gpus: vec![
            // Gaps of the measurement show as blanks, not as zeros.
            gpu("0", 0.9, [Some(0.0), Some(0.9), None, Some(1.0)].repeat(5)),
            gpu("1", 0.0, vec![Some(0.0); 20]),
        ],
        ..NodeReport::default()
    };
    let report = JobReport {
        run: JobRun {
            state: "TIMEOUT".into(),
            start: Some(NOON + 600),
            end: Some(NOON + 7800),
            nodes: Some(1),
            cpus: Some(8),
            gpus: Some(2),
            gpu_model: Some("rtx5090".into()),
            mem_bytes: Some(64 << 30),
            node_list: Some("g1".into()),
            exit_code: Some("0:15".into()),
            name: Some("train".into()),
            ..pending().run
        },
        phase: JobPhase::Finished,
        ran_seconds: Some(7200),
        limit_ratio: Some(1.0),
        verdict: Some(Verdict {
            grade: Grade::Fair,
            words: "1 of its 2 GPUs did nothing; all together were busy 45 %".into(),
        }),
        efficiency: Some(Efficiency {
            gpu_utilization_mean: Some(0.45),
            gpu_idle_longest_seconds: Some(7200.0),
            gpu_memory_peak_bytes: Some(30.0 * GIB),
            gpu_memory_total_bytes: Some(32.0 * GIB),
            gpu_power_mean_watts: Some(824.6),
            cpu_ratio: Some(0.25),
            cpu_seconds: Some(14_400.0),
            ..Efficiency::default()
        }),
        split_gpu_hours: Some(Split {
            used: 2.0,
            idle: 2.0,
            ..Split::default()
        }),
        wasted_gpu_hours: Some(2.0),
        cost: Some(Cost {
            money: 4.2,
            kwh: 1.65,
            ..Cost::default()
        }),
        currency: Some("EUR".into()),
        hints: vec![JobHint {
            line: "#SBATCH --gpus=1".into(),
            why: "1 of its 2 GPUs did nothing".into(),
            gpu_hours: 2.0,
        }],
        failure: Some(takt_accounting::Failure {
            cause: FailureCause::TimeLimit,
            words: "it reached its time limit of 2:00 h".into(),
            advice: "request more time (--time), or save checkpoints and continue from them".into(),
            evidence: vec![Evidence {
                at: Some(NOON + 7800),
                words: "Slurm recorded the state TIMEOUT".into(),
                ..Evidence::default()
            }],
        }),
        by_node: vec![node],
        ..pending()
    };
    assert_eq!(
        shown(report),
        "\
Job 4711  train                                                          TIMEOUT
ann of account vision, partition gpu

It failed   it reached its time limit of 2:00 h
What helps  request more time (--time), or save checkpoints and continue from
            them
Evidence    2026-10-05 16:10  Slurm recorded the state TIMEOUT

Submitted   2026-10-05 14:00, waited 10 min
Started     2026-10-05 14:10
Ended       2026-10-05 16:10, ran 2:00 h of its limit of 2:00 h (100 %)
Exit code   0:15 (status:signal)
Held        1 node (g1), 8 CPUs, 2 GPUs (rtx5090), 64.0 GiB memory

Verdict     fair: 1 of its 2 GPUs did nothing; all together were busy 45 %
GPUs busy     45 %  █████████···········  idle for 2:00 h at the longest
GPU memory    94 %  ███████████████████·  30.0 GiB of 32.0 GiB at the highest
CPUs          25 %  █████···············  4:00 h of CPU time on 8 CPUs
Memory           –                        not measured
Energy      1.65 kWh of the GPUs, 825 W on average
Cost        4.20 EUR
Wasted      2.00 of 4.00 GPU-hours

GPU           BUSY   IDLE    MEMORY   POWER  UTILIZATION
g1 0          90 %   10 %  30.0 GiB   412 W  ▁█ █▁█ █▁█ █▁█ █▁█ █
g1 1           0 %  100 %  30.0 GiB   412 W  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁

What to change in the script
  #SBATCH --gpus=1
      1 of its 2 GPUs did nothing; saves 2.00 GPU-hours
"
    );
}

#[test]
fn what_was_not_measured_has_its_reason() {
    let report = JobReport {
        phase: JobPhase::Finished,
        efficiency: Some(Efficiency {
            memory_ratio: Some(0.5),
            memory_peak_bytes: Some(32.0 * GIB),
            ..Efficiency::default()
        }),
        cpu_unmeasured: Some(
            // A word that is longer than the rest of the line moves to the next one.
            "no cpuacct cgroup on gpu-node-with-a-long-name-0001.example.org".into(),
        ),
        run: JobRun {
            mem_bytes: Some(64 << 30),
            ..pending().run
        },
        ..pending()
    };
    let text = shown(report);
    assert!(
        text.contains("\nCPUs        not measured: no cpuacct cgroup on\n            gpu-node-with-a-long-name-0001.example.org\n"),
        "{text}"
    );
}
