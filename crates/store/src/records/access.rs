//! Tokens, sessions and passwords.

use super::{Records, StoreError, TimeColumns, micros};
use duckdb::params;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;
use takt_model::UnixTime;

/// A token. The token itself is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Number of the token.
    pub id: i64,
    /// SHA-256 of the token, hexadecimal.
    #[serde(skip)]
    pub hash: String,
    /// Name, such as the program that uses it.
    pub name: String,
    /// Unix user on whose behalf it asks; `None` for a program.
    pub owner: Option<String>,
    /// Role.
    pub role: String,
    /// User who created it.
    pub created_by: String,
    /// Time of creation.
    pub created_at: UnixTime,
    /// End of its validity; `None`: never.
    pub expires_at: Option<UnixTime>,
    /// Time of its last use, to the minute.
    pub used_at: Option<UnixTime>,
    /// Time of its revocation.
    pub revoked_at: Option<UnixTime>,
}

/// A session of a browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// SHA-256 of the cookie, hexadecimal.
    #[serde(skip)]
    pub hash: String,
    /// Unix user.
    pub user: String,
    /// How the user signed in.
    pub way: String,
    /// Time of the sign-in.
    pub created_at: UnixTime,
    /// Time of the last request, to the minute.
    pub seen_at: UnixTime,
    /// Address of the browser.
    pub address: String,
    /// `User-Agent` of the browser.
    pub browser: String,
    /// Groups of the user that give a role, from the service that signed the user in.
    pub groups: Vec<String>,
}

