//! A value in the configuration that cannot be right.

/// Which key, what it should hold and what it holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: expected {expected}, found {found}")]
pub struct ConfigError {
    key: String,
    expected: String,
    found: String,
}

impl ConfigError {
    /// For `key`, which holds `found`.
    pub fn new(key: impl Into<String>, expected: impl Into<String>, found: impl ToString) -> Self {
        Self {
            key: key.into(),
            expected: expected.into(),
            found: found.to_string(),
        }
    }
}
