//! Follows cards: where exporters see them, and what they count.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use takt_diagnosis::card::reading;
use takt_jobs::{CardBook, CardChange, CardCounter, CardReadingKind, CardSighting};
use takt_model::{Labels, Matcher, Timestamp, UnixTime};
use takt_store::{CardNews, CardReading, Records, Store, StoreError};

/// Lookback of a round: a target may miss scrapes. A target that is down ends its series.
const LOOKBACK: Duration = Duration::from_secs(300);

/// Rounds from one look at readings to the next: five minutes.
const ROUNDS_A_LOOK: u64 = 20;

/// Seconds after which the reading of a counter is stored again.
const NOTE_SECONDS: i64 = 3600;

/// Maximum number of changes of a card that are stored in a day. A link that comes and goes would fill the disk.
const MOST_CHANGES_A_DAY: u32 = 50;

/// Reasons of `takt_gpu_up` for which a card does not answer. The others concern the driver of all cards.
const LOST_REASONS: [&str; 5] = ["lost", "reset_required", "hung", "not_enumerated", "error"];

/// Reasons of `takt_gpu_up` for which the exporter speaks from memory: the driver shows no such card.
const GONE_REASONS: [&str; 4] = [
    "not_enumerated",
    "driver_not_loaded",
    "driver_mismatch",
    "let_go",
];

/// Where a reading comes from.
struct CardSource {
    name: &'static str,
    metric: &'static str,
    labels: &'static [(&'static str, &'static str)],
    kind: CardReadingKind,
    /// Whether the series of a card add up.
    adds_up: bool,
}

const STATE: CardSource = CardSource {
    name: "",
    metric: "",
    labels: &[],
    kind: CardReadingKind::State,
    adds_up: false,
};

const COUNTER: CardSource = CardSource {
    kind: CardReadingKind::Counter,
    ..STATE
};

const GAUGE: CardSource = CardSource {
    kind: CardReadingKind::Gauge,
    ..STATE
};

/// All readings of a card that are kept. docs/cards.md lists them.
const SOURCES: &[CardSource] = &[
    CardSource {
        name: reading::LOST,
        metric: "takt_gpu_up",
        ..STATE
    },
    CardSource {
        name: reading::ROW_REMAP_FAILED,
        metric: "takt_gpu_row_remap_failed",
        ..STATE
    },
    CardSource {
        name: reading::ROW_REMAP_PENDING,
        metric: "takt_gpu_row_remap_pending",
        ..STATE
    },
    CardSource {
        name: reading::RETIRED_PENDING,
        metric: "takt_gpu_retired_pages_pending",
        ..STATE
    },
    CardSource {
        name: reading::SRAM_THRESHOLD,
        metric: "takt_gpu_sram_threshold_exceeded",
        ..STATE
    },
    CardSource {
        name: reading::RECOVERY_ACTION,
        metric: "takt_gpu_recovery_action",
        ..STATE
    },
    CardSource {
        name: "row_remap_rows_corrected",
        metric: "takt_gpu_row_remap_rows",
        labels: &[("cause", "corrected")],
        ..STATE
    },
    CardSource {
        name: "row_remap_rows_uncorrected",
        metric: "takt_gpu_row_remap_rows",
        labels: &[("cause", "uncorrected")],
        ..STATE
    },
    CardSource {
        name: "retired_pages_single_bit",
        metric: "takt_gpu_retired_pages",
        labels: &[("cause", "single_bit")],
        ..STATE
    },
    CardSource {
        name: "retired_pages_double_bit",
        metric: "takt_gpu_retired_pages",
        labels: &[("cause", "double_bit")],
        ..STATE
    },
    CardSource {
        name: reading::UNCORRECTED,
        metric: "takt_gpu_ecc_errors_total",
        labels: &[("type", "uncorrected"), ("scope", "aggregate")],
        ..STATE
    },
    CardSource {
        name: "ecc_corrected_aggregate",
        metric: "takt_gpu_ecc_errors_total",
        labels: &[("type", "corrected"), ("scope", "aggregate")],
        ..COUNTER
    },
    CardSource {
        name: reading::LINK_WIDTH,
        metric: "takt_gpu_pcie_link_width",
        labels: &[("kind", "current")],
        ..STATE
    },
    CardSource {
        name: reading::LINK_WIDTH_MAX,
        metric: "takt_gpu_pcie_link_width",
        labels: &[("kind", "max")],
        ..STATE
    },
    CardSource {
        name: "pcie_replays",
        metric: "takt_gpu_pcie_replays_total",
        ..COUNTER
    },
    CardSource {
        name: "nvlink_errors",
        metric: "takt_gpu_nvlink_errors_total",
        adds_up: true,
        // A sum of several counters, of which one may be missing in a look: the highest sum counts.
        ..GAUGE
    },
    CardSource {
        name: reading::THERMAL,
        metric: "takt_gpu_throttle_seconds_total",
        labels: &[("reason", "hw_thermal")],
        ..COUNTER
    },
    CardSource {
        name: reading::POWER_BRAKE,
        metric: "takt_gpu_throttle_seconds_total",
        labels: &[("reason", "hw_power_brake")],
        ..COUNTER
    },
    CardSource {
        name: reading::ENERGY,
        metric: "takt_gpu_energy_joules_total",
        ..COUNTER
    },
    CardSource {
        name: "temperature_gpu_celsius",
        metric: "takt_gpu_temperature_celsius",
        labels: &[("sensor", "gpu")],
        ..GAUGE
    },
    CardSource {
        name: "temperature_memory_celsius",
        metric: "takt_gpu_temperature_celsius",
        labels: &[("sensor", "memory")],
        ..GAUGE
    },
];

