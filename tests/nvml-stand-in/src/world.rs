//! The simulated machine, shared by all callers: its script, its GPUs, its events. Every call goes
//! through [`call`] or [`on_device`], which check the script first: it may be unreadable, or delay
//! or fail the call.

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use crate::gpu::Gpu;
use crate::script::{Event, Script};
use crate::{Answer, code};
use std::env;
use std::fs;

/// Environment variable with the path of the script.
const SCRIPT: &str = "NVML_STAND_IN_SCRIPT";

/// Time between two checks of the script's file. A reader makes hundreds of calls at once, and
/// checks must not dominate its measured time.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Time between two checks for events in a waiting call. NVML sleeps until an event comes, and the
/// stand-in must not use much more CPU.
const LOOK_FOR_EVENTS: Duration = Duration::from_millis(50);

/// Handles are this number plus the GPU's slot. They are not addresses, so invalid handles are
/// detected. Handles of MIG devices have the index of the device, counted from 1, in the higher
/// bits.
const FIRST_HANDLE: usize = 0x4e56_0000;
const PART_SHIFT: usize = 12;

const DRIVER: &str = "580.95.05";

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| Mutex::new(World::new()));

pub struct World {
    /// `None` while the script has a mistake.
    script: Option<Script>,
    stamp: Option<Stamp>,
    looked: Option<Instant>,
    pub gpus: Vec<Gpu>,
    /// Number of initialisations without a shutdown.
    users: u32,
    sets: BTreeMap<usize, EventSet>,
    /// Events of the last valid script; later lines in the next script are new events.
    known_events: Vec<Event>,
    /// Events of the script for which no event set was registered yet.
    waiting: Vec<Event>,
}

/// Identifies a version of the script's file.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stamp {
    modified: (i64, i64),
    size: u64,
    inode: u64,
}

#[derive(Default)]
struct EventSet {
    registered: Vec<(usize, u64)>,
    queue: VecDeque<Event>,
}

/// Runs a call that concerns no single GPU.
pub fn call(function: &str, answer: impl FnOnce(&mut World) -> Answer) -> nvmlReturn_t {
    let delay = lock()
        .script()
        .ok()
        .and_then(|s| s.faults.delay_ms(function));
    sleep(delay);
    let mut world = lock();
    finish(world.ready(function).and_then(|()| answer(&mut world)))
}

/// Runs a call about the GPU behind `handle`.
pub fn on_device(
    function: &str,
    handle: nvmlDevice_t,
    answer: impl FnOnce(&mut Gpu) -> Answer,
) -> nvmlReturn_t {
    let delay = lock().delay_ms(function, handle);
    sleep(delay);
    let mut world = lock();
    let ready = world
        .ready(function)
        .and_then(|()| world.gpu(handle))
        .and_then(|gpu| match gpu.script.faults.failure(function) {
            Some(code) => Err(code),
            None if gpu.script.gone => Err(code::GPU_IS_LOST),
            None => Ok(gpu),
        })
        .and_then(|gpu| {
            gpu.now = unix_seconds();
            answer(gpu)
        });
    finish(ready)
}

/// `nvmlInit`: the only call that needs no initialisation.
pub fn init(function: &str) -> nvmlReturn_t {
    let delay = lock()
        .script()
        .ok()
        .and_then(|s| s.faults.delay_ms(function));
    sleep(delay);
    let mut world = lock();
    let wanted = world
        .script()
        .map(|s| s.faults.failure(function).unwrap_or(s.init));
    match wanted {
        Err(code) => code,
        Ok(code::SUCCESS) => {
            world.users += 1;
            code::SUCCESS
        }
        Ok(code) => code,
    }
}

/// `nvmlShutdown`.
pub fn shutdown() -> nvmlReturn_t {
    let mut world = lock();
    match world.users.checked_sub(1) {
        None => code::UNINITIALIZED,
        Some(users) => {
            world.users = users;
            if users == 0 {
                world.sets.clear();
            }
            code::SUCCESS
        }
    }
}

