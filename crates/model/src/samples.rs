//! The samples of one scrape, rendered as exposition text.

use crate::exposition::{push_escaped_label, push_value};
use crate::metric::{Family, Kind, Metric};
use std::borrow::Cow;

/// The samples of one collector, grouped by metric in the order of first use.
///
/// A sample is rendered when it is added: both text formats write it alike. Buffers are reused, so
/// scrapes do not allocate once the sizes are stable.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    groups: Vec<Group>,
    last: usize,
    /// Number of samples.
    count: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub name: Cow<'static, str>,
    pub help: Cow<'static, str>,
    pub kind: Kind,
    pub lines: String,
}

impl Samples {
    /// Returns an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes the samples and keeps the memory, except for metrics that the last scrape lacked:
    /// otherwise memory would grow with changing names.
    pub fn clear(&mut self) {
        self.last = 0;
        self.count = 0;
        // A name is kept for one scrape without samples: a metric that returns at once finds its
        // memory.
        self.groups.retain(|group| !group.lines.is_empty());
        self.groups.iter_mut().for_each(|group| group.lines.clear());
    }

    /// Releases reserved memory beyond what the samples need, except for a small reserve for the
    /// next scrape.
    pub fn fit(&mut self) {
        for lines in self.groups.iter_mut().map(|group| &mut group.lines) {
            // A little room is left, because the next scrape's numbers may have more digits.
            let wanted = lines.len() + lines.len() / 16 + 64;
            if lines.capacity() > wanted + wanted / 4 {
                lines.shrink_to(wanted);
            }
        }
    }

    /// Adds a sample of a declared metric. `values` holds the label values, in the declared order.
    pub fn push<V>(&mut self, metric: &Metric, values: &[V], value: f64)
    where
        V: AsRef<str>,
    {
        let group = self.group(&[metric.name], metric.kind, || metric.help.into());
        render(group, "", metric.labels, values, value);
    }

    /// Adds a sample of the metric `family.prefix` + `field`.
    pub fn push_field<V>(&mut self, family: &Family, field: &str, values: &[V], value: f64)
    where
        V: AsRef<str>,
    {
        let group = self.group(&[family.prefix, field], family.kind, || {
            family.help_of(field)
        });
        render(group, "", family.labels, values, value);
    }

    /// Adds a sample of a metric declared elsewhere, such as in a textfile: all names are known at
    /// run time only.
    pub fn push_foreign(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        labels: &[(&str, &str)],
        value: f64,
    ) {
        self.push_part(name, "", kind, help, labels, value);
    }

    /// As [`Self::push_foreign`], for a part of a histogram or a summary: `suffix` is `_bucket`,
    /// `_sum`, `_count`, or nothing for a quantile.
    pub fn push_part(
        &mut self,
        name: &str,
        suffix: &str,
        kind: Kind,
        help: &str,
        labels: &[(&str, &str)],
        value: f64,
    ) {
        let group = self.group(&[name], kind, || help.to_owned().into());
        let (names, values): (Vec<&str>, Vec<&str>) = labels.iter().copied().unzip();
        render(group, suffix, &names, &values, value);
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the set has no samples.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| !group.lines.is_empty())
    }

    /// Returns the group of a new sample, with the name concatenated from `parts`. Scrapes add
    /// metrics in the same order each time, so the search begins at the last used group and mostly
    /// ends there or one further.
    fn group(
        &mut self,
        parts: &[&str],
        kind: Kind,
        help: impl FnOnce() -> Cow<'static, str>,
    ) -> &mut Group {
        self.count += 1;
        let count = self.groups.len();

        let length: usize = parts.iter().map(|part| part.len()).sum();

        self.last = (self.last..count)
            .chain(0..self.last.min(count))
            .find(|&at| is_made_of(&self.groups[at].name, parts, length))
            .unwrap_or_else(|| {
                self.groups.push(Group {
                    name: parts.concat().into(),
                    help: help(),
                    kind,
                    lines: String::new(),
                });
                count
            });

        &mut self.groups[self.last]
    }
}

/// Whether `name` is the concatenation of `parts`, which have `length` bytes together. Most other
/// names have another length.
fn is_made_of(name: &str, parts: &[&str], length: usize) -> bool {
    if name.len() != length {
        return false;
    }

    let mut rest = name;
    for part in parts {
        match rest.strip_prefix(part) {
            Some(behind) => rest = behind,
            None => return false,
        }
    }
    rest.is_empty()
}

fn render<V>(group: &mut Group, suffix: &str, names: &[&str], values: &[V], value: f64)
where
    V: AsRef<str>,
{
    debug_assert_eq!(names.len(), values.len(), "labels of {}", group.name);

    let out = &mut group.lines;
    out.push_str(&group.name);
    out.push_str(suffix);
    for (at, (name, value)) in names.iter().zip(values).enumerate() {
        out.push(if at == 0 { '{' } else { ',' });
        out.push_str(name);
        out.push_str("=\"");
        push_escaped_label(out, value.as_ref());
        out.push('"');
    }

    if !names.is_empty() {
        out.push('}');
    }

    out.push(' ');
    push_value(out, value);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_memory_is_released() {
        let mut samples = Samples::new();
        for number in 0..1000 {
            samples.push_foreign(
                "many",
                Kind::Gauge,
                "Some.",
                &[("number", &number.to_string())],
                1.0,
            );
        }

        let length = samples.groups[0].lines.len();
        samples.fit();
        assert!((length..length * 5 / 4).contains(&samples.groups[0].lines.capacity()));
        assert_eq!(samples.len(), 1000);
    }

    #[test]
    fn names_that_come_and_go_leave_nothing_behind() {
        let mut samples = Samples::new();
        for number in 0..100 {
            samples.clear();
            samples.push_foreign("stays", Kind::Gauge, "There each time.", &[], 1.0);
            samples.push_foreign(
                &format!("comes_{number}"),
                Kind::Gauge,
                "There once.",
                &[],
                1.0,
            );
        }
        assert_eq!(
            samples.len(),
            2,
            "the last reading's, and what the one before had more"
        );
        assert_eq!(
            samples.groups.len(),
            3,
            "the last reading's, and what the one before had more"
        );
        samples.clear();
        samples.clear();
        assert_eq!(samples.len(), 0);
        assert_eq!(samples.groups.len(), 0);
        assert!(samples.is_empty());
    }

    #[test]
    fn names_of_one_length_stay_separate_in_any_order() {
        let mut samples = Samples::new();
        for name in ["a_b", "a_c", "b_b", "a_b", "b_b", "a_c", "a_c"] {
            samples.push_foreign(name, Kind::Gauge, "", &[], 1.0);
        }
        let counts: Vec<_> = samples
            .groups()
            .map(|group| (&*group.name, group.lines.lines().count()))
            .collect();
        assert_eq!(counts, [("a_b", 2), ("a_c", 3), ("b_b", 2)]);
        assert_eq!(samples.len(), 7);
    }
}
