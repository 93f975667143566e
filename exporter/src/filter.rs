//! Filters of the devices that a collector reads.

use regex_lite::Regex;
use std::str::FromStr;

/// A regular expression given as a flag, in the common subset of Go's and Rust's syntax. An empty
/// one matches nothing, so `--collector.netdev.device-exclude=` leaves nothing out.
#[derive(Debug, Clone)]
pub struct NamePattern(Option<Regex>);

impl FromStr for NamePattern {
    type Err = regex_lite::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(match text {
            "" => None,
            _ => Some(Regex::new(text)?),
        }))
    }
}

impl NamePattern {
    fn matches(&self, name: &str) -> bool {
        self.0.as_ref().is_some_and(|regex| regex.is_match(name))
    }
}

/// A filter that remembers its verdicts, because the same few names come at every scrape.
#[derive(Debug)]
pub(crate) struct NameFilter {
    pattern: NamePattern,
    keeps: bool,
    verdicts: Vec<(String, bool)>,
    /// Index behind the verdict that was given last.
    next: usize,
}

/// Names come and go with containers; beyond this many the verdicts are forgotten.
const MAX_VERDICTS: usize = 2048;

impl NameFilter {
    /// Passes names that do not match.
    pub fn excluding(pattern: NamePattern) -> Self {
        Self {
            pattern,
            keeps: false,
            verdicts: Vec::new(),
            next: 0,
        }
    }

    /// Passes names that match.
    pub fn including(pattern: NamePattern) -> Self {
        Self {
            pattern,
            keeps: true,
            verdicts: Vec::new(),
            next: 0,
        }
    }

    /// Passes names that match `include`; without it, names that do not match `exclude`.
    pub fn new(include: Option<NamePattern>, exclude: NamePattern) -> Self {
        match include {
            Some(pattern) => Self::including(pattern),
            None => Self::excluding(exclude),
        }
    }

    pub fn passes(&mut self, name: &str) -> bool {
        let count = self.verdicts.len();
        // The names come in the same order each time, so the search mostly ends where it begins.
        let mut places = (0..count).map(|step| (self.next + step) % count);
        if let Some(at) = places.find(|&at| self.verdicts[at].0 == name) {
            self.next = at + 1;
            return self.verdicts[at].1;
        }

        let verdict = self.pattern.matches(name) == self.keeps;
        if count >= MAX_VERDICTS {
            self.verdicts.clear();
        }

        self.verdicts.push((name.to_owned(), verdict));
        self.next = self.verdicts.len();
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_include_replaces_the_exclude_and_an_empty_pattern_matches_nothing() {
        let pattern = |text: &str| text.parse::<NamePattern>().unwrap();
        let mut exclude = NameFilter::new(None, pattern("^lo$"));
        assert!(
            exclude.passes("eth0")
                && exclude.passes("eth0")
                && !exclude.passes("lo")
                && !exclude.passes("lo")
        );
        let mut include = NameFilter::new(Some(pattern("^lo$")), pattern("^lo$"));
        assert!(include.passes("lo") && !include.passes("eth0"));
        assert!(NameFilter::excluding(pattern("")).passes("lo"));
        assert!("(".parse::<NamePattern>().is_err());
    }
}
