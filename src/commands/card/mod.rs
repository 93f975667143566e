//! `takt card`: cards (physical GPUs), their verdicts, and what a vendor wants to see with one.

mod bundle;

use super::{ask, instant, print, source};
use crate::cli::{ListingFormat, Place};
use crate::output::{self, stdout};
use crate::person::operator;
use crate::source::Source;
use clap::{Args, Subcommand, ValueEnum};
use jiff::tz::TimeZone;
use std::io::Write;
use std::path::PathBuf;
use takt_questions::listing::{Column, Listing};
use takt_questions::{
    CardLine, CardNoteOrder, CardQuestion, CardReport, CardVerdict, CardsQuestion, CauseState,
    FaultOrigin,
};
use takt_server::{Failure, OrUsage};
use takt_store::Database;

#[derive(Debug, Subcommand)]
pub enum CardCommand {
    /// List cards with their verdicts, the worst first
    List(CardList),
    /// Show one card: verdict, criteria, card or slot, history
    Show(CardShow),
    /// Note something about a card, for operators
    Note(CardNoteArgs),
    /// Write what a vendor wants to see with a returned card into an archive
    Bundle(CardBundleArgs),
}

#[derive(Debug, Args)]
pub struct CardList {
    /// Only cards in this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Only cards with this verdict
    #[arg(long, value_enum)]
    pub verdict: Option<VerdictName>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// A verdict on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VerdictName {
    /// Nothing speaks against it
    Healthy,
    /// Something happened that may come back
    Watch,
    /// The card or its slot needs a person
    Inspect,
    /// A criterion of NVIDIA for a return is met
    Return,
}

