//! Identity and readings of one GPU.

#![expect(non_upper_case_globals, reason = "NVML's constants stand in patterns")]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};
use std::thread;
use std::time::Duration;

use nvml_wrapper_sys::bindings::*;

use super::{device_calls, fill, put, put_list, put_text};
use crate::gpu::Gpu;
use crate::world::{handle, part_handle};
use crate::{Answer, code};
use std::mem;

/// Sampling period of utilization, in microseconds.
const SAMPLING_PERIOD_US: u32 = 167_000;

/// Throttle reasons of all simulated models.
const SUPPORTED_REASONS: u64 = 0x1ff;

/// Time that NVML takes to sample the PCIe throughput in one direction; the real library sleeps
/// too.
const PCIE_SAMPLING: Duration = Duration::from_millis(20);

device_calls! {
    // Identity.
    fn nvmlDeviceGetName(gpu, name: *mut c_char, length: c_uint) {
        put_text(name, length, &gpu.name_of_handle())
    }
    fn nvmlDeviceGetUUID(gpu, uuid: *mut c_char, length: c_uint) {
        put_text(uuid, length, &gpu.uuid_of_handle())
    }
    fn nvmlDeviceGetSerial(gpu, serial: *mut c_char, length: c_uint) {
        put_text(serial, length, &gpu.serial()?)
    }
    fn nvmlDeviceGetMinorNumber(gpu, minor: *mut c_uint) { put(minor, gpu.minor()) }
    fn nvmlDeviceGetBrand(gpu, brand: *mut nvmlBrandType_t) { put(brand, gpu.profile().brand) }
    fn nvmlDeviceGetArchitecture(gpu, architecture: *mut nvmlDeviceArchitecture_t) {
        put(architecture, gpu.profile().architecture)
    }
    fn nvmlDeviceGetCudaComputeCapability(gpu, major: *mut c_int, minor: *mut c_int) {
        let capability = gpu.profile().compute_capability;
        put(major, capability.0)?;
        put(minor, capability.1)
    }
    fn nvmlDeviceGetNumGpuCores(gpu, cores: *mut c_uint) { put(cores, gpu.profile().cores) }
    fn nvmlDeviceGetMemoryBusWidth(gpu, bits: *mut c_uint) {
        put(bits, gpu.profile().memory_bus_bits)
    }
    fn nvmlDeviceGetVbiosVersion(gpu, version: *mut c_char, length: c_uint) {
        put_text(version, length, gpu.profile().vbios)
    }
    fn nvmlDeviceGetBoardPartNumber(gpu, part: *mut c_char, length: c_uint) {
        gpu.data_centre()?;
        put_text(part, length, "900-21001-0000-000")
    }
    fn nvmlDeviceGetModuleId(gpu, id: *mut c_uint) {
        gpu.data_centre()?;
        put(id, gpu.slot as u32 + 1)
    }
    fn nvmlDeviceGetPciInfo_v3(gpu, info: *mut nvmlPciInfo_t) { put(info, pci_info(gpu)) }
    fn nvmlDeviceGetComputeMode(_gpu, mode: *mut nvmlComputeMode_t) { put(mode, 0) }
    fn nvmlDeviceGetPersistenceMode(gpu, mode: *mut nvmlEnableState_t) {
        put(mode, gpu.script.persistence)
    }
    fn nvmlDeviceGetDisplayActive(_gpu, active: *mut nvmlEnableState_t) { put(active, 0) }

    // Memory.
    fn nvmlDeviceGetMemoryInfo(gpu, memory: *mut nvmlMemory_t) {
        // The first version counts reserved memory as used.
        let total = gpu.memory_total();
        let used = gpu.reading().memory_used + gpu.memory_reserved();
        put(
            memory,
            nvmlMemory_t {
                total,
                free: total.saturating_sub(used),
                used,
            },
        )
    }
    fn nvmlDeviceGetMemoryInfo_v2(gpu, memory: *mut nvmlMemory_v2_t) {
        let version = check_version(memory, 2)?;
        if let Some(part) = gpu.part() {
            let total = part.memory;
            let used = part.used;
            let free = total.saturating_sub(used);
            return put(
                memory,
                nvmlMemory_v2_t {
                    version,
                    total,
                    reserved: 0,
                    free,
                    used,
                },
            );
        }
        let total = gpu.memory_total();
        let reserved = gpu.memory_reserved();
        let used = gpu.reading().memory_used;
        let free = total.saturating_sub(reserved + used);
        put(
            memory,
            nvmlMemory_v2_t {
                version,
                total,
                reserved,
                free,
                used,
            },
        )
    }
    fn nvmlDeviceGetBAR1MemoryInfo(gpu, memory: *mut nvmlBAR1Memory_t) {
        let total = gpu.profile().bar1_mib << 20;
        let used = 2 << 20;
        put(
            memory,
            nvmlBAR1Memory_t {
                bar1Total: total,
                bar1Free: total - used,
                bar1Used: used,
            },
        )
    }

    // Activity.
    fn nvmlDeviceGetUtilizationRates(gpu, rates: *mut nvmlUtilization_t) {
        if gpu.script.mig {
            return Err(code::NOT_SUPPORTED);
        }
        let (gpu, memory) = gpu.reading().utilization;
        put(rates, nvmlUtilization_t { gpu, memory })
    }
    fn nvmlDeviceGetEncoderUtilization(gpu, percent: *mut c_uint, period: *mut c_uint) {
        put(percent, gpu.script.encoder.unwrap_or(0))?;
        put(period, SAMPLING_PERIOD_US)
    }
    fn nvmlDeviceGetDecoderUtilization(gpu, percent: *mut c_uint, period: *mut c_uint) {
        put(percent, gpu.script.decoder.unwrap_or(0))?;
        put(period, SAMPLING_PERIOD_US)
    }
    fn nvmlDeviceGetJpgUtilization(gpu, percent: *mut c_uint, period: *mut c_uint) {
        put(percent, gpu.script.jpeg.unwrap_or(0))?;
        put(period, SAMPLING_PERIOD_US)
    }
    fn nvmlDeviceGetOfaUtilization(gpu, percent: *mut c_uint, period: *mut c_uint) {
        put(percent, gpu.script.optical_flow.unwrap_or(0))?;
        put(period, SAMPLING_PERIOD_US)
    }

    // Heat and fans.
    fn nvmlDeviceGetTemperature(gpu, sensor: nvmlTemperatureSensors_t, degrees: *mut c_uint) {
        match sensor {
            nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU => {
                put(degrees, gpu.reading().temperature)
            }
            _ => Err(code::INVALID_ARGUMENT),
        }
    }
    fn nvmlDeviceGetTemperatureV(gpu, temperature: *mut nvmlTemperature_v1_t) {
        let version = check_version(temperature, 1)?;
        let sensor = (*temperature).sensorType;
        if sensor != nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU {
            return Err(code::INVALID_ARGUMENT);
        }
        let degrees = gpu.reading().temperature as c_int;
        put(
            temperature,
            nvmlTemperature_v1_t {
                version,
                sensorType: sensor,
                temperature: degrees,
            },
        )
    }
    fn nvmlDeviceGetMarginTemperature(gpu, margin: *mut nvmlMarginTemperature_v1_t) {
        let version = check_version(margin, 1)?;
        gpu.data_centre()?;
        put(
            margin,
            nvmlMarginTemperature_v1_t {
                version,
                marginTemperature: temperature_margin(gpu),
            },
        )
    }
    fn nvmlDeviceGetTemperatureThreshold(gpu, threshold: nvmlTemperatureThresholds_t, degrees: *mut c_uint) {
        let limits = &gpu.profile().thresholds;
        let target = limits.target.ok_or(code::NOT_SUPPORTED);
        put(
            degrees,
            match threshold {
                nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_SHUTDOWN => {
                    limits.shutdown
                }
                nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_SLOWDOWN => {
                    limits.slowdown
                }
                nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_MEM_MAX => {
                    limits.memory_max.ok_or(code::NOT_SUPPORTED)?
                }
                nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_GPU_MAX => limits.gpu_max,
                nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MIN => target?.0,
                nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR => {
                    target?.1
                }
                nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MAX => target?.2,
                nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_GPS_CURR => {
                    return Err(code::NOT_SUPPORTED);
                }
                _ => return Err(code::INVALID_ARGUMENT),
            },
        )
    }
    fn nvmlDeviceGetNumFans(gpu, fans: *mut c_uint) {
        match gpu.profile().fans {
            0 => Err(code::NOT_SUPPORTED),
            count => put(fans, count),
        }
    }
    fn nvmlDeviceGetFanSpeed(gpu, percent: *mut c_uint) { put(percent, gpu.fan(0)?) }
    fn nvmlDeviceGetFanSpeed_v2(gpu, fan: c_uint, percent: *mut c_uint) {
        put(percent, gpu.fan(fan)?)
    }

    // Power and energy. NVML counts milliwatts and millijoules.
    fn nvmlDeviceGetPowerUsage(gpu, milliwatts: *mut c_uint) {
        put(milliwatts, milli(gpu.reading().power_watts))
    }
    fn nvmlDeviceGetEnforcedPowerLimit(gpu, milliwatts: *mut c_uint) {
        put(milliwatts, milli(gpu.power_limit_watts()))
    }
    fn nvmlDeviceGetPowerManagementLimit(gpu, milliwatts: *mut c_uint) {
        put(milliwatts, milli(gpu.power_limit_watts()))
    }
    fn nvmlDeviceGetPowerManagementDefaultLimit(gpu, milliwatts: *mut c_uint) {
        put(milliwatts, milli(gpu.profile().power.default))
    }
    fn nvmlDeviceGetPowerManagementLimitConstraints(gpu, min: *mut c_uint, max: *mut c_uint) {
        put(min, milli(gpu.profile().power.min))?;
        put(max, milli(gpu.profile().power.max))
    }
    fn nvmlDeviceGetPowerManagementMode(_gpu, mode: *mut nvmlEnableState_t) { put(mode, 1) }
    fn nvmlDeviceGetTotalEnergyConsumption(gpu, millijoules: *mut c_ulonglong) {
        put(millijoules, (gpu.counters().energy_joules * 1e3) as u64)
    }

    // Clocks.
    fn nvmlDeviceGetClockInfo(gpu, clock: nvmlClockType_t, mhz: *mut c_uint) {
        put(mhz, of_domain(&gpu.reading().clocks, clock)?)
    }
    fn nvmlDeviceGetMaxClockInfo(gpu, clock: nvmlClockType_t, mhz: *mut c_uint) {
        put(mhz, of_domain(&gpu.profile().clocks_max, clock)?)
    }
    fn nvmlDeviceGetClock(gpu, clock: nvmlClockType_t, id: nvmlClockId_t, mhz: *mut c_uint) {
        match id {
            nvmlClockId_enum_NVML_CLOCK_ID_CURRENT => {
                put(mhz, of_domain(&gpu.reading().clocks, clock)?)
            }
            _ => Err(code::NOT_SUPPORTED),
        }
    }
    fn nvmlDeviceGetPerformanceState(gpu, pstate: *mut nvmlPstates_t) {
        put(pstate, gpu.reading().pstate)
    }
    fn nvmlDeviceGetPowerState(gpu, pstate: *mut nvmlPstates_t) {
        put(pstate, gpu.reading().pstate)
    }
    fn nvmlDeviceGetCurrentClocksThrottleReasons(gpu, reasons: *mut c_ulonglong) {
        put(reasons, gpu.reading().throttle)
    }
    fn nvmlDeviceGetCurrentClocksEventReasons(gpu, reasons: *mut c_ulonglong) {
        put(reasons, gpu.reading().throttle)
    }
    fn nvmlDeviceGetSupportedClocksThrottleReasons(_gpu, reasons: *mut c_ulonglong) {
        put(reasons, SUPPORTED_REASONS)
    }
    fn nvmlDeviceGetSupportedClocksEventReasons(_gpu, reasons: *mut c_ulonglong) {
        put(reasons, SUPPORTED_REASONS)
    }
    fn nvmlDeviceGetViolationStatus(gpu, policy: nvmlPerfPolicyType_t, time: *mut nvmlViolationTime_t) {
        let now = gpu.now;
        let throttled = gpu.counters().throttle_seconds;
        let seconds = match policy {
            nvmlPerfPolicyType_enum_NVML_PERF_POLICY_POWER => throttled[2],
            nvmlPerfPolicyType_enum_NVML_PERF_POLICY_THERMAL => throttled[5],
            nvmlPerfPolicyType_enum_NVML_PERF_POLICY_SYNC_BOOST => throttled[4],
            _ => return Err(code::NOT_SUPPORTED),
        };
        put(
            time,
            nvmlViolationTime_t {
                referenceTime: (now * 1e6) as u64,
                violationTime: (seconds * 1e9) as u64,
            },
        )
    }

    // PCIe.
    fn nvmlDeviceGetCurrPcieLinkGeneration(gpu, generation: *mut c_uint) {
        put(generation, gpu.reading().pcie_generation)
    }
    fn nvmlDeviceGetCurrPcieLinkWidth(gpu, width: *mut c_uint) {
        put(width, gpu.reading().pcie_width)
    }
    fn nvmlDeviceGetMaxPcieLinkGeneration(gpu, generation: *mut c_uint) {
        put(generation, gpu.profile().pcie_generation)
    }
    fn nvmlDeviceGetGpuMaxPcieLinkGeneration(gpu, generation: *mut c_uint) {
        put(generation, gpu.profile().pcie_generation)
    }
    fn nvmlDeviceGetMaxPcieLinkWidth(gpu, width: *mut c_uint) {
        put(width, gpu.profile().pcie_width)
    }
    fn nvmlDeviceGetPcieReplayCounter(gpu, replays: *mut c_uint) {
        put(replays, gpu.script.pcie_replays)
    }
    fn nvmlDeviceGetPcieThroughput(gpu, direction: nvmlPcieUtilCounter_t, kib_per_second: *mut c_uint) {
        let [sent, received] = gpu.reading().pcie_kib_per_second();
        let rate = match direction {
            nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_TX_BYTES => sent,
            nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_RX_BYTES => received,
            _ => return Err(code::INVALID_ARGUMENT),
        };
        thread::sleep(PCIE_SAMPLING);
        put(kib_per_second, rate)
    }

    // Memory errors.
    fn nvmlDeviceGetEccMode(gpu, current: *mut nvmlEnableState_t, pending: *mut nvmlEnableState_t) {
        gpu.data_centre()?;
        put(current, 1)?;
        put(pending, 1)
    }
    fn nvmlDeviceGetDefaultEccMode(gpu, mode: *mut nvmlEnableState_t) {
        gpu.data_centre()?;
        put(mode, 1)
    }
    fn nvmlDeviceGetTotalEccErrors(
        gpu, kind: nvmlMemoryErrorType_t, scope: nvmlEccCounterType_t, count: *mut c_ulonglong
    ) {
        put(count, ecc_errors(gpu, kind, scope)?)
    }
    fn nvmlDeviceGetMemoryErrorCounter(
        gpu, kind: nvmlMemoryErrorType_t, scope: nvmlEccCounterType_t, location: nvmlMemoryLocation_t,
        count: *mut c_ulonglong
    ) {
        // All scripted errors are errors of the device memory.
        let errors = ecc_errors(gpu, kind, scope)?;
        match location {
            nvmlMemoryLocation_enum_NVML_MEMORY_LOCATION_DRAM => put(count, errors),
            nvmlMemoryLocation_enum_NVML_MEMORY_LOCATION_SRAM => put(count, 0),
            _ => Err(code::NOT_SUPPORTED),
        }
    }
    fn nvmlDeviceGetRemappedRows(
        gpu, corrected: *mut c_uint, uncorrected: *mut c_uint, pending: *mut c_uint, failed: *mut c_uint
    ) {
        gpu.data_centre()?;
        let rows = gpu.script.remapped;
        put(corrected, rows.corrected)?;
        put(uncorrected, rows.uncorrected)?;
        put(pending, rows.pending.into())?;
        put(failed, rows.failed.into())
    }
    fn nvmlDeviceGetRowRemapperHistogram(gpu, histogram: *mut nvmlRowRemapperHistogramValues_t) {
        gpu.data_centre()?;
        let used = gpu.script.remapped.corrected + gpu.script.remapped.uncorrected;
        let max = 640_u32.saturating_sub(used);
        put(
            histogram,
            nvmlRowRemapperHistogramValues_t {
                max,
                high: used,
                partial: 0,
                low: 0,
                none: 0,
            },
        )
    }
    fn nvmlDeviceGetSramEccErrorStatus(gpu, status: *mut nvmlEccSramErrorStatus_t) {
        let version = check_version(status, 1)?;
        // From Hopper on.
        if !gpu.profile().gpm {
            return Err(code::NOT_SUPPORTED);
        }
        let exceeded = gpu.script.sram_threshold_exceeded.into();
        // A struct of numbers may be all zeros.
        let zeros: nvmlEccSramErrorStatus_t = mem::zeroed();
        put(
            status,
            nvmlEccSramErrorStatus_t {
                version,
                bThresholdExceeded: exceeded,
                ..zeros
            },
        )
    }
    // Retired pages ended with Volta, which none of the models is; the fields can be scripted.
    fn nvmlDeviceGetRetiredPages(
        _gpu, _cause: nvmlPageRetirementCause_t, _count: *mut c_uint, _addresses: *mut c_ulonglong
    ) {
        Err(code::NOT_SUPPORTED)
    }
    fn nvmlDeviceGetRetiredPages_v2(
        _gpu, _cause: nvmlPageRetirementCause_t, _count: *mut c_uint, _addresses: *mut c_ulonglong,
        _timestamps: *mut c_ulonglong
    ) {
        Err(code::NOT_SUPPORTED)
    }
    fn nvmlDeviceGetRetiredPagesPendingStatus(_gpu, _pending: *mut nvmlEnableState_t) {
        Err(code::NOT_SUPPORTED)
    }

    // MIG and NVLink.
    fn nvmlDeviceGetMigMode(gpu, current: *mut c_uint, pending: *mut c_uint) {
        if !gpu.profile().mig {
            return Err(code::NOT_SUPPORTED);
        }
        put(current, gpu.script.mig.into())?;
        put(pending, gpu.script.mig.into())
    }
    fn nvmlDeviceGetMaxMigDeviceCount(gpu, count: *mut c_uint) {
        put(count, if gpu.profile().mig { MAX_PARTS } else { 0 })
    }
    fn nvmlDeviceIsMigDeviceHandle(gpu, is_mig: *mut c_uint) {
        put(is_mig, gpu.part.is_some().into())
    }
    fn nvmlDeviceGetMigDeviceHandleByIndex(gpu, index: c_uint, part: *mut nvmlDevice_t) {
        if !gpu.script.mig {
            return Err(code::NOT_SUPPORTED);
        }
        match index as usize {
            place if place < gpu.script.parts.len() => put(part, part_handle(gpu.slot, place)),
            place if place < MAX_PARTS as usize => Err(code::NOT_FOUND),
            _ => Err(code::INVALID_ARGUMENT),
        }
    }
    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(gpu, parent: *mut nvmlDevice_t) {
        gpu.part().ok_or(code::INVALID_ARGUMENT)?;
        put(parent, handle(gpu.slot))
    }
    fn nvmlDeviceGetGpuInstanceId(gpu, id: *mut c_uint) {
        put(id, gpu.part().ok_or(code::NOT_SUPPORTED)?.gpu_instance)
    }
    fn nvmlDeviceGetComputeInstanceId(gpu, id: *mut c_uint) {
        put(id, gpu.part().ok_or(code::NOT_SUPPORTED)?.compute_instance)
    }
    fn nvmlDeviceGetNvLinkState(gpu, link: c_uint, active: *mut nvmlEnableState_t) {
        put(active, gpu.nvlink_active(link)?.into())
    }
    fn nvmlDeviceGetNvLinkVersion(gpu, link: c_uint, version: *mut c_uint) {
        gpu.nvlink_active(link)?;
        put(version, gpu.profile().nvlink_version)
    }
    fn nvmlDeviceGetNvLinkErrorCounter(
        gpu, link: c_uint, counter: nvmlNvLinkErrorCounter_t, count: *mut c_ulonglong
    ) {
        put(
            count,
            nvlink_errors(
                gpu,
                link,
                match counter {
                    nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_REPLAY => 0,
                    nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_RECOVERY => 1,
                    nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_CRC_FLIT => 2,
                    nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_CRC_DATA => 3,
                    _ => return Err(code::NOT_SUPPORTED),
                },
            )?,
        )
    }

    // Firmware, accounting, virtualisation.
    fn nvmlDeviceGetGspFirmwareVersion(_gpu, version: *mut c_char) {
        // NVML knows no length here: the buffer has at least 64 bytes.
        put_text(version, 64, "580.95.05")
    }
    fn nvmlDeviceGetGspFirmwareMode(_gpu, enabled: *mut c_uint, default: *mut c_uint) {
        put(enabled, 1)?;
        put(default, 1)
    }
    fn nvmlDeviceGetAccountingMode(_gpu, mode: *mut nvmlEnableState_t) { put(mode, 0) }
    fn nvmlDeviceGetAccountingBufferSize(_gpu, size: *mut c_uint) { put(size, 4000) }
    fn nvmlDeviceGetAccountingPids(_gpu, count: *mut c_uint, pids: *mut c_uint) {
        put_list(pids, count, &[])
    }
}

