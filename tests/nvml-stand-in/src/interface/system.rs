//! Initialisation, versions, and handles of devices.

use std::ffi::{CStr, c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::{put, put_text};
use crate::gpu::parse_bus_id;
use crate::{Answer, code, world};
use std::fs;

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    world::init("nvmlInit_v2")
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> nvmlReturn_t {
    world::init("nvmlInit")
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    world::init("nvmlInitWithFlags")
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    world::shutdown()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let text = match result {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        18 => c"Driver/library version mismatch",
        25 => c"Argument Version Mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(
    version: *mut c_char,
    length: c_uint,
) -> nvmlReturn_t {
    world::call("nvmlSystemGetDriverVersion", |world| {
        let driver = world.driver()?;
        // SAFETY: the caller's buffer has `length` bytes.
        unsafe { put_text(version, length, &driver) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetNVMLVersion(
    version: *mut c_char,
    length: c_uint,
) -> nvmlReturn_t {
    world::call("nvmlSystemGetNVMLVersion", |world| {
        let cuda = cuda_major(&world.driver()?);
        let driver = world.driver()?;
        // SAFETY: the caller's buffer has `length` bytes.
        unsafe { put_text(version, length, &format!("{cuda}.{driver}")) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> nvmlReturn_t {
    world::call("nvmlSystemGetCudaDriverVersion_v2", |world| {
        let driver = world.driver()?;
        // SAFETY: the caller's pointer is valid.
        unsafe {
            put(
                version,
                if cuda_major(&driver) == 12 {
                    12_080
                } else {
                    13_000
                },
            )
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion(version: *mut c_int) -> nvmlReturn_t {
    // SAFETY: the same contract.
    unsafe { nvmlSystemGetCudaDriverVersion_v2(version) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetProcessName(
    pid: c_uint,
    name: *mut c_char,
    length: c_uint,
) -> nvmlReturn_t {
    world::call("nvmlSystemGetProcessName", |_| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| code::NOT_FOUND)?;
        let program =
            String::from_utf8_lossy(command.split(|b| *b == 0).next().unwrap_or_default())
                .into_owned();
        // The name is cut to the buffer, not refused.
        let cut = program.floor_char_boundary((length as usize).saturating_sub(1));
        // SAFETY: the caller's buffer has `length` bytes.
        unsafe { put_text(name, length, &program[..cut]) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's pointer is valid.
    world::call("nvmlDeviceGetCount_v2", |world| unsafe {
        put(count, world.enumerated().count() as c_uint)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    const NAME: &str = "nvmlDeviceGetHandleByIndex_v2";
    world::call(NAME, |world| {
        let found = world.find(NAME, |i, _| i == index as usize);
        // An index beyond the last gives InvalidArgument, not NotFound.
        let handle = found.map_err(|code| {
            if code == code::NOT_FOUND {
                code::INVALID_ARGUMENT
            } else {
                code
            }
        })?;
        // SAFETY: the caller's pointer is valid.
        unsafe { put(device, handle) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(
    uuid: *const c_char,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    const NAME: &str = "nvmlDeviceGetHandleByUUID";
    world::call(NAME, |world| {
        // SAFETY: the caller's pointers are valid, the text ends with a zero.
        unsafe {
            let wanted = text(uuid)?;
            put(device, world.find(NAME, |_, gpu| gpu.uuid() == wanted)?)
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleBySerial(
    serial: *const c_char,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    const NAME: &str = "nvmlDeviceGetHandleBySerial";
    world::call(NAME, |world| {
        // SAFETY: the caller's pointers are valid, the text ends with a zero.
        unsafe {
            let wanted = text(serial)?;
            put(
                device,
                world.find(NAME, |_, gpu| gpu.serial().as_deref() == Ok(wanted))?,
            )
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    bus_id: *const c_char,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    const NAME: &str = "nvmlDeviceGetHandleByPciBusId_v2";
    world::call(NAME, |world| {
        // SAFETY: the caller's pointers are valid, the text ends with a zero.
        unsafe {
            let wanted = parse_bus_id(text(bus_id)?).ok_or(code::INVALID_ARGUMENT)?;
            put(
                device,
                world.find(NAME, |_, gpu| gpu.pci_address() == wanted)?,
            )
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetIndex(
    device: nvmlDevice_t,
    index: *mut c_uint,
) -> nvmlReturn_t {
    // The index counts only enumerated GPUs, so the machine decides it.
    let mut slot = 0;
    let answer = world::on_device("nvmlDeviceGetIndex", device, |gpu| {
        slot = gpu.slot;
        Ok(())
    });
    if answer != code::SUCCESS {
        return answer;
    }
    world::call("nvmlDeviceGetIndex", |world| {
        let position = world
            .enumerated()
            .position(|gpu| gpu.slot == slot)
            .ok_or(code::NOT_FOUND)?;
        // SAFETY: the caller's pointer is valid.
        unsafe { put(index, position as c_uint) }
    })
}

fn cuda_major(driver: &str) -> u32 {
    let major = driver
        .split('.')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0);
    if major >= 580 { 13 } else { 12 }
}

unsafe fn text<'a>(text: *const c_char) -> Answer<&'a str> {
    if text.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: not null, so by contract a text that ends with a zero.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| code::INVALID_ARGUMENT)
}
