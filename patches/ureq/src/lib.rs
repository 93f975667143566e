//! Refuses to download, in place of the HTTP client of the same name.
//!
//! Only the build script of `libduckdb-sys` uses that client, to fetch DuckDB where
//! `DUCKDB_DOWNLOAD_LIB` is set. Takt's builds never do (`scripts/libduckdb.sh` has the library ready),
//! but each would compile a second TLS stack for it: 20 crates. What the script calls is here.

use std::fmt;
use std::io;
use std::time::Duration;

/// A client that refuses each request.
#[derive(Debug)]
pub struct Agent;

impl Agent {
    /// A client.
    #[must_use]
    pub fn new_with_config(_config: Config) -> Self {
        Self
    }

    /// Begins a configuration.
    #[must_use]
    pub fn config_builder() -> Config {
        Config
    }

    /// A request that will be refused.
    #[must_use]
    pub fn get(&self, url: &str) -> Request {
        Request(url.to_owned())
    }
}

/// The configuration of a client, which has no effect.
#[derive(Debug)]
pub struct Config;

impl Config {
    /// Limits the time of a request.
    #[must_use]
    pub fn timeout_global(self, _limit: Option<Duration>) -> Self {
        self
    }

    /// Ends the configuration.
    #[must_use]
    pub fn build(self) -> Self {
        self
    }
}

/// A request for an address.
#[derive(Debug)]
pub struct Request(String);

impl Request {
    /// Refuses the request.
    ///
    /// # Errors
    /// Always.
    pub fn call(self) -> Result<Response, Refused> {
        Err(Refused(self.0))
    }
}

/// A request was refused.
#[derive(Debug)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} was not fetched: builds of takt download nothing. Unset DUCKDB_DOWNLOAD_LIB, and set \
             DUCKDB_LIB_DIR=$(scripts/libduckdb.sh).",
            self.0
        )
    }
}

impl std::error::Error for Refused {}

/// A response, of which there is none.
#[derive(Debug)]
pub enum Response {}

impl Response {
    /// The body.
    pub fn body_mut(&mut self) -> &mut Body {
        match *self {}
    }
}

/// The body of a response, of which there is none.
#[derive(Debug)]
pub enum Body {}

impl Body {
    /// A reader of the body.
    pub fn as_reader(&mut self) -> io::Empty {
        match *self {}
    }
}
