//! Reverse proxies whose headers count: the address of the client, and the user that the proxy has
//! signed in.
//!
//! A proxy is known by its address, and by more where the header of a user counts: a shared secret
//! that it sends, or, on this machine, the Unix user who owns its connections, whom the kernel
//! names. Otherwise every program on the proxy's machine could send the header. Only the configured
//! headers of a trusted proxy are read: a proxy passes on those that it does not know.

use super::config::GroupRoles;
use super::{Peer, equal};
use crate::read_token;
use anyhow::{Context, bail};
use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use nix::unistd::User;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use takt_access::session::is_user_name;
use takt_model::ConfigError;

/// Header with the shared secret.
const SECRET_HEADER: &str = "x-takt-proxy-secret";

/// Word for the Unix socket in the list of trusted addresses.
const SOCKET: &str = "socket";

/// Headers with the address of the client that can be configured.
const ADDRESS_HEADERS: [&str; 3] = ["x-forwarded-for", "forwarded", "x-real-ip"];

/// Headers that cannot name a user.
const RESERVED_HEADERS: [&str; 6] = [
    "authorization",
    "cookie",
    "host",
    "origin",
    "sec-fetch-site",
    SECRET_HEADER,
];

/// Reverse proxies whose headers Takt trusts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyConfig {
    /// Addresses or networks of the proxies, such as `10.0.0.5` or `10.1.0.0/16`; `socket` for
    /// proxies that connect to the Unix socket.
    pub trusted: Vec<String>,
    /// Unix user of proxies on this machine. The kernel says whose a connection is; connections
    /// of others are not trusted.
    pub unix_user: Option<String>,
    /// File with a secret of at least 16 characters that the proxy sends in the header
    /// `X-Takt-Proxy-Secret`. Not in the data directory.
    pub secret_file: Option<PathBuf>,
    /// Header with the address of the client: `X-Forwarded-For`, `Forwarded` or `X-Real-IP`.
    pub address_header: String,
    /// Header with the Unix name of the user that the proxy has signed in, such as
    /// `X-Remote-User`. Requires `secret_file`, or `unix_user` with proxies on this machine only.
    /// Default: the proxy names no user.
    pub user_header: Option<String>,
    /// Header with the groups of that user, separated by commas.
    pub groups_header: Option<String>,
    /// Roles by group.
    pub groups: GroupRoles,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            trusted: Vec::new(),
            unix_user: None,
            secret_file: None,
            address_header: "X-Forwarded-For".to_owned(),
            user_header: None,
            groups_header: None,
            groups: GroupRoles::default(),
        }
    }
}

impl ProxyConfig {
    /// Checks that types cannot express.
    ///
    /// # Errors
    /// Returns the first key with an invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.trusted.is_empty() {
            let expected = "addresses or networks of proxies, or \"socket\"";
            return Err(ConfigError::new("trusted", expected, "nothing"));
        }
        // The kernel knows only owners of connections on this machine.
        let is_here = self.places()?.iter().all(Place::is_here);
        if self.unix_user.is_some() && !is_here {
            let expected = "\"socket\" and loopback addresses only, because unix_user is set";
            return Err(ConfigError::new(
                "trusted",
                expected,
                self.trusted.join(", "),
            ));
        }

        let header = self.address_header.to_ascii_lowercase();
        if !ADDRESS_HEADERS.contains(&header.as_str()) {
            let expected = "X-Forwarded-For, Forwarded or X-Real-IP";
            return Err(ConfigError::new(
                "address_header",
                expected,
                &self.address_header,
            ));
        }

        let named = [
            ("user_header", &self.user_header),
            ("groups_header", &self.groups_header),
        ];
        for (key, header) in named {
            if let Some(header) = header {
                user_header(key, header)?;
            }
        }

        if self.user_header.is_some() && self.secret_file.is_none() && self.unix_user.is_none() {
            return Err(ConfigError::new(
                "user_header",
                "secret_file or unix_user besides it: without, every program on the proxy's \
                 machine could name a user",
                self.user_header.as_deref().unwrap_or_default(),
            ));
        }

        if self.groups_header.is_some() && self.user_header.is_none() {
            let expected = "user_header besides it";
            let found = self.groups_header.as_deref().unwrap_or_default();
            return Err(ConfigError::new("groups_header", expected, found));
        }
        if !self.groups.is_empty() && self.groups_header.is_none() {
            let expected = "groups_header besides it";
            return Err(ConfigError::new("groups", expected, "none"));
        }
        self.groups.validate()
    }

    /// Looks for settings with which others than the proxies could name a client.
    ///
    /// # Errors
    /// If a trusted network is very large, or if every program on this machine is trusted.
    pub fn examine(&self) -> anyhow::Result<()> {
        if self.unix_user.is_some() || self.secret_file.is_some() {
            return Ok(());
        }

        for (text, place) in self.trusted.iter().zip(self.places()?) {
            match place {
                Place::Network(network) if network.network().is_loopback() => bail!(
                    "every program on this machine can name any client address, because \
                     {text} is trusted"
                ),
                Place::Network(network) if network.prefix_len() < least_prefix(&network) => {
                    bail!("every machine in {text} can name any client address")
                }
                Place::Socket | Place::Network(_) => {}
            }
        }
        Ok(())
    }

    fn places(&self) -> Result<Vec<Place>, ConfigError> {
        self.trusted
            .iter()
            .map(|text| {
                if text == SOCKET {
                    return Ok(Place::Socket);
                }
                // A single address is a network of its whole length.
                let network = text
                    .parse()
                    .or_else(|_| text.parse().map(|ip: IpAddr| ip.into()));
                let expected = "an address, a network such as 10.1.0.0/16, or \"socket\"";
                network
                    .map(Place::Network)
                    .map_err(|_| ConfigError::new("trusted", expected, text))
            })
            .collect()
    }
}

