//! The messages of OTLP metrics (`opentelemetry-proto` 1.x), as protobuf and as JSON, without the
//! fields that Takt does not use.
//!
//! A `oneof` is declared as optional fields: the bytes are the same.

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

/// A request.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExportRequest {
    /// Metrics of each resource.
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "list")]
    pub resource_metrics: Vec<ResourceMetrics>,
}

/// Metrics of one resource, such as a process.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "list")]
    pub scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "list")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScopeMetrics {
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "list")]
    pub metrics: Vec<Metric>,
}

/// A metric. One of the data fields is set.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metric {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub unit: String,
    #[prost(message, optional, tag = "5")]
    pub gauge: Option<Gauge>,
    #[prost(message, optional, tag = "7")]
    pub sum: Option<Sum>,
    #[prost(message, optional, tag = "9")]
    pub histogram: Option<Histogram>,
    #[prost(message, optional, tag = "10")]
    pub exponential_histogram: Option<ExponentialHistogram>,
    #[prost(message, optional, tag = "11")]
    pub summary: Option<Summary>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gauge {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "list")]
    pub data_points: Vec<NumberPoint>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sum {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "list")]
    pub data_points: Vec<NumberPoint>,
    #[prost(enumeration = "Temporality", tag = "2")]
    #[serde(deserialize_with = "temporality")]
    pub aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    pub is_monotonic: bool,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Histogram {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "list")]
    pub data_points: Vec<HistogramPoint>,
    #[prost(enumeration = "Temporality", tag = "2")]
    #[serde(deserialize_with = "temporality")]
    pub aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExponentialHistogram {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "list")]
    pub data_points: Vec<ExponentialPoint>,
    #[prost(enumeration = "Temporality", tag = "2")]
    #[serde(deserialize_with = "temporality")]
    pub aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Summary {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "list")]
    pub data_points: Vec<SummaryPoint>,
}

/// Meaning of the points of sums and histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Temporality {
    /// Not given.
    Unspecified = 0,
    /// Increase since the point before.
    Delta = 1,
    /// Total since the start.
    Cumulative = 2,
}

/// A number of a gauge or sum.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NumberPoint {
    #[prost(fixed64, tag = "3")]
    #[serde(deserialize_with = "natural")]
    pub time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    #[serde(deserialize_with = "float")]
    pub as_double: Option<f64>,
    #[prost(sfixed64, optional, tag = "6")]
    #[serde(deserialize_with = "integer")]
    pub as_int: Option<i64>,
    #[prost(message, repeated, tag = "7")]
    #[serde(deserialize_with = "list")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "8")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HistogramPoint {
    #[prost(fixed64, tag = "3")]
    #[serde(deserialize_with = "natural")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    #[serde(deserialize_with = "natural")]
    pub count: u64,
    #[prost(double, optional, tag = "5")]
    #[serde(deserialize_with = "float")]
    pub sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    #[serde(deserialize_with = "naturals")]
    pub bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    #[serde(deserialize_with = "floats")]
    pub explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "9")]
    #[serde(deserialize_with = "list")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "10")]
    pub flags: u32,
}

/// A point of an exponential histogram.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExponentialPoint {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "list")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "3")]
    #[serde(deserialize_with = "natural")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    #[serde(deserialize_with = "natural")]
    pub count: u64,
    #[prost(double, optional, tag = "5")]
    #[serde(deserialize_with = "float")]
    pub sum: Option<f64>,
    #[prost(sint32, tag = "6")]
    pub scale: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(deserialize_with = "natural")]
    pub zero_count: u64,
    #[prost(message, optional, tag = "8")]
    pub positive: Option<ExponentialBuckets>,
    #[prost(message, optional, tag = "9")]
    pub negative: Option<ExponentialBuckets>,
    #[prost(uint32, tag = "10")]
    pub flags: u32,
    #[prost(double, tag = "14")]
    #[serde(deserialize_with = "plain_float")]
    pub zero_threshold: f64,
}

