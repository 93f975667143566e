//! Types shared by all crates: labels, metric declarations, samples, events, exposition format.
//!
//! Plain values only. Nothing here reads a file, opens a socket or reads the clock.

mod client;
mod config_error;
mod error_chain;
mod event;
mod float;
mod labels;
mod match_op;
#[cfg(feature = "regex")]
mod matcher;
mod metric;
mod quote;
mod samples;
mod time;

pub mod duration;
pub mod exposition;
pub mod glob;
#[cfg(feature = "regex")]
pub mod go_regex;
pub mod native;
pub mod notation;
pub mod pci;
pub mod shown;
pub mod words;
#[cfg(feature = "yaml")]
pub mod yaml;

pub use client::client_of;
pub use config_error::{ConfigError, KeyStep};
pub use error_chain::{TlsRemedies, error_chain};
pub use event::{Event, EventKind};
pub use float::{
    exponential, format_g, format_open_metrics, is_float_label, is_normal_spelling, non_finite,
    normal_spelling, parse_float,
};
pub use labels::{Labels, METRIC_NAME};
pub use match_op::MatchOp;
#[cfg(feature = "regex")]
pub use matcher::{Matcher, MatcherError, RegexError, whole};
pub use metric::{Family, Kind, Metric};
pub use quote::{is_plain_label, quoted};
pub use samples::Samples;
pub use time::{Timestamp, UnixTime};
