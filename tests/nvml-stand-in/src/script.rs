//! The script that describes the simulated machine. The crate's documentation describes its
//! language.

mod words;

use crate::code;
use crate::profile::{self, Profile};
use std::collections::BTreeMap;
use std::process;
use std::ptr;
use words::Words;

/// A parsed script.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Script {
    pub gpus: Vec<GpuScript>,
    pub driver: Option<String>,
    /// Return code of `nvmlInit`; 0 is success.
    pub init: u32,
    pub hidden: Vec<String>,
    pub faults: Faults,
    /// Events in the order of their lines.
    pub events: Vec<Event>,
}

/// Scripted values of one GPU. `None` is the model's value.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuScript {
    pub profile: &'static Profile,
    pub gone: bool,
    pub faults: Faults,
    /// Field id (in the numbering before 580.82) → return code.
    pub field_faults: BTreeMap<u32, u32>,
    /// Field id (in the same numbering) and scope → value.
    pub field_values: BTreeMap<(u32, u32), u64>,
    pub name: Option<String>,
    pub uuid: Option<String>,
    pub serial: Option<String>,
    pub pci_bus_id: Option<String>,
    pub minor: Option<u32>,
    pub utilization: Option<(u32, u32)>,
    pub encoder: Option<u32>,
    pub decoder: Option<u32>,
    pub jpeg: Option<u32>,
    pub optical_flow: Option<u32>,
    pub temperature: Option<u32>,
    pub memory_temperature: Option<u32>,
    pub power_watts: Option<f64>,
    pub power_limit_watts: Option<f64>,
    pub energy_joules: Option<f64>,
    pub memory_used: Option<u64>,
    pub memory_total: Option<u64>,
    pub clocks_mhz: Option<(u32, u32)>,
    pub pstate: Option<u32>,
    pub throttle: Option<u64>,
    pub pcie: Option<(u32, u32)>,
    pub pcie_replays: u32,
    pub persistence: u32,
    pub ecc: Ecc,
    pub remapped: Remapped,
    pub fans: Vec<u32>,
    pub recovery_action: u32,
    pub mig: bool,
    pub nvlinks_down: Vec<u32>,
    /// Errors by link and kind of error.
    pub nvlink_errors: BTreeMap<(u32, usize), u64>,
    /// Pages retired for single and double bit errors, and whether a retirement is pending. Only
    /// for older GPUs.
    pub retired: Option<(u32, u32, bool)>,
    pub sram_threshold_exceeded: bool,
    /// Virtualization mode, as NVML's number.
    pub virtualization: u32,
    /// Whether a vGPU guest has its licence.
    pub licensed: bool,
    pub vgpus: Vec<Vgpu>,
    pub fabric: Option<Fabric>,
    /// MIG devices by index.
    pub parts: Vec<Part>,
    pub processes: Vec<Process>,
}

/// The kinds of NVLink errors that can be scripted.
pub const NVLINK_ERRORS: [&str; 4] = ["replay", "recovery", "crc", "crc-data"];

/// A MIG device.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub gpu_instance: u32,
    pub compute_instance: u32,
    /// `1g.5gb`
    pub profile: String,
    pub memory: u64,
    pub used: u64,
}

/// A vGPU of a virtual machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Vgpu {
    pub vm: String,
    /// `GRID A100-10C`
    pub kind: String,
    pub used: u64,
}

/// State of the GPU in the fabric of NVSwitches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fabric {
    Joining,
    Ready,
    Degraded,
    Failed,
}

/// ECC error counts, [corrected, uncorrected].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ecc {
    pub volatile: [u64; 2],
    pub aggregate: [u64; 2],
}

/// Remapped rows of the GPU's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Remapped {
    pub corrected: u32,
    pub uncorrected: u32,
    pub pending: bool,
    pub failed: bool,
}

/// A process that uses a GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    pub pid: u32,
    /// `None` is NVML's "not available".
    pub memory: Option<u64>,
    pub compute: bool,
    pub graphics: bool,
    pub sm_percent: Option<u32>,
    pub gpu_instance: Option<u32>,
}

/// An event of one GPU: NVML's type bit and datum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    pub gpu: usize,
    pub kind: u64,
    pub data: u64,
}

/// Calls that fail or take their time. The first match counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Faults {
    fail: Vec<(Pattern, u32)>,
    sleep: Vec<(Pattern, u64)>,
    crash: Vec<(Pattern, Crash)>,
}

/// How a call ends the process that makes it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Crash {
    /// Accesses unmapped memory (SIGSEGV).
    Segmentation,
    /// Calls `abort` (SIGABRT).
    Abort,
}

