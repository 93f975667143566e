//! Checkpoints of a table's log: a Parquet file with all files of one version, from which readers
//! begin instead of reading every commit.
//!
//! DuckDB writes and reads them: the actions are JSON lines, as in a commit. `_last_checkpoint` names
//! the newest one for readers that do not list the log. A crash between the two files is harmless.

use crate::LakeError;
use crate::files::Files;
use crate::log::{Action, Add, LOG, Remove, Version, numbered};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use takt_store::{crash_point, file_list, in_memory, quoted};

/// Memory of the DuckDB that reads and writes checkpoints, in MiB.
const MEMORY_MIB: u64 = 512;

/// Ending of the name of a checkpoint.
const ENDING: &str = ".checkpoint.parquet";

/// Types of the columns, as the protocol of Delta has them.
const COLUMNS: &str = "{
    txn: 'STRUCT(appId VARCHAR, version BIGINT, lastUpdated BIGINT)',
    protocol: 'STRUCT(minReaderVersion INTEGER, minWriterVersion INTEGER,
        readerFeatures VARCHAR[], writerFeatures VARCHAR[])',
    metaData: 'STRUCT(id VARCHAR, \"name\" VARCHAR, description VARCHAR,
        format STRUCT(provider VARCHAR, options MAP(VARCHAR, VARCHAR)), schemaString VARCHAR,
        partitionColumns VARCHAR[], configuration MAP(VARCHAR, VARCHAR), createdTime BIGINT)',
    \"add\": 'STRUCT(path VARCHAR, partitionValues MAP(VARCHAR, VARCHAR), size BIGINT,
        modificationTime BIGINT, dataChange BOOLEAN, stats VARCHAR)',
    remove: 'STRUCT(path VARCHAR, deletionTimestamp BIGINT, dataChange BOOLEAN,
        extendedFileMetadata BOOLEAN, partitionValues MAP(VARCHAR, VARCHAR), size BIGINT)'
}";

/// The file `_last_checkpoint`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastCheckpoint {
    /// Number of the commit whose version the checkpoint has.
    pub version: u64,
    /// Number of actions.
    pub size: u64,
}

/// Number of the newest checkpoint among the files of a table.
pub fn newest(names: &[String]) -> Option<u64> {
    names.iter().filter_map(|name| numbered(name, ENDING)).max()
}

/// Name of a checkpoint in the lake.
pub fn name_of(table: &str, number: u64) -> String {
    format!("{table}/{LOG}/{number:020}{ENDING}")
}

/// Name of the file that names the newest checkpoint.
pub fn pointer_of(table: &str) -> String {
    format!("{table}/{LOG}/_last_checkpoint")
}

/// The actions of a checkpoint of this version. Files removed before `removed_since_ms` are forgotten.
fn actions(version: &Version, removed_since_ms: i64) -> Vec<Action> {
    let protocol = Action {
        protocol: version.protocol.clone(),
        ..Action::default()
    };
    let meta_data = Action {
        meta_data: version.meta_data.clone(),
        ..Action::default()
    };

    let removed = version
        .removed
        .values()
        // Their files are deleted already, or by the next round; without this, each checkpoint
        // would be longer than the last.
        .filter(|remove| remove.deletion_timestamp > removed_since_ms)
        .cloned()
        .map(|remove| Remove {
            // A checkpoint repeats what commits said, so readers that follow changes must not see
            // it as one.
            data_change: false,
            ..remove
        });
    let files = version.files.values().cloned().map(|add| Add {
        data_change: false,
        ..add
    });

    let removed = removed.map(Action::from);
    let files = files.map(Action::from);
    [protocol, meta_data]
        .into_iter()
        .chain(removed)
        .chain(files)
        .collect()
}

/// Writes the checkpoint of a version with a number, and names it for readers. `staged` is the path of
/// a new file aside.
///
/// # Errors
/// If a file cannot be written.
pub fn write(
    files: &dyn Files,
    table: &'static str,
    version: &mut Version,
    removed_since_ms: i64,
    staged: &Path,
) -> Result<(), LakeError> {
    let Some(number) = version.number else {
        return Ok(());
    };
    let actions = actions(version, removed_since_ms);

    let lines = actions
        .iter()
        .map(|action| serde_json::to_string(action).expect("plain fields serialise") + "\n");
    // Through a file of JSON lines, because DuckDB gives the columns their nested types from there.
    let json = staged.with_extension("json");
    fs::write(&json, lines.collect::<String>()).map_err(LakeError::write(&json))?;

    let sql = format!(
        "COPY (SELECT * FROM read_json({}, format = 'newline_delimited', columns = {COLUMNS}))
         TO {} (FORMAT parquet, COMPRESSION zstd)",
        quoted(&json.to_string_lossy()),
        quoted(&staged.to_string_lossy())
    );
    in_memory(MEMORY_MIB, 1)?
        .execute_batch(&sql)
        .map_err(LakeError::sql("write a checkpoint", table))?;

    files.place(staged, &name_of(table, number))?;
    crash_point("lake-checkpoint-placed");

    // After the checkpoint itself: the pointer must not name a file that a crash prevented.
    let pointer = LastCheckpoint {
        version: number,
        size: actions.len() as u64,
    };
    let text = serde_json::to_vec(&pointer).expect("plain fields serialise");
    files.replace(&pointer_of(table), &text)?;

    version.checkpoint = Some(number);
    Ok(())
}

/// Reads a checkpoint. It has no time of the commit.
///
/// # Errors
/// [`LakeError::Log`] if it is no checkpoint, others if it cannot be read.
pub fn read(
    files: &dyn Files,
    table: &str,
    number: u64,
    aside: &Path,
) -> Result<Version, LakeError> {
    let name = name_of(table, number);
    let file = files.fetch(&name, aside)?;
    let invalid = |reason: String| LakeError::Log {
        path: files.path_of(&name),
        reason,
    };

    let db = in_memory(MEMORY_MIB, 1)?;
    let sql = format!(
        "SELECT CAST(to_json(t) AS VARCHAR) FROM read_parquet({}) AS t",
        file_list([file.path()])
    );

    // Each row comes back as the JSON line that a commit would have.
    let lines = || -> Result<Vec<String>, duckdb::Error> {
        db.prepare(&sql)?.query_map([], |row| row.get(0))?.collect()
    };

    let mut version = Version {
        number: Some(number),
        checkpoint: Some(number),
        ..Version::default()
    };

    for line in lines().map_err(|error| invalid(error.to_string()))? {
        let action: Action =
            serde_json::from_str(&line).map_err(|error| invalid(error.to_string()))?;
        if let Some(protocol) = action.protocol {
            version.protocol = Some(protocol);
        }
        if let Some(meta_data) = action.meta_data {
            version.meta_data = Some(meta_data);
        }
        if let Some(remove) = action.remove {
            version.removed.insert(remove.path.clone(), remove);
        }
        if let Some(add) = action.add {
            version.files.insert(add.path.clone(), add);
        }
    }

    // Such a checkpoint would make a reader take the table for empty.
    if version.protocol.is_none() || version.meta_data.is_none() {
        return Err(invalid("it has no protocol or no columns".to_owned()));
    }
    Ok(version)
}
