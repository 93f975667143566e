//! TCP connections by state, and the bytes that wait in them.
//!
//! Source: netlink's socket diagnosis. `/proc/net/tcp` would cost ten times as much where there are
//! many.

use crate::collector::{CollectError, Collector};
use crate::netlink;
use crate::paths::Paths;
use rustix::net::{AddressFamily, netlink as protocols};
use std::path::PathBuf;
use takt_model::{Metric, Samples};

struct Tcpstat {
    tcp6: PathBuf,
}

const CONNECTIONS: Metric = Metric::gauge(
    "node_tcp_connection_states",
    "Number of connection states.",
    &["state"],
);
/// By the kernel's number, from 1; the last two are bytes.
const STATES: [&str; 13] = [
    "established",
    "syn_sent",
    "syn_recv",
    "fin_wait1",
    "fin_wait2",
    "time_wait",
    "close",
    "close_wait",
    "last_ack",
    "listen",
    "closing",
    "rx_queued_bytes",
    "tx_queued_bytes",
];
const RECEIVED: usize = 11;
const TO_SEND: usize = 12;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `struct inet_diag_req_v2`: family, protocol, …, the wanted states, and the socket, which is left
/// open.
const REQUEST_BYTES: usize = 56;
const ALL_STATES: u32 = 0xfff;
const TCP: u8 = 6;
/// Places in `struct inet_diag_msg`.
const STATE: usize = 1;
const RECEIVE_QUEUE: usize = 56;
const SEND_QUEUE: usize = 60;

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Tcpstat {
        tcp6: paths.procfs.join("net/tcp6"),
    })
}

impl Collector for Tcpstat {
    fn metrics(&self) -> &'static [Metric] {
        &[CONNECTIONS]
    }

    fn max_series(&self) -> usize {
        STATES.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let mut counts = [None; STATES.len()];
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            // A kernel without IPv6 has no such file.
            if family == AddressFamily::INET6 && !self.tcp6.exists() {
                continue;
            }

            let mut request = [0; REQUEST_BYTES];
            request[0] = u8::try_from(family.as_raw()).unwrap_or_default();
            request[1] = TCP;
            request[4..8].copy_from_slice(&ALL_STATES.to_ne_bytes());

            let protocol = Some(protocols::SOCK_DIAG);
            let list = netlink::list(protocol, SOCK_DIAG_BY_FAMILY, &request, |socket| {
                count(socket, &mut counts);
            });
            list.map_err(|error| CollectError::read("netlink".as_ref(), error))?;
        }

        for (state, count) in STATES.iter().zip(counts) {
            if let Some(count) = count {
                out.push(&CONNECTIONS, &[state], count);
            }
        }
        Ok(())
    }
}

fn count(socket: &[u8], counts: &mut [Option<f64>; STATES.len()]) {
    let state = socket.get(STATE).map_or(0, |state| usize::from(*state));
    // States that a later kernel adds have no place here.
    let mut add = |at: usize, amount: f64| {
        if let Some(count) = counts.get_mut(at) {
            *count.get_or_insert(0.0) += amount;
        }
    };

    add(state.wrapping_sub(1), 1.0);
    for (place, queue) in [(RECEIVED, RECEIVE_QUEUE), (TO_SEND, SEND_QUEUE)] {
        let bytes = netlink::word(socket, queue);
        add(place, bytes.map_or(0.0, f64::from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sockets_are_counted_by_state() {
        let mut socket = vec![0; 72];
        (socket[STATE], socket[RECEIVE_QUEUE], socket[SEND_QUEUE]) = (10, 3, 4);
        let mut counts = [None; STATES.len()];
        count(&socket, &mut counts);
        count(&socket, &mut counts);
        assert_eq!(
            (counts[9], counts[RECEIVED], counts[TO_SEND], counts[0]),
            (Some(2.0), Some(6.0), Some(8.0), None)
        );
    }

    proptest! {
        #[test]
        fn any_socket_is_counted_or_not(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            count(&bytes, &mut [None; STATES.len()]);
        }
    }
}
