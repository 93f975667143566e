use super::*;

fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).unwrap()
}

fn now() -> Timestamp {
    "2026-11-21T10:00:00Z".parse().unwrap()
}

#[test]
fn months_are_the_zones_own() {
    const HOUR: i64 = 3600;
    // October has an hour more in Oslo, and March one less.
    for (month, name, hours, from, to) in [
        (
            "2026-10",
            "UTC",
            744,
            "2026-10-01T00:00:00+00:00",
            "2026-11-01T00:00:00+00:00",
        ),
        (
            "2026-10",
            "Europe/Oslo",
            745,
            "2026-10-01T00:00:00+02:00",
            "2026-11-01T00:00:00+01:00",
        ),
        (
            "2026-03",
            "Europe/Oslo",
            743,
            "2026-03-01T00:00:00+01:00",
            "2026-04-01T00:00:00+02:00",
        ),
        (
            "2010-05",
            "Asia/Tokyo",
            744,
            "2010-05-01T00:00:00+09:00",
            "2010-06-01T00:00:00+09:00",
        ),
        (
            "2024-02",
            "America/New_York",
            696,
            "2024-02-01T00:00:00-05:00",
            "2024-03-01T00:00:00-05:00",
        ),
        (
            "2026-11",
            "UTC",
            720,
            "2026-11-01T00:00:00+00:00",
            "2026-12-01T00:00:00+00:00",
        ),
    ] {
        let period = Period::month(month, &zone(name), now()).unwrap();
        assert_eq!(
            (period.to() - period.from()) / HOUR,
            hours,
            "{month} {name}"
        );
        assert_eq!(period.from_text().as_str(), from);
        assert_eq!(period.to_text().as_str(), to);
        assert_eq!(period.zone_name(), name);
    }
}

#[test]
fn days_have_23_24_or_25_hours() {
    for (from, to, hours) in [
        ("2026-10-25", "2026-10-26", 25),
        ("2026-03-29", "2026-03-30", 23),
        ("2026-10-01", "2026-10-02", 24),
    ] {
        let period = Period::span(from, to, &zone("Europe/Oslo"), now()).unwrap();
        assert_eq!(period.to() - period.from(), hours * 3600, "{from}");
    }
    // If clocks skip midnight, the day begins at its first existing instant.
    let period = Period::span(
        "2018-11-04",
        "2018-11-05",
        &zone("America/Sao_Paulo"),
        now(),
    )
    .unwrap();
    assert_eq!(period.from_text(), "2018-11-04T01:00:00-02:00");
}

#[test]
fn the_days_of_a_period_and_the_periods_around_it() {
    let oslo = zone("Europe/Oslo");
    let october = Period::month("2026-10", &oslo, now()).unwrap();
    let midnights = october.midnights();
    let hours: Vec<i64> = midnights
        .windows(2)
        .map(|day| (day[1] - day[0]) / 3600)
        .collect();
    assert_eq!(hours.len(), 31);
    assert_eq!(hours.iter().sum::<i64>(), 745);
    // The 25th day has the hour more.
    assert_eq!(hours[24], 25);
    assert_eq!(october.label(), "2026-10");
    assert_eq!(october.before().unwrap().label(), "2026-09");
    assert_eq!(october.before().unwrap().to(), october.from());
    assert_eq!(
        october.year().unwrap().from_text(),
        "2026-01-01T00:00:00+01:00"
    );
    let week = Period::span("2026-10-24", "2026-10-31", &oslo, now()).unwrap();
    assert_eq!(week.label(), "2026-10-24 to 2026-10-30");
    assert_eq!(week.before().unwrap().label(), "2026-10-17 to 2026-10-23");
}

#[test]
fn invalid_periods_are_refused() {
    for text in [
        "2026-13",
        "2026-00",
        "2026",
        "2026-1",
        "26-10",
        "october",
        "2026-10-01",
        "",
        "-026-10",
    ] {
        assert_eq!(
            Period::month(text, &zone("UTC"), now()),
            Err(PeriodError::Month(text.to_owned()))
        );
    }
    let error = Period::month("2026-12", &zone("Europe/Oslo"), now()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "2026-12 has not begun: it begins at 2026-12-01T00:00:00+01:00"
    );
    let days = |from, to| {
        Period::span(from, to, &zone("UTC"), now())
            .unwrap_err()
            .to_string()
    };
    for text in [
        "2026-02-30",
        "20260301",
        "-1y",
        "-d",
        "--1d",
        "tomorrow's",
        "14:00",
        "-999999999w",
    ] {
        assert_eq!(
            days(text, "2026-03-01"),
            format!(
                "'{text}' is not a time (expected a date such as 2026-10-31, a time such as 2026-10-31T14:00 or \
                 2026-10-31T13:00:00Z, or now, today, yesterday, -12h, -7d or -2w)"
            )
        );
    }
    assert!(
        days("2026-03-01", "2026-03-01")
            .starts_with("the period from 2026-03-01 to 2026-03-01 is empty")
    );
    assert_eq!(
        days("1000-01-01", "9000-01-01"),
        "the period from 1000-01-01 to 9000-01-01 is longer than a century"
    );
    assert!(days("2027-01-01", "2027-01-02").starts_with("2027-01-01 has not begun"));
}