impl CardSource {
    /// Whether the series is of this reading.
    fn has(&self, labels: &Labels) -> bool {
        let is_so = |(name, value): &(&str, &str)| labels.get(name) == Some(*value);
        self.labels.iter().all(is_so)
    }

    /// The reading of a sample; `None` if it says nothing.
    fn value(&self, labels: &Labels, value: f64) -> Option<f64> {
        // Samples come from the network; a card counts nothing below 0.
        if !value.is_finite() || value < 0.0 {
            return None;
        }
        if self.name != reading::LOST {
            return Some(value);
        }
        let reason = labels.get("reason").unwrap_or_default();
        match value {
            0.0 => LOST_REASONS.contains(&reason).then_some(1.0),
            _ => Some(0.0),
        }
    }

    /// Whether the first reading is worth a line: a flag that is set already. A link has always some width.
    fn is_telling(&self, value: f64) -> bool {
        let is_width = [reading::LINK_WIDTH, reading::LINK_WIDTH_MAX].contains(&self.name);
        self.kind == CardReadingKind::State && value > 0.0 && !is_width
    }
}

/// A counter, and when it was last stored.
#[derive(Debug, Clone, Copy)]
struct FollowedCounter {
    counter: CardCounter,
    noted: UnixTime,
}

/// The cards of a cluster, as the records and the last rounds have them.
#[derive(Debug)]
pub struct CardWatch {
    book: CardBook,
    /// By card and reading.
    counters: BTreeMap<(String, String), FollowedCounter>,
    /// Day (since 1970) and number of the changes of each card.
    changes: BTreeMap<String, (i64, u32)>,
    rounds: u64,
}

impl CardWatch {
    /// Reads what is known of the cards.
    ///
    /// # Errors
    /// If the store fails.
    pub fn open(store: &Store, cluster: &str) -> Result<Self, StoreError> {
        let records = Records::of(store.database());
        let counters = records
            .card_readings(cluster, None)?
            .into_iter()
            .map(|one| {
                let followed = FollowedCounter {
                    counter: one.counter,
                    noted: one.counter.seen,
                };
                ((one.card, one.reading), followed)
            });
        Ok(Self {
            book: CardBook::of(records.card_placements(cluster, None)?),
            counters: counters.collect(),
            changes: BTreeMap::new(),
            rounds: 0,
        })
    }

    /// Looks where the cards are, and every five minutes at their readings. Stores what is new.
    ///
    /// # Errors
    /// If the store fails. The watch is then no longer in step with the records.
    pub fn look(&mut self, store: &Store, cluster: &str, now: Timestamp) -> Result<(), StoreError> {
        let mut news = CardNews {
            placements: self
                .book
                .observe(sightings(store, cluster, now)?, now.whole_seconds()),
            ..CardNews::default()
        };

        // A card that is new gets its readings at once.
        let is_due = self.rounds.is_multiple_of(ROUNDS_A_LOOK);
        self.rounds += 1;
        if is_due || !news.placements.is_empty() {
            self.read(store, cluster, now, &mut news)?;
        }

        Records::of(store.database()).note_cards(cluster, &news)
    }

