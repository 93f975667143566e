//! The form of sacct's rows, as their header shows it.

use super::{FIELDS, Field, Fields, column};

/// Columns that Slurm fills by itself: numbers, times, and names of slurm.conf, of slurmdbd and of the
/// system. Every other column may have a text of a user, with delimiters and line feeds: also
/// `Account`, which slurmctld does not check without `AccountingStorageEnforce=associations`, and
/// columns of later versions.
const WRITTEN_BY_SLURM: &[&str] = &[
    "alloccpus",
    "allocnodes",
    "alloctres",
    "associd",
    "avecpu",
    "avecpufreq",
    "avediskread",
    "avediskwrite",
    "avepages",
    "averss",
    "avevmsize",
    "blockid",
    "cluster",
    "consumedenergy",
    "consumedenergyraw",
    "cputime",
    "cputimeraw",
    "dbindex",
    "derivedexitcode",
    "elapsed",
    "elapsedraw",
    "eligible",
    "end",
    "exclusive",
    "exitcode",
    "failednode",
    "flags",
    "gid",
    "group",
    "jobid",
    "jobidraw",
    "layout",
    "maxdiskread",
    "maxdiskreadnode",
    "maxdiskreadtask",
    "maxdiskwrite",
    "maxdiskwritenode",
    "maxdiskwritetask",
    "maxpages",
    "maxpagesnode",
    "maxpagestask",
    "maxrss",
    "maxrssnode",
    "maxrsstask",
    "maxvmsize",
    "maxvmsizenode",
    "maxvmsizetask",
    "mincpu",
    "mincpunode",
    "mincputask",
    "ncpus",
    "nnodes",
    "nodelist",
    "ntasks",
    "originalsluid",
    "oversubscribe",
    "partition",
    "planned",
    "plannedcpu",
    "plannedcpuraw",
    "priority",
    "qos",
    "qosraw",
    "reason",
    "reqcpufreq",
    "reqcpufreqgov",
    "reqcpufreqmax",
    "reqcpufreqmin",
    "reqcpus",
    "reqmem",
    "reqnodes",
    "reqtres",
    "reservation",
    "reservationid",
    "reserved",
    "restarts",
    "resvcpu",
    "resvcpuraw",
    "segmentsize",
    "sluid",
    "start",
    "state",
    "submit",
    "suspended",
    "systemcpu",
    "timelimit",
    "timelimitraw",
    "totalcpu",
    "uid",
    "user",
    "usercpu",
    "wckeyid",
];

/// Beginning of further columns that Slurm fills by itself: `TRESUsageInMax` and others.
const USAGE_BY_SLURM: &str = "tresusage";

/// Delimiter of sacct without `--delimiter`.
pub(super) const DEFAULT_DELIMITER: &str = "|";

/// Minimum length of a delimiter that users cannot know, in characters.
const MIN_SECRET_CHARS: usize = 8;

/// Minimum number of different characters in such a delimiter: `||||||||` is no secret.
const MIN_DIFFERENT_CHARS: usize = 5;

/// Maximum number of ways in which the surplus delimiters of a row are tried.
const MAX_READINGS: usize = 1000;

/// The form of the rows below one header.
pub(super) struct RowLayout {
    pub columns: Vec<Option<Field>>,
    pub delimiter: String,
    /// Whether the delimiter also ends each row (`--parsable`).
    ends: bool,
    /// Whether a row may have several lines: a text of a user is followed by a delimiter.
    pub spans_lines: bool,
    /// Columns with texts of users, in order.
    user_texts: Vec<usize>,
    /// Whether users cannot know the delimiter.
    is_secret: bool,
}

