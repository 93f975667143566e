//! Failures of commands and of the server.

use takt_questions::AnswerError;

/// A failed command.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage: flags, configuration, a period. Exit code 2.
    Usage(anyhow::Error),
    /// The command failed. Exit code 1.
    Failed(anyhow::Error),
}

impl<E> From<E> for Failure
where
    E: Into<anyhow::Error>,
{
    fn from(error: E) -> Self {
        let error = error.into();
        // A wrong question of the user is no failure of the command, and has its own exit code.
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

impl<T, E> OrUsage<T> for Result<T, E>
where
    E: Into<anyhow::Error>,
{
    fn usage(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::Usage(error.into()))
    }
}
