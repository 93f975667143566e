//! The example routes and the short configuration: receivers, inhibition, grouping, maintenance.

use super::*;
use std::collections::BTreeMap;
use std::fs;

#[test]
fn the_example_routes_name_alerts_that_exist() {
    let path = pack().join("routes.example.yml");
    let text = fs::read_to_string(&path).unwrap();
    let config = Config::read("routes.example.yml", &text).unwrap_or_else(|e| panic!("{e}"));
    let files = files(&pack(), ".events.yml");
    let events = files.iter().flat_map(|(name, text)| {
        EventFile::read(name, text, XidTable::shipped())
            .unwrap()
            .groups
    });

    let mut names = alert_names();
    names.extend(events.flat_map(|group| group.rules).map(|rule| rule.name));
    // Inhibition by a name that no rule has would be without effect, and without a mistake.
    for named in config
        .inhibit_rules
        .iter()
        .flat_map(|rule| rule.source.0.iter().chain(&rule.target.0))
        .filter(|matcher| matcher.name() == "alertname")
        .flat_map(|matcher| matcher.value().split('|'))
    {
        assert!(names.contains(named), "no rule raises {named}");
    }

    let receiver = |labels: &[(&str, &str)]| {
        config.route_test(&labels.iter().copied().collect())[0]
            .receiver
            .clone()
    };
    assert_eq!(
        receiver(&[("alertname", "GpuFellOffBus"), ("severity", "critical")]),
        "operators"
    );
    assert_eq!(
        receiver(&[("alertname", "Watchdog"), ("severity", "none")]),
        "nobody"
    );
}

/// The routes of the example and of the short configuration, the latter with and without mails to
/// owners of jobs.
fn routings() -> Vec<(&'static str, Config)> {
    let text = fs::read_to_string(pack().join("routes.example.yml")).unwrap();
    let short = AlertsConfig {
        webhook_url: Some("http://127.0.0.1:1/x".to_owned()),
        ..AlertsConfig::default()
    };
    [
        ("example", text.clone()),
        ("short form", short.in_long_form(&text, true)),
        (
            "short form without addresses",
            short.in_long_form(&text, false),
        ),
    ]
    .map(|(name, text)| {
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
        annotations: BTreeMap::new(),
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
    // The source, an alert that it explains, and one that it does not.
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
        let drained = |node: &'static str, cause: &'static str| {
            [
                ("alertname", "SlurmNodeDrained"),
                ("severity", "warning"),
                ("scope", "node"),
                ("cluster", "lab"),
                ("node", node),
                ("cause", cause),
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

        let one = drained("g1", "drained");
        let two = drained("g2", "drained");
        let three = drained("g3", "down");

        let (router, _) = firing(
            config,
            &[&one, &two, &three, &hot("g1"), &hot("g2"), &hot("g3")],
        );

        let mut sizes: Vec<_> = router.groups().map(|(_, _, alerts)| alerts.len()).collect();
        sizes.sort_unstable();
        assert_eq!(
            sizes,
            [1, 2, 3],
            "{form}: drained nodes, nodes that are down, all hot GPUs"
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
        let work = Maintenance {
            name: "firmware".to_owned(),
            cluster: "lab".to_owned(),
            nodes: BTreeSet::from(["g1".to_owned()]),
            from: Timestamp::from_seconds(0),
            to: Timestamp::from_seconds(2_000_000),
        };

        router.set_maintenance(vec![work], NOW);
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
