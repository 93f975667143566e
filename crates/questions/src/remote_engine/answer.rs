//! The answers of Prometheus' HTTP API.

use serde::de::{DeserializeOwned, Error, IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use takt_model::Timestamp;
use takt_store::Sample;

/// Characters of an engine's message that are repeated.
const WORDS_MAX: usize = 300;

#[derive(Deserialize)]
struct Envelope<T> {
    data: Option<T>,
    /// VictoriaMetrics: some of its stores did not answer.
    #[serde(default, rename = "isPartial")]
    is_partial: bool,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// `data` of a query.
#[derive(Debug, Deserialize)]
pub(super) struct Rows {
    pub result: Vec<Row>,
}

/// A series of a vector or matrix.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    #[serde(default)]
    pub metric: BTreeMap<String, String>,
    #[serde(default)]
    pub value: Option<Pair>,
    #[serde(default)]
    pub values: Vec<Pair>,
    #[serde(default)]
    histogram: Option<IgnoredAny>,
    #[serde(default)]
    histograms: Option<IgnoredAny>,
}

impl Row {
    /// Whether the series has native histograms.
    pub fn has_histograms(&self) -> bool {
        self.histogram.is_some() || self.histograms.is_some()
    }
}

/// `[1700000000.123, "0.5"]`
#[derive(Debug, Deserialize)]
pub(super) struct Pair(f64, Number);

impl Pair {
    /// The sample.
    pub fn sample(self) -> Sample {
        let Self(seconds, Number(value)) = self;
        Sample {
            // Milliseconds may come as 1700000000.1230001, which truncation would change.
            at: Timestamp((seconds * 1000.0).round() as i64),
            value,
        }
    }
}

/// A float as a text: `NaN`, `+Inf` and `1e+06` are no JSON numbers.
#[derive(Debug)]
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D>(deserializer: D) -> Result<Self, D::Error>
    where
        D: Deserializer<'de>,
    {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number in quotes")
            }

            fn visit_str<E>(self, text: &str) -> Result<Number, E>
            where
                E: Error,
            {
                let number = text.parse().map(Number);
                number.map_err(|_| E::custom(format!("{text:?} is not a number")))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// Reads the data of an answer. The error is a sentence.
pub(super) fn read<T>(body: &[u8]) -> Result<T, String>
where
    T: DeserializeOwned,
{
    let envelope: Envelope<T> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    // A partial answer would look like missing samples, and rules would fire or resolve by it.
    if envelope.is_partial {
        return Err("the answer is partial: some of its stores did not answer".to_owned());
    }
    envelope.data.ok_or_else(|| "no data".to_owned())
}

/// The engine's message, or the begin of its page.
pub(super) fn words(body: &[u8]) -> String {
    let refusal: Result<Refusal, _> = serde_json::from_slice(body);
    let text = refusal.map_or_else(
        |_| String::from_utf8_lossy(body).into_owned(),
        |refusal| refusal.error,
    );

    // The message goes into logs and pages, on one line.
    let text: String = text.chars().take(WORDS_MAX).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_and_matrices_are_read() {
        let vector = br#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"__name__":"up","node":"a"},"value":[1700000000.1230001,"1e+06"]}]}}"#;
        let found: Rows = read(vector).unwrap();
        let row = found.result.into_iter().next().unwrap();
        assert_eq!(row.metric["node"], "a");
        assert!(!row.has_histograms());
        let sample = row.value.unwrap().sample();
        assert_eq!(sample.at.0, 1_700_000_000_123);
        assert_eq!(sample.value, 1e6);

        // Without a name, with a fraction of a second, and with values that JSON lacks.
        let matrix = br#"{"data":{"result":[{"metric":{},"values":[[1,"NaN"],[2.5,"-Inf"]]}]}}"#;
        let found: Rows = read(matrix).unwrap();
        let samples: Vec<Sample> = found
            .result
            .into_iter()
            .flat_map(|row| row.values)
            .map(Pair::sample)
            .collect();
        assert!(samples[0].value.is_nan());
        assert_eq!(samples[1].at.0, 2500);
        assert_eq!(samples[1].value, f64::NEG_INFINITY);
    }

    #[test]
    fn other_forms_are_named() {
        let error = |body: &[u8]| read::<Rows>(body).unwrap_err();
        assert!(error(b"<html>").contains("expected value"));
        assert_eq!(error(br#"{"status":"success"}"#), "no data");
        assert!(error(br#"{"isPartial":true,"data":{"result":[]}}"#).contains("partial"));

        let body = br#"{"data":{"result":[{"value":[1,"x"]}]}}"#;
        assert!(
            error(body).contains("\"x\" is not a number"),
            "{}",
            error(body)
        );

        assert_eq!(
            words(br#"{"error":"too many samples"}"#),
            "too many samples"
        );
        assert_eq!(words(b"<h1>\n no</h1>"), "<h1> no</h1>");
    }

    #[test]
    fn native_histograms_are_seen() {
        let body = br#"{"data":{"result":[{"metric":{},"histogram":[1,{"count":"1"}]}]}}"#;
        let found: Rows = read(body).unwrap();
        assert!(found.result[0].has_histograms());
    }
}