/// Shortest prefix of a network that plausibly has proxies only.
fn least_prefix(network: &IpNet) -> u8 {
    match network {
        IpNet::V4(_) => 16,
        IpNet::V6(_) => 48,
    }
}

fn user_header(key: &str, text: &str) -> Result<HeaderName, ConfigError> {
    // Headers that mean something else here: a client's own cookie or address would name the user.
    let parsed = HeaderName::try_from(text).ok();
    let is_reserved = |name: &HeaderName| {
        RESERVED_HEADERS.contains(&name.as_str()) || ADDRESS_HEADERS.contains(&name.as_str())
    };
    parsed
        .filter(|name| !is_reserved(name))
        .ok_or_else(|| ConfigError::new(key, "the name of a header of its own", text))
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Socket,
    Network(IpNet),
}

impl Place {
    fn is_here(&self) -> bool {
        match self {
            Self::Socket => true,
            Self::Network(network) => {
                // Both ends, since a network that merely contains 127.0.0.1 has other machines as well.
                network.network().is_loopback() && network.broadcast().is_loopback()
            }
        }
    }
}

/// The proxies of a server.
#[derive(Debug)]
pub(super) struct Proxies {
    places: Vec<Place>,
    uid: Option<u32>,
    secret: Option<String>,
    address_header: HeaderName,
    user_header: Option<HeaderName>,
    groups_header: Option<HeaderName>,
    pub groups: GroupRoles,
}

/// The client and the user of a request, from the headers of a trusted proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Forwarded {
    /// The client.
    pub client: IpAddr,
    /// The user that the proxy has signed in, with groups.
    pub user: Option<ProxyUser>,
}

/// The user that a proxy has signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProxyUser {
    pub name: String,
    pub groups: Vec<String>,
}

impl Proxies {
    /// Reads the secret and looks up the Unix user.
    ///
    /// # Errors
    /// If the file cannot be read, or the user does not exist.
    pub fn new(config: &ProxyConfig) -> anyhow::Result<Self> {
        let header = |key, text: &Option<String>| {
            let text = text.as_deref();
            text.map(|text| user_header(key, text)).transpose()
        };
        // Looked up once: each request compares numbers, and waits for no directory.
        let uid_of = |name: &String| {
            let user = User::from_name(name).ok().flatten();
            let user = user.with_context(|| format!("unix_user: no user has the name {name}"))?;
            anyhow::Ok(user.uid.as_raw())
        };

        Ok(Self {
            places: config.places()?,
            uid: config.unix_user.as_ref().map(uid_of).transpose()?,
            secret: config.secret_file.as_deref().map(read_token).transpose()?,
            address_header: HeaderName::try_from(config.address_header.as_str())?,
            user_header: header("user_header", &config.user_header)?,
            groups_header: header("groups_header", &config.groups_header)?,
            groups: config.groups.clone(),
        })
    }

    /// Returns what a proxy says of a request; `None` if no trusted proxy has sent it.
    pub fn read(&self, peer: Peer, headers: &HeaderMap) -> Option<Forwarded> {
        // A request of a user on the proxy's machine has no such header, and is not the proxy's.
        if !self.is_forwarded(headers) || !self.is_trusted(peer, headers) {
            return None;
        }
        Some(Forwarded {
            client: self.client(peer, headers),
            user: self.user(headers),
        })
    }