#[derive(Debug, Args)]
pub struct CardShow {
    /// Serial number, or UUID
    pub serial: String,
    /// Output format; csv has the history
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct CardNoteArgs {
    /// Serial number, or UUID
    pub serial: String,
    /// The text, one line
    pub text: String,
}

#[derive(Debug, Args)]
pub struct CardBundleArgs {
    /// Serial number, or UUID
    pub serial: String,
    /// Archive to write; it must not exist
    #[arg(short, long, value_name = "FILE.tar.gz")]
    pub output: PathBuf,
    /// With names of users, accounts and processes, and with the notes
    #[arg(long)]
    pub with_names: bool,
}

impl From<VerdictName> for CardVerdict {
    fn from(name: VerdictName) -> Self {
        match name {
            VerdictName::Healthy => Self::Healthy,
            VerdictName::Watch => Self::Watch,
            VerdictName::Inspect => Self::Inspect,
            VerdictName::Return => Self::Return,
        }
    }
}

/// Runs the command.
pub fn run(place: &Place, asked: &CardCommand) -> Result<(), Failure> {
    match asked {
        CardCommand::List(asked) => list(place, asked),
        CardCommand::Show(asked) => show(place, asked),
        CardCommand::Note(asked) => note(place, asked),
        CardCommand::Bundle(asked) => {
            let (report, _) = read(place, &asked.serial)?;
            bundle::write(&report, asked.with_names, &asked.output)
        }
    }
}

/// Reads a card, and the time zone of its cluster.
fn read(place: &Place, name: &str) -> Result<(CardReport, TimeZone), Failure> {
    let source: Source<Database> = source(place)?;
    let question = CardQuestion {
        card: name.to_owned(),
        ..CardQuestion::default()
    };
    let answer = source.ask(&question)?;
    let error = || {
        let near = match answer.near.as_str() {
            "" => "; takt card list has all cards",
            near => near,
        };
        anyhow::anyhow!("no card {name} is known{near}")
    };
    let report = answer.card.ok_or_else(error).usage()?;
    Ok((report, source.zone()))
}

fn list(place: &Place, asked: &CardList) -> Result<(), Failure> {
    let source: Source<Database> = source(place)?;
    let cards = source.ask(&CardsQuestion {
        node: asked.node.clone(),
        verdict: asked.verdict.map(CardVerdict::from),
        ..CardsQuestion::default()
    })?;
    if cards.is_empty() {
        tracing::warn!(
            "no such card is known; cards become known when a server scrapes their exporters"
        );
    }
    print(asked.format, &lines(&cards, &source.zone()), &cards)
}

fn lines(cards: &[CardLine], zone: &TimeZone) -> Listing {
    use Column::{Number, Text, Time};
    let mut listing = Listing::new(&[
        Text("card"),
        Text("model"),
        Text("node"),
        Text("slot"),
        Time("since"),
        Time("last_seen"),
        Text("verdict"),
        Text("criterion"),
        Number("faults"),
        Number("hardware_faults"),
        Number("jobs_killed"),
        Text("uuid"),
    ])
    .omitting(&["uuid", "last_seen", "faults", "model", "slot"]);

    for card in cards {
        listing.push(vec![
            card.card.clone(),
            card.model.clone(),
            card.node.clone().unwrap_or_default(),
            card.slot.clone().unwrap_or_default(),
            instant(Some(card.since), zone),
            instant(Some(card.seen), zone),
            card.verdict.word().to_owned(),
            card.criterion.clone(),
            card.faults.to_string(),
            card.hardware_faults.to_string(),
            card.jobs_killed.to_string(),
            card.uuid.clone(),
        ]);
    }
    listing
}

fn show(place: &Place, asked: &CardShow) -> Result<(), Failure> {
    let (report, zone) = read(place, &asked.serial)?;
    let history = history(&report, &zone);
    if asked.format != ListingFormat::Table {
        return print(asked.format, &history, &report);
    }

    let mut out = stdout();
    write!(out, "{}", heading(&report, &zone))?;
    writeln!(out, "\nHistory")?;
    history.write_table(output::width(), &mut out)?;
    if !report.notes.is_empty() {
        writeln!(out, "\nNotes")?;
        for note in &report.notes {
            let at = instant(Some(note.at), &zone);
            writeln!(out, "{at}  {}: {}", note.author, note.text)?;
        }
    }
    Ok(())
}

fn history(report: &CardReport, zone: &TimeZone) -> Listing {
    let mut listing = Listing::new(&[Column::Time("time"), Column::Text("what")]);
    for line in &report.diagnosis.evidence {
        listing.push(vec![instant(Some(line.at), zone), line.text.clone()]);
    }
    listing
}

/// The verdict and its reasons, in lines.
fn heading(report: &CardReport, zone: &TimeZone) -> String {
    let last = report.last_placement();
    let diagnosis = &report.diagnosis;
    let mut lines = vec![format!(
        "Card {}: {}",
        report.card,
        diagnosis.verdict.word()
    )];

    let place = format!("{} in {}", last.slot, last.node);
    let [since, seen] = [last.from, last.seen].map(|at| instant(Some(at), zone));
    lines.push(match last.to {
        None => format!("{}, {place} since {since}, last seen {seen}", last.model),
        Some(_) => format!("{}, taken out: last seen {place} at {seen}", last.model),
    });
    lines.push(format!(
        "UUID {}, driver {}, firmware {}",
        last.uuid, last.driver, last.vbios
    ));

    for finding in &diagnosis.findings {
        let since = instant(Some(finding.since), zone);
        lines.push(String::new());
        lines.push(format!(
            "{}: {} ({since})",
            finding.verdict.word(),
            finding.criterion
        ));
        lines.push(format!("    criterion of: {}", finding.source));
        lines.push(format!("    to do: {}", finding.action));
    }

    let origin = match diagnosis.origin.origin {
        FaultOrigin::Card => "the card",
        FaultOrigin::Slot => "the slot",
        FaultOrigin::Unknown => "not known",
    };
    lines.push(String::new());
    lines.push(format!("Card or slot: {origin}; {}", diagnosis.origin.why));
    for cause in &diagnosis.causes {
        let state = match cause.state {
            CauseState::RuledOut => "ruled out",
            CauseState::Suspected => "suspected",
            CauseState::Unknown => continue,
        };
        lines.push(format!("{}: {state}; {}", cause.cause, cause.evidence));
    }
    lines.push(format!(
        "Jobs that its faults ended: {}",
        report.killed.len()
    ));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn note(place: &Place, asked: &CardNoteArgs) -> Result<(), Failure> {
    let order = CardNoteOrder {
        card: asked.serial.clone(),
        text: asked.text.clone(),
        by: operator(),
        ..CardNoteOrder::default()
    };
    let note = ask(place, &order)?;
    Ok(writeln!(
        stdout(),
        "noted about card {}, as {}",
        note.card,
        note.author
    )?)
}
