//! A preopened directory never leads to the store, through any mount or link.
//!
//! Mounts are made in a mount namespace of the test's thread, and disappear with it.
#![allow(clippy::unwrap_used)]

mod common;

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use common::Fixture;
use evermap_wasm::{End, Error, GuestOptions, KeyRing};

/// Returns a guest that opens this file in its first directory, and exits with 0 if it could read
/// it.
fn reader_of(file: &str) -> String {
    format!(
        r#"(module
            (import "wasi_snapshot_preview1" "path_open"
                (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_read"
                (func $read (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (memory (export "memory") 1)
            (data (i32.const 256) "{file}")
            (data (i32.const 0) "\00\02\00\00\40\00\00\00")
            (func (export "_start")
                (if (call $open (i32.const 3) (i32.const 0) (i32.const 256) (i32.const {}) (i32.const 0)
                        (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 16))
                    (then (call $exit (i32.const 1))))
                (if (call $read (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i32.const 20))
                    (then (call $exit (i32.const 2))))
                (call $exit (i32.eqz (i32.load (i32.const 20))))))"#,
        file.len()
    )
}

struct Place {
    fixture: Fixture,
}

impl Place {
    /// Creates a store with a key ring, three folders above it, and sibling directories.
    fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("one/two/three");
        fs::create_dir_all(&deep).unwrap();
        let sandbox = evermap_wasm::Sandbox::open(deep.join("store")).unwrap();
        let fixture = Fixture { sandbox, directory };
        KeyRing::of_store(fixture.store())
            .enter(fixture.sandbox.access(), &"app".parse().unwrap())
            .unwrap();
        Place { fixture }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.fixture.directory.path().join(path)
    }

    fn made(&self, path: &str) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Runs a guest that sees a directory and tries to read a file there.
    fn run(&self, preopen: &Path, file: &str) -> Result<End, Error> {
        let module = self.fixture.sandbox.compile("reader", reader_of(file).as_bytes()).unwrap();
        let options = GuestOptions::new().preopen(preopen, "/d", false);
        let ring = KeyRing::of_store(self.fixture.store());
        let key = ring.find(&"app".parse().unwrap()).unwrap().unwrap();
        let application = self.fixture.sandbox.application("app".parse().unwrap(), key).unwrap();
        self.fixture.sandbox.start(&module, &application, &options)?.run()
    }

    fn is_refused(&self, preopen: &Path) {
        let ran = self.run(preopen, "sandbox.keys");
        assert!(matches!(ran, Err(Error::PreopenHoldsStore { .. })), "{preopen:?}: {ran:?}");
    }
}

/// Gives this thread its own mount namespace. Returns false with a notice if that is not permitted.
fn with_own_mounts() -> bool {
    // SAFETY: changes this thread's mount namespace only; all pointers are constant C strings.
    let entered = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
    };
    if !entered {
        eprintln!("SKIPPED: bind mounts: {}", std::io::Error::last_os_error());
    }
    entered
}

fn mount(source: &Path, target: &Path, kind: &str, flags: libc::c_ulong) {
    let [source, target, kind] =
        [source, target, Path::new(kind)].map(|path| CString::new(path.to_str().unwrap()).unwrap());
    // SAFETY: the arguments are valid C strings during the call.
    let done = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null())
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn bind(source: &Path, target: &Path) {
    mount(source, target, "none", libc::MS_BIND | libc::MS_REC);
}

#[test]
fn a_bind_mount_of_the_store_is_refused_at_a_directory_and_below_it() {
    if !with_own_mounts() {
        return;
    }
    let place = Place::new();
    let store = place.fixture.store().to_path_buf();
    // Mounts at the preopened directory: the store, a folder of it, and each folder above it.
    for (number, source) in [
        store.clone(),
        store.join("objects"),
        place.at("one/two/three"),
        place.at("one/two"),
        place.at("one"),
    ]
    .into_iter()
    .enumerate()
    {
        let target = place.made(&format!("at{number}"));
        bind(&source, &target);
        place.is_refused(&target);
        // Mounts below the preopened directory, which its own path does not reveal.
        let outer = place.made(&format!("outer{number}"));
        let inner = place.made(&format!("outer{number}/some/where/inner"));
        bind(&source, &inner);
        place.is_refused(&outer);
        place.is_refused(&outer.join("some"));
        // A mount of that mount.
        let again = place.made(&format!("again{number}"));
        bind(&outer, &again);
        place.is_refused(&again);
    }
}

#[test]
fn a_bind_mount_of_a_single_file_of_the_store_is_refused() {
    if !with_own_mounts() {
        return;
    }
    let place = Place::new();
    let seen = place.made("seen");
    fs::write(seen.join("x"), "").unwrap();
    bind(&place.fixture.store().join("sandbox.keys"), &seen.join("x"));
    place.is_refused(&seen);
}

#[test]
fn a_store_on_its_own_mount_is_found_through_its_other_mounts() {
    if !with_own_mounts() {
        return;
    }
    let place = Place::new();
    let disk = place.made("disk");
    mount(Path::new("tmpfs"), &disk, "tmpfs", 0);
    fs::create_dir_all(disk.join("a/b")).unwrap();
    let lower = place.made("lower");
    bind(&disk.join("a/b"), &lower);
    let fixture = Fixture {
        sandbox: evermap_wasm::Sandbox::open(lower.join("store")).unwrap(),
        directory: tempfile::tempdir().unwrap(),
    };
    let ring = KeyRing::of_store(fixture.store());
    ring.enter(fixture.sandbox.access(), &"app".parse().unwrap()).unwrap();
    let inner = Place { fixture };
    // The folder above the store, which no path above the store shows.
    inner.is_refused(&disk.join("a"));
    inner.is_refused(&disk);
    inner.is_refused(&lower);
    // Another file system of the same type is allowed.
    let other = place.made("other");
    mount(Path::new("tmpfs"), &other, "tmpfs", 0);
    fs::write(other.join("sandbox.keys"), "somebody else's").unwrap();
    assert_eq!(inner.run(&other, "sandbox.keys").unwrap(), End::Exited(0));
}

#[test]
fn a_linked_folder_of_the_store_is_refused() {
    let place = Place::new();
    let elsewhere = place.made("elsewhere");
    let objects = place.fixture.store().join("objects");
    fs::remove_dir(&objects).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &objects).unwrap();
    place.is_refused(&elsewhere);
}

