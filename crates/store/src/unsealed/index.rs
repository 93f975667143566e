//! The index of a segment's file: where its chunks and loose samples are.

use super::loose::{LooseRecord, RUNS, SINGLE};
use super::record::{Fields, Record, read};
use super::{Coverage, FullChunk, LooseBatch, Shape};
use roaring::RoaringBitmap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use takt_model::Timestamp;

/// Kinds of records.
pub(super) const SHAPE: u32 = 1;
pub(super) const CHUNK: u32 = 2;
pub(super) const DELETED: u32 = 4;
pub(super) const COVERED: u32 = 5;

/// Bytes of a chunk record before the chunk itself.
pub(super) const CHUNK_FIELDS: usize = 44;

#[derive(Debug, Default)]
pub(super) struct SegmentState {
    pub groups: Vec<GroupChunks>,
    pub loose: Vec<LooseRecord>,
    /// Loose samples that are in the log only.
    pub loose_waiting: Vec<LooseBatch>,
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

    /// Adds loose samples of the file. `None` if they are damaged.
    pub fn add_loose_record(&mut self, record: Record, content: &[u8]) -> Option<()> {
        let (log, read) = LooseRecord::of(record, content)?;
        self.loose_log = self.loose_log.max(log);
        self.loose.push(read);
        Some(())
    }

    /// Adds a record of the file to the index. `None` if it is damaged, or if its shape is.
    pub fn restore(
        &mut self,
        file: &File,
        record: Record,
        verify: bool,
        shapes: &mut Vec<Option<Arc<Shape>>>,
    ) -> io::Result<Option<()>> {
        // The samples of a chunk are needed only to verify them.
        let length = if record.kind == CHUNK && !verify {
            CHUNK_FIELDS.min(record.length as usize)
        } else {
            record.length as usize
        };
        let content = read(file, record.offset, length)?;
        if content.len() == record.length as usize && !record.is_intact(&content) {
            if record.kind == SHAPE || record.is_intact_as(SHAPE, &content) {
                // The next ones keep their numbers.
                shapes.push(None);
            }
            return Ok(None);
        }
        Ok(self.restore_content(record, &content, shapes))
    }

    fn restore_content(
        &mut self,
        record: Record,
        content: &[u8],
        shapes: &mut Vec<Option<Arc<Shape>>>,
    ) -> Option<()> {
        let mut fields = Fields(content);
        match record.kind {
            SHAPE => shapes.push(Some(Arc::new(Shape::decode(content)))),
            CHUNK => {
                let owner = (fields.u64()?, fields.u32()?);
                let shape = shapes.get(fields.u32()? as usize)?.as_ref()?;
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
            RUNS | SINGLE => self.add_loose_record(record, content)?,
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
