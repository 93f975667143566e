//! Targets from files that other programs write: `file_sd_configs`.

use super::super::units::PromDuration;
use super::{Listener, StaticConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use takt_model::glob::is_match;
use takt_model::{ConfigError, Labels, yaml};

/// Interval between two checks of the files. Takt reads files instead of watching them: this works
/// on every file system and with every way of replacing a file.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Maximum size of one file, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Prometheus' `file_sd_configs`: files with lists of `{"targets": ["host:port"], "labels": {}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FileSdConfig {
    /// Paths that end in `.json`, `.yml` or `.yaml`; the last path component may contain one `*`.
    pub files: Vec<PathBuf>,
    /// Interval between two reads of the files; changes are noticed within 3 seconds anyway.
    pub refresh_interval: PromDuration,
}

impl Default for FileSdConfig {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            refresh_interval: PromDuration(Duration::from_secs(300)),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct FileSd {
    patterns: Vec<Pattern>,
    every: Duration,
}

#[derive(Debug, thiserror::Error)]
enum FileSdError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: expected a list of targets and labels: {what}", path.display())]
    Content { path: PathBuf, what: String },
}

impl FileSd {
    pub fn new(config: &FileSdConfig, key: &str) -> Result<Self, ConfigError> {
        if config.files.is_empty() {
            return Err(ConfigError::new(
                format!("{key}.files"),
                "at least one path",
                "none",
            ));
        }

        let patterns = config.files.iter().map(|path| {
            let expected = "a path that ends in .json, .yml or .yaml, with at most one * and that in its last part";
            Pattern::new(path).ok_or_else(|| ConfigError::new(format!("{key}.files"), expected, path.display()))
        });

        // Reads are at least as frequent as `LOOK_EVERY`, whatever the file's author configures.
        Ok(Self {
            patterns: patterns.collect::<Result<_, _>>()?,
            every: config.refresh_interval.0.min(LOOK_EVERY),
        })
    }

    pub async fn run(self, to: Listener) {
        let mut known: BTreeMap<PathBuf, FileState> = BTreeMap::new();
        let mut is_first = true;

        loop {
            let patterns = self.patterns.clone();
            // Files may lie on a hung network mount, which must not block a thread of the runtime.
            let Ok(read) = takt_store::spawn_blocking(move || read_all(&patterns)).await else {
                return;
            };

            let changed = take(&mut known, read, &to);
            // The first report is sent even if it is empty: the job waits for one list of each source.
            if changed || is_first {
                is_first = false;
                let targets = known
                    .values()
                    .flat_map(|file| file.targets.clone())
                    .collect();
                let problems = known.values().filter_map(|file| file.problem.clone());
                if to.report(Some(targets), problems.collect()).await.is_err() {
                    return;
                }
            }

            tokio::time::sleep(self.every).await;
        }
    }
}

/// The result of a file's latest read and the latest valid list.
#[derive(Debug, Default)]
struct FileState {
    content: Option<Result<Vec<u8>, io::ErrorKind>>,
    targets: Vec<Labels>,
    /// Why the latest read has no valid list.
    problem: Option<String>,
}

/// Takes over what was read. Returns whether targets or problems changed.
fn take(
    known: &mut BTreeMap<PathBuf, FileState>,
    read: BTreeMap<PathBuf, io::Result<Vec<u8>>>,
    to: &Listener,
) -> bool {
    let before = known.len();

    // A file that no pattern matches any more takes its targets along. An unreadable one keeps its old list.
    known.retain(|path, _| read.contains_key(path));

    let mut changed = known.len() < before;
    for (path, content) in read {
        let file = known.entry(path.clone()).or_default();
        // Log an error once, not at every read.
        let result = content.as_ref().map(Vec::clone).map_err(io::Error::kind);
        if file.content.as_ref() == Some(&result) {
            continue;
        }

        file.content = Some(result);

        let parsed = content.map_err(|source| FileSdError::Read {
            path: path.clone(),
            source,
        });

        match parsed.and_then(|text| parse(&path, &text)) {
            Ok(targets) => {
                // A file with the same targets in other bytes disturbs no scrape.
                changed |= targets != file.targets || file.problem.is_some();
                file.targets = targets;
                file.problem = None;
            }
            Err(error) => {
                file.problem = Some(to.failed("file_sd_configs", &error));

                changed = true;
            }
        }
    }
    changed
}

fn parse(path: &Path, text: &[u8]) -> Result<Vec<Labels>, FileSdError> {
    let wrong = |what: String| FileSdError::Content {
        path: path.to_owned(),
        what,
    };

    let is_json = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let groups: Vec<StaticConfig> = if is_json {
        serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?
    } else {
        let text = std::str::from_utf8(text).map_err(|error| wrong(error.to_string()))?;
        yaml::from_str(text).map_err(|error| wrong(error.to_string()))?
    };

    // Prometheus' label for the file, usable in `relabel_configs`.
    let place = path.to_string_lossy();
    Ok(groups
        .iter()
        .flat_map(|group| group.discovered(Some(("__meta_filepath", &place))))
        .collect())
}

