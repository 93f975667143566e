use super::*;
use crate::facts::Facts;
use crate::job_gpus::GpuOrder;
use proptest::prelude::*;

const NOW: f64 = 1_000_000.0;

/// A page of a node with two GPUs and a root file system, all well.
const WELL: &str = r#"
takt_exporter_collector_absent{collector="nvml"} 0
node_scrape_collector_success{collector="nvml"} 1
node_scrape_collector_success{collector="filesystem"} 1
takt_exporter_collector_absent{collector="infiniband"} 1
node_scrape_collector_success{collector="infiniband"} 0
takt_exporter_collector_read_timestamp_seconds{collector="nvml"} 999990
takt_gpu_up{uuid="GPU-a",reason=""} 1
takt_gpu_up{uuid="GPU-b",reason=""} 1
takt_gpu_info{uuid="GPU-a",index="0",minor="1",pci_bus_id="0000:01:00.0"} 1
takt_gpu_info{uuid="GPU-b",index="1",minor="0",pci_bus_id="0000:02:00.0"} 1
takt_gpu_recovery_action{uuid="GPU-a"} 0
takt_gpu_row_remap_pending{uuid="GPU-a"} 0
takt_gpu_pcie_degraded{uuid="GPU-a"} 0
takt_gpu_nvlink_up{uuid="GPU-a",link="0"} 1
takt_gpu_nvlink_up{uuid="GPU-b",link="0"} 1
takt_gpu_nvlink_up{uuid="GPU-b",link="1"} 0
takt_gpu_xid_last_seen_timestamp_seconds{uuid="GPU-a",xid="79"} 100000
takt_gpu_xid_last_seen_timestamp_seconds{uuid="GPU-a",xid="13"} 999999
node_filesystem_size_bytes{device="/dev/sda1",mountpoint="/",fstype="ext4"} 1e11
node_filesystem_avail_bytes{device="/dev/sda1",mountpoint="/",fstype="ext4"} 5e10
node_filesystem_readonly{device="/dev/sda1",mountpoint="/",fstype="ext4"} 0
node_filesystem_device_error{device="/dev/sda1",mountpoint="/",fstype="ext4"} 0
takt_nfs_mount_hung_seconds{mountpoint="/home",server="nfs"} 3
takt_link_negotiated_bits_per_second{device="eth0"} 1e10
node_infiniband_rate_bytes_per_second{device="mlx5_0",port="1"} 5e10
node_infiniband_state_id{device="mlx5_0",port="1"} 4
node_timex_sync_status 1
node_timex_offset_seconds -0.001
"#;

/// The texts of the findings, those that fail with `!` in front.
fn found(page: &str, checks: &str, job_gpus: &JobGpus) -> Vec<String> {
    let facts = Facts::parse(page).unwrap();
    let checks = Checks::parse(checks).unwrap();
    let shown = |finding: Finding| {
        let mark = if finding.action == Action::Fail {
            "!"
        } else {
            ""
        };
        format!("{mark}{} {}", finding.check, finding.text)
    };
    let findings = judge(&facts, &checks, job_gpus, NOW);
    findings.into_iter().map(shown).collect()
}

fn with(line: &str) -> Vec<String> {
    // A later line of a series does not replace the first.
    let series = line.rsplit_once(' ').unwrap().0;
    let rest = WELL.lines().filter(|old| !old.starts_with(series));
    let page: String = rest.chain([line]).map(|line| format!("{line}\n")).collect();
    found(&page, "", &JobGpus::All)
}

#[test]
fn a_node_that_is_well_passes_all_checks() {
    let checks = "[gpus]\ncount = 2\nnvlinks = 1\n\
        [[mounts]]\npath = \"/\"\nmin_free_bytes = 1000\nmin_free_ratio = 0.1\n\
        [[links]]\ndevice = \"eth0\"\nmin_bits_per_second = 1e10\n\
        [[links]]\ndevice = \"mlx5_0/1\"\nmin_bits_per_second = 4e11\n";
    // The collector of links does not run in this page, and the file asks for it.
    let page = format!("{WELL}node_scrape_collector_success{{collector=\"links\"}} 1\n");
    assert_eq!(found(&page, checks, &JobGpus::All), [""; 0]);
    assert_eq!(found(WELL, "", &JobGpus::All), [""; 0]);
}

