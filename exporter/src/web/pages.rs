//! Pages that are written or sent at the same time: how many, and how many for one client.

use super::connections::Connections;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long a request waits for a page that is being sent to another client.
const PATIENCE: Duration = Duration::from_secs(2);
/// A client that has not read its page for this long gives way to one that waits.
const SLOW_READER: Duration = Duration::from_secs(1);
/// How often a request that waits looks for such a client.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Leave to write and send pages.
pub(crate) struct PageLimit {
    all: Arc<Semaphore>,
    /// Pages of one client at the same time: three quarters of all.
    share: usize,
    /// How long a request waits for a page that is being sent to another client.
    patience: Duration,
    by_client: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// Leave to write and send one page.
pub(crate) struct PagePermit {
    _of_all: OwnedSemaphorePermit,
    _of_client: OwnedSemaphorePermit,
}

impl PageLimit {
    /// `max` pages at the same time; 0 is no limit.
    pub fn new(max: usize) -> Self {
        let max = if max == 0 {
            Semaphore::MAX_PERMITS
        } else {
            max.min(Semaphore::MAX_PERMITS)
        };

        Self {
            all: Arc::new(Semaphore::new(max)),
            share: (max - max / 4).max(1),
            patience: PATIENCE,
            by_client: Mutex::default(),
        }
    }

    /// Leave for one more page. Waits a moment where there are too many, and closes connections of
    /// clients that do not read; `None` where that was in vain.
    pub async fn enter(&self, client: IpAddr, connections: &Connections) -> Option<PagePermit> {
        let until = Instant::now() + self.patience;

        // The client's own limit comes first, so that one who waits for it takes nobody else's
        // place.
        let of_client = acquire(&self.of_client(client), until, connections).await?;
        let of_all = acquire(&self.all, until, connections).await?;
        Some(PagePermit {
            _of_all: of_all,
            _of_client: of_client,
        })
    }

    fn of_client(&self, client: IpAddr) -> Arc<Semaphore> {
        let by_client = self.by_client.lock();
        let mut by_client = by_client.unwrap_or_else(PoisonError::into_inner);
        // Clients without a page need no entry.
        by_client.retain(|_, pages| Arc::strong_count(pages) > 1);

        let pages = by_client
            .entry(client)
            .or_insert_with(|| Arc::new(Semaphore::new(self.share)));
        Arc::clone(pages)
    }
}

async fn acquire(
    pages: &Arc<Semaphore>,
    until: Instant,
    connections: &Connections,
) -> Option<OwnedSemaphorePermit> {
    if let Ok(permit) = Arc::clone(pages).try_acquire_owned() {
        return Some(permit);
    }

    let mut permit = std::pin::pin!(Arc::clone(pages).acquire_owned());
    loop {
        connections.close_slowest_reader(SLOW_READER);

        tokio::select! {
            permit = &mut permit => return permit.ok(),
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }

        if Instant::now() >= until {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::connections::connections;
    use super::*;
    use std::net::Ipv4Addr;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn pages(max: usize) -> PageLimit {
        PageLimit {
            patience: Duration::ZERO,
            ..PageLimit::new(max)
        }
    }

    #[tokio::test]
    async fn permits_are_counted_and_given_back() {
        let connections = connections();
        let pages = pages(1);
        let permit = pages.enter(ONE, &connections).await;
        assert!(permit.is_some() && pages.enter(ONE, &connections).await.is_none());
        drop(permit);
        assert!(pages.enter(ONE, &connections).await.is_some());
        assert!(PageLimit::new(0).enter(ONE, &connections).await.is_some());
    }

    #[tokio::test]
    async fn one_client_leaves_a_quarter_to_others() {
        let connections = connections();
        let pages = pages(4);
        let mut taken = Vec::new();
        while let Some(permit) = pages.enter(ONE, &connections).await {
            taken.push(permit);
        }
        assert_eq!(taken.len(), 3);
        assert!(pages.enter(OTHER, &connections).await.is_some());
        drop(taken);
        assert!(pages.enter(OTHER, &connections).await.is_some());
        let clients = pages.by_client.lock().unwrap().len();
        assert_eq!(clients, 1, "clients without pages are forgotten");
    }
}
