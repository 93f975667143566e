//! Kinds of jobs: how each uses its GPUs, CPUs and memory over time.

use crate::noise::wobble;

/// Kind of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Uses its GPUs well.
    Steady,
    /// Waits for data between bursts; its CPUs are busy preparing them.
    Sawtooth,
    /// Uses a fifth of its GPUs all the time.
    Low,
    /// Never uses its GPUs.
    Unused,
    /// Works for a while, then hangs until it is ended.
    Hung,
    /// Uses the first of its GPUs only.
    OneOfMany,
    /// One GPU works all the time; the others wait for it.
    Straggler,
    /// Pauses for a minute every half hour to write a checkpoint.
    Checkpoints,
    /// A notebook: short bursts, then nothing for a long time.
    Notebook,
    /// Has no GPUs.
    Cpu,
}

/// State of a job at an instant, as far as it matters for its readings.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Seconds since the start of the job.
    pub elapsed: i64,
    /// Seconds after which a job of the kind [`Kind::Hung`] hangs.
    pub hangs_after: i64,
    /// Position of the GPU among those of the job.
    pub rank: usize,
    /// Seed of the job.
    pub seed: u64,
}

const HALF_HOUR: i64 = 1800;
const CHECKPOINT_SECONDS: i64 = 60;
const SAWTOOTH_SECONDS: i64 = 80;
const BURST_EVERY: i64 = 5400;
const BURST_SECONDS: i64 = 420;

impl Kind {
    /// Returns the utilization of one GPU, 0 to 1.
    pub fn utilization(self, moment: Moment) -> f64 {
        let Moment {
            elapsed,
            hangs_after,
            rank,
            seed,
        } = moment;
        // The first minutes load data and compile.
        if elapsed < 90 && self != Self::Unused {
            return 0.0;
        }
        // Each GPU of a job has noise of its own, and the same one each time it is read.
        let noise = wobble(seed ^ rank as u64, elapsed);
        let around = |level: f64, width: f64| (level + width * noise).clamp(0.0, 1.0);
        match self {
            Self::Steady => around(0.93, 0.05),
            Self::Sawtooth if elapsed % SAWTOOTH_SECONDS < SAWTOOTH_SECONDS / 3 => {
                around(0.92, 0.06)
            }
            Self::Sawtooth => around(0.06, 0.05),
            Self::Low => around(0.19, 0.08),
            Self::Unused | Self::Cpu => 0.0,
            Self::Hung if elapsed >= hangs_after => 0.0,
            Self::Hung => around(0.9, 0.06),
            Self::OneOfMany if rank == 0 => around(0.9, 0.07),
            Self::OneOfMany => 0.0,
            Self::Straggler if rank == 0 => around(0.97, 0.02),
            Self::Straggler => around(0.45, 0.1),
            Self::Checkpoints if elapsed % HALF_HOUR < CHECKPOINT_SECONDS => 0.0,
            Self::Checkpoints => around(0.95, 0.04),
            Self::Notebook if elapsed % BURST_EVERY < BURST_SECONDS => around(0.55, 0.3),
            Self::Notebook => 0.0,
        }
    }

    /// Returns the mean utilization of one GPU until the job hangs.
    pub fn mean_utilization(self, rank: usize) -> f64 {
        match self {
            Self::Steady => 0.93,
            Self::Sawtooth => 0.92 / 3.0 + 0.06 * 2.0 / 3.0,
            Self::Low => 0.19,
            Self::Unused | Self::Cpu => 0.0,
            Self::Hung => 0.9,
            Self::OneOfMany => {
                if rank == 0 {
                    0.9
                } else {
                    0.0
                }
            }
            Self::Straggler => {
                if rank == 0 {
                    0.97
                } else {
                    0.45
                }
            }
            Self::Checkpoints => 0.95 * (1.0 - CHECKPOINT_SECONDS as f64 / HALF_HOUR as f64),
            Self::Notebook => 0.55 * BURST_SECONDS as f64 / BURST_EVERY as f64,
        }
    }

