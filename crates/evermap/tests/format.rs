//! Files of earlier builds can be opened: `tests/format` contains one store of each released
//! format. `EVERMAP_WRITE_FORMAT=1 cargo test --test format -- --ignored` writes the store of the
//! current format again. Run it only for a new format version.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use common::{LOG_REQUIRED, copy_store, crc32c_of};
use evermap::guest::{
    GuestAddresses, GuestMemory, GuestReading, GuestRegion, GuestSession, GuestWindow, Unmapped,
};
use evermap::{
    Mut, Options, PBox, PMap, PString, PVec, Persist, Ptr, Store, Verify, WriteOptions, tools,
};

#[derive(Persist)]
#[repr(C)]
struct Kept {
    title: PString,
    numbers: PVec<u64>,
    by_name: PMap<PString, PVec<u32>>,
    list: Option<PBox<Link>>,
    last: Ptr<Link>,
    flag: bool,
}

#[derive(Persist)]
#[repr(C)]
struct Link {
    value: f64,
    next: Option<PBox<Link>>,
}

/// Directory of the format that this build writes.
const CURRENT: &str = "v1-log2";

fn folder(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format").join(version)
}

fn check(kept: &Kept) {
    assert_eq!(kept.title, "kept since version 1");
    assert_eq!(kept.numbers.len(), 20_000);
    assert!(kept.numbers.iter().enumerate().all(|(i, n)| *n == (i * i) as u64));
    let names: Vec<(&str, usize)> =
        kept.by_name.iter().map(|(name, pages)| (name.as_str(), pages.len())).collect();
    assert_eq!(names, [("heap", 3), ("übermap", 1), ("empty", 0)]);
    let first = kept.list.as_ref().unwrap();
    let second = first.next.as_ref().unwrap();
    assert_eq!((first.value, second.value), (0.5, -1.25));
    // SAFETY: the pointer was made from the last link, which is still in the list.
    assert_eq!(unsafe { kept.last.as_ref() }.map(|link| link.value), Some(-1.25));
    assert!(kept.flag);
}

fn fill(mut root: Mut<'_, Kept>) -> evermap::Result<()> {
    let mut fields = root.fields();
    fields.title.push_str("kept since version 1")?;
    fields.numbers.extend((0..20_000u64).map(|i| i * i))?;
    fields.by_name.insert("heap", [1u32, 2, 3])?;
    fields.by_name.insert("übermap", [7u32])?;
    fields.by_name.insert("empty", [0u32; 0])?;
    let mut first = fields.list.insert(Link { value: 0.5, next: None })?;
    let mut first = first.fields();
    let second = first.next.insert(Link { value: -1.25, next: None })?;
    fields.last.set(second.as_ptr());
    *fields.flag = true;
    Ok(())
}

#[test]
fn a_store_of_version_1_is_read_and_written() {
    // Without page checksums.
    is_read_and_written("v1", false);
}

#[test]
fn a_store_with_page_checksums_is_read_and_written() {
    is_read_and_written("v1-checksums", true);
}

/// Copies the store of a format.
fn copy_of(version: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    copy_store(&folder(version), &path);
    // Version control keeps no empty directories.
    std::fs::create_dir_all(path.join("building")).unwrap();
    (directory, path)
}

fn is_read_and_written(version: &str, checksums: bool) {
    let (_directory, path) = copy_of(version);
    let verified = Options::new().verify(Verify::Full);
    let store = verified.open(&path).unwrap();
    assert_eq!(store.list().unwrap(), ["closed", "killed"]);
    for entry in std::fs::read_dir(path.join("objects")).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none() {
            let features = std::fs::read(&file).unwrap()[24];
            assert_eq!(features == 1, checksums, "{}", file.display());
        }
    }
    for name in ["closed", "killed"] {
        check(&store.read::<Kept>(name).unwrap());
        let mut session = store.write::<Kept>(name).unwrap();
        session.root_mut().fields().numbers.push(1).unwrap();
        session.commit().unwrap();
        session.root_mut().fields().numbers.pop();
        session.commit().unwrap();
        session.close().unwrap();
        check(&store.read::<Kept>(name).unwrap());
    }
    store.create::<u64, _>("new", 1).unwrap();
    store.remove("closed").unwrap();
    assert_eq!(store.list().unwrap(), ["killed", "new"]);
}

/// A guest's linear memory.
struct Linear {
    memory: GuestMemory,
    base: *mut u8,
}

const LINEAR_BYTES: usize = 0x1800_0000;
const GUEST_BASE: u64 = 0x1000_0000;

impl Linear {
    fn new() -> Linear {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the address.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), LINEAR_BYTES, rights, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let base: *mut u8 = base.cast();
        let place = NonNull::new(base).unwrap();
        // SAFETY: the memory stays mapped until the process ends.
        let memory = unsafe { GuestMemory::new(place, GuestWindow::default(), Unmapped::Zeros) };
        Linear { memory: memory.unwrap(), base }
    }

    fn word(&self, address: u64) -> *mut u64 {
        assert!(address < LINEAR_BYTES as u64 - 8);
        self.base.wrapping_byte_add(address as usize).cast()
    }

    fn load(&self, address: u64) -> u64 {
        // SAFETY: inside the memory.
        unsafe { self.word(address).read_volatile() }
    }

    fn store(&self, address: u64, value: u64) {
        // SAFETY: inside the memory.
        unsafe { self.word(address).write_volatile(value) }
    }
}

