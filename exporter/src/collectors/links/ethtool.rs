//! Negotiated, supported and advertised modes of a link, modes of its partner
//! (`ETHTOOL_GLINKSETTINGS`), and what its driver counts.
//!
//! The older call (`ETHTOOL_GSET`) has 32 bits for the modes, and 2.5 and 5 gigabits are bits 47
//! and 48. The kernel first says how many words of bits it has, then fills them.

use crate::ioctl::ioctl;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI8, Ordering};

/// A link's settings. Speeds are in megabits a second.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LinkSettings {
    pub megabits: Option<u32>,
    pub is_full_duplex: Option<bool>,
    pub is_autonegotiated: bool,
    pub supported: LinkModes,
    pub advertised: LinkModes,
    pub partner: LinkModes,
}

/// A set of link modes, a bit each.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LinkModes(Vec<u32>);

impl LinkModes {
    #[cfg(test)]
    pub fn of(bits: &[u32]) -> Self {
        let mut words = vec![0; 4];
        for bit in bits {
            words[*bit as usize / 32] |= 1 << (bit % 32);
        }
        Self(words)
    }

    /// Whether this bit is among them.
    pub fn has(&self, bit: u32) -> bool {
        let word = self.0.get(bit as usize / 32);
        word.is_some_and(|word| word & (1 << (bit % 32)) != 0)
    }

    /// The highest speed among them; modes such as "autonegotiation" have none.
    pub fn fastest(&self) -> Option<u32> {
        let is_among = |bits: &&[u32]| bits.iter().any(|bit| self.has(*bit));
        let speeds = SPEEDS.iter().filter(|(_, bits)| is_among(bits));
        speeds.map(|(megabits, _)| *megabits).max()
    }
}

/// The bits of each speed, from `linux/ethtool.h`.
const SPEEDS: &[(u32, &[u32])] = &[
    (10, &[0, 1, 92, 99, 100, 101, 102]),
    (100, &[2, 3, 67, 90, 91]),
    (1_000, &[4, 5, 17, 41, 68]),
    (2_500, &[15, 47]),
    (5_000, &[48]),
    (10_000, &[12, 18, 19, 20, 42, 43, 44, 45, 46]),
    (20_000, &[21, 22]),
    (25_000, &[31, 32, 33]),
    (40_000, &[23, 24, 25, 26]),
    (50_000, &[34, 35, 40, 52, 53, 54, 55, 56]),
    (56_000, &[27, 28, 29, 30]),
    (
        100_000,
        &[36, 37, 38, 39, 57, 58, 59, 60, 61, 75, 76, 77, 78, 79],
    ),
    (200_000, &[62, 63, 64, 65, 66, 80, 81, 82, 83, 84]),
    (400_000, &[69, 70, 71, 72, 73, 85, 86, 87, 88, 89]),
    (800_000, &[93, 94, 95, 96, 97, 98]),
];

const SIOCETHTOOL: u32 = 0x8946;
const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
/// `struct ethtool_link_settings` without the bits: four bytes each of command and speed, twelve of
/// one byte, seven words.
const HEAD_BYTES: usize = 48;
/// The kernel has four words now; the call refuses another number than its own.
const MAX_WORDS: usize = 127;
const SPEED_UNKNOWN: u32 = u32::MAX;

const SPEED: usize = 4;
const DUPLEX: usize = 8;
const AUTONEGOTIATED: usize = 11;
const WORDS: usize = 15;

#[repr(C)]
struct IfReq {
    name: [u8; libc::IFNAMSIZ],
    data: *mut u8,
    /// The union behind the name is larger than a pointer.
    _rest: [u8; 16],
}

