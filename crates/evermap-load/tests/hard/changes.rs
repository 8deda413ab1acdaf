//! Files that change during a load, and files with bytes that are only in the cache.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evermap_load::{Advice, Change, Error, Loader, Method};

use crate::common::{WINDOW, by, cold_file, directory, evict, on_demand, pattern, skip};

/// Runs loads whose second half is accessed only after `change`.
fn changed_meanwhile(expected: &[Change], change: impl Fn(&Path)) {
    const WINDOWS: usize = 24;
    let file = cold_file(WINDOWS * WINDOW);
    // On kernels with coarse timestamps, the change must get a later time than the file.
    std::thread::sleep(Duration::from_millis(20));
    let Some(mut image) = on_demand(&file.path) else { return };
    let half = WINDOWS / 2 * WINDOW;
    image.advise(half..image.len(), Advice::Never).unwrap();
    assert_eq!(image[0], file.bytes[0]);
    change(&file.path);
    let mut lost = 0;
    for window in (0..WINDOWS).rev() {
        let part = window * WINDOW..(window + 1) * WINDOW;
        match image.get(part.clone()) {
            Ok(bytes) => assert!(*bytes == file.bytes[part], "window {window} has new bytes"),
            Err(Error::Changed { change, .. }) => {
                assert!(expected.contains(&change), "{change:?} is not in {expected:?}");
                lost += 1;
            }
            Err(error) => panic!("window {window}: {error}"),
        }
    }
    if lost == 0 {
        return skip("everything was loaded before the file changed");
    }
    let error = image.wait().unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    assert!(error.to_string().contains("load it again"), "{error}");
    assert!(matches!(image.check(), Err(Error::Changed { .. })));
}

fn opened(path: &Path) -> std::fs::File {
    std::fs::File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_file_rewritten_in_place_is_an_error_and_new_bytes_are_never_visible() {
    changed_meanwhile(&[Change::Rewritten], |path| {
        opened(path).write_all_at(b"other bytes", 23 * WINDOW as u64).unwrap();
    });
}

#[test]
fn a_truncated_file_is_an_error_and_zeros_are_never_visible() {
    changed_meanwhile(&[Change::Truncated], |path| {
        opened(path).set_len(13 * WINDOW as u64 + 5).unwrap();
    });
}

#[test]
fn a_file_emptied_and_rewritten_is_an_error() {
    let anything = [Change::Truncated, Change::Rewritten, Change::Grown];
    changed_meanwhile(&anything, |path| {
        std::fs::write(path, vec![1; 24 * WINDOW]).unwrap();
    });
}

#[test]
fn a_file_that_grows_is_an_error() {
    changed_meanwhile(&[Change::Grown], |path| {
        let bytes = std::fs::metadata(path).unwrap().len();
        opened(path).write_all_at(b"more", bytes).unwrap();
    });
}

#[test]
fn a_replaced_or_removed_file_is_an_error() {
    changed_meanwhile(&[Change::Replaced], |path| {
        let other = path.with_extension("new");
        std::fs::write(&other, "another").unwrap();
        std::fs::rename(other, path).unwrap();
    });
    changed_meanwhile(&[Change::Replaced], |path| std::fs::remove_file(path).unwrap());
}

#[test]
fn a_new_link_to_a_file_is_not_a_change() {
    let file = cold_file(16 * WINDOW);
    let Some(image) = on_demand(&file.path) else { return };
    std::fs::hard_link(&file.path, file.path.with_extension("link")).unwrap();
    image.wait().unwrap();
    assert!(*image == *file.bytes);
}

/// Returns true if every change gets a new time, however soon it follows another (Linux 6.13).
fn tells_all_changes() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 13)
}

