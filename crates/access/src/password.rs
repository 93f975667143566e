//! Passwords that this server keeps: rules, and hashes by Argon2id.

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher, PasswordVerifier};
use ring::rand::{SecureRandom, SystemRandom};
use std::sync::LazyLock;

/// Minimum length of a password, in characters.
pub const MIN_CHARS: usize = 10;

/// Maximum length of a password, in bytes.
pub const MAX_BYTES: usize = 1024;

/// Minimum length of a user's name that a password must not contain: shorter names occur in any
/// text.
const MIN_NAME_BYTES: usize = 4;

/// Bytes of a salt.
const SALT_BYTES: usize = 16;

/// Hash that the password of an unknown user is compared with, so that the answer takes as long as
/// for a known one.
static DECOY: LazyLock<String> = LazyLock::new(|| hash("no password").unwrap_or_default());

/// Why a password is refused, or cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// The password is too short.
    #[error("a password needs at least {MIN_CHARS} characters")]
    Short,
    /// The password is too long.
    #[error("a password has at most {MAX_BYTES} bytes")]
    Long,
    /// The password contains the name of its user.
    #[error("a password must not contain the user's name")]
    Name,
    /// Argon2 or the kernel failed.
    #[error("the password cannot be hashed: {0}")]
    Hash(String),
}

/// Checks a new password of a user.
///
/// # Errors
/// If the password is too short, too long, or contains the name of the user.
pub fn check(user: &str, password: &str) -> Result<(), PasswordError> {
    if password.chars().count() < MIN_CHARS {
        Err(PasswordError::Short)
    } else if password.len() > MAX_BYTES {
        Err(PasswordError::Long)
    } else if user.len() >= MIN_NAME_BYTES && password.to_lowercase().contains(&user.to_lowercase())
    {
        Err(PasswordError::Name)
    } else {
        Ok(())
    }
}

/// Returns the hash of a password: Argon2id with 19 MiB and two passes, in PHC's form. Takes tens
/// of milliseconds.
///
/// # Errors
/// If the kernel gives no random numbers, or memory is short.
pub fn hash(password: &str) -> Result<String, PasswordError> {
    // Each password has its own salt, so two users with one password have different hashes.
    let mut salt = [0; SALT_BYTES];
    SystemRandom::new()
        .fill(&mut salt)
        .map_err(|_| PasswordError::Hash("the kernel gave no random numbers".to_owned()))?;

    let hash: Result<PasswordHash, _> =
        Argon2::default().hash_password_with_salt(password.as_bytes(), &salt);
    hash.map(|hash| hash.to_string())
        .map_err(|error| PasswordError::Hash(error.to_string()))
}

/// Returns whether a password has this hash. `None`, an unknown user, takes as long and is always
/// false.
pub fn is_correct(password: &str, hash: Option<&str>) -> bool {
    let is_known = hash.is_some();
    let hash = hash.unwrap_or(&DECOY);

    // The length is checked first: the time of a hash grows with the password, and anyone may send one.
    let is_equal = password.len() <= MAX_BYTES
        && PasswordHash::new(hash).is_ok_and(|hash| {
            Argon2::default()
                .verify_password(password.as_bytes(), &hash)
                .is_ok()
        });
    is_equal && is_known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_has_its_own_hash() {
        let first = hash("correct horse").unwrap();
        assert!(
            first.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{first}"
        );

        assert_ne!(first, hash("correct horse").unwrap(), "salted");
        assert!(is_correct("correct horse", Some(&first)));
        for wrong in ["", "correct horsf", "Correct horse"] {
            assert!(!is_correct(wrong, Some(&first)), "{wrong}");
        }

        // The decoy's hash is one of a password that anyone can read here.
        assert!(
            !is_correct("no password", None),
            "the decoy signs nobody in"
        );

        // Hashes of another kind, and damaged ones: they match no password, and cause no error.
        for malformed in ["", "$argon2id$", "correct horse", "$1$salt$hash"] {
            assert!(!is_correct("correct horse", Some(malformed)), "{malformed}");
        }
    }

    #[test]
    fn weak_passwords_are_refused() {
        assert_eq!(check("alice", "short"), Err(PasswordError::Short));
        assert_eq!(check("alice", "ALICE-2026-x"), Err(PasswordError::Name));

        let long = "x".repeat(MAX_BYTES + 1);
        assert_eq!(check("alice", &long), Err(PasswordError::Long));
        assert_eq!(check("alice", "correct horse"), Ok(()));
        assert_eq!(check("bob", "ünïcödé äöü"), Ok(()));
    }
}
