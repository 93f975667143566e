//! Costs of usage: rate cards with dates, from `takt.toml`.
//!
//! A card is valid from the first midnight of its date until the next card's. Usage before the
//! first card costs nothing. A run across two cards is charged by each for its part.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use takt_model::{ConfigError, UnixTime};

/// Prices of usage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RatesConfig {
    /// Currency shown after amounts: `EUR`, `credits`. Without it, reports show no money.
    pub currency: Option<String>,
    /// Rate cards. Each is valid from its date until the next one.
    pub cards: Vec<RateCard>,
}

/// Prices from a date on.
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
    /// A date is invalid, two cards have the same date, a rate is negative, or cards have prices
    /// without a currency.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut dates = Vec::new();
        for (at, card) in self.cards.iter().enumerate() {
            let in_card = |error: ConfigError| error.in_list("cards.", "cards", at);
            let date = card.validate().map_err(in_card)?;

            // Two cards from the same day would leave open which price counts.
            if dates.contains(&date) {
                let twice = ConfigError::new("from", "one card a date", &card.from);
                return Err(in_card(twice));
            }
            dates.push(date);

            if card.has_prices() && self.currency.is_none() {
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

impl RateCard {
    /// Checks the date and the rates, and returns the date.
    fn validate(&self) -> Result<Date, ConfigError> {
        let date = self
            .from
            .parse()
            .map_err(|_| ConfigError::new("from", "a date such as 2026-01-01", &self.from))?;

        let named = [
            ("gpu_hour", self.gpu_hour),
            ("cpu_hour", self.cpu_hour),
            ("mem_gib_hour", self.mem_gib_hour),
            ("kwh", self.kwh),
            ("co2_g_per_kwh", self.co2_g_per_kwh),
        ];
        let models = self
            .gpu_models
            .iter()
            .map(|(model, rate)| (model.as_str(), *rate));

        // NaN fails the comparison, so it is refused too.
        let is_wrong = |rate: f64| !(rate >= 0.0 && rate.is_finite());
        let mut rates = named.into_iter().chain(models);

        match rates.find(|(_, rate)| is_wrong(*rate)) {
            Some((key, rate)) => Err(ConfigError::new(key, "0 or more", rate)),
            None => Ok(date),
        }
    }

    /// Returns whether GPUs of a model cost nothing although GPUs of others have a price.
    pub fn lacks_price(&self, model: &str) -> bool {
        self.gpu_hour == 0.0 && !self.gpu_models.is_empty() && !self.gpu_models.contains_key(model)
    }

    fn has_prices(&self) -> bool {
        let prices = self.gpu_hour + self.cpu_hour + self.mem_gib_hour + self.kwh;
        prices > 0.0 || !self.gpu_models.is_empty()
    }
}

/// Amounts that a run held for some time, and the power it drew.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HeldAmounts {
    /// GPUs.
    pub gpus: u64,
    /// CPUs.
    pub cpus: u64,
    /// Memory in bytes.
    pub mem_bytes: u64,
    /// Mean power of the GPUs together, in watts.
    pub gpu_watts: f64,
}

/// Cost of usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Money for everything.
    pub money: f64,
    /// Money for the GPUs alone.
    pub gpu_money: f64,
    /// Measured energy of the GPUs, in kWh.
    pub kwh: f64,
    /// CO2 of that energy, in grams.
    pub co2_grams: f64,
}

impl Cost {
    /// Adds another cost.
    pub fn add(&mut self, other: &Self) {
        self.money += other.money;
        self.gpu_money += other.gpu_money;
        self.kwh += other.kwh;
        self.co2_grams += other.co2_grams;
    }
}

/// The rate cards in one cluster's time zone.
#[derive(Debug, Clone, Default)]
pub struct Rates {
    /// Start of validity and card, ascending.
    cards: Vec<(UnixTime, RateCard)>,
}

