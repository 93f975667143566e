//! Samples of one series with timestamps of their own: the newest as they are, older ones packed.
//!
//! Packed samples are runs in order of time, one after the other:
//!
//! ```text
//! samples u8 | bytes of times u16 | bytes of values u16 | first time i64 | last time i64 | times | values
//! ```
//!
//! Times are milliseconds since the first one, packed as values are. Runs with equal steps, as
//! most senders have, leave them out.

use crate::Sample;
use crate::packed::{Packer, unpack};
use std::ops::Range;
use takt_model::Timestamp;

/// Most samples that are not packed.
const OPEN: usize = 32;

/// Samples that are packed at a time. The others stay, so that a sample that comes a little late
/// does not change a run.
const PACKED: usize = 24;

/// Most samples of a run, into which late samples may come.
const RUN: usize = 64;

/// Longest time between two samples of a run, in milliseconds. Any time in a run is then exact as a
/// double.
const GAP: u64 = 1 << 44;

/// Bytes before the times of a run.
const HEADER: usize = 21;

/// Samples of a series with timestamps of their own.
#[derive(Debug, Default)]
pub(super) struct OwnTime {
    /// When the newest one arrived.
    pub arrived: Timestamp,
    /// Time of the last sample: a copy, because the samples themselves are seldom in the processor's
    /// caches when the next one comes.
    last: Timestamp,
    /// The newest samples, in order of time.
    open: Vec<Sample>,
    /// Runs of older samples.
    packed: Vec<u8>,
}

/// Memory for packing, used by one series after another.
#[derive(Debug, Default)]
pub(super) struct PackBuffers {
    packer: Packer,
    numbers: Vec<f64>,
    runs: Vec<u8>,
}

impl OwnTime {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.packed.is_empty()
    }

    /// Returns whether all samples are from before `at`.
    #[inline]
    pub fn is_before(&self, at: Timestamp) -> bool {
        self.last < at || self.is_empty()
    }

    /// Returns the sample at this time.
    #[inline]
    pub fn find(&self, at: Timestamp) -> Option<Sample> {
        if self.is_before(at) {
            return None;
        }
        // Two samples of a series never have the same time.
        self.range((at, at)).pop()
    }

    /// Adds a sample; there must be none at its time.
    #[inline]
    pub fn insert(&mut self, sample: Sample, buffers: &mut PackBuffers) {
        if self.is_before(sample.at) {
            if self.open.len() >= OPEN {
                self.pack(buffers);
            }
            self.last = sample.at;
            self.open.push(sample);
        } else {
            self.insert_late(sample, buffers);
        }
    }

    fn insert_late(&mut self, sample: Sample, buffers: &mut PackBuffers) {
        let is_open = self.open.first().is_some_and(|open| open.at < sample.at);
        if is_open || self.packed.is_empty() {
            // Its place is among the open samples, which may become more than `OPEN`.
            let place = self.open.partition_point(|open| open.at < sample.at);
            self.open.insert(place, sample);
            return;
        }

        // The run is packed again, and becomes two if it would be too long.
        let run = self.run_of(sample.at);
        let mut samples = run.samples();
        let place = samples.partition_point(|packed| packed.at < sample.at);
        samples.insert(place, sample);
        let place = run.place;
        self.replace(place, &samples, buffers);
    }

    /// Removes the sample at this time.
    pub fn remove(&mut self, at: Timestamp, buffers: &mut PackBuffers) {
        if self.open.first().is_some_and(|open| open.at <= at) {
            self.open.retain(|sample| sample.at != at);
        } else if !self.packed.is_empty() {
            let run = self.run_of(at);
            let mut samples = run.samples();
            samples.retain(|sample| sample.at != at);
            let place = run.place;
            self.replace(place, &samples, buffers);
        }
        // Without any sample, the last time has no meaning.
        self.last = self.last_sample().map_or(self.last, |last| last.at);
    }

    /// Removes samples from before `begin`, except the newest one. A run goes as a whole.
    pub fn forget(&mut self, begin: Timestamp) {
        let old = self.open.partition_point(|sample| sample.at < begin);
        self.open
            .drain(..old.min(self.open.len().saturating_sub(1)));
        // The newest sample stays, even if it is packed.
        let has_open = !self.open.is_empty();
        let old = self
            .runs()
            .take_while(|run| run.last < begin && (has_open || run.last < self.last));
        let end = old.last().map_or(0, |run| run.place.end);
        self.packed.drain(..end);
        if self.packed.capacity() > 2 * self.packed.len() {
            self.packed.shrink_to_fit();
        }
    }

    /// Returns the newest sample.
    pub fn last_sample(&self) -> Option<Sample> {
        let open = self.open.last().copied();
        open.or_else(|| self.runs().last()?.samples().pop())
    }

    /// Returns the samples in `[from, to]`, in order.
    pub fn range(&self, (from, to): (Timestamp, Timestamp)) -> Vec<Sample> {
        let is_wanted = |sample: &Sample| from <= sample.at && sample.at <= to;
        let mut found = Vec::new();
        for run in self.runs() {
            if from <= run.last && run.first <= to {
                found.extend(run.samples().into_iter().filter(is_wanted));
            }
        }
        // The open samples are newer than each run.
        found.extend(self.open.iter().copied().filter(is_wanted));
        found
    }

    /// Packs the oldest samples that are not packed.
    fn pack(&mut self, buffers: &mut PackBuffers) {
        let runs = buffers.runs_of(&self.open[..PACKED]);
        if self.packed.capacity() - self.packed.len() < runs.len() {
            // Not twice as much, as by default: there are many series.
            self.packed
                .reserve_exact(runs.len() + self.packed.len() / 8);
        }
        self.packed.extend_from_slice(runs);
        self.open.drain(..PACKED);
    }

    fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        let mut begin = 0;
        std::iter::from_fn(move || {
            let run = Run::at(&self.packed, begin)?;
            begin = run.place.end;
            Some(run)
        })
    }

    /// The run into which a time belongs. There must be runs.
    fn run_of(&self, at: Timestamp) -> Run<'_> {
        let mut runs = self.runs();
        let first = runs.next().expect("there are runs");
        runs.take_while(|run| run.first <= at)
            .last()
            .unwrap_or(first)
    }

    /// Writes samples in place of a run.
    fn replace(&mut self, place: Range<usize>, samples: &[Sample], buffers: &mut PackBuffers) {
        let runs = buffers.runs_of(samples);
        self.packed.splice(place, runs.iter().copied());
    }
}

