//! Runs a simulation with many seeds, and reports the first that fails.

use std::collections::VecDeque;
use std::env;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Lines that are printed of a seed that fails; `TAKT_SIMULATION_LINES` sets another number.
const LINES_PRINTED: usize = 50;

/// A promise that was not kept.
#[derive(Debug)]
pub struct Broken {
    /// The promise.
    pub promise: &'static str,
    /// What happened instead.
    pub detail: String,
}

/// Checks a promise.
pub fn ensure(
    kept: bool,
    promise: &'static str,
    detail: impl FnOnce() -> String,
) -> Result<(), Broken> {
    if kept {
        return Ok(());
    }
    let detail = detail();
    Err(Broken { promise, detail })
}

/// The steps of a run. Texts are kept only while a failing seed is repeated.
#[derive(Debug, Default)]
pub struct Trace {
    /// Steps so far.
    pub steps: usize,
    texts: Option<VecDeque<String>>,
    lines: usize,
}

impl Trace {
    /// Notes what a step does.
    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(texts) = &mut self.texts {
            texts.push_back(format!("{:>7}  {}", self.steps, text()));
            // Only the last lines are kept: a run has many thousands.
            if texts.len() > self.lines {
                texts.pop_front();
            }
        }
    }
}

/// A simulation: a seed, the number of steps, and the trace.
pub type Simulation = fn(u64, usize, &mut Trace) -> Result<(), Broken>;

/// Size of a test.
pub struct Size {
    pub seeds: usize,
    pub steps: usize,
}

/// Runs `simulation` with seeds that are always the same. With `TAKT_SIMULATION_RANDOM=1`, half of
/// the seeds are new at each run. `TAKT_SIMULATION_SEED` runs one seed, `TAKT_SIMULATION_SEEDS` and `TAKT_SIMULATION_STEPS` set
/// number and length.
pub fn run(test: &'static str, size: Size, simulation: Simulation) {
    let steps = number("TAKT_SIMULATION_STEPS").map_or(size.steps, |steps| steps as usize);
    let seeds = number("TAKT_SIMULATION_SEEDS").map_or(size.seeds, |seeds| seeds as usize);
    let seeds: Vec<u64> = match number("TAKT_SIMULATION_SEED") {
        Some(seed) => vec![seed],
        None => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            // Seconds since 1970, shifted, so that the new seeds of two runs do not overlap.
            let new = since.as_secs() << 20;
            let is_random = number("TAKT_SIMULATION_RANDOM").is_some_and(|number| number > 0);
            let fixed = if is_random { seeds.div_ceil(2) } else { seeds };
            (0..fixed)
                .map(|n| n as u64)
                .chain((fixed..seeds).map(|n| new + n as u64))
                .collect()
        }
    };

    let begun = Instant::now();
    let done = AtomicUsize::new(0);
    let next = AtomicUsize::new(0);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    // A failing seed panics in its thread, and `scope` passes the panic on.
    thread::scope(|scope| {
        let run_some = || {
            while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut trace = Trace::default();
                if simulation(*seed, steps, &mut trace).is_err() {
                    panic!("{}", Failure::of(test, *seed, steps, simulation));
                }
                done.fetch_add(trace.steps, Ordering::Relaxed);
            }
        };
        for _ in 0..workers.min(seeds.len()) {
            scope.spawn(run_some);
        }
    });

    eprintln!(
        "{test}: {} steps of {} seeds in {:.1} s; seeds {seeds:?}",
        done.into_inner(),
        seeds.len(),
        begun.elapsed().as_secs_f64()
    );
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap())
}

/// A failing seed with its last steps.
struct Failure {
    test: &'static str,
    seed: u64,
    steps: usize,
    trace: Trace,
    broken: Broken,
}

impl Failure {
    /// Repeats the seed to get the texts of its last steps.
    fn of(test: &'static str, seed: u64, steps: usize, simulation: Simulation) -> Self {
        let mut trace = Trace {
            texts: Some(VecDeque::new()),
            lines: number("TAKT_SIMULATION_LINES").map_or(LINES_PRINTED, |lines| lines as usize),
            ..Trace::default()
        };
        // The same seed once more, with texts. Another result would be a mistake of the simulation itself.
        let broken = simulation(seed, steps, &mut trace)
            .err()
            .unwrap_or_else(|| Broken {
                promise: "a seed always gives the same run",
                detail: "the seed does not fail again".to_owned(),
            });
        Self {
            test,
            seed,
            steps,
            trace,
            broken,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            test, seed, steps, ..
        } = self;
        for text in self.trace.texts.iter().flatten() {
            writeln!(f, "{text}")?;
        }
        writeln!(f, "seed {seed}, step {}:", self.trace.steps)?;
        writeln!(f, "  promised: {}", self.broken.promise)?;
        writeln!(f, "  but: {}", self.broken.detail)?;
        write!(
            f,
            "repeat with: TAKT_SIMULATION_SEED={seed} TAKT_SIMULATION_STEPS={steps} cargo test \
             --release -p takt-server --test simulation -- {test}"
        )
    }
}
