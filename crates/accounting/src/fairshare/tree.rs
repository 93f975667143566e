//! The association tree: the cluster's root, accounts, users, and users in one partition.
//!
//! Each association has two parents. Usage adds up along `parent`. Fair share follows `fs_parent`:
//! an account with `fairshare=parent` is transparent, so its children compete in the account's own
//! level.

use std::collections::HashMap;
use std::iter;
use takt_jobs::{Association, Shares};

/// Index of an association in its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssociationId(usize);

impl AssociationId {
    /// Returns the index into arrays by association.
    pub fn index(self) -> usize {
        self.0
    }
}

/// Error: the associations do not form a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// Each account has a parent.
    #[error("there is no root account: each account has a parent")]
    NoRoot,
    /// Two accounts have no parent.
    #[error("accounts '{0}' and '{1}' both have no parent")]
    TwoRoots(String, String),
    /// An association exists twice.
    #[error("there are two associations of {0}")]
    Twice(String),
    /// The parent account does not exist.
    #[error("{of} is below account '{account}', which does not exist")]
    NoAccount {
        /// The account or user.
        of: String,
        /// The missing account.
        account: String,
    },
    /// An account is its own ancestor.
    #[error("account '{0}' is its own ancestor")]
    Cycle(String),
}

/// Associations and their positions in the tree.
#[derive(Debug, Clone)]
pub struct AssociationTree {
    associations: Vec<Association>,
    root: AssociationId,
    parent: Vec<Option<AssociationId>>,
    fs_parent: Vec<Option<AssociationId>>,
    children: Vec<Vec<AssociationId>>,
    fs_children: Vec<Vec<AssociationId>>,
    level_shares: Vec<u64>,
    top_down: Vec<AssociationId>,
    accounts: HashMap<String, Account>,
}

#[derive(Debug, Clone)]
struct Account {
    id: AssociationId,
    /// Associations by user: the one for any partition, and those for one partition.
    users: HashMap<String, Vec<AssociationId>>,
}

impl AssociationTree {
    /// Builds the tree. Siblings keep their order, which decides between accounts with equal
    /// `level_fs`: pass them in Slurm's order (`lft` ascending, up to 23.02).
    ///
    /// # Errors
    /// The associations do not form a tree.
    pub fn new(associations: Vec<Association>) -> Result<Self, TreeError> {
        let mut accounts = HashMap::<String, Account>::new();
        let mut root = None;

        for (index, association) in associations
            .iter()
            .enumerate()
            .filter(|(_, each)| each.user.is_none())
        {
            let id = AssociationId(index);
            if association.parent_account.is_none()
                && let Some(first) = root.replace(id)
            {
                let first = associations[first.0].account.clone();
                return Err(TreeError::TwoRoots(first, association.account.clone()));
            }
            let account = Account {
                id,
                users: HashMap::new(),
            };
            if accounts
                .insert(association.account.clone(), account)
                .is_some()
            {
                return Err(TreeError::Twice(format!(
                    "account '{}'",
                    association.account
                )));
            }
        }

        let root = root.ok_or(TreeError::NoRoot)?;
        let mut tree = Self {
            root,
            parent: vec![None; associations.len()],
            fs_parent: vec![None; associations.len()],
            children: vec![Vec::new(); associations.len()],
            fs_children: vec![Vec::new(); associations.len()],
            level_shares: vec![0; associations.len()],
            top_down: Vec::with_capacity(associations.len()),
            accounts,
            associations,
        };

        // In this order: a cycle is found by walking from the root, and fair share follows the links.
        tree.link()?;
        tree.order()?;
        tree.link_fair_share();
        Ok(tree)
    }

    /// Returns the root.
    pub fn root(&self) -> AssociationId {
        self.root
    }

    /// Returns the number of associations.
    pub fn len(&self) -> usize {
        self.associations.len()
    }

