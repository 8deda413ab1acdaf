//! Failures of tree copies: reported errors and remaining files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evermap_transfer::tree::{self, Outcome, TreeMeter, TreeOptions};
use evermap_transfer::{Durability, Error, IncompleteTree};

use crate::child::cancel_after;
use crate::compare::temporary_names;
use crate::make::{Mounted, copy_with, fast, is_root, skip};

fn incomplete(source: &Path, target: &Path, options: &TreeOptions) -> Box<IncompleteTree> {
    match tree::copy(source, target, options, &TreeMeter::default()) {
        Err(Error::Incomplete(report)) => report,
        other => panic!("not incomplete: {other:?}"),
    }
}

fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn target_within_the_source_is_refused_before_any_change() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("source");
    fs::create_dir_all(source.join("inner")).unwrap();
    symlink(source.join("inner"), temp.path().join("link")).unwrap();
    let refused = |target: &Path| {
        let refused = tree::copy(&source, target, &TreeOptions::default(), &TreeMeter::default());
        assert!(matches!(refused, Err(Error::Usage(_))), "{target:?}: {refused:?}");
    };
    refused(&source.join("target"));
    refused(&source.join("inner/target"));
    refused(&source.join("inner"));
    refused(&source.join("inner/../target"));
    refused(&temp.path().join("link/target"));
    refused(&temp.path().join("link"));
    let same = tree::copy(&source, &source, &TreeOptions::default(), &TreeMeter::default());
    assert!(matches!(same, Err(Error::SameFile { .. })), "{same:?}");
    assert_eq!(names(&source), ["inner"]);
    assert_eq!(names(temp.path()), ["link", "source"]);
    // A name that only starts like the source's is unrelated.
    tree::copy(
        &source,
        &temp.path().join("source 2"),
        &TreeOptions::default(),
        &TreeMeter::default(),
    )
    .unwrap();
}

#[test]
fn target_within_the_source_through_a_mount_does_not_grow_forever() {
    if !is_root() {
        return skip("mounts: not root");
    }
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("source");
    fs::create_dir_all(source.join("inner")).unwrap();
    fs::write(source.join("file"), "x").unwrap();
    let at = temp.path().join("mounted");
    let arguments =
        [OsStr::new("--bind"), source.join("inner").as_os_str()].map(OsStr::to_os_string);
    let Some(_mounted) =
        Mounted::new(&arguments.each_ref().map(|argument| argument.as_os_str()), &at)
    else {
        return;
    };
    let report = incomplete(&source, &at.join("target"), &TreeOptions::default());
    assert_eq!((report.errors_total, report.outcome), (1, Outcome::Removed), "{report}");
    assert!(names(&source.join("inner")).is_empty());
}

#[test]
fn other_file_systems_are_skipped_on_request() {
    if !is_root() {
        return skip("mounts: not root");
    }
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("source");
    fs::create_dir_all(&source).unwrap();
    let at = source.join("mounted");
    let arguments = ["-t", "tmpfs", "none"].map(OsStr::new);
    let Some(_mounted) = Mounted::new(&arguments, &at) else { return };
    fs::write(at.join("file"), "x").unwrap();
    copy_with(&source, &temp.path().join("all"), &TreeOptions::default());
    copy_with(
        &source,
        &temp.path().join("one"),
        &TreeOptions { one_file_system: true, ..TreeOptions::default() },
    );
    assert!(temp.path().join("all/mounted/file").exists());
    assert!(
        temp.path().join("one/mounted").is_dir() && !temp.path().join("one/mounted/file").exists()
    );
}

#[test]
fn full_disk_leaves_nothing_of_a_new_target() {
    if !is_root() {
        return skip("a small file system: not root");
    }
    let temp = fast();
    let source = temp.path().join("source");
    fs::create_dir(&source).unwrap();
    for directory in 0..20 {
        fs::create_dir(source.join(directory.to_string())).unwrap();
        for file in 0..20 {
            fs::write(source.join(format!("{directory}/{file}")), vec![1; 16 << 10]).unwrap();
        }
    }
    fs::write(source.join("large"), vec![1; 600 << 10]).unwrap();
    let at = temp.path().join("small");
    let arguments = ["-t", "tmpfs", "-o", "size=2m", "none"].map(OsStr::new);
    let Some(_mounted) = Mounted::new(&arguments, &at) else { return };
    for durability in [Durability::None, Durability::Full] {
        let options = TreeOptions { durability, ..TreeOptions::default() };
        let report = incomplete(&source, &at.join("target"), &options);
        assert_eq!(report.outcome, Outcome::Removed);
        assert!(matches!(report.errors[0], Error::NoSpace { .. }), "{report}");
        assert!(names(&at).is_empty());
    }
    // In a merge, files replaced before the error stay.
    fs::create_dir(at.join("target")).unwrap();
    let report = incomplete(&source, &at.join("target"), &TreeOptions::default());
    assert_eq!(report.outcome, Outcome::Merged);
    assert!(temporary_names(&at).is_empty());
    fs::remove_dir_all(at.join("target")).unwrap();
    // With `keep_going`, the files that fit are published.
    let report = copy_with(
        &source,
        &at.join("target"),
        &TreeOptions { keep_going: true, ..TreeOptions::default() },
    );
    assert_eq!(report.outcome, Outcome::Published);
    assert!(report.errors_total > 0 && report.counts.files > 50, "{report:?}");
    let all: Vec<_> = crate::compare::tree(&at.join("target")).into_iter().collect();
    assert!(
        all.iter().all(|(_, node)| node.kind != "file" || node.content.len() >= 16 << 10),
        "an incomplete file was published"
    );
}

