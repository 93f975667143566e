//! A thousand simulated jobs, half of them with a slow GPU or node: who is named, how soon, and how often in vain.
//!
//! The jobs are synchronous: a step lasts as long as its slowest rank, and then all exchange data. What the samples show
//! follows from that, with the noise, the pauses and the gaps of real ones.

use std::collections::BTreeMap;
use takt_diagnosis::{GpuReadings, Metric, Pace, Readings, SlowGpu, WINDOW_SECONDS, pace};
use takt_model::UnixTime;

const CASES: u64 = 1000;
const WINDOWS: usize = 40;

/// Windows within which a slow GPU is named: three minutes.
const SOON: usize = 6;

/// Pseudo-random numbers (splitmix64): a seed always gives the same job.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn happens(&mut self, share: f64) -> bool {
        self.between(0.0, 1.0) < share
    }

    /// A factor around 1; most are within `spread` of it.
    fn noise(&mut self, spread: f64) -> f64 {
        let sum: f64 = (0..4).map(|_| self.between(-1.0, 1.0)).sum();
        1.0 + spread * sum / 2.0
    }
}

/// A cause that slows a job, or looks as if it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Plot {
    // One GPU or node makes the others wait.
    Heat,
    PowerBrakeOfANode,
    SlowPcie,
    LinkErrors,
    QuotaOnANode,
    FilesOfANode,
    LowClock,
    Loader,
    // Nobody does.
    Healthy,
    PipelineByDesign,
    StagesByDesign,
    FilesForAll,
    QuotaForAll,
    HeatForAll,
    OneBadWindow,
    UnusedGpu,
    SlowPcieUnused,
    HotterCard,
}

const FAULTS: [Plot; 8] = [
    Plot::Heat,
    Plot::PowerBrakeOfANode,
    Plot::SlowPcie,
    Plot::LinkErrors,
    Plot::QuotaOnANode,
    Plot::FilesOfANode,
    Plot::LowClock,
    Plot::Loader,
];

const HARMLESS: [Plot; 10] = [
    Plot::Healthy,
    Plot::PipelineByDesign,
    Plot::StagesByDesign,
    Plot::FilesForAll,
    Plot::QuotaForAll,
    Plot::HeatForAll,
    Plot::OneBadWindow,
    Plot::UnusedGpu,
    Plot::SlowPcieUnused,
    Plot::HotterCard,
];

/// A job and the truth about it.
struct Case {
    plot: Plot,
    gpus: Vec<GpuReadings>,
    /// First window of the fault.
    begins: usize,
    node: String,
    /// The slow GPU; `None` where it is the node.
    uuid: Option<String>,
}

/// The part of a step that each GPU has, and what disturbs it.
#[derive(Clone, Copy)]
struct Rank {
    load: f64,
    /// Highest clock, in hertz.
    clock: f64,
    /// Share of its clock that it has.
    clock_share: f64,
    held_down: f64,
    /// Time in which the GPU waits for its process, in seconds per step.
    host: f64,
    link_factor: f64,
    pcie_degraded: f64,
    link_errors: f64,
    throttled: f64,
    file_wait: f64,
}

