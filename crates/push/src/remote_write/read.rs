//! Reading requests.

use super::Protocol;
use crate::label_key::LabelKey;
use crate::memory::{MemoryDenied, MemoryGrant};
use crate::native::{HistogramFields, read_histogram};
use crate::pushed::{Part, PushedSample, PushedSeries};
use crate::wire::{BYTES_1, DOUBLE_1, Field, Fields, VARINT_2, WireError, push_varint};
use takt_model::Timestamp;

/// Most series, and most native histograms, of a request. In protobuf, an empty one takes two bytes.
/// Senders use a few thousand.
const MAX_PARTS: usize = 500_000;

/// Bytes in memory of one byte of a native histogram: a bucket takes one byte in a message.
const HISTOGRAM_GROWTH: usize = 32;

/// Why a request cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The body is not in snappy's block format.
    #[error("the body is not valid snappy (block format)")]
    Snappy(#[source] snap::Error),
    /// The decompressed message is too long.
    #[error("the message has {bytes} bytes; the limit is {limit}")]
    TooLong {
        /// Length of the message.
        bytes: usize,
        /// Longest message.
        limit: usize,
    },
    /// The message is not the expected protobuf.
    #[error(transparent)]
    Damaged(#[from] WireError),
    /// The message needs more memory than it may take.
    #[error(transparent)]
    Memory(#[from] MemoryDenied),
    /// A series of version 2.0 names a symbol that does not exist.
    #[error("a series refers to symbol {0}, which the request does not have")]
    UnknownSymbol(u64),
    /// The request has more series, or native histograms, than fit in memory many times over.
    #[error("the request has more than {MAX_PARTS} series or native histograms")]
    TooMany,
    /// The message is of version 1.0, its content type of 2.0.
    #[error(
        "the content type names remote write 2.0, but the message is of version 1.0: send it with \
         Content-Type: application/x-protobuf"
    )]
    IsV1,
    /// The message is of version 2.0, its content type of 1.0.
    #[error(
        "the content type names remote write 1.0, but the message is of version 2.0: send it with \
         Content-Type: application/x-protobuf;proto=io.prometheus.write.v2.Request"
    )]
    IsV2,
    /// The first symbol of version 2.0 has to be empty.
    #[error("the first symbol is not empty")]
    FirstSymbol,
}

/// Returns the length of a message, which its body names first.
///
/// # Errors
/// If the body is not snappy, or the message has more than `limit` bytes.
pub fn message_length(body: &[u8], limit: usize) -> Result<usize, RequestError> {
    let bytes = snap::raw::decompress_len(body).map_err(RequestError::Snappy)?;
    if bytes > limit {
        return Err(RequestError::TooLong { bytes, limit });
    }
    Ok(bytes)
}

/// Decompresses a body. The length comes first in the body, so a long message is refused before
/// memory is allocated for it.
///
/// # Errors
/// If the body is not snappy, or the message has more than `limit` bytes.
pub fn decompress(body: &[u8], limit: usize) -> Result<Vec<u8>, RequestError> {
    message_length(body, limit)?;
    snap::raw::Decoder::new()
        .decompress_vec(body)
        .map_err(RequestError::Snappy)
}

/// Reads a message, and keeps it if it has the labels. Metadata and exemplars are skipped.
///
/// # Errors
/// If the message is damaged, or needs more than the granted memory, its own length not counted. The
/// labels of a series are checked later, by [`OneSeries::labels`](crate::OneSeries::labels).
pub fn read_request(
    protocol: Protocol,
    message: Vec<u8>,
    memory: &mut MemoryGrant<'_>,
) -> Result<PushedSeries, RequestError> {
    match protocol {
        Protocol::V1 => read_v1(message, memory),
        Protocol::V2 => read_v2(&message, memory),
    }
}

