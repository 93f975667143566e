//! Metrics on the pages of the simulated exporters. Names, types and labels are the real exporter's
//! (tested).

use takt_model::Metric;

macro_rules! metrics {
    ($($kind:ident $constant:ident $name:literal $labels:expr, $help:literal;)*) => {
        $(pub(crate) static $constant: Metric = Metric::$kind($name, $help, $labels);)*
        /// All metrics of the simulated exporters.
        #[cfg(test)]
        static ALL: &[&Metric] = &[$(&$constant),*];
    };
}

const FILESYSTEM: &[&str] = &["device", "mountpoint", "fstype"];
const MOUNT: &[&str] = &["export", "protocol", "mountaddr"];
const OPERATION: &[&str] = &["export", "protocol", "mountaddr", "operation"];

#[rustfmt::skip]
metrics! {
    counter CPU "node_cpu_seconds_total" &["cpu", "mode"], "Seconds the CPUs spent in each mode.";
    gauge LOAD1 "node_load1" &[], "1m load average.";
    gauge LOAD5 "node_load5" &[], "5m load average.";
    gauge LOAD15 "node_load15" &[], "15m load average.";
    gauge MEM_TOTAL "node_memory_MemTotal_bytes" &[], "Memory information field MemTotal_bytes.";
    gauge MEM_FREE "node_memory_MemFree_bytes" &[], "Memory information field MemFree_bytes.";
    gauge MEM_AVAILABLE "node_memory_MemAvailable_bytes" &[],
        "Memory information field MemAvailable_bytes.";
    gauge MEM_CACHED "node_memory_Cached_bytes" &[], "Memory information field Cached_bytes.";
    gauge BOOT_TIME "node_boot_time_seconds" &[], "Node boot time, in unixtime.";
    gauge TIME "node_time_seconds" &[], "System time in seconds since epoch (1970).";
    gauge TIMEX_OFFSET "node_timex_offset_seconds" &[],
        "Time offset in between local system and reference clock.";
    gauge TIMEX_SYNC "node_timex_sync_status" &[],
        "Is clock synchronized to a reliable server (1 = yes, 0 = no).";
    gauge UNAME "node_uname_info"
        &["sysname", "release", "version", "machine", "nodename", "domainname"],
        "Labeled system information as provided by the uname system call.";
    gauge FS_SIZE "node_filesystem_size_bytes" FILESYSTEM, "Filesystem size in bytes.";
    gauge FS_FREE "node_filesystem_free_bytes" FILESYSTEM, "Filesystem free space in bytes.";
    gauge FS_AVAIL "node_filesystem_avail_bytes" FILESYSTEM,
        "Filesystem space available to non-root users in bytes.";
    gauge FS_READONLY "node_filesystem_readonly" FILESYSTEM, "Filesystem read-only status.";
    gauge FS_FILES "node_filesystem_files" FILESYSTEM, "Filesystem total file nodes.";
    gauge FS_FILES_FREE "node_filesystem_files_free" FILESYSTEM,
        "Filesystem total free file nodes.";
    counter DISK_READ "node_disk_read_bytes_total" &["device"],
        "The total number of bytes read successfully.";
    counter DISK_WRITTEN "node_disk_written_bytes_total" &["device"],
        "The total number of bytes written successfully.";
    counter DISK_BUSY "node_disk_io_time_seconds_total" &["device"],
        "Total seconds spent doing I/Os.";
    counter NET_RECEIVED "node_network_receive_bytes_total" &["device"],
        "Network device statistic receive_bytes.";
    counter NET_SENT "node_network_transmit_bytes_total" &["device"],
        "Network device statistic transmit_bytes.";
    gauge NET_UP "node_network_up" &["device"], "Value is 1 if operstate is 'up', 0 otherwise.";
    gauge NET_SPEED "node_network_speed_bytes" &["device"], "Network device property: speed_bytes";
    gauge LINK_SPEED "takt_link_negotiated_bits_per_second" &["device"],
        "Speed that the link and its partner agreed on. Links that are down have none.";
    gauge LINK_CAPABILITY "takt_link_capability_bits_per_second" &["device"],
        "Highest speed that the adapter supports.";
    gauge LINK_PARTNER "takt_link_partner_bits_per_second" &["device"],
        "Highest speed that the partner, mostly a switch, offers. No series if the partner does \
         not say.";
    gauge LINK_WIRELESS "takt_link_wireless" &["device"], "Whether the link is wireless.";
    gauge LINK_TRAFFIC "takt_link_traffic" &["device", "traffic"], "Link of the cluster's traffic.";
    counter NFS_READ "node_mountstats_nfs_total_read_bytes_total" MOUNT,
        "Number of bytes read from the NFS server, in total.";
    counter NFS_WRITTEN "node_mountstats_nfs_total_write_bytes_total" MOUNT,
        "Number of bytes written to the NFS server, in total.";
    counter NFS_REQUESTS "node_mountstats_nfs_operations_requests_total" OPERATION,
        "Number of requests performed for a given operation.";
    counter NFS_SENT "node_mountstats_nfs_operations_transmissions_total" OPERATION,
        "Number of times an actual RPC request has been transmitted for a given operation.";
    counter NFS_RESPONSE "node_mountstats_nfs_operations_response_time_seconds_total" OPERATION,
        "Duration all requests took to get a reply back after a request for a given operation \
         was transmitted, in seconds.";
    gauge NFS_HUNG "takt_nfs_mount_hung_seconds" &["mountpoint", "server"],
        "Time that the server has answered nothing although requests were sent; 0 while it \
         answers, however slowly, or nothing is sent.";
    gauge NFS_RESPONDING "takt_nfs_server_responding" &["server"],
        "Whether the NFS server responded at the kernel's last message about it. Servers that \
         never failed have no series.";
    gauge GPU_UP "takt_gpu_up" &["uuid", "reason"], "Whether the GPU answers.";
    gauge GPU_INFO "takt_gpu_info"
        &["uuid", "index", "minor", "pci_bus_id", "model", "driver", "serial"],
        "Identity of the GPU; always 1.";
    gauge GPU_UTILIZATION "takt_gpu_utilization_ratio" &["uuid"],
        "Share of the last sampling period in which a kernel ran, however little of the GPU it \
         filled.";
    gauge GPU_MEMORY_UTILIZATION "takt_gpu_memory_utilization_ratio" &["uuid"],
        "Share of the last sampling period in which the memory was read or written.";
    gauge GPU_MEMORY_USED "takt_gpu_memory_used_bytes" &["uuid"],
        "Memory allocated by processes, without the reserved.";
    gauge GPU_MEMORY_TOTAL "takt_gpu_memory_total_bytes" &["uuid"], "Memory of the GPU.";
    gauge GPU_POWER "takt_gpu_power_watts" &["uuid"],
        "Power draw of the whole board; on newer GPUs averaged over a second.";
    gauge GPU_POWER_LIMIT "takt_gpu_power_limit_watts" &["uuid"],
        "Power limit in force, the lowest of all that apply.";
    counter GPU_ENERGY "takt_gpu_energy_joules_total" &["uuid"],
        "Energy that the board has drawn since the driver was loaded.";
    gauge GPU_TEMPERATURE "takt_gpu_temperature_celsius" &["uuid", "sensor"],
        "Temperature of the GPU or its memory.";
    gauge GPU_CLOCK "takt_gpu_clock_hertz" &["uuid", "domain"],
        "Clock of one part of the GPU at this moment.";
    gauge GPU_THROTTLE "takt_gpu_throttle" &["uuid", "reason"],
        "Whether the clocks are held down for the reason now.";
    gauge GPU_PROCESSES "takt_gpu_processes" &["uuid"],
        "Processes that use the GPU, desktop included.";
    counter GPU_ECC "takt_gpu_ecc_errors_total" &["uuid", "type", "scope"],
        "Errors in the GPU's memories.";
    gauge GPU_ECC_ENABLED "takt_gpu_ecc_enabled" &["uuid"],
        "Whether ECC is enabled. No series if the GPU has no ECC.";
    gauge GPU_REMAP_PENDING "takt_gpu_row_remap_pending" &["uuid"],
        "Whether rows will be replaced at the next reset.";
    gauge GPU_REMAP_FAILED "takt_gpu_row_remap_failed" &["uuid"],
        "Whether replacing a row failed; the GPU should be replaced.";
    counter GPU_XIDS "takt_gpu_xid_errors_total" &["uuid", "xid"],
        "XIDs of the GPU since the exporter started, each counted once.";
    gauge GPU_JOB "takt_gpu_job_info" &["uuid", "jobid", "user"],
        "A job that was given the GPU, or a part of it (MIG), used or not; always 1.";
    gauge GPU_JOB_MEMORY "takt_gpu_job_memory_used_bytes" &["uuid", "jobid"],
        "Memory of the GPU that the job's processes have allocated.";
    gauge GPU_WITHOUT_JOB "takt_gpu_process_without_job" &["uuid", "user"],
        "Processes on the GPU that belong to no job, or to a job that was not given the GPU.";
    gauge GPU_PROCESS_MEMORY "takt_gpu_process_memory_used_bytes" &["uuid", "user", "command"],
        "Memory of the GPU allocated by processes without a job, by user and command.";
    gauge JOB "takt_job_info" &["jobid", "user", "scheduler", "sluid"],
        "A job on this node; always 1.";
    counter JOB_CPU "takt_job_cpu_seconds_total" &["jobid"],
        "CPU time that the job has used on this node.";
    gauge JOB_CPUS "takt_job_cpus" &["jobid"], "CPUs that the job may run on.";
    gauge JOB_MEMORY "takt_job_memory_current_bytes" &["jobid"],
        "Memory charged to the job, cached files included.";
    gauge JOB_MEMORY_PEAK "takt_job_memory_peak_bytes" &["jobid"],
        "Highest amount of memory ever charged to the job.";
    gauge JOB_MEMORY_LIMIT "takt_job_memory_limit_bytes" &["jobid"], "Memory limit of the job.";
    gauge JOB_PROCESSES "takt_job_processes" &["jobid"],
        "Processes of the job, without slurmstepd if that has a cgroup of its own.";
    counter JOB_OOM "takt_job_oom_kills_total" &["jobid"],
        "Processes of the job that the kernel killed for lack of memory, since the exporter \
         first saw the job.";
    counter EVENTS "takt_events_total" &["kind"],
        "Events of the kernel log and of NVML since the exporter started.";
    gauge LOG_FOLLOWED "takt_kernel_log_followed" &[], "Whether the kernel log is being followed.";
    gauge COLLECTOR_SUCCESS "node_scrape_collector_success" &["collector"],
        "Whether a collector succeeded.";
    gauge BUILD "takt_exporter_build_info" &["version"], "Which takt-exporter this is.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use takt_exporter::{COLLECTORS, Options};

    /// Metrics that the exporter itself adds to its page.
    const OF_THE_EXPORTER: [&str; 2] =
        ["node_scrape_collector_success", "takt_exporter_build_info"];

    #[test]
    fn every_metric_is_one_of_the_exporter() {
        let options = Options::default();
        let collectors: Vec<_> = COLLECTORS
            .iter()
            .map(|entry| (entry.new)(&options))
            .collect();
        let declared: BTreeMap<&str, &Metric> = collectors
            .iter()
            .flat_map(|collector| collector.metrics())
            .map(|metric| (metric.name, metric))
            .collect();
        let families: Vec<&str> = collectors
            .iter()
            .flat_map(|collector| collector.families())
            .map(|family| family.prefix)
            .collect();
        for metric in ALL {
            let name = metric.name;
            match declared.get(name) {
                Some(known) => {
                    let (kind, labels) = (known.kind, known.labels);
                    assert_eq!((metric.kind, metric.labels), (kind, labels), "{name}");
                }
                None => assert!(
                    families.iter().any(|prefix| name.starts_with(prefix))
                        || OF_THE_EXPORTER.contains(&name),
                    "{name}"
                ),
            }
        }
    }
}
