//! Recognises events in lines of the kernel log.
//!
//! One table: a word that the line must contain (cheap, and enough to reject nearly every line), a
//! regular expression whose named groups become labels, and the kind. Some events take several
//! lines (an OOM kill and its cgroup, a GPU that fell off the bus): [`Recogniser`] keeps the first
//! lines until the last one comes.

use regex_lite::Regex;
use takt_model::{EventKind, Labels, pci};

/// An event found in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recognised {
    pub kind: EventKind,
    pub labels: Labels,
    pub message: String,
}

struct Pattern {
    kind: EventKind,
    needle: &'static str,
    regex: &'static str,
    labels: &'static [(&'static str, &'static str)],
}

const fn pattern(kind: EventKind, needle: &'static str, regex: &'static str) -> Pattern {
    Pattern {
        kind,
        needle,
        regex,
        labels: &[],
    }
}

const CORRECTED: &[(&str, &str)] = &[("severity", "corrected")];
const UNCORRECTED: &[(&str, &str)] = &[("severity", "uncorrected")];

use EventKind::{
    CpuThrottled, DiskError, FilesystemError, FilesystemReadonly, GpuInitFailed, GpuLost, HungTask,
    KernelFault, LinkDown, LinkDownshift, LinkUp, Lockup, MachineCheck, MemoryError, NfsLockLost,
    NfsNotResponding, NfsResponding, OomKill, PcieError, Sxid, Xid,
};

