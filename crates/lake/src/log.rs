//! The log of a Delta table: one file with JSON lines for each commit.
//!
//! A commit is written aside, synced, and given the next number with a hard link, which fails if
//! the number is taken. A reader therefore never sees a part of a commit, and a crash leaves either the
//! old or the new version.

use crate::LakeError;
use crate::files::{Folder, names_in};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
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
#[derive(Debug, Clone, Default)]
pub struct Version {
    /// Number of the last commit; `None` before the first.
    pub number: Option<u64>,
    /// Time of the last commit, in milliseconds since 1970.
    pub committed_at: Option<i64>,
    /// Schema of the table.
    pub meta_data: Option<MetaData>,
    /// The table's files by path.
    pub files: BTreeMap<String, Add>,
    /// Files that were removed, by path, with the time in milliseconds since 1970.
    pub removed: BTreeMap<String, i64>,
}

impl Version {
    /// Reads all commits. A table without a log has no version.
    ///
    /// # Errors
    /// If a commit cannot be read, is missing, or does not fit those before it.
    pub fn read(table: &Path) -> Result<Self, LakeError> {
        let log = table.join(LOG);
        let mut version = Self::default();
        let mut numbers: Vec<u64> = names_in(&log)?.iter().filter_map(|n| number(n)).collect();
        numbers.sort_unstable();
        for (expected, number) in (0..).zip(numbers) {
            let path = log.join(file_name(expected));
            let invalid = |reason: String| LakeError::Log {
                path: path.clone(),
                reason,
            };
            if number != expected {
                return Err(invalid("the commit is missing".to_owned()));
            }
            let text = fs::read_to_string(&path).map_err(LakeError::read(&path))?;
            for line in text.lines().filter(|line| !line.is_empty()) {
                let action = serde_json::from_str(line);
                let action = action.map_err(|error| invalid(error.to_string()))?;
                version.apply(action).map_err(invalid)?;
            }
            version.number = Some(number);
        }
        Ok(version)
    }

    fn apply(&mut self, action: Action) -> Result<(), String> {
        if let Some(info) = action.commit_info {
            self.committed_at = Some(info.timestamp);
        }
        if let Some(meta_data) = action.meta_data {
            self.meta_data = Some(meta_data);
        }
        if let Some(remove) = action.remove {
            if self.files.remove(&remove.path).is_none() {
                return Err(format!(
                    "it removes {}, which is not in the table",
                    remove.path
                ));
            }
            self.removed.insert(remove.path, remove.deletion_timestamp);
        }
        if let Some(add) = action.add {
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
        table: &Folder,
        operation: &str,
        now_ms: i64,
        actions: Vec<Action>,
    ) -> Result<(), LakeError> {
        let number = self.number.map_or(0, |last| last + 1);
        let info = Action {
            commit_info: Some(CommitInfo {
                timestamp: now_ms,
                operation: operation.to_owned(),
                engine_info: concat!("Takt/", env!("CARGO_PKG_VERSION")).to_owned(),
            }),
            ..Action::default()
        };
        let mut text = String::new();
        let mut next = self.clone();
        let path = table.path().join(LOG).join(file_name(number));
        for action in std::iter::once(info).chain(actions) {
            text += &serde_json::to_string(&action).expect("plain fields serialise");
            text.push('\n');
            next.apply(action).map_err(|reason| LakeError::Log {
                path: path.clone(),
                reason,
            })?;
        }
        table.create(LOG)?;
        match table.publish(LOG, &file_name(number), text.as_bytes()) {
            Err(LakeError::Write { source, path })
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                return Err(LakeError::Conflict { path });
            }
            done => done?,
        }
        crash_point("lake-committed");
        next.number = Some(number);
        *self = next;
        Ok(())
    }
}

fn file_name(number: u64) -> String {
    format!("{number:020}.json")
}

/// Number of the commit that a file of the log has; `None` for other files.
fn number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".json")?;
    if digits.len() == 20 {
        digits.parse().ok()
    } else {
        None
    }
}
