//! Letters of the monthly reports: which report goes to which recipient, and which letters are due.
//!
//! A letter is sent once. If late records change its figures, a correction follows, marked as such,
//! and threaded below the first letter in the mail program. By default, corrections are at most
//! daily, so that a slow import does not cause many mails.

use super::ReportsConfig;
use super::sheet::{View, mail_page, text};
use std::io;
use takt_accounting::sheet::{Sheet, Subject};
use takt_mail::Mail;
use takt_model::UnixTime;
use takt_model::words::{amount, count, month, percent};
use takt_store::SentReport;

/// A due report and its recipient.
#[derive(Debug, Clone, PartialEq)]
pub struct Letter<'s> {
    /// The report.
    pub sheet: &'s Sheet,
    /// Recipient's address.
    pub to: String,
    /// Edition: 1, or more for a correction.
    pub edition: i64,
}

/// Returns the letters that were not sent yet, or whose figures have changed since.
pub fn due<'s>(
    sheets: &'s [Sheet],
    sent: &[SentReport],
    config: &ReportsConfig,
    now: UnixTime,
) -> Vec<Letter<'s>> {
    let mut letters = Vec::new();
    let patience_seconds = i64::from(config.correction_hours) * 3600;

    for sheet in sheets {
        for to in recipients(&sheet.subject, config) {
            // `sent` has the letters of this month only.
            let is_this = |sent: &&SentReport| {
                sent.kind == sheet.subject.kind()
                    && sent.subject == sheet.subject.name()
                    && sent.recipient == to
            };
            // The last edition decides: it has the figures that the recipient knows.
            let edition = match sent.iter().filter(is_this).max_by_key(|sent| sent.edition) {
                None => 1,

                // Unchanged figures need no correction. Changed ones wait, so that a slow import makes one.
                Some(last)
                    if last.digest == digest(sheet) || now - last.sent_at < patience_seconds =>
                {
                    continue;
                }
                Some(last) => last.edition + 1,
            };
            letters.push(Letter { sheet, to, edition });
        }
    }
    letters
}

fn recipients(subject: &Subject, config: &ReportsConfig) -> Vec<String> {
    match subject {
        Subject::User(name) => config.address_of(name).into_iter().collect(),
        Subject::Account(name) => config.account_owners.get(name).cloned().unwrap_or_default(),
        Subject::Cluster => config.operators.clone(),
    }
}

/// Returns a digest of the figures that cause a correction: those of the allocations. The measured
/// figures settle a little later.
fn digest(sheet: &Sheet) -> String {
    let figures = &sheet.figures;
    // One decimal: a record that changes less is not worth a mail.
    format!(
        "{:.1} {:.1} {}",
        figures.gpu_hours, figures.cpu_hours, figures.jobs_ended
    )
}

