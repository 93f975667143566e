//! Texts of users in messages of the kernel make no event but the one that the message means.
//!
//! [`PRINTED`] lists the messages of Linux that hold a text that users choose, with the file that
//! prints them; new ones belong there. Not there are messages that only root can cause: netfilter's
//! LOG begins with a text of 127 bytes, in namespaces of users too if root sets
//! `net.netfilter.nf_log_all_netns`.

use super::super::kernel_log::{Clock, parse_record};
use super::tests::MESSAGES;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Longest name of a process, in bytes, and of a link.
const NAME_BYTES: usize = 15;

/// Messages with `{name}`, a process's or a thread's; `{text}`, a name of a file, of a cgroup or of
/// an option; `{link}`, a link's in a network namespace of the user; and the kind of the event that
/// each means.
#[rustfmt::skip]
const PRINTED: &[(&str, &str, Option<EventKind>)] = &[
    // The name comes first.
    ("arch/x86/mm/fault.c", "6|{name}[77]: segfault at 0 ip 000055d0c0de1139 sp 00007ffd6a1 error 4 in {text}[55d0c0de1000+1000] likely on CPU 3 (core 1, socket 0)", None),
    ("arch/x86/kernel/traps.c", "6|{name}[77] general protection fault ip:7f sp:7f error:0 in {text}[7f+1000]", None),
    ("arch/x86/kernel/traps.c", "6|{name}[77] trap invalid opcode ip:7f sp:7f error:0 in {text}[7f+1000]", None),
    ("arch/x86/kernel/traps.c", "6|traps: {name}[77] trap divide error ip:7f sp:7f error:0 in {text}[7f+1000]", None),
    ("arch/x86/kernel/signal.c", "6|{name}[77] bad frame in rt_sigreturn frame:7f ip:7f sp:7f orax:f in {text}[7f+1000]", None),
    ("arch/x86/entry/vsyscall", "4|{name}[77] vsyscall attempted with vsyscall=none ip:ffffffffff600000 cs:33 sp:7f ax:0 si:0 di:0", None),
    ("arch/arm64/kernel/traps.c", "6|{name}[77]: unhandled exception: DABT (lower EL), ESR 0x92000007, level 3 translation fault in {text}[aaaa+1000]", None),
    ("mm/page_alloc.c", "4|{name}: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset={text},mems_allowed=0", None),
    ("mm/vmalloc.c", "4|{name}: vmalloc error: size 1, failed to allocate pages, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset={text},mems_allowed=0", None),
    ("mm/oom_kill.c", "4|{name} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", None),
    ("fs/drop_caches.c", "6|{name} (77): drop_caches: 3", None),
    ("kernel/exit.c", "6|{name} (77) used greatest stack depth: 11000 bytes left", None),
    ("net/packet/af_packet.c", "6|{name} uses obsolete (PF_INET,SOCK_PACKET)", None),
    ("net/ipv4/tcp.c", "6|{name}(77): Application bug, race in MSG_PEEK", None),
    ("block/blk-core.c", "6|{name}: attempt to access beyond end of device\nloop0: rw=0, sector=9, nr_sectors = 8 limit=8", None),
    ("kernel/sched/core.c, before 5.9", "6|{name} D    0    77      1 0x00000000", None),
    ("net/core/dev.c", "6|{link}: entered promiscuous mode", None),
    ("net/bridge", "6|{link}: port 1({link}) entered disabled state", None),
    ("drivers/net/bonding", "6|{link}: (slave {link}): link status definitely down, disabling slave", None),
    ("drivers/net/bonding, before 5.3", "6|{link}: link status definitely down for interface {link}, disabling it", None),
    ("drivers/net/bonding", "6|{link}: (slave {link}): Enslaving as an active interface with a down link", None),
    ("net/core/dev.c", "6|{link}: renamed from {link}", None),
    ("net/core/dev.c", "6|{link} (unregistering): left allmulticast mode", None),
    // The text comes later.
    ("mm/oom_kill.c", "6|[     77]  1000    77     2000     1000    90112        0             0 {name}", None),
    ("lib/dump_stack.c", "4|CPU: 3 PID: 77 Comm: {name} Tainted: G        W  OE     5.15.0 #1", None),
    ("lib/dump_stack.c", "4|CPU: 3 UID: 1000 PID: 77 Comm: {name} Not tainted 6.12.0 #1 PREEMPT(voluntary)", None),
    ("kernel/sched/core.c", "6|task:{name} state:D stack:0     pid:77    ppid:1      flags:0x00000000", None),
    ("kernel/module/main.c", "4|Modules linked in: {text}", None),
    ("fs/exec.c", "4|process '{text}' started with executable stack", None),
    ("kernel/capability.c", "6|warning: `{name}' uses 32-bit capabilities (legacy support in use)", None),
    ("net/wireless/wext-core.c", "4|warning: `{name}' uses wireless extensions which will stop working for Wi-Fi 7 hardware; use nl80211", None),
    ("kernel/audit.c", "5|audit: type=1701 audit(1.2:3): auid=1000 uid=1000 gid=1000 ses=1 pid=77 comm=\"{name}\" exe=\"{text}\" sig=11 res=1", None),
    ("kernel/sched/core.c", "3|BUG: scheduling while atomic: {name}/77/0x00000002", None),
    ("mm/page_alloc.c", "1|BUG: Bad page state in process {name}  pfn:12345", None),
    ("kernel/signal.c", "6|potentially unexpected fatal signal 11.\n{name}", None),
    ("net/ipv6/addrconf.c", "6|IPv6: ADDRCONF(NETDEV_CHANGE): {link}: link becomes ready", None),
    ("net/core/dev.c, before 6.4", "6|device {link} entered promiscuous mode", None),
    ("net/bridge", "6|br0: port 1({link}) entered disabled state", None),
    ("net/8021q", "6|8021q: adding VLAN 0 to HW filter on device {link}", None),
    ("kernel/cgroup/pids.c", "6|cgroup: fork rejected by pids controller in /{text}", None),
    ("mm/memcontrol.c", "6|Memory cgroup stats for /{text}:", None),
    ("mm/oom_kill.c", "6|Tasks in /{text} are going to be killed due to memory.oom.group set", None),
    ("mm/oom_kill.c", "6|oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/user.slice/{text},task_memcg=/user.slice/{text},task={name},pid=77,uid=1000", None),
    ("fs/fs_context.c", "3|tmpfs: Unknown parameter '{text}'", None),
    ("fs/fs_context.c", "3|fuse: Bad value for '{text}'", None),
    ("fs/overlayfs", "3|overlayfs: failed to resolve '{text}': -2", None),
    ("fs/ext4", "6|EXT4-fs (loop0): mounted filesystem with ordered data mode. Opts: {text}", None),
    ("fs/ext4", "2|EXT4-fs error (device loop0): ext4_lookup:1855: inode #2: comm {name}: deleted inode referenced: {text}", None),
    ("fs/xfs", "1|XFS (loop0): Corruption of in-memory data (0x8) detected at {text}.  Shutting down filesystem.", None),
    ("NVIDIA's driver", "3|NVRM: API mismatch: the client '{name}' (pid 77)\nNVRM: has the version {text}, but\nNVRM: this kernel module has the version 580.95.05.", None),
    // The text is in an event.
    ("mm/oom_kill.c", "3|Memory cgroup out of memory: Killed process 77 ({name}) total-vm:100kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:40kB oom_score_adj:0", Some(EventKind::OomKill)),
    ("kernel/hung_task.c", "3|INFO: task {name}:77 blocked for more than 122 seconds.", Some(EventKind::HungTask)),
    ("kernel/watchdog.c", "0|watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [{name}:77]", Some(EventKind::Lockup)),
    ("NVIDIA's driver", "3|NVRM: Xid (PCI:0000:C3:00): 31, pid=77, name={name}, Ch 00000009, intr 00000000. MMU Fault", Some(EventKind::Xid)),
    ("fs/ext4", "2|EXT4-fs error (device sda1): ext4_lookup:1855: inode #2: comm {name}: deleted inode referenced: {text}", Some(EventKind::FilesystemError)),
];

