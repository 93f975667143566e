//! Evidence that the machine of a failed target is alive: a hung exporter and a dead machine both
//! answer no scrape.

use super::lookup;
use reqwest::Url;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A machine on the network answers a connection attempt within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Port to try if the exporter's own port does not answer: nearly every node runs sshd.
const SSH: u16 = 22;

/// Checks whether the machine of one target answers TCP. The check runs in the background, so that
/// it delays no scrape.
#[derive(Debug)]
pub(super) struct Evidence {
    address: Option<(String, u16)>,
    answers: Arc<AtomicBool>,
    attempt: Option<JoinHandle<()>>,
}

impl Evidence {
    /// Creates the check for the machine of `url`.
    pub fn of(url: &Url) -> Self {
        let host = url.host_str().map(|host| {
            host.trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned()
        });

        Self {
            address: host.zip(url.port_or_known_default()),
            answers: Arc::new(AtomicBool::new(false)),
            attempt: None,
        }
    }

    /// Returns whether the machine answered the latest attempt since the target failed.
    pub fn answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    /// Starts another attempt, unless one is running.
    pub fn look(&mut self) {
        let is_busy = self
            .attempt
            .as_ref()
            .is_some_and(|attempt| !attempt.is_finished());

        let Some((host, port)) = self.address.clone().filter(|_| !is_busy) else {
            return;
        };

        let answers = Arc::clone(&self.answers);
        self.attempt = Some(tokio::spawn(async move {
            let found = accepts(&host, port).await || accepts(&host, SSH).await;
            answers.store(found, Ordering::Relaxed);
        }));
    }

    /// Forgets the latest answer, because the target works again.
    pub fn clear(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            attempt.abort();
        }
        self.answers.store(false, Ordering::Relaxed);
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns whether the machine accepts or refuses a connection; in both cases its kernel runs.
async fn accepts(host: &str, port: u16) -> bool {
    match timeout(TIMEOUT, lookup::connect(host, port)).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => error.kind() == ErrorKind::ConnectionRefused,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_that_never_answers_and_a_closed_port_are_evidence() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(accepts("127.0.0.1", port).await);
        drop(listener);
        assert!(accepts("127.0.0.1", port).await, "the kernel refuses");
        // TCP has no route to the broadcast address, just as to a machine that is gone.
        assert!(!accepts("255.255.255.255", port).await);
    }

    #[tokio::test]
    async fn evidence_ends_when_the_target_works_again() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        let mut evidence = Evidence::of(&Url::parse(&url).unwrap());
        assert!(!evidence.answers());
        evidence.look();
        evidence.attempt.take().unwrap().await.unwrap();
        assert!(evidence.answers());
        evidence.clear();
        assert!(!evidence.answers());
    }
}
