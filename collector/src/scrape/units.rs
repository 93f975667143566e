//! Durations and sizes as Prometheus' configuration writes them: `1m30s`, `10MB`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use takt_model::duration;

/// A duration such as `15s` or `1h30m`, more than 0.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct PromDuration(pub Duration);

impl TryFrom<String> for PromDuration {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        duration::parse(&text)
            .filter(|duration| !duration.is_zero())
            .map(Self)
            .ok_or_else(|| format!("expected a duration such as 15s or 1m30s, found {text:?}"))
    }
}

impl From<PromDuration> for String {
    fn from(duration: PromDuration) -> Self {
        duration.to_string()
    }
}

impl fmt::Display for PromDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&duration::print(self.0))
    }
}

/// A size such as `10MB`; as in Prometheus every unit is a power of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct ByteSize(pub u64);

impl TryFrom<String> for ByteSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // The unit begins at the first character that is no digit, so `1.5MB` has the unknown unit `.5MB`.
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);

        let unit: Option<u64> = match unit {
            "" | "B" => Some(1),
            "KB" | "KiB" => Some(1 << 10),
            "MB" | "MiB" => Some(1 << 20),
            "GB" | "GiB" => Some(1 << 30),
            _ => None,
        };

        let size = number
            .parse::<u64>()
            .ok()
            .zip(unit)
            .and_then(|(number, unit)| number.checked_mul(unit));
        size.map(Self)
            .ok_or_else(|| format!("expected a size such as 512KB or 10MB, found {text:?}"))
    }
}

impl From<ByteSize> for String {
    fn from(size: ByteSize) -> Self {
        format!("{}B", size.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [
            ("15s", Some(15_000)),
            ("1m30s", Some(90_000)),
            ("250ms", Some(250)),
            ("1d", Some(86_400_000)),
        ] {
            assert_eq!(
                PromDuration::try_from(text.to_owned())
                    .ok()
                    .map(|found| found.0.as_millis()),
                ms,
                "{text}"
            );

            // Printed durations are read again: relabelling sees them as labels of a target.
            let again = PromDuration::try_from(text.to_owned()).unwrap().to_string();
            assert_eq!(
                PromDuration::try_from(again.clone()).unwrap(),
                PromDuration::try_from(text.to_owned()).unwrap()
            );
        }

        // Prometheus needs a unit, too, and has no fractions.
        for text in ["", "0s", "15", "1.5s", "-1s", "s"] {
            PromDuration::try_from(text.to_owned()).expect_err(text);
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("7B", 7),
            ("10MB", 10 << 20),
            ("2KiB", 2048),
            ("1GB", 1 << 30),
        ] {
            assert_eq!(
                ByteSize::try_from(text.to_owned()),
                Ok(ByteSize(bytes)),
                "{text}"
            );
        }
        for text in ["", "MB", "1.5MB", "10mb", "99999999999999GB"] {
            ByteSize::try_from(text.to_owned()).expect_err(text);
        }
    }
}
