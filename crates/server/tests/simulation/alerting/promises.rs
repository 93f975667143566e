//! What alerting promises, checked at each turn and when all is well.

use super::disk::Tables;
use super::ledger::Ledger;
use super::setups::Setup;
use super::world::{World, hour_in_oslo};
use crate::seeds::{Broken, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;
use takt_alerts::alert::Alert;
use takt_alerts::fingerprint::Fingerprint;
use takt_alerts::message::Status;
use takt_alerts::outbox::{Row, RowState};
use takt_alerts::routing::Suppressed;
use takt_alerts::state::{Reason, State, Transition};
use takt_alerts::{Batch, Engine};
use takt_model::Timestamp;

pub const EVIDENCE: &str =
    "an alert of a rule or event ends only on a scrape that shows its condition to be over";
pub const FORWARD: &str = "time does not bring a firing alert back to pending";
pub const PAGED: &str = "the first page of an episode is decided at once";
pub const STORED: &str = "what is stored is what the engine knows";
pub const MUTED: &str = "a route that a time interval mutes says nothing";
pub const ANNOUNCED: &str = "every alert that fires is announced";
pub const AT_REST: &str = "when all is well, nothing waits and nothing fires";

/// Age of the newest scrape on which an alert may end, in milliseconds: PromQL's lookback.
const EVIDENCE_MS: i64 = 300_000;

/// Time in which a page has to be decided if the group had pages just before, in milliseconds: three
/// pages go at once, the others wait for `group_wait`.
const PAGE_MS: i64 = 40_000;

/// A page that has to be decided.
#[derive(Debug)]
struct DuePage {
    print: Fingerprint,
    labels: String,
    by_ms: i64,
}

/// What is checked from turn to turn.
#[derive(Debug, Default)]
pub struct Promises {
    /// Changes between two turns.
    pub pending: Batch,
    /// What channels were told, by the rows of the outbox.
    decided: BTreeMap<(String, Fingerprint), Status>,
    due: Vec<DuePage>,
    /// Time of the last page by the alert's name.
    paged_ms: BTreeMap<String, i64>,
    /// The `for` of the rule that has one, in seconds: now, and when each alert began.
    hold_seconds: u64,
    begun_under: BTreeMap<Fingerprint, u64>,
    /// Time up to which a small step back of the clock delays timers.
    late_ms: i64,
}

impl Promises {
    pub fn clock_jumps(&mut self, by_ms: i64) {
        // Larger jumps open the store again, which clears what is due.
        if by_ms < 0 && by_ms > -61_000 {
            self.late_ms = -by_ms;
            self.due.iter_mut().for_each(|page| page.by_ms -= by_ms);
        }
    }

    pub fn new(hold_seconds: u64) -> Self {
        Self {
            hold_seconds,
            ..Self::default()
        }
    }

    pub fn reloaded(&mut self, hold_seconds: u64) {
        self.hold_seconds = hold_seconds;
        self.due.clear();
    }

    pub fn restarted(&mut self) {
        self.due.clear();
    }

    /// Checks the changes of a turn.
    pub fn check(
        &mut self,
        batch: &Batch,
        engine: &Engine,
        world: &World,
        now: Timestamp,
    ) -> Result<(), Broken> {
        // The newest decision for each channel and alert.
        for row in &batch.outbox {
            for alert in &row.message.alerts {
                let key = (row.message.channel.clone(), alert.fingerprint);
                self.decided.insert(key, alert.status);
            }
        }

        for transition in &batch.transitions {
            self.ends_on_evidence(transition, world)?;
            self.is_forward(transition)?;
            self.note_page(transition, engine, world.true_ms, now);
        }
        Ok(())
    }

    fn ends_on_evidence(&self, transition: &Transition, world: &World) -> Result<(), Broken> {
        // Other ends, such as those by people or of a removed rule, need no evidence.
        let is_end = matches!(transition.reason, Reason::Cleared | Reason::EventOver)
            && matches!(transition.from, State::Firing | State::Unknown);
        if !is_end {
            return Ok(());
        }

        let name = transition.labels.get("node").unwrap_or_default();
        let node = world.nodes.iter().find(|node| node.name == name);
        let seen = node.and_then(|node| node.seen_at(transition.at));
        // The newest scrape before the end must not show the condition, and must be recent.
        let is_over = seen.is_some_and(|scrape| {
            let is_fresh = transition.at.0 - scrape.at.0 <= EVIDENCE_MS;
            let alert = transition.labels.get("alertname");
            is_fresh
                && match (alert, scrape.page) {
                    (Some("Hot"), Some(page)) => page.hot <= 90.0,
                    (Some("Slow"), Some(page)) => page.slow == 0.0,
                    (Some("Lost" | "Xid"), Some(page)) => page.gpu_present == 1.0,
                    (Some("NodeDown"), page) => page.is_some(),
                    _ => false,
                }
        });

        ensure(is_over, EVIDENCE, || {
            let Transition { labels, at, .. } = transition;
            format!("{labels} ended at {at}, last scrape {seen:?}")
        })
    }

    /// Only a longer `for` brings a firing alert back to pending.
    fn is_forward(&mut self, transition: &Transition) -> Result<(), Broken> {
        let print = transition.fingerprint;
        if is_begin(transition) {
            self.begun_under.insert(print, self.hold_seconds);
        }

        let before = self.begun_under.get(&print).copied().unwrap_or(0);
        let is_back = transition.reason == Reason::RuleEdited && before >= self.hold_seconds;
        ensure(!is_back, FORWARD, || {
            format!("{} at {}", transition.labels, transition.at)
        })
    }

    fn note_page(
        &mut self,
        transition: &Transition,
        engine: &Engine,
        true_ms: i64,
        now: Timestamp,
    ) {
        let is_page = is_begin(transition) && transition.labels.get("severity") == Some("critical");
        let name = transition.labels.get("alertname").unwrap_or_default();
        let alert = engine.router().alerts().get(transition.fingerprint);

        // An alert that flaps is reported by another one.
        if !is_page || alert.is_none_or(|alert| alert.is_resolved(now)) {
            return;
        }
        // A group that had pages just before may collect the next ones.
        let last = self.paged_ms.insert(name.to_owned(), true_ms);
        let is_first = last.is_none_or(|last| true_ms - last > PAGE_MS);
        let patience = if is_first { 0 } else { PAGE_MS };

        self.due.push(DuePage {
            print: transition.fingerprint,
            labels: transition.labels.to_string(),
            by_ms: true_ms + patience + self.late_ms,
        });
    }

    /// Checks that pages whose time has come are decided, unless they are muted or over.
    pub fn pages_are_sent(
        &mut self,
        engine: &Engine,
        true_ms: i64,
        channels: &[&str],
        now: Timestamp,
    ) -> Result<(), Broken> {
        if self.due.is_empty() {
            return Ok(());
        }

        let suppressed = engine.router().suppressed(now);
        let decided = &self.decided;
        let is_decided = |page: &DuePage| {
            channels.iter().all(|channel| {
                let key = ((*channel).to_owned(), page.print);
                decided.get(&key) == Some(&Status::Firing)
            })
        };
        // A muted or ended page need not be sent.
        self.due.retain(|page| {
            let alert = engine.router().alerts().get(page.print);
            let is_awaited = alert.is_some_and(|alert| {
                let by = suppressed(alert);
                let is_muted = !by.silenced_by.is_empty()
                    || by.inhibited_by.is_some()
                    || !by.muted_by.is_empty();
                !alert.is_resolved(now) && !is_muted
            });
            is_awaited && !is_decided(page)
        });

        let late = self.due.iter().find(|page| page.by_ms <= true_ms);
        ensure(late.is_none(), PAGED, || {
            late.map(|page| page.labels.clone()).unwrap_or_default()
        })
    }
}

/// Checks that a route says nothing while it is muted. The hour comes twice when summer ends, and not
/// at all when it begins.
pub fn is_silent_at_night(flushed: &Batch, setup: &Setup, now: Timestamp) -> Result<(), Broken> {
    // Only the route for warnings is muted, and only in that hour.
    if !setup.is_night || hour_in_oslo(now) != 2 {
        return Ok(());
    }

    let is_muted = |row: &&Row| row.message.group_key.contains(r#"severity="warning"}:"#);
    let mut new = flushed.outbox.iter();
    let said = new.find(|row| row.state == RowState::Queued && is_muted(row));
    ensure(said.is_none(), MUTED, || {
        said.map(|row| row.message.group_key.clone())
            .unwrap_or_default()
    })
}

/// Whether an alert begins to fire.
pub fn is_begin(transition: &Transition) -> bool {
    transition.to == State::Firing && matches!(transition.from, State::Inactive | State::Pending)
}

/// Compares the rows on the disk with those of the engine.
pub fn stored_is_known(tables: &Tables, engine: &Engine) -> Result<(), Broken> {
    let known = engine.outbox().iter().map(|row| &row.id);
    ensure(known.eq(tables.outbox.keys()), STORED, || {
        let known: Vec<_> = engine.outbox().iter().map(|row| row.id).collect();
        let stored: Vec<_> = tables.outbox.keys().collect();
        format!("rows {known:?} are known, {stored:?} are stored")
    })
}

/// Checks that the channels know of each critical alert that fires, except those that are muted: where
/// the clock was set back, silences last longer than the time of rest.
pub fn all_are_announced(
    engine: &Engine,
    ledger: &Ledger,
    channels: &[&str],
    now: Timestamp,
) -> Result<(), Broken> {
    let firing = engine
        .router()
        .alerts()
        .iter()
        .filter(|(_, alert)| alert.label("severity") == "critical" && !alert.is_resolved(now));

    let suppressed = engine.router().suppressed(now);
    let is_muted = |alert: &Alert| suppressed(alert) != Suppressed::default();
    for (print, alert) in firing.filter(|(_, alert)| !is_muted(alert)) {
        for channel in channels {
            ensure(ledger.knows(channel, print), ANNOUNCED, || {
                format!("{channel}: {}", alert.labels)
            })?;
        }
    }
    Ok(())
}

/// Checks that no alert, row or open episode is left.
pub fn nothing_waits(engine: &Engine, tables: &Tables) -> Result<(), Broken> {
    let waiting: Vec<u64> = engine.outbox().iter().map(|row| row.id).collect();
    ensure(waiting.is_empty(), AT_REST, || {
        format!("rows {waiting:?} wait")
    })?;

    let alerts = engine.router().alerts().iter();
    let alerts: Vec<String> = alerts.map(|(_, alert)| alert.labels.to_string()).collect();
    ensure(alerts.is_empty(), AT_REST, || format!("alerts: {alerts:?}"))?;

    let open: Vec<_> = tables
        .log
        .values()
        .filter(|entry| !entry.open.is_empty())
        .collect();
    ensure(open.is_empty(), AT_REST, || format!("open: {open:?}"))
}

/// The changes of a batch in words.
pub fn shown(batch: &Batch, now: Timestamp) -> String {
    let mut text = now.to_string();
    for one in &batch.transitions {
        let Transition {
            labels,
            from,
            to,
            reason,
            at,
            ..
        } = one;
        let _ = write!(text, "; {labels} {from:?} to {to:?}, {reason:?}, at {at}");
    }
    for row in &batch.outbox {
        let alerts = row.message.alerts.iter();
        let alerts: Vec<String> = alerts
            .map(|alert| format!("{:?} {} {}", alert.status, alert.labels, alert.starts_at))
            .collect();
        let _ = write!(
            text,
            "; row {} {:?} {}: {}",
            row.id,
            row.state,
            row.channel,
            alerts.join(", ")
        );
    }
    text
}
