//! Tests of queries and imports.

mod filters;
mod node_events;
mod time_zones;

use super::*;
use crate::{Corrections, DataDir, Settings};
use proptest::prelude::*;
use proptest::{collection, option};
use std::convert::Infallible;
use std::slice;
use takt_jobs::{Entry, MAX_TEXT_BYTES, Node, Reject};
use takt_model::UnixTime;
use tempfile::{TempDir, tempdir};

/// A database in a temporary directory.
pub(super) struct Store {
    pub(super) database: Database,
    _dir: DataDir,
    _root: TempDir,
}

impl Store {
    pub(super) fn new() -> Self {
        let root = tempdir().unwrap();
        let dir = DataDir::claim(root.path()).unwrap();
        Self {
            database: Database::open(&dir, &Settings::default()).unwrap(),
            _dir: dir,
            _root: root,
        }
    }

    pub(super) fn records(&self) -> Records<'_> {
        Records::of(&self.database)
    }

    fn import(&self, runs: &[JobRun]) -> ImportSummary {
        self.import_entries(runs.iter().cloned().map(Entry::Run).collect())
    }

    fn import_entries(&self, entries: Vec<Entry>) -> ImportSummary {
        let entries = entries.into_iter().map(Ok::<_, Infallible>);
        self.records().import(&ORIGIN, entries).unwrap()
    }

    fn jobs(&self) -> Vec<JobRun> {
        self.records().jobs(&JobFilter::default()).unwrap()
    }
}

const ORIGIN: Origin<'_> = Origin {
    source: "sacct",
    name: "test",
    timezone: None,
    complete_until: None,
    shifted: Shifted::Refuse,
    corrections: Corrections::Accept,
};

fn run(job_id: &str, submit: i64, end: Option<i64>) -> JobRun {
    let submit = UnixTime(submit);
    JobRun {
        cluster: "lab".into(),
        job_id: job_id.into(),
        submit,
        eligible: Some(submit),
        start: Some(submit + 10),
        end: end.map(UnixTime),
        state: if end.is_some() {
            "COMPLETED"
        } else {
            "RUNNING"
        }
        .into(),
        user: "ann".into(),
        account: "physics".into(),
        partition: "gpu".into(),
        qos: Some("normal".into()),
        name: Some("train 'x' | \u{1f980}".into()),
        nodes: Some(2),
        cpus: Some(8),
        gpus: Some(1),
        gpu_model: Some("a100".into()),
        mem_bytes: Some(1 << 50),
        billing: Some(9),
        alloc_tres: Some("cpu=8".into()),
        req_tres: Some("cpu=8".into()),
        node_list: Some("g[1-2]".into()),
        elapsed: end.map(|end| end.abs_diff(submit.0) - 10),
        suspended: Some(0),
        timelimit: Some(3600),
        exit_code: Some("0:0".into()),
        reservation: Some("class".into()),
        raw_job_id: Some(format!("9{job_id}")),
        sluid: Some("s88DKSW5HH2P01".into()),
        original_sluid: Some("s88DKSW5HH2P00".into()),
        mem_bytes_most: None,
    }
}

/// Inserted, updated, unchanged, duplicates.
fn counts(summary: &ImportSummary) -> [u64; 4] {
    [
        summary.runs_inserted,
        summary.runs_updated,
        summary.unchanged,
        summary.duplicates,
    ]
}

#[test]
fn memory_that_shrinks_while_a_run_goes_on_is_kept_beside_the_last_size() {
    let store = Store::new();
    let size = |end: Option<i64>, gib: u64| JobRun {
        mem_bytes: Some(gib << 30),
        ..run("7", 1000, end)
    };
    let seen = |store: &Store| {
        let run = store.jobs().remove(0);
        (
            run.mem_bytes.map(|bytes| bytes >> 30),
            run.mem_bytes_most.map(|bytes| bytes >> 30),
        )
    };
    store.import(&[size(None, 128)]);
    assert_eq!(seen(&store), (Some(128), None));
    store.import(&[size(None, 64)]);
    assert_eq!(seen(&store), (Some(64), Some(128)));
    store.import(&[size(Some(2000), 32)]);
    assert_eq!(seen(&store), (Some(32), Some(128)));

    // An administrator corrects the record of the finished run.
    store.import(&[size(Some(2000), 16)]);
    assert_eq!(seen(&store), (Some(16), Some(128)));
    let other = JobRun {
        job_id: "8".into(),
        ..size(Some(2000), 64)
    };
    store.import(slice::from_ref(&other));
    store.import(&[JobRun {
        mem_bytes: Some(1 << 30),
        ..other
    }]);
    let corrected = store.jobs().into_iter().find(|run| run.job_id == "8");
    assert_eq!(corrected.unwrap().mem_bytes_most, None);
}

