//! Metrics of a GPU.

use takt_model::Metric;

const UUID: &[&str] = &["uuid"];

/// Declares metrics and puts them on the list. Each has the label `uuid`, and those named.
macro_rules! metrics {
    ($($kind:ident $constant:ident $name:literal $help:literal $([$($label:literal),+])?;)*) => {
        $(pub(super) static $constant: Metric = Metric::$kind($name, $help, metrics!(@labels $($($label),+)?));)*
        /// All of them.
        pub(super) const METRICS: &[Metric] = &[
            $(Metric::$kind($name, $help, metrics!(@labels $($($label),+)?))),*
        ];
    };
    (@labels) => { UUID };
    (@labels $($label:literal),+) => { &["uuid", $($label),+] };
}

metrics! {
    gauge UP "takt_gpu_up"
        "Whether the GPU answers. The reason, where it does not: lost (fell off the bus), \
        reset_required, hung (a call does not come back), not_enumerated (was there before, or is \
        on the PCI bus), \
        driver_not_loaded, driver_mismatch, let_go (so that the driver can be unloaded), \
        error. 1 with the reason asleep: a laptop's GPU that sleeps is not woken." ["reason"];
    gauge VBIOS "takt_gpu_vbios_info" "The firmware of the board (VBIOS); always 1." ["version"];
    gauge INFO "takt_gpu_info"
        "Identity of the GPU; always 1. index is NVML's, in the order of the PCI bus; minor is \
         that of /dev/nvidia*; serial is the board's serial number, empty if it has none." ["index", "minor", "pci_bus_id", "model", "driver", "serial"];
    counter ERRORS "takt_gpu_call_errors_total"
        "Calls of NVML that failed, and not because the GPU or the driver does not \
        know what was asked." ["call", "error"];

    gauge UTILIZATION "takt_gpu_utilization_ratio"
        "Share of the last sampling period in which a kernel ran, however \
        little of the GPU it filled.";
    gauge MEMORY_UTILIZATION "takt_gpu_memory_utilization_ratio"
        "Share of the last sampling period in which the memory \
        was read or written; not how full it is.";
    gauge ENCODER "takt_gpu_encoder_utilization_ratio" "Share of the video encoder in use.";
    gauge DECODER "takt_gpu_decoder_utilization_ratio" "Share of the video decoder in use.";
    gauge JPEG "takt_gpu_jpeg_utilization_ratio" "Share of the JPEG decoder in use.";
    gauge OPTICAL_FLOW "takt_gpu_optical_flow_utilization_ratio"
        "Share of the optical flow accelerator (OFA) in use.";
    gauge ACTIVITY "takt_gpu_activity_ratio"
        "Share of the time since the last reading in which a part of the GPU was \
        active, averaged over all of its kind: graphics or compute engine, sm (a warp was \
        assigned), sm_occupancy (warps of \
        those possible), tensor, dram, fp64, fp32, fp16, integer. Data-centre GPUs from Hopper on \
        (GPM)." ["part"];
    gauge PROCESSES "takt_gpu_processes" "Processes that use the GPU, desktop included.";

    gauge MEMORY_USED "takt_gpu_memory_used_bytes"
        "Memory allocated by processes, without the reserved.";
    gauge MEMORY_FREE "takt_gpu_memory_free_bytes" "Memory not allocated.";
    gauge MEMORY_RESERVED "takt_gpu_memory_reserved_bytes"
        "Memory that the driver and the firmware keep.";
    gauge MEMORY_TOTAL "takt_gpu_memory_total_bytes" "Memory of the GPU.";
    gauge BAR1_USED "takt_gpu_bar1_used_bytes" "Memory mapped for access from the bus (BAR1).";
    gauge BAR1_TOTAL "takt_gpu_bar1_total_bytes"
        "Memory that can be mapped for access from the bus at a time (BAR1).";

    gauge POWER "takt_gpu_power_watts"
        "Power draw of the whole board; on newer GPUs averaged over a second.";
    gauge POWER_INSTANT "takt_gpu_power_instant_watts" "Momentary power draw of the board.";
    gauge MODULE_POWER "takt_gpu_module_power_watts"
        "Power that the module draws, its CPU included (Grace Hopper).";
    gauge POWER_LIMIT "takt_gpu_power_limit_watts"
        "Power limit in force, the lowest of all that apply.";
    gauge POWER_LIMIT_DEFAULT "takt_gpu_power_limit_default_watts" "Power limit after a reset.";
    gauge POWER_LIMIT_MIN "takt_gpu_power_limit_min_watts"
        "The lowest power limit that can be set.";
    gauge POWER_LIMIT_MAX "takt_gpu_power_limit_max_watts"
        "The highest power limit that can be set.";
    counter ENERGY "takt_gpu_energy_joules_total"
        "Energy that the board has drawn since the driver was loaded.";

    gauge TEMPERATURE "takt_gpu_temperature_celsius"
        "Temperature of the GPU or its memory." ["sensor"];
    gauge TEMPERATURE_LIMIT "takt_gpu_temperature_limit_celsius"
        "Temperature at which something happens: shutdown, \
        slowdown (by hardware), gpu_max and memory_max (the highest to work at), target (which the \
        fans aim at)." ["limit"];
    gauge TEMPERATURE_MARGIN "takt_gpu_temperature_margin_celsius"
        "Degrees left until the GPU slows down for heat.";
    gauge TEMPERATURE_MARGIN_LIMIT "takt_gpu_temperature_margin_limit_celsius"
        "The margin at which something happens: \
        takt_gpu_temperature_margin_celsius falls to it, and the GPU slows down or shuts \
        down." ["limit"];
    gauge FAN "takt_gpu_fan_ratio"
        "Target speed of the fan, as a share of its full speed; more than 1 if it \
        may exceed that." ["fan"];

    gauge CLOCK "takt_gpu_clock_hertz" "Clock of one part of the GPU at this moment." ["domain"];
    gauge CLOCK_MAX "takt_gpu_clock_max_hertz"
        "The highest clock of one part of the GPU." ["domain"];
    gauge PERFORMANCE_STATE "takt_gpu_performance_state"
        "Performance state, from 0 (fastest) to 15.";
    gauge THROTTLE "takt_gpu_throttle"
        "Whether the clocks are held down for the reason now: idle, app_clocks (set by \
        somebody), sw_power_cap (the power limit; normal under load), hw_slowdown, sync_boost, \
        sw_thermal, hw_thermal, hw_power_brake (power supply), display_clocks." ["reason"];
    counter THROTTLE_SECONDS "takt_gpu_throttle_seconds_total"
        "Time for which the clocks were held down for the reason, \
        since the driver was loaded: those of takt_gpu_throttle, and thermal (of any kind), \
        board_limit, low_utilization, reliability, app_clocks, base_clocks." ["reason"];

    gauge PCIE_GENERATION "takt_gpu_pcie_link_generation"
        "Generation of the PCIe link: current, which falls at rest to \
        save power, and max, the highest of GPU and slot together." ["kind"];
    gauge PCIE_WIDTH "takt_gpu_pcie_link_width" "Lanes of the PCIe link: current and max." ["kind"];
    gauge PCIE_DEGRADED "takt_gpu_pcie_degraded"
        "Whether the PCIe link has fewer lanes than it can, or, while the GPU \
        works, is of an older generation.";
    counter PCIE_BYTES "takt_gpu_pcie_bytes_total"
        "Bytes sent (tx) and received (rx) by the GPU over PCIe." ["direction"];
    counter PCIE_REPLAYS "takt_gpu_pcie_replays_total" "Packets sent again over PCIe.";
    counter PCIE_ERRORS "takt_gpu_pcie_errors_total" "Errors of the PCIe link by type." ["type"];

    gauge PERSISTENCE "takt_gpu_persistence_enabled"
        "Whether the driver stays loaded while no program uses the GPU (persistence mode). Without \
        it, each first use takes seconds.";
    gauge ECC_ENABLED "takt_gpu_ecc_enabled"
        "Whether ECC is enabled. No series if the GPU has no ECC.";
    gauge ECC_PENDING "takt_gpu_ecc_pending_enabled"
        "Whether ECC will be enabled after the next reset.";
    counter ECC_ERRORS "takt_gpu_ecc_errors_total"
        "Errors in the GPU's memories: corrected or uncorrected; volatile (since \
        the driver was loaded) or aggregate (since the GPU was made)." ["type", "scope"];
    gauge SRAM_THRESHOLD "takt_gpu_sram_threshold_exceeded"
        "Whether the uncorrectable errors in the GPU's SRAM are more \
        than it may have; it should be replaced.";
    gauge REMAPPED_ROWS "takt_gpu_row_remap_rows"
        "Rows of the memory that were replaced by spare ones, for corrected or \
        uncorrected errors." ["cause"];
    gauge REMAP_PENDING "takt_gpu_row_remap_pending"
        "Whether rows will be replaced at the next reset.";
    gauge REMAP_FAILED "takt_gpu_row_remap_failed"
        "Whether replacing a row failed; the GPU should be replaced.";
    gauge REMAP_BANKS "takt_gpu_row_remap_banks"
        "Banks of the memory by how many spare rows they have left: max, high, \
        partial, low, none." ["spare"];
    gauge RETIRED_PAGES "takt_gpu_retired_pages"
        "Pages of the memory that are not used any more, after single_bit or \
        double_bit errors (up to Volta)." ["cause"];
    gauge RETIRED_PENDING "takt_gpu_retired_pages_pending"
        "Whether pages will be given up at the next reset.";
    gauge RECOVERY_ACTION "takt_gpu_recovery_action"
        "What the driver says must be done for the GPU to work again: 0 \
        nothing, 1 reset it, 2 reboot the node, 3 drain and restart its peers, 4 drain and reset \
        it.";

    gauge NVLINK_UP "takt_gpu_nvlink_up" "Whether the NVLink is active." ["link"];
    gauge NVLINK_SPEED "takt_gpu_nvlink_speed_bytes_per_second"
        "What the NVLink can carry in each direction, as it was set up." ["link"];
    counter NVLINK_ERRORS "takt_gpu_nvlink_errors_total"
        "Errors of the NVLink: replay (sent again), recovery (the link \
        was set up again), crc, crc_flit, crc_data; of NVLink 5 also recovery_failed, \
        malformed_packet, buffer_overrun, \
        receive, receive_remote, receive_general, local_integrity, transmit_discard, effective \
        (left after correction), symbol." ["link", "type"];
    gauge NVLINK_BER "takt_gpu_nvlink_bit_error_ratio"
        "Share of the bits that came wrong (NVLink 5): raw, effective (left \
        after correction), symbol." ["link", "type"];
    counter NVLINK_BYTES "takt_gpu_nvlink_bytes_total"
        "Bytes of data sent (tx) and received (rx) over all NVLinks." ["direction"];
    gauge FABRIC_READY "takt_gpu_fabric_ready"
        "Whether the GPU has been taken into the fabric of its NVSwitches; until then \
        CUDA does not start. No series: it has no such fabric.";
    gauge FABRIC_DEGRADED "takt_gpu_fabric_degraded"
        "Whether the fabric gives the GPU less bandwidth than it could.";

    gauge VIRTUALIZATION "takt_gpu_virtualization_info"
        "How the GPU is shared with virtual machines, always 1: none, \
        passthrough (this is a guest that has it whole), vgpu_guest (this is a guest that has a \
        part), vgpu_host, vsga_host." ["mode"];
    gauge VGPU_LICENSED "takt_gpu_vgpu_licensed"
        "Whether this guest has the licence that its part of a GPU needs; without it \
        the GPU slows down.";
    gauge VGPUS "takt_gpu_vgpus" "Virtual machines that have a part of the GPU.";
    gauge VGPU_INFO "takt_gpu_vgpu_info"
        "A part of the GPU that a virtual machine has; always 1." ["vgpu_uuid", "vm", "type"];
    gauge VGPU_MEMORY "takt_gpu_vgpu_memory_used_bytes"
        "Memory of the part that the virtual machine uses." ["vgpu_uuid"];

    gauge MIG_ENABLED "takt_gpu_mig_enabled"
        "Whether the GPU is divided into parts (MIG). No series: it cannot be.";
    gauge MIG_INFO "takt_gpu_mig_info"
        "A part of the GPU (MIG); always 1." ["mig_uuid", "gpu_instance", "compute_instance", "profile"];
    gauge MIG_MEMORY_USED "takt_gpu_mig_memory_used_bytes"
        "Memory of the part in use." ["mig_uuid"];
    gauge MIG_MEMORY_TOTAL "takt_gpu_mig_memory_total_bytes" "Memory of the part." ["mig_uuid"];
    gauge MIG_ACTIVITY "takt_gpu_mig_activity_ratio"
        "As takt_gpu_activity_ratio, of the part's share of the GPU." ["mig_uuid", "part"];
}
