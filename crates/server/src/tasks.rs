//! The named background tasks of a running server. A task that ends early is restarted.
//!
//! A task must run until its [`CancellationToken`] is cancelled. If it returns or panics before,
//! the supervisor logs an error, counts it in `takt_server_task_restarts_total`, which fires the
//! alert `TaktTaskRestarted` (`takt.rules.yml`), and restarts the task after a pause. The pause
//! doubles from one to sixty seconds while the task keeps failing.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::env;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

/// Pauses between an early end and the restart.
#[derive(Debug, Clone, Copy)]
struct RestartPauses {
    first: Duration,
    longest: Duration,
    /// Running time after which the pause before the next restart is the first pause again.
    healthy_after: Duration,
}

const PAUSES: RestartPauses = RestartPauses {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
    healthy_after: Duration::from_secs(300),
};

impl RestartPauses {
    /// Returns the pause after a task that ran for `ran`. `last` is the previous pause.
    fn next(self, last: Option<Duration>, ran: Duration) -> Duration {
        match last {
            // A task that ran for a while has failed for a new reason, so the pause begins again.
            Some(last) if ran < self.healthy_after => (last * 2).min(self.longest),
            _ => self.first,
        }
    }
}

/// Environment variable with the name of a task to kill once, shortly after its start. Tests use it
/// to check the restart of each task.
const KILL_VARIABLE: &str = "TAKT_KILL_TASK";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabel {
    task: &'static str,
}

#[derive(Debug, Clone, Default)]
struct TaskMetrics {
    running: Family<TaskLabel, Gauge>,
    restarts: Family<TaskLabel, Counter>,
}

/// Starts, restarts and stops tasks.
#[derive(Debug)]
pub struct Supervisor {
    stop: CancellationToken,
    metrics: TaskMetrics,
    tasks: Vec<(&'static str, JoinHandle<()>)>,
}

impl Supervisor {
    /// Creates a supervisor without tasks. Registers its metrics in `registry`.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = TaskMetrics::default();
        registry.register(
            "takt_server_task_running",
            "Whether a background task of the server is running",
            metrics.running.clone(),
        );
        registry.register(
            "takt_server_task_restarts",
            "Background tasks that ended early and were restarted",
            metrics.restarts.clone(),
        );
        Self {
            stop: CancellationToken::new(),
            metrics,
            tasks: Vec::new(),
        }
    }

