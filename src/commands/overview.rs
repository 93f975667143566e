//! `takt` without a command: the state of the server, or how to start one.

use crate::cli::Place;
use crate::client::Server;
use crate::output::stdout;
use crate::place;
use crate::source;
use std::io::{self, Write};
use std::mem;
use std::path::Path;
use takt_model::words::amount;
use takt_questions::{
    AboutQuestion, AlertsAnswer, AlertsQuestion, ClusterAnswer, ClusterQuestion, GpuState,
    SourcesQuestion, UsageQuestion, source_warnings,
};
use takt_server::Failure;

/// Number of alerts that are named.
const NAMED: usize = 2;

const HOW_TO_START: &str = "\
Takt monitors GPU clusters. No server runs here. Three ways to start:

  takt demo                      see Takt with a simulated cluster; needs no GPU and no Slurm
  takt up                        monitor this machine; needs no configuration
  takt init                      propose a configuration for a cluster, for: takt serve

To query the server of another machine: takt --server http://head:9856 jobs
takt help lists all commands.
";

/// Runs the command.
pub fn run(place: &Place) -> Result<(), Failure> {
    if let Some((mistake, file)) = place::mistake(place) {
        show_despite_mistakes(place, &file)?;
        return Err(Failure::Usage(mistake));
    }

    // A named server that does not answer is an error; without a name this may be the first call
    // ever.
    let is_named = place.server.is_some() || place.config.is_some();
    match source::server(place::find(place)?.1) {
        Ok(server) => show(&server),
        Err(error) if is_named => Err(error),
        Err(_) => Ok(stdout().write_all(HOW_TO_START.as_bytes())?),
    }
}

/// Shows the server that runs with what it read before the mistakes, or says that none runs.
fn show_despite_mistakes(place: &Place, file: &Path) -> io::Result<()> {
    let config = place::despite_mistakes(file);
    let shown = place::whereabouts(place, &config)
        .and_then(source::server)
        .and_then(|server| show(&server));
    let said = place::running_despite_mistakes(place, &config, shown.is_ok());
    writeln!(stdout(), "{said}")
}

fn show(server: &Server) -> Result<(), Failure> {
    let about = server.ask(&AboutQuestion {})?;
    let cluster = server.ask(&ClusterQuestion {
        cluster: about.cluster.clone(),
        ..ClusterQuestion::default()
    });

    // One part that fails, for its rights or its age, leaves the other lines.
    let counted = |words: fn(&ClusterAnswer) -> String| match &cluster {
        Ok(cluster) => words(cluster),
        Err(failure) => reason(failure),
    };
    let usage = UsageQuestion {
        cluster: about.cluster.clone(),
        ..UsageQuestion::default()
    };

    let lines = [
        format!(
            "Takt {} monitors {} ({})",
            about.version,
            about.cluster.as_deref().unwrap_or("several clusters"),
            server.url()
        ),
        format!("  nodes   {}", counted(nodes)),
        format!("  GPUs    {}", counted(gpus)),
        format!("  jobs    {}", counted(jobs)),
        format!(
            "  alerts  {}",
            alerts(server).unwrap_or_else(|failure| reason(&failure))
        ),
        format!("  month   {}", month(server, &usage)),
    ];

    let sources = server.ask(&SourcesQuestion {}).unwrap_or_default();
    let warnings = source_warnings(&sources);
    let warnings = warnings
        .iter()
        .map(|warning| format!("  !       {warning}"));

    let mut out = stdout();
    let mut lines = lines.into_iter().chain(warnings);
    Ok(lines.try_for_each(|line| writeln!(out, "{line}"))?)
}

fn nodes(cluster: &ClusterAnswer) -> String {
    match cluster.nodes.len() {
        0 => "none: no target has answered yet, or none is configured".to_owned(),
        all => {
            let unscraped = match cluster.nodes_unscraped {
                0 => String::new(),
                count => format!(", {count} not scraped"),
            };
            format!("{} of {all} answer{unscraped}", cluster.nodes_up)
        }
    }
}

/// Returns the number of GPUs by state: `8: 4 busy, 3 free, 1 lost`.
fn gpus(cluster: &ClusterAnswer) -> String {
    let counts = &cluster.gpus;
    let by_state = GpuState::ALL.map(|state| (counts.of(state), state.words()));
    let by_state: Vec<String> = by_state
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    match counts.all {
        0 => "none found".to_owned(),
        all => format!("{all}: {}", by_state.join(", ")),
    }
}

