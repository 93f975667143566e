//! `takt sql-process`: runs SQL statements for a server.

use std::io::stdin;
use std::os::fd::AsFd;
use std::process::Command;
use takt_server::{Failure, OrUsage};
use takt_store::sql::serve;

/// Makes the command with which a server starts this process. It runs the server's own program,
/// also after an update has replaced the file.
pub fn command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("sql-process");
    command
}

/// Runs the command. Standard input is the socket of the server.
pub fn run() -> Result<(), Failure> {
    let socket = stdin().as_fd().try_clone_to_owned().usage()?;
    Ok(serve(socket)?)
}
