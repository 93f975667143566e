//! Threads that evaluate rules, so that the engine's thread waits for no query.
//!
//! A group has one rule under way at a time. Slow groups have threads of their own: however many
//! there are, the others find a free one.

use super::handle::{Handle, Work};
use crate::engine::RuleTask;
use crate::events::{EndAnswers, EndTask};
use crate::ports::{RuleQueries, StoreError};
use crate::state::EvalError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

/// Threads for groups that take little of their interval.
const QUICK_THREADS: usize = 4;

/// Threads for slow groups.
const SLOW_THREADS: usize = 2;

/// A question for the threads.
pub(super) enum Task {
    Rule(RuleTask),
    Ends(EndTask),
}

/// The threads. Dropping this waits for the queries under way.
pub(super) struct Pool {
    quick: Lane,
    slow: Lane,
    is_stopped: Arc<AtomicBool>,
}

/// Threads that share a queue.
struct Lane {
    tasks: Option<mpsc::Sender<Task>>,
    threads: Vec<JoinHandle<()>>,
}

/// What a thread needs.
#[derive(Clone)]
struct Worker {
    queries: Arc<dyn RuleQueries>,
    engine: Handle,
    is_stopped: Arc<AtomicBool>,
}

impl Pool {
    /// Starts the threads. Answers come back as work for the engine.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(queries: Arc<dyn RuleQueries>, engine: Handle) -> Result<Self, StoreError> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let worker = Worker {
            queries,
            engine,
            is_stopped: Arc::clone(&is_stopped),
        };

        Ok(Self {
            quick: Lane::start(QUICK_THREADS, &worker)?,
            slow: Lane::start(SLOW_THREADS, &worker)?,
            is_stopped,
        })
    }

    /// Queues a task. At most one rule of each group and one [`EndTask`] are queued.
    pub fn put(&self, task: Task) {
        let is_slow = matches!(&task, Task::Rule(rule) if rule.is_slow);
        let lane = if is_slow { &self.slow } else { &self.quick };
        if let Some(tasks) = &lane.tasks {
            let _ = tasks.send(task);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        // Closing both queues first lets the threads of both lanes end at the same time.
        for lane in [&mut self.quick, &mut self.slow] {
            lane.tasks = None;
        }

        for thread in [&mut self.quick, &mut self.slow]
            .into_iter()
            .flat_map(|lane| lane.threads.drain(..))
        {
            let _ = thread.join();
        }
    }
}

impl Lane {
    fn start(threads: usize, worker: &Worker) -> Result<Self, StoreError> {
        let (tasks, waiting) = mpsc::channel();
        let waiting = Arc::new(Mutex::new(waiting));
        let start = |_| {
            let worker = worker.clone();
            let waiting = Arc::clone(&waiting);
            thread::Builder::new()
                .name("takt-rules".to_owned())
                .spawn(move || worker.run(&waiting))
                .map_err(|error| StoreError(format!("cannot start a thread: {error}")))
        };

        Ok(Self {
            tasks: Some(tasks),
            threads: (0..threads).map(start).collect::<Result<_, _>>()?,
        })
    }
}

impl Worker {
    fn run(&self, waiting: &Mutex<mpsc::Receiver<Task>>) {
        loop {
            // The lock is held while waiting: the other threads of the lane queue for
            // it, and one gets the next task.
            let next = waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv();

            let Ok(task) = next else { return };
            // Tasks that still wait are dropped: the state has no use for their answers after the end.
            if self.is_stopped.load(Ordering::Relaxed) {
                return;
            }
            // The engine is gone only when the process ends.
            let _ = self.engine.put_always(self.answer(task));
        }
    }

    /// The answer to a task. After a panic, which would stop the group for ever, it is a failure.
    fn answer(&self, task: Task) -> Work {
        let queries = &*self.queries;
        match task {
            Task::Rule(task) => {
                // Made before the task is consumed: after a panic it is gone.
                let failure = task.failure(EvalError::Panicked);
                let states = |at, watched_since| queries.exporter_states(at, watched_since);
                let run = || task.run(queries, &states);
                let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or(failure);
                Work::Evaluated(Box::new(outcome))
            }
            Task::Ends(task) => {
                let answers = catch_unwind(AssertUnwindSafe(|| task.run(queries)));
                Work::Ends(answers.unwrap_or_else(|_| EndAnswers::default()))
            }
        }
    }
}
