//! Metrics that other programs of the node write into files, in Prometheus' text format.
//!
//! Source: `*.prom` in the directories of `--collector.textfile.directory`. A file is left out as a
//! whole, and reported, if it cannot be read, is malformed, has timestamps or a metric of another
//! collector; the other files stay. Only regular files are read; opening a FIFO or a device does
//! not block. Symbolic links are followed, as in node_exporter, so nothing that a file contains is
//! ever logged: the link may lead anywhere. The directory may be on a mount that hangs, so this
//! collector has a thread.

use crate::collector::{CollectError, Collector, flag};
use rustix::fs::{Mode, OFlags, open};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use takt_model::exposition::{Fact, Format, Line, MetricType, Page, ReadError};
use takt_model::glob::is_match;
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
    /// Errors of the last reading by file: the same error is logged once.
    errors: HashMap<PathBuf, String>,
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

/// Largest file that is read.
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
        errors: HashMap::new(),
    })
}

impl Collector for Textfile {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_SERIES
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let mut found = Found::default();
        for directory in self.directories.iter().flat_map(|path| expand(path)) {
            self.read_directory(&directory, &mut found);
        }

        found.push(out);
        for (path, mtime) in found.mtimes {
            out.push(&MTIME, &[path.to_string_lossy()], mtime);
        }

        let has_errors = !found.errors.is_empty();
        out.push::<&str>(&SCRAPE_ERROR, &[], flag(has_errors));

        // With these, the errors of files that are gone are forgotten.
        self.errors = found.errors;
        Ok(())
    }
}

/// The results of one reading of all directories.
#[derive(Default)]
struct Found {
    mtimes: Vec<(PathBuf, f64)>,
    /// The well-formed files.
    files: Vec<(PathBuf, Vec<Series>)>,
    /// Series of all files, to find those that come twice.
    series: HashSet<String>,
    errors: HashMap<PathBuf, String>,
}

impl Found {
    fn push(&self, out: &mut Samples) {
        let helps = self.helps();
        for series in self.files.iter().flat_map(|(_, series)| series) {
            series.push(&helps[series.metric()], out);
        }
    }

    /// The help of each metric: that of the first file which has one. As in node_exporter, the
    /// help of others names the files.
    fn helps(&self) -> HashMap<&str, String> {
        let mut helps: HashMap<&str, (&str, Vec<Cow<'_, str>>)> = HashMap::new();

        for (path, all) in &self.files {
            let path = path.to_string_lossy();
            for series in all {
                let (help, paths) = helps.entry(series.metric()).or_default();
                if help.is_empty() {
                    *help = &series.help;
                }
                // The series of a file come together, so its path can only be the last one.
                if paths.last() != Some(&path) {
                    paths.push(path.clone());
                }
            }
        }

        let text = |(help, paths): (&str, Vec<_>)| match help {
            "" => format!("Metric read from {}", paths.join(", ")),
            help => help.to_owned(),
        };

        let texts = helps.into_iter();
        texts.map(|(name, found)| (name, text(found))).collect()
    }
}

impl Textfile {
    /// Reads the files of a directory that are well formed, and notes what is wrong with the
    /// others.
    fn read_directory(&self, directory: &Path, found: &mut Found) {
        let files = match files(directory) {
            Ok(files) => files,
            Err(error) => {
                let error = format!("cannot be listed: {error}");
                return self.note(directory, error, found);
            }
        };

        for path in files {
            // The series of earlier files count, because a page cannot have a series twice.
            let file = read(&path).and_then(|(text, metadata)| {
                let series = parse(&text, &self.names, &mut found.series)?;
                Ok((series, metadata))
            });

            match file {
                Ok((series, metadata)) => {
                    found.mtimes.push((path.clone(), mtime(&metadata)));
                    found.files.push((path, series));
                }
                Err(error) => self.note(&path, error.to_string(), found),
            }
        }
    }

