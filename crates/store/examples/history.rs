//! Fills a data directory with hours of samples, for `bench/query.sh`. Writes the same samples as
//! OpenMetrics for `promtool tsdb create-blocks-from`, one file per two hours.
//!
//! `history DATA_DIR TEXT_DIR NODES HOURS STEP_SECONDS END`
//!
//! Each node replays the captured pages, one per second, from a second of its own. Counters
//! continue when the capture repeats. The clock runs as fast as the store accepts samples: blocks
//! are sealed by the hour and merged as usual, and the rest is sealed at END.

#![expect(clippy::print_stderr, reason = "a program that says how far it is")]

mod nodes;

use nodes::{Captured, Failure, Nodes};
use prometheus_client::registry::Registry;
use std::env;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_store::{Clock, DataDir, Store, StoreConfig};

/// Milliseconds after each whole second. No sample then lies on the left end of a range, where
/// Prometheus 2 and 3 differ.
const BESIDE_MS: i64 = 137;

/// Seconds that promtool puts into one block.
const FILE_SECONDS: i64 = 7200;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [data, text, nodes, hours, step, end] = &arguments[..] else {
        return Err("usage: history DATA_DIR TEXT_DIR NODES HOURS STEP_SECONDS END".into());
    };
    let count: usize = nodes.parse()?;
    let hours: i64 = hours.parse()?;
    let step: i64 = step.parse()?;
    let end: i64 = end.parse()?;
    let captured = nodes::read(Path::new(nodes::PAGE))?;

    let now = Arc::new(AtomicI64::new(0));
    let shown = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp::from_seconds(shown.load(Ordering::SeqCst)));
    let begin = end - hours * 3600;
    now.store(begin, Ordering::SeqCst);
    let config = StoreConfig {
        min_free_bytes: 0,
        commit_interval_ms: 200,
        ..StoreConfig::default()
    };
    let store = Store::open_at(
        DataDir::claim(Path::new(data))?,
        &config,
        &mut Registry::default(),
        clock,
    )?;
    let mut nodes = Nodes::new(&store, &captured, count, captured.len())?;
    for at in (begin..=end).step_by(usize::try_from(step)?) {
        now.store(at + 1, Ordering::SeqCst);
        let second = usize::try_from(at - begin)?;
        nodes.write(second, |_| Timestamp(at * 1000 + BESIDE_MS))?;
        if second % 3600 == 0 {
            store.keep()?;
            eprint!("\r{} h", second / 3600);
        }
    }
    store.seal()?;
    let series = count * captured.len();
    eprintln!(
        "\r{series} series, {} samples",
        series as i64 * ((end - begin) / step + 1)
    );
    write_text(Path::new(text), count, &captured, (begin, end, step))
}

/// Writes the same samples for promtool, which requires the samples of a series to be adjacent
/// within a file.
fn write_text(
    folder: &Path,
    nodes: usize,
    captured: &[Captured],
    (begin, end, step): (i64, i64, i64),
) -> Result<(), Failure> {
    let mut from = begin;
    while from <= end {
        let to = (from.div_euclid(FILE_SECONDS) + 1) * FILE_SECONDS;
        let mut out = BufWriter::new(File::create(folder.join(format!("{from}.om")))?);
        let first = begin + (from - begin + step - 1) / step * step;
        for node in 0..nodes {
            for series in captured {
                let name = openmetrics(&series.labels(node));
                for at in (first..to.min(end + 1)).step_by(usize::try_from(step)?) {
                    let value = series.value(node, usize::try_from(at - begin)?);
                    writeln!(out, "{name} {value} {at}.{BESIDE_MS}")?;
                }
            }
        }
        writeln!(out, "# EOF")?;
        out.flush()?;
        from = to;
    }
    Ok(())
}

fn openmetrics(labels: &Labels) -> String {
    let pairs: Vec<String> = labels
        .iter()
        .filter(|(name, _)| *name != METRIC_NAME)
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    format!("{}{{{}}}", labels.metric(), pairs.join(","))
}
