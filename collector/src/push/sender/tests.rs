use super::*;
use crate::push::Senders;
use prometheus_client::registry::Registry;
use takt_model::Matcher;
use takt_push::MemoryGrant;
use takt_push::remote_write::{Protocol, RequestWriter, decompress, read_request};
use takt_store::{DataDir, StoreConfig};

struct Lab {
    root: tempfile::TempDir,
    store: Arc<Store>,
}

impl Lab {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = Self::open(&root);
        Self { root, store }
    }

    fn open(root: &tempfile::TempDir) -> Arc<Store> {
        let config = StoreConfig {
            commit_interval_ms: 20,
            min_free_bytes: 0,
            ..StoreConfig::default()
        };
        // A program that another test starts just now has the lock, too, until it runs.
        let claim = |_| {
            DataDir::claim(root.path())
                .inspect_err(|_| std::thread::sleep(Duration::from_millis(50)))
                .ok()
        };
        let directory = (0..100).find_map(claim).unwrap();
        let store = Store::open(directory, &config, &mut Registry::default());
        Arc::new(store.unwrap())
    }

    fn sender(&self, name: &str, change: impl FnOnce(&mut SenderConfig)) -> Arc<Sender> {
        let mut sender = config_of(name);
        change(&mut sender);
        let senders = self.senders(vec![sender]);
        Arc::clone(senders.named(name).unwrap())
    }

    fn senders(&self, senders: Vec<SenderConfig>) -> Senders {
        let config = PushConfig {
            senders,
            ..PushConfig::default()
        };
        Senders::new(&config, "lab", &self.store, PushMetrics::default())
    }

    /// Stored samples of a metric, by the text of the labels.
    fn samples(&self, metric: &str) -> BTreeMap<String, Vec<(i64, u64)>> {
        let all = (Timestamp(0), Timestamp(i64::MAX));
        self.store
            .range(&[Matcher::metric(metric)], all.0, all.1)
            .unwrap()
            .into_iter()
            .map(|series| {
                let samples = series
                    .samples
                    .iter()
                    .map(|one| (one.at.0, one.value.to_bits()))
                    .collect();
                (series.labels.to_string(), samples)
            })
            .collect()
    }
}

fn config_of(sender: &str) -> SenderConfig {
    SenderConfig {
        name: sender.to_owned(),
        token_file: "token".into(),
        labels: None,
        max_series: 100,
        replica_label: None,
        promote_resource_attributes: Vec::new(),
    }
}

/// Now, rounded to a second, so that times in the test are readable.
fn base() -> i64 {
    now().0 / 1000 * 1000 - 60_000
}

type Given<'a> = (&'a [(&'a str, &'a str)], &'a [(i64, f64)]);

