//! Sending the month's reports: by the server when the month has turned, or by hand with `takt report send`.

use crate::answers::{self, AccountingConfig, SentQuestion, SheetQuestion};
use crate::config::Config;
use crate::reports::{
    Letter, ReportsConfig, SLACK, WEEKLY, WEEKLY_DAYS, Warning, due, in_short, warnings, weekly,
};
use anyhow::Context;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use takt_accounting::sheet::{Sheet, Subject};
use takt_alerts::notify::email::{EmailConfig, Mail, MailError, Mailer};
use takt_store::{Records, SentReport, Store};
use tokio_util::sync::CancellationToken;

/// How often it is looked whether a letter is due.
const INTERVAL: Duration = Duration::from_secs(3600);
/// Slack answers within seconds or not at all.
const SLACK_TIMEOUT: Duration = Duration::from_secs(20);

/// A letter ready to go, and the note that it went.
struct Ready {
    mail: Mail,
    note: SentReport,
}

/// Whether the configuration asks for reports or warnings by mail or Slack.
pub fn is_sending(config: &Config) -> bool {
    config.reports.send || config.reports.weekly || !config.budgets.is_empty()
}

/// Sends the reports and warnings that are due, each hour until `stop` is cancelled.
pub async fn keep_sending(
    store: Arc<Store>,
    cluster: String,
    config: Config,
    zone: TimeZone,
    stop: CancellationToken,
) {
    let mut refused = HashSet::new();
    while !stop.is_cancelled() {
        if let Err(error) = warn(&store, &cluster, &config, &zone, &mut refused).await {
            tracing::warn!(error = %format_args!("{error:#}"), "not all could be told of their budgets; it is tried again");
        }
        if config.reports.weekly
            && let Err(error) =
                tell_of_the_week(&store, &cluster, &config, &zone, &mut refused).await
        {
            tracing::warn!(error = %format_args!("{error:#}"), "not all weekly letters could be sent; they are tried again");
        }
        if config.reports.send
            && let Some(month) = month_to_report(&config.reports, &zone, Timestamp::now())
            && let Err(error) = round(&store, &cluster, &config, &month, &mut refused).await
        {
            tracing::warn!(month, error = %format_args!("{error:#}"), "the month's reports could not all be sent; they are tried again");
        }
        // A timeout only means that the next round is due.
        let _ = tokio::time::timeout(INTERVAL, stop.cancelled()).await;
    }
}

/// The month that has ended, while its reports and their corrections are sent.
fn month_to_report(config: &ReportsConfig, zone: &TimeZone, now: Timestamp) -> Option<String> {
    let today = now.to_zoned(zone.clone()).date();
    let days_since = u32::try_from(today.day() - 1).unwrap_or(0);
    let last = today.first_of_month().checked_sub(1.day()).ok()?;
    (config.delay_days..=config.correct_days)
        .contains(&days_since)
        .then(|| last.strftime("%Y-%m").to_string())
}