impl PackBuffers {
    /// Returns the runs of samples.
    fn runs_of(&mut self, samples: &[Sample]) -> &[u8] {
        let is_near = |one: &Sample, next: &Sample| next.at.0.abs_diff(one.at.0) < GAP;
        self.runs.clear();
        // Farther times would not be exact as doubles.
        for near in samples.chunk_by(is_near) {
            for run in near.chunks(RUN) {
                push_run(run, self);
            }
        }
        &self.runs
    }
}

/// Appends a run, which has samples.
fn push_run(run: &[Sample], buffers: &mut PackBuffers) {
    let (first, last) = (run[0].at, run[run.len() - 1].at);
    let PackBuffers {
        packer,
        numbers,
        runs: out,
    } = buffers;

    let begin = out.len();
    out.push(run.len() as u8);
    // The two lengths are known at the end only.
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&first.0.to_le_bytes());
    out.extend_from_slice(&last.0.to_le_bytes());

    // Equal steps follow from the first and the last time.
    if !is_regular(run) {
        numbers.clear();
        numbers.extend(run.iter().map(|one| (one.at.0 - first.0) as f64));
        packer.pack(numbers, out);
    }

    let times = out.len() - begin - HEADER;
    numbers.clear();
    numbers.extend(run.iter().map(|one| one.value));
    packer.pack(numbers, out);

    let values = out.len() - begin - HEADER - times;
    out[begin + 1..][..2].copy_from_slice(&(times as u16).to_le_bytes());
    out[begin + 3..][..2].copy_from_slice(&(values as u16).to_le_bytes());
}

/// Whether the steps from one time to the next are equal.
fn is_regular(run: &[Sample]) -> bool {
    let mut steps = run.windows(2).map(|pair| pair[1].at.0 - pair[0].at.0);
    let first = steps.next();
    steps.all(|step| Some(step) == first)
}

/// A run of packed samples.
struct Run<'a> {
    /// Position among the packed bytes.
    place: Range<usize>,
    count: usize,
    first: Timestamp,
    last: Timestamp,
    times: &'a [u8],
    values: &'a [u8],
}

impl<'a> Run<'a> {
    /// Returns the run that begins here. `None` at the end.
    fn at(packed: &'a [u8], begin: usize) -> Option<Self> {
        let (header, rest) = packed.get(begin..)?.split_first_chunk::<HEADER>()?;

        let length = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let time = |at: usize| {
            let bytes = header[at..][..8].try_into().expect("8 bytes");
            Timestamp(i64::from_le_bytes(bytes))
        };

        let (times, rest) = rest.split_at_checked(length(1))?;
        let values = rest.get(..length(3))?;
        Some(Self {
            place: begin..begin + HEADER + times.len() + values.len(),
            count: usize::from(header[0]),
            first: time(5),
            last: time(13),
            times,
            values,
        })
    }

    fn samples(&self) -> Vec<Sample> {
        let mut numbers = Vec::with_capacity(2 * self.count);
        unpack(self.values, self.count, &mut numbers);
        unpack_times(self, &mut numbers);
        let (values, times) = numbers.split_at(self.count);
        let pairs = times.iter().zip(values);
        let sample = |(&since, &value): (&f64, &f64)| Sample {
            at: Timestamp(self.first.0 + since as i64),
            value,
        };
        pairs.map(sample).collect()
    }
}

