//! A stand-in for NVIDIA's `libnvidia-ml.so.1`: NVML's C interface over simulated GPUs that a text
//! file controls. It makes programs that read GPUs testable without a GPU. For tests,
//! demonstrations and benchmarks only.
//!
//! The library is built as `target/<profile>/libnvml_stand_in.so`. Point a program at it by path
//! (`takt-exporter --nvml.library …`, or nvml-wrapper's `lib_path`) and name the script in
//! `NVML_STAND_IN_SCRIPT`. Without a script there is one RTX 5090. The script is read again when it
//! changes; changes take effect within 10 ms.
//!
//! # Values that change by themselves
//!
//! The load of each GPU moves between 0 and 100 % over some minutes, as a function of the wall
//! clock and with a phase of its own. Power, temperature, clocks, performance state, fan, memory,
//! PCIe and NVLink traffic follow the load; energy, bytes and throttle times are integrals of these
//! readings. A scripted value is constant. Values that a model lacks give NotSupported (a GeForce:
//! ECC, serial, remapped rows, memory temperature, MIG, NVLink …).
//!
//! # The script
//!
//! One statement a line, words separated by blanks, `#` starts a comment. While the script has a
//! mistake, every call returns 999 (unknown error), and stderr names the line. NVML's own names and
//! codes are used throughout.
//!
//! | statement | meaning |
//! |---|---|
//! | `profile MODEL [COUNT]` | adds GPUs: `rtx5090`, `h100`, `a100` (MIG-capable), `b200` (NVLink 5). May be repeated: GPUs number on. |
//! | `driver VERSION` | driver version, default `580.95.05`. Decides the numbering of field ids 251 to 273. |
//! | `init CODE` | initialisation fails so: 9 no driver, 18 versions differ, … |
//! | `hide FUNCTION` | the symbol is missing, as in an older driver. Read only when the library is loaded. |
//! | `fail FUNCTION CODE` | the call fails; a trailing `*` matches the rest, `*` alone every call but `nvmlInit*`, `nvmlShutdown` and `nvmlErrorString`. |
//! | `sleep FUNCTION MILLISECONDS` | the call takes so long; other calls are not delayed. `*` as above. |
//! | `crash FUNCTION segv\|abort` | the call ends the process. `*` as above. |
//! | `xid GPU CODE` | one XID event, delivered once. A line added later is a new event, also when it repeats an old one. |
//! | `event GPU TYPE DATA` | any other event, by NVML's event type bit. |
//! | `gpu GPU STATEMENT` | something about one GPU, numbered from 0 in the order of the profiles: |
//!
//! | `gpu N …` | meaning |
//! |---|---|
//! | `lost` | fallen off the bus: every call with its handle returns GpuLost; the GPU still counts |
//! | `gone` | not enumerated at all; the GPUs behind it move up |
//! | `fail FUNCTION CODE`, `sleep FUNCTION MILLISECONDS` | as above, for calls on this GPU |
//! | `unsupported FUNCTION` | short for `fail FUNCTION 3` |
//! | `field ID CODE` | a field value (in the numbering before 580.82) fails with its own return code |
//! | `field-value ID SCOPE VALUE` | a field value (in the same numbering) of that scope; for those that have no statement of their own |
//! | `name TEXT…`, `uuid TEXT`, `serial TEXT`, `pci BUSID`, `minor N` | identity |
//! | `utilization GPU MEMORY` | percent |
//! | `encoder PERCENT`, `decoder PERCENT`, `jpeg PERCENT`, `optical-flow PERCENT` | |
//! | `temperature CELSIUS`, `memory-temperature CELSIUS` | |
//! | `power WATTS`, `power-limit WATTS`, `energy JOULES` | energy is the counter's value now, and it continues from there (`energy 0`: the driver was loaded again) |
//! | `memory-used SIZE`, `memory-total SIZE` | sizes are bytes, or with `KiB`, `MiB`, `GiB` |
//! | `clocks GRAPHICS MEMORY` | MHz |
//! | `pstate N`, `throttle BITS` | bits decimal or `0x…`, as in `nvmlClocksEventReason*` |
//! | `pcie GENERATION WIDTH`, `pcie-replay COUNT` | the current link |
//! | `persistence 0` | whether persistence mode is on; 1 without it |
//! | `ecc corrected\|uncorrected volatile\|aggregate COUNT` | |
//! | `remapped CORRECTED UNCORRECTED PENDING FAILED` | rows, and two flags 0 or 1 |
//! | `fan PERCENT…` | one for each fan, or one for all |
//! | `recovery-action N` | 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset |
//! | `mig on\|off` | MIG mode; utilization is then NotSupported, as on a real GPU |
//! | `nvlink LINK up\|down`, `nvlink-errors LINK replay\|recovery\|crc\|crc-data COUNT` | |
//! | `retired SINGLE DOUBLE PENDING` | pages retired for single and double bit errors, and a flag 0 or 1, as GPUs up to Volta have them |
//! | `sram-threshold kept\|exceeded` | whether there were too many uncorrectable errors in SRAM (from Hopper on) |
//! | `virtualization none\|passthrough\|vgpu-guest\|vgpu-host\|vsga-host` | which side of a virtual machine this is |
//! | `licence missing\|there` | of a vGPU's guest |
//! | `vgpu VM USED TYPE…` | a virtual machine that has a part of the GPU (on a host) |
//! | `fabric joining\|ready\|degraded\|failed` | state of the GPU in the fabric of NVSwitches; default: no fabric |
//! | `part GI CI PROFILE SIZE USED` | a part (MIG device): GPU and compute instance, profile (`1g.5gb`), memory; turns MIG on |
//! | `process PID SIZE\|unknown compute\|graphics\|both [SM]` | a process, its GPU memory (which counts as used), its share of the SMs in percent |
//! | `instance PID GI` | the GPU instance (MIG) on which a process above runs |
//!
//! ```text
//! profile rtx5090 2
//! driver 570.86
//! gpu 0 utilization 97 40
//! gpu 0 process 1234 512MiB compute
//! gpu 1 lost
//! xid 1 79
//! sleep nvmlDeviceGetTemperature 30000
//! ```
//!
//! # Known limits
//!
//! Units, most of vGPU and everything that sets something are absent: such a symbol is missing.
//! Parts (MIG) know their identity, memory and activity; other questions about them are answered
//! for the whole GPU.

mod gpu;
mod hide;
mod interface;
mod profile;
mod script;
mod world;

/// NVML's return codes that this library gives.
mod code {
    pub use nvml_wrapper_sys::bindings::{
        nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH as ARGUMENT_VERSION_MISMATCH,
        nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST as GPU_IS_LOST,
        nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE as INSUFFICIENT_SIZE,
        nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
        nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND,
        nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED,
        nvmlReturn_enum_NVML_ERROR_TIMEOUT as TIMEOUT,
        nvmlReturn_enum_NVML_ERROR_UNINITIALIZED as UNINITIALIZED,
        nvmlReturn_enum_NVML_ERROR_UNKNOWN as UNKNOWN, nvmlReturn_enum_NVML_SUCCESS as SUCCESS,
    };
}

/// Result of a call: success, or one of NVML's return codes.
type Answer<T = ()> = Result<T, u32>;
