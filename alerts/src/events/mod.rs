//! Alerts that begin with an event: a line of the kernel, not a sample. They fire when the event arrives and end when
//! their time is over or a PromQL condition says so.

mod read;
mod run;
pub mod xid;

pub use run::{Change, EventInstance, EventRun, Seen};

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

/// A rule that raises an alert when something happens.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRule {
    /// The alert's name.
    pub name: String,
    /// What has to happen: one of these.
    pub when: Vec<When>,
    /// The labels that tell one alert from another; all labels of the event if empty.
    pub by: Vec<String>,
    /// How often it has to happen.
    pub repeat: Repeat,
    /// What ends the alert.
    pub ends: Ends,
    /// Labels that every alert of the rule gets.
    pub labels: Vec<(String, Template)>,
    /// Words for people.
    pub annotations: Vec<(String, Template)>,
    /// The line of the file it begins on.
    pub line: usize,
}

/// Events of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct When {
    /// The kind.
    pub kind: EventKind,
    /// The XIDs, any if empty.
    pub xid: Vec<RangeInclusive<u32>>,
    /// The XIDs' classes, any if empty.
    pub class: Vec<String>,
    /// Conditions on the event's labels.
    pub matchers: Matchers,
    /// What is one burst of these, where that is not what the rule's `repeat` says: some come again and again until
    /// somebody acts.
    pub burst: Option<Duration>,
}

/// How often something has to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeat {
    /// As often as this,
    pub times: usize,
    /// within this time;
    pub within: Duration,
    /// what happens within this time of what was counted last is the same burst and not counted;
    pub burst: Duration,
    /// and only different values of this label count, if it is given.
    pub distinct: Option<String>,
}

/// What ends an alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ends {
    /// That much time after the last event.
    After(Duration),
    /// A PromQL expression that gives a series whose labels do not contradict those of the alert.
    Until(String),
}