#[test]
fn an_interactive_array_task_has_the_number_of_its_nodes() {
    let store = Store::new();
    let shell = |job_id: &str, name: &str| JobRun {
        name: Some(name.into()),
        ..run(job_id, 1000, None)
    };
    store.import(&[shell("7_4", "bash"), shell("8", "train")]);
    let now = store
        .records()
        .scheduler_now("lab", UnixTime(2000))
        .unwrap();
    assert_eq!(now.interactive, ["97_4"]);
}

#[test]
fn a_run_is_stored_unchanged() {
    let store = Store::new();
    let bare = JobRun {
        cluster: "lab".into(),
        job_id: "8".into(),
        submit: UnixTime(-5),
        state: "PENDING".into(),
        ..JobRun::default()
    };
    assert_eq!(
        counts(&store.import(&[run("7", 1000, Some(2000)), bare.clone()])),
        [2, 0, 0, 0]
    );
    assert_eq!(store.jobs(), [run("7", 1000, Some(2000)), bare]);
    let mut held = Vec::new();
    store
        .records()
        .held_runs("lab", UnixTime(-100), UnixTime(3000), |run| {
            held.push(format!("{run:?}"))
        })
        .unwrap();
    held.sort();
    let mut expected: Vec<_> = store
        .jobs()
        .iter()
        .map(|run| format!("{:?}", run.held()))
        .collect();
    expected.sort();
    assert_eq!(held, expected);
}

#[test]
fn repeated_and_overlapping_imports_change_nothing() {
    let store = Store::new();
    let runs: Vec<_> = (0..5000)
        .map(|id| run(&id.to_string(), 1000 + id, (id % 3 > 0).then_some(9000)))
        .collect();
    assert_eq!(counts(&store.import(&runs[..3000])), [3000, 0, 0, 0]);
    assert_eq!(counts(&store.import(&runs[2000..])), [2000, 0, 1000, 0]);
    let before = store.jobs();
    assert_eq!(counts(&store.import(&runs)), [0, 0, 5000, 0]);
    assert_eq!(store.jobs(), before);
    assert_eq!(before.len(), 5000);
}

#[test]
fn a_late_correction_applies_and_an_older_text_does_not() {
    let store = Store::new();
    let pending = JobRun {
        start: None,
        state: "PENDING".into(),
        ..run("7", 1000, None)
    };
    let running = run("7", 1000, None);
    let ended = run("7", 1000, Some(2000));
    let corrected = JobRun {
        end: Some(UnixTime(1900)),
        elapsed: Some(890),
        state: "FAILED".into(),
        ..ended.clone()
    };
    for (row, expected, known) in [
        (&pending, [1, 0, 0, 0], &pending),
        (&running, [0, 1, 0, 0], &running),
        (&pending, [0, 0, 1, 0], &running),
        (&ended, [0, 1, 0, 0], &ended),
        (&running, [0, 0, 1, 0], &ended),
        (&pending, [0, 0, 1, 0], &ended),
        (&corrected, [0, 1, 0, 0], &corrected),
    ] {
        assert_eq!(counts(&store.import(slice::from_ref(row))), expected);
        assert_eq!(store.jobs(), slice::from_ref(known));
    }
}

/// Imports runs of a file in which a job's name can look like a record. Returns the counts and the
/// number of contradicting runs.
fn import_unbelieved(store: &Store, source: &str, runs: &[JobRun]) -> ([u64; 4], u64) {
    let origin = Origin {
        source,
        corrections: Corrections::Refuse,
        ..ORIGIN
    };
    let entries = runs
        .iter()
        .map(|run| Ok::<_, Infallible>(Entry::Run(run.clone())));
    let summary = store.records().import(&origin, entries).unwrap();
    assert_eq!(summary.rejected, summary.contradicting);
    (counts(&summary), summary.contradicting)
}

