//! Samples that become messages: when a channel is notified, and when it is not.

use super::*;
use crate::outbox::BACKOFF_MAX;

#[test]
fn from_a_sample_to_a_message_and_its_end() {
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    // At most 15 s to the evaluation, and 30 s of `group_wait`.
    takt.seconds(60);
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.seconds(120);

    let reasons: Vec<_> = takt
        .reasons(SLACK)
        .into_iter()
        .map(|(_, reason)| reason)
        .collect();
    assert_eq!(reasons, [Reason::FirstFiring, Reason::Resolved]);

    assert_eq!(
        takt.reasons("ops/email/0").len(),
        1,
        "e-mail does not ask for ends"
    );

    let tables = takt.disk.0.borrow();
    assert!(
        tables.log.is_empty() && tables.alerts.is_empty(),
        "nothing is left behind"
    );

    let row = tables.outbox.values().next().unwrap();
    assert_eq!(row.message.common_annotations["summary"], "g01 is at 95");
    assert!(
        tables
            .outbox
            .values()
            .all(|row| row.state == RowState::Sent)
    );
}

#[test]
fn an_instruction_that_is_no_longer_right_is_corrected_within_half_a_minute() {
    let mut takt = Takt::new();
    takt.set("job_lost{jobid=\"7\"}", 1.0);
    takt.seconds(50);
    assert_eq!(takt.reasons(SLACK).len(), 1);

    // The template of the action asks for this series.
    takt.set("requeued", 1.0);
    takt.set("job_lost{jobid=\"7\"}", 1.0);
    let requeued_at = takt.now.whole_seconds().0;
    takt.seconds(100);

    for channel in [SLACK, "ops/email/0"] {
        let sent = takt.reasons(channel);
        let [(_, Reason::FirstFiring), (at, Reason::Corrected)] = sent[..] else {
            panic!("{channel}: {sent:?}");
        };
        // An evaluation takes up to 15 s to see it.
        assert!(at <= requeued_at + 15 + 30 + 1, "{at} {requeued_at}");
    }

    let tables = takt.disk.0.borrow();
    let said: Vec<_> = tables
        .outbox
        .values()
        .filter(|row| row.channel == SLACK)
        .map(|row| crate::notify::text(&row.message))
        .collect();
    assert!(said[0].contains("Submit it again."), "{said:?}");
    assert!(
        said[1].contains("correction: the last message said something else")
            && said[1].contains("Do not submit it again."),
        "{said:?}"
    );
}

#[test]
fn a_page_goes_out_in_the_second_it_is_seen() {
    let mut takt = Takt::new();
    takt.set("up{node=\"g01\"}", 0.0);
    // A page does not wait the 30 s of its group.
    takt.seconds(20);
    let (sent_at, reason) = takt.reasons(SLACK)[0];
    let fired_at = takt.disk.0.borrow().transitions[0].at.whole_seconds().0;

    assert!(
        (fired_at..=fired_at + 15).contains(&sent_at) && sent_at < 17,
        "{sent_at} {fired_at}"
    );
    assert_eq!(reason, Reason::FirstFiring);
}

#[test]
fn inhibited_alerts_are_not_sent_and_ends_are() {
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);

    takt.set("up{node=\"g01\"}", 0.0);
    takt.seconds(20);
    // The node is down, then no longer hot: who was notified gets the end.
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.set("hot{node=\"g02\"}", 60.0);
    takt.seconds(100);
    let resolved = takt.sent(SLACK).into_iter();
    let resolved = resolved.filter(|(status, _)| *status == Status::Resolved);
    assert_eq!(resolved.count(), 1);

    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);
    let about_hot = |(_, labels): &&(Status, String)| labels.contains("Hot");
    assert_eq!(takt.sent(SLACK).iter().filter(about_hot).count(), 2);

    takt.set("hot{node=\"g01\"}", 60.0);
    takt.seconds(20);
    takt.set("up{node=\"g01\"}", 1.0);
    takt.seconds(130);

    let resolved = takt
        .sent(SLACK)
        .into_iter()
        .filter(|(status, _)| *status == Status::Resolved);
    assert_eq!(
        resolved.count(),
        2,
        "both ends, once each: {:?}",
        takt.sent(SLACK)
    );
}

