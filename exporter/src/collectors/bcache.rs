//! bcache: caches before disks, what they hold, hit and miss.
//!
//! Source: `/sys/fs/bcache/UUID`. The kernel writes sizes with a letter (`12.5k`, where the digits
//! behind the point count tenths of 1024 / 1000), the counters as they are. A file that a kernel's
//! version lacks counts 0, as node_exporter has it, but for readaheads, which newer kernels do not
//! count.

use crate::collector::{CollectError, Collector, MAX_DEVICES};
use crate::paths::Paths;
use crate::sysfs;
use crate::table::{Row, metrics_of};
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

/// Flags of the collector `bcache`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct BcacheOptions {
    /// Export the use of a cache's buckets. The kernel walks through all of them.
    #[arg(long = "collector.bcache.priorityStats")]
    pub priority_stats: bool,
}

struct Bcache {
    directory: PathBuf,
    priority_stats: bool,
}

const SET: &[&str] = &["uuid"];
const BACKING: &[&str] = &["uuid", "backing_device"];
const CACHE: &[&str] = &["uuid", "cache_device"];

#[rustfmt::skip]
const OF_SET: &[Row] = &[
    Row::gauge("average_key_size", "node_bcache_average_key_size_sectors",
        "Average data per key in the btree (sectors).", SET),
    Row::gauge("btree_cache_size", "node_bcache_btree_cache_size_bytes",
        "Amount of memory currently used by the btree cache.", SET),
    Row::gauge("cache_available_percent", "node_bcache_cache_available_percent",
        "Percentage of cache device without dirty data, usable for writeback (may contain clean \
         cached data).", SET),
    Row::gauge("congested", "node_bcache_congested", "Congestion.", SET),
    Row::gauge("root_usage_percent", "node_bcache_root_usage_percent",
        "Percentage of the root btree node in use (tree depth increases if too high).", SET),
    Row::gauge("tree_depth", "node_bcache_tree_depth", "Depth of the btree.", SET),
    Row::gauge("internal/active_journal_entries", "node_bcache_active_journal_entries",
        "Number of journal entries that are newer than the index.", SET),
    Row::gauge("internal/btree_nodes", "node_bcache_btree_nodes", "Total nodes in the btree.", SET),
    Row::gauge("internal/btree_read_average_duration_us", "node_bcache_btree_read_average_duration_seconds",
        "Average btree read duration.", SET).of(1e-9),
    Row::counter("internal/cache_read_races", "node_bcache_cache_read_races_total",
        "Counts instances where while data was being read from the cache, the bucket was reused \
         and invalidated - i.e. where the pointer was stale after the read completed.", SET),
];
#[rustfmt::skip]
const OF_BACKING: &[Row] = &[
    Row::gauge("dirty_data", "node_bcache_dirty_data_bytes",
        "Amount of dirty data for this backing device in the cache.", BACKING),
    Row::counter("stats_total/bypassed", "node_bcache_bypassed_bytes_total",
        "Amount of IO (both reads and writes) that has bypassed the cache.", BACKING),
    Row::counter("stats_total/cache_hits", "node_bcache_cache_hits_total",
        "Hits counted per individual IO as bcache sees them.", BACKING),
    Row::counter("stats_total/cache_misses", "node_bcache_cache_misses_total",
        "Misses counted per individual IO as bcache sees them.", BACKING),
    Row::counter("stats_total/cache_bypass_hits", "node_bcache_cache_bypass_hits_total",
        "Hits for IO intended to skip the cache.", BACKING),
    Row::counter("stats_total/cache_bypass_misses", "node_bcache_cache_bypass_misses_total",
        "Misses for IO intended to skip the cache.", BACKING),
    Row::counter("stats_total/cache_miss_collisions", "node_bcache_cache_miss_collisions_total",
        "Instances where data insertion from cache miss raced with write (data already \
         present).", BACKING),
];
const READAHEADS: Metric = Metric::counter(
    "node_bcache_cache_readaheads_total",
    "Count of times readahead occurred.",
    BACKING,
);
/// Lines of `writeback_rate_debug`.
#[rustfmt::skip]
const WRITEBACK: &[Row] = &[
    Row::gauge("target", "node_bcache_dirty_target_bytes",
        "Current dirty data target threshold for this backing device in bytes.", BACKING),
    Row::gauge("rate", "node_bcache_writeback_rate",
        "Current writeback rate for this backing device in bytes.", BACKING),
    Row::gauge("proportional", "node_bcache_writeback_rate_proportional_term",
        "Current result of proportional controller, part of writeback rate", BACKING),
    Row::gauge("integral", "node_bcache_writeback_rate_integral_term",
        "Current result of integral controller, part of writeback rate", BACKING),
    Row::gauge("change", "node_bcache_writeback_change",
        "Last writeback rate change step for this backing device.", BACKING),
];
#[rustfmt::skip]
const OF_CACHE: &[Row] = &[
    Row::gauge("io_errors", "node_bcache_io_errors",
        "Number of errors that have occurred, decayed by io_error_halflife.", CACHE),
    Row::counter("metadata_written", "node_bcache_metadata_written_bytes_total",
        "Sum of all non data writes (btree writes and all other metadata).", CACHE),
    Row::counter("written", "node_bcache_written_bytes_total",
        "Sum of all data that has been written to the cache.", CACHE),
];
/// Lines of `priority_stats`.
#[rustfmt::skip]
const PRIORITY: &[Row] = &[
    Row::gauge("Unused", "node_bcache_priority_stats_unused_percent",
        "The percentage of the cache that doesn't contain any data.", CACHE),
    Row::gauge("Metadata", "node_bcache_priority_stats_metadata_percent",
        "Bcache's metadata overhead.", CACHE),
];
const METRICS: &[Metric] = metrics_of!(
    [READAHEADS],
    OF_SET,
    OF_BACKING,
    WRITEBACK,
    OF_CACHE,
    PRIORITY
);

