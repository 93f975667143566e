//! Filling the strips from samples.

use super::{GpuPlace, SLOTS, Slot, Strips, slot_of, slot_start};
use crate::{Store, StoreError, is_stale};
use std::collections::BTreeMap;
use takt_model::{Matcher, Timestamp};

/// Slots that one call fills at most: an hour.
const STEP: i64 = 12;

/// Series that say who holds a GPU: a job, or a process without one.
const HOLDERS: [&str; 2] = ["takt_gpu_job_info", "takt_gpu_process_without_job"];

impl Store {
    /// The strips of all GPUs.
    pub fn strips(&self) -> &Strips {
        &self.strips
    }

    /// Fills up to an hour of the strips from samples: first the newest slots, then older ones back
    /// to seven days, then again those for which samples arrived late. Returns whether older slots remain to be filled. Blocks.
    ///
    /// # Errors
    /// If samples cannot be read.
    pub fn fill_strips(&self, now: Timestamp) -> Result<bool, StoreError> {
        let slot = slot_of(now.whole_seconds());
        let oldest = slot + 1 - SLOTS;
        let (from, until) = self.strips.filled();
        let is_usable = until > oldest && from <= slot + 1 && until <= slot + STEP;

        let (begin, end) = if !is_usable {
            (slot - 1, slot + 1)
        } else if until <= slot + 1 && until + STEP > slot {
            // The last slot was not complete when it was filled.
            ((until - 1).max(oldest), slot + 1)
        } else if until <= slot {
            (until - 1, until - 1 + STEP)
        } else {
            return Ok(false);
        };

        self.fill_slots(begin, end)?;
        let (from, until) = self.strips.filled();
        if until <= slot {
            return Ok(true);
        }

        if from > oldest {
            self.fill_slots((from - STEP).max(oldest), from)?;
        }

        if self.strips.filled().0 > oldest {
            return Ok(true);
        }

        match self.strips.take_refill(now, oldest, STEP) {
            None => Ok(false),
            Some(before) => {
                self.fill_slots((before - STEP).max(oldest), before)?;
                Ok(true)
            }
        }
    }

    fn fill_slots(&self, from: i64, until: i64) -> Result<(), StoreError> {
        let length = until - from;
        let begin = Timestamp::from(slot_start(from));
        let end = Timestamp::from(slot_start(until)).minus_ms(1);
        let at = |time: Timestamp| (slot_of(time.whole_seconds()) - from) as usize;

        let mut held: BTreeMap<GpuPlace, Vec<bool>> = BTreeMap::new();
        for metric in HOLDERS {
            for series in self.range(&[Matcher::metric(metric)], begin, end)? {
                let Some(place) = place(&series.labels) else {
                    continue;
                };
                let held = held
                    .entry(place)
                    .or_insert_with(|| vec![false; length as usize]);
                for sample in series
                    .samples
                    .iter()
                    .filter(|sample| !is_stale(sample.value))
                {
                    held[at(sample.at)] = true;
                }
            }
        }

        let mut rows: BTreeMap<GpuPlace, Vec<Slot>> = BTreeMap::new();
        let utilization = [Matcher::metric("takt_gpu_utilization_ratio")];
        for series in self.range(&utilization, begin, end)? {
            let Some(place) = place(&series.labels) else {
                continue;
            };

            let mut sums = vec![(0.0, 0_u32); length as usize];
            for sample in series
                .samples
                .iter()
                .filter(|sample| sample.value.is_finite())
            {
                let (sum, count) = &mut sums[at(sample.at)];
                *sum += sample.value;
                *count += 1;
            }

            let held = held.get(&place);
            let slots = sums
                .iter()
                .enumerate()
                .map(|(at, (sum, count))| match count {
                    0 => Slot::UNKNOWN,
                    count => Slot::new(sum / f64::from(*count), held.is_some_and(|held| held[at])),
                })
                .collect();
            rows.insert(place, slots);
        }

        self.strips.fill(from, length, rows);
        Ok(())
    }
}

fn place(labels: &takt_model::Labels) -> Option<GpuPlace> {
    Some(GpuPlace {
        node: labels.get("node")?.to_owned(),
        uuid: labels.get("uuid")?.to_owned(),
    })
}
