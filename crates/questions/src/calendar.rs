//! Stores the time zone, the prices and the budgets of clusters, so that queries in SQL can join
//! them with job records.

use super::budgets::budgets_now;
use super::period::{the_period, the_zone};
use super::{AccountingConfig, AnswerError};
use jiff::Timestamp;
use jiff::civil::date;
use jiff::tz::TimeZone;
use takt_accounting::{BudgetPeriod, BudgetUse, Period, Rates};
use takt_store::{BudgetNow, Database, KnownCluster, PricedTime, Records, TimeOffset};

/// First year of the stored calendar.
const FIRST_YEAR: i16 = 2000;

/// Number of years that are stored after the current one. Laws may change the later ones.
const YEARS_AHEAD: i16 = 10;

/// Stores the time zone and the prices of each cluster with records, and of the cluster `own`.
///
/// # Errors
/// When a recorded time zone is unknown or the store fails.
pub fn note_calendar(
    database: &Database,
    own: Option<&str>,
    config: &AccountingConfig,
) -> Result<(), AnswerError> {
    let records = Records::of(database);
    let now = Timestamp::now();
    let currency = config.rates.currency.as_deref();
    for known in clusters(&records, own)? {
        let zone = the_zone(&known, config)?;
        // A zone of the system may have no IANA name.
        let name = zone.iana_name().unwrap_or("unknown");
        records.note_time_offsets(&known.cluster, name, &offsets(&zone, now)?)?;

        let rates = Rates::new(&config.rates, &zone);
        let prices: Vec<PricedTime> = rates
            .cards()
            .map(|(from, until, card)| PricedTime {
                from,
                until,
                card: card.clone(),
            })
            .collect();
        records.note_rate_cards(&known.cluster, currency, &prices)?;
    }
    Ok(())
}

/// Stores the budgets of these clusters with their use in the current month and year.
///
/// # Errors
/// When a recorded time zone is unknown or the store fails.
pub fn note_budgets(
    database: &Database,
    own: Option<&str>,
    config: &AccountingConfig,
) -> Result<(), AnswerError> {
    let records = Records::of(database);
    let now = Timestamp::now();
    let recorded = records.clusters()?;
    for known in clusters(&records, own)? {
        // A cluster without records has used nothing.
        let used = if recorded.contains(&known) {
            budgets_now(database, &known.cluster, config)?
        } else {
            unused(config)
        };

        let zone = the_zone(&known, config)?;
        let month = the_period(&None, &None, &None, &zone, now)?;
        let budgets: Vec<BudgetNow> = used
            .into_iter()
            .filter_map(|budget| in_period(budget, &month))
            .collect();
        records.note_budgets(&known.cluster, &budgets, now.into())?;
    }
    Ok(())
}

fn clusters(records: &Records<'_>, own: Option<&str>) -> Result<Vec<KnownCluster>, AnswerError> {
    // The own cluster has prices before its first job.
    let mut known = records.clusters()?;
    if let Some(own) = own
        && !known.iter().any(|known| known.cluster == own)
    {
        known.push(KnownCluster {
            cluster: own.to_owned(),
            timezone: None,
        });
    }
    Ok(known)
}

fn unused(config: &AccountingConfig) -> Vec<BudgetUse> {
    let currency = config.rates.currency.as_deref().unwrap_or_default();
    config
        .budgets
        .iter()
        .flat_map(|budget| budget.used(0.0, 0.0, currency))
        .collect()
}

fn in_period(budget: BudgetUse, month: &Period) -> Option<BudgetNow> {
    let period = match budget.period {
        BudgetPeriod::Month => month.clone(),
        BudgetPeriod::Year => month.year()?,
    };
    Some(BudgetNow {
        from: period.from(),
        until: period.to(),
        budget,
    })
}

