//! Weekly letters to users whose GPUs were mostly idle, or whose time limits reserved many unused
//! GPU-hours.
//!
//! Efficient users get no letter. Others get at most one in seven days, on workdays only.

use super::ReportsConfig;
use jiff::civil::{Date, Weekday};
use std::fmt::Write;
use takt_accounting::sheet::{Sheet, Subject};
use takt_mail::Mail;
use takt_model::UnixTime;
use takt_model::words::{amount, percent};
use takt_store::SentReport;

/// Name of these letters in the log of sent reports, instead of a month.
pub const WEEKLY: &str = "weekly";

/// Days that a letter covers, and minimum days until the next letter.
pub const DAYS: i64 = 7;

/// A user gets a letter with more allocated GPU-hours than this and at most this ratio of GPU
/// utilization.
const HELD_GPU_HOURS: f64 = 50.0;
const LOW_UTILIZATION: f64 = 0.25;

/// A user also gets a letter with more reserved GPU-hours after the ends of runs than this, and a
/// used ratio below this.
const UNUSED_GPU_HOURS: f64 = 1000.0;
const LOW_USE_OF_LIMITS: f64 = 0.2;

/// Maximum number of runs and of suggestions in a letter.
const NAMED: usize = 5;

/// A due letter.
#[derive(Debug, Clone, PartialEq)]
pub struct Weekly<'s> {
    /// The user's report of the week.
    pub sheet: &'s Sheet,
    /// Recipient's address.
    pub to: String,
}

/// Returns the letters that are due on `today`. Each report covers seven days.
pub fn weekly<'s>(
    sheets: &'s [Sheet],
    sent: &[SentReport],
    config: &ReportsConfig,
    today: Date,
    now: UnixTime,
) -> Vec<Weekly<'s>> {
    // People read letters on workdays.
    if matches!(today.weekday(), Weekday::Saturday | Weekday::Sunday) {
        return Vec::new();
    }
    sheets
        .iter()
        .filter_map(|sheet| {
            // Accounts and the cluster have owners, who read the monthly reports.
            let Subject::User(name) = &sheet.subject else {
                return None;
            };
            if !is_low(sheet) && !is_unused(sheet) {
                return None;
            }

            let to = config.address_of(name)?;
            // Any letter to the user counts, also to a former address.
            let is_recent =
                |sent: &SentReport| sent.subject == *name && now - sent.sent_at < DAYS * 86_400;
            (!sent.iter().any(is_recent)).then_some(Weekly { sheet, to })
        })
        .collect()
}

fn is_low(sheet: &Sheet) -> bool {
    // Few GPU-hours are not worth a letter, whatever was done with them.
    let figures = &sheet.figures;
    figures.gpu_hours > HELD_GPU_HOURS
        && figures
            .gpu_utilization
            .is_some_and(|used| used <= LOW_UTILIZATION)
}

fn is_unused(sheet: &Sheet) -> bool {
    let held = sheet.figures.gpu_hours;
    let unused = sheet.figures.limit_excess_gpu_hours;
    // Much unused time is usual beside much used time, so the ratio counts as well.
    unused > UNUSED_GPU_HOURS && held < LOW_USE_OF_LIMITS * (held + unused)
}

