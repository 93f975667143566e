//! Routes, by network link.
//!
//! Source: netlink, the routes of unicast of all tables.

use crate::collector::{CollectError, Collector};
use crate::netlink::{self, LinkNames};
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};
use takt_model::{Metric, Samples};

struct NetworkRoute;

const INFO: Metric = Metric::gauge(
    "node_network_route_info",
    "network routing table information",
    &["device", "src", "dest", "gw", "priority", "proto", "weight"],
);
const ROUTES: Metric = Metric::gauge(
    "node_network_routes",
    "network routes by interface",
    &["device"],
);
/// A router with the whole Internet's table should not be asked this.
const MAX_ROUTES: usize = 20_000;

const GET_ROUTE: u16 = 26;
/// `struct rtmsg`: family, bits of the destination, …, protocol at 5, type at 7.
const HEAD_BYTES: usize = 12;
const PROTOCOL: usize = 5;
const TYPE: usize = 7;
const UNICAST: u8 = 1;
const DESTINATION: u16 = 1;
const LINK: u16 = 4;
const GATEWAY: u16 = 5;
const PRIORITY: u16 = 6;
const SOURCE: u16 = 7;
const MULTIPATH: u16 = 9;

pub(crate) fn new() -> Box<dyn Collector> {
    Box::new(NetworkRoute)
}

impl Collector for NetworkRoute {
    fn metrics(&self) -> &'static [Metric] {
        &[INFO, ROUTES]
    }

    fn max_series(&self) -> usize {
        2 * MAX_ROUTES
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let failed = |error| CollectError::read("netlink".as_ref(), error);
        let names = LinkNames::new().map_err(failed)?;
        let mut routes = BTreeMap::<_, usize>::new();
        let list = netlink::list(None, GET_ROUTE, &[0; HEAD_BYTES], |message| {
            for Route { link, labels } in parse(message).unwrap_or_default() {
                let device = names.of(link).unwrap_or_default();
                let labels = [std::slice::from_ref(&device), &labels].concat();
                *routes.entry(labels).or_default() += 1;
            }
        });
        list.map_err(failed)?;

        let mut by_device = BTreeMap::<_, usize>::new();
        for (labels, count) in &routes {
            // The same route may be in several tables.
            out.push(&INFO, labels, 1.0);
            *by_device.entry(&labels[0]).or_default() += count;
        }
        for (device, count) in &by_device {
            out.push(&ROUTES, &[device], *count as f64);
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
struct Route {
    link: u32,
    /// Source, destination, gateway, priority, protocol, weight.
    labels: [String; 6],
}

fn parse(message: &[u8]) -> Option<Vec<Route>> {
    if *message.get(TYPE)? != UNICAST {
        return None;
    }

    let values: HashMap<_, _> = netlink::attributes(message.get(HEAD_BYTES..)?).collect();
    let ip = |kind| {
        let address = values.get(&kind).and_then(|bytes| address(bytes));
        address.unwrap_or_default()
    };
    let word = |kind| values.get(&kind).and_then(|bytes| netlink::word(bytes, 0));

    let destination = match message[1] {
        // A destination of no bits is every address.
        0 => "default".to_owned(),
        bits => format!("{}/{bits}", ip(DESTINATION)),
    };

    let route = |link, gateway: String, weight: String| {
        let priority = word(PRIORITY).unwrap_or_default().to_string();
        let protocol = protocol(message[PROTOCOL]).to_owned();
        Route {
            link,
            labels: [
                ip(SOURCE),
                destination.clone(),
                gateway,
                priority,
                protocol,
                weight,
            ],
        }
    };

    // A route with several ways is shown as one for each.
    let Some(hops) = values.get(&MULTIPATH) else {
        let link = word(LINK).unwrap_or_default();
        return Some(vec![route(link, ip(GATEWAY), String::new())]);
    };
    let hops = hops_of(hops);
    let routes = hops.map(|(link, weight, gateway)| {
        // The kernel stores one less.
        route(link, gateway, (u32::from(weight) + 1).to_string())
    });
    Some(routes.collect())
}

/// `struct rtnexthop`: length, flags, weight less one, the link's number, then attributes.
fn hops_of(mut bytes: &[u8]) -> impl Iterator<Item = (u32, u8, String)> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let hop = bytes.get(..length).filter(|hop| hop.len() >= 8)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();

        // The rest of a hop are attributes of its own.
        let gateway = netlink::attributes(&hop[8..]).find(|(kind, _)| *kind == GATEWAY);
        let gateway = gateway.and_then(|(_, ip)| address(ip));
        Some((netlink::word(hop, 4)?, hop[3], gateway.unwrap_or_default()))
    })
}

fn address(bytes: &[u8]) -> Option<String> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).to_string()),
        16 => Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?).to_string()),
        _ => None,
    }
}

/// Origin of a route, after `linux/rtnetlink.h`.
fn protocol(number: u8) -> &'static str {
    match number {
        0 => "unspec",
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        8 => "gated",
        9 => "ra",
        10 => "mrt",
        11 => "zebra",
        12 => "bird",
        13 => "dnrouted",
        14 => "xorp",
        15 => "ntk",
        16 => "dhcp",
        17 => "mrouted",
        42 => "babel",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_route_with_two_ways_is_two() {
        let attribute = |kind: u16, value: &[u8]| {
            let length = u16::try_from(4 + value.len()).unwrap();
            [length.to_ne_bytes().as_slice(), &kind.to_ne_bytes(), value].concat()
        };
        let hop = |link: u8, weight: u8, gateway: [u8; 4]| {
            [
                [16, 0, 0, weight, link, 0, 0, 0].as_slice(),
                &attribute(GATEWAY, &gateway),
            ]
            .concat()
        };

        // An IPv4 route to a network of 24 bits, of table 254, which an administrator configured.
        let head = [2, 24, 0, 0, 254, 4, 0, UNICAST, 0, 0, 0, 0];
        let hops = [hop(3, 0, [10, 0, 0, 1]), hop(4, 9, [10, 0, 0, 2])].concat();
        let message = [
            head.as_slice(),
            &attribute(DESTINATION, &[10, 1, 2, 0]),
            &attribute(MULTIPATH, &hops),
        ]
        .concat();
        let expected =
            [(3, "10.0.0.1", "1"), (4, "10.0.0.2", "10")].map(|(link, gateway, weight)| Route {
                link,
                labels: ["", "10.1.2.0/24", gateway, "0", "static", weight].map(str::to_owned),
            });
        assert_eq!(parse(&message).unwrap(), expected);
        assert_eq!(
            parse(&message[..12]).unwrap()[0].labels[1],
            "/24",
            "nothing is made up"
        );
        assert_eq!(parse(&message[..5]), None);
    }

    proptest! {
        #[test]
        fn any_message_is_read(mut bytes in prop::collection::vec(any::<u8>(), 0..200), is_unicast: bool) {
            if let Some(kind) = bytes.get_mut(TYPE).filter(|_| is_unicast) {
                *kind = UNICAST;
            }
            let _ = parse(&bytes);
            hops_of(&bytes).for_each(drop);
        }
    }
}
