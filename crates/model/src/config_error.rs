//! An invalid value in the configuration.

/// Key, expected values and actual value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: expected {expected}, found {found}")]
pub struct ConfigError {
    key: String,
    expected: String,
    found: String,
}

impl ConfigError {
    /// Returns the error for `key` with the value `found`.
    pub fn new(key: impl Into<String>, expected: impl Into<String>, found: impl ToString) -> Self {
        Self {
            key: key.into(),
            expected: expected.into(),
            found: found.to_string(),
        }
    }
}
