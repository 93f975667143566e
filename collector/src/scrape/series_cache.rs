//! Memory of a target's last page.
//!
//! Successive pages of a target differ in their values, rarely in their series. So this cache keeps
//! the text of every series in the order of the last page. The reader compares a series with the
//! next line and parses only the number. If the order differs, the reader looks up the text; it
//! parses only a text that it has never read before. The comments before a series are half of most
//! pages. They are recognized by their length and hash, and skipped.

use super::error::ScrapeError;
use super::page_row::{NewSeries, PageRow, ReadRules, SeriesPlace};
use hashbrown::{DefaultHashBuilder, HashSet, HashTable};
use std::hash::BuildHasher;
use takt_model::exposition::{Fact, Format, Line, MetricType, Page};
use takt_store::{Column, Sample};
use xxhash_rust::xxh64::xxh64;

/// The series of a target by their text.
#[derive(Debug, Default)]
pub(super) struct SeriesCache {
    entries: Vec<CachedSeries>,
    /// The texts of the entries, one after the other: comparing a page then reads the memory in
    /// order.
    texts: Vec<u8>,
    by_text: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// The entries of the last page, in its order.
    order: Vec<u32>,
    /// The comments before some of the entries.
    leads: Vec<LeadingComments>,
}

/// The comments before a series, already checked.
#[derive(Debug, Clone, Copy)]
struct LeadingComments {
    hash: u64,
    bytes: u32,
    lines: u32,
    /// Type of the last `TYPE` line.
    kind: Option<MetricType>,
}

impl LeadingComments {
    /// Index that stands for no comments.
    const NONE: u32 = u32::MAX;

    /// Hashes comments. The format is part of the hash, because a comment of one format may be an
    /// error in the other.
    fn hash(format: Format, text: &[u8]) -> u64 {
        xxh64(text, format as u64)
    }

    fn begins(&self, format: Format, rest: &[u8]) -> bool {
        rest.get(..self.bytes as usize)
            .is_some_and(|text| Self::hash(format, text) == self.hash)
    }
}

#[derive(Debug, Clone, Copy)]
struct CachedSeries {
    begin: u32,
    end: u32,
    /// Column of the series, or [`DROPPED`].
    column: Column,
    /// Index in `order`, if the series was on the last page.
    position: u32,
    /// Index in `leads`, or [`LeadingComments::NONE`].
    lead: u32,
}

/// Column of a series that relabelling dropped. The cache keeps it, so that it is not parsed again.
const DROPPED: Column = Column::at(u32::MAX);

impl SeriesCache {
    /// Reads a page into `row`, which may already have columns.
    pub fn read(
        &mut self,
        format: Format,
        body: &[u8],
        rules: ReadRules,
        row: &mut PageRow,
        new_series: &mut impl NewSeries,
    ) -> Result<(), ScrapeError> {
        let mut order = Vec::with_capacity(self.order.len());
        let result = self.read_lines(format, body, rules, row, new_series, &mut order);

        // After an error, the next page continues from the last complete page.
        match &result {
            Ok(()) => self.keep_order(order),
            Err(_) => row.added = 0,
        }

        // A page that lost many series must not hold their memory for good.
        if self.texts.capacity() > self.texts.len() + self.texts.len() / 4 {
            self.texts.shrink_to_fit();
            self.entries.shrink_to_fit();
        }
        result
    }