/// Neighbouring buckets of an exponential histogram.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExponentialBuckets {
    /// Index of the first bucket.
    #[prost(sint32, tag = "1")]
    pub offset: i32,
    #[prost(uint64, repeated, tag = "2")]
    #[serde(deserialize_with = "naturals")]
    pub bucket_counts: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SummaryPoint {
    #[prost(fixed64, tag = "3")]
    #[serde(deserialize_with = "natural")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    #[serde(deserialize_with = "natural")]
    pub count: u64,
    #[prost(double, tag = "5")]
    #[serde(deserialize_with = "plain_float")]
    pub sum: f64,
    #[prost(message, repeated, tag = "6")]
    #[serde(deserialize_with = "list")]
    pub quantile_values: Vec<QuantileValue>,
    #[prost(message, repeated, tag = "7")]
    #[serde(deserialize_with = "list")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "8")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuantileValue {
    #[prost(double, tag = "1")]
    #[serde(deserialize_with = "plain_float")]
    pub quantile: f64,
    #[prost(double, tag = "2")]
    #[serde(deserialize_with = "plain_float")]
    pub value: f64,
}

/// An attribute.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// Value of an attribute. At most one field is set.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AnyValue {
    #[prost(string, optional, tag = "1")]
    pub string_value: Option<String>,
    #[prost(bool, optional, tag = "2")]
    pub bool_value: Option<bool>,
    #[prost(int64, optional, tag = "3")]
    #[serde(deserialize_with = "integer")]
    pub int_value: Option<i64>,
    #[prost(double, optional, tag = "4")]
    #[serde(deserialize_with = "float")]
    pub double_value: Option<f64>,
    #[prost(message, optional, tag = "5")]
    pub array_value: Option<ArrayValue>,
    #[prost(message, optional, tag = "6")]
    pub kvlist_value: Option<KeyValueList>,
    /// In JSON, base64.
    #[prost(bytes = "vec", optional, tag = "7")]
    #[serde(deserialize_with = "base64_bytes")]
    pub bytes_value: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "list")]
    pub values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyValueList {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "list")]
    pub values: Vec<KeyValue>,
}

/// The reply to a request.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExportReply {
    /// Set if some data points were rejected.
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_success: Option<PartialSuccess>,
}

/// The rejected data points.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialSuccess {
    /// Number of rejected data points.
    #[prost(int64, tag = "1")]
    #[serde(serialize_with = "as_text", deserialize_with = "plain_integer")]
    pub rejected_data_points: i64,
    /// Why they were rejected.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

thread_local! {
    /// Bytes that the message which this thread reads may still take.
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

/// Reads a request in JSON that takes at most `most` bytes in memory.
pub(super) fn from_json(message: &[u8], most: usize) -> serde_json::Result<ExportRequest> {
    // Through the thread, because serde passes no state to the functions that read fields.
    LEFT.set(most);
    serde_json::from_slice(message)
}

/// Reads a list and counts what its items take: an empty one has three bytes in a message.
fn list<'d, T, D>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'d>,
    D: Deserializer<'d>,
{
    struct Items<T>(PhantomData<T>);

    impl<'d, T> Visitor<'d> for Items<T>
    where
        T: Deserialize<'d>,
    {
        type Value = Vec<T>;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("a list")
        }

        fn visit_seq<A>(self, mut items: A) -> Result<Vec<T>, A::Error>
        where
            A: SeqAccess<'d>,
        {
            /// Capacity of a list that grew one by one, as a multiple of its length.
            const GROWTH: usize = 2;
            let mut all = Vec::new();
            while let Some(item) = items.next_element()? {
                // Taken for each item as it comes; the length of a list in JSON is not known before
                // its end.
                let left = LEFT.get().checked_sub(GROWTH * size_of::<T>());
                LEFT.set(left.ok_or_else(|| A::Error::custom("too many empty items"))?);
                all.push(item);
            }
            Ok(all)
        }
    }

    from.deserialize_seq(Items(PhantomData))
}

/// A number in JSON: 64-bit integers are texts, and so are NaN and the infinities.
enum Number {
    Natural(u64),
    Integer(i64),
    Float(f64),
    Text(String),
    Null,
}

impl<'d> Deserialize<'d> for Number {
    fn deserialize<D>(from: D) -> Result<Self, D::Error>
    where
        D: Deserializer<'d>,
    {
        struct AnyNumber;

        impl Visitor<'_> for AnyNumber {
            type Value = Number;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a number")
            }