impl Weekly<'_> {
    /// Returns the record of the sent letter.
    pub fn sent(&self, now: UnixTime) -> SentReport {
        SentReport {
            cluster: self.sheet.cluster.clone(),
            month: WEEKLY.to_owned(),
            kind: WEEKLY.to_owned(),
            subject: self.sheet.subject.name().to_owned(),
            recipient: self.to.clone(),
            edition: now.0 / 86_400,
            digest: String::new(),
            sent_at: now,
        }
    }

    /// Returns the letter as a mail.
    pub fn mail(&self) -> Mail {
        Mail {
            to: self.to.clone(),
            subject: format!("{}: your GPUs in the last seven days", self.sheet.cluster),
            text: self.text(),
            html: None,
            message_id: None,
            thread: None,
            headers: Vec::new(),
            attachments: Vec::new(),
        }
    }

    fn text(&self) -> String {
        let sheet = self.sheet;
        let figures = &sheet.figures;
        let mut text = format!(
            "In the seven days {} you held {} GPU-hours on {}.\n",
            sheet.period,
            amount(figures.gpu_hours),
            sheet.cluster
        );
        // Each part of the letter has a reason of its own, and is left out without it.
        if let Some(used) = figures.gpu_utilization.filter(|_| is_low(sheet)) {
            let _ = write!(
                text,
                "\nThe GPUs worked for {} of the measured time.\n",
                percent(used)
            );

            for run in sheet
                .runs
                .iter()
                .filter(|run| !run.cause.is_empty())
                .take(NAMED)
            {
                let name = run
                    .name
                    .as_ref()
                    .map(|name| format!(" ({name})"))
                    .unwrap_or_default();
                let used = run.gpu_utilization.map_or_else(String::new, |used| {
                    format!(", worked for {}", percent(used))
                });
                let wasted = amount(run.split_gpu_hours.wasted());
                let _ = writeln!(
                    text,
                    "  job {}{name}: {wasted} GPU-hours wasted ({}){used}",
                    run.job_id, run.cause
                );
            }

            for fix in sheet.fixes.iter().take(NAMED) {
                let _ = write!(text, "\n  {}: {}\n    {}\n", fix.job, fix.why, fix.line);
            }
        }

        if is_unused(sheet) {
            let _ = write!(
                text,
                "\nYour time limits kept {} GPU-hours reserved beyond the ends of your runs. Jobs with shorter limits \
                 start sooner.\n",
                amount(figures.limit_excess_gpu_hours)
            );
        }
        text + "\nTo get no more letters, answer with \"opt out\".\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil;
    use takt_accounting::sheet::Figures;

    fn sheet(name: &str, gpu_hours: f64, used: Option<f64>, unused: f64) -> Sheet {
        let figures = Figures {
            gpu_hours,
            gpu_utilization: used,
            limit_excess_gpu_hours: unused,
            ..Figures::default()
        };
        let json = serde_json::json!({
            "subject": Subject::User(name.to_owned()),
            "cluster": "lab",
            "period": "2026-11-14 to 2026-11-21",
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
            "fixes": [{
                "job": "train",
                "user": name,
                "fix": "fewer_gpus",
                "line": "#SBATCH --gpus=1",
                "why": "one of four worked",
                "runs": 1,
                "gpu_hours": 30.0,
                "money": 0.0,
            }],
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
            opt_out: vec!["cid".into()],
            ..ReportsConfig::default()
        }
    }

    const FRIDAY: Date = civil::date(2026, 11, 20);

    #[test]
    fn only_users_with_much_waste_get_a_letter() {
        // One user on each side of each limit: 50 GPU-hours, 25 %, 1,000 reserved ones and a fifth of them.
        let sheets = [
            sheet("low", 51.0, Some(0.25), 0.0),
            sheet("little", 50.0, Some(0.01), 0.0),
            sheet("well", 900.0, Some(0.26), 0.0),
            sheet("unmeasured", 900.0, None, 0.0),
            sheet("limits", 200.0, Some(0.9), 1001.0),
            sheet("some-limits", 300.0, Some(0.9), 1001.0),
            sheet("cid", 900.0, Some(0.01), 9000.0),
        ];

        let due = weekly(&sheets, &[], &config(), FRIDAY, UnixTime(0));
        let to: Vec<_> = due.iter().map(|letter| letter.to.as_str()).collect();
        assert_eq!(to, ["low@lab.example", "limits@lab.example"]);

        let text = due[0].mail().text;
        assert!(
            text.contains("worked for 25 %") && text.contains("#SBATCH --gpus=1"),
            "{text}"
        );
        assert!(!text.contains("time limits"), "{text}");
        assert!(due[1].mail().text.contains("kept 1,001 GPU-hours reserved"));
    }

    #[test]
    fn on_workdays_and_seven_days_apart() {
        let sheets = [sheet("ann", 100.0, Some(0.1), 0.0)];
        let day = 86_400;
        let mut sent = Vec::new();
        let mut days = Vec::new();
        // Starts on a Friday, with three checks a day.
        for step in 0..45 {
            let now = UnixTime(step * day / 3);
            let today = FRIDAY.checked_add(jiff::ToSpan::days(now.0 / day)).unwrap();
            for letter in weekly(&sheets, &sent, &config(), today, now) {
                days.push(today.to_string());
                sent.push(letter.sent(now));
            }
        }
        assert_eq!(days, ["2026-11-20", "2026-11-27", "2026-12-04"]);

        assert!(
            weekly(
                &sheets,
                &[],
                &config(),
                civil::date(2026, 11, 21),
                UnixTime(0)
            )
            .is_empty(),
            "a Saturday"
        );
    }
}
