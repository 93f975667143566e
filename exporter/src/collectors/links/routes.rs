//! Which link leads where.
//!
//! Sources: `/proc/net/route`, whose addresses are hexadecimal in the machine's byte order, and
//! `/proc/net/ipv6_route`.

use std::net::{IpAddr, Ipv4Addr};

#[derive(Debug)]
pub(super) struct LinkRoutes<'a>(Vec<Route<'a>>);

#[derive(Debug)]
struct Route<'a> {
    device: &'a str,
    /// IPv4 as IPv6 has it: `::ffff:0:0/96`.
    network: u128,
    prefix: u32,
    metric: u32,
}

const V4: u32 = 96;
const UP: u32 = 1;
const REJECT: u32 = 0x200;

impl<'a> LinkRoutes<'a> {
    /// Lines that are no routes, and routes that lead nowhere, are left out.
    pub fn parse(v4: &'a str, v6: &'a str) -> Self {
        let v4 = v4.lines().filter_map(parse_v4);
        let v6 = v6.lines().filter_map(parse_v6);
        Self(v4.chain(v6).collect())
    }

    /// The link for everything that no other route names; IPv4's before IPv6's.
    pub fn defaults(&self) -> impl Iterator<Item = &'a str> + '_ {
        let best = |prefix: u32| {
            let is_default =
                |route: &&Route<'_>| route.prefix == prefix && route.is_v4() == (prefix == V4);
            let routes = self.0.iter().filter(is_default);
            routes
                .min_by_key(|route| route.metric)
                .map(|route| route.device)
        };
        best(V4).into_iter().chain(best(0))
    }

    pub fn to(&self, address: IpAddr) -> Option<&'a str> {
        let address = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };

        let is_v4 = address >> 32 == MAPPED >> 32;
        let leads = |route: &&Route<'_>| {
            route.is_v4() == is_v4 && (address ^ route.network) & mask(route.prefix) == 0
        };
        // The longest prefix wins, then the lowest metric.
        let routes = self.0.iter().filter(leads);
        let best = routes.min_by_key(|route| (u32::MAX - route.prefix, route.metric))?;
        Some(best.device)
    }
}

const MAPPED: u128 = 0xffff_0000_0000;

impl Route<'_> {
    fn is_v4(&self) -> bool {
        self.network >> 32 == MAPPED >> 32 && self.prefix >= V4
    }
}

fn mask(prefix: u32) -> u128 {
    u128::MAX.checked_shl(128 - prefix.min(128)).unwrap_or(0)
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask …`
fn parse_v4(line: &str) -> Option<Route<'_>> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let [device, destination, _, flags, _, _, metric, netmask, ..] = words[..] else {
        return None;
    };

    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    let address = |text: &str| hex(text).map(|bits| Ipv4Addr::from(bits.to_ne_bytes()));
    hex(flags).filter(|flags| flags & UP != 0 && flags & REJECT == 0)?;

    Some(Route {
        device,
        network: address(destination)?.to_ipv6_mapped().to_bits(),
        prefix: V4 + address(netmask)?.to_bits().leading_ones(),
        metric: metric.parse().ok()?,
    })
}

/// `destination prefix source prefix next-hop metric references use flags device`, numbers
/// hexadecimal.
fn parse_v6(line: &str) -> Option<Route<'_>> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let [destination, prefix, _, _, _, metric, _, _, flags, device] = words[..] else {
        return None;
    };

    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    hex(flags).filter(|flags| flags & UP != 0 && flags & REJECT == 0)?;
    let network = u128::from_str_radix(destination, 16).ok()?;

    // The kernel's own routes to itself lead to no link.
    (device != "lo").then_some(Route {
        device,
        network,
        prefix: hex(prefix).filter(|prefix| *prefix <= 128)?,
        metric: hex(metric)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv6Addr;

    const V4_TABLE: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
wlan0\t00000000\t0100000A\t0003\t0\t0\t600\t00000000\t0\t0\t0
eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
eth2\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
*\t0002A8C0\t00000000\t0201\t0\t0\t0\t00FFFFFF\t0\t0\t0
nonsense
";
    const V6_TABLE: &str = "\
fd000000000000000000000000000000 08 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth3
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 wlan0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo
";

    #[test]
    fn the_longest_prefix_and_the_least_metric_count() {
        let routes = LinkRoutes::parse(V4_TABLE, V6_TABLE);
        let to = |address: &str| routes.to(address.parse().unwrap());
        assert_eq!(to("192.168.1.9"), Some("eth2"));
        assert_eq!(to("192.168.9.9"), Some("eth1"));
        assert_eq!(
            to("192.168.2.9"),
            Some("eth1"),
            "the rejected route leads nowhere"
        );
        assert_eq!(to("8.8.8.8"), Some("eth0"));
        assert_eq!(to("fd12::1"), Some("eth3"));
        assert_eq!(to("2001:db8::1"), Some("wlan0"));
        assert_eq!(routes.defaults().collect::<Vec<_>>(), ["eth0", "wlan0"]);
        assert_eq!(LinkRoutes::parse("", "").to("::1".parse().unwrap()), None);
        assert_eq!(LinkRoutes::parse("", "").defaults().count(), 0);
    }

    proptest! {
        #[test]
        fn any_table_is_read(v4 in "([0-9A-F]{8}|eth0|\t| |\n|[0-9]{1,4}){0,60}", v6 in "([0-9a-f]{32}|[0-9a-f]{2}|lo| |\n|[0-9a-f]{8}){0,60}", address: u128) {
            let routes = LinkRoutes::parse(&v4, &v6);
            let _ = (routes.defaults().count(), routes.to(IpAddr::V6(Ipv6Addr::from_bits(address))));
            let _ = routes.to(IpAddr::V4(Ipv4Addr::from_bits(address as u32)));
        }
    }
}
