//! The cluster that a server or a data directory is about.

use super::period::{the_cluster, the_zone};
use super::{AccountingConfig, AnswerConfig, AnswerError, Question};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use takt_access::{Need, Viewer};
use takt_jobs::time_zone;
use takt_model::UnixTime;
use takt_store::{Database, Records};

/// Asks for the cluster's name and time zone, and the version of the program that answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AboutQuestion {}

/// The cluster and the program that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboutAnswer {
    /// Name of the cluster; `None` if the records have several and none is configured.
    pub cluster: Option<String>,
    /// Time zone (IANA name) of the cluster's days and months; `None` if it has no name.
    pub timezone: Option<String>,
    /// First submission of the recorded jobs; `None` without records.
    #[serde(default)]
    pub records_from: Option<UnixTime>,
    /// Version of the answering program, such as `0.1.0`.
    pub version: String,
}

impl Question for AboutQuestion {
    const PATH: &'static str = "/api/takt/v1/about";
    const NEED: Need = Need::SignedIn;
    type Answer = AboutAnswer;
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<AboutAnswer, AnswerError> {
        about(database, config)
    }
}

/// Returns the cluster's name and time zone.
///
/// # Errors
/// When the store fails.
pub fn about(database: &Database, config: &AnswerConfig) -> Result<AboutAnswer, AnswerError> {
    let accounting = &config.accounting;
    let records = Records::of(database);
    let known = the_cluster(&records, None, accounting.home.as_deref());
    let (recorded, zone) = match known {
        Ok(known) => (Some(known.cluster.clone()), the_zone(&known, accounting)?),
        // Each of the clusters could be meant, so the answer names none and has the server's time zone.
        // Records of several clusters.
        Err(AnswerError::Usage(_)) => (None, configured_or_system(accounting)?),
        Err(error) => return Err(error),
    };

    let extent = recorded
        .as_deref()
        .map(|name| records.extent(name))
        .transpose()?
        .flatten()
        .map(|(from, _)| from);
    Ok(AboutAnswer {
        records_from: extent,
        cluster: accounting.cluster.clone().or(recorded),
        timezone: zone.iana_name().map(str::to_owned),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

fn configured_or_system(config: &AccountingConfig) -> Result<TimeZone, AnswerError> {
    match &config.timezone {
        Some(name) => time_zone(name).map_err(AnswerError::failed),
        None => Ok(TimeZone::system()),
    }
}
