//! The audit log.

use super::{Records, StoreError, TimeColumns, micros};
use duckdb::params;
use serde::{Deserialize, Serialize};
use takt_model::UnixTime;

/// Days for which the audit log is kept.
const AUDIT_DAYS: i64 = 400;

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Time.
    pub at: UnixTime,
    /// Unix user; `None` for a program or a stranger.
    pub user: Option<String>,
    /// Role at that time.
    pub role: String,
    /// How the server knew who asked.
    pub way: String,
    /// Address of the client.
    pub address: String,
    /// Method and route, or `sign_in`, `sign_out`, `refused`.
    pub action: String,
    /// Object of the action.
    pub object: String,
    /// Result.
    pub outcome: String,
}

/// Selects entries of the audit log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Unix user.
    pub user: Option<String>,
    /// First instant.
    pub from: Option<UnixTime>,
    /// Maximum number of entries, the newest.
    pub limit: usize,
}

impl Records<'_> {
    /// Adds an entry to the audit log, and deletes entries that are too old, by the time that has
    /// surely passed.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn audit(&self, entry: &AuditRecord) -> Result<(), StoreError> {
        self.run(
            "write the audit log",
            "INSERT INTO records.access.audit VALUES (make_timestamp(?::BIGINT), ?, ?, ?, ?, ?, ?, ?)",
            params![
                micros(entry.at),
                entry.user,
                entry.role,
                entry.way,
                entry.address,
                entry.action,
                entry.object,
                entry.outcome,
            ],
        )?;

        self.run(
            "shorten the audit log",
            "DELETE FROM records.access.audit WHERE happened_at < make_timestamp(?::BIGINT)",
            params![micros(
                self.database.surely_passed(entry.at) - AUDIT_DAYS * 86_400
            )],
        )?;
        Ok(())
    }

    /// Returns entries of the audit log, the newest first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn audited(&self, filter: &AuditFilter) -> Result<Vec<AuditRecord>, StoreError> {
        self.list(
            "read the audit log",
            &format!(
                "SELECT epoch_ms(happened_at) // 1000, \"user\", role, way, address, action, object, outcome
                 FROM records.access.audit
                 WHERE happened_at >= make_timestamp(?::BIGINT) AND coalesce(\"user\" = ?, ?)
                 ORDER BY happened_at DESC LIMIT {}",
                filter.limit.min(i64::MAX as usize)
            ),
            vec![
                micros(filter.from.unwrap_or_default()).into(),
                filter.user.clone().into(),
                // Without a user to select, all entries count.
                filter.user.is_none().into(),
            ],
            |row| {
                Ok(AuditRecord {
                    at: row.time(0)?,
                    user: row.get(1)?,
                    role: row.get(2)?,
                    way: row.get(3)?,
                    address: row.get(4)?,
                    action: row.get(5)?,
                    object: row.get(6)?,
                    outcome: row.get(7)?,
                })
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::tests::Store;
    use crate::sql::{Limits, SqlClient};
    use serde_json::json;

    fn entry(at: UnixTime, user: Option<&str>) -> AuditRecord {
        AuditRecord {
            at,
            user: user.map(str::to_owned),
            role: "admin".to_owned(),
            way: "token".to_owned(),
            address: "10.0.0.1".to_owned(),
            action: "POST /-/reload".to_owned(),
            object: String::new(),
            outcome: "200".to_owned(),
        }
    }

    #[test]
    fn sql_of_admins_reads_the_audit_log() {
        let store = Store::new();
        let entry = entry(UnixTime(100), Some("anna"));
        store.records().audit(&entry).unwrap();
        let ask = |is_admin, sql: &str| {
            let mut client = SqlClient::default().of_admin(is_admin);
            let answer = client.rows(&store.database, sql, Limits::default());
            answer.map(|answer| answer.rows)
        };
        let count = "SELECT count(*), max(action) FROM audit";
        let rows = |is_admin| ask(is_admin, count).unwrap().remove(0);
        assert_eq!(rows(true), [json!(1), json!("POST /-/reload")]);
        assert_eq!(rows(false)[0], 0);
        // Every way around the search path.
        for sql in [
            "SELECT * FROM admin.audit",
            "SELECT * FROM memory.admin.audit",
            "SELECT * FROM memory.\"admin\".\"audit\"",
            "SELECT * FROM records.access.audit",
            "WITH a AS (FROM admin.audit) FROM a",
            "SELECT (SELECT count(*) FROM admin.audit)",
            "SET search_path = 'memory.admin'",
            "SELECT * FROM query_table('admin.audit')",
            "SUMMARIZE admin.audit",
            "DESCRIBE admin.audit",
        ] {
            assert!(ask(false, sql).is_err(), "{sql}");
        }

        // The view for everyone exists and is empty.
        let open = "SELECT count(*) FROM memory.main.audit";
        assert_eq!(ask(false, open).unwrap().remove(0)[0], 0);
    }

    #[test]
    fn the_audit_log_is_kept_for_a_time() {
        let store = Store::new();
        let records = store.records();
        let day = 86_400;
        for (at, user) in [
            (day, Some("anna")),
            (300 * day, None),
            (402 * day, Some("anna")),
        ] {
            records.audit(&entry(UnixTime(at), user)).unwrap();
        }
        let all = |user: Option<&str>, limit| {
            let filter = AuditFilter {
                user: user.map(str::to_owned),
                from: None,
                limit,
            };
            records
                .audited(&filter)
                .unwrap()
                .into_iter()
                .map(|entry| entry.at.0 / day)
                .collect::<Vec<_>>()
        };
        assert_eq!(all(None, 10), [402, 300]);
        assert_eq!(all(Some("anna"), 10), [402]);
        assert_eq!(all(None, 1), [402]);
    }
}
