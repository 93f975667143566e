//! A BMC that answers by IPMI 2.0 (§22.1 chassis, §31 event log) through the structures of
//! `linux/ipmi.h`.

use crate::interpose::{fail, script};
use std::collections::BTreeMap;
use std::ptr;
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[repr(C)]
pub(crate) struct Message {
    function: u8,
    command: u8,
    bytes: u16,
    data: *mut u8,
}

#[repr(C)]
pub(crate) struct Request {
    address: *mut u8,
    address_bytes: u32,
    id: libc::c_long,
    message: Message,
}

#[repr(C)]
pub(crate) struct Received {
    kind: i32,
    address: *mut u8,
    address_bytes: u32,
    id: libc::c_long,
    message: Message,
}

/// `_IOR('i', 13, struct ipmi_req)` and `_IOWR('i', 11, struct ipmi_recv)`.
pub(crate) const SEND_COMMAND: libc::c_ulong = 0x8028_690d;
pub(crate) const RECEIVE_MESSAGE_TRUNCATED: libc::c_ulong = 0xc030_690b;

struct Answer {
    id: libc::c_long,
    function: u8,
    command: u8,
    data: Vec<u8>,
}

static ANSWERS: Mutex<BTreeMap<i32, Vec<Answer>>> = Mutex::new(BTreeMap::new());

fn answers() -> MutexGuard<'static, BTreeMap<i32, Vec<Answer>>> {
    ANSWERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// `request` points to a request whose pointers are valid for its lengths.
pub(crate) unsafe fn send(handle: i32, request: *const Request) -> i32 {
    // SAFETY: as the caller has it.
    let request = unsafe { &*request };
    // The system interface is kind 0x0c on channel 15: `struct ipmi_system_interface_addr`.
    // SAFETY: the same.
    let address = unsafe { slice::from_raw_parts(request.address, request.address_bytes as usize) };
    if address.len() < 7 || address[..6] != [0x0c, 0, 0, 0, 0x0f, 0] {
        return fail(libc::EINVAL);
    }
    let Message {
        function,
        command,
        bytes,
        data,
    } = request.message;
    let data = match bytes {
        0 => &[],
        // SAFETY: as the caller has it.
        _ => unsafe { slice::from_raw_parts(data, bytes.into()) },
    };
    let lines = script(&["bmc"]);
    let find = |word: &str| lines.iter().find(|line| line[0] == word);
    if find("silent").is_some() {
        return 0;
    }
    let answer = Answer {
        id: request.id,
        function: function | 1,
        command,
        data: say(&lines, function, command, data),
    };
    let slow = find("slow")
        .and_then(|line| line.get(1)?.parse().ok())
        .unwrap_or(0);
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(slow));
        answers().entry(handle).or_default().push(answer);
        // SAFETY: eight bytes; the handle may be closed by now, which is an error and no more.
        unsafe { libc::write(handle, (&raw const ONE).cast(), 8) };
    });
    0
}

static ONE: u64 = 1;

/// # Safety
/// As for [`send`].
pub(crate) unsafe fn receive(handle: i32, received: *mut Received) -> i32 {
    let mut answers = answers();
    let waiting = answers.entry(handle).or_default();
    if waiting.is_empty() {
        return fail(libc::EAGAIN);
    }
    let answer = waiting.remove(0);
    if waiting.is_empty() {
        let mut count = 0_u64;
        // SAFETY: eight bytes.
        unsafe { libc::read(handle, (&raw mut count).cast(), 8) };
    }
    // SAFETY: as the caller has it.
    let received = unsafe { &mut *received };
    let count = answer.data.len().min(received.message.bytes.into());
    // SAFETY: the buffer has room for as many bytes as it says.
    unsafe { ptr::copy_nonoverlapping(answer.data.as_ptr(), received.message.data, count) };
    (received.kind, received.id) = (1, answer.id);
    (
        received.message.function,
        received.message.command,
        received.message.bytes,
    ) = (answer.function, answer.command, count as u16);
    if count < answer.data.len() {
        fail(libc::EMSGSIZE)
    } else {
        0
    }
}

const STORAGE: u8 = 0x0a;
const CHASSIS: u8 = 0x00;

/// Returns the completion code and the data after it.
fn say(lines: &[Vec<String>], function: u8, command: u8, data: &[u8]) -> Vec<u8> {
    let hex = |line: &[String]| {
        line.iter()
            .filter_map(|word| u8::from_str_radix(word, 16).ok())
            .collect::<Vec<_>>()
    };
    let entries: Vec<_> = lines
        .iter()
        .filter(|line| line[0] == "entry")
        .map(|line| hex(&line[1..]))
        .collect();
    let find = |word: &str| lines.iter().find(|line| line[0] == word);
    match (function, command) {
        (STORAGE, 0x40) => {
            let count = (entries.len() as u16).to_le_bytes();
            let free = (0x4000 - 16 * entries.len() as u16).to_le_bytes();
            let flags = if find("overflow").is_some() {
                0x8f
            } else {
                0x0f
            };
            [&[0, 0x51][..], &count, &free, &[0xff; 8], &[flags]].concat()
        }
        (STORAGE, 0x43) => entry(&entries, data),
        (STORAGE, 0x48) => {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |now| now.as_secs());
            let clock = find("clock")
                .and_then(|line| line.get(1)?.parse().ok())
                .unwrap_or(now as u32);
            [&[0][..], &clock.to_le_bytes()].concat()
        }
        (CHASSIS, 0x01) => match find("chassis") {
            Some(line) => [&[0][..], &hex(&line[1..])].concat(),
            None => vec![0xc1],
        },
        _ => vec![0xc1],
    }
}

fn entry(entries: &[Vec<u8>], data: &[u8]) -> Vec<u8> {
    const NOT_PRESENT: u8 = 0xcb;
    let [_, _, low, high, 0, 0xff] = *data else {
        return vec![0xc7];
    };
    let wanted = [low, high];
    let place = match u16::from_le_bytes(wanted) {
        0 => 0,
        0xffff => entries.len().wrapping_sub(1),
        _ => entries
            .iter()
            .position(|entry| entry[..2] == wanted)
            .unwrap_or(usize::MAX),
    };
    let Some(found) = entries.get(place) else {
        return vec![NOT_PRESENT];
    };
    let next = entries
        .get(place + 1)
        .map_or([0xff, 0xff], |next| [next[0], next[1]]);
    [&[0][..], &next, found].concat()
}
