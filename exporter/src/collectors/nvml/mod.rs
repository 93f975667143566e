//! NVIDIA GPUs: what they do, what they draw, and what ails them.
//!
//! Source: NVML, the driver's library. It may hang, so this collector has a thread, and each GPU
//! another. What a GPU does not support is left out; a GPU that was there and is not any more, or
//! that hangs, keeps its `takt_gpu_up`, at 0. Whose the processes on the GPUs are says the
//! collector `jobs`, which gets them from here.

mod dcgm;
mod fields;
mod gpm;
mod gpu_history;
mod library;
mod metrics;
mod mig;
mod nvlink;
mod pci;
mod reading;
mod rest;
mod values;
mod virtualization;
mod worker;
mod xid;

pub use self::dcgm::DcgmRelease;
use self::gpu_history::GpuHistory;
use self::library::NvmlLibrary;
use self::metrics::{ERRORS, INFO, METRICS, PROCESSES, UP, UTILIZATION};
use self::pci::PciSlots;
use self::rest::NvmlRest;
use self::values::{CallErrors, GpuValues};
use crate::collector::{CollectError, Collector, SharedState, flag};
use crate::events::Events;
use crate::gpus::{GpuProcess, KnownGpu, LettingGo, SharedGpus};
use crate::paths::Paths;
use nvml_wrapper::error::NvmlError;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;
use takt_model::{Metric, Samples};

/// Flags of the collector `nvml`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct NvmlOptions {
    /// NVIDIA's management library, by path or by a name that the system's loader knows.
    #[arg(
        long = "nvml.library",
        value_name = "PATH",
        default_value = "libnvidia-ml.so.1"
    )]
    pub library: PathBuf,
    /// Also export dcgm-exporter's metric names, as its given release does: 4.7 (up to 4.8.2, label
    /// Hostname), 4.8 or 4.9 (names and base units of DCGM 4.7); without a release, 4.8.
    #[arg(
        long = "gpu.dcgm-names",
        value_name = "RELEASE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "4.8",
        hide_possible_values = true
    )]
    pub dcgm_names: Option<DcgmRelease>,
}

struct Nvml {
    gpus: Box<dyn Gpus>,
    shared: SharedGpus,
    letting_go: LettingGo,
    slots: PciSlots,
    rest: NvmlRest,
    history: GpuHistory,
    events: Events,
    /// The release of dcgm-exporter whose names are wanted, and the node's name.
    dcgm: Option<(DcgmRelease, String)>,
    /// The places of the GPUs that are lost.
    lost: BTreeSet<String>,
}

/// The part of NVML that the collector uses. Tests have a recording of it.
trait Gpus: Send {
    /// Takes the events to which XIDs are reported.
    fn attach(&mut self, _events: &Events) {}

    /// Closes NVML, whose open devices would keep the driver from being unloaded.
    fn let_go(&mut self) {}

    /// Every GPU that NVML knows now.
    fn read(&mut self) -> Result<Vec<Gpu>, NvmlFailure>;
}

/// A call of NVML failed that concerns all GPUs.
#[derive(Debug)]
struct NvmlFailure {
    attempt: &'static str,
    error: NvmlError,
}

/// One GPU, read or not.
#[derive(Debug, Clone)]
struct Gpu {
    identity: GpuIdentity,
    reading: Result<GpuReading, UnavailableReason>,
}

/// Identity of a GPU; it stays the same while the driver runs.
#[derive(Debug, Clone, PartialEq)]
struct GpuIdentity {
    uuid: String,
    index: u32,
    minor: Option<u32>,
    pci_bus_id: String,
    model: String,
    driver: String,
    /// Serial number of the board; empty if NVML does not report one, as for most GeForce cards.
    serial: String,
}

/// Values of a GPU that change.
#[derive(Debug, Clone, Default, PartialEq)]
struct GpuReading {
    values: GpuValues,
    /// The parts into which the GPU is divided (MIG), by UUID, and the numbers of their GPU
    /// instances.
    parts: Vec<(String, u32)>,
    /// Each once. `None` is not supported.
    processes: Option<Vec<GpuProcess>>,
    errors: CallErrors,
}

/// Why a GPU has no values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnavailableReason {
    Lost,
    ResetRequired,
    Hung,
    NotEnumerated,
    DriverNotLoaded,
    DriverMismatch,
    LetGo,
    /// It sleeps, or is left alone to fall asleep; it would answer.
    Asleep,
    Error,
}

