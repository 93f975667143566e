//! The real NVML, through `nvml-wrapper`.
//!
//! One session lasts as long as the driver does: beginning one takes seconds where nothing keeps the driver loaded. It is
//! ended when the driver went or was replaced, and begun anew at the next reading.
//!
//! NVML reports percent, milliwatts, millijoules and megahertz.

use super::{Gpu, Gpus, Identity, Memory, Reading, Trouble};
use crate::gpus::GpuProcess;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_MEMORY_TEMP;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(super) struct Library {
    path: PathBuf,
    session: Option<Session>,
    /// When it was last looked for in vain.
    missed: Option<Instant>,
}

/// A node without the library seldom gets one, and looking for it costs more than all else.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

struct Session {
    nvml: nvml_wrapper::Nvml,
    driver: String,
    /// By index: a lost GPU cannot say who it is.
    known: BTreeMap<u32, Identity>,
}

impl Library {
    pub fn new(path: PathBuf) -> Self {
        Self { path, session: None, missed: None }
    }

    fn begin(&mut self) -> Result<Session, Trouble> {
        let attempt = "begin with NVML";
        if self.missed.is_some_and(|at| at.elapsed() < LOOK_AGAIN) {
            return Err(Trouble { attempt, error: NvmlError::LibraryNotFound });
        }
        let nvml = nvml_wrapper::Nvml::builder().lib_path(self.path.as_os_str()).init();
        self.missed = matches!(nvml, Err(NvmlError::LibloadingError(_))).then(Instant::now);
        let nvml = nvml.map_err(|error| Trouble { attempt, error })?;
        let driver = nvml.sys_driver_version().unwrap_or_default();
        Ok(Session { nvml, driver, known: BTreeMap::new() })
    }
}

impl Gpus for Library {
    fn read(&mut self) -> Result<Vec<Gpu>, Trouble> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.begin()?,
        };
        match session.read() {
            Err(trouble) if ends_session(&trouble.error) => {
                session.end();
                Err(trouble)
            }
            result => {
                self.session = Some(session);
                result
            }
        }
    }
}

impl Session {
    fn read(&mut self) -> Result<Vec<Gpu>, Trouble> {
        let count = self.nvml.device_count().map_err(|error| Trouble { attempt: "count the GPUs", error })?;
        (0..count).map(|index| self.read_gpu(index).map_err(|error| Trouble { attempt: "read a GPU", error })).collect()
    }

    /// Fails only with what ends the session; anything else is this GPU's alone.
    fn read_gpu(&mut self, index: u32) -> Result<Gpu, NvmlError> {
        match self.try_gpu(index) {
            Ok((identity, reading)) => Ok(Gpu { identity, reading: Ok(reading) }),
            Err(error) if ends_session(&error) => Err(error),
            Err(error) => {
                tracing::debug!(index, %error, "cannot read a GPU");
                let reason = match error {
                    NvmlError::GpuLost => "lost",
                    NvmlError::ResetRequired => "reset_required",
                    _ => "error",
                };
                let identity =
                    self.known.get(&index).cloned().unwrap_or_else(|| Identity::unknown(index, &self.driver));
                Ok(Gpu { identity, reading: Err(reason) })
            }
        }
    }

    fn try_gpu(&mut self, index: u32) -> Result<(Identity, Reading), NvmlError> {
        let device = self.nvml.device_by_index(index)?;
        let uuid = device.uuid()?;
        let identity = match self.known.get(&index) {
            Some(identity) if identity.uuid == uuid => identity.clone(),
            _ => Identity::of(&device, uuid, index, &self.driver)?,
        };
        let reading = Reading::of(&device)?;
        self.known.insert(index, identity.clone());
        Ok((identity, reading))
    }

    fn end(self) {
        // Without this symbol the wrapper's Drop panics.
        match self.nvml.lib().nvmlShutdown.is_ok() {
            true => drop(self.nvml),
            false => std::mem::forget(self.nvml),
        }
    }
}

/// The driver was unloaded or replaced under us.
fn ends_session(error: &NvmlError) -> bool {
    matches!(error, NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch)
}

/// `None` for what the GPU, the driver or our permissions do not allow, and for what fails just now: no value is ever made
/// up. An error remains only when there is no use in asking this GPU further.
fn value<T>(result: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if ends_session(&error) => Err(error),
        Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => Err(error),
        Err(NvmlError::NotSupported) => Ok(None),
        Err(error) => {
            tracing::debug!(%error, "no value");
            Ok(None)
        }
    }
}

