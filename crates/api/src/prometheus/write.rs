//! Results in Prometheus' JSON: values are strings, times are seconds with up to three decimals.
//!
//! Not written by serde, which is slower for many numbers and does not write `1.500` and `"+Inf"`.

use crate::held::AnswerWriter;
use std::io::Write;
use takt_model::Labels;
use takt_model::Timestamp;
use takt_model::native::NativeHistogram;
use takt_promql::{Point, Sample, Series, Value, exponential};
use takt_store::{MemoryRefusal, SeriesExemplars};

/// Writing to memory cannot fail.
const NO_FAILURE: &str = "a vector takes every byte, and text is JSON";

/// `"resultType":…,"result":…`. Each series is dropped when it is written.
pub(super) fn write_value(answer: &mut AnswerWriter, value: Value) -> Result<(), MemoryRefusal> {
    let out = answer.piece();
    write!(out, r#""resultType":"{}","result":"#, value.kind()).expect(NO_FAILURE);
    match value {
        // As in Prometheus, samples have exponents and scalars do not.
        Value::Scalar(point) => write_point(out, &point, plain),
        Value::String { at, text } => {
            out.push(b'[');
            write_instant(out, at);
            out.push(b',');
            serde_json::to_writer(&mut *out, &text).expect(NO_FAILURE);
            out.push(b']');
        }
        Value::Vector(samples) => write_each(answer, samples, write_sample)?,
        Value::Matrix(series) => write_each(answer, series, write_series)?,
    }
    Ok(())
}

fn write_each<T>(
    answer: &mut AnswerWriter,
    all: Vec<T>,
    write: fn(&mut Vec<u8>, &T),
) -> Result<(), MemoryRefusal> {
    answer.piece().push(b'[');
    for (at, one) in all.into_iter().enumerate() {
        let out = answer.piece();
        if at > 0 {
            out.push(b',');
        }

        write(out, &one);
        answer.settle()?;
    }
    answer.piece().push(b']');
    Ok(())
}

fn write_sample(out: &mut Vec<u8>, sample: &Sample) {
    write_metric(out, &sample.labels);
    if let Some(histogram) = &sample.histogram {
        out.extend(br#","histogram":"#);
        write_histogram_point(out, sample.point.at, histogram);
    } else {
        out.extend(br#","value":"#);
        write_point(out, &sample.point, short);
    }
    out.push(b'}');
}

fn write_series(out: &mut Vec<u8>, series: &Series) {
    write_metric(out, &series.labels);
    // A series has `values`, even if empty, unless all of its points are histograms.
    if !series.points.is_empty() || series.histograms.is_empty() {
        out.extend(br#","values":"#);
        write_list(out, &series.points, |out, point| {
            write_point(out, point, short)
        });
    }
    if !series.histograms.is_empty() {
        out.extend(br#","histograms":"#);
        write_list(out, &series.histograms, |out, point| {
            write_histogram_point(out, point.at, &point.histogram)
        });
    }
    out.push(b'}');
}

/// The list of series with their exemplars. Each exemplar has a time.
pub(super) fn write_exemplars(out: &mut Vec<u8>, found: &[SeriesExemplars]) {
    write_list(out, found, |out, of_series| {
        out.extend(br#"{"seriesLabels":"#);
        write_labels(out, &of_series.labels);
        out.extend(br#","exemplars":"#);
        write_list(out, &of_series.exemplars, |out, exemplar| {
            out.extend(br#"{"labels":"#);
            write_labels(out, &exemplar.labels);
            out.extend(br#","value":"#);
            write_number(out, exemplar.value, short);
            out.extend(br#","timestamp":"#);
            write_instant(out, exemplar.at.unwrap_or_default());
            out.push(b'}');
        });
        out.push(b'}');
    });
}

fn write_list<T>(out: &mut Vec<u8>, all: &[T], each: impl Fn(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (at, one) in all.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        each(out, one);
    }
    out.push(b']');
}

fn write_metric(out: &mut Vec<u8>, labels: &Labels) {
    out.extend(br#"{"metric":"#);
    write_labels(out, labels);
}

fn write_labels(out: &mut Vec<u8>, labels: &Labels) {
    use serde::Serializer;
    serde_json::Serializer::new(out)
        .collect_map(labels.iter())
        .expect(NO_FAILURE);
}

fn write_point(out: &mut Vec<u8>, point: &Point, number: fn(&mut Vec<u8>, f64)) {
    out.push(b'[');
    write_instant(out, point.at);
    out.push(b',');
    write_number(out, point.value, number);
    out.push(b']');
}

/// Time, and the histogram with its populated buckets. The number of a bucket says which bounds belong to it: 0 the upper, 1 the
/// lower, 3 both.
fn write_histogram_point(out: &mut Vec<u8>, at: Timestamp, histogram: &NativeHistogram) {
    out.push(b'[');
    write_instant(out, at);
    out.extend(br#",{"count":"#);
    write_number(out, histogram.count, short);
    out.extend(br#","sum":"#);
    write_number(out, histogram.sum, short);

    let buckets: Vec<_> = histogram.buckets().collect();
    if !buckets.is_empty() {
        out.extend(br#","buckets":"#);
        write_list(out, &buckets, |out, bucket| {
            // Prometheus' numbers: 0 the upper bound, 1 the lower, 2 none, 3 both belong to the
            // bucket.
            let bounds = match (bucket.has_lower, bucket.has_upper) {
                (false, true) => b'0',
                (true, false) => b'1',
                (false, false) => b'2',
                (true, true) => b'3',
            };
            out.extend([b'[', bounds]);
            for value in [bucket.lower, bucket.upper, bucket.count] {
                out.push(b',');
                write_number(out, value, short);
            }
            out.push(b']');
        });
    }
    out.extend(b"}]");
}

/// A number in quotes.
fn write_number(out: &mut Vec<u8>, value: f64, number: fn(&mut Vec<u8>, f64)) {
    out.push(b'"');
    match value {
        value if value.is_nan() => out.extend(b"NaN"),
        f64::INFINITY => out.extend(b"+Inf"),
        f64::NEG_INFINITY => out.extend(b"-Inf"),
        value => number(out, value),
    }
    out.push(b'"');
}

fn plain(out: &mut Vec<u8>, value: f64) {
    write!(out, "{value}").expect(NO_FAILURE);
}

/// A number in the format of JavaScript and Prometheus: with an exponent below 10⁻⁶ and from 10²¹.
fn short(out: &mut Vec<u8>, value: f64) {
    match value.abs() {
        0.0 | 1e-6..1e21 => plain(out, value),
        _ => out.extend(exponential(value).into_bytes()),
    }
}

fn write_instant(out: &mut Vec<u8>, at: Timestamp) {
    // The sign apart: -0.001 has no whole seconds that could carry it.
    let sign = if at.0 < 0 { "-" } else { "" };
    let ms = at.0.unsigned_abs();
    let seconds = ms / 1000;
    let ms = ms % 1000;
    write!(out, "{sign}{seconds}").expect(NO_FAILURE);
    if ms > 0 {
        write!(out, ".{ms:03}").expect(NO_FAILURE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_store::MemoryAccount;

    fn json(value: &Value) -> String {
        let mut out = AnswerWriter::new(&MemoryAccount::default());
        write_value(&mut out, value.clone()).unwrap();
        let written = out.finish().unwrap().into_bytes();
        format!("{{{}}}", String::from_utf8(written).unwrap())
    }

    #[test]
    fn values_are_texts_and_instants_seconds() {
        let point = |at, value| Point {
            at: Timestamp(at),
            value,
        };
        assert_eq!(
            json(&Value::Scalar(point(1_500, 2.0))),
            r#"{"resultType":"scalar","result":[1.500,"2"]}"#
        );

        let labels: Labels = [("__name__", "up"), ("node", "g\"01")]
            .into_iter()
            .collect();
        assert_eq!(
            json(&Value::Vector(vec![Sample {
                labels: labels.clone(),
                point: point(1000, f64::NEG_INFINITY),
                histogram: None,
            }])),
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"up","node":"g\"01"},"value":[1,"-Inf"]}]}"#
        );

        let points = vec![
            point(-1, 1e20),
            point(1001, -0.0),
            point(2000, f64::NAN),
            point(3000, 0.1 + 0.2),
        ];
        assert_eq!(
            json(&Value::Matrix(vec![Series {
                labels: Labels::new(),
                points,
                histograms: Vec::new(),
            }])),
            r#"{"resultType":"matrix","result":[{"metric":{},"values":[[-0.001,"100000000000000000000"],[1.001,"-0"],[2,"NaN"],[3,"0.30000000000000004"]]}]}"#
        );
        // The answers of Prometheus 2.42 to `vector(1e-7)` and so on, and to `1e21`.
        let samples = [1e-6, 1e-7, 5e-324, -1e-9, 1e21, 1.5e300]
            .map(|value| point(0, value))
            .to_vec();
        assert_eq!(
            json(&Value::Matrix(vec![Series {
                labels: Labels::new(),
                points: samples,
                histograms: Vec::new(),
            }])),
            r#"{"resultType":"matrix","result":[{"metric":{},"values":[[0,"0.000001"],[0,"1e-07"],[0,"5e-324"],[0,"-1e-09"],[0,"1e+21"],[0,"1.5e+300"]]}]}"#
        );
        assert_eq!(
            json(&Value::Scalar(point(0, 1e21))),
            r#"{"resultType":"scalar","result":[0,"1000000000000000000000"]}"#
        );

        let histogram = NativeHistogram {
            count: 4.0,
            sum: 1.5,
            zero_threshold: 0.25,
            zero_count: 1.0,
            positive: vec![(1, 2.0)],
            negative: vec![(0, 1.0)],
            ..NativeHistogram::default()
        };
        assert_eq!(
            json(&Value::Vector(vec![Sample {
                labels: Labels::new(),
                point: point(1000, f64::NAN),
                histogram: Some(histogram.into()),
            }])),
            r#"{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"4","sum":"1.5","buckets":[[1,"-1","-0.5","1"],[3,"-0.25","0.25","1"],[0,"1","2","2"]]}]}]}"#
        );
        let text = Value::String {
            at: Timestamp(0),
            text: "a\nb".to_owned(),
        };
        assert_eq!(
            json(&text),
            r#"{"resultType":"string","result":[0,"a\nb"]}"#
        );
        assert_eq!(
            json(&Value::Vector(Vec::new())),
            r#"{"resultType":"vector","result":[]}"#
        );
    }
}
