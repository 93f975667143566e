//! Accounts and what is above them.

use std::collections::HashMap;

/// The account above all others, as Slurm calls it.
const ROOT: &str = "root";

/// Which account is above which. An account that nobody tells of is above and below none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts(HashMap<String, String>);

impl Accounts {
    /// Of each account's parent.
    pub fn new(parents: HashMap<String, String>) -> Self {
        Self(parents)
    }

    /// An account and those above it, itself first. The root is everybody's, and is left out.
    pub fn up<'a>(&'a self, account: &'a str) -> Vec<&'a str> {
        let mut path = vec![account];
        // Whatever was told, a tree has an end.
        while let Some(parent) = self.0.get(*path.last().unwrap_or(&account))
            && parent != ROOT
            && !path.contains(&parent.as_str())
        {
            path.push(parent);
        }
        path
    }

    /// Whether an account is `above` or is below it.
    pub fn is_within(&self, account: &str, above: &str) -> bool {
        account == above || self.up(account).contains(&above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_an_end_whatever_was_told() {
        let pairs = [
            ("laser", "optics"),
            ("optics", "physics"),
            ("physics", "root"),
            ("a", "b"),
            ("b", "a"),
        ];
        let accounts = Accounts::new(
            pairs
                .map(|(of, above)| (of.to_owned(), above.to_owned()))
                .into(),
        );
        assert_eq!(accounts.up("laser"), ["laser", "optics", "physics"]);
        assert_eq!(
            (accounts.up("elsewhere"), accounts.up("a")),
            (vec!["elsewhere"], vec!["a", "b"])
        );
        assert!(accounts.is_within("laser", "physics") && accounts.is_within("x", "x"));
        assert!(!accounts.is_within("physics", "laser") && !accounts.is_within("laser", "root"));
    }
}
