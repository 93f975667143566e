use super::*;
use proptest::prelude::*;

fn card(from: &str, gpu_hour: f64, a100: f64) -> RateCard {
    RateCard {
        from: from.into(),
        gpu_hour,
        gpu_models: [("a100".to_owned(), a100)].into(),
        cpu_hour: 0.01,
        mem_gib_hour: 0.001,
        kwh: 0.3,
        co2_g_per_kwh: 100.0,
    }
}

fn config() -> RatesConfig {
    RatesConfig {
        currency: Some("EUR".into()),
        cards: vec![card("2026-02-01", 2.0, 4.0), card("2026-01-01", 1.0, 3.0)],
    }
}

fn rates() -> Rates {
    Rates::new(&config(), &TimeZone::get("Europe/Oslo").unwrap())
}

/// 2026-02-01 00:00 in Oslo.
const FEBRUARY: UnixTime = UnixTime(1_769_900_400);

#[test]
fn a_run_across_two_cards_is_charged_at_each() {
    let held = HeldAmounts {
        gpus: 2,
        cpus: 10,
        mem_bytes: 100 << 30,
        gpu_watts: 500.0,
    };
    // One hour at the first card, and two at the second.
    let cost = rates().cost(&held, Some("a100"), FEBRUARY - 3600, FEBRUARY + 7200);
    let hourly = 10.0 * 0.01 + 100.0 * 0.001 + 0.5 * 0.3;
    assert!((cost.gpu_money - (2.0 * 3.0 + 2.0 * 4.0 * 2.0)).abs() < 1e-9);
    assert!((cost.money - cost.gpu_money - 3.0 * hourly).abs() < 1e-9);
    assert!((cost.kwh - 1.5).abs() < 1e-9 && (cost.co2_grams - 150.0).abs() < 1e-6);
    // Another model, and the time before the first card.
    assert!(
        (rates()
            .cost(&held, Some("l40s"), FEBRUARY, FEBRUARY + 3600)
            .gpu_money
            - 4.0)
            .abs()
            < 1e-9
    );
    assert_eq!(
        rates().cost(&held, None, UnixTime(0), UnixTime(3600)).money,
        0.0
    );
}

#[test]
fn invalid_rate_cards_are_refused() {
    let with = |change: fn(&mut RatesConfig)| {
        let mut config = config();
        change(&mut config);
        config.validate().map_err(|error| error.to_string())
    };
    assert_eq!(with(|_| ()), Ok(()));
    for (change, message) in [
        (
            (|c| c.cards[0].from = "May".into()) as fn(&mut RatesConfig),
            "cards.from: expected a date such as 2026-01-01, found May",
        ),
        (
            |c| c.cards[1].from = "2026-02-01".into(),
            "cards.from: expected one card a date, found 2026-02-01",
        ),
        (
            |c| c.cards[1].kwh = -1.0,
            "cards.kwh: expected 0 or more, found -1",
        ),
        (
            |c| c.cards[1].gpu_models = [("h100".into(), f64::NAN)].into(),
            "cards.h100: expected 0 or more, found NaN",
        ),
        (
            |c| c.currency = None,
            "currency: expected a name such as EUR, since the cards have prices, found nothing",
        ),
    ] {
        assert_eq!(with(change), Err(message.to_owned()));
    }
}

proptest! {
    /// Cutting a run anywhere does not change its cost, and twice the amounts cost twice as much.
    #[test]
    fn costs_add_up(
        from in -10_000_000_i64..10_000_000,
        seconds in 1_i64..5_000_000,
        cut in 0.0_f64..1.0,
        gpus in 0_u64..16,
    ) {
        let to = FEBRUARY + from + seconds;
        let from = FEBRUARY + from;
        let held = HeldAmounts {
            gpus,
            cpus: 3,
            mem_bytes: 7 << 30,
            gpu_watts: 210.0,
        };
        let twice = HeldAmounts {
            gpus: 2 * gpus,
            cpus: 6,
            mem_bytes: 14 << 30,
            gpu_watts: 420.0,
        };
        let at = from + (seconds as f64 * cut) as i64;
        let whole = rates().cost(&held, Some("a100"), from, to);
        let mut parts = rates().cost(&held, Some("a100"), from, at);
        parts.add(&rates().cost(&held, Some("a100"), at, to));
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(1.0);
        prop_assert!(
            close(whole.money, parts.money)
                && close(whole.kwh, parts.kwh)
                && close(whole.co2_grams, parts.co2_grams)
        );
        prop_assert!(close(
            rates().cost(&twice, Some("a100"), from, to).money,
            2.0 * whole.money
        ));
    }
}
