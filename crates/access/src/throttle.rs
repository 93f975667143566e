//! Limits for signing in: of all attempts by address, and of wrong passwords by account, by address, and by both.

use crate::session::{ATTEMPT_SECONDS, MAX_ATTEMPTS, is_within};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use takt_model::UnixTime;

/// Seconds in which wrong passwords count.
const WINDOW_SECONDS: i64 = 15 * 60;

/// Wrong passwords of one account from one address within the window.
const MAX_OF_BOTH: usize = 5;

/// Wrong passwords from one address within the window: a lab behind one address makes some, too.
const MAX_OF_ADDRESS: usize = 50;

/// Wrong passwords of one account from all addresses within the window.
const MAX_OF_ACCOUNT: usize = 50;

/// Maximum number of keys of each count. The key that was used longest ago makes room.
const MAX_KEYS: usize = 10_000;

/// Counts of wrong passwords. An account is never locked: an address from which it signed in is not
/// subject to the limit for all addresses, and every limit ends with the window.
#[derive(Debug, Default)]
pub struct Throttle {
    both: Counts<(String, IpAddr)>,
    address: Counts<IpAddr>,
    account: Counts<String>,
    /// Times of the last successful sign-ins.
    trusted: HashMap<(String, IpAddr), UnixTime>,
}

impl Throttle {
    /// Counts an attempt before its password is checked. Returns false if there were too many wrong
    /// ones.
    pub fn begin(&mut self, account: &str, address: IpAddr, now: UnixTime) -> bool {
        let address = network_of(address);
        let key = (account.to_owned(), address);
        let is_trusted = self.trusted.contains_key(&key);

        let is_free = self.both.of(&key, now) < MAX_OF_BOTH
            && self.address.of(&address, now) < MAX_OF_ADDRESS
            && (is_trusted || self.account.of(&key.0, now) < MAX_OF_ACCOUNT);

        // A refused attempt adds nothing, so the wait ends with the window and not with the last try.
        if is_free {
            self.account.add(account.to_owned(), now);
            self.address.add(address, now);
            self.both.add(key, now);
        }
        is_free
    }

    /// Takes a counted attempt back: its password was right, or could not be checked.
    pub fn take_back(&mut self, account: &str, address: IpAddr) {
        let address = network_of(address);
        self.both.take_back(&(account.to_owned(), address));
        self.address.take_back(&address);
        self.account.take_back(&account.to_owned());
    }

    /// Notes that an account has signed in from an address.
    pub fn trust(&mut self, account: &str, address: IpAddr, now: UnixTime) {
        let key = (account.to_owned(), network_of(address));

        // A known address may stay: its time is only renewed.
        if self.trusted.len() >= MAX_KEYS && !self.trusted.contains_key(&key) {
            let oldest = self.trusted.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.trusted.remove(&oldest);
            }
        }
        self.trusted.insert(key, now);
    }
}

/// Counts of all attempts to sign in, right or wrong, by address.
#[derive(Debug)]
pub struct AttemptLimit(Counts<IpAddr>);

impl Default for AttemptLimit {
    fn default() -> Self {
        Self(Counts::within(ATTEMPT_SECONDS))
    }
}

impl AttemptLimit {
    /// Counts an attempt. Returns false, and counts nothing, if the address has made too many.
    pub fn allows(&mut self, address: IpAddr, now: UnixTime) -> bool {
        let address = network_of(address);
        let is_free = self.0.of(&address, now) < MAX_ATTEMPTS;
        if is_free {
            self.0.add(address, now);
        }
        is_free
    }
}

/// Times of attempts by key.
#[derive(Debug)]
struct Counts<K> {
    times: HashMap<K, VecDeque<UnixTime>>,
    /// Seconds in which attempts count.
    window_seconds: i64,
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self::within(WINDOW_SECONDS)
    }
}

impl<K> Counts<K> {
    fn within(window_seconds: i64) -> Self {
        Self {
            times: HashMap::new(),
            window_seconds,
        }
    }
}

impl<K> Counts<K>
where
    K: Hash + Eq + Clone,
{
    fn of(&mut self, key: &K, now: UnixTime) -> usize {
        let window = self.window_seconds;
        let Some(times) = self.times.get_mut(key) else {
            return 0;
        };
        // Times that have left the window go here, so no task has to clean the map.
        times.retain(|at| is_within(*at, window, now));
        let count = times.len();
        if count == 0 {
            self.times.remove(key);
        }
        count
    }

    fn add(&mut self, key: K, now: UnixTime) {
        if self.times.len() >= MAX_KEYS && !self.times.contains_key(&key) {
            self.make_room(now);
        }
        self.times.entry(key).or_default().push_back(now);
    }

    fn make_room(&mut self, now: UnixTime) {
        // Expired keys go first. The one that was used longest ago is sacrificed only if all are recent.
        let window = self.window_seconds;
        self.times
            .retain(|_, times| times.back().is_some_and(|at| is_within(*at, window, now)));

        if self.times.len() >= MAX_KEYS {
            let oldest = self
                .times
                .iter()
                .min_by_key(|(_, times)| times.back().copied());
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.times.remove(&oldest);
            }
        }
    }

    fn take_back(&mut self, key: &K) {
        // With two attempts at once, this may remove the time of the other. Their number stays right.
        if let Some(times) = self.times.get_mut(key) {
            times.pop_back();
            if times.is_empty() {
                self.times.remove(key);
            }
        }
    }
}

