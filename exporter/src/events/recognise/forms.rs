//! The forms of the kernel log's lines that are events.
//!
//! The kernel prints texts that users choose: names of processes (15 bytes of anything), names of
//! files and of cgroups, options of mounts, links in a network namespace of their own. `hostile.rs`
//! lists where. So that none of them can make an event:
//!
//! - each form begins at the begin of the message, with more text than the name of a process holds,
//! - tokens are strict: a PCI address, the name of a block device, a number,
//! - a form that users can make the kernel print as a whole is believed if the node agrees
//!   ([`Proof`]).
//!
//! Versions are of Linux, unless they begin with R (NVIDIA's driver). Beside a form is what looks
//! like it and must not match.

use takt_model::EventKind;

/// One form of a message, and the event that it means.
pub(super) struct Form {
    pub kind: EventKind,
    /// A text that every message of the form contains; enough to reject nearly all others.
    pub needle: &'static str,
    /// Its named groups become labels.
    pub regex: &'static str,
    pub labels: &'static [(&'static str, &'static str)],
    pub proof: Proof,
}

/// Evidence that a message needs besides its form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// Only the kernel's own code prints the form.
    Form,
    /// Users can make the kernel print it, with bonds in a network namespace of their own. The link
    /// of the node must be down, too.
    BondedLinkIsDown,
}

const fn form(kind: EventKind, needle: &'static str, regex: &'static str) -> Form {
    Form {
        kind,
        needle,
        regex,
        labels: &[],
        proof: Proof::Form,
    }
}

const fn labelled(
    labels: &'static [(&'static str, &'static str)],
    needle: &'static str,
    regex: &'static str,
    kind: EventKind,
) -> Form {
    Form {
        kind,
        needle,
        regex,
        labels,
        proof: Proof::Form,
    }
}

const fn of_bond(needle: &'static str, regex: &'static str) -> Form {
    Form {
        kind: LinkDown,
        needle,
        regex,
        labels: &[],
        proof: Proof::BondedLinkIsDown,
    }
}

const CORRECTED: &[(&str, &str)] = &[("severity", "corrected")];
const UNCORRECTED: &[(&str, &str)] = &[("severity", "uncorrected")];
const FATAL: &[(&str, &str)] = &[("severity", "fatal")];
const SOFT: &[(&str, &str)] = &[("lockup", "soft")];
const HARD: &[(&str, &str)] = &[("lockup", "hard")];
const RCU: &[(&str, &str)] = &[("lockup", "rcu")];

/// The address of a PCI device.
macro_rules! pci {
    () => {
        "[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:[.][0-7])?"
    };
}

/// A block device.
macro_rules! disk {
    () => {
        r"(?P<device>[A-Za-z][\w.!-]{0,31})"
    };
}

/// A network link.
macro_rules! link {
    () => {
        r"[\w.@-]{1,15}"
    };
}

/// Begin of a line about a network link: driver, device (on PCI, USB, the platform's bus, MDIO,
/// Hyper-V's or virtio), link.
macro_rules! netdev {
    () => {
        concat!(
            r"^[\w-]{2,32} (?:",
            pci!(),
            r"|\d+-[\d.]+:\d+[.]\d+|[0-9a-f]+[.][\w-]+|[\w.-]+:[0-9a-f]{2}|[0-9a-f-]{36}|virtio\d+) (?P<device>",
            link!(),
            r")(?: \(\w+\))?: (?:\w+: ",
            link!(),
            r" )?(?:NIC )?(?:(?:Copper|SerDes|Remote)\s+)?[Ll]ink (?:is )?"
        )
    };
}

/// As [`netdev`], where the driver names the link after the device, or names no device.
macro_rules! driver {
    () => {
        concat!(
            r"^(?:igb|igbvf|igc|ixgbe|ixgbevf|e1000|e1000e|i40e|bnx2|bnx2x|be2net|cxgb4|tg3|r8169)(?: ",
            pci!(),
            r")?: (?:(?:igb|igc|ixgbe|e1000e?): )?(?P<device>",
            link!(),
            r"):? (?:NIC )?(?:Copper )?[Ll]ink (?:is )?"
        )
    };
}