/// The message with the texts in place, as a reader of `/dev/kmsg` gets it, and read.
fn kind_of(
    recogniser: &mut Recogniser,
    printed: &str,
    name: &[u8],
    text: &[u8],
) -> Option<EventKind> {
    // The kernel cuts longer names.
    let name = &name[..name.len().min(NAME_BYTES)];
    // Names of links have no blanks, slashes or colons.
    let is_of_link = |byte: &&u8| !byte.is_ascii_whitespace() && !b"/:".contains(byte);
    let link: Vec<u8> = name.iter().filter(is_of_link).copied().collect();
    let (level, message) = printed.split_once('|').unwrap();
    let mut bytes = message.as_bytes().to_owned();
    for (place, value) in [("{name}", name), ("{link}", &link), ("{text}", text)] {
        bytes = replaced(&bytes, place.as_bytes(), value);
    }
    let record = format!("{level},1,1,-;{}\n", escaped(&bytes));
    let record = parse_record(&record, &Clock::now()).unwrap();
    let found = recogniser.read(&record.message, record.level)?;
    Some(found.kind)
}

fn replaced(bytes: &[u8], place: &[u8], value: &[u8]) -> Vec<u8> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(place.len()).position(|part| part == place) {
        found.extend_from_slice(&rest[..at]);
        found.extend_from_slice(value);
        rest = &rest[at + place.len()..];
    }
    found.extend_from_slice(rest);
    found
}

