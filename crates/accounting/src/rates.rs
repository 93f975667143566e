//! What usage costs: rate cards with dates, from `takt.toml`.
//!
//! A card is in force from the first midnight of its date until the next one's; before the first card nothing costs
//! anything. A run that spans two cards is charged at each for its part.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use takt_model::ConfigError;

/// What usage costs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RatesConfig {
    /// Currency shown after amounts: `EUR`, `credits`. Without it, reports show no money.
    pub currency: Option<String>,
    /// Rate cards. Each is valid from its date until the next one.
    pub cards: Vec<RateCard>,
}

/// What things cost from a date on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateCard {
    /// First day on which the card is valid, such as `2026-01-01`.
    pub from: String,
    /// Price of one GPU-hour, for models that `gpu_models` does not list.
    pub gpu_hour: f64,
    /// Price of one GPU-hour by GPU model, as the scheduler names the model: `{ a100 = 1.2 }`.
    pub gpu_models: BTreeMap<String, f64>,
    /// Price of one CPU-hour.
    pub cpu_hour: f64,
    /// Price of one GiB of memory for an hour.
    pub mem_gib_hour: f64,
    /// Price of one kWh drawn by the GPUs; 0 if the other prices include energy.
    pub kwh: f64,
    /// Grams of CO2 per kWh.
    pub co2_g_per_kwh: f64,
}

impl Default for RateCard {
    fn default() -> Self {
        Self {
            from: "1970-01-01".into(),
            gpu_hour: 0.0,
            gpu_models: BTreeMap::new(),
            cpu_hour: 0.0,
            mem_gib_hour: 0.0,
            kwh: 0.0,
            co2_g_per_kwh: 0.0,
        }
    }
}

impl RatesConfig {
    /// Checks that types cannot express: ranges and references between keys.
    ///
    /// # Errors
    /// A date that is none, two cards of one date, a negative rate, a card without a currency.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut dates = Vec::new();
        for card in &self.cards {
            let date: Date = card.from.parse().map_err(|_| {
                ConfigError::new("cards.from", "a date such as 2026-01-01", &card.from)
            })?;
            if dates.contains(&date) {
                return Err(ConfigError::new(
                    "cards.from",
                    "one card a date",
                    &card.from,
                ));
            }
            dates.push(date);
            let named = [
                ("gpu_hour", card.gpu_hour),
                ("cpu_hour", card.cpu_hour),
                ("mem_gib_hour", card.mem_gib_hour),
                ("kwh", card.kwh),
                ("co2_g_per_kwh", card.co2_g_per_kwh),
            ];
            let models = card
                .gpu_models
                .iter()
                .map(|(model, rate)| (model.as_str(), *rate));
            if let Some((key, rate)) = named
                .into_iter()
                .chain(models)
                .find(|(_, rate)| !(*rate >= 0.0 && rate.is_finite()))
            {
                return Err(ConfigError::new(format!("cards.{key}"), "0 or more", rate));
            }
            let costs = card.gpu_hour + card.cpu_hour + card.mem_gib_hour + card.kwh > 0.0
                || !card.gpu_models.is_empty();
            if costs && self.currency.is_none() {
                return Err(ConfigError::new(
                    "currency",
                    "a name such as EUR, since the cards have prices",
                    "nothing",
                ));
            }
        }
        Ok(())
    }
}

/// What was held for some time, or drawn in it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Held {
    /// GPUs.
    pub gpus: u64,
    /// CPUs.
    pub cpus: u64,
    /// Memory.
    pub mem_bytes: u64,
    /// Mean power of its GPUs.
    pub gpu_watts: f64,
}

/// What that makes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Money for what was held and drawn.
    pub money: f64,
    /// Money for the GPUs alone.
    pub gpu_money: f64,
    /// Energy of the GPUs, as far as it was measured.
    pub kwh: f64,
    /// CO2 of that.
    pub co2_grams: f64,
}

impl Cost {
    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.money += other.money;
        self.gpu_money += other.gpu_money;
        self.kwh += other.kwh;
        self.co2_grams += other.co2_grams;
    }
}

/// The rates in one cluster's time zone.
#[derive(Debug, Clone, Default)]
pub struct Rates {
    /// Instants from which cards are in force (UTC seconds), ascending.
    cards: Vec<(i64, RateCard)>,
}

const HOUR: f64 = 3600.0;
const GIB: f64 = (1_u64 << 30) as f64;
const JOULES_PER_KWH: f64 = 3.6e6;

