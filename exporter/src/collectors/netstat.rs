//! Counters of the network protocols: segments, retransmissions, overflows, errors.
//!
//! Sources: `/proc/net/snmp` and `/proc/net/netstat`, where a line of names is followed by a line
//! of values, and `/proc/net/snmp6`, with a name and a value on each line. A flag says which are
//! published.

use crate::collector::{CollectError, Collector, OrAbsent, ParseError};
use crate::file::KernelFile;
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use takt_model::{Family, Kind, Metric, Samples};

/// Flags of the collector `netstat`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct NetstatOptions {
    /// Fields of /proc/net/{netstat,snmp,snmp6} to publish, as PROTOCOL_FIELD.
    #[arg(id = "netstat-fields", long = "collector.netstat.fields", value_name = "REGEXP", default_value = FIELDS_DEFAULT)]
    pub fields: NamePattern,
}

const FIELDS_DEFAULT: &str = concat!(
    "^(.*_(InErrors|InErrs)|Ip_Forwarding|Ip(6|Ext)_(InOctets|OutOctets)|Icmp6?_(InMsgs|OutMsgs)",
    "|TcpExt_(Listen.*|Syncookies.*|TCPSynRetrans|TCPTimeouts|TCPOFOQueue|TCPRcvQDrop)",
    "|Tcp_(ActiveOpens|InSegs|OutSegs|OutRsts|PassiveOpens|RetransSegs|CurrEstab)",
    "|Udp6?_(InDatagrams|OutDatagrams|NoPorts|RcvbufErrors|SndbufErrors))$"
);

struct Netstat {
    snmp: KernelFile,
    netstat: KernelFile,
    snmp6: KernelFile,
    fields: NameFilter,
    field: String,
}

const FIELDS: Family = Family {
    prefix: "node_netstat_",
    help: "Statistic {}.",
    kind: Kind::Unknown,
    labels: &[],
};

macro_rules! families {
    ($($protocol:literal)*) => {
        /// A family for each protocol, since node_exporter's help texts join protocol and field
        /// without the underscore.
        const BY_PROTOCOL: &[(&str, Family)] = &[$((
            $protocol,
            Family {
                prefix: concat!("node_netstat_", $protocol, "_"),
                help: concat!("Statistic ", $protocol, "{}."),
                ..FIELDS
            },
        )),*];
    };
}

families! {
    "Icmp" "Icmp6" "IcmpMsg" "Ip" "Ip6" "IpExt" "MPTcpExt" "Tcp" "TcpExt" "Udp" "Udp6" "UdpLite" "UdpLite6"
}

pub(crate) fn new(paths: &Paths, options: &NetstatOptions) -> Box<dyn Collector> {
    let file = |name| KernelFile::new(paths.procfs.join("net").join(name));
    Box::new(Netstat {
        snmp: file("snmp"),
        netstat: file("netstat"),
        snmp6: file("snmp6"),
        fields: NameFilter::including(options.fields.clone()),
        field: String::new(),
    })
}

impl Collector for Netstat {
    fn metrics(&self) -> &'static [Metric] {
        &[]
    }

    fn families(&self) -> &'static [Family] {
        &[FIELDS]
    }

    fn max_series(&self) -> usize {
        1024
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let Self {
            snmp,
            netstat,
            snmp6,
            fields,
            field,
        } = self;
        let mut push = |protocol: &str, name: &str, value: f64| {
            // One buffer for all names: there are hundreds, and most are filtered out.
            field.clear();
            field.extend([protocol, "_", name]);
            if !fields.passes(field) {
                return;
            }
            match BY_PROTOCOL.iter().find(|(known, _)| *known == protocol) {
                Some((_, family)) => out.push_field::<&str>(family, name, &[], value),
                None => out.push_field::<&str>(&FIELDS, field, &[], value),
            }
        };

        netstat.parse(|text| parse_pairs(text, &mut push))?;
        snmp.parse(|text| parse_pairs(text, &mut push))?;

        // A kernel without IPv6 has no such file.
        let read = snmp6.parse(|text| parse_lines(text, &mut push));
        match read.or_absent("no IPv6") {
            Err(CollectError::Absent(_)) => Ok(()),
            other => other,
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric())
}

