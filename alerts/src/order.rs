//! Alertmanager's order of alerts and groups.

use std::cmp::Ordering;
use takt_model::Labels;

/// Fewer labels first; then by the first name that only one has, or whose values differ.
pub fn labels(a: &Labels, b: &Labels) -> Ordering {
    if a.len() != b.len() {
        return a.len().cmp(&b.len());
    }
    for ((name, value), (other_name, other_value)) in a.iter().zip(b.iter()) {
        if name != other_name {
            // The set with the greater name lacks the other's name.
            return other_name.cmp(name);
        }
        if value != other_value {
            return value.cmp(other_value);
        }
    }
    Ordering::Equal
}

/// By job, then instance, alerts without them last; then as [`labels`].
pub fn alerts(a: &Labels, b: &Labels) -> Ordering {
    let by = |name: &str| {
        let a = a.get(name);
        let b = b.get(name);
        (a.is_none(), a).cmp(&(b.is_none(), b))
    };
    by("job")
        .then_with(|| by("instance"))
        .then_with(|| labels(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse_series;

    #[test]
    fn each_comes_before_the_next() {
        let sorted = [
            "{job=a,z=1}",
            "{job=b,instance=a,x=9,y=9}",
            "{job=b,instance=b}",
            "{job=b,x=1}",
            "{instance=a}",
            "{}",
            "{b=1}",
            "{a=1}",
            "{a=2}",
            "{b=1,c=1}",
            "{a=1,c=1}",
            "{a=1,b=2}",
        ];
        let sorted = sorted.map(parse_series);
        for (at, one) in sorted.iter().enumerate() {
            assert_eq!(alerts(one, one), Ordering::Equal);
            for later in &sorted[at + 1..] {
                assert_eq!(alerts(one, later), Ordering::Less, "{one} {later}");
                assert_eq!(alerts(later, one), Ordering::Greater, "{one} {later}");
            }
        }
    }
}
