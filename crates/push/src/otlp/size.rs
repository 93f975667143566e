//! Memory that a protobuf message takes when it is decoded, found without decoding it: two bytes of
//! an empty metric become two hundred.

use super::messages::{
    AnyValue, ArrayValue, ExponentialBuckets, ExponentialHistogram, ExponentialPoint,
    ExportRequest, Gauge, Histogram, HistogramPoint, KeyValue, KeyValueList, Metric, NumberPoint,
    QuantileValue, Resource, ResourceMetrics, ScopeMetrics, Sum, Summary, SummaryPoint,
};
use crate::wire::{Field, Fields};

/// Capacity of a list that grew one by one, as a multiple of its length.
const LIST_GROWTH: usize = 2;

/// Deepest message that `prost` decodes.
const DEPTH_MAX: usize = 100;

/// A kind of message.
struct Shape {
    /// Bytes of the decoded message without its lists and texts.
    bytes: usize,
    /// Numbers of the fields that contain messages or lists of numbers.
    fields: &'static [(u64, Content)],
}

enum Content {
    Message(&'static Shape),
    /// Numbers of eight bytes, which take one byte or more in a message.
    Numbers,
}

use Content::{Message, Numbers};

const fn shape<T>(fields: &'static [(u64, Content)]) -> Shape {
    Shape {
        bytes: size_of::<T>(),
        fields,
    }
}

static REQUEST: Shape = shape::<ExportRequest>(&[(1, Message(&RESOURCE_METRICS))]);
static RESOURCE_METRICS: Shape =
    shape::<ResourceMetrics>(&[(1, Message(&RESOURCE)), (2, Message(&SCOPE_METRICS))]);
static RESOURCE: Shape = shape::<Resource>(&[(1, Message(&KEY_VALUE))]);
static SCOPE_METRICS: Shape = shape::<ScopeMetrics>(&[(2, Message(&METRIC))]);
static METRIC: Shape = shape::<Metric>(&[
    (5, Message(&GAUGE)),
    (7, Message(&SUM)),
    (9, Message(&HISTOGRAM)),
    (10, Message(&EXPONENTIAL_HISTOGRAM)),
    (11, Message(&SUMMARY)),
]);
static GAUGE: Shape = shape::<Gauge>(&[(1, Message(&NUMBER_POINT))]);
static SUM: Shape = shape::<Sum>(&[(1, Message(&NUMBER_POINT))]);
static HISTOGRAM: Shape = shape::<Histogram>(&[(1, Message(&HISTOGRAM_POINT))]);
static EXPONENTIAL_HISTOGRAM: Shape =
    shape::<ExponentialHistogram>(&[(1, Message(&EXPONENTIAL_POINT))]);
static SUMMARY: Shape = shape::<Summary>(&[(1, Message(&SUMMARY_POINT))]);
static NUMBER_POINT: Shape = shape::<NumberPoint>(&[(7, Message(&KEY_VALUE))]);
static HISTOGRAM_POINT: Shape =
    shape::<HistogramPoint>(&[(6, Numbers), (7, Numbers), (9, Message(&KEY_VALUE))]);
static EXPONENTIAL_POINT: Shape = shape::<ExponentialPoint>(&[
    (1, Message(&KEY_VALUE)),
    (8, Message(&EXPONENTIAL_BUCKETS)),
    (9, Message(&EXPONENTIAL_BUCKETS)),
]);
static EXPONENTIAL_BUCKETS: Shape = shape::<ExponentialBuckets>(&[(2, Numbers)]);
static SUMMARY_POINT: Shape =
    shape::<SummaryPoint>(&[(6, Message(&QUANTILE_VALUE)), (7, Message(&KEY_VALUE))]);
static QUANTILE_VALUE: Shape = shape::<QuantileValue>(&[]);
static KEY_VALUE: Shape = shape::<KeyValue>(&[(2, Message(&ANY_VALUE))]);
static ANY_VALUE: Shape = shape::<AnyValue>(&[(5, Message(&ARRAY)), (6, Message(&KEY_VALUE_LIST))]);
static ARRAY: Shape = shape::<ArrayValue>(&[(1, Message(&ANY_VALUE))]);
static KEY_VALUE_LIST: Shape = shape::<KeyValueList>(&[(1, Message(&KEY_VALUE))]);

/// Returns the bytes that a request takes when it is decoded. Of a damaged message, up to the damage,
/// where decoding ends, too.
pub(super) fn decoded_bytes(message: &[u8]) -> usize {
    bytes_of(message, &REQUEST, DEPTH_MAX)
}

fn bytes_of(message: &[u8], shape: &Shape, depth: usize) -> usize {
    let mut bytes = shape.bytes;
    // `prost` refuses deeper messages, and a hostile one must not use up the stack here.
    if depth == 0 {
        return bytes;
    }

    for (number, field) in Fields(message).map_while(Result::ok) {
        // A handful of fields: a search is faster than a map.
        let content = shape.fields.iter().find(|(known, _)| *known == number);
        bytes += match (content, field) {
            (Some((_, Message(shape))), Field::Bytes(inner)) => {
                (LIST_GROWTH - 1) * shape.bytes + bytes_of(inner, shape, depth - 1)
            }
            (Some((_, Numbers)), Field::Bytes(packed)) => {
                // As if each number had one byte, the shortest form.
                LIST_GROWTH * size_of::<u64>() * packed.len()
            }
            (Some((_, Numbers)), _) => LIST_GROWTH * size_of::<u64>(),
            (_, Field::Bytes(text)) => text.len(),
            _ => 0,
        };
    }
    bytes
}