/// Guard that ends the work of another thread, even if the test fails.
struct Ending<'e>(&'e AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A program writes a number to the first page, then to the last, then the next number. In one
/// version of the file both are equal, or the first is one higher.
#[test]
fn an_image_is_one_version_of_a_constantly_written_file() {
    if !tells_all_changes() {
        return skip("this kernel's timestamps are too coarse to detect all changes");
    }
    let file = cold_file(4 * WINDOW);
    let last = (4 * WINDOW - 8) as u64;
    let writer = opened(&file.path);
    let write = |number: u64, at| writer.write_all_at(&number.to_le_bytes(), at).unwrap();
    let read = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    write(0, 0);
    write(0, last);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&is_over);
        scope.spawn(|| {
            let mut number = 1u64;
            while !is_over.load(Ordering::Relaxed) {
                write(number, 0);
                std::thread::sleep(Duration::from_micros(number * 7 % 3000));
                write(number, last);
                std::thread::sleep(Duration::from_micros(number * 13 % 9000));
                number += 1;
            }
        });
        let methods: Vec<_> =
            Method::ALL.into_iter().filter(|method| method.is_private()).collect();
        for round in 0..40 {
            for method in &methods {
                let image = match Loader::open(&file.path).method(*method).load() {
                    Ok(image) => image,
                    Err(Error::Changed { .. } | Error::Refused { .. }) => continue,
                    Err(error) => panic!("{method}: {error}"),
                };
                match image.wait() {
                    Ok(()) => {
                        let (first, last) = (read(&image), read(&image[4 * WINDOW - 8..]));
                        assert!(
                            first == last || first == last + 1,
                            "{method}, round {round}: {first} and {last} are from two versions"
                        );
                    }
                    Err(Error::Changed { .. }) => {}
                    Err(error) => panic!("{method}: {error}"),
                }
            }
        }
    });
}

/// Writes bytes that are in the cache only.
fn dirtied(path: &Path, seed: u8, shared: bool) -> Vec<(usize, u8)> {
    let file = opened(path);
    let bytes = file.metadata().unwrap().len() as usize;
    let places: Vec<_> =
        (0..40).map(|at| ((at * 104_729 + usize::from(seed) * 4096) % bytes, seed | 1)).collect();
    if !shared {
        for (at, byte) in &places {
            file.write_all_at(&[*byte], *at as u64).unwrap();
        }
        return places;
    }
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    // SAFETY: the kernel picks the address, and the writes are within the mapping, which belongs to
    // this function.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let base =
            mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0).unwrap();
        for (at, byte) in &places {
            base.cast::<u8>().add(*at).write(*byte);
        }
        munmap(base, bytes).unwrap();
    }
    places
}

#[test]
fn every_method_reads_bytes_that_were_just_written() {
    let file = cold_file(4 * WINDOW + 4097);
    let mut expected = file.bytes.clone();
    for shared in [false, true] {
        for (round, method) in Method::ALL.into_iter().enumerate() {
            evict(&file.path);
            let seed = round as u8 * 2 + u8::from(shared) * 100;
            for (at, byte) in dirtied(&file.path, seed, shared) {
                expected[at] = byte;
            }
            let Some(image) = by(&crate::common::loader(&file.path), method) else { continue };
            assert!(*image == *expected, "{method}, by a mapping: {shared}");
        }
    }
}

#[test]
fn every_method_reads_bytes_that_were_just_written_into_holes() {
    let directory = directory();
    for shared in [false, true] {
        for method in Method::ALL {
            let path = directory.path().join(format!("{method}-{shared}"));
            std::fs::File::create(&path).unwrap().set_len(6 * WINDOW as u64).unwrap();
            let mut expected = vec![0; 6 * WINDOW];
            for (at, byte) in dirtied(&path, 8, shared) {
                expected[at] = byte;
            }
            let Some(image) = by(&crate::common::loader(&path), method) else { continue };
            assert!(*image == *expected, "{method}, by a mapping: {shared}");
        }
    }
}

#[test]
fn bytes_in_another_shared_mapping_are_read() {
    let file = cold_file(4 * WINDOW);
    let other = memory_of(&file.path);
    other[3 * WINDOW + 5] ^= 0xff;
    let mut expected = pattern(4 * WINDOW);
    expected[3 * WINDOW + 5] ^= 0xff;
    for method in Method::ALL {
        let Some(image) = by(&crate::common::loader(&file.path), method) else { continue };
        assert!(*image == *expected, "{method}");
    }
}

/// Maps a file shared for the whole test run.
fn memory_of(path: &Path) -> &'static mut [u8] {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let file = opened(path);
    let bytes = file.metadata().unwrap().len() as usize;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel picks the address, and the mapping is never unmapped.
    unsafe {
        let base =
            mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0).unwrap();
        std::slice::from_raw_parts_mut(base.cast(), bytes)
    }
}