/// Appends the milliseconds from the first sample to each.
fn unpack_times(run: &Run<'_>, out: &mut Vec<f64>) {
    if !run.times.is_empty() {
        return unpack(run.times, run.count, out);
    }
    // A run of one sample has no step.
    let steps = (run.count - 1).max(1) as i64;
    let step = (run.last.0 - run.first.0) / steps;
    out.extend((0..run.count as i64).map(|number| (number * step) as f64));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::STALE;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Something that is done to the samples of a series.
    #[derive(Debug, Clone)]
    enum Step {
        /// A sample comes so many milliseconds after the last one, or before it.
        Insert(i64, f64),
        /// The sample with this number is removed.
        Remove(prop::sample::Index),
        /// Samples from before the one with this number are forgotten.
        Forget(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let value = prop_oneof![
            4 => (0..9_i32).prop_map(f64::from),
            1 => any::<u64>().prop_map(f64::from_bits),
            1 => Just(STALE),
        ];
        let after = prop_oneof![
            // Mostly one second, as senders have it, sometimes late, sometimes far away.
            12 => Just(1000),
            3 => 1_i64..90_000,
            3 => -200_000_i64..0,
            1 => any::<i32>().prop_map(|far| i64::from(far) << 20),
        ];
        let step = prop_oneof![
            40 => (after, value).prop_map(|(after, value)| Step::Insert(after, value)),
            2 => any::<prop::sample::Index>().prop_map(Step::Remove),
            1 => any::<prop::sample::Index>().prop_map(Step::Forget),
        ];
        prop::collection::vec(step, 1..400)
    }

    fn bits(samples: impl IntoIterator<Item = Sample>) -> Vec<(i64, u64)> {
        let samples = samples.into_iter();
        samples.map(|one| (one.at.0, one.value.to_bits())).collect()
    }

    fn nth(model: &BTreeMap<i64, f64>, index: prop::sample::Index) -> Option<i64> {
        (!model.is_empty()).then(|| *model.keys().nth(index.index(model.len())).unwrap())
    }

    proptest! {
        /// Compares packed samples with a plain table.
        #[test]
        fn samples_are_those_of_a_table(steps in steps()) {
            let mut model = BTreeMap::<i64, f64>::new();
            let mut own = OwnTime::default();
            let mut buffers = PackBuffers::default();
            let mut forgotten = i64::MIN;
            for step in steps {
                match step {
                    Step::Insert(after, value) => {
                        let last = model.last_key_value().map_or(1_700_000_000_000, |(&last, _)| last);
                        let at = last.saturating_add(after);
                        // Later samples from before the window are not added.
                        let found = own.find(Timestamp(at));
                        if at >= forgotten {
                            let known = model.get(&at).map(|value| value.to_bits());
                            prop_assert_eq!(found.map(|one| one.value.to_bits()), known);
                        }
                        if found.is_none() {
                            model.insert(at, value);
                            own.insert(Sample { at: Timestamp(at), value }, &mut buffers);
                        }
                    }
                    Step::Remove(index) => {
                        if let Some(at) = nth(&model, index) {
                            model.remove(&at);
                            own.remove(Timestamp(at), &mut buffers);
                        }
                    }
                    Step::Forget(index) => {
                        if let Some(at) = nth(&model, index) {
                            own.forget(Timestamp(at));
                            forgotten = forgotten.max(at);
                            let newest = model.last_key_value().map(|(&at, &value)| (at, value));
                            model = model.split_off(&at);
                            model.extend(newest);
                        }
                    }
                }

                // After each step both have the same newest sample.
                let newest = model.last_key_value().map(|(&at, &value)| Sample { at: Timestamp(at), value });
                prop_assert_eq!(bits(own.last_sample()), bits(newest));
                prop_assert_eq!(own.is_empty(), model.is_empty());
            }
            let all = own.range((Timestamp(i64::MIN), Timestamp(i64::MAX)));
            prop_assert!(all.is_sorted_by(|one, next| one.at < next.at));
            // A run is forgotten as a whole, so a few older samples may remain.
            let kept = all.into_iter().filter(|one| model.contains_key(&one.at.0) || one.at.0 >= forgotten);
            let expected = model.iter().map(|(&at, &value)| Sample { at: Timestamp(at), value });
            prop_assert_eq!(bits(kept), bits(expected));
        }
    }

    #[test]
    fn a_quarter_of_an_hour_takes_little_memory() {
        let mut own = OwnTime::default();
        let mut buffers = PackBuffers::default();
        for second in 0..900 {
            let at = Timestamp(1_700_000_000_000 + 1000 * second);
            let value = (second / 3) as f64;
            own.insert(Sample { at, value }, &mut buffers);
        }
        own.forget(Timestamp(0));
        let bytes = own.open.capacity() * size_of::<Sample>() + own.packed.capacity();
        assert!(
            bytes < 3000,
            "{bytes} bytes instead of {}",
            900 * size_of::<Sample>()
        );
    }
}
