//! The shipped rules: Takt and Debian's promtool accept them, and every rule has a scenario that
//! fires it and a similar one that must not.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test says what is missing by failing, and what it skips"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use takt_alerts::alert::Alert;
use takt_alerts::config::AlertsConfig;
use takt_alerts::events::xid::XidTable;
use takt_alerts::events::{EndCondition, EventFile, EventRule, EventRun};
use takt_alerts::promtest::{Test, TestFile};
use takt_alerts::routing::config::Config;
use takt_alerts::routing::maintenance::Maintenance;
use takt_alerts::routing::{Router, Settings};
use takt_alerts::rules::{Rule, RuleFile};
use takt_model::{Event, EventKind, Labels, Timestamp};

fn pack() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards/rules")
}

fn files(directory: &Path, suffix: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .map(|path| {
            (
                path.display().to_string(),
                std::fs::read_to_string(&path).unwrap(),
            )
        })
        .collect();
    assert!(!files.is_empty(), "no {suffix} in {}", directory.display());
    files.sort();
    files
}

fn alert_names() -> BTreeSet<String> {
    let files = files(&pack(), ".rules.yml");
    let groups = files.iter().flat_map(|(name, text)| {
        RuleFile::read(name, text)
            .unwrap_or_else(|e| panic!("{e}"))
            .groups
    });
    let rules: Vec<_> = groups.flat_map(|group| group.rules).collect();
    rules
        .iter()
        .filter_map(|rule| match rule {
            Rule::Alerting(rule) => {
                let severity = rule.labels.iter().find(|(name, _)| name == "severity");
                let severity = severity
                    .unwrap_or_else(|| panic!("{} has no severity", rule.name))
                    .1
                    .source();
                assert!(
                    ["critical", "warning", "info", "none"].contains(&severity),
                    "{}: {severity}",
                    rule.name
                );
                assert!(
                    rule.annotations.iter().any(|(name, _)| name == "summary"),
                    "{} says nothing",
                    rule.name
                );
                Some(rule.name.clone())
            }
            Rule::Recording(_) => None,
        })
        .collect()
}

/// A rule over an undefined threshold compares with an empty result and never fires.
#[test]
fn thresholds_are_set_once_and_used() {
    let named = |text: &str, before: &str, after: char| -> BTreeSet<String> {
        let names = text
            .split(before)
            .skip(1)
            .map(|rest| rest.split(after).next().unwrap().to_owned());
        names.collect()
    };
    let text: String = files(&pack(), ".rules.yml")
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    let set = named(&text, "record: takt_threshold, labels: {name: ", '}');
    assert!(!set.is_empty());
    let mut used = named(&text, "scalar(takt_threshold{name=\"", '"');
    used.remove("…"); // the file's own explanation
    assert_eq!(used, set);
}

fn scenarios() -> Vec<Test> {
    let tests = files(&pack().join("tests"), ".test.yml");
    let tests = tests.iter().flat_map(|(name, text)| {
        TestFile::read(name, text)
            .unwrap_or_else(|e| panic!("{e}"))
            .tests
    });
    tests.collect()
}

#[test]
fn every_rule_has_a_scenario_that_fires_it() {
    let tests = scenarios();
    let expected = tests
        .iter()
        .flat_map(|test| &test.expressions)
        .flat_map(|expression| &expression.expected);
    let fired: BTreeSet<String> = expected
        .filter_map(|(labels, _)| labels.get("alertname").map(str::to_owned))
        .collect();
    assert_eq!(fired, alert_names());
}

/// Each scenario also has a similar case without an alert: the same series of another node, cluster
/// or job, at an instant at which all firing alerts are compared.
#[test]
fn every_rule_has_a_scenario_that_must_not_fire_it() {
    let mut with_twin = BTreeSet::from(["Watchdog".to_owned()]);
    for test in scenarios() {
        for all in &test.expressions {
            for (labels, _) in &all.expected {
                let Some(alert) = labels.get("alertname") else {
                    continue;
                };
                let mut told_by = labels.iter().filter(|(name, _)| *name != "alertname");
                let has_twin = told_by.any(|(name, _)| {
                    let is_expected = |value: &str| {
                        let same = |labels: &Labels| {
                            labels.get(name) == Some(value)
                                && labels.get("alertname") == Some(alert)
                        };
                        all.expected.iter().any(|(labels, _)| same(labels))
                    };
                    test.series
                        .iter()
                        .filter_map(|(labels, _)| labels.get(name))
                        .any(|value| !is_expected(value))
                });
                with_twin.extend(has_twin.then(|| alert.to_owned()));
            }
        }
    }
    let without: Vec<_> = alert_names().difference(&with_twin).cloned().collect();
    assert_eq!(
        without, [""; 0],
        "nothing shows what these must not fire for"
    );
}

