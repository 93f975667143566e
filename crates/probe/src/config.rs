//! `[[devices]]` of `takt.toml`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use takt_model::ConfigError;
use takt_model::shown::is_unseen;

/// Port of SNMP agents.
const SNMP_PORT: u16 = 161;

/// Most devices of one configuration. Each has a task and, while it is asked, a socket.
const MAX_DEVICES: usize = 1000;

/// Longest name of a device, in characters. It is a label of each of its series.
const MAX_NAME: usize = 64;

/// Interval between two rounds, in seconds. Queries take a series for ended after five minutes.
const INTERVALS: std::ops::RangeInclusive<u64> = 10..=240;

/// A switch, PDU or UPS that is asked for its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// Name of the device: the label `device` of its series.
    pub name: String,
    /// Host name or IP address, with `:port` if the port is not the usual one (161).
    pub address: String,
    /// How the device is asked: `snmp`.
    #[serde(default)]
    pub kind: DeviceKind,
    /// File with the community (one line), for SNMP v2c. Give this or `user`.
    #[serde(default)]
    pub community_file: Option<PathBuf>,
    /// User of SNMP v3, with authentication and encryption (`authPriv`). Give this or `community_file`.
    #[serde(default)]
    pub user: Option<String>,
    /// File with the password of the user for authentication (one line, at least 8 characters).
    #[serde(default)]
    pub auth_file: Option<PathBuf>,
    /// Digest of the authentication: `MD5`, `SHA`, `SHA-224`, `SHA-256`, `SHA-384`, `SHA-512`.
    #[serde(default)]
    pub auth_protocol: SnmpDigest,
    /// File with the password of the user for encryption (one line, at least 8 characters).
    #[serde(default)]
    pub privacy_file: Option<PathBuf>,
    /// Encryption: `AES` (128 bits), `AES-192`, `AES-256`, or with the keys of Cisco's devices `AES-192-C`, `AES-256-C`. DES is
    /// not supported.
    #[serde(default)]
    pub privacy_protocol: SnmpPrivacy,
    /// Seconds between two rounds, from 10 to 240. A device that does not answer is asked less often.
    #[serde(default = "interval_seconds")]
    pub interval_seconds: u64,
    /// Seconds after which a round ends, with the tables that were read until then; at most `interval_seconds`.
    #[serde(default = "timeout_seconds")]
    pub timeout_seconds: u64,
}

/// How a device is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// By SNMP.
    #[default]
    Snmp,
}

/// Digest with which messages of SNMP v3 are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are those of the algorithms")]
pub enum SnmpDigest {
    #[serde(rename = "MD5")]
    Md5,
    #[serde(rename = "SHA")]
    Sha1,
    #[serde(rename = "SHA-224")]
    Sha224,
    #[default]
    #[serde(rename = "SHA-256")]
    Sha256,
    #[serde(rename = "SHA-384")]
    Sha384,
    #[serde(rename = "SHA-512")]
    Sha512,
}

/// Cipher with which messages of SNMP v3 are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are those of the algorithms")]
pub enum SnmpPrivacy {
    #[default]
    #[serde(rename = "AES")]
    Aes128,
    #[serde(rename = "AES-192")]
    Aes192,
    #[serde(rename = "AES-256")]
    Aes256,
    /// AES-192 with the key extension of Cisco's devices.
    #[serde(rename = "AES-192-C")]
    Aes192Cisco,
    /// AES-256 with the key extension of Cisco's devices.
    #[serde(rename = "AES-256-C")]
    Aes256Cisco,
}

impl SnmpDigest {
    /// All digests with their names in the configuration.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("MD5", Self::Md5),
        ("SHA", Self::Sha1),
        ("SHA-224", Self::Sha224),
        ("SHA-256", Self::Sha256),
        ("SHA-384", Self::Sha384),
        ("SHA-512", Self::Sha512),
    ];
}

impl SnmpPrivacy {
    /// All ciphers with their names in the configuration.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("AES", Self::Aes128),
        ("AES-192", Self::Aes192),
        ("AES-256", Self::Aes256),
        ("AES-192-C", Self::Aes192Cisco),
        ("AES-256-C", Self::Aes256Cisco),
    ];
}

impl FromStr for SnmpDigest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(text, &Self::NAMES)
    }
}

impl FromStr for SnmpPrivacy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(text, &Self::NAMES)
    }
}