/// Issue 28: a job's name "corrected" the finished job of another user, or the job's own.
#[test]
fn what_may_be_forged_ends_runs_and_changes_no_finished_one() {
    let ended = run("7", 1000, Some(2000));
    let forgeries: [fn(&mut JobRun); 8] = [
        |run| run.user = "eve".into(),
        |run| run.account = "biology".into(),
        |run| run.gpus = Some(0),
        |run| run.cpus = Some(1),
        |run| run.end = Some(UnixTime(1500)),
        |run| run.end = Some(UnixTime(9000)),
        |run| run.start = Some(UnixTime(1900)),
        |run| run.billing = Some(1),
    ];
    for forge in forgeries {
        let store = Store::new();
        store.import(slice::from_ref(&ended));
        let mut forged = ended.clone();
        forge(&mut forged);
        // The forged record comes alone, and beside the true one.
        for (runs, unchanged) in [
            (vec![forged.clone()], 0),
            (vec![ended.clone(), forged.clone()], 1),
        ] {
            let found = import_unbelieved(&store, "sacct", &runs);
            assert_eq!(found, ([0, 0, unchanged, 0], 1), "{forged:?}");
            assert_eq!(store.jobs(), slice::from_ref(&ended));
        }
        let kept: i64 = store
            .database
            .connect()
            .unwrap()
            .query_row("SELECT count(*) FROM records.rejects", [], |row| row.get(0))
            .unwrap();
        assert_eq!(kept, 1, "{forged:?}");
        assert_eq!(counts(&store.import(&[forged.clone()])), [0, 1, 0, 0]);
        assert_eq!(store.jobs(), [forged]);
    }

    // A run that waits or runs may end, as its own user's, and keeps what it was seen to hold.
    let store = Store::new();
    store.import(&[run("7", 1000, None)]);
    let mut forged = ended.clone();
    forgeries[0](&mut forged);
    assert_eq!(import_unbelieved(&store, "sacct", &[forged]).1, 1);
    assert_eq!(store.jobs(), [run("7", 1000, None)]);
    for forge in [
        forgeries[1],
        forgeries[2],
        forgeries[3],
        forgeries[6],
        forgeries[7],
    ] {
        let store = Store::new();
        store.import(&[run("7", 1000, None)]);
        let mut forged = ended.clone();
        forge(&mut forged);
        let found = import_unbelieved(&store, "jobcomp", slice::from_ref(&forged));
        assert_eq!(found, ([0, 1, 0, 0], 0), "{forged:?}");
        assert_eq!(store.jobs(), slice::from_ref(&ended));
    }
    assert_eq!(
        import_unbelieved(&store, "sacct", slice::from_ref(&ended)),
        ([0, 1, 0, 0], 0)
    );
    // An unknown value is filled, and what is not charged is kept.
    let bare = JobRun {
        gpus: None,
        ..run("8", 1000, Some(2000))
    };
    store.import(slice::from_ref(&bare));
    let filled = JobRun {
        name: Some("renamed".into()),
        ..run("8", 1000, Some(2000))
    };
    assert_eq!(
        import_unbelieved(&store, "sacct", &[filled]),
        ([0, 1, 0, 0], 0)
    );
    assert!(store.jobs().contains(&run("8", 1000, Some(2000))));
}

/// slurmctld shows a uid while the name of a user is unknown.
#[test]
fn a_record_ends_a_run_of_the_live_queue() {
    let store = Store::new();
    let live = JobRun {
        user: "61001".into(),
        ..run("7", 1000, None)
    };
    let origin = Origin {
        source: LIVE_QUEUE,
        ..ORIGIN
    };
    let entries = [Ok::<_, Infallible>(Entry::Run(live))];
    store.records().import(&origin, entries).unwrap();
    let ended = run("7", 1000, Some(2000));
    assert_eq!(
        import_unbelieved(&store, "jobcomp", slice::from_ref(&ended)),
        ([0, 1, 0, 0], 0)
    );
    assert_eq!(store.jobs(), [ended]);
}

/// A file was read twice, and the second time its row contradicted what the first had left of the live queue.
#[test]
fn a_record_that_differs_from_the_live_queue_contradicts_nothing_when_read_again() {
    let live_queue = Origin {
        source: LIVE_QUEUE,
        ..ORIGIN
    };
    let running = run("7", 1000, None);
    let ended_late = run("7", 1000, Some(2001));
    let record = run("7", 1000, Some(2000));
    let smaller = JobRun {
        cpus: Some(1),
        ..record.clone()
    };

    for (seen, read, kept) in [
        (&ended_late, &record, &record),
        (&running, &smaller, &record),
        (&ended_late, &smaller, &ended_late),
    ] {
        let store = Store::new();
        let entries = [Ok::<_, Infallible>(Entry::Run(seen.clone()))];
        store.records().import(&live_queue, entries).unwrap();
        for _ in 0..2 {
            let (_, contradicting) = import_unbelieved(&store, "jobcomp", slice::from_ref(read));
            assert_eq!(contradicting, 0);
            assert_eq!(store.jobs(), slice::from_ref(kept));
        }
    }
}

