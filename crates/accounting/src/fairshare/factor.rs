//! Fair share of each association from shares and usage: what Fair Tree and the classic formula have in common.

use super::tree::{AssociationId, AssociationTree};
use super::{classic, fair_tree};
use takt_slurm::PrioritySettings;
use takt_slurm::Shares;

/// Where an association stands.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Standing {
    /// Its part of the shares: among its siblings under Fair Tree, of the whole cluster in the classic formula.
    pub norm_shares: f64,
    /// Its part of the cluster's usage.
    pub norm_usage: f64,
    /// Fair Tree: its part of the usage of the account it competes in. Classic: usage with that of its siblings mixed
    /// in.
    pub effective_usage: f64,
    /// Fair Tree: shares over usage among its siblings. More than 1 is less used than one's share; unused is infinite.
    /// `None` where it is not compared: the root, and with `fairshare=parent`.
    pub level_fs: Option<f64>,
    /// Fair Tree: the user's place among all, `user_count` being the best.
    pub rank: Option<u32>,
    /// The factor of priority, 0 to 1; of users, and in the classic formula of accounts too.
    pub fair_share: Option<f64>,
}

/// Where everybody stands. `raw_usage` is by association, what is below included.
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

/// Part of the cluster's usage.
pub(super) fn norm_usage(tree: &AssociationTree, raw_usage: &[f64], id: AssociationId) -> f64 {
    match raw_usage[tree.root().index()] {
        0.0 => 0.0,
        root => (raw_usage[id.index()] / root).min(1.0),
    }
}

/// Part of the shares of its siblings; `None` for the root and with `fairshare=parent`.
pub(super) fn share_of_level(tree: &AssociationTree, id: AssociationId) -> Option<f64> {
    tree.fs_parent(id)?;
    match (tree.get(id).shares, tree.level_shares(id)) {
        (Shares::Parent, _) => None,
        (Shares::Raw(_), 0) => Some(0.0),
        (Shares::Raw(shares), level) => Some(f64::from(shares) / level as f64),
    }
}
