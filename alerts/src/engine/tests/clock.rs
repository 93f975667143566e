//! The clock is set back, and Takt starts again.

use super::*;

#[test]
fn an_alert_that_has_ended_does_not_fire_again() {
    let mut takt = Takt::new();

    // It fires and ends by a clock that is 5,000 s ahead.
    takt.now = at(10_000);
    for value in [0.0, 1.0] {
        takt.set("up{node=\"g01\"}", value);
        takt.seconds(40);
    }

    let before = takt.sent(SLACK);
    let states: Vec<Status> = before.iter().map(|(status, _)| *status).collect();
    assert_eq!(states, [Status::Firing, Status::Resolved]);

    // The second start reads the state that the first one has stored under the corrected clock.
    takt.now = at(5_000);
    for _ in 0..2 {
        takt.restart();
        takt.set("up{node=\"g01\"}", 1.0);
        takt.seconds(90);
        assert_eq!(takt.sent(SLACK), before);
    }
}

#[test]
fn a_message_that_failed_is_tried_within_minutes() {
    let mut takt = Takt::new();
    takt.now = at(10_000);
    takt.set("up{node=\"g01\"}", 0.0);

    for _ in 0..40 {
        takt.now = takt.now.plus(Duration::from_secs(1));
        let now = takt.now;
        let (batch, _) = takt
            .engine
            .evaluate(&takt.samples, &takt.samples, &none_down, now);
        let batch = batch.then(takt.engine.flush(&takt.samples, now));
        takt.commit(&batch);

        let (rows, mut batch) = takt.engine.send_due(now);
        for row in rows {
            // The channel asks for a wait of ten minutes, longer than any of Takt's own.
            let outcome = Outcome::TryAgain {
                after: Some(Duration::from_secs(600)),
                error: "429".to_owned(),
            };
            let answered = takt.engine.answered(row.id, &outcome, &|_| None, now);
            batch = batch.then(answered);
        }
        takt.commit(&batch);
    }
    assert!(takt.delivered.is_empty());

    // Without a bound the message would wait until the clock has come to 10,600 s again.
    takt.now = at(5_000);
    takt.restart();
    takt.set("up{node=\"g01\"}", 0.0);
    takt.seconds(310);
    assert!(!takt.delivered.is_empty());
}
