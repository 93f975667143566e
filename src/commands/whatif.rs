//! `takt whatif`: what other nodes, limits or requests would have changed in a past period.

use super::{ask, print};
use crate::cli::{ListingFormat, Place};
use crate::output::{self, stdout};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;
use takt_model::words::{UNKNOWN, amount, percent};
use takt_questions::listing::{Column, Listing, printable};
use takt_questions::{UseRow, WaitTrend, WhatIfAnswer, WhatIfQuestion};
use takt_server::Failure;

#[derive(Debug, Args)]
pub struct WhatIf {
    /// Add these nodes: g[31-34]
    #[arg(long, value_name = "NODES")]
    pub add: Option<String>,
    /// Node that the added ones resemble. Optional if all nodes are alike
    #[arg(long, value_name = "NODE", requires = "add")]
    pub like: Option<String>,
    /// Remove these nodes
    #[arg(long, value_name = "NODES")]
    pub remove: Option<String>,
    /// Largest time limit of a partition, in hours: gpu=24; may be given for several
    #[arg(long, value_name = "PARTITION=HOURS")]
    pub limit: Vec<String>,
    /// As if every job had asked for the time that it ran
    #[arg(long, value_name = "used")]
    pub runtime: Option<String>,
    /// As if these nodes had not failed
    #[arg(long, value_name = "NODES")]
    pub node_ok: Option<String>,
    /// This many times as many jobs: 1.2 for 20 % more
    #[arg(long, value_name = "FACTOR")]
    pub requests: Option<f64>,
    /// Month, such as 2026-10 [default: the last four weeks with records]
    #[arg(long, value_name = "YYYY-MM", conflicts_with_all = ["from", "to"])]
    pub month: Option<String>,
    /// Start of the period: a date, a time, an instant (RFC 3339), -7d
    #[arg(long, value_name = "TIME", requires = "to", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// End of the period (exclusive), in the same forms, or now
    #[arg(
        long,
        value_name = "TIME",
        requires = "from",
        allow_hyphen_values = true
    )]
    pub to: Option<String>,
    /// Cluster; required if the records have several
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Maximum number of pairs of replays, from which intervals are
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub replays: u32,
    /// Time for the replays; the first ones may take three times as long
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub seconds: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Width of the output, in columns.
const WIDTH: usize = 80;

const HOUR: f64 = 3600.0;

/// Runs the command. Without a change it prints the back-test.
pub fn run(place: &Place, asked: &WhatIf) -> Result<(), Failure> {
    let question = WhatIfQuestion {
        add: asked.add.clone(),
        like: asked.like.clone(),
        remove: asked.remove.clone(),
        limit: (!asked.limit.is_empty()).then(|| asked.limit.join(",")),
        runtime: asked.runtime.clone(),
        node_ok: asked.node_ok.clone(),
        requests: asked.requests,
        month: asked.month.clone(),
        from: asked.from.clone(),
        to: asked.to.clone(),
        cluster: asked.cluster.clone(),
        replays: asked.replays,
        seconds: asked.seconds,
    };

    let bar = spinner(asked.seconds);
    let answer = ask(place, &question);
    bar.finish_and_clear();
    let answer = answer?;

    let listing = if answer.pairs > 0 {
        differences(&answer)
    } else {
        back_test(&answer)
    };
    if asked.format == ListingFormat::Table {
        let mut text = String::new();
        head(&answer, &mut text);
        let mut out = stdout();
        out.write_all(text.as_bytes())?;
        listing.write_table(output::width(), &mut out)?;
        let mut text = String::new();
        foot(&answer, &mut text);
        out.write_all(text.as_bytes())?;
    } else {
        print(asked.format, &listing, &answer)?;
    }

    // A program that asks for a what-if must see that it got none.
    if answer.pairs == 0 && !answer.changes.is_empty() {
        let error = "the replay is not close to the records, so no what-if is answered";
        return Err(Failure::Failed(anyhow::anyhow!(error)));
    }
    Ok(())
}

/// Shows that the command works; hidden unless stderr is a terminal.
fn spinner(seconds: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(200));
    bar.set_message(format!("replaying; about {seconds} s at most"));
    let template = "{spinner} {msg} ({elapsed})";
    bar.with_style(ProgressStyle::with_template(template).expect("the template is well-formed"))
}

/// The period, how close the replay is, and the changes with what they do to the whole cluster.
fn head(answer: &WhatIfAnswer, text: &mut String) {
    let title = format!(
        "{}, {}: {} jobs on {} nodes",
        answer.cluster, answer.period, answer.jobs, answer.nodes
    );
    paragraph(&title, text);
    paragraph(&answer.words, text);
    if !answer.changes.is_empty() {
        let changes = format!("What if: {}.", answer.changes.join("; "));
        paragraph(&changes, text);
    }
    if answer.pairs > 0 {
        let uses = answer.uses.first().cloned().unwrap_or_default();
        let change = answer.use_change;
        let points = |ratio: f64| format!("{:+.1}", ratio * 100.0);
        let sum = format!(
            "Utilization {} instead of {} ({} points, {} to {}); {} GPU-hours instead of {}.",
            share(uses.second),
            share(uses.first),
            points(change.middle),
            points(change.low),
            points(change.high),
            amount(answer.gpu_hours[1]),
            amount(answer.gpu_hours[0]),
        );
        paragraph(&sum, text);
        if answer.lost_jobs > 0 {
            let lost = format!(
                "{} jobs then fit on no nodes and never start.",
                answer.lost_jobs
            );
            paragraph(&lost, text);
        }
    }
    text.push('\n');
}

