//! A text, plain or gzip, a bounded line at a time.

use flate2::bufread::MultiGzDecoder;
use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};

/// Most bytes in one line. sacct's longest fields (`SubmitLine`, `Comment`) stay far below.
pub const MAX_LINE_BYTES: u64 = 1 << 20;

/// A text that cannot be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {name} after line {line}")]
pub struct LinesError {
    /// The file.
    name: String,
    /// The last line that was read.
    line: u64,
    /// Why.
    source: io::Error,
}

/// The lines of one text. Nothing comes after an error.
pub(super) struct Lines<'i> {
    name: String,
    input: Box<dyn BufRead + 'i>,
    line: u64,
    row: Vec<u8>,
    done: bool,
}

impl<'i> Lines<'i> {
    /// A gzip file is known by its first bytes. `name` is what errors call the text.
    pub fn open(input: impl Read + 'i, name: &str) -> Result<Self, LinesError> {
        let failed = |source| LinesError {
            name: name.to_owned(),
            line: 0,
            source: explained(source),
        };
        let input = decompressed(input).map_err(failed)?;
        Ok(Self {
            name: name.to_owned(),
            input,
            line: 0,
            row: Vec::new(),
            done: false,
        })
    }

    /// The next line without its end; `None` after the last.
    pub fn next(&mut self) -> Option<Result<&[u8], LinesError>> {
        if self.done {
            return None;
        }
        match self.read() {
            Ok(true) => Some(Ok(&self.row)),
            Ok(false) => {
                self.done = true;
                None
            }
            Err(source) => {
                self.done = true;
                Some(Err(LinesError {
                    name: self.name.clone(),
                    line: self.line,
                    source: explained(source),
                }))
            }
        }
    }

    /// The number of the line that was read last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// That line. What is no UTF-8 is replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.row)
    }

    fn read(&mut self) -> io::Result<bool> {
        self.row.clear();
        if (&mut self.input)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut self.row)?
            == 0
        {
            return Ok(false);
        }
        self.line += 1;
        if self.row.last() == Some(&b'\n') {
            self.row.pop();
        } else if self.row.len() as u64 == MAX_LINE_BYTES {
            let problem = format!("line {} is longer than {MAX_LINE_BYTES} bytes", self.line);
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        if self.row.last() == Some(&b'\r') {
            self.row.pop();
        }
        Ok(true)
    }
}

/// How a text begins, for a message that says what was found instead of what was expected.
pub(super) fn beginning(line: &str) -> String {
    match line.chars().take(60).collect::<String>() {
        empty if empty.is_empty() => "an empty line or nothing".to_owned(),
        begin => format!("'{}'", begin.escape_debug()),
    }
}

fn explained(source: io::Error) -> io::Error {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(source.kind(), "the gzip data end in the middle")
        }
        _ => source,
    }
}

fn decompressed<'i>(mut input: impl Read + 'i) -> io::Result<Box<dyn BufRead + 'i>> {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const BUFFER: usize = 1 << 17;
    let mut magic = Vec::new();
    input
        .by_ref()
        .take(GZIP.len() as u64)
        .read_to_end(&mut magic)?;
    let is_gzip = magic == GZIP;
    let input = BufReader::with_capacity(BUFFER, io::Cursor::new(magic).chain(input));
    Ok(if is_gzip {
        // `pigz` and `cat a.gz b.gz` make files of several members.
        Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(input)))
    } else {
        Box::new(input)
    })
}
