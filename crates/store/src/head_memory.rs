//! Measures the head's memory per series, with pages captured one second apart. `bench/head.sh`
//! captures the pages and runs this.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement, run by hand"
)]

use super::head::{Column, Head, STALE};
use super::{Sample, SeriesId};
use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use takt_model::Timestamp;
use takt_model::exposition::{Format, Line, Page};

const WINDOW: Duration = Duration::from_secs(900);

/// Reads the captured pages as rows, with one column per series in order of first appearance.
fn captured() -> Vec<Vec<f64>> {
    let folder = std::env::var_os("TAKT_CAPTURED_PAGES")
        .expect("TAKT_CAPTURED_PAGES names a folder of captured pages");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "prom")
    });
    files.sort();
    let mut columns: HashMap<Vec<u8>, usize> = HashMap::new();
    let row = |path| {
        let text = std::fs::read(path).unwrap();
        let mut page = Page::new(Format::Text, &text);
        let mut row = Vec::new();
        while let Some(line) = page.next_line(b"").unwrap() {
            let Line::Sample(sample) = line else { continue };
            let next = columns.len();
            let column = *columns.entry(sample.series.to_vec()).or_insert(next);
            row.resize(row.len().max(column + 1), STALE);
            row[column] = sample.value;
        }
        row
    };
    files.into_iter().map(row).collect()
}

fn resident_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}

#[test]
#[ignore = "a measurement: bench/head.sh"]
fn head_memory_per_series() {
    let pages = captured();
    let width = pages.iter().map(Vec::len).max().unwrap();
    println!("{} pages of {width} series", pages.len());
    // Keep all heads until the end: the next head would reuse the memory of a dropped one.
    let mut measured = Vec::new();
    let mut heads = Vec::new();
    for wanted in [100_000, 200_000] {
        let groups = wanted / width;
        let before = resident_bytes();
        let head = Head::new(WINDOW, Timestamp(0));
        let mut all = Vec::new();
        for group in 0..groups {
            let (id, rows) = head.open_group(Timestamp(0));
            for column in 0..width {
                let series = SeriesId(u32::try_from(group * width + column).unwrap());
                assert_eq!(
                    head.column(id, &rows, series),
                    Some(Column(u32::try_from(column).unwrap()))
                );
            }
            all.push(rows);
        }
        // Each node starts at a different page.
        let page = |group: usize, second: usize| &pages[(second + 37 * group) % pages.len()];
        let seconds = 900 + 180;
        let began = Instant::now();
        for second in 0..seconds {
            for (group, rows) in all.iter().enumerate() {
                let at = Timestamp(second as i64 * 1000 + group as i64 % 1000);
                rows.write().unwrap_or_else(PoisonError::into_inner).push(
                    at,
                    page(group, second),
                    |_, _| {},
                );
            }
        }
        let bytes = resident_bytes() - before;
        let elapsed = began.elapsed();
        let series = groups * width;
        println!(
            "{series} series, {seconds} rows: {:.0} bytes a series, {:.1} ns a sample",
            bytes / series as f64,
            elapsed.as_secs_f64() * 1e9 / (series * seconds) as f64
        );
        measured.push((series as f64, bytes));
        let began = Instant::now();
        let from = Timestamp((seconds as i64 - 900) * 1000);
        let to = Timestamp(seconds as i64 * 1000);
        for column in 0..width {
            let found = head
                .range(
                    &[SeriesId(u32::try_from(column).unwrap())],
                    from,
                    to,
                    &mut |_| true,
                )
                .unwrap()
                .remove(0)
                .samples;
            let found: Vec<_> = found
                .iter()
                .map(|Sample { at, value }| (at.0 / 1000, value.to_bits()))
                .collect();
            let value = |second: usize| {
                page(0, second)
                    .get(column)
                    .copied()
                    .unwrap_or(STALE)
                    .to_bits()
            };
            assert!(
                found
                    .iter()
                    .all(|&(second, bits)| value(second as usize) == bits),
                "column {column}"
            );
        }
        println!(
            "{:.1} µs for 15 minutes of a series",
            began.elapsed().as_secs_f64() * 1e6 / width as f64
        );
        heads.push((head, all));
    }
    let slope = (measured[1].1 - measured[0].1) / (measured[1].0 - measured[0].0);
    println!("{slope:.0} bytes a series more");
}
