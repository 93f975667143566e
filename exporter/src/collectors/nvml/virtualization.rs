//! GPUs that virtual machines have parts of (vGPU), seen from the host or from within.

use super::fields::call;
use super::metrics::*;
use super::values::{GpuValues, NvmlQuery};
use crate::collector::flag;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as sys;
use std::ffi::{CStr, c_char};

/// Role of the GPU in virtualization: host or guest.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum VirtualizationRole {
    #[default]
    Neither,
    Guest,
    Host,
}

/// By NVML's numbers.
const MODES: [(&str, VirtualizationRole); 5] = [
    ("none", VirtualizationRole::Neither),
    ("passthrough", VirtualizationRole::Neither),
    ("vgpu_guest", VirtualizationRole::Guest),
    ("vgpu_host", VirtualizationRole::Host),
    ("vsga_host", VirtualizationRole::Neither),
];

/// No GPU is divided further.
const MAX_VGPUS: usize = 64;

/// NVML's buffers for a UUID, the name of a machine and that of a type.
const TEXT: usize = 96;

impl VirtualizationRole {
    /// Role of the GPU; it stays the same while the driver is loaded.
    pub fn of(
        device: &Device<'_>,
        ask: &mut NvmlQuery<'_>,
        values: &mut GpuValues,
    ) -> Result<Self, NvmlError> {
        let mut mode = 0;
        let symbol = &device.nvml().lib().nvmlDeviceGetVirtualizationMode;
        // SAFETY: the handle is the device's, the pointer valid.
        let code = call(symbol, |function| unsafe {
            function(device.handle(), &raw mut mode)
        });

        let answered = ask.value("GetVirtualizationMode", code)?;
        let known = answered.and_then(|()| MODES.get(mode as usize));
        let word = known.map_or("", |(word, _)| word);
        values.labelled(&VIRTUALIZATION, [word], known.map(|_| 1.0));
        Ok(known.map_or(Self::Neither, |(_, side)| *side))
    }
}

pub(super) fn read(
    device: &Device<'_>,
    side: VirtualizationRole,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<(), NvmlError> {
    match side {
        VirtualizationRole::Neither => Ok(()),
        VirtualizationRole::Guest => licence(device, ask, values),
        VirtualizationRole::Host => parts(device, ask, values),
    }
}

fn licence(
    device: &Device<'_>,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<(), NvmlError> {
    // SAFETY: a struct of numbers may be all zeros.
    let mut features: sys::nvmlGridLicensableFeatures_t = unsafe { std::mem::zeroed() };
    let symbol = &device.nvml().lib().nvmlDeviceGetGridLicensableFeatures_v4;
    // SAFETY: the handle is the device's, the pointer valid.
    let code = call(symbol, |function| unsafe {
        function(device.handle(), &raw mut features)
    });

    if ask.value("GetGridLicensableFeatures", code)?.is_some()
        && features.isGridLicenseSupported != 0
    {
        let count = features.licensableFeaturesCount as usize;
        let mut features = features.gridLicensableFeatures.iter().take(count);
        let is_licensed = features.any(|feature| feature.featureState != 0);
        values.one(&VGPU_LICENSED, Some(flag(is_licensed)));
    }
    Ok(())
}

fn parts(
    device: &Device<'_>,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<(), NvmlError> {
    let lib = device.nvml().lib();
    let mut count = MAX_VGPUS as u32;
    let mut instances = [0; MAX_VGPUS];
    // SAFETY: the handle is the device's, and there is room for as many as `count` says.
    let code = call(&lib.nvmlDeviceGetActiveVgpus, |function| unsafe {
        function(device.handle(), &raw mut count, instances.as_mut_ptr())
    });

    if ask.value("GetActiveVgpus", code)?.is_none() {
        return Ok(());
    }

    values.one(&VGPUS, Some(f64::from(count)));

    for &instance in instances.iter().take(count as usize) {
        let uuid = text(|buffer, length| {
            // SAFETY: the buffer has that length.
            call(&lib.nvmlVgpuInstanceGetUUID, |function| unsafe {
                function(instance, buffer, length)
            })
        });
        // A machine may have ended since.
        let Some(uuid) = ask.value("VgpuInstanceGetUUID", uuid)? else {
            continue;
        };

        let mut id_type = 0;
        let vm = text(|buffer, length| {
            // SAFETY: the buffer has that length, the pointer is valid.
            call(&lib.nvmlVgpuInstanceGetVmID, |function| unsafe {
                function(instance, buffer, length, &raw mut id_type)
            })
        });
        let vm = ask.value("VgpuInstanceGetVmID", vm)?.unwrap_or_default();

        let mut type_id = 0;
        let mut used_bytes = 0;
        // SAFETY: the pointers are valid.
        let (of_type, usage) = unsafe {
            (
                call(&lib.nvmlVgpuInstanceGetType, |function| {
                    function(instance, &raw mut type_id)
                }),
                call(&lib.nvmlVgpuInstanceGetFbUsage, |function| {
                    function(instance, &raw mut used_bytes)
                }),
            )
        };

        let name = match ask.value("VgpuInstanceGetType", of_type)? {
            None => None,
            Some(()) => {
                let name = text(|buffer, mut length| {
                    // SAFETY: the buffer has that length.
                    call(&lib.nvmlVgpuTypeGetName, |function| unsafe {
                        function(type_id, buffer, &raw mut length)
                    })
                });
                ask.value("VgpuTypeGetName", name)?
            }
        };

        let used = ask.value("VgpuInstanceGetFbUsage", usage)?;
        let used = used.map(|()| used_bytes as f64);
        values.labelled(&VGPU_MEMORY, [uuid.clone()], used);
        values.labelled(&VGPU_INFO, [uuid, vm, name.unwrap_or_default()], Some(1.0));
    }
    Ok(())
}

/// A text that the library writes into a buffer.
fn text(
    write: impl FnOnce(*mut c_char, u32) -> Result<(), NvmlError>,
) -> Result<String, NvmlError> {
    let mut buffer = [0; TEXT];
    write(buffer.as_mut_ptr().cast(), TEXT as u32)?;
    let text = CStr::from_bytes_until_nul(&buffer);
    let text = text.map_err(|_| NvmlError::InsufficientSize(None))?;
    Ok(text.to_string_lossy().into_owned())
}