fn read_v1(message: Vec<u8>, memory: &mut MemoryGrant<'_>) -> Result<PushedSeries, RequestError> {
    let mut found = PushedSeries::default();
    // Labels of series that have other fields between them.
    let mut joined = Vec::new();
    let mut all = Fields(&message);
    let mut is_v2 = false;

    while let Some(field) = all.next() {
        let (number, series) = field?;
        if number != 1 {
            // Series of version 2.0.
            is_v2 |= number == 5;
            continue;
        }

        let series = series.bytes()?;
        check_count(found.parts.len())?;
        // Positions within the message, which is kept as the labels' text.
        let end = message.len() - all.0.len();
        let mut rest = Fields(series);
        // Most series begin with all of their labels, and most labels are short.
        rest.skip_short(BYTES_1);

        let mut block = end - series.len()..end - rest.0.len();
        let mut is_split = false;

        loop {
            let begin = end - rest.0.len();
            let Some(field) = rest.next() else { break };
            match field? {
                (1, label) => {
                    // Labels are checked when a series is new; here only their place counts.
                    label.bytes()?;
                    if block.is_empty() {
                        block = begin..begin;
                    }
                    is_split |= block.end != begin;
                    block.end = end - rest.0.len();
                }
                (2, sample) => memory.push(&mut found.samples, read_sample(sample.bytes()?)?)?,
                (4, histogram) => push_histogram(&mut found, histogram.bytes()?, memory)?,
                _ => {}
            }
        }

        // The key is over neighbouring bytes, so labels with samples between them are copied
        // together first.
        let key = if is_split {
            let begin = joined.len();
            join_labels(series, &mut joined, memory)?;
            block = message.len() + begin..message.len() + joined.len();
            LabelKey::of_text(&joined[begin..])
        } else {
            LabelKey::of_text(&message[block.clone()])
        };

        let part = Part {
            block,
            key,
            ..Part::default()
        };
        found.push_part(part, memory)?;
    }

    // Without this check, a message of the other version would be stored as empty, with success.
    if is_v2 && found.parts.is_empty() {
        return Err(RequestError::IsV2);
    }

    found.blocks = message;
    memory.reserve(&mut found.blocks, joined.len())?;
    found.blocks.extend_from_slice(&joined);
    Ok(found)
}

fn push_histogram(
    found: &mut PushedSeries,
    message: &[u8],
    memory: &mut MemoryGrant<'_>,
) -> Result<(), RequestError> {
    check_count(found.histograms.len())?;
    // Taken for the whole at once: reading a histogram makes lists of several sizes.
    memory.take(message.len().saturating_mul(HISTOGRAM_GROWTH))?;
    let histogram = read_histogram(message, HistogramFields::RemoteWrite)?;
    Ok(memory.push(&mut found.histograms, histogram)?)
}

fn check_count(count: usize) -> Result<(), RequestError> {
    if count < MAX_PARTS {
        Ok(())
    } else {
        Err(RequestError::TooMany)
    }
}

/// Appends the labels of a series without what is between them.
fn join_labels(
    series: &[u8],
    out: &mut Vec<u8>,
    memory: &mut MemoryGrant<'_>,
) -> Result<(), RequestError> {
    /// Longest tag and length of a label, in bytes.
    const HEAD: usize = 11;
    for field in Fields(series) {
        let (1, label) = field? else { continue };
        let label = label.bytes()?;
        memory.reserve(out, HEAD + label.len())?;
        out.push(BYTES_1);
        push_varint(out, label.len() as u64);
        out.extend_from_slice(label);
    }
    Ok(())
}

fn read_v2(message: &[u8], memory: &mut MemoryGrant<'_>) -> Result<PushedSeries, RequestError> {
    let mut found = PushedSeries::default();
    let mut is_first = true;
    // Symbols first: a message may have them after the series.
    for field in Fields(message) {
        if let (4, symbol) = field? {
            let symbol = symbol.bytes()?;
            if std::mem::take(&mut is_first) && !symbol.is_empty() {
                return Err(RequestError::FirstSymbol);
            }
            found.symbols.push(symbol, memory)?;
        }
    }

    let end = found.symbols.len() as u64;
    let mut is_v1 = false;

    for field in Fields(message) {
        let (number, series) = field?;
        if number != 5 {
            // Series of version 1.0.
            is_v1 |= number == 1;
            continue;
        }

        check_count(found.parts.len())?;
        let begin = found.references.len();

        for field in Fields(series.bytes()?) {
            match field? {
                (1, Field::Varint(reference)) => {
                    let reference = checked_reference(reference, end)?;
                    memory.push(&mut found.references, reference)?;
                }
                (1, packed) => {
                    let mut packed = Fields(packed.bytes()?);
                    // One byte each at least.
                    memory.reserve(&mut found.references, packed.0.len())?;
                    while !packed.0.is_empty() {
                        let reference = packed.take_varint()?;
                        found.references.push(checked_reference(reference, end)?);
                    }
                }
                (2, sample) => memory.push(&mut found.samples, read_sample(sample.bytes()?)?)?,
                (3, histogram) => push_histogram(&mut found, histogram.bytes()?, memory)?,
                _ => {}
            }
        }

        // References are pairs of name and value.
        if !(found.references.len() - begin).is_multiple_of(2) {
            return Err(WireError.into());
        }
        found.end_series(Part::default(), memory)?;
    }

    if is_v1 && found.parts.is_empty() {
        return Err(RequestError::IsV1);
    }
    Ok(found)
}