    /// Returns the token that [`shutdown`](Self::shutdown) cancels.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Starts a task and keeps it running. Calls `start` for the first run and for each restart.
    /// The returned future must run until the token is cancelled.
    pub fn spawn<Start, Task>(&mut self, name: &'static str, mut start: Start)
    where
        Start: FnMut(CancellationToken) -> Task + Send + 'static,
        Task: Future<Output = ()> + Send + 'static,
    {
        let label = TaskLabel { task: name };
        // If the counter exists from the start, `increase()` shows the first restart.
        drop(self.metrics.restarts.get_or_create(&label));
        let start = Box::new(move |stop| -> BoxFuture { Box::pin(start(stop)) });
        let supervised = supervise(name, start, self.stop.clone(), self.metrics.clone());
        self.tasks.push((name, tokio::spawn(supervised)));
    }

    /// Cancels all tasks and waits for them. Aborts tasks that do not end within `grace`.
    pub async fn shutdown(self, grace: Duration) {
        self.stop.cancel();

        // All tasks have the same deadline, so a slow one does not add to the others' time.
        let deadline = Instant::now() + grace;
        for (name, mut task) in self.tasks {
            if time::timeout_at(deadline, &mut task).await.is_err() {
                tracing::warn!(task = name, "the task did not stop in time and was aborted");
                task.abort();
                // The result is the abort.
                let _ = task.await;
            }
        }
    }
}

/// A task, boxed so that the supervisor is compiled once.
type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

async fn supervise(
    name: &'static str,
    mut start: Box<dyn FnMut(CancellationToken) -> BoxFuture + Send>,
    stop: CancellationToken,
    metrics: TaskMetrics,
) {
    let label = TaskLabel { task: name };
    let running = metrics.running.get_or_create(&label).clone();
    let restarts = metrics.restarts.get_or_create(&label).clone();

    let mut pause = None;
    loop {
        let started = Instant::now();
        running.set(1);
        let ended = run_once(name, start(stop.clone())).await;
        running.set(0);
        // At the shutdown, an end is what was asked for.
        if stop.is_cancelled() {
            return;
        }

        let wait = PAUSES.next(pause, started.elapsed());
        let error = match ended {
            Ok(()) => "it returned".to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::error!(
            task = name,
            error,
            restart_in_seconds = wait.as_secs(),
            "a background task ended early"
        );
        restarts.inc();
        // A shutdown must not wait for the pause.
        tokio::select! {
            () = stop.cancelled() => return,
            () = time::sleep(wait) => {}
        }
        pause = Some(wait);
    }
}

/// Runs the task in its own Tokio task, so that a panic does not end the supervisor. The task is
/// aborted with its supervisor.
async fn run_once(name: &'static str, task: BoxFuture) -> Result<(), JoinError> {
    let task = AbortOnDrop(tokio::spawn(task));
    // Only in tests of the whole server.
    if is_to_be_killed(name) {
        time::sleep(PAUSES.first).await;
        task.0.abort();
    }
    task.join().await
}

struct AbortOnDrop(JoinHandle<()>);

impl AbortOnDrop {
    async fn join(mut self) -> Result<(), JoinError> {
        (&mut self.0).await
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns whether a test requests the end of this task; true only once.
fn is_to_be_killed(name: &str) -> bool {
    static WAS_KILLED: AtomicBool = AtomicBool::new(false);

    env::var(KILL_VARIABLE).is_ok_and(|chosen| chosen == name)
        && !WAS_KILLED.swap(true, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use tokio::task;
    use tokio::time;

    fn page(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[tokio::test]
    async fn a_task_that_panics_or_returns_is_started_again() {
        let mut registry = Registry::default();
        let mut supervisor = Supervisor::new(&mut registry);

        let starts = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&starts);
        supervisor.spawn("worker", move |stop| {
            let start = counted.fetch_add(1, Ordering::Relaxed);
            // The first run panics, the second returns, and the third stays.
            async move {
                match start {
                    0 => panic!("the first run fails"),
                    1 => {}
                    _ => stop.cancelled().await,
                }
            }
        });

        let deadline = Instant::now() + Duration::from_secs(30);
        while starts.load(Ordering::Relaxed) < 3 && Instant::now() < deadline {
            time::sleep(Duration::from_millis(10)).await;
        }

        assert_eq!(starts.load(Ordering::Relaxed), 3);
        let text = page(&registry);
        assert!(
            text.contains("takt_server_task_restarts_total{task=\"worker\"} 2"),
            "{text}"
        );
        assert!(text.contains("takt_server_task_running{task=\"worker\"} 1"));

        supervisor.shutdown(Duration::from_secs(1)).await;
        assert!(page(&registry).contains("takt_server_task_running{task=\"worker\"} 0"));
        assert_eq!(starts.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn pauses_double_up_to_a_minute_while_a_task_keeps_failing() {
        // Each run lasts five seconds, far below what counts as healthy.
        let mut pause = None;
        let mut seconds = Vec::new();
        for _ in 0..8 {
            let wait = PAUSES.next(pause, Duration::from_secs(5));
            seconds.push(wait.as_secs());
            pause = Some(wait);
        }
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(PAUSES.next(pause, PAUSES.healthy_after), PAUSES.first);
    }

    #[tokio::test]
    async fn a_task_that_does_not_stop_is_aborted() {
        let mut supervisor = Supervisor::new(&mut Registry::default());
        // The count of references shows whether the task was dropped.
        let guard = Arc::new(());
        let held = Arc::clone(&guard);
        supervisor.spawn("deaf", move |_| {
            let held = Arc::clone(&held);
            async move {
                std::future::pending::<()>().await;
                drop(held);
            }
        });

        time::sleep(Duration::from_millis(50)).await;
        supervisor.shutdown(Duration::from_millis(200)).await;
        task::yield_now().await;
        assert_eq!(Arc::strong_count(&guard), 1);
    }
}
