//! The same values under the names, labels and units of NVIDIA's dcgm-exporter, for dashboards and
//! rules made for it.
//!
//! The list is its default one with what is often added to it, as far as NVML has them. Left out
//! are figures whose unit its documentation does not state (NVLINK_BANDWIDTH_TOTAL) and rates that
//! DCGM computes itself (PROF_PCIE_*).

use super::metrics::*;
use super::reading::REASONS;
use super::values::Value;
use super::{Gpu, Reading};
use takt_model::{Kind, Metric, Samples};

/// A name of dcgm-exporter's and where its value comes from: the sum of the series of `from` whose
/// labels end so.
struct Name {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    from: &'static Metric,
    labels: &'static [&'static str],
    scale: f64,
}

macro_rules! names {
    ($($kind:ident $name:literal $from:ident [$($label:literal),*] $scale:literal $help:literal;)*) => {
        &[$(Name { name: $name, kind: Kind::$kind, help: $help, from: &$from, labels: &[$($label),*], scale: $scale }),*]
    };
}

static NAMES: &[Name] = names! {
    Gauge "DCGM_FI_DEV_SM_CLOCK" CLOCK ["sm"] 1e-6 "SM clock frequency (in MHz).";
    Gauge "DCGM_FI_DEV_MEM_CLOCK" CLOCK ["memory"] 1e-6 "Memory clock frequency (in MHz).";
    Gauge "DCGM_FI_DEV_VIDEO_CLOCK" CLOCK ["video"] 1e-6
        "Video encoder/decoder clock frequency (in MHz).";
    Gauge "DCGM_FI_DEV_MAX_SM_CLOCK" CLOCK_MAX ["sm"] 1e-6 "Maximum SM clock frequency (in MHz).";
    Gauge "DCGM_FI_DEV_MAX_MEM_CLOCK" CLOCK_MAX ["memory"] 1e-6
        "Maximum memory clock frequency (in MHz).";
    Gauge "DCGM_FI_DEV_MAX_VIDEO_CLOCK" CLOCK_MAX ["video"] 1e-6
        "Maximum video encoder/decoder clock frequency (in MHz).";
    Gauge "DCGM_FI_DEV_MEMORY_TEMP" TEMPERATURE ["memory"] 1.0 "Memory temperature (in C).";
    Gauge "DCGM_FI_DEV_GPU_TEMP" TEMPERATURE ["gpu"] 1.0 "GPU temperature (in C).";
    Gauge "DCGM_FI_DEV_SHUTDOWN_TEMP" TEMPERATURE_LIMIT ["shutdown"] 1.0
        "Temperature at which the GPU shuts down (in C).";
    Gauge "DCGM_FI_DEV_SLOWDOWN_TEMP" TEMPERATURE_LIMIT ["slowdown"] 1.0
        "Temperature at which the GPU slows down (in C).";
    Gauge "DCGM_FI_DEV_GPU_MAX_OP_TEMP" TEMPERATURE_LIMIT ["gpu_max"] 1.0
        "Maximum operating temperature of the GPU (in C).";
    Gauge "DCGM_FI_DEV_MEM_MAX_OP_TEMP" TEMPERATURE_LIMIT ["memory_max"] 1.0
        "Maximum operating temperature of the memory (in C).";
    Gauge "DCGM_FI_DEV_GPU_TEMP_LIMIT" TEMPERATURE_MARGIN [] 1.0 "Thermal margin (distance to the \
         nearest slowdown threshold, in C).";
    Gauge "DCGM_FI_DEV_FAN_SPEED" FAN ["0"] 100.0 "Fan speed (in 0-100%).";
    Gauge "DCGM_FI_DEV_POWER_USAGE" POWER [] 1.0 "Power draw (in W).";
    Gauge "DCGM_FI_DEV_POWER_USAGE_INSTANT" POWER_INSTANT [] 1.0
        "Current instantaneous power draw (in W).";
    Gauge "DCGM_FI_DEV_POWER_MGMT_LIMIT" POWER_LIMIT [] 1.0 "Current power limit (in W).";
    Gauge "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF" POWER_LIMIT_DEFAULT [] 1.0
        "Default power limit (in W).";
    Gauge "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN" POWER_LIMIT_MIN [] 1.0 "Minimum power limit (in W).";
    Gauge "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX" POWER_LIMIT_MAX [] 1.0 "Maximum power limit (in W).";
    Gauge "DCGM_FI_DEV_ENFORCED_POWER_LIMIT" POWER_LIMIT [] 1.0 "Power limit in force (in W).";
    Counter "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" ENERGY [] 1e3
        "Total energy consumption since boot (in mJ).";
    Counter "DCGM_FI_DEV_PCIE_REPLAY_COUNTER" PCIE_REPLAYS [] 1.0 "Total number of PCIe retries.";
    Gauge "DCGM_FI_DEV_PCIE_LINK_GEN" PCIE_GENERATION ["current"] 1.0
        "PCIe current link generation.";
    Gauge "DCGM_FI_DEV_PCIE_LINK_WIDTH" PCIE_WIDTH ["current"] 1.0 "PCIe current link width.";
    Gauge "DCGM_FI_DEV_PCIE_MAX_LINK_GEN" PCIE_GENERATION ["max"] 1.0
        "PCIe maximum link generation.";
    Gauge "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH" PCIE_WIDTH ["max"] 1.0 "PCIe maximum link width.";
    Gauge "DCGM_FI_DEV_GPU_UTIL" UTILIZATION [] 100.0 "GPU utilization (in %).";
    Gauge "DCGM_FI_DEV_MEM_COPY_UTIL" MEMORY_UTILIZATION [] 100.0 "Memory utilization (in %).";
    Gauge "DCGM_FI_DEV_ENC_UTIL" ENCODER [] 100.0 "Encoder utilization (in %).";
    Gauge "DCGM_FI_DEV_DEC_UTIL" DECODER [] 100.0 "Decoder utilization (in %).";
    Gauge "DCGM_FI_DEV_PSTATE" PERFORMANCE_STATE [] 1.0 "Performance state, 0 (fastest) to 15.";
    Counter "DCGM_FI_DEV_POWER_VIOLATION" THROTTLE_SECONDS ["sw_power_cap"] 1e9
        "Throttling duration due to power constraints (in ns).";
    Counter "DCGM_FI_DEV_THERMAL_VIOLATION" THROTTLE_SECONDS ["thermal"] 1e9
        "Throttling duration due to thermal constraints (in ns).";
    Counter "DCGM_FI_DEV_SYNC_BOOST_VIOLATION" THROTTLE_SECONDS ["sync_boost"] 1e9
        "Throttling duration due to sync-boost constraints (in ns).";
    Counter "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION" THROTTLE_SECONDS ["board_limit"] 1e9
        "Throttling duration due to board limit constraints (in ns).";
    Counter "DCGM_FI_DEV_LOW_UTIL_VIOLATION" THROTTLE_SECONDS ["low_utilization"] 1e9
        "Throttling duration due to low utilization (in ns).";
    Counter "DCGM_FI_DEV_RELIABILITY_VIOLATION" THROTTLE_SECONDS ["reliability"] 1e9
        "Throttling duration due to reliability constraints (in ns).";
    Gauge "DCGM_FI_DEV_FB_FREE" MEMORY_FREE [] 9.5367431640625e-7
        "Framebuffer memory free (in MiB).";
    Gauge "DCGM_FI_DEV_FB_USED" MEMORY_USED [] 9.5367431640625e-7
        "Framebuffer memory used (in MiB).";
    Gauge "DCGM_FI_DEV_FB_RESERVED" MEMORY_RESERVED [] 9.5367431640625e-7
        "Framebuffer memory reserved (in MiB).";
    Gauge "DCGM_FI_DEV_FB_TOTAL" MEMORY_TOTAL [] 9.5367431640625e-7
        "Framebuffer memory in all (in MiB).";
    Gauge "DCGM_FI_DEV_BAR1_TOTAL" BAR1_TOTAL [] 9.5367431640625e-7 "Total BAR1 memory (in MiB).";
    Gauge "DCGM_FI_DEV_BAR1_USED" BAR1_USED [] 9.5367431640625e-7 "Used BAR1 memory (in MiB).";
    Gauge "DCGM_FI_DEV_ECC_CURRENT" ECC_ENABLED [] 1.0 "Whether ECC is enabled.";
    Gauge "DCGM_FI_DEV_MIG_MODE" MIG_ENABLED [] 1.0 "Whether MIG is enabled.";
    Gauge "DCGM_FI_DEV_VGPU_LICENSE_STATUS" VGPU_LICENSED [] 1.0 "vGPU License status";
    Counter "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL" ECC_ERRORS ["corrected", "volatile"] 1.0
        "Total number of single-bit volatile ECC errors.";
    Counter "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" ECC_ERRORS ["uncorrected", "volatile"] 1.0
        "Total number of double-bit volatile ECC errors.";
    Counter "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL" ECC_ERRORS ["corrected", "aggregate"] 1.0
        "Total number of single-bit persistent ECC errors.";
    Counter "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL" ECC_ERRORS ["uncorrected", "aggregate"] 1.0
        "Total number of double-bit persistent ECC errors.";
    Counter "DCGM_FI_DEV_RETIRED_SBE" RETIRED_PAGES ["single_bit"] 1.0
        "Total number of retired pages due to single-bit errors.";
    Counter "DCGM_FI_DEV_RETIRED_DBE" RETIRED_PAGES ["double_bit"] 1.0
        "Total number of retired pages due to double-bit errors.";
    Counter "DCGM_FI_DEV_RETIRED_PENDING" RETIRED_PENDING [] 1.0
        "Total number of pages pending retirement.";
    Counter "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL" NVLINK_ERRORS ["crc_flit"] 1.0
        "Total number of NVLink flow-control CRC errors.";
    Counter "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL" NVLINK_ERRORS ["crc_data"] 1.0
        "Total number of NVLink data CRC errors.";
    Counter "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL" NVLINK_ERRORS ["replay"] 1.0
        "Total number of NVLink retries.";
    Counter "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL" NVLINK_ERRORS ["recovery"] 1.0
        "Total number of NVLink recovery errors.";
    Counter "DCGM_FI_DEV_NVLINK_COUNT_RX_MALFORMED_PACKET_ERRORS" NVLINK_ERRORS ["malformed_packet"] 1.0
        "Malformed packets received over NVLink.";
    Counter "DCGM_FI_DEV_NVLINK_COUNT_RX_BUFFER_OVERRUN_ERRORS" NVLINK_ERRORS ["buffer_overrun"] 1.0
        "Packets discarded for buffer overrun.";
    Counter "DCGM_FI_DEV_NVLINK_COUNT_RX_ERRORS" NVLINK_ERRORS ["receive"] 1.0
        "Packets with errors received over NVLink.";
    Counter "DCGM_FI_DEV_NVLINK_COUNT_RX_REMOTE_ERRORS" NVLINK_ERRORS ["receive_remote"] 1.0
        "Packets received with a stomp or EBP marker.";
    Counter "DCGM_FI_DEV_NVLINK_COUNT_RX_GENERAL_ERRORS" NVLINK_ERRORS ["receive_general"] 1.0
        "Packets received with a header mismatch.";
    Counter "DCGM_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS" NVLINK_ERRORS ["local_integrity"] 1.0
        "Times that local errors exceeded a threshold.";
    Counter "DCGM_FI_DEV_NVLINK_COUNT_TX_DISCARDS" NVLINK_ERRORS ["transmit_discard"] 1.0
        "Packets discarded when sending.";
    Counter "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS" NVLINK_ERRORS ["recovery_failed"] 1.0
        "Failed recoveries of NVLinks.";
    Counter "DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS" NVLINK_ERRORS ["effective"] 1.0
        "Errors left after correction.";
    Counter "DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS" NVLINK_ERRORS ["symbol"] 1.0
        "Symbol errors received over NVLink.";
    Counter "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS" REMAPPED_ROWS ["uncorrected"] 1.0
        "Number of remapped rows for uncorrectable errors";
    Counter "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS" REMAPPED_ROWS ["corrected"] 1.0
        "Number of remapped rows for correctable errors";
    Gauge "DCGM_FI_DEV_ROW_REMAP_FAILURE" REMAP_FAILED [] 1.0
        "Whether remapping of rows has failed";
    Gauge "DCGM_FI_DEV_ROW_REMAP_PENDING" REMAP_PENDING [] 1.0
        "Whether rows are waiting to be remapped";
    Gauge "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX" REMAP_BANKS ["max"] 1.0
        "Banks with all spare rows.";
    Gauge "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH" REMAP_BANKS ["high"] 1.0
        "Banks with most spare rows.";
    Gauge "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL" REMAP_BANKS ["partial"] 1.0
        "Banks with some spare rows.";
    Gauge "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW" REMAP_BANKS ["low"] 1.0
        "Banks with few spare rows.";
    Gauge "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE" REMAP_BANKS ["none"] 1.0
        "Banks with no spare rows.";
    Gauge "DCGM_FI_PROF_GR_ENGINE_ACTIVE" ACTIVITY ["graphics"] 1.0 "Ratio of time the graphics \
         engine is active.";
    Gauge "DCGM_FI_PROF_SM_ACTIVE" ACTIVITY ["sm"] 1.0 "The ratio of cycles an SM has at least 1 \
         warp assigned.";
    Gauge "DCGM_FI_PROF_SM_OCCUPANCY" ACTIVITY ["sm_occupancy"] 1.0 "The ratio of number of warps \
         resident on an SM.";
    Gauge "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" ACTIVITY ["tensor"] 1.0 "Ratio of cycles the tensor \
         (HMMA) pipe is active.";
    Gauge "DCGM_FI_PROF_DRAM_ACTIVE" ACTIVITY ["dram"] 1.0 "Ratio of cycles the device memory \
         interface is active sending or receiving data.";
    Gauge "DCGM_FI_PROF_PIPE_FP64_ACTIVE" ACTIVITY ["fp64"] 1.0
        "Ratio of cycles the fp64 pipes are active.";
    Gauge "DCGM_FI_PROF_PIPE_FP32_ACTIVE" ACTIVITY ["fp32"] 1.0
        "Ratio of cycles the fp32 pipes are active.";
    Gauge "DCGM_FI_PROF_PIPE_FP16_ACTIVE" ACTIVITY ["fp16"] 1.0
        "Ratio of cycles the fp16 pipes are active.";
};

