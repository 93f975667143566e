//! Standard output of the commands.

use std::io::{self, ErrorKind, IsTerminal, StdoutLock, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the reader has closed standard output, as `head` does.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Standard output. Remembers that its reader has closed it: the command ends, but has not failed.
pub struct Output(StdoutLock<'static>);

/// Returns standard output, locked.
pub fn stdout() -> Output {
    Output(io::stdout().lock())
}

/// Returns whether the reader has closed standard output.
pub fn is_closed() -> bool {
    IS_CLOSED.load(Ordering::Relaxed)
}

/// Returns the width of the terminal that shows standard output, in characters. `None` if
/// standard output is a file or a pipe, which have no width.
pub fn width() -> Option<usize> {
    let stdout = stdout();
    let size = terminal_size::terminal_size_of(&stdout.0);
    let is_terminal = stdout.0.is_terminal();
    size.filter(|_| is_terminal)
        .map(|(width, _)| usize::from(width.0))
        .filter(|width| *width > 0)
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        noting(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        noting(self.0.flush())
    }
}

fn noting<T>(result: io::Result<T>) -> io::Result<T> {
    let is_pipe = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    if result.as_ref().is_err_and(is_pipe) {
        IS_CLOSED.store(true, Ordering::Relaxed);
    }
    result
}
