//! Evaluates the series of one GPU for one run.

use super::curve::{Axis, CurveMeter, GaugeCurve};
use super::meter::MeterSample;
use super::signal::{Activity, ActivityFigures, GaugeReader, Growth, Level, Stretch, Window};
use super::{EfficiencyConfig, GpuCurves, GpuFigures, XidCount};
use std::collections::BTreeMap;
use takt_model::{Labels, Timestamp};

pub(super) const GPU_UP: &str = "takt_gpu_up";
pub(super) const XID: &str = "takt_gpu_xid_errors_total";
pub(super) const UTILIZATION: &str = "takt_gpu_utilization_ratio";
pub(super) const MEMORY_USED: &str = "takt_gpu_memory_used_bytes";
pub(super) const MEMORY_TOTAL: &str = "takt_gpu_memory_total_bytes";
pub(super) const POWER: &str = "takt_gpu_power_watts";
pub(super) const ENERGY: &str = "takt_gpu_energy_joules_total";
/// Labelled by part of the GPU. The meter reads `sm` and `tensor`.
pub(super) const ACTIVITY: &str = "takt_gpu_activity_ratio";

/// XIDs that mean broken hardware: double-bit error, internal halt, failed remapping, NVLink,
/// fallen off the bus, uncontained error, GSP, unrecovered error.
const HARDWARE_XIDS: &[&str] = &["48", "62", "64", "74", "79", "95", "119", "120", "140"];

/// Length of the steps in which link traffic and GPU utilization are compared, in milliseconds.
pub(super) const STEP_MS: i64 = 60_000;

/// Rounding of the curves of ratios and of busy CPUs.
pub(super) const RATIO_UNIT: f64 = 0.001;

/// Rounding of the curves of memory, in bytes.
pub(super) const MEMORY_UNIT: f64 = (1_u64 << 20) as f64;

/// Rounding of the curves of power, in watts.
const POWER_UNIT: f64 = 1.0;

/// Upper limit of a valid ratio. Some drivers report "not supported" as a huge number.
const MOST_RATIO: f64 = 1.001;

#[derive(Debug)]
pub(super) struct GpuMeter {
    pub(super) index: Option<String>,
    pub(super) model: Option<String>,
    utilization: (GaugeReader, Activity),
    pub(super) steps: Steps,
    memory_peak: Option<f64>,
    memory_total: Option<f64>,
    power: (GaugeReader, Level),
    energy: Growth,
    sm: (GaugeReader, Level),
    tensor: (GaugeReader, Level),
    xids: BTreeMap<String, (Growth, Option<Timestamp>)>,
    lost_at: Option<Timestamp>,
    curves: Option<GpuCurveMeters>,
}

#[derive(Debug)]
struct GpuCurveMeters {
    utilization: CurveMeter,
    memory: GaugeCurve,
    power: GaugeCurve,
}

/// Sums by time step: value × milliseconds or amount, and milliseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps(pub(super) Vec<(f32, f32)>);

impl Steps {
    pub(super) fn add(&mut self, window: Window, stretch: Stretch, amount: f64) {
        let mut from = stretch.from;
        while from < stretch.to {
            let step = (from - window.from) / STEP_MS;
            let to = stretch.to.min(window.from.plus_ms((step + 1) * STEP_MS));
            let step = usize::try_from(step).unwrap_or(0);
            if self.0.len() <= step {
                self.0.resize(step + 1, (0.0, 0.0));
            }
            // An amount is spread evenly over its stretch.
            let share = (to - from) as f64 / stretch.ms() as f64;
            self.0[step].0 += (amount * share) as f32;
            self.0[step].1 += (to - from) as f32;
            from = to;
        }
    }

    /// Returns the amount per second in a step, if more than half of the step is covered.
    pub(super) fn rate(&self, step: usize) -> Option<f64> {
        let &(sum, ms) = self.0.get(step)?;
        (f64::from(ms) >= STEP_MS as f64 / 2.0).then(|| f64::from(sum) * 1e3 / f64::from(ms))
    }
}

