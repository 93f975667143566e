//! The series table: number and labels of each series, and an index by label.
//!
//! A series gets its number when it is first seen and keeps it. Numbers are consecutive and the
//! table only grows, so the series that the database lacks are all those from some number on.

use super::allocator::make_room;
use super::block::metric_hash;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use roaring::RoaringBitmap;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use takt_model::native::{NATIVE_LABEL, NativePart};
use takt_model::{Labels, METRIC_NAME, MatchOp, Matcher, is_float_label};

/// Number of a series in this data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(pub u32);

/// Number of a text in [`Symbols`].
type Symbol = u32;

/// Label names and values, each stored once. A label pair takes 8 bytes wherever it is used.
#[derive(Debug, Default)]
struct Symbols {
    texts: Vec<Arc<str>>,
    by_text: HashTable<Symbol>,
    hasher: DefaultHashBuilder,
}

impl Symbols {
    fn text(&self, symbol: Symbol) -> &Arc<str> {
        &self.texts[symbol as usize]
    }

    fn find(&self, text: &str) -> Option<Symbol> {
        self.by_text
            .find(self.hasher.hash_one(text), |&symbol| {
                **self.text(symbol) == *text
            })
            .copied()
    }

    fn intern(&mut self, text: &str) -> Symbol {
        if let Some(known) = self.find(text) {
            return known;
        }
        let symbol = Symbol::try_from(self.texts.len())
            .expect("fewer than 2^32 label texts fit into memory");
        self.texts.push(text.into());
        let Self {
            texts,
            by_text,
            hasher,
        } = self;
        by_text.insert_unique(hasher.hash_one(text), symbol, |&symbol| {
            hasher.hash_one(texts[symbol as usize].as_ref())
        });
        symbol
    }
}

/// All series, with the index by label.
#[derive(Debug, Default)]
pub(crate) struct SeriesTable {
    symbols: Symbols,
    /// Label pairs of all series, names in byte order. The pairs of series N end at `ends[N]`.
    pairs: Vec<(Symbol, Symbol)>,
    ends: Vec<u32>,
    by_labels: HashTable<u32>,
    /// Series by label name, then value.
    postings: HashMap<Symbol, HashMap<Symbol, RoaringBitmap>>,
    /// Series that are parts of native histograms.
    parts: RoaringBitmap,
    hasher: DefaultHashBuilder,
}

impl SeriesTable {
    /// Number of assigned series numbers.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the number of the series with these labels; `None` if it has none yet.
    pub fn find(&self, labels: &Labels) -> Option<SeriesId> {
        let pairs: Vec<(Symbol, Symbol)> = labels
            .iter()
            .map(|(name, value)| Some((self.symbols.find(name)?, self.symbols.find(value)?)))
            .collect::<Option<_>>()?;
        let hash = self.hasher.hash_one(&pairs[..]);
        let known = self
            .by_labels
            .find(hash, |&id| self.pairs_of(id) == &pairs[..])?;
        Some(SeriesId(*known))
    }

    /// Returns the number of the series with these labels, a new one for a new series.
    pub fn intern(&mut self, labels: &Labels) -> SeriesId {
        self.intern_pairs(labels.iter())
    }

    /// Returns the number of the series with these label pairs, names in byte order.
    fn intern_pairs<'t>(&mut self, labels: impl Iterator<Item = (&'t str, &'t str)>) -> SeriesId {
        // The pairs are added first, and removed if the series is known: the comparison then needs no copy.
        let begin = self.pairs.len();
        for (name, value) in labels {
            let pair = (self.symbols.intern(name), self.symbols.intern(value));
            make_room(&mut self.pairs);
            self.pairs.push(pair);
        }

        let hash = self.hasher.hash_one(&self.pairs[begin..]);
        let known = self
            .by_labels
            .find(hash, |&id| self.pairs_of(id) == &self.pairs[begin..])
            .copied();

        if let Some(id) = known {
            self.pairs.truncate(begin);
            return SeriesId(id);
        }

