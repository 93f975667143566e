use super::*;
use jiff::civil::DateTime;

fn window(days: &[&str], from: &str, to: &str) -> PolicyWindow {
    PolicyWindow {
        name: "desks by day".into(),
        nodes: "desk[1-2]".into(),
        days: days.iter().map(|day| (*day).to_owned()).collect(),
        from: from.into(),
        to: to.into(),
    }
}

/// Seconds of breach of a run on these nodes, from and to instants in Oslo.
fn seconds(window: &PolicyWindow, nodes: &str, from: &str, to: Option<&str>) -> Vec<u64> {
    let zone = TimeZone::get("Europe/Oslo").unwrap();
    let at = |text: &str| {
        text.parse::<DateTime>()
            .unwrap()
            .to_zoned(zone.clone())
            .unwrap()
            .timestamp()
    };
    let now = at("2026-11-15T12:00");
    let period = Period::month("2026-10", &zone, now).unwrap();
    let run = JobRun {
        job_id: "7".into(),
        node_list: Some(nodes.into()),
        start: Some(at(from).into()),
        end: to.map(|to| at(to).into()),
        ..JobRun::default()
    };
    window
        .breaches(&[run], &period, &zone, now)
        .iter()
        .map(|breach| breach.seconds)
        .collect()
}

#[test]
fn desks_by_day() {
    let by_day = window(&["mon", "tue", "wed", "thu", "fri"], "08:00", "18:00");
    // Monday 5 October, 06:00 to 10:30.
    assert_eq!(
        seconds(
            &by_day,
            "desk1,gpu7",
            "2026-10-05T06:00",
            Some("2026-10-05T10:30")
        ),
        [9000]
    );
    assert_eq!(
        seconds(
            &by_day,
            "gpu7",
            "2026-10-05T06:00",
            Some("2026-10-05T10:30")
        ),
        [0; 0]
    );
    // At night, and on a Saturday.
    assert_eq!(
        seconds(
            &by_day,
            "desk1",
            "2026-10-05T18:00",
            Some("2026-10-06T08:00")
        ),
        [0; 0]
    );
    assert_eq!(
        seconds(
            &by_day,
            "desk2",
            "2026-10-03T08:00",
            Some("2026-10-03T18:00")
        ),
        [0; 0]
    );
    // Two days, cut at the end of the month although the job still runs.
    assert_eq!(
        seconds(&by_day, "desk[1-2]", "2026-10-29T17:00", None),
        [11 * 3600]
    );
}

#[test]
fn a_night_that_has_an_hour_more() {
    let by_night = window(&[], "22:00", "06:00");
    assert_eq!(
        seconds(
            &by_night,
            "desk1",
            "2026-10-24T22:00",
            Some("2026-10-25T06:00")
        ),
        [9 * 3600]
    );
    // The night before the first day of the month reaches into the month.
    assert_eq!(
        seconds(
            &by_night,
            "desk1",
            "2026-10-01T00:00",
            Some("2026-10-01T07:00")
        ),
        [6 * 3600]
    );
}

#[test]
fn invalid_windows_are_refused() {
    let error = |change: fn(&mut PolicyWindow)| {
        let mut window = window(&["mon"], "08:00", "18:00");
        change(&mut window);
        window.validate().unwrap_err().to_string()
    };
    assert_eq!(
        error(|w| w.name.clear()),
        "name: expected a name, found nothing"
    );
    assert_eq!(
        error(|w| w.nodes = "a[".into()),
        "nodes: expected a list of nodes such as desk[01-12], found a["
    );
    assert_eq!(
        error(|w| w.days = vec!["Monday".into()]),
        "days: expected mon, tue, wed, thu, fri, sat or sun, found Monday"
    );
    assert_eq!(
        error(|w| w.to = "8".into()),
        "to: expected a time of day such as 08:00, found 8"
    );
    assert_eq!(
        error(|w| w.from = "25:00".into()),
        "from: expected a time of day such as 08:00, found 25:00"
    );
}
