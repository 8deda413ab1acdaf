//! Programs that close their own wall.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::mpsc::channel;

use evermap::Store;
use evermap_compartment::Error;
use evermap_compartment::wall::{Enclosure, Enforcement, Wall};

use super::attempts::{self, DANGEROUS, ORDINARY, SOCKETS};
use super::{inside, landlock_holds_all_threads, text};

/// Maps a file, or returns the error number.
fn map(file: &File, rights: i32, flags: i32) -> Result<(), i32> {
    let none = std::ptr::null_mut();
    // SAFETY: creates a new mapping at an address chosen by the kernel.
    match unsafe { libc::mmap(none, 4096, rights, flags, file.as_raw_fd(), 0) } {
        libc::MAP_FAILED => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
        _ => Ok(()),
    }
}

fn is_refused(error: std::io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied
}

pub fn closed() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create_new(directory.path().join("store")).unwrap();
    store.create::<u64, _>("counter", 7).unwrap();
    drop(store);
    assert_eq!(text(&inside("closed", directory.path()).stdout), "printed inside\n");
}

pub fn closed_inside(directory: &Path) {
    let store = Store::open(directory.join("store")).unwrap();
    let mut counter = store.write::<u64>("counter").unwrap();
    let mut file = File::create(directory.join("file")).unwrap();
    let mut random = File::open("/dev/urandom").unwrap();
    // Without the wall, the calls work or fail for other reasons.
    assert_eq!(attempts::read_own_memory(), 1);
    for attempt in ORDINARY.iter().filter(|attempt| ["openat", "mmap", "dup"].contains(&attempt.0))
    {
        assert_eq!(attempts::error_of(*attempt), 0, "{}", attempt.0);
    }

    assert_eq!(Wall::new().close().unwrap(), Enforcement::Landlock);
    *counter.root_mut() = 8;
    assert_eq!(*counter, 8);
    attempts::all_are_refused(DANGEROUS);
    attempts::all_are_refused(ORDINARY);
    attempts::all_are_refused(SOCKETS);
    assert!(is_refused(File::open("/proc/version").unwrap_err()));
    assert!(is_refused(File::open("/proc/self/mem").unwrap_err()));
    assert_eq!(map(&file, libc::PROT_READ, libc::MAP_SHARED), Err(libc::EPERM));
    assert!(is_refused(std::net::TcpListener::bind("127.0.0.1:0").unwrap_err()));
    assert!(is_refused(std::process::Command::new("/bin/true").spawn().unwrap_err()));
    file.write_all(b"written").unwrap();
    random.read_exact(&mut [0; 16]).unwrap();
    println!("printed inside");
    // Ends like any program.
}

pub fn allocating() {
    let (ask, asked) = channel::<()>();
    let (say, printed) = channel();
    let thread = std::thread::spawn(move || {
        // glibc assigns a thread its arena, its own or a shared one, at the first allocation.
        say.send(vec![1u8; 1000]).unwrap();
        asked.recv().unwrap();
        (0..64).map(|i| vec![i as u8; 1 << 20]).map(|block| u64::from(block[99])).sum::<u64>()
    });
    assert_eq!(printed.recv().unwrap().len(), 1000);
    Wall::new().close().unwrap();
    let large = vec![1u8; 64 << 20];
    let small: Vec<Box<u64>> = (0..100_000).map(Box::new).collect();
    let table: std::collections::HashMap<u64, u64> = (0..1000).map(|i| (i, i)).collect();
    assert_eq!((large[1 << 25], *small[777], table[&9]), (1, 777, 9));
    ask.send(()).unwrap();
    assert_eq!(thread.join().unwrap(), (0..64).sum());
}

pub fn memory() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    Wall::new().allow_anonymous_memory().close().unwrap();
    let (private, anonymous) = (libc::MAP_PRIVATE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    assert_eq!(map(&file, libc::PROT_READ, anonymous), Ok(()));
    assert_eq!(map(&file, executable, anonymous), Err(libc::EPERM));
    assert_eq!(map(&file, libc::PROT_READ, private), Err(libc::EPERM));
    assert_eq!(
        attempts::error_of(("", || {
            // SAFETY: an empty range names no page.
            unsafe { libc::syscall(libc::SYS_mprotect, 0, 0, libc::PROT_EXEC) }
        })),
        libc::EPERM
    );
}