macro_rules! speed {
    () => {
        r"(?:[Uu]p|UP)\b(?:[ ,-]+(?:at )?(?P<speed>\d+(?:\.\d+)? ?[GM]bps))?"
    };
}

/// The end of an oops' first line: its number and the kernel's options, of which one is `SMP` or
/// `PREEMPT`. A process may be called `Oops: 0000 [#1]`.
macro_rules! oops {
    () => {
        r"[0-9a-f]{4} \[#\d+\](?: [A-Z_]{3,}(?:\([a-z]+\))?)+$"
    };
}

/// Begin of a report of AER: the port, which is not the device, and the severity.
macro_rules! aer {
    ($severity:literal) => {
        concat!(
            r"^[\w-]{1,32} (?P<port>",
            pci!(),
            r"): AER: (?:Multiple )?",
            $severity,
            r" error (?:message )?received(?:: | from )(?P<agent>id=[0-9a-f]{4}|",
            pci!(),
            ")"
        )
    };
}

use EventKind::{
    CpuThrottled, DiskError, FilesystemError, FilesystemReadonly, GpuInitFailed, GpuLost, HungTask,
    KernelFault, LinkDown, LinkDownshift, LinkUp, Lockup, MachineCheck, MemoryError, NfsLockLost,
    NfsNotResponding, NfsResponding, PcieError, Sxid, Xid,
};

