//! The file of the strips: `strips.bin`.
//!
//! Magic, checksum of the rest, first and last slot, then for each GPU node, UUID and slots. Numbers
//! are little-endian; texts have their length in front. A file that does not match is not used: the
//! strips are filled again from samples.

use super::{GpuPlace, Rings, SLOTS, Slot};
use std::fs::{File, OpenOptions, rename};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Name of the file.
pub(super) const NAME: &str = "strips.bin";

const MAGIC: &[u8; 8] = b"TAKTSTR1";

/// Largest file that is read: 100,000 GPUs.
const MAX_BYTES: u64 = 256 << 20;

pub(super) fn save(rings: &Rings, directory: &Path) -> io::Result<()> {
    let mut rest = Vec::with_capacity(rings.gpus.len() * (SLOTS as usize + 64));
    rest.extend(rings.from.to_le_bytes());
    rest.extend(rings.until.to_le_bytes());

    for (place, ring) in &rings.gpus {
        for text in [&place.node, &place.uuid] {
            let length = u16::try_from(text.len()).map_err(io::Error::other)?;
            rest.extend(length.to_le_bytes());
            rest.extend(text.as_bytes());
        }
        rest.extend(ring.iter().map(|slot| slot.0));
    }

    let new = directory.join("strips.new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    OpenOptionsExt::mode(&mut options, 0o600);

    let mut file = options.open(&new)?;
    file.write_all(MAGIC)?;
    file.write_all(&checksum(&rest).to_le_bytes())?;
    file.write_all(&rest)?;
    file.sync_all()?;
    rename(new, directory.join(NAME))
}

pub(super) fn load(directory: &Path) -> Option<Rings> {
    let mut bytes = Vec::new();
    let file = File::open(directory.join(NAME)).ok()?;
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let read = parse(&bytes);
    if read.is_none() {
        tracing::warn!(
            file = NAME,
            "the file of the strips is damaged; filling them from samples"
        );
    }
    read
}

fn parse(bytes: &[u8]) -> Option<Rings> {
    let mut left = bytes.strip_prefix(MAGIC)?;
    let expected = number(&mut left)?;
    if expected.cast_unsigned() != checksum(left) {
        return None;
    }

    let mut rings = Rings {
        from: number(&mut left)?,
        until: number(&mut left)?,
        ..Rings::default()
    };

    while !left.is_empty() {
        let place = GpuPlace {
            node: text(&mut left)?,
            uuid: text(&mut left)?,
        };
        let ring = left.split_off(..SLOTS as usize)?;
        rings
            .gpus
            .insert(place, ring.iter().map(|byte| Slot(*byte)).collect());
    }
    Some(rings)
}

fn number(left: &mut &[u8]) -> Option<i64> {
    let bytes = left.split_off(..8)?;
    Some(i64::from_le_bytes(bytes.try_into().ok()?))
}

fn text(left: &mut &[u8]) -> Option<String> {
    let length = left.split_off(..2)?;
    let length = u16::from_le_bytes(length.try_into().ok()?);
    let bytes = left.split_off(..usize::from(length))?;
    String::from_utf8(bytes.to_vec()).ok()
}

/// FNV-1a: detects a file that was cut or changed.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
