//! Snapshots of guest objects in children: their files stay open and use other locks.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evermap::guest::{
    GuestAddresses, GuestMemory, GuestReaders, GuestReading, GuestWindow, Unmapped,
};
use evermap::{Error, Store, WriteOptions};

use crate::common::{TestStore, argument};
use crate::process::{Numbers, Way, fork, run, succeeds};

const NAME: &str = "app:heap";
const LINEAR_BYTES: usize = 0x5000_0000;
/// Index of the counters of the parent and the child.
const PARENT: usize = 0;
const CHILD: usize = 1;

/// A guest's linear memory, which stays mapped until the process ends.
#[derive(Clone, Copy)]
struct Linear(NonNull<u8>);

impl Linear {
    fn new() -> (Linear, GuestMemory) {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel chooses the address.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), LINEAR_BYTES, rights, flags, -1, 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        let base = NonNull::new(mapped.cast()).unwrap();
        // SAFETY: the memory stays mapped.
        let memory = unsafe { GuestMemory::new(base, GuestWindow::default(), Unmapped::Zeros) };
        (Linear(base), memory.unwrap())
    }

    fn word(self, address: u64) -> *mut u64 {
        assert!(address < LINEAR_BYTES as u64 - 8);
        self.0.as_ptr().wrapping_add(address as usize).cast()
    }

    fn load(self, address: u64) -> u64 {
        // SAFETY: inside the memory.
        unsafe { self.word(address).read_volatile() }
    }

    fn store(self, address: u64, value: u64) {
        // SAFETY: inside the memory.
        unsafe { self.word(address).write_volatile(value) }
    }
}

/// Hands out consecutive addresses.
struct Addresses(AtomicU64);

impl GuestAddresses for Addresses {
    fn lease(&self, bytes: u64) -> evermap::Result<u64> {
        Ok(self.0.fetch_add(bytes, Ordering::Relaxed))
    }
}

/// Runs a session in new memory that commits `value`, applies it and ends. Returns the word's
/// address.
/// word's address.
fn write(store: &Store, addresses: &Arc<dyn GuestAddresses>, value: u64) -> u64 {
    let (linear, memory) = Linear::new();
    let mut session = store.write_guest(NAME, &memory, addresses, &WriteOptions::new()).unwrap();
    session.grow_to(1 << 20).unwrap();
    let first = session.regions()[0];
    let meta = u64::from_le_bytes(first.to_bytes()[32..40].try_into().unwrap());
    let word = first.base() + meta;
    linear.store(word, value);
    assert!(session.commit().unwrap());
    session.close().unwrap();
    word
}

#[test]
#[ignore = "a part of other tests"]
fn role_host() {
    let (Some(path), Some(shared), Some(way)) = (argument(0), argument(1), argument(2)) else {
        return;
    };
    let way = if way == "clone" { Way::Clone } else { Way::Fork };
    let numbers = Numbers::new(shared.as_ref());
    let store = Store::open_or_create(path).unwrap();
    let addresses: Arc<dyn GuestAddresses> = Arc::new(Addresses(AtomicU64::new(0x1000_0000)));
    store.create_guest(NAME, GuestWindow::default(), &addresses, 0).unwrap();
    let word = write(&store, &addresses, 1);

    let (linear, memory) = Linear::new();
    let readers = GuestReaders::new(&store);
    let read = || readers.read(NAME, None, &memory, GuestReading::Private).unwrap();
    drop(read());
    let mut snapshot = Some(read());
    assert_eq!(readers.reused_count(), 1, "the file was kept open");
    let child = fork(way, || {
        let before = linear.load(word) == 1;
        let unchanged = numbers.reaches(PARENT, 1) && linear.load(word) == 1;
        let refused = matches!(
            readers.read(NAME, None, &memory, GuestReading::Private),
            Err(Error::Forked { .. })
        );
        // The parent's end releases its lock, though the child lives on.
        drop(snapshot.take());
        numbers.set(CHILD, 1);
        before && unchanged && refused && numbers.reaches(PARENT, 2)
    });
    drop(snapshot);
    for value in 2..6 {
        write(&store, &addresses, value);
    }
    numbers.set(PARENT, 1);
    assert!(numbers.reaches(CHILD, 1), "the child saw another commit");
    write(&store, &addresses, 6);
    for reused in 1..3 {
        let snapshot = read();
        assert_eq!(linear.load(word), 6);
        drop(snapshot);
        assert_eq!(readers.reused_count(), reused, "a lock keeps the writer from the file");
    }
    numbers.set(PARENT, 2);
    succeeds(child);
}

fn children_keep_a_guests_snapshot(way: &str) {
    let test = TestStore::in_memory();
    let shared = test.directory.path().join("numbers");
    let path = test.directory.path().join("guests");
    run("guests::role_host", &[path.to_str().unwrap(), shared.to_str().unwrap(), way]);
}

#[test]
fn forked_children_keep_a_guest_snapshot_without_its_lock() {
    children_keep_a_guests_snapshot("fork");
}

#[test]
fn children_of_a_bare_clone_keep_a_guest_snapshot_without_its_lock() {
    children_keep_a_guests_snapshot("clone");
}