    /// Stores the entries of the page in `order`, up to the first error or the limit of samples.
    fn read_lines(
        &mut self,
        format: Format,
        body: &[u8],
        rules: ReadRules,
        row: &mut PageRow,
        new_series: &mut impl NewSeries,
        order: &mut Vec<u32>,
    ) -> Result<(), ScrapeError> {
        let mut page = Page::new(format, body);
        let mut described = Vec::new();
        let mut too_many = None;
        let mut is_checked = false;
        let mut next = 0;

        // Position and line of the comments before the next sample, and the type among them.
        let mut lead = (page.rest(), 0);
        let mut lead_kind = None;

        loop {
            // Comments that repeat those of the last page byte for byte were checked then.
            let mut expected = &[][..];
            if let Some(&entry) = self.order.get(next) {
                expected = text(&self.entries, &self.texts, entry);
                let known = self.leads.get(self.entries[entry as usize].lead as usize);
                if let Some(known) = known.filter(|known| known.begins(format, page.rest())) {
                    page.skip(known.bytes as usize, known.lines as usize, known.kind);
                    lead = (page.rest(), page.lines());
                }
            }

            let sample = match page.next_line(expected)? {
                Some(Line::Sample(sample)) => sample,
                Some(Line::Metadata(metadata)) => {
                    if let Fact::Type(kind) = metadata.fact {
                        lead_kind = Some(kind);
                    }
                    described.push(metadata);
                    continue;
                }
                None => break,
            };

            row.samples += 1;

            if too_many.is_some() {
                // Count all samples, so that the error names the limit that would be needed.
                let known = self
                    .find(sample.series)
                    .map(|entry| self.entries[entry as usize].column != DROPPED);
                row.kept += usize::from(known.map_or_else(|| new_series.is_kept(&sample), Ok)?);
                continue;
            }

            let over_limit = ScrapeError::TooManySamples {
                line: sample.line,
                limit: rules.sample_limit,
            };

            let comments = Comments {
                text: lead.0,
                lines: sample.line - 1 - lead.1,
                kind: lead_kind.take(),
            };
            lead = (page.rest(), page.lines());

            let entry = if sample.as_expected {
                next += 1;
                self.order[next - 1]
            } else if let Some(known) = self.find(sample.series) {
                known
            } else {
                if !is_checked {
                    self.check_page(format, body, rules, row, new_series)?;
                    is_checked = true;
                }
                // Only a new series brings its comments along: those of a known series were noted when it was new.
                for metadata in described.drain(..) {
                    new_series.describe(&metadata);
                }
                match new_series.place(&sample)? {
                    SeriesPlace::Column(column) => self.insert(sample.series, column),
                    SeriesPlace::Dropped => self.insert(sample.series, DROPPED),
                    SeriesPlace::Elsewhere => {
                        // Another group writes the series. It is not remembered, because that may end at any time.
                        too_many = (!row.keep(rules)).then_some(over_limit);
                        continue;
                    }
                }
            };

            described.clear();
            if comments.lines > 0 {
                self.keep_lead(entry, comments.of(format, sample.series));
            }

            let CachedSeries {
                column, position, ..
            } = self.entries[entry as usize];

            let is_dropped = column == DROPPED;
            let was_there = self.order.get(position as usize) == Some(&entry);

            // The page has left the order of the last one, and probably continues it behind this series.
            if was_there && !sample.as_expected {
                next = position as usize + 1;
            }

            // Dropped series stay in the order, so that the next page is still compared line by line.
            order.push(entry);
            if is_dropped {
                continue;
            }

            if !row.keep(rules) {
                too_many = Some(over_limit);
                continue;
            }

            if let Some(exemplar) = sample.exemplar() {
                row.exemplars.push((column, exemplar));
            }

            let is_first = match sample.at.filter(|_| rules.honor_timestamps) {
                Some(at) => {
                    row.own_time.push((
                        column,
                        Sample {
                            at,
                            value: sample.value,
                        },
                    ));
                    true
                }
                None => row.set(column, sample.value),
            };

            row.duplicates += usize::from(!is_first);
            row.added += usize::from(is_first && !was_there && !sample.as_expected);
        }

        too_many.map_or(Ok(()), Err)
    }

    /// Reads a page to its end before its first new series is registered, since the store keeps a series for good: a
    /// page that is refused leaves nothing behind. After an error, `row` has the counts of the page.
    fn check_page(
        &self,
        format: Format,
        body: &[u8],
        rules: ReadRules,
        row: &mut PageRow,
        new_series: &mut impl NewSeries,
    ) -> Result<(), ScrapeError> {
        let counted = (row.samples, row.kept);
        row.samples = 0;
        row.kept = 0;

        let mut page = Page::new(format, body);
        let mut too_many = None;

        while let Some(line) = page.next_line(&[])? {
            let Line::Sample(sample) = line else { continue };
            row.samples += 1;

            let is_kept = match self.find(sample.series) {
                Some(entry) => self.entries[entry as usize].column != DROPPED,
                // The samples beyond the limit are only counted, so that the error names the limit that would be needed.
                None if too_many.is_some() => new_series.is_kept(&sample)?,
                None => new_series.check(&sample)?,
            };

            if is_kept && !row.keep(rules) && too_many.is_none() {
                too_many = Some(ScrapeError::TooManySamples {
                    line: sample.line,
                    limit: rules.sample_limit,
                });
            }
        }

        if let Some(error) = too_many {
            return Err(error);
        }
        // Reading goes on at the new series.
        (row.samples, row.kept) = counted;
        Ok(())
    }