/// Hands out the guest's first addresses, once.
#[derive(Debug)]
struct FirstAddresses;

impl GuestAddresses for FirstAddresses {
    fn lease(&self, _bytes: u64) -> evermap::Result<u64> {
        Ok(GUEST_BASE)
    }
}

fn first_addresses() -> Arc<dyn GuestAddresses> {
    Arc::new(FirstAddresses)
}

/// First data address of the guest object.
fn data_of(first: GuestRegion) -> u64 {
    first.base() + u64::from_le_bytes(first.to_bytes()[32..40].try_into().unwrap())
}

fn write_guest(store: &Store, linear: &Linear) -> GuestSession {
    let options = WriteOptions::new();
    store.write_guest("guest", &linear.memory, &first_addresses(), &options).unwrap()
}

/// Words of the guest object: commits 2 to 4 stored these.
const GUEST_WORDS: [u64; 3] = [7, 77, 777];

/// Numbers of the large object, and number of sessions that changed them.
const LARGE_NUMBERS: u64 = 140_000;
const LARGE_SESSIONS: u64 = 3;

fn is_whole(store: &Store) {
    let mut names = store.list().unwrap();
    names.sort();
    assert_eq!(names, ["closed", "guest", "kept log", "killed", "renamed"]);
    for name in ["closed", "killed"] {
        check(&store.read::<Kept>(name).unwrap());
    }
    assert_eq!(*store.read::<u64>("renamed").unwrap(), 5);
    let kept = store.read::<PVec<u64>>("kept log").unwrap();
    assert_eq!(kept.len() as u64, LARGE_NUMBERS);
    assert!(kept.iter().enumerate().all(|(i, n)| i < 8 || *n == i as u64 % 5));
    assert!(kept[..8].iter().all(|n| *n == LARGE_SESSIONS));
    let linear = Linear::new();
    let snapshot = store.read_guest("guest", &linear.memory, GuestReading::Private).unwrap();
    let data = data_of(snapshot.regions()[0]);
    for (n, word) in GUEST_WORDS.into_iter().enumerate() {
        assert_eq!(linear.load(data + 4096 * n as u64), word);
    }
    drop(snapshot);
}

/// Creates objects that were closed, killed with several records in the log, closed with a kept
/// log, and a guest object; and a catalog with several commits.
fn store_with_logs(version: &str) {
    let (_directory, path) = copy_of(version);
    let report = tools::check(&path, &tools::CheckOptions::new()).unwrap();
    assert!(!report.is_damaged(), "{report:?}");
    let store = Options::new().verify(Verify::Full).open(&path).unwrap();
    is_whole(&store);
    for name in ["closed", "killed"] {
        let mut session = store.write::<Kept>(name).unwrap();
        session.root_mut().fields().numbers.push(1).unwrap();
        session.commit().unwrap();
        session.root_mut().fields().numbers.pop();
        session.commit().unwrap();
        session.close().unwrap();
    }
    let mut session = store.write::<PVec<u64>>("kept log").unwrap();
    session.root_mut().as_mut_slice()[3] = 0;
    session.commit().unwrap();
    session.root_mut().as_mut_slice()[3] = LARGE_SESSIONS;
    session.commit().unwrap();
    drop(session);
    let linear = Linear::new();
    let mut session = write_guest(&store, &linear);
    let data = data_of(session.regions()[0]);
    linear.store(data, 0);
    session.commit().unwrap();
    linear.store(data, GUEST_WORDS[0]);
    session.commit().unwrap();
    drop((session, linear));
    store.create::<u64, _>("new", 1).unwrap();
    store.remove("new").unwrap();
    is_whole(&store);
    let report = tools::check(&path, &tools::CheckOptions::new()).unwrap();
    assert!(!report.is_damaged(), "{report:?}");
}

#[test]
fn a_store_with_logs_of_format_1_is_read_and_written() {
    store_with_logs("v1-logs");
}

#[test]
fn a_store_with_logs_of_format_2_is_read_and_written() {
    store_with_logs(CURRENT);
}