    fn read(
        &mut self,
        store: &Store,
        cluster: &str,
        now: Timestamp,
        news: &mut CardNews,
    ) -> Result<(), StoreError> {
        let mut read = Vec::new();
        let cards = self.book.by_uuid();
        let mut metric = "";
        let mut series = Vec::new();
        for source in SOURCES {
            // Readings of one metric stand side by side.
            if metric != source.metric {
                metric = source.metric;
                series = store.instant(
                    &[Matcher::metric(metric), Matcher::equal("cluster", cluster)],
                    now,
                    LOOKBACK,
                )?;
            }

            let mut values: BTreeMap<&str, (Timestamp, f64)> = BTreeMap::new();
            for one in series.iter().filter(|one| source.has(&one.labels)) {
                let uuid = one.labels.get("uuid").unwrap_or_default();
                let (Some(placement), Some(sample)) = (cards.get(uuid), one.samples.last()) else {
                    continue;
                };
                // A card that has just moved may still have series of its former node.
                if one.labels.get("node") != Some(&placement.node) {
                    continue;
                }
                let Some(value) = source.value(&one.labels, sample.value) else {
                    continue;
                };

                match values.entry(&placement.card) {
                    Entry::Vacant(first) => {
                        first.insert((sample.at, value));
                    }
                    Entry::Occupied(mut known) if source.adds_up => known.get_mut().1 += value,
                    Entry::Occupied(mut known) if known.get().0 < sample.at => {
                        known.insert((sample.at, value));
                    }
                    Entry::Occupied(_) => {}
                }
            }
            let of_source = values
                .into_iter()
                .map(|(card, (_, value))| (source, card.to_owned(), value));
            read.extend(of_source);
        }

        for (source, card, value) in read {
            self.take(source, &card, value, now.whole_seconds(), news);
        }
        Ok(())
    }

    /// Takes a reading.
    fn take(
        &mut self,
        source: &CardSource,
        card: &str,
        value: f64,
        now: UnixTime,
        news: &mut CardNews,
    ) {
        let key = (card.to_owned(), source.name.to_owned());
        let reading = |counter| CardReading {
            card: card.to_owned(),
            reading: source.name.to_owned(),
            counter,
        };
        let change = |before| CardChange {
            card: card.to_owned(),
            at: now,
            reading: source.name.to_owned(),
            before,
            value,
        };

        let Some(followed) = self.counters.get_mut(&key) else {
            let counter = CardCounter::new(value, now);
            let noted = now;
            self.counters
                .insert(key, FollowedCounter { counter, noted });
            news.readings.push(reading(counter));
            if source.is_telling(value) {
                news.changes.push(change(None));
            }
            return;
        };

        let before = followed.counter.last;
        let is_reset = followed.counter.observe(source.kind, value, now);
        let has_changed = is_reset || source.kind == CardReadingKind::State && before != value;
        if has_changed || now - followed.noted >= NOTE_SECONDS {
            followed.noted = now;
            news.readings.push(reading(followed.counter));
        }
        if has_changed && self.has_room(card, now) {
            news.changes.push(change(Some(before)));
        }
    }

    /// Whether another change of the card may be stored today.
    fn has_room(&mut self, card: &str, now: UnixTime) -> bool {
        let today = now.0.div_euclid(86_400);
        let (day, count) = self.changes.entry(card.to_owned()).or_insert((today, 0));
        if *day != today {
            (*day, *count) = (today, 0);
        }
        *count = count.saturating_add(1);
        *count <= MOST_CHANGES_A_DAY
    }
}

