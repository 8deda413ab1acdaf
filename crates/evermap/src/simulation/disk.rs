//! Simulated disk: [`Storage`] over an [`Image`], with a memory file for each open file.
//!
//! Memory files let the kernel provide mappings, private copies and locks. Every call is recorded,
//! so that a crash at any call can be derived later. Any call can be made to fail.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{self, MemfdFlags, Mode, OFlags};

use super::file::SimulatedFile;
use super::image::{Image, Operation};
use super::model::Mark;
use super::names::Node;
use super::pages::PAGE;
use super::versions::Medium;
use crate::error::{Error, Result};
use crate::storage::{Boot, File, FileIdentity, FileSystem, OpenMode, Storage};

/// Kind of failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The device reports an error; nothing was done.
    Device,
    /// No space. Calls that allocate none fail as with `Device`.
    Full,
    /// A write stops half-way for lack of space; other calls fail as with `Full`.
    Short,
}

/// The call that fails, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) at_call: usize,
    pub(super) failure: Failure,
    /// All later calls that allocate fail too, as on a disk that stays full.
    pub(super) persistent: bool,
}

/// The start of a disk and all operations since.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    pub(super) start: Image,
    pub(super) operations: Vec<Operation>,
}

/// A file that was opened since the disk was powered on.
struct OpenedFile {
    memory: OwnedFd,
    /// The file may be mapped writable, so stores must be detected.
    mapped: bool,
    /// A flush failed, and the kernel treats the pages as clean.
    flush_failed: bool,
}

struct State {
    image: Image,
    live: BTreeMap<u64, OpenedFile>,
    trace: Vec<Operation>,
    /// For each call that can fail: true if it allocates space.
    calls: Vec<bool>,
    fault: Option<Fault>,
    /// Calls that were made to fail.
    faults: Vec<String>,
    /// Files whose failed flush was retried.
    retried_flushes: Vec<PathBuf>,
    /// No free blocks are left.
    full: bool,
}

impl State {
    fn detect_stores(&mut self) {
        let sector = self.image.medium.sector as usize;
        let mut buffer = Vec::new();
        for (id, live) in self.live.iter().filter(|(_, live)| live.mapped) {
            let Some(file) = self.image.file(*id) else { continue };
            let length = file.cache().length();
            let mut found = Vec::new();
            for (start, end) in data_ranges(&live.memory, length) {
                buffer.resize((end - start) as usize, 0);
                read_exactly(&live.memory, &mut buffer, start);
                for (offset, bytes) in file.cache().differences(start, &buffer, sector) {
                    let from = (offset - start) as usize;
                    let bytes: Arc<[u8]> = Arc::from(&buffer[from..from + bytes]);
                    found.push(Operation::Stored { file: *id, offset, bytes });
                }
            }
            for operation in found {
                self.image.apply(&operation);
                self.trace.push(operation);
            }
        }
    }
}

/// Hook that runs before each operation. Its own operations do not trigger it.
pub(super) type BeforeEach = Box<dyn FnMut() + Send>;

/// State shared by all handles of one disk.
pub(super) struct Shared {
    state: Mutex<State>,
    before_each: Mutex<Option<BeforeEach>>,
    start: Image,
    device: u64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("device", &self.device).finish()
    }
}

/// A disk that is powered on. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct SimulatedDisk(Arc<Shared>);

/// Device numbers are unique, also in the process-wide list of open stores.
static NEXT_DEVICE: AtomicU64 = AtomicU64::new(0xe4e7_0000_0000);

impl SimulatedDisk {
    pub(super) fn new(image: Image) -> SimulatedDisk {
        let state = State {
            image: image.clone(),
            live: BTreeMap::new(),
            trace: Vec::new(),
            calls: Vec::new(),
            fault: None,
            faults: Vec::new(),
            retried_flushes: Vec::new(),
            full: false,
        };
        let device = NEXT_DEVICE.fetch_add(1, Ordering::Relaxed);
        SimulatedDisk(Arc::new(Shared {
            state: Mutex::new(state),
            before_each: Mutex::default(),
            start: image,
            device,
        }))
    }

