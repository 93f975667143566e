//! Loose samples in a segment's file: samples with timestamps of their own, grouped by series.
//!
//! A record begins with the number of the newest log whose samples it has. Then, for each series in
//! order, runs of samples in order of time:
//!
//! ```text
//! log u32 | first time i64 | last time i64
//! series u32 | first time i64 | samples u16 | bytes of times u16 | bytes of values u16 | times | values
//! …
//! ```
//!
//! Times are milliseconds since the first one; they are packed as values are. A long series has
//! several runs.

use super::Each;
use super::record::{Fields, Record};
use crate::Sample;
use crate::packed::{Packer, unpack};
use roaring::RoaringBitmap;
use std::ops::{Deref, Range};
use std::sync::Arc;
use takt_model::Timestamp;

/// Kind of a record with runs.
pub(super) const RUNS: u32 = 6;

/// Kind of a record with single samples: the log, then series, time and value of each. It is smaller
/// if most series have one sample, and earlier versions wrote no other.
pub(super) const SINGLE: u32 = 3;

/// Most samples of a run, as of a chunk.
const MAX_RUN: usize = 512;

/// Longest time between two samples of a run, in milliseconds. Any time in a run is then exact as a
/// double.
const MAX_GAP: u64 = 1 << 40;

/// Runs between two entries of the index.
const STEP: usize = 64;

/// Loose samples in the file.
#[derive(Debug, Clone)]
pub(super) struct LooseRecord {
    pub record: Record,
    pub oldest: Timestamp,
    pub newest: Timestamp,
    pub samples: u32,
    /// Series and offset of every [`STEP`]th run.
    steps: Arc<[(u32, u32)]>,
}

/// A sample with a timestamp of its own, and its series.
pub(crate) type LooseSample = (u32, Sample);

/// Loose samples of one request or row.
pub(crate) type LooseBatch = Arc<LooseSamples>;

/// Loose samples, and the range of their times.
#[derive(Debug)]
pub(crate) struct LooseSamples {
    samples: Vec<LooseSample>,
    oldest: Timestamp,
    newest: Timestamp,
}

impl Default for LooseSamples {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl From<Vec<LooseSample>> for LooseSamples {
    fn from(samples: Vec<LooseSample>) -> Self {
        // Without samples, the range is reversed and overlaps nothing.
        let (oldest, newest) = samples.iter().map(|(_, sample)| sample.at).fold(
            (Timestamp(i64::MAX), Timestamp(i64::MIN)),
            |(oldest, newest), at| (oldest.min(at), newest.max(at)),
        );
        Self {
            samples,
            oldest,
            newest,
        }
    }
}

impl Deref for LooseSamples {
    type Target = [LooseSample];

    fn deref(&self) -> &[LooseSample] {
        &self.samples
    }
}

impl LooseSamples {
    /// Times of the first and last sample. `None` if there are no samples.
    pub fn times(&self) -> Option<(Timestamp, Timestamp)> {
        (!self.samples.is_empty()).then_some((self.oldest, self.newest))
    }

