//! Alerts that a person closes.

use super::*;

fn closing() -> Closing {
    Closing {
        by: "ada".to_owned(),
        comment: "reseated the card".to_owned(),
    }
}

impl Takt {
    fn close(&mut self, matchers: &str) -> usize {
        let matchers = Matchers(parse_matchers(matchers).unwrap());
        let (closed, batch) = self.engine.close(&matchers, &closing(), self.now);
        self.commit(&batch);
        closed.len()
    }

    fn fall_off_the_bus(&mut self) {
        let labels = [("node", "g01"), ("uuid", "GPU-1"), ("xid", "79")];
        let event = Event {
            id: u64::try_from(self.now.0).unwrap(),
            at: self.now,
            kind: takt_model::EventKind::Xid,
            labels: labels.into_iter().collect(),
            message: "NVRM: Xid (PCI:0000:01:00): 79".to_owned(),
        };
        let batch = self.engine.event(&event, &[], self.now);
        self.commit(&batch);
    }

    fn ends_and_beginnings(&self) -> Vec<Status> {
        self.sent(SLACK)
            .into_iter()
            .map(|(status, _)| status)
            .collect()
    }
}

#[test]
fn an_event_without_an_end_is_closed_by_hand() {
    use Status::{Firing, Resolved};
    let mut takt = Takt::new();
    takt.fall_off_the_bus();
    takt.seconds(40);
    assert_eq!(takt.close("node=g02"), 0, "another node");
    assert_eq!(takt.close("alertname=GpuXid,node=g01"), 1);
    assert_eq!(takt.close("alertname=GpuXid,node=g01"), 0, "it is closed");
    takt.seconds(70);
    assert_eq!(takt.ends_and_beginnings(), [Firing, Resolved]);
    {
        // The history says who closed it, and so does the last message.
        let tables = takt.disk.0.borrow();
        let last = tables.transitions.last().unwrap();
        assert_eq!(last.from, State::Firing);
        assert_eq!(last.to, State::Inactive);
        assert_eq!(last.closing, Some(closing()));
        let last_row = tables.outbox.values().next_back().unwrap();
        let words = &last_row.message.alerts[0].annotations[CLOSED];
        assert_eq!(words, "by ada: reseated the card");
    }

    takt.restart();
    takt.seconds(70);
    assert_eq!(takt.ends_and_beginnings().len(), 2, "closed for good");

    // Another event begins another episode, which is open again.
    takt.fall_off_the_bus();
    takt.seconds(40);
    assert_eq!(takt.ends_and_beginnings(), [Firing, Resolved, Firing]);
}

#[test]
fn a_closed_alert_stays_closed_until_its_condition_was_false() {
    use Status::{Firing, Resolved};
    let mut takt = Takt::new();

    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(60);
    assert_eq!(takt.close("alertname=Hot"), 1);
    // The condition still holds, and the stored alert has to stay closed.
    takt.seconds(70);
    takt.restart();
    takt.seconds(70);
    assert_eq!(takt.ends_and_beginnings(), [Firing, Resolved]);

    // Two evaluations see it false, then it holds again.
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.seconds(30);
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(70);
    assert_eq!(takt.ends_and_beginnings(), [Firing, Resolved, Firing]);
}

#[test]
fn a_posted_alert_can_be_closed() {
    let mut takt = Takt::new();

    // It would live for more than a day: only a person ends it earlier.
    let posted = Posted {
        labels: [("alertname", "Foreign")].into_iter().collect(),
        ends_at: Some(at(100_000)),
        ..Posted::default()
    };

    let batch = takt.engine.post(vec![posted], takt.now).0;
    takt.commit(&batch);
    takt.seconds(40);

    assert_eq!(takt.close("alertname=Foreign"), 1);
    takt.seconds(70);
    assert_eq!(
        takt.ends_and_beginnings(),
        [Status::Firing, Status::Resolved]
    );

    // No rule has it, so the history names the way by which it came.
    let tables = takt.disk.0.borrow();
    let last = tables.transitions.last().unwrap();
    assert_eq!(&*last.rule.0, "posted");
    assert_eq!(last.reason, crate::state::Reason::Closed);
}

