//! The index of a segment's file: where its chunks and loose samples are.

use super::record::{Fields, Record, read};
use super::{Coverage, FullChunk, LooseSample, Shape};
use crate::Sample;
use crate::head::STALE;
use roaring::RoaringBitmap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use takt_model::Timestamp;

/// Kinds of records.
pub(super) const SHAPE: u32 = 1;
pub(super) const CHUNK: u32 = 2;
pub(super) const LOOSE: u32 = 3;
pub(super) const DELETED: u32 = 4;
pub(super) const COVERED: u32 = 5;

/// Bytes of a chunk record before the chunk itself.
pub(super) const CHUNK_FIELDS: usize = 44;

/// Bytes of a loose sample in a record.
pub(super) const LOOSE_BYTES: usize = 20;

/// Loose samples between two entries of their index.
pub(super) const LOOSE_STEP: usize = 256;

#[derive(Debug, Default)]
pub(super) struct SegmentState {
    pub groups: Vec<GroupChunks>,
    pub loose: Vec<LooseRecord>,
    /// Loose samples that are in the log only.
    pub loose_waiting: Vec<LooseSample>,
    pub deleted: RoaringBitmap,
    pub coverage: Coverage,
    /// Number of the newest log whose loose samples are in this file.
    pub loose_log: u32,
}

/// Consecutive chunks of one group with the same columns.
#[derive(Debug)]
pub(super) struct GroupChunks {
    pub run: u64,
    pub group: u32,
    pub shape: Arc<Shape>,
    pub chunks: Vec<StoredChunk>,
}

#[derive(Debug, Clone)]
pub(super) struct StoredChunk {
    pub oldest: Timestamp,
    pub newest: Timestamp,
    pub rows: u32,
    pub samples: u32,
    pub place: ChunkPlace,
}

#[derive(Debug, Clone)]
pub(super) enum ChunkPlace {
    Memory(Arc<FullChunk>),
    File { record: Record, index_length: u32 },
}

/// Loose samples in the file, sorted by series and time.
#[derive(Debug, Clone)]
pub(super) struct LooseRecord {
    pub record: Record,
    pub oldest: Timestamp,
    pub newest: Timestamp,
    /// Series of every [`LOOSE_STEP`]th sample.
    pub steps: Arc<[u32]>,
    pub samples: u32,
}

impl SegmentState {
    pub fn push(&mut self, owner: (u64, u32), shape: Arc<Shape>, chunk: StoredChunk) {
        self.coverage.note(owner, chunk.newest);
        let same = self
            .groups
            .iter_mut()
            .rev()
            .find(|group| (group.run, group.group) == owner);
        match same {
            Some(group) if Arc::ptr_eq(&group.shape, &shape) => group.chunks.push(chunk),
            _ => self.groups.push(GroupChunks {
                run: owner.0,
                group: owner.1,
                shape,
                chunks: vec![chunk],
            }),
        }
    }

    pub fn add_loose_record(&mut self, record: Record, content: &[u8]) {
        let samples = &content[4..];
        let times = samples.chunks_exact(LOOSE_BYTES).map(loose_sample);
        let times = times.map(|(_, sample)| sample.at);
        let (oldest, newest) = times.fold(
            (Timestamp(i64::MAX), Timestamp(i64::MIN)),
            |(oldest, newest), at| (oldest.min(at), newest.max(at)),
        );
        let steps = samples.chunks(LOOSE_STEP * LOOSE_BYTES);
        let log = u32::from_le_bytes(content[..4].try_into().expect("4 bytes"));
        self.loose_log = self.loose_log.max(log);
        self.loose.push(LooseRecord {
            record,
            oldest,
            newest,
            steps: steps.map(|step| loose_sample(step).0).collect(),
            samples: (samples.len() / LOOSE_BYTES) as u32,
        });
    }

    /// Adds a record of the file to the index. `None` if it is damaged.
    pub fn restore(
        &mut self,
        file: &File,
        record: Record,
        verify: bool,
        shapes: &mut Vec<Arc<Shape>>,
    ) -> io::Result<Option<()>> {
        // The samples of a chunk are needed only to verify them.
        let length = if record.kind == CHUNK && !verify {
            CHUNK_FIELDS.min(record.length as usize)
        } else {
            record.length as usize
        };
        let content = read(file, record.offset, length)?;
        if content.len() == record.length as usize && !record.is_intact(&content) {
            return Ok(None);
        }
        Ok(self.restore_content(record, &content, shapes))
    }

    fn restore_content(
        &mut self,
        record: Record,
        content: &[u8],
        shapes: &mut Vec<Arc<Shape>>,
    ) -> Option<()> {
        let mut fields = Fields(content);
        match record.kind {
            SHAPE => shapes.push(Arc::new(Shape::decode(content))),
            CHUNK => {
                let owner = (fields.u64()?, fields.u32()?);
                let shape = shapes.get(fields.u32()? as usize)?;
                let oldest = Timestamp(fields.i64()?);
                let newest = Timestamp(fields.i64()?);
                let samples = fields.u32()?;
                let index_length = fields.u32()?;
                let rows = fields.u32()?;
                let chunk = StoredChunk {
                    oldest,
                    newest,
                    rows,
                    samples,
                    place: ChunkPlace::File {
                        record,
                        index_length,
                    },
                };
                self.push(owner, Arc::clone(shape), chunk);
            }
            LOOSE if content.len() >= 4 => self.add_loose_record(record, content),
            DELETED => self.deleted |= RoaringBitmap::deserialize_from(content).ok()?,
            COVERED => {
                while !fields.0.is_empty() {
                    let owner = (fields.u64()?, fields.u32()?);
                    self.coverage.note(owner, Timestamp(fields.i64()?));
                }
            }
            _ => return None,
        }
        Some(())
    }
}

pub(super) fn loose_sample(bytes: &[u8]) -> LooseSample {
    let mut fields = Fields(bytes);
    let read = || Some((fields.u32()?, fields.i64()?, fields.f64()?));
    let (series, at, value) = { read }().unwrap_or((u32::MAX, i64::MIN, STALE));
    let at = Timestamp(at);
    (series, Sample { at, value })
}