    /// Returns whether samples may be in `[from, to]`.
    pub fn overlaps(&self, (from, to): (Timestamp, Timestamp)) -> bool {
        self.newest >= from && self.oldest <= to
    }
}

/// Series per sample up to which samples are sorted by counting.
const MAX_SPREAD: usize = 4;

/// Returns the samples of batches by series and time. The series are nearly all those between the
/// first and the last one, and the samples of each mostly in order of time: counting takes a small
/// part of the time of a comparing sort.
fn sorted(batches: &[LooseBatch]) -> Vec<LooseSample> {
    let samples = || batches.iter().flat_map(|batch| batch.iter().copied());
    let count = batches.iter().map(|batch| batch.len()).sum();

    let series = samples().map(|(series, _)| series);
    let (first, last) = series.fold((u32::MAX, 0), |(first, last), series| {
        (first.min(series), last.max(series))
    });
    let spread = last.saturating_sub(first) as usize + 1;

    if spread > MAX_SPREAD * count {
        let mut sorted = Vec::with_capacity(count);
        sorted.extend(samples());
        sorted.sort_by_key(|(series, sample)| (*series, sample.at));
        return sorted;
    }

    // For each series, the place of its next sample.
    let mut places = vec![0_usize; spread];
    for (series, _) in samples() {
        places[(series - first) as usize] += 1;
    }

    // Each number becomes the place where its series begins.
    let mut begin = 0;
    for place in &mut places {
        begin += std::mem::replace(place, begin);
    }

    let nothing = Sample {
        at: Timestamp(0),
        value: 0.0,
    };
    let mut sorted = vec![(0, nothing); count];
    for (series, sample) in samples() {
        let place = &mut places[(series - first) as usize];
        sorted[*place] = (series, sample);
        *place += 1;
    }

    for one in sorted.chunk_by_mut(|one, next| one.0 == next.0) {
        // Returns at once if they are in order.
        one.sort_by_key(|(_, sample)| sample.at);
    }
    sorted
}

/// Returns the kind and the content of a record. There must be samples.
pub(super) fn encode(log: u32, batches: &[LooseBatch]) -> (u32, Vec<u8>) {
    let samples = sorted(batches);

    let is_run = |(one, before): &LooseSample, (other, after): &LooseSample| {
        one == other && after.at.0.abs_diff(before.at.0) <= MAX_GAP
    };
    let runs = || samples.chunk_by(is_run);
    let mut out = log.to_le_bytes().to_vec();

    // A run costs more than a sample.
    if 2 * runs().count() > samples.len() {
        samples
            .iter()
            .map(single_bytes)
            .for_each(|bytes| out.extend_from_slice(&bytes));
        return (SINGLE, out);
    }

    let (oldest, newest) = batches
        .iter()
        .filter_map(|batch| batch.times())
        .reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
        .unwrap_or_default();
    out.extend_from_slice(&oldest.0.to_le_bytes());
    out.extend_from_slice(&newest.0.to_le_bytes());

    let mut packer = Packer::default();
    let mut numbers = Vec::new();
    for run in runs().flat_map(|run| run.chunks(MAX_RUN)) {
        push_run(run, &mut packer, &mut numbers, &mut out);
    }
    (RUNS, out)
}

/// Bytes of a sample that is not packed.
pub(super) const SINGLE_BYTES: usize = 20;

/// Returns series, time and value of a sample.
pub(super) fn single_bytes((series, sample): &LooseSample) -> [u8; SINGLE_BYTES] {
    let mut bytes = [0; SINGLE_BYTES];
    bytes[..4].copy_from_slice(&series.to_le_bytes());
    bytes[4..12].copy_from_slice(&sample.at.0.to_le_bytes());
    bytes[12..].copy_from_slice(&sample.value.to_bits().to_le_bytes());
    bytes
}

/// Appends samples of one series.
fn push_run(run: &[LooseSample], packer: &mut Packer, numbers: &mut Vec<f64>, out: &mut Vec<u8>) {
    let (series, first) = run[0];
    out.extend_from_slice(&series.to_le_bytes());
    out.extend_from_slice(&first.at.0.to_le_bytes());
    out.extend_from_slice(&(run.len() as u16).to_le_bytes());
    // The lengths are known only after packing.
    let lengths = out.len();
    out.extend_from_slice(&[0; 4]);

    numbers.clear();

    // At most 512 gaps of 2^40 ms make 2^49 ms, which a double holds exactly.
    numbers.extend(run.iter().map(|(_, one)| (one.at.0 - first.at.0) as f64));
    packer.pack(numbers, out);

    let times = out.len() - lengths - 4;
    numbers.clear();
    numbers.extend(run.iter().map(|(_, one)| one.value));
    packer.pack(numbers, out);
    let values = out.len() - lengths - 4 - times;

    out[lengths..][..2].copy_from_slice(&(times as u16).to_le_bytes());
    out[lengths + 2..][..2].copy_from_slice(&(values as u16).to_le_bytes());
}

/// Samples of one series.
struct Run<'a> {
    series: u32,
    first: Timestamp,
    content: RunContent<'a>,
}

enum RunContent<'a> {
    Single(f64),
    Packed {
        samples: u16,
        times: &'a [u8],
        values: &'a [u8],
    },
}