    /// Removes the series whose columns were freed.
    pub fn forget(&mut self, gone: &[Column]) {
        if gone.is_empty() {
            return;
        }

        let gone: HashSet<Column> = gone.iter().copied().collect();
        let Self {
            entries,
            texts,
            order,
            ..
        } = std::mem::take(self);

        // The texts lie one after the other without gaps, so the remaining ones are copied.
        let mut moved_to = vec![None; entries.len()];
        for (number, entry) in (0..).zip(&entries) {
            if gone.contains(&entry.column) {
                continue;
            }
            let text = text(&entries, &texts, number);
            // Its comments are forgotten here and read again from the next page.
            moved_to[number as usize] = Some(self.insert(text, entry.column));
        }

        let order = order.into_iter();
        let order = order.filter_map(|entry| moved_to[entry as usize]);
        self.keep_order(order.collect());
    }

    fn keep_lead(&mut self, entry: u32, lead: LeadingComments) {
        let number = &mut self.entries[entry as usize].lead;
        match self.leads.get_mut(*number as usize) {
            Some(known) => *known = lead,
            None => {
                *number = u32::try_from(self.leads.len()).expect("no more than entries");
                self.leads.push(lead);
            }
        }
    }

    fn keep_order(&mut self, order: Vec<u32>) {
        // Most pages repeat the order of the last one, and nothing has to be written then.
        if order == self.order {
            return;
        }

        for (position, &entry) in (0..).zip(&order) {
            self.entries[entry as usize].position = position;
        }
        self.order = order;
    }

    fn find(&self, series: &[u8]) -> Option<u32> {
        let is_same = |&entry: &u32| text(&self.entries, &self.texts, entry) == series;
        let hash = self.hasher.hash_one(series);
        self.by_text.find(hash, is_same).copied()
    }

    fn insert(&mut self, series: &[u8], column: Column) -> u32 {
        let Self {
            entries,
            texts,
            by_text,
            hasher,
            ..
        } = self;
        let offset = |length| {
            u32::try_from(length).expect("the limits of a page keep its texts far below 4 GiB")
        };

        let number = offset(entries.len());
        let begin = offset(texts.len());

        texts.extend_from_slice(series);

        // No page has a line with this number.
        entries.push(CachedSeries {
            begin,
            end: offset(texts.len()),
            column,
            position: u32::MAX,
            lead: LeadingComments::NONE,
        });

        let hash_of = |&entry: &u32| hasher.hash_one(text(entries, texts, entry));
        by_text.insert_unique(hasher.hash_one(series), number, hash_of);

        number
    }
}

/// The lines before a sample, already checked.
#[derive(Clone, Copy)]
struct Comments<'a> {
    /// The text from the first comment on.
    text: &'a [u8],
    lines: usize,
    /// Type of the last `TYPE` line.
    kind: Option<MetricType>,
}

impl Comments<'_> {
    /// Returns the comments before `series`, which is a part of the same text: the comments end
    /// where it begins.
    fn of(self, format: Format, series: &[u8]) -> LeadingComments {
        let bytes = series.as_ptr().addr() - self.text.as_ptr().addr();
        let number =
            |count| u32::try_from(count).expect("the limits of a page keep it far below 4 GiB");

        LeadingComments {
            hash: LeadingComments::hash(format, &self.text[..bytes]),
            bytes: number(bytes),
            lines: number(self.lines),
            kind: self.kind,
        }
    }
}

