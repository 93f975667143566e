//! Associations: the accounts, users and shares of Slurm's database.

use serde::{Deserialize, Serialize};

/// One association, as slurmdbd stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Association {
    /// Account. For a user's association, the account that the user belongs to.
    pub account: String,
    /// Parent account. `None` for the root account and for users.
    pub parent_account: Option<String>,
    /// Unix user. `None` for an account's association.
    pub user: Option<String>,
    /// Partition, if the association is valid in one partition only.
    pub partition: Option<String>,
    /// Shares among the siblings (`Fairshare` in `sacctmgr`).
    pub shares: Shares,
    /// `GrpTRESMins` as Slurm writes it. `None` without a limit.
    pub grp_tres_mins: Option<String>,
}

impl Association {
    /// Returns the association of an account; `parent` is `None` for the root account.
    pub fn account(account: &str, parent: Option<&str>, shares: Shares) -> Self {
        Self {
            account: account.to_owned(),
            parent_account: parent.map(str::to_owned),
            user: None,
            partition: None,
            shares,
            grp_tres_mins: None,
        }
    }

    /// Returns the association of a user in an account.
    pub fn user(account: &str, user: &str, shares: Shares) -> Self {
        Self {
            user: Some(user.to_owned()),
            ..Self::account(account, None, shares)
        }
    }

    /// Returns the user's name, or the account's name for an account.
    pub fn name(&self) -> &str {
        self.user.as_deref().unwrap_or(&self.account)
    }
}

/// Shares of an association among its siblings (`Fairshare` of `sacctmgr`, raw shares of `sshare`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shares {
    /// This many shares, relative to the sum over the siblings.
    Raw(u32),
    /// `fairshare=parent`: the association uses the shares of its account.
    Parent,
}

impl Shares {
    /// Converts the number in Slurm's database and REST interface. 2³¹ − 1 stands for `parent`.
    pub fn from_raw(raw: u32) -> Self {
        if raw == i32::MAX.unsigned_abs() {
            Self::Parent
        } else {
            Self::Raw(raw)
        }
    }
}