/// Asks the kernel for a link's settings.
pub(crate) fn settings(device: &str) -> Result<LinkSettings, Errno> {
    let ask = |words: i8, buffer: &mut [u8]| {
        buffer[WORDS] = words.to_ne_bytes()[0];
        call(device, ETHTOOL_GLINKSETTINGS, buffer)
    };

    /// Words of a set in this kernel, once known.
    static KERNEL_WORDS: AtomicI8 = AtomicI8::new(0);

    let known = KERNEL_WORDS.load(Ordering::Relaxed);
    if let Ok(words @ 1..) = usize::try_from(known) {
        let mut answer = vec![0; HEAD_BYTES + 3 * 4 * words];
        ask(known, &mut answer)?;
        return parse(&answer).ok_or(Errno::OPNOTSUPP);
    }

    let mut head = [0; HEAD_BYTES];
    ask(0, &mut head)?;
    // The number, negative: "not so many as you said".
    let words = i8::from_ne_bytes([head[WORDS]]).checked_neg();
    let words = words.filter(|words| *words > 0).ok_or(Errno::OPNOTSUPP)?;

    let mut answer = vec![0; HEAD_BYTES + 3 * 4 * MAX_WORDS];
    ask(words, &mut answer)?;
    KERNEL_WORDS.store(words, Ordering::Relaxed);
    parse(&answer).ok_or(Errno::OPNOTSUPP)
}

/// Which driver a link has.
#[derive(Debug, Default)]
pub(crate) struct LinkDriver {
    pub name: String,
    pub version: String,
    pub firmware: String,
    pub bus: String,
    pub expansion_rom: String,
}

const ETHTOOL_GDRVINFO: u32 = 0x3;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
/// `struct ethtool_drvinfo`: the command, five texts of [`TEXT_BYTES`], a reserve of twelve bytes,
/// five words; the second is the number of counters.
const DRIVER_BYTES: usize = 196;
const COUNTERS_AT: usize = 180;
const TEXT_BYTES: usize = 32;
/// `ETH_SS_STATS`: of the sets of names, that of the counters.
const COUNTER_NAMES: u32 = 1;
/// Maximum number of counters: mlx5 has some 250 for each of its queues, of which there are as many as processors.
const MAX_COUNTERS: usize = 16_384;
/// The buffers are longer than the largest answer by this factor. No change of queues adds as many counters between
/// two calls.
const ROOM: usize = 4;

/// Asks for a link's driver.
pub(crate) fn driver(device: &str) -> Result<LinkDriver, Errno> {
    let mut answer = [0; DRIVER_BYTES];
    call(device, ETHTOOL_GDRVINFO, &mut answer)?;

    let text = |number: usize| text(&answer[4 + number * TEXT_BYTES..][..TEXT_BYTES]);
    Ok(LinkDriver {
        name: text(0),
        version: text(1),
        firmware: text(2),
        bus: text(3),
        expansion_rom: text(4),
    })
}

/// Asks for what a link's driver counts. The names are its own.
pub(crate) fn counters(device: &str) -> Result<Vec<(String, u64)>, Errno> {
    let mut answer = [0; DRIVER_BYTES];
    call(device, ETHTOOL_GDRVINFO, &mut answer)?;

    let count = u32::from_ne_bytes(std::array::from_fn(|byte| answer[COUNTERS_AT + byte]));
    let count = usize::try_from(count).unwrap_or_default();
    if count == 0 || count > MAX_COUNTERS {
        return Err(Errno::OPNOTSUPP);
    }

    // A driver whose queues are just being changed may write more than it said, and the kernel
    // writes all of it. Pages of the buffers that it does not write take no memory.
    let room = ROOM * MAX_COUNTERS;
    let mut names = vec![0; 12 + room * TEXT_BYTES];
    let mut values = vec![0; 8 + room * 8];
    let bytes = |word: usize| u32::try_from(word).unwrap_or_default().to_ne_bytes();
    names[4..8].copy_from_slice(&bytes(COUNTER_NAMES as usize));
    names[8..12].copy_from_slice(&bytes(count));
    values[4..8].copy_from_slice(&bytes(count));

    call(device, ETHTOOL_GSTRINGS, &mut names)?;
    call(device, ETHTOOL_GSTATS, &mut values)?;

    let names = names[12..].chunks(TEXT_BYTES).map(text);
    let (values, _) = values[8..].as_chunks();
    let values = values.iter().map(|bytes| u64::from_ne_bytes(*bytes));
    let counters = names.zip(values).take(count);
    Ok(counters.filter(|(name, _)| !name.is_empty()).collect())
}