/// Returns the address, or for IPv6 its network of 64 bits: one machine has all addresses of that.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            // A customer gets at least a /64, so single addresses in it are free to an attacker.
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const START: UnixTime = UnixTime(0);
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    #[test]
    fn a_flood_of_addresses_frees_no_guesser() {
        let mut limit = AttemptLimit::default();
        let guesser = IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, 1]);
        let tries = (0..20).filter(|_| limit.allows(guesser, START)).count();
        assert_eq!(tries, MAX_ATTEMPTS);
        // Another address of the same network of 64 bits is the same machine.
        let same = IpAddr::from([0x2001, 0xdb8, 0, 1, 5, 6, 7, 8]);
        assert!(!limit.allows(same, START));

        // Of more addresses than are counted, the one that came longest ago makes room, and no other.
        let mut limit = AttemptLimit::default();
        for n in 0..MAX_KEYS as u16 {
            assert!(limit.allows(other(n), START));
        }
        let tries = (0..20).filter(|_| limit.allows(guesser, START + 1));
        assert_eq!(tries.count(), MAX_ATTEMPTS);
        assert!(limit.allows(HERE, START + 1));
        assert!(!limit.allows(guesser, START + 1));
        assert!(limit.0.times.len() <= MAX_KEYS);
        assert!(limit.allows(guesser, START + 1 + ATTEMPT_SECONDS));
    }

    fn other(last: u16) -> IpAddr {
        IpAddr::from([10, 1, (last >> 8) as u8, last as u8])
    }

    fn guesses(throttle: &mut Throttle, account: &str, address: IpAddr, now: UnixTime) -> usize {
        (0..100)
            .take_while(|_| throttle.begin(account, address, now))
            .count()
    }

    #[test]
    fn five_wrong_passwords_make_an_account_and_an_address_wait() {
        let mut throttle = Throttle::default();
        // Another account and another address are not affected: a typist locks out only that pair.
        assert_eq!(guesses(&mut throttle, "alice", HERE, START), MAX_OF_BOTH);
        assert!(throttle.begin("alice", other(1), START), "another address");
        assert!(throttle.begin("bob", HERE, START), "another account");

        let end = WINDOW_SECONDS;
        assert!(!throttle.begin("alice", HERE, START + (end - 1)));
        assert_eq!(
            guesses(&mut throttle, "alice", HERE, START + end),
            MAX_OF_BOTH
        );
    }

    #[test]
    fn right_passwords_do_not_count() {
        let mut throttle = Throttle::default();
        // Two hundred sign-ins are more than any of the limits.
        for _ in 0..200 {
            assert!(throttle.begin("alice", HERE, START));
            throttle.take_back("alice", HERE);
        }
        assert_eq!(guesses(&mut throttle, "alice", HERE, START), MAX_OF_BOTH);
    }

    #[test]
    fn one_address_cannot_try_one_password_on_all_accounts() {
        // One guess for each account, which never reaches the limit of a pair.
        let mut throttle = Throttle::default();
        let tried = (0..500)
            .filter(|account| throttle.begin(&format!("user{account}"), HERE, START))
            .count();
        assert_eq!(tried, MAX_OF_ADDRESS);
        assert!(throttle.begin("user1", other(1), START));
    }

    #[test]
    fn many_addresses_cannot_guess_one_password_nor_lock_its_owner_out() {
        // Alice has signed in from `HERE` before, so the limit over all addresses does not count there.
        let mut throttle = Throttle::default();
        throttle.trust("alice", HERE, START);
        let tried = (0..500)
            .filter(|last| throttle.begin("alice", other(*last), START))
            .count();
        assert_eq!(tried, MAX_OF_ACCOUNT);
        assert!(throttle.begin("alice", HERE, START), "her own address");
        assert!(!throttle.begin("alice", other(501), START));
    }

    #[test]
    fn the_addresses_of_one_machine_count_as_one() {
        // A machine with a /64 tries 100 of its addresses.
        let mut throttle = Throttle::default();
        let tried = (0..100_u16)
            .filter(|last| {
                let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, *last);
                throttle.begin("alice", address.into(), START)
            })
            .count();

        assert_eq!(tried, MAX_OF_BOTH);
        // The neighbouring /64 is another machine.
        let other = Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 1);
        assert!(throttle.begin("alice", other.into(), START));
    }

    #[test]
    fn memory_is_bounded_and_old_counts_make_room() {
        // Each key is new: the maps would hold 100 more than the limit.
        let mut throttle = Throttle::default();
        for number in 0..MAX_KEYS as u32 + 100 {
            throttle.begin(
                "alice",
                IpAddr::from(number.to_be_bytes()),
                UnixTime(i64::from(number)),
            );
            throttle.trust(&number.to_string(), HERE, UnixTime(i64::from(number)));
        }
        assert!(throttle.both.times.len() <= MAX_KEYS && throttle.trusted.len() <= MAX_KEYS);
        assert!(
            throttle.account.times.len() <= MAX_KEYS && throttle.address.times.len() <= MAX_KEYS
        );
    }
}