impl Rates {
    /// The cards of a configuration that was validated.
    pub fn new(config: &RatesConfig, zone: &TimeZone) -> Self {
        let instant = |card: &RateCard| {
            Some(
                card.from
                    .parse::<Date>()
                    .ok()?
                    .to_zoned(zone.clone())
                    .ok()?
                    .timestamp()
                    .as_second(),
            )
        };
        let mut cards: Vec<_> = config
            .cards
            .iter()
            .filter_map(|card| Some((instant(card)?, card.clone())))
            .collect();
        cards.sort_by_key(|(from, _)| *from);
        Self { cards }
    }

    /// What holding this from one instant to another (UTC seconds) costs.
    pub fn cost(&self, held: &Held, model: Option<&str>, from: i64, to: i64) -> Cost {
        let mut cost = Cost {
            kwh: kwh(held, from, to),
            ..Cost::default()
        };
        for (at, (begins, card)) in self.cards.iter().enumerate() {
            let ends = self.cards.get(at + 1).map_or(i64::MAX, |(next, _)| *next);
            let (from, to) = (from.max(*begins), to.min(ends));
            if from < to {
                let hours = (to - from) as f64 / HOUR;
                let gpu_hour = model
                    .and_then(|model| card.gpu_models.get(model))
                    .unwrap_or(&card.gpu_hour);
                let kwh = kwh(held, from, to);
                let gpu_money = held.gpus as f64 * gpu_hour * hours;
                cost.gpu_money += gpu_money;
                cost.money += gpu_money + kwh * card.kwh;
                cost.money += (held.cpus as f64 * card.cpu_hour
                    + held.mem_bytes as f64 / GIB * card.mem_gib_hour)
                    * hours;
                cost.co2_grams += kwh * card.co2_g_per_kwh;
            }
        }
        cost
    }

    /// What so many GPU-seconds and CPU-seconds cost at an instant (UTC seconds).
    pub fn at(&self, gpu_seconds: f64, cpu_seconds: f64, model: Option<&str>, instant: i64) -> f64 {
        let second = |held: Held| {
            self.cost(&held, model, instant, instant.saturating_add(1))
                .money
        };
        let (gpu, cpu) = (
            Held {
                gpus: 1,
                ..Held::default()
            },
            Held {
                cpus: 1,
                ..Held::default()
            },
        );
        gpu_seconds * second(gpu) + cpu_seconds * second(cpu)
    }

    /// Whether a card gives a price to anything.
    pub fn has_prices(&self) -> bool {
        self.cards.iter().any(|(_, card)| {
            card.gpu_hour + card.cpu_hour + card.mem_gib_hour + card.kwh > 0.0
                || !card.gpu_models.is_empty()
        })
    }

    /// Whether a card gives a price to energy.
    pub fn price_energy(&self) -> bool {
        self.cards.iter().any(|(_, card)| card.kwh > 0.0)
    }

    /// Whether a card says how much CO2 a kWh is.
    pub fn has_co2(&self) -> bool {
        self.cards.iter().any(|(_, card)| card.co2_g_per_kwh > 0.0)
    }
}

fn kwh(held: &Held, from: i64, to: i64) -> f64 {
    held.gpu_watts * to.saturating_sub(from).max(0) as f64 / JOULES_PER_KWH
}

#[cfg(test)]
mod tests {
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
    const FEBRUARY: i64 = 1_769_900_400;

    #[test]
    fn a_run_across_two_cards_is_charged_at_each() {
        let held = Held {
            gpus: 2,
            cpus: 10,
            mem_bytes: 100 << 30,
            gpu_watts: 500.0,
        };
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
        assert_eq!(rates().cost(&held, None, 0, 3600).money, 0.0);
    }

    #[test]
    fn what_is_no_rate_card() {
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
        /// Cutting a run anywhere changes nothing, and twice as much costs twice as much.
        #[test]
        fn costs_add_up(from in -10_000_000_i64..10_000_000, seconds in 1_i64..5_000_000, cut in 0.0_f64..1.0, gpus in 0_u64..16) {
            let (from, to) = (FEBRUARY + from, FEBRUARY + from + seconds);
            let held = Held { gpus, cpus: 3, mem_bytes: 7 << 30, gpu_watts: 210.0 };
            let twice = Held { gpus: 2 * gpus, cpus: 6, mem_bytes: 14 << 30, gpu_watts: 420.0 };
            let at = from + (seconds as f64 * cut) as i64;
            let whole = rates().cost(&held, Some("a100"), from, to);
            let mut parts = rates().cost(&held, Some("a100"), from, at);
            parts.add(&rates().cost(&held, Some("a100"), at, to));
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(1.0);
            prop_assert!(close(whole.money, parts.money) && close(whole.kwh, parts.kwh) && close(whole.co2_grams, parts.co2_grams));
            prop_assert!(close(rates().cost(&twice, Some("a100"), from, to).money, 2.0 * whole.money));
        }
    }
}
