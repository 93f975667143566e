//! What `sreport` prints: seconds of each user and of the parts of the cluster.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whose seconds, of what: `account`, `user` (both empty for a part of the whole cluster), `cpu` or `gres/gpu`, and which
/// part (`used`, `allocated`, `down`, …).
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named above")]
pub struct Key {
    pub account: String,
    pub user: String,
    pub resource: String,
    pub part: String,
}

/// The parts of `sreport cluster Utilization`, in its order, from the third column on.
const PARTS: [&str; 6] = [
    "allocated",
    "down",
    "planned_down",
    "idle",
    "planned",
    "reported",
];

/// The rows of `sreport -n -P -t seconds cluster UserUtilizationByAccount format=Account,Login,TresName,Used`.
pub fn by_user(text: &str) -> BTreeMap<Key, u64> {
    let row = |line: &str| {
        let [account, user, resource, used] = line.split('|').collect::<Vec<_>>()[..] else {
            return None;
        };
        let key = Key {
            account: account.to_owned(),
            user: user.to_owned(),
            resource: resource.to_owned(),
            part: "used".to_owned(),
        };
        Some((key, used.parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

/// The rows of `sreport -n -P -t seconds cluster Utilization`.
pub fn by_part(text: &str) -> BTreeMap<Key, u64> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        for (part, seconds) in PARTS.iter().zip(fields.iter().skip(2)) {
            let key = Key {
                resource: fields[1].to_owned(),
                part: (*part).to_owned(),
                ..Key::default()
            };
            found.extend(seconds.parse().ok().map(|seconds: u64| (key, seconds)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_sreport() {
        let users = by_user("lab-a|alice|cpu|120\nlab-a|alice|gres/gpu|60\nnothing\n");
        let key = |resource: &str| Key {
            account: "lab-a".into(),
            user: "alice".into(),
            resource: resource.into(),
            part: "used".into(),
        };
        assert_eq!(
            (users.len(), users[&key("cpu")], users[&key("gres/gpu")]),
            (2, 120, 60)
        );
        let parts = by_part("lab|gres/gpu|2262|1|2|2055|0|4320\n");
        let part = |part: &str| {
            parts[&Key {
                resource: "gres/gpu".into(),
                part: part.into(),
                ..Key::default()
            }]
        };
        assert_eq!(
            (part("allocated"), part("planned_down"), part("reported")),
            (2262, 2, 4320)
        );
    }
}
