use super::*;
use crate::testing::Memory;
use std::ops::Range;

fn ticked(run: &mut EventRun, samples: &Memory, now: Timestamp) -> Change {
    let asked = run.end_conditions(now).map(|task| task.run(samples));
    run.end(asked.unwrap_or_default(), now)
}

/// Loses a GPU at second 5 of the node's clock, which is second `read_at` here, and returns the second among `seconds` at
/// which the samples `up` of the node, each 15 seconds, end the alert.
fn end_of_lost_gpu(up: &str, read_at: i64, mut seconds: Range<i64>) -> Option<i64> {
    let text = "groups: [{name: g, rules: [{alert: A, when: [{kind: gpu_lost}], by: [node], \
         until: up == 1}]}]";
    let file = EventFile::read("a.events.yml", text, XidTable::shipped()).unwrap();
    let mut run = EventRun::new(&[file], XidTable::shipped().clone());
    let samples = Memory::default();
    samples.load(Duration::from_secs(15), "up{node=g01}", up);

    let at = Timestamp::from_seconds;
    let event = Event {
        id: 1,
        at: at(5),
        kind: EventKind::GpuLost,
        labels: [("node", "g01")].into_iter().collect(),
        message: String::new(),
    };
    run.event(&event, &[], &Labels::new(), "", at(read_at));
    seconds.find(|now| !ticked(&mut run, &samples, at(*now)).transitions.is_empty())
}

#[test]
fn a_sample_from_before_the_event_does_not_end_its_alert() {
    // At 5 s the last sample is of 0 s, when the GPU was still there.
    let ended = end_of_lost_gpu("1 0 0 0 0 0 1", 5, 6..120);
    assert_eq!(ended, Some(90), "the first sample of the returned GPU");
}

#[test]
fn an_alert_of_a_node_whose_clock_is_behind_does_not_end_at_once() {
    // By the node's clock the event is an hour old when it is read.
    let ended = end_of_lost_gpu("1x300", 3_600, 3_600..3_700);
    assert_eq!(ended, Some(3_660), "a minute after it was read");
}

#[test]
fn an_address_ends_its_alert_in_every_spelling() {
    let alert: Labels = [("node", "g01"), ("pci_bus_id", "0000:01:00.0")]
        .into_iter()
        .collect();
    let series = |address: &'static str| -> Labels {
        [("node", "g01"), ("pci_bus_id", address)]
            .into_iter()
            .collect()
    };

    assert!(agree(&series("0000:01:00.0"), &alert));
    assert!(agree(&series("00000000:01:00.0"), &alert), "NVML's form");
    assert!(!agree(&series("00000000:21:00.0"), &alert), "another GPU");
}

#[test]
fn what_is_read_late_is_held_from_then_on() {
    let text =
        "groups: [{name: g, rules: [{alert: A, when: [{kind: xid}], by: [node], hold: 1h}]}]";
    let file = EventFile::read("a.events.yml", text, XidTable::shipped()).unwrap();

    let mut run = EventRun::new(&[file], XidTable::shipped().clone());
    let at = Timestamp::from_seconds;
    let labels = [("node", "g01"), ("xid", "79")].into_iter().collect();
    let event = Event {
        id: 1,
        at: at(0),
        kind: EventKind::Xid,
        labels,
        message: String::new(),
    };

    // The server was away for two hours.
    assert_eq!(
        run.event(&event, &[], &Labels::new(), "", at(7_200))
            .transitions
            .len(),
        1
    );

    let ends =
        |run: &mut EventRun, now: i64| ticked(run, &Memory::default(), at(now)).transitions.len();
    assert_eq!(
        [
            ends(&mut run, 7_200),
            ends(&mut run, 10_799),
            ends(&mut run, 10_800)
        ],
        [0, 0, 1]
    );
}

/// Jobs that share a GPU once gave one alert of the user "ada,bob", whose mail had no recipient.
#[test]
fn an_event_of_several_jobs_is_an_alert_for_each_owner() {
    let text = "groups: [{name: g, rules: [\
         {alert: Owners, when: [{kind: xid}], by: [node, uuid, jobid, user], hold: 1h, \
          annotations: {summary: '{{ $labels.job_name }} of {{ $labels.user }}'}}, \
         {alert: Machine, when: [{kind: xid}], by: [node, uuid], hold: 1h, \
          annotations: {summary: '{{ $labels.jobid }} of {{ $labels.user }}'}}]}]";
    let file = EventFile::read("a.events.yml", text, XidTable::shipped()).unwrap();
    let mut run = EventRun::new(&[file], XidTable::shipped().clone());

    let job = |id, user, name| -> Labels {
        [("jobid", id), ("user", user), ("job_name", name)]
            .into_iter()
            .collect()
    };
    let jobs = [job("7", "ada", "train"), job("8", "bob", "sweep")];
    let at = Timestamp::from_seconds(5);
    let event = Event {
        id: 1,
        at,
        kind: EventKind::Xid,
        labels: [("node", "g01"), ("uuid", "GPU-1"), ("xid", "31")]
            .into_iter()
            .collect(),
        message: String::new(),
    };

    run.event(&event, &jobs, &Labels::new(), "", at);
    let fired: BTreeSet<_> = run
        .iter()
        .filter(|(_, _, instance)| instance.fired_at.is_some())
        .map(|(_, _, instance)| {
            let label = |name| instance.labels.get(name).unwrap_or("-");
            let summary = &instance.annotations[0].1;
            format!(
                "{} {} {}: {summary}",
                label(ALERT_NAME),
                label("jobid"),
                label("user")
            )
        })
        .collect();

    let expected = [
        "Machine - -: 7,8 of ada,bob",
        "Owners 7 ada: train of ada",
        "Owners 8 bob: sweep of bob",
    ];
    assert_eq!(fired, expected.map(str::to_owned).into());
}

/// Rules of one name once had one key: the end of the first rule's alerts was asked for those of the second.
#[test]
fn rules_of_one_name_keep_their_alerts_apart() {
    let text = "groups: [{name: g, rules: [\
         {alert: A, when: [{kind: xid}], by: [node], until: up == 1, labels: {severity: critical}}, \
         {alert: A, when: [{kind: gpu_lost}], by: [node], until: up == 2, labels: {severity: warning}}]}]";
    let file = EventFile::read("a.events.yml", text, XidTable::shipped()).unwrap();
    let files = [file];
    let mut run = EventRun::new(&files, XidTable::shipped().clone());

    let at = Timestamp::from_seconds;
    for kind in [EventKind::Xid, EventKind::GpuLost] {
        let event = Event {
            id: 1,
            at: at(0),
            kind,
            labels: [("node", "g01"), ("xid", "79")].into_iter().collect(),
            message: String::new(),
        };
        run.event(&event, &[], &Labels::new(), "", at(0));
    }

    // What is stored under its key comes back to its own rule.
    let mut again = EventRun::new(&files, XidTable::shipped().clone());
    for (key, _, instance) in run.iter() {
        assert!(again.restore(key, instance.clone()));
    }

    let samples = Memory::default();
    samples.load(Duration::from_secs(15), "up{node=g01}", "2x20");
    for run in [&mut run, &mut again] {
        let ended: Vec<String> = ticked(run, &samples, at(90))
            .transitions
            .iter()
            .map(|ended| format!("{} {}", ended.rule, ended.labels.get("severity").unwrap()))
            .collect();
        assert_eq!(ended, ["a.events.yml:g/A#2 warning"]);
    }
}