impl Records<'_> {
    /// Returns a number that changes with every token and session that begins or ends.
    pub fn access_changes(&self) -> u64 {
        self.database.access_changes.load(Ordering::Acquire)
    }

    /// Returns the secret of this data directory for a purpose: `fresh` at the first use, and the same ever after.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn secret(&self, purpose: &str, fresh: &str) -> Result<String, StoreError> {
        // An existing secret is never replaced, because values derived from it must stay the same.
        self.run(
            "store a secret",
            "INSERT INTO records.access.secrets
             SELECT ?, ? WHERE NOT EXISTS (SELECT * FROM records.access.secrets WHERE purpose = ?)",
            params![purpose, fresh, purpose],
        )?;

        let secrets = self.list(
            "read a secret",
            "SELECT secret FROM records.access.secrets WHERE purpose = ?",
            vec![purpose.to_owned().into()],
            |row| row.get(0),
        )?;

        Ok(secrets
            .into_iter()
            .next()
            .unwrap_or_else(|| fresh.to_owned()))
    }

    /// Returns all tokens, the oldest first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        self.list(
            "list the tokens",
            "SELECT id, hash, name, owner, role, created_by, epoch_ms(created_at) // 1000, epoch_ms(expires_at) // 1000,
                    epoch_ms(used_at) // 1000, epoch_ms(revoked_at) // 1000
             FROM records.access.tokens ORDER BY id",
            Vec::new(),
            |row| {
                Ok(TokenRecord {
                    id: row.get(0)?,
                    hash: row.get(1)?,
                    name: row.get(2)?,
                    owner: row.get(3)?,
                    role: row.get(4)?,
                    created_by: row.get(5)?,
                    created_at: row.time(6)?,
                    expires_at: row.time_if_set(7)?,
                    used_at: row.time_if_set(8)?,
                    revoked_at: row.time_if_set(9)?,
                })
            },
        )
    }

    /// Stores a token and returns it with its number.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn add_token(&self, mut token: TokenRecord) -> Result<TokenRecord, StoreError> {
        let _writing = self.database.writing().aside();
        // Revoked tokens stay in the table, so no number is given twice.
        token.id = self
            .database
            .connect()?
            .query_row(
                "INSERT INTO records.access.tokens
             SELECT coalesce(max(id), 0) + 1, ?, ?, ?, ?, ?, make_timestamp(?::BIGINT)::TIMESTAMP_S,
                    make_timestamp(?::BIGINT)::TIMESTAMP_S, NULL, NULL
             FROM records.access.tokens RETURNING id",
                params![
                    token.hash,
                    token.name,
                    token.owner,
                    token.role,
                    token.created_by,
                    micros(token.created_at),
                    token.expires_at.map(micros),
                ],
                |row| row.get(0),
            )
            .map_err(StoreError::sql("store the token"))?;

        self.note_access_change();
        Ok(token)
    }

    /// Revokes a token at a time. Returns false if no valid token has this number.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn revoke_token(&self, id: i64, at: UnixTime) -> Result<bool, StoreError> {
        // The time of the first revocation stays.
        let changed = self.run(
            "revoke the token",
            "UPDATE records.access.tokens SET revoked_at = make_timestamp(?::BIGINT)::TIMESTAMP_S
             WHERE id = ? AND revoked_at IS NULL",
            params![micros(at), id],
        )?;
        self.note_access_change();
        Ok(changed > 0)
    }

    /// Stores the time of a token's last use.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_token_use(&self, id: i64, at: UnixTime) -> Result<(), StoreError> {
        // A use changes no right, so the tokens need not be loaded again.
        self.run(
            "store the use of a token",
            "UPDATE records.access.tokens SET used_at = make_timestamp(?::BIGINT)::TIMESTAMP_S WHERE id = ?",
            params![micros(at), id],
        )?;
        Ok(())
    }

    /// Returns the sessions that were used after a time.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn sessions(&self, seen_after: UnixTime) -> Result<Vec<SessionRecord>, StoreError> {
        self.list(
            "list the sessions",
            "SELECT hash, \"user\", way, epoch_ms(created_at) // 1000, epoch_ms(seen_at) // 1000, address, browser, groups
             FROM records.access.sessions WHERE seen_at > make_timestamp(?::BIGINT)::TIMESTAMP_S ORDER BY created_at",
            vec![micros(seen_after).into()],
            |row| {
                Ok(SessionRecord {
                    hash: row.get(0)?,
                    user: row.get(1)?,
                    way: row.get(2)?,
                    created_at: row.time(3)?,
                    seen_at: row.time(4)?,
                    address: row.get(5)?,
                    browser: row.get(6)?,
                    groups: lines(row.get::<_, Option<String>>(7)?),
                })
            },
        )
    }

    /// Stores a session, and deletes those that were not used after `seen_after`.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn add_session(
        &self,
        session: &SessionRecord,
        seen_after: UnixTime,
    ) -> Result<(), StoreError> {
        // Sign-ins are rare, so expired sessions are deleted at this occasion.
        self.run(
            "delete old sessions",
            "DELETE FROM records.access.sessions WHERE seen_at <= make_timestamp(?::BIGINT)::TIMESTAMP_S",
            params![micros(seen_after)],
        )?;

        self.run(
            "store the session",
            "INSERT INTO records.access.sessions VALUES (?, ?, ?, make_timestamp(?::BIGINT)::TIMESTAMP_S,
                 make_timestamp(?::BIGINT)::TIMESTAMP_S, ?, ?, ?)",
            params![
                session.hash,
                session.user,
                session.way,
                micros(session.created_at),
                micros(session.seen_at),
                session.address,
                session.browser,
                session.groups.join("\n"),
            ],
        )?;

        self.note_access_change();
        Ok(())
    }

    /// Stores the time of a session's last request.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_session_use(&self, hash: &str, at: UnixTime) -> Result<(), StoreError> {
        self.run(
            "store the use of a session",
            "UPDATE records.access.sessions SET seen_at = make_timestamp(?::BIGINT)::TIMESTAMP_S WHERE hash = ?",
            params![micros(at), hash],
        )?;
        Ok(())
    }

    /// Ends the session with this hash, or all sessions of its user.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn end_sessions(&self, hash: &str, everywhere: bool) -> Result<(), StoreError> {
        // The hash comes from the browser that asks, which can thereby end only sessions of its own user.
        self.run(
            "end the session",
            "DELETE FROM records.access.sessions WHERE hash = ?1
             OR (?2 AND \"user\" IN (SELECT \"user\" FROM records.access.sessions WHERE hash = ?1))",
            params![hash, everywhere],
        )?;
        self.note_access_change();
        Ok(())
    }

    /// Returns the hash of a user's password; `None` without a password.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn password_hash(&self, user: &str) -> Result<Option<String>, StoreError> {
        let found = self.list(
            "look up the password",
            "SELECT hash FROM records.access.passwords WHERE \"user\" = ?",
            vec![user.to_owned().into()],
            |row| row.get(0),
        )?;
        Ok(found.into_iter().next())
    }

    /// Sets the hash of a user's password, or removes the password. Ends the user's sessions that began with a password.
    /// Returns whether the user had a password.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn set_password(
        &self,
        user: &str,
        hash: Option<&str>,
        set_by: &str,
        at: UnixTime,
    ) -> Result<bool, StoreError> {
        let _writing = self.database.writing().aside();
        let db = self.database.connect()?;

        // One transaction: no session of the old password may outlive it.
        let set = || -> Result<bool, duckdb::Error> {
            db.execute_batch("BEGIN")?;
            let delete = "DELETE FROM records.access.passwords WHERE \"user\" = ?";
            let had = db.execute(delete, params![user])? > 0;
            if let Some(hash) = hash {
                db.execute(
                    "INSERT INTO records.access.passwords VALUES (?, ?, ?, make_timestamp(?::BIGINT)::TIMESTAMP_S)",
                    params![user, hash, set_by, micros(at)],
                )?;
            }

            // Sessions that began in another way do not depend on the password.
            db.execute(
                "DELETE FROM records.access.sessions WHERE \"user\" = ? AND way = 'password'",
                params![user],
            )?;
            db.execute_batch("COMMIT")?;
            Ok(had)
        };

        let had = set().map_err(StoreError::sql("set the password"))?;
        self.note_access_change();
        Ok(had)
    }

    /// Returns whether a job or Slurm's associations name this user.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn is_known_user(&self, user: &str) -> Result<bool, StoreError> {
        let found = self.list(
            "look up the user",
            "SELECT 1 FROM records.jobs WHERE \"user\" = ? LIMIT 1",
            vec![user.to_owned().into()],
            |row| row.get::<_, i32>(0),
        )?;
        Ok(!found.is_empty())
    }

    /// Returns Slurm's `PrivateData` when slurmctld last answered; `None` if it never did.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn private_data(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        let found = self.list(
            "look up PrivateData",
            "SELECT value FROM records.access.private_data WHERE cluster = ? ORDER BY read_at DESC LIMIT 1",
            vec![cluster.to_owned().into()],
            |row| row.get(0),
        )?;
        Ok(found.into_iter().next())
    }

    /// Stores Slurm's `PrivateData`, if it has changed at a time.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_private_data(
        &self,
        cluster: &str,
        value: &str,
        at: UnixTime,
    ) -> Result<(), StoreError> {
        // The poller reads the setting again and again; only a change makes a row.
        if self.private_data(cluster)?.as_deref() == Some(value) {
            return Ok(());
        }
        let insert = "INSERT INTO records.access.private_data VALUES (?, ?, make_timestamp(?::BIGINT)::TIMESTAMP_S)";
        self.writing("store PrivateData", |db| {
            db.execute(insert, params![cluster, value, micros(at)])
                .map(drop)
        })
    }

    /// Runs a statement and returns how many rows it changed.
    pub(super) fn run(
        &self,
        what: &'static str,
        sql: &str,
        values: impl duckdb::Params,
    ) -> Result<usize, StoreError> {
        let _writing = self.database.writing().aside();
        self.database
            .connect()?
            .execute(sql, values)
            .map_err(StoreError::sql(what))
    }

    fn note_access_change(&self) {
        self.database.access_changes.fetch_add(1, Ordering::AcqRel);
    }
}