/// The cards that exporters report now.
fn sightings(
    store: &Store,
    cluster: &str,
    now: Timestamp,
) -> Result<Vec<CardSighting>, StoreError> {
    let newest = |metric| {
        let matchers = [Matcher::metric(metric), Matcher::equal("cluster", cluster)];
        store.instant(&matchers, now, LOOKBACK)
    };
    let firmware: BTreeMap<String, String> = newest("takt_gpu_vbios_info")?
        .iter()
        .filter_map(|one| {
            let label = |name| one.labels.get(name).map(str::to_owned);
            Some((label("uuid")?, label("version")?))
        })
        .collect();

    // An exporter goes on naming cards that are gone, so that their loss is noticed. That is no sighting.
    let place = |labels: &Labels| {
        let label = |name| labels.get(name).unwrap_or_default().to_owned();
        (label("node"), label("uuid"))
    };
    let gone: BTreeSet<(String, String)> = newest("takt_gpu_up")?
        .iter()
        .filter(|one| one.samples.last().is_some_and(|sample| sample.value == 0.0))
        .filter(|one| GONE_REASONS.contains(&one.labels.get("reason").unwrap_or_default()))
        .map(|one| place(&one.labels))
        .collect();

    let mut infos = newest("takt_gpu_info")?;
    infos.retain(|one| !gone.contains(&place(&one.labels)));
    let seen = infos.into_iter().map(|one| {
        let label = |name| one.labels.get(name).unwrap_or_default().to_owned();
        let at = one.samples.last().map(|sample| sample.at.whole_seconds());
        CardSighting {
            at: at.unwrap_or_default(),
            serial: label("serial"),
            vbios: firmware.get(&label("uuid")).cloned().unwrap_or_default(),
            uuid: label("uuid"),
            model: label("model"),
            driver: label("driver"),
            node: label("node"),
            slot: label("pci_bus_id"),
            index: label("index").parse().ok(),
        }
    });
    Ok(seen.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::store_in;
    use takt_store::STALE;
    use tempfile::tempdir;

    /// Metric, labels beyond the card's own, and value.
    type TestReading<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);

    /// A scrape of g1 with one card.
    fn scrape(store: &Store, at: UnixTime, serial: &str, readings: &[TestReading<'_>]) {
        let uuid = format!("GPU-{serial}");
        let own = [("cluster", "lab"), ("node", "g1"), ("uuid", &uuid)];
        let slot = [
            ("serial", serial),
            ("pci_bus_id", "0000:01:00.0"),
            ("model", "H100"),
        ];
        let group = store.group();
        let info = [("takt_gpu_info", &slot[..], 1.0)];
        let mut row = Vec::new();
        for (metric, labels, value) in info.iter().chain(readings) {
            let name = [("__name__", *metric)];
            let all = [&name[..], &own[..], labels].concat();
            let column = group.column(&all.into_iter().collect::<Labels>()).unwrap();
            row.resize(group.width(), STALE);
            row[column.index()] = *value;
        }
        let ticket = group.ticket(at.into()).unwrap();
        group.commit(ticket, &row, &[]).unwrap();
        store.flush();
    }

    #[test]
    fn readings_are_followed_over_resets_and_restarts() {
        let root = tempdir().unwrap();
        let store = store_in(root.path());
        let now = UnixTime::from(std::time::SystemTime::now());
        let energy = |joules| ("takt_gpu_energy_joules_total", &[][..], joules);
        let lost = ("takt_gpu_up", &[("reason", "lost")][..], 0.0);
        let failed = |flag| ("takt_gpu_row_remap_failed", &[][..], flag);

        scrape(
            &store,
            now,
            "1",
            &[energy(500.0), failed(0.0), ("takt_gpu_up", &[], 1.0)],
        );
        let mut watch = CardWatch::open(&store, "lab").unwrap();
        watch.look(&store, "lab", now.into()).unwrap();

        // The server restarts; the card was reset and is lost.
        scrape(&store, now + 1, "1", &[energy(3.0), failed(1.0), lost]);
        let mut watch = CardWatch::open(&store, "lab").unwrap();
        watch.look(&store, "lab", (now + 1).into()).unwrap();

        let records = Records::of(store.database());
        let placements = records.card_placements("lab", None).unwrap();
        assert_eq!((placements.len(), placements[0].card.as_str()), (1, "1"));
        let changes: Vec<_> = records
            .card_changes("lab", Some("1"))
            .unwrap()
            .into_iter()
            .map(|one| (one.reading, one.before, one.value))
            .collect();
        let change = |name: &str, before, value| (name.to_owned(), Some(before), value);
        assert_eq!(
            changes,
            [
                change(reading::ENERGY, 500.0, 3.0),
                change(reading::LOST, 0.0, 1.0),
                change(reading::ROW_REMAP_FAILED, 0.0, 1.0),
            ]
        );
        let energy = records.card_readings("lab", Some("1")).unwrap();
        let energy = energy
            .iter()
            .find(|one| one.reading == reading::ENERGY)
            .unwrap();
        assert_eq!((energy.counter.total, energy.counter.resets), (503.0, 1));
    }

    #[test]
    fn a_link_that_comes_and_goes_does_not_fill_the_disk() {
        let root = tempdir().unwrap();
        let store = store_in(root.path());
        let mut watch = CardWatch::open(&store, "lab").unwrap();
        let width = SOURCES
            .iter()
            .find(|one| one.name == reading::LINK_WIDTH)
            .unwrap();
        let mut news = CardNews::default();
        for second in 0..200 {
            let lanes = if second % 2 == 0 { 16.0 } else { 8.0 };
            watch.take(width, "1", lanes, UnixTime(second), &mut news);
        }
        assert_eq!(news.changes.len(), 50);
        assert_eq!(
            news.readings.last().map(|one| one.counter.lowest),
            Some(8.0)
        );
        watch.take(width, "1", 4.0, UnixTime(90_000), &mut news);
        assert_eq!(news.changes.len(), 51);
    }
}
