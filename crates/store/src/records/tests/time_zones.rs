//! The same runs in two time zones.

use super::*;

/// A run some seconds later.
fn later(run: &JobRun, seconds: i64) -> JobRun {
    JobRun {
        submit: run.submit + seconds,
        start: run.start.map(|start| start + seconds),
        end: run.end.map(|end| end + seconds),
        ..run.clone()
    }
}

fn import(
    store: &Store,
    runs: &[JobRun],
    shifted: Shifted,
) -> Result<ImportSummary, ImportError<Infallible>> {
    let entries = runs
        .iter()
        .cloned()
        .map(|run| Ok::<_, Infallible>(Entry::Run(run)));
    let origin = Origin { shifted, ..ORIGIN };
    store.records().import(&origin, entries)
}

#[test]
fn the_same_runs_in_another_time_zone_are_refused_replaced_or_kept() {
    let store = Store::new();
    let runs: Vec<_> = (0..10)
        .map(|n| run(&n.to_string(), 1000 * n, Some(1000 * n + 500)))
        .collect();
    store.import(&runs);
    let shifted: Vec<_> = runs.iter().map(|run| later(run, 7200)).collect();
    let import = |runs: &[JobRun], shifted| import(&store, runs, shifted);
    let refused = import(&shifted, Shifted::Refuse).unwrap_err().to_string();
    assert!(
        refused.starts_with("10 of these runs are known already, 2 h earlier: one of the two"),
        "{refused}"
    );
    assert_eq!(store.jobs().len(), 10);
    // The same runs again, and other runs with the same ids, are accepted.
    assert_eq!(
        counts(&import(&runs, Shifted::Refuse).unwrap()),
        [0, 0, 10, 0]
    );
    let others: Vec<_> = (0..10)
        .map(|n| run(&n.to_string(), 1000 * n + 7200, Some(1000 * n + 7900)))
        .collect();
    let mixed: Vec<_> = others.iter().chain(&shifted[..1]).cloned().collect();
    let refused = import(&mixed, Shifted::Refuse).unwrap_err().to_string();
    assert!(refused.starts_with("1 of these runs"), "{refused}");
    assert_eq!(
        counts(&import(&mixed, Shifted::Keep).unwrap()),
        [10, 0, 0, 1]
    );
    assert_eq!(
        import(&shifted, Shifted::Replace).unwrap().runs_inserted,
        0,
        "those of the same identity are known"
    );
    assert!(
        store.jobs().iter().all(|run| run.submit >= UnixTime(7200)),
        "the others are forgotten"
    );
}

/// After an import without --timezone, five of 300 runs existed twice, and `replace` kept running
/// ghosts.
#[test]
fn a_few_runs_of_another_time_zone_are_noticed_and_replaced_whole() {
    let store = Store::new();
    let all: Vec<_> = (0..300)
        .map(|n| run(&n.to_string(), 1000 * n, Some(1000 * n + 500)))
        .collect();
    // The recorded runs: the fourth still runs, the fifth still waits.
    let mut few: Vec<_> = all[..5].iter().map(|run| later(run, 7200)).collect();
    few[3].end = None;
    few[4].start = None;
    few[4].end = None;
    store.import(&few);
    let import = |runs: &[JobRun], shifted| import(&store, runs, shifted);
    let refused = import(&all, Shifted::Refuse).unwrap_err().to_string();
    assert!(
        refused.starts_with("4 of these runs are known already, 2 h later"),
        "{refused}"
    );
    assert_eq!(store.jobs().len(), 5, "nothing is stored");
    import(&all, Shifted::Replace).unwrap();
    let stored = store.jobs();
    assert_eq!(stored.len(), 300);
    assert!(stored.iter().all(|run| run.end.is_some()), "no ghosts");
}

/// Two runs of a requeued job, exactly an hour apart, stay two runs.
#[test]
fn runs_of_a_requeued_job_are_no_shift() {
    let store = Store::new();
    let first = run("7", 1000, Some(1500));
    let second = run("7", 4600, Some(5100));
    store.import(slice::from_ref(&first));
    store.import(&[first, second]);
    assert_eq!(store.jobs().len(), 2);
}