/// Returns the error that a build before log format 2 reports for an object file and its log. Such
/// a build first checks the log if it is needed, then the checksum of page 0, then the features.
fn assert_refused_by_name_by_earlier_builds(file: &Path) {
    const FEATURE_LOG_2: u8 = 4;
    let object = std::fs::read(file).unwrap();
    assert_eq!((&object[..8], object[8]), (&b"EVERMAP\n"[..], 1), "{}", file.display());
    if object[248..252] != [0; 4] {
        let log = std::fs::read(file.with_extension("log")).unwrap();
        let slots = [&log[..64], &log[4096..4160]].map(|slot| {
            let mut unsigned = slot.to_vec();
            unsigned[12..16].fill(0);
            let right = crc32c_of(&unsigned).to_le_bytes() == slot[12..16];
            (right && slot[..8] == *b"EVERLOG\n").then_some(slot[8])
        });
        assert!(slots.contains(&Some(2)), "{}: {slots:?}", file.display());
        return;
    }
    let mut head = object[..3072].to_vec();
    head[248..256].fill(0);
    assert_eq!(crc32c_of(&head).to_le_bytes(), object[252..256], "{}", file.display());
    assert_ne!(object[32] & FEATURE_LOG_2, 0, "{}", file.display());
}

#[test]
fn earlier_builds_refuse_files_of_this_build_by_name() {
    let (_directory, path) = copy_of("v1-logs");
    let files = || {
        let entries = std::fs::read_dir(path.join("objects")).unwrap();
        entries.map(|e| e.unwrap().path()).filter(|path| path.extension().is_none())
    };
    let features: Vec<u8> = files().map(|file| std::fs::read(file).unwrap()[32] & 4).collect();
    assert_eq!(features, [0; 5], "objects of an earlier build");
    let store = Store::open(&path).unwrap();
    // Reading changes nothing.
    is_whole(&store);
    assert!(files().all(|file| std::fs::read(file).unwrap()[32] & 4 == 0));
    for name in ["closed", "killed"] {
        let mut session = store.write::<Kept>(name).unwrap();
        *session.root_mut().fields().flag = false;
        session.commit().unwrap();
        files()
            .filter(|file| std::fs::read(file).unwrap()[248..252] == LOG_REQUIRED)
            .for_each(|file| assert_refused_by_name_by_earlier_builds(&file));
        session.close().unwrap();
    }
    store.create::<u64, _>("new", 1).unwrap();
    assert_refused_by_name_by_earlier_builds(&path.join("catalog"));
    let (closed, others): (Vec<PathBuf>, Vec<PathBuf>) =
        files().partition(|file| std::fs::read(file).unwrap()[32] & 4 != 0);
    assert_eq!((closed.len(), others.len()), (3, 3));
    closed.iter().for_each(|file| assert_refused_by_name_by_earlier_builds(file));
    // Bit 3: texts in place. The new object has no strings.
    let with_texts = |file: &Path| std::fs::read(file).unwrap()[32] & 8 != 0;
    assert!(with_texts(&path.join("catalog")));
    assert_eq!(closed.iter().filter(|file| with_texts(file)).count(), 2);
    assert!(!others.iter().any(|file| with_texts(file)));
}

#[test]
#[ignore = "writes the files that the other tests read; for a new format version only"]
fn write_a_store_of_the_current_format() {
    if std::env::var_os("EVERMAP_WRITE_FORMAT").is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = Store::create_new(&path).unwrap();
    for name in ["first", "second"] {
        store.create::<u64, _>(name, 5).unwrap();
    }
    store.remove("first").unwrap();
    store.rename("second", "renamed").unwrap();
    for name in ["closed", "killed"] {
        let empty = Kept {
            title: PString::new(),
            numbers: PVec::new(),
            by_name: PMap::new(),
            list: None,
            last: Ptr::null(),
            flag: false,
        };
        store.create::<Kept, _>(name, empty).unwrap();
    }
    store
        .create::<PVec<u64>, _>("kept log", evermap::from_iter((0..LARGE_NUMBERS).map(|i| i % 5)))
        .unwrap();
    for number in 1..=LARGE_SESSIONS {
        let mut session = store.write::<PVec<u64>>("kept log").unwrap();
        session.root_mut().as_mut_slice()[..8].fill(number);
        session.commit().unwrap();
        session.close().unwrap();
    }
    let addresses = first_addresses();
    store.create_guest("guest", GuestWindow::default(), &addresses, 0).unwrap();
    let linear = Linear::new();
    let mut guest = write_guest(&store, &linear);
    guest.grow_to(65536).unwrap();
    let data = data_of(guest.regions()[0]);
    for (n, word) in GUEST_WORDS.into_iter().enumerate() {
        linear.store(data + 4096 * n as u64, word);
        guest.commit().unwrap();
    }
    for name in ["closed", "killed"] {
        let mut session = store.write::<Kept>(name).unwrap();
        session.root_mut().fields().numbers.extend(0..10u64).unwrap();
        session.commit().unwrap();
        session.root_mut().fields().numbers.clear();
        fill(session.root_mut()).unwrap();
        session.commit().unwrap();
        *session.root_mut().fields().flag = false;
        session.commit().unwrap();
        *session.root_mut().fields().flag = true;
        session.commit().unwrap();
        if name == "killed" {
            // A kill leaves this: the log exists and is required.
            let to = folder(CURRENT);
            let _ = std::fs::remove_dir_all(&to);
            copy_store(&path, &to);
        }
        session.close().unwrap();
    }
}
