//! Field values: many figures by one call, each with a return code of its own.
//!
//! The wrapper's own function knows no scopes (one NVLink of many, the module in place of the GPU),
//! so this calls NVML.

use super::metrics::*;
use super::nvlink;
use super::reading::FixedValues;
use super::values::{GpuValues, NvmlQuery};
use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper_sys::bindings as sys;
use nvml_wrapper_sys::bindings::field_id::*;
use takt_model::Metric;

/// One figure and where it goes.
struct Field {
    id: u32,
    scope: u32,
    metric: &'static Metric,
    label: &'static [&'static str],
    /// The unit in base units.
    unit: f64,
    only: ValueFilter,
}

/// Condition on an answer. A GPU without ECC may answer 0 to what only makes sense with it.
#[derive(PartialEq)]
enum ValueFilter {
    Always,
    WithEcc,
    /// A GPU whose memory has no sensor may say 0.
    NotZero,
    /// In 32 bits it would come round several times a second.
    In64Bits,
}
use ValueFilter::{Always, In64Bits, NotZero, WithEcc};

const fn field(
    id: u32,
    metric: &'static Metric,
    label: &'static [&'static str],
    unit: f64,
    only: ValueFilter,
) -> Field {
    Field {
        id,
        scope: 0,
        metric,
        label,
        unit,
        only,
    }
}

const MILLI: f64 = 1e-3;
const NANO: f64 = 1e-9;
const KIB: f64 = 1024.0;
/// The board with its CPU (`NVML_POWER_SCOPE_MODULE`).
const MODULE: u32 = 1;
/// Scope of all links together.
const ALL_LINKS: u32 = u32::MAX;

