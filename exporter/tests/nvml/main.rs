//! GPUs, through the stand-in for NVIDIA's library.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its surroundings shall end"
)]

mod dcgm;
mod devices;
mod faults;
mod processes;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use support::{Running, stand_in};
use tempfile::TempDir;

#[path = "../support/mod.rs"]
mod support;

/// An exporter with simulated GPUs.
struct Node {
    directory: TempDir,
    exporter: Running,
}

impl Node {
    fn new(script: &str) -> Self {
        // The kernel log of this machine may contain any events.
        Self::with(script, &["--path.kmsg=/nonexistent"])
    }

    fn with(script: &str, flags: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("script"), script).unwrap();
        let path: PathBuf = directory.path().join("script");
        let library = stand_in();
        let flags = [flags, &[&library]].concat();
        let exporter = Running::takt(&flags, &[("NVML_STAND_IN_SCRIPT", &path)]);
        Self {
            directory,
            exporter,
        }
    }

    fn becomes(&self, script: &str) {
        let draft = self.directory.path().join("draft");
        fs::write(&draft, script).unwrap();
        fs::rename(draft, self.directory.path().join("script")).unwrap();
    }

    /// Returns the GPU series whose name and labels contain `part`.
    fn series(&self, part: &str) -> BTreeMap<String, f64> {
        let mut series = self.exporter.series("?collect[]=nvml");
        series.retain(|name, _| name.contains("takt_gpu_") && name.contains(part));
        series
    }

    fn wait_for(&self, what: &str, part: &str) -> String {
        self.exporter.wait_for(what, |page| page.contains(part))
    }
}

const A: &str = "GPU-aaaaaaaa-0000-0000-0000-000000000000";

const B: &str = "GPU-bbbbbbbb-0000-0000-0000-000000000000";

fn named(rest: &str) -> String {
    format!("profile rtx5090 2\ngpu 0 uuid {A}\ngpu 1 uuid {B}\n{rest}")
}

fn up(uuid: &str, reason: &str, value: u8) -> String {
    format!("takt_gpu_up{{uuid=\"{uuid}\",reason=\"{reason}\"}} {value}\n")
}
