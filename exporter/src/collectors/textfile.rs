//! What other programs of the node have to say: metrics in files, as text 0.0.4.
//!
//! Source: `*.prom` in the directories of `--collector.textfile.directory`. A file that cannot be read, is not as it
//! should be, has time stamps, or claims a metric that is somebody else's, is left out as a whole and reported; the
//! others stay. The directory may be on a mount that hangs, so this collector has a thread.

use crate::collector::{CollectError, Collector};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use takt_model::exposition::{Fact, Format, Line, MetricType, Page, ReadError};
use takt_model::{Kind, Labels, METRIC_NAME, Metric, Samples};

/// Flags of the collector `textfile`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct TextfileOptions {
    /// Directory to read *.prom files from; `*` and `?` stand for parts of names. May be repeated.
    #[arg(
        id = "textfile-directory",
        long = "collector.textfile.directory",
        value_name = "PATH"
    )]
    pub directory: Vec<PathBuf>,
}

struct Textfile {
    directories: Vec<PathBuf>,
    names: Names,
    /// What was wrong with a file the last time, so that it is logged once.
    complaints: HashMap<PathBuf, String>,
}

const SCRAPE_ERROR: Metric = Metric::gauge(
    "node_textfile_scrape_error",
    "1 if there was an error opening or reading a file, 0 otherwise",
    &[],
);
const MTIME: Metric = Metric::gauge(
    "node_textfile_mtime_seconds",
    "Unixtime mtime of textfiles successfully read.",
    &["file"],
);
const METRICS: &[Metric] = &[SCRAPE_ERROR, MTIME];

/// No file of a sane script is larger.
const MAX_FILE_BYTES: u64 = 4 << 20;
const MAX_SERIES: usize = 16_384;

/// `others` are the collectors whose metrics no file may claim.
pub(crate) fn new(
    options: &TextfileOptions,
    others: impl Iterator<Item = Box<dyn Collector>>,
) -> Box<dyn Collector> {
    Box::new(Textfile {
        directories: options.directory.clone(),
        names: Names::of_collectors(others),
        complaints: HashMap::new(),
    })
}

impl Collector for Textfile {
    fn name(&self) -> &'static str {
        "textfile"
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_SERIES
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let (mut is_wrong, mut mtimes, mut seen, mut complaints) =
            (false, Vec::new(), HashSet::new(), HashMap::new());
        for directory in &self
            .directories
            .iter()
            .flat_map(|pattern| expand(pattern))
            .collect::<Vec<_>>()
        {
            let Ok(files) = files(directory) else {
                is_wrong = true;
                self.note(directory, "cannot be listed".into(), &mut complaints);
                continue;
            };
            for path in files {
                let read = read(&path).and_then(|(text, metadata)| {
                    Ok((parse(&text, &self.names, &mut seen)?, metadata))
                });
                match read {
                    Ok((series, metadata)) => {
                        series.iter().for_each(|series| series.push(out));
                        mtimes.push((path, mtime(&metadata)));
                    }
                    Err(wrong) => {
                        is_wrong = true;
                        self.note(&path, wrong.to_string(), &mut complaints);
                    }
                }
            }
        }
        self.complaints = complaints;
        for (path, mtime) in mtimes {
            out.push(&MTIME, &[path.to_string_lossy()], mtime);
        }
        out.push::<&str>(&SCRAPE_ERROR, &[], f64::from(u8::from(is_wrong)));
        Ok(())
    }
}

impl Textfile {
    fn note(&self, path: &Path, wrong: String, complaints: &mut HashMap<PathBuf, String>) {
        if self.complaints.get(path) != Some(&wrong) {
            tracing::warn!(path = %path.display(), error = wrong, "textfile left out");
        }
        complaints.insert(path.to_owned(), wrong);
    }
}

/// The directories whose paths match the pattern. Without `*` and `?` it is the directory itself, be it there or not.
fn expand(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let Some(wild) = part
            .as_os_str()
            .to_str()
            .filter(|part| part.contains(['*', '?']))
        else {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        };
        let names = |directory: &PathBuf| {
            let names = crate::sysfs::names(directory, "")
                .unwrap_or_default()
                .into_iter();
            let paths: Vec<_> = names
                .filter(|name| matches(wild, name))
                .map(|name| directory.join(name))
                .collect();
            paths
        };
        found = found.iter().flat_map(names).collect();
    }
    found
}