fn named<T: Copy>(text: &str, names: &[(&str, T)]) -> Result<T, String> {
    let found = names
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        format!("expected one of {}", known.join(", "))
    })
}

fn interval_seconds() -> u64 {
    60
}

fn timeout_seconds() -> u64 {
    20
}

impl DeviceConfig {
    /// A device at this address with the defaults, and no access yet.
    pub fn at(name: &str, address: &str) -> Self {
        Self {
            name: name.to_owned(),
            address: address.to_owned(),
            kind: DeviceKind::default(),
            community_file: None,
            user: None,
            auth_file: None,
            auth_protocol: SnmpDigest::default(),
            privacy_file: None,
            privacy_protocol: SnmpPrivacy::default(),
            interval_seconds: interval_seconds(),
            timeout_seconds: timeout_seconds(),
        }
    }

    /// The configured files with secrets, each with its key.
    pub fn secret_files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        [
            ("community_file", &self.community_file),
            ("auth_file", &self.auth_file),
            ("privacy_file", &self.privacy_file),
        ]
        .into_iter()
        .filter_map(|(key, file)| Some((key, file.as_deref()?)))
    }

    /// The files that the table names.
    pub fn files(&mut self) -> [&mut Option<PathBuf>; 3] {
        [
            &mut self.community_file,
            &mut self.auth_file,
            &mut self.privacy_file,
        ]
    }

    /// Time between two rounds.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.interval_seconds)
    }

    /// Time after which a round ends.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }

    /// Host and port of the device; `None` if the address is not one.
    pub fn host_and_port(&self) -> Option<(&str, u16)> {
        host_and_port(&self.address)
    }

    /// Checks that types cannot express.
    ///
    /// # Errors
    /// The first key with an invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let wrong = |key, expected: &str, found: &str| Err(ConfigError::new(key, expected, found));

        let length = self.name.chars().count();
        if self.name.trim().is_empty() || length > MAX_NAME || self.name.contains(is_unseen) {
            let expected = format!("a name of 1 to {MAX_NAME} visible characters");
            let found = format!("{:?}", self.name);
            return wrong("name", &expected, &found);
        }
        if self.host_and_port().is_none() {
            let found = format!("{:?}", self.address);
            return wrong("address", "a host or host:port", &found);
        }

        match (&self.community_file, &self.user) {
            (Some(_), Some(_)) => {
                return wrong(
                    "user",
                    "a community_file (v2c) or a user (v3), not both",
                    "both",
                );
            }
            (None, None) => {
                return wrong(
                    "community_file",
                    "a community_file (v2c) or a user (v3)",
                    "none",
                );
            }
            (None, Some(user)) if user.is_empty() || user.len() > 32 => {
                return wrong("user", "a name of 1 to 32 bytes", &format!("{user:?}"));
            }
            (None, Some(_)) => {}
            (Some(_), None) => {
                // With a community, nothing would be signed or encrypted, whatever these keys promise.
                let of_user = [
                    ("auth_file", &self.auth_file),
                    ("privacy_file", &self.privacy_file),
                ];
                if let Some((key, _)) = of_user.iter().find(|(_, file)| file.is_some()) {
                    return wrong(
                        key,
                        "a user, whose password the file holds",
                        "a community_file",
                    );
                }
            }
        }
        if self.user.is_some() {
            let needed = [
                ("auth_file", &self.auth_file),
                ("privacy_file", &self.privacy_file),
            ];
            if let Some((key, _)) = needed.iter().find(|(_, file)| file.is_none()) {
                return wrong(key, "a file with the password of the user", "none");
            }
        }

        if !INTERVALS.contains(&self.interval_seconds) {
            let expected = format!("{} to {}", INTERVALS.start(), INTERVALS.end());
            return wrong(
                "interval_seconds",
                &expected,
                &self.interval_seconds.to_string(),
            );
        }
        if !(1..=self.interval_seconds).contains(&self.timeout_seconds) {
            let expected = format!("1 to interval_seconds ({})", self.interval_seconds);
            return wrong(
                "timeout_seconds",
                &expected,
                &self.timeout_seconds.to_string(),
            );
        }
        Ok(())
    }
}

