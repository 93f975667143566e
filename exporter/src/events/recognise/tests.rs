//! Each form of the kernel log that is an event, and what looks like it and is none.

use super::*;
use proptest::prelude::*;

/// The event of each line, as text.
pub(super) fn told(text: &str) -> Vec<String> {
    let mut recogniser = Recogniser::new(Path::new("/nonexistent"));
    let told = text.lines().filter_map(|line| recogniser.read(line, None));
    told.map(|told| format!("{} {}", told.kind.name(), told.labels))
        .collect()
}

#[test]
fn xids() {
    let text = "\
NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:03:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0)
NVRM: Xid (PCI:0000:C1:00): 31, pid=1496200, name=python, Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS
NVRM: Xid (PCI:0000:c1:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x0)
NVRM: Xid (PCI:0000:c1:00): 154, pid=7, name=a b, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)
NVRM: Xid (0000:03:00): 43
nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error";
    assert_eq!(
        told(text),
        [
            r#"xid {pci_bus_id="0000:06:00.0", xid="79"}"#,
            r#"xid {pci_bus_id="0000:03:00.0", xid="13"}"#,
            r#"xid {pci_bus_id="0000:c1:00.0", pid="1496200", process="python", xid="31"}"#,
            r#"xid {pci_bus_id="0000:c1:00.0", xid="149"}"#,
            r#"xid {pci_bus_id="0000:c1:00.0", pid="7", process="a b", recovery_action="Node Reboot Required", xid="154"}"#,
            r#"xid {pci_bus_id="0000:03:00.0", xid="43"}"#,
            r#"sxid {device="nvidia-nvswitch0", pci_bus_id="0000:c1:00.0", sxid="12028"}"#,
        ]
    );
}

