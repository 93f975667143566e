//! `takt login` from other machines: munge proves the Unix user between machines that share its
//! key.
//!
//! The client gets a nonce, and makes a credential that only this server's user can decode. The
//! payload names the address at which the client asked: a server in the middle cannot pass the
//! credential on to this one, whose address is another.

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use takt_access::new_secret;
use takt_model::UnixTime;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time;

/// First line of a payload, so that credentials made for other programs are refused.
const PURPOSE: &str = "takt-login-1";

/// Seconds for which a nonce, and a credential, are valid.
pub const CREDENTIAL_SECONDS: i64 = 60;

/// Maximum number of nonces. The oldest one makes room.
const MAX_NONCES: usize = 10_000;

/// Maximum length of a credential, in bytes.
const MAX_CREDENTIAL_BYTES: usize = 4096;

/// Time limit of `unmunge`.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Number of `unmunge` that run at once.
const MAX_AT_ONCE: usize = 2;

/// Data that a client needs to make a credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MungeChallenge {
    /// Uid of the server, the only one who can decode the credential.
    pub uid: u32,
    /// Number that counts once.
    pub nonce: String,
}

impl MungeChallenge {
    /// Returns the payload of the credential. `url` is the address at which the client asked.
    pub fn payload(&self, url: &str) -> String {
        payload(url, &self.nonce)
    }
}

fn payload(url: &str, nonce: &str) -> String {
    // Users type addresses with and without a slash, and host names in any case.
    let url = url.trim_end_matches('/').to_ascii_lowercase();
    format!("{PURPOSE}\n{url}\n{nonce}")
}

/// Nonces and decoding of a server.
#[derive(Debug)]
pub(super) struct Munge {
    uid: u32,
    external_url: String,
    nonces: Mutex<HashMap<String, UnixTime>>,
    places: Semaphore,
}

impl Munge {
    /// `external_url` is the address of this server, `uid` its user.
    pub fn new(external_url: &str, uid: u32) -> Self {
        Self {
            uid,
            external_url: external_url.to_owned(),
            nonces: Mutex::default(),
            places: Semaphore::new(MAX_AT_ONCE),
        }
    }

    /// Makes a nonce.
    ///
    /// # Errors
    /// If the kernel gives no random numbers.
    pub fn challenge(&self, now: UnixTime) -> anyhow::Result<MungeChallenge> {
        let nonce = new_secret()?;

        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        // Anyone may ask for nonces, so they leave after their time, and the oldest one when there are too many.
        nonces.retain(|_, made_at| now < *made_at + CREDENTIAL_SECONDS);
        if nonces.len() >= MAX_NONCES {
            let oldest = nonces.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(nonce, _)| nonce.clone()) {
                nonces.remove(&oldest);
            }
        }
        nonces.insert(nonce.clone(), now);

        Ok(MungeChallenge {
            uid: self.uid,
            nonce,
        })
    }

    /// Returns the uid that a credential proves.
    ///
    /// # Errors
    /// If munge refuses the credential, or it was made for another server, purpose or time.
    pub async fn uid(&self, credential: &str, now: UnixTime) -> anyhow::Result<u32> {
        // Checked before `unmunge` runs: a program for each request of a stranger would be costly.
        if credential.len() > MAX_CREDENTIAL_BYTES {
            bail!("the credential is too long");
        }

        let _place = self.places.acquire().await?;
        let decoded = time::timeout(TIMEOUT, decode(credential))
            .await
            .context("unmunge takes too long")??;
        // A credential that any user can decode could have been passed on by another server.
        if decoded.reader != Some(self.uid) {
            bail!("the credential is not restricted to this server");
        }
        self.accept(&decoded.payload, now)?;
        Ok(decoded.uid)
    }

    /// Checks a payload and uses its nonce up.
    fn accept(&self, sent: &str, now: UnixTime) -> anyhow::Result<()> {
        let mut lines = sent.lines();
        let purpose = lines.next();
        let url = lines.next().unwrap_or_default();
        let nonce = lines.next().unwrap_or_default();

        if purpose != Some(PURPOSE) {
            bail!("the credential was made for another program");
        }
        // The whole text is compared, so a line more or an address that differs is refused.
        if sent != payload(&self.external_url, nonce) {
            bail!(
                "the credential was made for {url}; ask this server at {}",
                self.external_url
            );
        }

        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        // The nonce is removed before its time is checked: an old one counts as used as well.
        let made_at = nonces.remove(nonce);
        if made_at.is_none_or(|at| now >= at + CREDENTIAL_SECONDS) {
            bail!("the credential was used, or is too old");
        }
        Ok(())
    }
}

