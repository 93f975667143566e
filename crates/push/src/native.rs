//! Native histograms in protobuf: of remote write, versions 1.0 and 2.0, and of metrics pages.

use crate::pushed::PushedHistogram;
use crate::wire::{Field, Fields, WireError};
use std::mem;
use takt_model::Timestamp;
use takt_model::native::{HistogramError, NativeHistogram, ResetHint, SCHEMA_MAX, SCHEMA_RESERVED};

/// Sum of a staleness marker.
const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Numbers of a histogram's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistogramFields {
    /// `prometheus.Histogram`
    RemoteWrite,
    /// `io.prometheus.client.Histogram`
    Exposition,
}

impl HistogramFields {
    /// The number of the field in remote write.
    fn number(self, number: u64) -> u64 {
        /// The fields 1 to 14 of a page's histogram. 0: not of a native histogram.
        const OF_PAGES: [u64; 14] = [1, 3, 0, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];
        match self {
            Self::RemoteWrite => number,
            Self::Exposition => {
                let index = usize::try_from(number).unwrap_or(usize::MAX).checked_sub(1);
                index
                    .and_then(|index| OF_PAGES.get(index))
                    .copied()
                    .unwrap_or(0)
            }
        }
    }
}

/// The buckets of one sign, as they are sent: spans of neighbours, and differences or floats.
#[derive(Debug, Default)]
struct SentBuckets {
    /// Distance from the end of the span before, and number of buckets.
    spans: Vec<(i64, u64)>,
    /// Difference from the bucket before.
    deltas: Vec<i64>,
    floats: Vec<f64>,
}

/// Reads a histogram.
///
/// # Errors
/// If the message is damaged. A histogram that breaks a rule is read with its error.
pub(crate) fn read_histogram(
    message: &[u8],
    fields: HistogramFields,
) -> Result<PushedHistogram, WireError> {
    let mut histogram = NativeHistogram::default();
    let mut at = 0;
    let mut schema = 0;
    let mut is_float = false;
    let mut positive = SentBuckets::default();
    let mut negative = SentBuckets::default();

    let mut bounds = Vec::new();
    for field in Fields(message) {
        let (number, value) = field?;
        match (fields.number(number), value) {
            (1, count) => histogram.count = count.varint()? as f64,
            (2, count) => {
                histogram.count = count.double()?;
                is_float = true;
            }
            (3, sum) => histogram.sum = sum.double()?,
            // Kept as it is sent until the staleness marker is known: such a message may have any
            // schema.
            (4, number) => schema = zigzag(number.varint()?),
            (5, threshold) => histogram.zero_threshold = threshold.double()?,
            (6, count) => histogram.zero_count = count.varint()? as f64,
            (7, count) => histogram.zero_count = count.double()?,
            (8, span) => negative.spans.push(read_span(span.bytes()?)?),
            (9, deltas) => integers(deltas, &mut negative.deltas)?,
            (10, counts) => doubles(counts, &mut negative.floats)?,
            (11, span) => positive.spans.push(read_span(span.bytes()?)?),
            (12, deltas) => integers(deltas, &mut positive.deltas)?,
            (13, counts) => doubles(counts, &mut positive.floats)?,
            (14, hint) => {
                histogram.hint = match hint.varint()? {
                    1 => ResetHint::Reset,
                    3 => ResetHint::Gauge,
                    // "No reset" is about the sender's sample before, which need not be stored.
                    _ => ResetHint::Unknown,
                }
            }
            (15, time) => at = time.varint()?.cast_signed(),
            (16, values) => doubles(values, &mut bounds)?,
            _ => {}
        }
    }

    let at = Timestamp(at);
    if histogram.sum.to_bits() == STALE_BITS {
        let value = Ok(None);
        return Ok(PushedHistogram { at, value });
    }

    let mut checked = || {
        histogram.schema = known_schema(schema)?;
        histogram.custom_values = mem::take(&mut bounds).into();
        histogram.positive = positive.buckets(is_float)?;
        histogram.negative = negative.buckets(is_float)?;
        // Reserved finer schemas are valid, and are stored at the finest resolution that queries
        // know.
        histogram.reduce_to(SCHEMA_MAX);
        // One NaN for all, so that none is taken for a staleness marker later.
        if histogram.sum.is_nan() {
            histogram.sum = f64::NAN;
        }
        histogram.validate(!is_float)?;
        Ok(Some(mem::take(&mut histogram)))
    };

    let value = checked();
    Ok(PushedHistogram { at, value })
}

