//! Work that waits for the disk or the database, away from the threads of asynchronous tasks.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::{JoinError, JoinHandle};

type Done = Box<dyn Any + Send>;

/// Starts `work` on a thread for blocking work, as `tokio::task::spawn_blocking` does.
///
/// Tokio's task is compiled for one type, whatever the work is and returns: some hundred kinds of tasks took 20 seconds of a
/// build's CPU time.
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Blocking<T> {
    Blocking {
        task: spawn(Box::new(move || Box::new(work()))),
        result: PhantomData,
    }
}

/// Runs `work`, which may wait for the database, on a thread for blocking work. Panics if the work
/// panics.
pub async fn blocking<T>(work: impl FnOnce() -> T + Send + 'static) -> T
where
    T: Send + 'static,
{
    match spawn_blocking(work).await {
        Ok(done) => done,
        // The panic hook has reported it. The caller ends as it would without a thread.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn spawn(work: Box<dyn FnOnce() -> Done + Send>) -> JoinHandle<Done> {
    tokio::task::spawn_blocking(work)
}

/// Work on a thread of its own. It fails if the work panics.
#[derive(Debug)]
pub struct Blocking<T> {
    task: JoinHandle<Done>,
    result: PhantomData<fn() -> T>,
}

impl<T: 'static> Future for Blocking<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.task).poll(context).map_ok(|done| {
            *done
                .downcast()
                .expect("the task returns what its work returns")
        })
    }
}
