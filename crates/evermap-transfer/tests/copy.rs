//! Guarantees of copying one file, with every engine.
#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evermap_transfer::engines::EngineKind;
use evermap_transfer::{Copy, Durability, Error, Reflink};
use tempfile::TempDir;

fn temp_dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Returns bytes that differ at every position.
fn bytes(length: usize) -> Vec<u8> {
    (0..length.div_ceil(8) as u64)
        .flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .take(length)
        .collect()
}

fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

fn from_to(temp: &TempDir) -> (PathBuf, PathBuf) {
    (temp.path().join("from"), temp.path().join("to"))
}

#[test]
fn every_engine_copies_every_size_completely() {
    let temp = temp_dir();
    let (from, to) = from_to(&temp);
    for size in [0, 1, 4095, 4096, 4097, 256 << 10, (256 << 10) + 1, (3 << 20) + 511, 20 << 20] {
        let content = bytes(size);
        fs::write(&from, &content).unwrap();
        for engine in [None].into_iter().chain(EngineKind::ALL.map(Some)) {
            let copy = Copy::new(&from, &to).verify(true);
            let copy = match engine {
                Some(engine) => copy.engine(engine),
                None => copy,
            };
            match copy.run() {
                Ok(report) => assert_eq!(report.size_bytes, size as u64),
                Err(Error::Refused { .. }) if engine.is_some() => continue,
                Err(error) => panic!("{engine:?}, {size} bytes: {error}"),
            }
            assert!(fs::read(&to).unwrap() == content, "{engine:?}, {size} bytes");
        }
    }
    assert_eq!(names(temp.path()), ["from", "to"]);
}

#[test]
fn holes_at_start_middle_and_end_are_preserved() {
    let temp = temp_dir();
    let (from, to) = from_to(&temp);
    for data in [vec![], vec![0], vec![32 << 20], vec![(64 << 20) - 4096], vec![1 << 20, 33 << 20]]
    {
        let file = File::create(&from).unwrap();
        file.set_len(64 << 20).unwrap();
        data.iter().for_each(|at| file.write_all_at(&bytes(4096), *at).unwrap());
        let report = Copy::new(&from, &to).durability(Durability::Data).verify(true).run().unwrap();
        let (source, target) = (fs::metadata(&from).unwrap(), fs::metadata(&to).unwrap());
        assert_eq!(target.len(), 64 << 20);
        assert!(
            target.blocks() <= source.blocks().max(data.len() as u64 * 8),
            "{} blocks",
            target.blocks()
        );
        assert_eq!(report.data_bytes, data.len() as u64 * 4096);
        assert_eq!(report.hole_bytes, (64 << 20) - report.data_bytes);
    }
}

#[test]
fn cancelled_copy_leaves_the_target_unchanged() {
    let temp = temp_dir();
    let (from, to) = from_to(&temp);
    fs::write(&from, bytes(8 << 20)).unwrap();
    fs::write(&to, "before").unwrap();
    let result = Copy::new(&from, &to).cancelled_by(Arc::new(AtomicBool::new(true))).run();
    assert!(matches!(result, Err(Error::Cancelled { .. })), "{result:?}");
    assert_eq!(fs::read(&to).unwrap(), b"before");
    assert_eq!(names(temp.path()), ["from", "to"]);
}

#[test]
fn interrupted_copy_resumes_where_it_stopped() {
    let temp = temp_dir();
    let (from, to) = from_to(&temp);
    let content = bytes(200 << 20);
    fs::write(&from, &content).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let copy = Copy::new(&from, &to)
        .resume(true)
        .engine(EngineKind::ReadWrite)
        .cancelled_by(Arc::clone(&stop));
    let meter = copy.progress();
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while meter.arrived_bytes() < 100 << 20 {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
        copy.run()
    });
    let Err(Error::Cancelled { left }) = result else { panic!("{result:?}") };
    assert!(left.contains(".to.evermap-part"), "{left}");
    assert!(!to.exists());
    let report = Copy::new(&from, &to).resume(true).run().unwrap();
    assert!(report.resumed_bytes >= 64 << 20, "{}", report.resumed_bytes);
    assert_eq!(report.resumed_bytes + report.moved_bytes(), 200 << 20);
    assert!(fs::read(&to).unwrap() == content);
    assert_eq!(names(temp.path()), ["from", "to"]);
}

/// Leaves a part with at least its first 64 MiB.
fn interrupted(from: &Path, to: &Path) {
    let stop = Arc::new(AtomicBool::new(false));
    let copy = Copy::new(from, to)
        .resume(true)
        .engine(EngineKind::ReadWrite)
        .cancelled_by(Arc::clone(&stop));
    let meter = copy.progress();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while meter.arrived_bytes() < 65 << 20 {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
        copy.run().unwrap_err();
    });
}

