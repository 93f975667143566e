//! Events: XIDs and other events of a GPU.

use std::ffi::{c_uint, c_ulonglong};
use std::ptr;
use std::time::Duration;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlEventTypeClock,
    nvmlEventTypeDoubleBitEccError, nvmlEventTypeDramRetirementEvent,
    nvmlEventTypeDramRetirementFailure, nvmlEventTypeFatalPoisonError,
    nvmlEventTypeGpuRecoveryAction, nvmlEventTypeGpuUnavailableError,
    nvmlEventTypeNonFatalPoisonError, nvmlEventTypePState, nvmlEventTypeSingleBitEccError,
    nvmlEventTypeXidCriticalError, nvmlReturn_t,
};

use super::{device_calls, put};
use crate::gpu::Gpu;
use crate::{code, world};

const EVERY_GPU: u32 = nvmlEventTypeXidCriticalError
    | nvmlEventTypePState
    | nvmlEventTypeClock
    | nvmlEventTypeGpuRecoveryAction;
const DATA_CENTRE: u32 = nvmlEventTypeSingleBitEccError
    | nvmlEventTypeDoubleBitEccError
    | nvmlEventTypeDramRetirementEvent
    | nvmlEventTypeDramRetirementFailure
    | nvmlEventTypeNonFatalPoisonError
    | nvmlEventTypeFatalPoisonError
    | nvmlEventTypeGpuUnavailableError;

device_calls! {
    fn nvmlDeviceGetSupportedEventTypes(gpu, types: *mut c_ulonglong) { put(types, supported(gpu)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> nvmlReturn_t {
    world::call("nvmlEventSetCreate", |world| {
        if set.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so valid.
        unsafe { put(set, ptr::without_provenance_mut(world.create_event_set())) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(set: nvmlEventSet_t) -> nvmlReturn_t {
    world::call("nvmlEventSetFree", |world| world.free_event_set(set.addr()))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(
    device: nvmlDevice_t,
    types: c_ulonglong,
    set: nvmlEventSet_t,
) -> nvmlReturn_t {
    let possible = world::on_device("nvmlDeviceRegisterEvents", device, |gpu| {
        if types & !supported(gpu) == 0 {
            Ok(())
        } else {
            Err(code::NOT_SUPPORTED)
        }
    });
    if possible != code::SUCCESS {
        return possible;
    }
    world::call("nvmlDeviceRegisterEvents", |world| {
        world.register(set.addr(), device, types)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(
    set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    timeout_ms: c_uint,
) -> nvmlReturn_t {
    let allowed = world::call("nvmlEventSetWait_v2", |_| Ok(()));
    if allowed != code::SUCCESS {
        return allowed;
    }
    match world::wait_for_event(set.addr(), Duration::from_millis(timeout_ms.into())) {
        Err(code) => code,
        Ok((device, event)) => {
            let event = nvmlEventData_t {
                device,
                eventType: event.kind,
                eventData: event.data,
                gpuInstanceId: u32::MAX,
                computeInstanceId: u32::MAX,
            };
            // SAFETY: the caller's pointer is valid.
            unsafe { put(data, event) }.err().unwrap_or(code::SUCCESS)
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait(
    set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    timeout_ms: c_uint,
) -> nvmlReturn_t {
    // SAFETY: the same contract.
    unsafe { nvmlEventSetWait_v2(set, data, timeout_ms) }
}

fn supported(gpu: &Gpu) -> u64 {
    let types = if gpu.profile().data_centre {
        EVERY_GPU | DATA_CENTRE
    } else {
        EVERY_GPU
    };
    types.into()
}
