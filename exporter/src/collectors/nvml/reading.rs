//! Readings of one GPU, in base units.
//!
//! NVML reports percent, milliwatts, millijoules, megahertz, nanoseconds and KiB.

use super::fields;
use super::metrics::*;
use super::nvlink::{self, Nvlinks};
use super::values::{GpuValues, NvmlQuery};
use super::virtualization::{self, VirtualizationRole};
use crate::collector::flag;
use crate::gpus::GpuProcess;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor, TemperatureThreshold};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as sys;

const CLOCKS: [(&str, Clock); 4] = [
    ("graphics", Clock::Graphics),
    ("sm", Clock::SM),
    ("memory", Clock::Memory),
    ("video", Clock::Video),
];

/// By their bits; NVML's `nvmlClocksEventReason*`.
pub(super) const REASONS: [&str; 9] = [
    "idle",
    "app_clocks",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
    "display_clocks",
];

/// Values that stay the same until the driver is loaded again.
#[derive(Debug, Clone, Default)]
pub(super) struct FixedValues {
    pub values: GpuValues,
    pub has_ecc: bool,
    pub nvlinks: Nvlinks,
    pub virtualization: VirtualizationRole,
    pub has_gpm: bool,
    /// Bits of the reasons that this GPU knows.
    reasons: u64,
    pcie_generation_max: Option<u32>,
    pcie_width_max: Option<u32>,
}

impl FixedValues {
    pub fn of(device: &Device<'_>, ask: &mut NvmlQuery<'_>) -> Result<Self, NvmlError> {
        let mut fixed = Self::default();
        let values = &mut fixed.values;

        let constraints = ask.value(
            "GetPowerManagementLimitConstraints",
            device.power_management_limit_constraints(),
        )?;
        values.one(
            &POWER_LIMIT_MIN,
            constraints.as_ref().map(|limits| milli(limits.min_limit)),
        );
        values.one(
            &POWER_LIMIT_MAX,
            constraints.map(|limits| milli(limits.max_limit)),
        );

        let default = ask.value(
            "GetPowerManagementDefaultLimit",
            device.power_management_limit_default(),
        )?;
        values.one(&POWER_LIMIT_DEFAULT, default.map(milli));

        for (limit, threshold) in [
            ("shutdown", TemperatureThreshold::Shutdown),
            ("slowdown", TemperatureThreshold::Slowdown),
            ("gpu_max", TemperatureThreshold::GpuMax),
            ("memory_max", TemperatureThreshold::MemoryMax),
            ("target", TemperatureThreshold::AcousticCurr),
        ] {
            let degrees = ask.value(
                "GetTemperatureThreshold",
                device.temperature_threshold(threshold),
            )?;
            // A threshold that the GPU does not have may come as 0.
            let degrees = degrees.filter(|degrees| *degrees > 0).map(f64::from);
            values.labelled(&TEMPERATURE_LIMIT, [limit], degrees);
        }

        for (domain, clock) in CLOCKS {
            let megahertz = ask.value("GetMaxClockInfo", device.max_clock_info(clock))?;
            values.labelled(&CLOCK_MAX, [domain], megahertz.map(mega));
        }

        let generation = ask.value("GetMaxPcieLinkGeneration", device.max_pcie_link_gen())?;
        let width = ask.value("GetMaxPcieLinkWidth", device.max_pcie_link_width())?;
        values.labelled(&PCIE_GENERATION, ["max"], generation.map(f64::from));
        values.labelled(&PCIE_WIDTH, ["max"], width.map(f64::from));

        if let Some(version) = ask.value("GetVbiosVersion", device.vbios_version())? {
            values.labelled(&VBIOS, [version], Some(1.0));
        }

        let ecc = ask.value("GetEccMode", device.is_ecc_enabled())?;
        values.one(
            &ECC_ENABLED,
            ecc.as_ref().map(|ecc| flag(ecc.currently_enabled)),
        );

        (fixed.pcie_generation_max, fixed.pcie_width_max) = (generation, width);
        fixed.has_ecc = ecc.is_some();
        fixed.nvlinks = Nvlinks::of(device, ask)?;
        fixed.virtualization = VirtualizationRole::of(device, ask, &mut fixed.values)?;
        let has_gpm = ask.value("GpmQueryDeviceSupport", device.gpm_support())?;
        fixed.has_gpm = has_gpm.unwrap_or(false);

        let reasons = ask.value(
            "GetSupportedClocksEventReasons",
            device.supported_throttle_reasons(),
        )?;
        fixed.reasons = reasons.map_or(0, |reasons| reasons.bits());

        Ok(fixed)
    }
}

