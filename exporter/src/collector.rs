//! What a collector is.

use crate::events::Events;
use crate::gpus::{LettingGo, SharedGpus};
use clap::{Args, Command, FromArgMatches};
use std::io;
use std::path::{Path, PathBuf};
use takt_model::{Family, Metric, Samples};

/// Reads one part of the node.
pub trait Collector: Send {
    /// The word for it in flags, labels and `collect[]`.
    fn name(&self) -> &'static str;

    /// The metrics it fills.
    fn metrics(&self) -> &'static [Metric];

    /// The metrics it fills whose names the kernel chooses.
    fn families(&self) -> &'static [Family] {
        &[]
    }

    /// How many series one node can produce at worst. A reading with more is thrown away and reported: half of an
    /// unforeseen flood would be as wrong as all of it.
    fn max_series(&self) -> usize;

    /// Gives the collector, before it reads for the first time, the events of the node: to tell of some, or to count them.
    ///
    /// # Errors
    /// When the system gives no thread.
    fn attach(&mut self, _events: &Events) -> io::Result<()> {
        Ok(())
    }

    /// Reads once. What was pushed before an error is still sent.
    ///
    /// # Errors
    /// When the source cannot be read or understood, or the node has none.
    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError>;
}

/// What the collectors of one exporter tell each other. Cloning gives another handle to the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared {
    /// From `nvml` to `jobs`.
    pub gpus: SharedGpus,
    /// From whoever wants the driver unloaded to `nvml`.
    pub letting_go: LettingGo,
}

/// Upper limit of CPUs, disks, links or mounts of one node. The limits on series are computed from it.
pub(crate) const MAX_DEVICES: usize = 1024;

/// The values of flags that are not given.
pub(crate) fn defaults<T: Args + FromArgMatches>() -> T {
    T::augment_args(Command::new("takt-exporter").no_binary_name(true))
        .try_get_matches_from([""; 0])
        .and_then(|matches| T::from_arg_matches(&matches))
        .expect("every flag has a default")
}

/// Why a reading came to nothing.
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
    /// A file of the kernel is not as it should be.
    #[error("{path}, line {line}: expected {expected}")]
    Parse {
        /// Which file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What should have stood there.
        expected: &'static str,
    },
    /// NVML, though it is there, does not answer.
    #[error("cannot {attempt}")]
    Nvml {
        /// What was attempted.
        attempt: &'static str,
        /// What NVML said.
        #[source]
        source: nvml_wrapper::error::NvmlError,
    },
    /// A service of the system does not answer.
    #[error("cannot ask over D-Bus")]
    Dbus {
        /// What went wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The node has no such hardware. Reported as absent, never as broken.
    #[error("nothing to collect: {0}")]
    Absent(&'static str),
    /// More series than the collector says there can be.
    #[error("{series} series, but there can be only {max}")]
    TooManySeries {
        /// How many there were.
        series: usize,
        /// How many there can be.
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

    /// The same, but where there is no such file, or the kernel serves none, the node has no such hardware.
    pub(crate) fn or_absent(self, what: &'static str) -> Self {
        match self {
            Self::Read { source, .. }
                if matches!(
                    source.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::Unsupported
                ) =>
            {
                Self::Absent(what)
            }
            other => other,
        }
    }
}

/// Where a text is not as it should be. The parsers know no files.
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
