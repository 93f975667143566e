//! ZFS: its caches, its pools and their data sets.
//!
//! Source: `/proc/spl/kstat/zfs`. ZFS chooses the names, so these are families; a hyphen becomes an
//! underscore. Of a pool that is just being exported, the files that are gone are left out.

use crate::collector::{CollectError, Collector, device_names, flag};
use crate::paths::Paths;
use crate::sysfs;
use std::path::{Path, PathBuf};
use takt_model::{Family, Kind, Metric, Samples};

struct Zfs {
    kstat: PathBuf,
}

/// The files of the whole module.
macro_rules! files {
    ($($file:literal $prefix:literal,)*) => {
        const FILES: &[&str] = &[$($file),*];
        const FAMILIES: &[Family] = &[POOL, DATA_SET, $(Family {
            prefix: concat!("node_zfs_", $prefix, "_"),
            help: concat!("kstat.zfs.misc.", $file, ".{}"),
            kind: Kind::Unknown,
            labels: &[],
        }),*];
    };
}

files! {
    "abdstats" "abd",
    "arcstats" "arc",
    "dbufstats" "dbuf",
    "dmu_tx" "dmu_tx",
    "dnodestats" "dnode",
    "fm" "fm",
    "vdev_cache_stats" "vdev_cache",
    "vdev_mirror_stats" "vdev_mirror",
    "xuio_stats" "xuio",
    "zfetchstats" "zfetch",
    "zil" "zil",
}

const POOL: Family = Family {
    prefix: "node_zfs_zpool_",
    help: "kstat.zfs.misc.io.{}",
    kind: Kind::Unknown,
    labels: &["zpool"],
};
const DATA_SET: Family = Family {
    prefix: "node_zfs_zpool_dataset_",
    help: "kstat.zfs.misc.objset.{}",
    kind: Kind::Unknown,
    labels: &["zpool", "dataset"],
};
const STATE: Metric = Metric::gauge(
    "node_zfs_zpool_state",
    "kstat.zfs.misc.state",
    &["zpool", "state"],
);
const STATES: [&str; 7] = [
    "online",
    "degraded",
    "faulted",
    "offline",
    "removed",
    "unavail",
    "suspended",
];

/// Names are ASCII and short; a file of something else gives none.
const MAX_SERIES: usize = 200_000;

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Zfs {
        kstat: paths.procfs.join("spl/kstat/zfs"),
    })
}

impl Collector for Zfs {
    fn metrics(&self) -> &'static [Metric] {
        &[STATE]
    }

    fn families(&self) -> &'static [Family] {
        FAMILIES
    }

    fn max_series(&self) -> usize {
        MAX_SERIES
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let names = device_names(&self.kstat, "", "no ZFS")?;

        // The first two families are those of pools and of data sets.
        for (file, family) in FILES.iter().zip(&FAMILIES[2..]) {
            let text = text(&self.kstat.join(file)).unwrap_or_default();
            for (field, value) in fields(&text, &["3", "4"]) {
                out.push_field::<&str>(family, &field, &[], value);
            }
        }

        for pool in names {
            push_pool(&self.kstat.join(&pool), &pool, out);
        }
        Ok(())
    }
}

fn push_pool(directory: &Path, pool: &str, out: &mut Samples) {
    let io = text(&directory.join("io")).unwrap_or_default();
    for (field, value) in columns(&io) {
        out.push_field(&POOL, &field, &[pool], value);
    }

    for file in sysfs::names(directory, "objset-").unwrap_or_default() {
        let text = text(&directory.join(file)).unwrap_or_default();
        let data_set = data_set(&text).unwrap_or_default();
        for (field, value) in fields(&text, &["4"]) {
            out.push_field(&DATA_SET, &field, &[pool, data_set], value);
        }
    }

    if let Some(now) = sysfs::text(&directory.join("state")) {
        let now = now.lines().next().unwrap_or_default().to_ascii_lowercase();
        for state in STATES {
            let is_it = flag(now == state);
            out.push(&STATE, &[pool, state], is_it);
        }
    }
}

/// These files may be longer than the page that one reading of `/sys` brings.
fn text(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The lines of name, type and value, below their headline; only those of the types (`3` signed,
/// `4` unsigned).
fn fields<'a>(text: &'a str, types: &'a [&str]) -> impl Iterator<Item = (String, f64)> + 'a {
    let lines = text.lines().map(str::split_ascii_whitespace);
    // A line of the kernel's own numbers stands above the headings.
    let table = lines.skip_while(|line| !line.clone().eq(["name", "type", "data"]));
    table.skip(1).filter_map(move |mut line| {
        let name = metric_name(line.next()?)?;
        let kind = line.next()?;
        let value = line.next()?.parse().ok()?;
        types.contains(&kind).then_some((name, value))
    })
}

/// The name of the data set, in which there may be blanks.
fn data_set(text: &str) -> Option<&str> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("dataset_name"))?;
    let (_type, value) = line.trim_ascii_start().split_once([' ', '\t'])?;
    Some(value.trim_ascii_start()).filter(|value| !value.is_empty())
}

/// The numbers of the second line under the names of the first. A headline of something else may
/// stand above.
fn columns(text: &str) -> impl Iterator<Item = (String, f64)> {
    let is_heading = |line: &str| line.trim_ascii_start().starts_with("nread");
    let mut lines = text.lines().skip_while(move |line| !is_heading(line));
    let names = lines.next().unwrap_or_default().split_ascii_whitespace();
    let values = lines.next().unwrap_or_default().split_ascii_whitespace();

    let pairs = names.zip(values);
    pairs.filter_map(|(name, value)| Some((metric_name(name)?, value.parse().ok()?)))
}

fn metric_name(name: &str) -> Option<String> {
    let name = name.replace('-', "_");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(is_plain).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_known_types_are_taken() {
        let text = "6 1 0x01 91 4368 12345 67890\nname type data\nhits 4 4811\nmeta-need 3 \
             -12\nstate 7 ok\n\nodd 4 x\n";
        let taken: Vec<_> = fields(text, &["3", "4"]).collect();
        assert_eq!(
            taken,
            [
                ("hits".to_owned(), 4_811.0),
                ("meta_need".to_owned(), -12.0)
            ]
        );
        assert_eq!(
            fields("hits 4 1\n", &["4"]).count(),
            0,
            "without a headline it is something else"
        );
    }

    #[test]
    fn a_pool_has_columns_and_a_data_set_a_name_with_blanks() {
        let text = "12 3 0x00 1 80 12345 67890\nnread nwritten reads\n409600 8192 17\n";
        let columns: Vec<_> = columns(text)
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        assert_eq!(columns, ["nread 409600", "nwritten 8192", "reads 17"]);
        let text = "name type data\ndataset_name                    7    pool1/data \
             set\nwrites                          4    4\n";
        assert_eq!(data_set(text), Some("pool1/data set"));
        // A pool whose name is a part of the line's.
        assert_eq!(data_set("dataset_name  7    data\n"), Some("data"));
        assert_eq!(data_set("dataset_name  7    7\n"), Some("7"));
    }
}
