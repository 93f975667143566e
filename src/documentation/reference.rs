//! Reference pages that are written from the code: docs/commands.md and docs/metrics.md.

use crate::cli::Cli;
use clap::{Arg, Command, CommandFactory};
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use takt_exporter::{COLLECTORS, Options};
use takt_model::Kind;

/// Compares a page with its file. With `UPDATE_GOLDEN=1`, writes the file.
fn is_fresh(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs")
        .join(name);
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/{name} differs from the code; run: UPDATE_GOLDEN=1 cargo test -p takt reference"
    );
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn commands() -> String {
    let mut takt = Cli::command();
    takt.build();
    let mut page = String::from(
        "# Commands\n\nThis page is written from the program. The option `--help` of a \
         command prints the same, with more words.\n\n| command | does |\n| --- | --- |\n",
    );
    for command in takt.get_subcommands().filter(|command| is_visible(command)) {
        let name = command.get_name();
        let about = command.get_about().map(ToString::to_string);
        let about = cell(&about.unwrap_or_default());
        let _ = writeln!(page, "| [`takt {name}`](#takt-{name}) | {about} |");
    }

    page.push_str("\n## Options of every command\n\n| option | meaning |\n| --- | --- |\n");
    takt.get_arguments()
        .filter(|arg| arg.is_global_set() && !arg.is_hide_set())
        .for_each(|arg| write_argument(&mut page, arg));

    write_commands(&mut page, &takt, "takt");
    page
}

fn is_visible(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn write_commands(page: &mut String, of: &Command, name: &str) {
    let exporter = of.find_subcommand("exporter");
    for command in of.get_subcommands().filter(|command| is_visible(command)) {
        let name = format!("{name} {}", command.get_name());
        let about = command.get_about().map(ToString::to_string);
        let _ = write!(page, "\n## `{name}`\n\n{}.\n", about.unwrap_or_default());
        // `takt up` also takes most options of the exporter.
        let exporter = exporter.filter(|exporter| exporter.get_name() != command.get_name());
        let is_exporters = |arg: &Arg| {
            exporter
                .into_iter()
                .flat_map(Command::get_arguments)
                .any(|other| {
                    let is_same = other.get_id() == arg.get_id();
                    is_same
                        && other.get_help().map(ToString::to_string)
                            == arg.get_help().map(ToString::to_string)
                })
        };

        let (exporters, own): (Vec<_>, Vec<_>) = command
            .get_arguments()
            .filter(|arg| !arg.is_global_set() && !arg.is_hide_set() && arg.get_id() != "help")
            .partition(|arg| is_exporters(arg));

        if !own.is_empty() {
            page.push_str("\n| option | meaning |\n| --- | --- |\n");
            own.into_iter().for_each(|arg| write_argument(page, arg));
        }

        if !exporters.is_empty() {
            page.push_str("\nAlso the options of [`takt exporter`](#takt-exporter).\n");
        }

        write_commands(page, command, &name);
    }
}

fn write_argument(page: &mut String, arg: &Arg) {
    // `--nodes <N>` becomes `--nodes N`.
    let usage = arg.to_string().replace(['<', '>'], "");
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let default: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        // clap's default of a flag, which says nothing.
        .filter(|value| value != "false")
        .collect();
    let default = if default.is_empty() {
        String::new()
    } else {
        format!(" Default: `{}`.", default.join(" "))
    };
    // Helps of clap end without a full stop.
    let end = if help.ends_with(['.', ']']) { "" } else { "." };

    let meaning = cell(&format!("{help}{end}{default}"));
    let _ = writeln!(page, "| `{}` | {meaning} |", cell(&usage));
}

fn metrics() -> String {
    let options = Options::default();
    let mut page = String::from(
        "# Metrics of the exporter\n\nThis page is written from the program. Names that end in `*` \
         are families: the kernel names the rest. A value that a device does not support has no \
         series. [gpus.md](gpus.md) and [jobs-on-a-node.md](jobs-on-a-node.md) explain where the \
         values come from, [server-series.md](server-series.md) lists the series of the server.\n",
    );

    for entry in COLLECTORS {
        let collector = (entry.new)(&options);
        let off = if entry.by_default {
            ""
        } else {
            " Off by default."
        };

        let _ = write!(
            page,
            "\n## `{}`\n\n{}.{off}\n\n| metric | type | labels | meaning |\n\
             | --- | --- | --- | --- |\n",
            entry.name, entry.about
        );

        for metric in collector.metrics() {
            write_metric(
                &mut page,
                metric.name,
                metric.kind,
                metric.labels,
                metric.help,
            );
        }

        for family in collector.families() {
            let name = format!("{}*", family.prefix);
            let help = family.help.replace("{}", "…");
            write_metric(&mut page, &name, family.kind, family.labels, &help);
        }
    }
    page
}

fn device_metrics() -> String {
    let mut page = String::from(
        "# Metrics of devices\n\nThis page is written from the program. [devices.md](devices.md) says how \
         switches, PDUs and UPSes are asked. A value that a device does not have has no series.\n\n\
         | metric | type | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    for metric in takt_probe::DEVICE_METRICS {
        write_metric(
            &mut page,
            metric.name,
            metric.kind,
            metric.labels,
            metric.help,
        );
    }
    page
}

fn write_metric(page: &mut String, name: &str, kind: Kind, labels: &[&str], help: &str) {
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
        Kind::Summary => "summary",
        Kind::Unknown => "unknown",
    };
    let labels = labels.join(", ");
    let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {} |", cell(help));
}

#[test]
fn the_reference_of_commands_is_fresh() {
    is_fresh("commands.md", &commands());
}

#[test]
fn the_reference_of_device_metrics_is_fresh() {
    is_fresh("device-metrics.md", &device_metrics());
}

#[test]
fn the_reference_of_metrics_is_fresh() {
    is_fresh("metrics.md", &metrics());
}
