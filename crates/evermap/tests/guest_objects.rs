//! Guest objects, which a host maps into a guest's linear memory. This program acts as the guest
//! and stores through raw addresses.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use evermap::guest::{
    GuestAddresses, GuestMemory, GuestReaders, GuestReading, GuestSession, GuestWindow, Unmapped,
};
use evermap::{Error, PString, PVec, Store, WriteOptions, tools};

const GRANULE: u64 = 4 << 20;

/// A guest's linear memory.
struct Linear {
    mapped: *mut libc::c_void,
    memory: GuestMemory,
}

const LINEAR_BYTES: usize = 0x5000_0000;

impl Linear {
    fn new() -> Linear {
        Linear::with(Unmapped::Zeros)
    }

    fn with(unmapped: Unmapped) -> Linear {
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: the kernel chooses the address.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), LINEAR_BYTES, rights, flags, -1, 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        let base = NonNull::new(mapped.cast()).unwrap();
        // SAFETY: the memory lives until `Linear` is dropped, which tests do last.
        let memory = unsafe { GuestMemory::new(base, GuestWindow::default(), unmapped) }.unwrap();
        Linear { mapped, memory }
    }

    fn word(&self, address: u64) -> *mut u64 {
        assert!(address < LINEAR_BYTES as u64 - 8);
        self.mapped.wrapping_byte_add(address as usize).cast()
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

impl Drop for Linear {
    fn drop(&mut self) {
        // SAFETY: the memory belongs to this value, and no object is mapped there any more.
        unsafe { libc::munmap(self.mapped, LINEAR_BYTES) };
    }
}

/// Hands out consecutive addresses.
#[derive(Default)]
struct Addresses {
    given: Mutex<BTreeSet<u64>>,
    bytes_max: u64,
}

fn addresses(bytes_max: u64) -> Arc<dyn GuestAddresses> {
    Arc::new(Addresses { given: Mutex::default(), bytes_max })
}

impl GuestAddresses for Addresses {
    fn lease(&self, bytes: u64) -> evermap::Result<u64> {
        assert!(bytes.is_multiple_of(GRANULE));
        let mut given = self.given.lock().unwrap();
        let granules = given.len() as u64;
        if granules * GRANULE + bytes > self.bytes_max {
            let why = "this test has no more".to_string();
            return Err(Error::OutOfAddresses { what: "a guest".to_string(), bytes, why });
        }
        let base = 0x1000_0000 + granules * GRANULE;
        given.extend((base..base + bytes).step_by(GRANULE as usize));
        Ok(base)
    }
}

struct Fixture {
    _directory: tempfile::TempDir,
    store: Store,
    addresses: Arc<dyn GuestAddresses>,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create_new(directory.path().join("store")).unwrap();
    let addresses = addresses(1 << 30);
    store.create_guest("app:heap", GuestWindow::default(), &addresses, 0).unwrap();
    Fixture { _directory: directory, store, addresses }
}

impl Fixture {
    fn write(&self, linear: &Linear) -> evermap::Result<GuestSession> {
        let options = WriteOptions::new();
        self.store.write_guest("app:heap", &linear.memory, &self.addresses, &options)
    }

    fn file_of(&self, session: &GuestSession) -> PathBuf {
        let uuid: String = session.uuid().iter().map(|byte| format!("{byte:02x}")).collect();
        self.store.path().join("objects").join(uuid)
    }

    /// Opens the object for writing with room for data. Also returns the first data address.
    fn write_with_room(&self, linear: &Linear, bytes: u64) -> (GuestSession, u64) {
        let session = self.write(linear).unwrap();
        session.grow_to(bytes).unwrap();
        let first = session.regions()[0];
        let meta = u64::from_le_bytes(first.to_bytes()[32..40].try_into().unwrap());
        (session, first.base() + meta)
    }
}

fn assert_undamaged(directory: &Path) {
    let report = tools::check(directory, &tools::CheckOptions::new()).unwrap();
    assert!(!report.is_damaged(), "{report:?}");
}

#[test]
fn committed_data_is_at_the_same_guest_address_in_another_memory() {
    let fixture = fixture();
    let first = Linear::new();
    let (mut session, data) = fixture.write_with_room(&first, 65536);
    first.store(data, data + 8);
    first.store(data + 8, 42);
    assert!(session.commit().unwrap());
    assert!(!session.commit().unwrap());
    session.close().unwrap();
    assert_eq!(first.load(data), 0, "unmapped memory is zero again");

    let second = Linear::new();
    assert_ne!(first.mapped, second.mapped);
    let session = fixture.write(&second).unwrap();
    assert_eq!(second.load(second.load(data)), 42);
    drop(session);
    assert_undamaged(fixture.store.path());
}

#[test]
fn uncommitted_changes_and_growth_are_discarded() {
    let fixture = fixture();
    let linear = Linear::new();
    let (mut session, data) = fixture.write_with_room(&linear, 65536);
    linear.store(data, 1);
    session.commit().unwrap();
    linear.store(data, 2);
    session.grow_to(40 << 20).unwrap();
    linear.store(session.regions().last().unwrap().base() + 5000, 3);
    assert!(session.regions().len() > 1);
    drop(session);
    let session = fixture.write(&linear).unwrap();
    assert_eq!(linear.load(data), 1);
    assert_eq!(session.regions().len(), 1);
    drop(session);
    assert_undamaged(fixture.store.path());
}

#[test]
fn an_object_grows_by_whole_granules_that_double_and_by_less_when_addresses_are_short() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create_new(directory.path().join("store")).unwrap();
    let addresses = addresses(28 << 20);
    store.create_guest("heap", GuestWindow::default(), &addresses, 0).unwrap();
    let linear = Linear::new();
    let options = WriteOptions::new();
    let session = store.write_guest("heap", &linear.memory, &addresses, &options).unwrap();
    let leases = |session: &GuestSession| -> Vec<(u64, u64)> {
        session.regions().iter().map(|r| r.lease()).collect()
    };
    assert_eq!(leases(&session), [(0x1000_0000, GRANULE)]);
    session.grow_to(5 << 20).unwrap();
    session.grow_to(10 << 20).unwrap();
    session.grow_to(20 << 20).unwrap();
    let bytes: Vec<u64> = leases(&session).iter().map(|lease| lease.1 / GRANULE).collect();
    assert_eq!(bytes, [1, 1, 2, 2], "the last one would have been four");
    let refused = session.grow_to(100 << 20).unwrap_err();
    assert!(matches!(refused, Error::OutOfAddresses { .. }), "{refused}");
    let starts: BTreeSet<u64> = leases(&session).iter().map(|lease| lease.0).collect();
    assert_eq!(starts.len(), 4);
}

