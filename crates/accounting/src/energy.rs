//! Energy of the GPUs of finished runs in a period, with its CO2 and its price.

use crate::efficiency::AssessedRun;
use crate::rates::{Cost, HeldAmounts, Rates};
use crate::{Period, Unit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use takt_model::UnixTime;

/// Energy in a period. Only runs whose GPUs report power or energy are included.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// Energy of all runs.
    pub total: EnergyPart,
    /// Finished runs with GPUs that reported no energy.
    pub runs_unmeasured: u64,
    /// Energy by day, oldest first.
    pub days: Vec<EnergyPart>,
    /// Energy by user, largest first.
    pub users: Vec<EnergyPart>,
    /// Energy by account, largest first.
    pub accounts: Vec<EnergyPart>,
    /// Energy by GPU model, largest first.
    pub models: Vec<EnergyPart>,
}

/// Energy of a day, a user, an account or a GPU model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyPart {
    /// Date or name.
    pub name: String,
    /// Runs with measured energy.
    pub runs: u64,
    /// Energy of the GPUs, in kWh.
    pub kwh: f64,
    /// CO2 of that energy, in kg.
    pub co2_kg: f64,
    /// Price of that energy.
    pub money: f64,
    /// GPU-hours of the runs.
    pub gpu_hours: f64,
}

const HOUR: f64 = 3600.0;

impl EnergyPart {
    fn add(&mut self, cost: &Cost, gpu_hours: f64) {
        self.runs += 1;
        self.kwh += cost.kwh;
        self.co2_kg += cost.co2_grams / 1e3;
        self.money += cost.money - cost.gpu_money;
        self.gpu_hours += gpu_hours;
    }
}

/// Returns the energy of the runs within a period. A run's energy is spread evenly over its time.
pub fn energy<'r>(
    runs: impl IntoIterator<Item = &'r AssessedRun>,
    period: &Period,
    rates: &Rates,
) -> Energy {
    let slices = period.slices(Unit::Day);
    let mut found = Energy {
        days: slices
            .iter()
            .map(|slice| EnergyPart {
                name: slice.name.clone(),
                ..EnergyPart::default()
            })
            .collect(),
        ..Energy::default()
    };

    let mut users: BTreeMap<&str, EnergyPart> = BTreeMap::new();
    let mut accounts: BTreeMap<&str, EnergyPart> = BTreeMap::new();
    let mut models: BTreeMap<&str, EnergyPart> = BTreeMap::new();

    for AssessedRun { run, efficiency } in runs {
        let (Some(start), Some(end)) = (run.start, run.end) else {
            continue;
        };
        // A run outside of the period may come with those inside.
        if end <= period.from() || start >= period.to() {
            continue;
        }

        let gpus = run.gpus.unwrap_or(0);
        // A run without GPUs has no energy here, and none is missing.
        let Some(joules) = efficiency.gpu_energy_joules else {
            found.runs_unmeasured += u64::from(gpus > 0);
            continue;
        };

        // The power that gives the measured energy over the run's time: prices are by time.
        let held = HeldAmounts {
            gpus,
            gpu_watts: joules / efficiency.held_seconds.max(1) as f64,
            ..HeldAmounts::default()
        };
        let model = run.gpu_model.as_deref();

        // The part of a run within a period or a day.
        let between = |from: UnixTime, to: UnixTime| {
            let from = start.max(from);
            let to = end.min(to);
            let hours = (to - from) as f64 / HOUR * gpus as f64;
            (from < to).then(|| (rates.cost(&held, model, from, to), hours))
        };

        let Some((cost, hours)) = between(period.from(), period.to()) else {
            continue;
        };

        found.total.add(&cost, hours);
        users.entry(&run.user).or_default().add(&cost, hours);
        accounts.entry(&run.account).or_default().add(&cost, hours);
        models
            .entry(model.unwrap_or("unknown"))
            .or_default()
            .add(&cost, hours);

        // A run over several days is priced on each of them.
        for (slice, day) in slices.iter().zip(&mut found.days) {
            if let Some((cost, hours)) = between(slice.from, slice.to) {
                day.add(&cost, hours);
            }
        }
    }

    found.users = largest_first(users);
    found.accounts = largest_first(accounts);
    found.models = largest_first(models);
    found
}

fn largest_first(parts: BTreeMap<&str, EnergyPart>) -> Vec<EnergyPart> {
    let mut parts: Vec<EnergyPart> = parts
        .into_iter()
        .map(|(name, part)| EnergyPart {
            name: name.to_owned(),
            ..part
        })
        .collect();
    parts.sort_by(|a, b| b.kwh.total_cmp(&a.kwh));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::efficiency::Efficiency;
    use crate::{RateCard, RatesConfig};
    use jiff::tz::TimeZone;
    use takt_jobs::JobRun;

    #[test]
    fn days_add_up_to_the_total_and_money_is_of_the_energy_alone() {
        let now = jiff::Timestamp::from_second(10 * 86_400).unwrap();
        let period = Period::span("1970-01-02", "1970-01-04", &TimeZone::UTC, now).unwrap();
        let config = RatesConfig {
            currency: Some("EUR".into()),
            cards: vec![RateCard {
                gpu_hour: 1.0,
                kwh: 0.5,
                co2_g_per_kwh: 400.0,
                ..RateCard::default()
            }],
        };
        let rates = Rates::new(&config, &TimeZone::UTC);
        // 500 W for two days, from noon of the first of January to noon of the third.
        let run = |user: &str, joules: Option<f64>| AssessedRun {
            run: JobRun {
                user: user.into(),
                start: Some(UnixTime(43_200)),
                end: Some(UnixTime(43_200 + 2 * 86_400)),
                gpus: Some(2),
                ..JobRun::default()
            },
            efficiency: Efficiency {
                held_seconds: 2 * 86_400,
                gpu_energy_joules: joules,
                ..Efficiency::default()
            },
        };
        // The period cuts half a day off the beginning: 36 of 48 hours are in it.
        let runs = [run("ann", Some(500.0 * 2.0 * 86_400.0)), run("bob", None)];
        let found = energy(&runs, &period, &rates);
        assert_eq!(found.total.runs, 1);
        assert_eq!(found.runs_unmeasured, 1);
        assert!((found.total.kwh - 18.0).abs() < 1e-9, "{:?}", found.total);
        assert!((found.total.money - 9.0).abs() < 1e-9);
        assert!((found.total.co2_kg - 7.2).abs() < 1e-9);
        let days: Vec<f64> = found.days.iter().map(|day| day.kwh).collect();
        assert!(
            (days[0] - 12.0).abs() < 1e-9 && (days[1] - 6.0).abs() < 1e-9,
            "{days:?}"
        );
        assert_eq!(found.users[0].name, "ann");
        assert_eq!(found.total.gpu_hours, 72.0);
    }
}