/// All patterns; the first match counts.
#[rustfmt::skip]
const PATTERNS: &[Pattern] = &[
    pattern(Xid, "NVRM: Xid",
        r"NVRM: Xid \((?P<pci_bus_id>[^)]+)\).*?: (?P<xid>\d+)(?:,|$|\s)(?: pid='?(?P<pid>\d+)'?, name=(?P<process>[^,<]+),)?"),
    pattern(Sxid, "SXid",
        r"(?P<device>nvidia-nvswitch\d+): SXid \((?P<pci_bus_id>[^)]+)\).*?: (?P<sxid>\d+)"),
    pattern(GpuLost, "fallen off the bus",
        r"NVRM: GPU (?:at )?(?P<pci_bus_id>[0-9a-fA-F:.]+):? (?:GPU )?has fallen off the bus"),
    pattern(GpuInitFailed, "RmInitAdapter failed",
        r"NVRM: (?:GPU (?P<pci_bus_id>[0-9a-fA-F:.]+): )?RmInitAdapter failed"),
    pattern(HungTask, "blocked for more than",
        r"INFO: task (?P<process>.+):(?P<pid>\d+) blocked for more than (?P<seconds>\d+) seconds"),
    Pattern { kind: Lockup, needle: "soft lockup",
        regex: r"BUG: soft lockup - CPU#(?P<cpu>\d+) stuck for \d+s! \[(?P<process>.+):(?P<pid>\d+)\]", labels: &[("lockup", "soft")] },
    Pattern { kind: Lockup, needle: "LOCKUP",
        regex: r"detected hard LOCKUP on cpu (?P<cpu>\d+)", labels: &[("lockup", "hard")] },
    Pattern { kind: Lockup, needle: "rcu",
        regex: r"rcu: INFO: rcu_\w+ (?:self-)?detected (?:expedited )?stalls? on", labels: &[("lockup", "rcu")] },
    pattern(KernelFault, "BUG: ", r"(?:^|\] )BUG: (?:unable to handle|kernel NULL pointer)"),
    pattern(KernelFault, "kernel BUG at", r"kernel BUG at \S+"),
    pattern(KernelFault, "Kernel panic", r"Kernel panic - not syncing"),
    pattern(NfsNotResponding, "not responding", r"nfs: server (?P<server>\S+) not responding"),
    pattern(NfsResponding, "nfs: server", r"nfs: server (?P<server>\S+) OK"),
    pattern(NfsLockLost, "Lock reclaim failed", r"nfs4_reclaim_open_state: Lock reclaim failed"),
    pattern(LinkDownshift, "Downshift occurred",
        r"(?P<device>\S+): Downshift occurred from negotiated speed (?P<negotiated>\S+) to actual speed (?P<speed>[^,\s]+)"),
    pattern(LinkDown, "link status definitely down",
        r"slave (?P<device>\S+?)\)?: link status definitely down"),
    pattern(LinkDown, "ink ",
        r"(?P<device>[\w.@-]+)(?: \(\w+\))?: (?:NIC )?[Ll]ink (?:is )?[Dd]own"),
    pattern(LinkUp, "ink ",
        r"(?P<device>[\w.@-]+)(?: \(\w+\))?: (?:NIC )?[Ll]ink (?:is )?[Uu]p(?:[ ,-]+(?:at )?(?P<speed>\d+(?:\.\d+)? ?[GM]bps))?"),
    Pattern { kind: MemoryError, needle: "EDAC",
        regex: r"EDAC (?:\S+ )?(?P<controller>MC\d+): \d+ CE ", labels: CORRECTED },
    Pattern { kind: MemoryError, needle: "EDAC",
        regex: r"EDAC (?:\S+ )?(?P<controller>MC\d+): \d+ UE ", labels: UNCORRECTED },
    pattern(MachineCheck, "[Hardware Error]",
        r"\[Hardware Error\]: CPU (?P<cpu>\d+): Machine Check(?: Exception)?: \S+ Bank (?P<bank>\d+)"),
    pattern(MachineCheck, "[Hardware Error]",
        r"mce: \[Hardware Error\]: Machine check events logged"),
    pattern(MachineCheck, "APEI", r"Hardware error from APEI Generic Hardware Error Source"),
    Pattern { kind: PcieError, needle: "AER",
        regex: r"(?P<pci_bus_id>[0-9a-fA-F:.]+): AER: (?:Multiple )?Correct(?:ed|able) error", labels: CORRECTED },
    Pattern { kind: PcieError, needle: "AER",
        regex: r"(?P<pci_bus_id>[0-9a-fA-F:.]+): AER: (?:Multiple )?Uncorrect(?:ed|able) \(Fatal\) error", labels: &[("severity", "fatal")] },
    Pattern { kind: PcieError, needle: "AER",
        regex: r"(?P<pci_bus_id>[0-9a-fA-F:.]+): AER: (?:Multiple )?Uncorrect(?:ed|able) (?:\(Non-Fatal\) )?error", labels: UNCORRECTED },
    pattern(CpuThrottled, "cpu clock",
        r"CPU(?P<cpu>\d+): (?:Core|Package) temperature (?:is )?above threshold, cpu clock (?:is )?throttled"),
    pattern(FilesystemReadonly, "EXT4-fs",
        r"EXT4-fs \((?P<device>[^)]+)\): Remounting filesystem read-only"),
    pattern(FilesystemReadonly, "XFS",
        r"XFS \((?P<device>[^)]+)\): .*(?:Filesystem has been shut down|Shutting down filesystem)"),
    pattern(FilesystemReadonly, "BTRFS",
        r"BTRFS (?:\w+ )?\(device (?P<device>[^):]+)[^)]*\).*forced readonly"),
    pattern(FilesystemError, "EXT4-fs error", r"EXT4-fs error \(device (?P<device>[^)]+)\)"),
    pattern(FilesystemError, "XFS",
        r"XFS \((?P<device>[^)]+)\): (?:Metadata corruption|Metadata CRC error|Corruption) "),
    pattern(FilesystemError, "BTRFS", r"BTRFS (?:error|critical) \(device (?P<device>[^):]+)"),
    pattern(DiskError, "I/O error, dev", r"I/O error, (?:on )?dev (?P<device>[\w-]+)"),
    pattern(DiskError, "nvme",
        r"nvme (?P<device>nvme\d+): (?:I/O (?:tag )?\d+ .*timeout|controller is down|Device not ready|Abort status)"),
];

/// Recognises events, and keeps lines that belong to one that follows.
#[derive(Debug, Default)]
pub(crate) struct Recogniser {
    /// `oom-kill:…`: cgroup and user of the process that is killed next.
    oom: Option<Labels>,
    /// Bus id from `NVRM: The NVIDIA GPU 0000:b3:00.0`, and the number of lines since.
    gpu: Option<(String, u8)>,
    compiled: Vec<Regex>,
}

/// Lines within which the driver's message about a lost GPU is complete.
const LINES_OF_THE_DRIVER: u8 = 3;

