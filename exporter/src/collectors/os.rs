//! Distribution of the node, and the end of its support.
//!
//! Sources: `/etc/os-release`, or else `/usr/lib/os-release`.

use crate::collector::{CollectError, Collector, OrAbsent};
use crate::file::KernelFile;
use crate::paths::Paths;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use std::collections::HashMap;
use takt_model::{Metric, Samples};

struct Os {
    files: [KernelFile; 2],
}

const INFO: Metric = Metric::gauge(
    "node_os_info",
    "A metric with a constant '1' value labeled by build_id, id, id_like, image_id, image_version, \
     name, pretty_name, variant, variant_id, version, version_codename, version_id.",
    &[
        "build_id",
        "id",
        "id_like",
        "image_id",
        "image_version",
        "name",
        "pretty_name",
        "variant",
        "variant_id",
        "version",
        "version_codename",
        "version_id",
    ],
);
const VERSION: Metric = Metric::gauge(
    "node_os_version",
    "Metric containing the major.minor part of the OS version.",
    &["id", "id_like", "name"],
);
const SUPPORT_END: Metric = Metric::gauge(
    "node_os_support_end_timestamp_seconds",
    "Metric containing the end-of-life date timestamp of the OS.",
    &[],
);
const METRICS: &[Metric] = &[INFO, VERSION, SUPPORT_END];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    let rootfs = &paths.rootfs;
    Box::new(Os {
        files: ["etc/os-release", "usr/lib/os-release"]
            .map(|path| KernelFile::new(rootfs.join(path))),
    })
}

impl Collector for Os {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let [first, second] = &mut self.files;
        let text = match first.read() {
            Ok(text) => text,
            // The second is the distribution's default where an administrator wrote none.
            Err(_) => {
                let text = second.read();
                text.or_absent("no os-release")?
            }
        };

        let variables = parse(text);

        // The labels are the variables' names in small letters.
        let variable = |label: &&str| {
            let value = variables.get(label.to_ascii_uppercase().as_str());
            value.map_or("", String::as_str)
        };

        let values: Vec<_> = INFO.labels.iter().map(variable).collect();
        out.push(&INFO, &values, 1.0);

        if let Some(version) = version(variable(&"version_id")) {
            let labels = ["id", "id_like", "name"].map(|label| variable(&label));
            out.push(&VERSION, &labels, version);
        }
        if let Some(end) = support_end(variable(&"support_end")) {
            out.push::<&str>(&SUPPORT_END, &[], end);
        }
        Ok(())
    }
}

/// Assignments as a shell reads them (os-release(5)); other lines are skipped.
fn parse(text: &str) -> HashMap<&str, String> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_ascii().starts_with('#'));
    let assignments = lines.filter_map(|line| line.trim_ascii().split_once('='));
    let unquoted = assignments.map(|(name, value)| (name, unquote(value)));
    unquoted.collect()
}

fn unquote(value: &str) -> String {
    // In single quotes, a backslash is a backslash.
    let literal = value.strip_prefix('\'');
    if let Some(literal) = literal.and_then(|value| value.strip_suffix('\'')) {
        return literal.to_owned();
    }

    let quoted = value.strip_prefix('"');
    let quoted = quoted.and_then(|value| value.strip_suffix('"'));
    let value = quoted.unwrap_or(value);

    // A backslash stands for the character behind it.
    let mut chars = value.chars();
    let mut unquoted = String::with_capacity(value.len());
    while let Some(c) = chars.next() {
        unquoted.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    unquoted
}

/// The number that the version begins with: 22.04 of `22.04`, 15.4 of `15.4.1`, none of a rolling
/// release.
fn version(id: &str) -> Option<f64> {
    let is_whole = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    let is_other = |c: char| !c.is_ascii_digit();

    let parts = id.split('.');
    let mut parts = parts.map(|part| part.split(is_other).next().unwrap_or(""));
    let major = parts.next().filter(|part| is_whole(part))?;
    let version = match parts.next().filter(|part| is_whole(part)) {
        Some(minor) => format!("{major}.{minor}").parse(),
        None => major.parse(),
    };

    // A version of 0 says as little as none.
    version.ok().filter(|version| *version > 0.0)
}

/// The beginning of the day (UTC) on which support ends.
fn support_end(day: &str) -> Option<f64> {
    let midnight = day.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?;
    Some(midnight.timestamp().as_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn garbage_is_ignored(text in "[A-Z_=\"'\\\\\n.0-9\u{fffd}-]{0,60}") {
            for value in parse(&text).values() {
                let _ = (version(value), support_end(value));
            }
        }
    }

    #[test]
    fn variables_as_a_shell_reads_them() {
        let text = "# comment\nID=debian\nNAME=\"Say \\\"hi\\\"\"\nVERSION='12 (\\w)'\nnonsense\nEMPTY=\nID_LIKE=\"";
        let variables = parse(text);
        assert_eq!(variables["ID"], "debian");
        assert_eq!(variables["NAME"], "Say \"hi\"");
        assert_eq!(variables["VERSION"], "12 (\\w)");
        assert_eq!(variables["EMPTY"], "");
        assert_eq!(variables["ID_LIKE"], "\"");
        assert_eq!(variables.len(), 5);
    }

    #[test]
    fn versions() {
        let versions = [
            "12", "22.04", "15.4.1", "8.9-beta", "", "rolling", "0", ".5",
        ]
        .map(version);
        assert_eq!(
            versions,
            [
                Some(12.0),
                Some(22.04),
                Some(15.4),
                Some(8.9),
                None,
                None,
                None,
                None
            ]
        );
    }

    #[test]
    fn the_end_of_support() {
        assert_eq!(support_end("2025-05-13"), Some(1_747_094_400.0));
        assert_eq!(support_end("soon"), None);
    }
}