/// Returns the position of a symbol, if the request has so many.
fn checked_reference(reference: u64, end: u64) -> Result<u32, RequestError> {
    u32::try_from(reference)
        .ok()
        .filter(|_| reference < end)
        .ok_or(RequestError::UnknownSymbol(reference))
}

fn read_sample(message: &[u8]) -> Result<PushedSample, WireError> {
    // As nearly all senders write it.
    if let [DOUBLE_1, rest @ ..] = message
        && let Some((value, [VARINT_2, rest @ ..])) = rest.split_first_chunk()
    {
        let mut rest = Fields(rest);
        let at = rest.take_varint()?;
        // More fields follow; the general path reads all of them.
        if rest.0.is_empty() {
            return Ok(PushedSample {
                at: Timestamp(at.cast_signed()),
                value: f64::from_le_bytes(*value),
            });
        }
    }

    // Protobuf leaves out values that are zero.
    let mut sample = PushedSample {
        at: Timestamp(0),
        value: 0.0,
    };
    for field in Fields(message) {
        match field? {
            (1, value) => sample.value = value.double()?,
            (2, at) => sample.at = Timestamp(at.varint()?.cast_signed()),
            _ => {}
        }
    }

    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::super::RequestWriter;
    use super::*;
    use crate::LabelError;
    use crate::pushed::labels_of;
    use crate::symbols::Symbols;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashSet};
    use takt_model::Labels;

    const STALE: u64 = 0x7ff0_0000_0000_0002;

    type Written = Vec<(Labels, Vec<(Timestamp, u64)>)>;

    fn read_all(protocol: Protocol, message: Vec<u8>) -> Result<PushedSeries, RequestError> {
        read_request(protocol, message, &mut MemoryGrant::of_bytes(usize::MAX))
    }

    /// Two bytes of each message became 16 to 200 bytes in memory.
    #[test]
    fn lists_of_empty_messages_need_granted_memory() {
        const BYTES: usize = 1 << 20;
        let nested = |tag: u8, content: Vec<u8>| {
            let mut message = vec![tag];
            push_varint(&mut message, content.len() as u64);
            message.extend(content);
            message
        };
        let empty = |tag: u8| [tag, 0].repeat(BYTES / 2);
        for (protocol, message) in [
            (Protocol::V1, empty(10)),
            (Protocol::V1, nested(10, empty(18))),
            (Protocol::V1, nested(10, empty(34))),
            (Protocol::V2, empty(34)),
            (Protocol::V2, nested(42, empty(18))),
            (Protocol::V2, nested(42, empty(26))),
            (
                Protocol::V2,
                [vec![34, 0], nested(42, nested(10, vec![0; BYTES]))].concat(),
            ),
        ] {
            let mut asked = 0;
            let mut ask = |bytes: usize| {
                asked += bytes;
                asked <= BYTES
            };
            let read = read_request(protocol, message, &mut MemoryGrant::new(&mut ask));
            assert!(matches!(
                read,
                Err(RequestError::Memory(_) | RequestError::TooMany)
            ));
        }
    }

    fn body(protocol: Protocol, series: &Written) -> Vec<u8> {
        let mut writer = RequestWriter::new(protocol);
        for (labels, samples) in series {
            let samples = samples.iter();
            writer.add(
                labels,
                samples.map(|&(at, bits)| (at, f64::from_bits(bits))),
            );
        }
        writer.body()
    }

    fn read(protocol: Protocol, body: &[u8]) -> Result<Written, RequestError> {
        let message = decompress(body, 1 << 20)?;
        let found = read_all(protocol, message)?;
        let series = found.iter().map(|series| {
            let samples = series.samples.iter();
            (
                series.labels().unwrap(),
                samples.map(|one| (one.at, one.value.to_bits())).collect(),
            )
        });
        Ok(series.collect())
    }

    fn written() -> impl Strategy<Value = Written> {
        let labels = prop::collection::btree_map("[a-z]{1,8}", "\\PC{1,12}", 0..5);
        let labels = labels.prop_map(|pairs| {
            let mut labels: Labels = pairs.iter().collect();
            labels.set("__name__", "up");
            labels
        });
        let bits = prop_oneof![any::<u64>(), Just(STALE), Just(0)];
        let sample = (any::<i64>().prop_map(Timestamp), bits);
        prop::collection::vec((labels, prop::collection::vec(sample, 0..5)), 0..8)
    }

    #[test]
    fn millions_of_empty_series_or_histograms_are_refused() {
        let series = [10, 0].repeat(MAX_PARTS + 1);
        assert!(matches!(
            read_all(Protocol::V1, series),
            Err(RequestError::TooMany)
        ));
        let histograms = [34, 0].repeat(MAX_PARTS + 1);
        let mut series = vec![10];
        push_varint(&mut series, histograms.len() as u64);
        series.extend(histograms);
        assert!(matches!(
            read_all(Protocol::V1, series),
            Err(RequestError::TooMany)
        ));
    }

    proptest! {
        #[test]
        fn what_the_writer_writes_is_read(series in written()) {
            for protocol in [Protocol::V1, Protocol::V2] {
                let found = read(protocol, &body(protocol, &series)).unwrap();
                // The writer leaves out minus zero, as protobuf does.
                let mut expected = series.clone();
                for (_, samples) in &mut expected {
                    samples.iter_mut().for_each(|(_, bits)| {
                        if *bits == (-0.0_f64).to_bits() {
                            *bits = 0;
                        }
                    });
                }
                prop_assert_eq!(found, expected);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..300)) {
            for protocol in [Protocol::V1, Protocol::V2] {
                let _ = decompress(&body, 1 << 16);
                if let Ok(found) = read_all(protocol, body.clone()) {
                    for series in found.iter() {
                        let _ = series.labels();
                    }
                }
            }
        }

        #[test]
        fn arbitrary_edits_of_a_request_are_read_or_refused(
            series in written(),
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            for protocol in [Protocol::V1, Protocol::V2] {
                let mut message = decompress(&body(protocol, &series), 1 << 20).unwrap();
                if message.is_empty() {
                    continue;
                }
                for (at, byte) in &edits {
                    let at = at.index(message.len());
                    message[at] = *byte;
                }
                message.truncate(cut.index(message.len()) + 1);
                if let Ok(found) = read_all(protocol, message) {
                    for series in found.iter() {
                        let _ = series.labels();
                    }
                }
            }
        }

        /// Equal labels have equal keys, other labels have others, in both versions.
        #[test]
        fn keys_identify_labels(series in written(), more in written()) {
            for protocol in [Protocol::V1, Protocol::V2] {
                let mut known: BTreeMap<String, LabelKey> = BTreeMap::new();
                for request in [&series, &more] {
                    let message = decompress(&body(protocol, request), 1 << 20).unwrap();
                    for one in read_all(protocol, message).unwrap().iter() {
                        let labels = one.labels().unwrap().to_string();
                        prop_assert_eq!(*known.entry(labels).or_insert(one.key), one.key);
                    }
                }
                let keys: HashSet<LabelKey> = known.values().copied().collect();
                prop_assert_eq!(keys.len(), known.len());
            }
        }

        /// The decoder of `prost` agrees.
        #[test]
        fn a_message_cut_short_is_refused_as_prost_refuses_it(
            series in written(),
            cut in any::<prop::sample::Index>(),
        ) {
            use super::super::messages::v1;
            use prost::Message;
            let mut message = decompress(&body(Protocol::V1, &series), 1 << 20).unwrap();
            message.truncate(cut.index(message.len() + 1));
            let theirs = v1::WriteRequest::decode(&*message).is_ok();
            prop_assert_eq!(read_all(Protocol::V1, message).is_ok(), theirs);
        }
    }

    #[test]
    fn a_snappy_bomb_is_refused_before_memory_is_allocated() {
        // The length of 4 GiB - 1, and a few bytes.
        let bomb = [0xff, 0xff, 0xff, 0xff, 0x0f, 0xfe, 0x01, 0x00];
        let refused = decompress(&bomb, 1 << 20);
        assert!(matches!(
            refused,
            Err(RequestError::TooLong {
                bytes: 0xffff_ffff,
                ..
            })
        ));
        // A length that the data does not have.
        let short = [0x64, 0x00, 0x61];
        assert!(matches!(
            decompress(&short, 1 << 20),
            Err(RequestError::Snappy(_))
        ));
        assert!(decompress(&[], 1 << 20).is_err());
    }

    #[test]
    fn labels_may_have_other_fields_between_them() {
        let [name, value] = [("__name__", "up"), ("node", "g01")].map(|(name, value)| {
            let mut series = PushedSeries::default();
            let mut memory = MemoryGrant::of_bytes(usize::MAX);
            series
                .push_label(name.as_bytes(), value.as_bytes(), &mut memory)
                .unwrap();
            series.blocks
        });
        // A sample of one millisecond.
        let sample = [0x12, 0x02, 0x10, 0x01];
        let series = [name, sample.into(), value].concat();
        let message = [vec![0x0a, series.len() as u8], series].concat();
        let both = [message.clone(), message].concat();
        let found = read_all(Protocol::V1, both).unwrap();
        for one in found.iter() {
            assert_eq!(one.labels().unwrap().to_string(), "up{node=\"g01\"}");
            assert_eq!(one.samples[0].at, Timestamp(1));
        }
        assert_eq!(found.iter().len(), 2);
    }

    #[test]
    fn labels_have_to_be_sorted_unique_and_named() {
        let block = |pairs: &[(&str, &str)]| {
            let mut series = PushedSeries::default();
            let mut memory = MemoryGrant::of_bytes(usize::MAX);
            for (name, value) in pairs {
                series
                    .push_label(name.as_bytes(), value.as_bytes(), &mut memory)
                    .unwrap();
            }
            labels_of(&series.blocks)
        };
        assert_eq!(
            block(&[("__name__", "up"), ("a", ""), ("b", "1")])
                .unwrap()
                .to_string(),
            "up{b=\"1\"}"
        );
        for (pairs, expected) in [
            (
                &[("__name__", "up"), ("b", "1"), ("a", "1")][..],
                LabelError::Unsorted("a".to_owned()),
            ),
            (
                &[("__name__", "up"), ("a", "1"), ("a", "2")],
                LabelError::Twice("a".to_owned()),
            ),
            (&[("", "1"), ("__name__", "up")], LabelError::NoName),
            (&[("a", "1")], LabelError::NoMetric),
            (&[("__name__", "")], LabelError::NoMetric),
            (&[], LabelError::NoMetric),
        ] {
            assert_eq!(block(pairs), Err(expected));
        }
        let mut series = PushedSeries::default();
        let mut memory = MemoryGrant::of_bytes(usize::MAX);
        series
            .push_label(b"__name__", &[0xff, 0xfe], &mut memory)
            .unwrap();
        assert_eq!(labels_of(&series.blocks), Err(LabelError::NotUtf8));
    }

    /// The same texts in other places are other labels.
    #[test]
    fn keys_depend_on_the_order_of_symbols() {
        let mut symbols = Symbols::default();
        let mut memory = MemoryGrant::of_bytes(usize::MAX);
        ["", "a", "b", "c"]
            .iter()
            .for_each(|text| symbols.push(text.as_bytes(), &mut memory).unwrap());
        let lists: [&[u32]; 6] = [
            &[1, 2],
            &[2, 1],
            &[1, 2, 3, 0],
            &[1, 0, 3, 2],
            &[1, 1],
            &[0, 0],
        ];
        let keys: HashSet<LabelKey> = lists.map(|list| symbols.key(list)).into();
        assert_eq!(keys.len(), lists.len());
    }

    #[test]
    fn a_symbol_that_does_not_exist_is_refused() {
        // One series with the references 0 and 7, without symbols.
        let message = [0x2a, 0x04, 0x0a, 0x02, 0x00, 0x07];
        assert!(matches!(
            read_all(Protocol::V2, message.to_vec()),
            Err(RequestError::UnknownSymbol(0))
        ));
        // The first symbol is "x".
        assert!(matches!(
            read_all(Protocol::V2, vec![0x22, 0x01, b'x']),
            Err(RequestError::FirstSymbol)
        ));
    }

    /// Such samples were lost: each version skips the fields of the other.
    #[test]
    fn a_message_of_the_other_version_is_refused() {
        let labels = [("__name__", "up")].into_iter().collect();
        let series = vec![(labels, vec![(Timestamp(1), 0)])];
        let as_other = |written, read_as| {
            let message = decompress(&body(written, &series), 1 << 20).unwrap();
            read_all(read_as, message).unwrap_err().to_string()
        };
        let said = as_other(Protocol::V1, Protocol::V2);
        assert!(said.contains("but the message is of version 1.0"), "{said}");
        let said = as_other(Protocol::V2, Protocol::V1);
        assert!(said.contains("but the message is of version 2.0"), "{said}");
        // Metadata alone is a valid message of both.
        for protocol in [Protocol::V1, Protocol::V2] {
            assert!(read_all(protocol, vec![0x1a, 0x00]).is_ok());
        }
    }

    #[test]
    fn native_histograms_are_read() {
        // A series of version 1.0 with an empty histogram.
        let message = [0x0a, 0x02, 0x22, 0x00];
        let found = read_all(Protocol::V1, message.to_vec()).unwrap();
        assert_eq!(found.iter().next().unwrap().histograms.len(), 1);
        let message = [0x2a, 0x02, 0x1a, 0x00];
        let found = read_all(Protocol::V2, message.to_vec()).unwrap();
        assert_eq!(found.iter().next().unwrap().histograms.len(), 1);
    }
}
