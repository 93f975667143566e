//! Failures of commands and of the server.

use crate::answers::AnswerError;

/// A failed command.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage: flags, configuration, a period. Exit code 2.
    Usage(anyhow::Error),
    /// The command failed. Exit code 1.
    Failed(anyhow::Error),
}

impl Failure {
    /// Returns whether the reader of the output closed it, as `head` does. This is not an error. A broken connection to the
    /// server is one.
    pub fn is_broken_pipe(&self) -> bool {
        let (Self::Usage(error) | Self::Failed(error)) = self;
        let of_request = error.chain().any(|cause| cause.is::<reqwest::Error>());
        !of_request
            && error.chain().any(|cause| {
                cause
                    .downcast_ref::<std::io::Error>()
                    .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
            })
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        match error.downcast_ref::<AnswerError>() {
            Some(answer) if answer.is_usage() => Self::Usage(error),
            _ => Self::Failed(error),
        }
    }
}

/// `result.usage()?`: marks an error as wrong usage.
pub trait OrUsage<T> {
    /// Marks an error as wrong usage or configuration.
    fn usage(self) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrUsage<T> for Result<T, E> {
    fn usage(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::Usage(error.into()))
    }
}