const HOUR: f64 = 3600.0;
const GIB: f64 = (1_u64 << 30) as f64;
const JOULES_PER_KWH: f64 = 3.6e6;

impl Rates {
    /// Converts a validated configuration.
    pub fn new(config: &RatesConfig, zone: &TimeZone) -> Self {
        let instant = |card: &RateCard| {
            let day: Date = card.from.parse().ok()?;
            Some(UnixTime::from(&day.to_zoned(zone.clone()).ok()?))
        };
        let mut cards: Vec<_> = config
            .cards
            .iter()
            .filter_map(|card| Some((instant(card)?, card.clone())))
            .collect();
        // The file may list cards in any order.
        cards.sort_by_key(|(from, _)| *from);
        Self { cards }
    }

    /// Returns each card with the start and the end of its validity, in order. The last
    /// card has no end.
    pub fn cards(&self) -> impl Iterator<Item = (UnixTime, Option<UnixTime>, &RateCard)> {
        let ends = self
            .cards
            .iter()
            .skip(1)
            .map(|(from, _)| Some(*from))
            .chain([None]);
        self.cards
            .iter()
            .zip(ends)
            .map(|((from, card), until)| (*from, until, card))
    }

    /// Returns the cost of holding these amounts from one instant to another.
    pub fn cost(
        &self,
        held: &HeldAmounts,
        model: Option<&str>,
        from: UnixTime,
        to: UnixTime,
    ) -> Cost {
        // Energy counts before the first card, too, where it costs nothing.
        let mut cost = Cost {
            kwh: kwh(held, from, to),
            ..Cost::default()
        };

        for (at, (begins, card)) in self.cards.iter().enumerate() {
            let ends = self
                .cards
                .get(at + 1)
                .map_or(UnixTime::MAX, |(next, _)| *next);
            let from = from.max(*begins);
            let to = to.min(ends);

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

    /// Returns the price of GPU-seconds and CPU-seconds at an instant.
    pub fn at(
        &self,
        gpu_seconds: f64,
        cpu_seconds: f64,
        model: Option<&str>,
        instant: UnixTime,
    ) -> f64 {
        // One second: prices do not depend on how long something is held.
        let second = |held: HeldAmounts| self.cost(&held, model, instant, instant + 1).money;
        let gpu = HeldAmounts {
            gpus: 1,
            ..HeldAmounts::default()
        };
        let cpu = HeldAmounts {
            cpus: 1,
            ..HeldAmounts::default()
        };
        gpu_seconds * second(gpu) + cpu_seconds * second(cpu)
    }

    /// Returns whether a card has a price.
    pub fn has_prices(&self) -> bool {
        self.cards.iter().any(|(_, card)| {
            card.gpu_hour + card.cpu_hour + card.mem_gib_hour + card.kwh > 0.0
                || !card.gpu_models.is_empty()
        })
    }

    /// Returns whether GPUs of a model cost nothing at some time of `[from, to)`, because a card has prices of other
    /// models and none of this one. A price of 0 is a price.
    pub fn lacks_price(&self, model: &str, from: UnixTime, to: UnixTime) -> bool {
        self.cards().any(|(begins, ends, card)| {
            let is_in_force = begins < to && ends.is_none_or(|ends| from < ends);
            is_in_force && card.lacks_price(model)
        })
    }

    /// Returns whether a card has a price for energy.
    pub fn price_energy(&self) -> bool {
        self.cards.iter().any(|(_, card)| card.kwh > 0.0)
    }

    /// Returns whether a card has CO2 per kWh.
    pub fn has_co2(&self) -> bool {
        self.cards.iter().any(|(_, card)| card.co2_g_per_kwh > 0.0)
    }
}

fn kwh(held: &HeldAmounts, from: UnixTime, to: UnixTime) -> f64 {
    held.gpu_watts * to.since(from) as f64 / JOULES_PER_KWH
}

#[cfg(test)]
mod tests;
