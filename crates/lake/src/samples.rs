//! The tables of samples. Each file has rows of one block and one UTC day, and the block's name:
//! `2026-11-22T00-00_12-15.0-0.parquet` is the first part of the block `2026-11-22T00-00_12-15.0`.
//!
//! A block begins and ends at any time, so two blocks share most days. A block that the store has
//! deleted after its retention stays in the lake; one that it has replaced (late samples, deleted
//! series) is replaced here, too.

use crate::log::Add;
use crate::round::OpenTable;
use crate::table::{SAMPLES, SAMPLES_1H, SAMPLES_5M, Table};
use crate::{LakeConfig, LakeError};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;
use takt_model::Timestamp;
use takt_store::{DayRows, FinishedBlock, Resolution};

/// The resolution of a table of samples; `None` for other tables.
pub fn resolution(table: &Table) -> Option<Resolution> {
    [
        (SAMPLES.name, Resolution::Raw),
        (SAMPLES_5M.name, Resolution::FiveMinutes),
        (SAMPLES_1H.name, Resolution::Hour),
    ]
    .into_iter()
    .find_map(|(name, resolution)| (name == table.name).then_some(resolution))
}

/// The block that a file is of.
///
/// # Errors
/// If the file has no such name.
pub fn block_of<'a>(table: &'static Table, file: &'a Add) -> Result<&'a str, LakeError> {
    file.stem()
        // From the end: names of blocks contain dashes themselves.
        .rsplit_once('-')
        .filter(|(block, part)| {
            FinishedBlock::is_name(block) && part.bytes().all(|byte| byte.is_ascii_digit())
        })
        .map(|(block, _)| block)
        .ok_or_else(|| LakeError::UnknownFile {
            table: table.name,
            file: file.path.clone(),
        })
}

/// The UTC day of an instant, such as `2026-11-22`.
pub fn day_of(at: Timestamp) -> String {
    jiff::Timestamp::try_from(at)
        .unwrap_or_default()
        .strftime("%Y-%m-%d")
        .to_string()
}

/// The first UTC day that the lake's retention keeps; empty if it keeps all.
pub fn kept_from(config: &LakeConfig, resolution: Resolution, now: Timestamp) -> String {
    let days = match resolution {
        Resolution::Raw => config.retention_days,
        Resolution::FiveMinutes => config.retention_5m_days,
        Resolution::Hour => config.retention_1h_days,
    };
    match days {
        0 => String::new(),
        days => day_of(now.minus(Duration::from_secs(86_400 * days))),
    }
}

/// Adds the blocks that the table lacks, and removes files past their retention.
pub fn write(open: &mut OpenTable<'_>, resolution: Resolution) -> Result<(), LakeError> {
    let round = open.round;
    let kept_from = kept_from(round.lake.config, resolution, round.now);

    let files = open.version.files.values();
    let old: Vec<Add> = files
        .filter(|f| *f.partition() < *kept_from)
        .cloned()
        .collect();
    open.replace("DELETE", &old, Vec::new())?;

    let mut known = BTreeSet::new();
    for file in open.version.files.values() {
        // One file shows that its block is committed, because all files of a block are in one
        // commit.
        known.insert(block_of(open.table, file)?.to_owned());
    }

    for block in round.lake.database.finished_blocks(resolution, round.now) {
        let is_past = day_of(block.to()) < kept_from;
        if is_past || known.contains(&block.to_string()) {
            continue;
        }
        add(open, &block, &kept_from)?;
    }
    Ok(())
}

/// Writes the files of a block and commits them, in place of the files of the blocks it replaces.
fn add(open: &mut OpenTable<'_>, block: &FinishedBlock, kept_from: &str) -> Result<(), LakeError> {
    let span = day_of(block.from())..=day_of(block.to());

    let mut old = Vec::new();
    for file in open.version.files.values() {
        let name = block_of(open.table, file)?;
        // Only the days of the block: the replaced one may reach further, and its other days have
        // another successor.
        if block.replaces(name) && span.contains(&file.partition().to_owned()) {
            old.push(file.clone());
        }
    }

    let rows = block.days(&open.round.db)?;
    let mut new = Vec::new();
    for day in rows.chunk_by(|one, next| one.day == next.day) {
        let name = day[0].day.as_str();
        // The beginning of a block may be past the lake's retention.
        if name < kept_from {
            continue;
        }
        for (number, part) in parts(day, open.round.lake.config.file_rows)
            .iter()
            .enumerate()
        {
            open.round.check_stop()?;

            let select = format!(
                "SELECT {} FROM ({}) WHERE ts >= TIMESTAMP '{name}'
                 AND ts < TIMESTAMP '{name}' + INTERVAL 1 DAY
                 AND metric_hash BETWEEN {} AND {}",
                open.table.select_list(),
                block.query(),
                part.start(),
                part.end()
            );
            if let Some(staged) = open.stage(&select)? {
                new.push(open.place(&staged, name, &format!("{block}-{number}"))?);
            }
        }
    }

    open.replace("WRITE", &old, new)
}

/// Divides the metrics of a day into ranges of about `file_rows` rows. A metric is not divided.
fn parts(day: &[DayRows], file_rows: u64) -> Vec<RangeInclusive<i32>> {
    let mut parts = Vec::new();
    let mut rows = 0;
    for metric in day {
        if rows == 0 {
            parts.push(metric.metric_hash..=metric.metric_hash);
        }
        if let Some(last) = parts.last_mut() {
            *last = *last.start()..=metric.metric_hash;
        }
        rows += metric.rows;
        if rows >= file_rows {
            rows = 0;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_divided_between_metrics() {
        let metric = |metric_hash, rows| DayRows {
            day: "2026-11-22".to_owned(),
            metric_hash,
            rows,
        };
        let day = [
            metric(-9, 40),
            metric(-5, 70),
            metric(0, 500),
            metric(3, 10),
            metric(8, 10),
        ];
        assert_eq!(parts(&day, 100), [-9..=-5, 0..=0, 3..=8]);
        assert_eq!(parts(&day, 1000), [-9..=8]);
        assert_eq!(parts(&[], 100), []);
    }
}