#[rustfmt::skip]
static FIELDS: &[Field] = &[
    field(NVML_FI_DEV_MEMORY_TEMP, &TEMPERATURE, &["memory"], 1.0, NotZero),
    field(NVML_FI_DEV_POWER_INSTANT, &POWER_INSTANT, &[], MILLI, Always),
    Field { id: NVML_FI_DEV_POWER_INSTANT, scope: MODULE,
        metric: &MODULE_POWER, label: &[], unit: MILLI, only: NotZero },
    field(NVML_FI_DEV_PERF_POLICY_POWER, &THROTTLE_SECONDS, &["sw_power_cap"], NANO, Always),
    field(NVML_FI_DEV_PERF_POLICY_THERMAL, &THROTTLE_SECONDS, &["thermal"], NANO, Always),
    field(NVML_FI_DEV_PERF_POLICY_SYNC_BOOST, &THROTTLE_SECONDS, &["sync_boost"], NANO, Always),
    field(NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT, &THROTTLE_SECONDS, &["board_limit"], NANO, Always),
    field(NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION,
        &THROTTLE_SECONDS, &["low_utilization"], NANO, Always),
    field(NVML_FI_DEV_PERF_POLICY_RELIABILITY, &THROTTLE_SECONDS, &["reliability"], NANO, Always),
    field(NVML_FI_DEV_PERF_POLICY_TOTAL_APP_CLOCKS,
        &THROTTLE_SECONDS, &["app_clocks"], NANO, Always),
    field(NVML_FI_DEV_PERF_POLICY_TOTAL_BASE_CLOCKS,
        &THROTTLE_SECONDS, &["base_clocks"], NANO, Always),
    field(NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
        &THROTTLE_SECONDS, &["sw_thermal"], NANO, Always),
    field(NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
        &THROTTLE_SECONDS, &["hw_thermal"], NANO, Always),
    field(NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
        &THROTTLE_SECONDS, &["hw_power_brake"], NANO, Always),
    field(NVML_FI_DEV_PCIE_COUNT_TX_BYTES, &PCIE_BYTES, &["tx"], 1.0, In64Bits),
    field(NVML_FI_DEV_PCIE_COUNT_RX_BYTES, &PCIE_BYTES, &["rx"], 1.0, In64Bits),
    field(NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT,
        &TEMPERATURE_MARGIN_LIMIT, &["shutdown"], 1.0, Always),
    field(NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT,
        &TEMPERATURE_MARGIN_LIMIT, &["slowdown"], 1.0, Always),
    field(NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT,
        &TEMPERATURE_MARGIN_LIMIT, &["memory_max"], 1.0, Always),
    field(NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT,
        &TEMPERATURE_MARGIN_LIMIT, &["gpu_max"], 1.0, Always),
    field(NVML_FI_DEV_PCIE_REPLAY_COUNTER, &PCIE_REPLAYS, &[], 1.0, Always),
    field(NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS, &PCIE_ERRORS, &["correctable"], 1.0, Always),
    field(NVML_FI_DEV_PCIE_COUNT_NAKS_RECEIVED, &PCIE_ERRORS, &["nak_received"], 1.0, Always),
    field(NVML_FI_DEV_PCIE_COUNT_RECEIVER_ERROR, &PCIE_ERRORS, &["receiver"], 1.0, Always),
    field(NVML_FI_DEV_PCIE_COUNT_BAD_TLP, &PCIE_ERRORS, &["bad_tlp"], 1.0, Always),
    field(NVML_FI_DEV_PCIE_COUNT_NAKS_SENT, &PCIE_ERRORS, &["nak_sent"], 1.0, Always),
    field(NVML_FI_DEV_PCIE_COUNT_BAD_DLLP, &PCIE_ERRORS, &["bad_dllp"], 1.0, Always),
    field(NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR, &PCIE_ERRORS, &["non_fatal"], 1.0, Always),
    field(NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR, &PCIE_ERRORS, &["fatal"], 1.0, Always),
    field(NVML_FI_DEV_PCIE_COUNT_UNSUPPORTED_REQ,
        &PCIE_ERRORS, &["unsupported_request"], 1.0, Always),
    field(NVML_FI_DEV_PCIE_COUNT_LCRC_ERROR, &PCIE_ERRORS, &["lcrc"], 1.0, Always),
    field(NVML_FI_DEV_PCIE_COUNT_LANE_ERROR, &PCIE_ERRORS, &["lane"], 1.0, Always),
    field(NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER, &PCIE_ERRORS, &["l0_to_recovery"], 1.0, Always),
    field(NVML_FI_DEV_ECC_SBE_VOL_TOTAL, &ECC_ERRORS, &["corrected", "volatile"], 1.0, WithEcc),
    field(NVML_FI_DEV_ECC_DBE_VOL_TOTAL, &ECC_ERRORS, &["uncorrected", "volatile"], 1.0, WithEcc),
    field(NVML_FI_DEV_ECC_SBE_AGG_TOTAL, &ECC_ERRORS, &["corrected", "aggregate"], 1.0, WithEcc),
    field(NVML_FI_DEV_ECC_DBE_AGG_TOTAL, &ECC_ERRORS, &["uncorrected", "aggregate"], 1.0, WithEcc),
    field(NVML_FI_DEV_REMAPPED_COR, &REMAPPED_ROWS, &["corrected"], 1.0, WithEcc),
    field(NVML_FI_DEV_REMAPPED_UNC, &REMAPPED_ROWS, &["uncorrected"], 1.0, WithEcc),
    field(NVML_FI_DEV_REMAPPED_PENDING, &REMAP_PENDING, &[], 1.0, WithEcc),
    field(NVML_FI_DEV_REMAPPED_FAILURE, &REMAP_FAILED, &[], 1.0, WithEcc),
    field(NVML_FI_DEV_RETIRED_SBE, &RETIRED_PAGES, &["single_bit"], 1.0, WithEcc),
    field(NVML_FI_DEV_RETIRED_DBE, &RETIRED_PAGES, &["double_bit"], 1.0, WithEcc),
    field(NVML_FI_DEV_RETIRED_PENDING, &RETIRED_PENDING, &[], 1.0, WithEcc),
    field(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, &RECOVERY_ACTION, &[], 1.0, Always),
    Field { id: NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, scope: ALL_LINKS,
        metric: &NVLINK_BYTES, label: &["tx"], unit: KIB, only: Always },
    Field { id: NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, scope: ALL_LINKS,
        metric: &NVLINK_BYTES, label: &["rx"], unit: KIB, only: Always },
];

