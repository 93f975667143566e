//! Silences: no messages about matching alerts for a while.

use super::matcher::{MatchOp, Matcher, Matchers};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// How long an expired silence is remembered.
pub const RETENTION: Duration = Duration::from_secs(120 * 3600);

/// A silence: matchers, times, creator and comment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Silence {
    /// Its identity, a UUID.
    pub id: String,
    /// Alerts that one of these accepts are silenced.
    pub matchers: Vec<Matchers>,
    /// From when.
    pub starts_at: Timestamp,
    /// Until when.
    pub ends_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Its creator.
    pub created_by: String,
    /// Why.
    pub comment: String,
    /// Further annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// The state of a silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SilenceState {
    /// It is in effect.
    Active,
    /// It has not begun.
    Pending,
    /// It has ended.
    Expired,
}

/// Why a silence is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SilenceError {
    /// No such silence.
    #[error("silence not found: {0}")]
    NotFound(String),
    /// It would silence everything.
    #[error("silence invalid: at least one matcher must not match the empty string")]
    MatchesAll,
    /// It ends before it begins.
    #[error("Failed to create silence: start time must be before end time")]
    Backwards,
    /// It ends in the past.
    #[error("Failed to create silence: end time can't be in the past")]
    InThePast,
}

impl Silence {
    /// Its state.
    pub fn state(&self, now: Timestamp) -> SilenceState {
        match (now < self.starts_at, now < self.ends_at) {
            (true, _) => SilenceState::Pending,
            (false, true) => SilenceState::Active,
            (false, false) => SilenceState::Expired,
        }
    }

    /// Returns the matchers in words, for the audit log.
    pub fn words(&self) -> String {
        let sets: Vec<String> = self.matchers.iter().map(ToString::to_string).collect();
        sets.join(" or ")
    }

    /// Whether it covers an alert with these labels while it is active.
    pub fn accepts(&self, labels: &Labels) -> bool {
        self.matchers.iter().any(|matchers| matchers.accept(labels))
    }

    /// Whether `other` only moves the times of this one in a way that rewrites nothing that was.
    fn can_become(&self, other: &Self, now: Timestamp) -> bool {
        let sorted = |silence: &Self| {
            silence
                .matchers
                .iter()
                .cloned()
                .map(Matchers::sorted)
                .collect::<Vec<_>>()
        };

        // Another condition would change who was silenced in the past, so it needs a silence of its own.
        sorted(self) == sorted(other)
            && match self.state(now) {
                SilenceState::Active => {
                    // A client may send whole seconds, which must not count as another beginning.
                    self.starts_at.whole_seconds() == other.starts_at.whole_seconds()
                        && other.ends_at >= now
                }
                SilenceState::Pending => other.starts_at >= now,
                SilenceState::Expired => false,
            }
    }

    fn check_times(&self, now: Timestamp) -> Result<(), SilenceError> {
        // The words are Alertmanager's: programs that read them find the ones they know.
        match self {
            _ if self.starts_at >= self.ends_at => Err(SilenceError::Backwards),
            _ if self.ends_at < now => Err(SilenceError::InThePast),
            _ => Ok(()),
        }
    }

    fn check_matchers(&self) -> Result<(), SilenceError> {
        // As in Alertmanager, `node!="g01"` alone is a condition.
        let is_condition = |matcher: &Matcher| match matcher.op() {
            MatchOp::Equal | MatchOp::Regex => !matcher.accepts(""),
            MatchOp::NotEqual | MatchOp::NotRegex => true,
        };
        let is_narrow = |set: &Matchers| set.0.iter().any(is_condition);

        if self.matchers.is_empty() || !self.matchers.iter().all(is_narrow) {
            return Err(SilenceError::MatchesAll);
        }
        Ok(())
    }
}

/// All silences.
#[derive(Debug, Clone, Default)]
pub struct Silences(BTreeMap<String, Silence>);

