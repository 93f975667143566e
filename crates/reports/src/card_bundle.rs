//! The files that a vendor wants to see with a card that is returned.

use std::borrow::Cow;
use std::fmt::Write;
use std::io;
use takt_jobs::CardPlacement;
use takt_model::UnixTime;
use takt_model::shown::printable;
use takt_questions::listing::{Column, Listing};
use takt_questions::{CardReport, CardVerdict, CauseState, FaultOrigin};

/// Lines of the timeline in the README, the newest ones; timeline.csv has all.
const README_LINES: usize = 25;

/// What the bundle is made of.
#[derive(Debug, Clone, Copy)]
pub struct CardBundle<'b> {
    /// The card.
    pub report: &'b CardReport,
    /// Time of writing.
    pub written_at: UnixTime,
    /// Version of Takt.
    pub version: &'b str,
    /// Whether names of users, processes and operators go along.
    pub with_names: bool,
}

/// Returns the files, each with its name.
///
/// # Errors
/// If a table cannot be written, which memory does not refuse.
pub fn card_files(bundle: &CardBundle<'_>) -> io::Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("README.md", readme(bundle)),
        ("timeline.csv", csv(&timeline(bundle))?),
        ("placements.csv", csv(&placements(bundle))?),
        ("xid.csv", csv(&xids(bundle))?),
        ("counters.csv", csv(&counters(bundle))?),
        ("jobs.csv", csv(&jobs(bundle))?),
        ("versions.txt", versions(bundle)),
    ])
}

/// Files that only the node or the vendor's tools can make, each with the command.
const MISSING: [(&str, &str); 5] = [
    (
        "nvidia-bug-report.log.gz",
        "`sudo nvidia-bug-report.sh` at once, before a reset; if it hangs: power-cycle the node, run it again, send both",
    ),
    ("BMC event log", "`sudo ipmitool sel elist > sel.txt`"),
    ("PCIe state", "`sudo lspci -vvv > lspci.txt`"),
    (
        "chassis serial and board part number",
        "`sudo dmidecode -t system > dmi.txt`, `nvidia-smi -q > nvidia-smi.txt`",
    ),
    (
        "field diagnostic",
        "NVIDIA's field diagnostic for this model, from your vendor; keep its log. A return needs it",
    ),
];

