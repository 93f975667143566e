//! The addresses of network devices.

use crate::netlink::{self, LinkNames};
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use takt_model::{Metric, Samples};

const GET_ADDRESS: u16 = 22;
/// `struct ifaddrmsg`: family, bits of the network, …, the device's number at 4.
const HEAD_BYTES: usize = 8;
const ADDRESS: u16 = 1;
/// Our end of a link between two, whose [`ADDRESS`] is the other.
const LOCAL: u16 = 2;

pub(super) fn push(metric: &Metric, out: &mut Samples) -> Result<(), Errno> {
    let names = LinkNames::new()?;
    netlink::list(None, GET_ADDRESS, &[0; HEAD_BYTES], |message| {
        if let Some((link, bits, address)) = parse(message)
            && let Some(device) = names.of(link)
        {
            let scope = scope(&address);
            let labels = [
                device.as_str(),
                &address.to_string(),
                &bits.to_string(),
                scope,
            ];
            out.push(metric, &labels, 1.0);
        }
    })
}

fn parse(message: &[u8]) -> Option<(u32, u8, IpAddr)> {
    let attributes = message.get(HEAD_BYTES..).unwrap_or_default();
    let value = |kind| {
        let mut attributes = netlink::attributes(attributes);
        let (_, value) = attributes.find(|(found, _)| *found == kind)?;
        Some(value)
    };

    let bytes = value(LOCAL).or_else(|| value(ADDRESS))?;
    let address = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(*bytes.first_chunk::<4>()?)),
        16 => IpAddr::from(Ipv6Addr::from(*bytes.first_chunk::<16>()?)),
        _ => return None,
    };

    Some((netlink::word(message, 4)?, *message.get(1)?, address))
}

fn scope(address: &IpAddr) -> &'static str {
    let is_of_link = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };

    if address.is_loopback() || is_of_link {
        "link-local"
    } else if address.is_unspecified() || address.is_multicast() {
        ""
    } else {
        "global"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_and_scopes() {
        let message = [
            2, 24, 0, 0, 3, 0, 0, 0, 8, 0, 1, 0, 10, 1, 2, 9, 8, 0, 2, 0, 10, 1, 2, 3,
        ];
        let address: IpAddr = "10.1.2.3".parse().unwrap();
        assert_eq!(parse(&message), Some((3, 24, address)));
        assert_eq!(parse(&message[..9]), None);
        let scopes = ["127.0.0.1", "fe80::1", "10.0.0.1", "2001:db8::1"]
            .map(|text| scope(&text.parse().unwrap()));
        assert_eq!(scopes, ["link-local", "link-local", "global", "global"]);
    }

    proptest! {
        #[test]
        fn any_message_is_read(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&bytes).map(|(_, _, address)| scope(&address));
        }
    }
}