fn request(series: &[Given<'_>]) -> PushedSeries {
    let mut writer = RequestWriter::new(Protocol::V2);
    for (labels, samples) in series {
        let samples = samples.iter().map(|&(at, value)| (Timestamp(at), value));
        writer.add(&labels.iter().copied().collect(), samples);
    }
    let message = decompress(&writer.body(), 1 << 20).unwrap();
    let mut memory = MemoryGrant::of_bytes(usize::MAX);
    read_request(Protocol::V2, message, &mut memory).unwrap()
}

fn bits(samples: &[(i64, f64)]) -> Vec<(i64, u64)> {
    samples
        .iter()
        .map(|&(at, value)| (at, value.to_bits()))
        .collect()
}

#[test]
fn samples_are_durable_late_ones_find_their_place_and_repeated_ones_are_ignored() {
    let mut lab = Lab::new();
    let sender = lab.sender("rack", |_| {});
    let t = base();
    let up = [("__name__", "up"), ("sender", "forged")];
    let first = request(&[(&up, &[(t, 1.0), (t + 20, 3.0), (t + 30, STALE)])]);
    let report = sender.store(&first).unwrap();
    assert_eq!(report.stored, 3);
    assert_eq!(report.refusal(), None);
    // An out-of-order sample, two repeated ones, a NaN with another payload, and hours ago.
    let nan = f64::from_bits(0x7ff0_0000_0000_0003);
    let hours_ago = t - 3 * 3_600_000;
    let second = request(&[(
        &up,
        &[
            (t + 10, 2.0),
            (t, 1.0),
            (t + 30, STALE),
            (t + 40, nan),
            (hours_ago, 7.0),
        ],
    )]);
    let report = sender.store(&second).unwrap();
    assert_eq!(report.stored, 3);
    assert_eq!(report.repeated, 2);
    let expected = BTreeMap::from([(
        "up{cluster=\"lab\", sender=\"rack\"}".to_owned(),
        bits(&[
            (hours_ago, 7.0),
            (t, 1.0),
            (t + 10, 2.0),
            (t + 20, 3.0),
            (t + 30, STALE),
            (t + 40, f64::NAN),
        ]),
    )]);
    assert_eq!(lab.samples("up"), expected);

    // After a restart, in memory nothing is known of the samples.
    drop(sender);
    drop(Arc::into_inner(lab.store).unwrap());
    lab.store = Lab::open(&lab.root);
    assert_eq!(lab.samples("up"), expected);
    let sender = lab.sender("rack", |_| {});
    for again in [&first, &second] {
        let report = sender.store(again).unwrap();
        assert_eq!(report.stored, 0);
        assert_eq!(report.refusal(), None);
    }
    assert_eq!(lab.samples("up"), expected);
    // Another value at a time that only the disk knows.
    let other = request(&[(&up, &[(t + 20, 4.0), (t + 50, 5.0)])]);
    let report = sender.store(&other).unwrap();
    assert_eq!(report.stored, 1);
    assert_eq!(
        report.rejected,
        BTreeMap::from([(RejectReason::Conflict, 1)])
    );
    // Sealed, each sample is there once.
    lab.store.seal().unwrap();
    let mut expected = expected;
    let samples = expected.values_mut().next().unwrap();
    samples.push((t + 50, 5.0_f64.to_bits()));
    assert_eq!(lab.samples("up"), expected);
    let again = sender.store(&second).unwrap();
    assert_eq!(again.stored, 0);
    assert_eq!(again.repeated, 5);
}

#[test]
fn bad_samples_are_rejected_by_reason_and_the_others_stored() {
    let lab = Lab::new();
    let sender = lab.sender("rack", |_| {});
    let t = base();
    let good = [("__name__", "good")];
    let year_2100 = 4_102_444_800_000;
    let report = sender
        .store(&request(&[
            (&[("a", "1")], &[(t, 1.0)]),
            (&good, &[(t, 1.0), (0, 1.0), (year_2100, 1.0), (t, 2.0)]),
            (
                &[("__name__", "long"), ("a", &"x".repeat(5000))],
                &[(t, 1.0)],
            ),
        ]))
        .unwrap();
    let expected = BTreeMap::from([
        (RejectReason::Labels, 2),
        (RejectReason::TooOld, 1),
        (RejectReason::Future, 1),
        (RejectReason::Conflict, 1),
    ]);
    assert_eq!(report.rejected, expected);
    assert_eq!(report.stored, 1);
    assert!(report.refusal().unwrap().contains("2 labels"));
    assert_eq!(report.examples.len(), MAX_EXAMPLES);
    let stored = lab.samples("good");
    assert_eq!(stored.values().next().unwrap(), &bits(&[(t, 1.0)]));
}

#[test]
fn a_sender_has_a_limit_of_series_and_may_not_write_those_of_others() {
    let lab = Lab::new();
    let same = |config: &mut SenderConfig| {
        config.labels = Some(BTreeMap::new());
        config.max_series = 2;
    };
    let one = lab.sender("one", same);
    let two = lab.sender("two", same);
    let t = base();
    let series = |name| ([("__name__", name)], [(t, 1.0)]);
    let [a, b, c] = ["a", "b", "c"].map(series);
    let report = one.store(&request(&[(&a.0, &a.1), (&b.0, &b.1), (&c.0, &c.1)]));
    let rejected = report.unwrap().rejected;
    assert_eq!(rejected, BTreeMap::from([(RejectReason::SeriesLimit, 1)]));
    // A series that is stored already is none of the further ones, even if its place is forgotten.
    one.state().places = Places::default();
    let again = [(&a.0[..], &[(t + 1, 2.0)][..])];
    assert_eq!(one.store(&request(&again)).unwrap().stored, 1);

    let report = two.store(&request(&[(&a.0, &a.1), (&c.0, &c.1)])).unwrap();
    assert_eq!(report.stored, 1);
    assert_eq!(
        report.rejected,
        BTreeMap::from([(RejectReason::OtherWriter, 1)])
    );
}

/// Whoever comes first after a restart: the labels of a sender are its own.
#[test]
fn a_sender_without_labels_writes_no_series_of_others() {
    let lab = Lab::new();
    let free = SenderConfig {
        labels: Some(BTreeMap::new()),
        ..config_of("free")
    };
    let senders = lab.senders(vec![free, config_of("rack")]);
    let store = |sender: &str, labels| {
        let given = request(&[(labels, &[(base(), 1.0)])]);
        let report = senders.named(sender).unwrap().store(&given).unwrap();
        report.rejected
    };
    let theirs: &[_] = &[("__name__", "up"), ("sender", "rack")];
    let refused = BTreeMap::from([(RejectReason::OtherWriter, 1)]);
    assert_eq!(store("free", theirs), refused);
    assert_eq!(store("free", &[("__name__", "up")]), BTreeMap::new());
    // The label is set, whatever the sender says.
    let forged: &[_] = &[("__name__", "up"), ("sender", "free")];
    assert_eq!(store("rack", forged), BTreeMap::new());
}

#[test]
fn one_replica_is_stored_without_its_label() {
    let lab = Lab::new();
    let sender = lab.sender("rack", |config| {
        config.replica_label = Some("__replica__".to_owned());
    });
    let t = base();
    let of = |replica| [("__name__", "up"), ("__replica__", replica)];
    for at in 0..3 {
        let a = sender.store(&request(&[(&of("a"), &[(t + 10 * at, 1.0)])]));
        let b = sender.store(&request(&[(&of("b"), &[(t + 10 * at + 3, 1.0)])]));
        assert_eq!(a.unwrap().stored, 1);
        let b = b.unwrap();
        assert_eq!(b.stored, 0);
        assert_eq!(b.replica, 1);
        assert_eq!(b.refusal(), None);
    }
    let expected = BTreeMap::from([(
        "up{cluster=\"lab\", sender=\"rack\"}".to_owned(),
        bits(&[(t, 1.0), (t + 10, 1.0), (t + 20, 1.0)]),
    )]);
    assert_eq!(lab.samples("up"), expected);
}

#[test]
fn increases_are_summed_once() {
    use takt_push::otlp::Encoding;
    let lab = Lab::new();
    let sender = lab.sender("rack", |_| {});
    let t = base();
    let store = |at: i64, increase: u32| {
        let json = format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"steps","sum":{{
            "aggregationTemporality":1,"isMonotonic":true,
            "dataPoints":[{{"asInt":"{increase}","timeUnixNano":"{at}000000"}}]}}}},
            {{"name":"native","exponentialHistogram":{{"aggregationTemporality":1,"dataPoints":[{{}}]}}}}]}}]}}]}}"#
        );
        let translation = sender.translation();
        let mut memory = MemoryGrant::of_bytes(usize::MAX);
        let request = translation
            .read(Encoding::Json, json.as_bytes(), &mut memory)
            .unwrap();
        sender.store_points(&request).unwrap()
    };
    let report = store(t, 2);
    assert_eq!(report.stored, 1);
    assert_eq!(report.rejected_points, 1);
    assert!(report.refusal().unwrap().contains("exponential histograms"));
    assert_eq!(store(t + 10, 3).stored, 1);
    assert_eq!(store(t + 10, 3).repeated, 1);
    // As after a restart: the stored sum continues.
    sender.state().sums = RunningSums::default();
    assert_eq!(store(t + 10, 3).repeated, 1);
    assert_eq!(store(t + 20, 4).stored, 1);
    let samples = lab.samples("steps_total");
    assert_eq!(
        samples.values().next().unwrap(),
        &bits(&[(t, 2.0), (t + 10, 5.0), (t + 20, 9.0)])
    );
}