/// `Tcp: InSegs OutSegs`, then `Tcp: 1 2`.
fn parse_pairs(text: &str, push: &mut impl FnMut(&str, &str, f64)) -> Result<(), ParseError> {
    let mut lines = text.lines().enumerate();
    while let Some((number, names)) = lines.next() {
        let error = |expected| ParseError {
            line: number + 1,
            expected,
        };
        let (protocol, names) = names
            .split_once(':')
            .filter(|(protocol, _)| is_name(protocol))
            .ok_or(error("a protocol and the names of its values"))?;

        let values = lines.next();
        let values = values.and_then(|(_, line)| line.strip_prefix(protocol)?.strip_prefix(':'));
        let mut values = values
            .ok_or(error("a line of values of the same protocol below"))?
            .split_ascii_whitespace();

        for name in names.split_ascii_whitespace() {
            // Some values are negative, and some do not fit into 63 bits.
            let value = values.next().and_then(|value| value.parse().ok());
            let value = value.filter(|_| is_name(name));
            push(
                protocol,
                name,
                value.ok_or(error("a number for each name"))?,
            );
        }
    }
    Ok(())
}

/// `Icmp6InMsgs 1`: the protocol ends with the 6. Other names are passed over.
fn parse_lines(text: &str, push: &mut impl FnMut(&str, &str, f64)) -> Result<(), ParseError> {
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_ascii_whitespace();
        let Some((name, at)) = words.next().and_then(|name| Some((name, name.find('6')?))) else {
            continue;
        };

        let (protocol, name) = name.split_at(at + 1);
        let value = words.next().and_then(|value| value.parse().ok());
        let value = value.filter(|_| is_name(name) && is_name(protocol));
        let value = value.ok_or(ParseError {
            line: number + 1,
            expected: "a name and a number",
        })?;
        push(protocol, name, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parse = fn(&str, &mut dyn FnMut(&str, &str, f64)) -> Result<(), ParseError>;

    fn parsed(parse: Parse, text: &str) -> Result<Vec<(String, f64)>, usize> {
        let mut fields = Vec::new();
        let mut push =
            |protocol: &str, name: &str, value| fields.push((format!("{protocol}_{name}"), value));
        parse(text, &mut push).map_err(|error| error.line)?;
        Ok(fields)
    }

    fn pairs(text: &str, mut push: &mut dyn FnMut(&str, &str, f64)) -> Result<(), ParseError> {
        parse_pairs(text, &mut push)
    }

    fn lines(text: &str, mut push: &mut dyn FnMut(&str, &str, f64)) -> Result<(), ParseError> {
        parse_lines(text, &mut push)
    }

    #[test]
    fn names_and_values_in_pairs_of_lines() {
        let text = "Tcp: MaxConn InSegs\nTcp: -1 7\nUdp: InErrors\nUdp: 18446744073709551615\n";
        let expected = [
            ("Tcp_MaxConn", -1.0),
            ("Tcp_InSegs", 7.0),
            ("Udp_InErrors", 18_446_744_073_709_551_615.0),
        ];
        assert_eq!(
            parsed(pairs, text).unwrap(),
            expected.map(|(name, value)| (name.to_owned(), value))
        );
        for text in [
            "Tcp: A B\nTcp: 1\n",
            "Tcp: A\nUdp: 1\n",
            "Tcp: A\n",
            "Tcp A\nTcp 1\n",
            "Tcp: A\nTcp: x\n",
        ] {
            assert_eq!(parsed(pairs, text), Err(1), "{text:?}");
        }
    }

    #[test]
    fn names_and_values_side_by_side() {
        let text = "Ip6InReceives 4\nUdpLite6InErrors 0\nfuture 1\n";
        let expected = [("Ip6_InReceives", 4.0), ("UdpLite6_InErrors", 0.0)];
        assert_eq!(
            parsed(lines, text).unwrap(),
            expected.map(|(name, value)| (name.to_owned(), value))
        );
        for text in [
            "Ip6InReceives\n",
            "Ip6InReceives x\n",
            "Ip6 1\n",
            "Ip6In\"Receives 1\n",
        ] {
            assert_eq!(parsed(lines, text), Err(1), "{text:?}");
        }
    }
}
