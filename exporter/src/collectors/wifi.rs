//! Wireless links: frequency, network, and the quality of the connection to each station.
//!
//! Source: nl80211, the kernel's interface to wireless adapters over generic netlink. Nothing
//! starts a scan; the kernel answers with what it knows.

use crate::collector::{CollectError, Collector, MAX_DEVICES};
use crate::netlink;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::io::Errno;
use rustix::net::netlink as protocols;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

/// Flags of the collector `wifi`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct WifiOptions {
    /// A directory whose JSON files are read instead of asking the kernel.
    #[arg(
        id = "wifi-fixtures",
        long = "collector.wifi.fixtures",
        value_name = "PATH",
        hide = true
    )]
    pub fixtures: Option<PathBuf>,
}

struct Wifi {
    fixtures: Option<PathBuf>,
}

const FREQUENCY: Metric = Metric::gauge(
    "node_wifi_interface_frequency_hertz",
    "The current frequency a WiFi interface is operating at, in hertz.",
    &["device"],
);
const INFO: Metric = Metric::gauge(
    "node_wifi_station_info",
    "Labeled WiFi interface station information as provided by the operating system.",
    &["device", "bssid", "ssid", "mode"],
);
const OF_STATION: &[&str] = &["device", "mac_address"];
const CONNECTED: Metric = Metric::counter(
    "node_wifi_station_connected_seconds_total",
    "The total number of seconds a station has been connected to an access point.",
    OF_STATION,
);
const INACTIVE: Metric = Metric::gauge(
    "node_wifi_station_inactive_seconds",
    "The number of seconds since any wireless activity has occurred on a station.",
    OF_STATION,
);
const RECEIVE_RATE: Metric = Metric::gauge(
    "node_wifi_station_receive_bits_per_second",
    "The current WiFi receive bitrate of a station, in bits per second.",
    OF_STATION,
);
const TRANSMIT_RATE: Metric = Metric::gauge(
    "node_wifi_station_transmit_bits_per_second",
    "The current WiFi transmit bitrate of a station, in bits per second.",
    OF_STATION,
);
const RECEIVED_BYTES: Metric = Metric::counter(
    "node_wifi_station_receive_bytes_total",
    "The total number of bytes received by a WiFi station.",
    OF_STATION,
);
const TRANSMITTED_BYTES: Metric = Metric::counter(
    "node_wifi_station_transmit_bytes_total",
    "The total number of bytes transmitted by a WiFi station.",
    OF_STATION,
);
const SIGNAL: Metric = Metric::gauge(
    "node_wifi_station_signal_dbm",
    "The current WiFi signal strength, in decibel-milliwatts (dBm).",
    OF_STATION,
);
const RETRIES: Metric = Metric::counter(
    "node_wifi_station_transmit_retries_total",
    "The total number of times a station has had to retry while sending a packet.",
    OF_STATION,
);
const FAILED: Metric = Metric::counter(
    "node_wifi_station_transmit_failed_total",
    "The total number of times a station has failed to send a packet.",
    OF_STATION,
);
const BEACON_LOSS: Metric = Metric::counter(
    "node_wifi_station_beacon_loss_total",
    "The total number of times a station has detected a beacon loss.",
    OF_STATION,
);
const TRANSMITTED: Metric = Metric::counter(
    "node_wifi_station_transmitted_packets_total",
    "The total number of packets transmitted by a station.",
    OF_STATION,
);
const RECEIVED: Metric = Metric::counter(
    "node_wifi_station_received_packets_total",
    "The total number of packets received by a station.",
    OF_STATION,
);
const METRICS: &[Metric] = &[
    FREQUENCY,
    INFO,
    CONNECTED,
    INACTIVE,
    RECEIVE_RATE,
    TRANSMIT_RATE,
    RECEIVED_BYTES,
    TRANSMITTED_BYTES,
    SIGNAL,
    RETRIES,
    FAILED,
    BEACON_LOSS,
    TRANSMITTED,
    RECEIVED,
];

