//! Reads a text line by line, plain or gzip-compressed, with a limit on the length of a line.
//!
//! The rest of a longer line is passed over: users choose some of the texts, and none of them may
//! end an import.

use flate2::bufread::MultiGzDecoder;
use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};
use std::mem;

/// Maximum length of a line in bytes. sacct's longest fields (`SubmitLine`, `Comment`) are much
/// shorter.
pub const MAX_LINE_BYTES: u64 = 1 << 20;

/// Error while reading a text.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {name} after line {line}")]
pub struct LinesError {
    /// File name.
    name: String,
    /// Number of the last line that was read.
    line: u64,
    /// Cause.
    source: io::Error,
}

/// The lines of one text. An error ends the iteration.
pub(super) struct Lines<'i> {
    name: String,
    input: Box<dyn BufRead + 'i>,
    line: u64,
    row: Vec<u8>,
    is_cut: bool,
    is_put_back: bool,
    done: bool,
}

impl<'i> Lines<'i> {
    /// Opens a text and detects gzip by its first bytes. `name` is the file's name in errors.
    pub fn open(input: impl Read + 'i, name: &str) -> Result<Self, LinesError> {
        let input = decompressed(input).map_err(|source| LinesError {
            name: name.to_owned(),
            line: 0,
            source: explained(source),
        })?;
        Ok(Self {
            name: name.to_owned(),
            input,
            line: 0,
            row: Vec::new(),
            is_cut: false,
            is_put_back: false,
            done: false,
        })
    }

    /// Returns the next line without its line break, or `None` at the end.
    pub fn next(&mut self) -> Option<Result<&[u8], LinesError>> {
        if self.done {
            return None;
        }
        // The line was read, and counted, before.
        if mem::take(&mut self.is_put_back) {
            return Some(Ok(&self.row));
        }
        match self.read() {
            Ok(true) => Some(Ok(&self.row)),
            Ok(false) => {
                self.done = true;
                None
            }
            Err(source) => {
                // After an error the position in the text is unknown, so nothing more is read.
                self.done = true;
                Some(Err(LinesError {
                    name: self.name.clone(),
                    line: self.line,
                    source: explained(source),
                }))
            }
        }
    }

    /// Returns the current line from [`Lines::next`] again: it belongs to the next record.
    pub fn put_back(&mut self) {
        self.is_put_back = true;
    }

    /// Returns the number of the current line, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Returns the current line. Invalid UTF-8 is replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.row)
    }

    /// Returns whether the current line was longer than [`MAX_LINE_BYTES`].
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn read(&mut self) -> io::Result<bool> {
        self.row.clear();

        self.is_cut = false;
        // The limit holds before the line is in memory: a file without line feeds would take as much as it has.
        if (&mut self.input)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut self.row)?
            == 0
        {
            return Ok(false);
        }
        self.line += 1;
        // A last line without a line feed is a line, too, unless it has exactly the longest length.
        if self.row.last() == Some(&b'\n') {
            self.row.pop();
        } else if self.row.len() as u64 == MAX_LINE_BYTES {
            self.is_cut = true;
            self.input.skip_until(b'\n')?;
        }
        // Files that came through Windows end their lines with CR LF.
        if self.row.last() == Some(&b'\r') {
            self.row.pop();
        }
        Ok(true)
    }
}

/// Returns the reason why a record with too many bytes or lines is rejected.
pub(super) fn too_long() -> String {
    format!("longer than {MAX_LINE_BYTES} bytes, or too many lines")
}

/// Quotes the beginning of a line for an error message.
pub(super) fn beginning(line: &str) -> String {
    match line.chars().take(60).collect::<String>() {
        empty if empty.is_empty() => "an empty line or nothing".to_owned(),
        // Escaped: control characters of a binary file must not reach the terminal.
        begin => format!("'{}'", begin.escape_debug()),
    }
}

fn explained(source: io::Error) -> io::Error {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(source.kind(), "the gzip data are truncated")
        }
        _ => source,
    }
}

/// Returns the text of a file that may be gzip-compressed, which its first bytes show.
///
/// # Errors
/// The first bytes cannot be read.
pub fn decompressed<'i>(mut input: impl Read + 'i) -> io::Result<Box<dyn BufRead + 'i>> {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const BUFFER: usize = 1 << 17;

    let mut magic = Vec::new();
    // The text may be a pipe, so the first bytes are read once and put back in front.
    input
        .by_ref()
        .take(GZIP.len() as u64)
        .read_to_end(&mut magic)?;
    let is_gzip = magic == GZIP;
    let input = BufReader::with_capacity(BUFFER, io::Cursor::new(magic).chain(input));
    Ok(if is_gzip {
        // `pigz` and `cat a.gz b.gz` write files with several members.
        Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(input)))
    } else {
        Box::new(input)
    })
}