/// A preempted job was cancelled before it ran again: slurmctld's answer made its run no second long.
#[test]
fn a_cancelled_job_keeps_the_start_of_its_preempted_run() {
    let store = Store::new();
    let live_queue = Origin {
        source: LIVE_QUEUE,
        ..ORIGIN
    };
    let import_live = |run: JobRun| {
        let entries = [Ok::<_, Infallible>(Entry::Run(run))];
        store.records().import(&live_queue, entries).unwrap();
    };
    let cancelled = JobRun {
        start: Some(UnixTime(2000)),
        state: "CANCELLED".into(),
        ..run("7", 1000, Some(2000))
    };
    let record = JobRun {
        state: "PREEMPTED".into(),
        ..run("7", 1000, Some(2000))
    };

    import_live(run("7", 1000, None));
    import_live(cancelled);
    assert_eq!(store.jobs()[0].start, record.start);
    for _ in 0..2 {
        assert_eq!(
            import_unbelieved(&store, "jobcomp", slice::from_ref(&record)).1,
            0
        );
        assert_eq!(store.jobs(), slice::from_ref(&record));
    }
}

/// A forged end of a run that goes on: the first record won for ever.
#[test]
fn a_run_that_the_scheduler_lists_is_open_again() {
    let store = Store::new();
    let live = run("7", 1000, None);
    let forged = JobRun {
        gpus: Some(0),
        ..run("7", 1000, Some(1500))
    };
    store.import(slice::from_ref(&live));
    assert_eq!(
        import_unbelieved(&store, "jobcomp", &[forged]),
        ([0, 1, 0, 0], 0)
    );
    let unfinished = [OpenRun {
        job_id: "7".into(),
        submit: live.submit,
    }];
    let set_aside = |asked_at| {
        store
            .records()
            .set_aside_false_ends("lab", &unfinished, asked_at)
            .unwrap()
    };

    // The scheduler was asked before the record came: the run may have ended since.
    let seconds = crate::database::microseconds_now() / 1_000_000;
    let now = UnixTime(seconds.try_into().unwrap());
    assert!(set_aside(now).is_empty());
    assert_eq!(store.jobs()[0].end, Some(UnixTime(1500)));

    assert_eq!(set_aside(now + 60), unfinished);
    store.import(slice::from_ref(&live));
    assert_eq!(store.jobs(), slice::from_ref(&live));
    let ended = run("7", 1000, Some(9000));
    assert_eq!(
        import_unbelieved(&store, "jobcomp", slice::from_ref(&ended)),
        ([0, 1, 0, 0], 0)
    );
    assert_eq!(store.jobs(), [ended]);
    let kept: String = store
        .database
        .connect()
        .unwrap()
        .query_row("SELECT text FROM records.rejects", [], |row| row.get(0))
        .unwrap();
    assert!(kept.starts_with("7|ann|physics|"), "{kept}");
}