/// As `msg_print_ext_body` of the kernel escapes a message.
fn escaped(bytes: &[u8]) -> String {
    let escape = |byte: &u8| match byte {
        b'\\' | 0..=0x1f | 0x7f.. => format!("\\x{byte:02x}"),
        _ => char::from(*byte).to_string(),
    };
    bytes.iter().map(escape).collect()
}

/// Messages that are events, which users would like to print.
fn wanted() -> Vec<&'static str> {
    let others = [
        "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32",
        "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\nNVRM: fallen off the bus and is not responding to commands.",
        "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:742)",
        "Oops: 0000 [#1] SMP",
        "int3: 0000 [#1] SMP",
        "ib0: Link Down",
        "kernel BUG at x",
        "Out of memory: Killed process 1 (init)",
    ];
    let events = MESSAGES
        .iter()
        .filter(|(_, event)| !event.is_empty())
        .map(|(message, _)| *message);
    events.chain(others).collect()
}

fn recogniser() -> Recogniser {
    Recogniser::new(Path::new("/nonexistent"))
}

/// The name is a part of each message that is an event, from one of its words on; and the text is
/// the message itself, on a line of its own or not.
#[test]
fn names_that_try_are_no_events() {
    let mut recogniser = recogniser();
    let mut names = BTreeMap::new();
    for message in wanted() {
        let words = message.match_indices(' ').map(|(at, _)| at + 1);
        for begin in std::iter::once(0).chain(words.take(5)) {
            for length in [5, 11, 13, 14, 15] {
                let rest = &message.as_bytes()[begin..];
                names.insert(&rest[..rest.len().min(length)], message);
            }
        }
    }

    for (count, (name, message)) in names.into_iter().enumerate() {
        let text = match count % 3 {
            0 => message.to_owned(),
            1 => format!("x\n{message}"),
            _ => format!("/{message}'\n"),
        };
        for (file, printed, kind) in PRINTED {
            let found = kind_of(&mut recogniser, printed, name, text.as_bytes());
            let name = String::from_utf8_lossy(name);
            assert_eq!(found, *kind, "{file}: {printed}, {name:?}, {text:?}");
        }
    }
}

/// The messages that were found first.
#[test]
fn a_program_that_fails_under_the_name_of_a_fault_is_no_fault() {
    let mut recogniser = recogniser();
    for name in [
        "kernel BUG at x",
        "EDAC MC0: 1 UE ",
        "ib0: Link Down",
        "NVRM: Xid (PCI",
        "mce: [Hardware",
        "nfs: server x n",
        "EXT4-fs error (",
        "Oops: 0000 [#1]",
        "WARNING: Pool '",
        "I/O error, dev ",
        "a\nEDAC MC0: 1 U",
    ] {
        for (file, printed, kind) in PRINTED {
            let found = kind_of(
                &mut recogniser,
                printed,
                name.as_bytes(),
                b"a\nkernel BUG at x:1!",
            );
            assert_eq!(found, *kind, "{file}: {printed}, {name:?}");
        }
    }
}

