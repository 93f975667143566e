//! The view of the facts: this module rounds every number and chooses every word, and the template
//! only places them.

use super::facts::{Facts, GpuFacts, NodeFacts, QueueFacts};
use jiff::Timestamp;
use serde::Serialize;
use takt_accounting::Row;
use takt_store::FairsharePoint;

/// Maximum number of rows of the queue and of the top users. The page shows the number of the
/// others and the command that lists them.
const ROWS: usize = 10;

/// Minimum utilization of a busy GPU, as a ratio.
const BUSY_RATIO: f64 = 0.05;

#[derive(Debug, Serialize)]
pub struct View<'a> {
    cluster: &'a str,
    up: usize,
    gpus: usize,
    gpus_busy: usize,
    nodes: Vec<Node<'a>>,
    month: Month<'a>,
    shares: Vec<Share<'a>>,
    shares_more: usize,
    queue: Option<Queue<'a>>,
    queue_empty: &'a str,
    health: Vec<Check>,
}

#[derive(Debug, Serialize)]
struct Node<'a> {
    name: &'a str,
    up: bool,
    trouble: &'a str,
    meters: Vec<Meter>,
    gpus: Vec<Gpu<'a>>,
}

#[derive(Debug, Serialize)]
struct Meter {
    name: &'static str,
    percent: u32,
}

#[derive(Debug, Serialize)]
struct Gpu<'a> {
    index: &'a str,
    up: bool,
    trouble: &'a str,
    title: String,
    /// Utilization in percent; `None` without a measurement.
    utilization: Option<u32>,
    memory: Option<u32>,
    memory_gib: String,
    user: String,
}

#[derive(Debug, Serialize)]
struct Month<'a> {
    name: &'a str,
    rows: Vec<User<'a>>,
    more: usize,
    nothing: &'a str,
}

#[derive(Debug, Serialize)]
struct User<'a> {
    user: &'a str,
    gpu_hours: String,
    cpu_hours: String,
    jobs: u64,
    waited: String,
}

/// A user's fair share.
#[derive(Debug, Serialize)]
struct Share<'a> {
    user: &'a str,
    account: &'a str,
    fair_share: String,
    level_fs: String,
}

#[derive(Debug, Serialize)]
struct Queue<'a> {
    running: usize,
    pending: usize,
    jobs: Vec<Job<'a>>,
    more: usize,
}

#[derive(Debug, Serialize)]
struct Job<'a> {
    id: &'a str,
    user: &'a str,
    partition: &'a str,
    state: String,
    gpus: String,
    since: String,
}

/// One line about the collector's health.
#[derive(Debug, Serialize)]
struct Check {
    class: &'static str,
    mark: &'static str,
    text: String,
}

impl<'a> View<'a> {
    pub fn of(facts: &'a Facts) -> Self {
        let gpus = || facts.nodes.iter().flat_map(|node| &node.gpus);
        Self {
            cluster: &facts.cluster,
            up: facts
                .nodes
                .iter()
                .filter(|node| node.trouble.is_none())
                .count(),
            gpus: gpus().count(),
            gpus_busy: gpus()
                .filter(|gpu| {
                    gpu.utilization_ratio
                        .is_some_and(|ratio| ratio > BUSY_RATIO)
                })
                .count(),
            nodes: facts.nodes.iter().map(Node::of).collect(),
            month: Month::of(facts),
            shares: facts.shares.iter().take(ROWS).map(Share::of).collect(),
            shares_more: facts.shares.len().saturating_sub(ROWS),
            queue: facts
                .queue
                .as_ref()
                .map(|queue| Queue::of(queue, facts.now.timestamp())),
            queue_empty: match facts.queue {
                Some(_) => "Nothing is running or waiting.",
                None => "No scheduler: this machine has no Slurm, and takt.toml configures none.",
            },
            health: facts
                .health
                .iter()
                .map(|(good, text)| Check::of(*good, text))
                .collect(),
        }
    }
}

impl<'a> Node<'a> {
    fn of(facts: &'a NodeFacts) -> Self {
        let meters = [
            ("CPU", facts.cpu_busy_ratio),
            ("mem", facts.memory_used_ratio),
        ];
        Self {
            name: &facts.name,
            up: facts.trouble.is_none(),
            trouble: facts.trouble.as_deref().unwrap_or_default(),
            meters: meters
                .into_iter()
                .filter_map(|(name, ratio)| {
                    Some(Meter {
                        name,
                        percent: percent(ratio?),
                    })
                })
                .collect(),
            gpus: facts.gpus.iter().map(Gpu::of).collect(),
        }
    }
}