impl Recogniser {
    pub fn new() -> Self {
        let compile = |pattern: &Pattern| Regex::new(pattern.regex).expect("a test compiles each");
        Self {
            compiled: PATTERNS.iter().map(compile).collect(),
            ..Self::default()
        }
    }

    /// The event in a message of the kernel, which may have several lines.
    pub fn read(&mut self, message: &str) -> Option<Recognised> {
        // One message is about one event. All lines are read: some belong to a later message.
        let found: Vec<_> = message
            .lines()
            .filter_map(|line| self.line(line.trim_end()))
            .collect();
        found.into_iter().next()
    }

    fn line(&mut self, line: &str) -> Option<Recognised> {
        if let Some(found) = self.oom_kill(line).or_else(|| self.gpu_lost(line)) {
            return Some(found);
        }
        PATTERNS
            .iter()
            .zip(&self.compiled)
            .find_map(|(pattern, regex)| {
                if !line.contains(pattern.needle) {
                    return None;
                }
                let found = regex.captures(line)?;
                let mut labels: Labels = regex
                    .capture_names()
                    .flatten()
                    .filter_map(|name| Some((name, found.name(name)?.as_str())))
                    .chain(pattern.labels.iter().copied())
                    .collect();
                tidy(pattern.kind, line, &mut labels);
                Some(Recognised {
                    kind: pattern.kind,
                    labels,
                    message: line.to_owned(),
                })
            })
    }

    /// Two lines: `oom-kill:constraint=…,task_memcg=…,pid=…` and `… Killed process 123 (python) …`.
    fn oom_kill(&mut self, line: &str) -> Option<Recognised> {
        if let Some((_, fields)) = line.split_once("oom-kill:constraint=") {
            let field = |name: &str| {
                fields
                    .split(',')
                    .find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
            };
            let pairs = [("cgroup", "task_memcg"), ("pid", "pid"), ("uid", "uid")];
            self.oom = Some(
                pairs
                    .iter()
                    .filter_map(|(label, name)| Some((*label, field(name)?)))
                    .collect(),
            );
            return None;
        }
        let (before, killed) = line
            .split_once("Killed process ")
            .or_else(|| line.split_once("Kill process "))?;
        let (pid, rest) = killed.split_once(' ')?;
        pid.parse::<u32>()
            .ok()
            .and(before.contains("ut of memory").then_some(()))?;
        let mut labels = self
            .oom
            .take()
            .filter(|known| known.get("pid") == Some(pid))
            .unwrap_or_default();
        labels.set("pid", pid);
        let process = rest
            .strip_prefix('(')
            .and_then(|rest| Some(rest.split_once(')')?.0));
        labels.set("process", process.unwrap_or_default());
        labels.set(
            "scope",
            if before.contains("cgroup") {
                "cgroup"
            } else {
                "node"
            },
        );
        let job = labels.get("cgroup").and_then(job_of).map(str::to_owned);
        labels.set("jobid", job.as_deref().unwrap_or_default());
        Some(Recognised {
            kind: OomKill,
            labels,
            message: line.to_owned(),
        })
    }

    /// Three lines: `NVRM: The NVIDIA GPU 0000:b3:00.0`, `NVRM: (PCI ID: …) installed in this
    /// system has`, `NVRM: fallen off the bus and is not responding to commands.`
    fn gpu_lost(&mut self, line: &str) -> Option<Recognised> {
        if let Some((_, id)) = line.split_once("NVRM: The NVIDIA GPU ") {
            self.gpu = id.split(' ').next().and_then(pci::bus_id).map(|id| (id, 1));
            return None;
        }
        let (gpu, lines) = self.gpu.take()?;
        if line.contains("fallen off the bus") {
            let labels = Labels::from_iter([("pci_bus_id", &gpu)]);
            let message = format!(
                "NVRM: The NVIDIA GPU {gpu} installed in this system has fallen off the bus"
            );
            return Some(Recognised {
                kind: GpuLost,
                labels,
                message,
            });
        }
        self.gpu = (lines < LINES_OF_THE_DRIVER).then_some((gpu, lines + 1));
        None
    }
}