    /// Returns false: a tree has a root.
    pub fn is_empty(&self) -> bool {
        self.associations.is_empty()
    }

    /// Returns all associations, parents before children.
    pub fn top_down(&self) -> &[AssociationId] {
        &self.top_down
    }

    /// Returns the association.
    pub fn get(&self, id: AssociationId) -> &Association {
        &self.associations[id.0]
    }

    /// Returns the parent.
    pub fn parent(&self, id: AssociationId) -> Option<AssociationId> {
        self.parent[id.0]
    }

    /// Returns the nearest ancestor that is not transparent.
    pub fn fs_parent(&self, id: AssociationId) -> Option<AssociationId> {
        self.fs_parent[id.0]
    }

    /// Returns the children in their order.
    pub fn children(&self, id: AssociationId) -> &[AssociationId] {
        &self.children[id.0]
    }

    /// Returns the associations that compete below this one, in their order.
    pub fn fs_children(&self, id: AssociationId) -> &[AssociationId] {
        &self.fs_children[id.0]
    }

    /// Returns the sum of the shares at this association's level, its own included.
    /// `fairshare=parent` counts 0.
    pub fn level_shares(&self, id: AssociationId) -> u64 {
        self.fs_parent[id.0].map_or(0, |parent| self.level_shares[parent.0])
    }

    /// Returns the number of user associations, the highest rank in Fair Tree.
    pub fn user_count(&self) -> usize {
        self.associations
            .iter()
            .filter(|association| association.user.is_some())
            .count()
    }

    /// Returns the path from the root to the association, both included.
    pub fn path(&self, id: AssociationId) -> Vec<AssociationId> {
        let mut path: Vec<_> = iter::successors(Some(id), |id| self.parent(*id)).collect();
        path.reverse();
        path
    }

    /// Returns the account's association.
    pub fn account(&self, account: &str) -> Option<AssociationId> {
        self.accounts.get(account).map(|account| account.id)
    }

    /// Returns the association that a run is charged to: the user's for that partition, or else the
    /// user's for any. Without an association, as after its removal, the account is charged, as in
    /// Slurm.
    pub fn charged(&self, account: &str, user: &str, partition: &str) -> Option<AssociationId> {
        let account = self.accounts.get(account)?;
        let of_user = account.users.get(user).map_or(&[][..], Vec::as_slice);
        let of = |partition: Option<&str>| {
            of_user
                .iter()
                .find(|id| self.associations[id.0].partition.as_deref() == partition)
                .copied()
        };
        Some(
            of(Some(partition))
                .or_else(|| of(None))
                .unwrap_or(account.id),
        )
    }

    /// Returns the associations of a user in their order.
    pub fn of_user(&self, user: &str) -> Vec<AssociationId> {
        let is = |association: &Association| association.user.as_deref() == Some(user);
        self.associations
            .iter()
            .enumerate()
            .filter(|(_, each)| is(each))
            .map(|(at, _)| AssociationId(at))
            .collect()
    }

    /// Returns all associations in the order of `sshare`: each account followed by its users, then
    /// by its accounts, by name.
    pub fn display_order(&self) -> Vec<AssociationId> {
        let mut order = Vec::with_capacity(self.len());
        let mut left = vec![self.root];
        while let Some(id) = left.pop() {
            order.push(id);
            let mut below = self.children(id).to_vec();
            below.sort_by_key(|id| {
                let association = self.get(*id);
                (
                    association.user.is_none(),
                    association.name(),
                    association.partition.as_deref(),
                )
            });
            // The stack is last in, first out, so siblings are pushed backwards.
            left.extend(below.into_iter().rev());
        }
        order
    }

