//! Sends monthly reports, weekly letters and budget warnings: from the server when they are due, or
//! with `takt report send`.

use crate::config::{Config, CurrentConfig};
use anyhow::Context;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use takt_accounting::sheet::{Sheet, Subject};
use takt_alerts::letters::{FileLetterStore, Letter, LetterContent, LetterResult, LetterSender};
use takt_alerts::notify::http::{HttpOptions, HttpSender};
use takt_alerts::outbox::RowState;
use takt_identity::Access;
use takt_mail::{EmailConfig, Mail, Mailer};
use takt_model::UnixTime;
use takt_questions::{AccountingConfig, SentQuestion, SheetQuestion};
use takt_reports::{
    Letter as ReportLetter, ReportsConfig, SLACK, WEEKLY, WEEKLY_DAYS, Warning, due, in_short,
    warnings, weekly,
};
use takt_store::{Records, SentReport, Store, spawn_blocking};
use tokio::time;
use tokio_util::sync::CancellationToken;

/// Time between two checks for due letters.
const INTERVAL: Duration = Duration::from_secs(3600);

/// The same while the clock is not trusted.
const UNTRUSTED_INTERVAL: Duration = Duration::from_secs(60);

/// Sends letters, and records the sent ones.
struct Dispatcher {
    store: Arc<Store>,
    cluster: String,
    config: Arc<Config>,
    zone: TimeZone,
    access: Access,
    /// Time of this check. The clock may be set at any moment.
    now: Timestamp,
    /// Cancelled when the server ends: the letter under way is the last one.
    stop: CancellationToken,
}

/// Returns whether the configuration requests reports or warnings by mail or Slack.
pub fn is_sending(config: &Config) -> bool {
    config.reports.send || config.reports.weekly || !config.budgets.is_empty()
}

/// Sends the reports and warnings that are due, each hour until `stop` is cancelled.
pub async fn keep_sending(
    store: Arc<Store>,
    cluster: String,
    config: CurrentConfig,
    access: Access,
    stop: CancellationToken,
) {
    let mut dispatcher = Dispatcher {
        store,
        cluster,
        zone: config.get().zone(),
        config: config.get(),
        access,
        now: Timestamp::UNIX_EPOCH,
        stop: stop.clone(),
    };
    while !stop.is_cancelled() {
        // A reload may have changed the mail server.
        dispatcher.config = config.get();
        let pause = dispatcher.check().await;
        // A timeout starts the next round.
        let _ = time::timeout(pause, stop.cancelled()).await;
    }
}

impl Dispatcher {
    /// Sends what is due, if the clock is trusted: a letter about a month that has not come cannot be
    /// taken back. Returns the time until the next check.
    async fn check(&mut self) -> Duration {
        let clock = self.store.database().clock_state();
        if !clock.is_trusted {
            tracing::warn!(
                ahead_seconds = clock.ahead_seconds(),
                "the clock is not trusted; reports and warnings wait"
            );
            return UNTRUSTED_INTERVAL;
        }

        self.now = Timestamp::try_from(clock.now).unwrap_or_default();
        self.send_all().await;
        INTERVAL
    }

    async fn send_all(&self) {
        // Each kind of letter is tried, whatever happens to the others.
        if let Err(error) = self.send_warnings().await {
            let error = format!("{error:#}");
            tracing::warn!(error, "some budget warnings were not sent; trying again");
        }

        let reports = &self.config.reports;
        if reports.weekly
            && let Err(error) = self.send_weekly().await
        {
            let error = format!("{error:#}");
            tracing::warn!(error, "some weekly letters were not sent; trying again");
        }

        if reports.send
            && let Some(month) = month_to_report(reports, &self.zone, self.now)
            && let Err(error) = self.send_month(&month).await
        {
            let error = format!("{error:#}");
            tracing::warn!(
                month,
                error,
                "some monthly reports were not sent; trying again"
            );
        }
    }

    /// Returns the sender of letters. Each round creates a new one, so that a new password takes
    /// effect.
    fn letters(&self) -> anyhow::Result<LetterSender<FileLetterStore>> {
        // Mail may be unset, where warnings go to Slack only.
        let mailer = self
            .config
            .email
            .is_set()
            .then(|| Mailer::new(&self.config.email))
            .transpose()
            .context("email")?;
        let http = HttpSender::new(&HttpOptions::default())?;

        let states = FileLetterStore::in_folder(&self.store.path());
        Ok(LetterSender::new(mailer, http, states))
    }

