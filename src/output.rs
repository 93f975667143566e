//! Standard output of the commands.

use std::io::{self, ErrorKind, IsTerminal, StdoutLock, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use takt_model::shown::printable_lines;

/// Whether the reader has closed standard output, as `head` does.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Standard output. Remembers that its reader has closed it: the command ends, but has not failed. A terminal gets no
/// unseen characters, whatever a command writes: names of jobs are texts of users.
pub struct Output {
    to: StdoutLock<'static>,
    is_terminal: bool,
}

/// Returns standard output, locked.
pub fn stdout() -> Output {
    let to = io::stdout().lock();
    let is_terminal = to.is_terminal();
    Output { to, is_terminal }
}

/// Returns whether the reader has closed standard output.
pub fn is_closed() -> bool {
    IS_CLOSED.load(Ordering::Relaxed)
}

/// Returns the width of the terminal that shows standard output, in characters. `None` if
/// standard output is a file or a pipe, which have no width.
pub fn width() -> Option<usize> {
    let stdout = stdout();
    let size = terminal_size::terminal_size_of(&stdout.to);
    size.filter(|_| stdout.is_terminal)
        .map(|(width, _)| usize::from(width.0))
        .filter(|width| *width > 0)
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return noting(self.to.write(bytes));
        }
        // Commands write whole texts, so no character is split.
        let text = String::from_utf8_lossy(bytes);
        noting(self.to.write_all(printable_lines(&text).as_bytes()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        noting(self.to.flush())
    }
}

fn noting<T>(result: io::Result<T>) -> io::Result<T> {
    let is_pipe = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    if result.as_ref().is_err_and(is_pipe) {
        IS_CLOSED.store(true, Ordering::Relaxed);
    }
    result
}
