//! Parameters from the query string and from a form, and Prometheus' formats of times and durations.

use super::answer::ApiError;
use axum::extract::{Form, FromRequest, Query, Request};
use axum::http::{HeaderMap, Method, header};
use std::num::IntErrorKind;
use std::time::{Duration, SystemTime};
use takt_model::Matcher;
use takt_model::Timestamp;

/// Prometheus' minimum and maximum time.
const MIN_TIME: (&str, Timestamp) = ("-292273086-05-16T16:47:06Z", Timestamp(i64::MIN / 1000));
const MAX_TIME: (&str, Timestamp) = (
    "292277025-08-18T07:12:54.999999999Z",
    Timestamp(i64::MAX / 1000),
);

/// Selectors of one request; more are refused.
const MAX_SELECTORS: usize = 1000;

/// Names and values in order: first those of the form, then those of the query string.
#[derive(Debug, Default)]
pub(super) struct Params(Vec<(String, String)>);

impl<S> FromRequest<S> for Params
where
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let Query(address) = Query::<Vec<(String, String)>>::try_from_uri(request.uri())
            .map_err(|error| ApiError::bad_data(format!("error parsing form values: {error}")))?;
        let mut all = Vec::new();
        if request.method() == Method::POST && is_form(request.headers()) {
            let Form(form) = Form::<Vec<(String, String)>>::from_request(request, state)
                .await
                .map_err(|error| {
                    ApiError::bad_data(format!("error parsing form values: {error}"))
                })?;
            all.extend(form);
        }
        // As in Go's `Request.Form`, a value of the form comes before one of the address.
        all.extend(address);
        Ok(Self(all))
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Params {
    fn from_iter<I>(pairs: I) -> Self
    where
        I: IntoIterator<Item = (&'a str, &'a str)>,
    {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default()
        .starts_with("application/x-www-form-urlencoded")
}

impl Params {
    /// The first value; `None` if it is missing or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
            .find(|value| !value.is_empty())
    }

    /// The first value, or `""`.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// A time.
    pub fn time(&self, name: &str) -> Result<Option<Timestamp>, ApiError> {
        let wrong =
            |error| ApiError::parameter(name, format!("invalid time value for '{name}': {error}"));
        self.get(name)
            .map(|text| time(text).map_err(wrong))
            .transpose()
    }

    /// A required time.
    pub fn needed_time(&self, name: &str) -> Result<Timestamp, ApiError> {
        time(self.text(name)).map_err(|error| ApiError::parameter(name, error))
    }

    /// A time. Default: now.
    pub fn time_or_now(&self, name: &str) -> Result<Timestamp, ApiError> {
        Ok(self.time(name)?.unwrap_or_else(|| SystemTime::now().into()))
    }

    /// A duration, in milliseconds.
    pub fn duration(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.get(name)
            .map(|text| duration(text).map_err(|error| ApiError::parameter(name, error)))
            .transpose()
    }

    /// `lookback_delta`, in milliseconds.
    pub fn lookback(&self) -> Result<Option<i64>, ApiError> {
        let wrong =
            |error| ApiError::bad_data(format!("error parsing lookback delta duration: {error}"));
        self.get("lookback_delta")
            .map(|text| duration(text).map_err(wrong))
            .transpose()
    }

    /// A required duration, in milliseconds.
    pub fn needed_duration(&self, name: &str) -> Result<i64, ApiError> {
        duration(self.text(name)).map_err(|error| ApiError::parameter(name, error))
    }

    /// The timeout of the request, at most `longest`.
    pub fn timeout(&self, longest: Duration) -> Result<Duration, ApiError> {
        let asked = self
            .duration("timeout")?
            .map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
        Ok(asked.map_or(longest, |asked| asked.min(longest)))
    }

    /// Maximum number of results. Missing or 0: no limit.
    pub fn limit(&self) -> Result<usize, ApiError> {
        let Some(text) = self.get("limit") else {
            return Ok(usize::MAX);
        };

        match text.parse::<i64>() {
            Ok(limit) if limit < 0 => {
                Err(ApiError::parameter("limit", "limit must be non-negative"))
            }
            Ok(0) => Ok(usize::MAX),
            Ok(limit) => Ok(usize::try_from(limit).unwrap_or(usize::MAX)),
            Err(error) => {
                // In the words of Go's `strconv`, which clients of Prometheus know.
                let is_long = matches!(
                    error.kind(),
                    IntErrorKind::PosOverflow | IntErrorKind::NegOverflow
                );
                let why = if is_long {
                    "value out of range"
                } else {
                    "invalid syntax"
                };
                let text = takt_model::quoted(text);
                Err(ApiError::parameter(
                    "limit",
                    format!("strconv.Atoi: parsing {text}: {why}"),
                ))
            }
        }
    }

    /// The texts of `match[]`. A series is selected if one of them matches.
    pub fn selectors(&self) -> Result<Vec<String>, ApiError> {
        let texts: Vec<String> = self
            .0
            .iter()
            .filter(|(name, _)| name == "match[]")
            .map(|(_, text)| text.clone())
            .collect();
        if texts.len() > MAX_SELECTORS {
            let error = format!("at most {MAX_SELECTORS} selectors are answered");
            return Err(ApiError::parameter("match[]", error));
        }
        Ok(texts)
    }

    /// The times `start` and `end`, in any order. Default: all time.
    pub fn times(&self) -> Result<(Timestamp, Timestamp), ApiError> {
        let start = self.time("start")?.unwrap_or(Timestamp::MIN);
        let end = self.time("end")?.unwrap_or(Timestamp::MAX);
        Ok((start, end))
    }
}

