//! Associations: the accounts, users and shares of Slurm's database.

use serde::{Deserialize, Serialize};

/// One association as Slurm's database has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Association {
    /// The account; a user's is the one she is in.
    pub account: String,
    /// The account above, for an account; `None` for the root and for users.
    pub parent_account: Option<String>,
    /// The user; `None` for an account.
    pub user: Option<String>,
    /// The partition, where the association holds for one only.
    pub partition: Option<String>,
    /// Her shares among her siblings.
    pub shares: Shares,
    /// `GrpTRESMins` as Slurm writes it, where there is a limit.
    pub grp_tres_mins: Option<String>,
}

impl Association {
    /// An account below another, or the root.
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

    /// A user in an account.
    pub fn user(account: &str, user: &str, shares: Shares) -> Self {
        Self {
            user: Some(user.to_owned()),
            ..Self::account(account, None, shares)
        }
    }

    /// The name that siblings differ in.
    pub fn name(&self) -> &str {
        self.user.as_deref().unwrap_or(&self.account)
    }
}

/// Shares of an association among its siblings (`Fairshare` of `sacctmgr`, raw shares of `sshare`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shares {
    /// So many, against the sum of the siblings.
    Raw(u32),
    /// `fairshare=parent`: no share of one's own, that of the account is used.
    Parent,
}

impl Shares {
    /// As Slurm's database and REST interface count them, where 2³¹ − 1 stands for `parent`.
    pub fn from_raw(raw: u32) -> Self {
        if raw == i32::MAX.unsigned_abs() {
            Self::Parent
        } else {
            Self::Raw(raw)
        }
    }
}
