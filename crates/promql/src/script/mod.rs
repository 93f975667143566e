//! Runs Prometheus' test scripts (`load`, `eval`, `clear`; the language of `promql/promqltest/README.md`).
//!
//! Time begins at 0; experimental functions and the delayed removal of names are on, as in Prometheus' own runner
//! (`NewTestEngine`).

mod check;
mod command;
mod custom;
mod notation;

use crate::eval::{Options, instant, range};
use crate::source::Memory;
use crate::syntax;
use check::{check, check_middle};
use command::{Command, Eval, Load, When};
use std::fmt;
use takt_model::Timestamp;
use takt_model::error_chain;
use takt_model::notation::NotedValue;

/// Result of one or several scripts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Evaluations that gave what was expected.
    pub passed: usize,
    /// Evaluations that did not, and lines that are not commands.
    pub failed: Vec<Remark>,
}

/// Something to say about one line of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The script's name as given.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// Description of the failure.
    pub text: String,
}

impl Report {
    /// Adds another script's results.
    pub fn merge(&mut self, other: Report) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Remark { file, line, text } in &self.failed {
            writeln!(f, "{file}:{line}: failed: {text}")?;
        }
        write!(f, "{} passed, {} failed", self.passed, self.failed.len())
    }
}

/// Runs one script. `name` only appears in remarks.
pub fn run(name: &str, text: &str) -> Report {
    let mut runner = Runner {
        file: name,
        ..Runner::default()
    };
    for (line, command) in command::commands(text) {
        match command {
            Ok(Command::Clear) => runner.memory.clear(),
            Ok(Command::Load(load)) => runner.load(line, load),
            Ok(Command::Eval(eval)) => runner.eval(line, &eval),
            Err(text) => runner.report.failed.push(runner.remark(line, text)),
        }
    }
    runner.report
}

#[derive(Default)]
struct Runner<'a> {
    file: &'a str,
    memory: Memory,
    report: Report,
}

impl Runner<'_> {
    fn remark(&self, line: usize, text: String) -> Remark {
        Remark {
            file: self.file.to_owned(),
            line,
            text,
        }
    }

    fn load(&mut self, line: usize, load: Load) {
        // Besides the classic series, which the script may ask as well.
        if load.with_nhcb {
            for (labels, histograms) in custom::from_classic(&load) {
                self.memory.add_histograms(labels, histograms);
            }
        }
        // The others are loaded all the same, so that one line does not fail all that follows.
        for text in load.malformed {
            self.report.failed.push(self.remark(line, text));
        }
        for (labels, values) in load.series {
            let mut floats = Vec::new();
            let mut histograms = Vec::new();
            for (step, value) in values.iter().enumerate() {
                let at = Timestamp(step as i64 * load.step_ms);
                match value {
                    NotedValue::Float(value) => floats.push((at, Some(*value))),
                    NotedValue::Stale => floats.push((at, None)),
                    NotedValue::Histogram(noted) => match noted.stored() {
                        Ok(histogram) => histograms.push((at, histogram)),
                        Err(error) => {
                            let text = format!("{labels}: {error}");
                            self.report.failed.push(self.remark(line, text));
                        }
                    },
                    NotedValue::Missing => {}
                }
            }
            self.memory.add(labels.clone(), floats);
            if !histograms.is_empty() {
                self.memory.add_histograms(labels, histograms);
            }
        }
    }

    fn eval(&mut self, line: usize, eval: &Eval) {
        match self.outcome(eval) {
            Ok(()) => self.report.passed += 1,
            Err(text) => self
                .report
                .failed
                .push(self.remark(line, format!("{}: {text}", eval.query))),
        }
    }

    fn outcome(&self, eval: &Eval) -> Result<(), String> {
        let options = Options {
            experimental: true,
            delayed_names: true,
            ..Options::default()
        };
        match eval.when {
            When::Instant { at } => {
                let answer = instant(&self.memory, &eval.query, at, &options);
                let Some(value) = check(eval, &answer)? else {
                    return Ok(());
                };
                // A range has no order, holds only floats and histograms, and `start()` means
                // another instant there.
                if eval.ordered
                    || !matches!(value.kind(), "vector" | "scalar")
                    || syntax::parse(&eval.query).is_ok_and(|query| query.depends_on_query_times())
                {
                    return Ok(());
                }
                // The same query over a range must say the same in the middle.
                let start = at.minus_ms(60_000);
                let end = at.plus_ms(60_000);
                let answer = range(&self.memory, &eval.query, start, end, 60_000, &options)
                    .map_err(|error| format!("as a range query: {}", error_chain(&error)))?;
                check_middle(eval, value, &answer.value, at)
                    .map_err(|text| format!("as a range query: {text}"))
            }
            When::Range {
                start,
                end,
                step_ms,
            } => check(
                eval,
                &range(&self.memory, &eval.query, start, end, step_ms, &options),
            )
            .map(|_| ()),
        }
    }
}
