//! `takt token`: tokens of programs.

use super::{ask, instant, print, source};
use crate::cli::{ListingFormat, Place};
use crate::output::stdout;
use crate::source::Source;
use anyhow::anyhow;
use clap::{Args, Subcommand};
use jiff::tz::TimeZone;
use std::io::{self, Write};
use takt_model::duration;
use takt_questions::listing::{Column, Listing};
use takt_questions::{TokenOrder, TokensQuestion};
use takt_server::{Failure, OrUsage};
use takt_store::{Database, TokenRecord};

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Create a token; prints it once
    Create(TokenCreate),
    /// List tokens: yours, or all for admins
    List(TokenList),
    /// Revoke a token
    Revoke(TokenRevoke),
}

#[derive(Debug, Args)]
pub struct TokenCreate {
    /// Name of the token, such as the program that will use it
    pub name: String,
    /// Role: status, user, viewer, support or admin [default: user]
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
    /// Unix user on whose behalf the token asks [default: you, for the role user]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Validity (90d, 12h) [default: until it is revoked]
    #[arg(long = "for", value_name = "DURATION")]
    pub duration: Option<String>,
}

#[derive(Debug, Args)]
pub struct TokenList {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct TokenRevoke {
    /// Number of the token, from `takt token list`
    pub id: i64,
}

/// Runs the command.
pub fn run(place: &Place, command: &Token) -> Result<(), Failure> {
    match command {
        Token::Create(asked) => create(place, asked),
        Token::List(asked) => {
            let source: Source<Database> = source(place)?;
            let tokens = source.ask(&TokensQuestion {})?;
            print(asked.format, &listing(&tokens, &source.zone()), &tokens)
        }
        Token::Revoke(asked) => {
            let order = TokenOrder {
                revoke: Some(asked.id),
                ..TokenOrder::default()
            };
            let revoked = ask(place, &order)?.record;
            let mut out = stdout();
            Ok(writeln!(
                out,
                "token {} ({}) revoked",
                revoked.id, revoked.name
            )?)
        }
    }
}

fn create(place: &Place, asked: &TokenCreate) -> Result<(), Failure> {
    let order = TokenOrder {
        name: Some(asked.name.clone()),
        role: asked.role.clone(),
        owner: asked.user.clone(),
        seconds: asked.duration.as_deref().map(seconds).transpose().usage()?,
        revoke: None,
    };
    let made = ask(place, &order)?;
    let token = made.token.unwrap_or_default();
    let record = made.record;

    // The standard output has only the token, for `> FILE`.
    let mut err = io::stderr();
    writeln!(
        err,
        "Token {} ({}), role {}. It is shown once; keep it in a file of mode 600.",
        record.id, record.name, record.role
    )?;
    if let Some(warning) = made.warning {
        writeln!(err, "warning: {warning}")?;
    }
    Ok(writeln!(stdout(), "{token}")?)
}

fn seconds(text: &str) -> anyhow::Result<i64> {
    duration::parse(text)
        .and_then(|time| i64::try_from(time.as_secs()).ok())
        .ok_or_else(|| anyhow!("--for: expected a duration such as 90d or 12h, found {text:?}"))
}

fn listing(tokens: &[TokenRecord], zone: &TimeZone) -> Listing {
    use Column::{Id, Text, Time};
    let mut listing = Listing::new(&[
        Id("id"),
        Text("name"),
        Text("role"),
        Text("user"),
        Text("created_by"),
        Time("created_at"),
        Time("expires_at"),
        Time("used_at"),
        Time("revoked_at"),
    ])
    .omitting(&["created_by", "created_at"]);
    for token in tokens {
        listing.push(vec![
            token.id.to_string(),
            token.name.clone(),
            token.role.clone(),
            token.owner.clone().unwrap_or_default(),
            token.created_by.clone(),
            instant(Some(token.created_at), zone),
            instant(token.expires_at, zone),
            instant(token.used_at, zone),
            instant(token.revoked_at, zone),
        ]);
    }
    listing
}
