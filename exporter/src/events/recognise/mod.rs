//! Recognises events in messages of the kernel log.
//!
//! One table of forms ([`forms::FORMS`]): a text that the message must contain (cheap, and enough
//! to reject nearly every one), a regular expression whose named groups become labels, and the
//! kind. Some events take several messages (an OOM kill and its cgroup, a GPU that fell off the
//! bus): [`Recogniser`] keeps the first until the last one comes.

mod forms;
#[cfg(test)]
mod hostile;
mod oom;
#[cfg(test)]
mod tests;

use self::forms::{FORMS, Form, Proof, is_no_disk};
use self::oom::OomKills;
use super::kernel_log::LogLevel;
use regex_lite::Regex;
use std::path::{Path, PathBuf};
use takt_model::{EventKind, Labels, pci};

/// An event found in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recognised {
    pub kind: EventKind,
    pub labels: Labels,
    pub message: String,
}

/// Recognises events, and keeps messages that belong to one that follows.
#[derive(Debug)]
pub(crate) struct Recogniser {
    /// `/sys/class/net` of the node.
    links: PathBuf,
    oom: OomKills,
    /// Bus id from `NVRM: The NVIDIA GPU 0000:b3:00.0`, and the number of lines since.
    gpu: Option<(String, u8)>,
    compiled: Vec<Regex>,
}

/// Begin of the driver's message about a lost GPU.
const LOST_GPU: &str = "NVRM: The NVIDIA GPU ";
/// Lines within which that message is complete.
const LINES_OF_THE_DRIVER: u8 = 3;

impl Recogniser {
    /// Creates a recogniser for a node with this sysfs.
    pub fn new(sysfs: &Path) -> Self {
        let compile = |regex| Regex::new(regex).expect("a test compiles each");
        Self {
            links: sysfs.join("class/net"),
            oom: OomKills::new(),
            gpu: None,
            compiled: FORMS.iter().map(|form| compile(form.regex)).collect(),
        }
    }

    /// The event in a message of the kernel, which may have several lines. `level` is its urgency,
    /// where that is known.
    pub fn read(&mut self, message: &str, level: Option<LogLevel>) -> Option<Recognised> {
        let message = message.trim_end();

        self.oom
            .read(message)
            .or_else(|| self.lost_gpu(message))
            .or_else(|| self.formed(message, level))
    }

    fn formed(&self, message: &str, level: Option<LogLevel>) -> Option<Recognised> {
        let (form, mut labels) = FORMS.iter().zip(&self.compiled).find_map(|(form, regex)| {
            let is_like_it = message.contains(form.needle);
            let labels = is_like_it.then(|| labels_of(form, regex, message))??;
            Some((form, labels))
        })?;

        tidy(form.kind, message, &mut labels);

        let is_event = is_urgent_enough(form.kind, level) && self.is_proven(form, &labels);
        is_event.then(|| Recognised {
            kind: form.kind,
            labels,
            message: message.to_owned(),
        })
    }

    /// Whether the event is the node's: not one of a user's image, nor of a user's link.
    fn is_proven(&self, form: &Form, labels: &Labels) -> bool {
        let device = labels.get("device").unwrap_or_default();
        match (form.kind, form.proof) {
            (
                EventKind::DiskError | EventKind::FilesystemError | EventKind::FilesystemReadonly,
                _,
            ) => !is_no_disk(device),
            (_, Proof::BondedLinkIsDown) => {
                // The node's own bonds have this file. A bond in a namespace of a user has none here.
                let status = self.links.join(device).join("bonding_slave/mii_status");
                crate::sysfs::text(&status).is_some_and(|status| status != "up")
            }
            (_, Proof::Form) => true,
        }
    }