#[test]
fn stores_of_a_guest_to_a_snapshot_stay_private() {
    let fixture = fixture();
    let (writing, reading) = (Linear::new(), Linear::new());
    let (mut session, data) = fixture.write_with_room(&writing, 65536);
    writing.store(data, 7);
    session.commit().unwrap();
    let snapshot =
        fixture.store.read_guest("app:heap", &reading.memory, GuestReading::Private).unwrap();
    assert_eq!(reading.load(data), 7);
    reading.store(data, 8);
    writing.store(data + 8, 9);
    session.commit().unwrap();
    assert_eq!((reading.load(data), reading.load(data + 8)), (8, 0), "one commit, and its own");
    drop(snapshot);
    assert_eq!(reading.load(data), 0);
    let again =
        fixture.store.read_guest("app:heap", &reading.memory, GuestReading::Private).unwrap();
    assert_eq!((reading.load(data), reading.load(data + 8)), (7, 9));
    assert_eq!(again.sequence(), session.sequence());
}

#[test]
fn one_guest_writes_at_a_time() {
    let fixture = fixture();
    let (one, other) = (Linear::new(), Linear::new());
    let session = fixture.write(&one).unwrap();
    assert!(matches!(fixture.write(&other), Err(Error::Busy { .. })));
    drop(session);
    fixture.write(&other).unwrap();
}

#[test]
fn an_object_is_mapped_once_in_a_memory() {
    let fixture = fixture();
    let linear = Linear::new();
    let read = || fixture.store.read_guest("app:heap", &linear.memory, GuestReading::Private);
    let _snapshot = read().unwrap();
    assert!(matches!(read(), Err(Error::AddressTaken { .. })));
}