    /// Sends the letters that could be made, whatever happens to the others.
    ///
    /// # Errors
    /// The last error, of a letter that could not be made or is to be sent again.
    async fn send_each(
        &self,
        letters: &LetterSender<FileLetterStore>,
        made: Vec<anyhow::Result<(LetterContent, SentReport)>>,
    ) -> anyhow::Result<()> {
        let mut result = Ok(());
        for letter in made {
            let sent = match letter {
                Ok((content, sent)) => self.send(letters, content, sent).await,
                Err(error) => Err(error),
            };
            if sent.is_err() {
                result = sent;
            }
        }
        result
    }

    /// Sends a letter and records it as sent.
    ///
    /// # Errors
    /// If sending must be repeated, or the record cannot be stored.
    async fn send(
        &self,
        letters: &LetterSender<FileLetterStore>,
        content: LetterContent,
        sent: SentReport,
    ) -> anyhow::Result<()> {
        // The letter under way is the last one. The others are due at the next start.
        if self.stop.is_cancelled() {
            anyhow::bail!("the server ends");
        }

        let letter = Letter {
            key: key_of(&sent),
            content,
        };
        match letters.send(&letter, self.now.into()).await {
            // The letter may be sent already, but its record may be missing.
            LetterResult::Sent | LetterResult::Ended(RowState::Sent) => self.note(sent).await,
            LetterResult::Ended(_) => Ok(()),
            LetterResult::Refused { error } => {
                tracing::error!(
                    to = sent.recipient,
                    error,
                    "the letter was refused for good"
                );
                Ok(())
            }
            LetterResult::Later { error, .. } => {
                Err(anyhow::anyhow!("{}: {error}", sent.recipient))
            }
        }
    }

    /// Returns the configuration of the accounting. A report must not show names that the pages hide.
    fn accounting(&self) -> AccountingConfig {
        AccountingConfig {
            pseudonyms: Some(self.config.reports.pseudonyms || self.access.hides_usage()),
            ..self.config.accounting()
        }
    }

    async fn send_month(&self, month: &str) -> anyhow::Result<()> {
        let letters = self.letters()?;
        // Without a mail server, nothing is computed that could not be sent.
        let mailer = letters.mailer().context("no mail server is configured")?;
        let accounting = self.accounting();
        let (sheets, sent) = gather(&self.store, &self.cluster, &accounting, month).await?;
        let now = UnixTime::from(self.now);

        let made = due(&sheets, &sent, &self.config.reports, now)
            .iter()
            .map(|letter| {
                let mail = mail(letter, mailer, &self.config.email)?;
                Ok((LetterContent::Mail(Box::new(mail)), letter.sent(now)))
            })
            .collect();
        let all_sent = self.send_each(&letters, made).await;
        self.post_summary(&letters, &sheets, &sent).await?;
        all_sent
    }

    async fn send_weekly(&self) -> anyhow::Result<()> {
        let letters = self.letters()?;
        letters.mailer().context("no mail server is configured")?;
        let now = UnixTime::from(self.now);
        // Seven whole days until yesterday, in the cluster's time zone.
        let today = self.now.to_zoned(self.zone.clone()).date();
        let from = today
            .checked_sub(WEEKLY_DAYS.days())
            .context("the week before today")?;
        let question = SheetQuestion {
            from: Some(from.to_string()),
            to: Some(today.to_string()),
            everybody: true,
            cluster: Some(self.cluster.clone()),
            ..SheetQuestion::default()
        };

        let store = Arc::clone(&self.store);
        let accounting = self.accounting();
        let cluster = self.cluster.clone();
        let (sheets, sent) = spawn_blocking(move || {
            let sent = Records::of(store.database()).sent_reports(&cluster, WEEKLY)?;
            let sheets = takt_questions::sheets(store.database(), &question, &accounting)?;
            anyhow::Ok((sheets, sent))
        })
        .await??;

        let made = weekly(&sheets, &sent, &self.config.reports, today, now)
            .iter()
            .map(|letter| {
                let content = LetterContent::Mail(Box::new(letter.mail()));
                Ok((content, letter.sent(now)))
            })
            .collect();
        self.send_each(&letters, made).await
    }