/// A job's name in a file "ended" a run of another user that slurmdbd listed as running a moment ago.
#[test]
fn a_file_ends_no_run_that_a_poll_lists_as_unfinished() {
    let store = Store::new();
    let live = run("7", 1000, None);
    let poll = Origin {
        complete_until: Some(("lab", UnixTime(50_000))),
        ..ORIGIN
    };
    let entries = [Ok::<_, Infallible>(Entry::Run(live.clone()))];
    store.records().import(&poll, entries).unwrap();

    let ending = |end| import_unbelieved(&store, "sacct", &[run("7", 1000, Some(end))]);
    let future = i64::try_from(crate::database::microseconds_now() / 1_000_000).unwrap() + 9000;
    for end in [1500, 49_000, future] {
        assert_eq!(ending(end), ([0, 0, 0, 0], 1), "{end}");
        assert_eq!(store.jobs(), slice::from_ref(&live));
    }
    let reason: String = store
        .database
        .connect()
        .unwrap()
        .query_row("SELECT max(reason) FROM records.rejects", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(
        reason,
        "the scheduler still listed the run as unfinished at 1970-01-01 13:53:20; use \
         --accept-corrections if Slurm corrected it"
    );

    // Its record was on its way, or no poll has asked since.
    assert_eq!(ending(49_950), ([0, 1, 0, 0], 0));
    let store = Store::new();
    store.import(slice::from_ref(&live));
    let ended = [run("7", 1000, Some(1500))];
    assert_eq!(import_unbelieved(&store, "sacct", &ended).1, 0);
}

/// The end of alice's run came with her uid, because her name was unknown for a moment.
#[test]
fn a_uid_contradicts_no_name() {
    let store = Store::new();
    store.import(&[run("7", 1000, None)]);
    let ended = run("7", 1000, Some(2000));
    let by_uid = JobRun {
        user: "61001".into(),
        ..ended.clone()
    };
    assert_eq!(
        import_unbelieved(&store, "jobcomp", slice::from_ref(&by_uid)),
        ([0, 1, 0, 0], 0)
    );
    assert_eq!(store.jobs(), slice::from_ref(&ended));

    let other = JobRun {
        user: "61002".into(),
        ..by_uid.clone()
    };
    let store = Store::new();
    store.import(&[by_uid]);
    assert_eq!(import_unbelieved(&store, "jobcomp", &[other]).1, 1);
}

/// Imports rows of a file in which a job's name can look like a record, from its second line on.
fn import_file(store: &Store, runs: Vec<JobRun>) -> ImportSummary {
    let origin = Origin {
        corrections: Corrections::Refuse,
        ..ORIGIN
    };
    let entries = (2..)
        .zip(runs)
        .map(|(line, run)| Ok::<_, Infallible>((line, Entry::Run(run))));
    let imported = store.records().import_file(&origin, None, entries);
    imported.unwrap()
}

/// Two records of one run ended the import of all others.
#[test]
fn a_second_record_of_a_run_in_a_file_is_set_aside_with_its_line() {
    let ended = run("7", 1000, Some(2000));
    let other = run("8", 1000, Some(2000));
    let forged = JobRun {
        gpus: Some(0),
        ..ended.clone()
    };
    let store = Store::new();
    let summary = import_file(&store, vec![ended.clone(), forged, other.clone()]);
    assert_eq!(counts(&summary), [2, 0, 0, 0]);
    assert_eq!((summary.rejected, summary.rejected_first), (1, 1));
    let reject = &summary.first_rejects[0];
    assert_eq!(reject.line, Some(3));
    assert!(
        reject.reason.starts_with("an earlier row of this run"),
        "{reject:?}"
    );
    assert_eq!(store.jobs(), [other.clone(), ended.clone()]);

    // The same record twice, and the states of one run, are no contradiction.
    let again = vec![ended.clone(), run("7", 1000, None), ended.clone()];
    assert_eq!(counts(&import_file(&store, again)), [0, 0, 1, 2]);

    // A name that looks like the record of a known run, an hour earlier, ended the import, too.
    let shifted = JobRun {
        submit: ended.submit - 3600,
        start: ended.start.map(|start| start - 3600),
        end: ended.end.map(|end| end - 3600),
        ..ended.clone()
    };
    let third = run("9", 1000, Some(2000));
    store.import(slice::from_ref(&third));
    let summary = import_file(&store, vec![third.clone(), other.clone(), shifted]);
    assert_eq!((counts(&summary), summary.contradicting), ([0, 0, 2, 0], 1));
    assert_eq!(summary.first_rejects[0].line, Some(4));
    assert_eq!(store.jobs(), [third, other, ended]);
}

/// Issue 29: usage had a partition `gpu,long`.
#[test]
fn a_run_of_several_partitions_belongs_to_the_one_with_its_nodes() {
    let store = Store::new();
    let node = |name: &str, partitions: &[&str]| Node {
        node: name.to_owned(),
        partitions: partitions.iter().map(|name| (*name).to_owned()).collect(),
        ..Node::default()
    };
    let nodes = [
        node("g1", &["gpu", "long"]),
        node("g2", &["long"]),
        node("g3", &["gpu"]),
    ];
    let now = UnixTime(1000);
    store
        .records()
        .note_nodes("lab", &nodes, now, false)
        .unwrap();
    let of = |job_id: &str, node_list: Option<&str>| JobRun {
        partition: "gpu,long".into(),
        node_list: node_list.map(str::to_owned),
        ..run(job_id, 1000, Some(2000))
    };
    let pending = JobRun {
        start: None,
        state: "PENDING".into(),
        ..of("6", None)
    };
    let pending = JobRun {
        end: None,
        elapsed: None,
        ..pending
    };
    store.import(&[
        of("1", Some("g[1-2]")),
        of("2", Some("g1")),
        of("3", Some("g3")),
        of("4", Some("g[2-3]")),
        of("5", None),
        pending,
    ]);
    let found: Vec<String> = store
        .jobs()
        .into_iter()
        .map(|run| format!("{} {}", run.job_id, run.partition))
        .collect();
    assert_eq!(
        found,
        ["6 gpu,long", "5 gpu", "4 gpu", "3 gpu", "2 gpu", "1 long"]
    );
    let in_long = JobFilter {
        partition: Some("long".into()),
        ..JobFilter::default()
    };
    let ids: Vec<String> = store
        .records()
        .jobs(&in_long)
        .unwrap()
        .into_iter()
        .map(|run| run.job_id)
        .collect();
    assert_eq!(ids, ["6", "1"]);
}

#[test]
fn states_that_takt_does_not_know_are_counted() {
    let store = Store::new();
    let later = JobRun {
        state: "HIBERNATED".into(),
        ..run("7", 1000, Some(2000))
    };
    let mut summary = store.import(&[later.clone(), run("8", 1000, None)]);
    assert_eq!(
        summary.unknown_states,
        [("HIBERNATED".to_owned(), 1)].into()
    );
    assert!(store.jobs().contains(&later));
    summary += summary.clone();
    assert_eq!(summary.unknown_states["HIBERNATED"], 2);
}

/// Issue 28: job names of a megabyte.
#[test]
fn long_texts_of_users_are_cut() {
    let store = Store::new();
    let nodes = "g1,".repeat(10_000);
    store.import(&[JobRun {
        name: Some("ä".repeat(1 << 19)),
        user: "u".repeat(5000),
        node_list: Some(nodes.clone()),
        ..run("7", 1000, Some(2000))
    }]);
    let stored = store.jobs().remove(0);
    let name = stored.name.unwrap();
    assert!(
        name.len() <= MAX_TEXT_BYTES && name.ends_with("ä…"),
        "{name}"
    );
    assert_eq!(stored.user.len(), MAX_TEXT_BYTES);
    assert_eq!(stored.node_list, Some(nodes));
}

#[test]
fn missing_values_keep_the_recorded_ones() {
    let store = Store::new();
    let rich = run("7", 1000, Some(2000));
    store.import(slice::from_ref(&rich));
    let poor = JobRun {
        account: String::new(),
        qos: None,
        gpus: None,
        eligible: None,
        exit_code: Some("1:0".into()),
        ..rich.clone()
    };
    assert_eq!(counts(&store.import(&[poor])), [0, 1, 0, 0]);
    assert_eq!(
        store.jobs(),
        [JobRun {
            exit_code: Some("1:0".into()),
            ..rich
        }]
    );
}

/// The live queue shows an ended run for a while, with values that can differ from its record.
#[test]
fn the_live_queue_fills_the_gaps_of_a_record_and_changes_nothing_else() {
    let store = Store::new();
    let record = JobRun {
        gpus: None,
        gpu_model: None,
        account: String::new(),
        ..run("7", 1000, Some(2000))
    };
    let live = JobRun {
        exit_code: Some("0:15".into()),
        cpus: Some(4),
        end: Some(UnixTime(2001)),
        ..run("7", 1000, None)
    };
    let expected = run("7", 1000, Some(2000));
    let import = |source, run: &JobRun| {
        let origin = Origin { source, ..ORIGIN };
        let entries = [Ok::<_, Infallible>(Entry::Run(run.clone()))];
        counts(&store.records().import(&origin, entries).unwrap())
    };
    assert_eq!(import("jobcomp", &record), [1, 0, 0, 0]);
    assert_eq!(import(LIVE_QUEUE, &live), [0, 1, 0, 0]);
    assert_eq!(store.jobs(), slice::from_ref(&expected));
    // Neither a second answer nor the file changes anything.
    assert_eq!(import(LIVE_QUEUE, &live), [0, 0, 1, 0]);
    assert_eq!(import("jobcomp", &record), [0, 0, 1, 0]);
    assert_eq!(store.jobs(), slice::from_ref(&expected));

    // In the other order, the record replaces the live values.
    let live = JobRun {
        job_id: "8".into(),
        ..live
    };
    let record = JobRun {
        job_id: "8".into(),
        ..record
    };
    assert_eq!(import(LIVE_QUEUE, &live), [1, 0, 0, 0]);
    assert_eq!(import("jobcomp", &record), [0, 1, 0, 0]);
    let expected_too = JobRun {
        job_id: "8".into(),
        raw_job_id: live.raw_job_id.clone(),
        ..expected
    };
    assert!(store.jobs().contains(&expected_too));
}

#[test]
fn the_row_of_the_later_stage_counts_then_the_last_row() {
    let store = Store::new();
    let ended = run("7", 1000, Some(2000));
    let last = run("7", 1000, Some(2500));
    assert_eq!(
        counts(&store.import(&[ended, last.clone(), run("7", 1000, None)])),
        [1, 0, 0, 2]
    );
    assert_eq!(store.jobs(), [last]);
}

#[test]
fn requeued_runs_and_reused_ids_are_separate_runs() {
    let store = Store::new();
    let other = JobRun {
        cluster: "other".into(),
        ..run("7", 1000, None)
    };
    let runs = [
        run("7", 1000, Some(1500)),
        run("7", 1500, None),
        run("7_1", 1000, None),
        other,
    ];
    assert_eq!(counts(&store.import(&runs)), [4, 0, 0, 0]);
    assert_eq!(store.records().open_runs("lab").unwrap().len(), 2);
    let clusters = store.records().clusters().unwrap();
    assert_eq!(
        clusters
            .iter()
            .map(|known| known.cluster.as_str())
            .collect::<Vec<_>>(),
        ["lab", "other"]
    );
}

#[test]
fn rejected_rows_are_stored_once_and_counted_each_time() {
    let store = Store::new();
    let reject = |line, text: &str| {
        Entry::Rejected(Reject {
            line,
            reason: "bad".into(),
            text: text.into(),
        })
    };
    let tasks = Entry::Tasks {
        run: run("", 1, None),
        job_ids: vec!["9_1".into(), "9_2".into()],
    };
    let entries = vec![
        reject(Some(2), "x"),
        Entry::Step,
        reject(None, "y"),
        Entry::Step,
        tasks,
        reject(None, "y"),
    ];
    for inserted in [2, 0] {
        let summary = store.import_entries(entries.clone());
        assert_eq!(summary.rows, 6);
        assert_eq!(summary.runs, 2);
        assert_eq!(summary.steps_skipped, 2);
        assert_eq!(summary.rejected, 3);
        assert_eq!(summary.runs_inserted, inserted);
        assert_eq!(summary.first_rejects.len(), 3);
        let db = store.database.connect().unwrap();
        let kept: i64 = db
            .query_row("SELECT count(*) FROM records.rejects", [], |row| row.get(0))
            .unwrap();
        assert_eq!(kept, 2);
    }
    let many = (0..50).map(|line| reject(Some(line), "z")).collect();
    assert_eq!(store.import_entries(many).first_rejects.len(), 10);
}

#[test]
fn a_failed_source_imports_nothing() {
    let store = Store::new();
    store.import(&[run("7", 1000, None)]);
    let entries = (0..5000).map(|id| Ok(Entry::Run(run("7", 1000 + id, Some(9000)))));
    let origin = Origin {
        timezone: Some("UTC"),
        complete_until: Some(("lab", UnixTime(5))),
        ..ORIGIN
    };
    let error = store
        .records()
        .import(&origin, entries.chain([Err("cut off")]))
        .unwrap_err();
    assert!(matches!(error, ImportError::Source("cut off")));
    assert_eq!(store.jobs(), [run("7", 1000, None)]);
    assert_eq!(store.records().timezone("lab").unwrap(), None);
    assert_eq!(
        store
            .records()
            .complete_until("lab", "sacct", UnixTime(100))
            .unwrap(),
        None
    );
    // The next import works.
    assert_eq!(
        counts(&store.import(&[run("7", 1000, Some(9))])),
        [0, 1, 0, 0]
    );
}

#[test]
fn the_time_zone_and_the_imported_period_are_recorded() {
    let store = Store::new();
    let import = |timezone, until| {
        let origin = Origin {
            timezone,
            complete_until: Some(("lab", UnixTime(until))),
            ..ORIGIN
        };
        store
            .records()
            .import(
                &origin,
                [Ok::<_, Infallible>(Entry::Run(run("7", 1000, None)))],
            )
            .unwrap();
    };
    import(Some("Asia/Tokyo"), 500);
    import(None, 900);
    assert_eq!(
        store.records().timezone("lab").unwrap().as_deref(),
        Some("Asia/Tokyo")
    );
    import(Some("Europe/Oslo"), 901);
    assert_eq!(
        store.records().timezone("lab").unwrap().as_deref(),
        Some("Europe/Oslo")
    );
    for (instant, expected) in [
        (499, None),
        (500, Some(500)),
        (900, Some(900)),
        (5000, Some(901)),
    ] {
        assert_eq!(
            store
                .records()
                .complete_until("lab", "sacct", UnixTime(instant))
                .unwrap(),
            expected.map(UnixTime)
        );
    }
    assert_eq!(
        store
            .records()
            .complete_until("lab", "jobcomp", UnixTime(5000))
            .unwrap(),
        None
    );
    let records = store.records();
    assert_eq!(records.last_poll_of("lab").unwrap(), Some(UnixTime(901)));
    assert_eq!(records.last_poll_of("other").unwrap(), None);
    assert_eq!(records.newest_change("other").unwrap(), None);
    store.import(&[run("8", 2000, None)]);
    assert_eq!(
        store.records().newest_change("lab").unwrap(),
        run("8", 2000, None).start
    );
    store.import(&[run("8", 2000, Some(9000))]);
    let records = store.records();
    assert_eq!(records.newest_change("lab").unwrap(), Some(UnixTime(9000)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Importing runs a second time changes nothing, and every identity exists once.
    #[test]
    fn importing_twice_changes_nothing(
        runs in collection::vec((0..4_u8, 0..3_i64, option::of(20..30_i64), any::<bool>()), 0..40),
    ) {
        let store = Store::new();
        let runs: Vec<_> = runs
            .into_iter()
            .map(|(id, submit, end, started)| {
                let run = run(&id.to_string(), submit, end);
                JobRun {
                    start: run.start.filter(|_| started),
                    ..run
                }
            })
            .collect();
        let first = store.import(&runs);
        let before = store.jobs();
        prop_assert_eq!(first.runs_inserted, before.len() as u64);
        let again = store.import(&runs);
        prop_assert_eq!(
            counts(&again),
            [0, 0, first.runs_inserted, first.duplicates]
        );
        prop_assert_eq!(store.jobs(), before);
    }
}

#[test]
fn the_first_forecast_of_a_run_is_kept_and_graded_and_the_last_one_is_shown() {
    let store = Store::new();
    let records = store.records();
    let waiting = JobRun {
        start: None,
        end: None,
        state: "PENDING".into(),
        ..run("7", 1000, None)
    };
    store.import(slice::from_ref(&waiting));
    let forecast = |p50: i64| {
        let times = ForecastTimes {
            p10: UnixTime(p50 - 500),
            p50: UnixTime(p50),
            p90: UnixTime(p50 + 500),
        };
        NotedForecast {
            run: OpenRun {
                job_id: "7".into(),
                submit: waiting.submit,
            },
            times,
            replayed: times,
            slurm_start: Some(UnixTime(9000)),
        }
    };
    for (made_at, p50) in [(2000, 4000), (2300, 4600), (2600, 5000)] {
        records
            .note_forecasts("lab", &[forecast(p50)], UnixTime(made_at))
            .unwrap();
    }
    let known = records.forecasts("lab", None).unwrap();
    let known = known[&("7".to_owned(), waiting.submit)];
    assert_eq!(known.made_at, UnixTime(2600));
    assert_eq!(known.times.p50, UnixTime(5000));
    let graded = || records.graded_forecasts("lab", UnixTime(0), 10).unwrap();
    assert_eq!(graded(), []);

    // Within a minute of the band is right.
    store.import(&[JobRun {
        start: Some(UnixTime(4560)),
        state: "RUNNING".into(),
        ..waiting.clone()
    }]);
    let found = graded();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].made_at, UnixTime(2000));
    assert_eq!(found[0].start, UnixTime(4560));
    assert!(found[0].is_right);
    assert!(
        records.forecasts("lab", None).unwrap().is_empty(),
        "it runs"
    );
    store.import(&[JobRun {
        start: Some(UnixTime(1990)),
        state: "RUNNING".into(),
        ..waiting.clone()
    }]);
    assert_eq!(graded(), [], "it ran already");
    assert!(
        records
            .graded_forecasts("lab", UnixTime(2001), 10)
            .unwrap()
            .is_empty()
    );

    let round = |made_at: i64| ForecastRound {
        made_at: UnixTime(made_at),
        not_modelled: "[]".into(),
        ..ForecastRound::default()
    };
    for made_at in [2000, 2300, 90_000] {
        records.note_forecast_round("lab", &round(made_at)).unwrap();
    }
    assert_eq!(
        records.last_forecast_round("lab").unwrap(),
        Some(round(90_000))
    );
    assert_eq!(records.last_forecast_round("other").unwrap(), None);
}

#[test]
fn a_node_keeps_its_partitions_and_its_gpu_type() {
    let store = Store::new();
    let node = Node {
        node: "g1".into(),
        state: "IDLE".into(),
        partitions: vec!["gpu".into(), "long".into()],
        gpu_model: Some("a100".into()),
        ..Node::default()
    };
    let records = store.records();
    records
        .note_nodes("lab", slice::from_ref(&node), UnixTime(5), false)
        .unwrap();
    assert_eq!(records.nodes_now("lab").unwrap(), [node]);
}