    pub(super) fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.clone())
    }

    /// Returns all operations since the disk was powered on.
    pub(super) fn trace(&self) -> Trace {
        self.0.detect_stores();
        let operations = self.0.lock().trace.clone();
        Trace { start: self.0.start.clone(), operations }
    }

    /// Returns the disk as a kill at this moment leaves it.
    pub(super) fn image(&self) -> Image {
        self.0.detect_stores();
        self.0.lock().image.clone()
    }

    /// Records a promise or an observation of the program.
    pub(super) fn mark(&self, mark: Mark) {
        let mut state = self.0.lock();
        state.image.apply(&Operation::Mark(mark));
        state.trace.push(Operation::Mark(mark));
    }

    /// Returns the boot id.
    pub(super) fn boot(&self) -> Boot {
        self.0.boot()
    }

    /// Returns the sizes that the disk writes atomically.
    pub(super) fn medium(&self) -> Medium {
        self.0.medium()
    }

    /// Sets a hook that runs before each operation, as another process might.
    pub(super) fn before_each(&self, call: Option<BeforeEach>) {
        *self.0.before_each() = call;
    }

    /// Returns the calls so far that can fail, each with true if it allocates space.
    pub(super) fn calls(&self) -> Vec<bool> {
        self.0.lock().calls.clone()
    }

    /// Starts another program, which does not know of failed flushes.
    pub(super) fn forget_failed_flushes(&self) {
        self.0.lock().live.values_mut().for_each(|live| live.flush_failed = false);
    }

    pub(super) fn fail(&self, fault: Option<Fault>) {
        self.0.lock().fault = fault;
    }

    /// Fills the disk: files keep their blocks and get no more.
    pub(super) fn fill(&self) {
        self.0.lock().full = true;
    }

    /// Returns the calls that were made to fail.
    pub(super) fn faults(&self) -> Vec<String> {
        self.0.lock().faults.clone()
    }

    /// Returns the files whose failed flush was retried.
    pub(super) fn retried_flushes(&self) -> Vec<PathBuf> {
        self.0.lock().retried_flushes.clone()
    }
}

