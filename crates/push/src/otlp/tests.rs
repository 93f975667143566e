use super::messages::*;
use super::translate::PointError;
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const AT: u64 = 1_760_000_000_123_000_000;

fn all() -> MemoryGrant<'static> {
    MemoryGrant::of_bytes(usize::MAX)
}

fn read(encoding: Encoding, message: &[u8]) -> Translated {
    let translation = Translation {
        promoted: BTreeSet::from(["slurm.job_id".to_owned()]),
    };
    translation.read(encoding, message, &mut all()).unwrap()
}

/// Series with the bits of their values. All samples have the time [`AT`].
fn series(found: &Translated) -> BTreeMap<String, f64> {
    found
        .series
        .iter()
        .map(|one| {
            assert_eq!(one.samples.len(), 1);
            assert_eq!(one.samples[0].at.0, 1_760_000_000_123);
            let labels = one.labels().unwrap().to_string();
            (labels, one.samples[0].value)
        })
        .collect()
}

fn attribute(key: &str, text: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            string_value: Some(text.to_owned()),
            ..AnyValue::default()
        }),
    }
}

fn request(metrics: Vec<Metric>) -> ExportRequest {
    ExportRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: vec![
                    // The attributes that become `job` and `instance`, one for `target_info`, and
                    // one that is promoted.
                    attribute("service.name", "train"),
                    attribute("service.namespace", "lab"),
                    attribute("service.instance.id", "n1:7"),
                    attribute("host.name", "n1"),
                    attribute("slurm.job_id", "42"),
                ],
            }),
            scope_metrics: vec![ScopeMetrics { metrics }],
        }],
    }
}

fn number(value: f64) -> NumberPoint {
    NumberPoint {
        time_unix_nano: AT,
        as_double: Some(value),
        // Two keys that become the same label.
        attributes: vec![attribute("a.b", "1"), attribute("a/b", "2")],
        ..NumberPoint::default()
    }
}

#[test]
fn points_become_series_with_job_instance_and_promoted_attributes() {
    let sum = Sum {
        data_points: vec![number(5.0)],
        aggregation_temporality: Temporality::Cumulative as i32,
        is_monotonic: true,
    };
    let histogram = Histogram {
        data_points: vec![HistogramPoint {
            time_unix_nano: AT,
            count: 6,
            sum: Some(1.5),
            bucket_counts: vec![1, 2, 3],
            explicit_bounds: vec![0.005, 1.0],
            ..HistogramPoint::default()
        }],
        // A delta, whose five series must be marked as such.
        aggregation_temporality: Temporality::Delta as i32,
    };

    let message = request(vec![
        Metric {
            name: "steps.done".to_owned(),
            unit: "1".to_owned(),
            sum: Some(sum),
            ..Metric::default()
        },
        Metric {
            name: "step".to_owned(),
            unit: "s".to_owned(),
            histogram: Some(histogram),
            ..Metric::default()
        },
    ]);

    let found = read(Encoding::Protobuf, &message.encode_to_vec());
    let common = "instance=\"n1:7\", job=\"lab/train\"";
    let job = "slurm_job_id=\"42\"";
    let bucket = |le: &str| format!("step_seconds_bucket{{{common}, le=\"{le}\", {job}}}");
    let expected = BTreeMap::from([
        (
            format!("steps_done_total{{a_b=\"1;2\", {common}, {job}}}"),
            5.0,
        ),
        (bucket("0.005"), 1.0),
        (bucket("1"), 3.0),
        (bucket("+Inf"), 6.0),
        (format!("step_seconds_count{{{common}, {job}}}"), 6.0),
        (format!("step_seconds_sum{{{common}, {job}}}"), 1.5),
        (
            format!("target_info{{host_name=\"n1\", {common}, {job}}}"),
            1.0,
        ),
    ]);
    assert_eq!(series(&found), expected);
    assert_eq!(found.points, 2);
    assert_eq!(found.rejected.len(), 0);
    let deltas = found.series.iter().filter(|one| one.is_delta).count();
    assert_eq!(deltas, 5, "the series of the histogram");
}