impl<'a> Gpu<'a> {
    fn of(facts: &'a GpuFacts) -> Self {
        let memory = facts.memory_used_bytes.zip(facts.memory_total_bytes);
        let readings = [
            facts
                .temperature_celsius
                .map(|celsius| format!("{celsius:.0} °C")),
            facts.power_watts.map(|watts| format!("{watts:.0} W")),
        ];
        let title: Vec<String> = [facts.model.clone(), facts.uuid.clone()]
            .into_iter()
            .chain(readings.into_iter().flatten())
            .chain(facts.commands.iter().cloned())
            .collect();
        Self {
            index: &facts.index,
            up: facts.trouble.is_none(),
            trouble: facts.trouble.as_deref().unwrap_or_default(),
            title: title.join(" · "),
            utilization: facts.utilization_ratio.map(percent),
            memory: memory.map(|(used, total)| percent(used / total)),
            memory_gib: memory.map_or_else(String::new, |(used, total)| {
                format!("{:.0}/{:.0} G", gib(used), gib(total))
            }),
            user: facts.users.join(", "),
        }
    }
}

impl<'a> Month<'a> {
    fn of(facts: &'a Facts) -> Self {
        let rows = facts.month.as_ref().map_or(&[][..], |report| &report.rows);
        let users: Vec<User<'_>> = rows.iter().filter_map(User::of).collect();
        let more = users.len().saturating_sub(ROWS);
        let nothing = match facts.queue {
            Some(_) => "No job has run this month.",
            None => "No job records yet: takt import sacct FILE, or a Slurm on this machine.",
        };
        Self {
            name: &facts.month_name,
            rows: users.into_iter().take(ROWS).collect(),
            more,
            nothing,
        }
    }
}

impl<'a> User<'a> {
    /// Returns `None` for a user who has only pending jobs.
    fn of(row: &'a Row) -> Option<Self> {
        let figures = &row.figures;
        let user = row
            .group
            .0
            .first()
            .and_then(|(_, user)| user.as_deref())
            .unwrap_or("-");
        (figures.jobs_running > 0).then(|| Self {
            user,
            gpu_hours: figures
                .gpu_hours
                .map_or_else(|| "?".into(), |hours| format!("{hours:.1}")),
            cpu_hours: format!("{:.1}", figures.cpu_hours),
            jobs: figures.jobs_running,
            waited: match i64::try_from(figures.jobs_started) {
                Ok(started @ 1..) => duration((figures.wait_seconds / started).max(0)),
                _ => String::new(),
            },
        })
    }
}

impl<'a> Share<'a> {
    fn of(row: &'a FairsharePoint) -> Self {
        let number =
            |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
        Self {
            user: row.user.as_deref().unwrap_or_default(),
            account: &row.account,
            fair_share: number(row.fair_share),
            level_fs: number(row.level_fs),
        }
    }
}

impl<'a> Queue<'a> {
    fn of(facts: &'a QueueFacts, now: Timestamp) -> Self {
        let jobs = facts.runs.iter().take(ROWS).map(|run| {
            let since = now.as_second() - run.start.unwrap_or(run.submit);
            Job {
                id: &run.job_id,
                user: &run.user,
                partition: &run.partition,
                state: run.state.to_lowercase(),
                gpus: run.gpus.map_or_else(String::new, |gpus| gpus.to_string()),
                since: duration(since.max(0)),
            }
        });
        Self {
            running: facts.running,
            pending: facts.pending,
            jobs: jobs.collect(),
            more: (facts.running + facts.pending).saturating_sub(ROWS.min(facts.runs.len())),
        }
    }
}

impl Check {
    fn of(good: bool, text: &str) -> Self {
        if good {
            Self {
                class: "ok good",
                mark: "✓",
                text: text.to_owned(),
            }
        } else {
            Self {
                class: "ok bad",
                mark: "✗",
                text: text.to_owned(),
            }
        }
    }
}

fn percent(ratio: f64) -> u32 {
    (ratio.clamp(0.0, 1.0) * 100.0).round() as u32
}

fn gib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 30)
}

/// Formats a duration with at most two units.
fn duration(seconds: i64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let said: Vec<String> = [5, 65, 3_700, 90_000].into_iter().map(duration).collect();
        assert_eq!(said, ["5 s", "1 min", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn missing_measurements_are_not_zero() {
        let unknown = GpuFacts {
            uuid: "GPU-1".into(),
            ..GpuFacts::default()
        };
        assert_eq!(
            (Gpu::of(&unknown).utilization, Gpu::of(&unknown).memory),
            (None, None)
        );
        let idle = GpuFacts {
            utilization_ratio: Some(0.0),
            ..GpuFacts::default()
        };
        assert_eq!(Gpu::of(&idle).utilization, Some(0));
    }

    #[test]
    fn percents_stay_inside() {
        assert_eq!([-0.1, 0.004, 0.5, 1.2].map(percent), [0, 0, 50, 100]);
    }
}
