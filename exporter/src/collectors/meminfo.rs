//! Memory: what the kernel says of it, field by field.
//!
//! Source: `/proc/meminfo`. Its `kB` is 1,024 bytes; we publish bytes.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Family, Kind, Metric, Samples};

struct Meminfo {
    meminfo: KernelFile,
    field: String,
}

/// Every field of the file; those without `kB` are counts, such as `HugePages_Total`.
const FIELDS: Family = Family {
    prefix: "node_memory_",
    help: "Memory information field {}.",
    kind: Kind::Gauge,
    labels: &[],
};

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Meminfo {
        meminfo: KernelFile::new(paths.procfs.join("meminfo")),
        field: String::new(),
    })
}

impl Collector for Meminfo {
    fn metrics(&self) -> &'static [Metric] {
        &[]
    }

    fn families(&self) -> &'static [Family] {
        &[FIELDS]
    }

    fn max_series(&self) -> usize {
        256
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.meminfo.parse(|text| {
            for line in parse(text) {
                let (name, value) = line?;
                name.write(&mut self.field);
                out.push_field::<&str>(&FIELDS, &self.field, &[], value);
            }
            Ok(())
        })
    }
}

/// A field's name as the file has it, such as `Active(anon)`.
#[derive(Debug, PartialEq)]
struct Name<'a> {
    text: &'a str,
    is_bytes: bool,
}

impl Name<'_> {
    /// Writes it as node_exporter does, `Active_anon_bytes`.
    fn write(&self, out: &mut String) {
        out.clear();

        // `Active(anon)` is a part of `Active`.
        let parts = self.text.strip_suffix(')');
        match parts.and_then(|text| text.split_once('(')) {
            Some((whole, part)) => {
                out.push_str(whole);
                out.push('_');
                out.push_str(part);
            }
            None => out.push_str(self.text),
        }

        if self.is_bytes {
            out.push_str("_bytes");
        }
    }
}

fn parse(text: &str) -> impl Iterator<Item = Result<(Name<'_>, f64), ParseError>> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    lines.map(|(number, line)| {
        parse_line(line).ok_or(ParseError {
            line: number + 1,
            expected: "`name: value` or `name: value kB`",
        })
    })
}

fn parse_line(line: &str) -> Option<(Name<'_>, f64)> {
    let is_name = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'(' | b')');

    let (text, rest) = line.split_once(':')?;
    let mut words = rest.split_ascii_whitespace();
    let value: f64 = words.next()?.parse().ok()?;
    let (is_bytes, scale) = match (words.next(), words.next()) {
        (None, _) => (false, 1.0),
        // Despite its name, this is 1,024 bytes.
        (Some("kB"), None) => (true, 1024.0),
        _ => return None,
    };

    let is_right = !text.is_empty() && text.bytes().all(is_name);
    is_right.then_some((Name { text, is_bytes }, value * scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<Result<(String, f64), usize>> {
        let mut name = String::new();
        let field = |parsed: Result<(Name<'_>, f64), ParseError>| {
            let (field, value) = parsed.map_err(|error| error.line)?;
            field.write(&mut name);
            Ok((name.clone(), value))
        };
        parse(text).map(field).collect()
    }

    #[test]
    fn kilobytes_become_bytes_and_counts_stay() {
        let text =
            "MemTotal:       24684092 kB\nActive(anon):       1584 kB\nHugePages_Total:       3\n";
        assert_eq!(
            fields(text),
            [
                Ok(("MemTotal_bytes".into(), 24_684_092.0 * 1024.0)),
                Ok(("Active_anon_bytes".into(), 1_622_016.0)),
                Ok(("HugePages_Total".into(), 3.0)),
            ]
        );
    }

    #[test]
    fn a_wrong_line_is_named_and_the_others_stay() {
        let text =
            "MemTotal 1 kB\nMemFree: 2 kB\nCached: many kB\nBuffers: 3 MB\nBad-Name: 4\n: 5\n";
        assert_eq!(
            fields(text),
            [
                Err(1),
                Ok(("MemFree_bytes".into(), 2048.0)),
                Err(3),
                Err(4),
                Err(5),
                Err(6)
            ]
        );
    }
}