fn case(seed: u64) -> Case {
    let mut random = Random(seed);
    let plot = if seed.is_multiple_of(2) {
        FAULTS[random.below(FAULTS.len())]
    } else {
        HARMLESS[random.below(HARMLESS.len())]
    };
    let is_of_node = matches!(
        plot,
        Plot::PowerBrakeOfANode | Plot::QuotaOnANode | Plot::FilesOfANode
    );
    let nodes = if is_of_node {
        2 + random.below(7)
    } else {
        1 + random.below(8)
    };
    let per_node = [4, 8][random.below(2)];
    let count = nodes * per_node;
    let has_tensor = random.happens(0.7);

    let compute = random.between(0.3, 2.0);
    let exchange = compute * random.between(0.1, 0.4);
    let host = compute * random.between(0.01, 0.08);
    let duty = random.between(0.3, 0.95);
    let work_watts = random.between(350.0, 690.0);

    let victim = random.below(count);
    let victims = |index: usize| {
        if is_of_node {
            index / per_node == victim / per_node
        } else {
            index == victim
        }
    };
    // Signs with a physical cause need no past; the others are found by a change.
    let is_from_the_start = matches!(
        plot,
        Plot::Heat | Plot::PowerBrakeOfANode | Plot::QuotaOnANode | Plot::FilesOfANode
    ) && random.happens(0.2);
    let begins = if is_from_the_start {
        0
    } else {
        12 + random.below(18)
    };

    let severity = random.between(0.0, 1.0);
    let stages = [2, 4][random.below(2)];
    let mut ranks: Vec<Rank> = (0..count)
        .map(|_| Rank {
            load: 1.0,
            clock: 1.98e9 * random.noise(0.008),
            clock_share: 1.0,
            held_down: 0.0,
            host,
            link_factor: 1.0,
            pcie_degraded: 0.0,
            link_errors: 0.0,
            throttled: 0.0,
            file_wait: 0.02,
        })
        .collect();
    for (index, rank) in ranks.iter_mut().enumerate() {
        match plot {
            Plot::PipelineByDesign => rank.load = 1.0 - 0.3 * index as f64 / count as f64,
            Plot::StagesByDesign => rank.load = 1.0 - 0.1 * (index * stages / count) as f64,
            Plot::UnusedGpu if index == victim => rank.load = 0.0,
            Plot::SlowPcieUnused if index == victim => rank.pcie_degraded = 1.0,
            Plot::HotterCard if index == victim => rank.clock_share = 0.96,
            _ => {}
        }
        // A pipeline whose heaviest stage is one GPU is power-limited there.
        if plot == Plot::PipelineByDesign && index == 0 {
            rank.clock_share = 0.9;
        }
    }

    let mut gpus: Vec<GpuReadings> = (0..count)
        .map(|index| GpuReadings {
            node: format!("g{:02}", index / per_node),
            uuid: format!("GPU-{index}"),
            model: "H200".to_owned(),
            windows: Vec::new(),
        })
        .collect();
    // Some nodes miss scrapes now and then.
    let silent_node = random.happens(0.05).then(|| random.below(nodes));
    let bad_window = begins;

    for window in 0..WINDOWS {
        let is_faulty = window >= begins;
        let mut now = ranks.clone();
        for (index, rank) in now.iter_mut().enumerate() {
            let is_victim = victims(index) && is_faulty;
            match plot {
                Plot::Heat | Plot::PowerBrakeOfANode if is_victim => {
                    rank.clock_share = 0.82 - 0.4 * severity;
                    rank.held_down = random.between(0.6, 1.0);
                }
                Plot::LowClock if is_victim => rank.clock_share = 0.82 - 0.3 * severity,
                Plot::SlowPcie if is_victim => {
                    rank.pcie_degraded = 1.0;
                    rank.link_factor = 2.5 + 4.0 * severity;
                }
                Plot::LinkErrors if is_victim => {
                    rank.link_errors = random.between(5.0, 200.0);
                    rank.link_factor = 2.5 + 3.0 * severity;
                }
                Plot::QuotaOnANode if is_victim => {
                    rank.throttled = random.between(0.5, 3.0);
                    rank.host += compute * (0.3 + severity) * random.noise(0.1);
                }
                Plot::FilesOfANode if is_victim => {
                    rank.file_wait = random.between(0.3, 0.9);
                    rank.host += compute * (0.3 + severity) * random.noise(0.1);
                }
                Plot::Loader if is_victim => {
                    rank.host += compute * (0.3 + severity) * random.noise(0.1);
                }
                Plot::FilesForAll if is_faulty => {
                    rank.file_wait = random.between(0.4, 0.9);
                    rank.host += compute * (0.8 + severity) * random.noise(0.1);
                }
                Plot::QuotaForAll if is_faulty => {
                    rank.throttled = random.between(0.5, 3.0);
                    rank.host += compute * (0.8 + severity) * random.noise(0.1);
                }
                Plot::HeatForAll if is_faulty => {
                    rank.clock_share = 0.8 * random.noise(0.02);
                    rank.held_down = random.between(0.5, 1.0);
                }
                Plot::OneBadWindow if index == victim && window == bad_window => {
                    rank.clock_share = 0.5;
                    rank.held_down = 0.8;
                }
                _ => {}
            }
        }

        // A checkpoint: everybody waits for the write.
        let is_pause = random.happens(0.03);
        // A synchronous step: all wait for the slowest rank, and the slowest link sets the time of
        // the exchange.
        let own = |rank: &Rank| compute * rank.load / rank.clock_share + rank.host;
        let slowest = now.iter().map(own).fold(0.0, f64::max);
        let link = now.iter().map(|rank| rank.link_factor).fold(1.0, f64::max);
        let step = slowest + exchange * link;
        for (index, rank) in now.iter().enumerate() {
            let mut readings = Readings::default();
            let is_unused = rank.load == 0.0;
            let works = compute * rank.load / rank.clock_share / step;
            let waits_for_host = if is_unused { 1.0 } else { rank.host / step };
            let pause = if is_pause { 0.3 } else { 1.0 };
            let busy = ((1.0 - waits_for_host) * pause * random.noise(0.01)).clamp(0.0, 1.0);
            // A rank that waits for the others spins in a kernel: it looks busy and draws little
            // power.
            let spins = (1.0 - works - waits_for_host).max(0.0);
            let idle_watts = 90.0;
            let watts = idle_watts
                + 55.0 * spins
                + (work_watts - idle_watts) * works * rank.clock_share.powf(1.5) * pause;

            readings[Metric::Utilization] = Some(busy);
            readings[Metric::Power] = Some(watts * random.noise(0.02));
            readings[Metric::Clock] = Some(rank.clock * rank.clock_share * random.noise(0.004));
            readings[Metric::PcieDegraded] = Some(rank.pcie_degraded);
            readings[Metric::LinkErrors] = Some(rank.link_errors);
            readings[Metric::CpuThrottled] = Some(rank.throttled);
            readings[Metric::FileWait] = Some(rank.file_wait * random.noise(0.1));
            // Without the reason for its clock, as of cards that do not report one.
            if plot != Plot::LowClock {
                readings[Metric::HeldDown] = Some(rank.held_down);
            }
            if has_tensor {
                readings[Metric::Tensor] = Some(duty * works * pause * random.noise(0.02));
            }
            let is_silent = silent_node == Some(index / per_node) && window % 9 == 4;
            if is_silent || random.happens(0.01) {
                readings = Readings::default();
            }
            gpus[index].windows.push(readings);
        }
    }

    Case {
        plot,
        begins,
        node: gpus[victim].node.clone(),
        uuid: (!is_of_node).then(|| gpus[victim].uuid.clone()),
        gpus,
    }
}