impl RowLayout {
    pub fn of(header: &str, delimiter: &str, is_secret: bool) -> Self {
        let mut names: Vec<&str> = header.split(delimiter).collect();
        // `--parsable` ends each row with a delimiter, which leaves an empty name behind the last one.
        let ends = names.len() > 1 && names.last() == Some(&"");
        if ends {
            names.pop();
        }
        let user_texts: Vec<usize> = names
            .iter()
            .enumerate()
            .filter(|(_, name)| is_written_by_users(name))
            .map(|(at, _)| at)
            .collect();
        // A text of a user in the last column without a delimiter behind it ends with its line.
        let followed = if ends { names.len() } else { names.len() - 1 };
        Self {
            spans_lines: user_texts.first().is_some_and(|first| *first < followed),
            user_texts,
            columns: names.into_iter().map(column).collect(),
            delimiter: delimiter.to_owned(),
            ends,
            is_secret,
        }
    }

    /// Returns a row as each answer that has it would write it: with the usual delimiter instead of one
    /// drawn for a request, and then without values that go on while the job runs.
    pub fn settled(&self, row: &str) -> String {
        // Rejected rows are known by their text, so a row that is polled again must give the same text.
        let mut values: Vec<&str> = row.split(&*self.delimiter).collect();
        if self.is_secret {
            for (value, column) in values.iter_mut().zip(&self.columns) {
                if column.is_some_and(Field::goes_on) {
                    *value = "";
                }
            }
        }
        values.join(DEFAULT_DELIMITER)
    }

    /// Returns whether a user's text can look like a row: users write a column, and could know the
    /// delimiter.
    pub fn may_be_forged(&self) -> bool {
        !self.user_texts.is_empty() && !self.is_secret
    }

    /// Returns whether a user's text can complete a row with columns of its choice: a known column of Slurm
    /// is behind it.
    pub fn can_users_complete(&self) -> bool {
        let Some(first) = self.user_texts.first() else {
            return false;
        };
        // A column of Slurm behind a text of a user may be a part of that text.
        let is_own = |at: &usize| self.columns[*at].is_some() && !self.user_texts.contains(at);
        self.may_be_forged() && (*first..self.columns.len()).any(|at| is_own(&at))
    }

    /// Returns whether the user is a column behind the first text of a user.
    pub fn shows_user_last(&self) -> bool {
        self.own(Field::User).is_none()
    }

    /// Returns the number of delimiters in a row.
    pub fn delimiters(&self) -> usize {
        self.columns.len() - usize::from(!self.ends)
    }

    /// Returns whether the first line of a row shows a JobID, or has a user's text before it. The rest of
    /// a name that completed its row does not begin one.
    pub fn may_begin(&self, line: &str) -> bool {
        // A column behind a text of a user may be anywhere in the line, so each line may begin a row.
        self.own(Field::JobId).is_none_or(|at| {
            line.split(&self.delimiter)
                .nth(at)
                .is_some_and(begins_as_id)
        })
    }

    /// Returns whether a line is a row by itself.
    pub fn is_row(&self, line: &str) -> bool {
        // The count comes first: it is cheap and refuses most lines.
        line.matches(&self.delimiter).count() == self.delimiters()
            && self
                .split(line)
                .is_ok_and(|fields| begins_as_id(fields.get(Field::JobId)))
    }

    /// Returns the job and the user of a row, as far as no user's text comes before them.
    pub fn owner(&self, row: &str) -> String {
        let value = |field| {
            self.own(field)
                .and_then(|at| row.split(&self.delimiter).nth(at))
        };
        let of_user = value(Field::User).map(|user| format!(" of user {user}"));
        format!(
            "job {}{}",
            value(Field::JobId).unwrap_or("?"),
            of_user.unwrap_or_default()
        )
    }

    /// Returns the position of a column before the first text of a user.
    fn own(&self, field: Field) -> Option<usize> {
        let before = self.user_texts.first().copied();
        self.columns[..before.unwrap_or(self.columns.len())]
            .iter()
            .position(|column| *column == Some(field))
    }