impl GpuMeter {
    pub(super) fn new(window: Window, axis: Option<Axis>, rules: &EfficiencyConfig) -> Self {
        let level = || (GaugeReader::new(window), Level::default());
        let streak_ms =
            i64::try_from(rules.idle_streak_seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
        let curves = |axis| GpuCurveMeters {
            utilization: CurveMeter::new(axis),
            memory: GaugeCurve::new(window, axis),
            power: GaugeCurve::new(window, axis),
        };

        Self {
            index: None,
            model: None,
            utilization: (
                GaugeReader::new(window),
                Activity::new(rules.idle_below_ratio, streak_ms),
            ),
            steps: Steps::default(),
            memory_peak: None,
            memory_total: None,
            power: level(),
            energy: Growth::new(window),
            sm: level(),
            tensor: level(),
            xids: BTreeMap::new(),
            lost_at: None,
            curves: axis.map(curves),
        }
    }

    pub(super) fn add(
        &mut self,
        metric: &str,
        labels: &Labels,
        samples: &[MeterSample],
        window: Window,
    ) {
        for &(at, value) in samples {
            let is_inside = window.from <= at && at < window.to;

            match (metric, &mut self.curves) {
                (MEMORY_USED, Some(curves)) => curves.memory.push(at, value),
                (POWER, Some(curves)) => curves.power.push(at, value.filter(is_power)),
                _ => {}
            }

            match (metric, value) {
                // An invalid reading is skipped, as if it had not been taken: it must not end a stretch.
                (UTILIZATION, value) if value.is_none_or(is_ratio) => {
                    if let Some(stretch) = self.utilization.0.push(at, value) {
                        self.work(stretch, window);
                    }
                }
                (ACTIVITY, value) if value.is_none_or(is_ratio) => match labels.get("part") {
                    Some("sm") => push(&mut self.sm, at, value),
                    Some("tensor") => push(&mut self.tensor, at, value),
                    _ => {}
                },
                // An invalid power ends the stretch, so that it does not count as measured.
                (POWER, value) => push(&mut self.power, at, value.filter(is_power)),
                // Samples around the run belong to the job before or behind.
                (MEMORY_USED, Some(bytes)) if is_inside => {
                    self.memory_peak = highest(self.memory_peak, bytes)
                }
                (MEMORY_TOTAL, Some(bytes)) if is_inside => {
                    self.memory_total = highest(self.memory_total, bytes)
                }
                (ENERGY, Some(joules)) => follow(&mut self.energy, at, joules),
                // The first time counts: later answers do not undo the loss.
                (GPU_UP, Some(0.0)) if is_inside => {
                    self.lost_at.get_or_insert(at);
                }
                (XID, Some(count)) => {
                    let xid = labels.get("xid").unwrap_or_default();
                    // The first error creates the series, so a series that began during the run
                    // started at 0.
                    let new = if at < window.from {
                        Growth::new
                    } else {
                        Growth::from_zero
                    };
                    let (growth, first) = self
                        .xids
                        .entry(xid.to_owned())
                        .or_insert_with(|| (new(window), None));
                    if growth
                        .push(at, count)
                        // The first growth is the time of the error.
                        .is_some_and(|grown| grown.value > 0.0)
                    {
                        first.get_or_insert(at);
                    }
                }
                _ => {}
            }
        }
    }

    fn work(&mut self, stretch: Stretch, window: Window) {
        self.utilization.1.add(stretch);
        if let Some(curves) = &mut self.curves {
            curves.utilization.add(stretch);
        }
        self.steps
            .add(window, stretch, stretch.value * stretch.ms() as f64 / 1e3);
    }

    pub(super) fn finish(mut self, node: &str, uuid: String) -> GpuFigures {
        let last = |(held, mut level): (GaugeReader, Level)| {
            held.finish()
                .into_iter()
                .for_each(|stretch| level.add(stretch));
            level
        };

        let (held, mut activity) = self.utilization;
        if let Some(stretch) = held.finish() {
            activity.add(stretch);
            if let Some(curves) = &mut self.curves {
                curves.utilization.add(stretch);
            }
        }

        let power = last(self.power);

        let xids: Vec<XidCount> = self
            .xids
            .into_iter()
            .filter_map(|(xid, (growth, at))| {
                Some(XidCount {
                    xid,
                    at: at?,
                    errors: growth.total()?,
                })
            })
            .collect();

        // An XID of the hardware explains a loss of the GPU, so it comes first.
        let fault = xids
            .iter()
            .find(|count| HARDWARE_XIDS.contains(&count.xid.as_str()))
            .map(|count| format!("xid {}", count.xid))
            .or_else(|| self.lost_at.map(|_| "GPU lost".to_owned()));

        let curves = self.curves.take().map(|curves| GpuCurves {
            utilization: curves.utilization.finish(RATIO_UNIT),
            memory: curves.memory.finish(MEMORY_UNIT),
            power: curves.power.finish(POWER_UNIT),
        });
        let activity: Option<ActivityFigures> = activity.finish();

        GpuFigures {
            node: node.to_owned(),
            activity,
            memory_peak_bytes: self.memory_peak.take(),
            memory_total_bytes: self.memory_total.take(),
            power_mean_watts: power.mean(),
            // Without a counter, power times the measured time is the energy.
            energy_joules: self
                .energy
                .total()
                .or_else(|| power.mean().map(|_| power.integral())),
            sm_mean: last(self.sm).mean(),
            tensor_mean: last(self.tensor).mean(),
            fault,
            xids,
            lost_at: self.lost_at,
            curves,
            index: self.index,
            model: self.model,
            uuid,
        }
    }
}

fn push((held, level): &mut (GaugeReader, Level), at: Timestamp, value: Option<f64>) {
    held.push(at, value)
        .into_iter()
        .for_each(|stretch| level.add(stretch));
}

/// Adds a sample of a counter whose total alone matters.
pub(super) fn follow(counter: &mut Growth, at: Timestamp, value: f64) {
    counter.push(at, value);
}

fn is_power(watts: &f64) -> bool {
    (0.0..1e5).contains(watts)
}

fn is_ratio(value: f64) -> bool {
    (0.0..=MOST_RATIO).contains(&value)
}

pub(super) fn highest(so_far: Option<f64>, value: f64) -> Option<f64> {
    Some(so_far.map_or(value, |so_far| so_far.max(value)))
}