#[test]
fn points_that_cannot_be_stored_are_counted_by_reason() {
    let cut = |count, counts: &[u64], bounds: &[f64]| HistogramPoint {
        time_unix_nano: AT,
        count,
        bucket_counts: counts.to_vec(),
        explicit_bounds: bounds.to_vec(),
        ..HistogramPoint::default()
    };
    let metric = |name: &str| Metric {
        name: name.to_owned(),
        ..Metric::default()
    };
    let message = request(vec![
        Metric {
            exponential_histogram: Some(ExponentialHistogram {
                data_points: vec![ExponentialPoint::default(); 2],
                aggregation_temporality: 1,
            }),
            ..metric("native")
        },
        Metric {
            histogram: Some(Histogram {
                data_points: vec![
                    // A bucket too few, bounds that fall, a wrong total, a bound of NaN, and a
                    // total beyond 64 bits.
                    cut(6, &[1, 2], &[0.1, 1.0]),
                    cut(6, &[1, 2, 3], &[1.0, 0.1]),
                    cut(7, &[1, 2, 3], &[0.1, 1.0]),
                    cut(6, &[1, 2, 3], &[0.1, f64::NAN]),
                    cut(6, &[u64::MAX, 2, 3], &[0.1, 1.0]),
                ],
                aggregation_temporality: 2,
            }),
            ..metric("cut")
        },
        Metric {
            sum: Some(Sum {
                data_points: vec![number(1.0)],
                ..Sum::default()
            }),
            ..metric("unspecified")
        },
        Metric {
            gauge: Some(Gauge {
                data_points: vec![NumberPoint::default()],
            }),
            ..metric("empty")
        },
        Metric {
            gauge: Some(Gauge {
                data_points: vec![number(1.0)],
            }),
            ..metric("...")
        },
    ]);

    let found = read(Encoding::Protobuf, &message.encode_to_vec());
    let expected = BTreeMap::from([
        (PointError::ExponentialDelta, 2),
        (PointError::Buckets, 5),
        (PointError::Temporality, 1),
        (PointError::NoValue, 1),
        (PointError::NoName, 1),
    ]);
    assert_eq!(found.rejected, expected);
    assert_eq!(found.points, 10);
    assert_eq!(found.series.sample_count(), 0);
}

#[test]
fn an_exponential_histogram_becomes_a_native_one() {
    use takt_model::native::HistogramError;
    let json = |point: &str| {
        let metrics = format!(
            r#"{{"name":"step.time","unit":"s","exponentialHistogram":{{"aggregationTemporality":2,
            "dataPoints":[{point}]}}}}"#
        );
        let message =
            format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{metrics}]}}]}}]}}"#);
        read(Encoding::Json, message.as_bytes())
    };

    let found = json(
        r#"{"timeUnixNano":"1760000000123000000","count":"7","sum":9.5,"scale":1,"zeroCount":"1",
        "attributes":[{"key":"gpu","value":{"stringValue":"0"}}],
        "positive":{"offset":-1,"bucketCounts":["1","0","3"]},"negative":{"offset":2,"bucketCounts":["2"]}}"#,
    );
    assert_eq!(found.points, 1);
    assert_eq!(found.rejected.len(), 0);
    let series = found.series.iter().next().unwrap();
    let labels = series.labels().unwrap().to_string();
    assert_eq!(labels, r#"step_time_seconds{gpu="0"}"#);
    let [given] = series.histograms else { panic!() };
    assert_eq!(given.at.0, 1_760_000_000_123);
    let histogram = given.value.clone().unwrap().unwrap();
    // OTLP's bucket -1 is 0 here, and the empty one between is left out.
    assert_eq!(histogram.positive, [(0, 1.0), (2, 3.0)]);
    assert_eq!(histogram.negative, [(3, 2.0)]);
    assert_eq!(histogram.schema, 1);
    assert_eq!(histogram.zero_threshold, 1e-128);
    // The counts do not add up; the scale is too coarse.
    for (point, error) in [
        (r#"{"count":"3","sum":1}"#, HistogramError::Total),
        (r#"{"scale":-5}"#, HistogramError::Schema(-5)),
    ] {
        let expected = BTreeMap::from([(PointError::ExponentialHistogram(error), 1)]);
        assert_eq!(json(point).rejected, expected);
    }
}

#[test]
fn a_point_without_a_recorded_value_ends_its_series() {
    let point = NumberPoint {
        time_unix_nano: AT,
        // The flag `NoRecordedValue`.
        flags: 1,
        ..NumberPoint::default()
    };
    let gauge = Gauge {
        data_points: vec![point],
    };
    let message = request(vec![Metric {
        name: "util".to_owned(),
        gauge: Some(gauge),
        ..Metric::default()
    }]);
    let found = read(Encoding::Protobuf, &message.encode_to_vec());
    let first = found.series.iter().next().unwrap();
    assert_eq!(first.samples[0].value.to_bits(), 0x7ff0_0000_0000_0002);
}

/// The example of the specification's JSON, with the forms that senders use.
#[test]
fn json_has_texts_for_long_integers_and_numbers_or_names_for_enums() {
    let json = r#"{"resourceMetrics": [{
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "train"}},
            {"key": "ranks", "value": {"intValue": "8"}},
            {"key": "tags", "value": {"arrayValue": {"values": [{"intValue": 1}, {"boolValue": true}]}}}]},
        "scopeMetrics": [{"scope": {"name": "x"}, "metrics": [
            {"name": "steps", "unit": "1", "description": "ignored", "sum": {
                "aggregationTemporality": "AGGREGATION_TEMPORALITY_CUMULATIVE", "isMonotonic": true,
                "dataPoints": [{"asInt": "12", "startTimeUnixNano": "1", "timeUnixNano": "1760000000123000000"}]}},
            {"name": "loss", "gauge": {"dataPoints": [
                {"asDouble": "NaN", "timeUnixNano": 1760000000123000000}]}},
            {"name": "wait", "unit": "s", "histogram": {"aggregationTemporality": 2, "dataPoints": [
                {"timeUnixNano": "1760000000123000000", "count": "3", "sum": 0.5,
                 "bucketCounts": ["1", 2], "explicitBounds": [10]}]}}]}]}]}"#;
    let found = read(Encoding::Json, json.as_bytes());
    let mut series = series(&found);
    assert!(series.remove("loss{job=\"train\"}").unwrap().is_nan());
    let expected = [
        ("steps_total{job=\"train\"}", 12.0),
        ("wait_seconds_bucket{job=\"train\", le=\"10\"}", 1.0),
        ("wait_seconds_bucket{job=\"train\", le=\"+Inf\"}", 3.0),
        ("wait_seconds_count{job=\"train\"}", 3.0),
        ("wait_seconds_sum{job=\"train\"}", 0.5),
        (
            "target_info{job=\"train\", ranks=\"8\", tags=\"[1,true]\"}",
            1.0,
        ),
    ];
    let expected: BTreeMap<String, f64> = expected
        .into_iter()
        .map(|(labels, value)| (labels.to_owned(), value))
        .collect();
    assert_eq!(series, expected);
}

