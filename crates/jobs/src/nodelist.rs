//! Slurm's node lists: `gpu[1-3,07],login` names four nodes and one.

/// Maximum number of nodes in one list: more than any cluster has, few enough to be harmless.
pub const MAX_NODES: usize = 65_536;

/// A list that cannot be expanded: unbalanced brackets, an invalid range, or too many names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a list of at most {MAX_NODES} nodes")]
pub struct NodeListError(pub String);

/// Returns the names of a list, in its order. Brackets contain numbers and ranges with their
/// leading zeros. A name may have several brackets (`rack[1-2]-n[01-16]`).
///
/// # Errors
/// A [`NodeListError`] with the beginning of the list.
pub fn expand(list: &str) -> Result<Vec<String>, NodeListError> {
    let mut names = Vec::new();
    // Commas separate names, but inside brackets they separate numbers.
    for pattern in split_outside_brackets(list) {
        let mut of_pattern = vec![String::new()];
        let mut rest = pattern;

        while let Some(open) = rest.find('[') {
            // The first bracket is replaced for all names so far; each further one multiplies them.
            let close = rest[open..].find(']').ok_or_else(|| refused(list))? + open;
            if rest[..open].contains(']') {
                return Err(refused(list));
            }
            let numbers = ranges(&rest[open + 1..close], MAX_NODES).ok_or_else(|| refused(list))?;

            // The product is checked before it is built: `n[1-60000]x[1-60000]` would take all memory.
            if of_pattern.len() * numbers.len() + names.len() > MAX_NODES {
                return Err(refused(list));
            }
            of_pattern = of_pattern
                .iter()
                .flat_map(|name| {
                    numbers
                        .iter()
                        .map(move |number| format!("{name}{}{number}", &rest[..open]))
                })
                .collect();
            rest = &rest[close + 1..];
        }

        if rest.contains(']') || pattern.is_empty() {
            return Err(refused(list));
        }

        names.extend(of_pattern.into_iter().map(|name| name + rest));
        if names.len() > MAX_NODES {
            return Err(refused(list));
        }
    }
    Ok(names)
}

/// Returns the numbers of `1-3,07` with their leading zeros, or `None` if the text is invalid or
/// has more than `most` numbers. Array tasks use the same notation, also with steps (`0-8:4`).
pub fn ranges(text: &str, most: usize) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));

        let low = number(first)?;
        let high = number(last)?;
        let step = usize::try_from(number(step)?).ok()?;
        // The division counts the numbers without building them: `1-4000000000` costs nothing.
        if high < low || step == 0 || (high - low) / step as u64 >= (most - numbers.len()) as u64 {
            return None;
        }

        // Slurm pads to the width of the first number: `08-11` is 08, 09, 10, 11.
        let width = if first.starts_with('0') {
            first.len()
        } else {
            1
        };
        numbers.extend(
            (low..=high)
                .step_by(step)
                .map(|number| format!("{number:0width$}")),
        );
    }
    Some(numbers)
}

fn number(text: &str) -> Option<u64> {
    // 18 digits fit in 64 bits, and so do their differences. `parse` alone would accept a plus sign.
    (text.len() < 19 && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

fn split_outside_brackets(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    list.split(move |letter| {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    })
}

fn refused(list: &str) -> NodeListError {
    // A list may have thousands of names, and the message shows it.
    NodeListError(list.chars().take(80).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Most of these are malformed.
        #[test]
        fn no_name_has_a_part_of_the_notation(list in "[n12,:\\[\\]-]{0,12}") {
            if let Ok(names) = expand(&list) {
                prop_assert!(names.len() <= MAX_NODES);
                for name in names {
                    prop_assert!(!name.is_empty(), "{list}");
                    prop_assert!(!name.contains(['[', ']', ',']), "{list} has {name}");
                }
            }
        }
    }

    #[test]
    fn lists() {
        for (list, expected) in [
            ("node0", "node0"),
            ("node[0-1]", "node0 node1"),
            ("gpu-[8-10],c1-25", "gpu-8 gpu-9 gpu-10 c1-25"),
            ("n[01-03,7,10-11]", "n01 n02 n03 n7 n10 n11"),
            ("r[1-2]n[1-2]x", "r1n1x r1n2x r2n1x r2n2x"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("a,b,c[0-0]", "a b c0"),
        ] {
            assert_eq!(expand(list).unwrap().join(" "), expected, "{list}");
        }
    }

    #[test]

    // Unbalanced brackets, empty or reversed ranges, an empty name, and a number beyond 64 bits.
    fn invalid_lists_are_refused() {
        for list in [
            "",
            "n[1-2",
            "n1]",
            "n[]",
            "n[a-b]",
            "n[2-1]",
            "a,,b",
            "n[1-2]]",
            "n1][2]",
            "n[1]][2]",
            "n[0-99999999999999999999]",
        ] {
            assert_eq!(expand(list), Err(NodeListError(list.to_owned())));
        }
    }

    #[test]
    fn length_is_bounded() {
        assert_eq!(
            expand(&format!("n[1-{MAX_NODES}]")).unwrap().len(),
            MAX_NODES
        );
        // Refused before any name is built, in one bracket and as a product.
        assert!(expand("n[1-4000000000]").is_err());
        assert!(expand("n[1-300]x[1-300]").is_err());
    }

    #[test]
    fn array_tasks_may_have_steps() {
        assert_eq!(ranges("0-8:4,11", 10).unwrap().join(" "), "0 4 8 11");
        assert_eq!(ranges("0-8:0", 10), None);
    }
}
