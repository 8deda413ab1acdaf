//! A complete simulated disk as a value: names, files, and which parts of both are durable.
//!
//! Operations change it. [`Image::power_failure`] derives the disk that the machine finds at the
//! next boot. Copies are cheap, so one recorded workload yields thousands of crash points.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::model::Mark;
use super::names::{Change, Names, Node};
use super::pages::PAGE;
use super::random::Random;
use super::versions::{FileVersions, Keep, Medium};

/// An operation on a disk, with its data.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    MakeDirectory(PathBuf),
    Create(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    SyncDirectory(PathBuf),
    SyncAll,
    Write {
        file: u64,
        offset: u64,
        bytes: Arc<[u8]>,
        durable: bool,
    },
    /// Stores through a shared mapping, detected at the next operation.
    Stored {
        file: u64,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    SetLength {
        file: u64,
        length: u64,
    },
    /// Allocates disk space for a range and extends the file if necessary.
    Reserve {
        file: u64,
        offset: u64,
        length: u64,
    },
    /// Frees the disk space of a range, which was overwritten with zeros before.
    FreeSpace {
        file: u64,
        offset: u64,
        length: u64,
    },
    Sync {
        file: u64,
    },
    /// A flush that returned an error.
    FlushFailed {
        file: u64,
    },
    /// A promise or an observation of the program. No effect on the disk.
    Mark(Mark),
}

impl Operation {
    /// Returns true if a crash in the middle can leave other states than a crash before or after
    /// it.
    pub(super) fn is_long(&self) -> bool {
        match self {
            Operation::Write { bytes, durable, .. } => *durable || bytes.len() > 512,
            Operation::Sync { .. } | Operation::SyncAll | Operation::SyncDirectory(_) => true,
            _ => false,
        }
    }

    /// Returns true if the operation changes what a crash can leave.
    pub(super) fn matters(&self) -> bool {
        !matches!(self, Operation::Mark(_))
    }
}

/// Returns how many bytes of a write the kernel copied before the process was killed. A kill stops
/// a write only between pages.
pub(super) fn whole_pages(offset: u64, length: usize, random: &mut Random) -> usize {
    let first = offset / PAGE;
    let last = (offset + length as u64).div_ceil(PAGE);
    let end = (first + random.below((last - first) as usize + 1) as u64) * PAGE;
    end.saturating_sub(offset).min(length as u64) as usize
}

/// A disk.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) names: Arc<Names>,
    files: BTreeMap<u64, Arc<FileVersions>>,
    next: u64,
    pub(super) medium: Medium,
    /// Boot number: increases with each power failure.
    pub(super) boot: u64,
    /// The object has a permanent log.
    pub(super) permanent_log: bool,
    /// Since the last power failure, a process that may still run had that log replayed.
    pub(super) replayed: bool,
}

impl Image {
    /// Creates an empty disk with a root directory.
    pub(super) fn new(medium: Medium) -> Image {
        Image {
            names: Arc::new(Names::new(0)),
            files: BTreeMap::new(),
            next: 1,
            medium,
            boot: 1,
            permanent_log: false,
            replayed: false,
        }
    }

    /// Returns a file by its number.
    pub(super) fn file(&self, id: u64) -> Option<&FileVersions> {
        self.files.get(&id).map(|file| &**file)
    }

    fn names_mut(&mut self) -> &mut Names {
        Arc::make_mut(&mut self.names)
    }

    fn file_mut(&mut self, id: u64) -> &mut FileVersions {
        Arc::make_mut(self.files.entry(id).or_default())
    }

    fn make(&mut self, path: &Path, node: impl Fn(u64) -> Node) -> u64 {
        let id = self.next;
        self.next += 1;
        self.names_mut().change(Change::Make(path.to_path_buf(), node(id)));
        id
    }

    /// Applies a complete operation. Returns the number of a new file.
    pub(super) fn apply(&mut self, operation: &Operation) -> u64 {
        let medium = self.medium;
        match operation {
            Operation::MakeDirectory(path) => return self.make(path, Node::Directory),
            Operation::Create(path) => {
                let id = self.make(path, Node::File);
                self.files.insert(id, Arc::default());
                return id;
            }
            Operation::Rename(from, to) => {
                self.names_mut().change(Change::Rename(from.clone(), to.clone()));
            }
            Operation::Remove(path) => self.names_mut().change(Change::Remove(path.clone())),
            Operation::SyncDirectory(path) => self.names_mut().sync(path),
            Operation::SyncAll => {
                self.names_mut().sync_all();
                for file in self.files.values_mut() {
                    Arc::make_mut(file).sync(medium);
                }
            }
            Operation::Write { file, offset, bytes, durable } => {
                let versions = self.file_mut(*file);
                versions.write(*offset, Arc::clone(bytes));
                if *durable {
                    versions.make_durable(*offset, bytes.len() as u64, medium);
                }
            }
            Operation::Stored { file, offset, bytes } => {
                self.file_mut(*file).write(*offset, Arc::clone(bytes));
            }
            Operation::SetLength { file, length } => self.file_mut(*file).set_length(*length),
            Operation::Reserve { file, offset, length } => {
                self.file_mut(*file).reserve(*offset, *length);
            }
            Operation::FreeSpace { file, offset, length } => {
                self.file_mut(*file).free_space(*offset, *length);
            }
            Operation::Sync { file } => self.file_mut(*file).sync(medium),
            Operation::FlushFailed { file } => self.file_mut(*file).flush_failed(),
            Operation::Mark(mark) => {
                self.permanent_log |= *mark == Mark::LogIsPermanent;
                self.replayed |= *mark == Mark::Replayed;
            }
        }
        0
    }

    /// Applies an operation that a crash interrupted. With `kill`, the kernel had copied a part of
    /// the bytes, in order, and nothing was flushed.
    pub(super) fn apply_partly(&mut self, operation: &Operation, kill: bool, random: &mut Random) {
        match operation {
            Operation::Write { file, offset, bytes, .. } => {
                let reach =
                    if kill { whole_pages(*offset, bytes.len(), random) } else { bytes.len() };
                let bytes: Arc<[u8]> = Arc::from(&bytes[..reach]);
                if !bytes.is_empty() {
                    self.file_mut(*file).write(*offset, bytes);
                }
            }
            Operation::Sync { .. } | Operation::SyncAll | Operation::SyncDirectory(_) => {}
            other => {
                self.apply(other);
            }
        }
    }

    /// Returns the disk after a power failure. `keep` applies to all files; with `None`, each file
    /// may differ.
    pub(super) fn power_failure(&self, keep: Option<Keep>, random: &mut Random) -> Image {
        let common = if random.chance(1, 2) { Some(Keep::pick(random)) } else { None };
        let common = keep.or(common);
        let choose = |random: &mut Random| common.unwrap_or_else(|| Keep::pick(random));
        let names = self.names.after_power_failure(choose(random), random);
        let reachable = names.files();
        let mut files = BTreeMap::new();
        for (id, file) in self.files.iter().filter(|(id, _)| reachable.contains(id)) {
            let keep = choose(random);
            let kept = if file.is_durable() {
                Arc::clone(file)
            } else {
                Arc::new(file.after_power_failure(keep, self.medium, random))
            };
            files.insert(*id, kept);
        }
        let boot = self.boot + 1;
        Image { names: Arc::new(names), files, boot, replayed: false, ..self.clone() }
    }

    /// Returns the disk with everything flushed.
    pub(super) fn flushed(&self) -> Image {
        let mut settled = self.clone();
        settled.apply(&Operation::SyncAll);
        settled
    }
}
