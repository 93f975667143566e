//! Metrics on the pages of the simulated exporters: the real exporter's declarations.

use std::sync::LazyLock;
use takt_exporter::{COLLECTORS, OWN_METRICS, Options};
use takt_model::{Family, Metric};

macro_rules! metrics {
    ($($constant:ident $name:literal $labels:expr;)*) => {
        $(pub(crate) static $constant: LazyLock<Metric> = LazyLock::new(|| declared($name));)*
        /// All metrics of the simulated exporters, with the labels in the order of their values.
        #[cfg(test)]
        static ALL: &[(&LazyLock<Metric>, &[&str])] = &[$((&$constant, $labels)),*];
    };
}

#[cfg(test)]
const FILESYSTEM: &[&str] = &["device", "mountpoint", "fstype"];
#[cfg(test)]
const MOUNT: &[&str] = &["export", "protocol", "mountaddr"];
#[cfg(test)]
const OPERATION: &[&str] = &["export", "protocol", "mountaddr", "operation"];

// Name, and labels in the order of the values that the pages push.
#[rustfmt::skip]
metrics! {
    CPU "node_cpu_seconds_total" &["cpu", "mode"];
    LOAD1 "node_load1" &[];
    LOAD5 "node_load5" &[];
    LOAD15 "node_load15" &[];
    MEM_TOTAL "node_memory_MemTotal_bytes" &[];
    MEM_FREE "node_memory_MemFree_bytes" &[];
    MEM_AVAILABLE "node_memory_MemAvailable_bytes" &[];
    MEM_CACHED "node_memory_Cached_bytes" &[];
    BOOT_TIME "node_boot_time_seconds" &[];
    TIME "node_time_seconds" &[];
    TIMEX_OFFSET "node_timex_offset_seconds" &[];
    TIMEX_SYNC "node_timex_sync_status" &[];
    UNAME "node_uname_info" &["sysname", "release", "version", "machine", "nodename", "domainname"];
    FS_SIZE "node_filesystem_size_bytes" FILESYSTEM;
    FS_FREE "node_filesystem_free_bytes" FILESYSTEM;
    FS_AVAIL "node_filesystem_avail_bytes" FILESYSTEM;
    FS_READONLY "node_filesystem_readonly" FILESYSTEM;
    FS_FILES "node_filesystem_files" FILESYSTEM;
    FS_FILES_FREE "node_filesystem_files_free" FILESYSTEM;
    DISK_READ "node_disk_read_bytes_total" &["device"];
    DISK_WRITTEN "node_disk_written_bytes_total" &["device"];
    DISK_BUSY "node_disk_io_time_seconds_total" &["device"];
    NET_RECEIVED "node_network_receive_bytes_total" &["device"];
    NET_SENT "node_network_transmit_bytes_total" &["device"];
    NET_UP "node_network_up" &["device"];
    NET_SPEED "node_network_speed_bytes" &["device"];
    LINK_SPEED "takt_link_negotiated_bits_per_second" &["device"];
    LINK_CAPABILITY "takt_link_capability_bits_per_second" &["device"];
    LINK_PARTNER "takt_link_partner_bits_per_second" &["device"];
    LINK_WIRELESS "takt_link_wireless" &["device"];
    LINK_TRAFFIC "takt_link_traffic" &["device", "traffic"];
    NFS_READ "node_mountstats_nfs_total_read_bytes_total" MOUNT;
    NFS_WRITTEN "node_mountstats_nfs_total_write_bytes_total" MOUNT;
    NFS_REQUESTS "node_mountstats_nfs_operations_requests_total" OPERATION;
    NFS_SENT "node_mountstats_nfs_operations_transmissions_total" OPERATION;
    NFS_RESPONSE "node_mountstats_nfs_operations_response_time_seconds_total" OPERATION;
    NFS_HUNG "takt_nfs_mount_hung_seconds" &["mountpoint", "server"];
    NFS_RESPONDING "takt_nfs_server_responding" &["server"];
    GPU_UP "takt_gpu_up" &["uuid", "reason"];
    GPU_INFO "takt_gpu_info" &["uuid", "index", "minor", "pci_bus_id", "model", "driver", "serial"];
    GPU_UTILIZATION "takt_gpu_utilization_ratio" &["uuid"];
    GPU_MEMORY_UTILIZATION "takt_gpu_memory_utilization_ratio" &["uuid"];
    GPU_MEMORY_USED "takt_gpu_memory_used_bytes" &["uuid"];
    GPU_MEMORY_TOTAL "takt_gpu_memory_total_bytes" &["uuid"];
    GPU_POWER "takt_gpu_power_watts" &["uuid"];
    GPU_POWER_LIMIT "takt_gpu_power_limit_watts" &["uuid"];
    GPU_ENERGY "takt_gpu_energy_joules_total" &["uuid"];
    GPU_TEMPERATURE "takt_gpu_temperature_celsius" &["uuid", "sensor"];
    GPU_CLOCK "takt_gpu_clock_hertz" &["uuid", "domain"];
    GPU_THROTTLE "takt_gpu_throttle" &["uuid", "reason"];
    GPU_PROCESSES "takt_gpu_processes" &["uuid"];
    GPU_ECC "takt_gpu_ecc_errors_total" &["uuid", "type", "scope"];
    GPU_ECC_ENABLED "takt_gpu_ecc_enabled" &["uuid"];
    GPU_REMAP_PENDING "takt_gpu_row_remap_pending" &["uuid"];
    GPU_REMAP_FAILED "takt_gpu_row_remap_failed" &["uuid"];
    GPU_XIDS "takt_gpu_xid_errors_total" &["uuid", "xid"];
    GPU_JOB "takt_gpu_job_info" &["uuid", "jobid", "user"];
    GPU_JOB_MEMORY "takt_gpu_job_memory_used_bytes" &["uuid", "jobid"];
    GPU_WITHOUT_JOB "takt_gpu_process_without_job" &["uuid", "user"];
    GPU_PROCESS_MEMORY "takt_gpu_process_memory_used_bytes" &["uuid", "user", "command"];
    JOB "takt_job_info" &["jobid", "user", "scheduler", "sluid"];
    JOB_CPU "takt_job_cpu_seconds_total" &["jobid"];
    JOB_CPUS "takt_job_cpus" &["jobid"];
    JOB_MEMORY "takt_job_memory_current_bytes" &["jobid"];
    JOB_MEMORY_PEAK "takt_job_memory_peak_bytes" &["jobid"];
    JOB_MEMORY_LIMIT "takt_job_memory_limit_bytes" &["jobid"];
    JOB_PROCESSES "takt_job_processes" &["jobid"];
    JOB_OOM "takt_job_oom_kills_total" &["jobid"];
    EVENTS "takt_events_total" &["kind"];
    LOG_FOLLOWED "takt_kernel_log_followed" &[];
    COLLECTOR_SUCCESS "node_scrape_collector_success" &["collector"];
    BUILD "takt_exporter_build_info" &["version"];
}

