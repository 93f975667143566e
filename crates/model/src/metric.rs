//! What a metric is called, what it counts and which labels it has: declared once, beside the code that fills it.

use std::borrow::Cow;

/// What the numbers of a metric mean to who reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Only ever rises, but for a restart that begins again at zero.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Nothing is known (`untyped` in text 0.0.4, `unknown` in OpenMetrics).
    Unknown,
}

/// One metric under a name of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The full name, base unit and `_total` included: `takt_gpu_energy_joules_total`.
    pub name: &'static str,
    /// One sentence for the reader: what it means and what it does not.
    pub help: &'static str,
    /// Counter, gauge or unknown.
    pub kind: Kind,
    /// Label names, in the order in which values are given to [`Samples::push`](crate::Samples::push).
    pub labels: &'static [&'static str],
}

impl Metric {
    /// A metric that only rises.
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

    /// A metric that goes up and down.
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

    /// A metric whose type the source does not tell.
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
    /// What every name begins with: `node_memory_`.
    pub prefix: &'static str,
    /// Help text; `{}` stands for the rest of the name.
    pub help: &'static str,
    /// Counter, gauge or unknown, alike for all.
    pub kind: Kind,
    /// Label names, as in [`Metric::labels`].
    pub labels: &'static [&'static str],
}

impl Family {
    /// The help text of the metric called `prefix` + `field`.
    pub fn help_of(&self, field: &str) -> Cow<'static, str> {
        match self.help.contains("{}") {
            true => self.help.replace("{}", field).into(),
            false => self.help.into(),
        }
    }
}