pub(super) fn io_error(code: i32, doing: &'static str, path: &Path) -> Error {
    Error::from_io(io::Error::from_raw_os_error(code), doing, path)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn before_each(&self) -> MutexGuard<'_, Option<BeforeEach>> {
        self.before_each.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and returns how it fails, if it does.
    pub(super) fn enter(
        &self,
        allocates: bool,
        doing: &'static str,
        path: &Path,
    ) -> Option<Failure> {
        let mut state = self.lock();
        let call = state.calls.len();
        state.calls.push(allocates);
        let fault = state.fault?;
        // A full disk can still flush.
        let fits = allocates || fault.failure == Failure::Device;
        let hit = call == fault.at_call && fits
            || (fault.persistent && call > fault.at_call && allocates);
        if !hit {
            return None;
        }
        state.faults.push(format!("{doing} {}", path.display()));
        Some(if allocates { fault.failure } else { Failure::Device })
    }

    /// Like [`enter`](Self::enter), for calls that fail completely or not at all.
    pub(super) fn enter_or_fail(
        &self,
        allocates: bool,
        doing: &'static str,
        path: &Path,
    ) -> Result<()> {
        match self.enter(allocates, doing, path) {
            None => Ok(()),
            Some(Failure::Device) => Err(io_error(libc::EIO, doing, path)),
            Some(Failure::Full | Failure::Short) => Err(io_error(libc::ENOSPC, doing, path)),
        }
    }

    /// Fails if the disk has no free blocks.
    pub(super) fn check_free_blocks(&self, doing: &'static str, path: &Path) -> Result<()> {
        let mut state = self.lock();
        if !state.full {
            return Ok(());
        }
        state.faults.push(format!("{doing} {}", path.display()));
        Err(io_error(libc::ENOSPC, doing, path))
    }

    /// Applies an operation and records it.
    pub(super) fn apply(&self, operation: Operation) -> u64 {
        self.apply_with(operation, || {})
    }

    /// Like `apply`. `body` applies the operation to the memory file before any other call.
    pub(super) fn apply_with(&self, operation: Operation, body: impl FnOnce()) -> u64 {
        let call = self.before_each().take();
        if let Some(mut call) = call {
            call();
            *self.before_each() = Some(call);
        }
        let mut state = self.lock();
        state.detect_stores();
        let id = state.image.apply(&operation);
        state.trace.push(operation);
        body();
        id
    }

    /// Records stores through shared mappings since the last check.
    pub(super) fn detect_stores(&self) {
        self.lock().detect_stores();
    }

    pub(super) fn length(&self, id: u64) -> u64 {
        self.lock().image.file(id).map_or(0, |file| file.cache().length())
    }

    pub(super) fn identity(&self, id: u64) -> FileIdentity {
        FileIdentity { device: self.device, inode: id }
    }

    /// Returns true if every page of a range has disk space.
    pub(super) fn is_reserved(&self, id: u64, offset: u64, length: u64) -> bool {
        let state = self.lock();
        state.image.file(id).is_some_and(|file| file.is_reserved(offset, length))
    }

    pub(super) fn disk_bytes(&self, id: u64) -> u64 {
        self.lock().image.file(id).map_or(0, |file| file.disk_bytes())
    }

    pub(super) fn has_a_name(&self, id: u64) -> bool {
        self.lock().image.names.has_file(id)
    }

    pub(super) fn mark_mapped(&self, id: u64) {
        if let Some(live) = self.lock().live.get_mut(&id) {
            live.mapped = true;
        }
    }

    /// Notes the start of a flush. Records a retry if the previous flush failed.
    pub(super) fn flush_begins(&self, id: u64, path: &Path) {
        let mut state = self.lock();
        if state.live.get(&id).is_some_and(|live| live.flush_failed) {
            state.retried_flushes.push(path.to_path_buf());
        }
    }

    pub(super) fn flush_failed(&self, id: u64) {
        let mut state = self.lock();
        state.detect_stores();
        if let Some(live) = state.live.get_mut(&id) {
            live.flush_failed = true;
        }
        let operation = Operation::FlushFailed { file: id };
        state.image.apply(&operation);
        state.trace.push(operation);
    }

    /// Opens a new descriptor of a file. Its locks exclude those of all other descriptors.
    fn descriptor(&self, id: u64, writable: bool) -> io::Result<OwnedFd> {
        let mut state = self.lock();
        let state = &mut *state;
        let live = match state.live.entry(id) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let memory = fs::memfd_create("evermap-simulation", MemfdFlags::CLOEXEC)?;
                if let Some(file) = state.image.file(id) {
                    fill(&memory, file.cache())?;
                }
                entry.insert(OpenedFile { memory, mapped: false, flush_failed: false })
            }
        };
        let path = format!("/proc/self/fd/{}", live.memory.as_raw_fd());
        let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        Ok(fs::open(path, access | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Returns the boot id.
    pub(super) fn boot(&self) -> Boot {
        Boot(u128::from(self.start.boot).to_be_bytes())
    }

    /// Returns the sizes that the disk writes atomically.
    pub(super) fn medium(&self) -> Medium {
        self.start.medium
    }

    fn find(&self, path: &Path) -> Option<Node> {
        self.lock().image.names.find(path)
    }

    fn directory(&self, path: &Path, doing: &'static str) -> Result<u64> {
        match self.find(path) {
            Some(Node::Directory(id)) => Ok(id),
            Some(Node::File(_)) => Err(io_error(libc::ENOTDIR, doing, path)),
            None => Err(io_error(libc::ENOENT, doing, path)),
        }
    }

    fn open_new(self: &Arc<Self>, path: &Path) -> Result<u64> {
        self.directory(&crate::storage::parent_of(path), "create")?;
        self.enter_or_fail(true, "create", path)?;
        self.check_free_blocks("create", path)?;
        Ok(self.apply(Operation::Create(path.to_path_buf())))
    }
}

fn read_exactly(memory: &OwnedFd, buffer: &mut [u8], offset: u64) {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(memory, &mut buffer[done..], offset + done as u64) {
            Ok(0) => {
                buffer[done..].fill(0);
                return;
            }
            Ok(n) => done += n,
            Err(e) => panic!("cannot read a memory file: {e}"),
        }
    }
}

fn fill(memory: &OwnedFd, content: &super::pages::Pages) -> io::Result<()> {
    for (offset, run) in content.runs() {
        let mut at = offset;
        for part in run.chunks(512) {
            let slices: Vec<io::IoSlice<'_>> =
                part.iter().map(|page| io::IoSlice::new(page)).collect();
            let written = rustix::io::pwritev(memory, &slices, at)?;
            assert_eq!(written as u64, part.len() as u64 * PAGE, "short write to a memory file");
            at += written as u64;
        }
    }
    fs::ftruncate(memory, content.length())?;
    Ok(())
}