fn jobs(cluster: &ClusterAnswer) -> String {
    match (cluster.jobs_running, cluster.jobs_pending) {
        (Some(running), Some(pending)) => format!("{running} running, {pending} pending"),
        _ => "none known: no scheduler and no exporter has named one".to_owned(),
    }
}

/// Returns why a line has no values.
fn reason(failure: &Failure) -> String {
    let (Failure::Usage(error) | Failure::Failed(error)) = failure;
    format!("unknown: {error:#}")
}

/// Returns the number of firing alerts that report a fault, and names the first ones.
fn alerts(server: &Server) -> Result<String, Failure> {
    Ok(words_of_alerts(&server.ask(&AlertsQuestion {})?))
}

fn words_of_alerts(answer: &AlertsAnswer) -> String {
    // The answer may be cut, so the others are only counted.
    let firing = answer.alerts.len() + answer.more;
    // Who looks wants the causes: consequences are not sent either.
    let (mut consequences, mut causes): (Vec<_>, Vec<_>) = answer
        .alerts
        .iter()
        .partition(|alert| alert.is_consequence());
    // The answer lacks the causes.
    if causes.is_empty() {
        mem::swap(&mut causes, &mut consequences);
    }

    let named = causes
        .iter()
        .take(NAMED)
        .map(|alert| match alert.labels.get("node") {
            None => alert.name.clone(),
            Some(node) => format!("{} on {node}", alert.name),
        })
        .collect::<Vec<_>>()
        .join(", ");

    let more = (causes.len() + answer.more).saturating_sub(NAMED);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let follow = match consequences.len() {
        0 => String::new(),
        1 => "; 1 is a consequence".to_owned(),
        count => format!("; {count} are consequences"),
    };
    match firing {
        0 => "none firing".to_owned(),
        firing => format!("{firing} firing: {named}{more}{follow}"),
    }
}

/// Returns the usage of the current month; the reason if the server has none.
fn month(server: &Server, question: &UsageQuestion) -> String {
    let report = match server.ask(question) {
        Ok(report) => report,
        Err(failure) => return reason(&failure),
    };

    let totals = &report.totals;
    let gpu_hours = totals
        .gpu_hours
        // A cluster without GPUs has no line about them.
        .filter(|hours| *hours > 0.0)
        .map_or_else(String::new, |hours| {
            format!("{} GPU-hours and ", amount(hours))
        });
    let cpu_hours = amount(totals.cpu_hours);

    format!(
        "{gpu_hours}{cpu_hours} CPU-hours since {}",
        &report.from[..10]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_questions::ActiveAlert;

    #[test]
    fn causes_are_named_and_consequences_counted() {
        let alert = |name: &str, cause: Option<&str>| ActiveAlert {
            name: name.to_owned(),
            inhibited_by: cause.map(str::to_owned),
            labels: [("node".to_owned(), "node0".to_owned())].into(),
            ..ActiveAlert::default()
        };
        let words = |alerts: &[ActiveAlert], more: usize| {
            words_of_alerts(&AlertsAnswer {
                alerts: alerts.to_vec(),
                more,
                ..AlertsAnswer::default()
            })
        };

        let follow = |name| alert(name, Some("f1"));
        let lost = [
            follow("GpuCountMismatch"),
            follow("GpuNotAnswering"),
            alert("GpuFellOffBus", None),
        ];
        assert_eq!(words(&[], 0), "none firing");
        assert_eq!(
            words(&lost, 0),
            "3 firing: GpuFellOffBus on node0; 2 are consequences"
        );
        assert_eq!(words(&lost[2..], 0), "1 firing: GpuFellOffBus on node0");

        let others = ["A", "B", "C"].map(|name| alert(name, None));
        assert_eq!(
            words(&[&lost[1..], &others].concat(), 7),
            "12 firing: GpuFellOffBus on node0, A on node0 and 9 more; 1 is a consequence"
        );
        // The cause is not in the answer.
        assert_eq!(
            words(&lost[..2], 0),
            "2 firing: GpuCountMismatch on node0, GpuNotAnswering on node0"
        );
    }
}