/// Checks all devices of a configuration.
///
/// # Errors
/// The first key with an invalid value.
pub fn check_devices(devices: &[DeviceConfig]) -> Result<(), ConfigError> {
    if devices.len() > MAX_DEVICES {
        let expected = format!("at most {MAX_DEVICES} devices");
        return Err(ConfigError::new("devices", expected, devices.len()));
    }

    for (at, device) in devices.iter().enumerate() {
        let place = format!("devices, number {}: ", at + 1);
        let in_list = |error: ConfigError| error.in_list(&place, "devices", at);
        device.validate().map_err(in_list)?;

        let before = &devices[..at];
        // Their series would be the same.
        if before.iter().any(|other| other.name == device.name) {
            let problem = format!("two devices have the name {}", device.name);
            return Err(in_list(ConfigError::with_problem("name", problem)));
        }
        // A device has to answer one request at a time.
        let is_same = |other: &&DeviceConfig| other.host_and_port() == device.host_and_port();
        if let Some(other) = before.iter().find(is_same) {
            let problem = format!("the device {} has this address, too", other.name);
            return Err(in_list(ConfigError::with_problem("address", problem)));
        }
    }
    Ok(())
}

/// Host and port of `host`, `host:port`, `[::1]`, `[::1]:port` or `::1`.
fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = if let Some(rest) = address.strip_prefix('[') {
        let (host, behind) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        match behind.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if behind.is_empty() => (host, None),
            None => return None,
        }
    } else if address.parse::<IpAddr>().is_ok() {
        (address, None)
    } else {
        match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        }
    };

    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
    if host.is_empty() || host.len() > 253 || !host.chars().all(is_host) {
        return None;
    }
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port > 0)?,
        None => SNMP_PORT,
    };
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch() -> DeviceConfig {
        DeviceConfig {
            community_file: Some("c".into()),
            ..DeviceConfig::at("leaf1", "10.0.0.7")
        }
    }

    #[test]
    fn addresses_have_a_host_and_perhaps_a_port() {
        assert_eq!(host_and_port("10.0.0.7"), Some(("10.0.0.7", 161)));
        assert_eq!(host_and_port("leaf1.lan:1161"), Some(("leaf1.lan", 1161)));
        assert_eq!(host_and_port("fd00::7"), Some(("fd00::7", 161)));
        assert_eq!(host_and_port("[fd00::7]:162"), Some(("fd00::7", 162)));
        assert_eq!(host_and_port("[fd00::7]"), Some(("fd00::7", 161)));
        for wrong in [
            "",
            ":161",
            "leaf1:",
            "leaf1:0",
            "leaf1:99999",
            "a b",
            "[x]:1",
            "[::1]x",
            "udp://a",
        ] {
            assert_eq!(host_and_port(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_of_protocols_are_those_of_the_file() {
        for (name, value) in SnmpDigest::NAMES {
            assert_eq!(serde_json::to_value(value).unwrap(), name);
            assert_eq!(name.to_lowercase().parse(), Ok(value));
        }
        for (name, value) in SnmpPrivacy::NAMES {
            assert_eq!(serde_json::to_value(value).unwrap(), name);
            assert_eq!(name.parse(), Ok(value));
        }
        let said = "DES".parse::<SnmpPrivacy>().unwrap_err();
        assert_eq!(
            said,
            "expected one of AES, AES-192, AES-256, AES-192-C, AES-256-C"
        );
    }

    #[test]
    fn a_user_needs_both_passwords() {
        let user = |auth: bool, privacy: bool| DeviceConfig {
            community_file: None,
            user: Some("takt".to_owned()),
            auth_file: auth.then(|| "a".into()),
            privacy_file: privacy.then(|| "p".into()),
            ..switch()
        };
        assert_eq!(user(true, true).validate(), Ok(()));
        for (device, key) in [
            (user(false, true), "auth_file"),
            (user(true, false), "privacy_file"),
        ] {
            let said = device.validate().unwrap_err().to_string();
            assert!(said.starts_with(key), "{said}");
        }
    }

    #[test]
    fn two_devices_have_neither_one_name_nor_one_address() {
        let other = DeviceConfig {
            name: "leaf2".to_owned(),
            ..switch()
        };
        let said = check_devices(&[switch(), other]).unwrap_err().to_string();
        assert_eq!(
            said,
            "devices, number 2: address: the device leaf1 has this address, too"
        );
        let other = DeviceConfig {
            address: "10.0.0.8".to_owned(),
            ..switch()
        };
        let said = check_devices(&[switch(), other]).unwrap_err().to_string();
        assert_eq!(
            said,
            "devices, number 2: name: two devices have the name leaf1"
        );
    }
}
