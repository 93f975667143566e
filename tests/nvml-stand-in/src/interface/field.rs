//! Field values: many values in one call, each with its own return code.
//!
//! Drivers from 580.82 on renumber the ids 251 to 273: 251–255 became 269–273, and 256–273 became
//! 251–268. The table below is in the older numbering.

use std::ffi::c_int;
use std::slice;

use nvml_wrapper_sys::bindings::{
    self as nvml, nvmlDevice_t, nvmlFieldValue_t, nvmlReturn_t, nvmlValue_t, nvmlValueType_t,
};

use super::device::{ecc_errors, milli, nvlink_errors, temperature_margin};
use crate::gpu::Gpu;
use crate::{Answer, code, world};

/// A field's value in one of NVML's types.
enum Value {
    U32(u32),
    U64(u64),
    I32(i32),
}
use Value::{I32, U32, U64};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: nvmlDevice_t,
    count: c_int,
    values: *mut nvmlFieldValue_t,
) -> nvmlReturn_t {
    let mut driver = String::new();
    let answer = world::call("nvmlDeviceGetFieldValues", |world| {
        world.driver().map(|version| driver = version)
    });
    if answer != code::SUCCESS {
        return answer;
    }
    world::on_device("nvmlDeviceGetFieldValues", device, |gpu| {
        let count = usize::try_from(count).map_err(|_| code::INVALID_ARGUMENT)?;
        if values.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: the caller's array has `count` elements.
        for field in unsafe { slice::from_raw_parts_mut(values, count) } {
            let id = if renumbers(&driver) {
                older_id(field.fieldId)
            } else {
                field.fieldId
            };
            let value = match gpu.script.field_faults.get(&id) {
                Some(&code) => Err(code),
                None => match gpu.script.field_values.get(&(id, field.scopeId)) {
                    Some(&value) => Ok(U64(value)),
                    None => value(gpu, id, field.scopeId),
                },
            };
            field.timestamp = (gpu.now * 1e6) as i64;
            field.latencyUsec = 0;
            field.nvmlReturn = value.as_ref().err().copied().unwrap_or(code::SUCCESS);
            if let Ok(value) = value {
                (field.valueType, field.value) = value.raw();
            }
        }
        Ok(())
    })
}

