//! Secrets: tokens, cookies, and codes of links. Only their hashes are stored.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// Begin of a token, so that scanners for leaked secrets recognize it.
const TOKEN: &str = "takt_";

/// Length of a checksum, in characters.
const CHECKSUM_CHARS: usize = 6;

/// Length of a keyed hash: that of an alert's fingerprint, whose place it takes.
const KEYED_HASH_BYTES: usize = 8;

/// The kernel gave no random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kernel gave no random numbers")]
pub struct NoRandomNumbers;

/// Returns a secret of 256 random bits, in 43 characters.
///
/// # Errors
/// If the kernel gives no random numbers.
pub fn new_secret() -> Result<String, NoRandomNumbers> {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| NoRandomNumbers)?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// Returns a new token: `takt_`, 43 random characters, and a checksum.
///
/// # Errors
/// If the kernel gives no random numbers.
pub fn new_token() -> Result<String, NoRandomNumbers> {
    let secret = new_secret()?;
    let checksum = checksum(&secret);
    Ok(format!("{TOKEN}{secret}{checksum}"))
}

/// Returns whether a text has the form of a token. A mistyped token has another checksum.
pub fn is_token(text: &str) -> bool {
    // A slice of text panics inside a character, and the text comes from a request: only ASCII is cut.
    let Some(rest) = text.strip_prefix(TOKEN).filter(|rest| rest.is_ascii()) else {
        return false;
    };
    rest.len()
        .checked_sub(CHECKSUM_CHARS)
        .is_some_and(|at| at > 0 && checksum(&rest[..at]) == rest[at..])
}

/// Returns SHA-256 of a secret, hexadecimal. Two secrets are compared by their hashes, so that the time of a comparison
/// says nothing about a secret.
pub fn hash(secret: &str) -> String {
    digest(&SHA256, secret.as_bytes())
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns HMAC-SHA-256 of a text, in 16 hexadecimal digits. Without the key, nobody can try out texts until the hash fits.
pub fn keyed_hash(key: &str, text: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    hmac::sign(&key, text.as_bytes())
        .as_ref()
        .iter()
        .take(KEYED_HASH_BYTES)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn checksum(secret: &str) -> String {
    let bytes = digest(&SHA256, secret.as_bytes());
    let mut text = BASE64_URL_SAFE_NO_PAD.encode(bytes.as_ref());
    text.truncate(CHECKSUM_CHARS);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_form_and_a_checksum() {
        let token = new_token().unwrap();
        assert_eq!(token.len(), 5 + 43 + 6);
        assert!(is_token(&token));
        assert_ne!(token, new_token().unwrap());

        let mut typo = token.clone().into_bytes();
        // Position 10 is in the random part, behind `takt_`.
        typo[10] = if typo[10] == b'a' { b'b' } else { b'a' };
        assert!(!is_token(&String::from_utf8(typo).unwrap()));

        // Each is too short, lacks the prefix, or is not ASCII.
        for other in ["", "takt_", "takt_abcdef", "secret-secret-secret", "takt_ä"] {
            assert!(!is_token(other), "{other}");
        }
    }

    /// The first test vector of RFC 4231 with a text as key is case 2.
    #[test]
    fn a_keyed_hash_is_hmac_sha_256() {
        let text = "what do ya want for nothing?";
        assert_eq!(keyed_hash("Jefe", text), "5bdcc146bf60754e");
        assert_ne!(keyed_hash("another", text), keyed_hash("Jefe", text));
    }

    #[test]
    fn a_hash_is_sha_256() {
        assert_eq!(
            hash("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