/// `nvmlEventSetWait`: returns the next event of the set, or Timeout. Other calls are not blocked.
pub fn wait_for_event(set: usize, timeout: Duration) -> Answer<(nvmlDevice_t, Event)> {
    let deadline = Instant::now() + timeout;
    loop {
        let mut world = lock();
        world.script()?;
        if let Some(event) = world.next_event(set)? {
            return Ok((handle(event.gpu), event));
        }
        drop(world);
        match deadline.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => thread::sleep(left.min(LOOK_FOR_EVENTS)),
            _ => return Err(code::TIMEOUT),
        }
    }
}

/// Reads the script from its file. Prints a mistake on stderr.
pub fn read_script() -> Answer<Script> {
    let Some(path) = script_path() else {
        return Ok(Script::standard());
    };
    let text = fs::read_to_string(&path).map_err(|error| error.to_string());
    text.and_then(|text| {
        Script::parse(&text)
            .map_err(|mistake| format!("line {}: {}", mistake.line, mistake.message))
    })
    .map_err(|message| {
        #[expect(
            clippy::print_stderr,
            reason = "a C library has no other way to tell its user"
        )]
        {
            eprintln!("nvml-stand-in: {}: {message}", path.display());
        }
        code::UNKNOWN
    })
}

/// Seconds since the machine started.
pub fn uptime_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a valid timespec; CLOCK_BOOTTIME exists on every supported Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as f64
}

impl World {
    fn new() -> Self {
        Self {
            script: None,
            stamp: None,
            looked: None,
            gpus: Vec::new(),
            users: 0,
            sets: BTreeMap::new(),
            known_events: Vec::new(),
            waiting: Vec::new(),
        }
    }

    pub fn driver(&mut self) -> Answer<String> {
        Ok(self
            .script()?
            .driver
            .clone()
            .unwrap_or_else(|| DRIVER.to_owned()))
    }

    /// Returns the enumerated GPUs in order.
    pub fn enumerated(&self) -> impl Iterator<Item = &Gpu> {
        self.gpus.iter().filter(|gpu| !gpu.script.gone)
    }

    /// Returns the handle of the first enumerated GPU that fits; a script may let the lookup fail.
    pub fn find(&self, function: &str, fits: impl Fn(usize, &Gpu) -> bool) -> Answer<nvmlDevice_t> {
        let (_, gpu) = self
            .enumerated()
            .enumerate()
            .find(|(index, gpu)| fits(*index, gpu))
            .ok_or(code::NOT_FOUND)?;
        gpu.script
            .faults
            .failure(function)
            .map_or(Ok(handle(gpu.slot)), Err)
    }

    pub fn create_event_set(&mut self) -> usize {
        let id = self.sets.last_key_value().map_or(1, |(id, _)| id + 1);
        self.sets.insert(id, EventSet::default());
        id
    }

    pub fn free_event_set(&mut self, set: usize) -> Answer {
        self.sets
            .remove(&set)
            .map(|_| ())
            .ok_or(code::INVALID_ARGUMENT)
    }

    pub fn register(&mut self, set: usize, handle: nvmlDevice_t, types: u64) -> Answer {
        let slot = self.gpu(handle)?.slot;
        self.sets
            .get_mut(&set)
            .ok_or(code::INVALID_ARGUMENT)?
            .registered
            .push((slot, types));
        self.distribute();
        Ok(())
    }

    fn next_event(&mut self, set: usize) -> Answer<Option<Event>> {
        let queue = &mut self.sets.get_mut(&set).ok_or(code::INVALID_ARGUMENT)?.queue;
        let Some(mut event) = queue.pop_front() else {
            return Ok(None);
        };
        // As documented: of several XIDs that came before the wait, each event carries the last
        // one.
        if let Some(last) = queue
            .iter()
            .rev()
            .find(|e| e.kind == event.kind && e.gpu == event.gpu)
        {
            event.data = last.data;
        }
        Ok(Some(event))
    }

