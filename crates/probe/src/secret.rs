//! Secrets of devices, read from files.

use crate::config::{DeviceConfig, SnmpDigest, SnmpPrivacy};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest file with a secret, in bytes. A larger one holds something else.
const MAX_SECRET_BYTES: u64 = 1024;

/// Shortest password of a user of SNMP v3, in bytes (RFC 3414, 11.2).
const MIN_PASSWORD: usize = 8;

/// A file that holds no usable secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    /// The device has neither a community nor a user.
    #[error("no community_file and no user with auth_file and privacy_file")]
    Missing,
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file has other content than a line with a secret.
    #[error("{path}: expected {expected}")]
    Content {
        path: PathBuf,
        expected: &'static str,
    },
}

/// A community or a password. Its text is in no log line.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SnmpSecret(String);

impl SnmpSecret {
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SnmpSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SnmpSecret")
    }
}

/// What a device wants of those who ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SnmpAccess {
    /// v2c.
    Community(SnmpSecret),
    /// v3, with authentication and encryption.
    User {
        name: String,
        digest: SnmpDigest,
        auth: SnmpSecret,
        cipher: SnmpPrivacy,
        privacy: SnmpSecret,
    },
}

impl SnmpAccess {
    /// Reads the secrets of a device.
    pub(crate) fn read(config: &DeviceConfig) -> Result<Self, SecretError> {
        if let Some(file) = &config.community_file {
            return secret(file, 1).map(Self::Community);
        }
        let (Some(name), Some(auth), Some(privacy)) =
            (&config.user, &config.auth_file, &config.privacy_file)
        else {
            return Err(SecretError::Missing);
        };
        Ok(Self::User {
            name: name.clone(),
            digest: config.auth_protocol,
            auth: secret(auth, MIN_PASSWORD)?,
            cipher: config.privacy_protocol,
            privacy: secret(privacy, MIN_PASSWORD)?,
        })
    }
}

/// Reads the only line of a file.
fn secret(path: &Path, min_length: usize) -> Result<SnmpSecret, SecretError> {
    let failed = |source| SecretError::Read {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_SECRET_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;

    let line = text.trim_end_matches(['\n', '\r']);
    let wrong = |expected| SecretError::Content {
        path: path.to_owned(),
        expected,
    };
    if line.contains(['\n', '\r']) || text.len() as u64 > MAX_SECRET_BYTES {
        return Err(wrong("one line with the secret"));
    }
    if line.len() < min_length {
        let is_empty = line.is_empty();
        return Err(wrong(if is_empty || min_length == 1 {
            "a secret, found an empty file"
        } else {
            "a password of at least 8 characters (SNMP v3 has no shorter ones)"
        }));
    }
    Ok(SnmpSecret(line.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_secret_is_one_line_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let read = |text: &str, min| {
            fs::write(&path, text).unwrap();
            secret(&path, min).map_err(|error| error.to_string())
        };

        assert_eq!(read("a b\n", 1).unwrap().text(), "a b");
        assert!(!format!("{:?}", read("hidden", 1).unwrap()).contains("hidden"));
        for (text, min, expected) in [
            ("", 1, "found an empty file"),
            ("a\nb\n", 1, "one line"),
            ("short", 8, "at least 8"),
            (&"x".repeat(2000), 1, "one line"),
        ] {
            let said = read(text, min).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
        fs::remove_file(&path).unwrap();
        assert!(
            secret(&path, 1)
                .unwrap_err()
                .to_string()
                .contains("cannot read")
        );
    }
}
