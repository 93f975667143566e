//! SCSI commands through the kernel's `SG_IO`, and their sense data.

use crate::ioctl::ioctl;
use std::fs::File;
use std::io;

/// `struct sg_io_hdr` of `scsi/sg.h`.
#[repr(C)]
struct Header {
    interface: libc::c_int,
    direction: libc::c_int,
    command_bytes: u8,
    sense_bytes: u8,
    segments: u16,
    data_bytes: u32,
    data: *mut u8,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    id: libc::c_int,
    own: *mut libc::c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_written: u8,
    host_status: u16,
    driver_status: u16,
    data_missing: libc::c_int,
    duration_ms: u32,
    info: u32,
}

const SG_IO: u32 = 0x2285;
const NO_DATA: libc::c_int = -1;
const FROM_DEVICE: libc::c_int = -3;
const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
/// Timeout of a command, after which the kernel resets the disk and other I/O waits. Long enough
/// for a busy disk.
const TIMEOUT_MS: u32 = 30_000;
const SENSE_BYTES: usize = 32;

/// Result of a command.
#[derive(Debug)]
pub(super) struct ScsiReply {
    /// Number of bytes read.
    pub bytes: usize,
    /// Sense data of the disk.
    pub sense: Option<SenseData>,
}

/// Sends a command that changes nothing.
pub(super) fn command(disk: &File, command: &[u8], data: &mut [u8]) -> io::Result<ScsiReply> {
    let mut sense = [0; SENSE_BYTES];
    let direction = if data.is_empty() {
        NO_DATA
    } else {
        FROM_DEVICE
    };
    let mut header = Header {
        interface: b'S'.into(),
        direction,
        command_bytes: command.len() as u8,
        sense_bytes: SENSE_BYTES as u8,
        segments: 0,
        data_bytes: data.len() as u32,
        data: data.as_mut_ptr(),
        command: command.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms: TIMEOUT_MS,
        flags: 0,
        id: 0,
        own: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_written: 0,
        host_status: 0,
        driver_status: 0,
        data_missing: 0,
        duration_ms: 0,
        info: 0,
    };
    // SAFETY: the header points to buffers of the lengths that it says, and all of them live on.
    unsafe { ioctl(disk, SG_IO, &raw mut header) }?;

    let missing = usize::try_from(header.data_missing).unwrap_or(0);
    let bytes = data.len().saturating_sub(missing);

    match (header.host_status, header.status) {
        (0, GOOD) => Ok(ScsiReply { bytes, sense: None }),
        (0, CHECK_CONDITION) => Ok(ScsiReply {
            bytes,
            sense: SenseData::parse(&sense),
        }),
        (host, status) => Err(io::Error::other(format!(
            "host status {host:#x}, SCSI status {status:#x}"
        ))),
    }
}

/// Sense data, in either of SPC's formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SenseData {
    pub key: u8,
    /// The additional sense code and its qualifier.
    pub code: (u8, u8),
    /// Registers of an ATA disk.
    pub registers: Option<AtaRegisters>,
}

/// Registers of an ATA disk after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AtaRegisters {
    pub status: u8,
    pub count: u8,
    pub lba_mid: u8,
    pub lba_high: u8,
}

impl SenseData {
    /// "ATA pass-through information available": the fixed format then has registers in place of
    /// other things.
    const REGISTERS: (u8, u8) = (0x00, 0x1d);
    const ATA_STATUS_RETURN: u8 = 0x09;