    /// Three lines: `NVRM: The NVIDIA GPU 0000:b3:00.0`, `NVRM: (PCI ID: …) installed in this
    /// system has`, `NVRM: fallen off the bus and is not responding to commands.` They come in one
    /// message or in three. Other messages of the driver hold texts of users, line feeds and all.
    fn lost_gpu(&mut self, message: &str) -> Option<Recognised> {
        // Only a message with this beginning is the driver's own. Further lines of others may be a user's text.
        let is_whole = message.starts_with(LOST_GPU);
        let lines = if is_whole {
            usize::from(LINES_OF_THE_DRIVER)
        } else {
            1
        };
        let mut lines = message.lines().take(lines);
        lines.find_map(|line| self.line_about_lost_gpu(line))
    }

    fn line_about_lost_gpu(&mut self, line: &str) -> Option<Recognised> {
        if let Some(id) = line.strip_prefix(LOST_GPU) {
            self.gpu = id.split(' ').next().and_then(pci::bus_id).map(|id| (id, 1));
            return None;
        }

        let (gpu, lines) = self.gpu.take()?;
        if line.starts_with("NVRM: fallen off the bus") {
            let labels = Labels::from_iter([("pci_bus_id", &gpu)]);
            let message =
                format!("{LOST_GPU}{gpu} installed in this system has fallen off the bus");
            return Some(Recognised {
                kind: EventKind::GpuLost,
                labels,
                message,
            });
        }

        self.gpu = (lines < LINES_OF_THE_DRIVER).then_some((gpu, lines + 1));
        None
    }
}

/// The labels of a message of this form; `None` for other messages.
fn labels_of(form: &Form, regex: &Regex, message: &str) -> Option<Labels> {
    let found = regex.captures(message)?;
    let names = regex.capture_names().flatten();
    let named = names.filter_map(|name| Some((name, found.name(name)?.as_str())));
    Some(named.chain(form.labels.iter().copied()).collect())
}

/// Whether a message is as urgent as the kernel's messages of this kind are. The lines about a
/// program that failed are information.
fn is_urgent_enough(kind: EventKind, level: Option<LogLevel>) -> bool {
    use EventKind::{HungTask, KernelFault, Lockup, MemoryError};
    let is_grave = matches!(kind, HungTask | KernelFault | Lockup | MemoryError);
    !is_grave || level.is_none_or(|level| level < LogLevel::INFORMATION)
}

/// Brings labels into the form that the rest of Takt uses.
fn tidy(kind: EventKind, message: &str, labels: &mut Labels) {
    if let (Some(agent), Some(port)) = (labels.get("agent"), labels.get("port"))
        && kind == EventKind::PcieError
    {
        let device = reported_device(agent, port).unwrap_or_else(|| port.to_owned());
        let port = pci::bus_id(port).unwrap_or_default();
        labels.set("pci_bus_id", &device);
        labels.set("port", &port);
        labels.set("agent", "");
    }

    if let Some(id) = labels.get("pci_bus_id").and_then(pci::bus_id) {
        labels.set("pci_bus_id", &id);
    }

    if kind == EventKind::Xid && labels.get("xid") == Some("154") {
        // "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
        let action = message.rsplit_once('(');
        let action = action.and_then(|(_, action)| Some(action.split_once(')')?.0));
        labels.set("recovery_action", action.unwrap_or_default());
    }
}

/// The device that reported an error to its port, by address or by number (`id=0008`); `None` where
/// the port lost it.
fn reported_device(agent: &str, port: &str) -> Option<String> {
    let device = match agent.strip_prefix("id=") {
        Some(id) => {
            let id = u16::from_str_radix(id, 16).ok()?;
            let domain = port.split(':').next()?;
            // PCI has 8 bits for the bus, 5 for the device and 3 for the function.
            let (bus, device, function) = (id >> 8, id >> 3 & 0x1f, id & 7);
            format!("{domain}:{bus:02x}:{device:02x}.{function:x}")
        }
        None => agent.to_owned(),
    };

    let device = pci::bus_id(&device)?;
    (!device.ends_with(":00:00.0")).then_some(device)
}
