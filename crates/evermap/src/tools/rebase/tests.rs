//! Crash tests of a rebase and an undo: after a failure at any step the store is either the old or
//! the new one, and the next call tidies up.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::error::Result;
use crate::storage::{Disk, File, FileIdentity, FileSystem};
use crate::{PString, PVec, Store};

/// Storage that fails after a number of changing steps, as if the process had been killed.
#[derive(Debug)]
struct Dying {
    disk: Disk,
    fuse: Arc<Fuse>,
}

/// Counter of changing steps.
#[derive(Debug)]
struct Fuse {
    /// Steps until the failure.
    left: AtomicU64,
    /// Steps requested.
    burnt: AtomicU64,
}

impl Fuse {
    /// Counts one step. Fails if none is left.
    fn step(&self, path: &Path) -> Result<()> {
        self.burnt.fetch_add(1, Ordering::Relaxed);
        let left =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        left.map(drop).map_err(|_| {
            let source = std::io::Error::other("killed");
            StoreError::from_io(source, "change", path)
        })
    }
}

fn dying(steps: u64) -> (Arc<dyn Storage>, Arc<Fuse>) {
    let fuse = Arc::new(Fuse { left: AtomicU64::new(steps), burnt: AtomicU64::new(0) });
    (Arc::new(Dying { disk: Disk::default(), fuse: Arc::clone(&fuse) }), fuse)
}

