//! Rule files as Prometheus has them: groups of alerting and recording rules.

mod read;

pub(crate) use read::templates;

use crate::template::Template;
use std::time::Duration;
use takt_model::Labels;

/// The label that carries an alert's name.
pub const ALERT_NAME: &str = "alertname";

/// The annotation that decides about a rule's alerts while the exporter behind them is down: `hold`
/// (the default) or `resolve`. It is an annotation so that Prometheus and promtool can read the
/// file too.
pub const ON_EXPORTER_DOWN: &str = "takt_on_exporter_down";

/// The rules of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleFile {
    /// The file's name.
    pub name: String,
    /// Its groups, in the order written.
    pub groups: Vec<Group>,
}

/// Rules that are evaluated together, one after the other, at the same instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Its name, unique in its file.
    pub name: String,
    /// Time from one evaluation to the next; `None` for the server's default.
    pub interval: Option<Duration>,
    /// How far in the past the expressions are evaluated; `None` for the server's default.
    pub query_offset: Option<Duration>,
    /// How many series a recording rule and how many active alerts an alerting rule may give; 0 is
    /// no limit.
    pub limit: usize,
    /// The rules, in the order written.
    pub rules: Vec<Rule>,
}

/// One rule of a group.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// Raises alerts.
    Alerting(AlertingRule),
    /// Writes a series.
    Recording(RecordingRule),
}

/// A rule that raises an alert for each series its expression gives.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertingRule {
    /// The alert's name.
    pub name: String,
    /// The condition, in PromQL.
    pub expr: String,
    /// `for`: how long the condition must hold before the alert fires.
    pub hold: Duration,
    /// How long the alert keeps firing after the condition ended.
    pub keep_firing_for: Duration,
    /// Labels that every alert of the rule gets; those of its group are among them.
    pub labels: Vec<(String, Template)>,
    /// Annotations.
    pub annotations: Vec<(String, Template)>,
    /// The state of an alert whose series is missing because its exporter is down.
    pub on_exporter_down: OnExporterDown,
    /// The line of the file it begins on.
    pub line: usize,
}

/// A rule that writes the value of its expression as a series of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordingRule {
    /// The name of the series.
    pub name: String,
    /// The value, in PromQL.
    pub expr: String,
    /// Labels that every series gets; those of its group are among them.
    pub labels: Labels,
    /// The line of the file it begins on.
    pub line: usize,
}

/// The state of an alert whose series is missing because the exporter behind it is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnExporterDown {
    /// It is unknown: it stays what it was, and the time does not count towards `for`.
    #[default]
    Hold,
    /// It resolves, as in Prometheus.
    Resolve,
}

impl AlertingRule {
    /// Whether its texts or labels need queries for each alert.
    pub fn asks(&self) -> bool {
        let mut templates = self.labels.iter().chain(&self.annotations);
        templates.any(|(_, template)| template.asks())
    }
}

impl Rule {
    /// The alert's or the series' name.
    pub fn name(&self) -> &str {
        match self {
            Self::Alerting(rule) => &rule.name,
            Self::Recording(rule) => &rule.name,
        }
    }

    /// The expression, in PromQL.
    pub fn expr(&self) -> &str {
        match self {
            Self::Alerting(rule) => &rule.expr,
            Self::Recording(rule) => &rule.expr,
        }
    }

    /// Returns whether an annotation shows the value as a percentage.
    pub fn shows_percentages(&self) -> bool {
        match self {
            Self::Alerting(rule) => rule
                .annotations
                .iter()
                .any(|(_, text)| text.shows_percentage()),
            Self::Recording(_) => false,
        }
    }

    /// The line of the file it begins on.
    pub fn line(&self) -> usize {
        match self {
            Self::Alerting(rule) => rule.line,
            Self::Recording(rule) => rule.line,
        }
    }
}
