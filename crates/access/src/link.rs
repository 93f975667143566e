//! Links in messages that acknowledge alerts: signed, for one message, until an instant.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;

/// Bytes of a number in a link.
const NUMBER_BYTES: usize = 8;

/// Bytes of the signature.
const SIGNATURE_BYTES: usize = 32;

/// Longest place in a link, in bytes.
const PLACE_MAX: usize = 80;

/// What a link in a message stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageLink {
    /// Number of the message.
    pub message: u64,
    /// First instant at which the link is invalid, UTC seconds.
    pub until: i64,
    /// Where the message was sent: `Slack link sent to #ops`.
    pub place: String,
}

impl MessageLink {
    /// Returns the link's secret part, for an address. Only who has `key` can make one.
    pub fn signed(&self, key: &str) -> String {
        let mut bytes = self.message.to_be_bytes().to_vec();
        bytes.extend(self.until.to_be_bytes());

        // `read` refuses a link whose place is not UTF-8, so the cut is made between characters.
        let place = &self.place;
        let end = (0..=place.len().min(PLACE_MAX)).rfind(|end| place.is_char_boundary(*end));
        bytes.extend(&place.as_bytes()[..end.unwrap_or(0)]);

        let signature = hmac::sign(&signing_key(key), &bytes);
        bytes.extend(signature.as_ref());
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads the secret part. `None` if it was not signed with `key`. Whether the link still counts is the
    /// caller's question.
    pub fn read(text: &str, key: &str) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        // The signature is checked before any field is read, so a changed link is never parsed.
        let (said, signature) =
            bytes.split_at_checked(bytes.len().checked_sub(SIGNATURE_BYTES)?)?;
        hmac::verify(&signing_key(key), said, signature).ok()?;

        let (message, rest) = said.split_first_chunk::<NUMBER_BYTES>()?;
        let (until, place) = rest.split_first_chunk::<NUMBER_BYTES>()?;
        Some(Self {
            message: u64::from_be_bytes(*message),
            until: i64::from_be_bytes(*until),
            place: String::from_utf8(place.to_vec()).ok()?,
        })
    }
}

fn signing_key(key: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_signer_makes_links_that_can_be_read() {
        let link = MessageLink {
            message: 7,
            until: 1_795_000_000,
            place: "Slack link sent to #öps".to_owned(),
        };
        let text = link.signed("key");
        assert_eq!(MessageLink::read(&text, "key"), Some(link.clone()));
        assert_eq!(MessageLink::read(&text, "other"), None);

        // No changed character passes.
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(MessageLink::read(&changed, "key"), None, "{at}");
        }

        // A link that a mail program has cut is refused as well, and does not panic.
        for cut in 0..text.len() {
            assert_eq!(MessageLink::read(&text[..cut], "key"), None, "{cut}");
        }
    }

    #[test]
    fn a_long_place_is_cut_between_characters() {
        let link = MessageLink {
            message: 1,
            until: 2,
            place: format!("{}ö", "x".repeat(PLACE_MAX - 1)),
        };
        let read = MessageLink::read(&link.signed("k"), "k").unwrap();
        assert_eq!(read.place, "x".repeat(PLACE_MAX - 1));
    }
}