    /// Returns the known fields of a row with exactly its columns.
    pub fn split<'r>(&self, row: &'r str) -> Result<Fields<'r>, String> {
        let row = self.without_end(row)?;
        let mut fields = Fields([""; FIELDS]);

        let mut found = 0;
        let mut take = |value: &'r str| {
            // Columns that are not known are counted and not kept.
            if let Some(Some(field)) = self.columns.get(found) {
                fields.put(*field, value);
            }
            found += 1;
        };

        // Searching for one character is faster than searching for a text.
        if self.delimiter == DEFAULT_DELIMITER {
            row.split('|').for_each(&mut take);
        } else {
            row.split(&*self.delimiter).for_each(&mut take);
        }
        if found == self.columns.len() {
            Ok(fields)
        } else {
            Err(self.expected(found))
        }
    }

    /// Returns the fields of a row in each way in which it can be read: the surplus delimiters and the
    /// line feeds belong to texts of users.
    pub fn readings<'r>(&self, row: &'r str) -> Result<Vec<Fields<'r>>, String> {
        let row = self.without_end(row)?;

        // Position of each piece. With more pieces than columns, neighbours belong together.
        let mut begins = vec![0];
        begins.extend(
            row.match_indices(&*self.delimiter)
                .map(|(at, found)| at + found.len()),
        );
        let surplus = begins
            .len()
            .checked_sub(self.columns.len())
            .ok_or_else(|| self.expected(begins.len()))?;
        // One more begin, so that the last piece ends before a begin as the others do.
        begins.push(row.len() + self.delimiter.len());
        let ways =
            ways(surplus, self.user_texts.len()).ok_or_else(|| self.expected(begins.len() - 1))?;

        let fields = |way: Vec<usize>| {
            let mut fields = Fields([""; FIELDS]);
            let mut piece = 0;

            for (at, column) in self.columns.iter().enumerate() {
                // Only texts of users may take more than one piece, as many as this way gives them.
                let more = self.user_texts.iter().position(|text| *text == at);
                let next = piece + 1 + more.map_or(0, |text| way[text]);
                let value = &row[begins[piece]..begins[next] - self.delimiter.len()];
                piece = next;
                // Slurm writes no line feed into its own columns: this reading is wrong.
                if more.is_none() && value.contains('\n') {
                    return None;
                }
                if let Some(field) = column {
                    fields.put(*field, value);
                }
            }
            Some(fields)
        };
        Ok(ways.into_iter().filter_map(fields).collect())
    }

    fn without_end<'r>(&self, row: &'r str) -> Result<&'r str, String> {
        if !self.ends {
            return Ok(row);
        }
        row.strip_suffix(&self.delimiter)
            .ok_or_else(|| "no delimiter at the end".to_owned())
    }

    fn expected(&self, found: usize) -> String {
        format!("expected {} fields, found {found}", self.columns.len())
    }
}

/// Returns all ways to give `surplus` delimiters to so many texts; `None` if they are too many.
fn ways(surplus: usize, texts: usize) -> Option<Vec<Vec<usize>>> {
    let mut ways = vec![Vec::new()];
    for text in 0..texts {
        let is_last = text + 1 == texts;
        let longer = |way: Vec<usize>| {
            let left = surplus - way.iter().sum::<usize>();
            // The last text takes all that are left, so that each way uses up the surplus.
            let least = if is_last { left } else { 0 };
            (least..=left).map(move |taken| [&*way, &[taken]].concat())
        };

        ways = ways
            .into_iter()
            .flat_map(longer)
            .take(MAX_READINGS + 1)
            .collect();
        // The number of ways grows with a power of the surplus, and users choose it.
        if ways.len() > MAX_READINGS {
            return None;
        }
    }
    // Without a text of a user, surplus delimiters have no reading.
    (texts > 0 || surplus == 0).then_some(ways)
}

fn is_written_by_users(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase();
    !WRITTEN_BY_SLURM.contains(&&*name) && !name.starts_with(USAGE_BY_SLURM)
}

fn begins_as_id(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_digit())
}

/// Returns whether users cannot guess a delimiter: it is long, and not a few characters repeated.
pub(super) fn is_secret(delimiter: &str) -> bool {
    let mut letters: Vec<char> = delimiter.chars().collect();
    let is_long = letters.len() >= MIN_SECRET_CHARS;

    letters.sort_unstable();
    letters.dedup();
    is_long && letters.len() >= MIN_DIFFERENT_CHARS
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
    // The shortest one: of `|42|`, a longer text would contain the next name.
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
