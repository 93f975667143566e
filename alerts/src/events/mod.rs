//! Alerts that begin with an event, such as a line of the kernel log. They fire when the event
//! arrives and end after a fixed time or by a PromQL expression.

mod ends;
mod read;
mod run;
mod series;
pub mod xid;

pub use ends::{EndAnswers, EndTask};
pub use run::{Change, EventBurst, EventInstance, EventRun, with_jobs};
pub use series::EventSeries;

use crate::routing::matcher::Matchers;
use crate::template::Template;
use std::ops::RangeInclusive;
use std::time::Duration;
use takt_model::EventKind;

/// The rules of one `*.events.yml` file.
#[derive(Debug, Clone, PartialEq)]
pub struct EventFile {
    /// The file, as its reader called it.
    pub name: String,
    /// Its groups, in the order written.
    pub groups: Vec<EventGroup>,
}

/// Event rules under one name.
#[derive(Debug, Clone, PartialEq)]
pub struct EventGroup {
    /// Its name, unique in its file.
    pub name: String,
    /// The rules, in the order written.
    pub rules: Vec<EventRule>,
}

/// A rule that raises an alert for matching events.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRule {
    /// The alert's name.
    pub name: String,
    /// The events that it matches: any of these.
    pub when: Vec<EventPattern>,
    /// The labels of the event that identify the alert; all of them if empty.
    pub by: Vec<String>,
    /// How many events it takes.
    pub repeat: RepeatCount,
    /// The end of the alert.
    pub ends: EndCondition,
    /// Labels that every alert of the rule gets.
    pub labels: Vec<(String, Template)>,
    /// Annotations.
    pub annotations: Vec<(String, Template)>,
    /// The line of the file it begins on.
    pub line: usize,
}

impl EventRule {
    /// Whether alerts of different jobs or users are different alerts.
    pub fn is_by_job(&self) -> bool {
        self.by.is_empty() || self.by.iter().any(|name| name == "jobid" || name == "user")
    }
}

/// Events of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPattern {
    /// The kind.
    pub kind: EventKind,
    /// The XIDs, any if empty.
    pub xid: Vec<RangeInclusive<u32>>,
    /// The XIDs' classes, any if empty.
    pub class: Vec<String>,
    /// Conditions on the event's labels.
    pub matchers: Matchers,
    /// The length of a burst of these events, if it differs from that of the rule's `repeat`: some
    /// events repeat until the fault is repaired.
    pub burst: Option<Duration>,
}

/// How many events a rule needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatCount {
    /// The number of events.
    pub times: usize,
    /// The time within which they have to happen.
    pub within: Duration,
    /// An event within this time after the last one belongs to the same burst, which counts once.
    pub burst: Duration,
    /// Count different values of this label instead of bursts.
    pub distinct: Option<String>,
}

/// The end of an alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndCondition {
    /// This time after the last event.
    After(Duration),
    /// A PromQL expression that gives a series whose labels do not contradict those of the alert.
    Until(String),
}