    /// Hands waiting events to the sets that are registered for them.
    fn distribute(&mut self) {
        let sets = &mut self.sets;
        self.waiting.retain(|event| {
            let wants = |set: &&mut EventSet| {
                set.registered
                    .iter()
                    .any(|&(gpu, types)| gpu == event.gpu && types & event.kind != 0)
            };
            sets.values_mut()
                .filter(wants)
                .map(|set| set.queue.push_back(*event))
                .count()
                == 0
        });
    }

    fn ready(&mut self, function: &str) -> Answer {
        let failure = self.script()?.faults.failure(function);
        if self.users == 0 {
            return Err(code::UNINITIALIZED);
        }
        failure.map_or(Ok(()), Err)
    }

    fn gpu(&mut self, handle: nvmlDevice_t) -> Answer<&mut Gpu> {
        let number = handle
            .addr()
            .checked_sub(FIRST_HANDLE)
            .ok_or(code::INVALID_ARGUMENT)?;
        let slot = number & ((1 << PART_SHIFT) - 1);
        let part = number >> PART_SHIFT;
        let gpu = self.gpus.get_mut(slot).ok_or(code::INVALID_ARGUMENT)?;
        gpu.part = part.checked_sub(1);
        if gpu.part.is_some() && gpu.part().is_none() {
            return Err(code::INVALID_ARGUMENT);
        }
        Ok(gpu)
    }

    fn delay_ms(&mut self, function: &str, handle: nvmlDevice_t) -> Option<u64> {
        let all = self.script().ok()?.faults.delay_ms(function);
        self.gpu(handle)
            .ok()
            .and_then(|gpu| gpu.script.faults.delay_ms(function))
            .or(all)
    }

    /// Returns the current script.
    fn script(&mut self) -> Answer<&Script> {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK_AGAIN) {
            let stamp = script_path()
                .and_then(|path| path.metadata().ok())
                .map(|file| Stamp {
                    modified: (file.mtime(), file.mtime_nsec()),
                    size: file.size(),
                    inode: file.ino(),
                });
            if self.looked.is_none() || stamp != self.stamp {
                self.stamp = stamp;
                self.follow(read_script().ok());
            }
            self.looked = Some(Instant::now());
        }
        self.script.as_ref().ok_or(code::UNKNOWN)
    }

    fn follow(&mut self, script: Option<Script>) {
        if let Some(new) = &script {
            let now = unix_seconds();
            let same = self
                .known_events
                .iter()
                .zip(&new.events)
                .take_while(|(old, new)| old == new)
                .count();
            self.waiting.extend(&new.events[same..]);
            self.known_events.clone_from(&new.events);
            self.gpus.truncate(new.gpus.len());
            for (slot, gpu) in new.gpus.iter().enumerate() {
                match self.gpus.get_mut(slot) {
                    Some(old) if old.profile() == gpu.profile => old.follow(gpu.clone(), now),
                    Some(old) => *old = Gpu::new(slot, gpu.clone(), now),
                    None => self.gpus.push(Gpu::new(slot, gpu.clone(), now)),
                }
            }
            self.distribute();
        }
        self.script = script;
    }
}

/// Applies the script to a call: sleeps, crashes or fails. The world is not locked meanwhile, so
/// other calls are not delayed.
fn sleep(milliseconds: Option<u64>) {
    milliseconds
        .into_iter()
        .for_each(|milliseconds| thread::sleep(Duration::from_millis(milliseconds)));
}

fn lock() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn finish(answer: Answer) -> nvmlReturn_t {
    answer.err().unwrap_or(code::SUCCESS)
}

/// The handle of a part of a GPU.
pub fn part_handle(slot: usize, place: usize) -> nvmlDevice_t {
    handle(slot + ((place + 1) << PART_SHIFT))
}

/// The handle of a GPU.
pub fn handle(slot: usize) -> nvmlDevice_t {
    ptr::without_provenance_mut(FIRST_HANDLE + slot)
}

fn script_path() -> Option<PathBuf> {
    env::var_os(SCRIPT)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}

fn unix_seconds() -> f64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64())
}
