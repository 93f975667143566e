//! Rows of `sshare -l -a`.

use super::factor::standings;
use super::tree::AssociationTree;
use super::usage::Usage;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use takt_jobs::{PrioritySettings, Shares};

/// One row of `sshare -l -a`, unrounded. Normalized usage and factors are from the last tick, as in
/// Slurm; raw usage includes the runs that ended since.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareRow {
    /// Depth in the tree. The root has 0.
    pub depth: usize,
    /// Account. For a user, the account that the user belongs to.
    pub account: String,
    /// Unix user. `None` for an account.
    pub user: Option<String>,
    /// Partition, if the association is valid in one partition only.
    pub partition: Option<String>,
    /// Configured shares. `None` for the root.
    pub raw_shares: Option<Shares>,
    /// Fraction of the shares: of the siblings' under Fair Tree, of the cluster's in the classic
    /// formula.
    pub norm_shares: f64,
    /// Decayed usage in billing units × seconds.
    pub raw_usage: f64,
    /// Fraction of the cluster's usage.
    pub norm_usage: f64,
    /// Fair Tree: fraction of the account's usage. Classic: usage including a part of the siblings'
    /// usage.
    pub effective_usage: f64,
    /// Fair-share factor, 0 to 1.
    pub fair_share: Option<f64>,
    /// Shares over usage among the siblings. Above 1 the user has used less than the share.
    /// Infinity is written as `"inf"`.
    #[serde(serialize_with = "infinite", deserialize_with = "finite_or_infinite")]
    pub level_fs: Option<f64>,
    /// Limit of TRES × minutes, as Slurm writes it.
    pub grp_tres_mins: Option<String>,
    /// TRES × minutes that running jobs may still use, if their limits are known.
    pub tres_run_minutes: BTreeMap<String, f64>,
}

/// Returns all rows in the order of `sshare`: each account followed by its users, then by its
/// accounts, by name.
pub fn share_rows(
    tree: &AssociationTree,
    settings: &PrioritySettings,
    usage: &Usage,
) -> Vec<ShareRow> {
    let at_last_tick: Vec<f64> = usage.all_at_last_tick();
    let standings = standings(tree, settings, &at_last_tick);

    let row = |id| {
        let association = tree.get(id);
        let standing = &standings[id.index()];
        ShareRow {
            depth: tree.path(id).len() - 1,
            account: association.account.clone(),
            user: association.user.clone(),
            partition: association.partition.clone(),
            raw_shares: tree.parent(id).map(|_| association.shares),
            norm_shares: standing.norm_shares,
            raw_usage: usage.raw_usage(id),
            norm_usage: standing.norm_usage,
            effective_usage: standing.effective_usage,
            fair_share: standing.fair_share,
            level_fs: standing.level_fs,
            grp_tres_mins: association.grp_tres_mins.clone(),
            tres_run_minutes: usage.tres_run_minutes(id),
        }
    };

    tree.display_order().into_iter().map(row).collect()
}

/// Serializes infinity as `"inf"`, because JSON cannot express it.
pub fn infinite<S>(level_fs: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error>
where
    S: Serializer,
{
    match level_fs {
        None => serializer.serialize_none(),
        Some(level_fs) if level_fs.is_infinite() => serializer.serialize_str("inf"),
        Some(level_fs) => serializer.serialize_f64(*level_fs),
    }
}

/// Reads the output of [`infinite`].
pub fn finite_or_infinite<'de, D>(deserializer: D) -> Result<Option<f64>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(f64),
        Word(String),
    }
    match Option::<Written>::deserialize(deserializer)? {
        None => Ok(None),
        Some(Written::Number(level_fs)) => Ok(Some(level_fs)),
        Some(Written::Word(word)) if word == "inf" => Ok(Some(f64::INFINITY)),
        Some(Written::Word(word)) => Err(serde::de::Error::custom(format!(
            "level_fs: expected a number, found {word}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    #[test]
    fn a_row_is_read_back_as_it_was_written() {
        for level_fs in [None, Some(1.5), Some(f64::INFINITY)] {
            let row = ShareRow {
                depth: 1,
                account: "lab".into(),
                user: None,
                partition: None,
                raw_shares: Some(Shares::Parent),
                norm_shares: 0.5,
                raw_usage: 7.0,
                norm_usage: 0.25,
                effective_usage: 0.25,
                fair_share: None,
                level_fs,
                grp_tres_mins: None,
                tres_run_minutes: BTreeMap::new(),
            };
            let text = serde_json::to_string(&row).unwrap();
            assert_eq!(
                serde_json::from_str::<ShareRow>(&text).unwrap(),
                row,
                "{text}"
            );
        }
    }

    #[test]
    fn an_infinite_level_fs_is_a_word() {
        struct Written(Option<f64>);
        impl fmt::Display for Written {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                infinite(&self.0, f)
            }
        }
        assert_eq!(Written(Some(f64::INFINITY)).to_string(), "inf");
        assert_eq!(Written(Some(1.5)).to_string(), "1.5");
    }
}
