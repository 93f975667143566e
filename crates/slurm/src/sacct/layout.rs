//! The form of sacct's rows, as their header shows it.

use super::{FIELDS, Field, Fields, column};

/// Columns with texts that users write. Such a text may contain delimiters and line feeds.
const WRITTEN_BY_USERS: &[&str] = &[
    "admincomment",
    "comment",
    "container",
    "extra",
    "jobname",
    "stderr",
    "stdin",
    "stdout",
    "submitline",
    "systemcomment",
    "wckey",
    "workdir",
];

/// Delimiter of sacct without `--delimiter`.
pub(super) const DEFAULT_DELIMITER: &str = "|";

/// The form of the rows below one header.
pub(super) struct RowLayout {
    pub columns: Vec<Option<Field>>,
    pub delimiter: String,
    /// Whether the delimiter also ends each row (`--parsable`).
    ends: bool,
    /// Whether a row may have several lines: a text of a user is followed by a delimiter.
    pub spans_lines: bool,
    /// Whether any column has texts of users.
    pub has_user_texts: bool,
    /// Number of columns before the first text of a user.
    first_user_text: usize,
}

impl RowLayout {
    pub fn of(header: &str, delimiter: &str) -> Self {
        let mut names: Vec<&str> = header.split(delimiter).collect();
        let ends = names.len() > 1 && names.last() == Some(&"");
        if ends {
            names.pop();
        }
        let is_written = |name: &&str| {
            let name = name.trim();
            WRITTEN_BY_USERS
                .iter()
                .any(|known| known.eq_ignore_ascii_case(name))
        };
        let followed = if ends { names.len() } else { names.len() - 1 };
        Self {
            spans_lines: names[..followed].iter().any(is_written),
            has_user_texts: names.iter().any(is_written),
            first_user_text: names.iter().position(is_written).unwrap_or(names.len()),
            columns: names.into_iter().map(column).collect(),
            delimiter: delimiter.to_owned(),
            ends,
        }
    }

    /// Returns the number of delimiters in a row.
    pub fn delimiters(&self) -> usize {
        self.columns.len() - usize::from(!self.ends)
    }

    /// Returns whether the first line of a row shows a JobID, or has a user's text before it. The rest of
    /// a name that completed its row does not begin one.
    pub fn may_begin(&self, line: &str) -> bool {
        let job_id = self
            .columns
            .iter()
            .position(|column| *column == Some(Field::JobId));
        job_id
            .filter(|at| *at < self.first_user_text)
            .is_none_or(|at| {
                line.split(&self.delimiter)
                    .nth(at)
                    .is_some_and(begins_as_id)
            })
    }

    /// Returns whether a line is a row by itself.
    pub fn is_row(&self, line: &str) -> bool {
        line.matches(&self.delimiter).count() == self.delimiters()
            && self
                .split(line)
                .is_ok_and(|fields| begins_as_id(fields.get(Field::JobId)))
    }

    /// Returns the known fields of a row. Extra delimiters belong to the last column if it is the
    /// job name.
    pub fn split<'r>(&self, row: &'r str) -> Result<Fields<'r>, String> {
        let row = if self.ends {
            row.strip_suffix(&self.delimiter)
                .ok_or("no delimiter at the end")?
        } else {
            row
        };
        let mut fields = Fields([""; FIELDS]);
        let name_is_last = !self.ends && self.columns.last() == Some(&Some(Field::JobName));
        let most = if name_is_last {
            self.columns.len()
        } else {
            usize::MAX
        };
        let mut found = 0;
        let mut take = |value: &'r str| {
            let value = value.trim_ascii();
            // If two columns mean the same (`NCPUS`, `AllocCPUS`), an empty one does not overwrite
            // the other.
            if let Some(Some(field)) = self.columns.get(found).filter(|_| !value.is_empty()) {
                fields.0[*field as usize] = value;
            }
            found += 1;
        };
        // Searching for one character is faster than searching for a text.
        if self.delimiter == DEFAULT_DELIMITER {
            row.splitn(most, '|').for_each(&mut take);
        } else {
            row.splitn(most, &*self.delimiter).for_each(&mut take);
        }
        if found == self.columns.len() {
            Ok(fields)
        } else {
            Err(format!(
                "expected {} fields, found {found}",
                self.columns.len()
            ))
        }
    }
}

fn begins_as_id(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_digit())
}

/// Returns the delimiter of a header: the shortest text after its first name that leaves nothing but
/// names. Names of columns are letters.
pub(super) fn delimiter_of(header: &str) -> Option<&str> {
    let is_name =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    let first = header.find(|letter: char| !letter.is_ascii_alphabetic())?;
    let rest = &header[first..];
    let ends = rest
        .char_indices()
        .map(|(at, letter)| at + letter.len_utf8());
    ends.take_while(|end| *end <= MAX_DELIMITER_BYTES)
        .map(|end| &rest[..end])
        .find(|delimiter| {
            // Without `-P` sacct fills the columns with blanks.
            if delimiter.starts_with(' ') {
                return false;
            }
            let names = header.strip_suffix(delimiter).unwrap_or(header);
            names.split(delimiter).all(is_name)
        })
}

/// Maximum length of a delimiter in bytes.
const MAX_DELIMITER_BYTES: usize = 128;
