//! Restarts, and changed rules and routes.

use super::*;

#[test]
fn a_restart_sends_and_loses_nothing() {
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);

    // The group has waited its 30 s and has sent its message: a restart must not repeat it.
    takt.restart();
    takt.seconds(100);
    assert_eq!(takt.reasons(SLACK).len(), 1);

    // The end comes while Takt restarts, before an evaluation has seen it.
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.restart();
    takt.seconds(100);
    assert_eq!(takt.reasons(SLACK).last().unwrap().1, Reason::Resolved);
}

#[test]
fn a_rule_that_is_gone_ends_its_alerts() {
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);

    let config = Config::read("am.yml", ROUTES).unwrap();
    let batch = takt
        .engine
        .reload(&[], &[], XidTable::shipped().clone(), config, takt.now);
    takt.commit(&batch);

    // A minute of `group_interval`, then the last message of a rule that no longer exists.
    takt.seconds(100);
    assert_eq!(takt.reasons(SLACK).last().unwrap().1, Reason::Resolved);
    assert!(takt.disk.0.borrow().instances.is_empty());
}

#[test]
fn texts_of_earlier_templates_are_not_judged_by_the_new_ones() {
    let mut takt = Takt::new();
    let labels = "hot{node=\"g01\",user=\"bob\"}";
    takt.set(labels, 95.0);

    // The texts of before name a user and a GPU, which the viewer may not see.
    let old = RULES.replace("$labels.node }} is", "$labels.user }} is");
    let reload = |takt: &mut Takt, rules: &str, events: &str| {
        let batch = takt.engine.reload(
            &[RuleFile::read("r.yml", rules).unwrap()],
            &[EventFile::read("e.events.yml", events, XidTable::shipped()).unwrap()],
            XidTable::shipped().clone(),
            Config::read("am.yml", ROUTES).unwrap(),
            takt.now,
        );
        takt.commit(&batch);
    };

    let shown = |takt: &Takt| {
        let all: BTreeSet<_> = takt
            .engine
            .router()
            .alerts()
            .iter()
            .map(|(p, _)| p)
            .collect();
        let is_shown = |_: &Labels, name: &str| name == "node";
        let texts = takt.engine.texts_without_hidden_labels(&all, is_shown);
        texts
            .values()
            .flatten()
            .filter(|(name, _)| name == "summary")
            .count()
    };

    let old_events = EVENTS.replace("on {{ $labels.node }}", "of {{ $labels.uuid }}");
    let new_events = EVENTS.replace("{{ $labels.xid_meaning }} on", "A GPU failed on");

    reload(&mut takt, &old, &old_events);
    takt.seconds(20);
    let batch = takt.engine.event(&xid(79, "7", 20), &[], takt.now);
    takt.commit(&batch);
    assert_eq!(shown(&takt), 0, "both name what is hidden");

    reload(&mut takt, RULES, &new_events);
    assert_eq!(shown(&takt), 0, "the texts are still those of before");

    // One evaluation, at most 15 s later, writes the text by the new template.
    takt.set(labels, 95.0);
    takt.seconds(16);
    assert_eq!(shown(&takt), 1, "the rule over samples has a new text");

    let batch = takt.engine.event(&xid(79, "7", 40), &[], takt.now);
    takt.commit(&batch);
    assert_eq!(shown(&takt), 2, "the event rule too");
}

#[test]
fn another_route_for_a_firing_alert_is_no_end() {
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);

    // The key of the group changes with `group_by`, so the log entry has to move to the new group.
    let other = ROUTES.replace("group_by: [alertname]", "group_by: [alertname, node]");
    let config = Config::read("am.yml", &other).unwrap();
    let rules = RuleFile::read("r.yml", RULES).unwrap();
    let batch = takt
        .engine
        .reload(&[rules], &[], XidTable::shipped().clone(), config, takt.now);
    takt.commit(&batch);

    takt.seconds(100);
    assert_eq!(
        takt.reasons(SLACK).len(),
        1,
        "the same channel goes on in the new group"
    );

    // The end is sent by the new group, to the channel that the old one had notified.
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.seconds(100);
    assert_eq!(takt.reasons(SLACK).last().unwrap().1, Reason::Resolved);
}

