//! The log of a Delta table: one file with JSON lines for each commit, and now and then a checkpoint
//! (`checkpoint.rs`), from which readers begin.
//!
//! A commit is created under the next number, which fails if the number is taken: in a folder it is
//! written aside, synced and linked, in a bucket it is a conditional put. A reader therefore never sees
//! a part of a commit, and a crash leaves either the old or the new version. Commits are never deleted,
//! so readers without checkpoints stay correct.

use crate::LakeError;
use crate::checkpoint;
use crate::files::Files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::iter;
use std::path::Path;
use takt_store::crash_point;

/// Folder of the log in the table's folder.
pub const LOG: &str = "_delta_log";

/// One line of a commit. Exactly one field is set; lines of other kinds have none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_info: Option<CommitInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<MetaData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add: Option<Add>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<Remove>,
}

/// The reason for a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitInfo {
    pub timestamp: i64,
    pub operation: String,
    #[serde(default)]
    pub engine_info: String,
    /// A random text: the same commit is not made twice, and a writer recognises its own.
    #[serde(default)]
    pub txn_id: String,
}

/// Features that a reader or a writer needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protocol {
    pub min_reader_version: u32,
    pub min_writer_version: u32,
    #[serde(default)]
    pub reader_features: Vec<String>,
    #[serde(default)]
    pub writer_features: Vec<String>,
}

/// Schema of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetaData {
    pub id: String,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
    pub format: FileFormat,
    pub schema_string: String,
    pub partition_columns: Vec<String>,
    pub configuration: BTreeMap<String, String>,
    pub created_time: i64,
}

/// Format of the table's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFormat {
    pub provider: String,
    pub options: BTreeMap<String, String>,
}

/// A file that belongs to the table from this version on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Add {
    pub path: String,
    pub partition_values: BTreeMap<String, String>,
    pub size: u64,
    pub modification_time: i64,
    pub data_change: bool,
    #[serde(default)]
    pub stats: Option<String>,
}

/// A file that does not belong to the table from this version on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remove {
    pub path: String,
    pub deletion_timestamp: i64,
    pub data_change: bool,
    #[serde(default)]
    pub partition_values: BTreeMap<String, String>,
    #[serde(default)]
    pub size: u64,
}

impl Add {
    /// Number of rows by its statistics; `None` if they lack it.
    pub fn rows(&self) -> Option<u64> {
        let stats: serde_json::Value = serde_json::from_str(self.stats.as_deref()?).ok()?;
        stats["numRecords"].as_u64()
    }

    /// Value of the partition column, such as `2026-11-22`.
    pub fn partition(&self) -> &str {
        self.partition_values.values().next().map_or("", |v| v)
    }

    /// Name of the file without its folder and the ending `.parquet`.
    pub fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.strip_suffix(".parquet").unwrap_or(name)
    }

    /// The action that removes the file.
    pub fn removed(&self, now_ms: i64, data_change: bool) -> Remove {
        Remove {
            path: self.path.clone(),
            deletion_timestamp: now_ms,
            data_change,
            partition_values: self.partition_values.clone(),
            size: self.size,
        }
    }
}

impl From<Add> for Action {
    fn from(add: Add) -> Self {
        Self {
            add: Some(add),
            ..Self::default()
        }
    }
}

impl From<Remove> for Action {
    fn from(remove: Remove) -> Self {
        Self {
            remove: Some(remove),
            ..Self::default()
        }
    }
}

/// The newest version of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Version {
    /// Number of the last commit; `None` before the first.
    pub number: Option<u64>,
    /// Number of the checkpoint from which this was read.
    pub checkpoint: Option<u64>,
    /// Time of the last commit, in milliseconds since 1970.
    pub committed_at: Option<i64>,
    /// Features of the table.
    pub protocol: Option<Protocol>,
    /// Schema of the table.
    pub meta_data: Option<MetaData>,
    /// The table's files by path.
    pub files: BTreeMap<String, Add>,
    /// Files that were removed, by path.
    pub removed: BTreeMap<String, Remove>,
}

