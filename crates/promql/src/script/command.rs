//! The commands of a script.

use super::notation::{quoted, series};
use crate::syntax::duration::parse_ms;
use regex::Regex;
use takt_model::Labels;
use takt_model::Timestamp;
use takt_model::notation::NotedValue;

/// One command.
#[derive(Debug)]
pub(super) enum Command {
    Load(Load),
    Clear,
    Eval(Eval),
}

/// `load 1m` and its series.
#[derive(Debug)]
pub(super) struct Load {
    pub step_ms: i64,
    pub series: Vec<(Labels, Vec<NotedValue>)>,
    /// Lines that are not series.
    pub malformed: Vec<String>,
    /// Whether native histograms were to be made of the classic ones.
    pub with_nhcb: bool,
}

/// `eval …` and what is expected.
#[derive(Debug)]
pub(super) struct Eval {
    pub query: String,
    pub when: When,
    pub ordered: bool,
    /// Whether the query has to fail.
    pub fails: bool,
    pub messages: Vec<(About, Message)>,
    /// `expect string`
    pub text: Option<String>,
    /// `expect range vector`: first instant and step of the rows.
    pub matrix: Option<(Timestamp, i64)>,
    pub rows: Vec<Row>,
}

/// When a query is evaluated.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    Instant {
        at: Timestamp,
    },
    Range {
        start: Timestamp,
        end: Timestamp,
        step_ms: i64,
    },
}

/// Kind of an expected message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Failure,
    Warning,
    Info,
}

/// Expected text of a message.
#[derive(Debug)]
pub(super) enum Message {
    /// Anything, but something.
    Any,
    /// Nothing at all.
    None,
    Text(String),
    Regex(Regex),
}

/// One expected series; without labels a line is a scalar.
#[derive(Debug)]
pub(super) struct Row {
    pub labels: Option<Labels>,
    pub values: Vec<NotedValue>,
}

/// All commands with the lines on which they begin. A block ends at a blank line or a comment.
pub(super) fn commands(text: &str) -> Vec<(usize, Result<Command, String>)> {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .map(|line| if line.starts_with('#') { "" } else { line })
        .collect();

    // Blocks are cut first, so that one malformed command does not hide the next.
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let end = (at..lines.len())
            .find(|end| lines[*end].is_empty())
            .unwrap_or(lines.len());
        let mut start = at;
        // Commands may follow each other without a blank line: an expected series is never called `eval …`.
        while start < end {
            let next = (start + 1..end)
                .find(|next| is_command(lines[*next]))
                .unwrap_or(end);
            found.push((start + 1, command(&lines[start..next])));
            start = next;
        }
        at = end + 1;
    }
    found
}

fn is_command(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default().to_ascii_lowercase();
    let second = words.next().unwrap_or_default();

    // The second word, too, must fit: a series may be called `load` or `clear`.
    match first.as_str() {
        "clear" => second.is_empty(),
        "load" | "load_with_nhcb" => duration(second).is_some(),
        "eval" | "eval_fail" | "eval_warn" | "eval_info" | "eval_ordered" => {
            matches!(second, "instant" | "range")
        }
        _ => false,
    }
}

fn command(block: &[&str]) -> Result<Command, String> {
    let (first, rest) = block.split_first().ok_or("empty block")?;
    let (word, arguments) = first.split_once(char::is_whitespace).unwrap_or((first, ""));
    let word = word.to_ascii_lowercase();
    match word.as_str() {
        "clear" => Ok(Command::Clear),
        "load" | "load_with_nhcb" => {
            let step_ms = duration(arguments.trim())
                .ok_or_else(|| format!("malformed duration {arguments:?}"))?;
            let mut all = Vec::new();
            let mut malformed = Vec::new();
            for line in rest {
                match series(line) {
                    Ok(one) => all.push(one),
                    Err(error) => malformed.push(error),
                }
            }
            Ok(Command::Load(Load {
                step_ms,
                series: all,
                malformed,
                with_nhcb: word == "load_with_nhcb",
            }))
        }
        "eval" | "eval_fail" | "eval_warn" | "eval_info" | "eval_ordered" => {
            eval(&word, arguments, rest).map(Command::Eval)
        }
        _ => Err(format!("unknown command {first:?}")),
    }
}

fn eval(word: &str, arguments: &str, lines: &[&str]) -> Result<Eval, String> {
    let (when, query) =
        when(arguments.trim()).ok_or_else(|| format!("malformed evaluation {arguments:?}"))?;
    let mut eval = Eval {
        query: query.to_owned(),
        when,
        ordered: word == "eval_ordered",
        fails: word == "eval_fail",
        messages: match word {
            "eval_warn" => vec![(About::Warning, Message::Any)],
            "eval_info" => vec![(About::Info, Message::Any)],
            _ => Vec::new(),
        },
        text: None,
        matrix: None,
        rows: Vec::new(),
    };
    for line in lines {
        eval.line(line)?;
    }
    Ok(eval)
}

