//! bcachefs: space, compression, errors, and the disks of each file system.
//!
//! Source: `/sys/fs/bcachefs/UUID`. The kernel writes sizes for people, `4.00M` with 1,024 as the
//! base. A file that this kernel's version lacks leaves out its metrics.

use crate::collector::{CollectError, Collector, ParseError, device_names};
use crate::paths::Paths;
use crate::sysfs;
use std::path::{Path, PathBuf};
use takt_model::{Family, Kind, Metric, Samples};

struct Bcachefs {
    directory: PathBuf,
}

const FILE_SYSTEM: &[&str] = &["uuid"];
const DEVICE: &[&str] = &["uuid", "device"];
const INFO: Metric = Metric::gauge("node_bcachefs_info", "Filesystem information.", FILE_SYSTEM);
const CACHE_SIZE: Metric = Metric::gauge(
    "node_bcachefs_btree_cache_size_bytes",
    "Btree cache memory usage in bytes.",
    FILE_SYSTEM,
);
const COMPRESSED: Metric = Metric::gauge(
    "node_bcachefs_compression_compressed_bytes",
    "Compressed size by algorithm.",
    &["uuid", "algorithm"],
);
const UNCOMPRESSED: Metric = Metric::gauge(
    "node_bcachefs_compression_uncompressed_bytes",
    "Uncompressed size by algorithm.",
    &["uuid", "algorithm"],
);
const ERRORS: Metric = Metric::counter(
    "node_bcachefs_errors_total",
    "Error count by error type.",
    &["uuid", "error_type"],
);
const WRITES: Metric = Metric::counter(
    "node_bcachefs_btree_writes_total",
    "Number of btree writes by type.",
    &["uuid", "type"],
);
const WRITE_SIZE: Metric = Metric::gauge(
    "node_bcachefs_btree_write_average_size_bytes",
    "Average btree write size by type.",
    &["uuid", "type"],
);
const DEVICE_INFO: Metric = Metric::gauge(
    "node_bcachefs_device_info",
    "Device information.",
    &["uuid", "device", "label", "state"],
);
const BUCKET_SIZE: Metric = Metric::gauge(
    "node_bcachefs_device_bucket_size_bytes",
    "Bucket size in bytes.",
    DEVICE,
);
const BUCKETS: Metric = Metric::gauge(
    "node_bcachefs_device_buckets",
    "Total number of buckets.",
    DEVICE,
);
const DURABILITY: Metric = Metric::gauge(
    "node_bcachefs_device_durability",
    "Device durability setting.",
    DEVICE,
);
const IO_DONE: Metric = Metric::counter(
    "node_bcachefs_device_io_done_bytes_total",
    "IO bytes by operation type and data type.",
    &["uuid", "device", "operation", "data_type"],
);
const IO_ERRORS: Metric = Metric::counter(
    "node_bcachefs_device_io_errors_total",
    "IO errors by error type.",
    &["uuid", "device", "type"],
);
const METRICS: &[Metric] = &[
    INFO,
    CACHE_SIZE,
    COMPRESSED,
    UNCOMPRESSED,
    ERRORS,
    WRITES,
    WRITE_SIZE,
    DEVICE_INFO,
    BUCKET_SIZE,
    BUCKETS,
    DURABILITY,
    IO_DONE,
    IO_ERRORS,
];
/// Counters of the directory `counters`, which the kernel names.
const COUNTERS: Family = Family {
    prefix: "node_bcachefs_",
    help: "Bcachefs counter {} since filesystem creation.",
    kind: Kind::Counter,
    labels: FILE_SYSTEM,
};

/// Series of all file systems: a hundred counters each, and some fifty a disk.
const MAX_SERIES: usize = 16_384;

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Bcachefs {
        directory: paths.sysfs.join("fs/bcachefs"),
    })
}