/// The result of setting a silence.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    /// The identity of the silence in effect.
    pub id: String,
    /// Silences to store.
    pub changed: Vec<Silence>,
}

impl Silences {
    /// The silences as they were stored.
    pub fn load(stored: impl IntoIterator<Item = Silence>) -> Self {
        Self(
            stored
                .into_iter()
                .map(|silence| (silence.id.clone(), silence))
                .collect(),
        )
    }

    /// Makes a silence (without `id`) or changes one. What cannot be changed without rewriting the
    /// past is expired and replaced by a new one with `new_id`.
    ///
    /// # Errors
    /// Where the id is not known or the silence could not be; nothing has changed then.
    pub fn set(
        &mut self,
        mut wanted: Silence,
        new_id: &str,
        now: Timestamp,
    ) -> Result<Set, SilenceError> {
        let mut changed = Vec::new();
        // All checks come before the first change.
        wanted.check_times(now)?;
        wanted.updated_at = now;

        let known = match wanted.id.as_str() {
            "" => None,
            id => Some(
                self.0
                    .get(id)
                    .ok_or_else(|| SilenceError::NotFound(id.to_owned()))?,
            ),
        };

        let in_place = known.is_some_and(|known| known.can_become(&wanted, now));
        if !in_place {
            wanted.starts_at = wanted.starts_at.max(now);
        }

        wanted.check_matchers()?;

        if !in_place {
            // The old one stays in the list until its retention ends, as the record of what was silenced.
            if let Some(old) = known.filter(|known| known.state(now) != SilenceState::Expired) {
                changed.extend(self.expire(&old.id.clone(), now)?);
            }
            new_id.clone_into(&mut wanted.id);
        }

        let id = wanted.id.clone();
        self.0.insert(id.clone(), wanted.clone());
        changed.push(wanted);
        Ok(Set { id, changed })
    }

    /// Expires a silence; an expired one does not change. Returns the silence to store.
    ///
    /// # Errors
    /// Where the id is not known.
    pub fn expire(&mut self, id: &str, now: Timestamp) -> Result<Option<Silence>, SilenceError> {
        let silence = self
            .0
            .get_mut(id)
            .ok_or_else(|| SilenceError::NotFound(id.to_owned()))?;

        match silence.state(now) {
            SilenceState::Expired => return Ok(None),
            // It never silenced anything, and counts as ended from now on.
            SilenceState::Pending => (silence.starts_at, silence.ends_at) = (now, now),
            SilenceState::Active => silence.ends_at = now,
        }

        silence.updated_at = now;
        Ok(Some(silence.clone()))
    }

