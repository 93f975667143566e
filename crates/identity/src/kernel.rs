//! Owners of loopback connections, and names of Unix users.
//!
//! The kernel knows the owner of each socket. `sock_diag(7)` looks up one connection by its addresses. A browser behind
//! `ssh -L` is seen as the user of the tunnel, because sshd's child runs as that user.

use nix::unistd::{Uid, User};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Time limit of the kernel's answer. It usually comes at once.
const PATIENCE: Duration = Duration::from_millis(200);

const HEAD_BYTES: usize = 16;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const INET: u8 = 2;
const INET6: u8 = 10;
const TCP: u8 = 6;
const ESTABLISHED: u8 = 1;
/// Position of `idiag_uid` in `struct inet_diag_msg`; `idiag_inode` follows.
const UID_AT: usize = 4 + 48 + 12;

/// Uid of a user that the kernel cannot name here.
const OVERFLOW_UID: u32 = 65_534;

/// First uid of people, if `/etc/login.defs` does not say.
const UID_MIN: u32 = 1000;

/// Returns the uid of the process that connected from `client` to `server`, both on this machine.
///
/// `None` if the connection is not established any more: the kernel shows uid 0 for what is left of a closed one. Also `None`
/// if the kernel does not answer.
pub fn owner(client: SocketAddr, server: SocketAddr) -> Option<u32> {
    let answer = ask(&request(client, server)).ok()?;
    owner_in(&answer)
}

/// The message that asks for one socket: `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    // A listener on `[::]` sees an IPv4 client as `::ffff:127.0.0.1`, and the client's own socket is an IPv4 one.
    let addresses = [client.ip().to_canonical(), server.ip().to_canonical()];
    let family = if addresses[0].is_ipv4() { INET } else { INET6 };
    let mut body = vec![family, TCP, 0, 0];
    // All states: the answer has the state, which `owner_in` checks.
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(client.port().to_be_bytes());
    body.extend(server.port().to_be_bytes());

    for address in addresses {
        let mut bytes = [0; 16];
        match address {
            IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes = address.octets(),
        }
        body.extend(bytes);
    }

    // Any interface, and no cookie of an earlier answer.
    body.extend(0_u32.to_ne_bytes());
    body.extend([0xff; 8]);

    // `nlmsghdr`: length, type and flags, then a sequence number and a port, which may be 0.
    let length = u32::try_from(HEAD_BYTES + body.len()).unwrap_or_default();
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

fn ask(message: &[u8]) -> Result<Vec<u8>, Errno> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    // The answer is awaited in the path of a request, so a kernel without `sock_diag` must not hold it back.
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    send(&socket, message, SendFlags::empty())?;

    let mut answer = Vec::with_capacity(4096);
    recv(&socket, spare_capacity(&mut answer), RecvFlags::empty())?;
    Ok(answer)
}

/// Returns the uid in an answer about an established connection with an open socket.
fn owner_in(answer: &[u8]) -> Option<u32> {
    // An error of the kernel is a message of another type, and a short answer ends here.
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    let body = answer.get(HEAD_BYTES..)?;
    let number = |at: usize| Some(u32::from_ne_bytes(*body.get(at..)?.first_chunk()?));
    let state = *body.get(1)?;
    let uid = number(UID_AT)?;

    let inode = number(UID_AT + 4)?;
    // The uid 0 of what is left of a closed connection would be taken for root's.
    (kind == SOCK_DIAG_BY_FAMILY && state == ESTABLISHED && inode != 0).then_some(uid)
}

/// Returns whether the uid is a person's: not root's, not a system user's, and known to the kernel.
pub(super) fn is_person(uid: u32, uid_min: u32) -> bool {
    uid >= uid_min && uid != OVERFLOW_UID && uid != u32::MAX
}

/// Returns the first uid of people: `UID_MIN` of `/etc/login.defs`, else 1000.
pub(super) fn uid_min() -> u32 {
    let text = fs::read_to_string("/etc/login.defs").unwrap_or_default();
    uid_min_in(&text).unwrap_or(UID_MIN)
}

fn uid_min_in(login_defs: &str) -> Option<u32> {
    let mut lines = login_defs.lines().map(str::split_whitespace);
    // A limit of 0 would take root for a person.
    lines
        .find_map(|mut words| (words.next()? == "UID_MIN").then(|| words.next())?)
        .and_then(|word| word.parse().ok())
        .filter(|uid| *uid > 0)
}

/// Returns the name of a uid, from the system's user databases. Blocks: a directory service may be asked.
pub(super) fn user_name(uid: u32) -> Option<String> {
    let user = User::from_uid(Uid::from_raw(uid));
    user.ok().flatten().map(|user| user.name)
}

/// Returns the uid of a name, from the system's user databases. Blocks, as [`user_name`] does.
pub(super) fn uid_of(name: &str) -> Option<u32> {
    let user = User::from_name(name);
    user.ok().flatten().map(|user| user.uid.as_raw())
}

/// Returns the user whom a number names: of this name, or of this uid. A node that cannot ask its directory service shows
/// uids in place of names. Blocks, as [`user_name`] does.
pub fn user_by_number(number: &str) -> Option<String> {
    // Some sites give numbers as names.
    if uid_of(number).is_some() {
        return Some(number.to_owned());
    }
    user_name(number.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_owner_of_a_loopback_connection_is_known() {
        let own = process::getuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
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
            let (accepted, peer) = listener.accept().unwrap();
            let here = accepted.local_addr().unwrap();

            assert_eq!(owner(peer, here), Some(own), "{address}");
            // The answer is for exactly one pair of ports, so a neighbour's connection is not taken for this one.
            let other = SocketAddr::new(peer.ip(), peer.port() ^ 1);
            assert_eq!(owner(other, here), None, "another connection");

            drop(client);
            assert_eq!(owner(peer, here), None, "closed: the kernel says uid 0");
        }
    }

    /// A closing connection has state 5 and uid 0, as measured on Linux 6.18.
    #[test]
    fn what_is_left_of_a_connection_belongs_to_nobody() {
        let answer = |state: u8, uid: u32, inode: u32| {
            let mut bytes = vec![0; HEAD_BYTES + UID_AT];
            bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
            bytes[HEAD_BYTES + 1] = state;
            bytes.extend(uid.to_ne_bytes());
            bytes.extend(inode.to_ne_bytes());
            bytes
        };

        assert_eq!(owner_in(&answer(1, 1000, 77)), Some(1000));
        assert_eq!(owner_in(&answer(5, 0, 0)), None);
        // A socket without an inode is orphaned: its process has closed it.
        assert_eq!(owner_in(&answer(1, 0, 0)), None);
        // Cut before the uid.
        assert_eq!(owner_in(&answer(1, 1000, 77)[..60]), None);
        assert_eq!(owner_in(&[]), None);
    }

    #[test]
    fn system_users_are_nobody() {
        // Root, a service, the last system uid, then people, and the two numbers that stand for no user.
        let people: Vec<u32> = [0, 33, 999, 1000, 4_000_000, OVERFLOW_UID, u32::MAX]
            .into_iter()
            .filter(|uid| is_person(*uid, UID_MIN))
            .collect();
        assert_eq!(people, [1000, 4_000_000]);

        // A comment is no setting, `UID_MAX` is another, and the fields are separated by any blanks.
        assert_eq!(
            uid_min_in("# UID_MIN 5\nUID_MAX 60000\nUID_MIN\t\t 500\n"),
            Some(500)
        );
        assert_eq!(uid_min_in("UID_MIN 0\n"), None);
    }
}