fn readme(bundle: &CardBundle<'_>) -> String {
    let report = bundle.report;
    let diagnosis = &report.diagnosis;
    let last = report.last_placement();
    let mut text = String::new();
    // Writing to a text cannot fail. Names of nodes and models come from the network, hence `printable`.
    let mut say = |line: String| {
        let _ = writeln!(text, "{}", printable(&line));
    };

    say(format!(
        "# Card {}: {}",
        report.card,
        diagnosis.verdict.word()
    ));
    say(String::new());
    say(format!(
        "Written by Takt {} at {} (UTC).",
        bundle.version,
        time(bundle.written_at)
    ));
    say(String::new());
    say("## Claim".to_owned());
    say(String::new());
    say(claim(diagnosis.verdict).to_owned());
    say(String::new());
    let known = |text: &str| {
        if text.is_empty() {
            "unknown".to_owned()
        } else {
            text.to_owned()
        }
    };
    say(format!("- model: {}", known(&last.model)));
    say(format!("- serial number: {}", known(&last.serial)));
    say(format!("- UUID: {}", known(&last.uuid)));
    say(format!(
        "- firmware (VBIOS): {}; driver: {}",
        known(&last.vbios),
        known(&last.driver)
    ));
    say(format!("- {}", whereabouts(&last)));

    say(String::new());
    say("## Criteria that are met".to_owned());
    say(String::new());
    if diagnosis.findings.is_empty() {
        say("None.".to_owned());
    }
    for finding in &diagnosis.findings {
        say(format!(
            "- **{}**: {}, {} ({})",
            finding.verdict.word(),
            finding.criterion,
            time(finding.since),
            finding.source
        ));
        say(format!("  - to do: {}", finding.action));
    }

    say(String::new());
    say("## Card or slot?".to_owned());
    say(String::new());
    say(format!(
        "{}: {}.",
        origin_word(diagnosis.origin.origin),
        diagnosis.origin.why
    ));

    say(String::new());
    say("## Usual causes".to_owned());
    say(String::new());
    for cause in &diagnosis.causes {
        let state = match cause.state {
            CauseState::RuledOut => "ruled out",
            CauseState::Suspected => "suspected",
            CauseState::Unknown => "not known",
        };
        say(format!("- {}: {state}; {}", cause.cause, cause.evidence));
    }

    say(String::new());
    say("## Placements and swaps".to_owned());
    say(String::new());
    for placement in &report.placements {
        let until = match placement.to {
            Some(to) => format!("until {}", time(to)),
            None => format!("last seen {}", time(placement.seen)),
        };
        say(format!(
            "- {} in {}: from {}, {until}",
            placement.slot,
            placement.node,
            time(placement.from)
        ));
    }

    say(String::new());
    say("## Timeline".to_owned());
    say(String::new());
    let cut = diagnosis.evidence.len().saturating_sub(README_LINES);
    if cut > 0 {
        say(format!("The {cut} lines before are in timeline.csv."));
        say(String::new());
    }
    for line in &diagnosis.evidence[cut..] {
        say(format!("- {} {}", time(line.at), line.text));
    }
    say(String::new());
    say(format!(
        "Jobs that its faults ended: {}.",
        report.killed.len()
    ));

    if bundle.with_names && !report.notes.is_empty() {
        say(String::new());
        say("## Notes".to_owned());
        say(String::new());
        for note in &report.notes {
            say(format!(
                "- {} {}: {}",
                time(note.at),
                note.author,
                note.text
            ));
        }
    }

    say(String::new());
    say("## Missing here".to_owned());
    say(String::new());
    say(format!("Run on {} and add the files:", known(&last.node)));
    say(String::new());
    for (what, command) in MISSING {
        say(format!("- {what}: {command}"));
    }
    text
}

fn claim(verdict: CardVerdict) -> &'static str {
    match verdict {
        CardVerdict::Return => {
            "The driver has set a flag that NVIDIA's policy names as a reason for a return. A return also needs a field \
             diagnostic that confirms it."
        }
        CardVerdict::Inspect => {
            "The card or its slot needs a person. No flag is set that NVIDIA's policy names as a reason for a return."
        }
        CardVerdict::Watch => {
            "Something happened that may come back. It is no reason for a return."
        }
        CardVerdict::Healthy => "Nothing speaks against the card.",
    }
}

fn origin_word(origin: FaultOrigin) -> &'static str {
    match origin {
        FaultOrigin::Card => "The card",
        FaultOrigin::Slot => "The slot",
        FaultOrigin::Unknown => "Not known",
    }
}

fn whereabouts(last: &CardPlacement) -> String {
    match last.to {
        None => format!(
            "in {}, slot {}, since {}",
            last.node,
            last.slot,
            time(last.from)
        ),
        Some(to) => format!(
            "taken out; last seen in {}, slot {}, at {}",
            last.node,
            last.slot,
            time(to)
        ),
    }
}

fn timeline(bundle: &CardBundle<'_>) -> Listing {
    let mut listing = Listing::new(&[Column::Text("time"), Column::Text("what")]);
    for line in &bundle.report.diagnosis.evidence {
        listing.push(vec![time(line.at), line.text.clone()]);
    }
    listing
}

fn placements(bundle: &CardBundle<'_>) -> Listing {
    let columns = [
        "node",
        "slot",
        "index",
        "from",
        "last_seen",
        "to",
        "uuid",
        "driver",
        "vbios",
    ];
    let mut listing = Listing::new(&columns.map(Column::Text));
    for one in &bundle.report.placements {
        listing.push(vec![
            one.node.clone(),
            one.slot.clone(),
            one.index
                .map_or_else(String::new, |index| index.to_string()),
            time(one.from),
            time(one.seen),
            one.to.map_or_else(String::new, time),
            one.uuid.clone(),
            one.driver.clone(),
            one.vbios.clone(),
        ]);
    }
    listing
}

