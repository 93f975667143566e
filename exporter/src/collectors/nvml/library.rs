//! The real NVML, through `nvml-wrapper`.
//!
//! One session lasts as long as the driver does: beginning one takes seconds where nothing keeps
//! the driver loaded. It is shut down when the driver was unloaded or replaced, and initialised
//! again at the next reading. Every call is made by a thread that may be left hanging: one for NVML
//! as a whole, one for each GPU.

use super::fields;
use super::gpm::GpuActivity;
use super::mig;
use super::reading::{self, FixedValues};
use super::values::{CallErrors, NvmlQuery, ends_session};
use super::worker::CallWorker;
use super::{Gpu, GpuIdentity, GpuReading, Gpus, NvmlFailure, UnavailableReason, xid};
use crate::events::Events;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a reading waits for NVML to begin, which takes seconds where nothing keeps the driver
/// loaded.
const BEGINNING: Duration = Duration::from_secs(5);
/// How long it waits for calls.
const PATIENCE: Duration = Duration::from_secs(2);
/// A node without the library seldom gets one, and looking for it costs more than all else.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

pub(super) struct NvmlLibrary {
    path: PathBuf,
    session: Option<Arc<NvmlSession>>,
    /// When it was last looked for in vain.
    missed: Option<Instant>,
    whole: Option<CallWorker<Result<CountedSession, NvmlFailure>>>,
    /// By index: a lost GPU cannot say who it is.
    slots: BTreeMap<u32, Slot>,
    events: Option<Events>,
}

/// A session, and how many GPUs NVML counts in it.
type CountedSession = (Arc<NvmlSession>, u32);

/// The driver's library, initialised.
pub(super) struct NvmlSession {
    pub nvml: Arc<nvml_wrapper::Nvml>,
    driver: String,
    is_renumbered: bool,
    is_over: AtomicBool,
}

/// A place in NVML's list of GPUs.
struct Slot {
    worker: CallWorker<Result<(GpuIdentity, GpuReading), NvmlError>>,
    memory: Arc<Mutex<SlotMemory>>,
    identity: Option<GpuIdentity>,
}

/// Facts about the GPU in a slot that are kept between readings.
#[derive(Default)]
struct SlotMemory {
    known: Option<(GpuIdentity, FixedValues)>,
    activity: GpuActivity,
    errors: CallErrors,
}

impl NvmlLibrary {
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            session: None,
            missed: None,
            whole: None,
            slots: BTreeMap::new(),
            events: None,
        }
    }

    fn count(&mut self) -> Result<CountedSession, NvmlFailure> {
        if self.missed.is_some_and(|at| at.elapsed() < LOOK_AGAIN) {
            return Err(NvmlFailure {
                attempt: "begin with NVML",
                error: NvmlError::LibraryNotFound,
            });
        }

        let attempt = "wait for NVML";
        let failure = |error| NvmlFailure { attempt, error };
        let worker = match &mut self.whole {
            Some(worker) => worker,
            none => {
                let worker = CallWorker::start("nvml calls");
                none.insert(worker.map_err(|error| failure(no_thread(&error)))?)
            }
        };

        // A driver that takes longer to begin than anybody waits has begun all the same.
        if let Some(late) = worker.late_answer() {
            return late;
        }

        let patience = if self.session.is_some() {
            PATIENCE
        } else {
            BEGINNING
        };

        let session = self.session.clone();
        let path = self.path.clone();
        let until = if worker.ask(move || count(session, &path)) {
            Instant::now() + patience
        } else {
            Instant::now()
        };

        let answer = worker.answer(until);
        answer.unwrap_or_else(|| Err(failure(NvmlError::Timeout)))
    }

    /// A new session has its XIDs waited for.
    fn take_up(&mut self, session: &Arc<NvmlSession>) {
        if self.session.is_some() {
            return;
        }
        self.session = Some(Arc::clone(session));

        if let Some(events) = &self.events
            && let Err(error) = xid::watch(session, events)
        {
            tracing::warn!(%error, "no thread for NVML's XIDs");
        }
    }

    fn read_all(
        &mut self,
        session: &Arc<NvmlSession>,
        count: u32,
    ) -> Result<Vec<Gpu>, NvmlFailure> {
        let failure = |error| NvmlFailure {
            attempt: "read a GPU",
            error,
        };

        // All GPUs are asked before any answer is waited for, so that they share one limit.
        let until = Instant::now() + PATIENCE;
        let mut asked = Vec::new();
        for index in 0..count {
            let slot = match self.slots.remove(&index) {
                Some(slot) => slot,
                None => Slot::new(index).map_err(|error| failure(no_thread(&error)))?,
            };

            let slot = self.slots.entry(index).or_insert(slot);
            asked.push(slot.ask(session, index));
        }

        let mut gpus = Vec::new();
        for (index, asked) in (0..count).zip(asked) {
            let Some(slot) = self.slots.get_mut(&index) else {
                continue;
            };

            // A GPU that hung before is not waited for again.
            let until = if asked { until } else { Instant::now() };
            let answer = slot.worker.answer(until);
            let gpu = slot.gpu(answer, index, &session.driver);
            gpus.push(gpu.map_err(failure)?);
        }

        self.slots.retain(|index, _| *index < count);
        Ok(gpus)
    }
}