#[test]
fn cancelling_the_check_of_a_part_keeps_it_and_says_so() {
    let temp = temp_dir();
    let (from, to) = from_to(&temp);
    fs::write(&from, bytes(100 << 20)).unwrap();
    interrupted(&from, &to);
    let stop = Arc::new(AtomicBool::new(true));
    let result = Copy::new(&from, &to).resume(true).cancelled_by(stop).run();
    let Err(Error::Cancelled { left }) = result else { panic!("{result:?}") };
    assert!(left.contains(".to.evermap-part"), "{left}");
    let report = Copy::new(&from, &to).resume(true).run().unwrap();
    assert!(report.resumed_bytes >= 64 << 20, "{}", report.resumed_bytes);
}

#[test]
fn damaged_or_foreign_part_is_restarted() {
    let temp = temp_dir();
    let (from, to) = from_to(&temp);
    let content = bytes(100 << 20);
    fs::write(&from, &content).unwrap();
    interrupted(&from, &to);
    let part = temp.path().join(".to.evermap-part");
    File::options().write(true).open(&part).unwrap().write_all_at(b"damage", 1 << 20).unwrap();
    let report = Copy::new(&from, &to).resume(true).run().unwrap();
    assert_eq!(report.resumed_bytes, 0);
    assert!(fs::read(&to).unwrap() == content);

    fs::remove_file(&to).unwrap();
    interrupted(&from, &to);
    let other: Vec<u8> = content.iter().map(|byte| byte ^ 1).collect();
    fs::write(&from, &other).unwrap();
    let report = Copy::new(&from, &to).resume(true).run().unwrap();
    assert_eq!(report.resumed_bytes, 0);
    assert!(fs::read(&to).unwrap() == other);
    assert_eq!(names(temp.path()), ["from", "to"]);
}

#[test]
fn copying_a_file_onto_itself_is_refused_under_any_name() {
    let temp = temp_dir();
    let (from, to) = from_to(&temp);
    fs::write(&from, "content").unwrap();
    fs::hard_link(&from, &to).unwrap();
    symlink(&from, temp.path().join("link")).unwrap();
    for target in [&from, &to, &temp.path().join("link"), temp.path()] {
        let result = Copy::new(&from, target).run();
        assert!(matches!(result, Err(Error::SameFile { .. })), "{result:?}");
    }
    assert_eq!(fs::read(&from).unwrap(), b"content");
}

#[test]
fn target_may_be_a_directory_or_a_link_to_a_file() {
    let temp = temp_dir();
    let (from, _) = from_to(&temp);
    fs::write(&from, "content").unwrap();
    fs::create_dir(temp.path().join("directory")).unwrap();
    Copy::new(&from, temp.path().join("directory")).run().unwrap();
    assert_eq!(fs::read(temp.path().join("directory/from")).unwrap(), b"content");

    fs::write(temp.path().join("behind"), "before").unwrap();
    symlink("behind", temp.path().join("link")).unwrap();
    Copy::new(&from, temp.path().join("link")).run().unwrap();
    assert!(fs::symlink_metadata(temp.path().join("link")).unwrap().is_symlink());
    assert_eq!(fs::read(temp.path().join("behind")).unwrap(), b"content");

    symlink("nowhere", temp.path().join("dangling")).unwrap();
    let result = Copy::new(&from, temp.path().join("dangling")).run();
    assert!(matches!(result, Err(Error::Usage(_))), "{result:?}");
}

#[test]
fn names_may_have_any_bytes_and_length() {
    let temp = temp_dir();
    let (from, _) = from_to(&temp);
    fs::write(&from, "content").unwrap();
    let long = vec![b'n'; 255];
    for name in [b"line\nline".as_slice(), b"\xff\xfe", b" ", b"-", &long] {
        let to = temp.path().join(OsStr::from_bytes(name));
        for _ in 0..2 {
            Copy::new(&from, &to).durability(Durability::Full).run().unwrap();
        }
        assert_eq!(fs::read(&to).unwrap(), b"content");
    }
}

#[test]
fn generated_files_are_copied_completely() {
    let temp = temp_dir();
    let (_, to) = from_to(&temp);
    for source in
        ["/proc/version", "/proc/self/maps", "/sys/kernel/mm/transparent_hugepage/enabled"]
    {
        if !Path::new(source).exists() {
            continue;
        }
        let report = Copy::new(source, &to).run().unwrap();
        let content = fs::read(&to).unwrap();
        assert!(!content.is_empty(), "{source}");
        assert_eq!(report.size_bytes, content.len() as u64);
        if source == "/proc/version" {
            assert_eq!(content, fs::read(source).unwrap());
        }
    }
}

