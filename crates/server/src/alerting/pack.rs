//! Rule files: those shipped with Takt and those of the operator.

use anyhow::{Context, anyhow, bail};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use takt_alerts::events::EventFile;
use takt_alerts::events::xid::XidTable;
use takt_alerts::ports::QueryError;
use takt_alerts::rules::{AlertingRule, RecordingRule, Rule, RuleFile};
use takt_alerts::yaml::Mistake;

/// The files of `dashboards/rules`, by name.
pub const SHIPPED: &[(&str, &str)] = &[
    (
        "dcgm.rules.yml",
        include_str!("../../../../dashboards/rules/dcgm.rules.yml"),
    ),
    (
        "gpu.events.yml",
        include_str!("../../../../dashboards/rules/gpu.events.yml"),
    ),
    (
        "gpu.rules.yml",
        include_str!("../../../../dashboards/rules/gpu.rules.yml"),
    ),
    (
        "learned.rules.yml",
        include_str!("../../../../dashboards/rules/learned.rules.yml"),
    ),
    (
        "node.events.yml",
        include_str!("../../../../dashboards/rules/node.events.yml"),
    ),
    (
        "node.rules.yml",
        include_str!("../../../../dashboards/rules/node.rules.yml"),
    ),
    (
        "slurm.rules.yml",
        include_str!("../../../../dashboards/rules/slurm.rules.yml"),
    ),
    (
        "takt.rules.yml",
        include_str!("../../../../dashboards/rules/takt.rules.yml"),
    ),
    (
        "thresholds.rules.yml",
        include_str!("../../../../dashboards/rules/thresholds.rules.yml"),
    ),
];

/// Routes for the short form of the configuration.
pub const ROUTES: &str = include_str!("../../../../dashboards/rules/routes.example.yml");

/// All rules.
#[derive(Debug, Default)]
pub struct Rules {
    /// Rules over samples.
    pub files: Vec<RuleFile>,
    /// Rules over events.
    pub events: Vec<EventFile>,
}

/// Reads the shipped files and those of `folders`. An operator's file replaces a shipped file, or a
/// file of an earlier folder, with the same name. `thresholds` replace the limits of the files, by
/// name.
pub fn load(
    is_shipped: bool,
    folders: &[PathBuf],
    thresholds: &BTreeMap<String, f64>,
) -> anyhow::Result<Rules> {
    let mut texts: Vec<(String, String, String)> = Vec::new();
    if is_shipped {
        texts.extend(
            SHIPPED
                .iter()
                .map(|(name, text)| ((*name).to_owned(), (*name).to_owned(), (*text).to_owned())),
        );
    }

    // Folders come after the shipped files, so that an operator's file can replace one.
    for folder in folders {
        let paths = files(folder)
            .with_context(|| format!("rule_dirs: cannot read {}", folder.display()))?;
        for path in &paths {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;

            texts.retain(|(known, ..)| *known != name);
            texts.push((name, path.display().to_string(), text));
        }
    }

    let mut rules = Rules::default();
    for (name, shown, text) in texts {
        rules.add(&name, &shown, &text)?;
    }
    rules.set(thresholds)?;
    Ok(rules)
}

/// The rule files in a folder, in the order of their names.
pub(super) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| is_rule_file(path));
    paths.sort();
    Ok(paths)
}

/// Series with the limits; the label `name` identifies each limit.
const THRESHOLD: &str = "takt_threshold";
const NAME: &str = "name";

fn is_rule_file(path: &Path) -> bool {
    // Routes and Alertmanager's configuration lie in the same folder, and are not rules.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_yaml = name.ends_with(".yml") || name.ends_with(".yaml");
    is_yaml && path.is_file() && !name.starts_with("routes.") && !name.starts_with("alertmanager")
}

impl Rules {
    /// Reads the rules that Takt ships.
    ///
    /// # Errors
    /// If one of their files has a mistake.
    pub fn shipped() -> anyhow::Result<Self> {
        load(true, &[], &BTreeMap::new())
    }

    /// Adds a file and checks its expressions. `name` decides about the kind of its rules.
    pub fn add(&mut self, name: &str, shown: &str, text: &str) -> anyhow::Result<()> {
        // All expressions are checked now: a mistake must show at the start and not at night.
        let mistake = |mistake: Mistake| anyhow!("{mistake}");
        if name.ends_with(".events.yml") || name.ends_with(".events.yaml") {
            let file = EventFile::read(shown, text, XidTable::shipped()).map_err(mistake)?;
            file.check(&NoSamples).map_err(mistake)?;
            self.events.push(file);
        } else {
            let file = RuleFile::read(shown, text).map_err(mistake)?;
            file.check(&NoSamples).map_err(mistake)?;
            self.files.push(file);
        }
        Ok(())
    }

    /// Replaces limits.
    fn set(&mut self, thresholds: &BTreeMap<String, f64>) -> anyhow::Result<()> {
        let mut limits: BTreeMap<String, &mut RecordingRule> = self
            .files
            .iter_mut()
            .flat_map(|file| &mut file.groups)
            .flat_map(|group| &mut group.rules)
            .filter_map(|rule| match rule {
                Rule::Recording(rule) if rule.name == THRESHOLD => {
                    Some((rule.labels.get(NAME)?.to_owned(), rule))
                }
                _ => None,
            })
            .collect();

        for (name, value) in thresholds {
            // TOML has `inf` and `nan`, and a limit with them would never be reached.
            if !value.is_finite() {
                bail!("thresholds.{name}: expected a number, found {value}");
            }
            if !limits.contains_key(name) {
                // The nearest name, since a typing error would leave the old limit in force.
                let near = limits
                    .keys()
                    .min_by_key(|known| strsim::osa_distance(known, name));
                let near = near
                    .map(|near| format!("; did you mean `{near}`?"))
                    .unwrap_or_default();
                bail!("thresholds: no rule has a limit `{name}`{near}");
            }

            if let Some(rule) = limits.get_mut(name) {
                rule.expr = format!("vector({value})");
            }
        }
        Ok(())
    }