impl Storage for Dying {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        if mode == OpenMode::CreateNew {
            self.fuse.step(path)?;
        }
        let file = self.disk.open(path, mode)?;
        Ok(Arc::new(DyingFile { file, fuse: Arc::clone(&self.fuse) }))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.fuse.step(path)?;
        self.disk.create_directory(path)
    }

    fn create_directories(&self, path: &Path) -> Result<()> {
        self.fuse.step(path)?;
        self.disk.create_directories(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.fuse.step(from)?;
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.fuse.step(path)?;
        self.disk.remove(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.disk.list(path)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.fuse.step(path)?;
        self.disk.sync_directory(path)
    }

    fn file_system(&self, path: &Path) -> Result<Box<dyn FileSystem>> {
        self.disk.file_system(path)
    }

    fn directory_identity(&self, path: &Path) -> Result<FileIdentity> {
        self.disk.directory_identity(path)
    }

    fn file_identity(&self, path: &Path) -> Result<FileIdentity> {
        self.disk.file_identity(path)
    }

    fn exchange(&self, one: &Path, other: &Path) -> Result<bool> {
        self.fuse.step(one)?;
        self.disk.exchange(one, other)
    }

    fn remove_all(&self, path: &Path) -> Result<()> {
        self.fuse.step(path)?;
        self.disk.remove_all(path)
    }
}

#[derive(Debug)]
struct DyingFile {
    file: Arc<dyn File>,
    fuse: Arc<Fuse>,
}

impl File for DyingFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.fuse.step(self.path())?;
        self.file.write_at(bytes, offset)
    }

    fn write_at_durable(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.fuse.step(self.path())?;
        self.file.write_at_durable(bytes, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.fuse.step(self.path())?;
        self.file.allocate(offset, length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<bool> {
        self.fuse.step(self.path())?;
        self.file.punch_hole(offset, length)
    }

    fn disk_bytes(&self) -> Result<u64> {
        self.file.disk_bytes()
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.fuse.step(self.path())?;
        self.file.set_length(length)
    }

    fn length(&self) -> Result<u64> {
        self.file.length()
    }

    fn sync_data(&self) -> Result<()> {
        self.fuse.step(self.path())?;
        self.file.sync_data()
    }

    fn advise_random(&self) -> Result<()> {
        self.file.advise_random()
    }

    fn try_lock(&self, kind: LockKind, offset: u64, length: u64) -> Result<bool> {
        self.file.try_lock(kind, offset, length)
    }

    fn lock_holder(&self, offset: u64, length: u64) -> Result<Option<(u64, u64)>> {
        self.file.lock_holder(offset, length)
    }

    fn unlock(&self, offset: u64, length: u64) -> Result<()> {
        self.file.unlock(offset, length)
    }

    fn with_path(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = self.file.with_path(path)?;
        Ok(Arc::new(DyingFile { file, fuse: Arc::clone(&self.fuse) }))
    }

    fn identity(&self) -> Result<FileIdentity> {
        self.file.identity()
    }

    fn has_a_name(&self) -> Result<bool> {
        self.file.has_a_name()
    }

    fn copy_from(&self, _source: &dyn File, _length: u64) -> Result<bool> {
        // Decline, because a copy in steps has more points of failure.
        Ok(false)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        self.file.next_data(offset)
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor()
    }
}

/// Texts in place and in a block.
const TEXTS: [&str; 3] = ["one", "two, with more than 23 bytes", "three"];

/// Creates a store with two objects and closes it.
fn store() -> (tempfile::TempDir, PathBuf) {
    let shared = Path::new("/dev/shm");
    let directory = tempfile::tempdir_in(shared).or_else(|_| tempfile::tempdir()).unwrap();
    let path = directory.path().join("store");
    let options = Options::new().arena_registry(None);
    let store = options.create_new(&path).unwrap();
    store.create::<PVec<PString>, _>("texts", TEXTS).unwrap();
    store.create::<u64, _>("number", 7).unwrap();
    (directory, path)
}

fn options(storage: Arc<dyn Storage>) -> RebaseOptions {
    let mut options = RebaseOptions::new();
    options.store = Options::new().arena_registry(None);
    options.store.storage = Arc::clone(&storage);
    options.check.storage = storage;
    options
}

/// Returns the files of a directory with their contents.
fn bytes_of(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut folders = vec![path.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap().path();
            match entry.is_dir() {
                true => folders.push(entry),
                false => {
                    let bytes = std::fs::read(&entry).unwrap();
                    all.push((entry.strip_prefix(path).unwrap().to_path_buf(), bytes));
                }
            }
        }
    }
    all.sort();
    all
}

/// Verifies the store's contents. Returns the base of its first arena.
fn arena_of(path: &Path) -> u64 {
    let report = check(path, &CheckOptions::new()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    let store = Options::new().arena_registry(None).open(path).unwrap();
    let texts = store.read::<PVec<PString>>("texts").unwrap();
    assert!(texts.iter().map(PString::as_str).eq(TEXTS));
    assert_eq!(*store.read::<u64>("number").unwrap(), 7);
    let base = store.info("texts").unwrap().base_address;
    drop((texts, store));
    let kept = catalog_image(&Disk::default(), path).unwrap();
    let arena = read_listing(&kept).unwrap().arenas[0];
    assert!((arena.base..arena.base + arena.length).contains(&base));
    arena.base
}

fn siblings(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap();
    let names = names.map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "store").collect()
}

#[test]
fn rebase_killed_at_any_step_leaves_the_old_or_the_new_store() {
    let (storage, fuse) = dying(u64::MAX);
    let (_keep, path) = store();
    rebase(&path, &options(storage)).unwrap();
    let steps = fuse.burnt.load(Ordering::Relaxed);
    assert!(steps > 20, "{steps} steps");
    let (mut old, mut new) = (0, 0);
    for left in 0..steps {
        let (directory, path) = store();
        let before = arena_of(&path);
        let bytes = bytes_of(&path);
        let (storage, _) = dying(left);
        let died = rebase(&path, &options(storage));
        let after = arena_of(&path);
        let is_old = after == before;
        assert!(died.is_err(), "after {left} steps");
        match is_old {
            true => {
                assert_eq!(bytes_of(&path), bytes, "after {left} steps");
                old += 1;
            }
            false => new += 1,
        }
        // The next call completes or removes what was left.
        let undone = undo(&path, false, &options(Arc::new(Disk::default())));
        match is_old {
            true => assert!(matches!(undone, Err(Error::NothingKept { .. })), "{undone:?}"),
            false => drop(undone.unwrap()),
        }
        assert_eq!(siblings(directory.path()), [""; 0], "after {left} steps");
        assert_eq!(bytes_of(&path), bytes, "after {left} steps");
        assert_eq!(arena_of(&path), before);
    }
    assert!(old > 10 && new > 0, "{old} old, {new} new");
}

#[test]
fn undo_killed_at_any_step_can_be_repeated() {
    let rebased = || {
        let (directory, path) = store();
        let bytes = bytes_of(&path);
        rebase(&path, &options(Arc::new(Disk::default()))).unwrap();
        (directory, path, bytes)
    };
    let (_keep, path, _) = rebased();
    let (storage, fuse) = dying(u64::MAX);
    undo(&path, false, &options(storage)).unwrap();
    let steps = fuse.burnt.load(Ordering::Relaxed);
    assert!(steps > 4, "{steps} steps");
    for left in 0..steps {
        let (directory, path, bytes) = rebased();
        let new = arena_of(&path);
        let (storage, _) = dying(left);
        assert!(undo(&path, false, &options(storage)).is_err(), "after {left} steps");
        let is_undone = arena_of(&path) != new;
        match undo(&path, false, &options(Arc::new(Disk::default()))) {
            Ok(_) => assert!(!is_undone, "after {left} steps"),
            Err(Error::NothingKept { .. }) => assert!(is_undone, "after {left} steps"),
            Err(error) => panic!("after {left} steps: {error}"),
        }
        assert_eq!(bytes_of(&path), bytes, "after {left} steps");
        assert_eq!(siblings(directory.path()), [""; 0], "after {left} steps");
    }
}

#[test]
fn rebased_store_does_not_need_the_old_files() {
    let (_directory, path) = store();
    let report = rebase(&path, &options(Arc::new(Disk::default()))).unwrap();
    std::fs::remove_dir_all(report.kept_in.unwrap()).unwrap();
    arena_of(&path);
    let store = Store::open(&path).unwrap();
    store.create::<u64, _>("more", 1).unwrap();
}