#[test]
fn each_fault_is_found() {
    for (line, said) in [
        (
            "node_scrape_collector_success{collector=\"nvml\"} 0",
            "!readings the exporter's collector nvml fails",
        ),
        (
            "takt_exporter_collector_read_timestamp_seconds{collector=\"nvml\"} 999000",
            "!readings the exporter's reading of nvml is 1000 s old, more than 60 s",
        ),
        (
            "node_scrape_collector_success{collector=\"mountstats\"} 0",
            "readings the exporter's collector mountstats fails",
        ),
        (
            "takt_gpu_recovery_action{uuid=\"GPU-a\"} 2",
            "!gpu_recovery GPU 0 (GPU-a): the driver asks for a reboot of the node",
        ),
        (
            "takt_gpu_row_remap_pending{uuid=\"GPU-a\"} 1",
            "!gpu_memory GPU 0 (GPU-a): rows of the memory wait for a reset to be replaced",
        ),
        (
            "takt_gpu_sram_threshold_exceeded{uuid=\"GPU-b\"} 1",
            "!gpu_memory GPU 1 (GPU-b): the SRAM has too many uncorrectable errors",
        ),
        (
            "takt_gpu_xid_last_seen_timestamp_seconds{uuid=\"GPU-b\",xid=\"79\"} 999400",
            "!gpu_xid GPU 1 (GPU-b): XID 79, 600 s ago",
        ),
        (
            "takt_gpu_fabric_ready{uuid=\"GPU-b\"} 0",
            "!gpu_fabric GPU 1 (GPU-b): is not in the fabric of its NVSwitches; CUDA does not start",
        ),
        (
            "takt_gpu_pcie_degraded{uuid=\"GPU-a\"} 1",
            "gpu_pcie GPU 0 (GPU-a): its PCIe link is slower than GPU and slot can be",
        ),
        (
            "takt_gpu_process_without_job{uuid=\"GPU-a\",user=\"ada\"} 2",
            "gpu_processes GPU 0 (GPU-a): 2 processes of user \"ada\" without a job",
        ),
        (
            "node_filesystem_avail_bytes{device=\"/dev/sda1\",mountpoint=\"/\",fstype=\"ext4\"} 5",
            "!mounts /: 5 bytes are free, expected 1073741824 or more",
        ),
        (
            "node_filesystem_readonly{device=\"/dev/sda1\",mountpoint=\"/\",fstype=\"ext4\"} 1",
            "!mounts /: is read-only",
        ),
        (
            "node_filesystem_device_error{device=\"/dev/sda1\",mountpoint=\"/\",fstype=\"ext4\"} 1",
            "!mounts /: does not answer",
        ),
        (
            "takt_nfs_mount_hung_seconds{mountpoint=\"/home\",server=\"nfs\"} 31",
            "!nfs /home: its server nfs has not answered for 31 s",
        ),
        (
            "takt_link_below_capability{device=\"eth0\",cause=\"cable\"} 1",
            "link_speed eth0: slower than both ends could be; check the cable",
        ),
        ("node_timex_sync_status 0", "clock not synchronised"),
        (
            "node_timex_offset_seconds -2",
            "clock -2.000 s off, more than 0.5 s",
        ),
    ] {
        assert_eq!(with(line), [said], "{line}");
    }
}

#[test]
fn what_the_file_asks_for_must_be_there() {
    let checks = "[gpus]\ncount = 8\nnvlinks = 2\n[[mounts]]\npath = \"/scratch\"\n\
        [[links]]\ndevice = \"ib0\"\n[[links]]\ndevice = \"mlx5_0/1\"\nmin_bits_per_second = 8e11\n";
    assert_eq!(
        found(WELL, checks, &JobGpus::All),
        [
            "!readings the exporter's collector links does not run",
            "!gpu_count 2 GPUs answer, expected 8",
            "!gpu_nvlink GPU 0 (GPU-a): 1 NVLinks are active, expected 2",
            "!gpu_nvlink GPU 1 (GPU-b): 1 NVLinks are active, expected 2",
            "!mounts /scratch: not mounted",
            "!links ib0: down, or no such link",
            "!links mlx5_0/1: 400000000000 bit/s, expected 800000000000 or more",
        ]
    );

    let off = "mounts = []\n[checks]\nclock = \"fail\"\nreadings = \"off\"\n";
    assert_eq!(
        found("node_timex_sync_status 0\n", off, &JobGpus::All),
        ["!clock not synchronised"]
    );
}

