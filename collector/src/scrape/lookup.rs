//! Addresses of names, with a limit on lookups at one time.
//!
//! A name server that does not answer holds a thread for each lookup, for up to half a minute, even
//! if nobody waits for it any more. The store's reads need the same threads.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;

/// Lookups at one time. Others wait, as long as their request may take.
const LOOKUPS_MAX: usize = 32;

static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LOOKUPS_MAX)));

/// Connects to a host, which is a name or an address.
pub(super) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    TcpStream::connect(&*addresses(host, port).await?).await
}

/// The addresses of a host.
pub(super) async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }

    let host = host.to_owned();
    let found = async move { lookup_host((host.as_str(), port)).await.map(Vec::from_iter) };
    limited(&PLACES, found).await
}

/// Does `work` while it holds one of the places: to its end, also if the caller goes away.
async fn limited<T>(
    places: &Arc<Semaphore>,
    work: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T>
where
    T: Send + 'static,
{
    let place = Arc::clone(places).acquire_owned().await;
    let place = place.map_err(io::Error::other)?;

    let task = tokio::spawn(async move {
        let done = work.await;
        drop(place);
        done
    });

    task.await.map_err(io::Error::other)?
}

/// Names for clients of reqwest, within the limit.
#[derive(Debug)]
pub(super) struct LimitedLookups;

impl Resolve for LimitedLookups {
    fn resolve(&self, name: Name) -> Resolving {
        // The port comes from the address; 0 is a placeholder.

        Box::pin(async move {
            let found = addresses(name.as_str(), 0).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    /// A name server hung, and each attempt of 600 targets held a thread: no page had data.
    #[tokio::test]
    async fn a_lookup_holds_its_place_until_its_thread_is_free() {
        let places = Arc::new(Semaphore::new(1));
        let (answer, hanging) = oneshot::channel::<()>();
        let hang = async move {
            hanging.await.map_err(io::Error::other)?;
            Ok(())
        };
        let brief = Duration::from_millis(50);
        assert!(timeout(brief, limited(&places, hang)).await.is_err());
        let next = limited(&places, async { Ok(7) });
        assert!(
            timeout(brief, next).await.is_err(),
            "the thread still hangs"
        );
        answer.send(()).unwrap();
        assert_eq!(limited(&places, async { Ok(7) }).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn addresses_need_no_lookup() {
        let found = addresses("::1", 9855).await.unwrap();
        assert_eq!(found, ["[::1]:9855".parse().unwrap()]);
        assert_eq!(addresses("127.0.0.1", 1).await.unwrap().len(), 1);
        assert!(addresses("no-such-host.invalid", 1).await.is_err());
    }
}
