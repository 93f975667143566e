//! Readings of a node or a GPU over time, and the jobs that held its GPUs.

use super::gpu::held;
use super::period::the_cluster;
use super::{AnswerConfig, AnswerError, GpuHeld, Question};
use crate::query_memory::account_of;
use crate::query_memory::evaluation_memory;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use takt_access::{Need, Viewer};
use takt_accounting::efficiency::{Axis, Curve};
use takt_model::UnixTime;
use takt_promql::{Error, Limits, Options, Source, Value, quoted};
use takt_store::{MemoryAccount, Records, Store};

/// Maximum number of steps of a curve.
const MOST_STEPS: usize = 1000;

/// Shortest step of a curve, in milliseconds.
const SHORTEST_STEP_MS: i64 = 15_000;

/// Shortest window of a mean, in milliseconds: a slow scrape still leaves two samples in it.
const SHORTEST_WINDOW_MS: i64 = 120_000;

/// Longest history, in seconds: a century. PromQL's durations end at three.
const LONGEST_SECONDS: i64 = 36_525 * 86_400;

/// Maximum time for reading one curve.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of periods that are listed.
const MOST_HOLDS: usize = 500;

/// Asks for the history of a node or of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HistoryQuestion {
    /// Name of the node; without `uuid`.
    pub node: Option<String>,
    /// UUID of the GPU; without `node`.
    pub uuid: Option<String>,
    /// Begin.
    #[serde(deserialize_with = "crate::period::read_instant")]
    pub from: UnixTime,
    /// End.
    #[serde(deserialize_with = "crate::period::read_instant")]
    pub to: UnixTime,
    /// Maximum number of steps of a curve; 0 for the usual number.
    pub steps: usize,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

/// The history of a node or of a GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryAnswer {
    /// Time axis of the curves.
    pub axis: Axis,
    /// Readings that were measured.
    pub curves: Vec<HistoryCurve>,
    /// Periods in which jobs held GPUs of the node, or the GPU, the newest first.
    pub holds: Vec<GpuHeld>,
}

/// A reading over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryCurve {
    /// Name of the reading.
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// Greatest possible value; `None` without one.
    pub most: Option<f64>,
    /// Last measured value.
    pub last: f64,
    /// Highest measured value.
    pub highest: f64,
    /// Means by step.
    pub values: Curve,
}

/// A reading: its name, its unit, its expression, and that of its greatest possible value (empty
/// without one). `SELECT` stands for the label matcher, `WINDOW` for the length of a step.
type Reading = (&'static str, &'static str, &'static str, &'static str);

const OF_NODE: &[Reading] = &[
    (
        "CPUs busy",
        "ratio",
        // A share of the counted time, not of the clock's: at the edges of a gap, uncounted time is not busy.
        "1 - sum(rate(node_cpu_seconds_total{mode=\"idle\",SELECT}[WINDOW])) \
         / sum(rate(node_cpu_seconds_total{SELECT}[WINDOW]))",
        "1",
    ),
    (
        "Memory used",
        "bytes",
        "sum(avg_over_time(node_memory_MemTotal_bytes{SELECT}[WINDOW])) \
         - sum(avg_over_time(node_memory_MemAvailable_bytes{SELECT}[WINDOW]))",
        "max(max_over_time(node_memory_MemTotal_bytes{SELECT}[WINDOW]))",
    ),
    (
        "GPU utilization, mean",
        "ratio",
        "avg(avg_over_time(takt_gpu_utilization_ratio{SELECT}[WINDOW]))",
        "1",
    ),
    (
        "GPU power, sum",
        "watts",
        "sum(avg_over_time(takt_gpu_power_watts{SELECT}[WINDOW]))",
        "",
    ),
    (
        "Network, received",
        "bytes/s",
        "sum(rate(node_network_receive_bytes_total{device!~\"lo|veth.*|docker.*|br-.*\",SELECT}[WINDOW]))",
        "",
    ),
    (
        "Network, sent",
        "bytes/s",
        "sum(rate(node_network_transmit_bytes_total{device!~\"lo|veth.*|docker.*|br-.*\",SELECT}[WINDOW]))",
        "",
    ),
    (
        "Disks, read and written",
        "bytes/s",
        "sum(rate(node_disk_read_bytes_total{SELECT}[WINDOW])) \
         + sum(rate(node_disk_written_bytes_total{SELECT}[WINDOW]))",
        "",
    ),
    (
        "NFS, time of a request",
        "seconds",
        "sum(rate(node_mountstats_nfs_operations_request_time_seconds_total{SELECT}[WINDOW])) \
         / sum(rate(node_mountstats_nfs_operations_requests_total{SELECT}[WINDOW]))",
        "",
    ),
];