#[test]
fn pushed_alerts_survive_a_restart_until_they_are_pushed_again() {
    let mut takt = Takt::new();

    let push = |takt: &mut Takt| {
        let posted = Posted {
            labels: parse_series("{alertname=Pushed,node=g01}"),
            ..Posted::default()
        };
        let (batch, errors) = takt.engine.post(vec![posted, Posted::default()], takt.now);
        assert_eq!(errors, [PostedError::NoLabels]);
        takt.commit(&batch);
    };

    // Posted alerts end after five minutes (`resolve_timeout`): 200 s are still within them.
    push(&mut takt);
    takt.seconds(200);
    // Down for ten minutes: longer than the alert lives without another push.
    takt.now = takt.now.plus(Duration::from_secs(600));
    takt.restart();

    takt.seconds(100);
    push(&mut takt);
    takt.seconds(250);
    assert_eq!(takt.reasons(SLACK).len(), 1, "{:?}", takt.reasons(SLACK));

    // 450 s after the last post.
    takt.seconds(200);
    assert_eq!(
        takt.reasons(SLACK).last().unwrap().1,
        Reason::Resolved,
        "nobody pushed it for five minutes"
    );
}

/// Issue 28: 300,000 posted alerts ended the server.
#[test]
fn posted_alerts_have_bounds_and_known_ones_can_end() {
    let mut takt = Takt::new();

    let alert = |number: usize, words: usize, ends_at: Option<Timestamp>| Posted {
        labels: parse_series(&format!("{{alertname=Pushed,number=n{number}}}")),
        annotations: [("summary".to_owned(), "x".repeat(words))].into(),
        ends_at,
        ..Posted::default()
    };
    let post = |takt: &mut Takt, sender: &str, posted: Vec<Posted>| {
        let (batch, errors) = takt.engine.post_from(&sender.into(), posted, takt.now);
        takt.commit(&batch);
        errors
    };
    let firing = |numbers: std::ops::Range<usize>| -> Vec<Posted> {
        numbers.map(|number| alert(number, 10, None)).collect()
    };

    // Eight in total, six of one sender.
    let of_sender = PostedError::TooManyOfSender { max: 6 };
    assert_eq!(post(&mut takt, "a", firing(0..7)), [of_sender]);
    let of_all = PostedError::TooMany { max: 8 };
    assert_eq!(post(&mut takt, "b", firing(10..13)), [of_all]);
    assert_eq!(takt.engine.posted_count(), 8);
    assert!(
        post(&mut takt, "a", firing(0..6)).is_empty(),
        "known ones are posted again"
    );

    // One text takes most of the 32 KiB that eight alerts have in total.
    let long = vec![alert(20, 100_000, None), alert(0, 30_000, None)];
    let refused = post(&mut takt, "a", long);
    assert_eq!(refused[0], PostedError::TooLong { max: 64 << 10 });
    assert_eq!(
        refused.len(),
        1,
        "30 kB are within eight times 4 KiB: {refused:?}"
    );

    let refused = post(&mut takt, "a", vec![alert(1, 30_000, None)]);
    assert!(refused[0].is_of_room(), "{refused:?}");

    // The end of a known alert counts, however long its text is.
    let now = takt.now;
    post(&mut takt, "a", vec![alert(1, 100_000, Some(now))]);
    let ended = parse_series("{alertname=Pushed,number=n1}");
    let known = takt.engine.router().alerts();
    let ended = known.get(Fingerprint::of(&ended)).unwrap();
    assert!(ended.is_resolved(takt.now) && ended.annotations["summary"].len() == 10);

    // After five minutes without another post all have ended.
    takt.seconds(400);
    assert!(
        post(&mut takt, "b", firing(30..31)).is_empty(),
        "room for another"
    );
}

/// After a rule that ended early, the rules behind it took every exporter for up, and their alerts resolved.
#[test]
fn a_rule_that_panics_ends_no_alert_of_the_rules_behind_it() {
    let mut takt = Takt::new();
    takt.set("job_lost{node=\"g01\"}", 1.0);
    takt.seconds(20);

    // The exporter goes down, and takes its series with it.
    let gone = crate::ports::Sample {
        labels: parse_series("job_lost{node=\"g01\"}"),
        at: takt.now,
        value: None,
    };
    takt.samples.write(&[gone]).unwrap();
    let all_down = |_, _| -> ExporterStates { Box::new(|_: &Labels| ExporterState::Down) };

    takt.now = takt.now.plus(Duration::from_secs(20));
    let (tasks, _, _) = takt.engine.begin(takt.now);
    let mut next = tasks.into_iter().next();
    let mut is_first = true;
    while let Some(task) = next {
        let outcome = if is_first {
            task.failure(EvalError::Panicked)
        } else {
            task.run(&takt.samples, &all_down)
        };
        is_first = false;
        next = takt.engine.evaluated(outcome, &takt.samples, takt.now).next;
    }

    let states: Vec<State> = takt.engine.groups()[0]
        .instances()
        .flat_map(|(_, all)| all.iter())
        .map(|(_, instance)| instance.shown())
        .collect();
    assert_eq!(states, [State::Unknown]);
}

