//! Members after a dot: fields, keys, and the methods of the types in templates.

use super::value::{Value, fail, mistake, sorted};
use super::{TemplateError, time};
use jiff::tz::TimeZone;
use std::borrow::Cow;
use takt_model::Labels;

type Outcome<'a> = Result<Value<'a>, TemplateError>;

/// Follows a chain of names.
pub(super) fn walk<'a>(value: Value<'a>, names: &[String]) -> Outcome<'a> {
    names
        .iter()
        .try_fold(value, |value, name| member(&value, name, &[]))
}

/// One member of a value, with its arguments.
pub(super) fn member<'a>(value: &Value<'a>, name: &str, arguments: &[Value<'a>]) -> Outcome<'a> {
    // Methods come first, as in Go: a label called `Names` is reached by `index`.
    if let Some(result) = method(value, name, arguments) {
        return result;
    }

    if !arguments.is_empty() {
        let what = format!("`{name}` of {} cannot be called like this", value.name());
        return wrong(value, what);
    }
    match value {
        Value::Fields(all) => match all.fields.iter().find(|(field, _)| *field == name) {
            Some((_, value)) => Ok(value.clone()),
            None => mistake(format!("no field `{name}` in {}", all.kind)),
        },
        Value::Labels(labels) | Value::Kv(labels) => Ok(Value::Text(Cow::Owned(
            labels.get(name).unwrap_or_default().to_owned(),
        ))),
        Value::Map(map) => Ok(map.get(name).cloned().unwrap_or(Value::Nil)),
        Value::Int(_) | Value::Float(_) => mistake(format!("no field `{name}` in a number")),
        other => wrong(other, format!("no field `{name}` in {}", other.name())),
    }
}

/// A failure. Nothing may be something with other data.
fn wrong<'a>(value: &Value<'_>, what: String) -> Outcome<'a> {
    match value {
        Value::Nil => fail(what),
        _ => mistake(what),
    }
}

fn method<'a>(value: &Value<'a>, name: &str, arguments: &[Value<'a>]) -> Option<Outcome<'a>> {
    match value {
        Value::Kv(labels) => of_labels(labels, name, arguments),
        Value::List(items) => of_list(items, name),
        Value::Time(at) => of_time(at, name, arguments),
        Value::Duration(duration) => of_duration(*duration, name, arguments),
        Value::Named(..) | Value::Zone(_) => of_printed(value, name, arguments),
        _ => None,
    }
}

fn of_labels<'a>(labels: &Labels, name: &str, arguments: &[Value<'a>]) -> Option<Outcome<'a>> {
    let texts = |part: fn(&(&str, &str)) -> String| {
        Value::list(
            sorted(labels)
                .iter()
                .map(|pair| Value::text(part(pair)))
                .collect(),
        )
    };
    Some(Ok(match (name, arguments) {
        ("SortedPairs", []) => Value::list(
            sorted(labels)
                .into_iter()
                .map(|(name, value)| {
                    let text = |text: &str| Value::text(text.to_owned());
                    Value::fields("a pair", vec![("Name", text(name)), ("Value", text(value))])
                })
                .collect(),
        ),
        ("Names", []) => texts(|(name, _)| (*name).to_owned()),
        ("Values", []) => texts(|(_, value)| (*value).to_owned()),
        ("Remove", [Value::List(names)]) => {
            let mut left = labels.clone();
            names
                .iter()
                .for_each(|name| drop(left.remove(&name.print())));
            Value::Kv(Cow::Owned(left))
        }
        _ => return None,
    }))
}

/// Members of lists, such as `.Alerts.Firing` and `.SortedPairs.Values`.
fn of_list<'a>(items: &[Value<'a>], name: &str) -> Option<Outcome<'a>> {
    let field = |item: &Value<'a>, name: &str| match item {
        Value::Fields(all) => all
            .fields
            .iter()
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value.clone()),
        _ => None,
    };
    let found = match name {
        "Firing" | "Resolved" => {
            let wanted = name.to_lowercase();
            items
                .iter()
                .filter(|item| field(item, "Status").is_some_and(|status| status.print() == wanted))
                .cloned()
                .collect()
        }
        "Names" => items
            .iter()
            .filter_map(|item| field(item, "Name"))
            .collect(),
        "Values" => items
            .iter()
            .filter_map(|item| field(item, "Value"))
            .collect(),
        _ => return None,
    };
    Some(Ok(Value::list(found)))
}

/// Methods whose several results no template can use, in Go either.
const SEVERAL_RESULTS: [&str; 5] = ["Clock", "Date", "ISOWeek", "Zone", "ZoneBounds"];