fn value(gpu: &mut Gpu, id: u32, scope: u32) -> Answer<Value> {
    use nvml::field_id::*;
    let rows = gpu.script.remapped;
    let power = &gpu.profile().power;
    let limits = &gpu.profile().thresholds;
    let data_centre = gpu.data_centre();
    Ok(match id {
        NVML_FI_DEV_ECC_CURRENT | NVML_FI_DEV_ECC_PENDING => data_centre.map(|()| U32(1))?,
        NVML_FI_DEV_ECC_SBE_VOL_TOTAL => U64(ecc_errors(gpu, 0, 0)?),
        NVML_FI_DEV_ECC_DBE_VOL_TOTAL => U64(ecc_errors(gpu, 1, 0)?),
        NVML_FI_DEV_ECC_SBE_AGG_TOTAL => U64(ecc_errors(gpu, 0, 1)?),
        NVML_FI_DEV_ECC_DBE_AGG_TOTAL => U64(ecc_errors(gpu, 1, 1)?),
        // 74 and 76 are also CLOCKS_EVENT_REASON_SW_POWER_CAP and _SYNC_BOOST. Nanoseconds.
        NVML_FI_DEV_PERF_POLICY_POWER => U64(throttle_ns(gpu, 2)),
        NVML_FI_DEV_PERF_POLICY_THERMAL => U64(throttle_ns(gpu, 5)),
        NVML_FI_DEV_PERF_POLICY_SYNC_BOOST => U64(throttle_ns(gpu, 4)),
        NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN => U64(throttle_ns(gpu, 5)),
        NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN => U64(throttle_ns(gpu, 6)),
        NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN => U64(throttle_ns(gpu, 7)),
        NVML_FI_DEV_MEMORY_TEMP => U32(gpu.memory_temperature()?),
        NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION | NVML_FI_DEV_ENERGY => {
            U64((gpu.counters().energy_joules * 1e3) as u64)
        }
        NVML_FI_DEV_NVLINK_LINK_COUNT => U32(gpu.profile().nvlinks),
        NVML_FI_DEV_PCIE_REPLAY_COUNTER => U32(gpu.script.pcie_replays),
        NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER => U32(0),
        // KiB, of all links together or of the link in the scope.
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX..=NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX
            if gpu.profile().nvlink5 =>
        {
            return Err(code::NOT_SUPPORTED);
        }
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
        | NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX
        | NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_TX
        | NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX => {
            let links = if scope == u32::MAX {
                f64::from(gpu.profile().nvlinks)
            } else {
                1.0
            };
            gpu.nvlink_active(if scope == u32::MAX { 0 } else { scope })?;
            U64((gpu.counters().nvlink_bytes * links / 1024.0) as u64)
        }
        NVML_FI_DEV_NVLINK_GET_SPEED if has_scopes(gpu) => {
            gpu.nvlink_active(scope)?;
            U32(if gpu.profile().nvlink5 {
                53_125
            } else {
                26_562
            })
        }
        // NVLink 5 counts by link, and has its own kinds of errors.
        NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES | NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES
            if gpu.profile().nvlink5 =>
        {
            gpu.nvlink_active(scope)?;
            U64(gpu.counters().nvlink_bytes as u64)
        }
        NVML_FI_DEV_NVLINK_COUNT_VL15_DROPPED..=NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER
            if gpu.profile().nvlink5 =>
        {
            gpu.nvlink_active(scope)?;
            U64(0)
        }
        NVML_FI_DEV_NVLINK_GET_STATE => U32(gpu.nvlink_active(scope)?.into()),
        NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY..=NVML_FI_DEV_NVLINK_ERROR_DL_CRC
            if has_scopes(gpu) && !gpu.profile().nvlink5 =>
        {
            U64(nvlink_errors(
                gpu,
                scope,
                (id - NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY) as usize,
            )?)
        }
        _ if !has_scopes(gpu) && nvlink_of(id).is_some() => {
            let (kind, link) = nvlink_of(id).ok_or(code::NOT_SUPPORTED)?;
            U64(nvlink_errors(gpu, link, kind)?)
        }
        NVML_FI_DEV_RETIRED_SBE => U64(gpu.script.retired.ok_or(code::NOT_SUPPORTED)?.0.into()),
        NVML_FI_DEV_RETIRED_DBE => U64(gpu.script.retired.ok_or(code::NOT_SUPPORTED)?.1.into()),
        NVML_FI_DEV_RETIRED_PENDING => U32(gpu.script.retired.ok_or(code::NOT_SUPPORTED)?.2.into()),
        NVML_FI_DEV_REMAPPED_COR => data_centre.map(|()| U32(rows.corrected))?,
        NVML_FI_DEV_REMAPPED_UNC => data_centre.map(|()| U32(rows.uncorrected))?,
        NVML_FI_DEV_REMAPPED_PENDING => data_centre.map(|()| U32(rows.pending.into()))?,
        NVML_FI_DEV_REMAPPED_FAILURE => data_centre.map(|()| U32(rows.failed.into()))?,
        NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS..=NVML_FI_DEV_PCIE_COUNT_LANE_ERROR => U32(0),
        // Only Grace Hopper has a module with its own power reading.
        NVML_FI_DEV_POWER_AVERAGE | NVML_FI_DEV_POWER_INSTANT if scope != 0 => {
            return Err(code::NOT_SUPPORTED);
        }
        NVML_FI_DEV_POWER_AVERAGE | NVML_FI_DEV_POWER_INSTANT => {
            U32(milli(gpu.reading().power_watts))
        }
        NVML_FI_DEV_POWER_MIN_LIMIT => U32(milli(power.min)),
        NVML_FI_DEV_POWER_MAX_LIMIT => U32(milli(power.max)),
        NVML_FI_DEV_POWER_DEFAULT_LIMIT => U32(milli(power.default)),
        NVML_FI_DEV_POWER_CURRENT_LIMIT | NVML_FI_DEV_POWER_REQUESTED_LIMIT => {
            U32(milli(gpu.power_limit_watts()))
        }
        // T.Limit thresholds count degrees from the GPU's highest operating temperature.
        NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT => {
            data_centre.map(|()| I32(limits.gpu_max as i32 - limits.shutdown as i32))?
        }
        NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT => {
            data_centre.map(|()| I32(limits.gpu_max as i32 - limits.slowdown as i32))?
        }
        NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT | NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT => {
            data_centre.map(|()| I32(temperature_margin(gpu).min(0)))?
        }
        NVML_FI_DEV_PCIE_COUNT_TX_BYTES => U64(gpu.counters().pcie_bytes[0] as u64),
        NVML_FI_DEV_PCIE_COUNT_RX_BYTES => U64(gpu.counters().pcie_bytes[1] as u64),
        NVML_FI_DEV_RESET_STATUS => U32(u32::from(gpu.script.recovery_action == 1)),
        NVML_FI_DEV_DRAIN_AND_RESET_STATUS => U32(u32::from(gpu.script.recovery_action == 4)),
        NVML_FI_DEV_GET_GPU_RECOVERY_ACTION => U32(gpu.script.recovery_action),
        _ => return Err(code::NOT_SUPPORTED),
    })
}

/// Returns whether the link is the scope of one field (from Hopper on), instead of a field for each
/// link.
fn has_scopes(gpu: &Gpu) -> bool {
    gpu.profile().nvlinks > OLD_LINKS
}

const OLD_LINKS: u32 = 12;

/// Returns the kind of error and the link of a field of older GPUs.
fn nvlink_of(id: u32) -> Option<(usize, u32)> {
    use nvml::field_id::*;
    let first = [
        NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L0,
        NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L0,
        NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L0,
        NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L0,
    ];
    let seventh = [
        NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L6,
        NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L6,
        NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L6,
        NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L6,
    ];
    let place = |starts: [u32; 4], link: u32| {
        starts
            .iter()
            .position(|start| (*start..start + 6).contains(&id))
            .map(|kind| (kind, link + id - starts[kind]))
    };
    place(first, 0).or_else(|| place(seventh, 6))
}

impl Value {
    fn raw(self) -> (nvmlValueType_t, nvmlValue_t) {
        match self {
            U32(value) => (
                nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT,
                nvmlValue_t {
                    ullVal: u64::from(value),
                },
            ),
            U64(value) => (
                nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
                nvmlValue_t { ullVal: value },
            ),
            I32(value) => (
                nvml::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT,
                nvmlValue_t { siVal: value },
            ),
        }
    }
}

fn throttle_ns(gpu: &mut Gpu, bit: usize) -> u64 {
    (gpu.counters().throttle_seconds[bit] * 1e9) as u64
}

/// Returns whether a driver of this version has the newer numbering.
fn renumbers(driver: &str) -> bool {
    let mut parts = driver
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    version >= (580, 82)
}

fn older_id(id: u32) -> u32 {
    match id {
        251..=268 => id + 5,
        269..=273 => id - 18,
        _ => id,
    }
}