impl Drop for NvmlLibrary {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.is_over.store(true, Ordering::Relaxed);
        }
    }
}

impl Gpus for NvmlLibrary {
    fn attach(&mut self, events: &Events) {
        self.events = Some(events.clone());
    }

    /// NVML is shut down when the last thread has let go of it.
    fn let_go(&mut self) {
        if let Some(session) = self.session.take() {
            session.is_over.store(true, Ordering::Relaxed);
        }
        self.slots.clear();
    }

    fn read(&mut self) -> Result<Vec<Gpu>, NvmlFailure> {
        let read = self.count().and_then(|(session, count)| {
            self.take_up(&session);
            self.read_all(&session, count)
        });

        if let Err(trouble) = &read {
            if let NvmlError::LibloadingError(error) = &trouble.error {
                // Nodes without GPUs have no such library; a library that is named by a flag must
                // exist.
                if self.path.is_absolute() && self.missed.is_none() {
                    tracing::warn!(library = %self.path.display(), %error, "cannot load NVML");
                }
                self.missed = Some(Instant::now());
            }

            if ends_session(&trouble.error) {
                self.let_go();
            }
        }
        read
    }
}

/// Counts the GPUs, in the session or a new one.
fn count(session: Option<Arc<NvmlSession>>, path: &Path) -> Result<CountedSession, NvmlFailure> {
    let session = match session {
        Some(session) => session,
        None => Arc::new(NvmlSession::begin(path).map_err(|error| NvmlFailure {
            attempt: "begin with NVML",
            error,
        })?),
    };

    let count = session.nvml.device_count().map_err(|error| NvmlFailure {
        attempt: "count the GPUs",
        error,
    })?;
    Ok((session, count))
}

fn no_thread(error: &io::Error) -> NvmlError {
    tracing::error!(%error, "no thread for NVML");
    NvmlError::InsufficientMemory
}

impl NvmlSession {
    fn begin(path: &Path) -> Result<Self, NvmlError> {
        let nvml = nvml_wrapper::Nvml::builder()
            .lib_path(path.as_os_str())
            .init()?;

        let driver = nvml.sys_driver_version().unwrap_or_default();
        let is_renumbered = fields::is_renumbered(&driver);

        // Without this symbol the wrapper's Drop panics; such a library is kept.
        let keep = nvml.lib().nvmlShutdown.is_err();

        let nvml = Arc::new(nvml);
        if keep {
            std::mem::forget(Arc::clone(&nvml));
        }

        Ok(Self {
            nvml,
            driver,
            is_renumbered,
            is_over: AtomicBool::new(false),
        })
    }

