//! The classic factor (`NO_FAIR_TREE`): F = 2^(−(usage / shares) / dampening).
//!
//! The usage is effective usage, which includes a part of the siblings' usage, so an idle user of a
//! busy account ranks below an idle user of an idle account. `DEPTH_OBLIVIOUS` combines them by
//! another formula.
//!
//! Slurm computes accounts at the beginning of a tick, from the usage at the previous tick, and
//! users on request. Its values for accounts are therefore one tick late; after two ticks without
//! change they equal ours.

use super::factor::{Standing, norm_usage, share_of_level};
use super::tree::{AssociationId, AssociationTree};
use takt_jobs::{PrioritySettings, Shares};

/// Computes the standing of each association. `raw_usage` is by association and includes the usage
/// below it.
pub fn standings(
    tree: &AssociationTree,
    settings: &PrioritySettings,
    raw_usage: &[f64],
) -> Vec<Standing> {
    let mut standings: Vec<Standing> = vec![Standing::default(); tree.len()];
    // Normalized usage first: the effective usage of an association needs that of others.
    for id in tree.top_down() {
        let standing = &mut standings[id.index()];
        standing.norm_usage = norm_usage(tree, raw_usage, *id);
    }

    for id in tree.top_down() {
        let Some(above) = tree.fs_parent(*id) else {
            // The root has all shares and all usage.
            let root = &mut standings[id.index()];
            (root.norm_shares, root.effective_usage) = (1.0, 1.0);
            root.fair_share = Some(factor(1.0, 1.0, settings.dampening_factor));
            continue;
        };

        let norm_shares = norm_shares(tree, &standings, *id, above);
        standings[id.index()].norm_shares = norm_shares;

        // Directly below the root, usage is compared with that of the whole cluster.
        let effective_usage = if above == tree.root() {
            standings[id.index()].norm_usage
        } else if tree.get(*id).shares == Shares::Parent {
            standings[above.index()].effective_usage
        } else if settings.flags.depth_oblivious {
            depth_oblivious(tree, &standings, *id, above)
        } else {
            mixed(tree, &standings, *id, above)
        };

        let standing = &mut standings[id.index()];
        standing.effective_usage = effective_usage;
        standing.fair_share = Some(factor(
            effective_usage,
            norm_shares,
            settings.dampening_factor,
        ));
    }

    standings
}

/// Returns 2^(−(usage / shares) / dampening), or 0 without shares.
pub fn factor(effective_usage: f64, norm_shares: f64, dampening_factor: u16) -> f64 {
    // The quotient would be infinite.
    if norm_shares <= 0.0 {
        return 0.0;
    }
    (-(effective_usage / norm_shares) / f64::from(dampening_factor.max(1))).exp2()
}

/// Returns the fraction of the cluster's shares: the product of the fractions at each level. With
/// `fairshare=parent` it is the parent's.
fn norm_shares(
    tree: &AssociationTree,
    standings: &[Standing],
    id: AssociationId,
    above: AssociationId,
) -> f64 {
    standings[above.index()].norm_shares * share_of_level(tree, id).unwrap_or(1.0)
}

fn mixed(
    tree: &AssociationTree,
    standings: &[Standing],
    id: AssociationId,
    above: AssociationId,
) -> f64 {
    let own = standings[id.index()].norm_usage;
    let of_account = standings[above.index()].effective_usage;
    match (share_of_level(tree, id), tree.level_shares(id)) {
        // No user of the account has shares: all count as the account.
        (_, 0) | (None, _) => of_account,
        (Some(share), _) => own + (of_account - own) * share,
    }
}

fn depth_oblivious(
    tree: &AssociationTree,
    standings: &[Standing],
    id: AssociationId,
    above: AssociationId,
) -> f64 {
    /// Weight of the balance within an account against the account's own balance.
    const WEIGHT_OF_ACCOUNT: f64 = 5.0;

    let own = standings[id.index()];
    let account = standings[above.index()];

    // Logarithms and quotients of 0 do not exist.
    if [
        own.norm_shares,
        account.norm_shares,
        account.effective_usage,
        own.norm_usage,
    ]
    .contains(&0.0)
    {
        return own.norm_usage;
    }

    let of_account = account.effective_usage / account.norm_shares;
    let of_siblings: f64 = tree
        .fs_children(above)
        .iter()
        .filter(|sibling| tree.get(**sibling).shares != Shares::Parent)
        .map(|sibling| standings[sibling.index()].norm_usage)
        .sum();
    let among_siblings = (own.norm_usage / own.norm_shares) / (of_siblings / account.norm_shares);

    // Both balances lie on the same side of 1.
    let exponent = if of_account.ln() * among_siblings.ln() >= 0.0 {
        1.0
    } else {
        1.0 / (1.0 + (WEIGHT_OF_ACCOUNT * of_account.ln()).powi(2))
    };

    of_account * among_siblings.powf(exponent) * own.norm_shares
}
