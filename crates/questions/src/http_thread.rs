//! Requests that any thread may wait for, also one that blocks.

use std::io;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, sync_channel};
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

/// A thread that carries out requests.
#[derive(Debug)]
pub(crate) struct HttpThread {
    /// Always there; taken when dropped.
    runtime: Option<Runtime>,
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    /// Gives the reply, once.
    pub reply: Receiver<T>,
    /// Ends the request.
    pub abort: AbortHandle,
}

impl HttpThread {
    /// Starts the thread.
    pub fn start(name: &str) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        // One worker: it waits for the network most of the time.
        let builder = builder.worker_threads(1).thread_name(name).enable_all();
        Ok(Self {
            runtime: Some(builder.build()?),
        })
    }

    /// Begins a request.
    pub fn begin<T>(&self, request: impl Future<Output = T> + Send + 'static) -> Option<InFlight<T>>
    where
        T: Send + 'static,
    {
        // One place: the sender never waits for the receiver.
        let (sender, reply) = sync_channel(1);
        // Boxed, so that Tokio's task is compiled for one type.
        let task: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            // Nobody waits any more if this fails.
            let _ = sender.send(request.await);
        });
        let task = self.runtime.as_ref()?.spawn(task);
        let abort = task.abort_handle();
        Some(InFlight { reply, abort })
    }
}

impl Drop for HttpThread {
    fn drop(&mut self) {
        // The last owner may be a task, where waiting for a runtime panics.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
