//! The local cache of network file systems (FS-Cache, cachefilesd).
//!
//! Sources: `/proc/fs/fscache/stats`, and `/proc/fs/netfs/stats`, where newer kernels have it.
//! Lines are `Section: key=1 key=2`; sections and keys come and go with the kernel's version, so
//! each that is known is read, wherever it stands.

use crate::collector::{CollectError, Collector, OrAbsent};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Fscache {
    files: [KernelFile; 2],
}

const COOKIES: Metric = Metric::gauge(
    "takt_fscache_cookies",
    "Objects that the cache knows at present: files (data), and volumes or indices.",
    &["type"],
);
const ACQUIRED: Metric = Metric::counter(
    "takt_fscache_acquires_total",
    "Files for which the cache was asked, by result: ok, no_memory, no_cache.",
    &["result"],
);
const REQUESTS: Metric = Metric::counter(
    "takt_fscache_requests_total",
    "Requests to the cache: read, write; before Linux 5.17 of pages. Requests that the cache could \
     not serve went to the server.",
    &["operation"],
);
const MISSES: Metric = Metric::counter(
    "takt_fscache_misses_total",
    "Reads that the cache could not serve.",
    &[],
);
const NO_SPACE: Metric = Metric::counter(
    "takt_fscache_no_space_total",
    "Requests dropped because the cache's disk is full: write, create; and files removed to make \
     room: cull.",
    &["operation"],
);
const RETIRED: Metric = Metric::counter(
    "takt_fscache_invalidations_total",
    "Files whose cached data was dropped as outdated.",
    &[],
);
const READS: Metric = Metric::counter(
    "takt_fscache_read_sources_total",
    "Parts of reads of network file systems, by source: cache, server, zero (holes).",
    &["source"],
);
const FAILED: Metric = Metric::counter(
    "takt_fscache_failures_total",
    "Failed parts of requests, by operation: cache_read, cache_write, download, upload.",
    &["operation"],
);
const METRICS: &[Metric] = &[
    COOKIES, ACQUIRED, REQUESTS, MISSES, NO_SPACE, RETIRED, READS, FAILED,
];

/// The library below the network file systems; newer kernels have a section for each line of it.
const NETFS: &str = "Netfs";
const NETFS_SECTIONS: [&str; 5] = ["CaRdOps", "CaWrOps", "DownOps", "UpldOps", "ZeroOps"];

/// Section, key, metric and label; the keys from Linux 5.17 on, then those before.
const KNOWN: &[(&str, &str, &Metric, &[&str])] = &[
    ("Cookies", "n", &COOKIES, &["data"]),
    ("Cookies", "v", &COOKIES, &["volume"]),
    ("Acquire", "ok", &ACQUIRED, &["ok"]),
    ("Acquire", "oom", &ACQUIRED, &["no_memory"]),
    ("Invals", "n", &RETIRED, &[]),
    ("NoSpace", "nwr", &NO_SPACE, &["write"]),
    ("NoSpace", "ncr", &NO_SPACE, &["create"]),
    ("NoSpace", "cull", &NO_SPACE, &["cull"]),
    ("IO", "rd", &REQUESTS, &["read"]),
    ("IO", "wr", &REQUESTS, &["write"]),
    ("IO", "mis", &MISSES, &[]),
    (NETFS, "RD", &READS, &["cache"]),
    (NETFS, "DL", &READS, &["server"]),
    (NETFS, "ZR", &READS, &["zero"]),
    (NETFS, "rf", &FAILED, &["cache_read"]),
    (NETFS, "wf", &FAILED, &["cache_write"]),
    (NETFS, "df", &FAILED, &["download"]),
    (NETFS, "uf", &FAILED, &["upload"]),
    // Before Linux 5.17.
    ("Cookies", "dat", &COOKIES, &["data"]),
    ("Cookies", "idx", &COOKIES, &["index"]),
    ("Acquire", "noc", &ACQUIRED, &["no_cache"]),
    ("Retrvls", "n", &REQUESTS, &["read"]),
    ("Retrvls", "nod", &MISSES, &[]),
    ("Stores", "n", &REQUESTS, &["write"]),
    ("CacheEv", "nsp", &NO_SPACE, &["create"]),
    ("CacheEv", "cul", &NO_SPACE, &["cull"]),
];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    let file = |name: &str| KernelFile::new(paths.procfs.join("fs").join(name).join("stats"));
    Box::new(Fscache {
        files: ["fscache", "netfs"].map(file),
    })
}

