//! Links in messages: which were used, and what their messages said.

use super::Records;
use crate::StoreError;
use duckdb::params;
use takt_model::UnixTime;

impl Records<'_> {
    /// Notes that the link of a message is used. Returns whether this is the first use. Links that are
    /// invalid at `now` are forgotten.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn use_link(
        &self,
        message: u64,
        until: UnixTime,
        now: UnixTime,
    ) -> Result<bool, StoreError> {
        self.run(
            "forget links that are invalid",
            "DELETE FROM records.access.used_links WHERE until_time <= ?",
            params![now.0],
        )?;
        let added = self.run(
            "note that a link is used",
            "INSERT INTO records.access.used_links
             SELECT ?, ? WHERE NOT EXISTS (SELECT * FROM records.access.used_links WHERE message = ?)",
            params![message, until.0, message],
        )?;
        Ok(added == 1)
    }

    /// Returns whether the link of a message was used.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn is_link_used(&self, message: u64) -> Result<bool, StoreError> {
        let used = self.list(
            "read the links that were used",
            "SELECT count(*) > 0 FROM records.access.used_links WHERE message = ?",
            vec![message.into()],
            |row| row.get(0),
        )?;
        Ok(used.contains(&true))
    }

    /// Returns a message as the outbox stores it, as JSON. `None` if it is unknown.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn stored_message(&self, message: u64) -> Result<Option<String>, StoreError> {
        let bodies = self.list(
            "read a message",
            "SELECT body FROM records.notifications WHERE id = ?",
            vec![message.into()],
            |row| row.get(0),
        )?;
        Ok(bodies.into_iter().next())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Store;
    use takt_model::UnixTime;

    #[test]
    fn a_link_is_used_once_and_forgotten_when_it_is_invalid() {
        let store = Store::new();
        let records = store.records();
        let until = UnixTime(200);
        assert!(!records.is_link_used(7).unwrap());
        assert!(records.use_link(7, until, UnixTime(100)).unwrap());
        assert!(!records.use_link(7, until, UnixTime(150)).unwrap());
        assert!(records.is_link_used(7).unwrap());
        assert!(records.use_link(8, until, UnixTime(300)).unwrap());
        assert!(!records.is_link_used(7).unwrap());
        assert_eq!(records.stored_message(7).unwrap(), None);
    }
}