/// The finding after so many windows.
fn after(case: &Case, windows: usize) -> Pace {
    let seen: Vec<GpuReadings> = case
        .gpus
        .iter()
        .map(|gpu| GpuReadings {
            windows: gpu.windows[..windows].to_vec(),
            ..gpu.clone()
        })
        .collect();
    pace(&seen, UnixTime(WINDOW_SECONDS * windows as i64))
}

#[test]
fn a_slow_gpu_is_named_within_three_minutes_and_nobody_in_vain() {
    let mut named_right = 0;
    let mut named_wrong = 0;
    let mut faults = 0;
    let mut windows_until_named = Vec::new();
    let mut by_plot: BTreeMap<Plot, [usize; 3]> = BTreeMap::new();

    for seed in 0..CASES {
        let case = case(seed);
        let has_fault = FAULTS.contains(&case.plot);
        faults += usize::from(has_fault);

        let is_right = |slow: &SlowGpu, windows: usize| {
            has_fault && windows > case.begins && slow.node == case.node && slow.uuid == case.uuid
        };
        let mut right = None;
        let mut wrong = false;
        // As the server asks: again after each window, with what is known by then.
        for windows in 1..=WINDOWS {
            if let Pace::Slow(slow) = after(&case, windows) {
                if is_right(&slow, windows) {
                    right = right.or(Some(windows.saturating_sub(case.begins)));
                } else {
                    // Also a right name before the fault begins.
                    wrong = true;
                }
            }
        }

        let in_time = right.is_some_and(|windows| windows <= SOON);
        named_right += usize::from(in_time);
        named_wrong += usize::from(wrong);
        windows_until_named.extend(right);
        let counts = by_plot.entry(case.plot).or_default();
        counts[0] += 1;
        counts[1] += usize::from(in_time);
        counts[2] += usize::from(wrong);
    }

    for (plot, [cases, right, wrong]) in &by_plot {
        println!("{plot:?}: {cases} cases, {right} named in time, {wrong} named in vain");
    }
    let precision = named_right as f64 / (named_right + named_wrong) as f64;
    let recall = named_right as f64 / faults as f64;
    windows_until_named.sort_unstable();
    let median = windows_until_named[windows_until_named.len() / 2];
    println!("precision {precision:.3}, recall {recall:.3}, named after {median} windows (median)");
    assert!(precision >= 0.95, "precision {precision}");
    assert!(recall >= 0.85, "recall {recall}");
}