#[test]
fn cgroups_of_users_are_no_jobs() {
    let job = |line: &str| {
        let mut recogniser = recogniser();
        assert_eq!(recogniser.read(line, None), None);
        let kill = "Memory cgroup out of memory: Killed process 7 (a,task=b) total-vm:1kB";
        let labels = recogniser.read(kill, None).unwrap().labels;
        labels.get("jobid").map(str::to_owned)
    };
    let own = "/user.slice/user-2001.slice/user@2001.service/app.slice";
    let slurm = "/system.slice/slurmstepd.scope/job_42";
    let killed = "task=a,task=b,pid=7,uid=2001";
    let begin = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)";
    // Cgroups of the user that imitate a job, or fields of the message.
    for paths in [
        format!("cpuset=job_42,mems_allowed=0,oom_memcg={own}/job_42,task_memcg={own}/job_42"),
        format!("cpuset=x,mems_allowed=0,oom_memcg={own},task_memcg={own}/x,task_memcg={slurm}"),
        format!(
            "cpuset=x,mems_allowed=0,oom_memcg={own}/x,task_memcg={slurm},task_memcg={own}/x,task_memcg={slurm}"
        ),
        format!(
            "cpuset=x,mems_allowed=0,oom_memcg={own}/x,global_oom,task_memcg={slurm},task_memcg={own}/x,global_oom,task_memcg={slurm}"
        ),
        format!(
            "cpuset=x,mems_allowed=0,global_oom,task_memcg={own}/x,oom_memcg={slurm},task_memcg={slurm}"
        ),
        format!(
            "cpuset=x,oom_memcg=,mems_allowed=0,global_oom,task_memcg={own}/x,global_oom,task_memcg={slurm}"
        ),
    ] {
        assert_eq!(job(&format!("{begin},{paths},{killed}")), None, "{paths}");
    }
    // The job's own cgroups, whatever their names, are the job's.
    for paths in [
        format!("cpuset=x,mems_allowed=0,oom_memcg={slurm},task_memcg={slurm}/step_0"),
        format!("cpuset=x,mems_allowed=0,oom_memcg=/,task_memcg={slurm}/step_0"),
        format!("cpuset=x,mems_allowed=0,global_oom,task_memcg={slurm}/step_0/x,task_memcg={own}"),
        format!(
            "cpuset=x,mems_allowed=0,oom_memcg={slurm},task_memcg={slurm}/x,task_memcg=/system.slice/slurmstepd.scope/job_43"
        ),
    ] {
        let job = job(&format!("{begin},{paths},{killed}"));
        assert_eq!(job.as_deref(), Some("42"), "{paths}");
    }
}

#[test]
fn a_fault_is_never_information() {
    let read = |level: &str| {
        let record = format!("{level},1,1,-;kernel BUG at mm/slub.c:306!");
        let record = parse_record(&record, &Clock::now())?;
        recogniser().read(&record.message, record.level)
    };
    assert!(read("2").is_some() && read("4").is_some());
    assert_eq!(read("6"), None);
    assert_eq!(
        read("10"),
        None,
        "written by a program, with the facility of users"
    );
}

/// Names of processes: bytes, and pieces of the messages that are events.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let piece = (prop::sample::select(wanted()), any::<prop::sample::Index>()).prop_map(
        |(message, begin)| {
            let bytes = message.as_bytes();
            bytes[begin.index(bytes.len())..].to_vec()
        },
    );
    prop_oneof![
        prop::collection::vec(1..=255_u8, 0..=NAME_BYTES),
        piece,
        (
            prop::collection::vec(1..=255_u8, 0..8),
            prop::sample::select(wanted())
        )
            .prop_map(|(begin, message)| [&begin[..], message.as_bytes()].concat()),
    ]
}

proptest! {
    #[test]
    fn arbitrary_names_are_no_events(name in name(), text in name(), printed in prop::sample::select(PRINTED)) {
        let (_, message, kind) = printed;
        let found = kind_of(&mut recogniser(), message, &name, &text);
        prop_assert_eq!(found, kind, "{}: {:?}", message, String::from_utf8_lossy(&name));
    }
}
