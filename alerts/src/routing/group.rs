//! Groups of alerts, and when each is flushed.

use super::routes::{GroupBy, Route, RouteTree};
use crate::alert::Alert;
use crate::fingerprint::Fingerprint;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// Least time between two flushes that pages cause. Within a second, nodes that fail together come
/// in one message.
pub const PAGE_SPACING: Duration = Duration::from_secs(1);

/// How many flushes pages may cause within [`PAGE_WINDOW`]; further pages wait for the group's next
/// flush.
pub const PAGES_MAX: usize = 3;

/// See [`PAGES_MAX`].
pub const PAGE_WINDOW: Duration = Duration::from_secs(30);

/// A group: the route, and the values of the labels it groups by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId {
    /// The route's position in the tree.
    pub route: usize,
    /// The labels that all alerts of the group share.
    pub labels: Labels,
}

impl GroupId {
    fn of(at: usize, route: &Route, labels: &Labels) -> Self {
        let labels = match &route.group_by {
            GroupBy::All => labels.clone(),
            GroupBy::Labels(names) => labels
                .iter()
                .filter(|(name, _)| names.contains(*name))
                .collect(),
        };
        Self { route: at, labels }
    }

    /// The key in the notification log and in messages, the same text as Alertmanager's.
    pub fn key(&self, routes: &RouteTree) -> String {
        format!("{}:{}", routes.get(self.route).key, self.labels)
    }
}

/// How an alert comes to its groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertArrival {
    /// It was evaluated or posted just now.
    Fresh,
    /// It was known before a restart or a new configuration. The alert that inhibits it may still
    /// be missing, so the group waits.
    Restored,
}

/// All groups.
#[derive(Debug, Clone, Default)]
pub struct Groups(BTreeMap<GroupId, Group>);

#[derive(Debug, Clone)]
struct Group {
    members: BTreeSet<Fingerprint>,
    next: Timestamp,
    /// The flushes that pages caused, the newest last.
    paged: VecDeque<Timestamp>,
    is_page_due: bool,
}

impl Groups {
    /// Puts an alert into its groups. The group of a page is flushed without waiting.
    pub fn take(
        &mut self,
        routes: &RouteTree,
        alert: &Alert,
        is_page: bool,
        arrival: AlertArrival,
        now: Timestamp,
    ) {
        let fingerprint = alert.fingerprint();
        for at in routes.matching(&alert.labels) {
            let route = routes.get(at);
            let group = self
                .0
                .entry(GroupId::of(at, route, &alert.labels))
                .or_insert_with(|| {
                    let next = now.plus(route.group_wait);
                    // As in Alertmanager, an alert that has fired for longer than the wait needs no further one.
                    let has_waited = arrival == AlertArrival::Fresh
                        && alert.starts_at.plus(route.group_wait) < now;
                    Group {
                        members: BTreeSet::new(),
                        next: if has_waited { now } else { next },
                        paged: VecDeque::new(),
                        is_page_due: false,
                    }
                });

            group.members.insert(fingerprint);
            if is_page && arrival == AlertArrival::Fresh {
                group.page(now);
            }
        }
    }

    /// When the next group has to be flushed.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.0.values().map(|group| group.next).min()
    }

    /// The groups to flush now; the next flush of each is scheduled.
    pub fn due(&mut self, routes: &RouteTree, now: Timestamp) -> Vec<GroupId> {
        self.0
            .iter_mut()
            .filter(|(_, group)| group.next <= now)
            .map(|(id, group)| {
                let route = routes.get(id.route);
                // After a page, the rest of a burst follows after the short wait instead of the
                // long one.
                let wait = if group.is_page_due {
                    route.group_wait.min(route.group_interval)
                } else {
                    route.group_interval
                };

                group.next = now.plus(wait.max(PAGE_SPACING));

                if mem::take(&mut group.is_page_due) {
                    group.paged.push_back(now);
                }
                id.clone()
            })
            .collect()
    }

    /// Flushes the group no later than `at`.
    pub fn look_by(&mut self, id: &GroupId, at: Timestamp) {
        if let Some(group) = self.0.get_mut(id) {
            group.next = group.next.min(at);
        }
    }

    /// Flushes the groups with one of these alerts no later than `at`.
    pub fn look_at(&mut self, is_wanted: &dyn Fn(Fingerprint) -> bool, at: Timestamp) {
        for group in self.0.values_mut() {
            if group.next > at && group.members.iter().copied().any(is_wanted) {
                group.next = at;
            }
        }
    }

    /// The alerts of a group.
    pub fn members(&self, id: &GroupId) -> impl Iterator<Item = Fingerprint> {
        self.0
            .get(id)
            .into_iter()
            .flat_map(|group| group.members.iter().copied())
    }

    /// Removes the alerts for which `keep` is false, and the group if it is empty then. Returns
    /// whether it was removed.
    pub fn retain(&mut self, id: &GroupId, keep: impl Fn(Fingerprint) -> bool) -> bool {
        let Some(group) = self.0.get_mut(id) else {
            return true;
        };
        group.members.retain(|fingerprint| keep(*fingerprint));
        let is_empty = group.members.is_empty();
        if is_empty {
            self.0.remove(id);
        }
        is_empty
    }

    /// Keeps the timers of groups that existed under another configuration. A shorter wait applies
    /// at once.
    pub fn keep_timers(
        &mut self,
        before: &Self,
        routes_before: &RouteTree,
        routes: &RouteTree,
        now: Timestamp,
    ) {
        let known: BTreeMap<String, &Group> = before
            .0
            .iter()
            .map(|(id, group)| (id.key(routes_before), group))
            .collect();
        for (id, group) in &mut self.0 {
            let Some(old) = known.get(&id.key(routes)) else {
                continue;
            };

            // Never later than the new configuration allows, counted from now.
            let route = routes.get(id.route);
            let latest = now.plus(route.group_interval.max(route.group_wait));
            group.next = old.next.min(latest);
            group.paged.clone_from(&old.paged);
            group.is_page_due = old.is_page_due;
        }
    }

    /// All groups.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &GroupId> {
        self.0.keys()
    }
}

