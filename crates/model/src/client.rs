//! Clients of a listener, as its limits count them.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the address that limits count: an IPv4 address, or the /64 network of an IPv6 address,
/// because a host has a whole network of those.
pub fn client_of(address: IpAddr) -> IpAddr {
    // A dual-stack listener reports IPv4 clients as ::ffff:a.b.c.d; they count as IPv4.
    let IpAddr::V6(address) = address.to_canonical() else {
        return address.to_canonical();
    };

    let network = u128::from(address) & !u128::from(u64::MAX);
    // ::1 stays as it is.
    if network == 0 {
        IpAddr::V6(address)
    } else {
        IpAddr::V6(Ipv6Addr::from(network))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_or_a_network() {
        let client = |text: &str| client_of(text.parse().unwrap()).to_string();
        assert_eq!(client("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(client("2001:db8:0:1:2:3:4:5"), "2001:db8:0:1::");
        assert_eq!(client("::1"), "::1");
    }
}
