//! Requests of Prometheus remote write, versions 1.0 and 2.0 (the specifications are
//! `prometheus.io/docs/specs/prw/remote_write_spec` and `…_spec_2_0`).
//!
//! A body is a protobuf message in snappy's block format. The messages are declared by hand with
//! `prost`, so that the build needs no protobuf compiler.

mod messages;
mod read;

pub use read::{RequestError, decompress, message_length, read_request};

use messages::{v1, v2};
use prost::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use takt_model::{Labels, Timestamp};

/// Version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// Every receiver understands it.
    #[default]
    #[serde(rename = "1.0")]
    V1,
    /// Smaller requests. The receiver reports how many samples it stored.
    #[serde(rename = "2.0")]
    V2,
}

impl Protocol {
    /// Value of the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::V1 => "application/x-protobuf",
            Self::V2 => "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        }
    }

    /// Returns the version that a content type names. `None` if it names no version of remote
    /// write. Without the parameter `proto` it is 1.0.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let mut parts = content_type.split(';').map(str::trim);
        if !parts.next()?.eq_ignore_ascii_case("application/x-protobuf") {
            return None;
        }
        let proto = parts.find_map(|part| part.strip_prefix("proto="));
        match proto.map(|name| name.trim_matches('"')) {
            // Senders of the first version do not know the parameter.
            None | Some("prometheus.WriteRequest") => Some(Self::V1),
            Some("io.prometheus.write.v2.Request") => Some(Self::V2),
            Some(_) => None,
        }
    }

    /// Value of the header `X-Prometheus-Remote-Write-Version`.
    pub fn version(self) -> &'static str {
        match self {
            Self::V1 => "0.1.0",
            Self::V2 => "2.0.0",
        }
    }
}

/// Collects series into the body of one request.
#[derive(Debug)]
pub enum RequestWriter {
    /// A request of version 1.0.
    V1(v1::WriteRequest),
    /// A request of version 2.0.
    V2 {
        /// The message.
        request: v2::Request,
        /// Position of each text in the message's symbols.
        positions: HashMap<String, u32>,
    },
}