    /// Logs an error unless the last reading found the same.
    fn note(&self, path: &Path, error: String, found: &mut Found) {
        if self.errors.get(path) != Some(&error) {
            tracing::warn!(path = %path.display(), error, "textfile left out");
        }
        found.errors.insert(path.to_owned(), error);
    }
}

/// The directories whose paths match the pattern. A pattern without `*` and `?` is returned as it
/// is, also where the directory does not exist.
fn expand(pattern: &Path) -> Vec<PathBuf> {
    // Each part of the pattern may match several names, so the directories multiply from part to part.
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

        found = found
            .iter()
            .flat_map(|directory| matching(directory, wild))
            .collect();
    }
    found
}

/// The paths in a directory whose names match the pattern; none if it cannot be listed.
fn matching(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut names = crate::sysfs::names(directory, "").unwrap_or_default();
    names.retain(|name| is_match(pattern, name));
    names.iter().map(|name| directory.join(name)).collect()
}

/// Names of the other collectors' metrics. A page cannot have two metrics of one name.
#[derive(Debug, Default)]
struct Names {
    metrics: HashSet<&'static str>,
    prefixes: Vec<&'static str>,
}

impl Names {
    fn of_collectors(others: impl Iterator<Item = Box<dyn Collector>>) -> Self {
        let mut names = Self {
            // The two metrics of this collector are taken as well.
            metrics: METRICS.iter().map(|metric| metric.name).collect(),
            prefixes: Vec::new(),
        };

        for collector in others {
            let metrics = collector.metrics().iter().map(|metric| metric.name);
            let families = collector.families().iter().map(|family| family.prefix);
            names.metrics.extend(metrics);
            names.prefixes.extend(families);
        }
        names
    }

    fn include(&self, name: &str) -> bool {
        // These are the exporter's own, and no collector declares them.
        const OWN: [&str; 3] = ["node_scrape_collector_", "takt_exporter_", "process_"];

        OWN.iter().any(|own| name.starts_with(own))
            || self.metrics.contains(name)
            || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// Why a file is left out. Names lines, and what was expected there, but nothing that the file
/// contains.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("not a regular file")]
    NotRegular,
    #[error("larger than {MAX_FILE_BYTES} bytes")]
    TooLarge,
    #[error("line {line}: expected {expected}")]
    Line { line: usize, expected: &'static str },
}

impl From<ReadError> for FileError {
    fn from(error: ReadError) -> Self {
        Self::Line {
            line: error.line,
            expected: error.expected,
        }
    }
}

#[derive(Debug)]
struct Series {
    labels: Labels,
    kind: Kind,
    /// Part of the name behind the metric's, of a histogram or a summary.
    suffix: &'static str,
    /// Empty if the file has none.
    help: String,
    value: f64,
}

impl Series {
    /// Name of the metric; the series may be a part of it.
    fn metric(&self) -> &str {
        let name = self.labels.metric();
        name.strip_suffix(self.suffix).unwrap_or(name)
    }

    fn push(&self, help: &str, out: &mut Samples) {
        let labels = self.labels.iter();
        let labels: Vec<_> = labels.filter(|(name, _)| *name != METRIC_NAME).collect();

        out.push_part(
            self.metric(),
            self.suffix,
            self.kind,
            help,
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

    // In the order of names, so that the page does not depend on the order of the directory.
    files.sort();
    Ok(files)
}

/// Reads a regular file. Opening without blocking returns at once for a FIFO that has no writer,
/// and changes nothing for a regular file.
fn read(path: &Path) -> Result<(String, Metadata), FileError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(std::io::Error::from)?;
    let file = std::fs::File::from(file);

    // The open file is asked: its path could lead to another file by now.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(FileError::NotRegular);
    }

    let mut text = String::new();
    // One byte more than the limit shows that a file is too large.
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;

    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(FileError::TooLarge);
    }

    Ok((text, metadata))
}

/// In whole seconds, as node_exporter has it.
fn mtime(metadata: &Metadata) -> f64 {
    let mtime = metadata.modified().ok();
    let since = mtime.and_then(|mtime| mtime.duration_since(UNIX_EPOCH).ok());
    since.map_or(0.0, |since| since.as_secs() as f64)
}

/// The series of a file. Adds them to `seen`; fails, and adds none, at the first wrong line.
fn parse(text: &str, names: &Names, seen: &mut HashSet<String>) -> Result<Vec<Series>, FileError> {
    let mut all = Vec::new();
    // The file's series join `seen` at the end only: a file that fails must not block those of others.
    let mut own = HashSet::new();
    let mut kinds = HashMap::new();
    let mut helps = HashMap::new();

    let mut page = Page::new(Format::Text, text.as_bytes());
    while let Some(line) = page.next_line(b"")? {
        match line {
            Line::Metadata(about) => {
                let name = about.metric().into_owned();
                match about.fact {
                    Fact::Help(help) => drop(helps.insert(name, help.to_string())),
                    Fact::Type(kind) => drop(kinds.insert(name, kind)),
                    _ => {}
                }
            }

            Line::Sample(sample) => {
                let labels = sample.labels()?;
                let wrong = |expected| FileError::Line {
                    line: sample.line,
                    expected,
                };

                // As in node_exporter: the samples of a page have the time of the scrape.
                if sample.at.is_some() {
                    return Err(wrong("no timestamp"));
                }

                let name = labels.metric();
                if names.include(name) {
                    return Err(wrong("no metric of another collector"));
                }

                let series = labels.to_string();
                let (metric, suffix) = metric_of(name, &kinds);
                let kind = kinds
                    .get(metric)
                    .map_or(Kind::Unknown, |kind| self::kind(*kind));
                let help = helps.get(metric).cloned().unwrap_or_default();

                if seen.contains(&series) || !own.insert(series.clone()) {
                    return Err(wrong("no series for the second time"));
                }

                all.push(Series {
                    labels,
                    kind,
                    suffix,
                    help,
                    value: sample.value,
                });
            }
        }
    }

    seen.extend(own);
    Ok(all)
}

/// The metric that has the sample, and the rest of the sample's name.
fn metric_of<'a>(name: &'a str, kinds: &HashMap<String, MetricType>) -> (&'a str, &'static str) {
    let part = |suffix: &'static str, kinds_with_it: &[MetricType]| {
        let metric = name.strip_suffix(suffix)?;
        let kind = kinds.get(metric)?;
        kinds_with_it.contains(kind).then_some((metric, suffix))
    };
    const BOTH: &[MetricType] = &[MetricType::Histogram, MetricType::Summary];

    // A summary has no buckets.
    part("_bucket", &BOTH[..1])
        .or_else(|| part("_sum", BOTH))
        .or_else(|| part("_count", BOTH))
        .unwrap_or((name, ""))
}

