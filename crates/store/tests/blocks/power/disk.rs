//! A model of a disk: recorded changes of files, and what a power loss leaves of them.
//!
//! A sync makes the content of its file durable, and all changes of names before it, as the journals
//! of ext4 and XFS do. Of everything later, a power loss keeps any part: any pages of 4 KiB of the
//! written bytes, and the changes of names up to any point.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const PAGE: u64 = 4096;

/// One recorded change. `tests/fault-layer/record.c` describes the format.
pub struct Change {
    pub kind: u8,
    inode: u64,
    at: u64,
    content: Rc<[u8]>,
}

/// Reads a record.
pub fn read(path: &Path) -> Vec<Change> {
    let bytes = fs::read(path).unwrap();
    let mut rest = bytes.as_slice();
    let mut changes = Vec::new();
    while !rest.is_empty() {
        // A record has kind, inode, offset and length, and then the content.
        let number = |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().unwrap());
        let length = u32::from_le_bytes(rest[17..21].try_into().unwrap()) as usize;
        changes.push(Change {
            kind: rest[0],
            inode: number(1),
            at: number(9),
            content: rest[21..21 + length].into(),
        });
        rest = &rest[21 + length..];
    }
    changes
}

/// Part of the pending changes that a crash keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// Everything, as after `kill -9`.
    Process,
    /// Everything, but only half of the last write: a signal ends a large write between two pages.
    Torn,
    /// Nothing.
    Power,
    /// A random part.
    PowerWithParts(u64),
}

#[derive(Clone)]
enum Pending {
    Write(u64, Rc<[u8]>),
    Length(u64),
}

/// Content of a file: durable bytes and later changes.
#[derive(Default)]
struct Content {
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

/// A folder, or the number of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Entry {
    Folder,
    File(usize),
}

type Names = BTreeMap<PathBuf, Entry>;

#[derive(Clone)]
enum NameChange {
    Add(PathBuf, Entry),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

/// The disk under one directory.
#[derive(Default)]
pub struct Disk {
    root: PathBuf,
    contents: Vec<Content>,
    by_inode: HashMap<u64, usize>,
    durable: Names,
    names: Names,
    pending: Vec<NameChange>,
    acknowledged: Option<usize>,
    /// The last number that the program acknowledged.
    pub done: i64,
}

/// The files after a crash.
#[derive(PartialEq, Eq, Hash)]
pub struct Remains(Vec<(PathBuf, Option<Vec<u8>>)>);

impl Disk {
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            ..Self::default()
        }
    }

    /// Applies a recorded change.
    pub fn apply(&mut self, change: &Change) {
        let text = || String::from_utf8(change.content.to_vec()).unwrap();
        let path = |text: &str| Path::new(text).strip_prefix(&self.root).unwrap().to_owned();
        match change.kind {
            b'C' => {
                let path = path(&text());
                let number = self.contents.len();
                self.contents.push(Content::default());
                self.by_inode.insert(change.inode, number);
                // The program writes into this file which commits it acknowledged. It is no part of the disk.
                if path.as_os_str() == "ACK" {
                    self.acknowledged = Some(number);
                } else {
                    self.rename(NameChange::Add(path, Entry::File(number)));
                }
            }
            b'D' => self.rename(NameChange::Add(path(&text()), Entry::Folder)),
            b'U' | b'X' => self.rename(NameChange::Remove(path(&text()))),
            b'R' | b'L' => {
                let both = text();
                let (from, to) = both.split_once('\0').unwrap();
                let from = path(from);
                let to = path(to);
                let change = if change.kind == b'R' {
                    NameChange::Rename(from, to)
                } else {
                    // A hard link is a second name of the same content.
                    NameChange::Add(to, self.names[&from])
                };
                self.rename(change);
            }
            b'S' => {
                if let Some(&number) = self.by_inode.get(&change.inode) {
                    let content = &mut self.contents[number];
                    for pending in content.pending.drain(..) {
                        set(&mut content.durable, &pending, |_| true);
                    }
                }
                self.durable.clone_from(&self.names);
                self.pending.clear();
            }
            b'W' | b'T' => {
                let number = self.by_inode[&change.inode];
                if self.acknowledged == Some(number) {
                    self.done = text().trim().parse().unwrap();
                } else {
                    self.contents[number].pending.push(if change.kind == b'W' {
                        Pending::Write(change.at, Rc::clone(&change.content))
                    } else {
                        Pending::Length(change.at)
                    });
                }
            }
            other => panic!("{other}"),
        }
    }

    fn rename(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.pending.push(change);
    }

    /// The files after a crash. `last` is the change before the crash.
    pub fn after(&self, crash: Crash, last: &Change) -> Remains {
        let mut random = Random(match crash {
            Crash::PowerWithParts(seed) => seed,
            _ => 0,
        });
        let names = match crash {
            Crash::Process | Crash::Torn => self.names.clone(),
            Crash::Power => self.durable.clone(),
            Crash::PowerWithParts(_) => {
                let mut names = self.durable.clone();

                // A journal keeps the order of changes of names, so a crash leaves the first few of them.
                let kept = random.below(self.pending.len() as u64 + 1) as usize;
                for change in &self.pending[..kept] {
                    apply(&mut names, change);
                }
                names
            }
        };
        let mut torn = self.by_inode.get(&last.inode).copied();
        torn = torn.filter(|_| crash == Crash::Torn && last.kind == b'W');
        let files = names
            .into_iter()
            .map(|(path, entry)| {
                let Entry::File(number) = entry else {
                    return (path, None);
                };
                let content = &self.contents[number];
                let mut bytes = content.durable.clone();
                let end = content.pending.len();
                for (n, pending) in content.pending.iter().enumerate() {
                    match crash {
                        Crash::Power => {}
                        Crash::Torn if torn == Some(number) && n + 1 == end => {
                            let Pending::Write(at, written) = pending else {
                                continue;
                            };
                            let half = written[..written.len() / 2].into();
                            set(&mut bytes, &Pending::Write(*at, half), |_| true);
                        }
                        Crash::Process | Crash::Torn => set(&mut bytes, pending, |_| true),
                        Crash::PowerWithParts(_) => {
                            set(&mut bytes, pending, |_| random.below(2) == 0);
                        }
                    }
                }
                (path, Some(bytes))
            })
            .collect();
        Remains(files)
    }
}

