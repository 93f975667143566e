//! A mistake in a file, with its line.

use std::fmt;

/// An error in a file, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Name of the file; empty until known.
    pub file: String,
    /// Line, counted from 1; 0 for the whole file.
    pub line: usize,
    /// Context, outermost first: ``group `gpu` ``, ``rule `GpuHot` ``.
    pub within: Vec<String>,
    /// The error message.
    pub what: String,
}

impl Mistake {
    /// Returns an error on a line; 0 if the line is not known yet.
    pub fn new(line: usize, what: impl Into<String>) -> Self {
        Self {
            file: String::new(),
            line,
            within: Vec::new(),
            what: what.into(),
        }
    }

    /// Adds an outer context to the error.
    pub fn within(mut self, what: impl Into<String>) -> Self {
        self.within.insert(0, what.into());
        self
    }

    /// Adds the name of the file to the error.
    pub fn in_file(mut self, name: &str) -> Self {
        name.clone_into(&mut self.file);
        self
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match (self.file.as_str(), self.line) {
            ("", 0) => String::new(),
            ("", line) => format!("line {line}: "),
            (file, 0) => format!("{file}: "),
            (file, line) => format!("{file}, line {line}: "),
        };
        write!(f, "{place}")?;
        if self.within.is_empty() {
            f.write_str(&self.what)
        } else {
            write!(f, "{}: {}", self.within.join(", "), self.what)
        }
    }
}

impl std::error::Error for Mistake {}