/// Alerts that the server raises without a rule.
const OF_THE_SERVER: [&str; 5] = [
    "TaktRuleFailing",
    "TaktDeliveryFailing",
    "TaktCannotStoreAlerts",
    "TaktCannotStoreSamples",
    "TaktSilencesTooMuch",
];

/// The tables of docs/rules.md have each alert once, with a reason, and no other alert.
#[test]
fn docs_list_exactly_the_existing_alerts() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/rules.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut explained = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        for name in cells[2]
            .split(", ")
            .filter_map(|name| name.strip_prefix('`')?.strip_suffix('`'))
        {
            assert!(cells[3].len() > 1, "{name}: who is told, and when?");
            assert!(
                explained.insert(name.to_owned()),
                "{name} is explained twice"
            );
        }
    }
    let mut names = alert_names();
    names.extend(event_rules().into_iter().map(|rule| rule.name));
    names.extend(OF_THE_SERVER.map(str::to_owned));
    assert_eq!(explained, names);
    let rows: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(' ').next())
        .collect();
    let missing: Vec<_> = (1..=56)
        .filter(|row| !rows.contains(row.to_string().as_str()))
        .collect();
    assert_eq!(missing, [0; 0], "these rows have no line");
}

fn event_files() -> Vec<EventFile> {
    let read = |(name, text): &(String, String)| {
        EventFile::read(name, text, XidTable::shipped()).unwrap_or_else(|e| panic!("{e}"))
    };
    files(&pack(), ".events.yml").iter().map(read).collect()
}

fn event_rules() -> Vec<EventRule> {
    event_files()
        .into_iter()
        .flat_map(|file| file.groups)
        .flat_map(|group| group.rules)
        .collect()
}

