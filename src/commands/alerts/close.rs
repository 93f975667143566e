//! Closing alerts by hand.

use super::{name, server, text};
use crate::cli::Place;
use crate::output::stdout;
use crate::person;
use clap::Args;
use reqwest::Method;
use serde_json::json;
use std::io::Write;
use takt_server::Failure;

#[derive(Debug, Args)]
pub struct AlertsClose {
    /// Conditions that the alerts to close meet: alertname=GpuFellOffBus node=g01
    #[arg(required = true, value_name = "MATCHER")]
    pub matchers: Vec<String>,
    /// Why they are closed
    #[arg(long, value_name = "TEXT")]
    pub comment: String,
    /// Person who closes them [default: the user who runs the command]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}

/// Closes the alerts that match all matchers, and prints them.
pub fn run(place: &Place, asked: &AlertsClose) -> Result<(), Failure> {
    let request = json!({
        "filter": asked.matchers,
        "createdBy": asked.by.clone().unwrap_or_else(person::operator),
        "comment": asked.comment,
    });

    let answer = server(place)?.alertmanager(Method::POST, "alerts/close", &[], Some(&request))?;

    let mut out = stdout();
    for labels in answer["closed"].as_array().into_iter().flatten() {
        writeln!(out, "{} {}", name(labels), text(&labels["node"]))?;
    }

    Ok(())
}
