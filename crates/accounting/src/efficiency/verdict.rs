//! The verdict on a run: one word and one sentence.

use super::hints::{count, percent};
use super::{Efficiency, EfficiencyConfig};
use serde::{Deserialize, Serialize};
use takt_jobs::JobRun;

/// Verdict on the use of an allocation, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// At most 15 % of the measured time was wasted.
    Good,
    /// At most half of the measured time was wasted.
    Fair,
    /// More than half of the measured time was wasted.
    Poor,
    /// The run has held its resources for a few minutes only.
    TooEarly,
    /// The run ended within a few minutes.
    TooShort,
    /// Too little of the run was measured.
    Unmeasured,
    /// The cluster failed, not the run.
    Lost,
}

impl Grade {
    /// Returns the grade as a word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Fair => "fair",
            Self::Poor => "poor",
            Self::TooEarly => "too early",
            Self::TooShort => "too short",
            Self::Unmeasured => "not measured",
            Self::Lost => "lost",
        }
    }
}

/// Verdict on the use of an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The verdict in one word.
    pub grade: Grade,
    /// The verdict as a sentence with its figures, without a full stop.
    pub words: String,
}

/// Run time below which no verdict is given, in seconds: programs load their data first.
const EARLY_SECONDS: u64 = 600;

/// Highest wasted fraction of a good run.
const GOOD: f64 = 0.15;

/// Highest wasted fraction of a fair run.
const FAIR: f64 = 0.5;

/// Returns the verdict on a run. `is_final` is false while the run holds its resources.
pub fn verdict(
    run: &JobRun,
    seen: &Efficiency,
    rules: &EfficiencyConfig,
    is_final: bool,
) -> Verdict {
    let verdict = |grade, words| Verdict { grade, words };

    // A fault comes before all figures: they are not the user's.
    if let Some(fault) = &seen.fault {
        return verdict(Grade::Lost, format!("a fault ended it: {fault}"));
    }

    if seen.held_seconds < EARLY_SECONDS {
        let (grade, what) = if is_final {
            (Grade::TooShort, "it was short")
        } else {
            (Grade::TooEarly, "it has just begun")
        };
        return verdict(
            grade,
            format!("{what}: ten minutes are needed for a verdict"),
        );
    }

    if !seen.is_measured(rules) {
        let words = if seen.coverage_ratio > 0.0 {
            let share = percent(seen.coverage_ratio);
            format!("only {share} of its time was measured, too little for a verdict")
        } else {
            "its use was not measured".to_owned()
        };
        return verdict(Grade::Unmeasured, words);
    }

    let gpus = run.gpus.unwrap_or(0);
    if gpus == 0 {
        return on_cpus(run, seen);
    }

    let split = seen.split();
    // Only measured time can be judged; the division must not be by 0.
    let wasted = split.wasted() / split.measured().max(1.0);
    let held = count(gpus, "GPU");
    let busy = percent(seen.gpu_utilization_mean.unwrap_or(0.0));

    let words = match seen.gpus_idle {
        0 => format!("its {held} {} busy {busy} of the time", were(gpus)),
        idle if idle >= gpus => format!("its {held} did nothing"),
        idle => format!("{idle} of its {held} did nothing; all together were busy {busy}"),
    };

    verdict(grade(wasted), words)
}

fn on_cpus(run: &JobRun, seen: &Efficiency) -> Verdict {
    let cpus = count(run.cpus.unwrap_or(0), "CPU");
    match seen.cpu_ratio {
        // More CPU time than the allocation counts as full use.
        Some(ratio) => Verdict {
            grade: grade(1.0 - ratio.min(1.0)),
            words: format!("{} of its {cpus} was used", percent(ratio)),
        },
        None => Verdict {
            grade: Grade::Unmeasured,
            words: "its use of CPUs was not measured".to_owned(),
        },
    }
}

fn grade(wasted: f64) -> Grade {
    if wasted <= GOOD {
        Grade::Good
    } else if wasted <= FAIR {
        Grade::Fair
    } else {
        Grade::Poor
    }
}

fn were(count: u64) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(gpus: u64, seen: Efficiency, is_final: bool) -> (Grade, String) {
        let run = JobRun {
            gpus: Some(gpus),
            cpus: Some(8),
            ..JobRun::default()
        };
        let verdict = verdict(&run, &seen, &EfficiencyConfig::default(), is_final);
        (verdict.grade, verdict.words)
    }

    fn seen(used: f64, idle: f64, mean: f64, gpus_idle: u64) -> Efficiency {
        Efficiency {
            held_seconds: 3600,
            coverage_ratio: 1.0,
            used_gpu_seconds: used,
            waste_idle_gpu_seconds: idle,
            gpu_utilization_mean: Some(mean),
            gpus_idle,
            ..Efficiency::default()
        }
    }

    #[test]
    fn verdicts_in_words() {
        assert_eq!(
            of(1, seen(3600.0, 0.0, 0.92, 0), true),
            (
                Grade::Good,
                "its 1 GPU was busy 92 % of the time".to_owned()
            )
        );
        assert_eq!(
            of(2, seen(3600.0, 3600.0, 0.45, 1), true),
            (
                Grade::Fair,
                "1 of its 2 GPUs did nothing; all together were busy 45 %".to_owned()
            )
        );
        assert_eq!(
            of(2, seen(0.0, 7200.0, 0.0, 2), true),
            (Grade::Poor, "its 2 GPUs did nothing".to_owned())
        );
    }

    #[test]

    fn without_measurements_or_time_there_is_no_verdict() {
        let little = Efficiency {
            coverage_ratio: 0.2,
            ..seen(1.0, 0.0, 0.9, 0)
        };
        assert_eq!(
            of(1, little, true),
            (
                Grade::Unmeasured,
                "only 20 % of its time was measured, too little for a verdict".to_owned()
            )
        );
        let early = Efficiency {
            held_seconds: 60,
            ..seen(0.0, 60.0, 0.0, 1)
        };
        assert_eq!(of(1, early.clone(), false).0, Grade::TooEarly);
        assert_eq!(
            of(1, early, true),
            (
                Grade::TooShort,
                "it was short: ten minutes are needed for a verdict".to_owned()
            )
        );
        let lost = Efficiency {
            fault: Some("node failed".into()),
            ..Efficiency::default()
        };
        assert_eq!(
            of(1, lost, true),
            (Grade::Lost, "a fault ended it: node failed".to_owned())
        );
        let cpus = Efficiency {
            held_seconds: 3600,
            cpu_ratio: Some(0.25),
            coverage_ratio: 1.0,
            ..Efficiency::default()
        };
        assert_eq!(
            of(0, cpus, true),
            (Grade::Poor, "25 % of its 8 CPUs was used".to_owned())
        );
    }
}