fn text<'a>(entries: &[CachedSeries], texts: &'a [u8], entry: u32) -> &'a [u8] {
    let CachedSeries { begin, end, .. } = entries[entry as usize];
    &texts[begin as usize..end as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use takt_model::exposition::{self, Metadata};
    use takt_store::is_stale;

    /// Assigns columns in the order of the requests and records the requests.
    #[derive(Default)]
    struct Columns {
        by_series: BTreeMap<String, u32>,
        parsed: usize,
        described: Vec<String>,
    }

    impl NewSeries for Columns {
        fn check(&mut self, sample: &exposition::Sample<'_>) -> Result<bool, ScrapeError> {
            self.is_kept(sample)
        }

        fn place(&mut self, sample: &exposition::Sample<'_>) -> Result<SeriesPlace, ScrapeError> {
            self.parsed += 1;
            let series = sample.normal_labels()?.to_string();
            if series.starts_with("dropped") {
                return Ok(SeriesPlace::Dropped);
            }
            let next = self.by_series.len() as u32;
            Ok(SeriesPlace::Column(Column::at(
                *self.by_series.entry(series).or_insert(next),
            )))
        }

        fn is_kept(&mut self, sample: &exposition::Sample<'_>) -> Result<bool, ScrapeError> {
            Ok(!sample.labels()?.to_string().starts_with("dropped"))
        }

        fn describe(&mut self, metadata: &Metadata<'_>) {
            self.described.push(metadata.metric().into_owned());
        }
    }

    const RULES: ReadRules = ReadRules {
        sample_limit: 1000,
        honor_timestamps: true,
    };

    fn read(cache: &mut SeriesCache, columns: &mut Columns, page: &str) -> PageRow {
        let mut row = PageRow::default();
        cache
            .read(Format::Text, page.as_bytes(), RULES, &mut row, columns)
            .unwrap();
        row
    }

    #[test]
    fn dropped_series_are_parsed_once_and_do_not_count_for_the_limit() {
        let mut cache = SeriesCache::default();
        let mut columns = Columns::default();
        let rules = ReadRules {
            sample_limit: 2,
            ..RULES
        };
        for (scrape, added) in [2, 0].into_iter().enumerate() {
            let mut row = PageRow::default();
            let page = b"a 1\ndropped 2\ndropped{x=\"1\"} 3\nb 4\n";
            cache
                .read(Format::Text, page, rules, &mut row, &mut columns)
                .unwrap();
            assert_eq!(row.values, vec![1.0, 4.0], "{scrape}");
            assert_eq!(row.samples, 4, "{scrape}");
            assert_eq!(row.kept, 2, "{scrape}");
            assert_eq!(row.added, added, "{scrape}");
        }
        assert_eq!(columns.parsed, 4);

        // The dropped series stay known; only the one whose column is gone is parsed again.
        cache.forget(&[Column::at(0)]);
        read(&mut cache, &mut columns, "a 1\ndropped 2\nb 4\n");
        assert_eq!(columns.parsed, 5);
    }

    #[test]
    fn timestamps_count_only_where_they_are_honoured() {
        for (honor_timestamps, values, own_time) in [(true, 0, 1), (false, 1, 0)] {
            let (mut cache, mut columns, mut row) = (
                SeriesCache::default(),
                Columns::default(),
                PageRow::default(),
            );
            let rules = ReadRules {
                honor_timestamps,
                ..RULES
            };
            cache
                .read(Format::Text, b"a 1 1000\n", rules, &mut row, &mut columns)
                .unwrap();
            assert_eq!(row.values.len(), values);
            assert_eq!(row.own_time.len(), own_time);
        }
    }

    #[test]
    fn a_series_is_taken_apart_once() {
        let mut cache = SeriesCache::default();
        let mut columns = Columns::default();
        let first = read(
            &mut cache,
            &mut columns,
            "# TYPE a gauge\na 1\nb 2\nc{x=\"1\"} 3\n",
        );
        assert_eq!(first.values, vec![1.0, 2.0, 3.0]);
        assert_eq!(first.added, 3);
        assert_eq!(columns.parsed, 3);

        // Another order, and a new series in the middle of it.
        let second = read(
            &mut cache,
            &mut columns,
            "# TYPE a gauge\nc{x=\"1\"} 4\na 1\nnew 5\nb 2\n",
        );
        assert_eq!(second.values, vec![1.0, 2.0, 4.0, 5.0]);
        assert_eq!(second.added, 1);
        assert_eq!(columns.parsed, 4);
        assert_eq!(columns.described, ["a"]);
    }

    #[test]
    fn the_first_of_two_equal_series_wins() {
        let mut cache = SeriesCache::default();
        let mut columns = Columns::default();
        // The third line is another spelling of the same series, which only its labels show.
        for scrape in 0..2 {
            let row = read(
                &mut cache,
                &mut columns,
                "a{x=\"1\"} 1\na{x=\"1\"} 2\na{ x=\"1\" } 3\nb 4\n",
            );
            assert_eq!(row.values, vec![1.0, 4.0]);
            assert_eq!(row.samples, 4);
            assert_eq!(row.duplicates, 2);
            assert_eq!(
                row.added,
                if scrape == 0 { 2 } else { 0 },
                "a series that a page has twice is added once"
            );
        }
    }

    #[test]
    fn the_type_in_a_skipped_comment_is_known() {
        let mut cache = SeriesCache::default();
        let mut columns = Columns::default();
        read(
            &mut cache,
            &mut columns,
            "# TYPE h histogram\nh{le=\"1\"} 1\n",
        );

        // The type decides whether `le` is written as a float, and it is in a comment that the second page skips.
        let page = "# TYPE h histogram\nh{le=\"1\"} 1\nh{le=\"2\"} 1\n";
        read(&mut cache, &mut columns, page);
        let names: Vec<&String> = columns.by_series.keys().collect();
        assert_eq!(names, [r#"h{le="1.0"}"#, r#"h{le="2.0"}"#]);
    }

    #[test]
    fn comments_that_are_known_are_skipped_and_others_read() {
        let mut cache = SeriesCache::default();
        let mut columns = Columns::default();
        let page = "# HELP a x\n# TYPE a gauge\n\na 1\n# TYPE b gauge\n b 2\n# the end\n";
        for _ in 0..3 {
            assert_eq!(read(&mut cache, &mut columns, page).values, [1.0, 2.0]);
        }
        assert_eq!(cache.leads.len(), 2);
        assert_eq!(columns.described.len(), 3);
        // Other comments, fewer, more, and a sample in place of a comment.
        for page in [
            "# HELP a y\n# TYPE a gauge\n\na 1\nb 2\n",
            "a 1\nb 2\n",
            "# x\na 1\n# TYPE b gauge\n\n b 2\n",
        ] {
            assert_eq!(read(&mut cache, &mut columns, page).values, [1.0, 2.0]);
        }
        assert_eq!(
            read(
                &mut cache,
                &mut columns,
                "# x\nc 3\na 1\n# TYPE b gauge\n\n b 2\n"
            )
            .values,
            [1.0, 2.0, 3.0]
        );
        // Errors are still found, on the right line.
        for (page, message) in [
            (
                "# x\na 1\n# TYPE b gauge\n\n b x\n",
                "line 5: expected a number, found \"x\"",
            ),
            (
                "# x\na 1\n# TYPE b gaug\n b 2\n",
                "line 3: expected a metric type, found \"gaug\"",
            ),
        ] {
            let error = cache
                .read(
                    Format::Text,
                    page.as_bytes(),
                    RULES,
                    &mut PageRow::default(),
                    &mut columns,
                )
                .unwrap_err();
            assert!(
                error.to_string().contains("cannot understand")
                    && error.in_full().contains(message),
                "{}",
                error.in_full()
            );
        }
        // A comment of one format is not a comment of the other.
        let mut row = PageRow::default();
        cache
            .read(
                Format::OpenMetrics,
                b"# x\na 1\n# EOF\n",
                RULES,
                &mut row,
                &mut columns,
            )
            .unwrap_err();
    }

    #[test]
    fn a_forgotten_column_is_asked_for_again() {
        let mut cache = SeriesCache::default();
        let mut columns = Columns::default();
        read(&mut cache, &mut columns, "a 1\nb 2\nc 3\n");
        cache.forget(&[Column::at(1)]);
        let row = read(&mut cache, &mut columns, "a 1\nb 2\nc 3\n");
        assert_eq!(row.values, vec![1.0, 2.0, 3.0]);
        assert_eq!(row.added, 1);
        assert_eq!(columns.parsed, 4);
    }

    #[test]
    fn one_sample_too_many_is_an_error_and_the_rest_is_counted() {
        let mut cache = SeriesCache::default();
        let mut columns = Columns::default();
        let rules = ReadRules {
            sample_limit: 1,
            ..RULES
        };
        let page = b"a 1\nb 2\na 3\ndropped 4\nc{x=\"1\"} 5\n";
        for _ in 0..2 {
            let mut row = PageRow::default();
            let error = cache
                .read(Format::Text, page, rules, &mut row, &mut columns)
                .unwrap_err();
            assert_eq!(
                error.to_string(),
                "line 2: the page has more samples than sample_limit = 1"
            );
            assert_eq!(row.samples, 5);
            assert_eq!(row.kept, 4);
            assert_eq!(row.added, 0);
        }
        let error = cache.read(
            Format::Text,
            b"a 1\nb 2\n<html>\n",
            rules,
            &mut PageRow::default(),
            &mut columns,
        );
        assert!(
            error.unwrap_err().in_full().contains("line 3"),
            "what cannot be read is worse than what is too much"
        );
    }

    #[test]
    fn a_refused_page_adds_no_series() {
        let mut cache = SeriesCache::default();
        let mut columns = Columns::default();
        let mut added = |page: &str| {
            let mut row = PageRow::default();
            let result = cache.read(Format::Text, page.as_bytes(), RULES, &mut row, &mut columns);
            (result.is_ok(), row.added)
        };
        assert_eq!(added("a 1\n<html>\n"), (false, 0));
        assert_eq!(added("a 1\nb 2\n"), (true, 2));
        assert_eq!(added("c 1\nb 1\n<html>\n"), (false, 0));
        assert_eq!(added("b 1\n"), (true, 0));
        assert_eq!(added("a 1\nb 1\n"), (true, 1));
    }

    /// 400,000 refused lines stayed in the store as series, and in the cache.
    #[test]
    fn a_refused_page_leaves_nothing_behind() {
        let rules = ReadRules {
            sample_limit: 3,
            ..RULES
        };
        for page in ["b 2\na 1\nc 3\nd 4\n", "b 2\na 1\nc 3\n<html>\n"] {
            let mut cache = SeriesCache::default();
            let mut columns = Columns::default();
            read(&mut cache, &mut columns, "# TYPE a gauge\na 1\n");

            let mut row = PageRow::default();
            let body = page.as_bytes();
            let refused = cache.read(Format::Text, body, rules, &mut row, &mut columns);
            assert!(refused.is_err());
            assert_eq!(columns.by_series.len(), 1, "{page}");
            assert_eq!(cache.entries.len(), 1, "{page}");
            assert_eq!(cache.texts, b"a");

            // The next page is read as if the refused one had never been there.
            let row = read(&mut cache, &mut columns, "a 5\nb 6\n");
            assert_eq!((row.values, row.added), (vec![5.0, 6.0], 1));
        }
    }

    proptest! {
        #[test]
        fn whatever_was_remembered_the_page_decides(
            pages in proptest::collection::vec(proptest::collection::vec((0_u8..12, 0_i32..100), 0..15), 1..6),
        ) {
            let mut cache = SeriesCache::default();
            let mut columns = Columns::default();
            for page in pages {
                let text: String = page
                    .iter()
                    .map(|(series, value)| format!("m{{x=\"{series}\"}} {value}\n"))
                    .collect();
                let row = read(&mut cache, &mut columns, &text);

                let mut expected = BTreeMap::new();
                for (series, value) in &page {
                    expected
                        .entry(format!("m{{x=\"{series}\"}}"))
                        .or_insert(f64::from(*value));
                }
                let found: BTreeMap<String, f64> = columns
                    .by_series
                    .iter()
                    .filter_map(|(series, &column)| {
                        Some((series.clone(), *row.values.get(column as usize)?))
                    })
                    .filter(|(_, value)| !is_stale(*value))
                    .collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
