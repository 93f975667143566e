//! Errors of the exporter as a whole.

use crate::web_config::WebConfigError;
use std::io;
use std::path::PathBuf;

/// Why an exporter cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The exporter cannot listen on an address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address as configured.
        address: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The system gives no thread for a collector.
    #[error("cannot start a thread for collector {collector}")]
    Thread {
        /// Name of the collector.
        collector: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The web configuration is wrong.
    #[error("cannot use --web.config.file")]
    WebConfig(#[source] WebConfigError),
    /// The state directory cannot be used.
    #[error("cannot keep state in {path}")]
    State {
        /// The directory as configured.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The process cannot listen for signals.
    #[error("cannot go on serving")]
    Serve(#[source] io::Error),
}