impl Version {
    /// Reads the newest version of a table: the last checkpoint and the commits after it. `names` are
    /// the files of the table, `aside` is the folder for copies. A table without a log has no version.
    ///
    /// # Errors
    /// If a commit cannot be read, is missing, or does not fit those before it.
    pub fn read(
        files: &dyn Files,
        table: &str,
        names: &[String],
        aside: &Path,
    ) -> Result<Self, LakeError> {
        let Some(number) = checkpoint::newest(names) else {
            return Self::replay(files, table, names, u64::MAX);
        };

        match checkpoint::read(files, table, number, aside) {
            Ok(mut version) => {
                version.follow(files, table, names, u64::MAX)?;
                Ok(version)
            }
            // All commits are there, too. The next round writes another checkpoint.
            Err(error @ LakeError::Log { .. }) => {
                let error = takt_model::error_chain(&error);
                tracing::warn!(error, "cannot use a checkpoint of the data lake");
                Self::replay(files, table, names, u64::MAX)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads all commits up to the number `until`, without checkpoints.
    ///
    /// # Errors
    /// If a commit cannot be read, is missing, or does not fit those before it.
    pub fn replay(
        files: &dyn Files,
        table: &str,
        names: &[String],
        until: u64,
    ) -> Result<Self, LakeError> {
        let mut version = Self::default();
        version.follow(files, table, names, until)?;
        Ok(version)
    }

    /// Applies the commits after this version, up to the number `until`.
    fn follow(
        &mut self,
        files: &dyn Files,
        table: &str,
        names: &[String],
        until: u64,
    ) -> Result<(), LakeError> {
        let next = self.number.map_or(0, |last| last + 1);

        let mut numbers: Vec<u64> = names
            .iter()
            .filter_map(|name| number(name))
            .filter(|n| (next..=until).contains(n))
            .collect();
        numbers.sort_unstable();

        // A gap in the numbers asks for a file that does not exist, and is reported as missing.
        for (expected, number) in (next..).zip(numbers) {
            for action in actions(files, table, expected)? {
                self.apply(action)
                    .map_err(|reason| invalid(files, table, expected, reason))?;
            }
            self.number = Some(number);
        }

        if let (None, Some(last)) = (self.committed_at, self.number) {
            // A checkpoint has no times.
            let info = actions(files, table, last)?
                .into_iter()
                .filter_map(|action| action.commit_info)
                .next();
            self.committed_at = info.map(|info| info.timestamp);
        }
        Ok(())
    }

    fn apply(&mut self, action: Action) -> Result<(), String> {
        if let Some(info) = action.commit_info {
            self.committed_at = Some(info.timestamp);
        }
        if let Some(protocol) = action.protocol {
            self.protocol = Some(protocol);
        }
        if let Some(meta_data) = action.meta_data {
            self.meta_data = Some(meta_data);
        }
        if let Some(remove) = action.remove {
            // Delta allows it, but Takt never writes it: another program has written here, or a
            // commit is lost.
            if self.files.remove(&remove.path).is_none() {
                return Err(format!(
                    "it removes {}, which is not in the table",
                    remove.path
                ));
            }
            self.removed.insert(remove.path.clone(), remove);
        }
        if let Some(add) = action.add {
            // A file may return: a corrected month that is corrected back has its former digest and
            // name.
            self.removed.remove(&add.path);
            if let Some(before) = self.files.insert(add.path.clone(), add) {
                return Err(format!("it adds {} a second time", before.path));
            }
        }
        Ok(())
    }

    /// Adds a commit to the log of `table`, and applies it to this version. Durable on return.
    ///
    /// # Errors
    /// If the file cannot be written, or another program has made this commit.
    pub fn commit(
        &mut self,
        files: &dyn Files,
        table: &str,
        info: CommitInfo,
        actions: Vec<Action>,
    ) -> Result<(), LakeError> {
        let number = self.number.map_or(0, |last| last + 1);
        let name = commit_name(table, number);
        let info = Action {
            commit_info: Some(info),
            ..Action::default()
        };

        let mut text = String::new();
        // Applied to a copy first: a commit that does not fit must neither be written nor change
        // this version.
        let mut next = self.clone();
        for action in iter::once(info).chain(actions) {
            text += &serde_json::to_string(&action).expect("plain fields serialise");
            text.push('\n');
            next.apply(action)
                .map_err(|reason| invalid(files, table, number, reason))?;
        }

        if !files.create(&name, text.as_bytes())? {
            let path = files.path_of(&name);
            return Err(LakeError::Conflict { path });
        }

        crash_point("lake-committed");
        next.number = Some(number);
        *self = next;
        Ok(())
    }
}

/// The actions of a commit.
fn actions(files: &dyn Files, table: &str, number: u64) -> Result<Vec<Action>, LakeError> {
    let invalid = |reason: String| invalid(files, table, number, reason);
    let text = files
        .read(&commit_name(table, number))?
        .ok_or_else(|| invalid("the commit is missing".to_owned()))?;
    String::from_utf8(text)
        .map_err(|error| invalid(error.to_string()))?
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            serde_json::from_str(line)
                .map_err(|error: serde_json::Error| invalid(error.to_string()))
        })
        .collect()
}

fn invalid(files: &dyn Files, table: &str, number: u64, reason: String) -> LakeError {
    let path = files.path_of(&commit_name(table, number));
    LakeError::Log { path, reason }
}

/// Name of a commit in the lake.
fn commit_name(table: &str, number: u64) -> String {
    format!("{table}/{LOG}/{number:020}.json")
}

/// Number of the commit that a file of the table has; `None` for other files.
fn number(name: &str) -> Option<u64> {
    numbered(name, ".json")
}

/// Number in the name of a file of the log: 20 digits and an ending.
pub fn numbered(name: &str, ending: &str) -> Option<u64> {
    let name = name.strip_prefix(LOG)?.strip_prefix('/')?;
    let digits = name.strip_suffix(ending)?;
    // Other names, such as those of compacted logs, are not commits.
    if digits.len() == 20 {
        digits.parse().ok()
    } else {
        None
    }
}
