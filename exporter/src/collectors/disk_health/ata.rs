//! ATA disks: power mode, SMART status, SMART attributes and device statistics.
//!
//! Commands and layouts follow ATA/ATAPI Command Set 3 (ACS-3) and, for the numbers of attributes,
//! which no standard defines, smartmontools. The commands go through SCSI's ATA PASS-THROUGH (16).

use super::HealthValues;
use super::scsi::{AtaRegisters, command};
use crate::collector::flag;
use std::fs::File;
use std::io;

const SECTOR: usize = 512;
type Sector = [u8; SECTOR];

const PASS_THROUGH_16: u8 = 0x85;
const CHECK_POWER_MODE: u8 = 0xe5;
const READ_LOG_EXT: u8 = 0x2f;
const SMART: u8 = 0xb0;
const READ_DATA: u8 = 0xd0;
const READ_THRESHOLDS: u8 = 0xd1;
const RETURN_STATUS: u8 = 0xda;
/// LBA mid and high of SMART commands, and of the answer if the disk is healthy. Swapped: the disk
/// predicts failure.
const SMART_IS_MEANT: (u8, u8) = (0x4f, 0xc2);
const DEVICE_STATISTICS: u8 = 0x04;
const FAILED: u8 = 0x01;

/// An ATA command; other registers are 0.
#[derive(Default)]
struct Taskfile {
    feature: u8,
    count: u8,
    lba: (u8, u8, u8),
    command: u8,
    /// Whether the registers have two bytes.
    is_wide: bool,
}

impl Taskfile {
    fn smart(feature: u8) -> Self {
        let (mid, high) = SMART_IS_MEANT;
        Self {
            feature,
            lba: (0, mid, high),
            command: SMART,
            ..Self::default()
        }
    }

    /// The command block of SAT: 3 is a command without data, 4 one that reads.
    fn block(&self, protocol: u8, flags: u8) -> [u8; 16] {
        let Self {
            feature,
            count,
            lba: (low, mid, high),
            command,
            is_wide,
        } = *self;
        let protocol = protocol << 1 | u8::from(is_wide);

        [
            PASS_THROUGH_16,
            protocol,
            flags,
            0,
            feature,
            0,
            count,
            0,
            low,
            0,
            mid,
            0,
            high,
            0,
            command,
            0,
        ]
    }

    /// Sends a command without data and returns the registers. `None` if a bridge does not report
    /// them.
    fn run(&self, disk: &File) -> io::Result<Option<AtaRegisters>> {
        const TELL_THE_REGISTERS: u8 = 0x20;
        let reply = command(disk, &self.block(3, TELL_THE_REGISTERS), &mut [])?;

        let Some(sense) = reply.sense else {
            return Ok(None);
        };
        match sense.registers {
            Some(registers) if registers.status & FAILED == 0 => Ok(Some(registers)),
            _ => Err(refused()),
        }
    }

    /// One sector of data.
    fn read(&self, disk: &File) -> io::Result<Sector> {
        // From the device, in blocks, whose number is in the count.
        const ONE_SECTOR: u8 = 0x0e;
        let mut sector = [0; SECTOR];

        let taskfile = Self { count: 1, ..*self };
        let reply = command(disk, &taskfile.block(4, ONE_SECTOR), &mut sector)?;
        let is_whole = reply.bytes == SECTOR && reply.sense.is_none();
        if is_whole { Ok(sector) } else { Err(refused()) }
    }
}

fn refused() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "the disk, or what is between, refuses the command",
    )
}

/// Returns whether the disk sleeps; the command does not wake it.
pub(super) fn is_asleep(disk: &File) -> io::Result<bool> {
    let question = Taskfile {
        command: CHECK_POWER_MODE,
        ..Taskfile::default()
    };

    // Without an answer to this, the next command might wake the disk.
    let registers = question.run(disk)?.ok_or_else(refused)?;
    // Standby, and a spindle that stands while a cache answers.
    Ok(matches!(registers.count, 0x00 | 0x01 | 0x40))
}

