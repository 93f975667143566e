//! Restarts, and changed rules and routes.

use super::*;

#[test]
fn a_restart_sends_and_loses_nothing() {
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);
    takt.restart();
    takt.seconds(100);
    assert_eq!(takt.reasons(SLACK).len(), 1);
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
    takt.seconds(100);
    assert_eq!(takt.reasons(SLACK).last().unwrap().1, Reason::Resolved);
    assert!(takt.disk.0.borrow().instances.is_empty());
}

#[test]
fn another_route_for_a_firing_alert_is_no_end() {
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);
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
    push(&mut takt);
    takt.seconds(200);
    // Down for ten minutes: longer than the alert lives without another push.
    takt.now = takt.now.plus(Duration::from_secs(600));
    takt.restart();
    takt.seconds(100);
    push(&mut takt);
    takt.seconds(250);
    assert_eq!(takt.reasons(SLACK).len(), 1, "{:?}", takt.reasons(SLACK));
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

    takt.seconds(400);
    assert!(
        post(&mut takt, "b", firing(30..31)).is_empty(),
        "room for another"
    );
}