/// A valid credential.
struct Decoded {
    /// Uid of the process that made it.
    uid: u32,
    /// The only one who can decode it.
    reader: Option<u32>,
    payload: String,
}

/// Makes a credential and decodes it.
///
/// # Errors
/// If munge is not installed, or does not answer.
pub(super) async fn examine() -> anyhow::Result<()> {
    // `--no-input`: without it, munge would read the payload from the terminal of `takt doctor`.
    let mut munge = Command::new("munge");
    let made = munge
        .arg("--no-input")
        .kill_on_drop(true)
        .output()
        .await
        .context("cannot run munge")?;
    if !made.status.success() {
        bail!("{}", String::from_utf8_lossy(&made.stderr).trim());
    }

    let credential = String::from_utf8_lossy(&made.stdout);
    decode(credential.trim()).await.map(drop)
}

/// Decodes a credential. `unmunge` prints uid and payload of a replayed credential, too: only its
/// exit status says that it is valid.
async fn decode(credential: &str) -> anyhow::Result<Decoded> {
    let mut child = Command::new("unmunge")
        .arg("--keys=STATUS,UID,UID_RESTRICTION")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot run unmunge")?;

    let mut input = child.stdin.take().context("unmunge has no input")?;
    // A credential is below 4096 bytes, so it fits in the pipe before `unmunge` reads.
    input.write_all(credential.as_bytes()).await?;
    // `unmunge` reads until the end of its input.
    drop(input);
    let output = child.wait_with_output().await?;

    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout);
        let status = text.lines().find_map(|line| line.strip_prefix("STATUS:"));
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "munge refuses the credential: {}",
            status.unwrap_or(&said).trim()
        );
    }

    let text = String::from_utf8(output.stdout).context("the credential has no text")?;
    // Metadata and payload are separated by an empty line; the payload may contain others.
    let (metadata, payload) = text
        .split_once("\n\n")
        .context("unmunge answers in an unknown form")?;

    let number = |key: &str| {
        let found = metadata
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| *name == key);
        // `alice (2001)`
        let (_, number) = found?.1.rsplit_once('(')?;
        number.trim_end().trim_end_matches(')').parse().ok()
    };
    Ok(Decoded {
        uid: number("UID").context("unmunge names no uid")?,
        reader: number("UID_RESTRICTION"),
        payload: payload.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_counts_once_for_this_server_and_purpose() {
        let munge = Munge::new("https://Takt.lab/", 999);
        let new = || munge.challenge(UnixTime(0)).unwrap();

        let accepts = |payload: &str, now| munge.accept(payload, now).is_ok();
        let challenge = new();
        let payload = challenge.payload("https://takt.lab");
        // The server's own address differs in case and slash, which must not matter.
        assert!(accepts(&payload, UnixTime(59)));
        assert!(!accepts(&payload, UnixTime(59)), "used");
        assert!(
            !accepts(&new().payload("https://takt.lab"), UnixTime(60)),
            "too old"
        );
        assert!(
            !accepts(&new().payload("http://takt.lab"), UnixTime(0)),
            "no TLS"
        );
        assert!(!accepts(
            &new().payload("https://evil.example"),
            UnixTime(0)
        ));

        let unknown = MungeChallenge {
            uid: 999,
            nonce: "guess".to_owned(),
        };
        assert!(!accepts(&unknown.payload("https://takt.lab"), UnixTime(0)));

        let nonce = new().nonce;
        for other in [
            "",
            // Another program's credential, one line more, and an empty address.
            &nonce,
            &format!("slurm\nhttps://takt.lab\n{nonce}"),
            &format!("{PURPOSE}\nhttps://takt.lab\n{nonce}\nmore"),
            &format!("{PURPOSE}\n\n{nonce}"),
        ] {
            assert!(!accepts(other, UnixTime(0)), "{other}");
        }
    }
}