/// Reads the health of a disk. `identity` is its IDENTIFY DEVICE data, if known.
pub(super) fn health(disk: &File, identity: Option<&[u8]>) -> io::Result<HealthValues> {
    let attributes = Taskfile::smart(READ_DATA).read(disk)?;

    // Each further value may be missing.
    let thresholds = Taskfile::smart(READ_THRESHOLDS).read(disk).ok();
    let status = Taskfile::smart(RETURN_STATUS).run(disk).ok().flatten();
    let is_well = status.and_then(judgement);

    let mut health = HealthValues {
        healthy: is_well.map(flag),
        ..HealthValues::default()
    };

    read_attributes(&attributes, thresholds.as_ref(), &mut health);

    if let Some(identity) = identity.filter(|identity| keeps_statistics(identity)) {
        let sector_bytes = logical_sector_bytes(identity);
        for page in [GENERAL, SOLID_STATE] {
            let question = Taskfile {
                lba: (DEVICE_STATISTICS, page, 0),
                command: READ_LOG_EXT,
                is_wide: true,
                ..Taskfile::default()
            };
            if let Ok(statistics) = question.read(disk) {
                read_statistics(&statistics, page, sector_bytes, &mut health);
            }
        }
    }
    Ok(health)
}

fn judgement(registers: AtaRegisters) -> Option<bool> {
    match (registers.lba_mid, registers.lba_high) {
        SMART_IS_MEANT => Some(true),
        (0xf4, 0x2c) => Some(false),
        _ => None,
    }
}

/// SMART READ DATA and READ THRESHOLDS: up to 30 entries of 12 bytes each. A page with a wrong
/// checksum is dropped.
fn read_attributes(data: &Sector, thresholds: Option<&Sector>, health: &mut HealthValues) {
    if !adds_up(data) {
        return;
    }
    let thresholds = thresholds.filter(|thresholds| adds_up(thresholds));

    let mut failing = 0;
    for entry in entries(data) {
        let count = |bytes: usize| Some(number(&entry[5..5 + bytes]));
        let temperature =
            || Some(f64::from(entry[5])).filter(|celsius| (1.0..=120.0).contains(celsius));

        // Some makers keep other things in the upper bytes, by smartmontools' drive database: 5 and
        // 188 have two bytes, 9 three, temperatures one with the lowest and the highest beside it.
        match entry[0] {
            5 => health.reallocated = count(2),
            9 => health.power_on_seconds = count(3).map(|hours| hours * 3600.0),
            187 => health.reported_uncorrectable = count(4),
            188 => health.command_timeouts = count(2),
            190 => health.temperature = health.temperature.or_else(temperature),
            194 => health.temperature = temperature().or(health.temperature),
            197 => health.pending = count(4),
            198 => health.offline_uncorrectable = count(4),
            199 => health.crc_errors = count(4),
            _ => {}
        }

        let threshold =
            thresholds.and_then(|page| entries(page).find(|threshold| threshold[0] == entry[0]));

        // 0 never fails, 0xff is for tests; values are 1 to 0xfd.
        let is_failing = |threshold: u8| {
            matches!(threshold, 1..=0xfd) && matches!(entry[3], 1..=0xfd) && entry[3] <= threshold
        };
        failing += u32::from(threshold.is_some_and(|threshold| is_failing(threshold[1])));
    }

    health.failing_attributes = thresholds.map(|_| f64::from(failing));
}

/// Numbers are little-endian.
fn number(bytes: &[u8]) -> f64 {
    let digits = bytes.iter().rev();
    digits.fold(0_u64, |number, byte| number << 8 | u64::from(*byte)) as f64
}

fn entries(page: &Sector) -> impl Iterator<Item = &[u8]> {
    let entries = page[2..2 + 30 * 12].chunks_exact(12);
    entries.filter(|entry| entry[0] != 0)
}

fn adds_up(page: &Sector) -> bool {
    let sum = page.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    // All zeros add up as well, and are no page.
    sum == 0 && page.iter().any(|byte| *byte != 0)
}