/// An owner's mail needs the label `user`: uncorrectable memory errors once had none.
#[test]
fn alerts_for_owners_name_the_user() {
    let for_owners = |rule: &EventRule| {
        let notify = rule.labels.iter().find(|(name, _)| name == "notify");
        notify.is_some()
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
    let told: BTreeSet<_> = scenarios
        .iter()
        .flat_map(|(_, events, _)| events)
        .map(|event| event.kind)
        .collect();
    assert!(
        EventKind::ALL.iter().all(|kind| told.contains(kind)),
        "every kind of event is met in a scenario"
    );
    for (name, events, expected) in scenarios {
        let mut run = EventRun::new(&files, XidTable::shipped().clone());
        for event in &events {
            run.event(event, &[], &Labels::new(), "http://takt", event.at);
        }
        let firing = run
            .iter()
            .filter(|(_, _, instance)| instance.fired_at.is_some());
        let fired: BTreeSet<_> = firing
            .filter_map(|(_, _, instance)| instance.labels.get("alertname"))
            .collect();
        assert_eq!(fired, expected.iter().copied().collect(), "{name}");
        let kinds: BTreeSet<_> = events.iter().map(|event| event.kind).collect();
        let alike = event_rules()
            .into_iter()
            .filter(|rule| rule.when.iter().any(|when| kinds.contains(&when.kind)));
        spared.extend(
            alike
                .map(|rule| rule.name)
                .filter(|name| !fired.contains(name.as_str())),
        );
        fired_ever.extend(fired.into_iter().map(str::to_owned));
    }
    let rules = event_rules();
    let names: BTreeSet<_> = rules.iter().map(|rule| rule.name.clone()).collect();
    assert_eq!(
        fired_ever, names,
        "every rule fires in one of the scenarios"
    );
    // A rule over all events of its kinds fires with each such event.
    let asks_for_more = |rule: &&EventRule| {
        rule.repeat.times > 1
            || rule.when.iter().any(|when| {
                !when.xid.is_empty() || !when.class.is_empty() || !when.matchers.0.is_empty()
            })
    };
    let without = rules
        .iter()
        .filter(asks_for_more)
        .filter(|rule| !spared.contains(&rule.name));
    let without: Vec<_> = without.map(|rule| rule.name.as_str()).collect();
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

/// Runs promtool if Debian's is installed, else prints the name of the skipped test.
fn promtool(arguments: &[&str], paths: &[(String, String)]) {
    let paths = paths.iter().map(|(path, _)| path);
    match Command::new("promtool")
        .args(arguments)
        .args(paths)
        .output()
    {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: promtool is not installed")
        }
        Err(error) => panic!("{error}"),
        Ok(output) => {
            let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert!(
                output.status.success(),
                "{}{}",
                said(&output.stdout),
                said(&output.stderr)
            );
        }
    }
}

#[test]
fn the_example_routes_name_alerts_that_exist() {
    let path = pack().join("routes.example.yml");
    let text = std::fs::read_to_string(&path).unwrap();
    let config = Config::read("routes.example.yml", &text).unwrap_or_else(|e| panic!("{e}"));
    let files = files(&pack(), ".events.yml");
    let events = files.iter().flat_map(|(name, text)| {
        EventFile::read(name, text, XidTable::shipped())
            .unwrap()
            .groups
    });
    let mut names = alert_names();
    names.extend(events.flat_map(|group| group.rules).map(|rule| rule.name));
    let matchers = config
        .inhibit_rules
        .iter()
        .flat_map(|rule| rule.source.0.iter().chain(&rule.target.0));
    for named in matchers
        .filter(|matcher| matcher.name() == "alertname")
        .flat_map(|matcher| matcher.value().split('|'))
    {
        assert!(names.contains(named), "no rule raises {named}");
    }
    let told = |labels: &[(&str, &str)]| {
        config.route_test(&labels.iter().copied().collect())[0]
            .0
            .to_owned()
    };
    assert_eq!(
        told(&[("alertname", "GpuFellOffBus"), ("severity", "critical")]),
        "operators"
    );
    assert_eq!(
        told(&[("alertname", "Watchdog"), ("severity", "none")]),
        "nobody"
    );
}

/// The routes of the example and of the short configuration, the latter with and without mails to
/// owners of jobs.
fn routings() -> Vec<(&'static str, Config)> {
    let text = std::fs::read_to_string(pack().join("routes.example.yml")).unwrap();
    let short = AlertsConfig {
        webhook_url: Some("http://127.0.0.1:1/x".to_owned()),
        ..AlertsConfig::default()
    };
    let all = [
        ("example", text.clone()),
        ("short form", short.in_long_form(&text, true)),
        (
            "short form without addresses",
            short.in_long_form(&text, false),
        ),
    ];
    all.map(|(name, text)| {
        (
            name,
            Config::read(name, &text).unwrap_or_else(|e| panic!("{e}")),
        )
    })
    .into()
}

const NOW: Timestamp = Timestamp(1_000_000_000);

/// Returns a router in which these alerts fire.
fn firing(config: Config, alerts: &[&[(&str, &str)]]) -> (Router, Vec<Alert>) {
    let settings = Settings {
        external_url: "http://takt".to_owned(),
        timezone: None,
        pages: None,
    };
    let mut router = Router::new(config, settings);
    let alert = |labels: &&[(&str, &str)]| Alert {
        labels: labels.iter().copied().collect(),
        annotations: std::collections::BTreeMap::new(),
        starts_at: NOW,
        ends_at: None,
        updated_at: NOW,
        generator_url: String::new(),
        began_at: None,
        is_timeout: false,
    };
    let alerts: Vec<_> = alerts.iter().map(alert).collect();
    for alert in &alerts {
        router.take(alert.clone(), NOW);
    }
    (router, alerts)
}

/// With the labels of the shipped rules, a source inhibits alerts of its own node, server or
/// cluster, and no others.
#[test]
fn inhibition_in_all_forms_of_routes() {
    let of = |name: &'static str, scope: &'static str, node: &'static str| {
        vec![
            ("alertname", name),
            ("scope", scope),
            ("cluster", "lab"),
            ("node", node),
            ("severity", "warning"),
        ]
    };
    let cluster = |name: &'static str, scope: &'static str, cluster: &'static str| {
        vec![
            ("alertname", name),
            ("scope", scope),
            ("cluster", cluster),
            ("severity", "critical"),
        ]
    };
    let with = |mut labels: Vec<(&'static str, &'static str)>, label| {
        labels.push(label);
        labels
    };
    let cases = [
        (
            of("NodeDown", "node", "g1"),
            of("GpuCountMismatch", "gpu", "g1"),
            of("GpuCountMismatch", "gpu", "g2"),
        ),
        (
            of("NodeDown", "node", "g1"),
            of("SlurmNodeDrained", "node", "g1"),
            of("SlurmNodeDrained", "node", "g2"),
        ),
        (
            of("NodeDown", "node", "g1"),
            of("ExporterDown", "takt", "g1"),
            of("ExporterDown", "takt", "g2"),
        ),
        (
            of("NodeDown", "node", "g1"),
            of("CollectorFailing", "takt", "g1"),
            cluster("CollectorLag", "takt", "lab"),
        ),
        (
            cluster("NfsServerNotResponding", "nfs", "lab"),
            of("NfsHung", "node", "g1"),
            of("NodeDiskFull", "node", "g1"),
        ),
        (
            cluster("NfsServerNotResponding", "nfs", "lab"),
            of("NodeLoadStuck", "node", "g1"),
            of("NodeDown", "node", "g1"),
        ),
        (
            cluster("NfsServerNotResponding", "nfs", "lab"),
            of("NodeTasksStuck", "node", "g1"),
            of("NodeOomKill", "node", "g1"),
        ),
        (
            cluster("NfsServerSaidNotResponding", "nfs", "lab"),
            of("NodeKernelHang", "node", "g1"),
            of("NodeLockup", "node", "g1"),
        ),
        (
            cluster("SlurmControllerDown", "slurm", "lab"),
            cluster("SlurmQueueStuck", "slurm", "lab"),
            cluster("SlurmQueueStuck", "slurm", "other"),
        ),
        (
            cluster("SlurmControllerDown", "slurm", "lab"),
            of("SlurmNodeDrained", "node", "g1"),
            of("NodeDown", "node", "g1"),
        ),
        (
            of("GpuFellOffBus", "gpu", "g1"),
            of("GpuCountMismatch", "gpu", "g1"),
            of("GpuCountMismatch", "gpu", "g2"),
        ),
        (
            of("GpuFellOffBus", "gpu", "g1"),
            of("GpuThermalThrottle", "gpu", "g1"),
            of("GpuThermalThrottle", "gpu", "g2"),
        ),
        (
            of("GpuFellOffBus", "gpu", "g1"),
            of("GpuPowerBrake", "gpu", "g1"),
            of("GpuXidResetRequired", "gpu", "g1"),
        ),
        (
            with(of("GpuFellOffBus", "gpu", "g1"), ("uuid", "GPU-1")),
            with(of("GpuNotAnswering", "gpu", "g1"), ("uuid", "GPU-1")),
            with(of("GpuNotAnswering", "gpu", "g1"), ("uuid", "GPU-2")),
        ),
        (
            of("NodeDown", "node", "g1"),
            of("GpuPcieReplays", "gpu", "g1"),
            with(of("JobNodeFail", "job", "g1"), ("notify", "user")),
        ),
        (
            cluster("ManyExportersDown", "takt", "lab"),
            of("NodeDown", "node", "g1"),
            of("SlurmNodeDrained", "node", "g2"),
        ),
        (
            cluster("ManyExportersDown", "takt", "lab"),
            of("ExporterDown", "takt", "g1"),
            cluster("ExporterDown", "takt", "lab"),
        ),
        (
            cluster("SlurmManyNodesDown", "slurm", "lab"),
            of("SlurmNodeDrained", "node", "g1"),
            of("NodeDown", "node", "g1"),
        ),
    ];
    for (form, config) in routings() {
        for (source, target, other) in &cases {
            let (router, alerts) = firing(config.clone(), &[source, target, other]);
            let suppressed = router.suppressed(NOW);
            let explained: Vec<_> = alerts
                .iter()
                .map(|alert| suppressed(alert).inhibited_by.is_some())
                .collect();
            assert_eq!(
                explained,
                [false, true, false],
                "{form}: {source:?} explains {target:?} and not {other:?}"
            );
        }
    }
}