/// How many series a GPU has more by these names.
pub(super) const MAX_SERIES: usize = 128;

/// The values of a GPU that answers.
pub(super) fn push(gpu: &Gpu, reading: &Reading, hostname: &str, last_xid: u32, out: &mut Samples) {
    let identity = &gpu.identity;
    let index = identity.index.to_string();
    let labels = [
        ("gpu", index.as_str()),
        ("UUID", &identity.uuid),
        ("pci_bus_id", &identity.pci_bus_id),
        ("device", &format!("nvidia{index}")),
        ("modelName", &identity.model),
        ("Hostname", hostname),
        ("DCGM_FI_DRIVER_VERSION", &identity.driver),
    ];
    for Name {
        name,
        kind,
        help,
        from,
        labels: wanted,
        scale,
    } in NAMES
    {
        let is_wanted = |labels: &[std::borrow::Cow<'static, str>]| {
            labels.len() >= wanted.len()
                && labels
                    .iter()
                    .rev()
                    .zip(wanted.iter().rev())
                    .all(|(a, b)| a == b)
        };
        let found = reading
            .values
            .0
            .iter()
            .filter(|value| value.metric.name == from.name && is_wanted(&value.labels));
        if let Some(sum) = found.map(|value| value.value).reduce(|a, b| a + b) {
            out.push_foreign(name, *kind, help, &labels, rounded(sum * scale));
        }
    }
    let mut gauge =
        |name, help, value: f64| out.push_foreign(name, Kind::Gauge, help, &labels, value);
    gauge(
        "DCGM_FI_DEV_XID_ERRORS",
        "Value of the last XID error encountered.",
        f64::from(last_xid),
    );
    let reasons = reading
        .values
        .0
        .iter()
        .filter(|value| value.metric.name == THROTTLE.name);
    let bit = |value: &Value| {
        REASONS
            .iter()
            .position(|reason| value.labels.iter().any(|label| label == reason))
    };
    let bits = reasons.filter_map(|value| Some(bit(value)?).map(|bit| (value.value as u64) << bit));
    if let Some(bits) = bits.reduce(|a, b| a | b) {
        gauge(
            "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
            "Reasons for which the clocks are held down (bits).",
            bits as f64,
        );
    }
}

/// dcgm-exporter's figures are whole, or have few digits; 0.58 times 100 shall not be
/// 57.99999999999999.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