pub(super) fn read(
    device: &Device<'_>,
    fixed: &FixedValues,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<(), NvmlError> {
    let requests = FIELDS.iter().map(|field| request(field.id, field.scope));
    let mut requests: Vec<_> = requests.collect();
    let Some(found) = get(device, &mut requests, ask)? else {
        return Ok(());
    };

    for (field, found) in FIELDS.iter().zip(found) {
        let Some(found) = found else { continue };
        let counts = match field.only {
            Always => true,
            WithEcc => fixed.has_ecc,
            NotZero => found.value != 0.0,
            In64Bits => found.is_wide,
        };

        let value = counts.then_some(found.value * field.unit);
        values.tabled(field.metric, field.label, value);
    }

    nvlink::read(device, &fixed.nvlinks, ask, values)
}

/// A field's value as NVML gave it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FieldValue {
    pub value: f64,
    pub is_wide: bool,
}

pub(super) fn request(id: u32, scope: u32) -> sys::nvmlFieldValue_t {
    // SAFETY: a struct of numbers may be all zeros.
    let zeros: sys::nvmlFieldValue_t = unsafe { std::mem::zeroed() };
    sys::nvmlFieldValue_t {
        fieldId: id,
        scopeId: scope,
        ..zeros
    }
}

/// `None` for each field that the GPU does not have, and for all where the call fails.
pub(super) fn get(
    device: &Device<'_>,
    requests: &mut [sys::nvmlFieldValue_t],
    ask: &mut NvmlQuery<'_>,
) -> Result<Option<Vec<Option<FieldValue>>>, NvmlError> {
    if ask.is_renumbered {
        for request in requests.iter_mut() {
            request.fieldId = newer_id(request.fieldId);
        }
    }

    let symbol = &device.nvml().lib().nvmlDeviceGetFieldValues;
    let count = requests.len() as i32;
    // SAFETY: the handle is the device's; pointer and length are the slice's.
    let code = call(symbol, |function| unsafe {
        function(device.handle(), count, requests.as_mut_ptr())
    });

    let answered = ask.value("GetFieldValues", code)?;
    Ok(answered.map(|()| requests.iter().map(found).collect()))
}

pub(super) fn found(field: &sys::nvmlFieldValue_t) -> Option<FieldValue> {
    nvml_try(field.nvmlReturn).ok()?;

    // SAFETY: the type says which of the union's members NVML has written.
    let (value, is_wide) = unsafe {
        match field.valueType {
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_DOUBLE => (field.value.dVal, true),
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT => {
                (f64::from(field.value.uiVal), false)
            }
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG => {
                (field.value.ulVal as f64, true)
            }
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG => {
                (field.value.ullVal as f64, true)
            }
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG => {
                (field.value.sllVal as f64, true)
            }
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT => {
                (f64::from(field.value.siVal), false)
            }
            _ => return None,
        }
    };
    Some(FieldValue { value, is_wide })
}

/// From 580.82 on, drivers have other numbers for some fields.
pub(super) fn is_renumbered(driver: &str) -> bool {
    let parts = driver.split('.');
    let mut parts = parts.map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (580, 82)
}

fn newer_id(id: u32) -> u32 {
    match id {
        251..=255 => id + 18,
        256..=273 => id - 5,
        _ => id,
    }
}

/// Calls a function of the library, if this driver's has it.
pub(super) fn call<F, E: ToString>(
    symbol: &Result<F, E>,
    call: impl FnOnce(&F) -> sys::nvmlReturn_t,
) -> Result<(), NvmlError> {
    let function = symbol
        .as_ref()
        .map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))?;
    nvml_try(call(function))
}

/// The number that NVML expects in a struct's `version`.
pub(super) const fn version<T>(number: u32) -> u32 {
    size_of::<T>() as u32 | (number << 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_numbered_as_the_driver_does() {
        assert!(!is_renumbered("570.86.15") && !is_renumbered("580.65.06") && !is_renumbered(""));
        assert!(
            is_renumbered("580.82.07") && is_renumbered("580.105.08") && is_renumbered("590.1")
        );
        assert_eq!(
            [74, 251, 253, 255, 256, 273, 274].map(newer_id),
            [74, 269, 271, 273, 251, 268, 274]
        );
    }

    #[test]
    fn every_field_has_its_labels() {
        for field in FIELDS {
            assert_eq!(
                field.label.len() + 1,
                field.metric.labels.len(),
                "{}",
                field.metric.name
            );
        }
    }
}