/// Maximum number of MIG devices on one GPU.
const MAX_PARTS: u32 = 7;

/// Errors of one NVLink.
pub fn nvlink_errors(gpu: &Gpu, link: u32, kind: usize) -> Answer<u64> {
    gpu.nvlink_active(link)?;
    Ok(gpu
        .script
        .nvlink_errors
        .get(&(link, kind))
        .copied()
        .unwrap_or(0))
}

/// Returns the margin to the slowdown temperature, in °C.
pub fn temperature_margin(gpu: &Gpu) -> c_int {
    gpu.profile().thresholds.gpu_max as c_int - gpu.reading().temperature as c_int
}

/// Returns ECC errors of a kind (corrected, uncorrected), since the driver was loaded or over the
/// lifetime.
pub fn ecc_errors(
    gpu: &Gpu,
    kind: nvmlMemoryErrorType_t,
    scope: nvmlEccCounterType_t,
) -> Answer<u64> {
    gpu.data_centre()?;
    let counts = match scope {
        nvmlEccCounterType_enum_NVML_VOLATILE_ECC => gpu.script.ecc.volatile,
        nvmlEccCounterType_enum_NVML_AGGREGATE_ECC => gpu.script.ecc.aggregate,
        _ => return Err(code::INVALID_ARGUMENT),
    };
    counts
        .get(kind as usize)
        .copied()
        .ok_or(code::INVALID_ARGUMENT)
}

