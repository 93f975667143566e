//! Bytes that wait in UDP sockets: to be sent, or to be taken by a program that does not keep up.
//!
//! Sources: `/proc/net/udp` and `/proc/net/udp6`, a line for each socket; we publish the sums.

use crate::collector::{CollectError, Collector, OrAbsent, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct UdpQueues {
    files: [(&'static str, KernelFile); 2],
}

const QUEUES: Metric = Metric::gauge(
    "node_udp_queues",
    "Number of allocated memory in the kernel for UDP datagrams in bytes.",
    &["queue", "ip"],
);

/// More than the longest line: `net/ipv4/udp.c` pads to 127 characters, and the lines of
/// `net/ipv6/datagram.c` have 180 at most. Each read of these files walks the table of all sockets.
const LINE_BYTES: usize = 256;

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    let file = |name| KernelFile::new(paths.procfs.join("net").join(name));
    Box::new(UdpQueues {
        files: [("v4", file("udp")), ("v6", file("udp6"))],
    })
}

impl Collector for UdpQueues {
    fn metrics(&self) -> &'static [Metric] {
        &[QUEUES]
    }

    fn max_series(&self) -> usize {
        4
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let mut result = Err(CollectError::Absent("no UDP"));
        for (ip, file) in &mut self.files {
            // A kernel without IPv6, or without IPv4, has one of the two files.
            let queues = file.parse_lines(LINE_BYTES, parse);
            match queues.or_absent("no UDP") {
                Err(CollectError::Absent(_)) => {}
                queues => {
                    let queues = queues?;
                    out.push(&QUEUES, &["tx", ip], queues.transmit as f64);
                    out.push(&QUEUES, &["rx", ip], queues.receive as f64);
                    result = Ok(());
                }
            }
        }
        result
    }
}

#[derive(Debug, PartialEq, Default)]
struct Queues {
    transmit: u64,
    receive: u64,
}

/// Below a heading, `sl local_address rem_address st tx_queue:rx_queue …`, in hexadecimal.
fn parse(text: &str) -> Result<Queues, ParseError> {
    let mut sums = Queues::default();
    for (number, line) in text.lines().enumerate().skip(1) {
        let (transmit, receive) = parse_line(line).ok_or(ParseError {
            line: number + 1,
            expected: "a socket's queues in the fifth column",
        })?;
        sums.transmit += transmit;
        sums.receive += receive;
    }
    Ok(sums)
}

fn parse_line(line: &str) -> Option<(u64, u64)> {
    let bytes = |text| u32::from_str_radix(text, 16).ok().map(u64::from);

    let (transmit, receive) = line.split_ascii_whitespace().nth(4)?.split_once(':')?;
    Some((bytes(transmit)?, bytes(receive)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n";

    #[test]
    fn sums() {
        let socket = |queues: &str| {
            format!("  27: 0100007F:0277 00000000:0000 07 {queues} 00:00000000 00000000\n")
        };
        let text = [
            HEAD,
            &socket("00000001:00000020"),
            &socket("FFFFFFFF:00000300"),
        ]
        .concat();
        assert_eq!(
            parse(&text),
            Ok(Queues {
                transmit: 0x1_0000_0000,
                receive: 0x320
            })
        );
        assert_eq!(parse(HEAD), Ok(Queues::default()));
        assert_eq!(parse(""), Ok(Queues::default()));
    }

    #[test]
    fn wrong_lines_are_named() {
        for line in [
            "0: a b 07",
            "0: a b 07 1",
            "0: a b 07 1:x",
            "0: a b 07 100000000:0",
        ] {
            assert_eq!(
                parse(&format!("{HEAD}{line}\n")).unwrap_err().line,
                2,
                "{line}"
            );
        }
    }
}
