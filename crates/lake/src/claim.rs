//! Which data directory writes a lake. Two writers would remove each other's files.

use crate::LakeError;
use crate::files::Files;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;
use takt_model::UnixTime;

/// File in the lake's folder with the identity of the writer.
const OWNER: &str = "takt-lake.json";

/// File in the data directory with the state of its lake.
const STATE: &str = "lake.json";

/// Form of the lake that this program writes.
const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    /// Form of the lake.
    format: u32,
    /// Identity of the writer.
    id: String,
}

/// State of a lake: a file in the data directory that writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LakeState {
    /// Identity of this data directory as a writer; empty before the first lake.
    pub id: String,
    /// Folder of the lake that was written last; empty before the first.
    pub path: String,
    /// End of the last round, UTC seconds.
    pub tried_at: Option<UnixTime>,
    /// End of the last round without an error, UTC seconds.
    pub succeeded_at: Option<UnixTime>,
    /// Errors of the last round; empty after success.
    pub error: String,
}

impl LakeState {
    /// Reads the state from a data directory. A data directory that never wrote a lake has the
    /// default.
    pub fn read(data: &Path) -> Self {
        // A missing or damaged file means an unknown identity: the lake then looks like that of
        // another data directory.
        let text = fs::read(data.join(STATE)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Writes the state into a data directory.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, data: &Path) -> Result<(), LakeError> {
        let path = data.join(STATE);
        // Written aside and renamed, so that a crash leaves the old state or the new one.
        let new = data.join(format!("{STATE}.new"));
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from);
        let written = text.and_then(|text| fs::write(&new, text));
        written
            .and_then(|()| fs::rename(&new, &path))
            .map_err(LakeError::write(path))
    }
}

/// Makes these files the lake of a data directory, and returns the identity of the writer. With
/// `anew`, creates a lake where one is gone, and continues the lake of another data directory.
///
/// # Errors
/// If the folder cannot be created, has other files, or is the lake of another data directory; if
/// the lake that this data directory wrote there is gone.
pub fn claim(files: &mut dyn Files, data: &Path, anew: bool) -> Result<String, LakeError> {
    let mut state = LakeState::read(data);
    let known = owner(files)?;
    let path = files.path_of("");
    let text = path.display().to_string();
    let was_here = state.path == text;

    match &known {
        Some(known) if known.id == state.id => {}
        Some(_) if !anew => return Err(LakeError::Foreign { path }),
        // An empty folder where the lake was: its file system is probably not mounted.
        None if was_here && !anew => return Err(LakeError::Gone { path }),
        None if !files.is_empty()? => return Err(LakeError::Occupied { path }),
        None | Some(_) => {}
    }

    files.begin()?;
    if state.id.is_empty() {
        // Noted before the lake names it, so that a crash in between leaves a lake that this
        // directory can claim again.
        state.id = random_id()?;
        state.write(data)?;
    }

    let new = Owner {
        format: FORMAT,
        id: state.id.clone(),
    };
    let bytes = serde_json::to_vec(&new).expect("plain fields serialise");

    match &known {
        Some(known) if known.id == state.id => {}
        Some(_) => files.replace(OWNER, &bytes)?,
        // If two data directories begin here at the same moment, one fails at this step.
        None if files.create(OWNER, &bytes)? => {}
        None => return Err(LakeError::Foreign { path }),
    }

    // In each round, because a server's settings, or the server, may have changed.
    files.check_create(OWNER, &bytes)?;

    if !was_here {
        state.path = text;
        state.write(data)?;
    }
    Ok(state.id)
}

/// Checks that the data directory with the identity `id` still writes the lake.
///
/// # Errors
/// If another one has taken it over.
pub fn check(files: &dyn Files, id: &str) -> Result<(), LakeError> {
    let path = files.path_of("");
    match owner(files)? {
        Some(owner) if owner.id == id => Ok(()),
        Some(_) => Err(LakeError::Foreign { path }),
        None => Err(LakeError::Gone { path }),
    }
}

/// The writer that the lake names.
fn owner(files: &dyn Files) -> Result<Option<Owner>, LakeError> {
    let Some(text) = files.read(OWNER)? else {
        return Ok(None);
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| LakeError::Log {
            path: files.path_of(OWNER),
            reason: error.to_string(),
        })
}

/// A random UUID, for tables and writers.
pub fn random_id() -> Result<String, LakeError> {
    const SOURCE: &str = "/dev/urandom";
    let mut bytes = [0_u8; 16];
    fs::File::open(SOURCE)
        .and_then(|mut source| io::Read::read_exact(&mut source, &mut bytes))
        .map_err(LakeError::read(SOURCE))?;
    // Version 4 and the variant, as RFC 9562 has them for random UUIDs.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &hex[range]);
    Ok(parts.join("-"))
}
