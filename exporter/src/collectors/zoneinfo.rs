//! Memory by zone: what the allocator keeps free, and what the pages are used for.
//!
//! Source: `/proc/zoneinfo`. Its fields count pages.

use crate::collector::{CollectError, Collector};
use crate::file::KernelFile;
use crate::paths::Paths;
use crate::table::{Row, metrics_of};
use takt_model::{Family, Kind, Metric, Samples};

struct Zoneinfo {
    zoneinfo: KernelFile,
}

const ZONE: &[&str] = &["node", "zone"];
#[rustfmt::skip]
const FIELDS: &[Row] = &[
    Row::gauge("nr_free_pages", "node_zoneinfo_nr_free_pages",
        "Total number of free pages in the zone", ZONE),
    Row::gauge("min", "node_zoneinfo_min_pages", "Zone watermark pages_min", ZONE),
    Row::gauge("low", "node_zoneinfo_low_pages", "Zone watermark pages_low", ZONE),
    Row::gauge("high", "node_zoneinfo_high_pages", "Zone watermark pages_high", ZONE),
    Row::gauge("scanned", "node_zoneinfo_scanned_pages", "Pages scanned since last reclaim", ZONE),
    Row::gauge("spanned", "node_zoneinfo_spanned_pages",
        "Total pages spanned by the zone, including holes", ZONE),
    Row::gauge("present", "node_zoneinfo_present_pages",
        "Physical pages existing within the zone", ZONE),
    Row::gauge("managed", "node_zoneinfo_managed_pages",
        "Present pages managed by the buddy system", ZONE),
    Row::gauge("nr_active_anon", "node_zoneinfo_nr_active_anon_pages",
        "Number of anonymous pages recently more used", ZONE),
    Row::gauge("nr_inactive_anon", "node_zoneinfo_nr_inactive_anon_pages",
        "Number of anonymous pages recently less used", ZONE),
    Row::gauge("nr_isolated_anon", "node_zoneinfo_nr_isolated_anon_pages",
        "Temporary isolated pages from anon lru", ZONE),
    Row::gauge("nr_anon_pages", "node_zoneinfo_nr_anon_pages",
        "Number of anonymous pages currently used by the system", ZONE),
    Row::gauge("nr_anon_transparent_hugepages", "node_zoneinfo_nr_anon_transparent_hugepages",
        "Number of anonymous transparent huge pages currently used by the system", ZONE),
    Row::gauge("nr_active_file", "node_zoneinfo_nr_active_file_pages",
        "Number of active pages with file-backing", ZONE),
    Row::gauge("nr_inactive_file", "node_zoneinfo_nr_inactive_file_pages",
        "Number of inactive pages with file-backing", ZONE),
    Row::gauge("nr_isolated_file", "node_zoneinfo_nr_isolated_file_pages",
        "Temporary isolated pages from file lru", ZONE),
    Row::gauge("nr_file_pages", "node_zoneinfo_nr_file_pages", "Number of file pages", ZONE),
    Row::gauge("nr_slab_reclaimable", "node_zoneinfo_nr_slab_reclaimable_pages",
        "Number of reclaimable slab pages", ZONE),
    Row::gauge("nr_slab_unreclaimable", "node_zoneinfo_nr_slab_unreclaimable_pages",
        "Number of unreclaimable slab pages", ZONE),
    Row::gauge("nr_mlock_stack", "node_zoneinfo_nr_mlock_stack_pages",
        "mlock()ed pages found and moved off LRU", ZONE),
    Row::gauge("nr_kernel_stack", "node_zoneinfo_nr_kernel_stacks",
        "Number of kernel stacks", ZONE),
    Row::gauge("nr_mapped", "node_zoneinfo_nr_mapped_pages", "Number of mapped pages", ZONE),
    Row::gauge("nr_dirty", "node_zoneinfo_nr_dirty_pages", "Number of dirty pages", ZONE),
    Row::gauge("nr_writeback", "node_zoneinfo_nr_writeback_pages",
        "Number of writeback pages", ZONE),
    Row::gauge("nr_unevictable", "node_zoneinfo_nr_unevictable_pages",
        "Number of unevictable pages", ZONE),
    Row::gauge("nr_shmem", "node_zoneinfo_nr_shmem_pages",
        "Number of shmem pages (included tmpfs/GEM pages)", ZONE),
    Row::counter("nr_dirtied", "node_zoneinfo_nr_dirtied_total",
        "Page dirtyings since bootup", ZONE),
    Row::counter("nr_written", "node_zoneinfo_nr_written_total",
        "Page writings since bootup", ZONE),
    Row::counter("numa_hit", "node_zoneinfo_numa_hit_total", "Allocated in intended node", ZONE),
    Row::counter("numa_miss", "node_zoneinfo_numa_miss_total",
        "Allocated in non intended node", ZONE),
    Row::counter("numa_foreign", "node_zoneinfo_numa_foreign_total",
        "Was intended here, hit elsewhere", ZONE),
    Row::counter("numa_interleave", "node_zoneinfo_numa_interleave_total",
        "Interleaver preferred this zone", ZONE),
    Row::counter("numa_local", "node_zoneinfo_numa_local_total",
        "Allocation from local node", ZONE),
    Row::counter("numa_other", "node_zoneinfo_numa_other_total",
        "Allocation from other node", ZONE),
];
const METRICS: &[Metric] = metrics_of!([], FIELDS);
const PROTECTION: Family = Family {
    prefix: "node_zoneinfo_protection_",
    help: "Protection array {}. field",
    kind: Kind::Gauge,
    labels: ZONE,
};

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Zoneinfo {
        zoneinfo: KernelFile::new(paths.procfs.join("zoneinfo")),
    })
}

impl Collector for Zoneinfo {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn families(&self) -> &'static [Family] {
        &[PROTECTION]
    }

    fn max_series(&self) -> usize {
        64 * 5 * (METRICS.len() + 8)
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.zoneinfo.parse(|text| {
            for block in text.split("Node ").skip(1) {
                if let Some((zone, rest)) = block.split_once('\n')
                    && let Some((node, zone)) = zone.split_once(", zone")
                {
                    push(&[node.trim_ascii(), zone.trim_ascii()], rest, out);
                }
            }
            Ok(())
        })
    }
}

fn push(labels: &[&str; 2], text: &str, out: &mut Samples) {
    // A field that comes twice, as that of a single CPU's lists does, counts as it comes last.
    let mut found = [None; FIELDS.len()];
    for line in text.lines().map(str::trim_ascii) {
        if let Some(list) = line.strip_prefix("protection:") {
            let list = list.trim_ascii().trim_start_matches('(');
            let list = list.trim_end_matches(')');
            for (at, pages) in list.split(',').enumerate() {
                if let Ok(pages) = pages.trim_ascii().parse::<i64>() {
                    out.push_field(&PROTECTION, &at.to_string(), labels, pages as f64);
                }
            }
            continue;
        }

        // The watermarks once stood behind the word `pages`, as `pages free` still does.
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(value)) = (words.next(), words.next()) else {
            continue;
        };

        if let Some(at) = FIELDS.iter().position(|row| row.source == name)
            && let Ok(value) = value.parse::<i64>()
        {
            found[at] = Some(value as f64);
        }
    }

    for (row, value) in FIELDS.iter().zip(found) {
        if let Some(value) = value {
            row.push(labels, value, out);
        }
    }
}