    /// Returns the used share of the memory of one GPU, 0 to 1.
    pub fn gpu_memory(self, moment: Moment) -> f64 {
        match self {
            Self::Unused | Self::Cpu => 0.0,
            Self::OneOfMany if moment.rank > 0 => 0.0,
            Self::Low => 0.18,
            Self::Notebook => 0.11,
            // The framework is loaded, the model is not yet.
            _ if moment.elapsed < 90 => 0.05,
            // Between 62 and 92 percent, by job.
            _ => 0.62 + 0.3 * ((moment.seed % 97) as f64 / 97.0),
        }
    }

    /// Returns the busy share of the CPUs of the job, 0 to 1.
    pub fn cpu(self) -> f64 {
        match self {
            Self::Sawtooth => 0.97,
            Self::Cpu => 0.92,
            Self::Steady | Self::Checkpoints | Self::Straggler | Self::Hung => 0.34,
            Self::Low | Self::OneOfMany => 0.2,
            Self::Unused => 0.02,
            Self::Notebook => 0.04,
        }
    }

    /// Returns the used share of the requested memory, 0 to 1.
    pub fn memory(self) -> f64 {
        match self {
            Self::Unused | Self::Notebook => 0.08,
            Self::Low => 0.2,
            Self::Cpu => 0.7,
            _ => 0.55,
        }
    }

    /// Returns the bytes that the job reads from the NFS server in a second on each node.
    pub fn read_bytes_per_second(self) -> f64 {
        match self {
            Self::Sawtooth => 9e7,
            Self::Steady | Self::Checkpoints | Self::Straggler | Self::Hung => 3e7,
            Self::Cpu | Self::Low => 5e6,
            Self::OneOfMany => 1e7,
            Self::Unused | Self::Notebook => 2e4,
        }
    }

    /// Returns a job name that fits.
    pub fn job_name(self, number: u32) -> &'static str {
        let names: &[&str] = match self {
            Self::Steady => &["train-vit", "pretrain", "finetune-7b", "diffusion"],
            Self::Sawtooth => &["train-video", "segment", "detect"],
            Self::Low => &["evaluate", "inference", "embed"],
            Self::Unused => &["debug", "sleep", "reserve-gpu"],
            Self::Hung => &["train-gan", "ddp-run"],
            Self::OneOfMany => &["train-resnet", "sweep"],
            Self::Straggler => &["ddp-train", "fsdp-70b"],
            Self::Checkpoints => &["pretrain-long", "protein-fold"],
            Self::Notebook => &["jupyter", "interactive"],
            Self::Cpu => &["preprocess", "simulate", "postprocess"],
        };
        names[number as usize % names.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 10] = [
        Kind::Steady,
        Kind::Sawtooth,
        Kind::Low,
        Kind::Unused,
        Kind::Hung,
        Kind::OneOfMany,
        Kind::Straggler,
        Kind::Checkpoints,
        Kind::Notebook,
        Kind::Cpu,
    ];

    /// Counters grow by the mean, gauges show the momentary value: both must describe one job.
    #[test]
    fn the_mean_is_that_of_the_momentary_values() {
        for kind in KINDS {
            for rank in [0, 1] {
                // Sixteen bursts are one day, and a multiple of each other period.
                let day = 90..90 + 16 * BURST_EVERY;
                let seconds = day.end - day.start;
                let sum: f64 = day
                    .map(|elapsed| {
                        kind.utilization(Moment {
                            elapsed,
                            hangs_after: i64::MAX,
                            rank,
                            seed: 5,
                        })
                    })
                    .sum();
                let mean = sum / seconds as f64;
                let expected = kind.mean_utilization(rank);
                assert!((mean - expected).abs() < 0.02, "{kind:?} {rank}: {mean}");
            }
        }
    }

    #[test]
    fn a_hung_job_does_nothing_after_it_hangs() {
        let at = |elapsed| {
            Kind::Hung.utilization(Moment {
                elapsed,
                hangs_after: 3600,
                rank: 0,
                seed: 1,
            })
        };
        // The last second before it hangs, and the first one after.
        assert!(at(3599) > 0.5);
        assert_eq!(at(3600), 0.0);
    }
}