fn xids(bundle: &CardBundle<'_>) -> Listing {
    let columns = [
        "time", "xid", "kind", "node", "slot", "boot_id", "meaning", "line",
    ];
    let mut listing = Listing::new(&columns.map(Column::Text));
    for fault in &bundle.report.faults {
        let kind = serde_json::to_value(fault.kind).ok();
        let line = if bundle.with_names {
            Cow::Borrowed(fault.line.as_str())
        } else {
            without_process(&fault.line)
        };
        listing.push(vec![
            time(fault.at),
            fault.xid.map_or_else(String::new, |xid| xid.to_string()),
            kind.and_then(|kind| kind.as_str().map(str::to_owned))
                .unwrap_or_default(),
            fault.node.clone(),
            fault.slot.clone(),
            fault.boot_id.clone().unwrap_or_default(),
            fault.meaning.clone(),
            line.into_owned(),
        ]);
    }
    listing
}

/// The kernel's line without the name of the process, which a user chose.
fn without_process(line: &str) -> Cow<'_, str> {
    let Some(start) = line.find("name=") else {
        return Cow::Borrowed(line);
    };
    let name = start + "name=".len();
    // The channel follows the name. A name may look like one, so the last channel ends it.
    let end = line[name..]
        .rfind(", Ch ")
        .map_or(line.len(), |at| name + at);
    Cow::Owned(format!("{}…{}", &line[..name], &line[end..]))
}

fn counters(bundle: &CardBundle<'_>) -> Listing {
    let columns = [
        "reading",
        "last",
        "highest",
        "lowest",
        "total",
        "resets",
        "first_read",
        "last_read",
        "changed",
    ];
    let mut listing = Listing::new(&columns.map(Column::Text));
    for one in &bundle.report.readings {
        let counter = &one.counter;
        listing.push(vec![
            one.reading.clone(),
            counter.last.to_string(),
            counter.highest.to_string(),
            counter.lowest.to_string(),
            counter.total.to_string(),
            counter.resets.to_string(),
            time(counter.first_seen),
            time(counter.seen),
            time(counter.changed_at),
        ]);
    }
    listing
}

fn jobs(bundle: &CardBundle<'_>) -> Listing {
    let names: &[&str] = if bundle.with_names {
        &["user", "account"]
    } else {
        &[]
    };
    let columns: Vec<Column> = ["job_id", "state", "end", "fault"]
        .iter()
        .chain(names)
        .map(|name| Column::Text(name))
        .collect();
    let mut listing = Listing::new(&columns);
    for job in &bundle.report.killed {
        let mut row = vec![
            job.job_id.clone(),
            job.state.clone(),
            time(job.end),
            job.fault.clone(),
        ];
        if bundle.with_names {
            row.extend([job.user.clone(), job.account.clone()]);
        }
        listing.push(row);
    }
    listing
}

fn versions(bundle: &CardBundle<'_>) -> String {
    let last = bundle.report.last_placement();
    let lines = [
        ("takt", bundle.version),
        ("driver", &last.driver),
        ("vbios", &last.vbios),
        ("model", &last.model),
        ("cluster", &bundle.report.cluster),
    ];
    lines
        .iter()
        .map(|(name, value)| format!("{name} {}\n", printable(value)))
        .collect()
}