fn of_time<'a>(at: &jiff::Zoned, name: &str, arguments: &[Value<'a>]) -> Option<Outcome<'a>> {
    if let Some(part) = time_part(at, name).filter(|_| arguments.is_empty()) {
        return Some(Ok(part));
    }
    if SEVERAL_RESULTS.contains(&name) {
        return Some(mistake(format!("`{name}` of a time has several results")));
    }

    let changed = match (name, arguments) {
        ("Format", [Value::Text(layout)]) => {
            return Some(Ok(Value::text(time::format(at, layout))));
        }
        ("Sub", [Value::Time(other)]) => {
            let since = at.timestamp().duration_since(other.timestamp());
            return Some(Ok(Value::Duration(since)));
        }
        ("Before", [Value::Time(other)]) => return Some(Ok(Value::Bool(at < other))),
        ("After", [Value::Time(other)]) => return Some(Ok(Value::Bool(at > other))),
        ("Equal", [Value::Time(other)]) => return Some(Ok(Value::Bool(at == other))),
        ("Compare", [Value::Time(other)]) => {
            return Some(Ok(Value::Int(at.cmp(other) as i64)));
        }
        ("In", [Value::Zone(zone)]) => Some(at.with_time_zone(zone.clone())),
        ("Add", [by]) => at.checked_add(duration(by)?).ok(),
        ("Round", [step]) => time::rounded(at, duration(step)?),
        ("Truncate", [step]) => time::truncated(at, duration(step)?),
        ("AddDate", [Value::Int(years), Value::Int(months), Value::Int(days)]) => {
            time::add_date(at, *years, *months, *days)
        }
        _ => return None,
    };
    Some(match changed {
        Some(at) => Ok(Value::Time(at)),
        None => fail("a time that cannot be written"),
    })
}

/// The result of a method without arguments.
fn time_part<'a>(at: &jiff::Zoned, name: &str) -> Option<Value<'a>> {
    let text = |layout| time::format(at, layout);
    let stamp = at.timestamp();
    Some(match name {
        "Unix" => Value::Int(stamp.as_second()),
        "UnixMilli" => Value::Int(stamp.as_millisecond()),
        "UnixMicro" => Value::Int(stamp.as_microsecond()),
        "UnixNano" => Value::Int(i64::try_from(stamp.as_nanosecond()).unwrap_or(i64::MAX)),
        "UTC" => Value::Time(at.with_time_zone(TimeZone::UTC)),
        "Local" => Value::Time(at.with_time_zone(TimeZone::system())),
        "Year" => Value::Int(at.year().into()),
        "Month" => Value::Named(at.month().into(), text("January")),
        "Day" => Value::Int(at.day().into()),
        "YearDay" => Value::Int(at.day_of_year().into()),
        "Weekday" => {
            let since_sunday = at.weekday().to_sunday_zero_offset();
            Value::Named(since_sunday.into(), text("Monday"))
        }
        "Hour" => Value::Int(at.hour().into()),
        "Minute" => Value::Int(at.minute().into()),
        "Second" => Value::Int(at.second().into()),
        "Nanosecond" => Value::Int(at.subsec_nanosecond().into()),
        "String" => Value::text(text(time::PRINTED)),
        "GoString" => Value::text(time::go_source(at)),
        "Location" => Value::Zone(at.time_zone().clone()),
        "IsDST" => Value::Bool(at.time_zone().to_offset_info(stamp).dst().is_dst()),
        // Go's year 1 stands for "no time": an alert that fires has no end.
        "IsZero" => Value::Bool(at.year() <= 1),
        _ => return None,
    })
}

/// A duration, also as a number of nanoseconds, which is how Go reads a constant.
fn duration(value: &Value<'_>) -> Option<jiff::SignedDuration> {
    match value {
        Value::Duration(duration) => Some(*duration),
        Value::Int(nanos) => Some(jiff::SignedDuration::from_nanos(*nanos)),
        _ => None,
    }
}

fn of_duration<'a>(
    given: jiff::SignedDuration,
    name: &str,
    arguments: &[Value<'a>],
) -> Option<Outcome<'a>> {
    let seconds = given.as_secs_f64();
    let whole = |units: i128| Value::Int(i64::try_from(units).unwrap_or(i64::MAX));
    Some(Ok(match (name, arguments) {
        ("Seconds", []) => Value::Float(seconds),
        ("Minutes", []) => Value::Float(seconds / 60.0),
        ("Hours", []) => Value::Float(seconds / 3600.0),
        ("Milliseconds", []) => whole(given.as_millis()),
        ("Microseconds", []) => whole(given.as_micros()),
        ("Nanoseconds", []) => whole(given.as_nanos()),
        ("Abs", []) => Value::Duration(given.abs()),
        ("String", []) => Value::text(time::print_duration(given)),
        ("Round", [step]) => Value::Duration(time::rounded_duration(given, duration(step)?)),
        ("Truncate", [step]) => Value::Duration(time::truncated_duration(given, duration(step)?)),
        _ => return None,
    }))
}

/// Names and time zones print themselves.
fn of_printed<'a>(value: &Value<'a>, name: &str, arguments: &[Value<'a>]) -> Option<Outcome<'a>> {
    let is_string = name == "String" && arguments.is_empty();
    is_string.then(|| Ok(Value::text(value.print().into_owned())))
}