/// Stations of all links of a node. An access point has one for each client.
const MAX_STATIONS: usize = 128;

/// A link. The names are those of node_exporter's fixtures, here and below.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Interface {
    index: u32,
    /// Empty for virtual devices without a link.
    name: String,
    /// MHz; `None` while the link is down.
    frequency: Option<u32>,
}

/// The network that a link belongs to.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Network {
    #[serde(rename = "SSID")]
    ssid: String,
    /// Hardware address of the access point.
    #[serde(rename = "BSSID", deserialize_with = "from_base64")]
    bssid: Vec<u8>,
    #[serde(rename = "Status")]
    status: u32,
}

/// The other end of a link, or each client of an access point.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Station {
    #[serde(deserialize_with = "from_base64")]
    hardware_addr: Vec<u8>,
    /// Nanoseconds, as `inactive`.
    connected: Option<u64>,
    inactive: Option<u64>,
    received_bytes: Option<u64>,
    transmitted_bytes: Option<u64>,
    received_packets: Option<u32>,
    transmitted_packets: Option<u32>,
    /// Bits per second.
    receive_bitrate: Option<u64>,
    transmit_bitrate: Option<u64>,
    signal: Option<i8>,
    transmit_retries: Option<u32>,
    transmit_failed: Option<u32>,
    beacon_loss: Option<u32>,
}

/// A link with what is known of it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Link {
    interface: Interface,
    network: Option<Network>,
    stations: Vec<Station>,
}

pub(crate) fn new(options: &WifiOptions) -> Box<dyn Collector> {
    Box::new(Wifi {
        fixtures: options.fixtures.clone(),
    })
}

impl Collector for Wifi {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        2 * MAX_DEVICES + MAX_STATIONS * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let links = match &self.fixtures {
            Some(directory) => recorded(directory)?,
            None => asked()
                .map_err(|error| CollectError::read("nl80211".as_ref(), error))?
                .ok_or(CollectError::Absent("no wireless adapter"))?,
        };

        for link in links.iter().filter(|link| !link.interface.name.is_empty()) {
            push(link, out);
        }
        Ok(())
    }
}

fn push(link: &Link, out: &mut Samples) {
    let device = link.interface.name.as_str();
    if let Some(mhz) = link.interface.frequency {
        out.push(&FREQUENCY, &[device], f64::from(mhz) * 1e6);
    }

    if let Some(network) = &link.network {
        let bssid = address(&network.bssid);
        out.push(&INFO, &[device, &bssid, &network.ssid, network.mode()], 1.0);
    }

    for station in &link.stations {
        let address = address(&station.hardware_addr);
        let nanoseconds = |time: Option<u64>| time.map(|time| time as f64 / 1e9);
        let bytes = |count: Option<u64>| count.map(|count| count as f64);

        let values = [
            (CONNECTED, nanoseconds(station.connected)),
            (INACTIVE, nanoseconds(station.inactive)),
            (RECEIVE_RATE, bytes(station.receive_bitrate)),
            (TRANSMIT_RATE, bytes(station.transmit_bitrate)),
            (RECEIVED_BYTES, bytes(station.received_bytes)),
            (TRANSMITTED_BYTES, bytes(station.transmitted_bytes)),
            (SIGNAL, station.signal.map(f64::from)),
            (RETRIES, station.transmit_retries.map(f64::from)),
            (FAILED, station.transmit_failed.map(f64::from)),
            (BEACON_LOSS, station.beacon_loss.map(f64::from)),
            (TRANSMITTED, station.transmitted_packets.map(f64::from)),
            (RECEIVED, station.received_packets.map(f64::from)),
        ];

        for (metric, value) in values {
            if let Some(value) = value {
                out.push(&metric, &[device, &address], value);
            }
        }
    }
}

/// `02:00:00:00:00:01`.
fn address(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(":")
}

