//! The hierarchy of accounts.

use std::collections::HashMap;

/// Slurm's name of the top account.
const ROOT: &str = "root";

/// Parent of each account. An account without an entry has neither parent nor children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts(HashMap<String, String>);

impl Accounts {
    /// Builds the hierarchy from each account's parent.
    pub fn new(parents: HashMap<String, String>) -> Self {
        Self(parents)
    }

    /// Returns an account and its ancestors, starting with the account itself. The root account is
    /// left out.
    pub fn up<'a>(&'a self, account: &'a str) -> Vec<&'a str> {
        let mut path = vec![account];
        // Faulty records may contain a cycle.
        while let Some(parent) = self.0.get(*path.last().unwrap_or(&account))
            && parent != ROOT
            && !path.contains(&parent.as_str())
        {
            path.push(parent);
        }
        path
    }

    /// Returns an account and all accounts below it, in no particular order.
    pub fn below<'a>(&'a self, account: &'a str) -> impl Iterator<Item = &'a str> {
        let below = self.0.keys().map(String::as_str);
        below
            .filter(move |below| *below != account && self.is_within(below, account))
            .chain([account])
    }

    /// Returns whether an account equals `above` or is below it.
    pub fn is_within(&self, account: &str, above: &str) -> bool {
        account == above || self.up(account).contains(&above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_an_end_for_every_input() {
        let pairs = [
            ("laser", "optics"),
            ("optics", "physics"),
            ("physics", "root"),
            // Two faulty records that name each other as parent.
            ("a", "b"),
            ("b", "a"),
        ];
        let accounts = Accounts::new(
            pairs
                .map(|(of, above)| (of.to_owned(), above.to_owned()))
                .into(),
        );
        assert_eq!(accounts.up("laser"), ["laser", "optics", "physics"]);
        assert_eq!(accounts.up("elsewhere"), vec!["elsewhere"]);
        assert_eq!(accounts.up("a"), vec!["a", "b"]);

        assert!(accounts.is_within("laser", "physics") && accounts.is_within("x", "x"));
        assert!(!accounts.is_within("physics", "laser") && !accounts.is_within("laser", "root"));
    }
}
