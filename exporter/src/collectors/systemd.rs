//! systemd's units: their states, and what services, sockets and timers do.
//!
//! Source: systemd's manager, asked over D-Bus. It may be busy, so this collector has a thread; an
//! answer that does not come within two seconds is a failure.

mod units;

use self::units::{SystemdManager, SystemdUnit};
use crate::collector::{CollectError, Collector, flag};
use crate::dbus::{BusConnection, DbusError};
use crate::filter::{NameFilter, NamePattern};
use std::collections::BTreeMap;
use takt_model::{Metric, Samples};

/// Flags of the collector `systemd`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct SystemdOptions {
    /// Units to include; the whole name must match
    #[arg(
        long = "collector.systemd.unit-include",
        alias = "collector.systemd.unit-whitelist",
        value_name = "REGEXP",
        default_value = ".+",
        value_parser = whole
    )]
    pub unit_include: NamePattern,
    /// Units to leave out of these; the whole name must match.
    #[arg(
        long = "collector.systemd.unit-exclude",
        alias = "collector.systemd.unit-blacklist",
        value_name = "REGEXP",
        default_value = r".+\.(automount|device|mount|scope|slice)",
        value_parser = whole
    )]
    pub unit_exclude: NamePattern,
    /// Export the number of tasks of each service.
    #[arg(long = "collector.systemd.enable-task-metrics")]
    pub enable_tasks: bool,
    /// Export the number of restarts of each service.
    #[arg(long = "collector.systemd.enable-restarts-metrics")]
    pub enable_restarts: bool,
    /// Export the start time of each unit.
    #[arg(long = "collector.systemd.enable-start-time-metrics")]
    pub enable_start_times: bool,
}

fn whole(text: &str) -> Result<NamePattern, regex_lite::Error> {
    format!("^(?:{text})$").parse()
}

struct Systemd {
    include: NameFilter,
    exclude: NameFilter,
    options: SystemdOptions,
    connection: Option<BusConnection>,
}

const NAME: &[&str] = &["name"];
const UNIT_STATE: Metric = Metric::gauge(
    "node_systemd_unit_state",
    "Systemd unit",
    &["name", "state", "type"],
);
const START_TIME: Metric = Metric::gauge(
    "node_systemd_unit_start_time_seconds",
    "Start time of the unit since unix epoch in seconds.",
    NAME,
);
const TASKS: Metric = Metric::gauge(
    "node_systemd_unit_tasks_current",
    "Current number of tasks per Systemd unit",
    NAME,
);
const MAX_TASKS: Metric = Metric::gauge(
    "node_systemd_unit_tasks_max",
    "Maximum number of tasks per Systemd unit",
    NAME,
);
const RUNNING: Metric = Metric::gauge(
    "node_systemd_system_running",
    "Whether the system is operational (see 'systemctl is-system-running')",
    &[],
);
const UNITS: Metric = Metric::gauge(
    "node_systemd_units",
    "Summary of systemd unit states",
    &["state"],
);
const RESTARTS: Metric = Metric::counter(
    "node_systemd_service_restart_total",
    "Service unit count of Restart triggers",
    NAME,
);
const LAST_TRIGGER: Metric = Metric::gauge(
    "node_systemd_timer_last_trigger_seconds",
    "Seconds since epoch of last trigger.",
    NAME,
);
const ACCEPTED: Metric = Metric::counter(
    "node_systemd_socket_accepted_connections_total",
    "Total number of accepted socket connections",
    NAME,
);
const CONNECTIONS: Metric = Metric::gauge(
    "node_systemd_socket_current_connections",
    "Current number of socket connections",
    NAME,
);
const REFUSED: Metric = Metric::counter(
    "node_systemd_socket_refused_connections_total",
    "Total number of refused socket connections",
    NAME,
);
const VERSION: Metric = Metric::gauge(
    "node_systemd_version",
    "Detected systemd version",
    &["version"],
);
const VIRTUALIZATION: Metric = Metric::gauge(
    "node_systemd_virtualization_info",
    "Detected virtualization technology",
    &["virtualization_type"],
);
const METRICS: &[Metric] = &[
    UNIT_STATE,
    START_TIME,
    TASKS,
    MAX_TASKS,
    RUNNING,
    UNITS,
    RESTARTS,
    LAST_TRIGGER,
    ACCEPTED,
    CONNECTIONS,
    REFUSED,
    VERSION,
    VIRTUALIZATION,
];
const STATES: [&str; 5] = ["active", "activating", "deactivating", "inactive", "failed"];
const MICROSECONDS: f64 = 1e6;
const MAX_UNITS: usize = 10_000;