#[test]
fn a_guest_that_overwrites_its_superblock_changes_nothing_in_the_file() {
    let fixture = fixture();
    let linear = Linear::new();
    let (mut session, data) = fixture.write_with_room(&linear, 65536);
    let base = session.base();
    for word in 0..3072 / 8 {
        // The root and its description are the guest's. There are none.
        if !(104 / 8..136 / 8).contains(&word) && word < 2048 / 8 && word != 168 / 8 {
            linear.store(base + word * 8, u64::MAX);
        }
    }
    linear.store(data, 5);
    assert!(session.commit().unwrap());
    session.close().unwrap();
    let session = fixture.write(&linear).unwrap();
    assert_eq!(linear.load(data), 5);
    assert_eq!(linear.load(base), u64::from_le_bytes(*b"EVERMAP\n"));
    drop(session);
    assert_undamaged(fixture.store.path());
}

#[test]
fn a_root_outside_of_the_object_is_refused_and_one_inside_is_kept() {
    let fixture = fixture();
    let linear = Linear::new();
    let (mut session, data) = fixture.write_with_room(&linear, 65536);
    let base = session.base();
    let end = session.regions()[0].base() + session.regions()[0].length_bytes();
    for (address, bytes) in
        [(8, 8), (base, 8), (end - 8, 16), (u64::MAX - 4, 8), (data, u64::MAX), (0, 1)]
    {
        linear.store(base + 104, address);
        linear.store(base + 112, bytes);
        let refused = session.commit().unwrap_err();
        assert!(matches!(refused, Error::BadGuestRoot { .. }), "{address:#x} {bytes}: {refused}");
    }
    linear.store(base + 104, data);
    linear.store(base + 112, 64);
    assert!(session.commit().unwrap());
    session.close().unwrap();
    let info = fixture.store.info("app:heap").unwrap();
    assert_eq!((info.root_bytes, info.base_address), (64, base));
    // Allocation is verified by `check`, which reads the heap.
    let report = tools::check(fixture.store.path(), &tools::CheckOptions::new()).unwrap();
    assert!(report.findings.iter().any(|finding| finding.what == "the root"), "{report:?}");
}

#[test]
fn natives_and_guests_do_not_open_each_others_objects() {
    let fixture = fixture();
    fixture.store.create_raw("native").unwrap();
    let linear = Linear::new();
    for refused in [
        fixture.store.read_raw("app:heap").map(drop).unwrap_err(),
        fixture.store.write_raw("app:heap").map(drop).unwrap_err(),
        fixture
            .store
            .write_guest("native", &linear.memory, &fixture.addresses, &WriteOptions::new())
            .map(drop)
            .unwrap_err(),
        fixture
            .store
            .read_guest("native", &linear.memory, GuestReading::ReadOnly)
            .map(drop)
            .unwrap_err(),
    ] {
        assert!(matches!(refused, Error::OtherKind { .. }), "{refused}");
    }
}

#[test]
fn a_file_truncated_while_mapped_is_not_filled_with_zeros() {
    let fixture = fixture();
    let linear = Linear::new();
    let (mut session, data) = fixture.write_with_room(&linear, 65536);
    linear.store(data, 1);
    session.commit().unwrap();
    linear.store(data, 2);
    let path = fixture.file_of(&session);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(8192).unwrap();
    assert!(matches!(session.commit(), Err(Error::Damaged { .. })));
    assert!(matches!(session.close(), Err(Error::Damaged { .. })));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
    assert!(matches!(fixture.write(&linear), Err(Error::Damaged { .. })));
}

#[test]
fn growth_of_a_truncated_file_is_not_committed_and_the_last_commit_stays() {
    let fixture = fixture();
    let linear = Linear::new();
    let (mut session, data) = fixture.write_with_room(&linear, 65536);
    linear.store(data, 1);
    session.commit().unwrap();
    let path = fixture.file_of(&session);
    let committed_bytes = std::fs::metadata(&path).unwrap().len();
    session.grow_to(8 << 20).unwrap();
    linear.store(data, 2);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(committed_bytes).unwrap();
    assert!(matches!(session.commit(), Err(Error::Damaged { .. })));
    drop(session);
    let (session, _) = fixture.write_with_room(&linear, 0);
    assert_eq!(linear.load(data), 1);
    drop(session);
    assert_undamaged(fixture.store.path());
}

