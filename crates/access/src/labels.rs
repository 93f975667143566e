//! Which labels of alerts, events and silences a viewer sees.
//!
//! A label that no list names is a detail of the job: labels of an operator's own rules and of pushed series may contain
//! anything. Of an alert that a program has posted, the values of the known ones may be any text too.

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

/// Labels of alerts of other programs that everybody sees: posted ones, and those over pushed series.
const PUSHED: &[&str] = &["alertname", "node", "severity"];

/// The label that Takt gives to pushed series whose sender has no labels of its own.
const SENDER: &str = "sender";

/// Maximum length of a device's name in the kernel.
const MAX_DEVICE_BYTES: usize = 32;

/// Labels that say whose job it is. Who may know that the job exists sees them.
const JOB: &[&str] = &["account", "job_id", "jobid", "user"];

/// How much of the labels a viewer sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// [`PUSHED`].
    Pushed,
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
    /// Whether the label `device` may be a text of the user who mounted a file system.
    is_users_device: bool,
}

impl ShownLabels {
    /// Returns what the viewer sees of an alert or event with these labels. The labels `user` and `account` name the owner.
    pub fn of<'a>(viewer: &Viewer, label: impl Fn(&str) -> Option<&'a str>) -> Self {
        let value = |name: &str| label(name).unwrap_or_default();
        let owner = Owner::new(value("user"), value("account"));

        let level = if viewer.sees_details(owner) {
            Level::All
        } else if label(SENDER).is_some() {
            Level::Pushed
        } else if viewer.sees_job(owner) {
            Level::Job
        } else {
            Level::Hardware
        };

        // A mount point marks a file system. A rule may have dropped that label, so the form of the device's name
        // counts as well.
        Self {
            level,
            is_users_device: label("mountpoint").is_some()
                || !label("device").is_none_or(is_kernel_device),
        }
    }

    /// Returns what the same viewer sees of an alert with these labels that a program has posted.
    #[must_use]
    pub fn of_posted(self) -> Self {
        let level = if self.is_all() {
            self.level
        } else {
            Level::Pushed
        };
        Self { level, ..self }
    }

    /// Returns whether all labels and texts are shown.
    pub fn is_all(self) -> bool {
        self.level == Level::All
    }

    /// Returns whether the label with this name is shown.
    pub fn shows(self, name: &str) -> bool {
        // The device of a mounted file system may be any text, although the label's name is one of hardware.
        let is_hardware = HARDWARE.contains(&name) && !(self.is_users_device && name == "device");
        match self.level {
            Level::Pushed => PUSHED.contains(&name),
            Level::Hardware => is_hardware,
            Level::Job => is_hardware || JOB.contains(&name),
            Level::All => true,
        }
    }
}

/// Whether a device may have this name in the kernel. The device of a FUSE mount is a text of its user: often an address or a path.
fn is_kernel_device(device: &str) -> bool {
    let is_in_names = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '!');
    device.len() <= MAX_DEVICE_BYTES && device.chars().all(is_in_names)
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

        // An unknown viewer sees the hardware even at the most open level, but not the owner.
        assert_eq!(
            shown(&Viewer::anonymous(Privacy::Open), &labels),
            "node xid"
        );
    }

    #[test]
    fn an_alert_of_several_users_is_none_of_theirs() {
        // One rule sums over several jobs. The joined names match no user, so the owner check fails for each of them.
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
        // A rule may have left out the mount point.
        for device in ["bob@host:/secret", "remote:secret", "/home/bob/secret"] {
            assert_eq!(
                shown(&alice, &[("device", device), ("node", "g01")]),
                "node"
            );
        }
        // Names that the kernel gives: a partition, a device mapper, `!` for a slash, a VLAN, an InfiniBand port.
        for device in ["nvme0n1p1", "dm-0", "cciss!c0d0", "bond0.100", "mlx5_0"] {
            assert_eq!(shown(&alice, &[("device", device)]), "device");
        }
    }

    #[test]
    fn labels_of_other_programs_are_texts_of_anybody() {
        let labels = [
            ("alertname", "Slow"),
            ("severity", "warning"),
            ("node", "g01"),
            // `instance` and `task` are labels of hardware in Takt's own alerts, but another program may put any text
            // there.
            ("instance", "secret"),
            ("task", "secret"),
            ("user", "bob"),
        ];
        let of = |name: &str| {
            let mut known = labels.iter().filter(|(label, _)| *label == name);
            known.next().map(|(_, value)| *value)
        };
        let seen = |user: &str| {
            let viewer = Viewer::new(Role::User, Way::Socket, Privacy::Open).with_user(user);
            let posted = ShownLabels::of(&viewer, of).of_posted();
            labels.iter().filter(|(name, _)| posted.shows(name)).count()
        };
        assert_eq!((seen("alice"), seen("bob")), (3, labels.len()));

        // An alert of Takt's own rule over a pushed series: the label of the sender marks it.
        let alice = Viewer::new(Role::User, Way::Socket, Privacy::Open).with_user("alice");
        let pushed = [&labels[..], &[("sender", "rack-a")]].concat();
        assert_eq!(shown(&alice, &pushed), "alertname severity node");
    }
}
