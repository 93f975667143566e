//! How far each destination of remote write is.

use super::{Records, StoreError};
use duckdb::params;
use takt_model::Timestamp;

/// How far a destination of remote write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteWriteProgress {
    /// All samples up to this time are acknowledged.
    pub acknowledged: Timestamp,
    /// End of the span that is being sent. After a crash, the destination may have parts of it.
    pub sending: Option<Timestamp>,
}

impl Records<'_> {
    /// Returns how far a destination is. `None` before the first call of
    /// [`note_remote_write`](Self::note_remote_write).
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn remote_write(
        &self,
        destination: &str,
    ) -> Result<Option<RemoteWriteProgress>, StoreError> {
        let found = self.list(
            "read how far remote write is",
            "SELECT epoch_ms(acknowledged), epoch_ms(sending) FROM records.remote_write
             WHERE destination = ?",
            vec![destination.to_owned().into()],
            |row| {
                Ok(RemoteWriteProgress {
                    acknowledged: Timestamp(row.get(0)?),
                    sending: row.get::<_, Option<i64>>(1)?.map(Timestamp),
                })
            },
        )?;
        Ok(found.into_iter().next())
    }

    /// Stores how far a destination is.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_remote_write(
        &self,
        destination: &str,
        progress: RemoteWriteProgress,
    ) -> Result<(), StoreError> {
        let _writing = self.database.writing().aside();
        self.database
            .connect()?
            .execute(
                "INSERT OR REPLACE INTO records.remote_write
             VALUES (?, epoch_ms(?::BIGINT)::TIMESTAMP_MS, epoch_ms(?::BIGINT)::TIMESTAMP_MS)",
                params![
                    destination,
                    progress.acknowledged.0,
                    progress.sending.map(|at| at.0)
                ],
            )
            .map(|_| ())
            .map_err(StoreError::sql("store how far remote write is"))
    }
}