/// Alerts of one cause are one message, in all forms of routes.
#[test]
fn many_of_the_same_are_one_message() {
    for (form, config) in routings() {
        let drained = |node: &'static str, reason: &'static str| {
            [
                ("alertname", "SlurmNodeDrained"),
                ("severity", "warning"),
                ("scope", "node"),
                ("cluster", "lab"),
                ("node", node),
                ("reason", reason),
            ]
        };
        let hot = |node: &'static str| {
            [
                ("alertname", "GpuThermalThrottle"),
                ("severity", "warning"),
                ("scope", "gpu"),
                ("cluster", "lab"),
                ("node", node),
            ]
        };
        let one = drained("g1", "bad fan");
        let two = drained("g2", "bad fan");
        let three = drained("g3", "reinstall");
        let (router, _) = firing(
            config,
            &[&one, &two, &three, &hot("g1"), &hot("g2"), &hot("g3")],
        );
        let mut sizes: Vec<_> = router.groups().map(|(_, _, alerts)| alerts.len()).collect();
        sizes.sort_unstable();
        assert_eq!(
            sizes,
            [1, 2, 3],
            "{form}: drained for one reason, for another, all hot GPUs"
        );
    }
}

/// Alerts of nodes in maintenance are muted, in all forms of routes.
#[test]
fn maintenance_mutes_its_nodes() {
    for (form, config) in routings() {
        let alert = |node: &'static str| {
            [
                ("alertname", "NodeDown"),
                ("severity", "critical"),
                ("scope", "node"),
                ("cluster", "lab"),
                ("node", node),
            ]
        };
        let (mut router, alerts) = firing(config, &[&alert("g1"), &alert("g2")]);
        router.maintenance = vec![Maintenance {
            name: "firmware".to_owned(),
            cluster: "lab".to_owned(),
            nodes: BTreeSet::from(["g1".to_owned()]),
            from: Timestamp::from_seconds(0),
            to: Timestamp::from_seconds(2_000_000),
        }];
        let suppressed = router.suppressed(NOW);
        let muted: Vec<_> = alerts
            .iter()
            .map(|alert| suppressed(alert).muted_by)
            .collect();
        assert_eq!(
            muted,
            [vec!["reservation firmware".to_owned()], vec![]],
            "{form}"
        );
    }
}

