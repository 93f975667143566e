//! The configuration of a running server, of which a reload replaces three sections.

use super::Config;
use crate::doctor::{LiveSources, ServerDoctor};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use takt_questions::{AnswerConfig, LakeSettings, ViewServers};
use toml::Value;

/// The configuration in force, shared by everything that must follow a reload.
#[derive(Debug, Clone, Default)]
pub struct CurrentConfig(Arc<RwLock<Arc<Config>>>);

impl CurrentConfig {
    /// Begins with this configuration.
    pub fn new(config: Config) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(config))))
    }

    /// Returns the configuration now in force.
    pub fn get(&self) -> Arc<Config> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
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
    /// the other sections and keys of the file that differ from those in force.
    pub fn follow(&self, reloaded: Config) -> Vec<String> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let in_force = Config {
            scrape: reloaded.scrape.clone(),
            alerts: reloaded.alerts.clone(),
            email: reloaded.email.clone(),
            ..Config::clone(&current)
        };
        let waiting = differences(&in_force, &reloaded);
        *current = Arc::new(in_force);
        waiting
    }
}

/// Returns the names of the sections, in brackets, and of the keys above them that differ.
fn differences(one: &Config, other: &Config) -> Vec<String> {
    let tables = [one, other].map(toml::Table::try_from);
    let [Ok(one), Ok(other)] = tables else {
        return Vec::new();
    };
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    names
        .into_iter()
        .filter(|name| one.get(*name) != other.get(*name))
        .map(|name| match one.get(name).or(other.get(name)) {
            Some(Value::Table(_) | Value::Array(_)) => format!("[{name}]"),
            _ => name.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("takt.toml")).unwrap()
    }

    #[test]
    fn sections_that_wait_for_a_restart_are_named_until_they_are_as_before() {
        let current = CurrentConfig::new(config("timezone = 'UTC'"));
        let changed = "cluster = 'lab'\ntimezone = 'UTC'\n[scrape]\ninterval_seconds = 5\n\
                       [jobs]\npoll = false\n[[budgets]]\nuser = 'a'\nperiod = 'month'\n\
                       gpu_hours = 5\n";
        let waiting = current.follow(config(changed));
        assert_eq!(waiting, ["[budgets]", "cluster", "[jobs]"]);
        assert_eq!(current.follow(config(changed)), waiting);
        let waiting = current.follow(config("timezone = 'UTC'"));
        assert_eq!(waiting, Vec::<String>::new());
    }
}
