//! The functions of templates: Go's own, those of Prometheus' rules, and those of Alertmanager's
//! messages.

mod humanize;
mod printing;
mod text;

use super::number::significant;
use super::value::{Value, fail, mistake};
use super::{TemplateError, World, members, time};
use crate::duration;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE;
use humanize::{humanize, humanize_1024, humanize_duration};
use jiff::tz::TimeZone;
use printing::{print, print_format, print_line};
use regex::Regex;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::rc::Rc;
use takt_model::{Timestamp, go_regex};
pub(super) use text::escape_html;
use text::{
    escape_query, link, path_of, split_port, strip_domain, title, title_words, unescape_query,
};

type Arguments<'a> = Vec<Value<'a>>;
type Outcome<'a> = Result<Value<'a>, TemplateError>;

/// The kind of templates, which decides on functions and variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Templates of rules, as in Prometheus.
    Rules,
    /// Templates of messages, as in Alertmanager.
    Messages,
}

impl Dialect {
    /// The predefined variables.
    pub(super) fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Rules => &["$", "$labels", "$externalLabels", "$externalURL", "$value"],
            Self::Messages => &["$"],
        }
    }

    fn functions(self) -> &'static [Function] {
        match self {
            Self::Rules => RULES,
            Self::Messages => MESSAGES,
        }
    }
}

/// Runs a template by its name and returns its text.
pub(super) const TMPL: &str = "tmpl";

/// The function that asks the store.
pub(super) const QUERY: &str = "query";

/// A function: name, least and most number of arguments, implementation.
#[derive(Clone, Copy)]
pub struct Function {
    name: &'static str,
    takes: (usize, usize),
    body: Body,
}

#[derive(Clone, Copy)]
enum Body {
    Values(for<'a> fn(&[Value<'a>], &World<'a>) -> Outcome<'a>),
    /// A text of the text of the only argument.
    Text(fn(&str) -> String),
    /// A text of the only argument as a number.
    Number(fn(f64) -> String),
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const ANY: usize = usize::MAX;

/// Go's own functions.
const GO: &[Function] = &[
    function("and", 1, ANY, |args, _| Ok(first_or_last(args, false))),
    function("or", 1, ANY, |args, _| Ok(first_or_last(args, true))),
    function("not", 1, 1, |args, _| Ok(Value::Bool(!args[0].is_true()))),
    function("len", 1, 1, |args, _| len(&args[0])),
    function("index", 1, ANY, |args, _| {
        args[1..]
            .iter()
            .try_fold(args[0].clone(), |value, key| index(&value, key))
    }),
    function("slice", 1, 3, |args, _| slice(&args[0], &args[1..])),
    function("eq", 2, ANY, |args, _| equal_to_any(args)),
    function("ne", 2, 2, |args, _| {
        equal_to_any(args).map(|value| Value::Bool(!value.is_true()))
    }),
    function("lt", 2, 2, |args, _| ordered(args, Ordering::is_lt)),
    function("le", 2, 2, |args, _| ordered(args, Ordering::is_le)),
    function("gt", 2, 2, |args, _| ordered(args, Ordering::is_gt)),
    function("ge", 2, 2, |args, _| ordered(args, Ordering::is_ge)),
    function("print", 0, ANY, |args, _| Ok(Value::text(print(args)))),
    function("println", 0, ANY, |args, _| {
        Ok(Value::text(print_line(args)))
    }),
    function("printf", 1, ANY, |args, _| {
        Ok(Value::text(print_format(&args[0].print(), &args[1..])))
    }),
    of_text("html", escape_html),
    of_text("urlquery", escape_query),
    // Functions of both Prometheus and Alertmanager.
    of_number("humanizeDuration", humanize_duration),
    of_text("toUpper", str::to_uppercase),
    of_text("toLower", str::to_lowercase),
    function("match", 2, 2, |args, _| {
        Ok(Value::Bool(regex(&args[0])?.is_match(&args[1].print())))
    }),
    function("reReplaceAll", 3, 3, |args, _| {
        let pattern = regex(&args[0])?;
        let replacement = args[1].print();
        let text = args[2].print();
        let replaced = pattern.replace_all(&text, &*replacement);
        Ok(Value::text(replaced.into_owned()))
    }),
    function("safeHtml", 1, 1, |args, _| Ok(args[0].clone())),
];