#[test]
fn a_window_with_holes_has_them_before_and_after_an_object_is_mapped() {
    let fixture = fixture();
    let linear = Linear::with(Unmapped::Hole);
    let writable = |address: u64| {
        // The kernel detects it: reading from a pipe into read-only memory fails.
        let (mut ends, byte) = ([0; 2], [1u8]);
        // SAFETY: plain system calls on this test's descriptors.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            assert_eq!(libc::write(ends[1], byte.as_ptr().cast(), 1), 1);
            let got = libc::read(ends[0], linear.word(address).cast(), 1);
            libc::close(ends[0]);
            libc::close(ends[1]);
            got == 1
        }
    };
    assert!(writable(4096));
    assert!(!writable(0x1000_0000) && !writable(0x4fff_f000));
    let (session, data) = fixture.write_with_room(&linear, 65536);
    assert!(writable(data));
    drop(session);
    assert!(!writable(data));
}

#[test]
fn snapshots_that_end_together_leave_zeros_and_do_not_affect_sessions() {
    let fixture = fixture();
    let names = ["app:one", "app:two", "app:three", "app:four"];
    for name in names {
        let (store, window) = (&fixture.store, GuestWindow::default());
        store.create_guest(name, window, &fixture.addresses, 0).unwrap();
    }
    let linear = Linear::new();
    let readers = GuestReaders::new(&fixture.store);
    for _ in 0..3 {
        let read = |name| readers.read(name, None, &linear.memory, GuestReading::Private).unwrap();
        let [one, two, four] = ["app:one", "app:two", "app:four"].map(read);
        let options = WriteOptions::new();
        let mut session = fixture
            .store
            .write_guest("app:three", &linear.memory, &fixture.addresses, &options)
            .unwrap();
        let bases = [one.base(), two.base(), session.base(), four.base()];
        assert!(bases.is_sorted());
        for base in bases {
            assert_ne!(linear.load(base), 0, "its magic");
            // The memory after an object belongs to the guest.
            linear.store(base + GRANULE - 0x8000, 5);
        }
        linear.store(bases[2] + 3072, linear.load(bases[2] + 3072) + 1);
        linear.memory.end_all(vec![four, one, two]);
        for base in [bases[0], bases[1], bases[3]] {
            assert_eq!((linear.load(base), linear.load(base + 65536)), (0, 0));
            linear.store(base, 6);
            linear.store(base, 0);
        }
        assert_ne!(linear.load(bases[2]), 0);
        assert!(session.commit().unwrap());
        session.close().unwrap();
    }
    assert_eq!(readers.reused_count(), 6);
    let session = fixture
        .store
        .write_guest("app:three", &linear.memory, &fixture.addresses, &WriteOptions::new())
        .unwrap();
    assert_eq!(linear.load(session.base() + 3072), 3);
    drop(session);
    assert_undamaged(fixture.store.path());
}

#[test]
fn an_audit_refuses_a_guest_object_by_name() {
    let fixture = fixture();
    let options = tools::AuditOptions::new();
    let refused = tools::audit(fixture.store.path(), "app:heap", &options).unwrap_err();
    assert!(matches!(refused, Error::OtherKind { .. }), "{refused}");
    assert!(refused.to_string().contains("app:heap"), "{refused}");
}

#[test]
fn an_export_refuses_a_guest_object_by_name_and_writes_nothing() {
    let fixture = fixture();
    let options = tools::ExportOptions::new().force(true);
    let mut file = Vec::new();
    let refused = tools::export(fixture.store.path(), "app:heap", &mut file, &options).unwrap_err();
    assert!(matches!(refused, tools::Error::Store(Error::OtherKind { .. })), "{refused}");
    assert!(refused.to_string().contains("app:heap"), "{refused}");
    assert!(file.is_empty());
}

