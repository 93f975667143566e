//! Stores with job records, for tests.

use prometheus_client::registry::Registry;
use std::convert::Infallible;
use std::path::Path;
use takt_jobs::{Entry, JobRun};
use takt_store::{Corrections, DataDir, Database, Origin, Records, Shifted, Store, StoreConfig};

/// Opens a store in an empty folder. It writes even if the disk is nearly full.
pub(crate) fn store_in(root: &Path) -> Store {
    let config = StoreConfig {
        min_free_bytes: 0,
        ..StoreConfig::default()
    };
    let dir = DataDir::claim(root).unwrap();
    Store::open(dir, &config, &mut Registry::default()).unwrap()
}

/// Imports runs as `sacct` reports them, with or without a time zone of their cluster.
pub(crate) fn import(
    database: &Database,
    timezone: Option<&str>,
    runs: impl IntoIterator<Item = JobRun>,
) {
    let origin = Origin {
        source: "sacct",
        name: "test",
        timezone,
        complete_until: None,
        shifted: Shifted::Refuse,
        corrections: Corrections::Accept,
    };
    let entries = runs
        .into_iter()
        .map(|run| Ok::<_, Infallible>(Entry::Run(run)));
    Records::of(database).import(&origin, entries).unwrap();
}
