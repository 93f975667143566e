//! Connections to `/events` and their limits by client.
//!
//! Takt's server is never refused: alerts depend on its connection. It is known by its user agent,
//! which any client can send, so a place as a server must be worth nothing to others: where such
//! places run out, the oldest connection gives way. That costs the real server nothing, because it
//! connects again within a second and gets what happened since its last event.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Listeners other than servers.
const MAX_LISTENERS: usize = 32;
/// Maximum number of listeners of one client.
const MAX_PER_CLIENT: usize = 8;
/// Servers, besides the other listeners.
const MAX_SERVERS: usize = 8;
/// Servers of one client: two, so that a new server can run beside the old one.
const MAX_SERVERS_PER_CLIENT: usize = 2;

/// Kind of a listener, by its user agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// Takt's server, by its user agent.
    Server,
    Other,
}

impl ListenerKind {
    /// `takt/VERSION` is the server's user agent.
    pub fn of_user_agent(user_agent: Option<&str>) -> Self {
        if user_agent.is_some_and(|name| name.starts_with("takt/")) {
            Self::Server
        } else {
            Self::Other
        }
    }
}

/// All listeners. Cloning gives another handle to the same.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    next_number: u64,
    /// In the order of their coming.
    all: Vec<Entry>,
}

struct Entry {
    number: u64,
    client: IpAddr,
    kind: ListenerKind,
    replaced: watch::Sender<bool>,
}

/// A listener's place, given back when this is dropped.
pub(crate) struct ListenerPlace {
    number: u64,
    listeners: Listeners,
    replaced: watch::Receiver<bool>,
}

impl Listeners {
    /// Adds a listener. `None` where there are too many, which happens to no server.
    pub fn enter(&self, client: IpAddr, kind: ListenerKind) -> Option<ListenerPlace> {
        let mut entries = self.lock();
        let of_kind = entries.all.iter().filter(|entry| entry.kind == kind);
        let of_all = of_kind.clone().count();
        let of_client = of_kind.filter(|entry| entry.client == client).count();
        match kind {
            ListenerKind::Server if of_client >= MAX_SERVERS_PER_CLIENT => {
                replace_oldest(&mut entries.all, |entry| entry.client == client);
            }
            ListenerKind::Server if of_all >= MAX_SERVERS => {
                replace_oldest(&mut entries.all, |_| true);
            }
            ListenerKind::Other if of_client >= MAX_PER_CLIENT || of_all >= MAX_LISTENERS => {
                return None;
            }
            ListenerKind::Server | ListenerKind::Other => {}
        }

        let (sender, replaced) = watch::channel(false);
        let number = entries.next_number;
        entries.next_number += 1;
        entries.all.push(Entry {
            number,
            client,
            kind,
            replaced: sender,
        });

        Some(ListenerPlace {
            number,
            listeners: self.clone(),
            replaced,
        })
    }

    /// Listeners now, servers included.
    pub fn count(&self) -> usize {
        self.lock().all.len()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the connection of the oldest server that `is_meant`.
fn replace_oldest(entries: &mut Vec<Entry>, is_meant: impl Fn(&Entry) -> bool) {
    let is_it = |entry: &Entry| entry.kind == ListenerKind::Server && is_meant(entry);
    let oldest = entries.iter().position(is_it);
    if let Some(oldest) = oldest {
        entries.remove(oldest).replaced.send_replace(true);
    }
}

impl ListenerPlace {
    /// Returns when another listener has taken this place.
    pub async fn replaced(&mut self) {
        // An error means that the entry is gone, as after a replacement.
        let _ = self.replaced.wait_for(|replaced| *replaced).await;
    }
}

impl Drop for ListenerPlace {
    fn drop(&mut self) {
        let mut entries = self.listeners.lock();
        entries.all.retain(|entry| entry.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn client(number: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
    }

    fn is_replaced(place: &ListenerPlace) -> bool {
        *place.replaced.borrow()
    }

    #[test]
    fn a_server_is_known_by_its_user_agent() {
        let kind = |name| ListenerKind::of_user_agent(name);
        assert_eq!(kind(Some("takt/0.1.0")), ListenerKind::Server);
        assert_eq!(kind(Some("curl/8.0")), ListenerKind::Other);
        assert_eq!(kind(None), ListenerKind::Other);
    }

    #[test]
    fn others_have_limits_and_leave_the_servers_alone() {
        let listeners = Listeners::default();
        let enter = |number| listeners.enter(client(number), ListenerKind::Other);
        let mut places: Vec<_> = std::iter::from_fn(|| enter(1)).collect();
        assert_eq!(places.len(), MAX_PER_CLIENT);
        places.extend((2..=200).filter_map(enter));
        assert_eq!(places.len(), MAX_LISTENERS);
        let server = listeners.enter(client(1), ListenerKind::Server);
        assert!(server.is_some_and(|server| !is_replaced(&server)));
        places.pop();
        assert!(enter(200).is_some(), "a place is given back");
    }

    #[test]
    fn a_server_always_enters_and_the_oldest_gives_way() {
        let listeners = Listeners::default();
        let enter = |number| {
            listeners
                .enter(client(number), ListenerKind::Server)
                .unwrap()
        };
        let own = [enter(1), enter(1), enter(1)];
        assert_eq!(own.each_ref().map(is_replaced), [true, false, false]);
        let crowd: Vec<_> = (2..=20).map(enter).collect();
        assert!(is_replaced(&own[1]) && is_replaced(&own[2]));
        let left = crowd.iter().filter(|place| !is_replaced(place)).count();
        assert_eq!(left, MAX_SERVERS);
        drop(crowd);
        assert!(listeners.count() == 0);
    }
}