/// Functions of Prometheus' rules.
const RULES: &[Function] = &[
    of_text("title", title),
    function(QUERY, 1, 1, |args, world| query(&args[0].print(), world)),
    function("first", 1, 1, |args, _| match &args[0] {
        Value::List(items) if !items.is_empty() => Ok(items[0].clone()),
        Value::List(_) => fail("first() called on vector with no elements"),
        other => fail(format!("`first` needs a list, not {}", other.name())),
    }),
    function("label", 2, 2, |args, _| {
        members::member(&of_sample(&args[1], "Labels")?, &args[0].print(), &[])
    }),
    function("value", 1, 1, |args, _| of_sample(&args[0], "Value")),
    function("strvalue", 1, 1, |args, _| {
        members::member(&of_sample(&args[0], "Labels")?, "__value__", &[])
    }),
    function("sortByLabel", 2, 2, |args, _| {
        sort_by_label(&args[0].print(), &args[1])
    }),
    function("args", 0, ANY, |args, _| {
        let named = args
            .iter()
            .enumerate()
            .map(|(at, value)| (format!("arg{at}"), value.clone()))
            .collect();
        Ok(Value::Map(Rc::new(named)))
    }),
    // The caller of templates runs it.
    function(TMPL, 2, 2, |_, _| fail("`tmpl` needs a template's name")),
    function("now", 0, 0, |_, world| {
        Ok(Value::Float(world.at.as_seconds()))
    }),
    function("toTime", 1, 1, |args, _| to_time(number(&args[0])?)),
    function("toDuration", 1, 1, |args, _| {
        let duration = jiff::SignedDuration::try_from_secs_f64(number(&args[0])?);
        duration
            .map(Value::Duration)
            .map_err(|_| TemplateError::new(format!("{} is not a duration", args[0].print())))
    }),
    of_text("urlQueryEscape", escape_query),
    of_number("humanize", humanize),
    of_number("humanize1024", humanize_1024),
    of_number("humanizePercentage", |ratio| {
        format!("{}%", significant(ratio * 100.0, 4))
    }),
    function("humanizeTimestamp", 1, 1, |args, _| {
        match number(&args[0])? {
            seconds if seconds.is_finite() => {
                to_time(seconds).map(|at| Value::text(at.print().into_owned()))
            }
            odd => Ok(Value::text(significant(odd, 4))),
        }
    }),
    function("parseDuration", 1, 1, |args, _| {
        let given = args[0].print();
        let parsed = duration::parse(&given)
            .ok_or_else(|| TemplateError::new(format!("`{given}` is not a duration")))?;
        Ok(Value::Float(parsed.as_secs_f64()))
    }),
    of_text("stripPort", |host| split_port(host).0.to_owned()),
    of_text("stripDomain", strip_domain),
    function("externalURL", 0, 0, |_, world| {
        Ok(Value::Text(Cow::Borrowed(world.external_url)))
    }),
    function("pathPrefix", 0, 0, |_, world| {
        Ok(Value::text(path_of(world.external_url)))
    }),
    of_text("graphLink", |expression| link(expression, 0)),
    of_text("tableLink", |expression| link(expression, 1)),
];