    /// Sends the warnings of budgets that reached a level.
    async fn send_warnings(&self) -> anyhow::Result<()> {
        if self.config.budgets.is_empty() {
            return Ok(());
        }

        let month = self
            .now
            .to_zoned(self.zone.clone())
            .strftime("%Y-%m")
            .to_string();
        let year: String = month.chars().take(4).collect();

        let store = Arc::clone(&self.store);
        let accounting = self.config.accounting();
        let cluster = self.cluster.clone();
        let this_month = month.clone();
        // A budget is for a month or a year, and its warnings are recorded under that period.
        let (budgets, sent) = spawn_blocking(move || {
            let records = Records::of(store.database());
            let mut sent = records.sent_reports(&cluster, &this_month)?;
            sent.extend(records.sent_reports(&cluster, &year)?);
            let budgets = takt_questions::budgets_now(store.database(), &cluster, &accounting)?;
            anyhow::Ok((budgets, sent))
        })
        .await??;

        let letters = self.letters()?;
        let reports = &self.config.reports;
        let made = warnings(&budgets, &sent, reports, &month)
            .iter()
            .filter_map(|warning| {
                let webhook = reports.slack_webhook_file.as_deref();
                let has_mailer = letters.mailer().is_some();
                let content = warning_letter(warning, &self.cluster, webhook, has_mailer)?;
                Some(content.map(|content| {
                    let sent = warning.sent(&self.cluster, self.now.into());
                    (content, sent)
                }))
            })
            .collect();
        self.send_each(&letters, made).await
    }

    /// Posts the summary of the cluster's month once, if a webhook is configured.
    async fn post_summary(
        &self,
        letters: &LetterSender<FileLetterStore>,
        sheets: &[Sheet],
        sent: &[SentReport],
    ) -> anyhow::Result<()> {
        let cluster = sheets
            .iter()
            .find(|sheet| sheet.subject == Subject::Cluster);
        let webhook = &self.config.reports.slack_webhook_file;
        let (Some(path), Some(sheet)) = (webhook, cluster) else {
            return Ok(());
        };
        // The summary has no corrections: a channel would not connect the two.
        if sent.iter().any(|sent| sent.recipient == SLACK) {
            return Ok(());
        }

        let letter = ReportLetter {
            sheet,
            to: SLACK.to_owned(),
            edition: 1,
        };
        let content = slack_text(path, in_short(sheet))?;
        let sent = letter.sent(self.now.into());
        self.send(letters, content, sent).await
    }

    async fn note(&self, sent: SentReport) -> anyhow::Result<()> {
        let store = Arc::clone(&self.store);
        let note = move || Records::of(store.database()).note_sent_report(&sent);
        Ok(spawn_blocking(note).await??)
    }
}

/// Returns the identity of a letter.
fn key_of(sent: &SentReport) -> String {
    let SentReport {
        cluster,
        month,
        kind,
        subject,
        recipient,
        edition,
        ..
    } = sent;
    format!("{cluster}/{month}/{kind}/{subject}/{recipient}/{edition}")
}

/// Returns the letter with a warning. `None` without a webhook or a mail server: the warning stays due until there is one.
fn warning_letter(
    warning: &Warning<'_>,
    cluster: &str,
    webhook: Option<&Path>,
    has_mailer: bool,
) -> Option<anyhow::Result<LetterContent>> {
    if warning.to == SLACK {
        return webhook.map(|path| slack_text(path, warning.in_short(cluster)));
    }
    has_mailer.then(|| Ok(LetterContent::Mail(Box::new(warning.mail(cluster)))))
}

/// Returns a text for the webhook whose URL is in the file at `path`.
fn slack_text(path: &Path, text: String) -> anyhow::Result<LetterContent> {
    let url =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(LetterContent::SlackText {
        webhook: url.trim().to_owned(),
        text,
    })
}