/// The conditions of a selector of `match[]`.
pub(super) fn selector(text: &str) -> Result<Vec<Matcher>, String> {
    let matchers = takt_promql::selector(text).map_err(|error| error.to_string())?;
    // Such a selector would select every series, usually by mistake.
    if matchers.iter().all(|matcher| matcher.accepts("")) {
        return Err("match[] must contain at least one non-empty matcher".to_owned());
    }
    Ok(matchers)
}

/// Seconds since 1970 or RFC 3339.
fn time(text: &str) -> Result<Timestamp, String> {
    let error = || format!("cannot parse {text:?} to a valid timestamp");

    if let Some(seconds) = number(text) {
        let ms = (seconds * 1e3).round();
        // A cast beyond the range would silently become the last time of all.
        return if ms.abs() < i64::MAX as f64 {
            Ok(Timestamp(ms as i64))
        } else {
            Err(error())
        };
    }

    match [MIN_TIME, MAX_TIME]
        .into_iter()
        .find(|(named, _)| *named == text)
    {
        Some((_, at)) => Ok(at),
        // jiff accepts more: RFC 3339 requires a `T` and an offset.
        None if text.contains(['T', 't']) => text
            .parse::<jiff::Timestamp>()
            .map(Timestamp::from)
            .map_err(|_| error()),
        None => Err(error()),
    }
}

/// Seconds, or Prometheus' `1h30m`; in milliseconds.
fn duration(text: &str) -> Result<i64, String> {
    let error = || format!("cannot parse {text:?} to a valid duration");
    if let Some(seconds) = number(text) {
        // Prometheus counts nanoseconds in an i64.
        return match (seconds * 1e9).abs() < i64::MAX as f64 {
            true => Ok((seconds * 1e3) as i64),
            false => Err(format!("{}. It overflows int64", error())),
        };
    }

    const UNITS: [(&str, i64); 7] = [
        ("y", 365 * 86_400_000),
        ("w", 7 * 86_400_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ];

    // Each unit at most once, in descending order.
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut total = 0_i64;
    while !rest.is_empty() {
        let (digits, after) =
            rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?);
        let (unit, after) = after.split_at(
            after
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(after.len()),
        );
        // The iterator keeps its place, so a repeated or larger unit is not found.
        let (_, ms) = units.find(|(name, _)| *name == unit).ok_or_else(error)?;
        let count: i64 = digits.parse().map_err(|_| error())?;
        total = count
            .checked_mul(*ms)
            .and_then(|part| total.checked_add(part))
            .ok_or_else(error)?;
        rest = after;
    }

    // Invalid: an empty text, and a duration of more nanoseconds than fit into an i64.
    if text.is_empty() || total > i64::MAX / 1_000_000 {
        Err(error())
    } else {
        Ok(total)
    }
}

/// A number in Go's syntax, without the words for infinity.
fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, ms) in [
            ("1700000000", 1_700_000_000_000),
            ("1700000000.0625", 1_700_000_000_063),
            ("-1.5", -1500),
            ("1e3", 1_000_000),
            ("2023-11-14T22:13:20Z", 1_700_000_000_000),
            ("2023-11-14T23:13:20.781+01:00", 1_700_000_000_781),
        ] {
            assert_eq!(time(text), Ok(Timestamp(ms)), "{text}");
        }
        for text in [
            "",
            "now",
            "NaN",
            "inf",
            "2023-11-14",
            "2023-11-14 22:13:20Z",
            "2023-11-14T22:13:20",
            "1e300",
        ] {
            assert_eq!(
                time(text),
                Err(format!("cannot parse {text:?} to a valid timestamp"))
            );
        }
        assert!(
            time(MIN_TIME.0).unwrap() < Timestamp(0) && time(MAX_TIME.0).unwrap() > Timestamp(0)
        );
    }

    #[test]
    fn durations() {
        for (text, ms) in [
            ("15", 15_000),
            ("0.5", 500),
            ("1h30m", 5_400_000),
            ("1s500ms", 1500),
            ("1y", 31_536_000_000),
        ] {
            assert_eq!(duration(text), Ok(ms), "{text}");
        }
        for text in [
            "",
            "5x",
            "m",
            "30m1h",
            "1m1m",
            "-5m",
            "5",
            "1h 5m",
            // Beyond the 292 years of Go's nanoseconds.
            "300y",
            "99999999999999999999s",
        ] {
            assert_eq!(duration(text).is_ok(), text == "5", "{text}");
        }
        assert!(
            duration("1e12")
                .unwrap_err()
                .ends_with("It overflows int64")
        );
    }

    #[test]
    fn the_same_parameter_several_times() {
        let params: Params = [
            ("match[]", "up"),
            ("a", ""),
            ("a", "1"),
            ("match[]", "{node=\"g01\"}"),
        ]
        .into_iter()
        .collect();
        // An empty value is as good as none.
        assert_eq!(params.get("a"), Some("1"));
        assert_eq!(params.get("b"), None);
        assert_eq!(params.selectors().unwrap().len(), 2);
        assert_eq!(selector("{node=\"g01\"}").unwrap().len(), 1);
        assert!(selector("{node=\"\"}").is_err());
        let many: Params = vec![("match[]", "up"); MAX_SELECTORS + 1]
            .into_iter()
            .collect();
        assert!(many.selectors().is_err());
    }
}
