//! The configuration of a running server, of which a reload replaces three sections.

use super::Config;
use crate::alerting;
use crate::doctor::{LiveSources, ServerDoctor};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use takt_questions::{AnswerConfig, LakeSettings, ViewServers};
use toml::Value;

/// Reads the configuration, at the start and at every reload.
pub type Source = Arc<dyn Fn() -> anyhow::Result<Config> + Send + Sync>;

/// What was changed in the files after the server read them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unread {
    /// Sections and files that a reload applies.
    pub for_reload: Vec<String>,
    /// Sections and keys that need a restart.
    pub for_restart: Vec<String>,
}

/// The configuration in force, shared by everything that must follow a reload.
#[derive(Clone, Default)]
pub struct CurrentConfig {
    in_force: Arc<RwLock<InForce>>,
    source: Option<Source>,
}

#[derive(Debug, Clone)]
struct InForce {
    config: Arc<Config>,
    /// When its files were read.
    read_at: SystemTime,
}

impl Default for InForce {
    fn default() -> Self {
        Self {
            config: Arc::default(),
            read_at: SystemTime::now(),
        }
    }
}

impl fmt::Debug for CurrentConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.in_force.fmt(f)
    }
}

impl CurrentConfig {
    /// Begins with this configuration, which was read from files at `read_at`.
    pub fn new(config: Config, read_at: SystemTime) -> Self {
        let in_force = InForce {
            config: Arc::new(config),
            read_at,
        };
        Self {
            in_force: Arc::new(RwLock::new(in_force)),
            source: None,
        }
    }

    /// With the source that a running server reads again, so that it can say what was changed since.
    #[must_use]
    pub fn with_source(self, source: Source) -> Self {
        Self {
            source: Some(source),
            ..self
        }
    }