#[test]
fn a_node_in_maintenance_sends_nothing_until_its_end() {
    let mut takt = Takt::new();
    takt.engine.set_maintenance(
        vec![Maintenance {
            name: "firmware".to_owned(),
            cluster: "lab".to_owned(),
            nodes: ["g01".to_owned(), "g02".to_owned()].into(),
            from: at(50),
            to: at(300),
        }],
        takt.now,
    );

    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(49);
    assert_eq!(takt.sent(SLACK).len(), 1, "it has not begun");
    // The node is drained, which sends no page; another node is not affected.
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.set("up{node=\"g01\"}", 0.0);
    takt.set("up{node=\"g02\"}", 0.0);
    takt.set("up{node=\"g03\"}", 0.0);
    takt.seconds(200);
    // The end of the alert that was sent before, and the other node.
    let sent = takt.sent(SLACK);
    let is_end =
        |(status, labels): &(Status, String)| *status == Status::Resolved && labels.contains("g01");
    let is_other = |(_, labels): &(Status, String)| labels.contains("g03");
    let later = &sent[1..];
    assert!(
        later.iter().all(|one| is_end(one) || is_other(one)) && sent.len() == 3,
        "{sent:?}"
    );

    // The API says why nothing is sent.
    let suppressed = takt.engine.router().suppressed(takt.now);
    let why: BTreeSet<_> = takt
        .engine
        .router()
        .alerts()
        .iter()
        .map(|(_, alert)| suppressed(alert).muted_by)
        .collect();
    assert_eq!(
        why,
        [vec![], vec!["reservation firmware".to_owned()]].into()
    );
    drop(suppressed);
    // One node came back in time; the other one did not, so its alert is sent.
    takt.set("up{node=\"g01\"}", 1.0);
    takt.set("up{node=\"g02\"}", 0.0);
    takt.set("up{node=\"g03\"}", 0.0);
    takt.seconds(150);

    let after = takt.sent(SLACK).split_off(3);
    let about = |node: &str| -> Vec<Status> {
        after
            .iter()
            .filter(|(_, labels)| labels.contains(node))
            .map(|(status, _)| *status)
            .collect()
    };
    assert_eq!(about("g01"), []);
    assert!(
        about("g02").contains(&Status::Firing) && !about("g02").contains(&Status::Resolved),
        "{after:?}"
    );
}

#[test]
fn coming_and_going_becomes_one_message() {
    let mut takt = Takt::new();
    // A change every 130 s is longer than an evaluation and the group's minute, so each would be sent.
    for n in 0..20 {
        takt.set("hot{node=\"g01\"}", if n % 2 == 0 { 95.0 } else { 60.0 });
        takt.seconds(130);
    }

    let during = takt.sent(SLACK);
    assert!(during.len() <= 8, "{during:#?}");
    assert!(
        during
            .iter()
            .any(|(status, labels)| *status == Status::Firing
                && labels.contains("flapping=\"true\""))
    );

    // An hour without a change ends the flapping.
    for _ in 0..4200 / 100 {
        takt.set("hot{node=\"g01\"}", 60.0);
        takt.seconds(100);
    }

    let after = takt.sent(SLACK);
    assert!(
        after.last().is_some_and(
            |(status, labels)| *status == Status::Resolved && labels.contains("flapping")
        ),
        "{after:#?}"
    );
    assert!(takt.disk.0.borrow().flapping.is_empty());
}

#[test]
fn the_end_of_a_page_does_not_wait_for_the_group() {
    let mut takt = Takt::new();
    takt.set("up{node=\"g01\"}", 0.0);
    takt.seconds(20);

    takt.set("up{node=\"g01\"}", 1.0);
    let back = takt.now.whole_seconds().0;
    takt.seconds(20);

    let reasons = takt.reasons(SLACK);
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    let (end, reason) = reasons[1];
    assert_eq!(reason, Reason::Resolved);
    assert!(end <= back + 16, "{end} and {back}: one evaluation later");
}

#[test]
fn a_consequence_that_outlives_its_cause_by_seconds_is_not_sent() {
    let mut takt = Takt::new();
    takt.set("up{node=\"g01\"}", 0.0);
    takt.set("up{node=\"g02\"}", 0.0);
    takt.seconds(20);

    // Both are hot while their nodes are down.
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.set("hot{node=\"g02\"}", 95.0);
    takt.seconds(50);

    takt.set("up{node=\"g01\"}", 1.0);
    takt.set("up{node=\"g02\"}", 1.0);
    takt.seconds(40);

    // Within the minute for which an ended cause still inhibits, only one node cools down.
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.seconds(100);

    let fired: Vec<String> = takt
        .sent(SLACK)
        .into_iter()
        .filter(|(status, labels)| *status == Status::Firing && labels.contains("Hot"))
        .map(|(_, labels)| labels)
        .collect();
    assert!(
        fired.iter().all(|labels| labels.contains("g02")) && !fired.is_empty(),
        "g02 is hot for another reason: {fired:?}"
    );

    takt.set("hot{node=\"g02\"}", 60.0);
    takt.seconds(200);
    assert!(
        takt.disk.0.borrow().alerts.is_empty(),
        "nothing is left behind"
    );
}

/// A clock that was a year ahead while a channel failed: the message waited for that year, and so did
/// the next reminder.
#[test]
fn nothing_waits_for_a_time_that_a_wrong_clock_has_stored() {
    let mut takt = Takt::new();
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);

    let year = takt.now.plus(Duration::from_secs(366 * 86_400));
    let mut stored = takt.disk.load().unwrap();
    let row = takt
        .disk
        .0
        .borrow()
        .outbox
        .values()
        .next()
        .cloned()
        .unwrap();

    stored.outbox.push(Row {
        state: RowState::Queued,
        created_at: year,
        next_at: year,
        ..row
    });
    stored.log.iter_mut().for_each(|(_, entry)| entry.at = year);

    let stored = stored.without_future(takt.now);
    assert!(stored.outbox[0].next_at <= takt.now.plus(BACKOFF_MAX));
    assert_eq!(stored.outbox[0].created_at, takt.now);
    assert!(!stored.log.is_empty());
    assert!(stored.log.iter().all(|(_, entry)| entry.at == takt.now));
}