/// Returns the lines of a stored list.
fn lines(text: Option<String>) -> Vec<String> {
    text.unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::tests::Store;
    use crate::sql::{Limits, run};
    use std::slice;

    fn token(name: &str) -> TokenRecord {
        TokenRecord {
            id: 0,
            hash: format!("hash of {name}"),
            name: name.to_owned(),
            owner: None,
            role: "viewer".to_owned(),
            created_by: "anna".to_owned(),
            created_at: UnixTime(100),
            expires_at: None,
            used_at: None,
            revoked_at: None,
        }
    }

    #[test]
    fn a_secret_is_made_once_and_sql_does_not_reach_it() {
        let store = Store::new();
        let records = store.records();
        assert_eq!(records.secret("fingerprints", "first").unwrap(), "first");
        assert_eq!(records.secret("fingerprints", "second").unwrap(), "first");
        assert_eq!(records.secret("other", "second").unwrap(), "second");
        // Each way in which a statement could name the table.
        for table in ["records.access.secrets", "access.secrets", "secrets"] {
            let sql = format!("SELECT * FROM {table}");
            run(&store.database, &sql, Limits::default()).unwrap_err();
        }
    }

    #[test]
    fn a_token_is_revoked_once() {
        let store = Store::new();
        let records = store.records();
        let before = records.access_changes();
        let added = records.add_token(token("grafana")).unwrap();
        assert_eq!(records.tokens().unwrap(), slice::from_ref(&added));
        assert_ne!(records.access_changes(), before);

        // Only the first revocation finds a valid token.
        assert!(records.revoke_token(added.id, UnixTime(200)).unwrap());
        assert!(!records.revoke_token(added.id, UnixTime(300)).unwrap());
        assert!(!records.revoke_token(99, UnixTime(300)).unwrap());
        records.note_token_use(added.id, UnixTime(150)).unwrap();
        let stored = records.tokens().unwrap().remove(0);
        assert_eq!(stored.used_at, Some(UnixTime(150)));
        assert_eq!(stored.revoked_at, Some(UnixTime(200)));
        assert_eq!(records.add_token(token("other")).unwrap().id, 2);
    }

    #[test]
    fn sessions_end_one_by_one_or_all_at_once() {
        let store = Store::new();
        let records = store.records();
        let session = |hash: &str, user: &str| SessionRecord {
            hash: hash.to_owned(),
            user: user.to_owned(),
            way: "link".to_owned(),
            created_at: UnixTime(100),
            seen_at: UnixTime(100),
            address: "10.0.0.1".to_owned(),
            browser: String::new(),
            groups: vec!["hpc-admins".to_owned(), "cn=a,dc=b".to_owned()],
        };

        for (hash, user) in [("a", "alice"), ("b", "alice"), ("c", "bob"), ("d", "bob")] {
            records
                .add_session(&session(hash, user), UnixTime(0))
                .unwrap();
        }
        records.note_session_use("d", UnixTime(500)).unwrap();
        records.end_sessions("c", false).unwrap();
        records.end_sessions("a", true).unwrap();
        // An unknown cookie belongs to no user, so it ends no session.
        records.end_sessions("unknown", true).unwrap();
        let left = records.sessions(UnixTime(0)).unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(&*left[0].hash, "d");
        assert_eq!(left[0].seen_at, UnixTime(500));
        assert_eq!(left[0].groups, ["hpc-admins", "cn=a,dc=b"]);
        assert!(records.sessions(UnixTime(500)).unwrap().is_empty());

        // The session `d` was last used at that limit, so the next sign-in deletes it.
        records
            .add_session(&session("e", "eve"), UnixTime(500))
            .unwrap();
        assert_eq!(
            records.sessions(UnixTime(0)).unwrap().len(),
            1,
            "the old one is deleted"
        );
    }

    #[test]
    fn sql_of_users_reaches_no_secret() {
        let store = Store::new();
        let records = store.records();
        records.add_token(token("grafana")).unwrap();

        for table in ["tokens", "sessions", "passwords", "private_data"] {
            for name in [
                format!("records.access.{table}"),
                format!("access.{table}"),
                table.to_owned(),
            ] {
                let sql = format!("SELECT * FROM {name}");
                assert!(
                    run(&store.database, &sql, Limits::default()).is_err(),
                    "{sql}"
                );
            }
        }
    }

    #[test]
    fn a_new_password_ends_the_sessions_of_the_old_one() {
        let store = Store::new();
        let records = store.records();
        assert!(
            !records
                .set_password("alice", Some("one"), "anna", UnixTime(1))
                .unwrap()
        );
        // Only the first session began with alice's password.
        for (hash, user, way) in [
            ("a", "alice", "password"),
            ("b", "alice", "link"),
            ("c", "bob", "password"),
        ] {
            let session = SessionRecord {
                hash: hash.to_owned(),
                user: user.to_owned(),
                way: way.to_owned(),
                created_at: UnixTime(100),
                seen_at: UnixTime(100),
                address: String::new(),
                browser: String::new(),
                groups: Vec::new(),
            };
            records.add_session(&session, UnixTime(0)).unwrap();
        }

        let before = records.access_changes();
        assert!(
            records
                .set_password("alice", Some("two"), "alice", UnixTime(2))
                .unwrap()
        );
        assert_ne!(records.access_changes(), before);
        let hash = |user| records.password_hash(user).unwrap();
        assert_eq!(hash("alice").as_deref(), Some("two"));
        assert_eq!(hash("bob"), None);
        let left = records.sessions(UnixTime(0)).unwrap().into_iter();
        assert_eq!(left.map(|one| one.hash).collect::<Vec<_>>(), ["b", "c"]);
        assert!(
            records
                .set_password("alice", None, "anna", UnixTime(3))
                .unwrap()
        );
        assert_eq!(hash("alice"), None);
        assert!(
            !records
                .set_password("alice", None, "anna", UnixTime(4))
                .unwrap()
        );
    }

    #[test]
    fn the_newest_private_data_counts() {
        let store = Store::new();
        let records = store.records();
        assert_eq!(records.private_data("lab").unwrap(), None);
        // The third value repeats the second, and the value of the other cluster is later than both.
        for (value, at) in [("none", 1), ("jobs", 2), ("jobs", 3)] {
            records
                .note_private_data("lab", value, UnixTime(at))
                .unwrap();
        }
        records
            .note_private_data("other", "none", UnixTime(4))
            .unwrap();
        assert_eq!(
            records.private_data("lab").unwrap().as_deref(),
            Some("jobs")
        );
    }
}