impl Letter<'_> {
    /// Returns the record of the sent letter.
    pub fn sent(&self, now: UnixTime) -> SentReport {
        SentReport {
            cluster: self.sheet.cluster.clone(),
            month: self.sheet.period.clone(),
            kind: self.sheet.subject.kind().to_owned(),
            subject: self.sheet.subject.name().to_owned(),
            recipient: self.to.clone(),
            edition: self.edition,
            digest: digest(self.sheet),
            sent_at: now,
        }
    }

    /// Returns the letter as a mail. `domain` is the sender's domain, `opt_out` the address for
    /// opting out.
    pub fn mail(&self, domain: &str, opt_out: &str) -> io::Result<Mail> {
        let sheet = self.sheet;

        let view = View::of(sheet);
        let subject = self.subject();
        let correction = "This corrects an earlier report: more records have arrived.\n\n";

        let text = format!(
            "{}{}\nTo get no more reports, answer with \"opt out\".\n",
            if self.edition > 1 { correction } else { "" },
            text(sheet, view)?
        );
        // A correction belongs to the thread of the first letter, so its id is computed again.
        let first = self.message_id(1, domain);
        Ok(Mail {
            to: self.to.clone(),
            subject,
            text,
            html: Some(mail_page(sheet, view).map_err(io::Error::other)?),
            message_id: Some(self.message_id(self.edition, domain)),
            thread: (self.edition > 1).then_some(first),
            // Mail programs offer a button for the second header.
            headers: vec![
                ("List-Id", format!("Takt reports <reports.{domain}>")),
                (
                    "List-Unsubscribe",
                    format!("<mailto:{opt_out}?subject=opt%20out>"),
                ),
            ],
            attachments: Vec::new(),
        })
    }

    fn subject(&self) -> String {
        let sheet = self.sheet;
        let when = month(&sheet.period);
        let words = match &sheet.subject {
            Subject::User(_) => format!("your {when}"),
            Subject::Account(name) => format!("account {name}, {when}"),
            Subject::Cluster => format!("the cluster's {when}"),
        };
        format!(
            "{}{}: {words}",
            if self.edition > 1 { "Correction: " } else { "" },
            sheet.cluster
        )
    }

    /// Returns a stable message id, so that mail programs recognize a second copy. Names cannot
    /// inject other bytes.
    fn message_id(&self, edition: i64, domain: &str) -> String {
        let whose = format!(
            "{} {} {}",
            self.sheet.cluster,
            self.sheet.subject.name(),
            self.to
        );
        // In hexadecimal: a name of a user may contain a line break or an angle bracket.
        let whose: String = whose.bytes().map(|byte| format!("{byte:02x}")).collect();
        let period: String = self
            .sheet
            .period
            .chars()
            .filter(|c| c.is_ascii_digit() || *c == '-')
            .collect();
        format!(
            "takt.report.{period}.{}.{edition}.{whose}@{domain}",
            self.sheet.subject.kind()
        )
    }

    /// Returns a file name for the letter, without extension.
    pub fn file_stem(&self) -> String {
        format!(
            "{}-{}-{}",
            self.sheet.period,
            self.sheet.subject.kind(),
            self.sheet.subject.name()
        )
        .chars()
        // A name may contain a slash or dots, which would lead out of the folder.
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect()
    }
}