impl Remains {
    /// Writes the files into an empty directory.
    pub fn write(&self, to: &Path) {
        for (path, bytes) in &self.0 {
            let path = to.join(path);
            match bytes {
                Some(bytes) => fs::write(&path, bytes).unwrap(),
                None => fs::create_dir_all(&path).unwrap(),
            }
        }
    }

    /// Whether a file with this name exists.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(path, _)| path.as_os_str() == name)
    }
}

/// Applies a change of a file's content. Asks for each page of a write whether it is kept.
fn set(bytes: &mut Vec<u8>, change: &Pending, mut is_kept: impl FnMut(u64) -> bool) {
    match change {
        Pending::Length(length) => {
            if is_kept(0) {
                bytes.resize(*length as usize, 0);
            }
        }
        Pending::Write(at, written) => {
            let end = at + written.len() as u64;
            let mut from = *at;
            while from < end {
                // A page is kept or lost as a whole.
                let to = end.min((from / PAGE + 1) * PAGE);
                if is_kept(from / PAGE) {
                    // A lost page in front of a kept one reads as zeros.
                    if bytes.len() < to as usize {
                        bytes.resize(to as usize, 0);
                    }
                    let part = &written[(from - at) as usize..(to - at) as usize];
                    bytes[from as usize..to as usize].copy_from_slice(part);
                }
                from = to;
            }
        }
    }
}

fn apply(names: &mut Names, change: &NameChange) {
    match change {
        NameChange::Add(path, entry) => drop(names.insert(path.clone(), *entry)),
        NameChange::Remove(path) => drop(names.remove(path)),
        NameChange::Rename(from, to) => {
            // A folder takes its entries along.
            let moved: Vec<PathBuf> = names
                .keys()
                .filter(|path| path.starts_with(from))
                .cloned()
                .collect();
            for path in moved {
                let entry = names.remove(&path).unwrap();
                let rest = path.strip_prefix(from).unwrap();
                let new = if rest.as_os_str().is_empty() {
                    to.clone()
                } else {
                    to.join(rest)
                };
                names.insert(new, entry);
            }
        }
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        // Zero would stay zero.
        self.0 = self.0.max(1);
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}