    /// Returns whether a request has the header of a user, from whomever.
    pub fn names_user(&self, headers: &HeaderMap) -> bool {
        let header = self.user_header.as_ref();
        header.is_some_and(|header| headers.contains_key(header))
    }

    /// Removes the headers that only proxies send. Returns whether one named a user.
    pub fn remove_headers(&self, headers: &mut HeaderMap) -> bool {
        // No handler and no log sees the secret.
        headers.remove(SECRET_HEADER);
        if let Some(header) = &self.groups_header {
            headers.remove(header);
        }
        let header = self.user_header.as_ref();
        header.is_some_and(|header| headers.remove(header).is_some())
    }

    /// Returns whether a request has a header of a proxy. One without is a user's of the proxy's
    /// machine.
    fn is_forwarded(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(&self.address_header)
            || headers.contains_key(SECRET_HEADER)
            || self.names_user(headers)
    }

    fn is_trusted(&self, peer: Peer, headers: &HeaderMap) -> bool {
        let is_there = if peer.is_socket {
            self.places.contains(&Place::Socket)
        } else {
            self.contains(peer.address.ip())
        };
        // Each configured condition must hold. One that is not configured holds.
        let is_user = self.uid.is_none_or(|uid| peer.uid == Some(uid));
        let is_secret = self.secret.as_ref().is_none_or(|secret| {
            let sent = headers.get(SECRET_HEADER);
            sent.is_some_and(|sent| equal(sent.as_bytes(), secret.as_bytes()))
        });
        is_there && is_user && is_secret
    }

    fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.places.iter().any(|place| match place {
            Place::Socket => false,
            Place::Network(network) => network.contains(&address),
        })
    }

    /// Returns the address of the client: the last one that no trusted proxy has, since each proxy
    /// appends the address of its client. What stands before it, the client has written itself.
    fn client(&self, peer: Peer, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.address.ip().to_canonical();
        // A header with several lines means the same as one with commas, so all lines are read, the last one first.
        let values: Vec<&str> = headers
            .get_all(&self.address_header)
            .into_iter()
            .map(|value| value.to_str().unwrap_or("?"))
            .collect();

        for hop in values.iter().rev().flat_map(|value| value.rsplit(',')) {
            let hop = if self.address_header == "forwarded" {
                forwarded_for(hop)
            } else {
                hop.trim()
            };
            // An entry that cannot be read ends the walk: the addresses before it cannot be trusted.
            let Some(address) = address_in(hop) else {
                break;
            };
            client = address;
            if !self.contains(address) {
                break;
            }
        }
        client
    }

    /// Returns the user. A header that occurs twice names no user: one of them may be the client's
    /// own.
    fn user(&self, headers: &HeaderMap) -> Option<ProxyUser> {
        // `only`: of two headers with a name, one may be the client's.
        let name = only(headers, self.user_header.as_ref()?)?;
        let name = is_user_name(name).then(|| name.to_owned())?;

        let groups = self
            .groups_header
            .as_ref()
            .and_then(|header| only(headers, header))
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
            .filter(|group| !group.is_empty())
            .map(str::to_owned)
            .collect();
        Some(ProxyUser { name, groups })
    }
}

impl Peer {
    /// Returns the peer with the address of the client behind a proxy. The kernel knows nothing of
    /// that client.
    pub(super) fn forwarded(self, client: IpAddr) -> Self {
        Self {
            address: SocketAddr::new(client, 0),
            uid: None,
            is_socket: false,
        }
    }
}

fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    // A second value makes the header ambiguous, even if both are equal.
    let mut values = headers.get_all(name).into_iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first.trim())
}

/// Returns the value of `for` in an element of `Forwarded`.
fn forwarded_for(element: &str) -> &str {
    element
        .split(';')
        .filter_map(|pair| pair.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))
        .map_or("", |(_, value)| value.trim().trim_matches('"'))
}

