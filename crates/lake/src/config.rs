//! `[lake]` of `takt.toml`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use takt_model::ConfigError;

/// Beginning of the path of a lake on S3.
const S3: &str = "s3://";

/// The data lake: a folder with copies of all finished days that other engines read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LakeConfig {
    /// Folder of the lake, relative to this file, or `s3://BUCKET/PREFIX`. A folder may be on a
    /// network file system. Default: no lake is written.
    pub path: Option<PathBuf>,
    /// The S3 server, for a path that begins with `s3://`.
    pub s3: S3Config,
    /// Minutes between two rounds, which write what is new.
    pub interval_minutes: u64,
    /// Days that samples are kept in the lake; 0: for ever. Records are kept for ever.
    pub retention_days: u64,
    /// Days that five-minute rows are kept in the lake; 0: for ever.
    pub retention_5m_days: u64,
    /// Days that one-hour rows are kept in the lake; 0: for ever.
    pub retention_1h_days: u64,
    /// Hours that replaced files stay, for readers that opened the table before.
    pub replaced_hours: u64,
    /// Rows after which the samples of a day continue in another file. 100 million samples take
    /// about 110 MB.
    pub file_rows: u64,
    /// Commits of a table after which a checkpoint is written, from which readers begin.
    pub checkpoint_commits: u64,
}

/// An S3 server, and how to sign in there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct S3Config {
    /// URL of the server, such as `https://minio.example.org:9000`. Default: `AWS_ENDPOINT_URL` of the
    /// environment, or Amazon's for the region.
    pub endpoint: Option<String>,
    /// Region. Default: `AWS_REGION` of the environment, or `us-east-1`.
    pub region: Option<String>,
    /// File with `aws_access_key_id = …` and `aws_secret_access_key = …`, one a line; it is read in
    /// each round. Default: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` of the environment.
    pub credentials_file: Option<PathBuf>,
    /// Whether the bucket is in the path of URLs (`https://server/bucket/…`), as MinIO and Ceph expect.
    /// False: in the name of the server.
    pub path_style: bool,
    /// Whether `endpoint` may begin with `http://`. All data are then readable on the network.
    pub allow_http: bool,
}

impl Default for S3Config {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            credentials_file: None,
            path_style: true,
            allow_http: false,
        }
    }
}

impl Default for LakeConfig {
    fn default() -> Self {
        Self {
            path: None,
            s3: S3Config::default(),
            interval_minutes: 60,
            retention_days: 0,
            retention_5m_days: 0,
            retention_1h_days: 0,
            replaced_hours: 24,
            file_rows: 100_000_000,
            checkpoint_commits: 100,
        }
    }
}

impl LakeConfig {
    /// Checks ranges of values, which types cannot express.
    ///
    /// # Errors
    /// The first key whose value is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("interval_minutes", self.interval_minutes, 1..=1440),
            ("retention_days", self.retention_days, 0..=36_500),
            ("retention_5m_days", self.retention_5m_days, 0..=36_500),
            ("retention_1h_days", self.retention_1h_days, 0..=36_500),
            ("replaced_hours", self.replaced_hours, 1..=8760),
            ("file_rows", self.file_rows, 1000..=10_000_000_000),
            ("checkpoint_commits", self.checkpoint_commits, 2..=100_000),
        ];

        match ranges
            .into_iter()
            .find(|(_, value, range)| !range.contains(value))
        {
            Some((key, value, range)) => Err(ConfigError::new(
                key,
                format!("{} to {}", range.start(), range.end()),
                value,
            )),
            None => self.validate_s3(),
        }
    }

    fn validate_s3(&self) -> Result<(), ConfigError> {
        let Some(address) = self.s3_address() else {
            return Ok(());
        };
        let whole = format!("{S3}{address}");

        if address.split('/').next().is_none_or(str::is_empty) {
            return Err(ConfigError::new(
                "path",
                "s3://BUCKET or s3://BUCKET/PREFIX",
                whole,
            ));
        }

        // Amazon's own server is always reached by https.
        let endpoint = self.s3.endpoint.as_deref().unwrap_or("https://");
        let is_plain = endpoint.starts_with("http://");
        if !is_plain && !endpoint.starts_with("https://") {
            return Err(ConfigError::new("s3.endpoint", "https://SERVER", endpoint));
        }
        if is_plain && !self.s3.allow_http {
            return Err(ConfigError::new(
                "s3.endpoint",
                "https://, or allow_http = true in [lake.s3]",
                endpoint,
            ));
        }

        // Last, so that a file is checked alike by both builds as far as possible.
        if !cfg!(feature = "s3") {
            return Err(ConfigError::new(
                "path",
                "a folder, because this program is built without S3: install Takt's package, or \
                 build it with make build S3=1",
                whole,
            ));
        }
        Ok(())
    }

    /// Bucket and prefix, if the lake is on S3.
    pub fn s3_address(&self) -> Option<&str> {
        self.path.as_deref()?.to_str()?.strip_prefix(S3)
    }

    /// Makes relative paths begin at `base`, the folder of the configuration file.
    pub fn resolve_paths(&mut self, base: &Path) {
        if let Some(file) = &mut self.s3.credentials_file {
            *file = base.join(&*file);
        }
        if self.s3_address().is_none()
            && let Some(path) = &mut self.path
        {
            *path = base.join(&*path);
        }
    }

    /// Time between two rounds.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(60 * self.interval_minutes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_on_s3_is_an_address_and_needs_the_feature() {
        let mut config = LakeConfig {
            path: Some("s3://bucket/a/b".into()),
            ..LakeConfig::default()
        };
        config.s3.credentials_file = Some("keys".into());
        config.resolve_paths(Path::new("/etc/takt"));
        assert_eq!(config.s3_address(), Some("bucket/a/b"));
        assert_eq!(
            config.s3.credentials_file.as_deref(),
            Some(Path::new("/etc/takt/keys"))
        );
        let checked = config.validate().map_err(|error| error.to_string());
        if cfg!(feature = "s3") {
            assert_eq!(checked, Ok(()));
        } else {
            let error = checked.unwrap_err();
            assert!(
                error.contains("built without S3: install Takt's package"),
                "{error}"
            );
        }

        config.path = Some("lake".into());
        config.resolve_paths(Path::new("/etc/takt"));
        assert_eq!(config.path.as_deref(), Some(Path::new("/etc/takt/lake")));
        assert_eq!(config.validate(), Ok(()));
    }
}