const OF_GPU: &[Reading] = &[
    (
        "Utilization",
        "ratio",
        "avg(avg_over_time(takt_gpu_utilization_ratio{SELECT}[WINDOW]))",
        "1",
    ),
    (
        "Memory used",
        "bytes",
        "avg(avg_over_time(takt_gpu_memory_used_bytes{SELECT}[WINDOW]))",
        "max(max_over_time(takt_gpu_memory_total_bytes{SELECT}[WINDOW]))",
    ),
    (
        "Power",
        "watts",
        "avg(avg_over_time(takt_gpu_power_watts{SELECT}[WINDOW]))",
        "max(max_over_time(takt_gpu_power_limit_watts{SELECT}[WINDOW]))",
    ),
    (
        "Temperature",
        "celsius",
        "max(avg_over_time(takt_gpu_temperature_celsius{sensor=\"gpu\",SELECT}[WINDOW]))",
        "",
    ),
];

impl Question for HistoryQuestion {
    const PATH: &'static str = "/api/takt/v1/history";
    const NEED: Need = Need::SignedIn;
    type Answer = HistoryAnswer;
    type Data = Store;

    fn answer(
        &self,
        viewer: &Viewer,
        store: &Store,
        config: &AnswerConfig,
    ) -> Result<HistoryAnswer, AnswerError> {
        if self.to <= self.from {
            let error = "the history ends before it begins".to_owned();
            return Err(AnswerError::Usage(error));
        }
        if self.to - self.from > LONGEST_SECONDS {
            let error = "the history is longer than a century".to_owned();
            return Err(AnswerError::Usage(error));
        }

        let records = Records::of(store.database());
        let asked = self
            .cluster
            .as_deref()
            .or(config.accounting.cluster.as_deref());
        let cluster = the_cluster(&records, asked, config.accounting.home.as_deref())?.cluster;
        // The name comes from the address of a page, so it is quoted: it must not become a part of the expression.
        let (selector, readings, holds) = match (&self.node, &self.uuid) {
            (Some(node), None) => {
                let holds = records.holds_of_node(&cluster, node, self.from, MOST_HOLDS)?;
                (format!("node={}", quoted(node)), OF_NODE, holds)
            }
            (None, Some(uuid)) => {
                let holds = records.holds_of_gpu(&cluster, uuid, MOST_HOLDS)?;
                (format!("uuid={}", quoted(uuid)), OF_GPU, holds)
            }
            _ => {
                let error = "ask for a node or for a uuid".to_owned();
                return Err(AnswerError::Usage(error));
            }
        };

        let steps = match self.steps {
            0 => 240,
            steps => steps.min(MOST_STEPS),
        };
        let axis = Axis::new(self.from.into(), self.to.into(), steps, SHORTEST_STEP_MS);
        Ok(HistoryAnswer {
            axis,
            curves: curves(
                store,
                readings,
                &selector,
                axis,
                &account_of(&config.memory, viewer),
            )?,
            holds: holds
                .into_iter()
                // A job that began before the period may still hold the GPU in it.
                .filter(|hold| hold.period[0] < self.to && hold.period[1] >= self.from)
                .map(|hold| held(viewer, hold))
                .collect(),
        })
    }
}

/// The readings that were measured within the axis.
fn curves(
    source: &dyn Source,
    readings: &[Reading],
    selector: &str,
    axis: Axis,
    memory: &MemoryAccount,
) -> Result<Vec<HistoryCurve>, AnswerError> {
    // A step may be shorter than the interval of the scrapes; its window is not.
    let window = format!("{}ms", axis.step_ms.max(SHORTEST_WINDOW_MS));
    let mut found = Vec::new();
    for (name, unit, expr, most) in readings {
        let of = |expr: &str| {
            let expr = expr.replace("SELECT", selector).replace("WINDOW", &window);
            curve(source, &expr, axis, memory)
        };
        let values = of(expr)?;
        // A reading without a value in the whole axis is left out, as that of hardware which the node lacks.
        let known: Vec<f64> = values.0.iter().copied().flatten().collect();
        let Some(last) = known.last().copied() else {
            continue;
        };
        // A limit may change in the period; the highest one fits all values.
        let most = match *most {
            "" => None,
            "1" => Some(1.0),
            expr => of(expr)?.0.into_iter().flatten().reduce(f64::max),
        };
        found.push(HistoryCurve {
            name: (*name).to_owned(),
            unit: (*unit).to_owned(),
            most,
            last,
            highest: known.into_iter().fold(last, f64::max),
            values,
        });
    }
    Ok(found)
}