pub fn earlier_threads() {
    let (ask, asked) = channel::<()>();
    let (say, printed) = channel::<()>();
    let thread = std::thread::spawn(move || {
        assert!(File::open("/proc/version").is_ok());
        say.send(()).unwrap();
        asked.recv().unwrap();
        assert!(is_refused(File::open("/proc/version").unwrap_err()));
        attempts::all_are_refused(DANGEROUS);
    });
    printed.recv().unwrap();
    let held = Wall::new().close().unwrap();
    let expected = if landlock_holds_all_threads() {
        Enforcement::Landlock
    } else {
        Enforcement::PartialLandlock
    };
    assert_eq!(held, expected);
    ask.send(()).unwrap();
    thread.join().unwrap();
}

pub fn new_threads() {
    // Starting threads is allowed here. Behind the default wall it is not, which other promises
    // test.
    Wall::new().allow_threads().close().unwrap();
    let named = std::thread::Builder::new().name("inside".to_string());
    let found = named.spawn(|| File::open("/proc/version").is_err_and(is_refused)).unwrap();
    assert!(found.join().unwrap());
    assert_eq!(
        attempts::error_of(("", || {
            // SAFETY: if a process were created, it would continue here and fail the test.
            unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }
        })),
        libc::EPERM
    );
    // A closed wall cannot be replaced by a weaker one.
    Wall::new().best_effort().close().unwrap_err();
}

pub fn paths() {
    let directory = tempfile::tempdir().unwrap();
    inside("paths", directory.path());
}

pub fn paths_inside(directory: &Path) {
    let [read, write, other] = ["read", "write", "other"].map(|name| directory.join(name));
    for folder in [&read, &write, &other] {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("file"), "text").unwrap();
    }
    assert_eq!(
        Wall::new().allow_read(&read).allow_write(&write).close().unwrap(),
        Enforcement::Landlock
    );
    assert_eq!(std::fs::read_to_string(read.join("file")).unwrap(), "text");
    assert!(is_refused(std::fs::write(read.join("file"), "no").unwrap_err()));
    assert!(is_refused(std::fs::write(read.join("new"), "no").unwrap_err()));
    assert!(is_refused(std::fs::remove_file(read.join("file")).unwrap_err()));
    std::fs::write(write.join("new"), "yes").unwrap();
    std::fs::rename(write.join("new"), write.join("renamed")).unwrap();
    std::fs::remove_file(write.join("renamed")).unwrap();
    assert!(is_refused(File::open(other.join("file")).unwrap_err()));
    assert!(is_refused(std::fs::rename(write.join("file"), other.join("moved")).unwrap_err()));
    assert!(is_refused(std::os::unix::fs::symlink("a", other.join("b")).unwrap_err()));
    attempts::all_are_refused(DANGEROUS);
}

pub fn paths_beside_threads() {
    let (_keep, asked) = channel::<()>();
    std::thread::spawn(move || asked.recv());
    let closed = Wall::new().allow_read("/dev").close();
    match landlock_holds_all_threads() {
        true => assert_eq!(closed.unwrap(), Enforcement::Landlock),
        false => {
            let error = closed.unwrap_err();
            assert!(matches!(error, Error::ThreadsRun { threads: 2 }), "{error}");
            assert!(File::open("/proc/version").is_ok(), "the process is unrestricted");
        }
    }
}

pub fn missing_path() {
    let error = Wall::new().allow_read("/nothing/there").close().unwrap_err();
    assert!(error.to_string().contains("/nothing/there"), "{error}");
    assert!(File::open("/proc/version").is_ok());
}

/// Makes the kernel report to this process that it has no Landlock.
fn forget_landlock() {
    use seccompiler::{SeccompAction, SeccompFilter};
    let calls = [(libc::SYS_landlock_create_ruleset, Vec::new())].into();
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, missing, architecture).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

pub fn without_landlock() {
    assert!(evermap_compartment::wall::has_landlock());
    forget_landlock();
    assert!(!evermap_compartment::wall::has_landlock());
    let error = Wall::new().close().unwrap_err();
    assert!(matches!(error, Error::NoLandlock { .. }), "{error}");
    let mut command = std::process::Command::new("/bin/true");
    let error = Enclosure::new().enclose(&mut command).unwrap_err();
    assert!(error.to_string().contains("Landlock"), "{error}");
    // With best effort, calls are refused and files are not.
    Enclosure::new().best_effort().enclose(&mut command).unwrap();
    assert!(command.status().unwrap().success());
    assert_eq!(Wall::new().best_effort().close().unwrap(), Enforcement::FilterOnly);
    assert!(is_refused(File::open("/proc/version").unwrap_err()), "refused by the filter");
}