/// After a restart, alerts that no program has posted took the room of those that programs post.
#[test]
fn only_posted_alerts_count_as_posted_after_a_restart() {
    let mut takt = Takt::new();
    let own = Posted {
        labels: parse_series("{alertname=TaktRuleFailing,scope=takt,rule=r}"),
        ends_at: Some(at(100_000)),
        ..Posted::default()
    };
    let batch = takt.engine.post(vec![own], takt.now).0;
    takt.commit(&batch);

    let posted = Posted {
        labels: parse_series("{alertname=Pushed,node=g02}"),
        ends_at: Some(at(100_000)),
        ..Posted::default()
    };
    let batch = takt
        .engine
        .post_from(&Arc::from("ann"), vec![posted], takt.now)
        .0;
    takt.commit(&batch);

    // One alert flaps, one fires, and one has just ended.
    for change in 0..6 {
        takt.set("up{node=\"g03\"}", 0.0);
        takt.set("job_lost{node=\"g04\"}", 1.0);
        takt.set(
            "hot{node=\"g01\"}",
            if change % 2 == 0 { 95.0 } else { 60.0 },
        );
        takt.seconds(90);
    }
    takt.set("job_lost{node=\"g04\"}", 0.0);
    takt.seconds(15);

    let labels: Vec<String> = takt
        .engine
        .router()
        .alerts()
        .iter()
        .map(|(_, alert)| alert.labels.to_string())
        .collect();
    assert!(
        labels.iter().any(|one| one.contains("flapping")),
        "{labels:?}"
    );
    assert!(
        labels.iter().any(|one| one.contains("JobLost")),
        "{labels:?}"
    );

    assert_eq!(takt.engine.posted_count(), 1);
    takt.restart();
    assert_eq!(takt.engine.posted_count(), 1);
    let posted = parse_series("{alertname=Pushed,node=g02}");
    assert!(takt.engine.is_posted(Fingerprint::of(&posted)));
}

/// The history of an alert of an event rule that was removed had no end, nor that of any rule that was removed while Takt
/// was down.
#[test]
fn alerts_of_removed_rules_end_in_history_and_messages() {
    for is_restarted in [false, true] {
        let mut takt = Takt::new();
        takt.set("hot{node=\"g02\"}", 95.0);
        let batch = takt.engine.event(&xid(79, "", 1), &[], takt.now);
        takt.commit(&batch);
        for change in 0..6 {
            takt.set(
                "hot{node=\"g01\"}",
                if change % 2 == 0 { 95.0 } else { 60.0 },
            );
            takt.set("hot{node=\"g02\"}", 95.0);
            takt.seconds(90);
        }
        // g01 flaps, and fires.
        takt.set("hot{node=\"g01\"}", 95.0);
        takt.seconds(30);
        let sent_before = takt.sent(SLACK).len();

        if is_restarted {
            restart(&mut takt, &[]);
        } else {
            let config = Config::read("am.yml", ROUTES).unwrap();
            let xids = XidTable::shipped().clone();
            let batch = takt.engine.reload(&[], &[], xids, config, takt.now);
            takt.commit(&batch);
        }
        takt.seconds(70);

        let tables = takt.disk.0.borrow();
        let removed = crate::state::Reason::RuleRemoved;
        let ended = tables
            .transitions
            .iter()
            .filter(|one| one.reason == removed);
        let mut ended: Vec<String> = ended
            .map(|one| {
                let label = |name| one.labels.get(name).unwrap_or_default();
                let (from, to) = (one.from.as_str(), one.to.as_str());
                format!("{} {}: {from} {to}", label("alertname"), label("node"))
            })
            .collect();
        ended.sort();
        let expected =
            ["GpuXid g01", "Hot g01", "Hot g02"].map(|one| format!("{one}: firing inactive"));
        assert_eq!(ended, expected, "restarted: {is_restarted}");
        drop(tables);

        // Each that was sent has its end: two alerts, and the report of the one that flaps.
        let sent = takt.sent(SLACK).split_off(sent_before);
        let ended = |text: &str| {
            sent.iter()
                .any(|(status, labels)| *status == Status::Resolved && labels.contains(text))
        };
        assert!(
            ended("GpuXid") && ended("g02") && ended("flapping"),
            "{sent:#?}"
        );

        let tables = takt.disk.0.borrow();
        let last = tables.outbox.values().flat_map(|row| &row.message.alerts);
        let mut last = last.filter(|alert| alert.labels.get("node") == Some("g02"));
        let words = &last.next_back().unwrap().annotations[RULE_REMOVED];
        assert!(words.contains("no longer in the rule files"), "{words}");
    }
}