/// Issue 29: help and documentation promised instants, and each was refused.
#[test]
fn a_period_of_dates_times_instants_and_relative_times() {
    let oslo = zone("Europe/Oslo");
    let now: Timestamp = "2026-10-25T09:30:00Z".parse().unwrap();
    for (from, to, from_text, to_text) in [
        (
            "2007-12-31T23:00:00Z",
            "2008-01-31T23:00:00Z",
            "2008-01-01T00:00:00+01:00",
            "2008-02-01T00:00:00+01:00",
        ),
        (
            "2026-10-01T14:00",
            "2026-10-02",
            "2026-10-01T14:00:00+02:00",
            "2026-10-02T00:00:00+02:00",
        ),
        (
            "2026-10-01 14:00:30",
            "2026-10-01T13:00:00-04:00",
            "2026-10-01T14:00:30+02:00",
            "2026-10-01T19:00:00+02:00",
        ),
        (
            "1759312800",
            "now",
            "2025-10-01T12:00:00+02:00",
            "2026-10-25T10:30:00+01:00",
        ),
        (
            "yesterday",
            "today",
            "2026-10-24T00:00:00+02:00",
            "2026-10-25T00:00:00+02:00",
        ),
        (
            "-1d",
            "-12h",
            "2026-10-24T10:30:00+02:00",
            "2026-10-24T23:30:00+02:00",
        ),
        (
            "-2w",
            "now",
            "2026-10-11T10:30:00+02:00",
            "2026-10-25T10:30:00+01:00",
        ),
    ] {
        let period = Period::span(from, to, &oslo, now).unwrap();
        assert_eq!(
            (&*period.from_text(), &*period.to_text()),
            (from_text, to_text),
            "{from} {to}"
        );
    }
    let period = Period::span("2026-10-01T14:00", "2026-10-02T08:00", &oslo, now).unwrap();
    assert_eq!(period.label(), "2026-10-01T14:00 to 2026-10-02T08:00");
    assert_eq!(
        period.before().unwrap().label(),
        "2026-09-30T20:00 to 2026-10-01T14:00"
    );
    let hours: Vec<i64> = period
        .midnights()
        .windows(2)
        .map(|day| (day[1] - day[0]) / 3600)
        .collect();
    // From 14:00 to midnight, and on to 08:00.
    assert_eq!(hours, [10, 8]);
    let days = period.slices(Unit::Day);
    assert_eq!(
        Period::of_slice(&days[0], &oslo).label(),
        "2026-10-01T14:00 to 2026-10-02T00:00"
    );
    // The instants are midnights of Oslo.
    let month = Period::span("2007-12-31T23:00:00Z", "2008-01-31T23:00:00Z", &oslo, now).unwrap();
    assert_eq!(month, Period::month("2008-01", &oslo, now).unwrap());
}

#[test]
fn hours_begin_with_the_hours_of_the_clock() {
    let hours = |name: &str, from: &str, to: &str| -> Vec<String> {
        let period = Period::span(from, to, &zone(name), now()).unwrap();
        let slices = period.slices(Unit::Hour);
        slices
            .iter()
            .map(|slice| format!("{} {}", slice.name, slice.to - slice.from))
            .collect()
    };

    // From the second half of an hour, in a zone 45 minutes off.
    assert_eq!(
        hours("Asia/Kathmandu", "2026-10-01T10:40", "2026-10-01T12:30"),
        [
            "2026-10-01T10:40+05:45 1200",
            "2026-10-01T11:00+05:45 3600",
            "2026-10-01T12:00+05:45 1800",
        ]
    );
    // Lord Howe Island sets its clocks by half an hour: back from 02:00 to 01:30.
    assert_eq!(
        hours(
            "Australia/Lord_Howe",
            "2026-04-05T01:00",
            "2026-04-05T03:00"
        ),
        [
            "2026-04-05T01:00+11:00 3600",
            "2026-04-05T01:30+10:30 1800",
            "2026-04-05T02:00+10:30 3600",
        ]
    );
    // Forward from 02:00 to 02:30.
    assert_eq!(
        hours(
            "Australia/Lord_Howe",
            "2025-10-05T01:00",
            "2025-10-05T04:00"
        ),
        [
            "2025-10-05T01:00+10:30 3600",
            "2025-10-05T02:30+11:00 1800",
            "2025-10-05T03:00+11:00 3600",
        ]
    );
}