/// Returns the address in `10.0.0.1`, `10.0.0.1:80`, `2001:db8::1` or `[2001:db8::1]:80`.
fn address_in(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse().ok().or_else(with_port)?;
    Some(IpAddr::to_canonical(&address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn config(toml: &str) -> ProxyConfig {
        toml::from_str(toml).unwrap()
    }

    fn proxies(toml: &str, secret: Option<&str>, uid: Option<u32>) -> Proxies {
        let config = config(toml);
        Proxies {
            secret: secret.map(str::to_owned),
            uid,
            ..Proxies::new(&config).unwrap()
        }
    }

    fn peer(address: &str, uid: Option<u32>) -> Peer {
        Peer {
            address: SocketAddr::new(address.parse().unwrap(), 4711),
            uid,
            is_socket: false,
        }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn the_client_is_the_last_address_that_is_no_proxy() {
        let proxies = proxies("trusted = ['10.0.0.0/24', '::1']", None, None);
        let client = |values: &[(&'static str, &'static str)]| {
            let here = peer("10.0.0.5", None);
            let read = proxies.read(here, &headers(values));
            read.map_or(here.address.ip(), |read| read.client)
                .to_string()
        };

        let name = "x-forwarded-for";
        assert_eq!(client(&[(name, "198.51.100.7")]), "198.51.100.7");
        // The first address was written by the client itself.
        assert_eq!(client(&[(name, "1.1.1.1, 198.51.100.7")]), "198.51.100.7");
        // The last hop is another trusted proxy.
        assert_eq!(
            client(&[(name, "1.1.1.1, 198.51.100.7, 10.0.0.9")]),
            "198.51.100.7"
        );
        // Two lines of the header, as a proxy may add its own.
        assert_eq!(
            client(&[(name, "1.1.1.1"), (name, "198.51.100.7")]),
            "198.51.100.7"
        );
        // With a port, and an IPv4 address in an IPv6 form.
        assert_eq!(client(&[(name, "[2001:db8::1]:80")]), "2001:db8::1");
        assert_eq!(client(&[(name, "::ffff:198.51.100.7")]), "198.51.100.7");
        // Unreadable: the nearest proxy's own word counts.
        assert_eq!(client(&[(name, "1.1.1.1, unknown")]), "10.0.0.5");
        assert_eq!(client(&[(name, "")]), "10.0.0.5");
        assert_eq!(client(&[]), "10.0.0.5");
        // The proxy passes on a header that it does not know.
        assert_eq!(client(&[("forwarded", "for=1.1.1.1")]), "10.0.0.5");
        assert_eq!(client(&[("x-real-ip", "1.1.1.1")]), "10.0.0.5");
    }

    #[test]
    fn forwarded_is_read_as_the_standard_says() {
        let toml = "trusted = ['10.0.0.5']\naddress_header = 'Forwarded'";
        let proxies = proxies(toml, None, None);
        let client = |value: &'static str| {
            let headers = headers(&[("forwarded", value)]);
            let read = proxies.read(peer("10.0.0.5", None), &headers);
            read.unwrap().client.to_string()
        };
        // Names of parameters are compared without case (RFC 7239).
        assert_eq!(
            client("for=1.1.1.1, For=198.51.100.7;proto=https;by=10.0.0.5"),
            "198.51.100.7"
        );
        assert_eq!(client("for=\"[2001:db8::1]:4711\""), "2001:db8::1");
        // A hidden client, and an element without `for`.
        assert_eq!(client("for=_hidden"), "10.0.0.5");
        assert_eq!(client("proto=https"), "10.0.0.5");
    }

    #[test]
    fn headers_of_others_count_for_nothing() {
        let user = "trusted = ['10.0.0.5', '127.0.0.1']\nuser_header = 'X-Remote-User'\n";
        let sent = headers(&[
            ("x-remote-user", "alice"),
            (SECRET_HEADER, "0123456789abcdef"),
        ]);
        // A secret of the right length, with another last character.
        let wrong = headers(&[
            ("x-remote-user", "alice"),
            (SECRET_HEADER, "0123456789abcdeX"),
        ]);

        let none = headers(&[("x-remote-user", "alice")]);
        let by_secret = proxies(user, Some("0123456789abcdef"), None);
        let name = |proxies: &Proxies, peer, headers: &HeaderMap| {
            let read = proxies.read(peer, headers)?;
            read.user.map(|user| user.name)
        };
        let there = peer("10.0.0.5", None);

        assert_eq!(name(&by_secret, there, &sent).as_deref(), Some("alice"));
        assert_eq!(by_secret.read(there, &wrong), None);
        assert_eq!(by_secret.read(there, &none), None);
        // The right secret from addresses that are not listed.
        assert_eq!(by_secret.read(peer("10.0.0.6", None), &sent), None);
        assert_eq!(by_secret.read(peer("127.0.0.2", None), &sent), None);
        let socket = Peer {
            is_socket: true,
            ..peer("127.0.0.1", Some(33))
        };
        assert_eq!(by_secret.read(socket, &sent), None, "not listed");
        // No header of a proxy: a user of the proxy's machine asks for themselves.
        let direct = headers(&[("host", "localhost")]);
        assert_eq!(
            by_secret.read(peer("127.0.0.1", None), &direct),
            None,
            "a user"
        );

        let local = "trusted = ['127.0.0.0/8', 'socket']\nuser_header = 'X-Remote-User'\n";
        let by_kernel = proxies(local, None, Some(33));

        let here = |uid| peer("127.0.0.1", uid);
        assert_eq!(
            name(&by_kernel, here(Some(33)), &none).as_deref(),
            Some("alice")
        );
        assert_eq!(name(&by_kernel, socket, &none).as_deref(), Some("alice"));
        // Unknown, root and another user of the machine.
        for uid in [None, Some(0), Some(1000)] {
            assert_eq!(by_kernel.read(here(uid), &none), None, "{uid:?}");
        }
    }

    #[test]
    fn a_doubtful_name_is_nobodys() {
        let toml =
            "trusted = ['10.0.0.5']\nuser_header = 'X-Remote-User'\ngroups_header = 'X-Groups'";
        let proxies = proxies(toml, None, None);
        let user = |pairs: &[(&'static str, &'static str)]| {
            let read = proxies.read(peer("10.0.0.5", None), &headers(pairs));
            read.and_then(|read| read.user)
        };

        let name = "x-remote-user";
        // Nothing, root, two names, a space, a sign that no name has, and the beginning of an option.
        for value in ["", "root", "alice, bob", "a b", "alice;", "-x"] {
            assert_eq!(user(&[(name, value)]), None, "{value}");
        }
        assert_eq!(user(&[(name, "alice"), (name, "bob")]), None);
        // Some servers make both spellings one variable, so the other spelling must not count here.
        assert_eq!(user(&[("x_remote_user", "alice")]), None);
        let known = user(&[(name, " alice "), ("x-groups", "hpc, ,helpdesk")]).unwrap();
        assert_eq!(&*known.name, "alice");
        assert_eq!(known.groups.len(), 2);
        // Twice the header of groups: no group counts, rather than both.
        let twice = user(&[(name, "alice"), ("x-groups", "hpc"), ("x-groups", "admins")]);
        assert!(twice.unwrap().groups.is_empty());
    }

    #[test]
    fn trusted_addresses_of_others_than_proxies_are_found() {
        let said = |toml: &str| config(toml).examine().map_err(|error| error.to_string());
        for safe in [
            // Networks of a plausible size, or more than an address as proof.
            "trusted = ['10.0.0.5', '10.1.0.0/16', '2001:db8::/48', 'socket']",
            "trusted = ['127.0.0.1']\nunix_user = 'www-data'",
            "trusted = ['0.0.0.0/0']\nsecret_file = 's'",
        ] {
            assert_eq!(said(safe), Ok(()), "{safe}");
        }
        for (unsafe_one, word) in [
            ("trusted = ['127.0.0.1']", "every program on this machine"),
            ("trusted = ['10.0.0.5', '::1']", "::1 is trusted"),
            ("trusted = ['10.0.0.0/8']", "every machine in 10.0.0.0/8"),
            ("trusted = ['::/0']", "every machine in ::/0"),
        ] {
            let said = said(unsafe_one).unwrap_err();
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn a_header_of_a_user_needs_more_than_an_address() {
        let said = |toml: &str| config(toml).validate().map_err(|error| error.to_string());
        let user = "user_header = 'X-Remote-User'\n";
        assert!(said(&format!("trusted = ['10.0.0.5']\n{user}")).is_err());
        // The kernel knows no owner of a connection from another machine.
        assert!(
            said(&format!(
                "trusted = ['10.0.0.5']\nunix_user = 'nginx'\n{user}"
            ))
            .is_err()
        );
        assert!(
            said(&format!(
                "trusted = ['127.0.0.1', 'socket']\nunix_user = 'nginx'\n{user}"
            ))
            .is_ok()
        );
        assert!(
            said(&format!(
                "trusted = ['10.0.0.5']\nsecret_file = 's'\n{user}"
            ))
            .is_ok()
        );
        // A network that contains loopback is not this machine.
        assert!(said("trusted = ['0.0.0.0/0']\nunix_user = 'nginx'").is_err());
        assert!(said("trusted = ['10.0.0.5/99']").is_err());
        assert!(said("trusted = []").is_err());
        // Headers that browsers and clients set, one that has the client's address, and malformed names.
        for header in ["Cookie", "Authorization", "X-Forwarded-For", "X Y", ""] {
            let toml =
                format!("trusted = ['10.0.0.5']\nsecret_file = 's'\nuser_header = '{header}'");
            assert!(said(&toml).is_err(), "{header}");
        }
    }
}
