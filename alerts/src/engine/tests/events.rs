//! Event rules: messages at once, ends, and repetitions.

use super::*;

#[test]
fn an_event_is_sent_at_once_and_ends_when_the_gpu_is_back() {
    let mut takt = Takt::new();
    takt.set("takt_gpu_up{node=\"g01\",uuid=\"GPU-1\"}", 0.0);
    // Another GPU that works does not end the alert.
    takt.set("takt_gpu_up{node=\"g01\",uuid=\"GPU-2\"}", 1.0);
    takt.seconds(10);

    let batch = takt.engine.event(&xid(79, "7", 10), &[], takt.now);
    takt.commit(&batch);
    takt.second(None);
    assert_eq!(takt.reasons(SLACK), [(11, Reason::FirstFiring)]);

    {
        let tables = takt.disk.0.borrow();
        let message = &tables.outbox.values().next().unwrap().message;
        let words = &message.common_annotations;
        assert_eq!(words["summary"], "GPU has fallen off the bus on g01");
        assert!(
            words["kernel_lines"].contains("Xid (PCI:0000:01:00): 79"),
            "{words:?}"
        );
        assert_eq!(message.common_labels.get("severity"), Some("critical"));
        assert_eq!(takt.delivered.len(), 2, "both channels, in the same second");
    }
    // The same fault again belongs to the same episode.
    let batch = takt.engine.event(&xid(79, "7", 12), &[], takt.now);
    takt.commit(&batch);
    takt.seconds(100);
    takt.restart();
    takt.seconds(100);
    assert_eq!(takt.reasons(SLACK).len(), 1);

    takt.set("takt_gpu_up{node=\"g01\",uuid=\"GPU-1\"}", 1.0);
    takt.seconds(70);
    assert_eq!(takt.reasons(SLACK).last().unwrap().1, Reason::Resolved);
}

#[test]
fn user_faults_count_only_in_different_jobs_and_bursts() {
    let mut takt = Takt::new();
    let fires = |takt: &Takt| {
        takt.engine
            .events()
            .iter()
            .any(|(_, _, instance)| instance.fired_at.is_some())
    };

    let mut happens = |number, job: &str, seconds| {
        let batch = takt
            .engine
            .event(&xid(number, job, seconds), &[], at(seconds));
        takt.commit(&batch);
        fires(&takt)
    };
    assert!(!happens(31, "7", 10));
    assert!(!happens(31, "7", 20), "the same burst");
    assert!(!happens(13, "7", 4_000), "the same job");
    assert!(!happens(45, "8", 5_000), "not meant");
    assert!(happens(13, "8", 5_000), "another job on the same GPU");

    takt.restart();
    assert!(fires(&takt), "survives a restart");

    // One second before the end of `hold: 1h`, which an evaluation then sees.
    takt.now = at(5_000 + 3_599);
    takt.second(None);
    assert!(!fires(&takt), "held for an hour");
}

/// Boards and rules count alerts by `ALERTS`: those of events are among them, from their beginning to their end.
#[test]
fn alerts_of_events_are_series_while_they_fire() {
    let mut takt = Takt::new();
    takt.set("takt_gpu_up{node=\"g01\",uuid=\"GPU-1\"}", 0.0);

    let counted = |takt: &Takt| {
        let selector = "ALERTS{alertname=\"GpuXid\",alertstate=\"firing\",node=\"g01\"}";
        takt.samples.instant(selector, takt.now).unwrap().len()
    };
    takt.seconds(10);
    assert_eq!(counted(&takt), 0);

    let batch = takt.engine.event(&xid(79, "7", 10), &[], takt.now);
    takt.commit(&batch);
    takt.second(None);
    assert_eq!(counted(&takt), 1);

    // Longer than a sample is seen.
    takt.seconds(400);
    assert_eq!(counted(&takt), 1);

    takt.set("takt_gpu_up{node=\"g01\",uuid=\"GPU-1\"}", 1.0);
    takt.seconds(70);
    assert_eq!(counted(&takt), 0);
}
