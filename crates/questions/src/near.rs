//! Similar names, proposed when a name is unknown.

/// Least Jaro-Winkler similarity of a proposed name.
const ALIKE: f64 = 0.85;

/// Maximum number of proposed names.
const MOST: usize = 3;

/// `; did you mean alice or alicia?`, or nothing if no known name is similar.
pub fn did_you_mean<'k>(asked: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let asked = asked.to_lowercase();
    let mut near: Vec<(f64, &str)> = Vec::new();
    for name in known {
        let alike = strsim::jaro_winkler(&asked, &name.to_lowercase());
        if alike >= ALIKE {
            near.push((alike, name));
        }
    }
    // The nearest first; names of the same nearness in order, so that the answer is stable.
    near.sort_by(|(a, a_name), (b, b_name)| b.total_cmp(a).then_with(|| a_name.cmp(b_name)));
    near.dedup_by_key(|(_, name)| *name);
    // A name that differs only in case is certainly meant.
    if near.first().is_some_and(|(alike, _)| *alike == 1.0) {
        near.retain(|(alike, _)| *alike == 1.0);
    }

    let names: Vec<&str> = near.into_iter().take(MOST).map(|(_, name)| name).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_offered_the_nearest_first() {
        let known = ["alice", "alicia", "bob", "Alice", "carol"];
        assert_eq!(
            did_you_mean("alcie", known),
            "; did you mean Alice or alice?"
        );
        assert_eq!(
            did_you_mean("alici", known),
            "; did you mean alicia or Alice or alice?"
        );

        assert_eq!(did_you_mean("BOB", known), "; did you mean bob?");
        assert_eq!(
            // Ids differ in one digit, so all of them are alike; one is equal.
            did_you_mean("A10000", ["a10000", "a10003", "a10005"]),
            "; did you mean a10000?"
        );
        assert_eq!(did_you_mean("zoe", known), "");
        assert_eq!(did_you_mean("", known), "");
    }
}
