//! vGPUs (parts of GPUs for virtual machines), and the fabric of NVSwitches.

use std::ffi::{c_char, c_uint, c_ulonglong};
use std::mem::zeroed;

use nvml_wrapper_sys::bindings::*;

use super::{device_calls, put, put_text};
use crate::script::Fabric;
use crate::{code, world};

/// The number of a vGPU is its index, with the index of the GPU in the higher bits.
const SLOT_SHIFT: u32 = 8;

device_calls! {
    fn nvmlDeviceGetVirtualizationMode(gpu, mode: *mut nvmlGpuVirtualizationMode_t) {
        put(mode, gpu.script.virtualization)
    }
    fn nvmlDeviceGetGridLicensableFeatures_v4(gpu, features: *mut nvmlGridLicensableFeatures_t) {
        // A struct of numbers and texts may be all zeros.
        let mut found: nvmlGridLicensableFeatures_t = zeroed();
        if gpu.script.virtualization == nvmlGpuVirtualizationMode_NVML_GPU_VIRTUALIZATION_MODE_VGPU
        {
            (found.isGridLicenseSupported, found.licensableFeaturesCount) = (1, 1);
            found.gridLicensableFeatures[0].featureCode =
                nvmlGridLicenseFeatureCode_t_NVML_GRID_LICENSE_FEATURE_CODE_COMPUTE;
            found.gridLicensableFeatures[0].featureState = gpu.script.licensed.into();
        }
        put(features, found)
    }
    fn nvmlDeviceGetActiveVgpus(gpu, count: *mut c_uint, instances: *mut nvmlVgpuInstance_t) {
        let first = (gpu.slot as u32) << SLOT_SHIFT;
        let numbers: Vec<_> = (0..gpu.script.vgpus.len() as u32)
            .map(|place| first + place)
            .collect();
        super::put_list(instances, count, &numbers)
    }
    fn nvmlDeviceGetGpuFabricInfoV(gpu, info: *mut nvmlGpuFabricInfo_v2_t) {
        let wanted = size_of::<nvmlGpuFabricInfo_v2_t>() as u32 | 2 << 24;
        if info.is_null() || (*info).version != wanted {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        let fabric = gpu.script.fabric;
        let (state, status) = match fabric {
            None => (NVML_GPU_FABRIC_STATE_NOT_SUPPORTED, code::SUCCESS),
            Some(Fabric::Joining) => (NVML_GPU_FABRIC_STATE_IN_PROGRESS, code::SUCCESS),
            Some(Fabric::Ready | Fabric::Degraded) => {
                (NVML_GPU_FABRIC_STATE_COMPLETED, code::SUCCESS)
            }
            Some(Fabric::Failed) => (NVML_GPU_FABRIC_STATE_COMPLETED, code::UNKNOWN),
        };
        let health = match fabric {
            Some(Fabric::Ready) => NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_FALSE,
            Some(Fabric::Degraded) => NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE,
            _ => NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_NOT_SUPPORTED,
        };
        let found = nvmlGpuFabricInfo_v2_t {
            version: wanted,
            clusterUuid: [0; 16],
            status,
            cliqueId: 0,
            state: state as nvmlGpuFabricState_t,
            healthMask: health,
        };
        put(info, found)
    }
}

/// Exports functions whose first argument is a vGPU. In the body, `gpu` is its GPU, `part` the vGPU
/// and `instance` its number.
macro_rules! part_calls {
    ($(fn $name:ident($instance:ident, $gpu:ident, $part:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($instance: nvmlVgpuInstance_t $(, $argument: $type)*) -> nvmlReturn_t {
            world::call(stringify!($name), |world| {
                let $gpu = world.gpus.get(($instance >> SLOT_SHIFT) as usize).ok_or(code::INVALID_ARGUMENT)?;
                let place = ($instance & ((1 << SLOT_SHIFT) - 1)) as usize;
                let $part = $gpu.script.vgpus.get(place).ok_or(code::NOT_FOUND)?;
                // SAFETY: the caller's pointers are valid, as nvml.h demands of every call.
                unsafe { $body }
            })
        }
    )*};
}

part_calls! {
    fn nvmlVgpuInstanceGetUUID(_instance, gpu, part, uuid: *mut c_char, size: c_uint) {
        put_text(
            uuid,
            size,
            &gpu.uuid()
                .replacen("GPU-", &format!("VGPU-{}-", part.vm), 1),
        )
    }
    fn nvmlVgpuInstanceGetVmID(_instance, _gpu, part, id: *mut c_char, size: c_uint, kind: *mut nvmlVgpuVmIdType_t) {
        put(kind, 0)?;
        put_text(id, size, &part.vm)
    }
    fn nvmlVgpuInstanceGetFbUsage(_instance, _gpu, part, used: *mut c_ulonglong) {
        put(used, part.used)
    }
    // The number of a type is that of the first vGPU with this type.
    fn nvmlVgpuInstanceGetType(instance, _gpu, _part, of_type: *mut nvmlVgpuTypeId_t) {
        put(of_type, instance)
    }
    fn nvmlVgpuTypeGetName(_instance, _gpu, part, name: *mut c_char, size: *mut c_uint) {
        put_text(name, *size, &part.kind)
    }
}
