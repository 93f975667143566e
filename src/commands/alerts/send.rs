//! `takt alerts test-send`: sends a test message through every channel.

use super::in_use;
use crate::cli::Place;
use crate::output::stdout;
use crate::place;
use anyhow::anyhow;
use clap::Args;
use reqwest::Method;
use serde_json::json;
use std::io::Write;
use takt_alerts::notify::trial::{Trial, TrialResult, try_channels};
use takt_server::alerting;
use takt_server::{Failure, OrUsage};

#[derive(Debug, Args)]
pub struct AlertsTestSend {
    /// Only this channel (receiver/kind/number)
    #[arg(long, value_name = "CHANNEL")]
    pub channel: Option<String>,
    /// By the configuration file and with your rights, instead of by the running server
    #[arg(long)]
    pub file: bool,
}

/// Runs the command. Tries all channels, then fails if one did not accept the message, or if none
/// was tested.
pub fn run(place: &Place, asked: &AlertsTestSend) -> Result<(), Failure> {
    let trials: Vec<Trial> = match in_use(place, asked.file)? {
        Some(server) => {
            let body = json!({"channel": asked.channel});
            let answer = server.alertmanager(Method::POST, "alerts/test", &[], Some(&body))?;
            serde_json::from_value(answer).map_err(anyhow::Error::from)?
        }
        None => by_file(place, asked)?,
    };

    let mut out = stdout();
    for Trial {
        channel,
        place,
        result,
    } in &trials
    {
        let place = place.as_ref();
        let place = place.map_or_else(String::new, |place| format!(" ({place})"));
        let said = match result {
            TrialResult::Sent => "sent".to_owned(),
            TrialResult::Failed(why) => why.clone(),
            // A channel that two receivers share gets one message.
            TrialResult::SameAs(first) => format!("the same as {first}"),
            TrialResult::Untested(why) => format!("not tested: {why}"),
        };
        writeln!(out, "{channel}{place}: {said}")?;
    }

    let count = |is: fn(&TrialResult) -> bool| trials.iter().filter(|one| is(&one.result)).count();
    let sent = count(|result| matches!(result, TrialResult::Sent));
    let failed = count(|result| matches!(result, TrialResult::Failed(_)));
    match failed {
        0 if sent > 0 => Ok(()),
        0 => Err(Failure::Failed(anyhow!("no channel was tested"))),
        failed => Err(Failure::Failed(anyhow!(
            "{failed} of {} channels did not accept the message",
            trials.len()
        ))),
    }
}

/// Sends by the configuration file.
fn by_file(place: &Place, asked: &AlertsTestSend) -> Result<Vec<Trial>, Failure> {
    let config = place::load(place).usage()?;
    // The secrets are read with the rights of this user, who may not have them.
    let loaded = alerting::load(&config).usage()?;
    let settings = alerting::settings(&config);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let only = asked.channel.as_deref();
    let trials = try_channels(&loaded.channels, &loaded.routing, &settings, only);
    runtime.block_on(trials).usage()
}
