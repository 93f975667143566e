//! The trait of collectors, and their errors.

use crate::events::Events;
use crate::gpus::{LettingGo, SharedGpus};
use crate::sysfs;
use clap::{Args, Command, FromArgMatches};
use std::io;
use std::path::{Path, PathBuf};
use takt_model::{Family, Metric, Samples};

/// Reads one part of the node.
pub trait Collector: Send {
    /// Declared metrics.
    fn metrics(&self) -> &'static [Metric];

    /// Families of metrics whose names the kernel chooses.
    fn families(&self) -> &'static [Family] {
        &[]
    }

    /// Upper limit of series on one node. A reading with more is dropped and reported, because half
    /// of an unforeseen flood would be as wrong as all of it. Default: one series for each metric.
    fn max_series(&self) -> usize {
        self.metrics().len()
    }

    /// Gives the collector the node's events before the first reading, to report some or to count
    /// them.
    ///
    /// # Errors
    /// When the system gives no thread.
    fn attach(&mut self, _events: &Events) -> io::Result<()> {
        Ok(())
    }

    /// Reads once. Samples pushed before an error are still published.
    ///
    /// # Errors
    /// When the source cannot be read or understood, or the node has none.
    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError>;
}

/// Values that collectors of one exporter share. A clone is another handle to the same values.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedState {
    /// From `nvml` to `jobs`.
    pub gpus: SharedGpus,
    /// Request to `nvml` to release the driver, so that it can be unloaded.
    pub letting_go: LettingGo,
}

/// Upper limit of CPUs, disks, links or mounts of one node. The limits on series are computed from
/// it.
pub(crate) const MAX_DEVICES: usize = 1024;

/// The values of flags that are not given.
pub(crate) fn defaults<T: Args + FromArgMatches>() -> T {
    let command = Command::new("takt-exporter").no_binary_name(true);
    let matches = T::augment_args(command).try_get_matches_from([""; 0]);
    let options = matches.and_then(|matches| T::from_arg_matches(&matches));
    options.expect("every flag has a default")
}

/// Why a reading failed.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// A file of the kernel cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of the kernel has unexpected content.
    #[error("{path}, line {line}: expected {expected}")]
    Parse {
        /// Which file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The expected content.
        expected: &'static str,
    },
    /// NVML is installed but does not answer.
    #[error("cannot {attempt}")]
    Nvml {
        /// The attempted call.
        attempt: &'static str,
        /// NVML's error.
        #[source]
        source: nvml_wrapper::error::NvmlError,
    },
    /// A system service does not answer over D-Bus.
    #[error("cannot ask over D-Bus")]
    Dbus {
        /// The error of D-Bus.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The node has no such hardware. Reported as absent, never as broken.
    #[error("nothing to collect: {0}")]
    Absent(&'static str),
    /// The exporter lacks the privilege to read it. Reported as absent.
    #[error("not permitted: {0}")]
    Denied(&'static str),
    /// The reading has more series than the collector's limit.
    #[error("{series} series, but there can be only {max}")]
    TooManySeries {
        /// Number of series in the reading.
        series: usize,
        /// The limit.
        max: usize,
    },
    /// The collector has a bug.
    #[error("panicked: {0}")]
    Panicked(String),
}

impl CollectError {
    /// A file that cannot be read.
    pub(crate) fn read(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Read {
            path: path.to_owned(),
            source: source.into(),
        }
    }

    /// Turns a missing file, or one that the kernel does not support, into [`Self::Absent`].
    pub(crate) fn or_absent(self, what: &'static str) -> Self {
        let is_missing = |kind: io::ErrorKind| {
            matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::Unsupported)
        };
        match self {
            Self::Read { source, .. } if is_missing(source.kind()) => Self::Absent(what),
            other => other,
        }
    }
}

/// Results of reading what a node need not have.
pub(crate) trait OrAbsent {
    /// As [`CollectError::or_absent`].
    fn or_absent(self, what: &'static str) -> Self;
}

impl<T> OrAbsent for Result<T, CollectError> {
    fn or_absent(self, what: &'static str) -> Self {
        self.map_err(|error| error.or_absent(what))
    }
}

/// The names in a directory of `/sys` that begin with `prefix`, sorted. A node without the
/// directory has nothing to collect, as `absent` says.
pub(crate) fn device_names(
    directory: &Path,
    prefix: &str,
    absent: &'static str,
) -> Result<Vec<String>, CollectError> {
    let names = sysfs::names(directory, prefix);
    names.map_err(|source| CollectError::read(directory, source).or_absent(absent))
}

/// The value of a metric that says whether something is so: 1 or 0.
pub(crate) fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// A line with unexpected content. Parsers do not know the file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParseError {
    pub line: usize,
    pub expected: &'static str,
}

impl ParseError {
    pub fn in_file(self, path: &Path) -> CollectError {
        CollectError::Parse {
            path: path.to_owned(),
            line: self.line,
            expected: self.expected,
        }
    }
}