#[test]
fn directories_and_mounts_beside_the_store_are_allowed() {
    let place = Place::new();
    let beside = place.made("one/two/beside");
    fs::write(beside.join("file"), "text").unwrap();
    assert_eq!(place.run(&beside, "file").unwrap(), End::Exited(0));
    // A directory whose name begins like the store's.
    let alike = place.made("one/two/three/store2");
    assert_eq!(place.run(&alike, "file").unwrap(), End::Exited(1));
    if with_own_mounts() {
        let target = place.made("one/two/beside/mounted");
        bind(&place.made("free"), &target);
        assert_eq!(place.run(&beside, "file").unwrap(), End::Exited(0));
        // A mount covered by another one is out of reach.
        let covered = place.made("covered");
        bind(place.fixture.store(), &place.made("covered/inner"));
        mount(Path::new("tmpfs"), &covered, "tmpfs", 0);
        assert_eq!(place.run(&covered, "file").unwrap(), End::Exited(1));
    }
}

#[test]
fn a_proc_file_system_is_refused_at_a_directory_and_below_it() {
    let place = Place::new();
    let refused = |path: &Path| {
        let ran = place.run(path, "version");
        assert!(matches!(ran, Err(Error::PreopenHoldsProcesses { .. })), "{path:?}: {ran:?}");
    };
    refused(Path::new("/proc"));
    refused(Path::new("/proc/self"));
    if with_own_mounts() {
        let outer = place.made("outer");
        mount(Path::new("proc"), &place.made("outer/inner"), "proc", 0);
        refused(&outer);
    }
}