/// All values that change.
pub(super) fn read(
    device: &Device<'_>,
    fixed: &FixedValues,
    ask: &mut NvmlQuery<'_>,
) -> Result<GpuValues, NvmlError> {
    let mut values = GpuValues::default();
    activity(device, ask, &mut values)?;
    memory(device, ask, &mut values)?;
    power(device, ask, &mut values)?;
    heat(device, ask, &mut values)?;
    clocks(device, fixed, ask, &mut values)?;

    let persistence = ask.value("GetPersistenceMode", device.is_in_persistent_mode())?;
    values.one(&PERSISTENCE, persistence.map(flag));
    fields::read(device, fixed, ask, &mut values)?;
    pcie(device, fixed, ask, &mut values)?;

    if fixed.has_ecc {
        memory_repairs(device, ask, &mut values)?;
    }

    nvlink::fabric(device, ask, &mut values)?;
    virtualization::read(device, fixed.virtualization, ask, &mut values)?;

    Ok(values)
}

fn activity(
    device: &Device<'_>,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<(), NvmlError> {
    let rates = ask.value("GetUtilizationRates", device.utilization_rates())?;
    values.one(&UTILIZATION, rates.as_ref().map(|rates| percent(rates.gpu)));
    values.one(
        &MEMORY_UTILIZATION,
        rates.map(|rates| percent(rates.memory)),
    );

    let encoder = ask.value("GetEncoderUtilization", device.encoder_utilization())?;
    values.one(
        &ENCODER,
        encoder.map(|encoder| percent(encoder.utilization)),
    );

    let decoder = ask.value("GetDecoderUtilization", device.decoder_utilization())?;
    values.one(
        &DECODER,
        decoder.map(|decoder| percent(decoder.utilization)),
    );

    let lib = device.nvml().lib();
    for (name, symbol, metric) in [
        ("GetJpgUtilization", &lib.nvmlDeviceGetJpgUtilization, &JPEG),
        (
            "GetOfaUtilization",
            &lib.nvmlDeviceGetOfaUtilization,
            &OPTICAL_FLOW,
        ),
    ] {
        let mut share = 0;
        let mut period = 0;

        // SAFETY: the handle is the device's and the pointers are valid.
        let code = fields::call(symbol, |function| unsafe {
            function(device.handle(), &raw mut share, &raw mut period)
        });

        values.one(metric, ask.value(name, code)?.map(|()| percent(share)));
    }
    Ok(())
}

fn memory(
    device: &Device<'_>,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<(), NvmlError> {
    if let Some(memory) = ask.value("GetMemoryInfo", device.memory_info())? {
        values.one(&MEMORY_USED, Some(memory.used as f64));
        values.one(&MEMORY_FREE, Some(memory.free as f64));
        values.one(&MEMORY_RESERVED, Some(memory.reserved as f64));
        values.one(&MEMORY_TOTAL, Some(memory.total as f64));
    }

    if let Some(bar1) = ask.value("GetBAR1MemoryInfo", device.bar1_memory_info())? {
        values.one(&BAR1_USED, Some(bar1.used as f64));
        values.one(&BAR1_TOTAL, Some(bar1.total as f64));
    }
    Ok(())
}

fn power(
    device: &Device<'_>,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<(), NvmlError> {
    let usage = ask.value("GetPowerUsage", device.power_usage())?;
    values.one(&POWER, usage.map(milli));

    let limit = ask.value("GetEnforcedPowerLimit", device.enforced_power_limit())?;
    values.one(&POWER_LIMIT, limit.map(milli));

    let energy = ask.value(
        "GetTotalEnergyConsumption",
        device.total_energy_consumption(),
    )?;
    values.one(&ENERGY, energy.map(|millijoules| millijoules as f64 / 1e3));
    Ok(())
}

fn heat(
    device: &Device<'_>,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<(), NvmlError> {
    let degrees = ask.value("GetTemperature", device.temperature(TemperatureSensor::Gpu))?;
    values.labelled(&TEMPERATURE, ["gpu"], degrees.map(f64::from));

    let mut margin = sys::nvmlMarginTemperature_t {
        version: fields::version::<sys::nvmlMarginTemperature_t>(1),
        marginTemperature: 0,
    };
    let symbol = &device.nvml().lib().nvmlDeviceGetMarginTemperature;

    // SAFETY: the handle is the device's, the pointer valid, its version that of the struct.
    let code = fields::call(symbol, |function| unsafe {
        function(device.handle(), &raw mut margin)
    });
    let celsius = ask
        .value("GetMarginTemperature", code)?
        .map(|()| f64::from(margin.marginTemperature));
    values.one(&TEMPERATURE_MARGIN, celsius);

    let fans = ask.value("GetNumFans", device.num_fans())?.unwrap_or(0);
    for fan in 0..fans {
        // The number of a fan is its place.
        let speed = ask.value("GetFanSpeed_v2", device.fan_speed(fan))?;
        values.labelled(&FAN, [fan.to_string()], speed.map(percent));
    }
    Ok(())
}