#[test]
fn a_fault_of_another_jobs_gpu_is_a_warning() {
    let page = format!("{WELL}takt_gpu_fabric_ready{{uuid=\"GPU-b\"}} 0\n");
    let facts = Facts::parse(&page).unwrap();
    let fails = |list: &str, order| {
        let job_gpus = JobGpus::find(list, order, &facts).unwrap();
        found(&page, "", &job_gpus)[0].starts_with('!')
    };
    assert!(
        // GPU-b is the second on the bus and has minor number 0.
        !fails("0", GpuOrder::Pci) && !fails("1", GpuOrder::Minor) && !fails("", GpuOrder::Pci)
    );
    assert!(
        fails("1", GpuOrder::Pci) && fails("0-1", GpuOrder::Pci) && fails("GPU-b", GpuOrder::Pci)
    );
    for wrong in ["2", "0-2", "GPU-c", "0-4000000000", "3-1"] {
        assert!(
            JobGpus::find(wrong, GpuOrder::Pci, &facts).is_err(),
            "{wrong}"
        );
    }
}

/// NVML counts the GPUs anew when one is gone: number 0 may be another GPU than slurmd's.
#[test]
fn while_a_gpu_is_missing_no_number_is_certain() {
    let page = format!("{WELL}takt_gpu_up{{uuid=\"GPU-c\",reason=\"not_enumerated\"}} 0\n");
    let facts = Facts::parse(&page).unwrap();
    let job_gpus = JobGpus::find("0", GpuOrder::Pci, &facts).unwrap();
    assert_eq!(job_gpus, JobGpus::All);
    assert_eq!(
        found(&page, "", &job_gpus),
        ["!gpu_up GPU GPU-c: does not answer: not_enumerated"]
    );
}

/// A user may mount what hangs or is full, under any name but those of the file.
#[test]
fn file_systems_of_users_do_not_count() {
    let page = format!(
        "{WELL}node_filesystem_device_error{{device=\"fuse\",mountpoint=\"/home/eve/x\",fstype=\"fuse\"}} 1\n\
         node_filesystem_avail_bytes{{device=\"fuse\",mountpoint=\"/home/eve/x\",fstype=\"fuse\"}} 0\n"
    );
    assert_eq!(found(&page, "", &JobGpus::All), [""; 0]);
}

#[test]
fn many_findings_are_counted_and_hide_no_fault_of_the_job() {
    let mut page = WELL.to_owned();
    for number in 0..100 {
        page.push_str(&format!(
            "takt_gpu_fabric_ready{{uuid=\"GPU-x{number}\"}} 0\n"
        ));
    }
    // The only fault of the job comes last.
    page.push_str("takt_gpu_fabric_ready{uuid=\"GPU-b\"} 0\n");
    let only = JobGpus::Only(["GPU-b".to_owned()].into());
    let found = found(&page, "", &only);
    assert_eq!(found.len(), MOST + 1);
    assert!(found[0].starts_with("!gpu_fabric GPU 1"), "{found:?}");
    assert_eq!(found[MOST], "gpu_fabric 69 more of this kind");
}

proptest! {
    /// A text of a user is a label's value: it changes no other check's result.
    #[test]
    fn any_text_of_a_user_changes_only_its_own_line(user in "(?s).*") {
        // As the exporter escapes label values.
        let escaped = user.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let page = format!("{WELL}takt_gpu_process_without_job{{uuid=\"GPU-a\",user=\"{escaped}\"}} 1\n");
        let found = found(&page, "", &JobGpus::All);
        prop_assert_eq!(found.len(), 1);
        prop_assert!(found[0].starts_with("gpu_processes GPU 0 (GPU-a): 1 processes of user "));
    }

    /// Any page is judged or refused, and never breaks the program.
    #[test]
    fn any_text_is_a_page_or_an_error(text in "(?s).*") {
        if let Ok(facts) = Facts::parse(&text) {
            judge(&facts, &Checks::default(), &JobGpus::All, NOW);
        }
    }
}
