//! What is printed. The lines are those of LBNL Node Health Check (NHC), so that what reads NHC's log reads these.
//!
//! Labels contain texts of others: names of users, servers and devices. None of them may begin a line, hide a part of
//! one, or command a terminal or a shell.

use crate::checks::Action;
use crate::judge::Finding;
use serde::Serialize;
use takt_model::shown::is_unseen;

/// Longest text of a finding, in characters.
const LONGEST_TEXT: usize = 200;

/// Longest reason for `scontrol`, in characters.
const LONGEST_REASON: usize = 240;

/// Whether the node is fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fitness {
    /// No check failed.
    Fit,
    /// A check failed.
    Unfit,
    /// The exporter could not be asked.
    Unknown,
}

#[derive(Serialize)]
struct Report<'a> {
    node: &'a str,
    fitness: Fitness,
    exit_code: u8,
    dry_run: bool,
    /// Why the exporter could not be asked.
    error: Option<String>,
    findings: Vec<ReportedFinding<'a>>,
}

#[derive(Serialize)]
struct ReportedFinding<'a> {
    check: &'a str,
    severity: &'static str,
    gpu: Option<String>,
    message: String,
}

/// The findings as lines of NHC; one line each, errors first.
pub(crate) fn lines(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in of(findings, Action::Fail) {
        let (check, text) = (finding.check, plain(&finding.text, LONGEST_TEXT));
        out.push_str(&format!(
            "ERROR:  nhc:  Health check failed:  check_takt_{check}:  {text}\n"
        ));
    }

    for finding in of(findings, Action::Warn) {
        let (check, text) = (finding.check, plain(&finding.text, LONGEST_TEXT));
        out.push_str(&format!("WARNING:  nhc:  check_takt_{check}:  {text}\n"));
    }

    let failed = of(findings, Action::Fail).count();
    if failed > 1 {
        out.push_str(&format!("ERROR:  nhc:  {failed} health checks failed.\n"));
    }
    out
}

/// The failed checks on one line, for the reason of a drained node; empty if none failed.
pub(crate) fn reason(findings: &[Finding]) -> String {
    let failed: Vec<String> = of(findings, Action::Fail)
        .map(|finding| format!("check_takt_{}: {}", finding.check, finding.text))
        .collect();
    if failed.is_empty() {
        return String::new();
    }
    // The prefix of NHC, by which its own scripts recognise the nodes that they drained.
    plain(&format!("NHC: {}", failed.join("; ")), LONGEST_REASON)
}

/// The command that drains the node, for a shell; empty if no check failed.
pub(crate) fn scontrol(findings: &[Finding], node: &str) -> String {
    let reason = reason(findings);
    if reason.is_empty() {
        return reason;
    }
    let node = shell_word(&format!("NodeName={}", plain(node, LONGEST_TEXT)));
    let reason = shell_word(&format!("Reason={reason}"));
    format!("scontrol update {node} State=DRAIN {reason}\n")
}

/// All of it as JSON on one line.
pub(crate) fn json(
    findings: &[Finding],
    node: &str,
    fitness: Fitness,
    exit_code: u8,
    dry_run: bool,
    error: Option<&str>,
) -> String {
    let reported = findings.iter().map(|finding| ReportedFinding {
        check: finding.check,
        severity: if finding.action == Action::Fail {
            "error"
        } else {
            "warning"
        },
        gpu: finding.gpu.as_ref().map(|uuid| plain(uuid, LONGEST_TEXT)),
        message: plain(&finding.text, LONGEST_TEXT),
    });
    let report = Report {
        node,
        fitness,
        exit_code,
        dry_run,
        error: error.map(|error| plain(error, LONGEST_TEXT)),
        findings: reported.collect(),
    };
    let text = serde_json::to_string(&report).expect("texts and numbers are JSON");
    text + "\n"
}

/// A text on one line without unseen characters, cut to a length. Blanks in a row become one, since NHC's parts are
/// two blanks apart: no name can look like the next part.
pub(crate) fn plain(text: &str, longest: usize) -> String {
    // White space is kept here, because the next step turns each of it into one blank.
    let seen = text.replace(|c| is_unseen(c) && !char::is_whitespace(c), "\u{fffd}");
    let words: Vec<&str> = seen.split_whitespace().collect();
    let text = words.join(" ");
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The text as one word of a POSIX shell.
fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn of(findings: &[Finding], action: Action) -> impl Iterator<Item = &Finding> {
    findings
        .iter()
        .filter(move |finding| finding.action == action)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failed(text: &str) -> Finding {
        Finding {
            check: "gpu_up",
            gpu: None,
            text: text.to_owned(),
            action: Action::Fail,
        }
    }

    #[test]
    fn lines_are_those_of_nhc() {
        let warned = Finding {
            check: "clock",
            action: Action::Warn,
            ..failed("not synchronised")
        };
        assert_eq!(lines(&[]), "");
        assert_eq!(
            lines(&[
                warned.clone(),
                failed("GPU 0 (GPU-a): does not answer: lost")
            ]),
            "ERROR:  nhc:  Health check failed:  check_takt_gpu_up:  GPU 0 (GPU-a): does not answer: lost\n\
             WARNING:  nhc:  check_takt_clock:  not synchronised\n"
        );
        assert_eq!(
            lines(&[failed("a"), failed("b")]).lines().last(),
            Some("ERROR:  nhc:  2 health checks failed.")
        );
        assert_eq!(scontrol(&[warned], "g01"), "", "a warning drains nothing");
    }

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        let finding = failed("user \"o'neil'; reboot #\"");
        assert_eq!(
            scontrol(&[finding], "g01"),
            "scontrol update 'NodeName=g01' State=DRAIN 'Reason=NHC: check_takt_gpu_up: user \
             \"o'\\''neil'\\''; reboot #\"'\n"
        );
    }

    proptest! {
        /// Whatever a user or a device is called, a finding is one line, of a bounded length, with its own beginning.
        #[test]
        fn any_text_makes_one_line(text in "\\PC*|(?s).*", action in any::<bool>()) {
            let mut finding = failed(&text);
            if action {
                finding.action = Action::Warn;
            }
            let said = lines(std::slice::from_ref(&finding));
            prop_assert_eq!(said.matches('\n').count(), 1);
            let begin = if action { "WARNING:  nhc:  check_takt_gpu_up:  " } else { "ERROR:  nhc:  Health check failed:  check_takt_gpu_up:  " };
            let rest = said.trim_end_matches('\n').strip_prefix(begin).unwrap();
            prop_assert!(!rest.contains("  ") && !rest.contains(is_unseen));
            prop_assert!(rest.chars().count() <= LONGEST_TEXT + 1);

            let json = json(&[finding.clone()], "g01", Fitness::Unfit, 1, false, Some(&text));
            prop_assert_eq!(json.matches('\n').count(), 1);
            let reason = reason(&[finding]);
            prop_assert!(!reason.contains(is_unseen));
        }
    }
}
