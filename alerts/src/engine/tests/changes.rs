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