/// Inputs that once gave a wrong event.
#[test]
fn logs_with_known_events() {
    let gpu = |rest: &str| format!(r#"xid {{{rest}}}"#);
    assert_eq!(
        told(include_str!("../../../fixtures/made-up/kernel-log/xid_mig.log")),
        [
            r#"gpu_instance="5", pci_bus_id="0000:c3:00.0", pid="4242", process="python", xid="43""#,
            r#"compute_instance="0", gpu_instance="5", pci_bus_id="0000:c3:00.0", pid="4243", process="python3.11", xid="31""#,
            r#"gpu_instance="5", pci_bus_id="0000:c3:00.0", xid="94""#,
            r#"pci_bus_id="0000:c3:00.0", pid="4244", process="plain", xid="13""#,
        ]
        .map(gpu)
    );
    let faults = told(include_str!(
        "../../../fixtures/made-up/kernel-log/kfault.log"
    ));
    assert_eq!(
        faults, ["kernel_fault {}"; 11],
        "the twelfth is a program's"
    );
    let disks = ["sdk", "nvme0n1", "sdc", "sdd", "sde", "sdf", "sdg", "sdh"];
    assert_eq!(
        told(include_str!(
            "../../../fixtures/made-up/kernel-log/disk.log"
        )),
        disks.map(|disk| format!(r#"disk_error {{device="{disk}"}}"#))
    );
    let kill = |(cgroup, job, pid, process)| {
        format!(
            r#"oom_kill {{cgroup="{cgroup}", {job}, pid="{pid}", process="{process}", scope="cgroup", uid="1000"}}"#
        )
    };
    let sluid = |(cgroup, sluid, pid, process)| {
        format!(
            r#"oom_kill {{cgroup="{cgroup}", pid="{pid}", process="{process}", scope="cgroup", {sluid}, uid="1000"}}"#
        )
    };
    assert_eq!(
        told(include_str!("../../../fixtures/made-up/kernel-log/oom.log")),
        [
            kill((
                "/system.slice/slurmstepd.scope/job_77/step_0/user/task_0",
                r#"jobid="77""#,
                900,
                "(sd-pam)"
            )),
            kill((
                "/system.slice/slurmstepd.scope/job_78/step_0/user/task_0",
                r#"jobid="78""#,
                901,
                "x,pid=1,uid=0"
            )),
            kill((
                "/slurm/uid_1000/job_79/step_0/task_0",
                r#"jobid="79""#,
                902,
                "R"
            )),
            kill((
                "/system.slice/g01_slurmstepd.scope/job_80/step_0/user/task_0",
                r#"jobid="80""#,
                903,
                "R"
            )),
            sluid((
                "/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0",
                r#"sluid="s5K1KKYAYG5D00""#,
                904,
                "R"
            )),
        ]
    );
}

/// Before R510 the driver left the name of the process out.
#[test]
fn a_process_without_a_name_keeps_its_number() {
    assert_eq!(
        told("NVRM: Xid (PCI:0000:3B:00): 31, pid=2387, Ch 00000008, intr 10000000. MMU Fault"),
        [r#"xid {pci_bus_id="0000:3b:00.0", pid="2387", xid="31"}"#]
    );
}

#[test]
fn a_bonded_link_is_down_if_the_node_says_so() {
    let sysfs = tempfile::tempdir().unwrap();
    let slave = sysfs.path().join("class/net/eth0/bonding_slave");
    std::fs::create_dir_all(&slave).unwrap();
    let mut recogniser = Recogniser::new(sysfs.path());
    let mut down = |status: &str, line: &str| {
        std::fs::write(slave.join("mii_status"), status).unwrap();
        let found = recogniser.read(line, None)?;
        Some((found.kind, found.labels.to_string()))
    };
    let expected = Some((EventKind::LinkDown, r#"{device="eth0"}"#.to_owned()));
    for line in [
        "bond0: (slave eth0): link status definitely down, disabling slave",
        "bond0: link status definitely down for interface eth0, disabling it",
    ] {
        assert_eq!(down("down\n", line), expected, "{line}");
        assert_eq!(
            down("up\n", line),
            None,
            "printed for another network namespace"
        );
        let other = line.replace("eth0", "eth1");
        assert_eq!(down("down\n", &other), None, "the node has no such link");
    }
}

#[test]
fn a_group_that_is_killed_as_a_whole_is_one_job_s() {
    let text = "\
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/system.slice/slurmstepd.scope/job_42/step_0,task_memcg=/system.slice/slurmstepd.scope/job_42/step_0/user/task_0,task=python,pid=7,uid=1000
Memory cgroup out of memory: Killed process 7 (python) total-vm:100kB
Tasks in /system.slice/slurmstepd.scope/job_42/step_0 are going to be killed due to memory.oom.group set
Memory cgroup out of memory: Killed process 8 (python) total-vm:100kB
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/system.slice/sshd.service,task=sshd,pid=9,uid=0
Out of memory: Killed process 9 (sshd) total-vm:100kB
Memory cgroup out of memory: Killed process 10 (python) total-vm:100kB";
    let jobs: Vec<_> = told(text)
        .iter()
        .map(|event| event.contains(r#"jobid="42""#))
        .collect();
    assert_eq!(jobs, [true, true, false, false]);
}

#[test]
fn a_gpu_falls_off_the_bus_without_an_xid() {
    let lines = "\
NVRM: The NVIDIA GPU 0000:b3:00.0
NVRM: (PCI ID: 10de:2330) installed in this system has
NVRM: fallen off the bus and is not responding to commands.
NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.
NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:742)";
    let lost = [
        r#"gpu_lost {pci_bus_id="0000:b3:00.0"}"#,
        r#"gpu_lost {pci_bus_id="0000:18:00.0"}"#,
        r#"gpu_init_failed {pci_bus_id="0000:01:00.0"}"#,
    ];
    assert_eq!(told(lines), lost);
    let in_one = lines.lines().take(3).collect::<Vec<_>>().join("\n");
    assert_eq!(
        Recogniser::new(Path::new("/nonexistent"))
            .read(&in_one, None)
            .unwrap()
            .labels
            .get("pci_bus_id"),
        Some("0000:b3:00.0")
    );
    assert_eq!(
        told("NVRM: The NVIDIA GPU 0000:b3:00.0\na\nb\nc\nNVRM: fallen off the bus"),
        [""; 0],
        "too late"
    );
}

#[test]
fn oom_kills_have_their_cgroup_and_job() {
    let text = "\
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/system.slice/slurmstepd.scope/job_42,task_memcg=/system.slice/slurmstepd.scope/job_42/step_0/user/task_0,task=python,pid=1234,uid=1000
Memory cgroup out of memory: Killed process 1234 (python) total-vm:100kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:1kB oom_score_adj:0
Out of memory: Killed process 99 (tmux: server) total-vm:1kB
Tasks in /foo are going to be killed due to memory.oom.group set";
    assert_eq!(
        told(text),
        [
            r#"oom_kill {cgroup="/system.slice/slurmstepd.scope/job_42/step_0/user/task_0", jobid="42", pid="1234", process="python", scope="cgroup", uid="1000"}"#,
            r#"oom_kill {pid="99", process="tmux: server", scope="node"}"#,
        ]
    );
}

/// Messages of the kernel and their events; none where the event is empty.
#[rustfmt::skip]
pub(super) const MESSAGES: &[(&str, &str)] = &[
    (r#"INFO: task python:u8:12 blocked for more than 122 seconds."#, r#"hung_task {pid="12", process="python:u8", seconds="122"}"#),
    (r#"INFO: task rm:7 blocked in I/O wait for more than 241 seconds."#, r#"hung_task {pid="7", process="rm", seconds="241"}"#),
    (r#"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [cc1:99]"#, r#"lockup {cpu="3", lockup="soft", pid="99", process="cc1"}"#),
    (r#"NMI watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [cc1:99]"#, r#"lockup {cpu="3", lockup="soft", pid="99", process="cc1"}"#),
    (r#"NMI watchdog: Watchdog detected hard LOCKUP on cpu 7"#, r#"lockup {cpu="7", lockup="hard"}"#),
    (r#"watchdog: CPU7: Watchdog detected hard LOCKUP on cpu 7"#, r#"lockup {cpu="7", lockup="hard"}"#),
    (r#"rcu: INFO: rcu_sched self-detected stall on CPU"#, r#"lockup {lockup="rcu"}"#),
    (r#"rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 3-...D } 21 jiffies s: 57 root: 0x8/."#, r#"lockup {lockup="rcu"}"#),
    (r#"BUG: unable to handle page fault for address: ffff"#, r#"kernel_fault {}"#),
    (r#"BUG: unable to handle kernel paging request at ffffb0c0"#, r#"kernel_fault {}"#),
    (r#"BUG: kernel NULL pointer dereference, address: 0000000000000008"#, r#"kernel_fault {}"#),
    (r#"BUG: TASK stack guard page was hit at ffffc9000 (stack is ffffc9000..ffffc9003)"#, r#"kernel_fault {}"#),
    (r#"BUG: Bad page state in process python  pfn:12345"#, r#""#),
    (r#"BUG: scheduling while atomic: python/12/0x00000002"#, r#""#),
    (r#"invalid opcode: 0000 [#2] PREEMPT SMP PTI"#, r#"kernel_fault {}"#),
    (r#"Oops: invalid opcode: 0000 [#1] SMP NOPTI"#, r#"kernel_fault {}"#),
    (r#"Oops: 0002 [#1] PREEMPT(voluntary) SMP"#, r#"kernel_fault {}"#),
    (r#"traps: PANIC: double fault, error_code: 0x0"#, r#"kernel_fault {}"#),
    (r#"Oops: Kernel access of bad area, sig: 11 [#1]"#, r#"kernel_fault {}"#),
    (r#"Internal error: Oops - BUG: 00000000f2000800 [#1] PREEMPT SMP"#, r#"kernel_fault {}"#),
    (r#"Unable to handle kernel write to read-only memory at virtual address ffff800081c0"#, r#"kernel_fault {}"#),
    (r#"kernel BUG at mm/slub.c:306!"#, r#"kernel_fault {}"#),
    (r#"Kernel panic - not syncing: Fatal exception"#, r#"kernel_fault {}"#),
    (r#"WARNING: CPU: 3 PID: 12 at mm/slub.c:306 kfree+0x1/0x2"#, r#""#),
    (r#"nfs: server nas01 not responding, still trying"#, r#"nfs_not_responding {server="nas01"}"#),
    (r#"nfs: server 10.0.0.5 not responding, timed out"#, r#"nfs_not_responding {server="10.0.0.5"}"#),
    (r#"lockd: server nas01 not responding, still trying"#, r#"nfs_not_responding {server="nas01"}"#),
    (r#"lockd: server fe80::1%eth0 not responding, timed out"#, r#"nfs_not_responding {server="fe80::1%eth0"}"#),
    (r#"nfs: server nas01 OK"#, r#"nfs_responding {server="nas01"}"#),
    (r#"lockd: server nas01 OK"#, r#"nfs_responding {server="nas01"}"#),
    (r#"nfs: RPC call returned error 13"#, r#""#),
    (r#"NFS: nfs4_reclaim_open_state: Lock reclaim failed!"#, r#"nfs_lock_lost {}"#),
    (r#"mlx5_core 0000:5e:00.0 ens1f0: Link down"#, r#"link_down {device="ens1f0"}"#),
    (r#"mlx5_core 0000:c1:00.0 mlx5_0: Port: 1 Link DOWN"#, r#"link_down {device="mlx5_0", port="1"}"#),
    (r#"mlx5_core 0000:c1:00.0 mlx5_0: Port: 1 Link ACTIVE"#, r#"link_up {device="mlx5_0", port="1"}"#),
    (r#"mlx5_core 0000:c1:00.0 mlx5_0: Port: 1 Link INIT"#, r#""#),
    (r#"hfi1 0000:05:00.0: hfi1_0: logical state changed to PORT_DOWN (0x1)"#, r#"link_down {device="hfi1_0"}"#),
    (r#"hfi1 0000:05:00.0: hfi1_0: logical state changed to PORT_ACTIVE (0x4)"#, r#"link_up {device="hfi1_0"}"#),
    (r#"hfi1 0000:05:00.0: hfi1_0: logical state changed to PORT_ARMED (0x3)"#, r#""#),
    (r#"igc 0000:03:00.0 eno1: NIC Link is Down"#, r#"link_down {device="eno1"}"#),
    (r#"igb 0000:04:00.0 enp4s0: igb: enp4s0 NIC Link is Down"#, r#"link_down {device="enp4s0"}"#),
    (r#"igb 0000:04:00.0: igb: eth0 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: RX/TX"#, r#"link_up {device="eth0", speed="1000 Mbps"}"#),
    (r#"igb 0000:04:00.0 enp4s0: igb: enp4s0 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: RX"#, r#"link_up {device="enp4s0", speed="1000 Mbps"}"#),
    (r#"igb: eth2 NIC Link is Down"#, r#"link_down {device="eth2"}"#),
    (r#"e1000e: eth0 NIC Link is Down"#, r#"link_down {device="eth0"}"#),
    (r#"e1000e 0000:00:1f.6 eno1: NIC Link is Up 1000 Mbps Full Duplex, Flow Control: None"#, r#"link_up {device="eno1", speed="1000 Mbps"}"#),
    (r#"e1000e: eno1 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: Rx/Tx"#, r#"link_up {device="eno1", speed="1000 Mbps"}"#),
    (r#"bnx2 0000:01:00.0 em1: NIC Copper Link is Down"#, r#"link_down {device="em1"}"#),
    (r#"i40e 0000:3b:00.0 eno1: NIC Link is Up, 10 Gbps Full Duplex, Flow Control: None"#, r#"link_up {device="eno1", speed="10 Gbps"}"#),
    (r#"ixgbe 0000:01:00.0: eth0: NIC Link is Down"#, r#"link_down {device="eth0"}"#),
    (r#"r8152 2-1:1.0 eth5: Link is Down"#, r#"link_down {device="eth5"}"#),
    (r#"mtk_soc_eth 15100000.ethernet eth2: Link is Down"#, r#"link_down {device="eth2"}"#),
    (r#"r8169 0000:02:00.0 enp2s0: Link is Up - 2.5Gbps/Full - flow control off"#, r#"link_up {device="enp2s0", speed="2.5Gbps"}"#),
    (r#"igc 0000:03:00.0 eno1: NIC Link is Up 1000 Mbps Full Duplex"#, r#"link_up {device="eno1", speed="1000 Mbps"}"#),
    (r#"tg3 0000:01:00.0 eth0: Link is up at 1000 Mbps, full duplex"#, r#"link_up {device="eth0", speed="1000 Mbps"}"#),
    (r#"ib0: Link Down"#, r#""#),
    (r#"eth0: NIC Link is Down"#, r#""#),
    (r#"pcieport 0000:00:1c.0: pciehp: Slot(1): Link Down"#, r#""#),
    (r#"RTL8226 2.5Gbps PHY r8169-0-300:00: Downshift occurred from negotiated speed 2.5Gbps to actual speed 100Mbps, check cabling!"#, r#"link_downshift {device="r8169-0-300:00", negotiated="2.5Gbps", speed="100Mbps"}"#),
    (r#"EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0"#, r#"memory_error {controller="MC0", severity="corrected"}"#),
    (r#"EDAC MC1: 2 UE on mc#1csrow#0channel#0"#, r#"memory_error {controller="MC1", severity="uncorrected"}"#),
    (r#"EDAC MC0: 1 UE Multi-bit ECC on unknown memory (node:0 card:0 module:1 page:0x1a offset:0x0 grain:0)"#, r#"memory_error {controller="MC0", severity="uncorrected"}"#),
    (r#"EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:64:0a.0 (INTERRUPT)"#, r#""#),
    (r#"mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00000000800400"#, r#"machine_check {bank="5", cpu="3"}"#),
    (r#"mce: [Hardware Error]: Machine check events logged"#, r#"machine_check {}"#),
    (r#"{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0"#, r#"machine_check {}"#),
    (r#"pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0"#, r#"pcie_error {pci_bus_id="0000:01:00.0", port="0000:00:01.0", severity="corrected"}"#),
    (r#"pcieport 0000:00:1c.5: AER: Correctable error message received from 0000:03:00.0"#, r#"pcie_error {pci_bus_id="0000:03:00.0", port="0000:00:1c.5", severity="corrected"}"#),
    (r#"pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: id=0008"#, r#"pcie_error {pci_bus_id="0000:00:01.0", port="0000:00:01.0", severity="fatal"}"#),
    (r#"pcieport 0001:00:01.0: AER: Multiple Uncorrected (Non-Fatal) error received: id=0300"#, r#"pcie_error {pci_bus_id="0001:03:00.0", port="0001:00:01.0", severity="uncorrected"}"#),
    (r#"pcieport 0000:00:1c.0: AER: Multiple Uncorrectable (Non-Fatal) error message received from 0000:00:00.0"#, r#"pcie_error {pci_bus_id="0000:00:1c.0", port="0000:00:1c.0", severity="uncorrected"}"#),
    (r#"pcieport 0000:00:1c.0: AER: enabled with IRQ 122"#, r#""#),
    (r#"CPU12: Core temperature is above threshold, cpu clock is throttled (total events = 5)"#, r#"cpu_throttled {cpu="12"}"#),
    (r#"mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = 5)"#, r#"cpu_throttled {cpu="12"}"#),
    (r#"EXT4-fs (sda1): Remounting filesystem read-only"#, r#"filesystem_readonly {device="sda1"}"#),
    (r#"XFS (dm-0): log I/O error -5"#, r#""#),
    (r#"XFS (dm-0): Filesystem has been shut down due to log error (0x2)."#, r#"filesystem_readonly {device="dm-0"}"#),
    (r#"XFS (sdb): Corruption of in-memory data (0x8) detected at foo. Shutting down filesystem."#, r#"filesystem_readonly {device="sdb"}"#),
    (r#"XFS (sdb): Log I/O Error (0x2) detected at xlog_ioend_work+0x6f/0x80 [xfs] (fs/xfs/xfs_log.c:1378).  Shutting down filesystem."#, r#"filesystem_readonly {device="sdb"}"#),
    (r#"XFS (sdb): User initiated shutdown received. Shutting down filesystem"#, r#""#),
    (r#"XFS (sdb): Internal error XFS_WANT_CORRUPTED_GOTO at line 1635 of file fs/xfs/libxfs/xfs_alloc.c.  Caller xfs_free_ag_extent+0x1/0x2 [xfs]"#, r#"filesystem_error {device="sdb"}"#),
    (r#"XFS (sdb): Metadata CRC error detected at xfs_agi_read_verify+0x1/0x2 [xfs], xfs_agi block 0x2"#, r#"filesystem_error {device="sdb"}"#),
    (r#"XFS (sdb): Mounting V5 Filesystem"#, r#""#),
    (r#"BTRFS info (device sda2): forced readonly"#, r#"filesystem_readonly {device="sda2"}"#),
    (r#"BTRFS: error (device sda2: state EA) in cleanup:1: errno=-5 IO failure"#, r#""#),
    (r#"BTRFS info (device sda2: state E): forced readonly"#, r#"filesystem_readonly {device="sda2"}"#),
    (r#"BTRFS critical (device sda2): corrupt leaf: root=2 block=1 slot=0"#, r#"filesystem_error {device="sda2"}"#),
    (r#"WARNING: Pool 'rpool' has encountered an uncorrectable I/O failure and has been suspended."#, r#"filesystem_readonly {device="rpool"}"#),
    (r#"EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0"#, r#"filesystem_error {device="sda1"}"#),
    (r#"EXT4-fs error (device loop0): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0"#, r#""#),
    (r#"blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ)"#, r#"disk_error {device="sda"}"#),
    (r#"end_request: I/O error, dev sda, sector 2048"#, r#"disk_error {device="sda"}"#),
    (r#"device offline error, dev sdb, sector 8 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 0"#, r#"disk_error {device="sdb"}"#),
    (r#"critical medium error, dev sda, sector 1"#, r#"disk_error {device="sda"}"#),
    (r#"I/O error, dev loop3, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0"#, r#""#),
    (r#"blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0"#, r#""#),
    (r#"operation not supported error, dev sdb, sector 8 op 0x9:(WRITE_ZEROES) flags 0x800 phys_seg 0 prio class 2"#, r#""#),
    (r#"Buffer I/O error on device sdc1, logical block 0"#, r#"disk_error {device="sdc1"}"#),
    (r#"nvme nvme0: I/O 12 QID 3 timeout, aborting"#, r#"disk_error {device="nvme0"}"#),
    (r#"nvme nvme1: I/O tag 12 (000c) opcode 0x2 (I/O Cmd) QID 3 timeout, aborting req_op:READ(0) size:4096"#, r#"disk_error {device="nvme1"}"#),
    (r#"nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"#, r#"disk_error {device="nvme0"}"#),
    (r#"nvme nvme0: 32/0/0 default/read/poll queues"#, r#""#),
    (r#"ata1: SATA link down (SStatus 0 SControl 300)"#, r#""#),
    (r#"IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready"#, r#""#),
    (r#"traps: python[12] general protection fault ip:7f sp:7f error:0"#, r#""#),
    (r#"Uhhuh. NMI received for unknown reason 31 on CPU 0."#, r#""#),
];

#[test]
fn the_rest_of_the_table() {
    for (line, expected) in MESSAGES {
        let expected: Vec<_> = Some(*expected)
            .into_iter()
            .filter(|event| !event.is_empty())
            .collect();
        assert_eq!(told(line), expected, "{line}");
    }
}

#[test]
fn every_kind_has_a_pattern_and_every_needle_is_in_what_it_is_for() {
    for kind in EventKind::ALL {
        // The BMC's log is no text.
        let is_told = [EventKind::OomKill, EventKind::HardwareLog].contains(kind)
            || FORMS.iter().any(|form| form.kind == *kind);
        assert!(is_told, "{}", kind.name());
    }
}

fn words() -> impl Strategy<Value = String> {
    let needles: Vec<_> = FORMS.iter().map(|form| form.needle.to_owned()).collect();
    let others = [
        "oom-kill:constraint=",
        "ut of memory: Killed process 1 (",
        "NVRM: The NVIDIA GPU ",
        "a: NIC Link is ",
    ];
    prop_oneof![
        prop::sample::select(needles),
        prop::sample::select(others.to_vec()).prop_map(str::to_owned),
        "[ -~\u{0}é(:]{0,20}",
    ]
}

proptest! {
    #[test]
    fn any_text_is_read(words in prop::collection::vec(words(), 0..8)) {
        let mut recogniser = Recogniser::new(Path::new("/nonexistent"));
        for _ in 0..2 {
            let _ = recogniser.read(&words.concat(), None);
            let _ = recogniser.read(&words.join("\n"), None);
        }
    }
}