/// Creates a closed store with a guest object, whose first word is a guest pointer, and a native
/// object. Returns the directory and the address of that word.
fn with_native_object() -> (tempfile::TempDir, PathBuf, u64) {
    let fixture = fixture();
    let linear = Linear::new();
    let (mut session, data) = fixture.write_with_room(&linear, 65536);
    linear.store(data, data + 8);
    linear.store(data + 8, 42);
    session.commit().unwrap();
    session.close().unwrap();
    fixture.store.create::<PVec<PString>, _>("texts", ["one", "two"]).unwrap();
    let Fixture { _directory: directory, store, .. } = fixture;
    let path = store.path().to_path_buf();
    drop(store);
    (directory, path, data)
}

fn assert_has_both(path: &Path, data: u64) {
    assert_undamaged(path);
    let store = Store::open(path).unwrap();
    let linear = Linear::new();
    let snapshot = store.read_guest("app:heap", &linear.memory, GuestReading::Private).unwrap();
    assert_eq!(linear.load(linear.load(data)), 42);
    drop(snapshot);
    let texts = store.read::<PVec<PString>>("texts").unwrap();
    assert!(texts.iter().map(PString::as_str).eq(["one", "two"]));
}

#[test]
fn a_rebase_moves_native_objects_and_keeps_guest_objects_at_their_guest_addresses() {
    let (_directory, path, data) = with_native_object();
    let plan = tools::rebase(&path, &tools::RebaseOptions::new().dry_run(true)).unwrap();
    let done = tools::rebase(&path, &tools::RebaseOptions::new()).unwrap();
    for report in [&plan, &done] {
        assert_eq!(report.guests, ["app:heap"]);
        assert!(report.objects.iter().map(|object| object.object.as_str()).eq(["texts"]));
    }
    assert_has_both(&path, data);
    // A guest continues with it as before.
    let (store, linear, more) = (Store::open(&path).unwrap(), Linear::new(), addresses(1 << 30));
    let mut session =
        store.write_guest("app:heap", &linear.memory, &more, &WriteOptions::new()).unwrap();
    linear.store(data + 16, 43);
    assert!(session.commit().unwrap());
    session.close().unwrap();
    drop(store);
    assert_has_both(&path, data);
    let refused = tools::undo_rebase(&path, false).unwrap_err();
    assert!(matches!(refused, tools::Error::ChangedSince { .. }), "{refused}");
    tools::undo_rebase(&path, true).unwrap();
    assert_has_both(&path, data);
}

#[test]
fn files_of_a_sandbox_host_follow_a_rebase_and_its_undo() {
    let (_directory, path, _) = with_native_object();
    let tables = [path.join("sandbox.access"), path.join("sandbox.keys")];
    for table in &tables {
        std::fs::write(table, table.as_os_str().as_encoded_bytes()).unwrap();
    }
    tools::rebase(&path, &tools::RebaseOptions::new()).unwrap();
    for table in &tables {
        assert_eq!(std::fs::read(table).unwrap(), table.as_os_str().as_encoded_bytes());
        let mode = std::fs::metadata(table).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "its owner's alone");
    }
    // Permissions that were granted later are not lost without a request.
    let before = std::fs::read(&tables[0]).unwrap();
    std::fs::write(&tables[0], "others").unwrap();
    let refused = tools::undo_rebase(&path, false).unwrap_err();
    assert!(refused.to_string().contains("sandbox.access"), "{refused}");
    std::fs::write(&tables[0], before).unwrap();
    tools::undo_rebase(&path, false).unwrap();
    assert!(tables.iter().all(|table| table.exists()));
}

#[test]
fn backup_and_restore_include_the_files_of_a_sandbox_host() {
    let (directory, path, data) = with_native_object();
    let table = path.join("sandbox.keys");
    let copy = directory.path().join("copy");
    let options = tools::BackupOptions::new();
    tools::backup(&path, &copy, &options).unwrap();
    std::fs::write(&table, "keys").unwrap();
    std::fs::write(path.join("sandbox.lock"), "").unwrap();
    let refused = tools::restore(&copy, &path, true, &options).unwrap_err();
    assert!(refused.to_string().contains("`sandbox.keys`, which the backup lacks"), "{refused}");
    std::fs::remove_dir_all(&copy).unwrap();
    tools::backup(&path, &copy, &options).unwrap();
    std::fs::write(&table, "other keys").unwrap();
    tools::restore(&copy, &path, true, &options).unwrap();
    assert_eq!(std::fs::read(&table).unwrap(), b"keys");
    assert_has_both(&path, data);
}

