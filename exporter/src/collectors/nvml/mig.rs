//! The parts of a divided GPU (MIG).

use super::gpm::GpuActivity;
use super::metrics::*;
use super::values::{GpuValues, NvmlQuery};
use super::{fields, reading::FixedValues};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use std::sync::Arc;

/// The parts' UUIDs and the numbers of their GPU instances, with their values.
pub(super) fn read(
    nvml: &Arc<Nvml>,
    device: &Device<'_>,
    fixed: &FixedValues,
    activity: &mut GpuActivity,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<Vec<(String, u32)>, NvmlError> {
    let mode = ask.value("GetMigMode", device.mig_mode())?;
    let current = mode.as_ref().map(|mode| f64::from(mode.current));
    values.one(&MIG_ENABLED, current);

    let mut parts = Vec::new();
    if mode.is_none_or(|mode| mode.current != 1) {
        return Ok(parts);
    }

    let places = ask.value("GetMaxMigDeviceCount", device.mig_device_count())?;
    let places = places.unwrap_or(0);
    for place in 0..places {
        // Places may be empty, and any of them.
        let part = match device.mig_device_by_index(place) {
            Ok(part) => part,
            Err(NvmlError::NotFound | NvmlError::InvalidArg) => continue,
            Err(error) => match ask.value::<()>("GetMigDeviceHandleByIndex", Err(error))? {
                Some(()) | None => continue,
            },
        };
        let Some(uuid) = ask.value("GetUUID", part.uuid())? else {
            continue;
        };

        let lib = nvml.lib();
        let mut gpu_instance = 0;
        let mut compute_number = 0;
        // SAFETY: the handle is the part's, the pointers are valid.
        let (gpu, compute) = unsafe {
            (
                fields::call(&lib.nvmlDeviceGetGpuInstanceId, |function| {
                    function(part.handle(), &raw mut gpu_instance)
                }),
                fields::call(&lib.nvmlDeviceGetComputeInstanceId, |function| {
                    function(part.handle(), &raw mut compute_number)
                }),
            )
        };
        let gpu_instance = ask.value("GetGpuInstanceId", gpu)?.map(|()| gpu_instance);
        let compute_instance = ask.value("GetComputeInstanceId", compute)?;
        let compute_instance = compute_instance.map(|()| compute_number.to_string());

        let name = ask.value("GetName", part.name())?.unwrap_or_default();
        // `NVIDIA A100-SXM4-40GB MIG 1g.5gb`
        let profile = match name.rsplit_once("MIG ") {
            Some((_, profile)) => profile.to_owned(),
            None => name,
        };

        let instance = gpu_instance.map_or_else(String::new, |instance| instance.to_string());
        let labels = [
            uuid.clone(),
            instance,
            compute_instance.unwrap_or_default(),
            profile,
        ];
        values.labelled(&MIG_INFO, labels, Some(1.0));

        if let Some(memory) = ask.value("GetMemoryInfo", part.memory_info())? {
            values.labelled(&MIG_MEMORY_USED, [uuid.clone()], Some(memory.used as f64));
            values.labelled(&MIG_MEMORY_TOTAL, [uuid.clone()], Some(memory.total as f64));
        }

        if let Some(instance) = gpu_instance {
            // The parts of one instance share its activity.
            if fixed.has_gpm && parts.iter().all(|(_, other)| *other != instance) {
                activity.read_part(nvml, (device, instance, &uuid), ask, values)?;
            }
            parts.push((uuid, instance));
        }
    }
    Ok(parts)
}
