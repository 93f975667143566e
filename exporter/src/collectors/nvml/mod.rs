//! NVIDIA GPUs: what they do, what they draw, and whose work is on them.
//!
//! Source: NVML, the driver's library. It may hang, so this collector has a thread. What a GPU does not support is left
//! out; a GPU that was there and is not any more keeps its `takt_gpu_up`, at 0. Whose the processes on the GPUs are says
//! the collector `jobs`, which gets them from here.

mod library;

use self::library::Library;
use crate::collector::{CollectError, Collector};
use crate::gpus::{GpuProcess, KnownGpu, SharedGpus};
use crate::options::Options;
use nvml_wrapper::error::NvmlError;
use std::collections::BTreeMap;
use std::path::PathBuf;
use takt_model::{Metric, Samples};

/// What `nvml` leaves to choose.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct NvmlOptions {
    /// NVIDIA's management library, by path or by a name that the system's loader knows.
    #[arg(long = "nvml.library", value_name = "PATH", default_value = "libnvidia-ml.so.1")]
    pub library: PathBuf,
}

struct Nvml {
    gpus: Box<dyn Gpus>,
    shared: SharedGpus,
    /// The GPUs that ever were there, by UUID.
    seen: BTreeMap<String, Identity>,
}

/// What the collector asks of NVML. In tests a recording answers.
trait Gpus: Send {
    /// Every GPU that NVML knows now.
    fn read(&mut self) -> Result<Vec<Gpu>, Trouble>;
}

/// NVML as a whole does not answer.
#[derive(Debug)]
struct Trouble {
    attempt: &'static str,
    error: NvmlError,
}

/// One GPU, read or not.
#[derive(Debug, Clone)]
struct Gpu {
    identity: Identity,
    /// The values, or the reason why there are none.
    reading: Result<Reading, &'static str>,
}

/// What does not change while the driver runs.
#[derive(Debug, Clone, PartialEq)]
struct Identity {
    uuid: String,
    index: u32,
    minor: Option<u32>,
    pci_bus_id: String,
    model: String,
    driver: String,
}