/// The owner of the alert acknowledged it for eight hours, then it ended or was closed.
#[test]
fn an_acknowledged_alert_has_its_end_at_once() {
    use Status::{Firing, Resolved};
    for is_closed in [false, true] {
        let mut takt = Takt::new();
        takt.set("hot{node=\"g01\"}", 95.0);
        takt.seconds(60);
        let silence = Silence {
            id: String::new(),
            matchers: vec![Matchers(parse_matchers("alertname=Hot").unwrap())],
            starts_at: takt.now,
            ends_at: takt.now.plus(Duration::from_secs(8 * 3_600)),
            updated_at: takt.now,
            created_by: "ada".to_owned(),
            comment: "acknowledged".to_owned(),
            annotations: BTreeMap::new(),
        };

        let (_, batch) = takt.engine.silence(silence, "s1", takt.now).unwrap();
        takt.commit(&batch);

        // A close flushes the group at once; an end needs an evaluation and the rest of the minute.
        if is_closed {
            assert_eq!(takt.close("alertname=Hot"), 1);
            takt.seconds(1);
        } else {
            takt.set("hot{node=\"g01\"}", 60.0);
            takt.seconds(90);
        }
        assert_eq!(
            takt.ends_and_beginnings(),
            [Firing, Resolved],
            "{is_closed}"
        );
    }
}

/// The channel is down. The page waits, and its alert is closed before it could be delivered.
#[test]
fn a_page_that_waits_is_not_delivered_once_its_alert_is_closed() {
    let mut takt = Takt::new();
    takt.fall_off_the_bus();
    let flushed = takt.engine.flush(&takt.samples, takt.now);
    takt.commit(&flushed);

    // Slack and e-mail, neither of them sent.
    assert_eq!(takt.engine.outbox().iter().len(), 2);

    takt.now = takt.now.plus(Duration::from_secs(3));
    assert_eq!(takt.close("alertname=GpuXid"), 1);
    takt.seconds(5);
    assert_eq!(takt.ends_and_beginnings(), [Status::Resolved]);
    assert_eq!(takt.sent("ops/email/0"), [], "e-mail does not ask for ends");
}

#[test]
fn closing_posted_alerts_makes_room_for_others() {
    let mut takt = Takt::new();
    let ann = Arc::from("ann");
    let posted = |n: usize| Posted {
        labels: [("alertname", format!("A{n}"))].into_iter().collect(),
        ends_at: Some(at(100_000)),
        ..Posted::default()
    };

    // The share of one program.
    let max = takt.engine.posted_max() * 3 / 4;
    let many = (0..max).map(posted).collect();
    let (batch, errors) = takt.engine.post_from(&ann, many, takt.now);
    takt.commit(&batch);
    assert_eq!(errors, []);

    let refused = |takt: &mut Takt, n| {
        takt.engine
            .post_from(&ann, vec![posted(n)], takt.now)
            .1
            .len()
    };

    assert_eq!(refused(&mut takt, max), 1);
    assert_eq!(takt.close("alertname=A3"), 1);
    assert_eq!(takt.engine.posted_count(), max - 1);
    assert_eq!(refused(&mut takt, max), 0);
}

/// A flapping alert that was closed was never sent again: its changes counted as reported, and the report was gone.
#[test]
fn a_flapping_alert_that_is_closed_is_sent_when_it_fires_again() {
    use Status::{Firing, Resolved};
    for fires_when_closed in [false, true] {
        let mut takt = Takt::new();
        for change in 0..6 {
            takt.set(
                "hot{node=\"g01\"}",
                if change % 2 == 0 { 95.0 } else { 60.0 },
            );
            takt.seconds(90);
        }
        if fires_when_closed {
            takt.set("hot{node=\"g01\"}", 95.0);
            takt.seconds(30);
        }
        let last = takt.sent(SLACK).last().cloned().unwrap();
        assert!(last.1.contains("flapping=\"true\""), "{last:?}");

        assert_eq!(takt.close("alertname=Hot"), 1);
        takt.seconds(90);
        let sent = takt.sent(SLACK);
        let (status, labels) = sent.last().unwrap();
        assert!(
            *status == Resolved && labels.contains("flapping"),
            "{sent:?}"
        );

        // Closed, it stays so while its condition holds, and after a restart.
        takt.restart();
        takt.seconds(90);
        assert_eq!(takt.sent(SLACK).len(), sent.len());

        takt.set("hot{node=\"g01\"}", 60.0);
        takt.seconds(30);
        takt.set("hot{node=\"g01\"}", 95.0);
        takt.seconds(90);
        let sent = takt.sent(SLACK);
        let (status, labels) = sent.last().unwrap();
        assert!(
            *status == Firing && !labels.contains("flapping"),
            "{sent:?}"
        );
    }
}