/// All forms of one message; the first match counts.
#[rustfmt::skip]
pub(super) const FORMS: &[Form] = &[
    // R450: the instances of MIG. Before R510 without a name.
    form(Xid, "NVRM: Xid", concat!(r"^NVRM: Xid \((?:PCI:)?(?P<pci_bus_id>", pci!(), r")(?: GPU-I:0*(?P<gpu_instance>\d+))?(?: GPU-CI:0*(?P<compute_instance>\d+))?\): ",
        r"(?P<xid>\d{1,4})(?:[, ]|$)(?: ?pid='?(?P<pid>\d{1,10})'?,(?: name=(?P<process>[^,<]+),)?)?")),
    form(Sxid, "SXid", concat!(r"^(?P<device>nvidia-nvswitch\d+): SXid \((?:PCI:)?(?P<pci_bus_id>", pci!(), r")\): (?P<sxid>\d{1,6})")),
    form(GpuLost, "fallen off the bus", concat!(r"^NVRM: GPU (?:at )?(?:PCI:)?(?P<pci_bus_id>", pci!(), r"):? (?:GPU )?has fallen off the bus")),
    form(GpuInitFailed, "RmInitAdapter failed", concat!(r"^NVRM: (?:GPU (?P<pci_bus_id>", pci!(), r"): )?RmInitAdapter failed")),

    // 6.16: `in I/O wait`.
    form(HungTask, "blocked ", r"(?s)^INFO: task (?P<process>.{0,15}):(?P<pid>\d+) blocked (?:in I/O wait )?for more than (?P<seconds>\d+) seconds"),
    // 4.9: `NMI watchdog: `; 4.19: `watchdog: `.
    labelled(SOFT, "soft lockup", r"(?s)^(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#(?P<cpu>\d+) stuck for \d+s! \[(?P<process>.{0,15}):(?P<pid>\d+)\]", Lockup),
    // 6.12: `CPU7: `.
    labelled(HARD, "hard LOCKUP", r"^(?:(?:NMI )?watchdog: )?(?:CPU\d+: )?Watchdog detected hard LOCKUP on cpu (?P<cpu>\d+)", Lockup),
    labelled(RCU, "rcu", r"^(?:rcu: )?INFO: rcu_\w+ (?:self-)?detected (?:expedited )?stalls? on", Lockup),

    // x86. Not `python[12] general protection fault ip:…`, which is a program's; not `BUG: Bad page
    // state in process python`, after which the kernel goes on.
    form(KernelFault, "BUG: ", r"^BUG: (?:unable to handle (?:kernel |page fault )|kernel NULL pointer dereference, address: |(?:[A-Z]+ )?stack guard page was hit at )"),
    // 5.6: `, probably for`; 6.10: `Oops: `.
    form(KernelFault, " [#", concat!(r"^(?:Oops: )?(?:general protection fault|divide error|invalid opcode|stack segment|double fault|invalid TSS|segment not present|alignment check|overflow|bounds|int3|simd exception|fpu exception|control protection fault)",
        r"(?:, (?:probably|maybe) for [a-z -]+ 0x[0-9a-f]+)?[:,] ", oops!())),
    form(KernelFault, "Oops: ", concat!("^Oops: ", oops!())),
    form(KernelFault, "PANIC: double fault", r"^(?:traps: )?PANIC: double fault"),
    // POWER.
    form(KernelFault, "Oops: ", r"^Oops: [A-Z][A-Za-z ]+, sig: \d+ \[#\d+\]"),
    // arm64 and arm.
    form(KernelFault, "Unable to handle kernel", r"^Unable to handle kernel [A-Za-z -]+ at (?:virtual )?address [0-9a-f]+"),
    form(KernelFault, "Internal error: ", r"^Internal error: [\w /()-]+(?:: [\w /()-]+)?: [0-9a-f]+ \[#\d+\]"),
    form(KernelFault, "kernel BUG at", r"^kernel BUG at \S+:\d+!$"),
    form(KernelFault, "Kernel panic", r"^Kernel panic - not syncing: "),

    // Not `nfs: RPC call returned error 13`.
    form(NfsNotResponding, "not responding", r"^(?:nfs|lockd): server (?P<server>\S+) not responding, (?:still trying|timed out)"),
    form(NfsResponding, ": server", r"^(?:nfs|lockd): server (?P<server>\S+) OK$"),
    form(NfsLockLost, "Lock reclaim failed", r"^NFS: \w+: Lock reclaim failed"),

    form(LinkDownshift, "Downshift occurred", r"^[\w .+-]{2,64} (?P<device>[\w.-]{1,64}:[0-9a-f]{2}): Downshift occurred from negotiated speed (?P<negotiated>\S+) to actual speed (?P<speed>[^,\s]+)"),
    // 6.13 for all drivers of InfiniBand; before, hfi1 alone.
    form(LinkDown, "Link DOWN", concat!(r"^[\w-]{2,32} ", pci!(), r" (?P<device>[\w-]{2,64}): Port: (?P<port>\d{1,3}) Link DOWN$")),
    form(LinkUp, "Link ACTIVE", concat!(r"^[\w-]{2,32} ", pci!(), r" (?P<device>[\w-]{2,64}): Port: (?P<port>\d{1,3}) Link ACTIVE$")),
    form(LinkDown, "logical state", concat!(r"^hfi1 ", pci!(), r": (?P<device>hfi1_\d+): logical state changed to PORT_DOWN ")),
    form(LinkUp, "logical state", concat!(r"^hfi1 ", pci!(), r": (?P<device>hfi1_\d+): logical state changed to PORT_ACTIVE ")),
    // Not `ib0: Link Down`: a driver names the device first. Not `ata1: SATA link down`.
    form(LinkDown, "ink ", concat!(netdev!(), r"(?:[Dd]own|DOWN)\b")),
    form(LinkUp, "ink ", concat!(netdev!(), speed!())),
    form(LinkDown, "ink ", concat!(driver!(), r"(?:[Dd]own|DOWN)\b")),
    form(LinkUp, "ink ", concat!(driver!(), speed!())),
    // Before 5.3, and since.
    of_bond("definitely down", concat!("^(?:bonding: )?", link!(), ": link status definitely down for interface (?P<device>", link!(), "),")),
    of_bond("definitely down", concat!("^", link!(), r": \(slave (?P<device>", link!(), r")\): link status definitely down,")),

    // Not `EDAC MC: Ver: 3.0.0`, not `EDAC MC0: Giving out device to module`.
    labelled(CORRECTED, "EDAC", r"^EDAC (?:[\w-]+ )?(?P<controller>MC\d+): \d+ CE (?:[\w ,./#-]+ )?on \S", MemoryError),
    labelled(UNCORRECTED, "EDAC", r"^EDAC (?:[\w-]+ )?(?P<controller>MC\d+): \d+ UE (?:[\w ,./#-]+ )?on \S", MemoryError),
    form(MachineCheck, "[Hardware Error]", r"^(?:mce: )?\[Hardware Error\]: CPU (?P<cpu>\d+): Machine Check(?: Exception)?: \S+ Bank (?P<bank>\d+)"),
    form(MachineCheck, "[Hardware Error]", r"^mce: \[Hardware Error\]: Machine check events logged"),
    form(MachineCheck, "APEI", r"^\{\d+\}\[Hardware Error\]: Hardware error from APEI Generic Hardware Error Source"),
    // Before 4.20 `id=0018`, the device's number; 6.10: `message received from`.
    labelled(CORRECTED, "AER", aer!("Correct(?:ed|able)"), PcieError),
    labelled(FATAL, "AER", aer!(r"Uncorrect(?:ed|able) \(Fatal\)"), PcieError),
    labelled(UNCORRECTED, "AER", aer!(r"Uncorrect(?:ed|able)(?: \(Non-Fatal\))?"), PcieError),
    form(CpuThrottled, "cpu clock", r"^(?:mce: |thermal: )?CPU(?P<cpu>\d+): (?:Core|Package) temperature (?:is )?above threshold, cpu clock (?:is )?throttled"),

    form(FilesystemReadonly, "EXT4-fs", concat!(r"^EXT4-fs \(", disk!(), r"\): Remounting filesystem read-only")),
    // Not `User initiated shutdown received. Shutting down filesystem`.
    form(FilesystemReadonly, "XFS", concat!(r"^XFS \(", disk!(), r"\): (?:Filesystem has been shut down|(?:Corruption of |[Ll]og I/O [Ee]rror |Metadata I/O Error |I/O Error |(?:Block|Storage) device removal ).*Shutting down filesystem)")),
    form(FilesystemReadonly, "BTRFS", concat!(r"^BTRFS(?: \w+)? \(device ", disk!(), r"(?:: state \w+)?\): forced readonly")),
    form(FilesystemReadonly, "has been suspended", r"^WARNING: Pool '(?P<device>[\w.: -]{1,255})' has encountered an uncorrectable I/O failure and has been suspended"),
    form(FilesystemError, "EXT4-fs error", concat!(r"^EXT4-fs error \(device ", disk!(), r"\)")),
    form(FilesystemError, "XFS", concat!(r"^XFS \(", disk!(), r"\): (?:Metadata corruption |Metadata CRC error |Corruption |Internal error \S.* at line \d+ of file )")),
    form(FilesystemError, "BTRFS", concat!(r"^BTRFS (?:error|critical) \(device ", disk!(), r"(?:: state \w+)?\)")),

    // Before 4.14 `blk_update_request: `, before 5.0 `print_req_error: `, 5.1 to 5.15 again
    // `blk_update_request: `. Not `operation not supported error` (a discard), `critical nexus
    // error` (a reservation), `recoverable transport error` (one path of several).
    form(DiskError, " error, ", concat!(r"^(?:blk_update_request: |print_req_error: |end_request: )?(?:I/O|critical medium|critical target|protection|timeout|device offline) error, (?:on )?dev ", disk!(), r", sector \d+")),
    form(DiskError, "Buffer I/O error", concat!(r"^Buffer I/O error on dev(?:ice)? ", disk!(), r", logical block \d+")),
    // 6.0: `tag 12 (000c) opcode 0x2 (I/O Cmd)`.
    form(DiskError, "nvme", r"^nvme (?P<device>nvme\d+): (?:I/O (?:tag )?\d+ (?:\([0-9a-f]+\) opcode 0x[0-9a-f]+ \([^)]*\) )?QID \d+ timeout|controller is down|Device not ready|Abort status)"),
];

/// Devices behind which is no disk of the node: images that users mount (a container runtime does it
/// for them), empty drives.
pub(super) fn is_no_disk(device: &str) -> bool {
    ["loop", "ublkb", "sr", "fd"].iter().any(|name| {
        let number = device.strip_prefix(name);
        number.is_some_and(|number| number.starts_with(|digit: char| digit.is_ascii_digit()))
    })
}