impl Crash {
    fn happen(self) {
        match self {
            Self::Abort => process::abort(),
            Self::Segmentation => {
                let nowhere = ptr::without_provenance_mut::<u64>(4096);
                // SAFETY: none. The first page is never mapped, so the write ends the process,
                // which is what the script asks for.
                unsafe { nowhere.write_volatile(0) };
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Pattern(String);

impl Faults {
    /// Returns the scripted return code of this call.
    pub fn failure(&self, function: &str) -> Option<u32> {
        self.fail
            .iter()
            .find(|(p, _)| p.matches(function))
            .map(|&(_, code)| code)
    }

    /// Returns the scripted duration of the call. Does not return if the script lets the call
    /// crash.
    pub fn delay_ms(&self, function: &str) -> Option<u64> {
        let crash = self.crash.iter().find(|(p, _)| p.matches(function));
        if let Some((_, crash)) = crash {
            crash.happen();
        }
        self.sleep
            .iter()
            .find(|(p, _)| p.matches(function))
            .map(|&(_, ms)| ms)
    }
}

impl Pattern {
    fn matches(&self, function: &str) -> bool {
        match self.0.strip_suffix('*') {
            // `fail *` leaves out initialisation and shutdown.
            Some("") => !function.starts_with("nvmlInit"),
            Some(prefix) => function.starts_with(prefix),
            None => function == self.0,
        }
    }
}

/// A mistake in a script.
#[derive(Debug, PartialEq)]
pub struct Mistake {
    pub line: usize,
    pub message: String,
}

impl Script {
    /// One RTX 5090.
    pub fn standard() -> Self {
        Self {
            gpus: vec![GpuScript::new(&profile::RTX5090)],
            ..Self::default()
        }
    }

    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let mut script = Self::default();
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = Words(line.split_whitespace().collect::<Vec<_>>().into_iter());
            let done = match words.0.next() {
                None => continue,
                Some(statement) => script.statement(statement, &mut words),
            };
            done.and_then(|()| words.end()).map_err(|message| Mistake {
                line: i + 1,
                message,
            })?;
        }
        if script.gpus.is_empty() {
            script.gpus = Self::standard().gpus;
        }
        Ok(script)
    }

    fn statement(&mut self, statement: &str, words: &mut Words<'_>) -> Result<(), String> {
        match statement {
            "profile" => {
                let name = words.text("a model")?;
                let profile = profile::by_name(name).ok_or_else(|| {
                    let known: Vec<_> = profile::ALL.iter().map(|p| p.word).collect();
                    format!("no model `{name}`; there are {}", known.join(", "))
                })?;
                let count = if words.at_end() {
                    1
                } else {
                    words.number("a count")?
                };
                self.gpus
                    .extend((0..count).map(|_| GpuScript::new(profile)));
            }
            "driver" => self.driver = Some(words.text("a version")?.to_owned()),
            "init" => self.init = words.number("a return code")?,
            "hide" => self.hidden.push(words.text("a function")?.to_owned()),
            "fail" => self.faults.fail.push(words.fault("a return code")?),
            "sleep" => self.faults.sleep.push(words.fault("milliseconds")?),
            "crash" => {
                let pattern = words.pattern()?;
                let crash =
                    [Crash::Segmentation, Crash::Abort][words.choice(&["segv", "abort"])?];
                self.faults.crash.push((pattern, crash));
            }
            "xid" => {
                let gpu = self.gpu_index(words)?;
                let kind = nvml_wrapper_sys::bindings::nvmlEventTypeXidCriticalError.into();
                self.events.push(Event {
                    gpu,
                    kind,
                    data: words.number("an XID")?,
                });
            }
            "event" => {
                let gpu = self.gpu_index(words)?;
                self.events.push(Event {
                    gpu,
                    kind: words.number("an event type")?,
                    data: words.number("a datum")?,
                });
            }
            "gpu" => {
                let gpu = self.gpu_index(words)?;
                self.gpus[gpu].statement(words)?;
            }
            _ => return Err(format!("no statement `{statement}`")),
        }
        Ok(())
    }

    fn gpu_index(&mut self, words: &mut Words<'_>) -> Result<usize, String> {
        if self.gpus.is_empty() {
            self.gpus = Self::standard().gpus;
        }
        let index: usize = words.number("a GPU's number")?;
        match self.gpus.len() {
            n if index < n => Ok(index),
            n => Err(format!("no GPU {index}; the profiles above make {n}")),
        }
    }
}

impl GpuScript {
    fn new(profile: &'static Profile) -> Self {
        Self {
            profile,
            gone: false,
            faults: Faults::default(),
            field_faults: BTreeMap::new(),
            field_values: BTreeMap::new(),
            name: None,
            uuid: None,
            serial: None,
            pci_bus_id: None,
            minor: None,
            utilization: None,
            encoder: None,
            decoder: None,
            jpeg: None,
            optical_flow: None,
            temperature: None,
            memory_temperature: None,
            power_watts: None,
            power_limit_watts: None,
            energy_joules: None,
            memory_used: None,
            memory_total: None,
            clocks_mhz: None,
            pstate: None,
            throttle: None,
            pcie: None,
            pcie_replays: 0,
            persistence: 1,
            ecc: Ecc::default(),
            remapped: Remapped::default(),
            fans: Vec::new(),
            recovery_action: 0,
            mig: false,
            nvlinks_down: Vec::new(),
            nvlink_errors: BTreeMap::new(),
            retired: None,
            sram_threshold_exceeded: false,
            virtualization: 0,
            licensed: false,
            vgpus: Vec::new(),
            fabric: None,
            parts: Vec::new(),
            processes: Vec::new(),
        }
    }

    fn statement(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        match words.text("a statement about the GPU")? {
            "lost" => self
                .faults
                .fail
                .insert(0, (Pattern("*".to_owned()), code::GPU_IS_LOST)),
            "gone" => self.gone = true,
            "fail" => self.faults.fail.push(words.fault("a return code")?),
            "sleep" => self.faults.sleep.push(words.fault("milliseconds")?),
            "unsupported" => self
                .faults
                .fail
                .push((words.pattern()?, code::NOT_SUPPORTED)),
            "field" => {
                self.field_faults
                    .insert(words.number("a field id")?, words.number("a return code")?);
            }
            "field-value" => {
                let place = (words.number("a field id")?, words.number("a scope")?);
                self.field_values.insert(place, words.number("a value")?);
            }
            "name" => self.name = Some(words.rest("a name")?),
            "uuid" => self.uuid = Some(words.text("a UUID")?.to_owned()),
            "serial" => self.serial = Some(words.text("a serial number")?.to_owned()),
            "pci" => self.pci_bus_id = Some(words.text("a PCI bus id")?.to_owned()),
            "minor" => self.minor = Some(words.number("a minor number")?),
            "utilization" => self.utilization = Some((words.percent()?, words.percent()?)),
            "encoder" => self.encoder = Some(words.percent()?),
            "decoder" => self.decoder = Some(words.percent()?),
            "jpeg" => self.jpeg = Some(words.percent()?),
            "optical-flow" => self.optical_flow = Some(words.percent()?),
            "temperature" => self.temperature = Some(words.number("degrees")?),
            "memory-temperature" => self.memory_temperature = Some(words.number("degrees")?),
            "power" => self.power_watts = Some(words.decimal("watts")?),
            "power-limit" => self.power_limit_watts = Some(words.decimal("watts")?),
            "energy" => self.energy_joules = Some(words.decimal("joules")?),
            "memory-used" => self.memory_used = Some(words.size()?),
            "memory-total" => self.memory_total = Some(words.size()?),
            "clocks" => self.clocks_mhz = Some((words.number("MHz")?, words.number("MHz")?)),
            "pstate" => self.pstate = Some(words.number("a performance state")?),
            "throttle" => self.throttle = Some(words.number("bits")?),
            "pcie" => self.pcie = Some((words.number("a generation")?, words.number("a width")?)),
            "persistence" => self.persistence = words.number("0 or 1")?,
            "pcie-replay" => self.pcie_replays = words.number("a count")?,
            "ecc" => {
                let kind = words.choice(&["corrected", "uncorrected"])?;
                let scope = words.choice(&["volatile", "aggregate"])?;
                let counts = if scope == 0 {
                    &mut self.ecc.volatile
                } else {
                    &mut self.ecc.aggregate
                };
                counts[kind] = words.number("a count")?;
            }
            "remapped" => {
                self.remapped = Remapped {
                    corrected: words.number("corrected rows")?,
                    uncorrected: words.number("uncorrected rows")?,
                    pending: words.choice(&["0", "1"])? == 1,
                    failed: words.choice(&["0", "1"])? == 1,
                };
            }
            "fan" => {
                self.fans = vec![words.percent()?];
                while !words.at_end() {
                    self.fans.push(words.percent()?);
                }
            }
            "recovery-action" => self.recovery_action = words.number("an action")?,
            "mig" => self.mig = words.choice(&["off", "on"])? == 1,
            "nvlink" => {
                let link = words.number("a link")?;
                self.nvlinks_down.retain(|&l| l != link);
                if words.choice(&["up", "down"])? == 1 {
                    self.nvlinks_down.push(link);
                }
            }
            "nvlink-errors" => {
                let link = words.number("a link")?;
                let kind = words.choice(&NVLINK_ERRORS)?;
                self.nvlink_errors
                    .insert((link, kind), words.number("a count")?);
            }
            "retired" => {
                let single = words.number("pages")?;
                let double = words.number("pages")?;
                self.retired = Some((single, double, words.choice(&["0", "1"])? == 1));
            }
            "sram-threshold" => {
                self.sram_threshold_exceeded = words.choice(&["kept", "exceeded"])? == 1
            }
            "virtualization" => {
                let modes = [
                    "none",
                    "passthrough",
                    "vgpu-guest",
                    "vgpu-host",
                    "vsga-host",
                ];
                self.virtualization = words.choice(&modes)? as u32;
            }
            "licence" => self.licensed = words.choice(&["missing", "there"])? == 1,
            "vgpu" => {
                let vm = words.text("a virtual machine")?.to_owned();
                let used = words.size()?;
                self.vgpus.push(Vgpu {
                    vm,
                    used,
                    kind: words.rest("a type")?,
                });
            }
            "fabric" => {
                const STATES: [Fabric; 4] = [
                    Fabric::Joining,
                    Fabric::Ready,
                    Fabric::Degraded,
                    Fabric::Failed,
                ];
                self.fabric =
                    Some(STATES[words.choice(&["joining", "ready", "degraded", "failed"])?]);
            }
            "part" => {
                self.mig = true;
                self.parts.push(Part {
                    gpu_instance: words.number("a GPU instance")?,
                    compute_instance: words.number("a compute instance")?,
                    profile: words.text("a profile")?.to_owned(),
                    memory: words.size()?,
                    used: words.size()?,
                });
            }
            "process" => self.processes.push(words.process()?),
            "instance" => {
                let pid = words.number::<u32>("a process id")?;
                let instance = words.number("a GPU instance")?;
                let process = self.processes.iter_mut().find(|process| process.pid == pid);
                process
                    .ok_or_else(|| format!("no process {pid} above"))?
                    .gpu_instance = Some(instance);
            }
            other => return Err(format!("no statement `gpu N {other}`")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_documentation_is_understood() {
        let example = include_str!("lib.rs")
            .split("//! ```text\n")
            .nth(1)
            .unwrap()
            .split("//! ```")
            .next()
            .unwrap();
        let text: String = example
            .lines()
            .map(|line| format!("{}\n", line.trim_start_matches("//!")))
            .collect();
        let script = Script::parse(&text).unwrap();
        assert_eq!(script.gpus.len(), 2);
        assert_eq!(script.driver.as_deref(), Some("570.86"));
        assert_eq!(script.gpus[0].utilization, Some((97, 40)));
        let process = Process {
            pid: 1234,
            memory: Some(512 << 20),
            compute: true,
            graphics: false,
            sm_percent: None,
            gpu_instance: None,
        };
        assert_eq!(script.gpus[0].processes, [process]);
        assert_eq!(script.gpus[1].faults.failure("nvmlDeviceGetName"), Some(15));
        assert_eq!(
            script.events,
            [Event {
                gpu: 1,
                kind: 8,
                data: 79
            }]
        );
        assert_eq!(
            script.faults.delay_ms("nvmlDeviceGetTemperature"),
            Some(30_000)
        );
        assert_eq!(
            script.faults.delay_ms("nvmlDeviceGetTemperatureThreshold"),
            None
        );
    }

    #[test]
    fn a_mistake_names_its_line() {
        let cases = [
            ("profil rtx5090", "no statement `profil`"),
            (
                "profile rtx4090",
                "no model `rtx4090`; there are rtx5090, h100, a100, b200",
            ),
            ("gpu 1 lost", "no GPU 1; the profiles above make 1"),
            ("gpu 0 utilization 97", "percent is missing"),
            ("gpu 0 utilization 197 1", "197 is more than 100 percent"),
            ("gpu 0 temperature warm", "`warm` is not degrees"),
            ("gpu 0 lost again", "`again` is one word too many"),
            (
                "fail GetTemperature 3",
                "`GetTemperature` is no NVML function",
            ),
            ("gpu 0 process 1 5GB compute", "`5GB` is not a size"),
            ("gpu 0 instance 1 7", "no process 1 above"),
            (
                "gpu 0 nvlink-errors 1 lost 7",
                "`lost` is not replay or recovery or crc or crc-data",
            ),
        ];
        for (line, message) in cases {
            let mistake = Script::parse(&format!("# a comment\n{line}\n")).unwrap_err();
            assert_eq!(mistake.line, 2, "{line}");
            assert_eq!(mistake.message.as_str(), message, "{line}");
        }
    }

    #[test]
    fn an_empty_script_is_one_rtx5090() {
        assert_eq!(Script::parse("").unwrap(), Script::standard());
    }
}
