//! Alerts as routing sees them, from Takt's rules over samples, its event rules, or a Prometheus
//! that posts them.

use crate::fingerprint::Fingerprint;
use crate::notify::owner::OWNER_ACTION;
use crate::notify::shortened;
use crate::rules::ALERT_NAME;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// How long an alert that was posted without an end counts as firing after the last post.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(300);

/// Annotations that tell operators and owners what to do.
const INSTRUCTIONS: [&str; 2] = ["action", OWNER_ACTION];

/// One alert.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// Its labels, which never change.
    pub labels: Labels,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Since when it fires.
    pub starts_at: Timestamp,
    /// Since when its condition holds: `for` earlier than `starts_at`. `None` where that is
    /// unknown.
    #[serde(default)]
    pub began_at: Option<Timestamp>,
    /// When it resolved, or will count as resolved unless it is posted again.
    pub ends_at: Option<Timestamp>,
    /// When it was last evaluated or posted.
    pub updated_at: Timestamp,
    /// Link to its source.
    pub generator_url: String,
    /// Whether `ends_at` was derived from [`RESOLVE_TIMEOUT`].
    pub is_timeout: bool,
}

impl Alert {
    /// Its identity.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.labels)
    }

    /// Whether it has resolved.
    pub fn is_resolved(&self, now: Timestamp) -> bool {
        self.ends_at.is_some_and(|end| end <= now)
    }

    /// Since when its condition holds, as far as that is known: what people are told as *since*.
    pub fn since(&self) -> Timestamp {
        self.began_at.unwrap_or(self.starts_at)
    }

    /// A fingerprint of what its annotations tell people to do. Words with digits are left out: a
    /// measured value changes with each evaluation, the instruction does not. `None` without an
    /// instruction.
    pub fn instruction(&self) -> Option<Fingerprint> {
        let said = |name: &'static str| {
            let text = self.annotations.get(name)?;
            // A value that changes with each evaluation must not count as another instruction.
            let words = text
                .split_whitespace()
                .filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
            Some((name, words.collect::<Vec<_>>().join(" ")))
        };
        let texts: Labels = INSTRUCTIONS.into_iter().filter_map(said).collect();
        (!texts.is_empty()).then(|| Fingerprint::of(&texts))
    }

    /// The label's value, or `""`.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).unwrap_or_default()
    }

    /// Merges two reports of the same alert: the newer one counts, but the episode keeps its start,
    /// and a known end is kept against a derived one.
    fn merge(self, mut newer: Self) -> Self {
        newer.starts_at = newer.starts_at.min(self.starts_at);
        newer.began_at = newer.began_at.into_iter().chain(self.began_at).min();

        let end = newer.ends_at;
        let old_end = self.ends_at;
        let newer_is_over = end.is_some_and(|end| end <= newer.updated_at);
        let old_is_over = old_end.is_some_and(|end| end <= newer.updated_at);
        // Both ended: the later end is the one that every channel should see.
        if newer_is_over && old_is_over {
            newer.ends_at = end.max(old_end);
        } else if !newer_is_over && !self.is_timeout && old_end > end && end.is_some() {
            // A known end that is later stays; a derived one gives way.
            newer.ends_at = old_end;
        }
        newer
    }

    /// Whether both belong to the same episode: their times overlap. An alert without an end lasts
    /// for ever.
    fn overlaps(&self, other: &Self) -> bool {
        let end = |alert: &Self| alert.ends_at.map_or(i64::MAX, |end| end.0);
        self.starts_at.0 <= end(other) && other.starts_at.0 <= end(self)
    }
}

/// Longest text of labels in place of a name, in characters.
const LABELS_MAX: usize = 200;

/// The name of an alert with these labels for people: its `alertname`. Other programs may post alerts without one,
/// which go by all of their labels.
pub fn alert_name(labels: &Labels) -> Cow<'_, str> {
    if let Some(name) = given_name(labels) {
        return Cow::Borrowed(name);
    }

    let mut others = labels.clone();
    others.remove(ALERT_NAME);
    Cow::Owned(shortened(&others.to_string(), LABELS_MAX))
}

/// The `alertname`, if it is not empty.
pub(crate) fn given_name(labels: &Labels) -> Option<&str> {
    labels
        .get(ALERT_NAME)
        .filter(|name| !name.trim().is_empty())
}

/// An alert in a request over HTTP.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Posted {
    /// Labels; empty ones are dropped.
    pub labels: Labels,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its start, if given.
    pub starts_at: Option<Timestamp>,
    /// Its end, if given.
    pub ends_at: Option<Timestamp>,
    /// Link to its source.
    pub generator_url: String,
}

