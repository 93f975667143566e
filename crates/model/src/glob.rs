//! Names that match a pattern with `*` and `?`.

use std::str::Chars;

/// Whether a name matches the pattern: `*` stands for any characters, `?` for one. Takes time in
/// proportion to the product of both lengths at most.
pub fn is_match(pattern: &str, name: &str) -> bool {
    let mut pattern = pattern.chars();
    let mut name = name.chars();
    // The pattern behind the last `*`, and the first place of the name that it was not tried at.
    let mut retry: Option<(Chars<'_>, Chars<'_>)> = None;
    loop {
        let before = name.clone();
        match (pattern.next(), name.next()) {
            // Only the last star needs another try: an earlier one took as little as it could, and
            // taking more gains nothing.
            (Some('*'), _) => {
                name = before;
                retry = Some((pattern.clone(), name.clone()));
            }
            (None, None) => return true,
            (Some(sign), Some(letter)) if sign == '?' || sign == letter => {}
            _ => {
                let Some((behind, place)) = &mut retry else {
                    return false;
                };
                if place.next().is_none() {
                    return false;
                }
                pattern = behind.clone();
                name = place.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("?", "ä", true),
            ("?", "", false),
            ("*.yml", "a.yml", true),
            ("*.yml", "a.yml.bak", false),
            ("*.rules.yml", ".rules.rules.yml", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXcYb", false),
            ("*a?", "bab", true),
            ("**", "ab", true),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }

    /// Trying each place of each `*` would take longer than the universe has existed.
    #[test]
    fn many_stars_take_no_time() {
        let pattern = "*a".repeat(60) + "*b";
        assert!(!is_match(&pattern, &"a".repeat(200)));
    }

    /// The definition, which takes exponential time.
    fn by_definition(pattern: &[char], name: &[char]) -> bool {
        match (pattern, name) {
            ([], _) => name.is_empty(),
            (['*', behind @ ..], _) => {
                (0..=name.len()).any(|at| by_definition(behind, &name[at..]))
            }
            ([sign, behind @ ..], [letter, rest @ ..]) => {
                (*sign == '?' || sign == letter) && by_definition(behind, rest)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matches_are_those_of_the_definition(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = by_definition(&letters(&pattern), &letters(&name));
            prop_assert_eq!(is_match(&pattern, &name), expected);
        }
    }
}