/// Returns the offsets of `zone` from the first year to some years after `now`, in order.
fn offsets(zone: &TimeZone, now: Timestamp) -> Result<Vec<TimeOffset>, AnswerError> {
    let first_of = |year: i16| {
        date(year, 1, 1)
            .to_zoned(zone.clone())
            .map(|at| at.timestamp())
            .map_err(AnswerError::failed)
    };
    let begin = first_of(FIRST_YEAR)?;
    let end = first_of(now.to_zoned(zone.clone()).year() + YEARS_AHEAD)?;

    let later = zone
        .following(begin)
        .map(|change| (change.timestamp(), change.offset()));
    let mut starts = vec![(begin, zone.to_offset(begin))];
    starts.extend(later.take_while(|(at, _)| *at < end));
    // Some changes concern only the name of the time.
    starts.dedup_by_key(|(_, offset)| *offset);
    // Each offset holds until the next; the last one until the end of the calendar.
    let ends = starts.iter().skip(1).map(|(at, _)| *at).chain([end]);
    let offsets = starts
        .iter()
        .zip(ends)
        .map(|((from, offset), until)| TimeOffset {
            from: (*from).into(),
            until: until.into(),
            offset_seconds: offset.seconds(),
        })
        .collect();
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{import, store_in};
    use serde_json::json;
    use takt_accounting::{BudgetConfig, RateCard, RatesConfig};
    use takt_jobs::{JobRun, time_zone};
    use takt_model::UnixTime;
    use takt_store::sql::{Limits, run};
    use tempfile::tempdir;

    fn rows(database: &Database, sql: &str) -> Vec<Vec<serde_json::Value>> {
        run(database, sql, Limits::default()).unwrap().rows
    }

    fn in_zone(zone: &str) -> AccountingConfig {
        AccountingConfig {
            timezone: Some(zone.to_owned()),
            ..AccountingConfig::default()
        }
    }

    #[test]
    fn days_are_those_of_reports() {
        let folder = tempdir().unwrap();
        let store = store_in(folder.path());
        let database = store.database();
        let now = Timestamp::now();

        // Summer time begins at 02:00, at midnight (Havana), with half an hour (Lord Howe), or never.
        // Samoa skipped a day.
        for zone in [
            "Europe/Oslo",
            "America/Havana",
            "Australia/Lord_Howe",
            "Asia/Kolkata",
            "Pacific/Apia",
        ] {
            note_calendar(database, Some("lab"), &in_zone(zone)).unwrap();
            for (from, to) in [("2011-01-01", "2012-01-01"), ("2025-01-01", "2026-01-01")] {
                let period = Period::span(from, to, &time_zone(zone).unwrap(), now).unwrap();
                let sql = format!(
                    "SELECT epoch(day_start)::BIGINT, epoch(day_end)::BIGINT FROM days
                     WHERE cluster = 'lab' AND timezone = '{zone}' AND day >= '{from}' AND day < '{to}' ORDER BY day"
                );
                let expected: Vec<_> = period
                    .slices(takt_accounting::Unit::Day)
                    .into_iter()
                    .map(|day| vec![json!(day.from.0), json!(day.to.0)])
                    .collect();
                assert_eq!(rows(database, &sql), expected, "{zone} {from}");
            }
        }
    }

    #[test]
    fn the_clocks_of_a_cluster_change_twice_a_year() {
        let folder = tempdir().unwrap();
        let store = store_in(folder.path());
        let database = store.database();
        note_calendar(database, Some("lab"), &in_zone("Europe/Oslo")).unwrap();
        // 2026-03-29 has 23 hours in Oslo, 2026-10-25 has 25.
        let hours = "SELECT day::VARCHAR, month::VARCHAR, epoch(day_end - day_start)::BIGINT // 3600 FROM days
             WHERE day_start >= '2026-01-01' AND day_start < '2027-01-01' AND epoch(day_end - day_start) <> 86400
             ORDER BY day";
        assert_eq!(
            rows(database, hours),
            [
                vec![json!("2026-03-29"), json!("2026-03-01"), json!(23)],
                vec![json!("2026-10-25"), json!("2026-10-01"), json!(25)],
            ]
        );
        // Two instants of the repeated hour have one local time. An unknown cluster has UTC.
        let local = "SELECT local_time(cluster, instant)::VARCHAR FROM (VALUES
                 ('lab', TIMESTAMP '2026-10-25 00:30:00'), ('lab', TIMESTAMP '2026-10-25 01:30:00'),
                 ('lab', TIMESTAMP '2026-12-31 23:30:00'), ('unknown', TIMESTAMP '2026-12-31 23:30:00'))
                 AS t(cluster, instant) ORDER BY cluster, instant";
        assert_eq!(
            rows(database, local),
            [
                [json!("2026-10-25 02:30:00")],
                [json!("2026-10-25 02:30:00")],
                [json!("2027-01-01 00:30:00")],
                [json!("2026-12-31 23:30:00")],
            ]
        );
    }

    #[test]

    fn prices_and_budgets_are_tables() {
        let folder = tempdir().unwrap();
        let store = store_in(folder.path());
        let database = store.database();
        let now = UnixTime::from(Timestamp::now());
        // A job of one hour, so that the expected sum is the price of an hour.
        let start = now - 7200;
        let run = JobRun {
            cluster: "lab".into(),
            job_id: "1".into(),
            submit: start,
            start: Some(start),
            end: Some(now - 3600),
            state: "COMPLETED".into(),
            user: "ann".into(),
            account: "physics".into(),
            gpus: Some(2),
            cpus: Some(8),
            mem_bytes: Some(4 << 30),
            gpu_model: Some("a100".into()),
            ..JobRun::default()
        };
        import(database, Some("UTC"), [run]);

        let card = |from: &str, gpu_hour| RateCard {
            from: from.to_owned(),
            gpu_hour,
            gpu_models: [("a100".to_owned(), 3.0)].into(),
            cpu_hour: 0.25,
            mem_gib_hour: 0.5,
            ..RateCard::default()
        };
        let budget = |account: Option<&str>, user: Option<&str>| BudgetConfig {
            account: account.map(str::to_owned),
            user: user.map(str::to_owned),
            gpu_hours: Some(50.0),
            ..BudgetConfig::default()
        };
        let config = AccountingConfig {
            rates: RatesConfig {
                currency: Some("EUR".into()),
                cards: vec![card("2026-01-01", 1.0), card("2020-01-01", 2.0)],
            },
            budgets: vec![budget(Some("physics"), None), budget(None, Some("bob"))],
            ..in_zone("Europe/Oslo")
        };
        // The cards are given in the wrong order, and a card ends where the next one begins.
        note_calendar(database, None, &config).unwrap();
        note_budgets(database, None, &config).unwrap();
        let cards = "SELECT from_time, until_time, currency, gpu_hour, gpu_models ->> 'a100' FROM rate_cards ORDER BY 1";
        let cards = rows(database, cards);
        assert_eq!(
            cards[0][..3],
            [
                json!("2019-12-31T23:00:00Z"),
                json!("2025-12-31T23:00:00Z"),
                json!("EUR")
            ]
        );
        assert_eq!(cards[1][..2], [json!("2025-12-31T23:00:00Z"), json!(null)]);
        // Two A100 at 3.0, eight CPUs at 0.25, and 4 GiB at 0.5 for an hour.
        let money = "SELECT job_id, currency, money_per_hour * epoch(until_time - from_time) / 3600, energy_money_per_hour
             FROM job_prices";
        assert_eq!(
            rows(database, money),
            [[json!("1"), json!("EUR"), json!(10.0), json!(0.0)]]
        );

        let budgets = "SELECT \"user\", account, period, unit, amount, from_time <= noted_at, noted_at < until_time
             FROM budgets ORDER BY ALL";
        assert_eq!(
            rows(database, budgets),
            [
                [
                    json!("bob"),
                    json!(null),
                    json!("month"),
                    json!("GPU-hours"),
                    json!(50.0),
                    json!(true),
                    json!(true)
                ],
                [
                    json!(null),
                    json!("physics"),
                    json!("month"),
                    json!("GPU-hours"),
                    json!(50.0),
                    json!(true),
                    json!(true)
                ],
            ]
        );
        // The run may have begun before the month did.
        let used = rows(
            database,
            "SELECT used FROM budgets ORDER BY account NULLS FIRST",
        );
        let used: Vec<f64> = used.iter().filter_map(|row| row[0].as_f64()).collect();
        let expected = budgets_now(database, "lab", &config).unwrap();
        assert_eq!(used, [0.0, expected[0].used]);
    }
}