/// The schema, unless no histogram can have it.
pub(crate) fn known_schema(schema: i64) -> Result<i32, HistogramError> {
    let number = i32::try_from(schema).unwrap_or(i32::MAX);
    if number > SCHEMA_RESERVED {
        return Err(HistogramError::Schema(number));
    }
    Ok(number)
}

impl SentBuckets {
    /// Index and count of each bucket that is not empty.
    fn buckets(&self, is_float: bool) -> Result<Vec<(i32, f64)>, HistogramError> {
        let counts = if is_float {
            self.floats.clone()
        } else {
            let mut count = 0_i64;
            self.deltas
                .iter()
                .map(|delta| {
                    // Each number is the difference from the bucket before; a hostile sum must not
                    // wrap.
                    count = count.checked_add(*delta).ok_or(HistogramError::Count)?;
                    Ok(count as f64)
                })
                .collect::<Result<_, _>>()?
        };

        let mut counts = counts.into_iter();
        let mut buckets = Vec::with_capacity(counts.len());
        let mut index = 0_i64;

        for (nth, &(offset, length)) in self.spans.iter().enumerate() {
            // Only the first span may begin below zero: buckets come in ascending order.
            if nth > 0 && offset < 0 {
                return Err(HistogramError::Spans);
            }
            index = index.saturating_add(offset);
            // Ends with the counts, so a span of 2^60 buckets costs nothing.
            for _ in 0..length {
                let count = counts.next().ok_or(HistogramError::Spans)?;
                let number = i32::try_from(index).map_err(|_| HistogramError::Spans)?;
                // Senders join spans over small gaps with empty buckets, which the store does not
                // keep.
                if count != 0.0 {
                    buckets.push((number, count));
                }
                index += 1;
            }
        }

        if counts.next().is_some() {
            return Err(HistogramError::Spans);
        }
        Ok(buckets)
    }
}

fn read_span(message: &[u8]) -> Result<(i64, u64), WireError> {
    let mut span = (0, 0);
    for field in Fields(message) {
        match field? {
            (1, offset) => span.0 = zigzag(offset.varint()?),
            (2, length) => span.1 = length.varint()?,
            _ => {}
        }
    }
    Ok(span)
}

fn zigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// Reads numbers, packed or not.
fn integers(field: Field<'_>, into: &mut Vec<i64>) -> Result<(), WireError> {
    if let Field::Varint(number) = field {
        into.push(zigzag(number));
        return Ok(());
    }
    let mut packed = Fields(field.bytes()?);
    while !packed.0.is_empty() {
        into.push(zigzag(packed.take_varint()?));
    }
    Ok(())
}

