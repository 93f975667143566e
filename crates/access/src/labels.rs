//! Which labels of alerts, events and silences a viewer sees.
//!
//! A label that no list names is a detail of the job: labels of an operator's own rules and of pushed series may contain
//! anything.

use crate::{Owner, Viewer};

/// Labels about hardware and about the rule. Their values come from drivers, from the configuration and from rules, not from
/// users of the cluster.
const HARDWARE: &[&str] = &[
    "alertname",
    "bank",
    "boot_id",
    "chip",
    "cluster",
    "collector",
    "controller",
    "cpu",
    "daemon",
    "device",
    "driver",
    "event",
    "fault",
    "gpu",
    "index",
    "instance",
    "interface",
    "job",
    "link",
    "lockup",
    "mig",
    "model",
    "negotiated",
    "node",
    "notify",
    "operation",
    "partition",
    "pci_bus_id",
    "port",
    "recovery_action",
    "scope",
    "seconds",
    "sensor",
    "sensor_type",
    "server",
    "severity",
    "speed",
    "state",
    "sxid",
    "task",
    "type",
    "uuid",
    "version",
    "xid",
    "xid_action",
    "xid_meaning",
    "xid_severity",
];

/// Labels that say whose job it is. Who may know that the job exists sees them.
const JOB: &[&str] = &["account", "job_id", "jobid", "user"];

/// How much of the labels a viewer sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// What is about hardware and the rule.
    Hardware,
    /// Also the job and its owner.
    Job,
    /// Everything, and the texts.
    All,
}

/// The part of an alert or event that a viewer sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownLabels {
    level: Level,
    /// Whether it is about a mounted file system. Its device may be a text of the user who mounted it.
    is_mounted: bool,
}

impl ShownLabels {
    /// Returns what the viewer sees of an alert or event with these labels. The labels `user` and `account` name the owner.
    pub fn of<'a>(viewer: &Viewer, label: impl Fn(&str) -> Option<&'a str>) -> Self {
        let value = |name: &str| label(name).unwrap_or_default();
        let owner = Owner::new(value("user"), value("account"));
        let level = if viewer.sees_details(owner) {
            Level::All
        } else if viewer.sees_job(owner) {
            Level::Job
        } else {
            Level::Hardware
        };
        Self {
            level,
            is_mounted: label("mountpoint").is_some(),
        }
    }

    /// Returns whether all labels and texts are shown.
    pub fn is_all(self) -> bool {
        self.level == Level::All
    }

    /// Returns whether the label with this name is shown.
    pub fn shows(self, name: &str) -> bool {
        let is_text = self.is_mounted && name == "device";
        self.is_all()
            || HARDWARE.contains(&name) && !is_text
            || self.level == Level::Job && JOB.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Privacy, Role, Way};

    fn shown(viewer: &Viewer, labels: &[(&str, &str)]) -> String {
        let of = |name: &str| {
            labels
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| *value)
        };
        let shown = ShownLabels::of(viewer, of);
        let names = labels.iter().map(|(name, _)| *name);
        let names: Vec<&str> = names.filter(|name| shown.shows(name)).collect();
        names.join(" ")
    }

    #[test]
    fn others_see_the_hardware_and_at_most_whose_job_it_is() {
        let labels = [
            ("node", "g01"),
            ("xid", "13"),
            ("user", "bob"),
            ("jobid", "7"),
            ("job_name", "secret"),
            ("process", "secret"),
            ("invented", "secret"),
        ];
        let all = "node xid user jobid job_name process invented";
        let alice = |privacy| Viewer::new(Role::User, Way::Socket, privacy).with_user("alice");
        assert_eq!(shown(&alice(Privacy::Open), &labels), "node xid user jobid");
        assert_eq!(shown(&alice(Privacy::Private), &labels), "node xid");
        let bob = Viewer::new(Role::User, Way::Socket, Privacy::Private).with_user("bob");
        assert_eq!(shown(&bob, &labels), all);
        let support = Viewer::new(Role::Support, Way::Socket, Privacy::Private);
        assert_eq!(shown(&support, &labels), all);
        assert_eq!(
            shown(&Viewer::anonymous(Privacy::Open), &labels),
            "node xid"
        );
    }

    #[test]
    fn an_alert_of_several_users_is_none_of_theirs() {
        let labels = [("user", "alice,bob"), ("jobid", "7,8"), ("node", "g01")];
        let alice = Viewer::new(Role::User, Way::Socket, Privacy::Private).with_user("alice");
        assert_eq!(shown(&alice, &labels), "node");
    }

    #[test]
    fn the_device_of_a_mounted_file_system_is_the_users_text() {
        let alice = Viewer::new(Role::User, Way::Socket, Privacy::Open).with_user("alice");
        assert_eq!(
            shown(&alice, &[("device", "sda"), ("node", "g01")]),
            "device node"
        );
        let mounted = [
            ("device", "secret"),
            ("mountpoint", "/secret"),
            ("node", "g01"),
        ];
        assert_eq!(shown(&alice, &mounted), "node");
    }
}
