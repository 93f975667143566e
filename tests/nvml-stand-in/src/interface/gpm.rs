//! GPM: means between two samples of a GPU's counters (Hopper and newer data-centre GPUs).

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    self as nvml, nvmlGpmMetricsGet_t, nvmlGpmSample_t, nvmlGpmSupport_t, nvmlReturn_t,
};

use super::{device_calls, put};
use crate::gpu::{Counters, Gpu};
use crate::{Answer, code, world};

/// Bytes of a MiB, GPM's unit of traffic.
const MIB: f64 = (1 << 20) as f64;

/// Contents of a sample.
#[derive(Default)]
struct Sample(Option<Taken>);

struct Taken {
    at: f64,
    counters: Counters,
    nvlinks: u32,
}

device_calls! {
    fn nvmlGpmQueryDeviceSupport(gpu, support: *mut nvmlGpmSupport_t) {
        if support.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        put(
            &raw mut (*support).isSupportedDevice,
            gpu.profile().gpm.into(),
        )
    }
    fn nvmlGpmQueryIfStreamingEnabled(gpu, enabled: *mut c_uint) {
        supported(gpu)?;
        put(enabled, 1)
    }
    fn nvmlGpmSampleGet(gpu, sample: nvmlGpmSample_t) {
        supported(gpu)?;
        let taken = Taken {
            at: gpu.now,
            nvlinks: gpu.profile().nvlinks,
            counters: gpu.counters().clone(),
        };
        sample
            .cast::<Sample>()
            .as_mut()
            .ok_or(code::INVALID_ARGUMENT)?
            .0 = Some(taken);
        Ok(())
    }
    // The whole GPU has one load, and each MIG device shows it.
    fn nvmlGpmMigSampleGet(gpu, instance: c_uint, sample: nvmlGpmSample_t) {
        supported(gpu)?;
        if gpu
            .script
            .parts
            .iter()
            .all(|part| part.gpu_instance != instance)
        {
            return Err(code::NOT_FOUND);
        }
        let taken = Taken {
            at: gpu.now,
            nvlinks: gpu.profile().nvlinks,
            counters: gpu.counters().clone(),
        };
        sample
            .cast::<Sample>()
            .as_mut()
            .ok_or(code::INVALID_ARGUMENT)?
            .0 = Some(taken);
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleAlloc(sample: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    world::call("nvmlGpmSampleAlloc", |_| {
        if sample.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so valid; `nvmlGpmSampleFree` takes the sample back.
        unsafe { put(sample, Box::into_raw(Box::<Sample>::default()).cast()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    if sample.is_null() {
        return code::INVALID_ARGUMENT;
    }
    // SAFETY: a sample comes from `nvmlGpmSampleAlloc` and is freed once.
    drop(unsafe { Box::from_raw(sample.cast::<Sample>()) });
    code::SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMetricsGet(get: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    world::call("nvmlGpmMetricsGet", |_| {
        // SAFETY: the caller's struct and its two samples are valid.
        let (get, first, second) = unsafe {
            let get = get.as_mut().ok_or(code::INVALID_ARGUMENT)?;
            let first = taken(get.sample1)?;
            let second = taken(get.sample2)?;
            (get, first, second)
        };
        let seconds = second.at - first.at;
        if seconds <= 0.0 {
            return Err(code::INVALID_ARGUMENT);
        }
        let count = get.numMetrics as usize;
        for metric in get.metrics.get_mut(..count).ok_or(code::INVALID_ARGUMENT)? {
            let value = mean(metric.metricId, first, second, seconds);
            metric.nvmlReturn = value.err().unwrap_or(code::SUCCESS);
            metric.value = value.unwrap_or(0.0);
        }
        Ok(())
    })
}

/// Returns the mean of a metric, in percent or MiB per second.
fn mean(metric: c_uint, first: &Taken, second: &Taken, seconds: f64) -> Answer<f64> {
    let per_second =
        |of: fn(&Counters) -> f64| (of(&second.counters) - of(&first.counters)) / seconds;
    let busy_percent = 100.0 * per_second(|c| c.busy_seconds);
    let nvlinks = f64::from(first.nvlinks);
    Ok(match metric {
        nvml::nvmlGpmMetricId_t_NVML_GPM_METRIC_GRAPHICS_UTIL => busy_percent,
        nvml::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL => 0.9 * busy_percent,
        nvml::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_OCCUPANCY => 0.5 * busy_percent,
        nvml::nvmlGpmMetricId_t_NVML_GPM_METRIC_ANY_TENSOR_UTIL => 0.4 * busy_percent,
        nvml::nvmlGpmMetricId_t_NVML_GPM_METRIC_DRAM_BW_UTIL => 0.55 * busy_percent,
        nvml::nvmlGpmMetricId_t_NVML_GPM_METRIC_PCIE_TX_PER_SEC => {
            per_second(|c| c.pcie_bytes[0]) / MIB
        }
        nvml::nvmlGpmMetricId_t_NVML_GPM_METRIC_PCIE_RX_PER_SEC => {
            per_second(|c| c.pcie_bytes[1]) / MIB
        }
        nvml::nvmlGpmMetricId_t_NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC
        | nvml::nvmlGpmMetricId_t_NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC => {
            nvlinks * per_second(|c| c.nvlink_bytes) / MIB
        }
        _ => return Err(code::NOT_SUPPORTED),
    })
}

unsafe fn taken<'a>(sample: nvmlGpmSample_t) -> Answer<&'a Taken> {
    // SAFETY: null, or a sample from `nvmlGpmSampleAlloc`.
    let sample = unsafe { sample.cast::<Sample>().as_ref() }.ok_or(code::INVALID_ARGUMENT)?;
    sample.0.as_ref().ok_or(code::INVALID_ARGUMENT)
}

fn supported(gpu: &Gpu) -> Answer {
    if gpu.profile().gpm {
        Ok(())
    } else {
        Err(code::NOT_SUPPORTED)
    }
}