fn kind(declared: MetricType) -> Kind {
    match declared {
        MetricType::Counter => Kind::Counter,
        MetricType::Gauge => Kind::Gauge,
        MetricType::Histogram => Kind::Histogram,
        MetricType::Summary => Kind::Summary,
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
            errors: HashMap::new(),
        };
        let mut samples = Samples::new();
        let mut page = String::new();
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
            expand(&root.path().join(pattern))
                .into_iter()
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

        // Malformed, with a timestamp, metrics of two collectors, a series twice, and a NUL.
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

        // Another file has the series already.
        assert_eq!(
            page(&[GOOD, ("c.prom", "y 2\n")]),
            [good[0], good[1], "node_textfile_scrape_error 1"]
        );
    }

    /// As in node_exporter 1.12: every metric has a help, and parts share that of the whole.
    #[test]
    fn metadata_of_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };

        // `late` has its help in the second file, that of `empty` is empty, and `x_sum` is a part of nothing.
        let a = file(
            "a.prom",
            "bare{f=\"a\"} 1\nlate{f=\"a\"} 1\n# TYPE h histogram\n# HELP h Lengths.\n\
             h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n\
             # TYPE s summary\ns{quantile=\"0.5\"} 1\ns_sum 1\ns_count 1\n# HELP empty\n\
             # TYPE empty gauge\nempty 1\nx_sum 1\n",
        );
        let b = file(
            "b.prom",
            "bare{f=\"b\"} 1\n# HELP late Of b.\nlate{f=\"b\"} 1\n",
        );
        let mut textfile = Textfile {
            directories: vec![directory.path().to_owned()],
            names: Names::default(),
            errors: HashMap::new(),
        };
        let mut samples = Samples::new();
        textfile.collect(&mut samples).unwrap();
        let mut page = String::new();
        write_page(Format::Text, [&samples], &mut page);
        let expected = format!(
            "# HELP bare Metric read from {a}, {b}\n# TYPE bare untyped\nbare{{f=\"a\"}} 1\n\
             bare{{f=\"b\"}} 1\n# HELP late Of b.\n# TYPE late untyped\nlate{{f=\"a\"}} 1\n\
             late{{f=\"b\"}} 1\n# HELP h Lengths.\n# TYPE h histogram\nh_bucket{{le=\"1\"}} 1\n\
             h_bucket{{le=\"+Inf\"}} 2\nh_sum 3\nh_count 2\n# HELP s Metric read from {a}\n\
             # TYPE s summary\ns{{quantile=\"0.5\"}} 1\ns_sum 1\ns_count 1\n\
             # HELP empty Metric read from {a}\n# TYPE empty gauge\nempty 1\n\
             # HELP x_sum Metric read from {a}\n# TYPE x_sum untyped\nx_sum 1\n"
        );
        assert!(page.starts_with(&expected), "{page}");
    }

    #[test]
    fn without_a_directory_there_is_nothing_wrong_but_a_missing_one_is() {
        let collect = |directories| {
            let mut samples = Samples::new();
            let mut textfile = Textfile {
                directories,
                names: Names::default(),
                errors: HashMap::new(),
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

    /// Returns the log lines about a file, and the duration of its reading.
    fn error_of(path: &Path) -> String {
        let names = Names::default();
        let result = read(path)
            .and_then(|(text, _)| parse(&text, &names, &mut HashSet::new()).map(|_| String::new()));
        result.unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn special_files_do_not_block() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo.prom");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        let socket = directory.path().join("socket.prom");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::fs::create_dir(directory.path().join("directory.prom")).unwrap();
        // Reading the first would never end, and opening the second could take a terminal.
        std::os::unix::fs::symlink("/dev/zero", directory.path().join("zero.prom")).unwrap();
        std::os::unix::fs::symlink("/dev/tty", directory.path().join("tty.prom")).unwrap();
        std::fs::write(directory.path().join("good.prom"), "good 1\n").unwrap();
        assert_eq!(error_of(&fifo), "not a regular file");
        let mut textfile = Textfile {
            directories: vec![directory.path().to_owned()],
            names: Names::default(),
            errors: HashMap::new(),
        };
        let mut samples = Samples::new();
        textfile.collect(&mut samples).unwrap();
        let mut page = String::new();
        write_page(Format::Text, [&samples], &mut page);
        assert!(page.contains("good 1\n") && page.ends_with("node_textfile_scrape_error 1\n"));

        // All but the good file.
        assert_eq!(textfile.errors.len(), 5);
    }

    #[test]
    fn an_error_names_the_line_and_quotes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link.prom");
        // A line of a shadow file, which a symbolic link could lead to.
        let secret = "root:$6$secret:0:0:root:/root:/bin/bash";
        let path = directory.path().join("bad.prom");
        for (text, expected) in [
            (format!("good 1\n{secret}\n"), "line 2: expected "),
            (format!("good{{a=\"{secret}\"}} x\n"), "line 1: expected "),
            (
                format!("good{{a=\"{secret}\"}} 1 1700000000000\n"),
                "line 1: expected no timestamp",
            ),
            (
                format!("a{{b=\"{secret}\"}} 1\na{{b=\"{secret}\"}} 1\n"),
                "line 2: expected no series for the second time",
            ),
            (
                format!("takt_exporter_x{{b=\"{secret}\"}} 1\n"),
                "line 1: expected no metric of another collector",
            ),
        ] {
            std::fs::write(&path, &text).unwrap();
            let error = error_of(&path);
            assert!(error.starts_with(expected), "{text}: {error}");
            assert!(
                !error.contains("root") && !error.contains("secret"),
                "{error}"
            );
        }
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        let error = error_of(&link);
        assert!(
            error.starts_with("line 1: expected ") && !error.contains("root"),
            "{error}"
        );
    }
}
