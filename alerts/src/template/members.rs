//! Members after a dot: fields, keys, and the methods of the types in templates.

use super::value::{Value, fail, sorted};
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
    if let Some(result) = method(value, name, arguments) {
        return result;
    }
    if !arguments.is_empty() {
        return fail(format!("`{name}` of {} takes no arguments", value.name()));
    }
    match value {
        Value::Fields(all) => match all.fields.iter().find(|(field, _)| *field == name) {
            Some((_, value)) => Ok(value.clone()),
            None => fail(format!("no field `{name}` in {}", all.kind)),
        },
        Value::Labels(labels) | Value::Kv(labels) => Ok(Value::Text(Cow::Owned(
            labels.get(name).unwrap_or_default().to_owned(),
        ))),
        Value::Map(map) => Ok(map.get(name).cloned().unwrap_or(Value::Nil)),
        Value::Int(_) | Value::Float(_) => fail(format!("no field `{name}` in a number")),
        other => fail(format!("no field `{name}` in {}", other.name())),
    }
}

fn method<'a>(value: &Value<'a>, name: &str, arguments: &[Value<'a>]) -> Option<Outcome<'a>> {
    match value {
        Value::Kv(labels) => of_labels(labels, name, arguments),
        Value::List(items) => of_list(items, name),
        Value::Time(at) => of_time(at, name, arguments),
        Value::Duration(duration) => of_duration(*duration, name),
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

fn of_time<'a>(at: &jiff::Zoned, name: &str, arguments: &[Value<'a>]) -> Option<Outcome<'a>> {
    Some(Ok(match (name, arguments) {
        ("Format", [Value::Text(layout)]) => Value::text(time::format(at, layout)),
        ("Unix", []) => Value::Int(at.timestamp().as_second()),
        ("UnixMilli", []) => Value::Int(at.timestamp().as_millisecond()),
        ("UTC", []) => Value::Time(at.with_time_zone(TimeZone::UTC)),
        ("Local", []) => Value::Time(at.with_time_zone(TimeZone::system())),
        ("Year", []) => Value::Int(at.year().into()),
        ("Month", []) => Value::text(time::format(at, "January")),
        ("Day", []) => Value::Int(at.day().into()),
        ("Hour", []) => Value::Int(at.hour().into()),
        ("Minute", []) => Value::Int(at.minute().into()),
        ("Second", []) => Value::Int(at.second().into()),
        ("Weekday", []) => Value::text(time::format(at, "Monday")),
        ("String", []) => Value::text(time::format(at, time::PRINTED)),
        // Go's year 1 stands for "no time": an alert that fires has no end.
        ("IsZero", []) => Value::Bool(at.year() <= 1),
        ("Add", [Value::Duration(duration)]) => match at.checked_add(*duration) {
            Ok(at) => Value::Time(at),
            Err(error) => return Some(fail(error.to_string())),
        },
        ("Sub", [Value::Time(other)]) => {
            Value::Duration(at.timestamp().duration_since(other.timestamp()))
        }
        ("Before", [Value::Time(other)]) => Value::Bool(at < other),
        ("After", [Value::Time(other)]) => Value::Bool(at > other),
        _ => return None,
    }))
}

fn of_duration<'a>(duration: jiff::SignedDuration, name: &str) -> Option<Outcome<'a>> {
    let seconds = duration.as_secs_f64();
    Some(Ok(match name {
        "Seconds" => Value::Float(seconds),
        "Minutes" => Value::Float(seconds / 60.0),
        "Hours" => Value::Float(seconds / 3600.0),
        "Milliseconds" => Value::Int(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)),
        "String" => Value::text(time::print_duration(duration)),
        _ => return None,
    }))
}
