//! Valid pages and their stored samples.

use crate::support::{
    Answer, OPENMETRICS, Scraping, TEXT, Target, config, instant, now, open, target, values,
};
use std::sync::{Arc, Mutex};
use takt_collector::scrape::TargetHealth;
use takt_model::Matcher;
use takt_model::Timestamp;
use takt_store::{Listed, SeriesId, is_stale};
use tempfile::tempdir;

#[test]
fn a_page_is_stored_with_the_targets_labels_and_on_the_grid() {
    let root = tempdir().unwrap();
    let page = |_: &str, number: u64| {
        let text = format!(
            "# HELP requests_total Requests.\n# TYPE requests_total counter\nrequests_total {number}\n\
             # TYPE memory_bytes gauge\nmemory_bytes{{node=\"own\",kind=\"free\"}} 5e9\nmemory_bytes{{kind=\"x\"}} NaN\n"
        );
        Answer::Page(TEXT, text)
    };
    let served = Target::start(page);

    let scraping = Scraping::start(
        root.path(),
        config(250, vec![target(served.address, "g01")]),
    );
    scraping.wait_until("six scrapes are in", |all| {
        values(&all.store, "requests_total")
            .first()
            .is_some_and(|(_, values)| values.len() >= 6)
    });

    let store = &scraping.store;
    let address = served.address;
    let [up] = &instant(store, "up")[..] else {
        panic!("one series")
    };
    let labels = format!(r#"up{{cluster="lab", instance="{address}", job="node", node="g01"}}"#);
    assert_eq!(up.labels.to_string(), labels);
    assert_eq!(up.samples[0].value, 1.0);
    let memory: Vec<String> = instant(store, "memory_bytes")
        .iter()
        .map(|series| series.labels.to_string())
        .collect();
    assert_eq!(
        memory,
        [
            format!(
                r#"memory_bytes{{cluster="lab", exported_node="own", instance="{address}", job="node", kind="free", node="g01"}}"#
            ),
            format!(
                r#"memory_bytes{{cluster="lab", instance="{address}", job="node", kind="x", node="g01"}}"#
            ),
        ]
    );

    // The page has three samples, and no series is new at the sixth scrape.
    for (metric, value) in [
        ("scrape_samples_scraped", 3.0),
        ("scrape_samples_post_metric_relabeling", 3.0),
        ("scrape_series_added", 0.0),
        ("memory_bytes", 5e9),
    ] {
        assert_eq!(
            instant(store, metric)[0].samples[0].value,
            value,
            "{metric}"
        );
    }
    assert!(instant(store, "scrape_duration_seconds")[0].samples[0].value > 0.0);
    let metadata = scraping.manager.metadata();
    assert_eq!(metadata["requests_total"].kind, "counter");
    assert_eq!(metadata["requests_total"].help.as_str(), "Requests.");
    assert_eq!(
        store.label_values("kind", Listed::ever(&[])).unwrap(),
        ["free", "x"]
    );

    // A busy machine delays some scrapes; the unit test of the schedule is exact.
    let times = |all: &Scraping| -> Vec<i64> {
        all.store
            .range(&[Matcher::metric("requests_total")], Timestamp(0), now())
            .unwrap()[0]
            .samples
            .iter()
            .map(|sample| sample.at.0)
            .collect()
    };
    scraping.wait_until("two scrapes are exactly one interval apart", |all| {
        times(all).windows(2).any(|pair| pair[1] - pair[0] == 250)
    });

    // The target counts its requests, so a gap in the values would be a scrape that is lost.
    let requests = store
        .range(&[Matcher::metric("requests_total")], Timestamp(0), now())
        .unwrap();
    let at: Vec<i64> = requests[0]
        .samples
        .iter()
        .map(|sample| sample.at.0)
        .collect();
    let counts: Vec<f64> = requests[0]
        .samples
        .iter()
        .map(|sample| sample.value)
        .collect();
    assert!(
        (1..)
            .zip(&counts)
            .all(|(number, &count)| f64::from(number) == count),
        "{counts:?}"
    );

    // The head and the database have the same samples, and the watermark covers them.
    let newest = *at.last().unwrap();
    scraping.wait_until("the newest sample is durable", |all| {
        all.store.watermark().0 >= newest
    });
    let before = store
        .range(
            &[Matcher::metric("requests_total")],
            Timestamp(0),
            Timestamp(newest),
        )
        .unwrap();
    drop(scraping.stop());
    let reopened = open(root.path(), &mut Default::default());
    let after = reopened
        .range(
            &[Matcher::metric("requests_total")],
            Timestamp(0),
            Timestamp(newest),
        )
        .unwrap();
    assert_eq!(after, before);
    assert!(reopened.watermark() >= Timestamp(newest));
}

#[test]
fn a_series_ends_when_it_leaves_the_page_and_when_the_target_goes() {
    let root = tempdir().unwrap();
    let page = Arc::new(Mutex::new(Some("stays 1\nleaves 1\nstays 2\n".to_owned())));

    let shown = Arc::clone(&page);
    // The second `stays` is a duplicate: the first sample of a page counts, as in Prometheus.
    let served = Target::start(move |_, _| match &*shown.lock().unwrap() {
        Some(text) => Answer::Page(TEXT, text.clone()),
        None => Answer::Raw(b"HTTP/1.1 503 Busy\r\n\r\n".to_vec()),
    });
    let scraping = Scraping::start(
        root.path(),
        config(250, vec![target(served.address, "g01")]),
    );
    scraping.wait_for_health(TargetHealth::Up);

    *page.lock().unwrap() = Some("stays 1\n".to_owned());
    scraping.wait_until("the series has left", |all| {
        instant(&all.store, "leaves").is_empty()
    });
    assert_eq!(instant(&scraping.store, "stays").len(), 1);

    // A failed scrape ends every series of the target except the scrape's own, such as `up`.
    *page.lock().unwrap() = None;
    scraping.wait_for_health(TargetHealth::Down);
    assert_eq!(instant(&scraping.store, "stays").len(), 0);
    assert_eq!(instant(&scraping.store, "up")[0].samples[0].value, 0.0);
    *page.lock().unwrap() = Some("stays 7\n".to_owned());
    scraping.wait_for_health(TargetHealth::Up);
    let store = scraping.stop();

    // One marker for each end: a failed scrape after the first must not write another.
    let stays = &values(&store, "stays")[0].1;
    assert_eq!(
        stays.iter().filter(|value| value.is_none()).count(),
        1,
        "{stays:?}"
    );
    assert_eq!(stays.first(), Some(&Some(1.0)));
    assert_eq!(stays.last(), Some(&Some(7.0)));
    let leaves = &values(&store, "leaves")[0].1;
    assert_eq!(leaves.first(), Some(&Some(1.0)));
    assert_eq!(leaves.last(), Some(&None));
    assert_eq!(
        leaves.iter().filter(|value| value.is_none()).count(),
        1,
        "{leaves:?}"
    );
    // The database stores the end of a series as NULL.
    let db = store.database().connect().unwrap();
    let sql =
        "SELECT count(*) FILTER (value IS NULL), count(*) FROM samples WHERE metric = 'leaves'";
    let (nulls, rows): (i64, i64) = db
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(nulls, 1);
    assert_eq!(rows, leaves.len() as i64);
}

#[test]
fn timestamps_of_the_pages_own_are_kept_once_across_a_restart() {
    let root = tempdir().unwrap();

    // A minute in the past: the time must come from the page, and it must be recent enough to be stored.
    let taken = now().0 - 60_000;
    let page = move |_: &str, _: u64| {
        let seconds = taken as f64 / 1e3;
        let text = format!(
            // The second sample has an exemplar, and the third is in the year 5138.
            "own_time {{x=\"1\"}} 4 {seconds}\nnext 1 # {{trace=\"a\"}} 1 2\nfar 1 99999999999\n# EOF\n"
        );
        Answer::Page(OPENMETRICS, text.replace("own_time {", "own_time{"))
    };
    let served = Target::start(page);
    for run in 1..=2 {
        let scraping = Scraping::start(
            root.path(),
            config(250, vec![target(served.address, "g01")]),
        );
        scraping.wait_until("three scrapes are in", |all| {
            values(&all.store, "next")
                .iter()
                .any(|(_, values)| values.len() >= 3 * run)
        });

        let store = scraping.stop();
        let own = store
            .range(&[Matcher::metric("own_time")], Timestamp(0), now())
            .unwrap();
        assert_eq!(own.len(), 1);
        let samples: Vec<(i64, f64)> = own[0]
            .samples
            .iter()
            .map(|sample| (sample.at.0, sample.value))
            .collect();
        assert_eq!(samples, [(taken, 4.0)], "run {run}");
        assert_eq!(
            values(&store, "far"),
            [],
            "a timestamp in the far future is refused"
        );

        // The rows themselves show whether the second run stored the sample again.
        let db = store.database().connect().unwrap();
        let rows: i64 = db
            .query_row(
                "SELECT count(*) FROM samples WHERE metric = 'own_time'",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(rows, 1, "run {run}");
    }
}

#[test]
fn a_query_joins_what_was_before_the_start_with_what_came_after() {
    let root = tempdir().unwrap();
    let served =
        Target::start(|_, number| Answer::Page(TEXT, format!("requests_total {number}\n")));

    // The third run joins what two earlier runs left on disk with its own samples.
    for run in 1..=3 {
        let scraping = Scraping::start(
            root.path(),
            config(250, vec![target(served.address, "g01")]),
        );
        scraping.wait_until("there is more", |all| {
            values(&all.store, "requests_total")
                .first()
                .is_some_and(|(_, values)| values.len() >= 4 * run)
        });
        let found = scraping
            .store
            .range(&[Matcher::metric("requests_total")], Timestamp(0), now())
            .unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].id, found[0].id);

        let samples = &found[0].samples;
        assert!(
            samples
                .windows(2)
                .all(|pair| pair[0].at < pair[1].at && pair[0].value < pair[1].value),
            "{samples:?}"
        );
        assert!(
            samples.iter().all(|sample| !is_stale(sample.value)),
            "a restart ends nothing"
        );
        assert!(found[0].id < SeriesId(10), "a series keeps its number");
        drop(scraping.stop());
    }
}

