//! The cluster, the time zone and the period of a question.

use super::{AccountingConfig, AnswerError};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::de::{Error, IntoDeserializer};
use serde::{Deserialize, Deserializer};
use takt_accounting::{Period, period};
use takt_jobs::time_zone;
use takt_model::UnixTime;
use takt_store::{KnownCluster, Records};

/// Name of a cluster without a configured name.
pub const LOCAL_CLUSTER: &str = "local";

/// The time zone of a cluster's months and days: the configured, the recorded, or the system's.
pub(super) fn the_zone(
    cluster: &KnownCluster,
    config: &AccountingConfig,
) -> Result<TimeZone, AnswerError> {
    let configured = configured_zone(&cluster.cluster, config);
    match configured.or(cluster.timezone.as_deref()) {
        Some(name) => time_zone(name).map_err(AnswerError::failed),
        None => Ok(TimeZone::system()),
    }
}

/// The configured time zone of a cluster.
pub(super) fn configured_zone<'c>(cluster: &str, config: &'c AccountingConfig) -> Option<&'c str> {
    // Without a configured cluster, the configuration is about every one.
    let is_its = config.cluster.as_deref().is_none_or(|name| name == cluster);
    config.timezone.as_deref().filter(|_| is_its)
}

/// The period of a question: a month, the time between two times, or the month of `now`.
pub(super) fn the_period(
    month: &Option<String>,
    from: &Option<String>,
    to: &Option<String>,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<Period, AnswerError> {
    let period = match (month, from, to) {
        (Some(month), None, None) => Period::month(month, zone, now),
        (None, Some(from), Some(to)) => Period::span(from, to, zone, now),
        (None, None, None) => {
            let current = now.to_zoned(zone.clone()).strftime("%Y-%m").to_string();
            Period::month(&current, zone, now)
        }
        _ => {
            let error = "a period is a month, or from and to";
            return Err(AnswerError::Usage(error.to_owned()));
        }
    };

    period.map_err(AnswerError::usage)
}

/// Refuses a period of more days than this, where each of them takes memory or time.
///
/// # Errors
/// If it is longer.
pub(super) fn at_most_days(period: &Period, most: i64) -> Result<(), AnswerError> {
    // A day of a change of the clock has 25 hours.
    if period.to() - period.from() <= most * 86_400 + 3_600 {
        return Ok(());
    }
    Err(AnswerError::Usage(format!(
        "the period from {} to {} is too long to list each of its days: expected at most {most} days",
        period.from_text(),
        period.to_text()
    )))
}

/// The instant of a text, as periods of reports have it: a date (its midnight in `zone`), an RFC 3339 time, UTC
/// seconds, or a time relative to now.
///
/// # Errors
/// When the text is none of these.
pub(super) fn the_instant(text: &str, zone: &TimeZone) -> Result<UnixTime, AnswerError> {
    period::time(text, zone, Timestamp::now())
        .map(|zoned| UnixTime::from(&zoned))
        .map_err(AnswerError::usage)
}

/// Reads an instant of a question. The database holds none beyond the years of dates.
///
/// # Errors
/// If it is not a number of seconds, or beyond those years.
pub(super) fn read_instant<'de, D>(deserializer: D) -> Result<UnixTime, D::Error>
where
    D: Deserializer<'de>,
{
    let at = UnixTime::deserialize(deserializer)?;
    if Timestamp::try_from(at).is_err() {
        return Err(D::Error::custom(format!(
            "{at} is not a time: expected seconds since 1970, in the years -9999 to 9999"
        )));
    }
    Ok(at)
}

/// As [`read_instant`], where the instant is optional.
///
/// # Errors
/// As there.
pub(super) fn read_instant_if_set<'de, D>(deserializer: D) -> Result<Option<UnixTime>, D::Error>
where
    D: Deserializer<'de>,
{
    let at = Option::<UnixTime>::deserialize(deserializer)?;
    at.map(|at| read_instant(at.0.into_deserializer()))
        .transpose()
}

/// The start and the end of an interval of instants, where they are given.
///
/// # Errors
/// When a text is not a time, or the interval is empty.
pub(super) fn the_interval(
    from: Option<&str>,
    to: Option<&str>,
    zone: &TimeZone,
) -> Result<(Option<UnixTime>, Option<UnixTime>), AnswerError> {
    let instant = |text: Option<&str>| text.map(|text| the_instant(text, zone)).transpose();
    let from = instant(from)?;
    let to = instant(to)?;

    match (from, to) {
        (Some(begin), Some(end)) if end <= begin => Err(AnswerError::Usage(format!(
            "the time from {} to {} is empty: 'to' has to be later than 'from'",
            text_of(begin, zone),
            text_of(end, zone)
        ))),
        _ => Ok((from, to)),
    }
}

/// The instant as questions and options of commands take it.
pub(super) fn rfc3339(at: UnixTime) -> String {
    Timestamp::try_from(at).map_or_else(|_| at.to_string(), |at| at.to_string())
}

fn text_of(at: UnixTime, zone: &TimeZone) -> String {
    Timestamp::try_from(at)
        .unwrap_or_default()
        .to_zoned(zone.clone())
        .strftime("%Y-%m-%d %H:%M")
        .to_string()
}

/// The time zone of times in a question that may be about several clusters: the only cluster's, or
/// the configured one.
pub(super) fn the_common_zone(
    records: &Records<'_>,
    cluster: Option<&str>,
    config: &AccountingConfig,
) -> Result<TimeZone, AnswerError> {
    let known = records.clusters()?;
    let named = known.iter().find(|one| cluster == Some(&one.cluster));
    // With records of several clusters, times without an offset mean those of the configuration.
    let only = if known.len() == 1 {
        known.first()
    } else {
        None
    };
    match named.or(only) {
        Some(cluster) => the_zone(cluster, config),
        None => match &config.timezone {
            Some(name) => time_zone(name).map_err(AnswerError::failed),
            None => Ok(TimeZone::system()),
        },
    }
}

/// The cluster named `asked`. Without a name, the cluster `home` if it has records, or the only
/// cluster with records. The cluster `home` may have none.
pub(super) fn the_cluster(
    records: &Records<'_>,
    asked: Option<&str>,
    home: Option<&str>,
) -> Result<KnownCluster, AnswerError> {
    let mut known = records.clusters()?;

    let position = |name: &str| known.iter().position(|one| one.cluster == name);
    let only = (known.len() == 1).then_some(0);
    // A server without a name shows the only cluster.
    let is_any = asked.is_none() || asked == Some(LOCAL_CLUSTER) && asked == home;
    let found = match asked.and_then(position) {
        Some(at) => Some(at),
        None if is_any => home.and_then(position).or(only),
        None => None,
    };
    if let Some(at) = found {
        return Ok(known.swap_remove(at));
    }

    let unrecorded = |name: &str| KnownCluster {
        cluster: name.to_owned(),
        timezone: None,
    };
    match asked.or(home) {
        // An unknown cluster is a mistake, unless nothing is recorded or the server's own has no jobs yet.
        Some(name) if known.is_empty() || home == Some(name) => Ok(unrecorded(name)),
        Some(name) => Err(AnswerError::Usage(format!(
            "there are no records of a cluster {name}; known: {}",
            names_of(&known)
        ))),
        None if known.is_empty() => Ok(unrecorded(LOCAL_CLUSTER)),
        None => Err(AnswerError::Usage(format!(
            "there are records of several clusters ({}); choose one with --cluster",
            names_of(&known)
        ))),
    }
}

/// The names of clusters, separated by commas.
pub(super) fn names_of(clusters: &[KnownCluster]) -> String {
    let names: Vec<&str> = clusters.iter().map(|one| one.cluster.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{database, import};
    use takt_jobs::JobRun;

    /// Issue 28: an import stored into another cluster than the server's, and each page failed.
    #[test]
    fn the_servers_cluster_answers_beside_others() {
        let cluster = |known: &[&str], asked, home| {
            let (_folder, database) = database();
            let runs = known.iter().map(|cluster| JobRun {
                cluster: (*cluster).to_owned(),
                ..JobRun::default()
            });
            import(&database, None, runs);
            let found = the_cluster(&Records::of(&database), asked, home);
            found
                .map(|found| found.cluster)
                .map_err(|error| error.to_string())
        };

        let ok = |name: &str| Ok(name.to_owned());
        // Without records: no name, and the configured one.
        assert_eq!(cluster(&[], None, None), ok("local"));
        assert_eq!(cluster(&[], None, Some("lab")), ok("lab"));
        // Records of one cluster under another name, as of an import before the server had one.
        assert_eq!(cluster(&["local"], None, Some("lab")), ok("local"));
        assert_eq!(cluster(&["local"], Some("lab"), Some("lab")), ok("lab"));
        assert_eq!(cluster(&["a"], Some("local"), Some("local")), ok("a"));
        assert_eq!(
            cluster(&["a", "b"], Some("local"), Some("local")),
            ok("local")
        );
        // Several clusters: the server's own, with or without records, or the one that is asked for.
        assert_eq!(cluster(&["lab", "local"], None, Some("lab")), ok("lab"));
        assert_eq!(cluster(&["a", "b"], None, Some("lab")), ok("lab"));
        assert_eq!(cluster(&["a", "b"], Some("b"), Some("lab")), ok("b"));

        let several = cluster(&["a", "b"], None, None).unwrap_err();
        assert!(several.contains("several clusters (a, b)"), "{several}");

        let unknown = cluster(&["a", "b"], Some("c"), Some("a")).unwrap_err();
        assert!(
            unknown.contains("no records of a cluster c; known: a, b"),
            "{unknown}"
        );
    }
}
