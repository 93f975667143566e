//! `takt query`: a PromQL query, at one instant or over a range.

use super::plot::plot;
use super::{print, source};
use crate::cli::{ListingFormat, Place};
use crate::output::{self, stdout};
use crate::source::Source;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use takt_api::{QueryData, QueryQuestion};
use takt_questions::listing::Listing;
use takt_server::{Failure, OrUsage};
use takt_store::Store;

#[derive(Debug, Args)]
pub struct Query {
    /// The query; - for standard input
    pub promql: String,
    /// Instant: seconds since 1970 or RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", conflicts_with_all = ["start", "end", "step"])]
    pub time: Option<String>,
    /// Start of a range
    #[arg(long, value_name = "TIME", requires = "end", requires = "step")]
    pub start: Option<String>,
    /// End of a range
    #[arg(long, value_name = "TIME", requires = "start")]
    pub end: Option<String>,
    /// Step of a range (15, 1m)
    #[arg(long, value_name = "DURATION", requires = "start")]
    pub step: Option<String>,
    /// Output format; plot needs a range
    #[arg(long, value_enum, default_value_t)]
    pub format: QueryFormat,
}

/// Output format of a query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum QueryFormat {
    #[default]
    Table,
    Json,
    Csv,
    /// Curves in the terminal
    Plot,
}

/// Runs the command.
pub fn run(place: &Place, asked: &Query) -> Result<(), Failure> {
    let mut promql = asked.promql.clone();
    if promql == "-" {
        promql.clear();
        io::stdin().read_to_string(&mut promql).usage()?;
    }

    let question = QueryQuestion {
        query: promql,
        time: asked.time.clone(),
        start: asked.start.clone(),
        end: asked.end.clone(),
        step: asked.step.clone(),
    };

    let source: Source<Store> = source(place)?;
    let answer = source.ask(&question)?;

    for remark in answer.warnings.iter().chain(&answer.infos) {
        // On the standard error, so that JSON and CSV stay what a program expects.
        tracing::warn!(remark, "the query returned a remark");
    }
    if answer.data.result.as_array().is_some_and(Vec::is_empty) {
        tracing::warn!("the query has no result");
    }

    // Times in the cluster's zone are for people; programs get Prometheus' seconds.
    let format = match asked.format {
        QueryFormat::Plot if answer.data.result_type == "matrix" => {
            return show(&plot(&answer.data, output::width().unwrap_or(100)));
        }
        QueryFormat::Plot => {
            let error = "--format plot shows a range; give --start, --end and --step, or a query \
                 such as up[1h]";
            return Err(anyhow::anyhow!(error)).usage();
        }
        QueryFormat::Table => {
            let zone = source.zone();
            let listing = listing(&answer.data, Some(&zone)).with_unbroken_first();
            return print(ListingFormat::Table, &listing, &answer.data);
        }
        QueryFormat::Json => ListingFormat::Json,
        QueryFormat::Csv => ListingFormat::Csv,
    };

    print(format, &listing(&answer.data, None), &answer.data)
}

fn show(picture: &str) -> Result<(), Failure> {
    Ok(stdout().write_all(picture.as_bytes())?)
}

/// Returns one row for each value: time, labels of the series, value. Times are seconds since 1970,
/// or date and time in `zone`.
fn listing(data: &QueryData, zone: Option<&TimeZone>) -> Listing {
    let series: &[Value] = match data.result_type.as_str() {
        "vector" | "matrix" => data.result.as_array().map_or(&[], Vec::as_slice),
        _ => &[],
    };

    // Series need not have the same labels, so the columns are the labels of all.
    let names: BTreeSet<&str> = series
        .iter()
        .flat_map(labels)
        .map(|(name, _)| name)
        .collect();

    let mut rows = Vec::new();
    let mut row = |series: &Value, point: &Value| {
        let label = |name: &&str| text(&series["metric"][*name]);
        let mut cells = vec![time(&point[0], zone)];
        cells.extend(names.iter().map(label));
        // A table for people has one line for a histogram, without its buckets.
        let value = zone
            .and_then(|_| histogram(&point[1]))
            .unwrap_or_else(|| text(&point[1]));
        cells.push(value);
        rows.push(cells);
    };

    match data.result_type.as_str() {
        "vector" => series.iter().for_each(|one| {
            let has_value = one.get("value").is_some();
            row(one, &one[if has_value { "value" } else { "histogram" }]);
        }),
        "matrix" => {
            for one in series {
                [&one["values"], &one["histograms"]]
                    .into_iter()
                    .filter_map(Value::as_array)
                    .flatten()
                    .for_each(|point| row(one, point));
            }
        }
        _ => row(&Value::Null, &data.result),
    }

    let columns = ["time"]
        .into_iter()
        .chain(names.iter().copied())
        .chain(["value"])
        .map(str::to_owned);
    Listing::of(&columns.collect::<Vec<_>>(), rows)
}

/// Describes a native histogram: `20 observations, sum 17.03, 19 buckets`. `None` for a number.
fn histogram(value: &Value) -> Option<String> {
    let count = text(value.get("count")?);
    let sum = text(value.get("sum")?);
    let buckets = value["buckets"].as_array().map_or(0, Vec::len);
    Some(format!(
        "{count} observations, sum {sum}, {buckets} buckets"
    ))
}

fn labels(series: &Value) -> impl Iterator<Item = (&str, &Value)> {
    series["metric"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), value))
}

fn time(seconds: &Value, zone: Option<&TimeZone>) -> String {
    // Prometheus writes seconds with milliseconds as the fraction.
    let at = seconds.as_f64().map(|seconds| (seconds * 1000.0) as i64);
    let at = at.and_then(|at| Timestamp::from_millisecond(at).ok());
    at.zip(zone)
        .map(|(at, zone)| at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S"))
        .map_or_else(|| text(seconds), |at| at.to_string())
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn csv(result_type: &str, result: Value) -> String {
        let mut out = Vec::new();
        let data = QueryData {
            result_type: result_type.to_owned(),
            result,
        };
        listing(&data, None).write_csv(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn one_row_a_value() {
        assert_eq!(csv("scalar", json!([1.5, "2"])), "time,value\n1.5,2\n");
        assert_eq!(csv("vector", json!([])), "time,value\n");
        // Each series lacks a label that the other has.
        let up = json!([
            {"metric": {"node": "g01"}, "value": [1, "1"]},
            {"metric": {"job": "x"}, "value": [1, "NaN"]},
        ]);
        assert_eq!(
            csv("vector", up),
            "time,job,node,value\n1,,g01,1\n1,x,,NaN\n"
        );
        let buckets = json!({
            "buckets": [[0, "1", "2", "3"]],
            "count": "3",
            "sum": "4.5",
        });
        assert_eq!(
            histogram(&buckets).unwrap(),
            "3 observations, sum 4.5, 1 buckets"
        );
        let matrix = json!([{"metric": {}, "values": [[1, "1"], [2, "+Inf"]]}]);
        assert_eq!(csv("matrix", matrix), "time,value\n1,1\n2,+Inf\n");
    }
}
