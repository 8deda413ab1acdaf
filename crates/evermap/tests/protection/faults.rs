//! Stray stores, each in a process that they must kill.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use evermap::{PVec, ProtectedRawSession, Protection, Store, WriteOptions};

use super::{check_is_clean, expected_protection, myself, protection_of, store, way_of};

/// Offset of the root's numbers in every object here.
const NUMBERS: usize = 1000;

/// Creates an object `heap` whose root is numbers, all 7.
fn make(store: &Store) {
    store.create_raw("heap").unwrap();
    let mut session = store.write_raw("heap").unwrap();
    let block = session.heap().allocate(8 * NUMBERS, 16).unwrap();
    // SAFETY: the block has room for the numbers, and only this code uses it.
    unsafe { block.cast::<[u64; NUMBERS]>().write([7; NUMBERS]) };
    // A free block after it that the file backs.
    let free = session.heap().allocate(8 * NUMBERS, 16).unwrap();
    // SAFETY: nothing refers to the block.
    unsafe { session.heap().try_free(free) }.unwrap();
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(block), 8 * NUMBERS as u64, [0; 16], "numbers") }.unwrap();
    session.commit().unwrap();
    session.close().unwrap();
}

fn root(store: &Store) -> [u64; NUMBERS] {
    let snapshot = store.read_raw("heap").unwrap();
    // SAFETY: every root here is such an array of numbers.
    unsafe { *snapshot.root().address.cast() }
}

/// Starts a process that commits one change and then makes a stray store at `place`. The store must
/// kill it at that address, and the object must have the last commit.
fn faults_at(place: &str, protection: Protection) {
    let (directory, store) = store();
    make(&store);
    drop(store);
    let path = directory.path().join("store");
    let child = myself(&["--fault", place, way_of(protection), path.to_str().unwrap()])
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(child.status.signal(), Some(libc::SIGSEGV), "{place}: {:?}", child.status);
    let said = String::from_utf8(child.stdout).unwrap();
    let word = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{place}: no {name} in {said}")).trim().to_string()
    };
    assert_eq!(word("stray store to"), word("fault at"), "{place}");
    // SEGV_ACCERR and SEGV_PKUERR of `asm-generic/siginfo.h`.
    let code = if protection == Protection::Keys { "4" } else { "2" };
    assert_eq!(word("code"), code, "{place}");

    check_is_clean(&path);
    let store = Store::open(&path).unwrap();
    let mut expected = [7; NUMBERS];
    expected[0] = 8;
    assert_eq!(root(&store), expected, "{place}");
}

pub fn stray_stores(protection: Protection) {
    for place in ["data", "metadata", "superblock", "table", "free"] {
        faults_at(place, protection);
    }
}

pub fn after_scopes(protection: Protection) {
    for place in ["after-commit", "after-rollback", "after-checkpoint", "after-nested"] {
        faults_at(place, protection);
    }
}

pub fn grown_memory(protection: Protection) {
    for place in ["grown", "grown-committed", "region", "reserved", "shrunk"] {
        faults_at(place, protection);
    }
}

pub fn replaced_file(protection: Protection) {
    faults_at("replaced", protection);
}

