//! Policy windows: hours in which jobs may not run on some nodes, such as a lab's desktops by day.

use super::Period;
use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use takt_model::ConfigError;
use takt_slurm::{JobRun, nodelist};

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

/// A run that was on such a node in such an hour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Breach {
    /// The window's name.
    pub window: String,
    /// The job.
    pub job_id: String,
    /// Its user.
    pub user: String,
    /// Its account.
    pub account: String,
    /// The nodes of the window that it held.
    pub nodes: Vec<String>,
    /// Seconds within the window's hours.
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
    /// The first key that is not what it should be.
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
            let found = DAYS
                .iter()
                .find(|(known, _)| *known == name.to_lowercase())
                .map(|(_, day)| *day);
            found.ok_or_else(|| {
                ConfigError::new("days", "mon, tue, wed, thu, fri, sat or sun", name)
            })
        };
        let days = match self.days.is_empty() {
            true => DAYS.map(|(_, day)| day).to_vec(),
            false => self.days.iter().map(day).collect::<Result<_, _>>()?,
        };
        let time = |key: &str, text: &String| {
            let time = format!("{text}:00")
                .parse::<Time>()
                .ok()
                .filter(|_| text.len() == 5);
            time.ok_or_else(|| ConfigError::new(key, "a time of day such as 08:00", text))
        };
        Ok((
            nodes,
            days,
            time("from", &self.from)?,
            time("to", &self.to)?,
        ))
    }

    /// The forbidden times that begin in a period or on the day before it, as UTC seconds.
    fn times(&self, period: &Period, zone: &TimeZone) -> Vec<(i64, i64)> {
        let Ok((_, days, from, to)) = self.read() else {
            return Vec::new();
        };
        let Ok(mut date) = period.first_day().yesterday() else {
            return Vec::new();
        };
        let mut times = Vec::new();
        loop {
            let ends_on = if to > from { Ok(date) } else { date.tomorrow() };
            let instant = |date: jiff::civil::Date, time: Time| {
                date.to_datetime(time)
                    .to_zoned(zone.clone())
                    .map(|at| at.timestamp().as_second())
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

    /// The runs that broke the rule in a period, the longest first. A run that goes on counts up to `now`.
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
            let end = run.end.unwrap_or(now.as_second()).min(period.to());
            let seconds: i64 = times
                .iter()
                .map(|(from, to)| (end.min(*to) - start.max(*from)).max(0))
                .sum();
            let held = nodelist::expand(run.node_list.as_deref()?).ok()?;
            let held: Vec<String> = held
                .into_iter()
                .filter(|node| nodes.contains(node))
                .collect();
            (seconds > 0 && !held.is_empty()).then(|| Breach {
                window: self.name.clone(),
                job_id: run.job_id.clone(),
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
mod tests {
    use super::*;

    fn window(days: &[&str], from: &str, to: &str) -> PolicyWindow {
        PolicyWindow {
            name: "desks by day".into(),
            nodes: "desk[1-2]".into(),
            days: days.iter().map(|day| (*day).to_owned()).collect(),
            from: from.into(),
            to: to.into(),
        }
    }

    /// Seconds of breach of a run on these nodes, from and to instants in Oslo.
    fn seconds(window: &PolicyWindow, nodes: &str, from: &str, to: Option<&str>) -> Vec<u64> {
        let zone = TimeZone::get("Europe/Oslo").unwrap();
        let at = |text: &str| {
            text.parse::<jiff::civil::DateTime>()
                .unwrap()
                .to_zoned(zone.clone())
                .unwrap()
                .timestamp()
        };
        let now = at("2026-11-15T12:00");
        let period = Period::month("2026-10", &zone, now).unwrap();
        let run = JobRun {
            job_id: "7".into(),
            node_list: Some(nodes.into()),
            start: Some(at(from).as_second()),
            end: to.map(|to| at(to).as_second()),
            ..JobRun::default()
        };
        window
            .breaches(&[run], &period, &zone, now)
            .iter()
            .map(|breach| breach.seconds)
            .collect()
    }

    #[test]
    fn desks_by_day() {
        let by_day = window(&["mon", "tue", "wed", "thu", "fri"], "08:00", "18:00");
        // Monday 5 October, 06:00 to 10:30.
        assert_eq!(
            seconds(
                &by_day,
                "desk1,gpu7",
                "2026-10-05T06:00",
                Some("2026-10-05T10:30")
            ),
            [9000]
        );
        assert_eq!(
            seconds(
                &by_day,
                "gpu7",
                "2026-10-05T06:00",
                Some("2026-10-05T10:30")
            ),
            [0; 0]
        );
        // The night, and Saturday.
        assert_eq!(
            seconds(
                &by_day,
                "desk1",
                "2026-10-05T18:00",
                Some("2026-10-06T08:00")
            ),
            [0; 0]
        );
        assert_eq!(
            seconds(
                &by_day,
                "desk2",
                "2026-10-03T08:00",
                Some("2026-10-03T18:00")
            ),
            [0; 0]
        );
        // Two days of it, cut at the month's end though it goes on.
        assert_eq!(
            seconds(&by_day, "desk[1-2]", "2026-10-29T17:00", None),
            [11 * 3600]
        );
    }

    #[test]
    fn a_night_that_has_an_hour_more() {
        let by_night = window(&[], "22:00", "06:00");
        assert_eq!(
            seconds(
                &by_night,
                "desk1",
                "2026-10-24T22:00",
                Some("2026-10-25T06:00")
            ),
            [9 * 3600]
        );
        // The night before the month's first day reaches into it.
        assert_eq!(
            seconds(
                &by_night,
                "desk1",
                "2026-10-01T00:00",
                Some("2026-10-01T07:00")
            ),
            [6 * 3600]
        );
    }

    #[test]
    fn what_is_no_window() {
        let error = |change: fn(&mut PolicyWindow)| {
            let mut window = window(&["mon"], "08:00", "18:00");
            change(&mut window);
            window.validate().unwrap_err().to_string()
        };
        assert_eq!(
            error(|w| w.name.clear()),
            "name: expected a name, found nothing"
        );
        assert_eq!(
            error(|w| w.nodes = "a[".into()),
            "nodes: expected a list of nodes such as desk[01-12], found a["
        );
        assert_eq!(
            error(|w| w.days = vec!["Monday".into()]),
            "days: expected mon, tue, wed, thu, fri, sat or sun, found Monday"
        );
        assert_eq!(
            error(|w| w.to = "8".into()),
            "to: expected a time of day such as 08:00, found 8"
        );
        assert_eq!(
            error(|w| w.from = "25:00".into()),
            "from: expected a time of day such as 08:00, found 25:00"
        );
    }
}
