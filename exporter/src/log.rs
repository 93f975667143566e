//! Logging to standard error, in one of the two formats of Prometheus' exporters.

use clap::{Args, ValueEnum};
use std::fmt::{self, Debug};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Level and format of the log.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Log")]
pub struct LogOptions {
    /// Level of the log on standard error: off, error, warn, info, debug or trace.
    #[arg(long = "log.level", value_name = "LEVEL", default_value = "info")]
    pub level: LevelFilter,
    /// Format of the log.
    #[arg(long = "log.format", value_name = "FORMAT", default_value = "logfmt")]
    pub format: LogFormat,
}

/// Format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// `time=… level=INFO source=… msg=serving address=[::]:9855`
    Logfmt,
    /// The same as a JSON object.
    Json,
}

impl LogOptions {
    /// Starts logging; once in a process.
    pub fn init(&self) {
        let lines = tracing_subscriber::fmt()
            .with_max_level(self.level)
            .with_writer(std::io::stderr);
        lines
            .with_ansi(false)
            .event_format(Lines(self.format))
            .init();
    }
}

struct Lines(LogFormat);

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static>
    FormatEvent<S, N> for Lines
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();

        let mut line = Line::default();
        line.add("time", format!("{:.3}", jiff::Timestamp::now()));
        line.add("level", metadata.level().to_string());
        line.add("source", metadata.target());
        event.record(&mut line);

        writer.write_str(&line.render(self.0))?;
        writer.write_char('\n')
    }
}

/// Names and values, in the order in which they were logged.
#[derive(Default)]
struct Line(Vec<(&'static str, serde_json::Value)>);

impl Line {
    fn add(&mut self, name: &'static str, value: impl Into<serde_json::Value>) {
        self.0.push((name, value.into()));
    }

    fn render(&self, format: LogFormat) -> String {
        let fields = self.0.iter();
        let words = fields.map(|(name, value)| match (format, value) {
            (LogFormat::Json, value) => format!("\"{name}\":{value}"),
            (LogFormat::Logfmt, serde_json::Value::String(text)) if is_plain(text) => {
                format!("{name}={text}")
            }
            // Quoted as in JSON, which readers of logfmt understand.
            (LogFormat::Logfmt, value) => format!("{name}={value}"),
        });
        let words: Vec<_> = words.collect();

        match format {
            LogFormat::Json => format!("{{{}}}", words.join(",")),
            LogFormat::Logfmt => words.join(" "),
        }
    }
}

/// Whether a value of logfmt needs no quotes.
fn is_plain(text: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace() && !"=\"\\".contains(c);
    !text.is_empty() && text.chars().all(is_plain)
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(name(field), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(name(field), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(name(field), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(name(field), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(name(field), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(name(field), value);
    }
}

fn name(field: &Field) -> &'static str {
    match field.name() {
        "message" => "msg",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line() -> Line {
        let mut line = Line::default();
        line.add("level", "WARN");
        line.add("msg", "cannot \"collect\"\n");
        line.add("seconds", 2.5);
        line.add("file", "");
        line
    }

    #[test]
    fn both_forms() {
        assert_eq!(
            line().render(LogFormat::Logfmt),
            r#"level=WARN msg="cannot \"collect\"\n" seconds=2.5 file="""#
        );
        assert_eq!(
            line().render(LogFormat::Json),
            r#"{"level":"WARN","msg":"cannot \"collect\"\n","seconds":2.5,"file":""}"#
        );
    }

    proptest! {
        #[test]
        fn whatever_is_told_is_one_line_that_can_be_read(text in ".{0,60}", number: f64) {
            let mut line = Line::default();
            line.add("text", text.as_str());
            line.add("number", number);
            let json: serde_json::Value = serde_json::from_str(&line.render(LogFormat::Json)).unwrap();
            prop_assert_eq!(json["text"].as_str(), Some(text.as_str()));
            prop_assert!(!line.render(LogFormat::Logfmt).contains('\n'));
        }
    }
}
