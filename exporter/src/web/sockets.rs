//! The sockets that the exporter listens on: its own, or those that systemd opened.

use crate::exporter::Error;
use crate::options::WebOptions;
use std::io;
use std::os::fd::FromRawFd;
use tokio::net::TcpListener;

/// Opens the listening sockets. Fails where one of them cannot be had.
pub(super) async fn listeners(options: &WebOptions) -> Result<Vec<TcpListener>, Error> {
    if options.systemd_socket {
        let sockets = systemd_sockets();
        let sockets =
            sockets.and_then(|sockets| sockets.into_iter().map(TcpListener::from_std).collect());
        return sockets.map_err(|source| Error::Listen {
            address: "the sockets of systemd".to_owned(),
            source,
        });
    }

    let mut listeners = Vec::new();
    for address in &options.listen_address {
        let listener = listen(address).await;
        listeners.push(listener.map_err(|source| Error::Listen {
            address: address.clone(),
            source,
        })?);
    }
    Ok(listeners)
}

/// The sockets that systemd passes to this process, as `sd_listen_fds(3)` describes: their number
/// is `LISTEN_FDS`, the first is 3, and `LISTEN_PID` names the process.
fn systemd_sockets() -> io::Result<Vec<std::net::TcpListener>> {
    const FIRST: i32 = 3;
    let number = |name| {
        let text = std::env::var(name).ok()?;
        text.parse::<i32>().ok()
    };
    let is_ours =
        number("LISTEN_PID").is_some_and(|pid| u32::try_from(pid) == Ok(std::process::id()));
    let count = number("LISTEN_FDS").filter(|count| is_ours && *count > 0);
    let count = count
        .ok_or_else(|| io::Error::other("LISTEN_PID and LISTEN_FDS name none for this process"))?;

    let sockets = (FIRST..FIRST.saturating_add(count)).map(|number| {
        // SAFETY: systemd opened the socket with this number for this process, and nothing else in
        // the process uses the number, so the listener may own it.
        let socket = unsafe { std::net::TcpListener::from_raw_fd(number) };
        socket.local_addr()?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        socket.set_nonblocking(true)?;
        Ok::<_, io::Error>(socket)
    });
    sockets.collect()
}

/// `:PORT` means every address: of both families where the system has both, else of IPv4.
async fn listen(address: &str) -> io::Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else {
        return TcpListener::bind(address).await;
    };
    match TcpListener::bind(format!("[::]:{port}")).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(format!("0.0.0.0:{port}")).await
        }
        result => result,
    }
}
