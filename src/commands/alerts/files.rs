//! `takt alerts check` and `takt alerts test`: rule files, routes and rule tests.

use crate::output::stdout;
use anyhow::{Context, anyhow};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use takt_alerts::glob;
use takt_alerts::notify::channels::Channels;
use takt_alerts::notify::owner::Addresses;
use takt_alerts::promtest::{self, TestFile};
use takt_alerts::routing::config::Config as Routing;
use takt_alerts::yaml::Node;
use takt_mail::EmailConfig;
use takt_server::alerting::{self, InMemory, Rules};
use takt_server::{Failure, OrUsage};

/// Checks files as the server reads them. Checks all files, then fails if one has a mistake.
pub fn check(files: &[PathBuf]) -> Result<(), Failure> {
    let mut out = stdout();
    let known = known_rules(files)?;
    let mut bad = 0;
    for path in files {
        let said = match check_one(path, &known) {
            Ok(said) => said,
            Err(error) => {
                // The other files are checked all the same, as `promtool check` does.
                bad += 1;
                format!("FAILED: {error:#}")
            }
        };
        writeln!(out, "{}: {said}", path.display())?;
    }

    match bad {
        0 => Ok(()),
        bad => Err(Failure::Failed(anyhow!(
            "{bad} of {} files have mistakes",
            files.len()
        ))),
    }
}

/// The shipped rules and those of the files: routes name what they set. A file with a mistake is named by its own check.
fn known_rules(files: &[PathBuf]) -> anyhow::Result<Rules> {
    let mut rules = Rules::shipped()?;
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Ok(text) = fs::read_to_string(path) {
            let _ = rules.add(&name, &path.display().to_string(), &text);
        }
    }
    Ok(rules)
}

/// Returns what the file has, and warnings. `known` are the rules whose alerts routes may name.
fn check_one(path: &Path, known: &Rules) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).context("cannot be read")?;
    let shown = path.display().to_string();

    // By content, not by name: sites call these files as they like.
    let is_routing = Node::read(&text).is_ok_and(|root| {
        root.pairs()
            .is_ok_and(|mut keys| keys.any(|(key, _)| key == "route"))
    });

    if is_routing {
        let mut routing = Routing::read(&shown, &text).map_err(|mistake| anyhow!("{mistake}"))?;
        // Templates and secret files are relative to the file, as in Alertmanager.
        let base = path.parent().unwrap_or(Path::new(""));
        // Templates that cannot be read are named together with those that have mistakes.
        let unread = routing.read_templates(base);
        let channels = Channels::build(&routing, &EmailConfig::default(), &Addresses::none(), base)
            .map_err(|mistake| anyhow!("{}", mistake.in_file(&shown)))?;
        let mistakes = channels.template_mistakes().iter();
        let mistakes = mistakes.map(|mistake| mistake.clone().in_file(&shown).to_string());
        let mistakes: Vec<_> = unread.into_iter().chain(mistakes).collect();
        if !mistakes.is_empty() {
            return Err(anyhow!("{}", mistakes.join("\n")));
        }
        let mut said = format!(
            "{} receivers, {} channels",
            routing.receivers.len(),
            channels.names().count()
        );
        warn(&mut said, alerting::doubts_of_routing(&routing, known));
        return Ok(said);
    }

    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut rules = Rules::default();
    rules.add(&name, &shown, &text)?;
    let (samples, events) = rules.count();

    let mut said = format!("{} rules found", samples + events);
    warn(&mut said, alerting::doubts_of_rules(&rules));
    // Such a template runs a query for each alert of a storm.
    let with_queries = rules.with_queries().map(|rule| {
        let (name, line) = (&rule.name, rule.line);
        format!("line {line}: {name}: its templates query for each alert")
    });
    warn(&mut said, with_queries);
    Ok(said)
}

fn warn(said: &mut String, warnings: impl IntoIterator<Item = String>) {
    for warning in warnings {
        *said += &format!("\n  warning: {warning}");
    }
}

/// Runs promtool's test files. Runs all tests, then fails if one failed.
pub fn test(files: &[PathBuf]) -> Result<(), Failure> {
    let mut out = stdout();
    let mut bad = 0;
    for path in files {
        let failures = test_one(path).usage()?;

        if failures.is_empty() {
            writeln!(out, "{}: SUCCESS", path.display())?;
            continue;
        }

        bad += 1;
        writeln!(out, "{}: FAILED", path.display())?;
        for failure in failures {
            writeln!(out, "  {failure}")?;
        }
    }

    match bad {
        0 => Ok(()),
        bad => Err(Failure::Failed(anyhow!(
            "tests of {bad} of {} files failed",
            files.len()
        ))),
    }
}

fn test_one(path: &Path) -> anyhow::Result<Vec<promtest::Failure>> {
    let shown = path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let file = TestFile::read(&shown, &text).map_err(|mistake| anyhow!("{mistake}"))?;
    let base = path.parent().unwrap_or(Path::new(""));

    let mut rules = Rules::default();
    for pattern in &file.rule_files {
        let found = glob::matching(&base.join(pattern))
            .with_context(|| format!("{shown}: rule_files: {pattern}"))?;

        // A pattern without wildcards is returned as it is, whether or not the file exists.
        let found = Vec::from_iter(found.into_iter().filter(|path| path.exists()));
        if found.is_empty() {
            writeln!(stdout(), "{shown}: warning: no file is called {pattern}")?;
        }

        for found in found {
            let text = fs::read_to_string(&found)
                .with_context(|| format!("cannot read {}", found.display()))?;
            // promtool has one kind of rule files.
            rules.add("rules.yml", &found.display().to_string(), &text)?;
        }
    }

    Ok(promtest::run(&file, &rules.files, &|| {
        Box::new(InMemory::default())
    }))
}