    fn link(&mut self) -> Result<(), TreeError> {
        for index in 0..self.associations.len() {
            let id = AssociationId(index);
            let association = &self.associations[index];
            if id == self.root {
                continue;
            }

            // A user is below the account of the association, whatever its parent account says.
            let above = association
                .parent_account
                .as_ref()
                .filter(|_| association.user.is_none())
                .unwrap_or(&association.account);

            let Some(account) = self.accounts.get_mut(above) else {
                return Err(TreeError::NoAccount {
                    of: described(association),
                    account: above.clone(),
                });
            };

            self.parent[index] = Some(account.id);
            self.children[account.id.0].push(id);
            if let Some(user) = &association.user {
                // A user has one association for each partition, and one for any.
                let same = account.users.entry(user.clone()).or_default();
                if same
                    .iter()
                    .any(|id| self.associations[id.0].partition == association.partition)
                {
                    return Err(TreeError::Twice(described(association)));
                }
                same.push(id);
            }
        }

        Ok(())
    }

    fn order(&mut self) -> Result<(), TreeError> {
        self.top_down.push(self.root);
        let mut next = 0;
        while let Some(id) = self.top_down.get(next) {
            self.top_down.extend_from_slice(&self.children[id.0]);
            next += 1;
        }
        // An association that the root does not reach is part of a cycle.
        let mut reached = vec![false; self.associations.len()];
        self.top_down.iter().for_each(|id| reached[id.0] = true);
        match reached.iter().position(|reached| !reached) {
            Some(index) => Err(TreeError::Cycle(self.associations[index].account.clone())),
            None => Ok(()),
        }
    }

    fn link_fair_share(&mut self) {
        let transparent = |id: AssociationId| self.associations[id.0].shares == Shares::Parent;

        for index in 0..self.associations.len() {
            let mut above = self.parent[index];
            // The root is the top, even if it were transparent.
            while let Some(id) = above.filter(|id| transparent(*id) && *id != self.root) {
                above = self.parent[id.0];
            }
            self.fs_parent[index] = above;
        }

        for index in 0..self.associations.len() {
            let Some(above) = self.fs_parent[index] else {
                continue;
            };
            self.fs_children[above.0].push(AssociationId(index));
            // `fairshare=parent` has no shares of its own.
            if let Shares::Raw(shares) = self.associations[index].shares {
                self.level_shares[above.0] += u64::from(shares);
            }
        }
    }
}

