//! The state of letters in one JSON file.

use super::{LetterRecord, LetterStore};
use crate::ports::StoreError;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Letters that are remembered; the oldest are forgotten first. A lab of 1,000 users with reports
/// and weekly letters has 60,000 letters a year.
const RECORDS_MAX: usize = 20_000;

/// The state of letters in a file that is replaced as a whole.
#[derive(Debug, Clone)]
pub struct FileLetterStore {
    path: PathBuf,
}

impl FileLetterStore {
    /// The file `letters.json` in this folder.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            path: folder.join("letters.json"),
        }
    }

    fn read(&self) -> Result<BTreeMap<String, LetterRecord>, StoreError> {
        let failed =
            |error: &dyn fmt::Display| StoreError(format!("{}: {error}", self.path.display()));
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(failed(&error)),
        };
        serde_json::from_slice(&text).map_err(|error| failed(&error))
    }

    /// Writes a new file and renames it over the old one, so that a crash leaves one of the two.
    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let new = self.path.with_extension("json.new");
        let mut file = File::create(&new)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;

        // The rename is in the folder, which has to reach the disk as well.
        let folder = self.path.parent().unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}

impl LetterStore for FileLetterStore {
    fn load(&self, key: &str) -> Result<Option<LetterRecord>, StoreError> {
        Ok(self.read()?.remove(key))
    }

    /// A damaged file is replaced: a letter that comes twice is better than none.
    fn save(&self, key: &str, record: &LetterRecord) -> Result<(), StoreError> {
        let mut records = self.read().unwrap_or_else(|error| {
            tracing::error!(%error, "replacing the damaged list of letters");
            BTreeMap::new()
        });

        records.insert(key.to_owned(), record.clone());
        // The file is read and written as a whole for each letter, so it must not grow for ever.
        while records.len() > RECORDS_MAX {
            let Some(oldest) = records
                .iter()
                .min_by_key(|(_, record)| record.updated_at)
                .map(|(key, _)| key.clone())
            else {
                break;
            };
            records.remove(&oldest);
        }

        let text = serde_json::to_vec(&records).map_err(|error| StoreError(error.to_string()))?;
        self.replace(&text)
            .map_err(|error| StoreError(format!("{}: {error}", self.path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::RowState;
    use takt_model::Timestamp;
    use tempfile::tempdir;

    #[test]
    fn records_survive_a_restart_and_a_damaged_file() {
        let folder = tempdir().unwrap();
        let store = FileLetterStore::in_folder(folder.path());
        assert_eq!(store.load("a").unwrap(), None);

        let record = LetterRecord {
            state: RowState::GaveUp,
            attempts: 1,
            next_at: Timestamp(1),
            updated_at: Timestamp(2),
            error: Some("550".to_owned()),
        };

        store.save("a", &record).unwrap();
        let again = FileLetterStore::in_folder(folder.path());
        assert_eq!(again.load("a").unwrap().as_ref(), Some(&record));

        // A crash in the middle of a write.
        fs::write(folder.path().join("letters.json"), "{\"a\":").unwrap();
        assert!(again.load("a").is_err());
        again.save("b", &record).unwrap();
        assert_eq!(again.load("b").unwrap(), Some(record));
    }
}
