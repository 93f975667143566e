//! The configuration of a running server, of which a reload replaces three sections.

use super::Config;
use std::sync::{Arc, PoisonError, RwLock};

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

    /// Takes over the sections that a reload applies: `[scrape]`, `[alerts]` and `[email]`.
    pub fn follow(&self, reloaded: Config) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(Config {
            scrape: reloaded.scrape,
            alerts: reloaded.alerts,
            email: reloaded.email,
            ..Config::clone(&current)
        });
    }
}