    fn in_force(&self) -> InForce {
        let in_force = self.in_force.read();
        in_force.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the configuration now in force.
    pub fn get(&self) -> Arc<Config> {
        self.in_force().config
    }

    /// Reads the configuration again, without using it. Without a source it is the one in force.
    ///
    /// # Errors
    /// If the configuration cannot be read, or is not valid.
    pub fn read_again(&self) -> anyhow::Result<Config> {
        match &self.source {
            Some(read) => read(),
            None => Ok(Config::clone(&self.get())),
        }
    }

    /// Returns what was changed in the files since they were read. A file that is not valid now is left out.
    pub(crate) fn unread(&self) -> Unread {
        let InForce { config, read_at } = self.in_force();
        // Without a file, nothing can have changed.
        let written = config.file.as_ref().and_then(|_| self.read_again().ok());
        let Some(written) = written else {
            return Unread::default();
        };

        let alone = |name: &String| RELOADED.contains(&name.as_str());
        let (mut for_reload, for_restart): (Vec<_>, Vec<_>) =
            differences(&config, &written).into_iter().partition(alone);

        let is_newer = |path: &PathBuf| {
            let written_at = fs::metadata(path).and_then(|found| found.modified());
            written_at.is_ok_and(|at| at > read_at)
        };
        // Rules and routes are files of their own: the configuration is equal although they have changed.
        let files = alerting::files(&config).into_iter().filter(is_newer);
        for_reload.extend(files.map(|path| path.display().to_string()));

        Unread {
            for_reload,
            for_restart,
        }
    }

    /// Returns the part that answers depend on.
    pub fn answer_config(&self) -> AnswerConfig {
        let config = self.get();

        AnswerConfig {
            accounting: config.accounting(),
            shares: config.fairshare.clone(),
            query: config.query.clone(),
            sql: config.sql.limits(),
            polls_jobs: config.jobs.poll,
            doctor: Some(Arc::new(ServerDoctor::new(
                self.clone(),
                LiveSources::default(),
            ))),
            lake: LakeSettings {
                config: config.lake.clone(),
                min_free_bytes: config.store.min_free_bytes,
                file: config.file.clone(),
            },
            view: ViewServers::of(&config.view),
            sign_in: config.auth.sign_in_ways(),
            keeps_passwords: config.auth.passwords,
            ..AnswerConfig::default()
        }
    }

    /// Takes over the sections that a reload applies: `[scrape]`, `[alerts]` and `[email]`. Returns
    /// the other sections and keys of the file that differ from those in force. The files were read at `read_at`.
    pub fn follow(&self, reloaded: Config, read_at: SystemTime) -> Vec<String> {
        let mut current = self.in_force.write();
        let current = current
            .as_mut()
            .unwrap_or_else(|poisoned| poisoned.get_mut());

        let in_force = Config {
            scrape: reloaded.scrape.clone(),
            alerts: reloaded.alerts.clone(),
            email: reloaded.email.clone(),
            ..Config::clone(&current.config)
        };
        // Compared with what is in force: a section that a reload applied earlier is not waiting.
        let waiting = differences(&in_force, &reloaded);
        current.config = Arc::new(in_force);

        current.read_at = read_at;
        waiting
    }
}

/// The sections that a reload applies.
const RELOADED: [&str; 3] = ["[scrape]", "[alerts]", "[email]"];

/// Returns the names of the sections, in brackets, and of the keys above them that differ.
fn differences(one: &Config, other: &Config) -> Vec<String> {
    // As TOML, since the sections have different types.
    let tables = [one, other].map(toml::Table::try_from);
    let [Ok(one), Ok(other)] = tables else {
        return Vec::new();
    };

    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    names
        .into_iter()
        .filter(|name| one.get(*name) != other.get(*name))
        .map(|name| match one.get(name).or(other.get(name)) {
            // A list of tables has brackets in the file as a table has.
            Some(Value::Table(_) | Value::Array(_)) => format!("[{name}]"),
            _ => name.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::time::Duration;
    use tempfile::tempdir;

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("takt.toml")).unwrap()
    }

    #[test]
    fn sections_that_wait_for_a_restart_are_named_until_they_are_as_before() {
        let now = SystemTime::now();

        let current = CurrentConfig::new(config("timezone = 'UTC'"), now);
        let changed = "cluster = 'lab'\ntimezone = 'UTC'\n[scrape]\ninterval_seconds = 5\n\
                       [jobs]\npoll = false\n[[budgets]]\nuser = 'a'\nperiod = 'month'\n\
                       gpu_hours = 5\n";

        let waiting = current.follow(config(changed), now);
        assert_eq!(waiting, ["[budgets]", "cluster", "[jobs]"]);
        assert_eq!(current.follow(config(changed), now), waiting);

        let waiting = current.follow(config("timezone = 'UTC'"), now);
        assert_eq!(waiting, Vec::<String>::new());

        // Routes and pages ask at the start whether people sign in with passwords.
        let passwords = "timezone = 'UTC'\n[auth]\npasswords = true\n";
        assert_eq!(current.follow(config(passwords), now), ["[auth]"]);
        assert!(!current.get().auth.passwords);
    }

    #[test]
    fn what_was_changed_after_it_was_read_is_named() {
        let folder = tempdir().unwrap();
        let (file, rules) = (folder.path().join("takt.toml"), folder.path().join("rules"));
        let write = |interval: u32, cluster: &str| {
            let text = format!(
                "cluster = '{cluster}'\n[scrape]\ninterval_seconds = {interval}\n[alerts]\nrule_dirs = ['rules']\n"
            );
            fs::write(&file, text).unwrap();
        };

        fs::create_dir(&rules).unwrap();
        fs::write(rules.join("own.yml"), "groups: []").unwrap();
        write(15, "lab");

        let source: Source = {
            let file = file.clone();
            Arc::new(move || {
                let parsed = Config::parse(&fs::read_to_string(&file)?, &file)?;
                Ok(Config {
                    file: Some(file.clone()),
                    ..parsed
                })
            })
        };
        // Later than the files were written, however coarse their times are.
        let read_at = SystemTime::now() + Duration::from_secs(5);
        let current = CurrentConfig::new(source().unwrap(), read_at).with_source(source);
        assert_eq!(current.unread(), Unread::default());

        write(30, "physics");
        let rule = fs::File::open(rules.join("own.yml")).unwrap();
        rule.set_modified(read_at + Duration::from_secs(5)).unwrap();

        let unread = current.unread();
        assert_eq!(unread.for_reload[0], "[scrape]");
        assert!(
            unread.for_reload[1].ends_with("rules/own.yml"),
            "{unread:?}"
        );
        assert_eq!(unread.for_restart, ["cluster"]);

        // A mistake is said elsewhere, and hides nothing that is in force.
        fs::write(&file, "cluster = 5").unwrap();
        assert_eq!(current.unread(), Unread::default());
    }
}