impl Network {
    fn mode(&self) -> &'static str {
        match self.status {
            AUTHENTICATED | ASSOCIATED => "client",
            JOINED => "ad-hoc",
            _ => "unknown",
        }
    }
}

// `enum nl80211_bss_status`.
const AUTHENTICATED: u32 = 0;
const ASSOCIATED: u32 = 1;
const JOINED: u32 = 2;

fn recorded(directory: &Path) -> Result<Vec<Link>, CollectError> {
    let interfaces: Vec<Interface> = read_json(&directory.join("interfaces.json"))?;

    let mut links = Vec::new();
    for interface in interfaces {
        let of_link = directory.join(&interface.name);
        let network = optional(read_json(&of_link.join("bss.json")))?;
        let stations = optional(read_json(&of_link.join("stationinfo.json")))?;
        links.push(Link {
            interface,
            network,
            stations: stations.unwrap_or_default(),
        });
    }
    Ok(links)
}

fn read_json<T: DeserializeOwned>(file: &Path) -> Result<T, CollectError> {
    let text = std::fs::read(file).map_err(|error| CollectError::read(file, error))?;
    serde_json::from_slice(&text).map_err(|error| CollectError::Parse {
        path: file.to_owned(),
        line: error.line(),
        expected: "what node_exporter's wifi collector writes as JSON",
    })
}