/// Returns a summary of the month for a channel. Escapes `&`, `<` and `>`, which are markup in
/// Slack.
pub fn in_short(sheet: &Sheet) -> String {
    let figures = &sheet.figures;
    let mut lines = vec![format!("*{}, {}*", sheet.cluster, month(&sheet.period))];

    let gpu_hours = if sheet.has_gpus {
        format!("{} GPU-hours and ", amount(figures.gpu_hours))
    } else {
        String::new()
    };
    lines.push(format!(
        "{gpu_hours}{} CPU-hours in {} runs",
        amount(figures.cpu_hours),
        count(figures.jobs_started)
    ));

    let held = figures.split_gpu_hours.held();
    let wasted = figures.split_gpu_hours.wasted();
    // Without a measurement, waste is unknown, and a line with 0 would be wrong.
    if let Some(utilization) = figures.gpu_utilization {
        let share = if held > 0.0 { wasted / held } else { 0.0 };
        lines.push(format!(
            "GPU utilization {}; {} GPU-hours ({}) wasted",
            percent(utilization),
            amount(wasted),
            percent(share)
        ));
    }

    if figures.split_gpu_hours.lost > 0.0 {
        lines.push(format!(
            "{} GPU-hours were lost to faults",
            amount(figures.split_gpu_hours.lost)
        ));
    }
    if let Some(waiting) = sheet.waiting {
        lines.push(format!(
            "Half of the runs waited under {}",
            takt_model::words::duration(waiting.median_seconds as f64)
        ));
    }
    // `&` first: the other replacements insert one.
    lines
        .join("\n")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_accounting::sheet::Figures;

    fn sheet(subject: Subject, gpu_hours: f64) -> Sheet {
        let figures = Figures {
            period: "2026-10".into(),
            gpu_hours,
            ..Figures::default()
        };
        let json = serde_json::json!({
            "subject": subject,
            "cluster": "lab",
            "period": "2026-10",
            "from": "",
            "to": "",
            "timezone": "UTC",
            "is_open": false,
            "currency": null,
            "has_co2": false,
            "figures": figures,
            "before": [],
            "days": [],
            "gpu_models": [],
            "share": null,
            "rank": null,
            "members": [],
            "accounts": [],
            "waiting": null,
            "fixes": [],
            "runs": [],
            "network_bound": [],
            "lost": [],
            "budgets": [],
            "breaches": [],
            "notes": [],
        });
        serde_json::from_value(json).unwrap()
    }

    fn config() -> ReportsConfig {
        ReportsConfig {
            domain: Some("lab.example".into()),
            addresses: [("bob".to_owned(), "b@home.example".to_owned())].into(),
            account_owners: [(
                "physics".to_owned(),
                vec!["pi@lab.example".to_owned(), "co@lab.example".to_owned()],
            )]
            .into(),
            operators: vec!["root@lab.example".into()],
            opt_out: vec!["cid".into()],
            ..ReportsConfig::default()
        }
    }

    #[test]
    fn letters_go_to_their_recipients() {
        let user = |name: &str| sheet(Subject::User(name.into()), 1.0);
        let sheets = [
            user("ann"),
            user("bob"),
            user("cid"),
            // A name that would add a recipient makes no address.
            user("x\r\nBcc: all@lab.example"),
            sheet(Subject::Account("physics".into()), 1.0),
            sheet(Subject::Account("biology".into()), 1.0),
            sheet(Subject::Cluster, 1.0),
        ];

        let to: Vec<String> = due(&sheets, &[], &config(), UnixTime(0))
            .into_iter()
            .map(|letter| letter.to)
            .collect();
        assert_eq!(
            to,
            [
                "ann@lab.example",
                "b@home.example",
                "pi@lab.example",
                "co@lab.example",
                "root@lab.example"
            ]
        );
    }

    #[test]
    fn nothing_is_sent_twice_and_late_records_make_a_marked_correction() {
        let day = 86_400;
        let first = [sheet(Subject::User("ann".into()), 10.0)];

        let letters = due(&first, &[], &config(), UnixTime(0));
        let mail = letters[0].mail("lab.example", "takt@lab.example").unwrap();
        assert_eq!(mail.subject.as_str(), "lab: your October 2026");
        assert_eq!(mail.thread.as_deref(), None);

        let mut sent = vec![letters[0].sent(UnixTime(0))];
        // The same figures, nine days later.
        assert_eq!(due(&first, &sent, &config(), UnixTime(9 * day)), []);

        let late = [sheet(Subject::User("ann".into()), 12.0)];
        assert_eq!(
            // Late records have arrived, but the correction waits for `correction_hours`.
            due(&late, &sent, &config(), UnixTime(day / 2)),
            [],
            "not yet"
        );

        let corrections = due(&late, &sent, &config(), UnixTime(day));
        let correction = corrections[0]
            .mail("lab.example", "takt@lab.example")
            .unwrap();
        assert_eq!(correction.subject, "Correction: lab: your October 2026");
        assert!(
            correction
                .text
                .starts_with("This corrects an earlier report")
        );
        assert_eq!(correction.thread, mail.message_id);
        assert_ne!(correction.message_id, mail.message_id);

        sent.push(corrections[0].sent(UnixTime(day)));
        assert_eq!(due(&late, &sent, &config(), UnixTime(5 * day)), []);
    }

    #[test]
    fn no_name_breaks_a_header_or_a_file() {
        // A line break, a path and markup in one name.
        let odd = "p\r\nBcc: x@y/../<&>";
        let sheets = [sheet(Subject::Account(odd.into()), 1.0)];
        let config = ReportsConfig {
            account_owners: [(odd.to_owned(), vec!["pi@lab.example".into()])].into(),
            ..config()
        };

        let letters = due(&sheets, &[], &config, UnixTime(0));
        let mail = letters[0].mail("lab.example", "takt@lab.example").unwrap();
        let id = mail.message_id.unwrap();
        assert!(
            id.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b".-@".contains(&byte)),
            "{id}"
        );

        assert!(!letters[0].file_stem().contains(['/', '\r', '\n', '.']));
        // The bytes that are sent, since lettre writes the headers.
        let from = takt_mail::EmailConfig {
            server: "localhost".into(),
            from: "takt@lab.example".into(),
            ..Default::default()
        };
        let mailer = takt_mail::Mailer::new(&from).unwrap();
        let mail = letters[0].mail("lab.example", "takt@lab.example").unwrap();

        let bytes = String::from_utf8(mailer.eml(&mail).unwrap()).unwrap();
        let head = bytes.split("\r\n\r\n").next().unwrap();
        assert!(!head.to_lowercase().contains("\r\nbcc:"), "{head}");
        // `<!channel>` would notify everyone in Slack.
        let cluster = Sheet {
            cluster: "<!channel> & co".into(),
            ..sheet(Subject::Cluster, 1.0)
        };
        assert!(in_short(&cluster).starts_with("*&lt;!channel&gt; &amp; co, October 2026*"));
    }
}