impl Identity {
    fn of(device: &Device<'_>, uuid: String, index: u32, driver: &str) -> Result<Self, NvmlError> {
        Ok(Self {
            uuid,
            index,
            minor: value(device.minor_number())?,
            pci_bus_id: value(device.pci_info())?.map_or_else(String::new, |pci| pci.bus_id),
            model: value(device.name())?.unwrap_or_default(),
            driver: driver.to_owned(),
        })
    }

    /// A GPU that was lost before anybody could ask who it is.
    fn unknown(index: u32, driver: &str) -> Self {
        Self {
            uuid: format!("unknown-{index}"),
            index,
            minor: None,
            pci_bus_id: String::new(),
            model: String::new(),
            driver: driver.to_owned(),
        }
    }
}

impl Reading {
    fn of(device: &Device<'_>) -> Result<Self, NvmlError> {
        let ratio = |percent: u32| f64::from(percent) / 100.0;
        let thousandth = |milli: u32| f64::from(milli) / 1e3;
        let utilization = value(device.utilization_rates())?;
        Ok(Self {
            utilization: utilization.as_ref().map(|utilization| ratio(utilization.gpu)),
            memory_utilization: utilization.map(|utilization| ratio(utilization.memory)),
            encoder: value(device.encoder_utilization())?.map(|encoder| ratio(encoder.utilization)),
            decoder: value(device.decoder_utilization())?.map(|decoder| ratio(decoder.utilization)),
            memory: value(device.memory_info())?.map(|memory| Memory {
                used: memory.used as f64,
                free: memory.free as f64,
                reserved: memory.reserved as f64,
                total: memory.total as f64,
            }),
            power_watts: value(device.power_usage())?.map(thousandth),
            power_limit_watts: value(device.enforced_power_limit())?.map(thousandth),
            energy_joules: value(device.total_energy_consumption())?.map(|millijoules| millijoules as f64 / 1e3),
            temperatures: temperatures(device)?,
            clocks: clocks(device)?,
            fans: fans(device)?.into_iter().map(ratio).collect(),
            processes: processes(device)?,
        })
    }
}

fn temperatures(device: &Device<'_>) -> Result<Vec<(&'static str, f64)>, NvmlError> {
    let gpu = value(device.temperature(TemperatureSensor::Gpu))?;
    let memory = value(device.field_values_for(&[FieldId(NVML_FI_DEV_MEMORY_TEMP)]))?;
    let memory = match memory.and_then(|mut fields| fields.pop()) {
        Some(field) => match value(field.and_then(|field| field.value))? {
            // A GPU whose memory has no sensor may say 0.
            Some(SampleValue::U32(celsius)) if celsius > 0 => Some(celsius),
            _ => None,
        },
        None => None,
    };
    let sensors = [("gpu", gpu), ("memory", memory)];
    Ok(sensors.into_iter().filter_map(|(sensor, celsius)| Some((sensor, f64::from(celsius?)))).collect())
}

fn clocks(device: &Device<'_>) -> Result<Vec<(&'static str, f64)>, NvmlError> {
    let domains =
        [("graphics", Clock::Graphics), ("sm", Clock::SM), ("memory", Clock::Memory), ("video", Clock::Video)];
    let mut clocks = Vec::with_capacity(domains.len());
    for (domain, clock) in domains {
        clocks.extend(value(device.clock_info(clock))?.map(|megahertz| (domain, f64::from(megahertz) * 1e6)));
    }
    Ok(clocks)
}

fn fans(device: &Device<'_>) -> Result<Vec<u32>, NvmlError> {
    let count = value(device.num_fans())?.unwrap_or(0);
    let mut fans = Vec::new();
    for fan in 0..count {
        match value(device.fan_speed(fan))? {
            Some(percent) => fans.push(percent),
            // The number of a fan is its place; one that is not told ends the list.
            None => break,
        }
    }
    Ok(fans)
}

/// A process that computes and draws is on both lists, with the same memory.
fn processes(device: &Device<'_>) -> Result<Option<Vec<GpuProcess>>, NvmlError> {
    let compute = value(device.running_compute_processes())?;
    let graphics = value(device.running_graphics_processes())?;
    if compute.is_none() && graphics.is_none() {
        return Ok(None);
    }
    let mut processes: Vec<GpuProcess> = Vec::new();
    for process in compute.into_iter().chain(graphics).flatten() {
        let memory = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        if processes.iter().all(|other| other.pid != process.pid) {
            processes.push(GpuProcess { pid: process.pid, memory, gpu_instance: process.gpu_instance_id });
        }
    }
    Ok(Some(processes))
}
