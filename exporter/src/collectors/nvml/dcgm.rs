//! The same values under the names, labels and units of NVIDIA's dcgm-exporter, for dashboards and
//! rules made for it.
//!
//! The list is its default one with what is often added to it, as far as NVML has them. Left out
//! are figures whose unit its documentation does not state (NVLINK_BANDWIDTH_TOTAL) and rates that
//! DCGM computes itself (PROF_PCIE_*).
//!
//! dcgm-exporter 4.9 took over DCGM 4.7's names, with base units. [`NAMES`] has both; the recording
//! rules of `dashboards/rules/dcgm.rules.yml`, which turn either into `takt_gpu_*`, are made from
//! it (`rules.rs`).

#[cfg(test)]
mod rules;

use super::metrics::*;
use super::reading::REASONS;
use super::{Gpu, GpuReading};
use takt_model::{Kind, Metric, Samples};

/// The release of dcgm-exporter whose names, labels and units are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum DcgmRelease {
    /// Up to 4.8.2: the label `Hostname`.
    #[value(name = "4.7")]
    V4_7,
    /// 4.8.3 and 4.8.4: the label `hostname`.
    #[value(name = "4.8")]
    V4_8,
    /// From 4.9.0: names of DCGM 4.7, in base units.
    #[value(name = "4.9")]
    V4_9,
}

/// A series of dcgm-exporter and where its value comes from: the sum of the series of `from` whose
/// labels end so.
struct Name {
    kind: Kind,
    /// The name until 4.8 and that since 4.9; one where they are equal.
    names: &'static [&'static str],
    from: &'static Metric,
    labels: &'static [&'static str],
    unit: Unit,
    help: &'static str,
}

/// Unit of a series, where `from` has the base unit.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    /// The base unit.
    Plain,
    /// MHz until 4.8.
    Hertz,
    /// Percent until 4.8.
    Ratio,
    /// MiB until 4.8.
    Bytes,
    /// mJ until 4.8.
    Joules,
    /// Nanoseconds until 4.8.
    Seconds,
    /// Nanoseconds in all releases.
    Nanoseconds,
}

impl Name {
    fn of(&self, release: DcgmRelease) -> &'static str {
        let last = self.names.len() - 1;
        self.names[if release < DcgmRelease::V4_9 { 0 } else { last }]
    }
}

impl Unit {
    /// How many of the unit one base unit is, and the end of the help.
    fn of(self, release: DcgmRelease) -> (f64, &'static str) {
        let is_base = release >= DcgmRelease::V4_9;
        match (self, is_base) {
            (Self::Plain, _) => (1.0, ""),
            (Self::Hertz, false) => (1e-6, " (in MHz)."),
            (Self::Hertz, true) => (1.0, " (in Hz)."),
            (Self::Ratio, false) => (100.0, " (in %)."),
            (Self::Ratio, true) => (1.0, " (from 0 to 1)."),
            (Self::Bytes, false) => (1.0 / 1_048_576.0, " (in MiB)."),
            (Self::Bytes, true) => (1.0, " (in bytes)."),
            (Self::Joules, false) => (1e3, " (in mJ)."),
            (Self::Joules, true) => (1.0, " (in J)."),
            (Self::Seconds, true) => (1.0, " (in s)."),
            (Self::Seconds, false) | (Self::Nanoseconds, _) => (1e9, " (in ns)."),
        }
    }
}

macro_rules! names {
    ($($kind:ident [$($name:literal),+] $from:ident [$($label:literal),*] $unit:ident $help:literal;)*) => {
        &[$(Name { kind: Kind::$kind, names: &[$($name),+], from: &$from, labels: &[$($label),*], unit: Unit::$unit, help: $help }),*]
    };
}

