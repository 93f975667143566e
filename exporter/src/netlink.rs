//! Lists that the kernel sends over netlink: queues, routes, sockets.

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::netdevice::index_to_name;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Time limit of an answer. The kernel usually answers at once.
const PATIENCE: Duration = Duration::from_secs(1);
const HEAD_BYTES: usize = 16;
const REQUEST_AND_DUMP: u16 = 0x1 | 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Size of a read. The kernel fills it with a part of the list, up to this size.
const PART_BYTES: usize = 32 << 10;
/// Longest list that is read.
const MAX_BYTES: usize = 64 << 20;

/// Requests the whole list of `kind` and passes the body of each message to `each`. `protocol` is
/// that of routes unless given.
///
/// # Errors
/// When the kernel refuses the request, does not answer in time, or the list is too long.
pub(crate) fn list(
    protocol: Option<Protocol>,
    kind: u16,
    request: &[u8],
    mut each: impl FnMut(&[u8]),
) -> Result<(), Errno> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol,
    )?;

    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;

    let length = u32::try_from(HEAD_BYTES + request.len()).map_err(|_| Errno::MSGSIZE)?;
    let head = [length.to_ne_bytes(), [0; 4], 1_u32.to_ne_bytes(), [0; 4]].concat();
    let mut message = [head.as_slice(), request].concat();
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&REQUEST_AND_DUMP.to_ne_bytes());
    send(&socket, &message, SendFlags::empty())?;

    let mut buffer = Vec::with_capacity(PART_BYTES);
    let mut received = 0;
    loop {
        buffer.clear();
        recv(&socket, spare_capacity(&mut buffer), RecvFlags::empty())?;
        received += buffer.len();
        if buffer.is_empty() || received > MAX_BYTES {
            return Err(Errno::MSGSIZE);
        }

        for (kind, body) in messages(&buffer) {
            match kind {
                DONE => return Ok(()),
                ERROR => {
                    let code = body.first_chunk();
                    let code = code.map_or(0, |code| i32::from_ne_bytes(*code));
                    return if code == 0 {
                        Ok(())
                    } else {
                        Err(Errno::from_raw_os_error(-code))
                    };
                }
                _ => each(body),
            }
        }
    }
}

/// Types and bodies of the messages received, up to the first that is cut off.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
        let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
        let body = bytes.get(HEAD_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// Types and values of the attributes behind a message's fixed part, or within another attribute.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// The type without its flags (nested, network byte order).
    const TYPE: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & TYPE;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The names of network links.
pub(crate) struct LinkNames(OwnedFd);

impl LinkNames {
    pub fn new() -> Result<Self, Errno> {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        );
        socket.map(Self)
    }

    /// The name of the link with this number, if it still exists.
    pub fn of(&self, link: u32) -> Option<String> {
        index_to_name(&self.0, link).ok()
    }
}

/// The 32-bit number at a position of a message or value.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn attributes_are_padded_to_four_bytes() {
        let bytes = [
            6, 0, 1, 0x80, b'f', b'q', 0, 0, 8, 0, 2, 0, 1, 2, 3, 4, 9, 0, 3, 0,
        ];
        let found: Vec<_> = attributes(&bytes).collect();
        assert_eq!(
            found,
            [(1, b"fq".as_slice()), (2, &[1, 2, 3, 4])],
            "the last is cut off"
        );
    }

    proptest! {
        #[test]
        fn no_message_ends_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            messages(&bytes).flat_map(|(_, body)| attributes(body)).for_each(|(_, value)| assert!(value.len() < 4 || word(value, 0).is_some()));
        }
    }
}
