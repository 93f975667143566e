//! Fair share of each association from shares and usage: the common part of Fair Tree and the
//! classic formula.

use super::tree::{AssociationId, AssociationTree};
use super::{classic, fair_tree};
use takt_jobs::{PrioritySettings, Shares};

/// Fair-share values of one association.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Standing {
    /// Fraction of the shares: of the siblings' under Fair Tree, of the cluster's in the classic
    /// formula.
    pub norm_shares: f64,
    /// Fraction of the cluster's usage.
    pub norm_usage: f64,
    /// Fair Tree: fraction of the usage of the account it competes in. Classic: usage including a
    /// part of the siblings' usage.
    pub effective_usage: f64,
    /// Fair Tree: shares over usage among the siblings. Above 1 the user has used less than the
    /// share; without usage it is infinite. `None` for the root and with `fairshare=parent`.
    pub level_fs: Option<f64>,
    /// Fair Tree: rank of the user among all. The best is `user_count`.
    pub rank: Option<u32>,
    /// Fair-share factor, 0 to 1. Set for users, and in the classic formula for accounts too.
    pub fair_share: Option<f64>,
}

/// Computes the standing of each association. `raw_usage` is by association and includes the usage
/// below it.
pub fn standings(
    tree: &AssociationTree,
    settings: &PrioritySettings,
    raw_usage: &[f64],
) -> Vec<Standing> {
    if settings.flags.no_fair_tree {
        classic::standings(tree, settings, raw_usage)
    } else {
        fair_tree::standings(tree, raw_usage)
    }
}

/// Returns the fraction of the cluster's usage.
pub(super) fn norm_usage(tree: &AssociationTree, raw_usage: &[f64], id: AssociationId) -> f64 {
    match raw_usage[tree.root().index()] {
        0.0 => 0.0,
        // Rounding may make a part larger than the whole.
        root => (raw_usage[id.index()] / root).min(1.0),
    }
}

/// Returns the fraction of the siblings' shares. `None` for the root and with `fairshare=parent`.
pub(super) fn share_of_level(tree: &AssociationTree, id: AssociationId) -> Option<f64> {
    tree.fs_parent(id)?;
    match (tree.get(id).shares, tree.level_shares(id)) {
        (Shares::Parent, _) => None,
        // Siblings without any shares have no sum to divide by.
        (Shares::Raw(_), 0) => Some(0.0),
        (Shares::Raw(shares), level) => Some(f64::from(shares) / level as f64),
    }
}
