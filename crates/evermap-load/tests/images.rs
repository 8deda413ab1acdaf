//! Guarantees of every image, for every method.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use evermap_load::{Advice, Cache, Error, Image, Latency, Loader, Method};

const WINDOW: usize = 2 << 20;

struct File {
    _directory: tempfile::TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Creates a file next to the build, where the disk usually supports direct I/O.
fn file(bytes: usize) -> File {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    let bytes: Vec<u8> = (0..bytes).map(|at| (at / 4096 + at % 251) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    File { _directory: directory, path, bytes }
}

/// Returns a loader that may map: mapped test files do not change.
fn loader(path: &Path) -> Loader {
    // SAFETY: the tests do not change files that they map.
    unsafe { Loader::open(path).may_map() }
}

/// Loads by one method. Prints a notice and returns `None` if the kernel or file system does not
/// support it.
fn load_by(loader: &Loader, method: Method) -> Option<Image> {
    match loader.clone().method(method).load() {
        Ok(image) => Some(image),
        Err(Error::Refused { why, .. }) => {
            eprintln!("SKIPPED: {method}: {why}");
            None
        }
        Err(error) => panic!("{method}: {error}"),
    }
}

#[test]
fn every_method_loads_files_of_every_size_without_writing_to_them() {
    for size in [0, 1, 4095, 4096, 4097, 256 << 10, WINDOW - 1, WINDOW, 2 * WINDOW + 4097] {
        let file = file(size);
        for method in Method::ALL {
            let Some(mut image) = load_by(&loader(&file.path), method) else { continue };
            assert!(*image == *file.bytes, "{method}, {size} bytes");
            image.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
            image.wait().unwrap();
            assert!(image.iter().zip(&file.bytes).all(|(now, then)| *now == then.wrapping_add(1)));
            assert_eq!(image.progress().loaded_bytes, size as u64, "{method}");
            image.check().unwrap();
            drop(image);
            assert!(std::fs::read(&file.path).unwrap() == file.bytes, "{method} wrote to the file");
        }
    }
}

#[test]
fn every_method_loads_any_range() {
    let file = file(3 * WINDOW);
    for range in [0..1, 1..4097, 4095..WINDOW + 1, WINDOW - 1..3 * WINDOW, 77..77] {
        for method in Method::ALL {
            let part = range.start as u64..range.end as u64;
            let Some(image) = load_by(&loader(&file.path).range(part), method) else { continue };
            assert!(*image == file.bytes[range.clone()], "{method}, {range:?}");
        }
    }
    let error = loader(&file.path).range(1..u64::MAX).load().unwrap_err();
    assert!(error.to_string().contains("use a range within"), "{error}");
}

#[test]
fn holes_are_zeros_by_every_method() {
    let file = file(0);
    let data = std::fs::File::options().write(true).open(&file.path).unwrap();
    data.set_len(9 * WINDOW as u64).unwrap();
    data.write_all_at(&[7; 4096], 4 * WINDOW as u64 + 4096).unwrap();
    drop(data);
    let mut expected = vec![0; 9 * WINDOW];
    expected[4 * WINDOW + 4096..4 * WINDOW + 8192].fill(7);
    for method in Method::ALL {
        let Some(image) = load_by(&loader(&file.path), method) else { continue };
        assert!(*image == *expected, "{method}");
        if method.is_private() {
            assert!(image.report().hole_bytes >= 7 * WINDOW as u64, "{method} read holes");
        }
    }
}

#[test]
fn dirty_cached_bytes_are_loaded() {
    let file = file(4 * WINDOW);
    let writer = std::fs::File::options().write(true).open(&file.path).unwrap();
    for (round, method) in Method::ALL.into_iter().enumerate() {
        writer.write_all_at(&[round as u8; 5000], WINDOW as u64 + 100).unwrap();
        let Some(image) = load_by(&loader(&file.path), method) else { continue };
        assert_eq!(image[WINDOW + 100..WINDOW + 5100], [round as u8; 5000], "{method}");
    }
}

#[test]
fn a_taken_over_file_is_in_memory_once() {
    let file = file(8 * WINDOW);
    let opened = std::fs::File::open(&file.path).unwrap();
    opened.sync_all().unwrap();
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    for method in [Method::Takeover, Method::TakeoverOnDemand] {
        let Some(mut image) = load_by(&loader(&file.path), method) else { continue };
        image.iter_mut().step_by(4096).for_each(|byte| *byte ^= 1);
        image.wait().unwrap();
        let report = image.report();
        assert!(report.complete_s >= report.first_use_s && report.first_use_s.is_some());
        if report.direct_bytes == 0 {
            eprintln!("SKIPPED: {method}: direct I/O is not supported");
            continue;
        }
        assert_eq!(report.direct_bytes, 8 * WINDOW as u64, "{method}");
        assert_eq!(report.residency.duplicate_bytes, 0, "{method}: {report:?}");
        assert_eq!(report.residency.private_bytes, 8 * WINDOW as u64);
    }
}

#[test]
fn a_forked_child_reads_no_zeros() {
    let file = file(24 * WINDOW);
    let Some(image) = load_by(&loader(&file.path), Method::TakeoverOnDemand) else { return };
    // SAFETY: the child reads memory and ends, without locks or allocation.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_right = image.iter().step_by(4096).zip(file.bytes.iter().step_by(4096));
        let is_right = is_right.fold(true, |right, (a, b)| right & (a == b));
        // SAFETY: ends the child.
        unsafe { libc::_exit(if is_right { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits only for that child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child did not have the bytes");
    assert!(*image == *file.bytes);
}

#[test]
fn advice_changes_no_byte() {
    let file = file(8 * WINDOW);
    let advices = [Advice::WriteSoon, Advice::ReadOnly, Advice::Never, Advice::Sequential];
    for method in Method::ALL {
        for advice in advices {
            let Some(mut image) = load_by(&loader(&file.path), method) else { continue };
            image[3 * WINDOW] ^= 1;
            image.advise(WINDOW + 1..6 * WINDOW, advice).unwrap();
            image[3 * WINDOW] ^= 1;
            image[5 * WINDOW] ^= 1;
            image[5 * WINDOW] ^= 1;
            assert!(*image == *file.bytes, "{method}, {advice:?}");
        }
    }
}

#[test]
fn write_soon_makes_pages_private_in_advance() {
    let file = file(8 * WINDOW);
    let mut image = load_by(&loader(&file.path), Method::Mmap).unwrap();
    assert_eq!(image.residency().private_bytes, 0);
    image.advise(0..4 * WINDOW, Advice::WriteSoon).unwrap();
    assert!(image.residency().private_bytes >= 4 * WINDOW as u64);
    assert!(*image == *file.bytes);
}

#[test]
fn mapping_without_permission_is_refused_by_name_and_not_planned() {
    let file = file(4 * WINDOW);
    let error = Loader::open(&file.path).method(Method::Mmap).load().unwrap_err();
    assert!(error.to_string().contains("may_map"), "{error}");
    let image = Loader::open(&file.path).written(0.0).load().unwrap();
    assert!(!image.method().maps_the_file(), "{}", image.why());
}

#[test]
fn exceeding_memory_is_an_error_before_anything_is_read() {
    let file = file(WINDOW);
    let error = Loader::open(&file.path).memory_max(1 << 20).load().unwrap_err();
    assert!(matches!(error, Error::NoMemory { needed_bytes: 0x20_0000, .. }), "{error}");
    let image = loader(&file.path).memory_max(1 << 20).load().unwrap();
    assert!(image.method().maps_the_file(), "{}", image.why());
}

#[test]
fn uncached_reads_leave_the_cache_unchanged() {
    let file = file(6 * WINDOW);
    let opened = std::fs::File::open(&file.path).unwrap();
    opened.sync_all().unwrap();
    // In-memory file systems keep their files in the cache only.
    let cool = || rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let load = || Loader::open(&file.path).method(Method::ReadUncached).load().unwrap();
    cool();
    if load().report().residency.cached_bytes == file.bytes.len() as u64 {
        return println!("skipped: this file system keeps files in memory only");
    }
    cool();
    let image = load();
    // The kernel may still be reading ahead of the last window.
    assert!(image.residency().cached_bytes < WINDOW as u64, "{}", image.residency().cached_bytes);
    assert!(*image == *file.bytes);
    drop(image);
    cool();
    let mut window = vec![0; WINDOW];
    std::os::unix::fs::FileExt::read_exact_at(&opened, &mut window, 4 * WINDOW as u64).unwrap();
    let image = load();
    assert!(image.residency().cached_bytes >= WINDOW as u64, "previously cached pages stay");
    assert!(*image == *file.bytes);
}

#[test]
fn cache_drop_evicts_the_file() {
    let file = file(4 * WINDOW);
    let opened = std::fs::File::open(&file.path).unwrap();
    opened.sync_all().unwrap();
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let load = Loader::open(&file.path).cache(Cache::Drop).latency(Latency::Finish);
    let image = load.method(Method::ReadUncached).load().unwrap();
    assert_eq!(image.residency().cached_bytes, 0);
    assert!(*image == *file.bytes);
}

#[test]
fn choices_match_the_load_with_few_facts() {
    // Large enough to be sampled.
    for size in [4097, WINDOW, 10 * WINDOW] {
        let file = file(size);
        let whole = loader(&file.path);
        for loader in [
            Loader::open(&file.path),
            whole.clone(),
            whole.clone().written(0.0),
            whole.clone().written(0.0).cache(Cache::Drop),
            whole.clone().touched(0.001),
            whole.method(Method::MmapHuge),
        ] {
            let chosen = loader.choices().unwrap()[0].method;
            assert_eq!(chosen, loader.probe().unwrap().1[0].method, "{size}: {loader:?}");
            let tried = loader.load().unwrap().report();
            let tried = tried.refused.first().map_or(tried.choice.method, |(method, _)| *method);
            assert_eq!(chosen, tried, "{size}: {loader:?}");
        }
    }
}
