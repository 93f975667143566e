//! Standard output of the commands.

use std::io::{self, ErrorKind, IsTerminal, StdoutLock, Write};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use takt_model::shown::printable_lines;

/// Whether the reader has closed standard output, as `head` does.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Standard output. Remembers that its reader has closed it: the command ends, but has not failed. A terminal gets no
/// unseen characters, whatever a command writes: names of jobs are texts of users.
pub struct Output {
    to: StdoutLock<'static>,
    is_terminal: bool,
    /// Beginning of a character whose end was not written yet.
    started: Vec<u8>,
}

/// Returns standard output, locked.
pub fn stdout() -> Output {
    let to = io::stdout().lock();
    let is_terminal = to.is_terminal();
    Output {
        to,
        is_terminal,
        started: Vec::new(),
    }
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
        // A file or a program gets the bytes as they are.
        if !self.is_terminal {
            return noting(self.to.write(bytes));
        }
        let text = whole_characters(&mut self.started, bytes);
        noting(self.to.write_all(printable_lines(&text).as_bytes()))?;
        // All bytes are taken, also those that wait for the end of their character.
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        noting(self.to.flush())
    }
}

/// Returns the text of `started` and `bytes`. The beginning of a character at the end stays in `started`: a writer with a buffer
/// may split characters.
fn whole_characters(started: &mut Vec<u8>, bytes: &[u8]) -> String {
    started.extend_from_slice(bytes);
    // An error without a length means that the text ends too early, not that it is wrong.
    let is_cut = |end: &&[u8]| str::from_utf8(end).is_err_and(|error| error.error_len().is_none());
    let unknown = started.utf8_chunks().last().map(|chunk| chunk.invalid());
    let rest = unknown.filter(is_cut).map_or(0, <[u8]>::len);
    let rest = started.split_off(started.len() - rest);
    let whole = mem::replace(started, rest);
    String::from_utf8_lossy(&whole).into_owned()
}

fn noting<T>(result: io::Result<T>) -> io::Result<T> {
    let is_pipe = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    if result.as_ref().is_err_and(is_pipe) {
        IS_CLOSED.store(true, Ordering::Relaxed);
    }
    result
}

/// Wraps a text at spaces. A word longer than the width has its own line.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().map_or("", |line| line.as_str());
        let length = line.chars().count() + 1 + word.chars().count();
        match lines.last_mut() {
            Some(line) if line.is_empty() || length <= width => {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_character_stays_whole() {
        let text = "Zoë \u{1f600} é";
        for size in 1..text.len() {
            let mut started = Vec::new();
            let pieces = text.as_bytes().chunks(size);
            let shown: String = pieces
                .map(|piece| whole_characters(&mut started, piece))
                .collect();
            assert_eq!((shown.as_str(), started.len()), (text, 0), "{size}");
        }
    }

    #[test]
    fn bytes_that_begin_no_character_do_not_wait() {
        let mut started = Vec::new();
        assert_eq!(whole_characters(&mut started, b"a\xff"), "a\u{fffd}");
        // Two of the three bytes of a character that never ends.
        assert_eq!(whole_characters(&mut started, b"\xe2\x82"), "");
        assert_eq!(whole_characters(&mut started, b"x"), "\u{fffd}x");
        assert!(started.is_empty());
    }
}
