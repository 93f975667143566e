//! How much users see of each other.

use serde::{Deserialize, Serialize};

/// How much users see of each other. A later level hides everything that an earlier one hides.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Privacy {
    /// Users see each other's jobs, without names of jobs and command lines.
    #[default]
    Open,
    /// Also hides measurements of jobs, and usage of single users.
    Usage,
    /// Users see their own jobs only.
    Private,
}

impl Privacy {
    /// Returns the level of Slurm's `PrivateData`, such as `jobs,usage`. `none` and an empty text hide nothing.
    ///
    /// `users` and `accounts` hide who belongs to an account, which usage by user would show.
    pub fn of_private_data(text: &str) -> Self {
        text.split(',')
            .map(|word| word.trim().to_lowercase())
            // Words that hide nothing of users, such as `nodes` or `reservations`, count as open. The strictest word
            // decides.
            .map(|word| match word.as_str() {
                "jobs" | "all" => Self::Private,
                "usage" | "users" | "accounts" => Self::Usage,
                _ => Self::Open,
            })
            .max()
            .unwrap_or_default()
    }

    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Usage => "usage",
            Self::Private => "private",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_decides_what_users_see() {
        for (text, level) in [
            // An unset `PrivateData` is `none` in `scontrol show config`.
            ("none", Privacy::Open),
            ("", Privacy::Open),
            ("cloud,nodes,partitions,reservations,events", Privacy::Open),
            ("usage", Privacy::Usage),
            ("Accounts,users", Privacy::Usage),
            ("jobs", Privacy::Private),
            ("usage, jobs", Privacy::Private),
            ("all", Privacy::Private),
        ] {
            assert_eq!(Privacy::of_private_data(text), level, "{text}");
        }
    }
}
