//! Whose process has accepted a connection on this machine, from the kernel's tables of TCP sockets.
//!
//! Any user can listen on the exporter's port while the exporter is down, on another address of it, or for a moment before
//! the exporter starts. So the question is not who listens, but who holds the other end of this one connection. It is asked
//! before anything is sent: whoever has accepted is who will answer.
//!
//! Source: `net/ipv4/tcp_ipv4.c` (`get_tcp4_sock`) and `net/ipv6/tcp_ipv6.c`. Crate `procfs` reads the same tables, but drops
//! the whole table at the first line that it does not understand, and costs more than these columns.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The other end of a connection, if it is on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherEnd {
    /// It is on another machine, or this system has no such tables.
    Elsewhere,
    /// No process has accepted the connection yet, or the one that did has closed it.
    Unaccepted,
    /// A process of this user holds it.
    Held(u32),
}

/// Looks for the other end of the connection from `own` to `peer`.
pub(crate) fn other_end(own: SocketAddr, peer: SocketAddr) -> OtherEnd {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/net/{name}"));
    // Without this file this is no Linux. The other one is missing where IPv6 is off.
    let Ok(four) = read("tcp") else {
        return OtherEnd::Elsewhere;
    };
    let six = read("tcp6").unwrap_or_default();
    let tables = [four, six];
    let lines = tables.iter().flat_map(|table| table.lines());
    end_in(lines, own, peer)
}

fn end_in<'a>(lines: impl Iterator<Item = &'a str>, own: SocketAddr, peer: SocketAddr) -> OtherEnd {
    let [own, peer] = [own, peer].map(canonical);

    // The server's end has the addresses the other way round.
    let mut ends = lines
        .filter_map(TcpRow::parse)
        .filter(|row| row.local == peer && row.remote == own);
    if let Some(row) = ends.next() {
        return row.end();
    }

    // Nothing else can be behind the own address: its row is about to appear, or is gone.
    match peer.0.is_loopback() || peer.0 == own.0 {
        true => OtherEnd::Unaccepted,
        false => OtherEnd::Elsewhere,
    }
}

/// A socket that is open to both protocols shows an IPv4 address as a mapped one.
fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// The columns of a line that are needed.
struct TcpRow {
    local: (IpAddr, u16),
    remote: (IpAddr, u16),
    uid: u32,
    /// 0 until a process has the socket, and after it has closed it. The kernel then says that it is root's.
    inode: u64,
}

impl TcpRow {
    /// `None` for the heading, and for what cannot be read.
    fn parse(line: &str) -> Option<Self> {
        // Columns: number, local address, remote address, state, two queues, timer, retransmissions, user, timeouts, inode.
        let mut words = line.split_ascii_whitespace();
        let local = address(words.nth(1)?)?;
        let remote = address(words.next()?)?;
        let uid = words.nth(4)?.parse().ok()?;
        let inode = words.nth(1)?.parse().ok()?;
        Some(Self {
            local,
            remote,
            uid,
            inode,
        })
    }

    fn end(&self) -> OtherEnd {
        match self.inode {
            0 => OtherEnd::Unaccepted,
            _ => OtherEnd::Held(self.uid),
        }
    }
}

/// `0100007F:267F`: words of 32 bits in the machine's byte order, and the port as a number.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (host, port) = text.split_once(':')?;
    let word = |at: usize| {
        let digits = host.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };

    let ip = match host.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some((ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    const HEADING: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn only_the_end_of_this_connection_counts() {
        let lines = [
            HEADING,
            // Somebody listens on the port, at this address and at another one.
            "   0: 0100007F:267F 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 10 1 0 100 0 0 10 0",
            "   1: 0200007F:267F 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1002        0 11 1 0 100 0 0 10 0",
            // The own end, another connection, and the end that the server holds.
            "   2: 0100007F:D431 0100007F:267F 01 00000000:00000000 00:00000000 00000000  1003        0 12 1 0 20 4 30 10 -1",
            "   3: 0100007F:267F 0100007F:D430 01 00000000:00000000 00:00000000 00000000  1004        0 13 1 0 20 4 30 10 -1",
            "   4: 0100007F:267F 0100007F:D431 01 00000000:00000000 00:00000000 00000000   998        0 14 1 0 20 4 30 10 -1",
        ];
        let end = |lines: &[&str], own, peer| end_in(lines.iter().copied(), at(own), at(peer));
        let [own, peer] = ["127.0.0.1:54321", "127.0.0.1:9855"];
        assert_eq!(end(&lines, own, peer), OtherEnd::Held(998));

        // Before a process has accepted, and after it has closed, the kernel names root and no inode.
        let orphan = "   4: 0100007F:267F 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1";
        assert_eq!(end(&[orphan], own, peer), OtherEnd::Unaccepted);
        assert_eq!(end(&[], own, peer), OtherEnd::Unaccepted);

        // A server of both protocols, and this machine's own address.
        let mapped = "   0: 0000000000000000FFFF00000100007F:267F 0000000000000000FFFF00000100007F:D431 01 0:0 00:0 0  1001 0 7 1";
        assert_eq!(end(&[mapped], own, peer), OtherEnd::Held(1001));
        let [own, peer] = ["[::ffff:127.0.0.1]:54321", "[::ffff:127.0.0.1]:9855"];
        assert_eq!(end(&[mapped], own, peer), OtherEnd::Held(1001));
        let six = "   0: 00000000000000000000000001000000:267F 00000000000000000000000001000000:D431 01 0:0 00:0 0  1001 0 7 1";
        assert_eq!(
            end(&[six], "[::1]:54321", "[::1]:9855"),
            OtherEnd::Held(1001)
        );
        assert_eq!(
            end(&[], "192.0.2.2:5", "192.0.2.2:9855"),
            OtherEnd::Unaccepted
        );
        assert_eq!(
            end(&[], "192.0.2.2:5", "192.0.2.3:9855"),
            OtherEnd::Elsewhere
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_kernel_names_who_has_accepted() {
        use std::os::unix::fs::MetadataExt;

        let user = std::fs::metadata("/proc/self").unwrap().uid();
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            // A machine may have no IPv6.
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let host = if address.starts_with("[::1]") {
                "::1"
            } else {
                "127.0.0.1"
            };
            let client = TcpStream::connect((host, port)).unwrap();
            let [own, peer] = [client.local_addr(), client.peer_addr()].map(Result::unwrap);

            assert_eq!(other_end(own, peer), OtherEnd::Unaccepted, "{address}");
            let accepted = listener.accept().unwrap();
            assert_eq!(other_end(own, peer), OtherEnd::Held(user), "{address}");
            drop(accepted);
            assert_eq!(other_end(own, peer), OtherEnd::Unaccepted, "{address}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[0-9A-F:. ]{0,120}|\\PC{0,60}") {
            let _ = TcpRow::parse(&text);
        }
    }
}