/// GPUs of one node, gone ones included.
const MAX_GPUS: usize = 64;
/// Maximum series of one GPU: NVLinks, fans and MIG devices have several series each.
const MAX_SERIES: usize = 1024;

pub(crate) fn new(
    paths: &Paths,
    options: &NvmlOptions,
    state_directory: Option<&Path>,
    shared: &SharedState,
) -> Box<dyn Collector> {
    Box::new(Nvml {
        gpus: Box::new(NvmlLibrary::new(options.library.clone())),
        shared: shared.gpus.clone(),
        letting_go: shared.letting_go.clone(),
        slots: PciSlots::new(&paths.sysfs),
        rest: NvmlRest::default(),
        history: GpuHistory::load(state_directory),
        events: Events::default(),
        dcgm: options.dcgm_names.map(|release| {
            let name = rustix::system::uname();
            (release, name.nodename().to_string_lossy().into_owned())
        }),
        lost: BTreeSet::new(),
    })
}

impl Collector for Nvml {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_GPUS * (MAX_SERIES + dcgm::MAX_SERIES)
    }

    fn attach(&mut self, events: &Events) -> io::Result<()> {
        self.events = events.clone();
        self.gpus.attach(events);
        Ok(())
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        if self.letting_go.is_now() {
            self.leave_alone(UnavailableReason::LetGo, out);
            return Ok(());
        }

        let power = self.slots.power();
        let now = Instant::now();
        // A question would wake the cards, or keep them from falling asleep.
        if !self.rest.may_ask(power, now) {
            self.leave_alone(UnavailableReason::Asleep, out);
            return Ok(());
        }

        let mut read = self.gpus.read();
        if let Ok(gpus) = &mut read {
            self.history.recognise(gpus);
            self.history.update(gpus);
            self.tell(gpus);
            self.rest.saw(gpus.iter().all(Gpu::is_idle), power, now);
        }

        let gpus = read.as_deref().unwrap_or_default();
        for gpu in gpus {
            gpu.push(out);
            if let (Some((release, hostname)), Ok(reading)) = (&self.dcgm, &gpu.reading) {
                let last_xid = self.events.last_xid(&gpu.identity.uuid);
                dcgm::push(gpu, reading, *release, hostname, last_xid, out);
            }
        }

        // GPUs that were there before.
        let silence = match &read {
            Ok(_) => UnavailableReason::NotEnumerated,
            Err(failure) => failure.silence(),
        };
        let is_here = |uuid: &str| gpus.iter().any(|gpu| gpu.identity.uuid == uuid);
        for known in self.history.identities() {
            if !is_here(&known.uuid) {
                known.push(Some(silence), out);
            }
        }

        // Without an installed driver, cards that it could drive are not reported.
        let unseen = if read.as_ref().is_err_and(NvmlFailure::is_absence) {
            Vec::new()
        } else {
            self.slots.without(gpus, &self.history)
        };
        for card in &unseen {
            card.push(Some(silence), out);
        }

        self.publish(gpus);

        let is_known = !self.history.is_empty() || !unseen.is_empty();
        let is_hung = |gpu: &Gpu| gpu.reading == Err(UnavailableReason::Hung);
        match read {
            Ok(gpus) if !gpus.is_empty() && gpus.iter().all(is_hung) => Err(CollectError::Nvml {
                attempt: "read a GPU",
                source: NvmlError::Timeout,
            }),
            Ok(_) if is_known => Ok(()),
            Ok(_) => Err(CollectError::Absent("no NVIDIA GPU")),
            // A node image may bring the driver to nodes without GPUs.
            Err(trouble) if !is_known && trouble.is_absence() => {
                Err(CollectError::Absent("no NVIDIA driver"))
            }
            Err(NvmlFailure { attempt, error }) => Err(CollectError::Nvml {
                attempt,
                source: error,
            }),
        }
    }
}

impl Nvml {
    /// Closes NVML, and publishes the GPUs that are known without asking them.
    fn leave_alone(&mut self, reason: UnavailableReason, out: &mut Samples) {
        self.gpus.let_go();
        for identity in self.history.identities() {
            identity.push(Some(reason), out);
        }
        self.publish(&[]);
    }

