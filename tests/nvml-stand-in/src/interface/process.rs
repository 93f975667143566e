//! Processes on a GPU.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlProcessUtilizationInfo_v1_t,
    nvmlProcessUtilizationSample_t, nvmlProcessesUtilizationInfo_v1_t,
};

use super::{device_calls, put_list};
use crate::gpu::Gpu;
use crate::script::Process;
use crate::{Answer, code};

/// NVML's "not available" for an amount of memory.
const UNKNOWN_MEMORY: u64 = u64::MAX;
/// NVML's "no MIG instance".
const NO_INSTANCE: u32 = u32::MAX;

device_calls! {
    fn nvmlDeviceGetComputeRunningProcesses_v3(gpu, count: *mut c_uint, infos: *mut nvmlProcessInfo_t) {
        put_list(infos, count, &processes(gpu, |p| p.compute))
    }
    fn nvmlDeviceGetComputeRunningProcesses_v2(gpu, count: *mut c_uint, infos: *mut nvmlProcessInfo_t) {
        put_list(infos, count, &processes(gpu, |p| p.compute))
    }
    fn nvmlDeviceGetComputeRunningProcesses(gpu, count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t) {
        put_list(infos, count, &processes_v1(gpu, |p| p.compute))
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(gpu, count: *mut c_uint, infos: *mut nvmlProcessInfo_t) {
        put_list(infos, count, &processes(gpu, |p| p.graphics))
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(gpu, count: *mut c_uint, infos: *mut nvmlProcessInfo_t) {
        put_list(infos, count, &processes(gpu, |p| p.graphics))
    }
    fn nvmlDeviceGetGraphicsRunningProcesses(gpu, count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t) {
        put_list(infos, count, &processes_v1(gpu, |p| p.graphics))
    }
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(_gpu, count: *mut c_uint, infos: *mut nvmlProcessInfo_t) {
        put_list(infos, count, &[])
    }
    fn nvmlDeviceGetProcessUtilization(
        gpu, samples: *mut nvmlProcessUtilizationSample_t, count: *mut c_uint, last_seen: c_ulonglong
    ) {
        let list: Vec<_> = utilization(gpu, last_seen)?
            .map(|u| nvmlProcessUtilizationSample_t {
                pid: u.pid,
                timeStamp: u.timeStamp,
                smUtil: u.smUtil,
                memUtil: u.memUtil,
                encUtil: u.encUtil,
                decUtil: u.decUtil,
            })
            .collect();
        put_list(samples, count, &list)
    }
    fn nvmlDeviceGetProcessesUtilizationInfo(gpu, info: *mut nvmlProcessesUtilizationInfo_v1_t) {
        if info.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        let list: Vec<_> = utilization(gpu, (*info).lastSeenTimeStamp)?.collect();
        put_list(
            (*info).procUtilArray,
            &raw mut (*info).processSamplesCount,
            &list,
        )
    }
}

fn processes(gpu: &Gpu, which: fn(&Process) -> bool) -> Vec<nvmlProcessInfo_t> {
    gpu.script
        .processes
        .iter()
        .filter(|p| which(p))
        .map(|p| nvmlProcessInfo_t {
            pid: p.pid,
            usedGpuMemory: p.memory.unwrap_or(UNKNOWN_MEMORY),
            gpuInstanceId: p.gpu_instance.unwrap_or(NO_INSTANCE),
            computeInstanceId: NO_INSTANCE,
        })
        .collect()
}

fn processes_v1(gpu: &Gpu, which: fn(&Process) -> bool) -> Vec<nvmlProcessInfo_v1_t> {
    processes(gpu, which)
        .into_iter()
        .map(|p| nvmlProcessInfo_v1_t {
            pid: p.pid,
            usedGpuMemory: p.usedGpuMemory,
        })
        .collect()
}

/// One sample of each process, ten times a second. Returns NotFound without a sample since
/// `last_seen` (microseconds).
fn utilization(
    gpu: &Gpu,
    last_seen: u64,
) -> Answer<impl Iterator<Item = nvmlProcessUtilizationInfo_v1_t>> {
    let taken = (gpu.now * 10.0).floor() as u64 * 100_000;
    if gpu.script.processes.is_empty() || taken <= last_seen {
        return Err(code::NOT_FOUND);
    }
    let (_, memory) = gpu.reading().utilization;
    Ok(gpu.script.processes.iter().map(move |process| {
        let sm = gpu.process_sm_percent(process);
        nvmlProcessUtilizationInfo_v1_t {
            timeStamp: taken,
            pid: process.pid,
            smUtil: sm,
            memUtil: sm.min(memory),
            encUtil: 0,
            decUtil: 0,
            jpgUtil: 0,
            ofaUtil: 0,
        }
    }))
}
