//! Collectors that hang, and requests for some collectors only.

use super::*;
use crate::collector::{CollectError, Collector};
use std::sync::atomic::AtomicUsize;
use takt_model::Metric;

const VALUE: Metric = Metric::gauge("value", "The number of the reading.", &[]);
const DEADLINE: Duration = Duration::from_millis(300);

/// How often a collector has begun to read, and after how many readings it hangs.
struct Hangs {
    begun: &'static AtomicUsize,
    after: usize,
}

impl Collector for Hangs {
    fn metrics(&self) -> &'static [Metric] {
        &[VALUE]
    }
    fn max_series(&self) -> usize {
        1
    }
    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let begun = self.begun.fetch_add(1, Ordering::Relaxed);
        if begun >= self.after {
            std::thread::sleep(Duration::from_secs(3600));
        }
        out.push::<&str>(&VALUE, &[], begun as f64);
        Ok(())
    }
}

fn entry(new: fn(&Options) -> Box<dyn Collector>) -> CollectorEntry {
    let reads = Reads::OnItsThread {
        deadline: DEADLINE,
        pause: Duration::ZERO,
    };
    CollectorEntry {
        name: "hangs",
        about: "Hangs",
        by_default: true,
        reads,
        new,
    }
}

fn listed(name: &str) -> CollectorEntry {
    *COLLECTORS.iter().find(|entry| entry.name == name).unwrap()
}

async fn lines(exporter: &Exporter) -> (Vec<String>, Duration) {
    let began = Instant::now();
    let page = exporter.page(Format::Text, &Wanted::All).await.unwrap();
    let took = began.elapsed();
    let is_told = |line: &&str| line.starts_with("value") || line.contains("success{");
    (
        page.lines().filter(is_told).map(str::to_owned).collect(),
        took,
    )
}

const SUCCEEDED: &str = r#"node_scrape_collector_success{collector="hangs"} 1"#;
const FAILED: &str = r#"node_scrape_collector_success{collector="hangs"} 0"#;

#[tokio::test]
async fn a_hung_collector_holds_up_no_page_not_even_the_first() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let entries = [
        entry(|_| {
            Box::new(Hangs {
                begun: &BEGUN,
                after: 0,
            })
        }),
        listed("cpu"),
    ];
    let exporter = Exporter::with(&Options::default(), &entries).unwrap();
    for _ in 0..20 {
        let (lines, took) = lines(&exporter).await;
        assert_eq!(
            lines,
            [
                r#"node_scrape_collector_success{collector="cpu"} 1"#,
                FAILED
            ]
        );
        assert!(took < Duration::from_millis(100), "{took:?}");
    }
    tokio::time::sleep(2 * DEADLINE).await;
    assert_eq!(BEGUN.load(Ordering::Relaxed), 1, "it is not started twice");
}

#[tokio::test]
async fn a_late_collector_is_shown_for_three_intervals() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let entries = [entry(|_| {
        Box::new(Hangs {
            begun: &BEGUN,
            after: 1,
        })
    })];
    let exporter = Exporter::with(&Options::default(), &entries).unwrap();
    assert_eq!(lines(&exporter).await.0, ["value 0", SUCCEEDED]);
    // Two scrapes give the interval, here the shortest possible: half a second. The next reading
    // hangs.
    assert_eq!(lines(&exporter).await.0, ["value 0", SUCCEEDED]);
    while BEGUN.load(Ordering::Relaxed) < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        lines(&exporter).await.0,
        ["value 0", SUCCEEDED],
        "not late yet"
    );
    tokio::time::sleep(DEADLINE + Duration::from_millis(100)).await;
    assert_eq!(lines(&exporter).await.0, ["value 0", FAILED]);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(lines(&exporter).await.0, [FAILED]);
}

#[tokio::test]
async fn a_collector_with_a_pause_is_not_read_for_each_scrape() {
    static OFTEN: AtomicUsize = AtomicUsize::new(0);
    static SELDOM: AtomicUsize = AtomicUsize::new(0);
    fn hangs_never(begun: &'static AtomicUsize) -> Box<dyn Collector> {
        let after = usize::MAX;
        Box::new(Hangs { begun, after })
    }
    let seldom = CollectorEntry {
        reads: Reads::OnItsThread {
            deadline: DEADLINE,
            pause: Duration::from_secs(3600),
        },
        ..entry(|_| hangs_never(&SELDOM))
    };
    let often = entry(|_| hangs_never(&OFTEN));
    let exporter = Exporter::with(&Options::default(), &[seldom, often]).unwrap();
    while OFTEN.load(Ordering::Relaxed) < 3 {
        lines(&exporter).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(SELDOM.load(Ordering::Relaxed), 1);
    let (lines, _) = lines(&exporter).await;
    assert!(lines.contains(&"value 0".to_owned()), "{lines:?}");
}

#[tokio::test]
async fn only_collectors_that_run_can_be_asked_for() {
    let exporter = Exporter::with(&Options::default(), &["cpu", "diskstats"].map(listed)).unwrap();
    assert_eq!(exporter.collectors(), ["cpu", "diskstats"]);
    let page = async |wanted| exporter.page(Format::Text, &wanted).await;
    let only = page(Wanted::Only(vec!["cpu".into()])).await.unwrap();
    assert!(only.contains("node_cpu_seconds_total") && !only.contains("disk"));
    let all_but = page(Wanted::AllBut(vec!["cpu".into()])).await.unwrap();
    assert!(!all_but.contains("node_cpu") && !all_but.contains("collector=\"cpu\""));
    assert!(all_but.contains("diskstats"));
    let error = page(Wanted::Only(vec!["nvml".into()])).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"no collector "nvml" is running; there are cpu, diskstats"#
    );
}