/// Functions of Alertmanager's messages.
const MESSAGES: &[Function] = &[
    of_text("title", title_words),
    function("routeLabels", 1, 1, |args, world| {
        let name = args[0].print();
        world
            .route_label
            .map_or(Ok(String::new()), |label| label(&name))
            .map(Value::text)
    }),
    function("now", 0, 0, |_, world| Value::time(world.at)),
    function("toDate", 2, 2, |args, _| {
        match time::read(&args[0].print(), &args[1].print()) {
            Some(at) => Ok(Value::Time(at)),
            None => time::zero().map(Value::Time),
        }
    }),
    function("mustToDate", 2, 2, |args, _| {
        let layout = args[0].print();
        let text = args[1].print();
        match time::read(&layout, &text) {
            Some(at) => Ok(Value::Time(at)),
            None => fail(format!("`{text}` is not a time in the layout `{layout}`")),
        }
    }),
    of_text("base64encode", |text| BASE64_URL_SAFE.encode(text)),
    function("base64decode", 1, 1, |args, _| {
        let text = args[0].print();
        let Ok(bytes) = BASE64_URL_SAFE.decode(text.as_bytes()) else {
            return fail(format!("`{text}` is not base64"));
        };
        let decoded = String::from_utf8_lossy(&bytes);
        Ok(Value::text(decoded.into_owned()))
    }),
    of_text("trimSpace", |text| text.trim().to_owned()),
    function("join", 2, 2, |args, _| {
        let Value::List(items) = &args[1] else {
            return fail(format!("`join` needs a list, not {}", args[1].name()));
        };
        let words: Vec<_> = items.iter().map(Value::print).collect();
        let separator = args[0].print();
        Ok(Value::text(words.join(&separator)))
    }),
    function("stringSlice", 0, ANY, |args, _| {
        Ok(Value::list(args.to_vec()))
    }),
    function("list", 0, ANY, |args, _| Ok(Value::list(args.to_vec()))),
    function("append", 1, ANY, |args, _| {
        let items = args[0].items()?.into_iter().map(|(_, item)| item);
        let added = args[1..].iter().cloned();
        Ok(Value::list(items.chain(added).collect()))
    }),
    function("dict", 0, ANY, |args, _| match args.len() % 2 {
        0 => {
            let pairs = args
                .chunks(2)
                .map(|pair| (pair[0].print().into_owned(), pair[1].clone()))
                .collect();
            Ok(Value::Map(Rc::new(pairs)))
        }
        _ => fail("`dict` takes names and values in turn"),
    }),
    function("safeUrl", 1, 1, |args, _| Ok(args[0].clone())),
    of_text("urlUnescape", unescape_query),
    function("toJson", 1, 1, |args, _| {
        Ok(Value::text(args[0].json().to_string()))
    }),
    function("date", 2, 2, |args, _| {
        members::member(&args[1], "Format", &args[..1])
    }),
    function("tz", 2, 2, |args, _| match &args[1] {
        Value::Time(at) => {
            let name = args[0].print();
            match TimeZone::get(&name) {
                Ok(zone) => Ok(Value::Time(at.with_time_zone(zone))),
                Err(_) => fail(format!("`{name}` is not a time zone")),
            }
        }
        other => fail(format!("`tz` needs a time, not {}", other.name())),
    }),
    function("since", 1, 1, |args, world| {
        members::member(&Value::time(world.at)?, "Sub", args)
    }),
];

const fn function(
    name: &'static str,
    least: usize,
    most: usize,
    body: for<'a> fn(&[Value<'a>], &World<'a>) -> Outcome<'a>,
) -> Function {
    Function {
        name,
        takes: (least, most),
        body: Body::Values(body),
    }
}

const fn of_text(name: &'static str, body: fn(&str) -> String) -> Function {
    Function {
        name,
        takes: (1, 1),
        body: Body::Text(body),
    }
}

const fn of_number(name: &'static str, body: fn(f64) -> String) -> Function {
    Function {
        name,
        takes: (1, 1),
        body: Body::Number(body),
    }
}

pub(super) fn by_name(name: &str, dialect: Dialect) -> Result<Function, TemplateError> {
    let all = || GO.iter().chain(dialect.functions());
    if let Some(known) = all().find(|function| function.name == name) {
        return Ok(*known);
    }

    let near = all()
        .map(|function| function.name)
        .min_by_key(|known| strsim::osa_distance(name, known));
    fail(format!(
        "no function `{name}`; did you mean `{}`?",
        near.unwrap_or_default()
    ))
}

