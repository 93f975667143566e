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
        let period = Period::days(from, to, &zone("Europe/Oslo"), now()).unwrap();
        assert_eq!(period.to() - period.from(), hours * 3600, "{from}");
    }
    // If clocks skip midnight, the day begins at its first existing instant.
    let period = Period::days(
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
    assert_eq!(hours[24], 25);
    assert_eq!(october.label(), "2026-10");
    assert_eq!(october.before().unwrap().label(), "2026-09");
    assert_eq!(october.before().unwrap().to(), october.from());
    assert_eq!(
        october.year().unwrap().from_text(),
        "2026-01-01T00:00:00+01:00"
    );
    let week = Period::days("2026-10-24", "2026-10-31", &oslo, now()).unwrap();
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
        Period::days(from, to, &zone("UTC"), now())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        days("2026-02-30", "2026-03-01"),
        "'2026-02-30' is not a date (expected one such as 2026-10-31)"
    );
    assert_eq!(
        days("2026-02-01", "20260301"),
        "'20260301' is not a date (expected one such as 2026-10-31)"
    );
    assert!(
        days("2026-03-01", "2026-03-01")
            .starts_with("the period from 2026-03-01 to 2026-03-01 is empty")
    );
    assert!(days("2027-01-01", "2027-01-02").starts_with("2027-01-01 has not begun"));
}
