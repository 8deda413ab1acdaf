//! A whole simulated disk as a value: names, files, and what of both is durable.
//!
//! Operations change it; [`Image::power_cut`] makes the disk of it that a machine finds when it is
//! switched on again. It is cheap to copy, so one recorded history gives thousands of cuts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::model::Mark;
use super::names::{Change, Names, Node};
use super::pages::PAGE;
use super::platter::{Keep, Medium, Platter};
use super::random::Random;

/// One thing that happened to a disk, with its data.
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
    /// Stores through a shared mapping, found when something else happened.
    Stored {
        file: u64,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    SetLength {
        file: u64,
        length: u64,
    },
    /// Disk space for a range, which makes the file longer if it has to.
    Reserve {
        file: u64,
        offset: u64,
        length: u64,
    },
    /// The disk space of a range is free again. Its bytes were written over with zeros before.
    GiveBack {
        file: u64,
        offset: u64,
        length: u64,
    },
    Sync {
        file: u64,
    },
    /// A flush returned an error.
    FlushFailed {
        file: u64,
    },
    /// Nothing the disk knows of: what the program promised or saw.
    Mark(Mark),
}

impl Operation {
    /// Could a cut in the middle of it leave anything that a cut before or after does not?
    pub(super) fn is_long(&self) -> bool {
        match self {
            Operation::Write { bytes, durable, .. } => *durable || bytes.len() > 512,
            Operation::Sync { .. } | Operation::SyncAll | Operation::SyncDirectory(_) => true,
            _ => false,
        }
    }

    /// Does it change what a cut can leave?
    pub(super) fn matters(&self) -> bool {
        !matches!(self, Operation::Mark(_))
    }
}

/// Bytes of a write that the kernel had copied when the process was killed: it stops between two
/// pages only.
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
    files: BTreeMap<u64, Arc<Platter>>,
    next: u64,
    pub(super) medium: Medium,
    /// Which run of the machine it is: one more after each power cut.
    pub(super) boot: u64,
    /// The object's log is kept for good.
    pub(super) permanent_log: bool,
    /// A process that may be alive has seen that log replayed since the last power cut.
    pub(super) replayed: bool,
}

impl Image {
    /// An empty disk: a root directory.
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

    /// A file by its number.
    pub(super) fn file(&self, id: u64) -> Option<&Platter> {
        self.files.get(&id).map(|file| &**file)
    }

    fn names_mut(&mut self) -> &mut Names {
        Arc::make_mut(&mut self.names)
    }

    fn file_mut(&mut self, id: u64) -> &mut Platter {
        Arc::make_mut(self.files.entry(id).or_default())
    }

    fn make(&mut self, path: &Path, node: impl Fn(u64) -> Node) -> u64 {
        let id = self.next;
        self.next += 1;
        self.names_mut().change(Change::Make(path.to_path_buf(), node(id)));
        id
    }

    /// Does what an operation does when it comes to its end. Gives a new file's number.
    pub(super) fn happen(&mut self, operation: &Operation) -> u64 {
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
                let platter = self.file_mut(*file);
                platter.write(*offset, Arc::clone(bytes));
                if *durable {
                    platter.settle(*offset, bytes.len() as u64, medium);
                }
            }
            Operation::Stored { file, offset, bytes } => {
                self.file_mut(*file).write(*offset, Arc::clone(bytes));
            }
            Operation::SetLength { file, length } => self.file_mut(*file).set_length(*length),
            Operation::Reserve { file, offset, length } => {
                self.file_mut(*file).reserve(*offset, *length);
            }
            Operation::GiveBack { file, offset, length } => {
                self.file_mut(*file).give_back(*offset, *length);
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

    /// Does what an operation may have done when the machine, or the process, stops in the middle
    /// of it. `kill`: the kernel had copied a part of the bytes, in order, and nothing was flushed.
    pub(super) fn happen_in_part(
        &mut self,
        operation: &Operation,
        kill: bool,
        random: &mut Random,
    ) {
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
                self.happen(other);
            }
        }
    }

    /// The disk after a power cut. `keep` for everything, or each file its own.
    pub(super) fn power_cut(&self, keep: Option<Keep>, random: &mut Random) -> Image {
        let common = if random.chance(1, 2) { Some(Keep::pick(random)) } else { None };
        let common = keep.or(common);
        let choose = |random: &mut Random| common.unwrap_or_else(|| Keep::pick(random));
        let names = self.names.cut(choose(random), random);
        let reachable = names.files();
        let mut files = BTreeMap::new();
        for (id, file) in self.files.iter().filter(|(id, _)| reachable.contains(id)) {
            let keep = choose(random);
            let kept = if file.is_durable() {
                Arc::clone(file)
            } else {
                Arc::new(file.cut(keep, self.medium, random))
            };
            files.insert(*id, kept);
        }
        let boot = self.boot + 1;
        Image { names: Arc::new(names), files, boot, replayed: false, ..self.clone() }
    }

    /// Everything is durable: what a careful copy of the disk would be.
    pub(super) fn settled(&self) -> Image {
        let mut settled = self.clone();
        settled.happen(&Operation::SyncAll);
        settled
    }
}