/// A word of IDENTIFY DEVICE.
fn word(identity: &[u8], number: usize) -> u16 {
    let bytes = identity.get(2 * number..2 * number + 2);
    bytes.map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

/// Returns whether logs can be read page by page. Otherwise they are not read, since some old
/// firmware hangs.
fn keeps_statistics(identity: &[u8]) -> bool {
    let features = word(identity, 87);
    features >> 14 == 0b01 && features & 1 << 5 != 0
}

/// Returns the size of a logical sector in bytes; default 512.
fn logical_sector_bytes(identity: &[u8]) -> f64 {
    let sizes = word(identity, 106);
    if sizes >> 14 == 0b01 && sizes & 1 << 12 != 0 {
        let words = u32::from(word(identity, 117)) | u32::from(word(identity, 118)) << 16;
        return 2.0 * f64::from(words);
    }
    512.0
}

/// Pages of the device statistics log.
const GENERAL: u8 = 1;
const SOLID_STATE: u8 = 7;

/// Their units are standardised, unlike those of attributes, so they take precedence.
fn read_statistics(statistics: &Sector, page: u8, sector_bytes: f64, health: &mut HealthValues) {
    if statistics[2] != page {
        return;
    }
    // Eight bytes each: the value, and in the last byte whether it is supported and valid.
    let valid = |at: usize, bytes: usize| {
        (statistics[at + 7] & 0xc0 == 0xc0).then(|| number(&statistics[at..at + bytes]))
    };

    match page {
        GENERAL => {
            let sectors = |at| valid(at, 6).map(|sectors| sectors * sector_bytes);
            let power_on = valid(0x10, 4).map(|hours| hours * 3600.0);
            health.power_on_seconds = power_on.or(health.power_on_seconds);
            health.written_bytes = sectors(0x18);
            health.read_bytes = sectors(0x28);
        }
        _ => health.used = valid(0x08, 1).map(|percent| percent / 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A page of entries, with its sum.
    fn page(entries: &[[u8; 12]]) -> Sector {
        let mut page = [0; SECTOR];
        for (place, entry) in page[2..].chunks_exact_mut(12).zip(entries) {
            place.copy_from_slice(entry);
        }
        page[511] = page.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
        page
    }

    fn read(data: &Sector, thresholds: Option<&Sector>) -> HealthValues {
        let mut health = HealthValues::default();
        read_attributes(data, thresholds, &mut health);
        health
    }

    #[test]
    fn attributes_in_base_units() {
        let data = page(&[
            [5, 0x33, 0, 100, 100, 8, 0, 0xff, 0xff, 0, 0, 0],
            [9, 0x32, 0, 100, 100, 0x53, 0x2d, 0, 7, 0, 0, 0],
            [187, 0x32, 0, 98, 98, 2, 0, 0, 0, 0, 0, 0],
            [188, 0x32, 0, 100, 100, 1, 0, 1, 0, 1, 0, 0],
            [190, 0x22, 0, 60, 50, 40, 0, 40, 21, 0, 0, 0],
            [194, 0x22, 0, 41, 50, 41, 0, 0, 0, 18, 0, 0],
            [197, 0x12, 0, 100, 100, 16, 0, 0, 0, 0, 0, 0],
            [198, 0x10, 0, 100, 100, 3, 1, 0, 0, 0, 0, 0],
            [199, 0x3e, 0, 200, 200, 5, 0, 0, 0, 0, 0, 0],
        ]);
        let expected = HealthValues {
            reallocated: Some(8.0),
            power_on_seconds: Some(11_603.0 * 3600.0),
            reported_uncorrectable: Some(2.0),
            command_timeouts: Some(1.0),
            temperature: Some(41.0),
            pending: Some(16.0),
            offline_uncorrectable: Some(259.0),
            crc_errors: Some(5.0),
            ..HealthValues::default()
        };
        assert_eq!(read(&data, None), expected);
        let mut torn = data;
        torn[20] ^= 1;
        assert_eq!(
            read(&torn, None),
            HealthValues::default(),
            "a page whose sum is wrong"
        );
        assert_eq!(
            read(&[0; SECTOR], Some(&[0; SECTOR])),
            HealthValues::default(),
            "a bridge that answers with nothing"
        );
    }

    /// Data of QEMU's disk under Linux 6.1, and smartctl's reading: no reallocated sector, one
    /// hour, 31 °C.
    #[test]
    fn a_page_as_smartctl_showed_it() {
        let data = page(&[
            [0x01, 0x03, 0, 0x64, 0x64, 0, 0, 0, 0, 0, 0, 0],
            [0x03, 0x03, 0, 0x64, 0x64, 0x10, 0, 0, 0, 0, 0, 0],
            [0x04, 0x02, 0, 0x64, 0x64, 0x64, 0, 0, 0, 0, 0, 0],
            [0x05, 0x03, 0, 0x64, 0x64, 0, 0, 0, 0, 0, 0, 0],
            [0x09, 0x03, 0, 0x64, 0x64, 0x01, 0, 0, 0, 0, 0, 0],
            [0x0c, 0x03, 0, 0x64, 0x64, 0, 0, 0, 0, 0, 0, 0],
            [0xbe, 0x03, 0, 0x45, 0x45, 0x1f, 0, 0x1f, 0x1f, 0, 0, 0],
        ]);
        let health = read(&data, None);
        assert_eq!(
            (
                health.reallocated,
                health.power_on_seconds,
                health.temperature
            ),
            (Some(0.0), Some(3600.0), Some(31.0))
        );
        assert_eq!(
            health.failing_attributes, None,
            "unknown without thresholds"
        );
    }

    #[test]
    fn a_value_at_its_threshold_fails() {
        let threshold = |id, threshold| [id, threshold, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let sound = page(&[
            [5, 0x33, 0, 100, 100, 0, 0, 0, 0, 0, 0, 0],
            [9, 0x32, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0],
        ]);
        let thresholds = page(&[threshold(5, 36), threshold(9, 0)]);
        assert_eq!(
            read(&sound, Some(&thresholds)).failing_attributes,
            Some(0.0),
            "0 never fails"
        );
        let worn = page(&[
            [5, 0x33, 0, 36, 36, 0, 0, 0, 0, 0, 0, 0],
            [0xe8, 0, 0, 9, 9, 0, 0, 0, 0, 0, 0, 0],
        ]);
        let thresholds = page(&[threshold(0xe8, 10), threshold(5, 36)]);
        assert_eq!(read(&worn, Some(&thresholds)).failing_attributes, Some(2.0));
    }

    #[test]
    fn statistics_have_units_that_all_share() {
        let mut general = [0; SECTOR];
        general[..3].copy_from_slice(&[1, 0, GENERAL]);
        for (at, number, flags) in [(0x10, 5_u64, 0xc0_u64), (0x18, 3, 0xc0), (0x28, 9, 0x80)] {
            general[at..at + 8].copy_from_slice(&(number | flags << 56).to_le_bytes());
        }
        let mut health = HealthValues {
            power_on_seconds: Some(1.0),
            ..HealthValues::default()
        };
        read_statistics(&general, GENERAL, 4096.0, &mut health);
        let bytes = (
            health.power_on_seconds,
            health.written_bytes,
            health.read_bytes,
        );
        assert_eq!(
            bytes,
            (Some(18_000.0), Some(12_288.0), None),
            "what is not valid is left out"
        );
        let mut solid = [0; SECTOR];
        solid[2] = SOLID_STATE;
        solid[8..16].copy_from_slice(&[103, 0, 0, 0, 0, 0, 0, 0xc0]);
        read_statistics(&solid, SOLID_STATE, 512.0, &mut health);
        assert_eq!(health.used, Some(1.03));
    }

    #[test]
    fn commands_are_laid_out_as_sat_has_them() {
        // SMART READ DATA and CHECK POWER MODE, as smartmontools and hdparm send them.
        let read = Taskfile {
            count: 1,
            ..Taskfile::smart(READ_DATA)
        };
        assert_eq!(
            read.block(4, 0x0e),
            [
                0x85, 8, 0x0e, 0, 0xd0, 0, 1, 0, 0, 0, 0x4f, 0, 0xc2, 0, 0xb0, 0
            ]
        );
        let power = Taskfile {
            command: CHECK_POWER_MODE,
            ..Taskfile::default()
        };
        assert_eq!(
            power.block(3, 0x20),
            [0x85, 6, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xe5, 0]
        );
    }

    #[test]
    fn the_disk_s_own_judgement() {
        let told = |mid, high| {
            judgement(AtaRegisters {
                status: 0x50,
                count: 0,
                lba_mid: mid,
                lba_high: high,
            })
        };
        assert_eq!(
            [told(0x4f, 0xc2), told(0xf4, 0x2c), told(0, 0)],
            [Some(true), Some(false), None]
        );
    }

    proptest! {
        #[test]
        fn no_page_ends_the_reader(
            bytes in prop::collection::vec(any::<u8>(), SECTOR),
            others in prop::collection::vec(any::<u8>(), SECTOR),
            identity in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let whole = |bytes: &[u8]| -> Sector {
                let mut page: Sector = bytes.try_into().unwrap();
                let sum = page.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
                page[511] = page[511].wrapping_sub(sum);
                page
            };
            let data = whole(&bytes);
            let thresholds = whole(&others);
            let mut health = read(&data, Some(&thresholds));
            let _ = keeps_statistics(&identity);
            let sector_bytes = logical_sector_bytes(&identity);
            for page in [GENERAL, SOLID_STATE] {
                let mut statistics = data;
                statistics[2] = page;
                read_statistics(&statistics, page, sector_bytes, &mut health);
            }
            prop_assert!(health.values().into_iter().flatten().all(f64::is_finite));
        }
    }
}
