//! Records: the parts of a segment's file and of a log. Each has a length and a checksum.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use xxhash_rust::xxh64::xxh64;

/// Bytes before a record's content.
pub(super) const HEADER: u64 = 16;

/// Longest record. A damaged length must not make a reader allocate all memory.
const MAX_LENGTH: u32 = 1 << 30;

/// Returns the bytes before a record's content: kind, length and checksum.
pub(super) fn header(kind: u32, content: &[u8]) -> io::Result<[u8; HEADER as usize]> {
    let length = u32::try_from(content.len()).ok();
    let length = length
        .filter(|&length| length <= MAX_LENGTH)
        .ok_or_else(|| io::Error::other("a record is longer than a gibibyte"))?;
    let mut header = [0; HEADER as usize];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[8..].copy_from_slice(&xxh64(content, u64::from(kind)).to_le_bytes());
    Ok(header)
}

/// A record's place in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub kind: u32,
    /// Offset of the content.
    pub offset: u64,
    pub length: u32,
    checksum: u64,
}

impl Record {
    /// Reads the header at `offset`. `None` if the file ends before the record does.
    pub fn at(file: &File, offset: u64, end: u64) -> io::Result<Option<Self>> {
        if offset + HEADER > end {
            return Ok(None);
        }
        let mut header = [0; HEADER as usize];
        file.read_exact_at(&mut header, offset)?;
        let record = Self::of(&header, offset);
        let is_whole = record.length <= MAX_LENGTH && record.end() <= end;
        Ok(is_whole.then_some(record))
    }

    /// The record whose header is at `offset`.
    pub fn of(header: &[u8; HEADER as usize], offset: u64) -> Self {
        let four = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        Self {
            kind: four(0),
            offset: offset + HEADER,
            length: four(4),
            checksum: u64::from_le_bytes(header[8..].try_into().expect("8 bytes")),
        }
    }

    /// Offset of the next record.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }

    /// Reads the content.
    pub fn read(&self, file: &File) -> io::Result<Vec<u8>> {
        read(file, self.offset, self.length as usize)
    }

    /// Returns whether `content` is what was written.
    pub fn is_intact(&self, content: &[u8]) -> bool {
        self.is_intact_as(self.kind, content)
    }

    /// Returns whether `content` is what was written as a record of this kind.
    pub fn is_intact_as(&self, kind: u32, content: &[u8]) -> bool {
        xxh64(content, u64::from(kind)) == self.checksum
    }
}

/// Reads a part of a file.
pub(super) fn read(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Reads numbers from the front of a record's content.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `length` bytes. `None` if fewer are left.
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub fn i64(&mut self) -> Option<i64> {
        Some(self.u64()?.cast_signed())
    }

    pub fn f64(&mut self) -> Option<f64> {
        Some(f64::from_bits(self.u64()?))
    }
}