impl Collector for Bcachefs {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn families(&self) -> &'static [Family] {
        &[COUNTERS]
    }

    fn max_series(&self) -> usize {
        MAX_SERIES
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let file_systems = device_names(&self.directory, "", "no bcachefs")?;

        let mut wrong = None;
        for uuid in &file_systems {
            let directory = self.directory.join(uuid);
            out.push(&INFO, &[uuid], 1.0);

            for push in [push_file_system, push_counters, push_devices] {
                // A file that cannot be understood leaves out what it counts, and is reported.
                wrong = push(&directory, uuid, out).err().or(wrong);
            }
        }

        match wrong {
            Some(error) => Err(error),
            None if file_systems.is_empty() => Err(CollectError::Absent("no bcachefs")),
            None => Ok(()),
        }
    }
}

fn push_file_system(directory: &Path, uuid: &str, out: &mut Samples) -> Result<(), CollectError> {
    let cache = directory.join("btree_cache_size");
    if let Some(text) = sysfs::text(&cache) {
        let bytes = size(&text).ok_or_else(|| not_a_size(1).in_file(&cache))?;
        out.push(&CACHE_SIZE, &[uuid], bytes);
    }

    each_row(&directory.join("compression_stats"), |algorithm, row| {
        let compressed = size(row.first()?)?;
        let uncompressed = size(row.get(1)?)?;
        out.push(&COMPRESSED, &[uuid, algorithm], compressed);
        out.push(&UNCOMPRESSED, &[uuid, algorithm], uncompressed);
        Some(())
    })?;

    each_row(&directory.join("btree_write_stats"), |kind, row| {
        let count: u64 = row.first()?.parse().ok()?;
        let average = size(row.get(1)?)?;
        out.push(&WRITES, &[uuid, kind], count as f64);
        out.push(&WRITE_SIZE, &[uuid, kind], average);
        Some(())
    })?;

    let errors = directory.join("errors");
    let text = sysfs::text(&errors).unwrap_or_default();
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_ascii_whitespace();
        let (Some(kind), Some(count)) = (words.next(), words.next()) else {
            continue;
        };
        let count = count.parse::<u64>();
        let count = count.map_err(|_| not_a_size(number + 1).in_file(&errors))?;
        out.push(&ERRORS, &[uuid, kind], count as f64);
    }
    Ok(())
}

/// Gives name and columns of each line to `push`, but for the first line, which is a heading. Lines
/// with fewer than two columns are passed over. `push` returns `None` for columns that it cannot
/// read.
fn each_row(
    path: &Path,
    mut push: impl FnMut(&str, &[&str]) -> Option<()>,
) -> Result<(), CollectError> {
    let text = sysfs::text(path).unwrap_or_default();
    for (number, line) in text.lines().enumerate().skip(1) {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        if let [name, columns @ ..] = words.as_slice()
            && columns.len() >= 2
        {
            push(name.trim_end_matches(':'), columns)
                .ok_or_else(|| not_a_size(number + 1).in_file(path))?;
        }
    }
    Ok(())
}

fn not_a_size(line: usize) -> ParseError {
    ParseError {
        line,
        expected: "a name and numbers",
    }
}

fn push_counters(directory: &Path, uuid: &str, out: &mut Samples) -> Result<(), CollectError> {
    let counters = directory.join("counters");
    for name in sysfs::names(&counters, "").unwrap_or_default() {
        let path = counters.join(&name);
        let text = sysfs::text(&path).unwrap_or_default();
        // The other line counts since the file system was mounted.
        let total = text
            .lines()
            .find_map(|line| line.strip_prefix("since filesystem creation:"));
        let count = total
            .and_then(size)
            .ok_or_else(|| not_a_size(1).in_file(&path))?;

        // The kernel may use characters that a name cannot have.
        let mut field = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
        field.push_str("_total");
        let metric = format!("{}{field}", COUNTERS.prefix);

        // A name that is declared above would come twice.
        if METRICS.iter().all(|other| other.name != metric) {
            let help = COUNTERS.help_of(&name);
            out.push_foreign(&metric, COUNTERS.kind, &help, &[("uuid", uuid)], count);
        }
    }
    Ok(())
}