    /// Returns the rules whose labels or texts need queries for each alert: with thousands of
    /// alerts they take long.
    pub fn with_queries(&self) -> impl Iterator<Item = &AlertingRule> {
        let groups = self.files.iter().flat_map(|file| &file.groups);
        groups
            .flat_map(|group| &group.rules)
            .filter_map(|rule| match rule {
                Rule::Alerting(rule) if rule.asks() => Some(rule),
                _ => None,
            })
    }

    /// Returns the number of rules over samples and over events.
    pub fn count(&self) -> (usize, usize) {
        let of_files = self
            .files
            .iter()
            .flat_map(|file| &file.groups)
            .map(|group| group.rules.len())
            .sum();
        (
            of_files,
            self.events
                .iter()
                .flat_map(|file| &file.groups)
                .map(|group| group.rules.len())
                .sum(),
        )
    }
}

/// Checks expressions without samples.
struct NoSamples;

impl takt_alerts::ports::Query for NoSamples {
    fn instant(
        &self,
        _: &str,
        _: takt_model::Timestamp,
    ) -> Result<Vec<(takt_model::Labels, f64)>, QueryError> {
        Ok(Vec::new())
    }

    fn check(&self, expr: &str) -> Result<(), QueryError> {
        super::outside::check(expr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::tempdir;

    #[test]
    fn every_shipped_file_is_in_the_program_and_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboards/rules");
        let mut found: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| is_rule_file(path))
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        found.sort();
        let names: Vec<_> = SHIPPED.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, found, "add the file to SHIPPED");

        let rules = load(true, &[], &BTreeMap::new()).unwrap();
        assert!(
            rules.count().0 > 40 && rules.count().1 > 5,
            "{:?}",
            rules.count()
        );
    }

    /// Every target may write series of any name, and only the server's own have its job.
    #[test]
    fn rules_about_the_scheduler_believe_the_server_alone() {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        for (file, text) in SHIPPED {
            for line in text.lines() {
                // Comments and names of recorded series.
                if line.trim_start().starts_with(['#', '-']) && !line.contains("expr:") {
                    continue;
                }
                for begin in ["takt_slurm_", "takt_source_", "takt_job_slow_"] {
                    for (at, _) in line.match_indices(begin) {
                        if line[..at].ends_with(is_part) {
                            continue;
                        }
                        let selector = line[at..].trim_start_matches(is_part).replace('\\', "");
                        let is_own = selector.starts_with("{job=\"takt-server\"");
                        assert!(is_own, "{file}: {line}");
                    }
                }
            }
        }
    }

    #[test]
    fn limits_are_set_by_name_and_a_wrong_name_is_an_error() {
        let limit = |rules: &Rules, name: &str| -> Vec<String> {
            rules
                .files
                .iter()
                .flat_map(|file| &file.groups)
                .flat_map(|group| &group.rules).filter(
                |rule| matches!(rule, Rule::Recording(rule) if rule.labels.get(NAME) == Some(name)),
            ).map(|rule| rule.expr().to_owned()).collect()
        };

        let rules = load(true, &[], &[("nfs_slow_seconds".to_owned(), 0.5)].into()).unwrap();
        assert_eq!(limit(&rules, "nfs_slow_seconds"), ["vector(0.5)"]);
        assert_eq!(limit(&rules, "node_load_per_cpu"), ["vector(2)"]);

        let said = |name: &str, value: f64| {
            load(true, &[], &[(name.to_owned(), value)].into())
                .unwrap_err()
                .to_string()
        };
        assert!(said("nfs_slow_second", 1.0).contains("did you mean `nfs_slow_seconds`?"));
        assert!(said("nfs_slow_seconds", f64::NAN).contains("expected a number"));
    }

    #[test]
    fn a_file_of_the_operators_replaces_a_shipped_one_and_mistakes_are_named() {
        let folder = tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let folders = [folder.path().to_owned()];

        write(
            "node.rules.yml",
            "groups: [{name: mine, rules: [{alert: Mine, expr: up == 0}]}]",
        );

        write("notes.txt", "no rules");

        let rules = load(true, &folders, &BTreeMap::new()).unwrap();
        assert_eq!(rules.files.len() + rules.events.len(), SHIPPED.len());
        assert!(rules.files.iter().any(|file| file.groups[0].name == "mine"));
        for (text, expected) in [
            (
                "groups: [{name: a, rules: [{alert: B, expr: 'up =='}]}]",
                "bad.yml",
            ),
            ("groups: [{name: a, rules: [{alert: B}]}]", "expr"),
            (
                "groups: [{name: a, rules: [{alert: B, expr: up, fro: 5m}]}]",
                "did you mean `for`",
            ),
        ] {
            write("bad.yml", text);
            let said = format!("{:#}", load(false, &folders, &BTreeMap::new()).unwrap_err());
            assert!(said.contains(expected) && said.contains("line"), "{said}");
        }
        assert!(
            format!(
                "{:#}",
                load(false, &["/nonexistent".into()], &BTreeMap::new()).unwrap_err()
            )
            .contains("rule_dirs")
        );
    }
}