/// Why a posted alert is refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum PostedError {
    /// It has no label.
    #[error("at least one label pair required")]
    NoLabels,
    /// It ends before it begins.
    #[error("start time must be before end time")]
    Backwards,
    /// Its text exceeds the bound for one alert.
    #[error("the labels and annotations of an alert are longer than {max} bytes")]
    TooLong {
        /// Bytes that one alert may have.
        max: usize,
    },
    /// All senders together have as many as they may.
    #[error("Takt holds {max} posted alerts, as many as it may (alerts.posted_max)")]
    TooMany {
        /// Posted alerts that may be known.
        max: usize,
    },
    /// The sender has as many as one may.
    #[error("Takt holds {max} alerts of this sender, three quarters of alerts.posted_max")]
    TooManyOfSender {
        /// Posted alerts of one sender that may be known.
        max: usize,
    },
    /// The texts of all posted alerts exceed their bound.
    #[error(
        "the posted alerts together have {max} bytes of text, 4 KiB for each of alerts.posted_max"
    )]
    TooMuchText {
        /// Bytes that all posted alerts may have.
        max: usize,
    },
}

impl PostedError {
    /// Whether the alert may be accepted later, when others are over.
    pub fn is_of_room(&self) -> bool {
        matches!(
            self,
            Self::TooMany { .. } | Self::TooManyOfSender { .. } | Self::TooMuchText { .. }
        )
    }
}

impl Posted {
    /// The alert with defaults for missing fields.
    ///
    /// # Errors
    /// Where labels are missing or the end is before the start.
    pub fn into_alert(
        self,
        now: Timestamp,
        resolve_timeout: Duration,
    ) -> Result<Alert, PostedError> {
        // As in Alertmanager, an alert with an end and no beginning began then.
        let starts_at = self.starts_at.or(self.ends_at).unwrap_or(now);
        let is_timeout = self.ends_at.is_none();
        let ends_at = self.ends_at.unwrap_or(now.plus(resolve_timeout));

        match (self.labels.is_empty(), ends_at < starts_at) {
            (true, _) => Err(PostedError::NoLabels),
            (_, true) => Err(PostedError::Backwards),
            _ => Ok(Alert {
                labels: self.labels,
                annotations: self.annotations,
                starts_at,
                began_at: None,
                ends_at: Some(ends_at),
                updated_at: now,
                generator_url: self.generator_url,
                is_timeout,
            }),
        }
    }
}

/// All alerts that are known, by identity.
#[derive(Debug, Clone, Default)]
pub struct AlertBook(BTreeMap<Fingerprint, Alert>);

impl AlertBook {
    /// Merges an alert with what is known of it, and returns the result. The alert taken last is the
    /// newer one, whatever the clock says: it may have been set back.
    pub fn take(&mut self, mut alert: Alert) -> &Alert {
        let fingerprint = alert.fingerprint();
        if let Some(known) = self.0.remove(&fingerprint) {
            // The clock may have been set back since the last report.
            alert.updated_at = alert.updated_at.max(known.updated_at);
            // A rule is evaluated a little in the past, so an episode may begin before the end of the
            // one before was noted.
            let is_new =
                known.is_resolved(alert.updated_at) && !alert.is_resolved(alert.updated_at);
            if !is_new && known.overlaps(&alert) {
                alert = known.merge(alert);
            }
        }
        self.0.entry(fingerprint).or_insert(alert)
    }

    /// Replaces an alert's annotations, and returns whether they now tell people to do something else.
    /// They are compared first, because most evaluations change none.
    pub fn reword(&mut self, fingerprint: Fingerprint, words: &[(String, String)]) -> bool {
        let Some(alert) = self.0.get_mut(&fingerprint) else {
            return false;
        };
        let is_same = |(name, text): &(String, String)| alert.annotations.get(name) == Some(text);
        if alert.annotations.len() == words.len() && words.iter().all(is_same) {
            return false;
        }

        let before = alert.instruction();
        alert.annotations = words.iter().cloned().collect();
        before != alert.instruction()
    }

    /// One alert.
    pub fn get(&self, fingerprint: Fingerprint) -> Option<&Alert> {
        self.0.get(&fingerprint)
    }

