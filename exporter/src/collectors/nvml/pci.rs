//! NVIDIA's cards on the PCI bus, whether their driver knows them or not.
//!
//! Source: `/sys/bus/pci/devices`. The bus is looked through seldom: cards do not come and go.

use super::gpu_history::GpuHistory;
use super::{Gpu, GpuIdentity};
use std::fs::{read_dir, read_link, read_to_string};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use takt_model::pci;

const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The vendor, and the classes of graphics cards and of those without a screen.
const NVIDIA: &str = "0x10de";
const CLASSES: [&str; 2] = ["0x0300", "0x0302"];

/// Drivers that hold a card for something else: a virtual machine, the free desktop.
const OTHERS: [&str; 3] = ["vfio-pci", "nouveau", "pciback"];

/// Power of all cards together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CardPower {
    /// A card that never sleeps is among them, or there is none.
    AlwaysOn,
    /// They may sleep, and one is awake.
    Awake,
    Asleep,
}

pub(super) struct PciSlots {
    devices: PathBuf,
    /// Addresses as the kernel writes them: `0000:41:00.0`.
    cards: Vec<String>,
    looked: Option<Instant>,
}

impl PciSlots {
    pub fn new(sysfs: &Path) -> Self {
        Self {
            devices: sysfs.join("bus/pci/devices"),
            cards: Vec::new(),
            looked: None,
        }
    }

    /// The cards that are neither among these GPUs nor known from before, as GPUs that cannot say
    /// who they are.
    pub fn without(&mut self, gpus: &[Gpu], history: &GpuHistory) -> Vec<GpuIdentity> {
        self.look_again();
        // One that cannot say where it is may be any.
        if gpus.iter().any(|gpu| gpu.identity.pci_bus_id.is_empty()) {
            return Vec::new();
        }

        let here = gpus.iter().map(|gpu| &gpu.identity);
        let published = here.chain(history.identities());
        let published = published.filter_map(|identity| pci::bus_id(&identity.pci_bus_id));
        let published: Vec<_> = published.collect();

        let unseen = self.cards.iter().filter(|card| !published.contains(card));
        let identity = |card: &String| GpuIdentity {
            pci_bus_id: card.clone(),
            ..GpuIdentity::unknown(card.clone(), 0, "")
        };
        unseen.map(identity).collect()
    }

    /// The cards' power. To read it wakes none.
    pub fn power(&mut self) -> CardPower {
        self.look_again();
        let all_are = |file: &str, word: &str| {
            let read = |card: &String| {
                crate::sysfs::text(&self.devices.join(card).join("power").join(file))
            };
            let is_so = |card: &String| read(card).as_deref() == Some(word);
            self.cards.iter().all(is_so)
        };

        // Without `auto`, the kernel never suspends a card.
        if self.cards.is_empty() || !all_are("control", "auto") {
            CardPower::AlwaysOn
        } else if all_are("runtime_status", "suspended") {
            CardPower::Asleep
        } else {
            CardPower::Awake
        }
    }

    fn look_again(&mut self) {
        if self.looked.is_none_or(|at| at.elapsed() > LOOK_AGAIN) {
            self.looked = Some(Instant::now());
            self.cards = self.look();
        }
    }

    fn look(&self) -> Vec<String> {
        let devices = read_dir(&self.devices).into_iter().flatten().flatten();
        let is_card = |device: &Path| {
            let is = |file: &str, wanted: &[&str]| {
                let value = read_to_string(device.join(file)).unwrap_or_default();
                // The file has further digits behind the class.
                wanted.iter().any(|wanted| value.starts_with(wanted))
            };

            let driver = read_link(device.join("driver")).ok();
            let driver = driver.as_deref().and_then(Path::file_name);
            let driver = driver.and_then(|name| name.to_str());
            is("vendor", &[NVIDIA])
                && is("class", &CLASSES)
                && driver.is_none_or(|driver| !OTHERS.contains(&driver))
        };

        let cards = devices.filter(|device| is_card(&device.path()));
        let cards = cards.filter_map(|device| device.file_name().into_string().ok());
        let mut cards: Vec<_> = cards.collect();
        cards.sort();
        cards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_without_a_driver_are_seen_and_those_of_others_are_not() {
        let sysfs = tempfile::tempdir().unwrap();
        let devices = sysfs.path().join("bus/pci/devices");
        // A card with its driver, one without, its audio function, one of a virtual machine, and one of another
        // vendor.
        for (address, vendor, class, driver) in [
            ("0000:01:00.0", "0x10de", "0x030000", Some("nvidia")),
            ("0000:21:00.0", "0x10de", "0x030200", None),
            ("0000:21:00.1", "0x10de", "0x040300", Some("snd_hda_intel")),
            ("0000:41:00.0", "0x10de", "0x030000", Some("vfio-pci")),
            ("0000:61:00.0", "0x1002", "0x030000", Some("amdgpu")),
        ] {
            let device = devices.join(address);
            std::fs::create_dir_all(&device).unwrap();
            std::fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
            std::fs::write(device.join("class"), format!("{class}\n")).unwrap();
            if let Some(driver) = driver {
                std::os::unix::fs::symlink(
                    format!("../../../drivers/{driver}"),
                    device.join("driver"),
                )
                .unwrap();
            }
        }
        let mut slots = PciSlots::new(sysfs.path());
        assert_eq!(
            slots.power(),
            CardPower::AlwaysOn,
            "without files of power management"
        );
        for (control, status, power) in [
            ("auto", "active", CardPower::Awake),
            ("auto", "suspended", CardPower::Asleep),
            ("on", "active", CardPower::AlwaysOn),
        ] {
            for card in ["0000:01:00.0", "0000:21:00.0"] {
                let directory = devices.join(card).join("power");
                std::fs::create_dir_all(&directory).unwrap();
                std::fs::write(directory.join("control"), control).unwrap();
                std::fs::write(directory.join("runtime_status"), status).unwrap();
            }
            assert_eq!(slots.power(), power, "{control}, {status}");
        }
        let unseen = slots.without(&[], &GpuHistory::load(None));
        let unseen: Vec<_> = unseen
            .iter()
            .map(|identity| identity.uuid.as_str())
            .collect();
        assert_eq!(unseen, ["unknown-0000:01:00.0", "unknown-0000:21:00.0"]);
    }
}