#[test]
fn promtool_accepts_the_rules() {
    promtool(&["check", "rules"], &files(&pack(), ".rules.yml"));
}

/// promtool does not know event rules, but their end conditions are PromQL, which it can check.
#[test]
fn promtool_accepts_the_end_conditions() {
    let files = files(&pack(), ".events.yml");
    let events = files.iter().flat_map(|(name, text)| {
        EventFile::read(name, text, XidTable::shipped())
            .unwrap()
            .groups
    });
    let ends = events
        .flat_map(|group| group.rules)
        .filter_map(|rule| match rule.ends {
            EndCondition::Until(expr) => {
                Some(format!("  - {{record: '{}', expr: '{expr}'}}\n", rule.name))
            }
            EndCondition::After(_) => None,
        });
    let rules: String = ends.collect();
    assert!(!rules.is_empty());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ends.rules.yml");
    std::fs::write(&path, format!("groups:\n- name: ends\n  rules:\n{rules}")).unwrap();
    promtool(
        &["check", "rules"],
        &[(path.display().to_string(), String::new())],
    );
}

#[test]
fn promtool_passes_the_scenarios() {
    promtool(
        &["test", "rules"],
        &files(&pack().join("tests"), ".test.yml"),
    );
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/made-up/promtool");
    promtool(&["test", "rules"], &files(&ours, ".test.yml"));
}