/// Converts watts to NVML's milliwatts.
pub fn milli(watts: f64) -> u32 {
    (watts * 1e3).round() as u32
}

fn pci_info(gpu: &Gpu) -> nvmlPciInfo_t {
    let (domain, bus, device) = gpu.pci_address();
    let mut info = nvmlPciInfo_t {
        busIdLegacy: [0; 16],
        domain,
        bus,
        device,
        pciDeviceId: gpu.profile().pci_device_id,
        pciSubSystemId: gpu.profile().pci_subsystem_id,
        busId: [0; 32],
    };
    fill(
        &mut info.busIdLegacy,
        &format!("{domain:04X}:{bus:02X}:{device:02X}.0"),
    );
    fill(
        &mut info.busId,
        &format!("{domain:08X}:{bus:02X}:{device:02X}.0"),
    );
    info
}

fn of_domain(clocks: &[u32; 3], domain: nvmlClockType_t) -> Answer<u32> {
    match domain {
        nvmlClockType_enum_NVML_CLOCK_GRAPHICS | nvmlClockType_enum_NVML_CLOCK_SM => Ok(clocks[0]),
        nvmlClockType_enum_NVML_CLOCK_MEM => Ok(clocks[1]),
        nvmlClockType_enum_NVML_CLOCK_VIDEO => Ok(clocks[2]),
        _ => Err(code::INVALID_ARGUMENT),
    }
}

/// Checks the version that the caller wrote into the first field of a struct: its size, and the
/// version number in the highest byte.
unsafe fn check_version<T>(of: *mut T, number: u32) -> Answer<u32> {
    if of.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    let wanted = size_of::<T>() as u32 | number << 24;
    // SAFETY: not null, so valid; every versioned struct of NVML begins with its version.
    match unsafe { of.cast::<u32>().read() } {
        version if version == wanted => Ok(version),
        _ => Err(code::ARGUMENT_VERSION_MISMATCH),
    }
}