    /// The silences that cover an alert with these labels.
    pub fn covering<'a>(
        &'a self,
        labels: &'a Labels,
        now: Timestamp,
    ) -> impl Iterator<Item = &'a Silence> {
        self.0
            .values()
            .filter(move |silence| silence.state(now) == SilenceState::Active)
            .filter(|silence| silence.accepts(labels))
    }

    /// One silence.
    pub fn get(&self, id: &str) -> Option<&Silence> {
        self.0.get(id)
    }

    /// Active ones first, the next to end at the top; then pending ones, the next to begin at the
    /// top; then expired ones, the last to end at the top.
    pub fn list(&self, now: Timestamp) -> Vec<&Silence> {
        let mut all: Vec<_> = self.0.values().collect();

        all.sort_by_key(|silence| match silence.state(now) {
            SilenceState::Active => (0, silence.ends_at.0),
            SilenceState::Pending => (1, silence.starts_at.0),
            SilenceState::Expired => (2, silence.ends_at.0.saturating_neg()),
        });
        all
    }

    /// Forgets silences that expired long ago and returns their ids, for the store to forget them
    /// too.
    pub fn forget_old(&mut self, now: Timestamp) -> Vec<String> {
        let is_old = |silence: &Silence| silence.ends_at.plus(RETENTION) < now;
        let gone: Vec<_> = self
            .0
            .values()
            .filter(|silence| is_old(silence))
            .map(|silence| silence.id.clone())
            .collect();

        gone.iter().for_each(|id| drop(self.0.remove(id)));
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::super::matcher::parse_matchers;
    use super::*;
    use proptest::collection;
    use proptest::prelude::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn silence(id: &str, matchers: &str, starts: i64, ends: i64) -> Silence {
        Silence {
            id: id.to_owned(),
            matchers: vec![Matchers(parse_matchers(matchers).unwrap())],
            starts_at: at(starts),
            ends_at: at(ends),
            updated_at: at(0),
            created_by: "ada".to_owned(),
            comment: "new fan".to_owned(),
            annotations: BTreeMap::new(),
        }
    }

    fn labels() -> Labels {
        [("node", "g01"), ("alertname", "GpuHot")]
            .into_iter()
            .collect()
    }

    #[test]
    fn begins_now_at_the_earliest_and_silences_until_its_end() {
        let mut silences = Silences::default();

        // A beginning in the past would say that earlier alerts were silenced.
        let set = silences
            .set(silence("", "node=g01", 10, 200), "one", at(100))
            .unwrap();
        assert_eq!(set.id.as_str(), "one");
        assert_eq!(set.changed[0].starts_at, at(100));

        let covers = |now: i64| silences.covering(&labels(), at(now)).count();
        assert_eq!([99, 100, 199, 200].map(covers), [0, 1, 1, 0]);
    }

    #[test]
    fn an_active_one_may_end_later_but_not_cover_something_else() {
        let mut silences = Silences::default();
        silences
            .set(silence("", "node=g01", 100, 200), "one", at(100))
            .unwrap();

        let longer = silences
            .set(silence("one", "node=g01", 100, 400), "two", at(150))
            .unwrap();

        assert_eq!(longer.id.as_str(), "one");
        assert_eq!(longer.changed.len(), 1);
        let other = silences
            .set(silence("one", "node=g02", 100, 400), "two", at(160))
            .unwrap();

        assert_eq!(other.id.as_str(), "two", "the old one is expired");
        assert_eq!(other.changed.len(), 2, "the old one is expired");
        assert_eq!(silences.get("one").unwrap().ends_at, at(160));
        assert_eq!(silences.get("two").unwrap().starts_at, at(160));

        let expired = silences
            .set(silence("one", "node=g01", 100, 400), "three", at(170))
            .unwrap();
        assert_eq!(expired.id, "three", "what has ended does not begin again");
    }

    #[test]
    fn a_pending_one_may_move_into_the_future_only() {
        let mut silences = Silences::default();
        silences
            .set(silence("", "node=g01", 500, 600), "one", at(100))
            .unwrap();
        assert_eq!(
            // It may begin earlier than planned, but not before now.
            silences
                .set(silence("one", "node=g01", 300, 600), "two", at(200))
                .unwrap()
                .id,
            "one"
        );
        assert_eq!(
            silences
                .set(silence("one", "node=g01", 150, 600), "two", at(200))
                .unwrap()
                .id,
            "two"
        );
    }

    #[test]
    fn a_negative_condition_suffices() {
        let mut silences = Silences::default();
        let wanted = silence("", "severity!=critical", 100, 200);
        assert!(silences.set(wanted, "new", at(100)).is_ok());
    }

    #[test]
    fn refuses_impossible_values() {
        let mut silences = Silences::default();
        let mut set = |wanted: Silence| silences.set(wanted, "new", at(100)).unwrap_err();
        assert_eq!(
            set(silence("", "node=~\".*\"", 100, 200)),
            SilenceError::MatchesAll
        );
        assert_eq!(
            set(Silence {
                matchers: vec![],
                ..silence("", "a=b", 100, 200)
            }),
            SilenceError::MatchesAll
        );
        assert_eq!(
            set(silence("", "node=g01", 10, 90)),
            SilenceError::InThePast
        );
        assert_eq!(
            set(silence("", "node=g01", 300, 200)),
            SilenceError::Backwards
        );
        assert_eq!(
            set(silence("nobody", "node=g01", 100, 200)),
            SilenceError::NotFound("nobody".to_owned())
        );
        assert!(silences.list(at(100)).is_empty());
    }

    #[test]
    fn expiring_twice_is_expiring_once() {
        let mut silences = Silences::default();

        silences
            .set(silence("", "node=g01", 100, 900), "one", at(100))
            .unwrap();
        assert!(silences.expire("one", at(200)).unwrap().is_some());
        assert!(silences.expire("one", at(300)).unwrap().is_none());
        assert_eq!(silences.get("one").unwrap().ends_at, at(200));
        assert!(silences.expire("nobody", at(300)).is_err());

        // Ends are remembered for five days, to the second.
        assert!(silences.forget_old(at(200 + 120 * 3600)).is_empty());
        assert_eq!(silences.forget_old(at(201 + 120 * 3600)), ["one"]);
    }

    #[test]
    fn lists_what_ends_next_first() {
        let silences = Silences::load([
            silence("old", "a=b", 1, 2),
            silence("older", "a=b", 0, 1),
            silence("soon", "a=b", 50, 60),
            silence("later", "a=b", 70, 80),
            silence("ends-late", "a=b", 5, 90),
            silence("ends-next", "a=b", 5, 20),
        ]);

        let ids: Vec<_> = silences
            .list(at(10))
            .iter()
            .map(|silence| silence.id.as_str())
            .collect();
        assert_eq!(
            ids,
            ["ends-next", "ends-late", "soon", "later", "old", "older"]
        );
    }

    proptest! {
        /// However silences overlap: an alert is silenced at an instant exactly if one that accepts
        /// it is active then.
        #[test]
        fn overlapping_silences_cover_their_union(
            spans in collection::vec((0i64..100, 1i64..50, 0u8..3), 0..8),
            now in 0i64..160,
        ) {
            let matchers = ["node=g01", "node=g02", "alertname=~\"Gpu.*\""];
            let silences =
                Silences::load(spans.iter().enumerate().map(|(n, (from, length, which))| {
                    silence(
                        &n.to_string(),
                        matchers[usize::from(*which)],
                        *from,
                        from + length,
                    )
                }));
            let expected = spans
                // The second matcher is of another node.
                .iter()
                .any(|(from, length, which)| *which != 1 && (*from..from + length).contains(&now));
            prop_assert_eq!(
                silences.covering(&labels(), at(now)).next().is_some(),
                expected
            );
        }

        /// Whatever is set in whatever order, at no time do two silences of one id exist, and none
        /// begins in the past.
        #[test]
        fn setting_never_rewrites_the_past(
            steps in collection::vec((0usize..4, 0i64..100, 1i64..100, 0u8..2), 1..12),
        ) {
            let mut silences = Silences::default();
            for (n, (known, starts, length, which)) in steps.into_iter().enumerate() {
                let now = at(i64::try_from(n).unwrap() * 10);
                let before: Vec<_> = silences.list(now).into_iter().cloned().collect();

                let id = before
                    .get(known)
                    .map_or(String::new(), |silence| silence.id.clone());
                let wanted = silence(
                    &id,
                    ["node=g01", "node=g02"][usize::from(which)],
                    starts,
                    starts + length,
                );

                let _ = silences.set(wanted, &format!("id{n}"), now);
                // Whether an alert was covered at an instant before now is never changed by what is
                // set now.
                for past in 0..now.whole_seconds().0 {
                    let was = Silences::load(before.clone())
                        .covering(&labels(), at(past))
                        .count();
                    prop_assert_eq!(silences.covering(&labels(), at(past)).count(), was);
                }
            }
        }
    }
}
