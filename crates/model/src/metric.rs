//! Metric declarations: name, help, type and labels, written beside the code that fills the metric.

use std::borrow::Cow;

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A value that only rises, except for a restart at zero.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// Buckets, sum and count. Other programs have such metrics; none is declared.
    Histogram,
    /// Quantiles, sum and count, as [`Self::Histogram`].
    Summary,
    /// Unknown type (`untyped` in text 0.0.4, `unknown` in OpenMetrics).
    Unknown,
}

/// A metric with a fixed name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Full name with base unit and `_total`: `takt_gpu_energy_joules_total`.
    pub name: &'static str,
    /// Help text: one sentence on what the value means and what it does not.
    pub help: &'static str,
    /// Counter, gauge or unknown.
    pub kind: Kind,
    /// Label names, in the order of the values for [`Samples::push`](crate::Samples::push).
    pub labels: &'static [&'static str],
}

impl Metric {
    /// Declares a counter.
    pub const fn counter(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            help,
            kind: Kind::Counter,
            labels,
        }
    }

    /// Declares a gauge.
    pub const fn gauge(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            help,
            kind: Kind::Gauge,
            labels,
        }
    }

    /// Declares a metric whose type its source does not specify.
    pub const fn unknown(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            help,
            kind: Kind::Unknown,
            labels,
        }
    }
}

/// Metrics whose names the kernel chooses, such as the fields of `/proc/meminfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Prefix of all names: `node_memory_`.
    pub prefix: &'static str,
    /// Help text. `{}` is replaced by the rest of the name.
    pub help: &'static str,
    /// Type of all its metrics.
    pub kind: Kind,
    /// Label names, as in [`Metric::labels`].
    pub labels: &'static [&'static str],
}

impl Family {
    /// Returns the help text of the metric `prefix` + `field`.
    pub fn help_of(&self, field: &str) -> Cow<'static, str> {
        if self.help.contains("{}") {
            self.help.replace("{}", field).into()
        } else {
            self.help.into()
        }
    }
}
