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
    takt.seconds(70);
    takt.restart();
    takt.seconds(70);
    assert_eq!(takt.ends_and_beginnings(), [Firing, Resolved]);
    takt.set("hot{node=\"g01\"}", 60.0);
    takt.seconds(30);
    takt.set("hot{node=\"g01\"}", 95.0);
    takt.seconds(70);
    assert_eq!(takt.ends_and_beginnings(), [Firing, Resolved, Firing]);
}

#[test]
fn a_posted_alert_can_be_closed() {
    let mut takt = Takt::new();
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
    let tables = takt.disk.0.borrow();
    let last = tables.transitions.last().unwrap();
    assert_eq!(&*last.rule.0, "posted");
    assert_eq!(last.reason, crate::state::Reason::Closed);
}
