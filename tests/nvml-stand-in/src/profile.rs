//! The simulated GPU models, with the values that NVML reports for them.
//!
//! `rtx5090` follows published figures of the card; a capture of an RTX 4080 SUPER shows which
//! calls a GeForce supports. it has not been compared with a real RTX 5090.

use nvml_wrapper_sys::bindings as nvml;

/// One GPU model.
#[derive(Debug, PartialEq)]
pub struct Profile {
    /// Name in the script.
    pub word: &'static str,
    pub name: &'static str,
    /// The first group of the UUIDs, which are otherwise zeros and the GPU's number.
    pub uuid_group: u32,
    pub brand: u32,
    pub architecture: u32,
    pub compute_capability: (i32, i32),
    pub cores: u32,
    pub memory_bus_bits: u32,
    pub memory_mib: u64,
    pub memory_reserved_mib: u64,
    pub bar1_mib: u64,
    pub pci_device_id: u32,
    pub pci_subsystem_id: u32,
    pub pcie_generation: u32,
    pub pcie_width: u32,
    pub vbios: &'static str,
    pub power: Power,
    /// Highest clocks in MHz: graphics and SM, memory, video.
    pub clocks_max: [u32; 3],
    /// Clocks at rest, in the same order.
    pub clocks_idle: [u32; 3],
    pub thresholds: Thresholds,
    pub fans: u32,
    /// ECC, row remapping, serial and part numbers, memory temperature, T.Limit: what data-centre
    /// GPUs have.
    pub data_centre: bool,
    pub mig: bool,
    pub gpm: bool,
    pub nvlinks: u32,
    pub nvlink_version: u32,
    /// Whether its NVLinks have the counters of NVLink 5 instead of the older ones.
    pub nvlink5: bool,
}

/// Watts.
#[derive(Debug, PartialEq)]
pub struct Power {
    pub idle: f64,
    pub min: f64,
    pub default: f64,
    pub max: f64,
}

/// Degrees Celsius.
#[derive(Debug, PartialEq)]
pub struct Thresholds {
    pub shutdown: u32,
    pub slowdown: u32,
    pub memory_max: Option<u32>,
    pub gpu_max: u32,
    /// Acoustic thresholds: lowest, current and highest target temperature.
    pub target: Option<(u32, u32, u32)>,
}

pub const ALL: &[&Profile] = &[&RTX5090, &H100, &A100, &B200];

pub fn by_name(word: &str) -> Option<&'static Profile> {
    ALL.iter().copied().find(|p| p.word == word)
}

pub static RTX5090: Profile = Profile {
    word: "rtx5090",
    name: "NVIDIA GeForce RTX 5090",
    uuid_group: 0x5090,
    brand: nvml::nvmlBrandType_enum_NVML_BRAND_GEFORCE,
    architecture: nvml::NVML_DEVICE_ARCH_BLACKWELL,
    compute_capability: (12, 0),
    cores: 21_760,
    memory_bus_bits: 512,
    memory_mib: 32_607,
    memory_reserved_mib: 481,
    bar1_mib: 32_768,
    pci_device_id: 0x2b85_10de,
    pci_subsystem_id: 0x2057_10de,
    pcie_generation: 5,
    pcie_width: 16,
    vbios: "98.02.2E.40.01",
    power: Power {
        idle: 22.0,
        min: 400.0,
        default: 575.0,
        max: 600.0,
    },
    clocks_max: [3090, 14_001, 2415],
    clocks_idle: [180, 405, 600],
    thresholds: Thresholds {
        shutdown: 101,
        slowdown: 96,
        memory_max: None,
        gpu_max: 90,
        target: Some((65, 84, 90)),
    },
    fans: 2,
    data_centre: false,
    mig: false,
    gpm: false,
    nvlinks: 0,
    nvlink_version: 0,
    nvlink5: false,
};

pub static H100: Profile = Profile {
    word: "h100",
    name: "NVIDIA H100 80GB HBM3",
    uuid_group: 0x0100,
    brand: nvml::nvmlBrandType_enum_NVML_BRAND_NVIDIA,
    architecture: nvml::NVML_DEVICE_ARCH_HOPPER,
    compute_capability: (9, 0),
    cores: 16_896,
    memory_bus_bits: 5120,
    memory_mib: 81_559,
    memory_reserved_mib: 551,
    bar1_mib: 131_072,
    pci_device_id: 0x2330_10de,
    pci_subsystem_id: 0x16c1_10de,
    pcie_generation: 5,
    pcie_width: 16,
    vbios: "96.00.74.00.01",
    power: Power {
        idle: 70.0,
        min: 200.0,
        default: 700.0,
        max: 700.0,
    },
    clocks_max: [1980, 2619, 1545],
    clocks_idle: [345, 2619, 765],
    thresholds: Thresholds {
        shutdown: 92,
        slowdown: 89,
        memory_max: Some(95),
        gpu_max: 87,
        target: None,
    },
    fans: 0,
    data_centre: true,
    mig: true,
    gpm: true,
    nvlinks: 18,
    nvlink_version: 7,
    nvlink5: false,
};

pub static A100: Profile = Profile {
    word: "a100",
    name: "NVIDIA A100-SXM4-40GB",
    uuid_group: 0x0a10,
    brand: nvml::nvmlBrandType_enum_NVML_BRAND_NVIDIA,
    architecture: nvml::NVML_DEVICE_ARCH_AMPERE,
    compute_capability: (8, 0),
    cores: 6912,
    memory_bus_bits: 5120,
    memory_mib: 40_960,
    memory_reserved_mib: 585,
    bar1_mib: 65_536,
    pci_device_id: 0x20b0_10de,
    pci_subsystem_id: 0x134f_10de,
    pcie_generation: 4,
    pcie_width: 16,
    vbios: "92.00.45.00.03",
    power: Power {
        idle: 50.0,
        min: 100.0,
        default: 400.0,
        max: 400.0,
    },
    clocks_max: [1410, 1215, 1290],
    clocks_idle: [210, 1215, 585],
    thresholds: Thresholds {
        shutdown: 92,
        slowdown: 89,
        memory_max: Some(95),
        gpu_max: 85,
        target: None,
    },
    fans: 0,
    data_centre: true,
    mig: true,
    gpm: false,
    nvlinks: 12,
    nvlink_version: 5,
    nvlink5: false,
};

/// Published figures; NVIDIA's header says which calls it supports.
pub static B200: Profile = Profile {
    word: "b200",
    name: "NVIDIA B200",
    uuid_group: 0x0200,
    brand: nvml::nvmlBrandType_enum_NVML_BRAND_NVIDIA,
    architecture: nvml::NVML_DEVICE_ARCH_BLACKWELL,
    compute_capability: (10, 0),
    cores: 18_944,
    memory_bus_bits: 8192,
    memory_mib: 183_359,
    memory_reserved_mib: 752,
    bar1_mib: 262_144,
    pci_device_id: 0x2901_10de,
    pci_subsystem_id: 0x1999_10de,
    pcie_generation: 5,
    pcie_width: 16,
    vbios: "97.00.82.00.01",
    power: Power {
        idle: 140.0,
        min: 200.0,
        default: 1000.0,
        max: 1000.0,
    },
    clocks_max: [1965, 3996, 1965],
    clocks_idle: [120, 3996, 600],
    thresholds: Thresholds {
        shutdown: 92,
        slowdown: 89,
        memory_max: Some(95),
        gpu_max: 87,
        target: None,
    },
    fans: 0,
    data_centre: true,
    mig: true,
    gpm: true,
    nvlinks: 18,
    nvlink_version: 8,
    nvlink5: true,
};