#[test]
fn source_written_during_the_copy_is_an_error() {
    // Writes in place and at the end, for a small and a large file.
    for (bytes, grows) in [(100, false), (100, true), (1 << 20, false), (1 << 20, true)] {
        let temp = fast();
        let source = temp.path().join("source");
        fs::create_dir(&source).unwrap();
        let file = source.join("written to");
        fs::write(&file, vec![0; bytes]).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let writer = {
            let done = Arc::clone(&done);
            let file = fs::OpenOptions::new().write(true).open(&file).unwrap();
            std::thread::spawn(move || {
                let mut end = bytes as u64;
                while !done.load(Ordering::Relaxed) {
                    file.write_all_at(b"more", if grows { end } else { 0 }).unwrap();
                    end += 4;
                    // Do not outgrow the copy.
                    if grows && end > 2 * bytes as u64 {
                        end = bytes as u64;
                        file.set_len(end).unwrap();
                    }
                }
            })
        };
        // Some copies complete between two writes.
        let seen = (0..10_000).any(|attempt| {
            let target = temp.path().join(format!("target {attempt}"));
            match tree::copy(&source, &target, &TreeOptions::default(), &TreeMeter::default()) {
                Err(Error::Incomplete(report)) => {
                    assert!(matches!(report.errors[0], Error::SourceChanged { .. }), "{report}");
                    assert!(!target.exists());
                    true
                }
                Ok(_) => false,
                Err(error) => panic!("{error}"),
            }
        });
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        assert!(seen, "no copy detected the change");
        assert!(temporary_names(temp.path()).is_empty());
    }
}

#[test]
fn cancelled_copy_leaves_nothing() {
    let temp = fast();
    let source = temp.path().join("source");
    for directory in 0..40 {
        fs::create_dir_all(source.join(format!("{directory}/inner"))).unwrap();
        for file in 0..50 {
            fs::write(source.join(format!("{directory}/inner/{file}")), "x").unwrap();
        }
    }
    for (files, durability, merges) in [
        (0, Durability::None, false),
        (1, Durability::Full, false),
        (700, Durability::None, false),
        (300, Durability::None, true),
        (300, Durability::Full, true),
    ] {
        let target = temp.path().join("target");
        if merges {
            fs::create_dir_all(target.join("1/inner")).unwrap();
        }
        let cancelled = Arc::new(AtomicBool::new(files == 0));
        let meter = TreeMeter::new(Arc::clone(&cancelled));
        let options = TreeOptions { durability, ..TreeOptions::default() };
        let copied = std::thread::scope(|scope| {
            let copying = scope.spawn(|| tree::copy(&source, &target, &options, &meter));
            cancel_after(&meter, files, &cancelled);
            copying.join().unwrap()
        });
        assert!(matches!(copied, Err(Error::Cancelled { .. })), "{copied:?}");
        assert_eq!(target.exists(), merges);
        assert!(temporary_names(temp.path()).is_empty());
        if merges {
            fs::remove_dir_all(&target).unwrap();
        }
    }
}

#[test]
fn listed_errors_are_limited_and_all_are_counted() {
    let temp = tempfile::tempdir().unwrap();
    let (source, target) = (temp.path().join("source"), temp.path().join("target"));
    for name in 0..20 {
        fs::create_dir_all(target.join(format!("{name}/in the way"))).unwrap();
        fs::create_dir_all(&source).unwrap();
        fs::write(source.join(name.to_string()), "x").unwrap();
    }
    let report =
        incomplete(&source, &target, &TreeOptions { listed_max: 3, ..TreeOptions::default() });
    assert_eq!((report.errors.len(), report.errors_total), (3, 20));
}

#[test]
fn invalid_targets_are_named_in_the_error() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("source")).unwrap();
    fs::write(temp.path().join("file"), "x").unwrap();
    symlink("nowhere", temp.path().join("dangling")).unwrap();
    let copy = |source: &str, target: &str| {
        let (source, target) = (temp.path().join(source), temp.path().join(target));
        tree::copy(&source, &target, &TreeOptions::default(), &TreeMeter::default())
            .unwrap_err()
            .to_string()
    };
    assert!(copy("source", "missing/target").contains("missing"));
    assert!(copy("source", "file").contains("file"));
    assert!(copy("source", "dangling").contains("symbolic link"));
    assert!(copy("file", "target").contains("file"));
    assert!(copy("missing", "target").contains("missing"));
    assert_eq!(names(temp.path()), ["dangling", "file", "source"]);
}
