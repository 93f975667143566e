//! Checks that every `takt` command in the documentation exists with its flags.

mod reference;

use crate::cli::Cli;
use clap::Parser;
use clap::error::ErrorKind;
use std::fs;
use std::mem;
use std::path::Path;

/// Returns the commands of a Markdown page: lines of shell blocks and code spans that begin with
/// `takt`.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, part) in page.split("```").enumerate() {
        // Text and fenced blocks alternate.
        if index % 2 == 0 {
            found.extend(part.split('`').skip(1).step_by(2).map(str::to_owned));
        } else if let Some(lines) = part.strip_prefix("sh\n") {
            // A long command continues on the next line.
            found.extend(lines.replace("\\\n", " ").lines().map(str::to_owned));
        }
    }

    found
        .iter()
        .map(|command| command.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter_map(|command| {
            let command = command.strip_prefix("sudo -u takt ").unwrap_or(&command);
            let command = command.strip_prefix("target/release/").unwrap_or(command);
            command.starts_with("takt ").then(|| command.to_owned())
        })
        .collect()
}

/// Splits a command into words as a shell does, up to a comment, a pipe, a redirection or a second
/// command.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for c in command.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            // A mark within quotes is text.
            (None, '#' | '|' | '>' | '<' | '&' | ';') => break,
            (None, ' ') => words.push(mem::take(&mut word)),
            _ => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Returns whether a command is one that people can type: no `…` and no `a|b` for alternatives.
fn is_complete(command: &str) -> bool {
    let alternatives =
        |word: &str| word.contains('|') && word.len() > 1 && !word.starts_with(['\'', '"']);
    !command.contains('…') && !command.split(' ').any(alternatives)
}

#[test]
fn every_command_in_the_documentation_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = fs::read_dir(root.join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .chain([root.join("README.md")]);

    let mut checked = 0;
    let mut wrong = Vec::new();
    for path in pages {
        let page = fs::read_to_string(&path).unwrap();
        for command in commands(&page)
            .iter()
            .filter(|command| is_complete(command))
        {
            checked += 1;
            if let Err(error) = Cli::try_parse_from(words(command)) {
                // A text may name a command without its arguments.
                let is_a_mention = matches!(
                    error.kind(),
                    ErrorKind::MissingRequiredArgument
                        | ErrorKind::MissingSubcommand
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                        | ErrorKind::DisplayHelp
                );
                if !is_a_mention {
                    wrong.push(format!("{}: {command}\n{error}", path.display()));
                }
            }
        }
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A change of the search that finds nothing would pass.
    assert!(checked > 50, "only {checked} commands were found");
}

#[test]
fn commands_are_found_and_split() {
    let page =
        "Run `takt  jobs` or `ls`.\n```sh\nsudo -u takt takt sql 'SELECT 1; x' > a # b\n```\n";
    let found = commands(page);
    assert_eq!(found, ["takt jobs", "takt sql 'SELECT 1; x' > a # b"]);
    assert_eq!(words(&found[1]), ["takt", "sql", "SELECT 1; x"]);
    assert!(!is_complete("takt import sacct|jobcomp"));
}

/// Returns the sources below `folder`.
fn sources(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(fs::read_to_string(&path).unwrap());
        }
    }
    found
}

#[test]
fn every_test_that_a_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = sources(root);
    let page = fs::read_to_string(root.join("docs/reliability.md")).unwrap();
    // The tables of faults and attacks name tests.
    let mut names_tests = false;
    let rows = page.lines().filter(|line| {
        let is_head = line.starts_with("| fault ") || line.starts_with("| attack ");
        names_tests = is_head || names_tests && line.starts_with('|');
        names_tests && !is_head && line.starts_with("| ")
    });

    let mut missing = Vec::new();
    let mut checked = 0;
    for row in rows {
        let cell = row
            .trim_end_matches(" |")
            .rsplit("| ")
            .next()
            .unwrap_or_default();

        checked += 1;
        let exists = |name: &str| {
            let declaration = format!("fn {}(", name.trim_matches('`'));
            sources.iter().any(|source| source.contains(&declaration))
        };
        if !cell.split(", ").all(exists) {
            missing.push(row);
        }
    }

    assert!(missing.is_empty(), "no such test:\n{}", missing.join("\n"));
    assert!(checked > 30, "only {checked} rows were found");
}

#[test]
fn the_security_page_names_the_mode_of_the_data_directory() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let unit = fs::read_to_string(root.join("packaging/takt.service")).unwrap();
    let mode = unit
        .lines()
        .find_map(|line| line.strip_prefix("StateDirectoryMode="))
        .unwrap();
    let page = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = format!("except its data directory, which has mode {mode} ");
    assert!(words.contains(&said), "{said}");
}
