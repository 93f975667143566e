//! `takt report usage`.

use super::source;
use crate::cli::{Place, ReportUsage};
use crate::failure::Failure;
use crate::report;
use std::io::{BufWriter, Write};
use takt_collector::api::UsageQuestion;

/// Runs the command.
pub fn usage(place: &Place, asked: &ReportUsage) -> Result<(), Failure> {
    let question = UsageQuestion {
        month: asked.month.clone(),
        from: asked.from.clone(),
        to: asked.to.clone(),
        by: asked.by.join(","),
        user: asked.user.clone(),
        cluster: asked.cluster.clone(),
    };
    let report = source(place)?.usage(&question)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    report::write_usage(&report, &asked.by, asked.format, &mut out)?;
    Ok(out.flush()?)
}
