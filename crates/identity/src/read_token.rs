//! Files with a token.

use anyhow::{Context, bail};
use std::fs;
use std::path::Path;

/// Reads a token. Fails if it is shorter than 16 characters.
pub fn read_token(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read the token in {}", path.display()))?;
    match text.trim() {
        // A file with several lines holds something else than one token.
        token if token.contains(['\n', '\r']) => bail!(
            "{} has several lines; expected one with the token",
            path.display()
        ),
        token if token.len() >= 16 => Ok(token.to_owned()),
        _ => bail!(
            "the token in {} is shorter than 16 characters",
            path.display()
        ),
    }
}
