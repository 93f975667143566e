//! `PriorityUsageResetPeriod` of slurm.conf.

use serde::{Deserialize, Serialize};

/// How often usage is reset (`PriorityUsageResetPeriod`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum UsageResetPeriod {
    /// Never.
    #[default]
    None,
    /// Each midnight.
    Daily,
    /// Each midnight before Sunday.
    Weekly,
    /// The first day of each month.
    Monthly,
    /// The first day of January, April, July and October.
    Quarterly,
    /// The first day of the year.
    Yearly,
}

impl UsageResetPeriod {
    /// Parses Slurm's word, ignoring case. `NOW` is a one-time action, after which Slurm's period
    /// is `NONE`.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text.to_ascii_uppercase().as_str() {
            "NONE" | "NOW" => Self::None,
            "DAILY" => Self::Daily,
            "WEEKLY" => Self::Weekly,
            "MONTHLY" => Self::Monthly,
            "QUARTERLY" => Self::Quarterly,
            "YEARLY" => Self::Yearly,
            _ => return None,
        })
    }
}