    /// Reports where the GPUs are, and once that a GPU is lost.
    fn tell(&mut self, gpus: &[Gpu]) {
        let places = gpus.iter().map(|gpu| &gpu.identity);
        let places = places.map(|gpu| (gpu.pci_bus_id.clone(), gpu.uuid.clone()));
        self.events.gpus(places);

        let is_lost = |gpu: &&Gpu| gpu.reading == Err(UnavailableReason::Lost);
        let lost = gpus.iter().filter(is_lost);
        let lost: BTreeSet<_> = lost.map(|gpu| gpu.identity.pci_bus_id.clone()).collect();
        for place in lost.difference(&self.lost) {
            // A GPU without an address cannot be matched with lines of the kernel.
            if !place.is_empty() {
                self.events.gpu_lost_by_nvml(place);
            }
        }
        self.lost = lost;
    }

    /// Lost GPUs are published too: jobs still hold them.
    fn publish(&self, gpus: &[Gpu]) {
        let mut known = Vec::new();
        for identity in self.history.identities() {
            let gpu = gpus.iter().find(|gpu| gpu.identity.uuid == identity.uuid);
            let reading = gpu.and_then(|gpu| gpu.reading.as_ref().ok());
            let parts = reading.map(|reading| reading.parts.clone());
            let processes = reading.and_then(|reading| reading.processes.clone());
            known.push(KnownGpu {
                uuid: identity.uuid.clone(),
                index: identity.index,
                minor: identity.minor,
                parts: parts.unwrap_or_default(),
                processes: processes.unwrap_or_default(),
            });
        }

        known.sort_by_key(|gpu| gpu.index);
        self.shared.publish(known);
    }
}

impl NvmlFailure {
    fn is_absence(&self) -> bool {
        matches!(
            self.error,
            NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded
        )
    }

    fn silence(&self) -> UnavailableReason {
        match self.error {
            _ if self.is_absence() => UnavailableReason::DriverNotLoaded,
            NvmlError::Uninitialized => UnavailableReason::DriverNotLoaded,
            NvmlError::LibRmVersionMismatch => UnavailableReason::DriverMismatch,
            NvmlError::Timeout => UnavailableReason::Hung,
            _ => UnavailableReason::Error,
        }
    }
}

impl UnavailableReason {
    fn word(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::ResetRequired => "reset_required",
            Self::Hung => "hung",
            Self::NotEnumerated => "not_enumerated",
            Self::DriverNotLoaded => "driver_not_loaded",
            Self::DriverMismatch => "driver_mismatch",
            Self::LetGo => "let_go",
            Self::Asleep => "asleep",
            Self::Error => "error",
        }
    }
}

impl GpuIdentity {
    /// A GPU that does not answer; `place` distinguishes it from the others.
    fn unknown(place: String, index: u32, driver: &str) -> Self {
        Self {
            uuid: format!("{UNKNOWN}{place}"),
            index,
            minor: None,
            pci_bus_id: String::new(),
            model: String::new(),
            driver: driver.to_owned(),
            serial: String::new(),
        }
    }

    fn is_known(&self) -> bool {
        !self.uuid.starts_with(UNKNOWN)
    }

    fn push(&self, silence: Option<UnavailableReason>, out: &mut Samples) {
        let Self {
            uuid,
            index,
            minor,
            pci_bus_id,
            model,
            driver,
            serial,
        } = self;

        // A GPU that sleeps would answer, so it is up.
        let is_well = silence.is_none_or(|reason| reason == UnavailableReason::Asleep);
        let up = flag(is_well);
        let reason = silence.map_or("", UnavailableReason::word);
        out.push(&UP, &[uuid.as_str(), reason], up);

        let index = index.to_string();
        let minor = minor.map_or_else(String::new, |minor| minor.to_string());
        let pci_bus_id = takt_model::pci::bus_id(pci_bus_id).unwrap_or_default();
        let labels = [uuid, &index, &minor, &pci_bus_id, model, driver, serial];
        out.push(&INFO, &labels, 1.0);
    }
}

/// Stands for a UUID.
const UNKNOWN: &str = "unknown-";

impl Gpu {
    fn is_idle(&self) -> bool {
        let reading = self.reading.as_ref();
        reading.is_ok_and(|reading| reading.values.get(&UTILIZATION) == Some(0.0))
    }

    fn push(&self, out: &mut Samples) {
        let uuid = &self.identity.uuid;
        self.identity
            .push(self.reading.as_ref().err().copied(), out);

        let Ok(reading) = &self.reading else { return };
        reading.values.push(uuid, out);

        if let Some(processes) = &reading.processes {
            out.push(&PROCESSES, &[uuid], processes.len() as f64);
        }

        for ((call, error), count) in &reading.errors {
            out.push(&ERRORS, &[uuid, *call, error.as_str()], *count as f64);
        }
    }
}

#[cfg(test)]
mod tests;