/// Returns the previous month, while its reports and corrections are due.
fn month_to_report(config: &ReportsConfig, zone: &TimeZone, now: Timestamp) -> Option<String> {
    let today = now.to_zoned(zone.clone()).date();
    // Reports wait for late records, and corrections end after a while.
    let days_since = u32::try_from(today.day() - 1).unwrap_or(0);
    let last = today.first_of_month().checked_sub(1.day()).ok()?;
    (config.delay_days..=config.correct_days)
        .contains(&days_since)
        .then(|| last.strftime("%Y-%m").to_string())
}

async fn gather(
    store: &Arc<Store>,
    cluster: &str,
    accounting: &AccountingConfig,
    month: &str,
) -> anyhow::Result<(Vec<Sheet>, Vec<SentReport>)> {
    let store = Arc::clone(store);
    let accounting = accounting.clone();
    let month = month.to_owned();
    let question = everybody(&month, Some(cluster.to_owned()));
    spawn_blocking(move || {
        let sheets = takt_questions::sheets(store.database(), &question, &accounting)?;
        let sent = takt_questions::sent_reports(
            store.database(),
            &SentQuestion {
                month,
                cluster: question.cluster,
            },
            accounting.home.as_deref(),
        )?;
        anyhow::Ok((sheets, sent))
    })
    .await?
}

/// Returns the question for all recipients' reports.
pub fn everybody(month: &str, cluster: Option<String>) -> SheetQuestion {
    SheetQuestion {
        month: Some(month.to_owned()),
        everybody: true,
        cluster,
        ..SheetQuestion::default()
    }
}

/// Returns a letter as a mail from this sender.
pub fn mail(
    letter: &ReportLetter<'_>,
    mailer: &Mailer,
    email: &EmailConfig,
) -> anyhow::Result<Mail> {
    let address = email.reply_to.as_ref().unwrap_or(&email.from);
    let bare = address
        .rsplit_once('<')
        .map_or(address.as_str(), |(_, rest)| rest.trim_end_matches('>'));
    Ok(letter.mail(mailer.domain(), bare)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_accounting::{BudgetPeriod, BudgetUse};

    #[test]
    fn a_webhook_file_that_cannot_be_read_costs_no_mail() {
        let config = ReportsConfig {
            domain: Some("lab.example".into()),
            slack_webhook_file: Some("/nowhere/webhook".into()),
            ..ReportsConfig::default()
        };
        let budgets = [BudgetUse {
            name: "ann".into(),
            is_account: false,
            period: BudgetPeriod::Month,
            unit: "GPU-hours".into(),
            limit: 200.0,
            used: 160.0,
            warning: Some(0.8),
            run_out: None,
            outlook: None,
        }];
        let due = warnings(&budgets, &[], &config, "2026-10");
        let webhook = config.slack_webhook_file.as_deref();

        let made = due
            .iter()
            .map(|warning| {
                let made = warning_letter(warning, "lab", webhook, true);
                (warning.to.as_str(), made.map(|made| made.is_ok()))
            })
            .collect::<Vec<_>>();
        assert_eq!(
            made,
            [("ann@lab.example", Some(true)), (SLACK, Some(false))]
        );
        // Both stay due.
        let none = due
            .iter()
            .filter_map(|warning| warning_letter(warning, "lab", None, false));
        assert_eq!(none.count(), 0);
    }

    #[test]
    fn a_month_is_reported_from_the_delay_to_the_last_correction() {
        let config = ReportsConfig {
            delay_days: 1,
            correct_days: 14,
            ..ReportsConfig::default()
        };
        let at = |text: &str| {
            month_to_report(
                &config,
                &TimeZone::get("Europe/Oslo").unwrap(),
                text.parse().unwrap(),
            )
        };
        assert_eq!(at("2026-11-01T12:00:00Z"), None);
        // Midnight in Oslo is 23:00 UTC.
        assert_eq!(at("2026-11-01T22:59:00Z"), None);
        assert_eq!(at("2026-11-01T23:00:00Z").as_deref(), Some("2026-10"));
        assert_eq!(at("2026-11-15T22:00:00Z").as_deref(), Some("2026-10"));
        assert_eq!(at("2026-11-16T12:00:00Z"), None);
        assert_eq!(at("2027-01-05T12:00:00Z").as_deref(), Some("2026-12"));
    }
}
