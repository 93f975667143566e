//! Utilization of every GPU over the last days, from memory.

use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::SystemTime;
use takt_access::{Need, Viewer};
use takt_model::UnixTime;
use takt_store::{SLOT_SECONDS, SLOTS, Slot, Store, slot_of, slot_start};

/// Asks for strips: utilization of GPUs in steps, up to now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StripsQuestion {
    /// Length in hours, at most 168.
    pub hours: u32,
    /// Number of steps; each is a multiple of five minutes long, so there may be fewer.
    pub steps: u32,
    /// Only this node.
    pub node: Option<String>,
    /// Whether a row is a node, the mean of its GPUs, instead of a GPU.
    pub by_node: bool,
}

impl Default for StripsQuestion {
    fn default() -> Self {
        Self {
            hours: 24,
            steps: 144,
            node: None,
            by_node: false,
        }
    }
}

/// Strips.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StripsAnswer {
    /// Begin of the first step.
    pub from: UnixTime,
    /// End of the last step.
    pub to: UnixTime,
    /// Length of a step, in seconds.
    pub step_seconds: i64,
    /// Rows, by node and UUID.
    pub rows: Vec<StripRow>,
}

/// The strip of a GPU or of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StripRow {
    /// Name of the node.
    pub node: String,
    /// UUID of the GPU; empty if the row is a node.
    pub uuid: String,
    /// The steps, the oldest first; `None` without a measurement.
    pub steps: Vec<Option<StripStep>>,
}

/// One step of a strip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StripStep {
    /// Mean utilization, 0 to 1.
    pub utilization_ratio: f32,
    /// Share of the measured GPU time in which the GPU was held, 0 to 1.
    pub held_ratio: f32,
    /// Share of the measured GPU time in which the GPU was held and idle, 0 to 1.
    pub idle_ratio: f32,
}

impl Question for StripsQuestion {
    const PATH: &'static str = "/api/takt/v1/strips";
    const NEED: Need = Need::SignedIn;
    type Answer = StripsAnswer;
    type Data = Store;

    fn answer(
        &self,
        _viewer: &Viewer,
        store: &Store,
        config: &AnswerConfig,
    ) -> Result<StripsAnswer, AnswerError> {
        let slots = i64::from(self.hours) * 3600 / SLOT_SECONDS;
        if !(1..=SLOTS).contains(&slots) || self.steps == 0 {
            return Err(AnswerError::Usage(
                "hours must be 1 to 168, and steps at least 1".to_owned(),
            ));
        }

        let idle_below = config.accounting.efficiency.idle_below_ratio;
        // The slot that is being written is the last one.
        let until = slot_of(SystemTime::now().into()) + 1;
        let steps = i64::from(self.steps);
        // Rounded up, so that there are never more steps than asked for.
        let length = ((slots + steps - 1) / steps).max(1);
        // Steps begin at multiples of their length: as time passes, the pictures move by whole steps.
        let until = (until + length - 1).div_euclid(length) * length;
        let from = until - (slots + length - 1) / length * length;

        let mut rows: BTreeMap<(String, String), Vec<Sum>> = BTreeMap::new();
        for (place, slots) in store.strips().read(self.node.as_deref(), from, until) {
            let uuid = if self.by_node {
                String::new()
            } else {
                place.uuid
            };
            let sums = rows
                .entry((place.node, uuid))
                .or_insert_with(|| vec![Sum::default(); slots.len().div_ceil(length as usize)]);

            for (at, slot) in slots.into_iter().enumerate() {
                sums[at / length as usize].add(slot, idle_below);
            }
        }

        let rows = rows.into_iter().map(|((node, uuid), sums)| StripRow {
            node,
            uuid,
            steps: sums.iter().map(Sum::step).collect(),
        });
        Ok(StripsAnswer {
            from: slot_start(from),
            to: slot_start(until),
            step_seconds: length * SLOT_SECONDS,
            rows: rows.collect(),
        })
    }
}

/// Sums over measured slots.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    slots: f32,
    utilization: f32,
    held: f32,
    idle: f32,
}

impl Sum {
    fn add(&mut self, slot: Slot, idle_below: f64) {
        // An unmeasured slot is no idle one: it must not lower the mean.
        let Some(ratio) = slot.utilization_ratio() else {
            return;
        };
        self.slots += 1.0;
        self.utilization += ratio as f32;
        if slot.is_held() {
            self.held += 1.0;
            if ratio < idle_below {
                self.idle += 1.0;
            }
        }
    }

    fn step(&self) -> Option<StripStep> {
        (self.slots > 0.0).then(|| StripStep {
            utilization_ratio: self.utilization / self.slots,
            held_ratio: self.held / self.slots,
            idle_ratio: self.idle / self.slots,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_the_mean_of_what_was_measured() {
        let mut sum = Sum::default();
        assert_eq!(sum.step(), None);

        sum.add(Slot::UNKNOWN, 0.05);
        assert_eq!(sum.step(), None);
        // At work, held and idle, and free.
        for slot in [
            Slot::new(1.0, true),
            Slot::new(0.0, true),
            Slot::new(0.0, false),
        ] {
            sum.add(slot, 0.05);
        }
        sum.add(Slot::UNKNOWN, 0.05);

        let step = sum.step().unwrap();
        let third = 1.0 / 3.0;
        assert!((step.utilization_ratio - third).abs() < 1e-6, "{step:?}");
        assert!((step.held_ratio - 2.0 * third).abs() < 1e-6, "{step:?}");
        assert!((step.idle_ratio - third).abs() < 1e-6, "{step:?}");
    }
}