    /// Whether the driver was unloaded or replaced, or the collector ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Slot {
    fn new(index: u32) -> io::Result<Self> {
        let worker = CallWorker::start(&format!("gpu {index}"))?;
        Ok(Self {
            worker,
            memory: Arc::default(),
            identity: None,
        })
    }

    /// Returns whether it could be asked: not while a call hangs.
    fn ask(&mut self, session: &Arc<NvmlSession>, index: u32) -> bool {
        let session = Arc::clone(session);
        let memory = Arc::clone(&self.memory);

        self.worker.ask(move || {
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            memory.read(&session, index)
        })
    }

    /// Fails only with what ends the session; anything else is this GPU's alone.
    fn gpu(
        &mut self,
        answer: Option<Result<(GpuIdentity, GpuReading), NvmlError>>,
        index: u32,
        driver: &str,
    ) -> Result<Gpu, NvmlError> {
        let silence = match answer {
            Some(Ok((identity, reading))) => {
                self.identity = Some(identity.clone());
                return Ok(Gpu {
                    identity,
                    reading: Ok(reading),
                });
            }
            Some(Err(error)) if ends_session(&error) => return Err(error),
            Some(Err(NvmlError::GpuLost)) => UnavailableReason::Lost,
            Some(Err(NvmlError::ResetRequired)) => UnavailableReason::ResetRequired,
            Some(Err(error)) => {
                tracing::debug!(index, %error, "cannot read a GPU");
                UnavailableReason::Error
            }
            None => UnavailableReason::Hung,
        };

        let identity = self
            .identity
            .clone()
            .unwrap_or_else(|| GpuIdentity::unknown(index.to_string(), index, driver));

        Ok(Gpu {
            identity,
            reading: Err(silence),
        })
    }
}

impl SlotMemory {
    fn read(
        &mut self,
        session: &NvmlSession,
        index: u32,
    ) -> Result<(GpuIdentity, GpuReading), NvmlError> {
        let mut ask = NvmlQuery {
            errors: &mut self.errors,
            is_renumbered: session.is_renumbered,
        };

        let device = session.nvml.device_by_index(index)?;
        let uuid = device.uuid()?;
        // A GPU may have been taken out, and the one behind it moved up.
        let known = self.known.as_ref();
        if known.is_none_or(|(identity, _)| identity.uuid != uuid) {
            let identity = GpuIdentity::of(&device, uuid, index, &session.driver, &mut ask)?;
            self.known = Some((identity, FixedValues::of(&device, &mut ask)?));
            self.activity = GpuActivity::default();
        }

        let Some((identity, fixed)) = &self.known else {
            return Err(NvmlError::Unknown);
        };

        let mut values = reading::read(&device, fixed, &mut ask)?;
        if fixed.has_gpm {
            self.activity
                .read(&session.nvml, &device, &mut ask, &mut values)?;
        }

        let parts = mig::read(
            &session.nvml,
            &device,
            fixed,
            &mut self.activity,
            &mut ask,
            &mut values,
        )?;

        let processes = reading::processes(&device, &mut ask)?;
        values.0.extend(fixed.values.0.iter().cloned());
        let reading = GpuReading {
            values,
            parts,
            processes,
            errors: self.errors.clone(),
        };
        Ok((identity.clone(), reading))
    }
}

impl GpuIdentity {
    fn of(
        device: &Device<'_>,
        uuid: String,
        index: u32,
        driver: &str,
        ask: &mut NvmlQuery<'_>,
    ) -> Result<Self, NvmlError> {
        let minor = ask.value("GetMinorNumber", device.minor_number())?;
        let pci = ask.value("GetPciInfo", device.pci_info())?;
        let model = ask.value("GetName", device.name())?;
        // GeForce cards report 0.
        let serial = ask.value("GetSerial", device.serial())?;
        let serial = serial.filter(|serial| serial != "0");

        Ok(Self {
            uuid,
            index,
            minor,
            pci_bus_id: pci.map_or_else(String::new, |pci| pci.bus_id),
            model: model.unwrap_or_default(),
            driver: driver.to_owned(),
            serial: serial.unwrap_or_default(),
        })
    }
}