/// Brings labels into the form that the rest of Takt uses.
fn tidy(kind: EventKind, line: &str, labels: &mut Labels) {
    if let Some(id) = labels.get("pci_bus_id").and_then(pci::bus_id) {
        labels.set("pci_bus_id", &id);
    }
    if kind == Xid && labels.get("xid") == Some("154") {
        // "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
        let action = line
            .rsplit_once('(')
            .and_then(|(_, action)| Some(action.split_once(')')?.0));
        labels.set("recovery_action", action.unwrap_or_default());
    }
}

/// The Slurm job of a cgroup, where its path has the job's number.
fn job_of(cgroup: &str) -> Option<&str> {
    let digits = cgroup
        .split('/')
        .find_map(|part| part.strip_prefix("job_"))?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The event of each line, as text.
    fn told(text: &str) -> Vec<String> {
        let mut recogniser = Recogniser::new();
        let told = text.lines().filter_map(|line| recogniser.read(line));
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
            Recogniser::new()
                .read(&in_one)
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

    #[test]
    fn the_rest_of_the_table() {
        let cases = [
            (
                "INFO: task python:u8:12 blocked for more than 122 seconds.",
                r#"hung_task {pid="12", process="python:u8", seconds="122"}"#,
            ),
            (
                "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [cc1:99]",
                r#"lockup {cpu="3", lockup="soft", pid="99", process="cc1"}"#,
            ),
            (
                "NMI watchdog: Watchdog detected hard LOCKUP on cpu 7",
                r#"lockup {cpu="7", lockup="hard"}"#,
            ),
            (
                "rcu: INFO: rcu_sched self-detected stall on CPU",
                r#"lockup {lockup="rcu"}"#,
            ),
            (
                "BUG: unable to handle page fault for address: ffff",
                "kernel_fault {}",
            ),
            ("kernel BUG at mm/slub.c:306!", "kernel_fault {}"),
            (
                "Kernel panic - not syncing: Fatal exception",
                "kernel_fault {}",
            ),
            (
                "nfs: server nas01 not responding, still trying",
                r#"nfs_not_responding {server="nas01"}"#,
            ),
            (
                "nfs: server 10.0.0.5 not responding, timed out",
                r#"nfs_not_responding {server="10.0.0.5"}"#,
            ),
            ("nfs: server nas01 OK", r#"nfs_responding {server="nas01"}"#),
            (
                "NFS: nfs4_reclaim_open_state: Lock reclaim failed!",
                "nfs_lock_lost {}",
            ),
            (
                "mlx5_core 0000:5e:00.0 ens1f0: Link down",
                r#"link_down {device="ens1f0"}"#,
            ),
            (
                "igc 0000:03:00.0 eno1: NIC Link is Down",
                r#"link_down {device="eno1"}"#,
            ),
            (
                "r8169 0000:02:00.0 enp2s0: Link is Up - 2.5Gbps/Full - flow control off",
                r#"link_up {device="enp2s0", speed="2.5Gbps"}"#,
            ),
            (
                "igc 0000:03:00.0 eno1: NIC Link is Up 1000 Mbps Full Duplex",
                r#"link_up {device="eno1", speed="1000 Mbps"}"#,
            ),
            (
                "tg3 0000:01:00.0 eth0: Link is up at 1000 Mbps, full duplex",
                r#"link_up {device="eth0", speed="1000 Mbps"}"#,
            ),
            (
                "RTL8226 2.5Gbps PHY r8169-0-300:00: Downshift occurred from negotiated speed \
                 2.5Gbps to actual speed 100Mbps, check cabling!",
                r#"link_downshift {device="r8169-0-300:00", negotiated="2.5Gbps", speed="100Mbps"}"#,
            ),
            (
                "bond0: (slave eth0): link status definitely down, disabling slave",
                r#"link_down {device="eth0"}"#,
            ),
            (
                "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
                r#"memory_error {controller="MC0", severity="corrected"}"#,
            ),
            (
                "EDAC MC1: 2 UE on mc#1csrow#0channel#0",
                r#"memory_error {controller="MC1", severity="uncorrected"}"#,
            ),
            (
                "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00000000800400",
                r#"machine_check {bank="5", cpu="3"}"#,
            ),
            (
                "mce: [Hardware Error]: Machine check events logged",
                "machine_check {}",
            ),
            (
                "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0",
                "machine_check {}",
            ),
            (
                "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
                r#"pcie_error {pci_bus_id="0000:00:01.0", severity="corrected"}"#,
            ),
            (
                "pcieport 0000:00:1c.5: AER: Correctable error message received from 0000:03:00.0",
                r#"pcie_error {pci_bus_id="0000:00:1c.5", severity="corrected"}"#,
            ),
            (
                "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: id=0008",
                r#"pcie_error {pci_bus_id="0000:00:01.0", severity="fatal"}"#,
            ),
            (
                "pcieport 0000:00:01.0: AER: Multiple Uncorrected (Non-Fatal) error received: \
                 id=0008",
                r#"pcie_error {pci_bus_id="0000:00:01.0", severity="uncorrected"}"#,
            ),
            (
                "CPU12: Core temperature is above threshold, cpu clock is throttled (total events \
                 = 5)",
                r#"cpu_throttled {cpu="12"}"#,
            ),
            (
                "EXT4-fs (sda1): Remounting filesystem read-only",
                r#"filesystem_readonly {device="sda1"}"#,
            ),
            ("XFS (dm-0): log I/O error -5", ""),
            (
                "XFS (dm-0): Filesystem has been shut down due to log error (0x2).",
                r#"filesystem_readonly {device="dm-0"}"#,
            ),
            (
                "XFS (sdb): Corruption of in-memory data (0x8) detected at foo. Shutting down \
                 filesystem.",
                r#"filesystem_readonly {device="sdb"}"#,
            ),
            (
                "BTRFS info (device sda2): forced readonly",
                r#"filesystem_readonly {device="sda2"}"#,
            ),
            (
                "BTRFS: error (device sda2: state EA) in cleanup:1: errno=-5 IO failure",
                "",
            ),
            (
                "BTRFS info (device sda2: state E): forced readonly",
                r#"filesystem_readonly {device="sda2"}"#,
            ),
            (
                "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading \
                 directory lblock 0",
                r#"filesystem_error {device="sda1"}"#,
            ),
            (
                "blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ)",
                r#"disk_error {device="sda"}"#,
            ),
            ("critical medium error, dev sda, sector 1", ""),
            (
                "nvme nvme0: I/O 12 QID 3 timeout, aborting",
                r#"disk_error {device="nvme0"}"#,
            ),
            (
                "nvme nvme1: I/O tag 12 (000c) opcode 0x2 (I/O Cmd) QID 3 timeout, aborting \
                 req_op:READ(0) size:4096",
                r#"disk_error {device="nvme1"}"#,
            ),
            (
                "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
                r#"disk_error {device="nvme0"}"#,
            ),
            ("ata1: SATA link down (SStatus 0 SControl 300)", ""),
            (
                "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
                "",
            ),
            (
                "traps: python[12] general protection fault ip:7f sp:7f error:0",
                "",
            ),
            ("Uhhuh. NMI received for unknown reason 31 on CPU 0.", ""),
        ];
        for (line, expected) in cases {
            let expected: &[&str] = if expected.is_empty() {
                &[]
            } else {
                &[expected]
            };
            assert_eq!(told(line), expected, "{line}");
            let prefixed = format!("Nov 21 13:28:31 g01 kernel: [ 1234.567890] {line}");
            assert_eq!(told(&prefixed), expected, "{prefixed}");
        }
    }

    #[test]
    fn every_kind_has_a_pattern_and_every_needle_is_in_what_it_is_for() {
        for kind in EventKind::ALL {
            // The BMC's log is no text.
            let is_told = [OomKill, EventKind::HardwareLog].contains(kind)
                || PATTERNS.iter().any(|pattern| pattern.kind == *kind);
            assert!(is_told, "{}", kind.name());
        }
    }

    fn words() -> impl Strategy<Value = String> {
        let needles: Vec<_> = PATTERNS
            .iter()
            .map(|pattern| pattern.needle.to_owned())
            .collect();
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
        fn no_line_ends_the_reader(words in prop::collection::vec(words(), 0..8)) {
            let mut recogniser = Recogniser::new();
            for _ in 0..2 {
                let _ = recogniser.read(&words.concat());
                let _ = recogniser.read(&words.join("\n"));
            }
        }
    }
}