impl Function {
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.name == name
    }

    /// The truth value at which `and` and `or` stop.
    pub(super) fn stops_at(&self) -> Option<bool> {
        [("and", false), ("or", true)]
            .into_iter()
            .find(|(name, _)| self.is(name))
            .map(|(_, stop)| stop)
    }

    pub(super) fn call<'a>(&self, arguments: Arguments<'a>, world: &World<'a>) -> Outcome<'a> {
        let (least, most) = self.takes;
        let count = arguments.len();
        if count < least || count > most {
            let name = self.name;
            return mistake(format!("`{name}` takes {least} argument(s), not {count}"));
        }

        match self.body {
            Body::Values(body) => body(&arguments, world),
            Body::Text(body) => Ok(Value::text(body(&arguments[0].print()))),
            Body::Number(body) => Ok(Value::text(body(number(&arguments[0])?))),
        }
    }
}

fn first_or_last<'a>(args: &[Value<'a>], wanted: bool) -> Value<'a> {
    args.iter()
        .find(|value| value.is_true() == wanted)
        .or(args.last())
        .cloned()
        .unwrap_or(Value::Nil)
}

fn len<'a>(value: &Value<'a>) -> Outcome<'a> {
    match value {
        Value::Text(text) => Ok(Value::Int(text.len() as i64)),
        Value::Labels(labels) | Value::Kv(labels) => Ok(Value::Int(labels.len() as i64)),
        Value::List(items) => Ok(Value::Int(items.len() as i64)),
        Value::Map(map) => Ok(Value::Int(map.len() as i64)),
        other => fail(format!("{} has no length", other.name())),
    }
}

fn index<'a>(value: &Value<'a>, key: &Value<'a>) -> Outcome<'a> {
    match (value, key) {
        // A method of that name is not meant here.
        (Value::Map(map), Value::Text(name)) => {
            let found = map.get(&**name).cloned().unwrap_or(Value::Nil);
            Ok(found)
        }
        (Value::Labels(labels) | Value::Kv(labels), Value::Text(name)) => {
            let found = labels.get(name).unwrap_or_default().to_owned();
            Ok(Value::text(found))
        }
        (Value::List(items), Value::Int(at)) => usize::try_from(*at)
            .ok()
            .and_then(|at| items.get(at))
            .cloned()
            .ok_or_else(|| TemplateError::new(format!("index out of range: {at}"))),
        (value, key) => fail(format!(
            "{} cannot be indexed by {}",
            value.name(),
            key.name()
        )),
    }
}

fn slice<'a>(value: &Value<'a>, bounds: &[Value<'a>]) -> Outcome<'a> {
    let bound = |at: usize, default: usize| match bounds.get(at) {
        None => Ok(default),
        Some(Value::Int(bound)) => {
            usize::try_from(*bound).map_err(|_| TemplateError::new("a negative bound".to_owned()))
        }
        Some(other) => fail(format!("{} is not a bound", other.name())),
    };

    let outside = || TemplateError::new("index out of range".to_owned());
    match value {
        Value::Text(text) => {
            // Bounds count bytes, as in Go: one inside of a character is out of range.
            let part = text
                .get(bound(0, 0)?..bound(1, text.len())?)
                .ok_or_else(outside)?
                .to_owned();
            Ok(Value::text(part))
        }
        Value::List(items) => {
            let part = items
                .get(bound(0, 0)?..bound(1, items.len())?)
                .ok_or_else(outside)?;
            Ok(Value::list(part.to_vec()))
        }
        other => fail(format!("{} cannot be cut", other.name())),
    }
}

/// The result of an expression now, as samples with `Labels` and `Value`.
fn query<'a>(expr: &str, world: &World<'a>) -> Outcome<'a> {
    let database = world.query.ok_or_else(|| {
        TemplateError::new("function `query` asks the database; there is none here".to_owned())
    })?;

    let result = database
        .instant(expr, world.at)
        .map_err(|error| TemplateError::new(format!("query {expr:?}: {error}")))?;

    let samples = result
        .into_iter()
        .map(|(labels, value)| {
            let labels = Value::Labels(Cow::Owned(labels));
            let value = Value::Float(value);
            Value::fields("a sample", vec![("Labels", labels), ("Value", value)])
        })
        .collect();
    Ok(Value::list(samples))
}

