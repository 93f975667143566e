//! Energy of a period: kWh, CO2 and money of the GPUs of finished runs, by day and by group.

use super::period::{the_cluster, the_period, the_zone};
use super::{AnswerConfig, AnswerError, Question};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use takt_access::{Need, Owner, Viewer};
use takt_accounting::Rates;
use takt_accounting::energy::{Energy, energy};
use takt_model::UnixTime;
use takt_store::{Database, Records};

/// Asks for the energy of a period.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnergyQuestion {
    /// Month, `2026-10`. Default without a period: the current month.
    pub month: Option<String>,
    /// First day of the period.
    pub from: Option<String>,
    /// End of the period (exclusive).
    pub to: Option<String>,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

/// Energy of a period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnergyAnswer {
    /// Cluster.
    pub cluster: String,
    /// Name of the period: `2026-10`, or its days.
    pub period: String,
    /// First instant of the period.
    pub from: UnixTime,
    /// First instant after the period.
    pub to: UnixTime,
    /// Time zone of the period's days (IANA name).
    pub timezone: String,
    /// Currency. `None` without a price for energy.
    pub currency: Option<String>,
    /// Whether CO2 per kWh is configured.
    pub has_co2: bool,
    /// Energy of the finished runs.
    #[serde(flatten)]
    pub energy: Energy,
}

impl Question for EnergyQuestion {
    const PATH: &'static str = "/api/takt/v1/energy";
    const NEED: Need = Need::SignedIn;
    type Answer = EnergyAnswer;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<EnergyAnswer, AnswerError> {
        config.kept.answer(self, viewer, database, || {
            self.read(viewer, database, config)
        })
    }
}

impl EnergyQuestion {
    fn read(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<EnergyAnswer, AnswerError> {
        let records = Records::of(database);
        let known = the_cluster(
            &records,
            self.cluster.as_deref(),
            config.accounting.home.as_deref(),
        )?;
        let zone = the_zone(&known, &config.accounting)?;
        let cluster = known.cluster;
        let period = the_period(&self.month, &self.from, &self.to, &zone, Timestamp::now())?;
        let rates = Rates::new(&config.accounting.rates, &zone);

        let assessed = records.assessed(&cluster, period.from(), period.to())?;
        let mut energy = energy(&assessed, &period, &rates);
        energy
            // The totals are of all; only the rows of other users and accounts are left out.
            .users
            .retain(|part| viewer.sees_usage(Owner::new(&part.name, "")));
        energy
            .accounts
            .retain(|part| viewer.sees_usage(Owner::new("", &part.name)));

        Ok(EnergyAnswer {
            cluster,
            period: period.label(),
            from: period.from(),
            to: period.to(),
            timezone: period.zone_name(),
            currency: rates
                .price_energy()
                .then(|| config.accounting.rates.currency.clone())
                .flatten(),
            has_co2: rates.has_co2(),
            energy,
        })
    }
}