/// The values of an expression without labels at the ends of the steps.
fn curve(
    source: &dyn Source,
    expr: &str,
    axis: Axis,
    memory: &MemoryAccount,
) -> Result<Curve, AnswerError> {
    // Each curve has a time limit of its own, since one slow reading should not cost the others.
    let options = Options {
        limits: Limits {
            deadline: Some(Instant::now() + TIMEOUT),
            memory: Some(evaluation_memory(memory)),
            ..Limits::default()
        },
        ..Options::default()
    };
    // The value at the end of a step is the mean over the step before it.
    let first = axis.from.plus_ms(axis.step_ms);
    let answer = takt_promql::range(source, expr, first, axis.to(), axis.step_ms, &options);

    let mut curve = Curve(vec![None; axis.steps]);
    let answer = answer.map_err(|error| match error {
        Error::Unavailable(reason) => AnswerError::Unavailable(reason),
        other => AnswerError::failed(other),
    })?;
    if let Value::Matrix(series) = answer.value {
        // The expressions have no labels, so each instant has one value.
        for point in series.iter().flat_map(|series| &series.points) {
            let step = (point.at - first) / axis.step_ms;
            let place = usize::try_from(step)
                .ok()
                .and_then(|step| curve.0.get_mut(step));
            if let Some(place) = place.filter(|_| point.value.is_finite()) {
                *place = Some(point.value);
            }
        }
    }
    Ok(curve)
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::{Labels, Timestamp};
    use takt_promql::Memory;
    use takt_store::MemoryBudget;

    /// Two CPUs, busy for a tenth of the time. The node is silent from 400 to 1,400 seconds and starts anew before it
    /// answers again.
    #[test]
    fn a_node_that_was_silent_is_as_busy_beside_the_gap_as_elsewhere() {
        let mut memory = Memory::new();
        for (cpu, mode, share) in [
            ("0", "idle", 0.9),
            ("0", "user", 0.1),
            ("1", "idle", 0.9),
            ("1", "system", 0.1),
        ] {
            let labels = [
                ("__name__", "node_cpu_seconds_total"),
                ("cpu", cpu),
                ("mode", mode),
                ("node", "g01"),
            ];
            // The counters begin again at 1,380 s, so the first value behind the gap is small.
            let before = (0..400).step_by(15).map(|at| (at, 1_000 + at));
            let after = (1_400..1_800).step_by(15).map(|at| (at, at - 1_380));
            let samples = before.chain(after).map(|(at, counted)| {
                let seconds = counted as f64 * share;
                (Timestamp::from_seconds(at), Some(seconds))
            });
            memory.add(Labels::from_iter(labels), samples);
        }
        // Six steps of five minutes, of which two are in the gap.
        let axis = Axis::new(Timestamp(0), Timestamp(1_800_000), 6, SHORTEST_STEP_MS);
        let unlimited = MemoryAccount::default();
        let found = curves(&memory, OF_NODE, "node=\"g01\"", axis, &unlimited).unwrap();

        let busy = &found[0].values.0;
        let shown: Vec<_> = busy
            .iter()
            .map(|ratio| ratio.map(|ratio| (ratio * 100.0).round()))
            .collect();
        let tenth = Some(10.0);
        assert_eq!(shown, [tenth, tenth, None, None, tenth, tenth]);
    }

    #[test]
    fn readings_are_means_of_steps_and_gaps_stay_gaps() {
        let mut memory = Memory::new();
        let labels = |name: &str| Labels::from_iter([("__name__", name), ("uuid", "GPU-1")]);
        for (name, value, end) in [
            ("takt_gpu_utilization_ratio", 0.5, 1200),
            ("takt_gpu_memory_used_bytes", 40.0, 300),
            ("takt_gpu_memory_total_bytes", 80.0, 300),
        ] {
            let samples = (0..end)
                .step_by(15)
                .map(|at| (Timestamp::from_seconds(at), Some(value)));
            memory.add(labels(name), samples);
        }
        // Four steps of five minutes; the memory was measured in the first one only.
        let axis = Axis::new(Timestamp(0), Timestamp(1_200_000), 4, SHORTEST_STEP_MS);
        let unlimited = MemoryAccount::default();

        let found = curves(&memory, OF_GPU, "uuid=\"GPU-1\"", axis, &unlimited).unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|curve| (curve.name.as_str(), curve.most, curve.values.0.clone()))
            .collect();
        assert_eq!(
            shown,
            [
                ("Utilization", Some(1.0), vec![Some(0.5); 4]),
                (
                    "Memory used",
                    Some(80.0),
                    vec![Some(40.0), None, None, None]
                ),
            ]
        );

        // A query takes its memory from the account of the request.
        let account = MemoryBudget::of_bytes(1000).account("alice");
        let refused = curves(&memory, OF_GPU, "uuid=\"GPU-1\"", axis, &account).unwrap_err();
        assert!(
            refused.to_string().contains("memory_budget_mib"),
            "{refused}"
        );
    }
}