impl Collector for Fscache {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        KNOWN.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        const NONE: &str = "no cache of network file systems";
        // A place for each known series, so that none can come twice.
        let mut found = [None; KNOWN.len()];
        let mut is_there = false;
        for file in &mut self.files {
            match file.read().or_absent(NONE) {
                Ok(text) => {
                    is_there = true;
                    parse(text, &mut found);
                }
                // Kernels have one of the files, or both.
                Err(CollectError::Absent(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if !is_there {
            return Err(CollectError::Absent(NONE));
        }

        for ((_, _, metric, label), value) in KNOWN.iter().zip(found) {
            if let Some(value) = value {
                out.push(metric, label, value);
            }
        }
        Ok(())
    }
}

/// Puts what is known in its place in `found`. The newer of the two files repeats what is in the
/// older; one counts.
fn parse(text: &str, found: &mut [Option<f64>; KNOWN.len()]) {
    for line in text.lines() {
        let Some((section, pairs)) = line.split_once(':') else {
            continue;
        };

        // One section became five; the keys kept their meaning.
        let section = match section.trim_ascii() {
            section if NETFS_SECTIONS.contains(&section) => NETFS,
            section => section,
        };
        let pairs = pairs.split_ascii_whitespace();
        for (key, value) in pairs.filter_map(|pair| pair.split_once('=')) {
            let place = KNOWN
                .iter()
                .position(|(known, known_key, ..)| (*known, *known_key) == (section, key));
            if let (Some(place), Ok(value)) = (place, value.parse::<u64>()) {
                found[place].get_or_insert(value as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<(&'static str, f64)> {
        let mut found = [None; KNOWN.len()];
        parse(text, &mut found);
        KNOWN
            .iter()
            .zip(found)
            .filter_map(|((.., metric, label), value)| Some((metric, label, value?)))
            .map(|(metric, label, value)| (label.first().copied().unwrap_or(metric.name), value))
            .collect()
    }

    /// As `fs/fscache/stats.c` of Linux 6.1 prints it.
    const NEWER: &str = "FS-Cache statistics\nCookies: n=12 v=1 vcol=0 voom=0\nAcquire: n=12 ok=11 \
         oom=1\n\
        LRU    : n=0 exp=0 rmv=0 drp=0 at=0\nInvals : n=3\nUpdates: n=0 rsz=0 rsn=0\nRelinqs: n=0 \
        rtr=0 drop=0\n\
        NoSpace: nwr=4 ncr=5 cull=6\nIO     : rd=700 wr=80 mis=9\n";

    /// Some lines of Linux 5.10's.
    const OLDER: &str = "FS-Cache statistics\nCookies: idx=3 dat=20 spc=0\nAcquire: n=23 nul=0 \
         noc=2 ok=21 nbf=0 oom=0\n\
        Invals : n=1 run=1\nRetrvls: n=50 ok=40 wt=0 nod=10 nbf=0 int=0 oom=0\nRetrvls: ops=50 \
        owt=0 abt=0\n\
        Stores : n=10 ok=10 agn=0 nbf=0 oom=0\nCacheEv: nsp=1 stl=0 rtr=0 cul=2\n";

    #[test]
    fn statistics_of_both_times() {
        let newer = [
            ("data", 12.0),
            ("volume", 1.0),
            ("ok", 11.0),
            ("no_memory", 1.0),
            ("takt_fscache_invalidations_total", 3.0),
            ("write", 4.0),
            ("create", 5.0),
            ("cull", 6.0),
            ("read", 700.0),
            ("write", 80.0),
            ("takt_fscache_misses_total", 9.0),
        ];
        assert_eq!(read(NEWER), newer);
        let older = [
            ("ok", 21.0),
            ("no_memory", 0.0),
            ("takt_fscache_invalidations_total", 1.0),
            ("data", 20.0),
            ("index", 3.0),
            ("no_cache", 2.0),
            ("read", 50.0),
            ("takt_fscache_misses_total", 10.0),
            ("write", 10.0),
            ("create", 1.0),
            ("cull", 2.0),
        ];
        assert_eq!(read(OLDER), older);
    }

    #[test]
    fn the_stand_in_records_the_source_of_reads() {
        let expected = [
            ("cache", 5.0),
            ("server", 7.0),
            ("zero", 1.0),
            ("cache_read", 2.0),
            ("download", 3.0),
        ];
        // Linux 6.6, then newer.
        assert_eq!(
            read(
                "Netfs  : ZR=1 sh=0 sk=0\nNetfs  : DL=7 ds=4 df=3 di=0\nNetfs  : RD=5 rs=3 rf=2\n"
            ),
            expected
        );
        assert_eq!(
            read(
                "ZeroOps: ZR=1 sh=0 sk=0\nDownOps: DL=7 ds=4 df=3 di=0\nCaRdOps: RD=5 rs=3 rf=2\n"
            ),
            expected
        );
    }

    #[test]
    fn a_series_of_both_files_is_exported_once() {
        let mut found = [None; KNOWN.len()];
        parse(NEWER, &mut found);
        parse(&NEWER.replace("rd=700", "rd=701"), &mut found);
        assert!(found.contains(&Some(700.0)) && !found.contains(&Some(701.0)));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(Cookies|IO|:| |=|n|rd|[0-9]{0,22}|\n|\\PC){0,60}") {
            let _ = read(&text);
        }
    }
}
