//! `takt view`: several servers in one table.

use super::{ask, print};
use crate::cli::{ListingFormat, Place};
use clap::{Args, ValueEnum};
use serde_json::Value;
use takt_questions::listing::Listing;
use takt_questions::{ViewAnswer, ViewOf, ViewQuestion};
use takt_server::Failure;

#[derive(Debug, Args)]
pub struct View {
    /// Subject
    #[arg(value_enum, default_value_t)]
    pub of: Subject,
    /// Only this server
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Only this user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only this account (jobs, usage and fair share)
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Only jobs in these states: RUNNING,FAILED or R,F
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,
    /// Month of the usage, such as 2026-10 [default: this month]
    #[arg(long, value_name = "YYYY-MM", conflicts_with_all = ["from", "to"])]
    pub month: Option<String>,
    /// Start of the usage: a date, a time, an instant (RFC 3339), today, yesterday, -12h, -7d
    #[arg(long, value_name = "TIME", requires = "to", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// End of the usage (exclusive), in the same forms, or now
    #[arg(
        long,
        value_name = "TIME",
        requires = "from",
        allow_hyphen_values = true
    )]
    pub to: Option<String>,
    /// Group the usage by user, account, partition and so on, as `report usage`
    #[arg(long, value_name = "KEYS")]
    pub by: Option<String>,
    /// Maximum number of jobs
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// Subject of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Subject {
    /// A row for each server: nodes, GPUs, jobs, alerts
    #[default]
    Overview,
    /// Nodes now
    Nodes,
    /// GPUs now
    Gpus,
    /// Jobs, newest first
    Jobs,
    /// Usage of a period, by server and summed
    Usage,
    /// Fair share of accounts and users
    Fairshare,
}

impl From<Subject> for ViewOf {
    fn from(subject: Subject) -> Self {
        match subject {
            Subject::Overview => Self::Overview,
            Subject::Nodes => Self::Nodes,
            Subject::Gpus => Self::Gpus,
            Subject::Jobs => Self::Jobs,
            Subject::Usage => Self::Usage,
            Subject::Fairshare => Self::Fairshare,
        }
    }
}

/// Runs the command. Servers that do not answer are named; without any answer the command fails.
pub fn run(place: &Place, asked: &View) -> Result<(), Failure> {
    let question = ViewQuestion {
        of: asked.of.into(),
        server: asked.only.clone(),
        user: asked.user.clone(),
        account: asked.account.clone(),
        state: asked.state.clone(),
        month: asked.month.clone(),
        from: asked.from.clone(),
        to: asked.to.clone(),
        by: asked.by.clone(),
        limit: Some(asked.limit),
    };

    // A server that is down must not hide the others.
    let answer = ask(place, &question)?;
    let mut answered = 0;
    for server in &answer.servers {
        match &server.error {
            Some(error) => tracing::warn!("{} ({}) {error}", server.name, server.url),
            None => answered += 1,
        }
    }

    print(asked.format, &listing(&answer, asked.format), &answer)?;
    if answered == 0 {
        return Err(anyhow::anyhow!("no server answered").into());
    }
    Ok(())
}

/// Rows for a format. A table is read by people: its bytes are GiB, as in the other tables.
fn listing(answer: &ViewAnswer, format: ListingFormat) -> Listing {
    let is_table = format == ListingFormat::Table;
    let is_gib = |name: &str| is_table && name.ends_with("_bytes");

    let heading = |name: &String| {
        if is_gib(name) {
            name.replace("_bytes", "_gib")
        } else {
            name.clone()
        }
    };

    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            // As exact as a table needs.
            format!("{}", (number * 1e4).round() / 1e4)
        }
        value => value.to_string(),
    };

    let cell = |(name, value): (&String, &Value)| match value.as_f64() {
        Some(bytes) if is_gib(name) => format!("{:.1}", bytes / (1_u64 << 30) as f64),
        _ => text(value),
    };

    let rows = answer
        .rows
        .iter()
        .map(|row| answer.columns.iter().zip(row).map(cell).collect())
        .collect();
    let columns: Vec<String> = answer.columns.iter().map(heading).collect();
    Listing::of(&columns, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bytes_are_gib_in_a_table_and_exact_elsewhere() {
        let answer = ViewAnswer {
            columns: ["node", "memory_used_bytes"].map(str::to_owned).into(),
            rows: vec![
                vec![json!("g01"), json!(25_276_510_208_u64)],
                vec![json!("g02"), Value::Null],
            ],
            ..ViewAnswer::default()
        };
        let csv = |format| {
            let mut out = Vec::new();
            listing(&answer, format).write_csv(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            csv(ListingFormat::Table),
            "node,memory_used_gib\ng01,23.5\ng02,\n"
        );
        assert_eq!(
            csv(ListingFormat::Csv),
            "node,memory_used_bytes\ng01,25276510208\ng02,\n"
        );
    }
}
