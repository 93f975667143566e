//! Sockets by protocol and state.
//!
//! Sources: `/proc/net/sockstat` and `/proc/net/sockstat6`. `mem` counts pages of the kernel's
//! size, so it is published in bytes too; `memory` is in bytes already.

use crate::collector::{CollectError, Collector, OrAbsent, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Family, Kind, Metric, Samples};

struct Sockstat {
    files: [KernelFile; 2],
    page_bytes: f64,
    field: String,
}

/// `TCP_inuse`, `sockets_used` and the like: the kernel names the protocols.
const FIELDS: Family = Family {
    prefix: "node_sockstat_",
    help: "Number of {} sockets.",
    kind: Kind::Gauge,
    labels: &[],
};
const USED: Metric = Metric::gauge(
    "node_sockstat_sockets_used",
    "Number of IPv4 sockets in use.",
    &[],
);

macro_rules! families {
    ($($protocol:literal)*) => {
        /// A family for each protocol: node_exporter's help texts name protocol and state apart.
        const BY_PROTOCOL: &[(&str, Family)] = &[$((
            $protocol,
            Family {
                prefix: concat!("node_sockstat_", $protocol, "_"),
                help: concat!("Number of ", $protocol, " sockets in state {}."),
                ..FIELDS
            },
        )),*];
    };
}

families! { "FRAG" "FRAG6" "RAW" "RAW6" "TCP" "TCP6" "UDP" "UDP6" "UDPLITE" "UDPLITE6" }

const STATES: [&str; 6] = ["inuse", "orphan", "tw", "alloc", "mem", "memory"];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    let net = paths.procfs.join("net");
    Box::new(Sockstat {
        files: ["sockstat", "sockstat6"].map(|name| KernelFile::new(net.join(name))),
        page_bytes: rustix::param::page_size() as f64,
        field: String::new(),
    })
}

impl Collector for Sockstat {
    fn metrics(&self) -> &'static [Metric] {
        &[USED]
    }

    fn families(&self) -> &'static [Family] {
        &[FIELDS]
    }

    fn max_series(&self) -> usize {
        256
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        for file in &mut self.files {
            let pushed = file.parse(|text| {
                for entry in parse(text) {
                    let (protocol, state, value) = entry?;
                    let mut push = |suffix, value| {
                        self.field.clear();
                        match BY_PROTOCOL.iter().find(|(known, _)| *known == protocol) {
                            Some((_, family)) => {
                                self.field.extend([state, suffix]);
                                out.push_field::<&str>(family, &self.field, &[], value);
                            }
                            // The one line that is no protocol.
                            None if protocol == "sockets" => {
                                out.push::<&str>(&USED, &[], value);
                            }
                            None => {
                                self.field.extend([protocol, "_", state, suffix]);
                                out.push_field::<&str>(&FIELDS, &self.field, &[], value);
                            }
                        }
                    };

                    push("", value);
                    if state == "mem" {
                        push("_bytes", value * self.page_bytes);
                    }
                }
                Ok(())
            });

            // A kernel without IPv6, or without IPv4, has one of the two files.
            match pushed.or_absent("no socket statistics") {
                Err(CollectError::Absent(_)) => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// `TCP: inuse 4 orphan 0 …` becomes one item for each pair. What we do not know is passed over.
fn parse(text: &str) -> impl Iterator<Item = Result<(&str, &str, f64), ParseError>> {
    text.lines().enumerate().flat_map(|(number, line)| {
        let error = move |expected| ParseError {
            line: number + 1,
            expected,
        };
        let (protocol, pairs) = line
            .split_once(':')
            .filter(|(name, _)| name.bytes().all(|c| c.is_ascii_alphanumeric()))
            .unwrap_or_default();

        let mut words = pairs.split_ascii_whitespace();
        // A line without a name is an error, whatever follows.
        let unnamed = protocol
            .is_empty()
            .then_some(Err(error("a protocol and a colon")));
        let pairs = std::iter::from_fn(move || {
            let state = words.next()?;
            let value = words.next().and_then(|value| value.parse::<u64>().ok());
            let entry = value.map(|value| (protocol, state, value as f64));
            Some(entry.ok_or(error("states and counts in pairs")))
        });

        // A later kernel may count more, whose unit is not known.
        let is_known = |state: &str| STATES.contains(&state) || state == "used";
        let known = pairs.filter(move |pair| match pair {
            Ok((_, state, _)) => is_known(state),
            Err(_) => true,
        });
        unnamed.into_iter().chain(known)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs() {
        let text =
            "sockets: used 20\nTCP: inuse 4 orphan 0 future 3 mem 131\nFRAG: inuse 0 memory 0\n";
        let pairs: Vec<_> = parse(text).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            pairs,
            [
                ("sockets", "used", 20.0),
                ("TCP", "inuse", 4.0),
                ("TCP", "orphan", 0.0),
                ("TCP", "mem", 131.0),
                ("FRAG", "inuse", 0.0),
                ("FRAG", "memory", 0.0),
            ]
        );
    }

    #[test]
    fn wrong_lines_are_named() {
        for line in [
            "TCP inuse 4",
            "TCP: inuse",
            "TCP: inuse many",
            ": inuse 1",
            "T P: inuse 1",
        ] {
            assert_eq!(
                parse(&format!("sockets: used 1\n{line}\n"))
                    .nth(1)
                    .unwrap()
                    .unwrap_err()
                    .line,
                2,
                "{line}"
            );
        }
    }
}
