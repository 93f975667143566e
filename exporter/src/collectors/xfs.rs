//! XFS: what its file systems do inside, each for itself.
//!
//! Source: `/sys/fs/xfs/*/stats/stats`, lines of a subject and its counts. The kernel's counters
//! have 32 bits and turn.

use crate::collector::{CollectError, Collector, MAX_DEVICES};
use crate::paths::Paths;
use crate::sysfs;
use std::path::PathBuf;
use takt_model::{Metric, Samples};

struct Xfs {
    directory: PathBuf,
}

/// The subject of a line, the place of a count behind it, and the count's metric.
struct Count {
    subject: &'static str,
    place: usize,
}

macro_rules! counts {
    ($($subject:literal $place:literal $name:literal $help:literal,)*) => {
        const COUNTS: &[Count] = &[$(Count { subject: $subject, place: $place }),*];
        const METRICS: &[Metric] = &[$(Metric::counter(concat!("node_xfs_", $name, "_total"), $help, &["device"])),*];
    };
}

counts! {
    "extent_alloc" 0 "extent_allocation_extents_allocated"
        "Number of extents allocated for a filesystem.",
    "extent_alloc" 1 "extent_allocation_blocks_allocated"
        "Number of blocks allocated for a filesystem.",
    "extent_alloc" 2 "extent_allocation_extents_freed" "Number of extents freed for a filesystem.",
    "extent_alloc" 3 "extent_allocation_blocks_freed" "Number of blocks freed for a filesystem.",
    "abt" 0 "allocation_btree_lookups" "Number of allocation B-tree lookups for a filesystem.",
    "abt" 1 "allocation_btree_compares" "Number of allocation B-tree compares for a filesystem.",
    "abt" 2 "allocation_btree_records_inserted"
        "Number of allocation B-tree records inserted for a filesystem.",
    "abt" 3 "allocation_btree_records_deleted"
        "Number of allocation B-tree records deleted for a filesystem.",
    "blk_map" 0 "block_mapping_reads" "Number of block map for read operations for a filesystem.",
    "blk_map" 1 "block_mapping_writes" "Number of block map for write operations for a filesystem.",
    "blk_map" 2 "block_mapping_unmaps" "Number of block unmaps (deletes) for a filesystem.",
    "blk_map" 3 "block_mapping_extent_list_insertions"
        "Number of extent list insertions for a filesystem.",
    "blk_map" 4 "block_mapping_extent_list_deletions"
        "Number of extent list deletions for a filesystem.",
    "blk_map" 5 "block_mapping_extent_list_lookups"
        "Number of extent list lookups for a filesystem.",
    "blk_map" 6 "block_mapping_extent_list_compares"
        "Number of extent list compares for a filesystem.",
    "bmbt" 0 "block_map_btree_lookups" "Number of block map B-tree lookups for a filesystem.",
    "bmbt" 1 "block_map_btree_compares" "Number of block map B-tree compares for a filesystem.",
    "bmbt" 2 "block_map_btree_records_inserted"
        "Number of block map B-tree records inserted for a filesystem.",
    "bmbt" 3 "block_map_btree_records_deleted"
        "Number of block map B-tree records deleted for a filesystem.",
    "dir" 0 "directory_operation_lookup"
        "Number of file name directory lookups which miss the operating systems directory name \
         lookup cache.",
    "dir" 1 "directory_operation_create"
        "Number of times a new directory entry was created for a filesystem.",
    "dir" 2 "directory_operation_remove"
        "Number of times an existing directory entry was created for a filesystem.",
    "dir" 3 "directory_operation_getdents"
        "Number of times the directory getdents operation was performed for a filesystem.",
    "ig" 0 "inode_operation_attempts"
        "Number of times the OS looked for an XFS inode in the inode cache.",
    "ig" 1 "inode_operation_found"
        "Number of times the OS looked for and found an XFS inode in the inode cache.",
    "ig" 2 "inode_operation_recycled"
        "Number of times the OS found an XFS inode in the cache, but could not use it as it was \
         being recycled.",
    "ig" 3 "inode_operation_missed"
        "Number of times the OS looked for an XFS inode in the cache, but did not find it.",
    "ig" 4 "inode_operation_duplicates"
        "Number of times the OS tried to add a missing XFS inode to the inode cache, but found it \
         had already been added by another process.",
    "ig" 5 "inode_operation_reclaims"
        "Number of times the OS reclaimed an XFS inode from the inode cache to free memory for \
         another purpose.",
    "ig" 6 "inode_operation_attribute_changes"
        "Number of times the OS explicitly changed the attributes of an XFS inode.",
    "rw" 1 "read_calls" "Number of read(2) system calls made to files in a filesystem.",
    "rw" 0 "write_calls" "Number of write(2) system calls made to files in a filesystem.",
    "vnodes" 0 "vnode_active" "Number of vnodes not on free lists for a filesystem.",
    "vnodes" 1 "vnode_allocate" "Number of times vn_alloc called for a filesystem.",
    "vnodes" 2 "vnode_get" "Number of times vn_get called for a filesystem.",
    "vnodes" 3 "vnode_hold" "Number of times vn_hold called for a filesystem.",
    "vnodes" 4 "vnode_release" "Number of times vn_rele called for a filesystem.",
    "vnodes" 5 "vnode_reclaim" "Number of times vn_reclaim called for a filesystem.",
    "vnodes" 6 "vnode_remove" "Number of times vn_remove called for a filesystem.",
}

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Xfs {
        directory: paths.sysfs.join("fs/xfs"),
    })
}

impl Collector for Xfs {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        // Without one mounted, there is still the sum of all, `stats`.
        for device in sysfs::names(&self.directory, "").unwrap_or_default() {
            let file = self.directory.join(&device).join("stats/stats");
            let Some(text) = sysfs::text(&file) else {
                continue;
            };

            for (count, metric) in COUNTS.iter().zip(METRICS) {
                if let Some(value) = count.find(&text) {
                    out.push(metric, &[&device], value as f64);
                }
            }
        }
        Ok(())
    }
}

impl Count {
    fn find(&self, text: &str) -> Option<u32> {
        let mut words = text.lines().map(str::split_ascii_whitespace);
        let mut counts =
            words.find_map(|mut words| (words.next() == Some(self.subject)).then_some(words))?;
        counts.nth(self.place)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_found_by_its_line_and_place() {
        let text = "extent_alloc 1 2 3 4\nabt 0 0\nrw 28 21 x\n";
        let find = |subject, place| Count { subject, place }.find(text);
        assert_eq!(
            (find("extent_alloc", 3), find("rw", 1)),
            (Some(4), Some(21))
        );
        assert_eq!(
            (find("abt", 2), find("rw", 2), find("vnodes", 0)),
            (None, None, None)
        );
    }
}