/// A path, or all paths of one folder whose names match a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    One(PathBuf),
    Many { folder: PathBuf, names: String },
}

impl Pattern {
    fn new(path: &Path) -> Option<Self> {
        let text = path.to_str()?;
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();

        if !["json", "yml", "yaml"].contains(&extension.as_str()) {
            return None;
        }
        if !text.contains('*') {
            return Some(Self::One(path.to_owned()));
        }

        // The last two forms have no folder in front of the name, or only the root.
        let (folder, names) = match text.rsplit_once('/') {
            None => (".", text),
            Some(("", names)) => ("/", names),
            Some(parts) => parts,
        };

        let has_one_star = !folder.contains('*') && names.matches('*').count() == 1;
        has_one_star.then(|| Self::Many {
            folder: folder.into(),
            names: names.to_owned(),
        })
    }

    /// Returns the paths that match now. A path without `*` is always returned, and so is a folder that cannot be read, so
    /// that what is missing is reported.
    fn paths(&self) -> Vec<PathBuf> {
        match self {
            Self::One(path) => vec![path.clone()],
            Self::Many { folder, names } => {
                // The error of a folder that cannot be read is that of reading it as a file.
                let Ok(entries) = std::fs::read_dir(folder) else {
                    return vec![folder.clone()];
                };
                let entries = entries.flatten();
                let fits = |name: &str| is_match(names, name);
                entries
                    .filter(|entry| entry.file_name().to_str().is_some_and(fits))
                    .map(|entry| entry.path())
                    .collect()
            }
        }
    }
}

fn read_all(patterns: &[Pattern]) -> BTreeMap<PathBuf, io::Result<Vec<u8>>> {
    let read = |path: &Path| {
        use io::Read;

        let mut content = Vec::new();
        // One byte more than the limit tells a file at the limit from one above it, without reading the rest.
        std::fs::File::open(path)?
            .take(MAX_BYTES + 1)
            .read_to_end(&mut content)?;

        if content.len() as u64 > MAX_BYTES {
            Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("larger than {MAX_BYTES} bytes"),
            ))
        } else {
            Ok(content)
        }
    };

    patterns
        .iter()
        .flat_map(Pattern::paths)
        .map(|path| (path.clone(), read(&path)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let many = |folder: &str, names: &str| {
            Some(Pattern::Many {
                folder: folder.into(),
                names: names.to_owned(),
            })
        };
        for (path, expected) in [
            ("a/b.json", Some(Pattern::One("a/b.json".into()))),
            // Prometheus accepts extensions in any case.
            ("a/b.YML", Some(Pattern::One("a/b.YML".into()))),
            ("a/*.json", many("a", "*.json")),
            ("/n-*.yaml", many("/", "n-*.yaml")),
            ("*.yml", many(".", "*.yml")),
            ("a/*/b.json", None),
            ("a/*b*.json", None),
            ("a.txt", None),
            ("a", None),
        ] {
            assert_eq!(Pattern::new(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn a_star_stands_for_nothing_too_but_not_for_less() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.json", "ab.json", "b.json", "a.yml"] {
            std::fs::write(folder.path().join(name), "[]").unwrap();
        }

        let pattern = Pattern::new(&folder.path().join("a*.json")).unwrap();
        let names: std::collections::BTreeSet<_> = pattern
            .paths()
            .iter()
            .map(|path| path.file_name().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["a.json".into(), "ab.json".into()].into());
    }

    #[test]
    fn lists_in_both_languages() {
        let json =
            br#"[{"targets": ["g01:1", "g02:1"], "labels": {"rack": "a"}}, {"targets": []}]"#;
        let yaml = b"- targets: ['g01:1', g02:1]\n  labels: {rack: a}\n- targets: []\n";
        let found = |path: &str, text: &[u8]| {
            parse(Path::new(path), text)
                .unwrap()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };

        let expected = ["g01:1", "g02:1"].map(|address| {
            format!(r#"{{__address__="{address}", __meta_filepath="t.json", rack="a"}}"#)
        });
        assert_eq!(found("t.json", json), expected);
        assert_eq!(
            found("t.yml", yaml),
            expected.map(|text| text.replace("json", "yml"))
        );
        // The messages name the place in the file, since another program wrote it.
        for (path, text, message) in [
            (
                "t.json",
                "[{",
                "t.json: expected a list of targets and labels: EOF while parsing an object at line 1 column 2",
            ),
            (
                "t.json",
                r#"[{"target": []}]"#,
                "t.json: expected a list of targets and labels: unknown field `target`, expected `targets` or `labels` at line 1 column 10",
                // A misspelt key must not be a list without targets, which would end every scrape.
            ),
            (
                "t.yml",
                "targets: [a]\n",
                "t.yml: expected a list of targets and labels: line 1: invalid type: map, expected a sequence",
            ),
        ] {
            assert_eq!(
                parse(Path::new(path), text.as_bytes())
                    .unwrap_err()
                    .to_string(),
                message
            );
        }
    }
}
