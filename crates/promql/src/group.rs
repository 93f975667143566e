//! Groups of elements, by the labels of `by`, `without`, `on` and `ignoring`.

use crate::plan::Grouping;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::{BuildHasher, Hash, Hasher};
use takt_model::{Labels, METRIC_NAME};

impl Grouping {
    /// Whether the label decides about the group.
    pub fn counts(&self, name: &str) -> bool {
        match self {
            Grouping::By(names) => names.iter().any(|known| known == name),
            Grouping::Without(names) => {
                name != METRIC_NAME && !names.iter().any(|known| known == name)
            }
        }
    }

    /// The labels that decide about the group; its result has these (`generateGroupingLabels`).
    pub fn labels(&self, labels: &Labels) -> Labels {
        labels.only(|name| self.counts(name))
    }

    fn pairs<'a>(&self, labels: &'a Labels) -> impl Iterator<Item = (&'a str, &'a str)> {
        labels.iter().filter(|(name, _)| self.counts(name))
    }
}

/// Numbers groups in the order of their first elements, without copying labels.
pub(crate) struct Groups<'a> {
    grouping: &'a Grouping,
    /// The labels of each group's first element.
    first: Vec<Labels>,
    table: HashTable<usize>,
    hasher: DefaultHashBuilder,
}

impl<'a> Groups<'a> {
    pub fn new(grouping: &'a Grouping) -> Self {
        Self {
            grouping,
            first: Vec::new(),
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.first.len()
    }

    /// The group of an element, if one is known.
    pub fn find(&self, labels: &Labels) -> Option<usize> {
        let Self {
            grouping,
            first,
            table,
            ..
        } = self;
        table
            .find(self.hash(labels), |&group| {
                // Compared in full: equal hashes do not mean equal labels.
                grouping.pairs(&first[group]).eq(grouping.pairs(labels))
            })
            .copied()
    }

    /// The group of an element, a new one if none is known.
    pub fn place(&mut self, labels: &Labels) -> usize {
        if let Some(known) = self.find(labels) {
            return known;
        }

        let hash = self.hash(labels);
        self.first.push(labels.clone());
        let Self {
            grouping,
            first,
            table,
            hasher,
        } = self;
        let group = first.len() - 1;
        table.insert_unique(hash, group, |&group| {
            hash_of(hasher, grouping, &first[group])
        });
        group
    }

    fn hash(&self, labels: &Labels) -> u64 {
        hash_of(&self.hasher, self.grouping, labels)
    }
}

fn hash_of(hasher: &DefaultHashBuilder, grouping: &Grouping, labels: &Labels) -> u64 {
    let mut state = hasher.build_hasher();
    grouping
        .pairs(labels)
        .for_each(|pair| pair.hash(&mut state));
    state.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_differ_by_their_grouping_labels() {
        let labels = |pairs: &[(&str, &str)]| pairs.iter().copied().collect::<Labels>();
        let all = [
            labels(&[(METRIC_NAME, "m"), ("a", "1"), ("b", "1")]),
            labels(&[(METRIC_NAME, "n"), ("a", "1"), ("b", "2")]),
            labels(&[(METRIC_NAME, "m"), ("b", "1")]),
        ];
        let by = |grouping: Grouping| {
            let mut groups = Groups::new(&grouping);
            let places = all.each_ref().map(|labels| groups.place(labels));
            assert_eq!(
                all.each_ref().map(|labels| groups.find(labels)),
                places.map(Some)
            );
            places
        };
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(by(Grouping::By(names(&["a"]))), [0, 0, 1]);
        assert_eq!(by(Grouping::By(names(&[METRIC_NAME]))), [0, 1, 0]);
        assert_eq!(by(Grouping::By(Vec::new())), [0, 0, 0]);
        assert_eq!(by(Grouping::Without(Vec::new())), [0, 1, 2]);
        assert_eq!(by(Grouping::Without(names(&["b"]))), [0, 0, 1]);
        assert_eq!(by(Grouping::Without(names(&["a", "b"]))), [0, 0, 0]);
        // Names and values cannot run into each other.
        let split = [labels(&[("a", "bc")]), labels(&[("ab", "c")])];
        let grouping = Grouping::Without(Vec::new());
        let mut groups = Groups::new(&grouping);
        assert_ne!(groups.place(&split[0]), groups.place(&split[1]));
    }
}