#[rustfmt::skip]
static NAMES: &[Name] = names! {
    Gauge ["DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK_HERTZ"] CLOCK ["sm"] Hertz
        "SM clock frequency";
    Gauge ["DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ"] CLOCK ["memory"] Hertz
        "Memory clock frequency";
    Gauge ["DCGM_FI_DEV_VIDEO_CLOCK", "DCGM_FI_DEV_VIDEO_CLOCK_HERTZ"] CLOCK ["video"] Hertz
        "Video encoder/decoder clock frequency";
    Gauge ["DCGM_FI_DEV_MAX_SM_CLOCK", "DCGM_FI_DEV_SM_MAX_CLOCK_HERTZ"] CLOCK_MAX ["sm"] Hertz
        "Maximum SM clock frequency";
    Gauge ["DCGM_FI_DEV_MAX_MEM_CLOCK", "DCGM_FI_DEV_MEMORY_MAX_CLOCK_HERTZ"] CLOCK_MAX ["memory"] Hertz
        "Maximum memory clock frequency";
    Gauge ["DCGM_FI_DEV_MAX_VIDEO_CLOCK", "DCGM_FI_DEV_VIDEO_MAX_CLOCK_HERTZ"] CLOCK_MAX ["video"] Hertz
        "Maximum video encoder/decoder clock frequency";
    Gauge ["DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS"] TEMPERATURE ["memory"] Plain
        "Memory temperature (in C).";
    Gauge ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"] TEMPERATURE ["gpu"] Plain
        "GPU temperature (in C).";
    Gauge ["DCGM_FI_DEV_SHUTDOWN_TEMP", "DCGM_FI_DEV_GPU_TEMP_SHUTDOWN_CELSIUS"] TEMPERATURE_LIMIT ["shutdown"] Plain
        "Temperature at which the GPU shuts down (in C).";
    Gauge ["DCGM_FI_DEV_SLOWDOWN_TEMP", "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS"] TEMPERATURE_LIMIT ["slowdown"] Plain
        "Temperature at which the GPU slows down (in C).";
    Gauge ["DCGM_FI_DEV_GPU_MAX_OP_TEMP", "DCGM_FI_DEV_GPU_MAX_OP_TEMP_CELSIUS"] TEMPERATURE_LIMIT ["gpu_max"] Plain
        "Maximum operating temperature of the GPU (in C).";
    Gauge ["DCGM_FI_DEV_MEM_MAX_OP_TEMP", "DCGM_FI_DEV_MEMORY_MAX_OP_TEMP_CELSIUS"] TEMPERATURE_LIMIT ["memory_max"] Plain
        "Maximum operating temperature of the memory (in C).";
    Gauge ["DCGM_FI_DEV_GPU_TEMP_LIMIT", "DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS"] TEMPERATURE_MARGIN [] Plain
        "Thermal margin (distance to the nearest slowdown threshold, in C).";
    Gauge ["DCGM_FI_DEV_FAN_SPEED", "DCGM_FI_DEV_FAN_SPEED_RATIO"] FAN ["0"] Ratio
        "Fan speed";
    Gauge ["DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"] POWER [] Plain
        "Power draw (in W).";
    Gauge ["DCGM_FI_DEV_POWER_USAGE_INSTANT", "DCGM_FI_DEV_BOARD_POWER_RAW_WATTS"] POWER_INSTANT [] Plain
        "Current instantaneous power draw (in W).";
    Gauge ["DCGM_FI_DEV_POWER_MGMT_LIMIT", "DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS"] POWER_LIMIT [] Plain
        "Current power limit (in W).";
    Gauge ["DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", "DCGM_FI_DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS"] POWER_LIMIT_DEFAULT [] Plain
        "Default power limit (in W).";
    Gauge ["DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", "DCGM_FI_DEV_BOARD_POWER_LIMIT_MIN_WATTS"] POWER_LIMIT_MIN [] Plain
        "Minimum power limit (in W).";
    Gauge ["DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", "DCGM_FI_DEV_BOARD_POWER_LIMIT_MAX_WATTS"] POWER_LIMIT_MAX [] Plain
        "Maximum power limit (in W).";
    Gauge ["DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS"] POWER_LIMIT [] Plain
        "Power limit in force (in W).";
    Counter ["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL"] ENERGY [] Joules
        "Total energy consumption since boot";
    Counter ["DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_PCIE_REPLAY_TOTAL"] PCIE_REPLAYS [] Plain
        "Total number of PCIe retries.";
    Gauge ["DCGM_FI_DEV_PCIE_LINK_GEN"] PCIE_GENERATION ["current"] Plain
        "PCIe current link generation.";
    Gauge ["DCGM_FI_DEV_PCIE_LINK_WIDTH"] PCIE_WIDTH ["current"] Plain
        "PCIe current link width.";
    Gauge ["DCGM_FI_DEV_PCIE_MAX_LINK_GEN"] PCIE_GENERATION ["max"] Plain
        "PCIe maximum link generation.";
    Gauge ["DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"] PCIE_WIDTH ["max"] Plain
        "PCIe maximum link width.";
    Gauge ["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"] UTILIZATION [] Ratio
        "GPU utilization";
    Gauge ["DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_MEMORY_UTIL_RATIO"] MEMORY_UTILIZATION [] Ratio
        "Memory utilization";
    Gauge ["DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_ENC_UTIL_RATIO"] ENCODER [] Ratio
        "Encoder utilization";
    Gauge ["DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_DEC_UTIL_RATIO"] DECODER [] Ratio
        "Decoder utilization";
    Gauge ["DCGM_FI_DEV_PSTATE", "DCGM_FI_DEV_GPU_PSTATE"] PERFORMANCE_STATE [] Plain
        "Performance state, 0 (fastest) to 15.";
    Counter ["DCGM_FI_DEV_POWER_VIOLATION", "DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL"] THROTTLE_SECONDS ["sw_power_cap"] Seconds
        "Throttling duration due to power constraints";
    Counter ["DCGM_FI_DEV_THERMAL_VIOLATION", "DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL"] THROTTLE_SECONDS ["thermal"] Seconds
        "Throttling duration due to thermal constraints";
    Counter ["DCGM_FI_DEV_SYNC_BOOST_VIOLATION"] THROTTLE_SECONDS ["sync_boost"] Nanoseconds
        "Throttling duration due to sync-boost constraints";
    Counter ["DCGM_FI_DEV_BOARD_LIMIT_VIOLATION"] THROTTLE_SECONDS ["board_limit"] Nanoseconds
        "Throttling duration due to board limit constraints";
    Counter ["DCGM_FI_DEV_LOW_UTIL_VIOLATION"] THROTTLE_SECONDS ["low_utilization"] Nanoseconds
        "Throttling duration due to low utilization";
    Counter ["DCGM_FI_DEV_RELIABILITY_VIOLATION"] THROTTLE_SECONDS ["reliability"] Nanoseconds
        "Throttling duration due to reliability constraints";
    Gauge ["DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_FREE_BYTES"] MEMORY_FREE [] Bytes
        "Framebuffer memory free";
    Gauge ["DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES"] MEMORY_USED [] Bytes
        "Framebuffer memory used";
    Gauge ["DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_RESERVED_BYTES"] MEMORY_RESERVED [] Bytes
        "Framebuffer memory reserved";
    Gauge ["DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_FB_CAPACITY_BYTES"] MEMORY_TOTAL [] Bytes
        "Framebuffer memory in all";
    Gauge ["DCGM_FI_DEV_BAR1_TOTAL", "DCGM_FI_DEV_BAR1_CAPACITY_BYTES"] BAR1_TOTAL [] Bytes
        "Total BAR1 memory";
    Gauge ["DCGM_FI_DEV_BAR1_USED", "DCGM_FI_DEV_BAR1_USED_BYTES"] BAR1_USED [] Bytes
        "Used BAR1 memory";
    Gauge ["DCGM_FI_DEV_ECC_CURRENT", "DCGM_FI_DEV_ECC_MODE"] ECC_ENABLED [] Plain
        "Whether ECC is enabled.";
    Gauge ["DCGM_FI_DEV_MIG_MODE"] MIG_ENABLED [] Plain
        "Whether MIG is enabled.";
    Gauge ["DCGM_FI_DEV_VGPU_LICENSE_STATUS"] VGPU_LICENSED [] Plain
        "vGPU License status";
    Counter ["DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"] ECC_ERRORS ["corrected", "volatile"] Plain
        "Total number of single-bit volatile ECC errors.";
    Counter ["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"] ECC_ERRORS ["uncorrected", "volatile"] Plain
        "Total number of double-bit volatile ECC errors.";
    Counter ["DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"] ECC_ERRORS ["corrected", "aggregate"] Plain
        "Total number of single-bit persistent ECC errors.";
    Counter ["DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"] ECC_ERRORS ["uncorrected", "aggregate"] Plain
        "Total number of double-bit persistent ECC errors.";
    Counter ["DCGM_FI_DEV_RETIRED_SBE", "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL"] RETIRED_PAGES ["single_bit"] Plain
        "Total number of retired pages due to single-bit errors.";
    Counter ["DCGM_FI_DEV_RETIRED_DBE", "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL"] RETIRED_PAGES ["double_bit"] Plain
        "Total number of retired pages due to double-bit errors.";
    Counter ["DCGM_FI_DEV_RETIRED_PENDING", "DCGM_FI_DEV_PAGE_RETIRED_PENDING"] RETIRED_PENDING [] Plain
        "Total number of pages pending retirement.";
    Counter ["DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL"] NVLINK_ERRORS ["crc_flit"] Plain
        "Total number of NVLink flow-control CRC errors.";
    Counter ["DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL"] NVLINK_ERRORS ["crc_data"] Plain
        "Total number of NVLink data CRC errors.";
    Counter ["DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL"] NVLINK_ERRORS ["replay"] Plain
        "Total number of NVLink retries.";
    Counter ["DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL"] NVLINK_ERRORS ["recovery"] Plain
        "Total number of NVLink recovery errors.";
    Counter ["DCGM_FI_DEV_NVLINK_COUNT_RX_MALFORMED_PACKET_ERRORS", "DCGM_FI_DEV_NVLINK_RX_PACKET_MALFORMED_TOTAL"] NVLINK_ERRORS ["malformed_packet"] Plain
        "Malformed packets received over NVLink.";
    Counter ["DCGM_FI_DEV_NVLINK_COUNT_RX_BUFFER_OVERRUN_ERRORS", "DCGM_FI_DEV_NVLINK_RX_PACKET_DROPPED_TOTAL"] NVLINK_ERRORS ["buffer_overrun"] Plain
        "Packets discarded for buffer overrun.";
    Counter ["DCGM_FI_DEV_NVLINK_COUNT_RX_ERRORS", "DCGM_FI_DEV_NVLINK_RX_ERROR_TOTAL"] NVLINK_ERRORS ["receive"] Plain
        "Packets with errors received over NVLink.";
    Counter ["DCGM_FI_DEV_NVLINK_COUNT_RX_REMOTE_ERRORS", "DCGM_FI_DEV_NVLINK_RX_REMOTE_ERROR_TOTAL"] NVLINK_ERRORS ["receive_remote"] Plain
        "Packets received with a stomp or EBP marker.";
    Counter ["DCGM_FI_DEV_NVLINK_COUNT_RX_GENERAL_ERRORS", "DCGM_FI_DEV_NVLINK_RX_GENERAL_ERROR_TOTAL"] NVLINK_ERRORS ["receive_general"] Plain
        "Packets received with a header mismatch.";
    Counter ["DCGM_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS", "DCGM_FI_DEV_NVLINK_INTEGRITY_ERROR_TOTAL"] NVLINK_ERRORS ["local_integrity"] Plain
        "Times that local errors exceeded a threshold.";
    Counter ["DCGM_FI_DEV_NVLINK_COUNT_TX_DISCARDS"] NVLINK_ERRORS ["transmit_discard"] Plain
        "Packets discarded when sending.";
    Counter ["DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", "DCGM_FI_DEV_NVLINK_RECOVERY_FAILED_TOTAL"] NVLINK_ERRORS ["recovery_failed"] Plain
        "Failed recoveries of NVLinks.";
    Counter ["DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS", "DCGM_FI_DEV_NVLINK_EFFECTIVE_ERROR_TOTAL"] NVLINK_ERRORS ["effective"] Plain
        "Errors left after correction.";
    Counter ["DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS", "DCGM_FI_DEV_NVLINK_RX_SYMBOL_ERROR_TOTAL"] NVLINK_ERRORS ["symbol"] Plain
        "Symbol errors received over NVLink.";
    Counter ["DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL"] REMAPPED_ROWS ["uncorrected"] Plain
        "Number of remapped rows for uncorrectable errors";
    Counter ["DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL"] REMAPPED_ROWS ["corrected"] Plain
        "Number of remapped rows for correctable errors";
    Gauge ["DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_ROW_REMAP_FAILED"] REMAP_FAILED [] Plain
        "Whether remapping of rows has failed";
    Gauge ["DCGM_FI_DEV_ROW_REMAP_PENDING"] REMAP_PENDING [] Plain
        "Whether rows are waiting to be remapped";
    Gauge ["DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX", "DCGM_FI_DEV_BANK_REMAP_AVAIL_MAX"] REMAP_BANKS ["max"] Plain
        "Banks with all spare rows.";
    Gauge ["DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH", "DCGM_FI_DEV_BANK_REMAP_AVAIL_HIGH"] REMAP_BANKS ["high"] Plain
        "Banks with most spare rows.";
    Gauge ["DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL", "DCGM_FI_DEV_BANK_REMAP_AVAIL_PARTIAL"] REMAP_BANKS ["partial"] Plain
        "Banks with some spare rows.";
    Gauge ["DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW", "DCGM_FI_DEV_BANK_REMAP_AVAIL_LOW"] REMAP_BANKS ["low"] Plain
        "Banks with few spare rows.";
    Gauge ["DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE", "DCGM_FI_DEV_BANK_REMAP_AVAIL_NONE"] REMAP_BANKS ["none"] Plain
        "Banks with no spare rows.";
    Gauge ["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"] ACTIVITY ["graphics"] Plain
        "Ratio of time the graphics engine is active.";
    Gauge ["DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO"] ACTIVITY ["sm"] Plain
        "The ratio of cycles an SM has at least 1 warp assigned.";
    Gauge ["DCGM_FI_PROF_SM_OCCUPANCY", "DCGM_FI_PROF_SM_OCCUPANCY_RATIO"] ACTIVITY ["sm_occupancy"] Plain
        "The ratio of number of warps resident on an SM.";
    Gauge ["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"] ACTIVITY ["tensor"] Plain
        "Ratio of cycles the tensor (HMMA) pipe is active.";
    Gauge ["DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"] ACTIVITY ["dram"] Plain
        "Ratio of cycles the device memory interface is active sending or receiving data.";
    Gauge ["DCGM_FI_PROF_PIPE_FP64_ACTIVE", "DCGM_FI_PROF_FP64_UTIL_RATIO"] ACTIVITY ["fp64"] Plain
        "Ratio of cycles the fp64 pipes are active.";
    Gauge ["DCGM_FI_PROF_PIPE_FP32_ACTIVE", "DCGM_FI_PROF_FP32_UTIL_RATIO"] ACTIVITY ["fp32"] Plain
        "Ratio of cycles the fp32 pipes are active.";
    Gauge ["DCGM_FI_PROF_PIPE_FP16_ACTIVE", "DCGM_FI_PROF_FP16_UTIL_RATIO"] ACTIVITY ["fp16"] Plain
        "Ratio of cycles the fp16 pipes are active.";
};