/// Returns the exporter's declaration of a metric.
fn declared(name: &'static str) -> Metric {
    // All collectors are made once, and not for each metric.
    static EXPORTER: LazyLock<Declarations> = LazyLock::new(Declarations::default);
    EXPORTER
        .metric(name)
        .unwrap_or_else(|| panic!("no collector declares {name}"))
}

/// Declarations of all collectors, and of the exporter itself.
struct Declarations {
    metrics: Vec<Metric>,
    families: Vec<Family>,
}

impl Default for Declarations {
    fn default() -> Self {
        let options = Options::default();
        let mut metrics = OWN_METRICS.to_vec();
        let mut families = Vec::new();
        for entry in COLLECTORS {
            let collector = (entry.new)(&options);
            metrics.extend_from_slice(collector.metrics());
            families.extend_from_slice(collector.families());
        }
        Self { metrics, families }
    }
}

impl Declarations {
    fn metric(&self, name: &'static str) -> Option<Metric> {
        self.metrics
            .iter()
            .find(|metric| metric.name == name)
            .copied()
            .or_else(|| self.field(name))
    }

    /// Returns a metric whose name the kernel chooses.
    fn field(&self, name: &'static str) -> Option<Metric> {
        // Families may share the beginning of their names: the longest prefix is the most exact one.
        let family = self
            .families
            .iter()
            .filter(|family| name.starts_with(family.prefix))
            .max_by_key(|family| family.prefix.len())?;
        let help = family.help_of(&name[family.prefix.len()..]).into_owned();
        Some(Metric {
            name,
            // A metric's help lives as long as the program. There are few of these.
            help: help.leak(),
            kind: family.kind,
            labels: family.labels,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pages push label values in the order of the table.
    #[test]
    fn every_metric_is_declared_with_these_labels() {
        for (metric, labels) in ALL {
            assert_eq!(metric.labels, *labels, "{}", metric.name);
        }
    }

    #[test]
    fn fields_of_the_kernel_have_their_familys_help() {
        assert_eq!(MEM_TOTAL.help, "Memory information field MemTotal_bytes.");
    }
}