/// What does. In base units; `None` is not supported.
#[derive(Debug, Clone, Default, PartialEq)]
struct Reading {
    utilization: Option<f64>,
    memory_utilization: Option<f64>,
    encoder: Option<f64>,
    decoder: Option<f64>,
    memory: Option<Memory>,
    power_watts: Option<f64>,
    power_limit_watts: Option<f64>,
    energy_joules: Option<f64>,
    /// By sensor, in degrees Celsius.
    temperatures: Vec<(&'static str, f64)>,
    /// By domain, in hertz.
    clocks: Vec<(&'static str, f64)>,
    /// In the order of the fans, as ratios.
    fans: Vec<f64>,
    /// Each once.
    processes: Option<Vec<GpuProcess>>,
}

/// Bytes of the GPU's memory.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Memory {
    used: f64,
    free: f64,
    reserved: f64,
    total: f64,
}

const UUID: &[&str] = &["uuid"];
const UP: Metric = Metric::gauge(
    "takt_gpu_up",
    "Whether the GPU answers. The reason, where it does not: lost (fell off the bus), reset_required, not_enumerated \
     (was there before), driver_not_loaded, driver_mismatch, error.",
    &["uuid", "reason"],
);
const INFO: Metric = Metric::gauge(
    "takt_gpu_info",
    "Which GPU it is; always 1. index is NVML's, in the order of the PCI bus; minor is that of /dev/nvidia*.",
    &["uuid", "index", "minor", "pci_bus_id", "model", "driver"],
);
const UTILIZATION: Metric = Metric::gauge(
    "takt_gpu_utilization_ratio",
    "Share of the last sampling period in which a kernel ran, however little of the GPU it filled.",
    UUID,
);
const MEMORY_UTILIZATION: Metric = Metric::gauge(
    "takt_gpu_memory_utilization_ratio",
    "Share of the last sampling period in which the memory was read or written; not how full it is.",
    UUID,
);
const ENCODER: Metric = Metric::gauge("takt_gpu_encoder_utilization_ratio", "Share of the video encoder in use.", UUID);
const DECODER: Metric = Metric::gauge("takt_gpu_decoder_utilization_ratio", "Share of the video decoder in use.", UUID);
const MEMORY_USED: Metric =
    Metric::gauge("takt_gpu_memory_used_bytes", "Memory allocated by processes, without the reserved.", UUID);
const MEMORY_FREE: Metric = Metric::gauge("takt_gpu_memory_free_bytes", "Memory not allocated.", UUID);
const MEMORY_RESERVED: Metric =
    Metric::gauge("takt_gpu_memory_reserved_bytes", "Memory that the driver and the firmware keep.", UUID);
const MEMORY_TOTAL: Metric = Metric::gauge("takt_gpu_memory_total_bytes", "Memory of the GPU.", UUID);
const POWER: Metric = Metric::gauge("takt_gpu_power_watts", "Power that the whole board draws.", UUID);
const POWER_LIMIT: Metric =
    Metric::gauge("takt_gpu_power_limit_watts", "Power limit in force, the lowest of all that apply.", UUID);
const ENERGY: Metric = Metric::counter(
    "takt_gpu_energy_joules_total",
    "Energy that the board has drawn since the driver was loaded.",
    UUID,
);
const TEMPERATURE: Metric =
    Metric::gauge("takt_gpu_temperature_celsius", "Temperature of the GPU or its memory.", &["uuid", "sensor"]);
const CLOCK: Metric =
    Metric::gauge("takt_gpu_clock_hertz", "Clock of one part of the GPU at this moment.", &["uuid", "domain"]);
const FAN: Metric = Metric::gauge(
    "takt_gpu_fan_ratio",
    "Speed that the fan is told to have, as a share of its full speed; more than 1 where it may exceed that.",
    &["uuid", "fan"],
);
const PROCESSES: Metric = Metric::gauge("takt_gpu_processes", "Processes that use the GPU, desktop included.", UUID);
const METRICS: &[Metric] = &[
    UP,
    INFO,
    UTILIZATION,
    MEMORY_UTILIZATION,
    ENCODER,
    DECODER,
    MEMORY_USED,
    MEMORY_FREE,
    MEMORY_RESERVED,
    MEMORY_TOTAL,
    POWER,
    POWER_LIMIT,
    ENERGY,
    TEMPERATURE,
    CLOCK,
    FAN,
    PROCESSES,
];

/// GPUs of one node, gone ones included.
const MAX_GPUS: usize = 64;

pub(crate) fn new(options: &Options) -> Box<dyn Collector> {
    let library = Library::new(options.nvml.library.clone());
    Box::new(Nvml::new(Box::new(library), options.shared.gpus.clone()))
}

impl Nvml {
    fn new(gpus: Box<dyn Gpus>, shared: SharedGpus) -> Self {
        Self { gpus, shared, seen: BTreeMap::new() }
    }

    /// Lost GPUs are published too: jobs still hold them.
    fn publish(&self, gpus: &[Gpu]) {
        let known = self.seen.values().map(|identity| {
            let here = gpus.iter().find(|gpu| gpu.identity.uuid == identity.uuid);
            let reading = here.and_then(|gpu| gpu.reading.as_ref().ok());
            KnownGpu {
                uuid: identity.uuid.clone(),
                index: identity.index,
                minor: identity.minor,
                parts: Vec::new(),
                processes: reading.and_then(|reading| reading.processes.clone()).unwrap_or_default(),
            }
        });
        self.shared.publish(known.collect());
    }
}

impl Collector for Nvml {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_GPUS * 2 * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let read = self.gpus.read();
        let gpus = read.as_deref().unwrap_or_default();
        for gpu in gpus {
            self.seen.insert(gpu.identity.uuid.clone(), gpu.identity.clone());
            gpu.identity.push(gpu.reading.as_ref().err().copied(), out);
            if let Ok(reading) = &gpu.reading {
                reading.push(&gpu.identity.uuid, out);
            }
        }
        let reason = read.as_ref().map_or_else(|trouble| trouble.reason(), |_| "not_enumerated");
        let is_here = |uuid: &str| gpus.iter().any(|gpu| gpu.identity.uuid == uuid);
        self.seen.values().filter(|identity| !is_here(&identity.uuid)).for_each(|gone| gone.push(Some(reason), out));
        self.publish(gpus);
        match read {
            Ok(_) if self.seen.is_empty() => Err(CollectError::Absent("no NVIDIA GPU")),
            Ok(_) => Ok(()),
            // A node image may bring the driver to nodes without GPUs.
            Err(trouble) if self.seen.is_empty() && trouble.is_absence() => {
                Err(CollectError::Absent("no NVIDIA driver"))
            }
            Err(Trouble { attempt, error }) => Err(CollectError::Nvml { attempt, source: error }),
        }
    }
}

