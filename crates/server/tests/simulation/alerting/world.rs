//! What Takt sees from outside: nodes with exporters, channels, and clocks.

use super::samples::{Samples, of_node};
use crate::random::Random;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use takt_alerts::outbox::Outcome;
use takt_model::{Event, EventKind, Labels, Timestamp};

/// 2026-10-24T22:00:00Z: in Europe, clocks change within the first hours.
const BEGIN_MS: i64 = 1_792_879_200_000;

/// When clocks in Oslo change, in milliseconds since 1970: on the last Sundays of March and October at
/// 1 o'clock UTC. Summer ends first.
const CLOCKS_CHANGE_MS: [i64; 8] = [
    1_792_890_000_000,
    1_806_195_600_000,
    1_824_944_400_000,
    1_837_645_200_000,
    1_856_394_000_000,
    1_869_094_800_000,
    1_887_843_600_000,
    1_901_149_200_000,
];

/// The hour of the day in Oslo.
pub fn hour_in_oslo(at: Timestamp) -> i64 {
    // An even number of changes has passed in summer time, which holds at the beginning.
    let changes = CLOCKS_CHANGE_MS.iter().filter(|change| **change <= at.0);
    let is_summer = changes.count() % 2 == 0;
    (at.0.div_euclid(3_600_000) + 1 + i64::from(is_summer)) % 24
}

/// Milliseconds between two scrapes of a node.
pub const SCRAPE_MS: i64 = 15_000;

/// How far a scrape may be behind the newest sample.
const SLACK: Duration = Duration::from_secs(1);

/// Scrapes of a node that are remembered.
const SCRAPES_KEPT: usize = 64;

/// Values on the page of an exporter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Page {
    pub hot: f64,
    pub gpu_present: f64,
    pub slow: f64,
}

const HEALTHY: Page = Page {
    hot: 60.0,
    gpu_present: 1.0,
    slow: 0.0,
};

/// A scrape: the time, and the page if the exporter answered.
#[derive(Debug, Clone, Copy)]
pub struct Scrape {
    pub at: Timestamp,
    pub page: Option<Page>,
}

/// A node with its exporter.
#[derive(Debug)]
pub struct Node {
    pub name: String,
    /// Whether the exporter answers: it may hang, and the node may be dead.
    pub answers: bool,
    pub page: Page,
    /// Lines of the kernel log that are events; the number of an event is its place, from 1 on.
    pub events: Vec<Event>,
    pub scrapes: VecDeque<Scrape>,
    scrape_at_ms: i64,
}

impl Node {
    fn new(number: usize) -> Self {
        Self {
            name: format!("g{number}"),
            answers: true,
            page: HEALTHY,
            events: Vec::new(),
            scrapes: VecDeque::new(),
            // Nodes are scraped one after another, as a scraper spreads them.
            scrape_at_ms: BEGIN_MS + number as i64 * 3_000,
        }
    }

    /// The last scrape up to a time.
    pub fn seen_at(&self, at: Timestamp) -> Option<&Scrape> {
        self.scrapes.iter().rev().find(|scrape| scrape.at <= at)
    }
}

/// What a channel does with messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelMode {
    Takes,
    /// It answers 503.
    Fails,
    /// It answers 429 and asks for a pause.
    Limits,
    /// No answer comes, and the channel has nothing.
    Hangs,
    /// The channel has the message, but the answer is lost.
    LosesReplies,
    /// It answers 404.
    Refuses,
}

pub const CHANNEL_MODES: [ChannelMode; 8] = [
    ChannelMode::Takes,
    ChannelMode::Takes,
    ChannelMode::Takes,
    ChannelMode::Fails,
    ChannelMode::Limits,
    ChannelMode::Hangs,
    ChannelMode::LosesReplies,
    ChannelMode::Refuses,
];

impl ChannelMode {
    pub fn has_message(self) -> bool {
        matches!(self, Self::Takes | Self::LosesReplies)
    }

    pub fn outcome(self) -> Outcome {
        let error = format!("{self:?}");
        match self {
            Self::Takes => Outcome::Sent(None),
            Self::Fails => Outcome::TryAgain { after: None, error },
            Self::Limits => {
                let after = Some(Duration::from_secs(30));
                Outcome::TryAgain { after, error }
            }
            // The engine cannot distinguish these two, but the channel has the message in one of them.
            Self::Hangs | Self::LosesReplies => Outcome::NoAnswer { error },
            Self::Refuses => Outcome::GiveUp { error },
        }
    }
}

/// The world outside Takt.
#[derive(Debug)]
pub struct World {
    /// Milliseconds since 1970.
    pub true_ms: i64,
    /// Milliseconds by which the server's clock is ahead.
    pub ahead_ms: i64,
    pub nodes: Vec<Node>,
    pub channels: BTreeMap<String, ChannelMode>,
    /// Time of the newest stored sample.
    newest: Timestamp,
}