fn of_sample<'a>(value: &Value<'a>, field: &str) -> Outcome<'a> {
    match value {
        Value::Fields(_) => members::member(value, field, &[]),
        other => fail(format!("{} is not a sample", other.name())),
    }
}

fn sort_by_label<'a>(name: &str, list: &Value<'a>) -> Outcome<'a> {
    let Value::List(items) = list else {
        return fail(format!("`sortByLabel` needs a list, not {}", list.name()));
    };

    let key = |item: &Value<'a>| members::member(&of_sample(item, "Labels")?, name, &[]);
    // The key of each item is read once, and a wrong item is found before the order changes.
    let mut keyed = Vec::with_capacity(items.len());
    for item in items.iter() {
        keyed.push((key(item)?.print().into_owned(), item.clone()));
    }

    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    let sorted = keyed.into_iter().map(|(_, item)| item).collect();
    Ok(Value::list(sorted))
}

fn to_time<'a>(seconds: f64) -> Outcome<'a> {
    if seconds.is_finite() {
        Value::time(Timestamp((seconds * 1000.0) as i64))
    } else {
        fail(format!("{seconds} is not a time that can be written"))
    }
}

fn equal_to_any<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    for other in &args[1..] {
        // `eq` of Go takes truth values too, which have no order.
        let equal = match (&args[0], other) {
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (a, b) => compare(a, b)? == Some(Ordering::Equal),
        };
        if equal {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn ordered<'a>(args: &[Value<'a>], holds: fn(Ordering) -> bool) -> Outcome<'a> {
    Ok(Value::Bool(compare(&args[0], &args[1])?.is_some_and(holds)))
}

/// Go compares only what has the same type; NaN is not comparable.
fn compare(a: &Value<'_>, b: &Value<'_>) -> Result<Option<Ordering>, TemplateError> {
    match (a, b) {
        (Value::Int(a) | Value::Named(a, _), Value::Int(b) | Value::Named(b, _)) => {
            Ok(Some(a.cmp(b)))
        }
        (Value::Duration(a), Value::Duration(b)) => Ok(Some(a.cmp(b))),
        // A constant number is a duration in nanoseconds, as an untyped constant is in Go.
        (Value::Duration(a), Value::Int(b)) => Ok(Some(a.as_nanos().cmp(&i128::from(*b)))),
        (Value::Int(a), Value::Duration(b)) => Ok(Some(i128::from(*a).cmp(&b.as_nanos()))),
        (Value::Float(a), Value::Float(b)) => Ok(a.partial_cmp(b)),
        (Value::Text(a), Value::Text(b)) => Ok(Some(a.cmp(b))),
        // The value may be missing only for this alert.
        (Value::Nil, b) | (b, Value::Nil) => {
            fail(format!("cannot compare nothing and {}", b.name()))
        }
        (a, b) => mistake(format!("cannot compare {} and {}", a.name(), b.name())),
    }
}

fn number(value: &Value<'_>) -> Result<f64, TemplateError> {
    match value {
        Value::Float(value) => Ok(*value),
        Value::Int(value) => Ok(*value as f64),
        Value::Text(text) => text
            .parse()
            .map_err(|_| TemplateError::new(format!("`{text}` is not a number"))),
        Value::Labels(_) | Value::Kv(_) => mistake("labels are not a number"),
        Value::Duration(duration) => Ok(duration.as_secs_f64()),
        other => fail(format!("{} is not a number", other.name())),
    }
}

fn regex(pattern: &Value<'_>) -> Result<Regex, TemplateError> {
    let pattern = pattern.print();
    // Go's dialect, so that a pattern means the same as in Prometheus.
    go_regex::translate(&pattern)
        .ok()
        .and_then(|pattern| Regex::new(&pattern).ok())
        .ok_or_else(|| TemplateError::new(format!("`{pattern}` is not a regular expression")))
}
