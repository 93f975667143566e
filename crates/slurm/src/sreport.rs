//! Parsers of `sreport`: seconds by user, and seconds by part of the cluster's capacity.

use std::collections::BTreeMap;
use takt_jobs::SreportKey;

/// Columns of `sreport cluster Utilization` in its order, from the third on.
const PARTS: [&str; 6] = [
    "allocated",
    "down",
    "planned_down",
    "idle",
    "planned",
    "reported",
];

/// Parses the rows of `sreport -n -P -t seconds cluster UserUtilizationByAccount
/// format=Account,Login,TresName,Used`.
pub fn by_user(text: &str) -> BTreeMap<SreportKey, u64> {
    text.lines()
        .filter_map(|line| {
            let [account, user, resource, used] = line.split('|').collect::<Vec<_>>()[..] else {
                return None;
            };
            let key = SreportKey {
                account: account.to_owned(),
                user: user.to_owned(),
                resource: resource.to_owned(),
                part: "used".to_owned(),
            };
            Some((key, used.parse().ok()?))
        })
        .collect()
}

/// Parses the rows of `sreport -n -P -t seconds cluster Utilization`.
pub fn by_part(text: &str) -> BTreeMap<SreportKey, u64> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        // The first two columns are the cluster and the resource.
        let fields: Vec<&str> = line.split('|').collect();

        for (part, seconds) in PARTS.iter().zip(fields.iter().skip(2)) {
            let key = SreportKey {
                resource: fields[1].to_owned(),
                part: (*part).to_owned(),
                ..SreportKey::default()
            };
            // A row with a word instead of seconds is a header.
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
        // The last row has another number of fields.
        let users = by_user("lab-a|alice|cpu|120\nlab-a|alice|gres/gpu|60\nnothing\n");
        let key = |resource: &str| SreportKey {
            account: "lab-a".into(),
            user: "alice".into(),
            resource: resource.into(),
            part: "used".into(),
        };
        assert_eq!(users.len(), 2);
        assert_eq!(users[&key("cpu")], 120);
        assert_eq!(users[&key("gres/gpu")], 60);

        let parts = by_part("lab|gres/gpu|2262|1|2|2055|0|4320\n");
        let part = |part: &str| {
            parts[&SreportKey {
                resource: "gres/gpu".into(),
                part: part.into(),
                ..SreportKey::default()
            }]
        };
        assert_eq!(part("allocated"), 2262);
        assert_eq!(part("planned_down"), 2);
        assert_eq!(part("reported"), 4320);
    }
}