/// `None` for a file that does not exist.
fn optional<T>(read: Result<T, CollectError>) -> Result<Option<T>, CollectError> {
    match read {
        Err(CollectError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    BASE64_STANDARD.decode(text).map_err(D::Error::custom)
}

/// Family of messages that describes the others.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const GET_INTERFACE: u8 = 0x05;
const GET_STATION: u8 = 0x11;
const GET_SCAN: u8 = 0x20;
// `enum nl80211_attrs`.
const IFINDEX: u16 = 0x03;
const IFNAME: u16 = 0x04;
const MAC: u16 = 0x06;
const STA_INFO: u16 = 0x15;
const WIPHY_FREQ: u16 = 0x26;
const BSS: u16 = 0x2f;
/// Command, version, reserved bytes: the fixed part of a message.
const HEAD_BYTES: usize = 4;

/// The links; `None` if the kernel has no wireless adapters.
fn asked() -> Result<Option<Vec<Link>>, Errno> {
    // Generic netlink numbers its families at run time, so the number of nl80211 is looked up.
    let mut family = None;
    dump(CONTROL, GET_FAMILY, &[], |message| {
        if attribute(message, FAMILY_NAME) == Some(b"nl80211\0") {
            let id = attribute(message, FAMILY_ID).and_then(|id| id.first_chunk());
            family = id.map(|id| u16::from_ne_bytes(*id));
        }
    })?;
    let Some(family) = family else {
        return Ok(None);
    };

    let mut links = Vec::new();
    dump(family, GET_INTERFACE, &[], |message| {
        links.push(Link {
            interface: interface(message),
            ..Link::default()
        });
    })?;

    for link in &mut links {
        let index = link.interface.index.to_ne_bytes();

        // One attribute of eight bytes: its length, its kind, and the number of the link.
        let of_link = [&[8, 0][..], &IFINDEX.to_ne_bytes(), &index].concat();

        // A link of a kind without a network or stations is no error, nor one that was unplugged.
        let asked = dump(family, GET_SCAN, &of_link, |message| {
            link.network = link.network.take().or_else(|| network(message));
        });
        gone_or_failed(asked)?;

        let asked = dump(family, GET_STATION, &of_link, |message| {
            link.stations.extend(station(message));
        });
        gone_or_failed(asked)?;
    }
    Ok(Some(links))
}

/// Value of the first attribute of this kind.
fn attribute(message: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut attributes = netlink::attributes(message);
    let (_, value) = attributes.find(|(kind, _)| *kind == wanted)?;
    Some(value)
}

fn gone_or_failed(asked: Result<(), Errno>) -> Result<(), Errno> {
    match asked {
        Err(Errno::NODEV | Errno::OPNOTSUPP | Errno::NETDOWN | Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Requests all messages of a command and passes their attributes to `each`.
fn dump(
    family: u16,
    command: u8,
    attributes: &[u8],
    mut each: impl FnMut(&[u8]),
) -> Result<(), Errno> {
    const VERSION: u8 = 1;

    let request = [&[command, VERSION, 0, 0], attributes].concat();
    netlink::list(Some(protocols::GENERIC), family, &request, |message| {
        each(message.get(HEAD_BYTES..).unwrap_or_default());
    })
}

fn interface(message: &[u8]) -> Interface {
    let mut interface = Interface::default();
    for (kind, value) in netlink::attributes(message) {
        match kind {
            IFINDEX => interface.index = netlink::word(value, 0).unwrap_or_default(),
            IFNAME => {
                let name = String::from_utf8_lossy(value);
                name.trim_end_matches('\0').clone_into(&mut interface.name);
            }
            WIPHY_FREQ => interface.frequency = netlink::word(value, 0),
            _ => {}
        }
    }
    interface
}

/// The network of an entry of the kernel's list of networks, if the link belongs to it.
fn network(message: &[u8]) -> Option<Network> {
    // `enum nl80211_bss`.
    const BSSID: u16 = 1;
    const ELEMENTS: u16 = 6;
    const STATUS: u16 = 9;

    let (_, entry) = netlink::attributes(message).find(|(kind, _)| *kind == BSS)?;
    let mut network = Network::default();
    let mut status = None;

    for (kind, value) in netlink::attributes(entry) {
        match kind {
            BSSID => network.bssid = value.to_vec(),
            ELEMENTS => network.ssid = name_of(value),
            STATUS => status = netlink::word(value, 0),
            _ => {}
        }
    }

    // Only the network that the link belongs to has a status. The others were heard in a scan.
    network.status = status?;
    Some(network)
}

/// The name of the network among the elements of a beacon, each with type, length and value.
fn name_of(mut elements: &[u8]) -> String {
    const SSID: u8 = 0;

    while let [kind, length, rest @ ..] = elements {
        let Some((value, behind)) = rest.split_at_checked(usize::from(*length)) else {
            break;
        };

        if *kind == SSID {
            return String::from_utf8_lossy(value).into_owned();
        }
        elements = behind;
    }
    String::new()
}

fn station(message: &[u8]) -> Option<Station> {
    let mut station = Station::default();
    let mut is_known = false;

    for (kind, value) in netlink::attributes(message) {
        match kind {
            MAC => station.hardware_addr = value.to_vec(),
            STA_INFO => {
                is_known = true;
                for (kind, value) in netlink::attributes(value) {
                    set_reading(&mut station, kind, value);
                }
            }
            _ => {}
        }
    }
    is_known.then_some(station)
}

/// One attribute of `enum nl80211_sta_info`. Counters of 64 bits come after those of 32 and replace
/// them.
fn set_reading(station: &mut Station, kind: u16, value: &[u8]) {
    let word = || netlink::word(value, 0);
    let short = || word().map(u64::from);
    let long = || Some(u64::from_ne_bytes(*value.first_chunk()?));

    match kind {
        // Milliseconds.
        1 => station.inactive = short().map(|time| time * 1_000_000),
        2 => station.received_bytes = station.received_bytes.or(short()),
        3 => station.transmitted_bytes = station.transmitted_bytes.or(short()),
        7 => station.signal = value.first().map(|dbm| dbm.cast_signed()),
        8 => station.transmit_bitrate = bits_per_second(value),
        9 => station.received_packets = word(),
        10 => station.transmitted_packets = word(),
        11 => station.transmit_retries = word(),
        12 => station.transmit_failed = word(),
        14 => station.receive_bitrate = bits_per_second(value),
        // Seconds.
        16 => station.connected = short().map(|time| time * 1_000_000_000),
        18 => station.beacon_loss = word(),
        23 => station.received_bytes = long(),
        24 => station.transmitted_bytes = long(),
        _ => {}
    }
}

/// The rate in `enum nl80211_rate_info`, which counts 100 kbit/s, in 16 or 32 bits.
fn bits_per_second(value: &[u8]) -> Option<u64> {
    const SHORT: u16 = 1;
    const LONG: u16 = 5;

    // The rate in 16 bits stops at 6.5 Gbit/s, so the longer one comes first.
    let long = attribute(value, LONG).and_then(|rate| netlink::word(rate, 0));
    let short = || {
        let rate = attribute(value, SHORT)?;
        Some(u64::from(u16::from_ne_bytes(*rate.first_chunk()?)))
    };
    let rate = long.map(u64::from).or_else(short)?;
    Some(rate * 100_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
        attribute(kind, &parts.concat())
    }

    #[test]
    fn links_are_read_as_the_kernel_lays_them_out() {
        let message = [
            attribute(IFINDEX, &4u32.to_ne_bytes()),
            attribute(IFNAME, b"wlan0\0"),
            attribute(WIPHY_FREQ, &5180u32.to_ne_bytes()),
        ];
        let expected = Interface {
            index: 4,
            name: "wlan0".to_owned(),
            frequency: Some(5180),
        };
        assert_eq!(interface(&message.concat()), expected);

        // Another element comes before the name.
        let elements = [&[1, 1, 0x82][..], &[0, 3], "lä".as_bytes()].concat();
        let entry = |status: &[Vec<u8>]| {
            let known = [attribute(1, &[2, 0, 0, 0, 1, 0]), attribute(6, &elements)];
            nested(BSS, &[&known[..], status].concat())
        };
        assert_eq!(network(&entry(&[])), None, "a network of somebody else");
        let mine = network(&entry(&[attribute(9, &ASSOCIATED.to_ne_bytes())])).unwrap();
        assert_eq!(
            (mine.ssid.as_str(), &*address(&mine.bssid), mine.mode()),
            ("lä", "02:00:00:00:01:00", "client")
        );

        // 866.7 Mbit/s in the longer form, and 54 Mbit/s in the older one.
        let rate = nested(8, &[attribute(5, &8667u32.to_ne_bytes())]);
        let old_rate = nested(14, &[attribute(1, &540u16.to_ne_bytes())]);
        let readings = [
            attribute(1, &1500u32.to_ne_bytes()),
            attribute(2, &7u32.to_ne_bytes()),
            attribute(7, &[(-54i8).cast_unsigned()]),
            rate,
            old_rate,
            attribute(16, &30u32.to_ne_bytes()),
            attribute(23, &(1u64 << 40).to_ne_bytes()),
        ];
        let message = [attribute(MAC, &[2; 6]), nested(STA_INFO, &readings)].concat();
        let found = station(&message).unwrap();
        let expected = Station {
            hardware_addr: vec![2; 6],
            connected: Some(30_000_000_000),
            inactive: Some(1_500_000_000),
            received_bytes: Some(1 << 40),
            transmit_bitrate: Some(866_700_000),
            receive_bitrate: Some(54_000_000),
            signal: Some(-54),
            ..Station::default()
        };
        assert_eq!(found, expected);
        assert_eq!(station(&attribute(MAC, &[2; 6])), None);
    }

    #[test]
    fn a_reading_that_the_adapter_lacks_has_no_series() {
        let link = Link {
            interface: Interface {
                name: "wlan0".to_owned(),
                ..Interface::default()
            },
            stations: vec![Station {
                signal: Some(-60),
                ..Station::default()
            }],
            ..Link::default()
        };
        let mut samples = Samples::new();
        push(&link, &mut samples);
        assert_eq!(samples.len(), 1);
    }

    proptest! {
        #[test]
        fn no_message_ends_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            interface(&bytes);
            network(&bytes);
            station(&bytes);
            name_of(&bytes);
        }
    }
}
