//! For this crate's tests: a store of samples that understands selectors and one comparison, which
//! is what state machines need. Real PromQL is the caller's.

use crate::ports::{Query, QueryError, Sample, SampleSink, StoreError};
use crate::promtest::{Outcome, Storage};
use crate::routing::matcher::{Matchers, parse_matchers};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use takt_model::native::NativeHistogram;
use takt_model::notation::{self, NotedValue};
use takt_model::{Labels, METRIC_NAME, Timestamp};

/// How long a sample is seen, as in Prometheus.
const LOOKBACK: Duration = Duration::from_secs(300);

#[derive(Default)]
pub struct Memory {
    series: RefCell<BTreeMap<Labels, BTreeMap<Timestamp, Option<f64>>>>,
    broken: RefCell<bool>,
}

impl Memory {
    /// Loads a series written as `name{labels}` with values in promtool's notation, one every
    /// `step`.
    pub fn load(&self, step: Duration, series: &str, values: &str) {
        let labels = parse_series(series);

        let mut all = self.series.borrow_mut();
        let own = all.entry(labels).or_default();
        for (n, value) in notation::values(values).unwrap().into_iter().enumerate() {
            let at =
                Timestamp(i64::try_from(n).unwrap() * i64::try_from(step.as_millis()).unwrap());
            match value {
                NotedValue::Stale => drop(own.insert(at, None)),
                NotedValue::Float(value) => drop(own.insert(at, Some(value))),
                _ => {}
            }
        }
    }

    /// From here on every query fails, or works again.
    pub fn break_queries(&self, broken: bool) {
        *self.broken.borrow_mut() = broken;
    }
}

pub fn parse_series(text: &str) -> Labels {
    let (name, rest) = text.split_once('{').unwrap_or((text, "}"));
    let mut labels: Labels = rest
        .trim_end_matches('}')
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
        .collect();
    labels.set(METRIC_NAME, name.trim());
    labels
}

/// Expected value of a sample.
type Comparison<'a> = (&'a str, f64);

/// `name{matchers}` with or without one of `> >= < <= == !=` and a number.
fn parse_expr(expr: &str) -> Result<(Matchers, Option<Comparison<'_>>), QueryError> {
    let fail = || QueryError(format!("cannot read {expr}"));
    // The last sign of comparison, unless it stands inside the braces of a selector.
    let (selector, comparison) = match expr
        .rfind(['>', '<', '='])
        .filter(|at| !expr[*at..].contains('}'))
    {
        None => (expr, None),
        Some(at) => {
            let start = expr[..at]
                .rfind(|c| !matches!(c, '>' | '<' | '=' | '!'))
                .map_or(0, |at| at + 1);
            let number = expr[at + 1..].trim().parse().map_err(|_| fail())?;
            (&expr[..start], Some((&expr[start..=at], number)))
        }
    };

    let (name, braces) = selector
        .trim()
        .split_once('{')
        .unwrap_or((selector.trim(), "}"));

    let mut matchers = parse_matchers(&format!("{{{braces}")).map_err(|_| fail())?;
    if !name.is_empty() {
        matchers.extend(parse_matchers(&format!("{METRIC_NAME}=\"{name}\"")).map_err(|_| fail())?);
    }
    Ok((Matchers(matchers), comparison))
}

impl Query for Memory {
    fn instant(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, f64)>, QueryError> {
        if *self.broken.borrow() {
            return Err(QueryError("the store is away".to_owned()));
        }
        let (matchers, comparison) = parse_expr(expr)?;

        let holds = |value: f64| match comparison {
            None => true,
            Some((">", than)) => value > than,
            Some((">=", than)) => value >= than,
            Some(("<", than)) => value < than,
            Some(("<=", than)) => value <= than,
            Some(("==", than)) => value == than,
            Some((_, than)) => value != than,
        };

        let all = self.series.borrow();
        let seen = all
            .iter()
            .filter(|(labels, _)| matchers.accept(labels))
            .filter_map(|(labels, samples)| {
                // Only the newest sample counts: an end mark hides the ones before it.
                let (when, value) = samples.range(..=at).next_back()?;
                (*when > at.minus(LOOKBACK)).then_some((labels.clone(), (*value)?))
            })
            .filter(|(_, value)| holds(*value))
            .collect();
        Ok(seen)
    }

    fn check(&self, expr: &str) -> Result<(), QueryError> {
        parse_expr(expr).map(|_| ())
    }
}

impl Storage for Memory {
    fn write_histograms(
        &self,
        _: &Labels,
        _: Vec<(Timestamp, NativeHistogram)>,
    ) -> Result<(), StoreError> {
        Err(StoreError("no histograms here".to_owned()))
    }

    fn result(&self, expr: &str, at: Timestamp) -> Result<Vec<(Labels, Outcome)>, QueryError> {
        let floats = self.instant(expr, at)?.into_iter();
        Ok(floats
            .map(|(labels, value)| (labels, Outcome::Float(value)))
            .collect())
    }
}

impl SampleSink for Memory {
    fn write(&self, samples: &[Sample]) -> Result<(), StoreError> {
        let mut all = self.series.borrow_mut();
        for sample in samples {
            all.entry(sample.labels.clone())
                .or_default()
                .insert(sample.at, sample.value);
        }
        Ok(())
    }
}
