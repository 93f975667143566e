use super::history::KEPT_EVENTS;
use super::*;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

const XID: &str = "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.\n";

struct Node {
    directory: tempfile::TempDir,
}

impl Node {
    fn new(log: &str) -> Self {
        let node = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        std::fs::write(node.log(), log).unwrap();
        node
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("kmsg")
    }

    fn write(&self, line: &str) {
        File::options()
            .append(true)
            .open(self.log())
            .unwrap()
            .write_all(line.as_bytes())
            .unwrap();
    }

    /// An exporter's life, from one start to the next.
    fn start(&self, with_state: bool) -> Events {
        let state = self.directory.path().join("state");
        let until = Instant::now() + Duration::from_secs(20);
        // The thread of the life before may need a second to end.
        let events = loop {
            match Events::open(self.directory.path(), with_state.then_some(&*state)) {
                Ok(events) => break events,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        events.follow(&self.log(), self.directory.path()).unwrap();
        events
    }
}

/// Waits until this many events are kept, and returns their messages.
fn wait_for(events: &Events, count: usize) -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(20);
    while events.shown().kept.len() < count {
        assert!(Instant::now() < until, "{:?}", events.shown().kept);
        std::thread::sleep(Duration::from_millis(5));
    }
    kept(events)
}

fn kept(events: &Events) -> Vec<String> {
    events
        .shown()
        .kept
        .iter()
        .map(|event| event.message.clone())
        .collect()
}

fn oom(pid: u32) -> String {
    format!("Out of memory: Killed process {pid} (python)\n")
}

#[test]
fn a_restart_neither_repeats_nor_loses_an_event() {
    let node = Node::new(&oom(1));
    let events = node.start(true);
    wait_for(&events, 1);
    node.write(&oom(2));
    wait_for(&events, 2);
    let newest = events.shown().kept.back().unwrap().id;
    drop(events);

    // Lines that are written while no exporter runs are read by the next one.
    node.write("harmless\n");
    node.write(&oom(3));
    let events = node.start(true);
    let messages = wait_for(&events, 3);
    assert_eq!(
        messages,
        [1, 2, 3].map(|pid| oom(pid).trim_end().to_owned())
    );
    let shown = events.shown();
    assert!(shown.kept.back().unwrap().id > newest);
    let count = shown.counts[&EventKind::OomKill];
    assert_eq!(count.total, 1, "counted since this start");
    drop(shown);
    assert!(
        matches!(events.after(newest), NextEvent::Event(event) if event.message.contains("process 3"))
    );
}

/// A machine that is up for long has a log full of old faults when the first exporter starts.
#[test]
fn events_before_the_first_start_are_kept_but_not_sent() {
    let node = Node::new(&[oom(1), oom(2)].concat());
    let events = node.start(true);
    let present = *events.subscribe().borrow();
    wait_for(&events, 2);
    assert_eq!(events.after(present), NextEvent::Nothing);
    assert!(
        matches!(events.after(events.oldest()), NextEvent::Event(event) if event.message.contains("process 1"))
    );
    assert_eq!(events.shown().counts[&EventKind::OomKill].total, 2);
    drop(events);

    // A restart before the first new event: who read until the first start continues from there.
    let events = node.start(true);
    wait_for(&events, 2);
    assert_eq!(events.after(present), NextEvent::Nothing);
    node.write(&oom(3));
    wait_for(&events, 3);
    assert!(
        matches!(events.after(present), NextEvent::Event(event) if event.message.contains("process 3"))
    );
    drop(events);
    // From now on it is known which events were sent: those of a time without an exporter are new.
    node.write(&oom(4));
    let events = node.start(true);
    let newest = *events.subscribe().borrow();
    wait_for(&events, 4);
    assert!(newest > present);
    assert!(
        matches!(events.after(newest), NextEvent::Event(event) if event.message.contains("process 4"))
    );
}

#[test]
fn without_a_state_directory_the_present_is_the_beginning() {
    let node = Node::new(&oom(1));
    let events = node.start(false);
    wait_until_followed(&events);
    node.write(&oom(2));
    assert_eq!(
        wait_for(&events, 1),
        ["Out of memory: Killed process 2 (python)"]
    );
}

fn wait_until_followed(events: &Events) {
    let until = Instant::now() + Duration::from_secs(20);
    while !events.shown().log.is_followed {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_xid_from_the_kernel_log_and_nvml_is_one_event() {
    let node = Node::new("");
    let events = node.start(true);
    events.gpus([("00000000:06:00.0".to_owned(), "GPU-a".to_owned())]);
    wait_until_followed(&events);
    let count = |events: &Events| {
        events
            .shown()
            .xids
            .get(&("GPU-a".to_owned(), 79))
            .map(|count| count.total)
    };

    // The kernel's line comes first, and NVML's report adds nothing.
    node.write(XID);
    wait_for(&events, 1);
    events.xid_by_nvml("00000000:06:00.0", 79);
    assert_eq!(count(&events), Some(1));
    assert_eq!(
        events.shown().kept[0].labels.to_string(),
        r#"{pci_bus_id="0000:06:00.0", uuid="GPU-a", xid="79"}"#
    );
    // The kernel's line comes later: it is known, also to the life after this one.
    events.xid_by_nvml("00000000:06:00.0", 31);
    node.write("NVRM: Xid (PCI:0000:06:00): 31, pid=1, name=python, MMU Fault\n");
    node.write(&oom(1));
    let messages = wait_for(&events, 3);
    assert_eq!(messages[1], "NVML: Xid (00000000:06:00.0): 31");
    drop(events);
    let events = node.start(true);
    wait_until_followed(&events);
    node.write(&oom(2));
    assert_eq!(wait_for(&events, 4).len(), 4);
}

#[test]
fn a_gpu_lost_without_an_xid_is_an_event_by_either_source() {
    let node = Node::new("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.\n");
    let events = node.start(true);
    wait_for(&events, 1);

    // The first is known from the kernel, the second is reported twice.
    events.gpu_lost_by_nvml("00000000:18:00.0");
    events.gpu_lost_by_nvml("00000000:19:00.0");
    events.gpu_lost_by_nvml("00000000:19:00.0");
    let kinds: Vec<_> = events
        .shown()
        .kept
        .iter()
        .map(|event| (event.kind, event.labels.to_string()))
        .collect();
    let lost = |bus_id: &str| (EventKind::GpuLost, format!("{{pci_bus_id=\"{bus_id}\"}}"));
    assert_eq!(kinds, [lost("0000:18:00.0"), lost("0000:19:00.0")]);
}

#[test]
fn a_replaced_log_is_read_from_its_beginning() {
    let node = Node::new(&oom(1).repeat(2));
    let events = node.start(true);
    wait_for(&events, 2);
    // Shorter than before, so it is another file.
    std::fs::write(node.log(), oom(2)).unwrap();
    wait_for(&events, 3);
    drop(events);
    // Replaced while no exporter runs.
    std::fs::write(node.log(), "x\n").unwrap();
    let events = node.start(true);
    wait_until_followed(&events);
    node.write(&oom(3));
    assert_eq!(wait_for(&events, 4).last().unwrap(), oom(3).trim_end());
}

#[test]
fn a_log_that_comes_later_is_followed() {
    let node = Node::new("");
    std::fs::remove_file(node.log()).unwrap();
    let events = node.start(false);
    let until = Instant::now() + Duration::from_secs(20);
    while events.shown().log.problem.is_none() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(node.log(), oom(1)).unwrap();
    wait_for(&events, 1);
    assert!(events.shown().log.is_followed && events.shown().log.problem.is_none());
}

#[test]
fn a_reader_is_notified_of_lost_events() {
    let events = Events::open(Path::new("/nonexistent"), None).unwrap();
    let begin = events.oldest();
    assert_eq!(events.after(begin), NextEvent::Nothing);
    assert_eq!(
        events.after(begin - 1),
        NextEvent::Gap,
        "an exporter before this one"
    );
    assert_eq!(
        events.after(begin + 1_000_000_000),
        NextEvent::Gap,
        "a node with another clock"
    );
    for n in 0..KEPT_EVENTS as u64 + 5 {
        let told = Recognised {
            kind: EventKind::OomKill,
            labels: Labels::new(),
            message: n.to_string(),
        };
        // A second apart, so that it is no flood.
        events.record(
            EventSource::Kernel,
            told,
            Timestamp::from_seconds(n as i64),
            None,
        );
    }
    assert_eq!(events.shown().kept.len(), KEPT_EVENTS);
    assert_eq!(events.after(begin), NextEvent::Gap);
    let oldest = events.oldest();
    assert!(matches!(events.after(oldest), NextEvent::Event(event) if event.message == "5"));
    let ids: Vec<_> = events.shown().kept.iter().map(|event| event.id).collect();
    assert!(ids.is_sorted_by(|one, next| one < next));
}

#[test]
fn a_disk_that_is_full_costs_no_event() {
    let node = Node::new("");
    let events = node.start(true);
    wait_until_followed(&events);
    // The state directory is removed: appending to the open file still works, rewriting does not.
    std::fs::remove_dir_all(node.directory.path().join("state")).unwrap();
    for pid in 0..5 {
        node.write(&oom(pid));
    }
    wait_for(&events, 5);
    events.sync();
}

#[test]
fn a_cgroup_named_by_the_sluid_has_the_job_that_the_node_knows() {
    let kill = "\
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/system.slice/slurmstepd.scope/s5K1KKYAYG5D00,task_memcg=/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0,task=R,pid=9,uid=1000
Memory cgroup out of memory: Killed process 9 (R) total-vm:100kB
";
    let node = Node::new("");
    let events = node.start(true);
    wait_until_followed(&events);

    // The node does not know the job yet.
    node.write(kill);
    wait_for(&events, 1);
    let known = ("s5K1KKYAYG5D00".to_owned(), "4711".to_owned());
    events.jobs_by_sluid([known].into());
    node.write(kill);
    wait_for(&events, 2);
    let jobs: Vec<_> = events
        .shown()
        .kept
        .iter()
        .map(|event| event.labels.get("jobid").map(str::to_owned))
        .collect();
    assert_eq!(jobs, [None, Some("4711".to_owned())]);
    assert_eq!(
        events.shown().kept[0].labels.get("sluid"),
        Some("s5K1KKYAYG5D00")
    );
}

#[test]
fn what_was_held_back_is_sent_once_there_is_room_with_its_number() {
    let node = Node::new("");
    let events = node.start(true);
    wait_until_followed(&events);
    let fault = |gpu: u32, pid: u32| {
        format!("NVRM: Xid (PCI:0000:0{gpu}:00): 31, pid={pid}, name=python, MMU Fault\n")
    };
    // More of one GPU's faults than are sent one by one, then those of others.
    let burst: String = (0..150).map(|pid| fault(6, pid)).collect();
    node.write(&(burst + &fault(7, 1) + XID));
    let messages = wait_for(&events, 103);
    let others: Vec<_> = messages[100..].iter().map(|text| text.trim_end()).collect();
    assert!(others.contains(&fault(7, 1).trim_end()));
    assert!(others.contains(&XID.trim_end()));
    assert!(others.contains(
        &"NVRM: Xid (PCI:0000:06:00): 31, pid=149, name=python, MMU Fault (and 49 more like it, \
          not sent one by one)"
    ));
    let shown = events.shown();
    let count = shown.counts[&EventKind::Xid];
    assert_eq!((count.total, count.untold), (152, 50));
}