impl World {
    pub fn new(nodes: usize) -> Self {
        Self {
            true_ms: BEGIN_MS,
            ahead_ms: 0,
            nodes: (0..nodes).map(Node::new).collect(),
            channels: BTreeMap::new(),
            newest: Timestamp(0),
        }
    }

    /// The server's clock.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.true_ms + self.ahead_ms)
    }

    /// How far the server's clock is behind the newest sample.
    pub fn behind(&self) -> Duration {
        let ms = (self.newest.0 - self.now().0).max(0);
        Duration::from_millis(ms.unsigned_abs())
    }

    /// The store is opened again after the clock was set back: it continues at the clock's time.
    pub fn continue_at_clock(&mut self, samples: &mut Samples) {
        let now = self.now();
        self.newest = self.newest.min(now);
        samples.forget_after(now);
        for node in &mut self.nodes {
            node.scrapes.retain(|scrape| scrape.at <= now);
        }
    }

    /// Months pass, until some time before the next change of clocks. Returns whether there is one.
    pub fn go_before_a_change_of_clocks(&mut self, before_ms: i64) -> bool {
        // By the server's clock, since the engine's hour decides about the mute.
        let now = self.now().0 + before_ms;
        let Some(change) = CLOCKS_CHANGE_MS.iter().find(|change| **change > now) else {
            return false;
        };
        self.true_ms = change - before_ms - self.ahead_ms;
        self.skip_scrapes();
        true
    }

    /// No scrape happens until now.
    pub fn skip_scrapes(&mut self) {
        for node in &mut self.nodes {
            while node.scrape_at_ms <= self.true_ms {
                node.scrape_at_ms += SCRAPE_MS;
            }
        }
    }

    /// Scrapes the nodes that are due.
    pub fn scrape(&mut self, samples: &mut Samples) {
        let at = self.now();
        // The store refuses samples of a clock that is behind the newest one.
        let is_refused = at.plus(SLACK) < self.newest;
        for node in &mut self.nodes {
            if node.scrape_at_ms > self.true_ms {
                continue;
            }
            // Several intervals may have passed.
            while node.scrape_at_ms <= self.true_ms {
                node.scrape_at_ms += SCRAPE_MS;
            }
            if is_refused {
                continue;
            }

            let page = node.answers.then_some(node.page);
            let mut add = |metric: &str, value: Option<f64>| {
                samples.add(&of_node(metric, &node.name), at, value);
            };
            add("up", Some(f64::from(u8::from(page.is_some()))));
            // A silent exporter ends its series.
            add("hot", page.map(|page| page.hot));
            add("gpu_present", page.map(|page| page.gpu_present));
            add("slow", page.map(|page| page.slow));

            node.scrapes.push_back(Scrape { at, page });
            if node.scrapes.len() > SCRAPES_KEPT {
                node.scrapes.pop_front();
            }
            self.newest = self.newest.max(at);
        }
    }

    /// Something happens on a node.
    pub fn disturb_node(&mut self, random: &mut Random) -> String {
        let number = random.below(self.nodes.len());
        let node = &mut self.nodes[number];
        match random.below(6) {
            0 => node.answers = !node.answers,
            1 | 2 => node.page.hot = random.pick(&[60.0, 95.0]),
            3 => node.page.gpu_present = random.pick(&[0.0, 1.0]),
            4 => node.page.slow = random.pick(&[0.0, 1.0]),
            _ => {
                // The number is the place in the list, as an exporter numbers its events.
                let id = node.events.len() as u64 + 1;
                let labels = [
                    ("node", node.name.as_str()),
                    ("uuid", "GPU-1"),
                    ("xid", "79"),
                ];
                node.events.push(Event {
                    id,
                    at: Timestamp(self.true_ms),
                    kind: EventKind::Xid,
                    labels: labels.into_iter().collect::<Labels>(),
                    message: format!("NVRM: Xid (PCI:0000:01:00): 79, event {id}"),
                });
            }
        }

        format!(
            "{}: answers {}, {:?}, {} events",
            node.name,
            node.answers,
            node.page,
            node.events.len()
        )
    }

    /// All nodes and channels work from now on.
    pub fn heal(&mut self) {
        self.steady();
        for node in &mut self.nodes {
            node.page = HEALTHY;
        }
    }

    /// Exporters and channels work from now on; GPUs stay as they are.
    pub fn steady(&mut self) {
        for node in &mut self.nodes {
            node.answers = true;
        }
        for mode in self.channels.values_mut() {
            *mode = ChannelMode::Takes;
        }
    }
}