impl Trouble {
    fn is_absence(&self) -> bool {
        matches!(self.error, NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded)
    }

    fn reason(&self) -> &'static str {
        match self.error {
            _ if self.is_absence() => "driver_not_loaded",
            NvmlError::Uninitialized => "driver_not_loaded",
            NvmlError::LibRmVersionMismatch => "driver_mismatch",
            _ => "error",
        }
    }
}

impl Identity {
    fn push(&self, trouble: Option<&str>, out: &mut Samples) {
        let Self { uuid, index, minor, pci_bus_id, model, driver } = self;
        out.push(&UP, &[uuid.as_str(), trouble.unwrap_or_default()], f64::from(u8::from(trouble.is_none())));
        let (index, minor) = (index.to_string(), minor.map_or_else(String::new, |minor| minor.to_string()));
        out.push(&INFO, &[uuid, &index, &minor, pci_bus_id, model, driver], 1.0);
    }
}

impl Reading {
    fn push(&self, uuid: &str, out: &mut Samples) {
        for (metric, value) in [
            (&UTILIZATION, self.utilization),
            (&MEMORY_UTILIZATION, self.memory_utilization),
            (&ENCODER, self.encoder),
            (&DECODER, self.decoder),
            (&MEMORY_USED, self.memory.map(|memory| memory.used)),
            (&MEMORY_FREE, self.memory.map(|memory| memory.free)),
            (&MEMORY_RESERVED, self.memory.map(|memory| memory.reserved)),
            (&MEMORY_TOTAL, self.memory.map(|memory| memory.total)),
            (&POWER, self.power_watts),
            (&POWER_LIMIT, self.power_limit_watts),
            (&ENERGY, self.energy_joules),
            (&PROCESSES, self.processes.as_ref().map(|processes| processes.len() as f64)),
        ] {
            value.into_iter().for_each(|value| out.push(metric, &[uuid], value));
        }
        self.temperatures.iter().for_each(|(sensor, celsius)| out.push(&TEMPERATURE, &[uuid, sensor], *celsius));
        self.clocks.iter().for_each(|(domain, hertz)| out.push(&CLOCK, &[uuid, domain], *hertz));
        for (fan, ratio) in self.fans.iter().enumerate() {
            out.push(&FAN, &[uuid, &fan.to_string()], *ratio);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use takt_model::exposition::{Format, write_page};

    /// Answers one reading after the other.
    struct Recorded(VecDeque<Result<Vec<Gpu>, Trouble>>);

    impl Gpus for Recorded {
        fn read(&mut self) -> Result<Vec<Gpu>, Trouble> {
            self.0.pop_front().expect("one more reading")
        }
    }

    fn collector(readings: impl IntoIterator<Item = Result<Vec<Gpu>, Trouble>>) -> Nvml {
        Nvml::new(Box::new(Recorded(readings.into_iter().collect())), SharedGpus::default())
    }

    /// The lines of the page that hold `part`, and how the reading ended.
    fn read(nvml: &mut Nvml, part: &str) -> (Vec<String>, Result<(), String>) {
        let (mut samples, mut page) = (Samples::new(), String::new());
        let result = nvml.collect(&mut samples).map_err(|error| error.to_string());
        write_page(Format::Text, [&samples], &mut page);
        let lines = page.lines().filter(|line| !line.starts_with('#') && line.contains(part));
        (lines.map(str::to_owned).collect(), result)
    }

    fn gpu(uuid: &str, reading: Result<Reading, &'static str>) -> Gpu {
        let identity = Identity {
            uuid: uuid.into(),
            index: 0,
            minor: Some(1),
            pci_bus_id: "00000000:01:00.0".into(),
            model: "NVIDIA GeForce RTX 5090".into(),
            driver: "580.95.05".into(),
        };
        Gpu { identity, reading }
    }

    fn trouble(error: NvmlError) -> Trouble {
        Trouble { attempt: "begin", error }
    }

    #[test]
    fn what_a_gpu_does_not_support_is_left_out() {
        let reading = Reading { utilization: Some(0.0), fans: vec![0.3, 0.31], ..Reading::default() };
        let (lines, result) = read(&mut collector([Ok(vec![gpu("GPU-a", Ok(reading))])]), "");
        assert_eq!(result, Ok(()));
        assert_eq!(
            lines,
            [
                r#"takt_gpu_up{uuid="GPU-a",reason=""} 1"#,
                r#"takt_gpu_info{uuid="GPU-a",index="0",minor="1",pci_bus_id="00000000:01:00.0",model="NVIDIA GeForce RTX 5090",driver="580.95.05"} 1"#,
                r#"takt_gpu_utilization_ratio{uuid="GPU-a"} 0"#,
                r#"takt_gpu_fan_ratio{uuid="GPU-a",fan="0"} 0.3"#,
                r#"takt_gpu_fan_ratio{uuid="GPU-a",fan="1"} 0.31"#,
            ]
        );
    }

    #[test]
    fn a_lost_gpu_says_so_and_its_sibling_stays() {
        let both = || vec![gpu("GPU-a", Ok(Reading::default())), gpu("GPU-b", Ok(Reading::default()))];
        let mut nvml = collector([
            Ok(both()),
            Ok(vec![gpu("GPU-a", Err("lost")), gpu("GPU-b", Ok(Reading::default()))]),
            Ok(vec![gpu("GPU-b", Ok(Reading::default()))]),
            Err(trouble(NvmlError::LibRmVersionMismatch)),
            Ok(both()),
        ]);
        let mut up = || read(&mut nvml, "_up").0;
        let line = |uuid, reason, value| format!("takt_gpu_up{{uuid=\"GPU-{uuid}\",reason=\"{reason}\"}} {value}");
        assert_eq!(up(), [line("a", "", 1), line("b", "", 1)]);
        assert_eq!(up(), [line("a", "lost", 0), line("b", "", 1)]);
        assert_eq!(up(), [line("b", "", 1), line("a", "not_enumerated", 0)]);
        assert_eq!(up(), [line("a", "driver_mismatch", 0), line("b", "driver_mismatch", 0)]);
        assert_eq!(up(), [line("a", "", 1), line("b", "", 1)]);
    }

    #[test]
    fn absent_and_broken_are_told_apart() {
        let end = |readings: Vec<Result<Vec<Gpu>, Trouble>>| {
            let count = readings.len();
            let mut nvml = collector(readings);
            (0..count).fold(String::new(), |_, _| read(&mut nvml, "").1.err().unwrap_or_default())
        };
        assert_eq!(end(vec![Err(trouble(NvmlError::DriverNotLoaded))]), "nothing to collect: no NVIDIA driver");
        assert_eq!(end(vec![Ok(vec![])]), "nothing to collect: no NVIDIA GPU");
        assert_eq!(end(vec![Err(trouble(NvmlError::Unknown))]), "cannot begin");
        let was_there = Ok(vec![gpu("GPU-a", Ok(Reading::default()))]);
        assert_eq!(end(vec![was_there, Err(trouble(NvmlError::DriverNotLoaded))]), "cannot begin");
    }

    #[test]
    fn who_uses_the_gpus_is_told_to_the_jobs() {
        let process = GpuProcess { pid: 10, memory: Some(1 << 30), gpu_instance: None };
        let reading = Reading { processes: Some(vec![process]), ..Reading::default() };
        let mut nvml = collector([Ok(vec![gpu("GPU-a", Ok(reading))]), Err(trouble(NvmlError::Unknown))]);
        assert_eq!(read(&mut nvml, "process").0, [r#"takt_gpu_processes{uuid="GPU-a"} 1"#]);
        let table = nvml.shared.table(std::time::Duration::ZERO);
        assert_eq!((table.gpus[0].uuid.as_str(), table.gpus[0].minor), ("GPU-a", Some(1)));
        assert_eq!(table.gpus[0].processes, [process]);
        read(&mut nvml, "").1.unwrap_err();
        let table = nvml.shared.table(std::time::Duration::ZERO);
        assert_eq!((table.gpus.len(), table.gpus[0].processes.len()), (1, 0), "who is on a GPU that is silent?");
    }
}