impl<'a> Run<'a> {
    /// Takes the next run. `None` if it is damaged.
    fn take(kind: u32, fields: &mut Fields<'a>) -> Option<Self> {
        let series = fields.u32()?;
        let first = Timestamp(fields.i64()?);
        let content = if kind == SINGLE {
            RunContent::Single(fields.f64()?)
        } else {
            let samples = fields.u16()?;
            let times = usize::from(fields.u16()?);
            let values = usize::from(fields.u16()?);
            RunContent::Packed {
                samples,
                times: fields.take(times)?,
                values: fields.take(values)?,
            }
        };

        Some(Self {
            series,
            first,
            content,
        })
    }

    fn count(&self) -> u32 {
        match self.content {
            RunContent::Single(_) => 1,
            RunContent::Packed { samples, .. } => samples.into(),
        }
    }

    /// Replaces `samples` and `numbers`.
    fn read(&self, numbers: &mut Vec<f64>, samples: &mut Vec<Sample>) {
        samples.clear();
        match self.content {
            RunContent::Single(value) => samples.push(Sample {
                at: self.first,
                value,
            }),
            RunContent::Packed {
                samples: count,
                times,
                values,
            } => {
                let count = usize::from(count);
                numbers.clear();
                unpack(times, count, numbers);
                unpack(values, count, numbers);
                let (times, values) = numbers.split_at(count);
                let pairs = times.iter().zip(values);
                samples.extend(pairs.map(|(&since, &value)| Sample {
                    at: Timestamp(self.first.0.saturating_add(since as i64)),
                    value,
                }));
            }
        }
    }
}

impl LooseRecord {
    /// Reads the content of a record. Returns the number of its log, too. `None` if it is damaged.
    pub fn of(record: Record, content: &[u8]) -> Option<(u32, Self)> {
        let mut fields = Fields(content);
        let log = fields.u32()?;
        let mut found = Self {
            record,
            oldest: Timestamp(i64::MAX),
            newest: Timestamp(i64::MIN),
            samples: 0,
            steps: Arc::default(),
        };

        // A record of single samples does not store its range.
        if record.kind == RUNS {
            found.oldest = Timestamp(fields.i64()?);
            found.newest = Timestamp(fields.i64()?);
        }

        let mut steps = Vec::new();
        for number in 0.. {
            let offset = content.len() - fields.0.len();
            if fields.0.is_empty() {
                break;
            }
            let run = Run::take(record.kind, &mut fields)?;
            if number % STEP == 0 {
                steps.push((run.series, offset as u32));
            }

            found.samples += run.count();
            found.oldest = found.oldest.min(run.first);
            found.newest = found.newest.max(run.first);
        }

        found.steps = steps.into();
        Some((log, found))
    }

    /// Returns the parts of the content that may have samples of the wanted series, or of all.
    pub fn parts(&self, wanted: Option<&RoaringBitmap>) -> impl Iterator<Item = Range<u32>> {
        self.steps
            .iter()
            .enumerate()
            .filter_map(move |(at, &(first, begin))| {
                // The last series of a part may continue in the next part, so both have it.
                let (last, end) = self
                    .steps
                    .get(at + 1)
                    .copied()
                    .unwrap_or((u32::MAX, self.record.length));
                let is_wanted =
                    wanted.is_none_or(|wanted| wanted.range_cardinality(first..=last) > 0);
                is_wanted.then_some(begin..end)
            })
    }