fn clocks(
    device: &Device<'_>,
    fixed: &FixedValues,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<(), NvmlError> {
    for (domain, clock) in CLOCKS {
        let megahertz = ask.value("GetClockInfo", device.clock_info(clock))?;
        values.labelled(&CLOCK, [domain], megahertz.map(mega));
    }

    // Numbers from 16 on stand for an unknown state.
    let state = ask.value("GetPerformanceState", device.performance_state())?;
    let state = state.map(|state| state as u32).filter(|state| *state < 16);
    values.one(&PERFORMANCE_STATE, state.map(f64::from));

    if let Some(reasons) = ask.value(
        "GetCurrentClocksEventReasons",
        device.current_throttle_reasons(),
    )? {
        let supported = REASONS
            .iter()
            .enumerate()
            .filter(|(bit, _)| fixed.reasons & (1 << bit) != 0);
        for (bit, reason) in supported {
            let is_active = reasons.bits() & (1 << bit) != 0;
            values.labelled(&THROTTLE, [*reason], Some(flag(is_active)));
        }
    }
    Ok(())
}

fn pcie(
    device: &Device<'_>,
    fixed: &FixedValues,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<(), NvmlError> {
    let generation = ask.value("GetCurrPcieLinkGeneration", device.current_pcie_link_gen())?;
    let width = ask.value("GetCurrPcieLinkWidth", device.current_pcie_link_width())?;
    values.labelled(&PCIE_GENERATION, ["current"], generation.map(f64::from));
    values.labelled(&PCIE_WIDTH, ["current"], width.map(f64::from));

    let is_working = values
        .get(&PERFORMANCE_STATE)
        .is_some_and(|state| state <= FAST)
        && values.get(&UTILIZATION).is_some_and(|share| share > 0.0);

    let is_less = |now: Option<u32>, max: Option<u32>| now.zip(max).map(|(now, max)| now < max);
    let narrow = is_less(width, fixed.pcie_width_max);
    let slow = is_less(generation, fixed.pcie_generation_max).map(|is_less| is_less && is_working);
    let degraded = narrow.into_iter().chain(slow).reduce(|a, b| a || b);

    values.one(&PCIE_DEGRADED, degraded.map(flag));
    Ok(())
}

/// The slowest state in which a GPU does work; at rest it also slows its link down.
const FAST: f64 = 2.0;

fn memory_repairs(
    device: &Device<'_>,
    ask: &mut NvmlQuery<'_>,
    values: &mut GpuValues,
) -> Result<(), NvmlError> {
    // It may be set at any time; the effective mode changes only at a reset.
    let ecc = ask.value("GetEccMode", device.is_ecc_enabled())?;
    values.one(&ECC_PENDING, ecc.map(|ecc| flag(ecc.pending_enabled)));

    // SAFETY: a struct of numbers may be all zeros.
    let (mut banks, mut sram): (
        sys::nvmlRowRemapperHistogramValues_t,
        sys::nvmlEccSramErrorStatus_t,
    ) = unsafe { std::mem::zeroed() };
    sram.version = fields::version::<sys::nvmlEccSramErrorStatus_t>(1);

    let lib = device.nvml().lib();
    // SAFETY: the handle is the device's, the pointers are valid, the version is that of the
    // struct.
    let (remapper, status) = unsafe {
        (
            fields::call(&lib.nvmlDeviceGetRowRemapperHistogram, |function| {
                function(device.handle(), &raw mut banks)
            }),
            fields::call(&lib.nvmlDeviceGetSramEccErrorStatus, |function| {
                function(device.handle(), &raw mut sram)
            }),
        )
    };

    if ask.value("GetRowRemapperHistogram", remapper)?.is_some() {
        for (spare, count) in [
            ("max", banks.max),
            ("high", banks.high),
            ("partial", banks.partial),
            ("low", banks.low),
            ("none", banks.none),
        ] {
            values.labelled(&REMAP_BANKS, [spare], Some(f64::from(count)));
        }
    }

    let exceeded = ask
        .value("GetSramEccErrorStatus", status)?
        .map(|()| flag(sram.bThresholdExceeded != 0));
    values.one(&SRAM_THRESHOLD, exceeded);
    Ok(())
}

/// Processes on the GPU. A process that computes and draws is on both lists, with the same memory.
pub(super) fn processes(
    device: &Device<'_>,
    ask: &mut NvmlQuery<'_>,
) -> Result<Option<Vec<GpuProcess>>, NvmlError> {
    let compute = ask.value(
        "GetComputeRunningProcesses",
        device.running_compute_processes(),
    )?;
    let graphics = ask.value(
        "GetGraphicsRunningProcesses",
        device.running_graphics_processes(),
    )?;

    if compute.is_none() && graphics.is_none() {
        return Ok(None);
    }

    let mut processes: Vec<GpuProcess> = Vec::new();
    for process in compute.into_iter().chain(graphics).flatten() {
        let memory = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        if processes.iter().all(|other| other.pid != process.pid) {
            processes.push(GpuProcess {
                pid: process.pid,
                memory,
                gpu_instance: process.gpu_instance_id,
            });
        }
    }
    Ok(Some(processes))
}

fn percent(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}

fn milli(thousandths: u32) -> f64 {
    f64::from(thousandths) / 1e3
}

fn mega(megahertz: u32) -> f64 {
    f64::from(megahertz) * 1e6
}
