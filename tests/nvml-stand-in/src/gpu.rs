//! One simulated GPU: what it shows at an instant, and the counters that integrate it.

use std::f64::consts::TAU;

use crate::code;
use crate::profile::Profile;
use crate::script::{GpuScript, Part, Process};
use crate::{Answer, world};

/// Throttle reasons (NVML's `nvmlClocksEventReason*` bits) that a GPU gives by itself.
mod reason {
    pub const IDLE: u64 = 0x1;
    pub const SW_POWER_CAP: u64 = 0x4;
    pub const SW_THERMAL: u64 = 0x20;
}

/// Bytes a second over PCIe at full load: sent, received.
const PCIE_TRAFFIC: [f64; 2] = [2.0e9, 3.0e9];
/// Bytes a second over one NVLink and direction at full load.
const NVLINK_TRAFFIC: f64 = 12.0e9;

/// A GPU of the simulated machine.
#[derive(Debug)]
pub struct Gpu {
    /// Its number in the script, which is also its default minor number.
    pub slot: usize,
    pub script: GpuScript,
    /// The current instant, in seconds since 1970.
    pub now: f64,
    /// Index of the MIG device of the current call.
    pub part: Option<usize>,
    counters: Counters,
}

/// Counters, and the instant up to which they are integrated.
#[derive(Debug, Clone)]
pub struct Counters {
    at: f64,
    pub energy_joules: f64,
    /// Bytes sent and received.
    pub pcie_bytes: [f64; 2],
    /// Bytes sent, and as many received, by each NVLink.
    pub nvlink_bytes: f64,
    /// Seconds in which the bit of each throttle reason was set.
    pub throttle_seconds: [f64; 9],
    /// Seconds of full use of the GPU.
    pub busy_seconds: f64,
}

/// Readings of a GPU at an instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Percent of time in which a kernel ran, and in which memory was read or written.
    pub utilization: (u32, u32),
    pub power_watts: f64,
    pub temperature: u32,
    /// MHz: graphics and SM, memory, video.
    pub clocks: [u32; 3],
    pub pstate: u32,
    pub throttle: u64,
    pub pcie_generation: u32,
    pub pcie_width: u32,
    pub memory_used: u64,
}

impl Gpu {
    /// A GPU whose driver was loaded when the machine started.
    pub fn new(slot: usize, script: GpuScript, now: f64) -> Self {
        let mut gpu = Self {
            slot,
            script,
            now,
            part: None,
            counters: Counters::zero(now),
        };
        // The counter of a real GPU continues when its reader restarts. This one lives in the
        // reader, so it begins at the uptime times the power limit: a later start never shows less
        // than an earlier one.
        let watts = gpu
            .script
            .power_watts
            .unwrap_or_else(|| gpu.power_limit_watts());
        gpu.counters.energy_joules = gpu
            .script
            .energy_joules
            .unwrap_or(world::uptime_seconds() * watts);
        gpu
    }

    /// Applies a changed script at `now`; earlier readings stay in the counters.
    pub fn follow(&mut self, script: GpuScript, now: f64) {
        self.integrate(now);
        if script.energy_joules != self.script.energy_joules {
            self.counters.energy_joules =
                script.energy_joules.unwrap_or(self.counters.energy_joules);
        }
        self.script = script;
    }

    /// Returns the counters now.
    pub fn counters(&mut self) -> &Counters {
        self.integrate(self.now);
        &self.counters
    }