pub(crate) fn new(paths: &Paths, options: &BcacheOptions) -> Box<dyn Collector> {
    let directory = paths.sysfs.join("fs/bcache");
    Box::new(Bcache {
        directory,
        priority_stats: options.priority_stats,
    })
}

impl Collector for Bcache {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        // Beside the sets there are files to register disks with.
        let mut sets = sysfs::names(&self.directory, "").unwrap_or_default();
        sets.retain(|name| name.contains('-'));

        for uuid in &sets {
            let set = self.directory.join(uuid);
            push_numbers(&set, OF_SET, &[uuid], out);

            for (device, _) in sysfs::numbered(&set, "bdev").unwrap_or_default() {
                push_backing(&set.join(&device), &[uuid, &device], out);
            }
            for (device, _) in sysfs::numbered(&set, "cache").unwrap_or_default() {
                let directory = set.join(&device);
                let labels = [uuid, &device];
                push_numbers(&directory, OF_CACHE, &labels, out);
                if self.priority_stats {
                    push_lines(&directory.join("priority_stats"), PRIORITY, &labels, out);
                }
            }
        }
        Ok(())
    }
}

fn push_backing(directory: &Path, labels: &[&String; 2], out: &mut Samples) {
    push_numbers(directory, OF_BACKING, labels, out);

    let readaheads = sysfs::text(&directory.join("stats_total/cache_readaheads"));
    // A 0 is left out as well, as node_exporter does.
    let readaheads = readaheads.as_deref().and_then(number);
    if let Some(readaheads) = readaheads.filter(|readaheads| *readaheads != 0.0) {
        out.push(&READAHEADS, labels, readaheads);
    }

    let writeback = directory.join("writeback_rate_debug");
    push_lines(&writeback, WRITEBACK, labels, out);
}

fn push_numbers(directory: &Path, rows: &[Row], labels: &[&String], out: &mut Samples) {
    for row in rows {
        match sysfs::try_text(&directory.join(row.source)) {
            Ok(text) => {
                if let Some(number) = number(&text) {
                    row.push(labels, number, out);
                }
            }
            // A version that lacks the file counts 0. Other errors say nothing of the value.
            Err(rustix::io::Errno::NOENT) => row.push(labels, 0.0, out),
            Err(_) => {}
        }
    }
}

/// Lines such as `rate: 1.1M/sec` and `Unused: 99%`. What is not there is 0.
fn push_lines(file: &Path, rows: &[Row], labels: &[&String], out: &mut Samples) {
    let Some(text) = sysfs::text(file) else {
        return;
    };
    for row in rows {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(row.source)?.strip_prefix(':'));
        let value = value.map_or(Some(0.0), |value| {
            let value = value.trim_ascii().trim_end_matches("/sec");
            number(value.trim_end_matches('%'))
        });
        if let Some(value) = value {
            row.push(labels, value, out);
        }
    }
}

/// The bytes, or whatever is counted, behind a number for people, without a fraction.
fn number(text: &str) -> Option<f64> {
    let (digits, power) = match text.char_indices().last()? {
        // A number below 1,024 has no letter.
        (_, '0'..='9') => (text, 0),
        (at, unit) => (&text[..at], "kMGTPEZY".find(unit)? + 1),
    };

    let magnitude = digits.strip_prefix('-').unwrap_or(digits);
    let (whole, fraction) = magnitude.split_once('.').unwrap_or((magnitude, "0"));
    let mantissa = whole.parse::<u64>().ok()? as f64 + fraction.parse::<u64>().ok()? as f64 / 10.24;

    let number = (mantissa * 1024_f64.powi(i32::try_from(power).ok()?)).trunc();
    Some(if digits.starts_with('-') {
        -number
    } else {
        number
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        let numbers =
            ["0", "517", "1.1k", "1.1M", "-10.3k", "20.0k"].map(|text| number(text).unwrap());
        assert_eq!(
            numbers,
            [0.0, 517.0, 1124.0, 1_150_976.0, -10_540.0, 20_480.0]
        );
        assert_eq!(["", "k", "1.1q", "many", "1.-1k"].map(number), [None; 5]);
    }
}