impl Group {
    fn page(&mut self, now: Timestamp) {
        while self
            .paged
            .front()
            .is_some_and(|at| at.plus(PAGE_WINDOW) <= now)
        {
            self.paged.pop_front();
        }

        // Further pages wait for the next flush: a storm must not become a message each.
        if self.is_page_due || self.paged.len() >= PAGES_MAX {
            return;
        }

        let earliest = self
            .paged
            .back()
            .map_or(now, |last| last.plus(PAGE_SPACING).max(now));
        self.next = self.next.min(earliest);
        self.is_page_due = true;
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Config;
    use super::*;
    use crate::testing::parse_series;

    fn routes() -> RouteTree {
        let text = "route: {receiver: a, group_by: [alertname], group_wait: 30s, group_interval: \
             5m}\nreceivers: [{name: a}]";
        Config::read("am.yml", text).unwrap().routes
    }

    fn alert(labels: &str, starts: i64) -> Alert {
        Alert {
            labels: parse_series(labels),
            annotations: BTreeMap::new(),
            starts_at: Timestamp::from_seconds(starts),
            ends_at: None,
            updated_at: Timestamp::from_seconds(starts),
            generator_url: String::new(),
            began_at: None,
            is_timeout: false,
        }
    }

    /// Lets alerts arrive and returns the seconds at which a group was flushed, up to `end`.
    fn looks(arrivals: &[(i64, &str, bool)], end: i64) -> Vec<i64> {
        let routes = routes();

        let mut groups = Groups::default();
        let mut looks = Vec::new();

        for second in 0..=end {
            let now = Timestamp::from_seconds(second);
            for (_, labels, is_page) in arrivals.iter().filter(|(at, ..)| *at == second) {
                groups.take(
                    &routes,
                    &alert(labels, second),
                    *is_page,
                    AlertArrival::Fresh,
                    now,
                );
            }
            looks.extend(groups.due(&routes, now).iter().map(|_| second));
        }
        looks
    }

    #[test]
    fn a_group_waits_then_is_looked_at_every_interval() {
        assert_eq!(
            // One alert after the wait of 30 s, the other with the group's next flush.
            looks(
                &[
                    (0, "{alertname=A,n=1}", false),
                    (100, "{alertname=A,n=2}", false)
                ],
                700
            ),
            [30, 330, 630]
        );
    }

    #[test]
    fn a_page_is_sent_at_once_and_the_rest_of_the_burst_soon() {
        assert_eq!(looks(&[(0, "{alertname=A,n=1}", true)], 400), [0, 30, 330]);
        assert_eq!(
            // The page at 100 s does not wait until 330 s, and the rest of its burst follows after 30 s.
            looks(
                &[
                    (0, "{alertname=A,n=1}", false),
                    (100, "{alertname=A,n=2}", true)
                ],
                200
            ),
            [30, 100, 130]
        );
    }

    #[test]
    fn a_thousand_pages_within_seconds_are_few_messages() {
        // Seventy pages a second, as when a switch fails.
        let names: Vec<String> = (0..1000)
            .map(|n| format!("{{alertname=Down,node=n{n}}}"))
            .collect();

        let arrivals: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(n, name)| (i64::try_from(n).unwrap() / 70, name.as_str(), true))
            .collect();

        let looks = looks(&arrivals, 29);
        assert!(looks.len() <= 5 && looks[0] == 0, "{looks:?}");
    }

    #[test]
    fn a_moved_alert_is_sent_at_once_unless_it_is_restored() {
        let routes = routes();

        let old = alert("{alertname=A}", 0);
        let now = Timestamp::from_seconds(1000);
        for (arrival, next) in [(AlertArrival::Fresh, 1000), (AlertArrival::Restored, 1030)] {
            let mut groups = Groups::default();
            groups.take(&routes, &old, true, arrival, now);
            assert_eq!(
                groups.next_due(),
                Some(Timestamp::from_seconds(next)),
                "{arrival:?}"
            );
        }
    }

    #[test]
    fn the_key_is_alertmanagers() {
        let routes = routes();
        let mut groups = Groups::default();
        groups.take(
            &routes,
            &alert("{alertname=A,n=1}", 0),
            false,
            AlertArrival::Fresh,
            Timestamp(0),
        );
        assert_eq!(
            groups.iter().next().unwrap().key(&routes),
            r#"{}:{alertname="A"}"#
        );
    }
}