pub(crate) fn new(options: &SystemdOptions) -> Box<dyn Collector> {
    let options = options.clone();
    Box::new(Systemd {
        include: NameFilter::including(options.unit_include.clone()),
        exclude: NameFilter::excluding(options.unit_exclude.clone()),
        options,
        connection: None,
    })
}

impl Collector for Systemd {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_UNITS * 12
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let result = self.ask(out);
        if result.is_err() {
            // A late answer on this connection would be taken for the answer to the next question.
            self.connection = None;
        }
        result.map_err(|source| CollectError::Dbus {
            source: source.into(),
        })
    }
}

impl Systemd {
    fn ask(&mut self, out: &mut Samples) -> Result<(), DbusError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => self.connection.insert(BusConnection::system()?),
        };
        let mut manager = SystemdManager(connection);

        let version = manager.text("Version").unwrap_or_default();
        out.push(&VERSION, &[&version], units::version(&version));

        let virtualization = match manager.text("Virtualization") {
            Ok(text) if text.is_empty() => "none".to_owned(),
            Ok(text) => text,
            Err(_) => "unknown".to_owned(),
        };
        out.push(&VIRTUALIZATION, &[&virtualization], 1.0);

        let mut units = manager.units()?;

        // States that node_exporter has are there with 0; others come as they are met.
        let mut counts = BTreeMap::from(STATES.map(|state| (state, 0.0)));
        for unit in &units {
            *counts.entry(&unit.state).or_default() += 1.0;
        }
        for (state, count) in &counts {
            out.push(&UNITS, &[state], *count);
        }

        units.retain(|unit| {
            unit.is_loaded && self.include.passes(&unit.name) && self.exclude.passes(&unit.name)
        });
        for unit in &units {
            push_unit(unit, &mut manager, &self.options, out);
        }

        let state = manager.text("SystemState")?;
        out.push::<&str>(&RUNNING, &[], flag(state == "running"));
        Ok(())
    }
}

/// Properties that a unit lacks are left out.
fn push_unit(
    unit: &SystemdUnit,
    manager: &mut SystemdManager<'_>,
    options: &SystemdOptions,
    out: &mut Samples,
) {
    let name = &unit.name;
    let kind = unit.kind();
    let type_of = match kind {
        "Service" | "Mount" => manager.property(unit, kind, "Type"),
        _ => None,
    };
    let type_of = type_of.as_ref().and_then(|value| value.text());
    let type_of = type_of.unwrap_or_default();
    for state in STATES {
        let is_it = flag(unit.state == state);
        out.push(&UNIT_STATE, &[name.as_str(), state, type_of], is_it);
    }

    let mut push = |interface: &str, property: &str, metric: &Metric, unit_of: f64| {
        let number = manager.property(unit, interface, property);
        let number = number.and_then(|value| value.number());
        // All bits set: unlimited, or not counted.
        if let Some(number) = number.filter(|number| *number != u64::MAX) {
            out.push(metric, &[name], number as f64 / unit_of);
        }
    };

    if options.enable_start_times && unit.state == "active" {
        push("Unit", "ActiveEnterTimestamp", &START_TIME, MICROSECONDS);
    }

    match kind {
        "Service" => {
            if options.enable_restarts {
                push(kind, "NRestarts", &RESTARTS, 1.0);
            }
            if options.enable_tasks {
                push(kind, "TasksCurrent", &TASKS, 1.0);
                push(kind, "TasksMax", &MAX_TASKS, 1.0);
            }
        }
        "Timer" => push(kind, "LastTriggerUSec", &LAST_TRIGGER, MICROSECONDS),
        "Socket" => {
            push(kind, "NAccepted", &ACCEPTED, 1.0);
            push(kind, "NConnections", &CONNECTIONS, 1.0);
            push(kind, "NRefused", &REFUSED, 1.0);
        }
        _ => {}
    }

    if options.enable_start_times && unit.state != "active" {
        out.push(&START_TIME, &[name], 0.0);
    }
}