/// Whether a name is as the pattern says, where `*` stands for any letters and `?` for one.
fn matches(pattern: &str, name: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => name.is_empty(),
        Some('*') => name
            .char_indices()
            .map(|(at, _)| at)
            .chain([name.len()])
            .any(|at| matches(rest.as_str(), &name[at..])),
        Some(letter) => {
            let mut letters = name.chars();
            letters
                .next()
                .is_some_and(|first| letter == '?' || letter == first)
                && matches(rest.as_str(), letters.as_str())
        }
    }
}

/// The names that the other collectors fill. A page cannot have two metrics of one name.
#[derive(Debug, Default)]
struct Names {
    metrics: HashSet<&'static str>,
    prefixes: Vec<&'static str>,
}

impl Names {
    fn of_collectors(others: impl Iterator<Item = Box<dyn Collector>>) -> Self {
        let mut names = Self {
            metrics: METRICS.iter().map(|metric| metric.name).collect(),
            prefixes: Vec::new(),
        };
        for collector in others {
            names
                .metrics
                .extend(collector.metrics().iter().map(|metric| metric.name));
            names
                .prefixes
                .extend(collector.families().iter().map(|family| family.prefix));
        }
        names
    }

    fn include(&self, name: &str) -> bool {
        let is_own = ["node_scrape_collector_", "takt_exporter_"]
            .iter()
            .any(|own| name.starts_with(own));
        is_own
            || self.metrics.contains(name)
            || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// Why a file is left out.
#[derive(Debug, thiserror::Error)]
enum Wrong {
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("is larger than {MAX_FILE_BYTES} bytes")]
    Large,
    #[error("{0}")]
    Text(#[from] ReadError),
    #[error("{0} has a time stamp")]
    Timestamp(String),
    #[error("{0} comes twice")]
    Twice(String),
    #[error("{0} is filled by a collector")]
    Owned(String),
}

#[derive(Debug)]
struct Series {
    labels: Labels,
    kind: Kind,
    help: String,
    value: f64,
}

impl Series {
    fn push(&self, out: &mut Samples) {
        let labels: Vec<_> = self
            .labels
            .iter()
            .filter(|(name, _)| *name != METRIC_NAME)
            .collect();
        out.push_foreign(
            self.labels.metric(),
            self.kind,
            &self.help,
            &labels,
            self.value,
        );
    }
}

fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("prom")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<(String, Metadata), Wrong> {
    let file = std::fs::File::open(path)?;
    let metadata = file.metadata()?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(Wrong::Large),
        false => Ok((text, metadata)),
    }
}

/// In whole seconds, as node_exporter has it.
fn mtime(metadata: &Metadata) -> f64 {
    let since = metadata
        .modified()
        .ok()
        .and_then(|mtime| mtime.duration_since(UNIX_EPOCH).ok());
    since.map_or(0.0, |since| since.as_secs() as f64)
}

/// The file's series; all of them become `seen`, or none.
fn parse(text: &str, names: &Names, seen: &mut HashSet<String>) -> Result<Vec<Series>, Wrong> {
    let (mut all, mut own): (Vec<Series>, HashSet<String>) = Default::default();
    let (mut kinds, mut helps): (HashMap<String, Kind>, HashMap<String, String>) =
        Default::default();
    let mut page = Page::new(Format::Text, text.as_bytes());
    while let Some(line) = page.next_line(b"")? {
        match line {
            Line::Metadata(about) => {
                let name = about.metric().into_owned();
                match about.fact {
                    Fact::Help(help) => drop(helps.insert(name, help.to_string())),
                    Fact::Type(kind) => drop(kinds.insert(name, self::kind(kind))),
                    _ => {}
                }
            }
            Line::Sample(sample) => {
                let labels = sample.labels()?;
                let series = labels.to_string();
                if sample.at.is_some() {
                    return Err(Wrong::Timestamp(series));
                }
                let name = labels.metric();
                if names.include(name) {
                    return Err(Wrong::Owned(series));
                }
                let kind = kinds.get(name).copied().unwrap_or(Kind::Unknown);
                let help = helps.get(name).cloned().unwrap_or_default();
                if seen.contains(&series) || !own.insert(series.clone()) {
                    return Err(Wrong::Twice(series));
                }
                all.push(Series {
                    labels,
                    kind,
                    help,
                    value: sample.value,
                });
            }
        }
    }
    seen.extend(own);
    Ok(all)
}

/// The parts of histograms and summaries go out as series of their own, whose type is not told.
fn kind(told: MetricType) -> Kind {
    match told {
        MetricType::Counter => Kind::Counter,
        MetricType::Gauge => Kind::Gauge,
        _ => Kind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::exposition::write_page;

    /// The page made of files with these texts, without metadata and mtimes.
    fn page(files: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let names = Names {
            metrics: HashSet::from(["node_load1"]),
            prefixes: vec!["node_memory_"],
        };
        let directories = vec![directory.path().to_owned()];
        let mut textfile = Textfile {
            directories,
            names,
            complaints: HashMap::new(),
        };
        let (mut samples, mut page) = (Samples::new(), String::new());
        textfile.collect(&mut samples).unwrap();
        write_page(Format::Text, [&samples], &mut page);
        let is_told = |line: &&str| {
            !line.starts_with('#') && !line.starts_with("node_textfile_mtime_seconds")
        };
        page.lines().filter(is_told).map(str::to_owned).collect()
    }

    const GOOD: (&str, &str) = (
        "b.prom",
        "# HELP x_total Things.\n# TYPE x_total counter\nx_total{a=\"\\\"1\\\\\\n\"} 3\ny 1\n",
    );

    #[test]
    fn directories_are_found_by_a_pattern() {
        let root = tempfile::tempdir().unwrap();
        for name in ["nodes/a1", "nodes/a2", "nodes/b1", "other"] {
            std::fs::create_dir_all(root.path().join(name)).unwrap();
        }
        let found = |pattern: &str| {
            let found = expand(&root.path().join(pattern)).into_iter();
            found
                .map(|path| {
                    path.strip_prefix(root.path())
                        .unwrap()
                        .display()
                        .to_string()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(found("n*s/?1"), ["nodes/a1", "nodes/b1"]);
        assert_eq!(found("*/a*"), ["nodes/a1", "nodes/a2"]);
        assert_eq!(
            (found("nothing*"), found("nothing")),
            (vec![], vec!["nothing".to_owned()])
        );
    }

    #[test]
    fn a_bad_file_is_reported_and_the_others_kept() {
        let good = [r#"x_total{a="\"1\\\n"} 3"#, "y 1"];
        assert_eq!(
            page(&[GOOD, ("c.txt", "no metrics")]),
            [good[0], good[1], "node_textfile_scrape_error 0"]
        );
        let bad = [
            "z{ 1\n",
            "z 1 1700000000000\n",
            "node_load1 1\n",
            "node_memory_Mine 1\n",
            "z 1\nz 2\n",
            "z\u{0}\n",
        ];
        for bad in bad {
            let wrong = page(&[
                GOOD,
                ("a.prom", "fine 1\n"),
                ("c.prom", &format!("ok 1\n{bad}")),
            ]);
            assert_eq!(
                wrong,
                ["fine 1", good[0], good[1], "node_textfile_scrape_error 1"],
                "{bad:?}"
            );
        }
        assert_eq!(
            page(&[GOOD, ("c.prom", "y 2\n")]),
            [good[0], good[1], "node_textfile_scrape_error 1"]
        );
    }

    #[test]
    fn without_a_directory_there_is_nothing_wrong_but_a_missing_one_is() {
        let collect = |directories| {
            let mut samples = Samples::new();
            let mut textfile = Textfile {
                directories,
                names: Names::default(),
                complaints: HashMap::new(),
            };
            textfile.collect(&mut samples).unwrap();
            let mut page = String::new();
            write_page(Format::Text, [&samples], &mut page);
            page.lines().last().unwrap().to_owned()
        };
        assert_eq!(collect(Vec::new()), "node_textfile_scrape_error 0");
        assert_eq!(
            collect(vec!["/nonexistent".into()]),
            "node_textfile_scrape_error 1"
        );
    }
}