/// What the figures are, and what the replays do not know.
fn foot(answer: &WhatIfAnswer, text: &mut String) {
    text.push('\n');
    if answer.pairs > 0 {
        let pairs = match answer.pairs {
            1 => "Of one pair of replays, without an interval: choose a shorter period or more --seconds.".to_owned(),
            pairs => format!(
                "Waits before > after, in hours; the change of the mean with the interval of four fifths of {pairs} pairs of \
                 replays with other run times (±10 %) and orders (5 min)."
            ),
        };
        paragraph(&pairs, text);
    } else {
        paragraph("Waits recorded > replayed, in hours.", text);
    }
    if answer.is_reduced {
        paragraph(
            "Rows about other users are left out, as you may not see them.",
            text,
        );
    }
    let rules: Vec<String> = answer
        .not_modelled
        .iter()
        .map(|rule| match rule.count {
            Some(count) => format!("{} ({count})", rule.rule),
            None => rule.rule.clone(),
        })
        .collect();
    paragraph(&format!("Not modelled: {}.", rules.join("; ")), text);
}

fn paragraph(words: &str, text: &mut String) {
    for line in output::wrapped(&printable(words), WIDTH) {
        text.push_str(&line);
        text.push('\n');
    }
}

fn share(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| UNKNOWN.to_owned(), percent)
}

/// Hours of a wait, to the hundredth.
fn hours(seconds: f64) -> String {
    format!("{:.2}", seconds / HOUR)
}

/// A row for each group of jobs.
fn differences(answer: &WhatIfAnswer) -> Listing {
    use Column::{Number, Text};
    let mut listing = Listing::new(&[
        Text("of"),
        Text("name"),
        Number("jobs"),
        Number("median"),
        Number("median after"),
        Number("p90"),
        Number("p90 after"),
        Number("mean"),
        Number("mean after"),
        Number("change"),
        Number("low"),
        Number("high"),
        Text("who"),
    ])
    .omitting(&["median", "median after", "p90", "p90 after"]);

    for row in &answer.rows {
        let change = row.mean_change_seconds;
        let who = match row.trend {
            WaitTrend::Wins => "wins",
            WaitTrend::Loses => "loses",
            WaitTrend::Same => "",
        };

        listing.push(vec![
            row.by.name().to_owned(),
            row.name.clone(),
            row.jobs.to_string(),
            hours(row.before.median_seconds),
            hours(row.after.median_seconds),
            hours(row.before.p90_seconds),
            hours(row.after.p90_seconds),
            hours(row.before.mean_seconds),
            hours(row.after.mean_seconds),
            hours(change.middle),
            hours(change.low),
            hours(change.high),
            who.to_owned(),
        ]);
    }
    listing
}

/// A row for each partition and class of sizes, and one for the cluster.
fn back_test(answer: &WhatIfAnswer) -> Listing {
    use Column::{Number, Text};
    let mut listing = Listing::new(&[
        Text("partition"),
        Text("size"),
        Number("jobs"),
        Number("median"),
        Number("median replayed"),
        Number("p90"),
        Number("p90 replayed"),
        Number("error median"),
        Number("error p90"),
        Text("used"),
        Text("used replayed"),
    ])
    .omitting(&["error median", "error p90", "used", "used replayed"]);

    let test = &answer.back_test;
    for row in [&test.all].into_iter().chain(&test.rows) {
        // Utilization is that of a partition, and stands in its first row.
        let is_first = !test
            .rows
            .iter()
            .take_while(|other| !std::ptr::eq(*other, row))
            .any(|other| other.partition == row.partition);

        let uses: Option<&UseRow> = answer
            .back_test_use
            .iter()
            .find(|one| is_first && one.partition == row.partition);
        let used =
            |of: fn(&UseRow) -> Option<f64>| uses.map_or_else(String::new, |uses| share(of(uses)));
        let name = if row.partition.is_empty() {
            "all"
        } else {
            &row.partition
        };

        listing.push(vec![
            name.to_owned(),
            row.size.clone(),
            row.jobs.to_string(),
            hours(row.median_wait_seconds as f64),
            hours(row.median_replayed_seconds as f64),
            hours(row.p90_wait_seconds as f64),
            hours(row.p90_replayed_seconds as f64),
            hours(row.median_error_seconds as f64),
            hours(row.p90_error_seconds as f64),
            used(|uses| uses.first),
            used(|uses| uses.second),
        ]);
    }
    listing
}