/// `instant at 5m QUERY`, `range from 0 to 5m step 1m QUERY`.
fn when(arguments: &str) -> Option<(When, &str)> {
    let (kind, rest) = word(arguments)?;
    match kind {
        "instant" => match rest.strip_prefix("at ") {
            Some(rest) => {
                let (at, query) = word(rest)?;
                Some((
                    When::Instant {
                        at: Timestamp(duration(at)?),
                    },
                    query,
                ))
            }
            None => Some((When::Instant { at: Timestamp(0) }, rest)),
        },
        "range" => {
            let (start, rest) = after("from", rest)?;
            let (end, rest) = after("to", rest)?;
            let (step_ms, query) = after("step", rest)?;
            Some((
                When::Range {
                    start: Timestamp(start),
                    end: Timestamp(end),
                    step_ms,
                },
                query,
            ))
        }
        _ => None,
    }
}

fn after<'a>(keyword: &str, text: &'a str) -> Option<(i64, &'a str)> {
    let (value, rest) = word(text.strip_prefix(keyword)?)?;
    Some((duration(value)?, rest))
}

fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let (word, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    (!word.is_empty()).then(|| (word, rest.trim_start()))
}

/// `5m`, or seconds.
fn duration(text: &str) -> Option<i64> {
    let (sign, text) = text
        .strip_prefix('-')
        .map_or((1.0, text), |text| (-1.0, text));

    // A plain number is seconds, as scripts write `instant at 0`.
    let ms = match text.parse::<f64>() {
        Ok(seconds) => seconds * 1e3,
        Err(_) if text.is_empty() => return None,
        Err(_) => parse_ms(text).ok()? as f64,
    };
    ms.is_finite().then(|| (sign * ms).round() as i64)
}

impl Eval {
    /// One line below `eval`.
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(expected) = line.strip_prefix("expect ") {
            return self.expect(expected.trim());
        }

        // The older notation of Prometheus' scripts, which `expect fail` has replaced.
        if self.fails {
            if let Some(text) = line.strip_prefix("expected_fail_message") {
                self.messages
                    .push((About::Failure, Message::Text(text.trim().to_owned())));
                return Ok(());
            }
            if let Some(text) = line.strip_prefix("expected_fail_regexp") {
                self.messages.push((About::Failure, regex(text.trim())?));
                return Ok(());
            }
        }
        let row = match line.parse::<f64>() {
            Ok(value) => Row {
                labels: None,
                values: vec![NotedValue::Float(value)],
            },
            Err(_) => series(line).map(|(labels, values)| Row {
                labels: Some(labels),
                values,
            })?,
        };
        self.rows.push(row);
        Ok(())
    }

    /// The rest of the line after `expect`.
    fn expect(&mut self, expected: &str) -> Result<(), String> {
        let (kind, rest) = word(expected).ok_or("expect what?")?;
        let about = match kind {
            "fail" => {
                self.fails = true;
                About::Failure
            }
            "warn" | "no_warn" => About::Warning,
            "info" | "no_info" => About::Info,
            "ordered" => {
                self.ordered = true;
                return Ok(());
            }
            "string" => {
                self.text = Some(quoted(rest)?.0);
                return Ok(());
            }
            "range" => {
                let times = rest
                    .strip_prefix("vector")
                    .map(str::trim_start)
                    .and_then(|rest| {
                        let (start, rest) = after("from", rest)?;
                        let (_end, rest) = after("to", rest)?;
                        Some((Timestamp(start), after("step", rest)?.0))
                    })
                    .ok_or_else(|| format!("malformed expectation {expected:?}"))?;
                self.matrix = Some(times);
                return Ok(());
            }
            _ => return Err(format!("unknown expectation {expected:?}")),
        };

        // Without a text any message of that kind will do.
        let message = if kind.starts_with("no_") {
            Message::None
        } else if let Some(text) = rest.strip_prefix("msg:") {
            Message::Text(text.trim().to_owned())
        } else if let Some(text) = rest.strip_prefix("regex:") {
            regex(text.trim())?
        } else if rest.is_empty() {
            Message::Any
        } else {
            return Err(format!("unknown expectation {expected:?}"));
        };
        self.messages.push((about, message));
        Ok(())
    }
}

fn regex(text: &str) -> Result<Message, String> {
    Regex::new(unquoted(text))
        .map(Message::Regex)
        .map_err(|error| format!("malformed regex {text:?}: {error}"))
}

/// A message may be written in quotes.
pub(super) fn unquoted(text: &str) -> &str {
    text.strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text)
}
