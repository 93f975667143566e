//! Event rules, with the kernel lines that fire them.

use super::*;

/// An owner's mail needs the label `user`: uncorrectable memory errors once had none.
#[test]
fn alerts_for_owners_name_the_user() {
    let for_owners = |rule: &EventRule| {
        rule.labels
            .iter()
            .find(|(name, _)| name == "notify")
            .is_some()
    };

    let mut rules = 0;
    for rule in event_rules().iter().filter(|rule| for_owners(rule)) {
        rules += 1;
        assert!(rule.by.iter().any(|name| name == "user"), "{}", rule.name);
    }
    assert!(rules > 3, "only {rules} event rules are for owners");
}

/// Lines of the kernel log, and exactly the alerts that they fire.
#[test]
fn every_event_rule_has_a_scenario_that_fires_it() {
    let xid = |number: u32, seconds: i64, more: &[(&str, &str)]| {
        let number = number.to_string();
        let labels = [
            ("cluster", "lab"),
            ("node", "g01"),
            ("uuid", "GPU-1"),
            ("xid", &number),
        ];
        event(
            EventKind::Xid,
            seconds,
            labels.into_iter().chain(more.iter().copied()).collect(),
        )
    };
    let on_node = |kind, seconds, more: &[(&str, &str)]| {
        event(
            kind,
            seconds,
            [("cluster", "lab"), ("node", "g01")]
                .into_iter()
                .chain(more.iter().copied())
                .collect(),
        )
    };

    let job = |id| [("jobid", id), ("user", "ada")];
    // The baseboard controller's log names the sensor and the event.
    let bmc = |sensor_type, event, severity| {
        let labels = [
            ("sensor_type", sensor_type),
            ("sensor", "0x51"),
            ("event", event),
            ("severity", severity),
        ];
        on_node(EventKind::HardwareLog, 0, &labels)
    };
    let scenarios: Vec<(&str, Vec<Event>, &[&str])> = vec![
        ("off the bus", vec![xid(79, 0, &[])], &["GpuFellOffBus"]),
        (
            "off the bus without an XID",
            vec![on_node(
                EventKind::GpuLost,
                0,
                &[("pci_bus_id", "0000:01:00.0")],
            )],
            &["GpuFellOffBus"],
        ),
        (
            "a reset is needed",
            vec![xid(119, 0, &[])],
            &["GpuXidResetRequired"],
        ),
        (
            "double-bit error",
            vec![xid(48, 0, &job("7"))],
            &["GpuXidDoubleBitEcc"],
        ),
        (
            "contained error",
            vec![xid(94, 0, &job("7"))],
            &["GpuContainedMemError"],
        ),
        ("NVLink", vec![xid(74, 0, &[])], &["GpuXidWorkflow"]),
        (
            "a bug in a job",
            vec![xid(31, 0, &job("7")), xid(31, 5, &job("7"))],
            &["GpuXidUserApp"],
        ),
        (
            "two jobs on one GPU",
            vec![xid(31, 0, &job("7")), xid(13, 900, &job("8"))],
            &["GpuXidRepeatedSameGpu", "GpuXidUserApp"],
        ),
        (
            "two jobs, two days apart",
            vec![xid(31, 0, &job("7")), xid(13, 180_000, &job("8"))],
            &["GpuXidUserApp"],
        ),
        (
            "one job on two GPUs",
            vec![
                xid(31, 0, &job("7")),
                xid(31, 1, &[("jobid", "7"), ("user", "ada"), ("uuid", "GPU-2")]),
            ],
            &["GpuXidManyGpus", "GpuXidUserApp"],
        ),
        (
            "again and again",
            (0..5).map(|n| xid(46, n * 300, &[])).collect(),
            &["GpuXidFatalRepeat", "GpuXidResetRequired"],
        ),
        (
            "five lines of one fault",
            (0..5).map(|n| xid(46, n, &[])).collect(),
            &["GpuXidResetRequired"],
        ),
        (
            "one fault that comes until the reset",
            (0..8).map(|n| xid(119, n * 1200, &[])).collect(),
            &["GpuXidResetRequired", "GpuXidAfterReset"],
        ),
        (
            "in three starts of the machine",
            (0..3)
                .map(|n| xid(79, n * 90_000, &[("boot_id", ["a", "b", "c"][n as usize])]))
                .collect(),
            &["GpuFellOffBus", "GpuXidAfterReboots"],
        ),
        (
            "often in two starts of the machine",
            (0..70)
                .map(|n| {
                    xid(
                        79,
                        n * 12_000,
                        &[("boot_id", if n < 40 { "a" } else { "b" })],
                    )
                })
                .collect(),
            &["GpuFellOffBus", "GpuXidFatalRepeat"],
        ),
        (
            "many corrected errors",
            vec![xid(92, 0, &[])],
            &["GpuXidCorrectedEcc"],
        ),
        (
            "two processes of no job",
            vec![
                xid(31, 0, &[]),
                xid(31, 900, &[]),
                xid(31, 901, &[("uuid", "GPU-2")]),
            ],
            &["GpuXidUserApp"],
        ),
        (
            "downshift",
            vec![on_node(EventKind::LinkDownshift, 0, &[("device", "phy0")])],
            &["NetLinkDownshift"],
        ),
        (
            "nobody knows",
            vec![xid(999, 0, &[])],
            &["GpuXidUnexpected"],
        ),
        (
            "nothing to do",
            vec![xid(45, 0, &job("7")), xid(63, 1, &[])],
            &[],
        ),
        (
            "blocked tasks",
            (0..3)
                .map(|n| on_node(EventKind::HungTask, n * 60, &[]))
                .collect(),
            &["NodeKernelHang"],
        ),
        (
            "two blocked tasks",
            (0..2)
                .map(|n| on_node(EventKind::HungTask, n * 60, &[]))
                .collect(),
            &[],
        ),
        (
            "out of memory",
            vec![on_node(EventKind::OomKill, 0, &[])],
            &["NodeOomKill"],
        ),
        (
            "a job out of memory",
            vec![on_node(EventKind::OomKill, 0, &job("7"))],
            &["JobOomKill"],
        ),
        (
            "file server",
            vec![on_node(
                EventKind::NfsNotResponding,
                0,
                &[("server", "nas")],
            )],
            &["NfsServerSaidNotResponding"],
        ),
        (
            "locks",
            vec![on_node(EventKind::NfsLockLost, 0, &[])],
            &["NfsLockLost"],
        ),
        (
            "stuck CPU",
            vec![on_node(EventKind::Lockup, 0, &[("lockup", "soft")])],
            &["NodeLockup"],
        ),
        (
            "oops",
            vec![on_node(EventKind::KernelFault, 0, &[])],
            &["NodeKernelFault"],
        ),
        (
            "memory",
            vec![on_node(
                EventKind::MemoryError,
                0,
                &[("severity", "uncorrected")],
            )],
            &["NodeMemoryUncorrected"],
        ),
        (
            "memory, corrected",
            vec![on_node(
                EventKind::MemoryError,
                0,
                &[("severity", "corrected")],
            )],
            &[],
        ),
        (
            "machine check",
            vec![on_node(EventKind::MachineCheck, 0, &[("cpu", "3")])],
            &["NodeMachineCheck"],
        ),
        (
            "PCI Express",
            vec![on_node(EventKind::PcieError, 0, &[("severity", "fatal")])],
            &["NodePcieError"],
        ),
        (
            "PCI Express, corrected",
            vec![on_node(
                EventKind::PcieError,
                0,
                &[("severity", "corrected")],
            )],
            &[],
        ),
        (
            "a hot CPU",
            (0..3)
                .map(|n| on_node(EventKind::CpuThrottled, n * 600, &[]))
                .collect(),
            &["NodeCpuTooHot"],
        ),
        (
            "a CPU hot once on many cores",
            (0..64)
                .map(|n| on_node(EventKind::CpuThrottled, n / 8, &[]))
                .collect(),
            &[],
        ),
        (
            "disk",
            vec![on_node(EventKind::DiskError, 0, &[("device", "sda")])],
            &["DiskError"],
        ),
        (
            "power supply",
            vec![bmc("power_supply", "input lost", "critical")],
            &["NodeHardwareLog"],
        ),
        (
            "one module twice, and another",
            vec![
                bmc("memory", "uncorrectable ECC error", "critical"),
                bmc("memory", "uncorrectable ECC error", "critical"),
                bmc("memory", "too many correctable ECC errors", "warning"),
            ],
            &["NodeHardwareLog", "NodeHardwareLogWarning"],
        ),
        (
            "a battery",
            vec![bmc("battery", "battery low", "warning")],
            &["NodeHardwareLogWarning"],
        ),
        (
            "a severity of nobody's",
            vec![bmc("fan", "spins", "info")],
            &[],
        ),
        (
            "file system",
            vec![on_node(
                EventKind::FilesystemError,
                0,
                &[("device", "sda1")],
            )],
            &["FilesystemDamaged"],
        ),
        (
            "no more writes",
            vec![on_node(
                EventKind::FilesystemReadonly,
                0,
                &[("device", "sda1")],
            )],
            &["FilesystemWentReadonly"],
        ),
        (
            "no start",
            vec![on_node(
                EventKind::GpuInitFailed,
                0,
                &[("pci_bus_id", "0000:01:00.0")],
            )],
            &["GpuInitFailed"],
        ),
        (
            "NVSwitch",
            vec![on_node(EventKind::Sxid, 0, &[("sxid", "12028")])],
            &["NvswitchFault"],
        ),
        (
            "good news",
            vec![
                on_node(EventKind::NfsResponding, 0, &[]),
                on_node(EventKind::LinkUp, 1, &[]),
            ],
            &[],
        ),
        (
            "cable",
            vec![on_node(EventKind::LinkDown, 0, &[("device", "eth0")])],
            &["NetLinkDown"],
        ),
    ];
    let files = event_files();

    let mut fired_ever = BTreeSet::new();
    let mut spared = BTreeSet::new();

    let met: BTreeSet<_> = scenarios
        .iter()
        .flat_map(|(_, events, _)| events)
        .map(|event| event.kind)
        .collect();
    assert!(
        EventKind::ALL.iter().all(|kind| met.contains(kind)),
        "every kind of event is met in a scenario"
    );

    for (name, events, expected) in scenarios {
        let mut run = EventRun::new(&files, XidTable::shipped().clone());
        // Each event is read in the second of its line.
        for event in &events {
            run.event(event, &[], &Labels::new(), "http://takt", event.at);
        }

        let fired: BTreeSet<_> = run
            .iter()
            .filter(|(_, _, instance)| instance.fired_at.is_some())
            .filter_map(|(_, _, instance)| instance.labels.get("alertname"))
            .collect();
        assert_eq!(fired, expected.iter().copied().collect(), "{name}");

        // A rule of the same kind that did not fire here has its counterexample.
        let kinds: BTreeSet<_> = events.iter().map(|event| event.kind).collect();
        let alike = event_rules()
            .into_iter()
            .filter(|rule| rule.when.iter().any(|when| kinds.contains(&when.kind)))
            .map(|rule| rule.name)
            .filter(|name| !fired.contains(name.as_str()));

        spared.extend(alike);
        fired_ever.extend(fired.into_iter().map(str::to_owned));
    }

    let rules = event_rules();
    let names: BTreeSet<_> = rules.iter().map(|rule| rule.name.clone()).collect();
    assert_eq!(
        fired_ever, names,
        "every rule fires in one of the scenarios"
    );
    // A rule over all events of its kinds fires with each such event.
    let without: Vec<_> = rules
        .iter()
        .filter(|rule| {
            rule.repeat.times > 1
                || rule.when.iter().any(|when| {
                    !when.xid.is_empty() || !when.class.is_empty() || !when.matchers.0.is_empty()
                })
        })
        .filter(|rule| !spared.contains(&rule.name))
        .map(|rule| rule.name.as_str())
        .collect();
    assert_eq!(
        without, [""; 0],
        "no scenario has an event of the kind that these must not fire for"
    );
}

fn event(kind: EventKind, seconds: i64, labels: Labels) -> Event {
    Event {
        id: 0,
        at: Timestamp::from_seconds(seconds),
        kind,
        labels,
        message: "a line".to_owned(),
    }
}
