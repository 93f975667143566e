//! Why a command or the server ended without success.

/// A failed command.
#[derive(Debug)]
pub enum Failure {
    /// What was asked makes no sense: flags, configuration, a period. Exit code 2.
    Usage(anyhow::Error),
    /// It was tried and did not work. Exit code 1.
    Failed(anyhow::Error),
}

impl Failure {
    /// Whether the reader of our output went away, as `head` does: no error of ours.
    pub fn is_broken_pipe(&self) -> bool {
        let (Self::Usage(error) | Self::Failed(error)) = self;
        error.chain().any(|cause| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
        })
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        match error.downcast_ref::<crate::api::Problem>() {
            Some(problem) if problem.is_usage() => Self::Usage(error),
            _ => Self::Failed(error),
        }
    }
}

/// `result.usage()?`: an error that the user's words caused.
pub trait OrUsage<T> {
    /// Marks an error as one of usage or configuration.
    fn usage(self) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrUsage<T> for Result<T, E> {
    fn usage(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::Usage(error.into()))
    }
}
