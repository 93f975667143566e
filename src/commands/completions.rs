//! `takt completions` and `takt man`.

use super::node::Node;
use crate::cli::Cli;
use crate::output::stdout;
use anyhow::Context;
use clap::{Args, Command, CommandFactory, Subcommand, ValueEnum};
use clap_complete::{Shell, generate};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use takt_server::Failure;

#[derive(Debug, Args)]
pub struct Completions {
    /// Shell; `source <(takt completions bash)` switches them on in bash
    #[arg(value_enum)]
    pub shell: CompletionShell,
    /// Program that is completed
    #[arg(long, value_enum, default_value_t)]
    pub program: Program,
}

/// Shell of a completion script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

/// Program with completions and man pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Program {
    #[default]
    Takt,
    TaktExporter,
}

#[derive(Debug, Args)]
pub struct Man {
    /// Directory, such as /usr/local/share/man/man1
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Prints the completion script of a shell.
pub fn script(asked: &Completions) -> Result<(), Failure> {
    let shell = match asked.shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let mut command = match asked.program {
        Program::Takt => Cli::command(),
        Program::TaktExporter => exporter(),
    };
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    generate(shell, &mut command, name, &mut text);
    Ok(stdout().write_all(&text)?)
}

/// Writes a page for each command of takt, and one for takt-exporter.
pub fn man_pages(directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;

    // Built, so that each command's page has the global flags.
    let mut takt = Cli::command();
    takt.build();
    write_pages(&takt, "takt", directory)?;
    write_pages(&exporter(), "takt-exporter", directory)
}

/// The command line of takt-exporter, whose program is separate.
fn exporter() -> Command {
    let about = "Metrics and events of this node, for Prometheus and Takt";
    let command = Command::new("takt-exporter")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about);
    let node =
        Command::new("node").about("Questions about this node, answered by its running exporter");
    takt_exporter::Options::augment_args(command).subcommand(Node::augment_subcommands(node))
}

fn write_pages(command: &Command, name: &str, directory: &Path) -> Result<(), Failure> {
    let path = directory.join(format!("{name}.1"));
    let named = command.clone().name(name.to_owned());
    let mut text = Vec::new();
    clap_mangen::Man::new(named).render(&mut text)?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    command
        .get_subcommands()
        // clap adds `help` to each command.
        .filter(|command| !command.is_hide_set() && command.get_name() != "help")
        .try_for_each(|one| write_pages(one, &format!("{name}-{}", one.get_name()), directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    #[test]
    fn every_command_has_a_page_and_the_exporter_has_its_flags() {
        let directory = tempdir().unwrap();
        man_pages(directory.path()).unwrap();
        let page = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let visible = |command: &&Command| !command.is_hide_set();
        for command in Cli::command().get_subcommands().filter(visible) {
            let text = page(&format!("takt-{}.1", command.get_name()));
            assert!(text.contains(".SH SYNOPSIS"), "{text}");
        }
        assert!(page("takt-report-usage.1").contains("timezone"));
        assert!(page("takt-exporter.1").contains("web.listen\\-address"));
        assert!(page("takt-exporter-node-ok.1").contains("only\\-job\\-gpus"));
    }
}