#[test]
fn the_request_of_a_scrape() {
    let root = tempdir().unwrap();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let served = Target::start(move |head, _| {
        seen.lock().unwrap().push(head.to_ascii_lowercase());
        Answer::Page(OPENMETRICS, "# EOF\n".to_owned())
    });

    let scraping = Scraping::start(
        root.path(),
        config(500, vec![target(served.address, "g01")]),
    );
    scraping.wait_for_health(TargetHealth::Up);

    // Header names are compared in lower case, as HTTP does.
    let head = heads.lock().unwrap()[0].clone();
    for line in [
        "get /metrics http/1.1\r\n",
        "accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,",
        "text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\n",
        "accept-encoding: identity\r\n",
        "x-prometheus-scrape-timeout-seconds: 0.5\r\n",
        "user-agent: takt/",
    ] {
        assert!(head.contains(line), "{line:?} in {head}");
    }
}

#[test]
fn self_metrics_follow() {
    let root = tempdir().unwrap();

    // The page repeats a series, so that a duplicate is counted.
    let served = Target::start(|_, _| Answer::Page(TEXT, "a 1\na 2\n".to_owned()));
    let scraping = Scraping::start(
        root.path(),
        config(250, vec![target(served.address, "g01")]),
    );
    scraping.wait_until("something is durable", |all| {
        all.store.watermark() > Timestamp(0)
    });
    let mut text = String::new();
    scraping.wait_until("the counters have moved", |all| {
        text.clear();
        prometheus_client::encoding::text::encode(&mut text, &all.registry).unwrap();
        text.contains("takt_store_commits_total{success=\"true\"}")
    });
    for metric in [
        "takt_collector_scrapes_total{result=\"success\"}",
        "takt_collector_duplicate_samples_total",
        "takt_collector_targets 1",
        "takt_store_samples_total",
        "takt_store_commit_duration_seconds_bucket",
        // Series `a` and the five of the scrape itself.
        "takt_store_series 6",
        "takt_store_watermark_timestamp_seconds",
    ] {
        assert!(text.contains(metric), "{metric} in\n{text}");
    }
}