/// Returns the ranges of a memory file that have pages, up to `length`.
pub(super) fn data_ranges(memory: &impl AsFd, length: u64) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some((start, end)) = next_data(memory, at).filter(|(start, _)| *start < length) {
        ranges.push((start, end.min(length)));
        at = end;
    }
    ranges
}

/// Returns the next range that has pages.
pub(super) fn next_data(memory: &impl AsFd, offset: u64) -> Option<(u64, u64)> {
    let start = fs::seek(memory, fs::SeekFrom::Data(offset)).ok()?;
    let end = fs::seek(memory, fs::SeekFrom::Hole(start)).ok()?;
    Some((start & !(PAGE - 1), end.next_multiple_of(PAGE)))
}

impl Storage for SimulatedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let shared = &self.0;
        let id = match (shared.find(path), mode) {
            (Some(Node::Directory(_)), _) => return Err(io_error(libc::EISDIR, "open", path)),
            (Some(Node::File(_)), OpenMode::CreateNew) => {
                return Err(io_error(libc::EEXIST, "create", path));
            }
            (Some(Node::File(id)), _) => {
                shared.enter_or_fail(false, "open", path)?;
                id
            }
            (None, OpenMode::CreateNew | OpenMode::OpenOrCreate) => shared.open_new(path)?,
            (None, _) => return Err(io_error(libc::ENOENT, "open", path)),
        };
        let writable = mode != OpenMode::Read;
        let descriptor = shared
            .descriptor(id, writable)
            .map_err(|e| Error::from_io(e, "open a memory file for", path))?;
        Ok(Arc::new(SimulatedFile::new(Arc::clone(shared), id, path, descriptor, writable)))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.0.directory(&crate::storage::parent_of(path), "create")?;
        if self.0.find(path).is_some() {
            return Err(io_error(libc::EEXIST, "create", path));
        }
        self.0.enter_or_fail(true, "create", path)?;
        self.0.check_free_blocks("create", path)?;
        self.0.apply(Operation::MakeDirectory(path.to_path_buf()));
        Ok(())
    }

    fn create_directories(&self, path: &Path) -> Result<()> {
        let missing: Vec<&Path> =
            path.ancestors().take_while(|path| self.0.find(path).is_none()).collect();
        missing.into_iter().rev().try_for_each(|path| self.create_directory(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        if !matches!(self.0.find(from), Some(Node::File(_))) {
            return Err(io_error(libc::ENOENT, "rename", from));
        }
        self.0.directory(&crate::storage::parent_of(to), "rename")?;
        self.0.enter_or_fail(true, "rename", from)?;
        self.0.apply(Operation::Rename(from.to_path_buf(), to.to_path_buf()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        if !matches!(self.0.find(path), Some(Node::File(_))) {
            return Err(io_error(libc::ENOENT, "remove", path));
        }
        self.0.enter_or_fail(false, "remove", path)?;
        self.0.apply(Operation::Remove(path.to_path_buf()));
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.0.directory(path, "list")?;
        self.0.enter_or_fail(false, "list", path)?;
        Ok(self.0.lock().image.names.list(path))
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.0.directory(path, "sync directory")?;
        self.0.enter_or_fail(false, "sync directory", path)?;
        self.0.apply(Operation::SyncDirectory(path.to_path_buf()));
        Ok(())
    }

    fn file_system(&self, path: &Path) -> Result<Box<dyn FileSystem>> {
        self.0.directory(path, "open")?;
        Ok(Box::new(Whole(Arc::clone(&self.0), path.to_path_buf())))
    }

    fn directory_identity(&self, path: &Path) -> Result<FileIdentity> {
        let inode = self.0.directory(path, "look at")?;
        Ok(FileIdentity { device: self.0.device, inode })
    }

    fn file_identity(&self, path: &Path) -> Result<FileIdentity> {
        match self.0.find(path) {
            Some(Node::File(id)) => Ok(self.0.identity(id)),
            _ => Err(io_error(libc::ENOENT, "stat", path)),
        }
    }
}

/// The whole disk.
#[derive(Debug)]
struct Whole(Arc<Shared>, PathBuf);

impl FileSystem for Whole {
    fn sync(&self) -> Result<()> {
        self.0.enter_or_fail(false, "sync the file system of", &self.1)?;
        self.0.apply(Operation::SyncAll);
        Ok(())
    }
}
