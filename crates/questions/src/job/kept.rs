//! Kept curves of an ended run: written with its efficiency, read after its samples are deleted.

use super::measured::{NodeReport, idle_streaks, node_reports};
use super::report::{SHORTEST_STEP_MS, cause_among};
use crate::AnswerError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::mem;
use takt_accounting::Failure;
use takt_accounting::efficiency::{Axis, Curve, EfficiencyConfig, NodeFigures};
use takt_jobs::{JobRun, NodeEvent};
use takt_model::{Timestamp, UnixTime};
use takt_store::{Records, RunCurves};

/// Maximum number of steps of a kept curve.
const KEPT_STEPS: usize = 120;

/// Curves of an ended run, and the cause of its failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptReport {
    /// Time axis of the curves.
    pub axis: Axis,
    /// Use by node and GPU. Stored without its curves.
    pub by_node: Vec<NodeReport>,
    /// Cause of the failure; `None` unless the run failed.
    pub failure: Option<Failure>,
    /// Curves of `by_node` in their order: value of the last level, and the curve as text.
    curves: Vec<(f64, String)>,
}

/// The axis of the kept curves of a run.
pub fn kept_axis(run: &JobRun) -> Axis {
    let start = run.start.unwrap_or(run.submit);
    let end = run.end.unwrap_or(start);
    Axis::new(start.into(), end.into(), KEPT_STEPS, SHORTEST_STEP_MS)
}

/// The curves of an ended run that [`Records::keep_curves`] stores; `None` if nothing of the run was
/// measured. `events` are those of the cluster's nodes since the run's start or earlier.
///
/// # Errors
/// When the curves cannot be written as JSON.
pub fn kept_curves(
    run: &JobRun,
    figures: &[NodeFigures],
    events: &[NodeEvent],
    rules: &EfficiencyConfig,
) -> Result<Option<RunCurves>, AnswerError> {
    let axis = kept_axis(run);
    let mut by_node = node_reports(run, figures.to_vec(), &[], axis, rules);
    if !by_node.iter().any(is_measured) {
        return Ok(None);
    }

    let utilization: Vec<&Curve> = by_node
        .iter()
        .flat_map(|node| &node.gpus)
        .map(|gpu| &gpu.utilization)
        .collect();
    let mean = Curve::mean(&utilization);
    let kept = KeptReport {
        axis,
        failure: cause_among(events, run, figures),
        curves: curves_of(&mut by_node)
            .into_iter()
            .map(|curve| {
                // A curve is stored as text relative to its highest value, so the curves of the report are taken out.
                let most = curve.0.iter().copied().flatten().fold(0.0, f64::max);
                let text = curve.to_text(most);
                *curve = Curve::default();
                (most, text)
            })
            .collect(),
        by_node,
    };

    let report = serde_json::to_value(&kept).map_err(AnswerError::failed)?;
    Ok(Some(RunCurves {
        cluster: run.cluster.clone(),
        job_id: run.job_id.clone(),
        submit: run.submit,
        end: run.end.unwrap_or(run.submit),
        utilization: mean.is_measured().then(|| mean.to_text(1.0)),
        report: without_empty(report).to_string(),
    }))
}

impl KeptReport {
    /// Reads the kept curves of a run; `None` if none were kept, or a later version wrote them.
    ///
    /// # Errors
    /// When the store fails.
    pub fn of(records: &Records<'_>, run: &JobRun) -> Result<Option<Self>, AnswerError> {
        let Some(text) = records.curves_of(run)? else {
            return Ok(None);
        };
        // A report of a later version is as good as none: the samples may still be there.
        let Ok(mut kept) = serde_json::from_str::<Self>(&text) else {
            return Ok(None);
        };

        let texts = mem::take(&mut kept.curves);
        for (curve, (most, text)) in curves_of(&mut kept.by_node).into_iter().zip(texts) {
            *curve = Curve::of_text(&text, most);
        }
        Ok(Some(kept))
    }

    /// The part between two instants, with at most `steps` steps.
    pub fn part(
        mut self,
        from: UnixTime,
        to: UnixTime,
        steps: usize,
        rules: &EfficiencyConfig,
    ) -> Self {
        let axis = self.axis;

        let [from, to] = [from, to].map(|at| Timestamp::from(at) - axis.from);
        // Whole steps: the first one that has a part of the period, and the last one.
        let step = |ms: i64| usize::try_from(ms / axis.step_ms).unwrap_or(0);
        let first = step(from);
        let until = step(to + axis.step_ms - 1).clamp(first + 1, axis.steps.max(first + 1));
        // Fewer steps by joining some of them; a kept step is never divided.
        let length = (until - first).div_ceil(steps.max(1));

        for curve in curves_of(&mut self.by_node) {
            *curve = curve.part(first, until, length);
        }

        let offset = |steps: usize| i64::try_from(steps).unwrap_or(0) * axis.step_ms;
        self.axis = Axis {
            from: axis.from.plus_ms(offset(first)),
            step_ms: offset(length),
            steps: (until - first).div_ceil(length),
        };
        // Streaks have numbers of steps, which have changed.
        for gpu in self.by_node.iter_mut().flat_map(|node| &mut node.gpus) {
            gpu.idle_streaks = idle_streaks(&gpu.utilization, self.axis, rules);
        }
        self
    }
}

/// Whether anything of a run was measured on a node.
pub(super) fn is_measured(node: &NodeReport) -> bool {
    let of_gpus = node.gpus.iter().any(|gpu| gpu.utilization.is_measured());
    of_gpus || node.cpus.is_measured() || node.memory.is_measured()
}

/// The curves of nodes and their GPUs, always in the same order.
fn curves_of(by_node: &mut [NodeReport]) -> Vec<&mut Curve> {
    by_node
        .iter_mut()
        .flat_map(|node| {
            let of_gpus = node
                .gpus
                .iter_mut()
                .flat_map(|gpu| [&mut gpu.utilization, &mut gpu.memory, &mut gpu.power]);
            [&mut node.cpus, &mut node.memory]
                .into_iter()
                .chain(of_gpus)
        })
        .collect()
}

/// The object without its empty fields, which are read as empty.
fn without_empty(value: Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(fields) => fields
            .into_iter()
            // These two are never left out, since they have no default.
            .filter(|(name, value)| name == "by_node" || name == "curves" || !is_empty(value))
            .map(|(name, value)| (name, without_empty(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_empty).collect(),
        value => value,
    }
}
