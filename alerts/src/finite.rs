//! Numbers in JSON: NaN and infinity, which JSON does not have, are texts.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Number {
    Finite(f64),
    Other(String),
}

pub fn serialize<S>(value: &f64, serializer: S) -> Result<S::Ok, S::Error>
where
    S: Serializer,
{
    let number = if value.is_finite() {
        Number::Finite(*value)
    } else {
        Number::Other(value.to_string())
    };
    number.serialize(serializer)
}

pub fn deserialize<'de, D>(deserializer: D) -> Result<f64, D::Error>
where
    D: Deserializer<'de>,
{
    match Number::deserialize(deserializer)? {
        Number::Finite(value) => Ok(value),
        Number::Other(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Kept(#[serde(with = "super")] f64);

    #[test]
    fn every_number_comes_back() {
        for value in [0.1, -3.0, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let text = serde_json::to_string(&Kept(value)).unwrap();
            let Kept(back) = serde_json::from_str(&text).unwrap();
            assert!(back == value || (back.is_nan() && value.is_nan()), "{text}");
        }
    }
}