/// Two rules raised one alert, and the first of them that ended took it with it.
#[test]
fn an_alert_of_two_rules_ends_with_the_last_of_them() {
    let rules = "
groups:
- name: g
  interval: 15s
  rules:
  - {alert: Late, expr: scheduler_late > 1, labels: {severity: warning}}
  - {alert: Late, expr: queue_late > 1, labels: {severity: warning}}
- name: other
  interval: 15s
  rules:
  - {alert: Late, expr: poll_late > 1, labels: {severity: warning}}
";
    let mut takt = Takt::new();
    let reload = |takt: &mut Takt, rules: &str| {
        let config = Config::read("am.yml", ROUTES).unwrap();
        let file = RuleFile::read("r.yml", rules).unwrap();
        let xids = XidTable::shipped().clone();
        let batch = takt.engine.reload(&[file], &[], xids, config, takt.now);
        takt.commit(&batch);
    };
    reload(&mut takt, rules);

    let late = |takt: &mut Takt, values: [f64; 3]| {
        for (name, value) in ["scheduler", "queue", "poll"].into_iter().zip(values) {
            takt.set(&format!("{name}_late{{node=\"g01\"}}"), value);
        }
        takt.seconds(90);
        let sent = takt.sent(SLACK).into_iter();
        sent.map(|(status, _)| status).collect::<Vec<_>>()
    };

    use Status::{Firing, Resolved};
    assert_eq!(late(&mut takt, [2.0, 2.0, 2.0]), [Firing]);
    assert_eq!(late(&mut takt, [0.0, 2.0, 2.0]), [Firing], "by two others");

    restart(&mut takt, &[RuleFile::read("r.yml", rules).unwrap()]);
    assert_eq!(late(&mut takt, [0.0, 0.0, 2.0]), [Firing], "by the last");
    assert_eq!(late(&mut takt, [0.0, 0.0, 0.0]), [Firing, Resolved]);

    // A person closes it in all rules.
    assert_eq!(late(&mut takt, [2.0, 2.0, 2.0]), [Firing, Resolved, Firing]);
    let matchers = Matchers(parse_matchers("alertname=Late").unwrap());
    let closing = Closing {
        by: "ada".to_owned(),
        comment: "known".to_owned(),
    };
    let batch = takt.engine.close(&matchers, &closing, takt.now).1;
    takt.commit(&batch);
    let ended = [Firing, Resolved, Firing, Resolved];
    assert_eq!(late(&mut takt, [2.0, 2.0, 2.0]), ended);

    // It ends with the last rule that is removed, not with the first.
    assert_eq!(late(&mut takt, [0.0, 0.0, 0.0]), ended);
    assert_eq!(late(&mut takt, [2.0, 2.0, 2.0]).len(), 5);
    let (first_group, _) = rules.split_once("- name: other").unwrap();
    reload(&mut takt, first_group);
    assert_eq!(late(&mut takt, [2.0, 2.0, 0.0]).len(), 5);
    reload(&mut takt, "groups: []");
    assert_eq!(late(&mut takt, [2.0, 2.0, 0.0]).last(), Some(&Resolved));
}

/// Starts another engine with these rules from what is stored.
fn restart(takt: &mut Takt, rules: &[RuleFile]) {
    let server = (*takt.engine.server).clone();
    let config = Config::read("am.yml", ROUTES).unwrap();
    takt.engine = Engine::new(server, rules, &[], XidTable::shipped().clone(), config);
    let batch = takt.engine.restore(takt.disk.load().unwrap(), takt.now);
    takt.commit(&batch);
}

/// An alert that was pending before a long outage is forgotten. Its stored state came back with the next start, and fired at
/// once.
#[test]
fn an_alert_that_was_pending_before_a_long_outage_stays_forgotten() {
    let rules =
        "groups: [{name: g, interval: 15s, rules: [{alert: Hot, expr: hot > 90, for: 10m}]}]";
    let mut takt = Takt::new();
    let file = [RuleFile::read("r.yml", rules).unwrap()];
    let start = |takt: &mut Takt| restart(takt, &file);

    start(&mut takt);
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);
    assert_eq!(takt.disk.0.borrow().instances.len(), 1, "pending");

    takt.now = takt.now.plus(Duration::from_secs(2 * 3_600));
    start(&mut takt);
    assert_eq!(takt.disk.0.borrow().instances.len(), 0);
}