#[test]
fn aging_frees_memory_and_loses_nothing() {
    let lab = Lab::new();
    let sender = lab.sender("rack", |_| {});
    let t = base();
    let up = [("__name__", "up")];
    let down = [("__name__", "down")];
    let hour = 3_600_000;
    sender
        .store(&request(&[
            (&down, &[(t - 2 * hour, 1.0)]),
            (&up, &[(t - hour, 1.0), (t, 2.0)]),
        ]))
        .unwrap();
    sender.age();
    let late = request(&[(&up, &[(t - hour, 1.0), (t - hour + 10, 1.5)])]);
    let report = sender.store(&late).unwrap();
    assert_eq!(report.stored, 1);
    assert_eq!(report.repeated, 1);
    sender.age();
    let samples = lab.samples("up");
    assert_eq!(
        samples.values().next().unwrap(),
        &bits(&[(t - hour, 1.0), (t - hour + 10, 1.5), (t, 2.0)])
    );
    // As after a quarter of an hour without samples.
    let later = Timestamp(now().0 + hour);
    assert_eq!(sender.group.age(later).len(), 2);
    assert_eq!(sender.group.series_count(), 0);
    assert_eq!(lab.samples("down").len(), 1);
}

#[test]
fn a_rejected_time_is_readable_and_has_its_limit() {
    let lab = Lab::new();
    let sender = lab.sender("rack", |_| {});
    let said = |ms: i64| {
        sender
            .store(&request(&[(&[("__name__", "up")], &[(ms, 1.0)])]))
            .unwrap()
            .refusal()
            .unwrap()
    };
    let old = said(1_700_000_000_000);
    assert!(
        old.ends_with("up at 2023-11-14T22:13:20Z: older than push.max_age_hours (24 hours)"),
        "{old}"
    );
    let ahead = said(4_000_000_000_000);
    assert!(
        ahead.ends_with("up at 2096-10-02T07:06:40Z: more than 10 minutes in the future"),
        "{ahead}"
    );
    let seconds = said(1_795_488_192);
    assert!(
        seconds.contains("up at 1970-01-21T18:44:48.192Z: older")
            && seconds.ends_with("this one may be in another unit"),
        "{seconds}"
    );
}