#[test]
fn a_recreated_catalog_names_guest_objects_that_share_addresses() {
    let fixture = fixture();
    let others = addresses(1 << 30);
    fixture.store.create_guest("other:heap", GuestWindow::default(), &others, 0).unwrap();
    let base = |name| fixture.store.info(name).unwrap().base_address;
    assert_eq!(base("app:heap"), base("other:heap"));
    let Fixture { _directory, store, .. } = fixture;
    let path = store.path().to_path_buf();
    drop(store);
    std::fs::remove_file(path.join("catalog")).unwrap();
    tools::check(&path, &tools::CheckOptions::new().repair(true)).unwrap();
    let report = tools::check(&path, &tools::CheckOptions::new()).unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    let store = Store::open(&path).unwrap();
    let names: BTreeSet<String> = store.list().unwrap().into_iter().collect();
    assert!(names.iter().eq(["app:heap", "other:heap"]), "{names:?}");
}

#[test]
fn a_guest_object_is_renamed_removed_and_backed_up_like_any_other() {
    let fixture = fixture();
    let linear = Linear::new();
    let (mut session, data) = fixture.write_with_room(&linear, 65536);
    linear.store(data, 11);
    session.commit().unwrap();
    session.close().unwrap();
    let store = &fixture.store;
    store.rename("app:heap", "app:pile").unwrap();
    let copy = tempfile::tempdir().unwrap();
    let target = copy.path().join("backup");
    store.backup(&target).unwrap();
    let snapshot = store.read_guest("app:pile", &linear.memory, GuestReading::ReadOnly).unwrap();
    assert_eq!(linear.load(data), 11);
    drop(snapshot);
    assert_undamaged(store.path());
    store.remove("app:pile").unwrap();
    assert!(store.list().unwrap().is_empty());
}

/// Replaces a store in another process, in which it is not open.
#[test]
fn child_replaces_the_store() {
    let Ok(path) = std::env::var("EVERMAP_REPLACE_AT") else { return };
    let path = Path::new(&path);
    let rebased = tools::rebase(path, &tools::RebaseOptions::new()).map(drop);
    let options = tools::BackupOptions::new();
    let restored = tools::restore(path.with_extension("backup"), path, true, &options).map(drop);
    match std::env::var("EVERMAP_REPLACE_BUSY").is_ok() {
        true => {
            let refused = "another process has objects of it open";
            match rebased {
                Err(tools::Error::Store(Error::Busy { holder, .. })) if holder == refused => {}
                other => panic!("{other:?}"),
            }
            match restored {
                Err(Error::Busy { holder, .. }) if holder == refused => {}
                other => panic!("{other:?}"),
            }
        }
        false => {
            rebased.unwrap();
            restored.unwrap();
        }
    }
}

#[track_caller]
fn replace_elsewhere(path: &Path, busy: bool) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["child_replaces_the_store", "--exact", "--nocapture"]);
    command.env("EVERMAP_REPLACE_AT", path);
    if busy {
        command.env("EVERMAP_REPLACE_BUSY", "1");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_store_is_not_replaced_while_a_guest_writes_one_of_its_objects() {
    let fixture = fixture();
    let path = fixture.store.path().to_path_buf();
    fixture.store.backup(path.with_extension("backup")).unwrap();
    let linear = Linear::new();
    let (mut session, data) = fixture.write_with_room(&linear, 65536);
    replace_elsewhere(&path, true);
    linear.store(data, 42);
    assert!(session.commit().unwrap());
    session.close().unwrap();
    {
        let reader = Linear::new();
        let reading = GuestReading::Private;
        let _snapshot = fixture.store.read_guest("app:heap", &reader.memory, reading).unwrap();
        assert_eq!(reader.load(data), 42);
    }
    // A closed session keeps no lock.
    replace_elsewhere(&path, false);
    drop(fixture.write(&linear).unwrap());
    assert_undamaged(&path);
}