    /// All alerts, resolved ones that are still remembered among them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Fingerprint, &Alert)> {
        self.0
            .iter()
            .map(|(fingerprint, alert)| (*fingerprint, alert))
    }

    /// Forgets resolved alerts that are not needed, and returns them.
    pub fn forget_resolved(
        &mut self,
        now: Timestamp,
        is_needed: impl Fn(Fingerprint, &Alert) -> bool,
    ) -> Vec<Fingerprint> {
        let is_over = |fingerprint: &Fingerprint, alert: &Alert| {
            alert.is_resolved(now) && !is_needed(*fingerprint, alert)
        };

        let gone: Vec<_> = self
            .0
            .iter()
            .filter(|(print, alert)| is_over(print, alert))
            .map(|(print, _)| *print)
            .collect();
        gone.iter()
            .for_each(|fingerprint| drop(self.0.remove(fingerprint)));
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn posted(starts: Option<i64>, ends: Option<i64>) -> Posted {
        let labels = [("alertname", "A")].into_iter().collect();
        Posted {
            labels,
            starts_at: starts.map(at),
            ends_at: ends.map(at),
            ..Posted::default()
        }
    }

    #[test]
    fn missing_fields_get_defaults() {
        for (starts, ends, expected) in [
            (None, None, Ok((1000, 1300, true))),
            (Some(900), None, Ok((900, 1300, true))),
            (None, Some(2000), Ok((2000, 2000, false))),
            (None, Some(800), Ok((800, 800, false))),
            (Some(900), Some(800), Err(PostedError::Backwards)),
        ] {
            let seen = posted(starts, ends)
                .into_alert(at(1000), RESOLVE_TIMEOUT)
                .map(|a| {
                    (
                        a.starts_at.0 / 1000,
                        a.ends_at.unwrap().0 / 1000,
                        a.is_timeout,
                    )
                });
            assert_eq!(seen, expected, "{starts:?} {ends:?}");
        }
        let nothing = Posted::default().into_alert(at(1), RESOLVE_TIMEOUT);
        assert_eq!(nothing, Err(PostedError::NoLabels));
    }

    #[test]
    fn an_alert_without_a_name_goes_by_its_labels() {
        let name =
            |labels: &[(&str, &str)]| alert_name(&labels.iter().copied().collect()).into_owned();
        assert_eq!(name(&[("alertname", "Hot"), ("node", "g01")]), "Hot");
        let unnamed = r#"{job="backup", node="g01"}"#;
        assert_eq!(name(&[("node", "g01"), ("job", "backup")]), unnamed);
        assert_eq!(
            name(&[("alertname", " "), ("node", "g01")]),
            r#"{node="g01"}"#
        );
        assert!(name(&[("job", &"x".repeat(10_000))]).chars().count() <= 202);
    }

    type Pushes = &'static [(i64, i64, Option<i64>)];

    /// Each line: posted at, starts, ends; then the result: starts, ends.
    #[test]
    fn repeated_alerts_are_merged() {
        let cases: &[(&str, Pushes, (i64, i64))] = &[
            (
                "firing goes on, the beginning stays",
                &[(100, 100, None), (160, 150, None)],
                (100, 460),
            ),
            (
                "an end that is known",
                &[(100, 100, None), (160, 100, Some(160))],
                (100, 160),
            ),
            (
                "a known end in the future beats an earlier one",
                &[(100, 100, Some(900)), (160, 100, Some(500))],
                (100, 900),
            ),
            (
                "a guessed end does not",
                &[(100, 100, None), (160, 100, Some(300))],
                (100, 300),
            ),
            (
                "of two ends in the past the later counts",
                &[(160, 100, Some(155)), (170, 100, Some(150))],
                (100, 155),
            ),
            (
                "after its end a new episode begins",
                &[(160, 100, Some(150)), (400, 400, None)],
                (400, 700),
            ),
        ];
        for (name, pushes, expected) in cases {
            let mut book = AlertBook::default();
            for (now, starts, ends) in *pushes {
                book.take(
                    posted(Some(*starts), *ends)
                        .into_alert(at(*now), RESOLVE_TIMEOUT)
                        .unwrap(),
                );
            }
            let (_, known) = book.iter().next().unwrap();
            assert_eq!(
                (known.starts_at.0 / 1000, known.ends_at.unwrap().0 / 1000),
                *expected,
                "{name}"
            );
        }
    }

    #[test]
    fn an_end_counts_although_the_clock_was_set_back() {
        let mut book = AlertBook::default();
        let firing = Alert {
            ends_at: None,
            ..posted(Some(1000), None)
                .into_alert(at(1000), RESOLVE_TIMEOUT)
                .unwrap()
        };
        book.take(firing.clone());
        let ended = Alert {
            ends_at: Some(at(700)),
            updated_at: at(700),
            ..firing.clone()
        };
        assert!(book.take(ended).is_resolved(at(700)));
        let again = Alert {
            starts_at: at(750),
            updated_at: at(750),
            ..firing
        };
        assert!(!book.take(again).is_resolved(at(750)));
    }

    #[test]
    fn an_alert_that_fires_again_is_another_episode() {
        let mut book = AlertBook::default();
        let alert = |starts, ends: Option<i64>, now| Alert {
            ends_at: ends.map(at),
            ..posted(Some(starts), None)
                .into_alert(at(now), RESOLVE_TIMEOUT)
                .unwrap()
        };
        book.take(alert(1000, None, 1000));
        book.take(alert(1000, Some(2000), 2000));
        // The rule is evaluated at its last slot.
        assert_eq!(book.take(alert(1990, None, 2001)).starts_at, at(1990));
    }

    #[test]
    fn resolved_alerts_are_kept_while_needed() {
        let mut book = AlertBook::default();
        book.take(
            posted(Some(1), Some(5))
                .into_alert(at(5), RESOLVE_TIMEOUT)
                .unwrap(),
        );
        assert!(book.forget_resolved(at(4), |_, _| false).is_empty());
        assert!(book.forget_resolved(at(6), |_, _| true).is_empty());
        assert_eq!(book.forget_resolved(at(6), |_, _| false).len(), 1);
        assert_eq!(book.iter().len(), 0);
    }
}
