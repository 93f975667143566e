//! `takt passwd`: passwords of people.

use super::ask;
use crate::cli::Place;
use crate::output::stdout;
use anyhow::{Context, bail};
use clap::Args;
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use std::io::{self, BufRead, IsTerminal, Write};
use takt_questions::PasswordOrder;
use takt_server::{Failure, OrUsage};

#[derive(Debug, Args)]
pub struct Passwd {
    /// Unix user; admins only [default: you]
    pub user: Option<String>,
    /// Remove the password
    #[arg(long)]
    pub remove: bool,
    /// Set the password though the server's machine does not know the user
    #[arg(long)]
    pub unknown_user: bool,
}

/// Runs the command.
pub fn run(place: &Place, asked: &Passwd) -> Result<(), Failure> {
    let password = if asked.remove {
        None
    } else {
        Some(new_password().usage()?)
    };

    // It is hashed and judged where it is stored; here it is only read.
    let order = PasswordOrder {
        user: asked.user.clone(),
        password,
        may_be_unknown: asked.unknown_user,
    };

    let answer = ask(place, &order)?;
    let user = answer.user;
    let mut out = stdout();

    let done = match (asked.remove, answer.had_password) {
        (true, true) => format!("removed the password of {user}"),
        (true, false) => format!("{user} had no password"),
        (false, true) => format!("changed the password of {user}"),
        (false, false) => format!("set the password of {user}"),
    };
    Ok(writeln!(out, "{done}")?)
}

/// Reads a password: twice from a terminal, which does not show it, else the first line of the
/// input.
fn new_password() -> anyhow::Result<String> {
    if !io::stdin().is_terminal() {
        return read_line();
    }
    let first = hidden("New password: ")?;
    if first != hidden("Again: ")? {
        bail!("the two passwords differ");
    }
    Ok(first)
}

fn hidden(prompt: &str) -> anyhow::Result<String> {
    let mut err = io::stderr();
    write!(err, "{prompt}")?;
    err.flush()?;
    let quiet = QuietTerminal::new().context("cannot hide the password")?;
    let line = read_line();
    // Shown again before an error of the reading ends the command.
    drop(quiet);
    writeln!(err)?;
    line
}

fn read_line() -> anyhow::Result<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// A terminal that does not show what is typed.
struct QuietTerminal(Termios);

impl QuietTerminal {
    fn new() -> nix::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_flags.remove(LocalFlags::ECHO);
        // Keys that were pressed before the prompt are dropped, too.
        tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &quiet)?;
        Ok(Self(before))
    }
}

impl Drop for QuietTerminal {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that has gone.
        let _ = tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &self.0);
    }
}
