use super::*;
use crate::efficiency::{GpuFigures, XidCount};
use takt_jobs::Amounts;

fn run(state: &str, exit_code: &str) -> JobRun {
    JobRun {
        job_id: "7".into(),
        start: Some(UnixTime(0)),
        end: Some(UnixTime(7200)),
        state: state.into(),
        exit_code: Some(exit_code.into()),
        nodes: Some(1),
        mem_bytes: Some(16 << 30),
        timelimit: Some(7200),
        ..JobRun::default()
    }
}

fn meaning(xid: &str) -> XidMeaning {
    XidMeaning {
        words: format!("meaning of {xid}"),
        is_by_program: xid == "31",
    }
}

fn of(run: &JobRun, node: NodeFigures, events: &[NodeEvent]) -> Failure {
    let node = NodeFigures {
        node: "g1".into(),
        ..node
    };
    let traces = Traces {
        nodes: &[node],
        node_events: events,
        // The node of the run, whose events count.
        node_names: &["g1".to_owned()],
        xid: meaning,
    };
    failure(run, &traces).unwrap()
}

fn words(failure: &Failure) -> Vec<&str> {
    failure
        .evidence
        .iter()
        .map(|one| one.words.as_str())
        .collect()
}

#[test]
fn a_kill_for_lack_of_memory_is_found_although_slurm_says_failed() {
    let node = NodeFigures {
        oom_kills: Some(2.0),
        oom_at: Some(Timestamp(7_000_000)),
        memory_peak_bytes: Some(16.0 * GIB),
        ..NodeFigures::default()
    };
    // 137 is 128 and SIGKILL: the shell of the script saw the kill.
    let found = of(&run("FAILED", "137:0"), node, &[]);
    assert_eq!(found.cause, FailureCause::OutOfMemory);
    assert_eq!(
        found.words,
        "it needed more memory than its limit of 16 GiB"
    );
    assert_eq!(
        found.advice,
        "request more memory, for example --mem=24G, or use less"
    );
    assert_eq!(
        words(&found),
        [
            "it used up to 16 GiB of 16 GiB",
            "the kernel killed 2 of its processes for lack of memory",
            "Slurm recorded the state FAILED",
            "exit code 137:0 (status:signal)",
        ]
    );
    assert_eq!(found.evidence[1].at, Some(UnixTime(7000)));
}

#[test]
fn states_exit_codes_and_signals() {
    let cause = |state: &str, code: &str| {
        let found = of(&run(state, code), NodeFigures::default(), &[]);
        (found.cause, found.words)
    };
    let expect = |cause, words: &str| (cause, words.to_owned());
    assert_eq!(
        cause("TIMEOUT", "0:0"),
        expect(
            FailureCause::TimeLimit,
            "it reached its time limit of 2:00 h"
        )
    );
    assert_eq!(
        cause("FAILED", "3:0"),
        expect(
            FailureCause::ExitStatus,
            "the program ended with exit status 3"
        )
    );
    assert_eq!(
        cause("FAILED", "127:0").1,
        "its script called a command that does not exist (exit status 127)"
    );
    assert_eq!(
        cause("FAILED", "0:11").1,
        "signal 11 (SIGSEGV) ended the program: it used memory that it does not own: a bug in the \
         program"
    );
    // Slurm before 25.11 turns a status above 128 into a signal, later releases keep it.
    assert_eq!(cause("FAILED", "139:0"), cause("FAILED", "0:11"));
    // Slurm's own number for a script that it could not start: the program wrote no output.
    let not_started = of(&run("FAILED", "0:53"), NodeFigures::default(), &[]);
    assert!(
        not_started.words.contains("could not start"),
        "{not_started:?}"
    );
    assert!(not_started.advice.contains("--output"), "{not_started:?}");
    assert_eq!(cause("CANCELLED", "0:15").0, FailureCause::Cancelled);
    assert_eq!(cause("PREEMPTED", "0:0").0, FailureCause::Preempted);
    assert_eq!(cause("OUT_OF_MEMORY", "0:125").0, FailureCause::OutOfMemory);

    let completed = run("COMPLETED", "0:0");
    let traces = Traces {
        nodes: &[],
        node_events: &[],
        node_names: &[],
        xid: meaning,
    };
    assert_eq!(failure(&completed, &traces), None);
}

#[test]
fn a_fault_of_a_gpu_is_the_clusters_and_an_error_of_a_program_is_not() {
    // 79: fallen off the bus. 31: an access outside of memory, mostly by the program.
    let gpu = |xid: &str, fault: Option<&str>| NodeFigures {
        gpus: vec![GpuFigures {
            node: "g1".into(),
            uuid: "GPU-1".into(),
            fault: fault.map(str::to_owned),
            xids: vec![XidCount {
                xid: xid.into(),
                at: Timestamp(7_190_000),
                errors: 1.0,
            }],
            ..GpuFigures::default()
        }],
        ..NodeFigures::default()
    };
    let broken = of(&run("FAILED", "1:0"), gpu("79", Some("xid 79")), &[]);
    assert_eq!(broken.cause, FailureCause::GpuFault);
    assert_eq!(broken.words, "a GPU of g1 failed (xid 79)");
    assert!(words(&broken).contains(&"XID 79: meaning of 79"));
    let bug = of(&run("FAILED", "1:0"), gpu("31", None), &[]);
    assert_eq!(bug.words, "the GPU driver reported XID 31: meaning of 31");
    assert!(bug.advice.starts_with("look for a bug"), "{}", bug.advice);
}

#[test]
fn a_node_that_went_down_near_the_end_is_evidence() {
    let in_state = |node: &str, from, state: &str, reason: &str| NodeEvent {
        node: node.into(),
        state: state.into(),
        reason: Some(reason.into()),
        has: Amounts::default(),
        from: UnixTime(from),
        to: None,
    };
    let event = |node: &str, from| in_state(node, from, "DOWN", "Not responding");
    // Long after the end, on another node, a drain, a power saving, and a registration with too few GPUs.
    let events = [
        event("g1", 7300),
        event("g1", 90_000),
        event("g2", 7200),
        in_state("g1", 7301, "DRAIN", "Kill task failed"),
        in_state("g1", 7302, "IDLE~", "Power down"),
        in_state("g1", 7303, "INVAL", "gres/gpu count reported lower"),
    ];
    let found = of(&run("NODE_FAIL", "0:0"), NodeFigures::default(), &events);
    assert_eq!(found.cause, FailureCause::NodeFailure);
    assert_eq!(
        words(&found),
        [
            "Slurm recorded the state NODE_FAIL",
            "Slurm reported the node DOWN (Not responding)",
            "Slurm reported the node INVAL (gres/gpu count reported lower)"
        ]
    );
}