/// Describes an association: `account 'vision'`, `user 'bob' in account 'vision', partition
/// 'short'`.
fn described(association: &Association) -> String {
    match (&association.user, &association.partition) {
        (None, _) => format!("account '{}'", association.account),
        (Some(user), None) => format!("user '{user}' in account '{}'", association.account),
        (Some(user), Some(partition)) => {
            format!(
                "user '{user}' in account '{}', partition '{partition}'",
                association.account
            )
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Parses a drawing of a tree, two blanks per level: `lab 60`, `@alice 10`, `@alice/short 4`,
    /// `deep parent`.
    pub(crate) fn tree(drawing: &str) -> AssociationTree {
        AssociationTree::new(drawn(drawing)).unwrap()
    }

    pub(crate) fn drawn(drawing: &str) -> Vec<Association> {
        let mut path = vec!["root".to_owned()];
        let mut associations = vec![account("root", None, Shares::Raw(1))];
        for line in drawing.lines().filter(|line| !line.trim().is_empty()) {
            let depth = (line.len() - line.trim_start().len()) / 2;
            let (name, shares) = line.trim().split_once(' ').unwrap();
            let shares = shares.trim().parse().map_or(Shares::Parent, Shares::Raw);
            path.truncate(depth + 1);
            let above = path.last().unwrap().clone();
            match name.strip_prefix('@') {
                None => {
                    associations.push(account(name, Some(&above), shares));
                    path.push(name.to_owned());
                }
                Some(user) => {
                    let (user, partition) = user
                        .split_once('/')
                        .map_or((user, None), |(user, at)| (user, Some(at)));
                    let mut association = account(&above, None, shares);
                    association.user = Some(user.to_owned());
                    association.partition = partition.map(str::to_owned);
                    associations.push(association);
                }
            }
        }
        associations
    }

    fn account(name: &str, parent: Option<&str>, shares: Shares) -> Association {
        Association {
            account: name.to_owned(),
            parent_account: parent.map(str::to_owned),
            user: None,
            partition: None,
            shares,
            grp_tres_mins: None,
        }
    }

    const LAB: &str = "
lab 60
  @bob 10
  robotics parent
    @dave 3
    arms parent
      @erin 2
  vision 7
    @carol parent
  @alice 10
  @alice/short 4
other 40";

    #[test]
    fn a_transparent_account_leaves_its_own_to_compete_above() {
        let tree = tree(LAB);
        let lab = tree.account("lab").unwrap();
        let names = |ids: &[AssociationId]| {
            ids.iter()
                .map(|id| tree.get(*id).name().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(tree.children(lab)),
            ["bob", "robotics", "vision", "alice", "alice"]
        );
        assert_eq!(
            names(tree.fs_children(lab)),
            [
                "bob", "robotics", "dave", "arms", "erin", "vision", "alice", "alice"
            ]
        );
        // Erin and Dave compete in the level of lab, because their accounts are transparent.
        assert_eq!(
            tree.level_shares(tree.of_user("erin")[0]),
            10 + 3 + 2 + 7 + 10 + 4
        );
        let carol = tree.of_user("carol")[0];
        assert_eq!(tree.fs_parent(carol), tree.account("vision"));
        assert_eq!(tree.level_shares(carol), 0);
        assert_eq!(
            names(&tree.path(tree.of_user("erin")[0])),
            ["root", "lab", "robotics", "arms", "erin"]
        );
        assert_eq!(tree.user_count(), 6);
        let order = names(&tree.display_order());
        assert_eq!(
            order,
            [
                "root", "lab", "alice", "alice", "bob", "robotics", "dave", "arms", "erin",
                "vision", "carol", "other"
            ]
        );
    }

    #[test]
    fn shares_of_the_database() {
        assert_eq!(Shares::from_raw(10), Shares::Raw(10));
        assert_eq!(Shares::from_raw(2_147_483_647), Shares::Parent);
    }

    #[test]
    fn runs_are_charged_to_associations() {
        let tree = tree(LAB);
        let charged = |account, user, partition| {
            let association = tree.get(tree.charged(account, user, partition)?);
            Some((association.name().to_owned(), association.partition.clone()))
        };
        assert_eq!(
            charged("lab", "alice", "short"),
            Some(("alice".into(), Some("short".into())))
        );
        assert_eq!(charged("lab", "alice", "gpu"), Some(("alice".into(), None)));
        assert_eq!(charged("lab", "gone", "gpu"), Some(("lab".into(), None)));
        assert_eq!(charged("no-such-account", "alice", "gpu"), None);
    }

    #[test]
    fn invalid_trees_are_refused() {
        let error = |associations| AssociationTree::new(associations).unwrap_err().to_string();
        assert_eq!(
            error(vec![]),
            "there is no root account: each account has a parent"
        );
        let a = account("a", Some("b"), Shares::Raw(1));
        let b = account("b", Some("a"), Shares::Raw(1));
        let root = account("root", None, Shares::Raw(1));
        let cycle = error(vec![root.clone(), a.clone(), b]);
        assert!(
            [
                "account 'a' is its own ancestor",
                "account 'b' is its own ancestor"
            ]
            .contains(&cycle.as_str())
        );
        assert_eq!(
            error(vec![root.clone(), a]),
            "account 'a' is below account 'b', which does not exist"
        );
        assert_eq!(
            error(vec![root.clone(), root]),
            "accounts 'root' and 'root' both have no parent"
        );
        let mut twice = drawn("lab 1\n  @alice 1");
        twice.push(twice[2].clone());
        assert_eq!(
            error(twice),
            "there are two associations of user 'alice' in account 'lab'"
        );
    }
}