        let id = self.close();
        let Self {
            by_labels,
            hasher,
            pairs,
            ends,
            ..
        } = self;

        by_labels.insert_unique(hash, id.0, |&id| hasher.hash_one(pairs_of(pairs, ends, id)));
        for &(name, value) in &self.pairs[begin..] {
            self.postings
                .entry(name)
                .or_default()
                .entry(value)
                .or_default()
                .insert(id.0);
            // Queries leave these series out unless they ask for them.
            if **self.symbols.text(name) == *NATIVE_LABEL {
                self.parts.insert(id.0);
            }
        }
        id
    }

    /// Adds a stored series, given as the output of [`columns`](Self::columns), under its number.
    ///
    /// # Errors
    /// If `json` is not a JSON object of texts.
    pub fn restore(
        &mut self,
        id: SeriesId,
        metric: &str,
        json: &str,
    ) -> Result<(), serde_json::Error> {
        // A skipped number has no labels and matches nothing.
        while self.len() < id.0 as usize {
            self.close();
        }
        let LabelPairs(mut pairs) = serde_json::from_str(json)?;
        // The metric has a column of its own, and goes back to its place among the names.
        pairs.push((METRIC_NAME.into(), metric.into()));
        pairs.sort_unstable();
        self.intern_pairs(pairs.iter().map(|(name, value)| (&**name, &**value)));
        Ok(())
    }

    /// Labels of a series.
    pub fn labels(&self, id: SeriesId) -> Labels {
        let text = |symbol| Arc::clone(self.symbols.text(symbol));
        Labels::from_sorted(
            self.pairs_of(id.0)
                .iter()
                .map(|&(name, value)| (text(name), text(value)))
                .collect(),
        )
    }

    /// Returns the series that all matchers accept. Parts of native histograms are left out, unless a matcher is about
    /// their label.
    pub fn matching(&self, matchers: &[Matcher]) -> RoaringBitmap {
        let found = self.matching_with_parts(matchers);
        let names_parts = matchers.iter().any(|one| one.name() == NATIVE_LABEL);
        if names_parts || self.parts.is_empty() {
            found
        } else {
            found - &self.parts
        }
    }

    /// As [`matching`](Self::matching), with the count of each native histogram.
    pub fn matching_with_histograms(&self, matchers: &[Matcher]) -> RoaringBitmap {
        let mut found = self.matching(matchers);
        if !self.parts.is_empty() {
            let count = Matcher::equal(NATIVE_LABEL, &NativePart::Count.to_string());
            let counts = self.with_value(NATIVE_LABEL, &count, true);
            found |= self.matching_with_parts(matchers) & counts;
        }
        found
    }

    /// Whether any series is a part of a native histogram.
    pub fn has_histograms(&self) -> bool {
        !self.parts.is_empty()
    }

    /// As [`matching`](Self::matching), with all parts of native histograms.
    pub fn matching_with_parts(&self, matchers: &[Matcher]) -> RoaringBitmap {
        let mut found: Option<RoaringBitmap> = None;
        // An absent label counts as empty. For a matcher that accepts "", subtract the series it
        // rejects.
        for matcher in matchers.iter().filter(|matcher| !matcher.accepts("")) {
            let accepted = self.with_value(matcher.name(), matcher, true);
            found = Some(match found {
                Some(found) => found & accepted,
                None => accepted,
            });
        }

        // Without another matcher, each series is a candidate.
        let mut found = found.unwrap_or_else(|| self.all());
        for matcher in matchers.iter().filter(|matcher| matcher.accepts("")) {
            found -= self.with_value(matcher.name(), matcher, false);
        }
        found
    }

    /// All label names of the series `ids`, in byte order.
    pub fn label_names(&self, ids: &RoaringBitmap) -> Vec<String> {
        let used =
            |values: &HashMap<_, RoaringBitmap>| values.values().any(|with| !with.is_disjoint(ids));
        let names = self
            .postings
            .iter()
            .filter(|(_, values)| used(values))
            .map(|(&name, _)| self.symbols.text(name).to_string())
            .filter(|name| name != NATIVE_LABEL);
        sorted(names)
    }

    /// All values of a label on the series `ids`, in byte order.
    pub fn label_values(&self, name: &str, ids: &RoaringBitmap) -> Vec<String> {
        let used = self
            .symbols
            .find(name)
            .filter(|_| name != NATIVE_LABEL)
            .and_then(|name| self.postings.get(&name))
            .into_iter()
            .flatten()
            .filter(|(_, with)| !with.is_disjoint(ids))
            .map(|(&value, _)| self.symbols.text(value).to_string());
        sorted(used)
    }

    /// Metric name and the other labels as JSON, as stored in `hot.series`.
    pub fn columns(&self, id: SeriesId) -> (String, String) {
        let labels = self.labels(id);
        (labels.metric().to_owned(), to_json(&labels))
    }

    /// All series of the metrics that the series `ids` belong to.
    pub fn of_metrics(&self, ids: &RoaringBitmap) -> RoaringBitmap {
        let by_name = self
            .symbols
            .find(METRIC_NAME)
            .and_then(|name| self.postings.get(&name));
        self.metrics(ids)
            .filter_map(|metric| by_name?.get(&self.symbols.find(metric)?))
            .fold(RoaringBitmap::new(), |all, of_metric| all | of_metric)
    }

    /// All series of metrics whose names have this hash.
    pub fn with_metric_hash(&self, hash: i32) -> RoaringBitmap {
        self.symbols
            .find(METRIC_NAME)
            .and_then(|name| self.postings.get(&name))
            .into_iter()
            .flatten()
            .filter(|&(&name, _)| metric_hash(self.symbols.text(name)) == hash)
            .fold(RoaringBitmap::new(), |all, (_, series)| all | series)
    }

    /// Metric names of the series `ids`.
    pub fn metrics(&self, ids: &RoaringBitmap) -> impl Iterator<Item = &str> {
        let name = self.symbols.find(METRIC_NAME);
        let metrics = ids.iter().filter_map(|id| {
            let (_, metric) = self
                .pairs_of(id)
                .iter()
                .find(|(label, _)| Some(*label) == name)?;
            Some(*metric)
        });
        // Many series share one metric.
        metrics
            .collect::<BTreeSet<Symbol>>()
            .into_iter()
            .map(|metric| &**self.symbols.text(metric))
    }

    fn all(&self) -> RoaringBitmap {
        // Skipped numbers have no labels.
        (0..u32::try_from(self.len()).expect("close() checked"))
            .filter(|&id| !self.pairs_of(id).is_empty())
            .collect()
    }

    fn with_value(&self, name: &str, matcher: &Matcher, accepted: bool) -> RoaringBitmap {
        let Some(values) = self
            .symbols
            .find(name)
            .and_then(|name| self.postings.get(&name))
        else {
            return RoaringBitmap::new();
        };

        // One look-up instead of a scan of all values. The bounds of histograms have several spellings.
        if matcher.op() == MatchOp::Equal && accepted && !is_float_label(name) {
            let value = self.symbols.find(matcher.value());
            return value
                .and_then(|value| values.get(&value))
                .cloned()
                .unwrap_or_default();
        }

        values
            .iter()
            .filter(|&(&value, _)| matcher.accepts_stored(self.symbols.text(value)) == accepted)
            .fold(RoaringBitmap::new(), |all, (_, with)| all | with)
    }

    fn pairs_of(&self, id: u32) -> &[(Symbol, Symbol)] {
        pairs_of(&self.pairs, &self.ends, id)
    }

    fn close(&mut self) -> SeriesId {
        // The database stores the number as INTEGER.
        let id = i32::try_from(self.ends.len())
            .expect("fewer than 2^31 series fit into memory")
            .cast_unsigned();
        make_room(&mut self.ends);
        self.ends.push(
            u32::try_from(self.pairs.len()).expect("fewer than 2^32 label pairs fit into memory"),
        );
        SeriesId(id)
    }
}