    pub fn profile(&self) -> &'static Profile {
        self.script.profile
    }

    pub fn reading(&self) -> Reading {
        self.reading_at(self.now)
    }

    pub fn name(&self) -> &str {
        self.script.name.as_deref().unwrap_or(self.profile().name)
    }

    pub fn uuid(&self) -> String {
        self.script.uuid.clone().unwrap_or_else(|| {
            format!(
                "GPU-{:08x}-0000-4000-8000-{:012x}",
                self.profile().uuid_group,
                self.slot
            )
        })
    }

    /// Returns the MIG device of the current call.
    pub fn part(&self) -> Option<&Part> {
        self.part.and_then(|place| self.script.parts.get(place))
    }

    /// Returns the UUID of the GPU, or of the MIG device of the call.
    pub fn uuid_of_handle(&self) -> String {
        self.part.map_or_else(
            || self.uuid(),
            |place| self.uuid().replacen("GPU-", &format!("MIG-{place}-"), 1),
        )
    }

    pub fn name_of_handle(&self) -> String {
        self.part().map_or_else(
            || self.name().to_owned(),
            |part| format!("{} MIG {}", self.name(), part.profile),
        )
    }

    pub fn serial(&self) -> Answer<String> {
        if let Some(serial) = &self.script.serial {
            return Ok(serial.clone());
        }
        self.data_centre()?;
        Ok(format!("165462{:07}", self.slot + 1))
    }

    pub fn minor(&self) -> u32 {
        self.script.minor.unwrap_or(self.slot as u32)
    }

    /// Domain, bus and device. Eight GPUs spread over one domain.
    pub fn pci_address(&self) -> (u32, u32, u32) {
        self.script
            .pci_bus_id
            .as_deref()
            .and_then(parse_bus_id)
            .unwrap_or(((self.slot / 8) as u32, 1 + 0x20 * (self.slot % 8) as u32, 0))
    }

    pub fn memory_total(&self) -> u64 {
        self.script
            .memory_total
            .unwrap_or(self.profile().memory_mib << 20)
    }

    pub fn memory_reserved(&self) -> u64 {
        self.profile().memory_reserved_mib << 20
    }

    pub fn power_limit_watts(&self) -> f64 {
        self.script
            .power_limit_watts
            .unwrap_or(self.profile().power.default)
    }

    pub fn memory_temperature(&self) -> Answer<u32> {
        match self.script.memory_temperature {
            Some(degrees) => Ok(degrees),
            None => self.data_centre().map(|()| self.reading().temperature + 8),
        }
    }

    /// Percent of each fan.
    pub fn fan(&self, fan: u32) -> Answer<u32> {
        let profile = self.profile();
        if profile.fans == 0 {
            return Err(code::NOT_SUPPORTED);
        }
        if fan >= profile.fans {
            return Err(code::INVALID_ARGUMENT);
        }
        let scripted = self
            .script
            .fans
            .get(fan as usize)
            .or(self.script.fans.first());
        // At rest the fans stand still.
        let curve = |degrees: u32| {
            if degrees < 45 {
                0
            } else {
                (30 + (degrees - 45) * 3 / 2).min(100)
            }
        };
        Ok(scripted
            .copied()
            .unwrap_or_else(|| curve(self.reading().temperature)))
    }

    pub fn nvlink_active(&self, link: u32) -> Answer<bool> {
        match self.profile().nvlinks {
            0 => Err(code::NOT_SUPPORTED),
            links if link < links => Ok(!self.script.nvlinks_down.contains(&link)),
            _ => Err(code::INVALID_ARGUMENT),
        }
    }

    /// Fails on a GPU that is not a data-centre GPU.
    pub fn data_centre(&self) -> Answer {
        if self.profile().data_centre {
            Ok(())
        } else {
            Err(code::NOT_SUPPORTED)
        }
    }

    /// A process's share of the SMs: as scripted, else its part of the GPU's utilization, in
    /// percent.
    pub fn process_sm_percent(&self, process: &Process) -> u32 {
        process.sm_percent.unwrap_or_else(|| {
            let sharing = self
                .script
                .processes
                .iter()
                .filter(|p| p.compute && p.sm_percent.is_none())
                .count();
            if process.compute {
                self.reading().utilization.0 / sharing.max(1) as u32
            } else {
                0
            }
        })
    }

    fn reading_at(&self, t: f64) -> Reading {
        let script = &self.script;
        let profile = self.profile();
        let utilization = script.utilization.unwrap_or_else(|| {
            let load = self.wave(t);
            ((load * 100.0).round() as u32, (load * 55.0).round() as u32)
        });
        let load = f64::from(utilization.0) / 100.0;
        let limit = self.power_limit_watts();
        let power_at = |load: f64| match script.power_watts {
            Some(watts) => watts,
            None if load == 0.0 => profile.power.idle,
            None => profile.power.idle + (limit - profile.power.idle) * (0.15 + 0.85 * load),
        };
        let power_watts = power_at(load);
        // The heat sink lags some seconds behind the load.
        let past = if script.utilization.is_some() {
            load
        } else {
            self.wave(t - 15.0)
        };
        let temperature = script
            .temperature
            .unwrap_or((32.0 + 43.0 * power_at(past) / profile.power.default) as u32);
        let busy = load > 0.0;
        let throttle = script.throttle.unwrap_or_else(|| {
            let cap = if busy && power_watts >= 0.97 * limit {
                reason::SW_POWER_CAP
            } else {
                0
            };
            let hot = if temperature >= profile.thresholds.gpu_max {
                reason::SW_THERMAL
            } else {
                0
            };
            if busy { cap | hot } else { reason::IDLE | hot }
        });
        let clocks = match script.clocks_mhz {
            Some((graphics, memory)) => [graphics, memory, profile.clocks_max[2]],
            None if !busy => profile.clocks_idle,
            None => {
                let share = 0.99 - 0.10 * (power_watts / limit).min(1.0);
                profile
                    .clocks_max
                    .map(f64::from)
                    .map(|mhz| (mhz * share) as u32)
            }
        };
        // A GeForce computes in P1 and rests in P8; data-centre GPUs know only P0.
        let pstate = script.pstate.unwrap_or(match (profile.data_centre, busy) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 8,
        });
        let (pcie_generation, pcie_width) = script.pcie.unwrap_or_else(|| {
            let resting = !busy && !profile.data_centre;
            (
                if resting { 1 } else { profile.pcie_generation },
                profile.pcie_width,
            )
        });
        let available = self.memory_total().saturating_sub(self.memory_reserved());
        let memory_used = script
            .memory_used
            .unwrap_or_else(|| match script.processes.as_slice() {
                [] => (available as f64 * (0.02 + 0.6 * load)) as u64,
                processes => processes.iter().filter_map(|p| p.memory).sum(),
            });
        Reading {
            utilization,
            power_watts,
            temperature,
            clocks: [
                clocks[0],
                if busy {
                    clocks[1].max(profile.clocks_idle[1])
                } else {
                    clocks[1]
                },
                clocks[2],
            ],
            pstate,
            throttle,
            pcie_generation,
            pcie_width,
            memory_used: memory_used.min(available),
        }
    }

    /// Returns the load of an unscripted GPU, 0 to 1: a wave of five minutes with a ripple, cut off
    /// at both ends.
    fn wave(&self, t: f64) -> f64 {
        let phase = 1.3 * self.slot as f64;
        let swell = 0.5
            + 0.45 * (TAU * t / 300.0 + phase).sin()
            + 0.15 * (TAU * t / 47.0 + 1.7 * phase).sin();
        (1.25 * swell - 0.12).clamp(0.0, 1.0)
    }

    fn integrate(&mut self, now: f64) {
        let span = now - self.counters.at;
        if span <= 0.0 {
            return;
        }
        // Steps of a quarter of a second are short against the wave; a long gap takes a thousand
        // steps.
        let steps = (span / 0.25).ceil().min(1000.0);
        let step = span / steps;
        for i in 0..steps as u32 {
            let shown = self.reading_at(self.counters.at + (f64::from(i) + 0.5) * step);
            let load = f64::from(shown.utilization.0) / 100.0;
            self.counters.energy_joules += shown.power_watts * step;
            self.counters.busy_seconds += load * step;
            self.counters.nvlink_bytes += NVLINK_TRAFFIC * load * step;
            for (bytes, rate) in self.counters.pcie_bytes.iter_mut().zip(PCIE_TRAFFIC) {
                *bytes += rate * load * step;
            }
            for (bit, seconds) in self.counters.throttle_seconds.iter_mut().enumerate() {
                if shown.throttle & (1 << bit) != 0 {
                    *seconds += step;
                }
            }
        }
        self.counters.at = now;
    }
}