#[test]
fn a_reply_names_what_was_rejected() {
    let reply = ExportReply {
        partial_success: Some(PartialSuccess {
            rejected_data_points: 2,
            error_message: "why".to_owned(),
        }),
    };
    assert_eq!(
        Encoding::Json.reply(&reply),
        br#"{"partialSuccess":{"rejectedDataPoints":"2","errorMessage":"why"}}"#
    );
    // A full success has an empty reply, as the specification requires.
    assert_eq!(Encoding::Json.reply(&ExportReply::default()), b"{}");
    assert_eq!(Encoding::Protobuf.reply(&ExportReply::default()), b"");
    assert_eq!(
        ExportReply::decode(&*Encoding::Protobuf.reply(&reply)).unwrap(),
        reply
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(message in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Translation::default().read(Encoding::Protobuf, &message, &mut all());
        let _ = Translation::default().read(Encoding::Json, &message, &mut all());
    }

    /// Every series of a readable message has valid labels.
    #[test]
    fn arbitrary_edits_of_a_request_are_read_or_refused(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let metric = |name: &str| Metric {
            name: name.to_owned(),
            ..Metric::default()
        };
        let histogram = HistogramPoint {
            time_unix_nano: AT,
            count: 6,
            sum: Some(1.5),
            bucket_counts: vec![1, 2, 3],
            explicit_bounds: vec![0.005, 1.0],
            attributes: vec![
                // Attributes with the names of reserved labels, and one that is sorted before them.
                attribute("le", "x"),
                attribute("__name__", "y"),
                attribute("Z", "z"),
            ],
            ..HistogramPoint::default()
        };
        let message = request(vec![
            Metric {
                gauge: Some(Gauge {
                    data_points: vec![number(1.0)],
                }),
                ..metric("a")
            },
            Metric {
                histogram: Some(Histogram {
                    data_points: vec![histogram],
                    aggregation_temporality: 1,
                }),
                ..metric("b")
            },
        ]);
        let mut message = message.encode_to_vec();
        for (at, byte) in &edits {
            let at = at.index(message.len());
            message[at] = *byte;
        }
        if let Ok(found) = Translation::default().read(Encoding::Protobuf, &message, &mut all()) {
            for series in found.series.iter() {
                let labels = series.labels();
                prop_assert!(labels.is_ok(), "{:?}", labels);
            }
        }
    }
}

/// A message of so many bytes: lists of empty messages, one kind at each level.
fn nested(bytes: usize, tags: &[u8], empty: &[u8]) -> Vec<u8> {
    tags.iter()
        .rev()
        .fold(empty.repeat(bytes / empty.len()), |content, tag| {
            let mut message = vec![*tag];
            crate::wire::push_varint(&mut message, content.len() as u64);
            message.extend(content);
            message
        })
}

/// Such requests took 4 GB: two bytes of each message became a hundred in memory.
#[test]
fn lists_of_empty_messages_need_granted_memory() {
    const BYTES: usize = 1 << 20;
    for (tags, empty) in [
        (&[][..], &[10, 0][..]),
        (&[10], &[18, 0]),
        // Metrics, points of a gauge, of a histogram, of an exponential one, of a summary.
        (&[10, 18], &[18, 0]),
        (&[10, 18, 18, 42], &[10, 0]),
        (&[10, 18, 18, 74], &[10, 0]),
        (&[10, 18, 18, 82], &[10, 0]),
        (&[10, 18, 18, 90], &[10, 0]),
        // Attributes of a resource and of a point, lists in lists, buckets.
        (&[10, 10], &[10, 0]),
        (&[10, 18, 18, 42, 10], &[58, 0]),
        (&[10, 10, 10, 18, 42], &[10, 0]),
        (&[10, 18, 18, 82, 10, 66, 18], &[0]),
    ] {
        let message = nested(BYTES, tags, empty);
        let request = ExportRequest::decode(&*message).unwrap();
        drop(request);
        let mut asked = 0;
        let mut ask = |bytes: usize| {
            asked += bytes;
            false
        };
        let read = Translation::default().read(
            Encoding::Protobuf,
            &message,
            &mut MemoryGrant::new(&mut ask),
        );
        assert!(matches!(read, Err(OtlpError::Memory(_))), "{tags:?}");
        assert!(asked > 8 * BYTES, "{tags:?}: {asked}");
    }
    for (begin, empty, end) in [
        ("{\"resourceMetrics\":[", "{},", "{}]}"),
        (
            "{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[",
            "{},",
            "{}]}]}]}",
        ),
    ] {
        let message = [begin, &empty.repeat(BYTES / 3), end].concat();
        let read = Translation::default().read(Encoding::Json, message.as_bytes(), &mut all());
        let said = error_of(read);
        assert!(said.contains("too many empty items"), "{said}");
    }
    // A value of any kind was kept in memory until its kind was known.
    let lists = format!("[{}[]]", "[],".repeat(1000));
    let message = format!(
        "{{\"resourceMetrics\":[{{\"scopeMetrics\":[{{\"metrics\":[{{\"sum\":{{\"aggregationTemporality\":{lists}}}}}]}}]}}]}}"
    );
    let said =
        error_of(Translation::default().read(Encoding::Json, message.as_bytes(), &mut all()));
    assert!(said.contains("expected a number"), "{said}");
}

fn error_of(read: Result<Translated, OtlpError>) -> String {
    takt_model::error_chain(&read.unwrap_err())
}

/// Every bucket has all labels of its point: 16 bytes of a request became a megabyte.
#[test]
fn many_buckets_with_long_labels_need_granted_memory() {
    // 1,001 buckets with a label of 1 MiB each would be a gigabyte.
    let long = "x".repeat(1 << 20);
    let point = HistogramPoint {
        time_unix_nano: AT,
        bucket_counts: vec![0; 1001],
        explicit_bounds: (0..1000).map(f64::from).collect(),
        attributes: vec![attribute("long", &long)],
        ..HistogramPoint::default()
    };
    let metric = Metric {
        name: "seconds".to_owned(),
        histogram: Some(Histogram {
            data_points: vec![point],
            aggregation_temporality: Temporality::Cumulative as i32,
        }),
        ..Metric::default()
    };
    let request = ExportRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: None,
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![metric],
            }],
        }],
    };
    let mut asked = 0;
    let mut ask = |bytes: usize| {
        asked += bytes;
        asked < 64 << 20
    };
    let read = Translation::default().read(
        Encoding::Protobuf,
        &request.encode_to_vec(),
        &mut MemoryGrant::new(&mut ask),
    );
    assert!(matches!(read, Err(OtlpError::Memory(_))));
}

proptest! {
    /// What is granted is at least what is taken, for any message.
    #[test]
    fn a_damaged_message_is_counted_without_decoding(message in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decoded_bytes(&message) >= size_of::<ExportRequest>());
    }
}