fn pairs_of<'a>(pairs: &'a [(Symbol, Symbol)], ends: &[u32], id: u32) -> &'a [(Symbol, Symbol)] {
    let begin = id.checked_sub(1).map_or(0, |before| ends[before as usize]);
    &pairs[begin as usize..ends[id as usize] as usize]
}

fn sorted(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut texts: Vec<_> = texts.collect();
    texts.sort_unstable();
    texts
}

fn to_json(labels: &Labels) -> String {
    use serde::Serializer;
    let mut out = Vec::new();
    serde_json::Serializer::new(&mut out)
        .collect_map(labels.iter().filter(|(name, _)| *name != METRIC_NAME))
        .expect("text serialises");
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Label pairs of a JSON object, most of them without copying.
struct LabelPairs<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// A text that borrows from the JSON unless it has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct LabelText<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Deserialize<'a> for LabelPairs<'a> {
    fn deserialize<D>(deserializer: D) -> Result<Self, D::Error>
    where
        D: Deserializer<'a>,
    {
        struct Pairs;
        impl<'a> Visitor<'a> for Pairs {
            type Value = LabelPairs<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<M>(self, mut map: M) -> Result<Self::Value, M::Error>
            where
                M: MapAccess<'a>,
            {
                let mut pairs = Vec::with_capacity(12);
                while let Some((LabelText(name), LabelText(value))) = map.next_entry()? {
                    pairs.push((name, value));
                }
                Ok(LabelPairs(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection;
    use proptest::prelude::*;
    use std::slice;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().copied().collect()
    }

    fn table() -> SeriesTable {
        let mut table = SeriesTable::default();
        for pairs in [
            &[(METRIC_NAME, "up"), ("node", "g01")][..],
            &[(METRIC_NAME, "up"), ("node", "g02"), ("rack", "a")],
            &[(METRIC_NAME, "load"), ("node", "g01"), ("line", "1\n2")],
        ] {
            table.intern(&labels(pairs));
        }
        table
    }

    #[test]
    fn a_series_keeps_its_number() {
        let mut table = table();

        // The order of the labels does not matter.
        assert_eq!(
            table.intern(&labels(&[("node", "g01"), (METRIC_NAME, "up")])),
            SeriesId(0)
        );
        assert_eq!(table.intern(&labels(&[(METRIC_NAME, "up")])), SeriesId(3));
        assert_eq!(table.len(), 4);
        assert_eq!(
            table.labels(SeriesId(1)).to_string(),
            r#"up{node="g02", rack="a"}"#
        );
    }

    #[test]
    fn matchers() {
        use MatchOp::{Equal, NotEqual, NotRegex, Regex};
        let table = table();
        for (name, op, value, expected) in [
            ("node", Equal, "g01", &[0, 2][..]),
            ("node", Equal, "g03", &[]),
            ("node", NotEqual, "g01", &[1]),
            // A missing label counts as an empty one.
            ("rack", Equal, "", &[0, 2]),
            ("rack", NotEqual, "", &[1]),
            ("rack", NotEqual, "a", &[0, 2]),
            ("none", Equal, "", &[0, 1, 2]),
            ("none", Equal, "x", &[]),
            ("node", Regex, "g0[12]", &[0, 1, 2]),
            // An expression must match the whole value.
            ("node", Regex, "0", &[]),
            ("node", Regex, "", &[]),
            ("rack", Regex, "a?", &[0, 1, 2]),
            ("rack", Regex, "a|b", &[1]),
            ("rack", NotRegex, "a|b", &[0, 2]),
            ("rack", NotRegex, ".+", &[0, 2]),
            ("line", Regex, "1.2", &[2]),
        ] {
            let matcher = Matcher::new(name, op, value).unwrap();
            let found: Vec<u32> = table.matching(slice::from_ref(&matcher)).iter().collect();
            assert_eq!(found, expected, "{matcher}");
        }
        let both = [
            Matcher::new("node", Equal, "g01").unwrap(),
            Matcher::metric("up"),
        ];
        assert_eq!(table.matching(&both).iter().collect::<Vec<_>>(), [0]);
        assert_eq!(table.matching(&[]).len(), 3);
    }

    #[test]
    fn parts_of_native_histograms_are_hidden() {
        let mut table = table();
        let part = |part| labels(&[(METRIC_NAME, "load"), ("node", "g03"), (NATIVE_LABEL, part)]);
        for name in ["count", "sum", "p1"] {
            table.intern(&part(name));
        }
        let find = |matchers: &[Matcher]| table.matching(matchers).iter().collect::<Vec<_>>();
        assert_eq!(find(&[]), [0, 1, 2]);
        assert_eq!(find(&[Matcher::metric("load")]), [2]);
        let not_parts = Matcher::new("node", MatchOp::NotEqual, "g01").unwrap();
        assert_eq!(find(slice::from_ref(&not_parts)), [1]);
        let parts = Matcher::new(NATIVE_LABEL, MatchOp::NotEqual, "").unwrap();
        assert_eq!(find(&[parts, not_parts]), [3, 4, 5]);
        // Listings have each histogram once.
        let listed = table.matching_with_histograms(&[Matcher::metric("load")]);
        assert_eq!(listed.iter().collect::<Vec<_>>(), [2, 3]);
        let names = [METRIC_NAME, "line", "node"];
        assert_eq!(table.label_names(&listed), names);
        assert_eq!(table.label_values("node", &listed), ["g01", "g03"]);
        assert_eq!(table.label_values(NATIVE_LABEL, &listed), [""; 0]);
    }

    #[test]
    fn a_bound_is_found_in_both_spellings() {
        let mut table = SeriesTable::default();
        for bound in ["1", "1.0", "10", "+Inf"] {
            table.intern(&labels(&[(METRIC_NAME, "x_bucket"), ("le", bound)]));
        }
        for (op, bound, expected) in [
            (MatchOp::Equal, "1", &[0, 1][..]),
            (MatchOp::Equal, "1.0", &[0, 1]),
            (MatchOp::Equal, "10.0", &[2]),
            (MatchOp::NotEqual, "1.0", &[2, 3]),
            (MatchOp::NotRegex, "1|10", &[3]),
        ] {
            let matcher = [Matcher::new("le", op, bound).unwrap()];
            let found: Vec<u32> = table.matching(&matcher).iter().collect();
            assert_eq!(found, expected, "{op}{bound}");
        }
    }

    #[test]
    fn names_and_values() {
        let table = table();
        let up = table.matching(&[Matcher::metric("up")]);
        assert_eq!(table.label_names(&up), [METRIC_NAME, "node", "rack"]);
        assert_eq!(table.label_values("node", &up), ["g01", "g02"]);
        assert_eq!(table.label_values("line", &up), [""; 0]);
    }

    #[test]
    fn a_skipped_number_matches_nothing() {
        let mut table = SeriesTable::default();
        table.restore(SeriesId(2), "up", "{}").unwrap();
        assert_eq!(table.matching(&[]).iter().collect::<Vec<_>>(), [2]);
        assert_eq!(
            table
                .matching(&[Matcher::new("x", MatchOp::Equal, "").unwrap()])
                .len(),
            1
        );
        assert_eq!(table.intern(&labels(&[(METRIC_NAME, "up")])), SeriesId(2));
    }

    proptest! {
        #[test]
        fn labels_survive_the_database_columns(
            pairs in collection::btree_map("[a-z]{1,3}", ".{1,4}", 0..5),
        ) {
            let mut given: Labels = pairs.iter().collect();
            given.set(METRIC_NAME, "up");
            let mut table = SeriesTable::default();
            let id = table.intern(&given);
            prop_assert_eq!(&table.labels(id), &given);
            let (metric, json) = table.columns(id);
            let mut again = SeriesTable::default();
            again
                .restore(SeriesId(0), &metric, &json)
                .expect("our own JSON");
            prop_assert_eq!(again.labels(SeriesId(0)), given);
        }
    }
}