fn push_devices(directory: &Path, uuid: &str, out: &mut Samples) -> Result<(), CollectError> {
    for name in sysfs::names(directory, "dev-").unwrap_or_default() {
        let device = &name["dev-".len()..];
        let directory = directory.join(&name);
        let text = |file: &str| sysfs::text(&directory.join(file)).unwrap_or_default();

        let labels = [uuid, device];
        let described = [uuid, device, &text("label"), &text("state")];
        out.push(&DEVICE_INFO, &described, 1.0);

        if let Some(bytes) = size(&text("bucket_size")) {
            out.push(&BUCKET_SIZE, &labels, bytes);
        }
        for (metric, file) in [(&BUCKETS, "nbuckets"), (&DURABILITY, "durability")] {
            if let Some(number) = sysfs::number::<u64>(&directory.join(file)) {
                out.push(metric, &labels, number as f64);
            }
        }

        for (operation, data, bytes) in io_done(&text("io_done")) {
            out.push(&IO_DONE, &[uuid, device, operation, data], bytes);
        }
        for (kind, count) in io_errors(&text("io_errors")) {
            out.push(&IO_ERRORS, &[uuid, device, kind], count);
        }
    }
    Ok(())
}

/// `read:`, then `sb : 1024` and so on, then the same of `write:`.
fn io_done(text: &str) -> Vec<(&str, &str, f64)> {
    let mut operation = None;
    let mut done = Vec::new();
    for line in text.lines().map(str::trim) {
        if let "read:" | "write:" = line {
            operation = Some(line.trim_end_matches(':'));
        } else if let (Some(operation), Some((data, bytes))) = (operation, pair(line)) {
            done.push((operation, data, bytes));
        }
    }
    done
}

/// The lines below `IO errors since filesystem creation`, up to the next heading.
fn io_errors(text: &str) -> Vec<(&str, f64)> {
    const HEADING: &str = "IO errors since ";
    let lines = text.lines();
    // The errors since the last reset follow below, in the same form.
    let below = lines.skip_while(|line| !line.starts_with("IO errors since filesystem creation"));
    let errors = below.skip(1).take_while(|line| !line.starts_with(HEADING));
    errors.filter_map(pair).collect()
}

/// `name : 12`
fn pair(line: &str) -> Option<(&str, f64)> {
    let (name, count) = line.split_once(':')?;
    let count: u64 = count.trim().parse().ok()?;
    Some((name.trim(), count as f64))
}

/// `4.00M` is 4,194,304. Whole numbers only: the kernel rounds what it writes.
fn size(text: &str) -> Option<f64> {
    let text = text.trim();
    let letter = text.chars().last()?.to_ascii_lowercase();
    let power = "kmgtpe".find(letter).map_or(0, |at| at + 1);

    let digits = if power == 0 {
        text
    } else {
        &text[..text.len() - 1]
    };

    let number: f64 = digits.trim().parse().ok()?;
    let factor = 1024_f64.powi(i32::try_from(power).ok()?);

    // Rust reads `inf` and `NaN` as numbers, too.
    (number.is_finite() && number >= 0.0).then(|| (number * factor).trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("512k"), Some(524_288.0));
        assert_eq!(size("4.00M"), Some(4_194_304.0));
        assert_eq!(size("1.5G"), Some(1_610_612_736.0));
        assert_eq!(size(" 17 "), Some(17.0));
        for wrong in ["", "k", "x", "-1", "inf", "NaN", "1.5é"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn io_of_a_device() {
        let text = "read:\nsb          :       3989504\nuser:12\n\nwrite:\nsb : 31417344\nodd\n";
        assert_eq!(
            io_done(text),
            [
                ("read", "sb", 3_989_504.0),
                ("read", "user", 12.0),
                ("write", "sb", 31_417_344.0),
            ]
        );
        let text = "IO errors since filesystem creation\n  read:    197346\n  write: 2\n\
                    IO errors since 8 y ago\n  read: 5\n";
        assert_eq!(io_errors(text), [("read", 197_346.0), ("write", 2.0)]);
    }
}