    pub fn parse(sense: &[u8]) -> Option<Self> {
        let at = |place: usize| sense.get(place).copied();
        match at(0)? & 0x7f {
            0x70 | 0x71 => {
                let code = (at(12)?, at(13)?);
                let registers = || {
                    Some(AtaRegisters {
                        status: at(4)?,
                        count: at(6)?,
                        lba_mid: at(10)?,
                        lba_high: at(11)?,
                    })
                };
                let registers = (code == Self::REGISTERS).then(registers).flatten();
                Some(Self {
                    key: at(2)? & 0xf,
                    code,
                    registers,
                })
            }
            0x72 | 0x73 => {
                let end = (8 + usize::from(at(7)?)).min(sense.len());
                let descriptor = sense.get(8..end)?;
                let registers = Self::descriptor(descriptor, Self::ATA_STATUS_RETURN);
                let registers = registers.and_then(|found| {
                    let at = |place: usize| found.get(place).copied();
                    Some(AtaRegisters {
                        status: at(13)?,
                        count: at(5)?,
                        lba_mid: at(9)?,
                        lba_high: at(11)?,
                    })
                });
                Some(Self {
                    key: at(1)? & 0xf,
                    code: (at(2)?, at(3)?),
                    registers,
                })
            }
            _ => None,
        }
    }

    /// Descriptors follow one another: kind, length of what follows, and that.
    fn descriptor(mut rest: &[u8], kind: u8) -> Option<&[u8]> {
        while let [first, length, ..] = *rest {
            let (found, behind) = rest.split_at_checked(2 + usize::from(length))?;
            if first == kind {
                return Some(found);
            }
            rest = behind;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A USB disk's answer to STANDBY (SAT, fixed format), from the report at
    /// sourceforge.net/p/hdparm/patches/53.
    const FIXED: [u8; 18] = [
        0xf0, 0, 1, 0, 0x50, 0x40, 0x3c, 0x0a, 0x80, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0,
    ];

    #[test]
    fn registers_come_in_both_formats() {
        let registers = AtaRegisters {
            status: 0x50,
            count: 0x3c,
            lba_mid: 0,
            lba_high: 0,
        };
        let fixed = SenseData {
            key: 1,
            code: (0, 0x1d),
            registers: Some(registers),
        };
        assert_eq!(SenseData::parse(&FIXED), Some(fixed));
        // libata's of Linux 6.1 to CHECK POWER MODE, of a disk that is awake (QEMU's, under a real
        // kernel).
        let awake = [
            0x72, 1, 0, 0x1d, 0, 0, 0, 0x0e, 9, 0x0c, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0x50,
        ];
        let registers = AtaRegisters {
            status: 0x50,
            count: 0xff,
            lba_mid: 0,
            lba_high: 0,
        };
        assert_eq!(
            SenseData::parse(&awake),
            Some(SenseData {
                registers: Some(registers),
                ..fixed
            })
        );
        // The same with SMART's registers, behind another descriptor.
        let descriptors = [
            0x72, 1, 0, 0x1d, 0, 0, 0, 18, 2, 2, 0, 0, 9, 12, 0, 0, 0, 0xff, 0, 0, 0, 0x4f, 0,
            0xc2, 0, 0x50,
        ];
        let registers = AtaRegisters {
            status: 0x50,
            count: 0xff,
            lba_mid: 0x4f,
            lba_high: 0xc2,
        };
        assert_eq!(
            SenseData::parse(&descriptors),
            Some(SenseData {
                registers: Some(registers),
                ..fixed
            })
        );
        // "Invalid command operation code", which has no registers.
        let illegal = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0];
        assert_eq!(
            SenseData::parse(&illegal),
            Some(SenseData {
                key: 5,
                code: (0x20, 0),
                registers: None
            })
        );
        assert_eq!(SenseData::parse(&[0; 32]), None);
    }

    #[test]
    fn the_header_is_laid_out_as_the_kernel_has_it() {
        if cfg!(target_pointer_width = "64") {
            assert_eq!(size_of::<Header>(), 88);
            assert_eq!(std::mem::offset_of!(Header, data), 16);
            assert_eq!(std::mem::offset_of!(Header, status), 64);
            assert_eq!(std::mem::offset_of!(Header, data_missing), 72);
        }
        // A file that is no disk refuses the command.
        assert!(command(&File::open("/dev/null").unwrap(), &[0; 6], &mut []).is_err());
    }

    proptest! {
        #[test]
        fn no_sense_ends_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..40), format in 0x6f_u8..0x75) {
            let _ = SenseData::parse(&bytes);
            let _ = SenseData::parse(&[&[format], &bytes[..]].concat());
        }
    }
}