async fn round(
    store: &Arc<Store>,
    cluster: &str,
    config: &Config,
    month: &str,
    refused: &mut HashSet<String>,
) -> anyhow::Result<()> {
    let mailer = Mailer::new(&config.email).context("email")?;
    let (sheets, sent) = gather(store, cluster, &config.accounting(), month).await?;
    let mut failed = None;
    let letters = due(
        &sheets,
        &sent,
        &config.reports,
        Timestamp::now().as_second(),
    );
    for letter in ready(&letters, &mailer, &config.email)? {
        let id = letter.mail.message_id.clone().unwrap_or_default();
        match send(&mailer, &letter.mail, id, "a report", refused).await {
            Ok(true) => note(store, letter.note).await?,
            Ok(false) => {}
            Err(error) => failed = Some(error),
        }
    }
    post_in_short(store, &sheets, &sent, &config.reports).await?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Whether a mail was sent: not if it was refused for good, now or before under this `key`.
async fn send(
    mailer: &Mailer,
    mail: &Mail,
    key: String,
    what: &str,
    refused: &mut HashSet<String>,
) -> Result<bool, MailError> {
    if refused.contains(&key) {
        return Ok(false);
    }
    match mailer.send(mail).await {
        Ok(()) => Ok(true),
        Err(error) if error.is_permanent() => {
            let error = anyhow::Error::from(error);
            tracing::error!(to = mail.to, error = %format_args!("{error:#}"), "{what} cannot be sent there");
            refused.insert(key);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Sends the week's letters.
async fn tell_of_the_week(
    store: &Arc<Store>,
    cluster: &str,
    config: &Config,
    zone: &TimeZone,
    refused: &mut HashSet<String>,
) -> anyhow::Result<()> {
    let (now, today) = (
        Timestamp::now().as_second(),
        Timestamp::now().to_zoned(zone.clone()).date(),
    );
    let from = today
        .checked_sub(WEEKLY_DAYS.days())
        .context("the week before today")?;
    let question = SheetQuestion {
        from: Some(from.to_string()),
        to: Some(today.to_string()),
        everybody: true,
        cluster: Some(cluster.to_owned()),
        ..SheetQuestion::default()
    };
    let (asked, accounting, of) = (Arc::clone(store), config.accounting(), cluster.to_owned());
    let gathered = tokio::task::spawn_blocking(move || {
        let sent = Records::of(asked.database()).sent_reports(&of, WEEKLY)?;
        anyhow::Ok((
            answers::sheets(asked.database(), &question, &accounting)?,
            sent,
        ))
    });
    let (sheets, sent) = gathered.await??;
    let mailer = Mailer::new(&config.email).context("email")?;
    let mut failed = None;
    for letter in weekly(&sheets, &sent, &config.reports, today, now) {
        let key = format!("{WEEKLY} {}", letter.to);
        match send(&mailer, &letter.mail(), key, "a weekly letter", refused).await {
            Ok(true) => note(store, letter.sent(now)).await?,
            Ok(false) => {}
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Tells of budgets that have reached a level.
async fn warn(
    store: &Arc<Store>,
    cluster: &str,
    config: &Config,
    zone: &TimeZone,
    refused: &mut HashSet<String>,
) -> anyhow::Result<()> {
    if config.budgets.is_empty() {
        return Ok(());
    }
    let month = Timestamp::now()
        .to_zoned(zone.clone())
        .strftime("%Y-%m")
        .to_string();
    let (asked, accounting, of, year) = (
        Arc::clone(store),
        config.accounting(),
        cluster.to_owned(),
        month.chars().take(4).collect::<String>(),
    );
    let question = month.clone();
    let (budgets, sent) = tokio::task::spawn_blocking(move || {
        let records = Records::of(asked.database());
        let mut sent = records.sent_reports(&of, &question)?;
        sent.extend(records.sent_reports(&of, &year)?);
        anyhow::Ok((
            answers::budgets_now(asked.database(), &of, &accounting)?,
            sent,
        ))
    })
    .await??;
    let mailer = config
        .email
        .is_set()
        .then(|| Mailer::new(&config.email))
        .transpose()
        .context("email")?;
    let mut failed = None;
    for warning in warnings(&budgets, &sent, &config.reports, &month) {
        let told = tell(&warning, cluster, mailer.as_ref(), config).await;
        let key = format!("{:?}", warning.sent(cluster, 0));
        match told {
            Ok(true) => note(store, warning.sent(cluster, Timestamp::now().as_second())).await?,
            Ok(false) => {}
            Err(_) if refused.contains(&key) => {}
            Err(error) => {
                tracing::warn!(to = warning.to, error = %format_args!("{error:#}"), "a warning of a budget was not sent");
                refused.insert(key);
                failed = Some(error);
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Sends a warning; false where there is no way to.
async fn tell(
    warning: &Warning<'_>,
    cluster: &str,
    mailer: Option<&Mailer>,
    config: &Config,
) -> anyhow::Result<bool> {
    match (
        warning.to.as_str(),
        &config.reports.slack_webhook_file,
        mailer,
    ) {
        (SLACK, Some(path), _) => post(path, &warning.in_short(cluster)).await.map(|()| true),
        (SLACK, None, _) | (_, _, None) => Ok(false),
        (_, _, Some(mailer)) => Ok(mailer.send(&warning.mail(cluster)).await.map(|()| true)?),
    }
}

async fn gather(
    store: &Arc<Store>,
    cluster: &str,
    accounting: &AccountingConfig,
    month: &str,
) -> anyhow::Result<(Vec<Sheet>, Vec<SentReport>)> {
    let (store, accounting, month) = (Arc::clone(store), accounting.clone(), month.to_owned());
    let question = everybody(&month, Some(cluster.to_owned()));
    let asked = tokio::task::spawn_blocking(move || {
        let sheets = answers::sheets(store.database(), &question, &accounting)?;
        let sent = answers::sent_reports(
            store.database(),
            &SentQuestion {
                month,
                cluster: question.cluster,
            },
        )?;
        anyhow::Ok((sheets, sent))
    });
    asked.await?
}

/// The sheets of everybody who gets one.
pub fn everybody(month: &str, cluster: Option<String>) -> SheetQuestion {
    SheetQuestion {
        month: Some(month.to_owned()),
        everybody: true,
        cluster,
        ..SheetQuestion::default()
    }
}

fn ready(
    letters: &[Letter<'_>],
    mailer: &Mailer,
    email: &EmailConfig,
) -> anyhow::Result<Vec<Ready>> {
    let now = Timestamp::now().as_second();
    let ready = letters.iter().map(|letter| {
        Ok(Ready {
            mail: mail(letter, mailer, email)?,
            note: letter.sent(now),
        })
    });
    ready.collect()
}

/// A letter as a mail from this sender.
pub fn mail(letter: &Letter<'_>, mailer: &Mailer, email: &EmailConfig) -> anyhow::Result<Mail> {
    let address = email.reply_to.as_ref().unwrap_or(&email.from);
    let bare = address
        .rsplit_once('<')
        .map_or(address.as_str(), |(_, rest)| rest.trim_end_matches('>'));
    Ok(letter.mail(mailer.domain(), bare)?)
}

async fn note(store: &Arc<Store>, sent: SentReport) -> anyhow::Result<()> {
    let store = Arc::clone(store);
    Ok(
        tokio::task::spawn_blocking(move || Records::of(store.database()).note_sent_report(&sent))
            .await??,
    )
}

/// Posts the cluster's month once, where a webhook is configured.
async fn post_in_short(
    store: &Arc<Store>,
    sheets: &[Sheet],
    sent: &[SentReport],
    config: &ReportsConfig,
) -> anyhow::Result<()> {
    let cluster = sheets
        .iter()
        .find(|sheet| sheet.subject == Subject::Cluster);
    let (Some(path), Some(sheet)) = (&config.slack_webhook_file, cluster) else {
        return Ok(());
    };
    if sent.iter().any(|sent| sent.recipient == SLACK) {
        return Ok(());
    }
    post(path, &in_short(sheet)).await?;
    let letter = Letter {
        sheet,
        to: SLACK.to_owned(),
        edition: 1,
    };
    note(store, letter.sent(Timestamp::now().as_second())).await
}

/// Posts a text by the webhook whose address is in a file.
async fn post(path: &Path, text: &str) -> anyhow::Result<()> {
    let url =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let http = reqwest::Client::builder().timeout(SLACK_TIMEOUT).build()?;
    let answer = http
        .post(url.trim())
        .json(&serde_json::json!({ "text": text }))
        .send()
        .await;
    // The address is a secret: it must not come into a log with the error.
    let answer = answer
        .map_err(reqwest::Error::without_url)
        .context("cannot post to Slack")?;
    anyhow::ensure!(
        answer.status().is_success(),
        "Slack answered {}",
        answer.status()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