/// How many series a GPU has more by these names.
pub(super) const MAX_SERIES: usize = 128;

/// The values of a GPU that answers.
pub(super) fn push(
    gpu: &Gpu,
    reading: &GpuReading,
    release: DcgmRelease,
    hostname: &str,
    last_xid: u32,
    out: &mut Samples,
) {
    let identity = &gpu.identity;
    let index = identity.index.to_string();
    let (host_label, driver_label) = match release {
        DcgmRelease::V4_7 => ("Hostname", "DCGM_FI_DRIVER_VERSION"),
        DcgmRelease::V4_8 => ("hostname", "DCGM_FI_DRIVER_VERSION"),
        DcgmRelease::V4_9 => ("hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION"),
    };
    let labels = [
        ("gpu", index.as_str()),
        ("UUID", &identity.uuid),
        ("pci_bus_id", &identity.pci_bus_id),
        ("device", &format!("nvidia{index}")),
        ("modelName", &identity.model),
        (host_label, hostname),
        (driver_label, &identity.driver),
    ];

    for name in NAMES {
        let of_metric = reading.values.0.iter();
        let of_metric = of_metric.filter(|value| value.metric.name == name.from.name);
        let found = of_metric.filter(|value| ends_with(&value.labels, name.labels));
        if let Some(sum) = found.map(|value| value.value).reduce(|a, b| a + b) {
            let (scale, unit) = name.unit.of(release);
            let help = format!("{}{unit}", name.help);
            let value = rounded(sum * scale);
            out.push_foreign(name.of(release), name.kind, &help, &labels, value);
        }
    }

    let mut gauge =
        |name, help, value: f64| out.push_foreign(name, Kind::Gauge, help, &labels, value);
    let xid = match release {
        DcgmRelease::V4_9 => "DCGM_FI_DEV_XID_ERROR",
        _ => "DCGM_FI_DEV_XID_ERRORS",
    };
    let help = "Value of the last XID error encountered.";
    gauge(xid, help, f64::from(last_xid));

    let reasons = reading.values.0.iter();
    let reasons = reasons.filter(|value| value.metric.name == THROTTLE.name);
    let bits = reasons.filter_map(|value| {
        let is_named = |reason: &&str| value.labels.iter().any(|label| label == reason);
        let bit = REASONS.iter().position(is_named)?;
        // Each reason is a series of 0 or 1 here, and a bit there.
        Some((value.value as u64) << bit)
    });
    if let Some(bits) = bits.reduce(|a, b| a | b) {
        gauge(
            "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
            "Reasons for which the clocks are held down (bits).",
            bits as f64,
        );
    }
}

/// Whether the last of the labels are these.
fn ends_with(labels: &[std::borrow::Cow<'static, str>], wanted: &[&str]) -> bool {
    let last = labels.len().checked_sub(wanted.len());
    last.is_some_and(|last| labels[last..].iter().zip(wanted).all(|(a, b)| a == b))
}

/// dcgm-exporter's figures are whole, or have few digits; 0.58 times 100 shall not be
/// 57.99999999999999.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