            fn visit_u64<E>(self, number: u64) -> Result<Number, E> {
                Ok(Number::Natural(number))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Number, E> {
                Ok(Number::Integer(number))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Number, E> {
                Ok(Number::Float(number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Number, E> {
                Ok(Number::Text(text.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Number, E> {
                Ok(Number::Null)
            }
        }

        from.deserialize_any(AnyNumber)
    }
}

impl Number {
    fn float(self) -> Result<Option<f64>, String> {
        Ok(Some(match self {
            Self::Natural(number) => number as f64,
            Self::Integer(number) => number as f64,
            Self::Float(number) => number,
            Self::Text(text) => match text.as_str() {
                "Infinity" => f64::INFINITY,
                "-Infinity" => f64::NEG_INFINITY,
                _ => text
                    .parse()
                    .map_err(|_| format!("expected a number, found {text:?}"))?,
            },
            Self::Null => return Ok(None),
        }))
    }

    fn whole<T>(self) -> Result<Option<T>, String>
    where
        T: TryFrom<i128>,
    {
        let whole = match self {
            Self::Natural(number) => Some(i128::from(number)),
            Self::Integer(number) => Some(i128::from(number)),
            // Some JSON writers have only floats, and write 5 as 5.0.
            Self::Float(number) if number.fract() == 0.0 => Some(number as i128),
            Self::Float(_) => None,
            Self::Text(text) => text.parse().ok(),
            Self::Null => return Ok(None),
        };
        whole
            .and_then(|whole| T::try_from(whole).ok())
            .map(Some)
            .ok_or_else(|| "expected a whole number of 64 bits".to_owned())
    }
}

fn float<'d, D>(from: D) -> Result<Option<f64>, D::Error>
where
    D: Deserializer<'d>,
{
    Number::deserialize(from)?.float().map_err(D::Error::custom)
}

fn plain_float<'d, D>(from: D) -> Result<f64, D::Error>
where
    D: Deserializer<'d>,
{
    float(from).map(Option::unwrap_or_default)
}

fn integer<'d, D>(from: D) -> Result<Option<i64>, D::Error>
where
    D: Deserializer<'d>,
{
    Number::deserialize(from)?.whole().map_err(D::Error::custom)
}

fn plain_integer<'d, D>(from: D) -> Result<i64, D::Error>
where
    D: Deserializer<'d>,
{
    integer(from).map(Option::unwrap_or_default)
}

fn natural<'d, D>(from: D) -> Result<u64, D::Error>
where
    D: Deserializer<'d>,
{
    Number::deserialize(from)?
        .whole()
        .map(Option::unwrap_or_default)
        .map_err(D::Error::custom)
}

fn naturals<'d, D>(from: D) -> Result<Vec<u64>, D::Error>
where
    D: Deserializer<'d>,
{
    list::<Number, D>(from)?
        .into_iter()
        .map(|number| number.whole().map(Option::unwrap_or_default))
        .collect::<Result<_, _>>()
        .map_err(D::Error::custom)
}

fn floats<'d, D>(from: D) -> Result<Vec<f64>, D::Error>
where
    D: Deserializer<'d>,
{
    list::<Number, D>(from)?
        .into_iter()
        .map(|number| number.float().map(Option::unwrap_or_default))
        .collect::<Result<_, _>>()
        .map_err(D::Error::custom)
}

/// An enum is a number; some senders write its name.
fn temporality<'d, D>(from: D) -> Result<i32, D::Error>
where
    D: Deserializer<'d>,
{
    Ok(match Number::deserialize(from)? {
        Number::Text(name) => match name.as_str() {
            "AGGREGATION_TEMPORALITY_DELTA" => Temporality::Delta as i32,
            "AGGREGATION_TEMPORALITY_CUMULATIVE" => Temporality::Cumulative as i32,
            _ => Temporality::Unspecified as i32,
        },
        number => number
            .whole()
            .map(Option::unwrap_or_default)
            .map_err(D::Error::custom)?,
    })
}

fn base64_bytes<'d, D>(from: D) -> Result<Option<Vec<u8>>, D::Error>
where
    D: Deserializer<'d>,
{
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    let Some(text) = Option::<String>::deserialize(from)? else {
        return Ok(None);
    };
    BASE64_STANDARD
        .decode(text)
        .map(Some)
        .map_err(D::Error::custom)
}

fn as_text<S>(number: &i64, to: S) -> Result<S::Ok, S::Error>
where
    S: serde::Serializer,
{
    to.collect_str(number)
}