impl Counters {
    fn zero(at: f64) -> Self {
        Self {
            at,
            energy_joules: 0.0,
            pcie_bytes: [0.0; 2],
            nvlink_bytes: 0.0,
            throttle_seconds: [0.0; 9],
            busy_seconds: 0.0,
        }
    }
}

impl Reading {
    /// Returns the PCIe traffic in KiB per second: sent, received.
    pub fn pcie_kib_per_second(&self) -> [u32; 2] {
        PCIE_TRAFFIC.map(|rate| (rate * f64::from(self.utilization.0) / 100.0 / 1024.0) as u32)
    }
}

/// Reads `[domain:]bus:device[.function]`, hexadecimal.
pub fn parse_bus_id(text: &str) -> Option<(u32, u32, u32)> {
    let hex = |word: &str| u32::from_str_radix(word, 16).ok();
    let mut parts = text.split('.').next()?.rsplit(':');
    let device = hex(parts.next()?)?;
    let bus = hex(parts.next()?)?;
    let domain = parts.next().map_or(Some(0), hex)?;
    parts.next().is_none().then_some((domain, bus, device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Script;

    fn gpu(script: &str) -> Gpu {
        Gpu::new(0, Script::parse(script).unwrap().gpus.remove(0), 1000.0)
    }

    #[test]
    fn energy_integrates_the_power_that_is_shown() {
        let mut steady = gpu("gpu 0 power 300\ngpu 0 energy 0");
        steady.now = 1060.0;
        assert!((steady.counters().energy_joules - 18_000.0).abs() < 1e-6);

        let mut moving = gpu("gpu 0 energy 0");
        let mean = (0..3000)
            .map(|i| moving.reading_at(1000.0 + f64::from(i) * 0.1).power_watts)
            .sum::<f64>()
            / 3000.0;
        moving.now = 1300.0;
        let joules = moving.counters().energy_joules;
        assert!(
            (joules / (mean * 300.0) - 1.0).abs() < 0.01,
            "{joules} J at {mean} W"
        );
    }

    #[test]
    fn the_load_moves_over_its_whole_range_and_the_rest_follows() {
        let gpu = gpu("");
        let shown: Vec<_> = (0..1200).map(|t| gpu.reading_at(f64::from(t))).collect();
        assert!(shown.iter().any(|r| r.utilization.0 == 0
            && r.pstate == 8
            && r.throttle == 1
            && r.pcie_generation == 1));
        assert!(shown.iter().any(|r| r.utilization.0 == 100
            && r.pstate == 1
            && r.throttle == 4
            && r.pcie_generation == 5));
        assert!(
            shown
                .iter()
                .all(|r| r.power_watts >= 22.0 && r.power_watts <= 575.0)
        );
        assert!(shown.iter().all(|r| (30..90).contains(&r.temperature)));
    }

    #[test]
    fn throttle_time_counts_each_reason() {
        let mut gpu = gpu("gpu 0 throttle 0x44");
        gpu.now = 1010.0;
        let seconds = gpu.counters().throttle_seconds;
        assert_eq!(
            seconds.map(f64::round),
            [0.0, 0.0, 10.0, 0.0, 0.0, 0.0, 10.0, 0.0, 0.0]
        );
    }

    #[test]
    fn a_bus_id_is_read_in_every_spelling() {
        for text in ["00000000:C1:00.0", "0000:c1:00.0", "c1:00"] {
            assert_eq!(parse_bus_id(text), Some((0, 0xc1, 0)), "{text}");
        }
        assert_eq!(parse_bus_id("0:0:0:0"), None);
        assert_eq!(parse_bus_id("first"), None);
    }
}