impl RequestWriter {
    /// Returns an empty request.
    pub fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::V1 => Self::V1(v1::WriteRequest::default()),
            Protocol::V2 => Self::V2 {
                // The first symbol is the empty text.
                request: v2::Request {
                    symbols: vec![String::new()],
                    timeseries: Vec::new(),
                },
                positions: HashMap::new(),
            },
        }
    }

    /// Adds a series with its samples in order of time. The bits of a staleness marker are kept.
    pub fn add(&mut self, labels: &Labels, samples: impl Iterator<Item = (Timestamp, f64)>) {
        match self {
            Self::V1(request) => request.timeseries.push(v1::TimeSeries {
                labels: labels
                    .iter()
                    .map(|(name, value)| v1::Label {
                        name: name.to_owned(),
                        value: value.to_owned(),
                    })
                    .collect(),
                samples: samples
                    .map(|(at, value)| v1::Sample {
                        value,
                        timestamp: at.0,
                    })
                    .collect(),
            }),

            Self::V2 { request, positions } => {
                let symbols = &mut request.symbols;
                // Each text once: labels repeat in most series.
                let mut position = |text: &str| {
                    positions.get(text).copied().unwrap_or_else(|| {
                        let next = u32::try_from(symbols.len()).unwrap_or(u32::MAX);
                        symbols.push(text.to_owned());
                        positions.insert(text.to_owned(), next);
                        next
                    })
                };

                let labels_refs = labels
                    .iter()
                    .flat_map(|(name, value)| [position(name), position(value)])
                    .collect();

                request.timeseries.push(v2::TimeSeries {
                    labels_refs,
                    samples: samples
                        .map(|(at, value)| v2::Sample {
                            value,
                            timestamp: at.0,
                            start_timestamp: 0,
                        })
                        .collect(),
                });
            }
        }
    }

    /// Returns the body: the message in snappy's block format.
    pub fn body(&self) -> Vec<u8> {
        let message = match self {
            Self::V1(request) => request.encode_to_vec(),
            Self::V2 { request, .. } => request.encode_to_vec(),
        };
        // Compression fails only for inputs of 4 GiB and more; a request holds some thousand samples.
        snap::raw::Encoder::new()
            .compress_vec(&message)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STALE: u64 = 0x7ff0_0000_0000_0002;

    type Pushed = Vec<(Vec<(String, String)>, Vec<(i64, u64)>)>;

    fn written(protocol: Protocol, series: &Pushed) -> Vec<u8> {
        let mut writer = RequestWriter::new(protocol);
        for (labels, samples) in series {
            let labels = labels.iter().cloned().collect();
            let samples = samples
                .iter()
                .map(|&(at, bits)| (Timestamp(at), f64::from_bits(bits)));
            writer.add(&labels, samples);
        }
        snap::raw::Decoder::new()
            .decompress_vec(&writer.body())
            .unwrap()
    }

    fn read_v1(message: &[u8]) -> Pushed {
        let request = v1::WriteRequest::decode(message).unwrap();
        request
            .timeseries
            .into_iter()
            .map(|series| {
                let labels = series.labels.into_iter();
                let samples = series.samples.into_iter();
                (
                    labels.map(|label| (label.name, label.value)).collect(),
                    samples
                        .map(|sample| (sample.timestamp, sample.value.to_bits()))
                        .collect(),
                )
            })
            .collect()
    }

    fn read_v2(message: &[u8]) -> Pushed {
        let request = v2::Request::decode(message).unwrap();
        assert_eq!(request.symbols[0], "");
        let text = |&position: &u32| request.symbols[position as usize].clone();
        request
            .timeseries
            .iter()
            .map(|series| {
                let pairs = series.labels_refs.chunks(2);
                let samples = series.samples.iter();
                (
                    pairs.map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
                    samples
                        .map(|sample| (sample.timestamp, sample.value.to_bits()))
                        .collect(),
                )
            })
            .collect()
    }

    proptest! {
        #[test]
        fn both_versions_carry_all_labels_and_bits(
            series in prop::collection::vec(
                (
                    prop::collection::btree_map("[a-z_]{1,8}", "\\PC{1,12}", 1..6),
                    prop::collection::vec((any::<i64>(), prop_oneof![any::<u64>(), Just(STALE)]), 0..5),
                ),
                0..8,
            ),
        ) {
            // Protobuf leaves out a value that equals the default, so the sign of zero is lost.
            let minus_zero = (-0.0_f64).to_bits();
            let series: Pushed = series
                .into_iter()
                .map(|(labels, samples)| {
                    let samples = samples.into_iter();
                    let samples =
                        samples.map(|(at, bits)| (at, if bits == minus_zero { 0 } else { bits }));
                    (labels.into_iter().collect(), samples.collect())
                })
                .collect();
            prop_assert_eq!(read_v1(&written(Protocol::V1, &series)), series.clone());
            prop_assert_eq!(read_v2(&written(Protocol::V2, &series)), series);
        }
    }

    /// The bytes of one series, written by hand from the specification's message definitions.
    #[test]
    fn the_bytes_follow_the_specification() {
        let series = vec![(
            vec![("__name__".to_owned(), "up".to_owned())],
            vec![(1000, 1.0_f64.to_bits())],
        )];
        let mut expected = vec![0x0a, 0x1e, 0x0a, 0x0e, 0x0a, 8];
        expected.extend(b"__name__");
        expected.extend([0x12, 2]);
        expected.extend(b"up");
        expected.extend([
            0x12, 0x0c, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x10, 0xe8, 0x07,
        ]);
        assert_eq!(written(Protocol::V1, &series), expected);
    }
}