    /// Calls `each` with the samples of a part that are in `[from, to]`, for every series that
    /// `is_wanted`. Returns `false` if `each` stopped; `None` if the part is damaged.
    pub fn each(
        &self,
        part: &[u8],
        is_wanted: impl Fn(u32) -> bool,
        (from, to): (Timestamp, Timestamp),
        each: Each<'_>,
    ) -> Option<bool> {
        let mut fields = Fields(part);

        let (mut numbers, mut samples) = (Vec::new(), Vec::new());
        while !fields.0.is_empty() {
            let run = Run::take(self.record.kind, &mut fields)?;
            if !is_wanted(run.series) || run.first > to {
                continue;
            }
            run.read(&mut numbers, &mut samples);
            let begin = samples.partition_point(|sample| sample.at < from);
            let end = samples.partition_point(|sample| sample.at <= to);
            if begin < end && !each(run.series, &samples[begin..end]) {
                return Some(false);
            }
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unsealed::record::{HEADER, header};
    use proptest::prelude::*;

    fn record(kind: u32, content: &[u8]) -> Record {
        let header: [u8; HEADER as usize] = header(kind, content).unwrap();
        Record::of(&header, 0)
    }

    /// All samples of a record, with the bits of their values, and their times as the record notes
    /// them.
    fn read(kind: u32, content: &[u8], wanted: Option<&RoaringBitmap>) -> Vec<(u32, i64, u64)> {
        let (log, found) = LooseRecord::of(record(kind, content), content).unwrap();
        assert_eq!(log, 7);
        let mut samples = Vec::new();
        for part in found.parts(wanted) {
            let part = &content[part.start as usize..part.end as usize];
            let is_wanted = |series| wanted.is_none_or(|wanted| wanted.contains(series));
            let range = (found.oldest, found.newest);
            let read = found.each(part, is_wanted, range, &mut |series, run| {
                let run = run.iter();
                samples.extend(run.map(|one| (series, one.at.0, one.value.to_bits())));
                true
            });
            assert_eq!(read, Some(true));
        }
        if wanted.is_none() {
            assert_eq!(found.samples as usize, samples.len());
        }
        samples
    }

    proptest! {
        /// What is read is what was written, in order, for all series and for some.
        #[test]
        fn a_record_returns_its_samples(
            samples in prop::collection::vec(
                (
                    0_u32..400,
                    prop_oneof![1_700_000_000_000..1_700_000_900_000_i64, any::<i64>()],
                    prop_oneof![(0_i32..9).prop_map(f64::from), any::<u64>().prop_map(f64::from_bits)],
                ),
                1..2000,
            ),
            wanted in prop::collection::btree_set(0_u32..400, 0..5),
            // Series that are close together are sorted by counting, the others by comparing.
            apart in prop_oneof![Just(1_u32), Just(1 << 20)],
        ) {
            let mut samples: Vec<LooseSample> = samples
                .into_iter()
                .map(|(series, at, value)| (series * apart, Sample { at: Timestamp(at), value }))
                .collect();
            let batches = samples.chunks(300).map(|part| Arc::new(part.to_vec().into()));
            let (kind, content) = encode(7, &batches.collect::<Vec<_>>());
            samples.sort_by_key(|(series, one)| (*series, one.at));
            let all: Vec<_> = samples
                .iter()
                .map(|(series, one)| (*series, one.at.0, one.value.to_bits()))
                .collect();
            let wanted: RoaringBitmap = wanted.into_iter().map(|series| series * apart).collect();
            prop_assert_eq!(&read(kind, &content, None), &all);
            let some = all.iter().filter(|one| wanted.contains(one.0)).copied();
            prop_assert_eq!(read(kind, &content, Some(&wanted)), some.collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_read_or_refused(content in prop::collection::vec(any::<u8>(), 0..200)) {
            for kind in [RUNS, SINGLE] {
                if let Some((_, found)) = LooseRecord::of(record(kind, &content), &content) {
                    for part in found.parts(None) {
                        let part = &content[part.start as usize..part.end as usize];
                        let all = crate::unsealed::ALL_TIME;
                        let _ = found.each(part, |_| true, all, &mut |_, _| true);
                    }
                }
            }
        }
    }

    #[test]
    fn single_samples_of_earlier_versions_are_read() {
        let mut content = 7_u32.to_le_bytes().to_vec();
        let expected: Vec<(u32, i64, u64)> = (0..200).map(|at| (at / 2, at.into(), 5)).collect();
        for (series, at, bits) in &expected {
            content.extend_from_slice(&series.to_le_bytes());
            content.extend_from_slice(&at.to_le_bytes());
            content.extend_from_slice(&bits.to_le_bytes());
        }
        assert_eq!(read(SINGLE, &content, None), expected);

        // Series 31 ends the first part of the index, and 99 the last one.
        let wanted: RoaringBitmap = [31, 99].into_iter().collect();
        let some: Vec<u32> = read(SINGLE, &content, Some(&wanted))
            .iter()
            .map(|one| one.0)
            .collect();
        assert_eq!(some, [31, 31, 99, 99]);
    }
}
