//! The owner of the job that a fault hit: by mail, at the address that the site knows for the user.

use super::Wording;
use super::email::Email;
use crate::outbox::Row;
use std::fmt;
use std::sync::Arc;

/// The label that names the user.
const USER: &str = "user";

/// Knows where a user is written to.
type Find = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The addresses of users.
#[derive(Clone)]
pub struct Addresses(Arc<Find>);

impl Addresses {
    /// Addresses as `find` knows them.
    pub fn new(find: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    /// Nobody's address is known.
    pub fn none() -> Self {
        Self::new(|_| None)
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Addresses")
    }
}

/// Mail to the owner whom a message's alerts name.
#[derive(Debug, Clone)]
pub struct Owner {
    /// Where users are written to.
    pub addresses: Addresses,
    /// The part of Message-IDs behind the `@`.
    pub domain: String,
    /// The words that its settings ask for.
    pub wording: Wording,
}

impl Owner {
    /// The channel of the user whom all alerts of a row name.
    ///
    /// # Errors
    /// Where there is no such user, or no address is known.
    pub fn email(&self, row: &Row) -> Result<Email, String> {
        let user = row
            .message
            .common_labels
            .get(USER)
            .ok_or("the alerts name no one user")?;
        let to = (self.addresses.0)(user)
            .ok_or_else(|| format!("no address is known for the user {user}"))?;
        Ok(Email {
            to,
            domain: self.domain.clone(),
            wording: self.wording.clone(),
        })
    }
}