/// The faulting process: opens the object protected, commits 8 as its first number, does what
/// `place` says, and makes the stray store.
pub fn commit(place: &str, way: &str, path: &Path) -> ExitCode {
    let protection = protection_of(way);
    // Before any other thread is started.
    let have_keys = Protection::prepare_keys();
    assert!(have_keys || protection != Protection::Keys);
    let reader = (place == "replaced").then(|| {
        let mut child = myself(&["--read", path.to_str().unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "reading\n");
        child
    });
    let store = Store::open(path).unwrap();
    let options = WriteOptions::new().log_bytes_max(64 << 10);
    let session = store.write_raw_with("heap", &options).unwrap();
    let mut session = session.protect(protection).unwrap();
    assert_eq!(session.protection(), expected_protection(protection));
    assert_eq!(session.info().unwrap().protection, expected_protection(protection));
    let numbers: *mut u64 = session.root().address.cast();
    let put = |session: &ProtectedRawSession, index: usize, number: u64| {
        let _scope = session.scope().unwrap();
        // SAFETY: the root has this many numbers, and the scope is open.
        unsafe { numbers.add(index).write_volatile(number) };
    };
    put(&session, 0, 8);
    assert!(session.commit().unwrap());
    let stray = prepare((place, path), &mut session, numbers, &put);
    if let Some(mut child) = reader {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
    report_faults();
    println!("stray store to {stray:p}");
    std::io::stdout().flush().unwrap();
    // SAFETY: none. This is the store that the protection must stop.
    unsafe { stray.write_volatile(9) };
    println!("the store had no effect");
    ExitCode::FAILURE
}

/// Does what `place` says without changing committed contents. Returns the address to store to.
fn prepare(
    (place, path): (&str, &Path),
    session: &mut ProtectedRawSession,
    numbers: *mut u64,
    put: &dyn Fn(&ProtectedRawSession, usize, u64),
) -> *mut u8 {
    let info = session.info().unwrap();
    let base = info.base_address as *mut u8;
    let grow = |session: &ProtectedRawSession, bytes: usize| {
        let scope = session.scope().unwrap();
        scope.heap().allocate_zeroed(bytes, 16).unwrap().as_ptr()
    };
    match place {
        "data" => numbers.wrapping_add(500).cast(),
        "superblock" => base.wrapping_add(88),
        "metadata" => base.wrapping_add(4096),
        // The checksum table ends where the first chunk begins.
        "table" => ((numbers as usize & !0xffff) - 4096) as *mut u8,
        "free" => numbers.wrapping_add(8192 / 8).cast(),
        "after-commit" => {
            for _ in 0..5 {
                put(session, 1, 70);
                put(session, 1, 7);
                session.commit().unwrap();
            }
            numbers.wrapping_add(1).cast()
        }
        "after-rollback" => {
            put(session, 2, 70);
            session.rollback().unwrap();
            // SAFETY: the root has this many numbers.
            assert_eq!(unsafe { numbers.add(2).read_volatile() }, 7);
            numbers.wrapping_add(2).cast()
        }
        "after-checkpoint" => {
            assert!(session.checkpoint().unwrap());
            numbers.cast()
        }
        "after-nested" => {
            let outer = session.scope().unwrap();
            drop(session.scope().unwrap());
            // SAFETY: the root has this many numbers, and the outer scope is still open.
            unsafe { numbers.write_volatile(8) };
            drop(outer);
            numbers.cast()
        }
        "grown" => grow(session, 3 << 20),
        "grown-committed" | "region" => {
            let bytes = if place == "region" { 30 << 20 } else { 3 << 20 };
            let block = grow(session, bytes);
            session.commit().unwrap();
            block
        }
        "reserved" => {
            session.reserve(5 << 20).unwrap();
            grow(session, 3 << 20)
        }
        "shrunk" => {
            let block = grow(session, 3 << 20);
            let behind = grow(session, 100_000);
            session.commit().unwrap();
            let scope = session.scope().unwrap();
            // SAFETY: nothing refers to the block.
            unsafe { scope.heap().try_free(std::ptr::NonNull::new(block).unwrap()) }.unwrap();
            drop(scope);
            session.shrink().unwrap();
            session.release(1 << 30).unwrap();
            behind
        }
        "replaced" => {
            // A reader prevents the log from being emptied, so the file is replaced.
            let file = file_of(path, &info.uuid);
            let filler = grow(session, 256 << 10);
            for round in 1..20u8 {
                let scope = session.scope().unwrap();
                // SAFETY: the block has this size and belongs to this code; the scope is open.
                unsafe { filler.write_bytes(round, 256 << 10) };
                drop(scope);
                session.commit().unwrap();
            }
            assert_ne!(file_of(path, &info.uuid), file, "the file was not replaced");
            numbers.cast()
        }
        other => panic!("unknown place: {other}"),
    }
}

/// Returns the inode of an object's current file.
fn file_of(store: &Path, uuid: &str) -> u64 {
    std::fs::metadata(store.join("objects").join(uuid)).unwrap().ino()
}

/// Installs a handler that prints the address and cause of a fault, and then lets it kill the
/// process.
fn report_faults() {
    extern "C" fn report(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel gives a valid description of the fault.
        let (address, code) = unsafe { ((*info).si_addr(), (*info).si_code) };
        let said = format!("fault at {address:p}\ncode {code}\n");
        // SAFETY: plain system calls; the store is repeated and kills the process.
        unsafe {
            libc::write(1, said.as_ptr().cast(), said.len());
            libc::signal(signal, libc::SIG_DFL);
        }
    }
    // SAFETY: the handler has the signature that SA_SIGINFO requires.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = report as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
    }
}

/// Reads the object until standard input ends.
pub fn read_until_stopped(path: &Path) -> ExitCode {
    let store = Store::open(path).unwrap();
    let snapshot = store.read_raw("heap").unwrap();
    println!("reading");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    // SAFETY: the root is an array of numbers.
    assert_eq!(unsafe { *snapshot.root().address.cast::<u64>() }, 7);
    ExitCode::SUCCESS
}

/// A typed object for the other files: a vector of numbers.
pub fn make_vector(store: &Store, name: &str, numbers: usize) {
    store.create::<PVec<u64>, _>(name, evermap::from_iter((0..numbers).map(|_| 7))).unwrap();
}