#[test]
fn errors_name_the_file_or_engine() {
    let temp = temp_dir();
    let (from, to) = from_to(&temp);
    let message = |result: Result<_, Error>| {
        result.map(|_: evermap_transfer::Report| ()).unwrap_err().to_string()
    };
    let missing = message(Copy::new(&from, &to).run());
    assert!(missing.contains("from") && missing.contains("No such file"), "{missing}");
    fs::write(&from, "content").unwrap();
    let no_directory = message(Copy::new(&from, temp.path().join("none/to")).run());
    assert!(no_directory.contains("none"), "{no_directory}");
    let refused = message(Copy::new("/proc/version", &to).engine(EngineKind::Reflink).run());
    assert!(refused.contains("reflink"), "{refused}");
    assert!(!to.exists());
}

#[test]
fn reflink_always_shares_or_fails() {
    let temp = temp_dir();
    let (from, to) = from_to(&temp);
    fs::write(&from, bytes(1 << 20)).unwrap();
    match Copy::new(&from, &to).reflink(Reflink::Always).run() {
        Ok(report) => assert_eq!(report.engines[0].engine, EngineKind::Reflink),
        Err(Error::Refused { .. }) => assert!(!to.exists()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn source_that_grows_during_the_copy_is_an_error() {
    let temp = temp_dir();
    let (from, to) = from_to(&temp);
    fs::write(&from, bytes(100 << 20)).unwrap();
    let copy = Copy::new(&from, &to).engine(EngineKind::ReadWrite);
    let meter = copy.progress();
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while meter.arrived_bytes() == 0 {
                std::thread::yield_now();
            }
            File::options()
                .append(true)
                .open(&from)
                .unwrap()
                .write_all_at(b"more", 100 << 20)
                .unwrap();
        });
        copy.run()
    });
    assert!(matches!(result, Err(Error::SourceChanged { .. })), "{result:?}");
    assert!(!to.exists());
}

#[test]
fn source_truncated_during_the_copy_is_an_error() {
    let temp = temp_dir();
    let (from, to) = from_to(&temp);
    for engine in EngineKind::ALL {
        fs::write(&from, bytes(64 << 20)).unwrap();
        let copy = Copy::new(&from, &to).engine(engine);
        let meter = copy.progress();
        let result = std::thread::scope(|scope| {
            let over = Arc::new(AtomicBool::new(false));
            let cut = scope.spawn({
                let (over, meter, from) = (Arc::clone(&over), &meter, &from);
                move || {
                    while meter.arrived_bytes() == 0 && !over.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                    File::options().write(true).open(from).unwrap().set_len(1000).unwrap();
                }
            });
            let result = copy.run();
            over.store(true, Ordering::Relaxed);
            cut.join().unwrap();
            result
        });
        match result {
            // Truncated too late: the copy was complete and the source already checked.
            Ok(_) => fs::remove_file(&to).unwrap(),
            Err(Error::SourceChanged { .. } | Error::Refused { .. }) => assert!(!to.exists()),
            Err(error) => panic!("{engine}: {error}"),
        }
    }
}

#[test]
fn mode_times_and_extended_attributes_are_preserved() {
    use std::os::unix::fs::PermissionsExt;
    let temp = temp_dir();
    let (from, to) = from_to(&temp);
    fs::write(&from, "content").unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o641)).unwrap();
    let has_xattrs =
        match rustix::fs::setxattr(&from, "user.note", b"kept", rustix::fs::XattrFlags::empty()) {
            Ok(()) => true,
            Err(_) => {
                eprintln!("SKIPPED: this file system has no user extended attributes");
                false
            }
        };
    let times = fs::FileTimes::new()
        .set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_007, 123_456_789))
        .set_accessed(std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_009, 987_654_321));
    File::options().write(true).open(&from).unwrap().set_times(times).unwrap();
    let report = Copy::new(&from, &to).verify(true).run().unwrap();
    assert_eq!(report.not_kept, []);
    let copied = fs::metadata(&to).unwrap();
    assert_eq!(copied.mode() & 0o7777, 0o641);
    assert_eq!((copied.mtime(), copied.mtime_nsec()), (1_000_000_007, 123_456_789));
    assert_eq!((copied.atime(), copied.atime_nsec()), (1_000_000_009, 987_654_321));
    if has_xattrs {
        let mut value = [0; 16];
        let length = rustix::fs::getxattr(&to, "user.note", &mut value).unwrap();
        assert_eq!(&value[..length], b"kept");
    }
}
