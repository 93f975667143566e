//! Object identifiers and values.

use crate::text;
use std::fmt;

/// Bytes that are kept of a text. Labels have fewer characters.
const MAX_BYTES: usize = 512;

/// An object identifier: `1.3.6.1.2.1.1.3.0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct ObjectId(pub(crate) Vec<u32>);

impl ObjectId {
    /// The identifier of a constant in the code.
    pub(crate) fn of(text: &'static str) -> Self {
        Self::parse(text).expect("the constants of the profiles are identifiers")
    }

    /// The identifier that a text has; `None` for another text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let arcs = text.trim_start_matches('.').split('.');
        arcs.map(|arc| arc.parse().ok())
            .collect::<Option<_>>()
            .map(Self)
    }

    /// The arcs behind `base`; `None` if this is not below it.
    pub(crate) fn below(&self, base: &Self) -> Option<&[u32]> {
        self.0.strip_prefix(base.0.as_slice())
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, arc) in self.0.iter().enumerate() {
            let dot = if at == 0 { "" } else { "." };
            write!(f, "{dot}{arc}")?;
        }
        Ok(())
    }
}

/// A value of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SnmpValue {
    /// `INTEGER`.
    Integer(i64),
    /// A counter, gauge or time in ticks.
    Unsigned(u64),
    /// `OCTET STRING`, cut to its first bytes.
    Bytes(Vec<u8>),
    /// `OBJECT IDENTIFIER`.
    Object(ObjectId),
    /// The device has no such value.
    Absent,
    /// The device has nothing behind this identifier.
    End,
    /// A type that no profile reads.
    Other,
}

impl SnmpValue {
    /// A text of any length.
    pub(crate) fn bytes(bytes: &[u8]) -> Self {
        Self::Bytes(bytes[..bytes.len().min(MAX_BYTES)].to_vec())
    }

    /// A number; `None` for other types.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Unsigned(value) => Some(*value as f64),
            _ => None,
        }
    }

    /// A number from 0 on. Devices write -1 for what they do not measure.
    pub(crate) fn amount(&self) -> Option<f64> {
        self.number().filter(|value| *value >= 0.0)
    }

    /// A counter; `None` for other types and negative numbers.
    pub(crate) fn count(&self) -> Option<u64> {
        match self {
            Self::Integer(value) => u64::try_from(*value).ok(),
            Self::Unsigned(value) => Some(*value),
            _ => None,
        }
    }

    /// A whole number of an enumeration.
    pub(crate) fn code(&self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(*value),
            Self::Unsigned(value) => i64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// A text as a label; `None` for other types and empty texts.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Bytes(bytes) => Some(text::cleaned(bytes)).filter(|text| !text.is_empty()),
            _ => None,
        }
    }

    /// A text, or the bytes of an address in hexadecimal; `None` for other types and empty texts.
    pub(crate) fn text_or_bytes(&self) -> Option<String> {
        match self {
            Self::Bytes(bytes) => Some(text::name_or_bytes(bytes)).filter(|text| !text.is_empty()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_ordered_by_their_arcs() {
        let id = |text| ObjectId::parse(text).unwrap();
        assert!(id("1.3.6.2") < id("1.3.6.10"));
        assert!(id("1.3.6") < id("1.3.6.0"));
        assert_eq!(id(".1.3.6.1").to_string(), "1.3.6.1");
        assert_eq!(id("1.3.6.1.9").below(&id("1.3.6.1")), Some(&[9][..]));
        assert_eq!(id("1.3.6.10").below(&id("1.3.6.1")), None);
        assert_eq!(ObjectId::parse("1.3.x"), None);
        assert_eq!(ObjectId::parse("1.99999999999"), None);
    }

    #[test]
    fn a_value_of_another_type_is_unknown() {
        let text = SnmpValue::bytes(b"12");
        assert_eq!((text.number(), text.code()), (None, None));
        assert_eq!(SnmpValue::Integer(-1).amount(), None);
        assert_eq!(SnmpValue::Unsigned(u64::MAX).code(), None);
        assert_eq!(SnmpValue::Integer(3).text(), None);
        assert_eq!(SnmpValue::Absent.number(), None);
        let SnmpValue::Bytes(kept) = SnmpValue::bytes(&[7; 65_000]) else {
            panic!("a text stays a text")
        };
        assert_eq!(kept.len(), MAX_BYTES);
    }
}
