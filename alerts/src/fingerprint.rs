//! The identity of a label set, the same number that Alertmanager and amtool show.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use takt_model::Labels;

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// FNV-1a, 64 bits, over the names and values in the order of the names, each with a 0xff behind
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// The identity of `labels`.
    pub fn of(labels: &Labels) -> Self {
        let add = |hash: u64, text: &str| {
            text.bytes().chain([0xff]).fold(hash, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(PRIME)
            })
        };
        Self(
            labels
                .iter()
                .fold(OFFSET, |hash, (name, value)| add(add(hash, name), value)),
        )
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// As 16 hexadecimal digits: JSON numbers lose the low bits of 64.
impl Serialize for Fingerprint {
    fn serialize<S>(&self, serializer: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
    {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D>(deserializer: D) -> Result<Self, D::Error>
    where
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_labels_are_the_offset_and_each_byte_counts() {
        assert_eq!(
            Fingerprint::of(&Labels::new()).to_string(),
            "cbf29ce484222325"
        );
        let of = |name: &str, value: &str| Fingerprint::of(&[(name, value)].into_iter().collect());
        // The 0xff behind name and value keeps these two apart.
        assert_ne!(of("ab", "c"), of("a", "bc"));
        // FNV-1a of the bytes `a ff b ff`, worked out by hand with the two constants above.
        let by_hand = [b'a', 0xff, b'b', 0xff]
            .iter()
            .fold(OFFSET, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(PRIME));
        assert_eq!(of("a", "b"), Fingerprint(by_hand));
    }

    #[test]
    fn survives_json() {
        let print = Fingerprint(0xffff_ffff_ffff_fffe);
        let json = serde_json::to_string(&print).unwrap();
        assert_eq!(json, "\"fffffffffffffffe\"");
        assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), print);
    }
}
