//! Policy windows: hours in which jobs may not run on some nodes, such as a lab's desktops by day.

use super::Period;
use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use takt_jobs::{JobRun, nodelist};
use takt_model::{ConfigError, UnixTime};

/// Hours in which no job may run on some nodes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyWindow {
    /// Name of the policy in reports.
    pub name: String,
    /// Nodes in Slurm's notation: `desk[01-12]`.
    pub nodes: String,
    /// Days of the week in the cluster's time zone: `mon`, `tue`, … Empty: every day.
    pub days: Vec<String>,
    /// Start time, such as `08:00`.
    pub from: String,
    /// End time, such as `18:00`; on the next day if it is not later than `from`.
    pub to: String,
}

/// A run on forbidden nodes during forbidden hours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Breach {
    /// Name of the policy window.
    pub window: String,
    /// Job id.
    pub job_id: String,
    /// Job name.
    #[serde(default)]
    pub name: Option<String>,
    /// Unix user.
    pub user: String,
    /// Account.
    pub account: String,
    /// Nodes of the window that the run held.
    pub nodes: Vec<String>,
    /// Run time within the forbidden hours, in seconds.
    pub seconds: u64,
}

const DAYS: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

impl PolicyWindow {
    /// Checks that types cannot express: ranges and references between keys.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.read().map(|_| ())
    }

    fn read(&self) -> Result<(Vec<String>, Vec<Weekday>, Time, Time), ConfigError> {
        if self.name.trim().is_empty() {
            return Err(ConfigError::new("name", "a name", "nothing"));
        }

        let nodes = nodelist::expand(&self.nodes).map_err(|_| {
            ConfigError::new("nodes", "a list of nodes such as desk[01-12]", &self.nodes)
        })?;

        let day = |name: &String| {
            DAYS.iter()
                .find(|(known, _)| *known == name.to_lowercase())
                .map(|(_, day)| *day)
                .ok_or_else(|| {
                    ConfigError::new("days", "mon, tue, wed, thu, fri, sat or sun", name)
                })
        };

        let days = if self.days.is_empty() {
            DAYS.map(|(_, day)| day).to_vec()
        } else {
            self.days.iter().map(day).collect::<Result<_, _>>()?
        };

        let time = |key: &str, text: &String| {
            format!("{text}:00")
                .parse::<Time>()
                .ok()
                .filter(|_| text.len() == 5)
                .ok_or_else(|| ConfigError::new(key, "a time of day such as 08:00", text))
        };

        Ok((
            nodes,
            days,
            time("from", &self.from)?,
            time("to", &self.to)?,
        ))
    }

    /// Returns the forbidden times that begin in a period or on the day before it.
    fn times(&self, period: &Period, zone: &TimeZone) -> Vec<(UnixTime, UnixTime)> {
        let Ok((_, days, from, to)) = self.read() else {
            return Vec::new();
        };
        // A window of the night before may reach into the period.
        let Ok(mut date) = period.first_day().yesterday() else {
            return Vec::new();
        };

        let mut times = Vec::new();
        loop {
            // A window that ends before it begins ends on the next day.
            let ends_on = if to > from { Ok(date) } else { date.tomorrow() };

            let instant = |date: jiff::civil::Date, time: Time| {
                date.to_datetime(time)
                    .to_zoned(zone.clone())
                    .map(|at| UnixTime::from(&at))
            };

            let (Ok(begin), Ok(end)) = (
                instant(date, from),
                ends_on.and_then(|date| instant(date, to)),
            ) else {
                break;
            };

            if begin >= period.to() {
                break;
            }
            // A change of the clock may leave nothing of a short window.
            if days.contains(&date.weekday()) && end > begin {
                times.push((begin, end));
            }

            let Ok(next) = date.checked_add(1.day()) else {
                break;
            };
            date = next;
        }

        times
    }

    /// Returns the runs that broke the policy in a period, the longest first. Running jobs count
    /// until `now`.
    pub fn breaches(
        &self,
        runs: &[JobRun],
        period: &Period,
        zone: &TimeZone,
        now: Timestamp,
    ) -> Vec<Breach> {
        let nodes: HashSet<String> = self
            .read()
            .map(|(nodes, ..)| nodes)
            .unwrap_or_default()
            .into_iter()
            .collect();

        let times = self.times(period, zone);

        let breach = |run: &JobRun| {
            let start = run.start?.max(period.from());
            let end = run.end.unwrap_or(now.into()).min(period.to());
            let seconds: i64 = times
                .iter()
                .map(|(from, to)| (end.min(*to) - start.max(*from)).max(0))
                .sum();
            let held: Vec<String> = nodelist::expand(run.node_list.as_deref()?)
                .ok()?
                .into_iter()
                .filter(|node| nodes.contains(node))
                .collect();
            (seconds > 0 && !held.is_empty()).then(|| Breach {
                window: self.name.clone(),
                job_id: run.job_id.clone(),
                name: run.name.clone(),
                user: run.user.clone(),
                account: run.account.clone(),
                nodes: held,
                seconds: seconds.cast_unsigned(),
            })
        };

        let mut found: Vec<Breach> = runs.iter().filter_map(breach).collect();
        found.sort_by(|a, b| {
            b.seconds
                .cmp(&a.seconds)
                .then_with(|| a.job_id.cmp(&b.job_id))
        });

        found
    }
}

#[cfg(test)]
mod tests;
