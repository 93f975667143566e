//! Disks that answer the exporter's commands by SAT and SPC.

use crate::interpose::{fail, script};
use std::env;
use std::fs;
use std::ptr;
use std::slice;

/// `struct sg_io_hdr` of `scsi/sg.h`.
#[repr(C)]
pub(crate) struct Header {
    interface: i32,
    direction: i32,
    command_bytes: u8,
    sense_bytes: u8,
    segments: u16,
    data_bytes: u32,
    data: *mut u8,
    command: *const u8,
    sense: *mut u8,
    timeout: u32,
    flags: u32,
    id: i32,
    own: *mut libc::c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_written: u8,
    host_status: u16,
    driver_status: u16,
    data_missing: i32,
    duration: u32,
    info: u32,
}

pub(crate) const SG_IO: libc::c_ulong = 0x2285;

enum Answer {
    Data(Vec<u8>),
    Sense([u8; 22]),
}

/// ILLEGAL REQUEST, "invalid command operation code".
fn illegal() -> Answer {
    let mut sense = [0; 22];
    (sense[0], sense[1], sense[2]) = (0x72, 5, 0x20);
    Answer::Sense(sense)
}

/// The sense data of libata when the registers are requested.
fn registers(count: u8, mid: u8, high: u8) -> Answer {
    let mut sense = [0; 22];
    sense[..8].copy_from_slice(&[0x72, 1, 0, 0x1d, 0, 0, 0, 14]);
    sense[8..].copy_from_slice(&[9, 12, 0, 0, 0, count, 0, 0, 0, mid, 0, high, 0x40, 0x50]);
    Answer::Sense(sense)
}

/// # Safety
/// `header` points to a header whose pointers are valid for its lengths.
pub(crate) unsafe fn answer(disk: &str, header: *mut Header) -> i32 {
    let lines = script(&["disk", disk]);
    if lines.iter().any(|line| line[0] == "denied") {
        return fail(libc::EPERM);
    }
    // SAFETY: as the caller has it.
    let header = unsafe { &mut *header };
    assert_eq!(header.interface, i32::from(b'S'), "not a header of SG_IO");
    assert_eq!(header.segments, 0, "not a header of SG_IO");
    // SAFETY: as the caller has it.
    let command = unsafe { slice::from_raw_parts(header.command, header.command_bytes.into()) };
    (
        header.status,
        header.host_status,
        header.driver_status,
        header.data_missing,
    ) = (0, 0, 0, header.data_bytes as i32);
    match say(disk, &lines, command) {
        Answer::Data(bytes) => {
            let count = bytes.len().min(header.data_bytes as usize);
            // SAFETY: the buffer has room for `data_bytes`.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), header.data, count) };
            header.data_missing -= count as i32;
        }
        Answer::Sense(sense) => {
            let count = sense.len().min(header.sense_bytes.into());
            // SAFETY: the buffer has room for `sense_bytes`.
            unsafe { ptr::copy_nonoverlapping(sense.as_ptr(), header.sense, count) };
            (header.status, header.sense_written, header.driver_status) = (2, count as u8, 8);
        }
    }
    0
}

fn say(disk: &str, lines: &[Vec<String>], command: &[u8]) -> Answer {
    let find = |word: &str| lines.iter().find(|line| line[0] == word);
    if find("refuses").is_some() {
        return illegal();
    }
    if let Some(sas) = find("sas") {
        let byte = |at: usize| {
            sas.get(at)
                .and_then(|word| u8::from_str_radix(word, 16).ok())
                .unwrap_or(0)
        };
        return match command {
            [0x03, ..] => Answer::Data(vec![
                0x70, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ]),
            [0x4d, 0, 0x6f, ..] => Answer::Data(vec![
                0x2f,
                0,
                0,
                8,
                0,
                0,
                3,
                4,
                byte(1),
                byte(2),
                byte(3),
                0,
            ]),
            _ => illegal(),
        };
    }
    // ATA PASS-THROUGH (16): feature, LBA low, mid and high, command.
    let [
        0x85,
        _,
        _,
        _,
        feature,
        _,
        count,
        _,
        low,
        _,
        mid,
        _,
        high,
        _,
        command,
        _,
    ] = *command
    else {
        return illegal();
    };
    let mode = find("mode")
        .and_then(|line| line.get(1)?.parse().ok())
        .unwrap_or(255);
    let is_smart = (mid, high) == (0x4f, 0xc2);
    if command != 0xe5 && mode == 0 {
        let path = env::var("HARDWARE_STAND_IN_SCRIPT").unwrap_or_default();
        let _ = fs::write(path + ".woken", disk);
    }
    match (command, feature, count) {
        (0xe5, ..) => registers(mode, 0, 0),
        (0xb0, 0xda, _) if is_smart && find("fails").is_some() => registers(0, 0xf4, 0x2c),
        (0xb0, 0xda, _) if is_smart => registers(0, 0x4f, 0xc2),
        (0xb0, 0xd0, 1) if is_smart => page(lines, |[id, value, _, raw]| {
            let raw = raw.to_le_bytes();
            [
                id as u8,
                0x33,
                0,
                value as u8,
                value as u8,
                raw[0],
                raw[1],
                raw[2],
                raw[3],
                raw[4],
                raw[5],
                0,
            ]
        }),
        (0xb0, 0xd1, 1) if is_smart => page(lines, |[id, _, threshold, _]| {
            [id as u8, threshold as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }),
        (0x2f, 0, 1) if (low, mid, high) == (4, 1, 0) => {
            let written = find("written")
                .and_then(|line| line.get(1)?.parse::<u64>().ok())
                .unwrap_or(0);
            let mut page = vec![0; 512];
            page[..3].copy_from_slice(&[1, 0, 1]);
            page[0x18..0x20].copy_from_slice(&(written | 0xc0 << 56).to_le_bytes());
            Answer::Data(page)
        }
        _ => illegal(),
    }
}

fn page(lines: &[Vec<String>], entry: impl Fn([u64; 4]) -> [u8; 12]) -> Answer {
    let mut page = vec![0; 512];
    page[0] = 16;
    let attributes = lines.iter().filter(|line| line[0] == "attribute");
    for (place, line) in page[2..362].chunks_exact_mut(12).zip(attributes) {
        let number = |at: usize| line.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        place.copy_from_slice(&entry([number(1), number(2), number(3), number(4)]));
    }
    page[511] = page.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
    Answer::Data(page)
}
