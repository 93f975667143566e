//! `takt capacity`: use of the cluster's resources.

use super::{ask, print, warn_unrecorded};
use crate::cli::{ListingFormat, Period, Place};
use clap::Args;
use takt_accounting::capacity::CapacityReport;
use takt_questions::CapacityQuestion;
use takt_questions::listing::{Column, Listing};
use takt_server::Failure;

#[derive(Debug, Args)]
pub struct Capacity {
    #[command(flatten)]
    pub period: Period,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Runs the command.
pub fn run(place: &Place, asked: &Capacity) -> Result<(), Failure> {
    let question = CapacityQuestion {
        month: asked.period.month.clone(),
        from: asked.period.from.clone(),
        to: asked.period.to.clone(),
        cluster: asked.cluster.clone(),
        days: false,
    };

    let answer = ask(place, &question)?;
    let report = &answer.report;
    // Imported records have jobs but not the cluster's size.
    if report.rows.iter().all(|row| row.reported == 0) {
        tracing::warn!(
            "the cluster's capacity in this period is unknown: only a server that polls Slurm \
             records it"
        );
    }

    warn_unrecorded(place, &report.from, &report.to);
    print(asked.format, &listing(report), &answer)
}

/// One row per resource, in hours; unknown hours are empty.
fn listing(report: &CapacityReport) -> Listing {
    use Column::{Number, Text};
    let mut listing = Listing::new(&[
        Text("resource"),
        Number("allocated_hours"),
        Number("down_hours"),
        Number("planned_down_hours"),
        Number("planned_hours"),
        Number("idle_hours"),
        Number("reported_hours"),
        Number("reserved_idle_hours"),
        Number("overcommitted_hours"),
        Number("stranded_hours"),
        Number("unrecorded_hours"),
    ])
    .omitting(&[
        "reserved_idle_hours",
        "overcommitted_hours",
        "planned_hours",
        "planned_down_hours",
        "reported_hours",
    ]);

    for row in &report.rows {
        // Without a known capacity the other figures mean nothing: every allocation would be
        // overcommitted.
        let hours = |seconds: u64| {
            if row.reported == 0 {
                return String::new();
            }
            format!("{:.1}", seconds as f64 / 3600.0)
        };
        listing.push(vec![
            row.resource.clone(),
            hours(row.allocated),
            hours(row.down),
            hours(row.planned_down),
            hours(row.planned),
            hours(row.idle),
            hours(row.reported),
            hours(row.reserved_idle),
            hours(row.overcommitted),
            row.stranded.map_or_else(String::new, hours),
            hours(row.unrecorded),
        ]);
    }

    listing
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_accounting::capacity::CapacityRow;

    /// An imported month without capacity showed 0 allocated and 189.2 overcommitted hours.
    #[test]
    fn hours_without_a_known_capacity_are_empty() {
        let csv = |reported: u64| {
            let row = CapacityRow {
                resource: "gres/gpu".to_owned(),
                reported,
                overcommitted: 3600,
                ..CapacityRow::default()
            };
            let report = CapacityReport {
                cluster: "lab".to_owned(),
                from: String::new(),
                to: String::new(),
                timezone: "UTC".to_owned(),
                rows: vec![row],
            };
            let mut out = Vec::new();
            listing(&report).write_csv(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let row = |reported| csv(reported).lines().nth(1).map(str::to_owned);
        assert_eq!(
            row(7200).as_deref(),
            Some("gres/gpu,0.0,0.0,0.0,0.0,0.0,2.0,0.0,1.0,,0.0")
        );
        assert_eq!(row(0).as_deref(), Some("gres/gpu,,,,,,,,,,"));
    }
}