fn doubles(field: Field<'_>, into: &mut Vec<f64>) -> Result<(), WireError> {
    if let Field::Fixed64(bits) = field {
        into.push(f64::from_bits(bits));
        return Ok(());
    }
    let (all, rest) = field.bytes()?.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(WireError);
    }
    into.extend(all.iter().map(|bytes| f64::from_le_bytes(*bytes)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_histogram(message: &[u8]) -> Result<PushedHistogram, WireError> {
        super::read_histogram(message, HistogramFields::RemoteWrite)
    }

    /// Schema 1, a count of 6, and the buckets 1, 2 and 5 with 1, 3 and 2 observations.
    fn message() -> Vec<u8> {
        let mut message = vec![0x08, 6, 0x19];
        message.extend(7.5_f64.to_le_bytes());
        message.extend([0x20, 2]);
        message.extend([0x5a, 4, 0x08, 2, 0x10, 2, 0x5a, 4, 0x08, 4, 0x10, 1]);
        message.extend([0x62, 3, 2, 4, 1]);
        message.extend([0x78, 100]);
        message
    }

    #[test]
    fn spans_and_deltas_become_buckets() {
        let read = read_histogram(&message()).unwrap();
        let expected = NativeHistogram {
            schema: 1,
            count: 6.0,
            sum: 7.5,
            positive: vec![(1, 1.0), (2, 3.0), (5, 2.0)],
            ..NativeHistogram::default()
        };
        assert_eq!(read.at, Timestamp(100));
        assert_eq!(read.value, Ok(Some(expected)));
    }

    #[test]
    fn custom_buckets_have_their_bounds() {
        let bounds = [0.5, 1.0, 2.0, 5.0, 10.0_f64]
            .map(f64::to_le_bytes)
            .concat();
        let more = [&[0x20, 105, 0x82, 0x01, 40][..], &bounds].concat();
        let read = read_histogram(&[&message()[..], &more].concat()).unwrap();
        let histogram = read.value.unwrap().unwrap();
        assert_eq!(&*histogram.custom_values, [0.5, 1.0, 2.0, 5.0, 10.0]);
        assert_eq!(
            histogram.to_string(),
            "{count:6, sum:7.5, (0.5,1]:1, (1,2]:3, (10,+Inf]:2}"
        );
    }

    #[test]
    fn each_rule_is_checked() {
        let with = |more: &[u8]| {
            let message = [&message()[..], more].concat();
            read_histogram(&message).unwrap().value
        };
        let is = Err;
        // One delta more, one span more, and a span that goes back.
        assert_eq!(with(&[0x62, 1, 0]), is(HistogramError::Spans));
        assert_eq!(with(&[0x5a, 2, 0x10, 1]), is(HistogramError::Spans));
        let back = [0x5a, 4, 0x08, 1, 0x10, 1, 0x62, 1, 0];
        assert_eq!(with(&back), is(HistogramError::Spans));
        // A span of 2^60 buckets.
        let endless = [0x5a, 10, 0x10, 128, 128, 128, 128, 128, 128, 128, 128, 16];
        assert_eq!(with(&endless), is(HistogramError::Spans));
        // A fourth bucket with -1 observations.
        let fell = [0x5a, 2, 0x10, 1, 0x62, 1, 5];
        assert_eq!(with(&fell), is(HistogramError::Count));
        assert_eq!(with(&[0x08, 5]), is(HistogramError::Total));
        assert_eq!(with(&[0x08, 7]), is(HistogramError::Total));
        // Custom buckets without bounds for them.
        assert_eq!(with(&[0x20, 105]), is(HistogramError::CustomBuckets));
        assert_eq!(with(&[0x20, 9]), is(HistogramError::Schema(-5)));
        assert_eq!(with(&[0x20, 106]), is(HistogramError::Schema(53)));
        // Reserved schemas are reduced.
        let reduced = with(&[0x20, 18]).unwrap().unwrap();
        assert_eq!(reduced.schema, 8);
        assert_eq!(&*reduced.positive, &[(1, 4.0), (3, 2.0)][..]);
        // A NaN sum means NaN observations, which no bucket holds.
        let nan = [&[0x08, 7, 0x19][..], &f64::NAN.to_le_bytes()].concat();
        assert!(with(&nan).unwrap().unwrap().sum.is_nan());
        let stale = [&[0x19][..], &STALE_BITS.to_le_bytes()].concat();
        assert_eq!(with(&stale), Ok(None));
    }

    #[test]
    fn floats_need_not_add_up_exactly() {
        // 0.1 + 0.5 is less than the count of 0.7: rates and averages are rounded.
        let mut message = vec![0x11];
        message.extend(0.7_f64.to_le_bytes());
        message.extend([0x5a, 2, 0x10, 2, 0x6a, 16]);
        message.extend(0.1_f64.to_le_bytes());
        message.extend(0.5_f64.to_le_bytes());
        message.extend([0x70, 3]);
        let read = read_histogram(&message).unwrap().value.unwrap().unwrap();
        assert_eq!(read.positive, [(0, 0.1), (1, 0.5)]);
        assert_eq!(read.hint, ResetHint::Gauge);
        // Half a float.
        message.extend([0x6a, 4, 0, 0, 0, 0]);
        assert_eq!(read_histogram(&message), Err(WireError));
    }

    #[test]
    fn a_histogram_cut_off_in_a_bucket_is_damaged() {
        let message = message();
        // The last field of two bytes, and two of the three deltas.
        let in_deltas = message.len() - 4;
        assert_eq!(read_histogram(&message[..in_deltas]), Err(WireError));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
            more in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut message = message();
            for (at, byte) in edits {
                let at = at.index(message.len());
                message[at] = byte;
            }
            message.truncate(cut.index(message.len() + 1));
            message.extend(more);
            if let Ok(PushedHistogram {
                value: Ok(Some(histogram)),
                ..
            }) = read_histogram(&message)
            {
                prop_assert_eq!(histogram.validate(false), Ok(()));
            }
        }
    }
}