/// The text before the first zero.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// A socket to ask about links with. It stays open.
fn control_socket() -> Result<BorrowedFd<'static>, Errno> {
    static SOCKET: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(socket) = SOCKET.get() {
        return Ok(socket.as_fd());
    }
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok(SOCKET.get_or_init(|| socket).as_fd())
}

/// One `SIOCETHTOOL`. The buffer is as long as the struct of this command.
fn call(device: &str, command: u32, buffer: &mut [u8]) -> Result<(), Errno> {
    let socket = control_socket()?;
    let mut request = IfReq {
        name: [0; libc::IFNAMSIZ],
        data: buffer.as_mut_ptr(),
        _rest: [0; 16],
    };
    if device.len() >= request.name.len() {
        return Err(Errno::NODEV);
    }

    request.name[..device.len()].copy_from_slice(device.as_bytes());
    buffer[..4].copy_from_slice(&command.to_ne_bytes());

    // SAFETY: the request points to a buffer that is as long as the command's answer, and both live
    // on.
    let answered = unsafe { ioctl(socket, SIOCETHTOOL, &raw mut request) };
    answered
        .map(drop)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn parse(answer: &[u8]) -> Option<LinkSettings> {
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let words = usize::try_from(i8::from_ne_bytes([*answer.get(WORDS)?])).ok()?;
    let modes = |number: usize| {
        let words = (0..words).map(|at| word(HEAD_BYTES + 4 * (number * words + at)));
        words.collect::<Option<Vec<_>>>().map(LinkModes)
    };

    Some(LinkSettings {
        megabits: word(SPEED).filter(|megabits| !matches!(*megabits, 0 | SPEED_UNKNOWN)),
        is_full_duplex: match answer.get(DUPLEX)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
        is_autonegotiated: *answer.get(AUTONEGOTIATED)? == 1,
        supported: modes(0)?,
        advertised: modes(1)?,
        partner: modes(2)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An answer as the kernel lays it out: speed, duplex, then the bits of three sets.
    fn answer(megabits: u32, duplex: u8, sets: [[u32; 4]; 3]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[SPEED..SPEED + 4].copy_from_slice(&megabits.to_ne_bytes());
        bytes[DUPLEX] = duplex;
        bytes[WORDS] = 4;
        bytes.extend(
            sets.as_flattened()
                .iter()
                .flat_map(|word| word.to_ne_bytes()),
        );
        bytes
    }

    #[test]
    fn two_and_a_half_gigabits_are_seen() {
        let t1000 = 1 << 5;
        let t2500 = 1 << (47 - 32);
        let text = answer(
            1000,
            1,
            [[t1000, t2500, 0, 0], [t1000, t2500, 0, 0], [t1000, 0, 0, 0]],
        );
        let settings = parse(&text).unwrap();
        assert_eq!(
            (settings.megabits, settings.is_full_duplex),
            (Some(1000), Some(true))
        );
        assert_eq!(settings.supported.fastest(), Some(2500));
        assert_eq!(settings.partner.fastest(), Some(1000));
        let down = parse(&answer(SPEED_UNKNOWN, 255, [[1 << 6, 1 << 16, 0, 0]; 3])).unwrap();
        assert_eq!((down.megabits, down.is_full_duplex), (None, None));
        assert_eq!(
            down.supported.fastest(),
            Some(5000),
            "of autonegotiation and 5G only the latter is a speed"
        );
        assert_eq!(parse(&text[..60]), None, "cut off");
    }

    #[test]
    fn a_bit_has_one_speed() {
        let bits: Vec<_> = SPEEDS.iter().flat_map(|(_, bits)| *bits).collect();
        let unique: std::collections::BTreeSet<_> = bits.iter().collect();
        assert_eq!(bits.len(), unique.len());
    }

    #[test]
    fn this_machine_s_links_are_asked() {
        assert_eq!(settings("no-such-link-here").unwrap_err(), Errno::NODEV);
        for entry in std::fs::read_dir("/sys/class/net").unwrap().flatten() {
            // Many know no settings; none may do harm.
            let name = entry.file_name().to_string_lossy().into_owned();
            let _ = (settings(&name), driver(&name), counters(&name));
        }
    }

    proptest! {
        #[test]
        fn no_answer_ends_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes).map(|settings| settings.supported.fastest());
        }
    }
}
