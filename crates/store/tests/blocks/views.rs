//! The view of a metric has the same rows as `samples`, and reads only the rows that its conditions
//! need.

use crate::bench_store::{BEGIN, Bench, HOUR, SECOND, config};
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_store::sql::{Limits, run};
use tempfile::tempdir;

const NODES: usize = 40;
const METRICS: [&str; 3] = ["load", "power", "heat"];

/// Writes rows of [`METRICS`] for each node, one per minute.
fn scrape(bench: &Bench, from: i64, to: i64) {
    let group = bench.store.group();
    let columns: Vec<usize> = METRICS
        .iter()
        .flat_map(|metric| (0..NODES).map(move |node| (*metric, format!("n{node:02}"))))
        .map(|(metric, node)| {
            let labels: Labels = [(METRIC_NAME, metric), ("node", &node)]
                .into_iter()
                .collect();
            group.column(&labels).unwrap().index()
        })
        .collect();
    for at in (from..to).step_by(60 * SECOND as usize) {
        bench.set_clock(at);
        let mut row = vec![0.0; group.width()];
        columns
            .iter()
            .enumerate()
            .for_each(|(n, column)| row[*column] = (at - BEGIN) as f64 + n as f64);
        group
            .commit(group.ticket(Timestamp(at)).unwrap(), &row, &[])
            .unwrap();
    }
    bench.store.flush();
}

#[test]
fn a_condition_on_a_label_reads_the_rows_of_its_series() {
    let root = tempdir().unwrap();
    let bench = Bench::open(root.path(), &config(), BEGIN);
    for hour in 0..4 {
        scrape(&bench, BEGIN + hour * HOUR, BEGIN + (hour + 1) * HOUR);
        bench.store.seal().unwrap();
    }
    scrape(&bench, BEGIN + 4 * HOUR, BEGIN + 5 * HOUR);
    let limits = Limits {
        max_rows: 1_000_000,
        ..Limits::default()
    };
    let ask = |sql: &str| run(bench.store.database(), sql, limits).unwrap().rows;

    // Both views return the same rows.
    let of_metric = ask("SELECT ts, node, value FROM power ORDER BY ALL");
    assert_eq!(of_metric.len(), 5 * 60 * NODES);
    let of_samples = ask(
        "SELECT ts, labels ->> '$.node', value FROM samples WHERE metric = 'power' ORDER BY ALL",
    );
    assert_eq!(of_metric, of_samples);

    // Largest number of rows that a step of the plan returns.
    let most_of = |view: &str, condition: &str| -> usize {
        let plan = ask(&format!(
            "EXPLAIN ANALYZE SELECT avg(value) FROM {view} WHERE {condition}"
        ));
        let plan = plan[0].iter().map(ToString::to_string).collect::<String>();
        let words: Vec<&str> = plan.split_whitespace().collect();
        words
            .windows(2)
            .filter(|pair| pair[1].starts_with("row"))
            .filter_map(|pair| pair[0].replace(',', "").parse().ok())
            .max()
            .unwrap()
    };
    let most = |condition: &str| most_of("power", condition);
    assert!(most("true") >= 4 * 60 * NODES);
    // All rows of the unsealed hour may be read.
    let hot = 60 * NODES * METRICS.len();
    assert!(most("node = 'n07'") <= hot, "{}", most("node = 'n07'"));
    assert!(
        most("ts < '2026-11-21 01:00'") <= 60 * NODES,
        "{}",
        most("ts < '2026-11-21 01:00'")
    );
    // The rows of the metric in the unsealed hour are read.
    assert!(most("node = 'n07' AND ts < '2026-11-21 01:00'") <= 61 * NODES);

    // Only the last ten minutes of the metric are read from the unsealed hour.
    let last = "ts >= '2026-11-21 04:50'";
    assert!(most(last) <= 10 * NODES, "{}", most(last));
    let of_power = most_of("samples", &format!("metric = 'power' AND {last}"));
    assert!(of_power <= 10 * NODES, "{of_power}");
    let of_all = most_of("samples", last);
    assert_eq!(of_all, 10 * NODES * METRICS.len());
}
