//! Roles of users.

use crate::{Privacy, Role, Viewer, Way};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Roles of users, from the configuration and from Slurm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleBook {
    roles: BTreeMap<String, Role>,
    accounts: BTreeMap<String, Arc<BTreeSet<String>>>,
}

impl RoleBook {
    /// Gives a user a role. A higher role that the user already has stays.
    pub fn grant(&mut self, user: impl Into<String>, role: Role) {
        // `max`, so that the order of the sources (configuration, Slurm) does not matter.
        let known = self.roles.entry(user.into()).or_insert(Role::User);
        *known = role.max(*known);
    }

    /// Sets the accounts that a user coordinates, with the accounts below them.
    pub fn coordinate(&mut self, user: impl Into<String>, accounts: BTreeSet<String>) {
        self.accounts.insert(user.into(), Arc::new(accounts));
    }

    /// Returns the viewer for a known user.
    pub fn viewer(&self, user: &str, way: Way, privacy: Privacy) -> Viewer {
        // A user without an entry has signed in, so the least role is that of a user.
        let role = self.roles.get(user).copied().unwrap_or(Role::User);
        let accounts = self.accounts.get(user).cloned().unwrap_or_default();
        Viewer::new(role, way, privacy)
            .with_user(user)
            .with_accounts(accounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_higher_role_counts() {
        let mut book = RoleBook::default();
        book.grant("anna", Role::Admin);
        book.grant("anna", Role::Support);
        book.coordinate("carol", BTreeSet::from(["physics".to_owned()]));

        let viewer = |user| book.viewer(user, Way::Socket, Privacy::Private);
        assert_eq!(viewer("anna").role(), Role::Admin);
        assert_eq!(viewer("carol").role_name(), "coordinator");
        assert_eq!(viewer("bob").role_name(), "user");
    }
}