fn csv(listing: &Listing) -> io::Result<String> {
    let mut out = Vec::new();
    listing.write_csv(&mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// RFC 3339, in UTC.
fn time(at: UnixTime) -> String {
    jiff::Timestamp::try_from(at).map_or_else(|_| at.to_string(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_questions::{
        CardDiagnosis, CardEvidence, CardFault, CardFinding, FaultKind, KilledJob, OriginReport,
        RuledCause,
    };

    fn report() -> CardReport {
        let at = UnixTime(1_790_000_000);
        CardReport {
            card: "1650924".into(),
            cluster: "lab".into(),
            placements: vec![CardPlacement {
                card: "1650924".into(),
                serial: "1650924".into(),
                uuid: "GPU-1".into(),
                model: "NVIDIA H100".into(),
                driver: "580.95".into(),
                node: "g1".into(),
                slot: "0000:01:00.0".into(),
                from: at - 86_400,
                seen: at,
                ..CardPlacement::default()
            }],
            faults: vec![CardFault {
                at,
                node: "g1".into(),
                slot: "0000:01:00.0".into(),
                xid: Some(79),
                kind: FaultKind::Hardware,
                meaning: "GPU has fallen off the bus".into(),
                line: "NVRM: Xid (PCI:0000:01:00): 79, pid=7, name=secret.py, Ch 0001, GPU".into(),
                ..CardFault::default()
            }],
            killed: vec![KilledJob {
                job_id: "4711".into(),
                user: "ann".into(),
                account: "physics".into(),
                state: "NODE_FAIL".into(),
                end: at + 60,
                fault: "XID 79".into(),
            }],
            notes: vec![takt_store::CardNote {
                card: "1650924".into(),
                at,
                author: "bob".into(),
                text: "reseated".into(),
            }],
            diagnosis: CardDiagnosis {
                verdict: CardVerdict::Return,
                findings: vec![CardFinding {
                    verdict: CardVerdict::Return,
                    since: at,
                    criterion: "replacing a row failed".into(),
                    source: "NVIDIA, RMA policy".into(),
                    action: "run the field diagnostic".into(),
                }],
                origin: OriginReport {
                    origin: FaultOrigin::Unknown,
                    why: "swap it".into(),
                },
                causes: vec![RuledCause {
                    cause: "cooling".into(),
                    state: CauseState::RuledOut,
                    evidence: "heat never held the clocks down".into(),
                }],
                evidence: vec![CardEvidence {
                    at,
                    text: "XID 79\u{1b}[31m".into(),
                }],
            },
            ..CardReport::default()
        }
    }

    fn files(with_names: bool) -> Vec<(&'static str, String)> {
        let report = report();
        let bundle = CardBundle {
            report: &report,
            written_at: UnixTime(1_790_003_600),
            version: "0.1.0",
            with_names,
        };
        card_files(&bundle).unwrap()
    }

    #[test]
    fn the_readme_has_claim_criterion_swaps_causes_and_what_is_missing() {
        let readme = &files(false)[0].1;
        let expected = "\
# Card 1650924: return

Written by Takt 0.1.0 at 2026-09-21T15:13:20Z (UTC).

## Claim

The driver has set a flag that NVIDIA's policy names as a reason for a return. A return also needs a field diagnostic that confirms it.

- model: NVIDIA H100
- serial number: 1650924
- UUID: GPU-1
- firmware (VBIOS): unknown; driver: 580.95
- in g1, slot 0000:01:00.0, since 2026-09-20T14:13:20Z

## Criteria that are met

- **return**: replacing a row failed, 2026-09-21T14:13:20Z (NVIDIA, RMA policy)
  - to do: run the field diagnostic

## Card or slot?

Not known: swap it.

## Usual causes

- cooling: ruled out; heat never held the clocks down

## Placements and swaps

- 0000:01:00.0 in g1: from 2026-09-20T14:13:20Z, last seen 2026-09-21T14:13:20Z

## Timeline
";
        assert!(readme.starts_with(expected), "{readme}");
        for (what, command) in MISSING {
            assert!(readme.contains(&format!("- {what}: {command}\n")), "{what}");
        }
        // A terminal obeys no text of the bundle.
        assert!(!readme.contains('\u{1b}'), "{readme}");
    }

    #[test]
    fn names_go_along_only_when_they_are_asked_for() {
        let all = |with_names| {
            let files = files(with_names);
            files.into_iter().map(|(_, text)| text).collect::<String>()
        };
        let names = ["secret.py", "ann", "physics", "bob", "reseated"];
        let (without, with) = (all(false), all(true));
        for name in names {
            assert!(!without.contains(name), "{name}: {without}");
            assert!(with.contains(name), "{name}: {with}");
        }
        assert!(without.contains("4711,NODE_FAIL,"), "{without}");
        assert!(without.contains("name=…, Ch 0001"), "{without}");
    }
}
