//! Attributes that a tree copy preserves.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use evermap_transfer::tree::{Outcome, TreeOptions};
use evermap_transfer::{Durability, Preserve};

use crate::compare::{assert_same, temporary_names, tree};
use crate::make::{
    acl, copy, copy_with, everything, is_root, set_mode, set_times, set_xattr, skip,
};

#[test]
fn copy_preserves_everything() {
    let temp = tempfile::tempdir().unwrap();
    let (source, target) = (temp.path().join("source"), temp.path().join("target"));
    everything(&source);
    let before = tree(&source);
    let report = copy(&source, &target);
    assert_eq!(report.outcome, Outcome::Published);
    assert!(report.not_kept.is_empty() && report.errors.is_empty(), "{report:?}");
    assert_same(&before, &tree(&target));
    assert!(temporary_names(temp.path()).is_empty());
    let after: Vec<_> =
        tree(&source).into_values().map(|node| (node.modified, node.accessed)).collect();
    let recorded: Vec<_> =
        before.into_values().map(|node| (node.modified, node.accessed)).collect();
    if is_root() {
        assert_eq!(after, recorded, "the source was modified");
    }
}

#[test]
fn copy_preserves_everything_at_every_durability_and_thread_count() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("source");
    everything(&source);
    let before = tree(&source);
    for (index, durability) in
        [Durability::None, Durability::Data, Durability::Full].into_iter().enumerate()
    {
        for threads in [1, 8] {
            let target = temp.path().join(format!("target {index} {threads}"));
            let threads = std::num::NonZeroUsize::new(threads);
            copy_with(
                &source,
                &target,
                &TreeOptions { durability, threads, ..TreeOptions::default() },
            );
            assert_same(&before, &tree(&target));
        }
    }
    assert!(temporary_names(temp.path()).is_empty());
}

#[test]
fn counts_match_the_tree() {
    let temp = tempfile::tempdir().unwrap();
    let (source, target) = (temp.path().join("source"), temp.path().join("target"));
    everything(&source);
    let nodes = tree(&source);
    let report = copy(&source, &target);
    let first = |kind: &str| {
        nodes.iter().filter(|(name, node)| node.kind == kind && node.first_name == **name).count()
            as u64
    };
    let special = first("FIFO") + first("socket") + first("device");
    let links = nodes.iter().filter(|(name, node)| node.first_name != **name).count() as u64;
    let files =
        nodes.iter().filter(|(name, node)| node.kind == "file" && node.first_name == **name);
    let data = |node: &crate::compare::Node| {
        node.extents.iter().map(|(begin, end)| end - begin).sum::<u64>()
    };
    let bytes: u64 = files.clone().map(|(_, node)| data(node)).sum();
    let all: u64 = files.map(|(_, node)| node.content.len() as u64).sum();
    let counts = report.counts;
    assert_eq!((counts.files, counts.directories), (first("file"), first("directory")));
    assert_eq!((counts.symlinks, counts.special, counts.links), (first("symlink"), special, links));
    // The last block of a file may extend beyond its end.
    assert_eq!(counts.bytes + counts.hole_bytes, all);
    assert!(
        counts.bytes <= bytes && counts.bytes + 4096 * counts.files >= bytes,
        "{counts:?} {bytes}"
    );
}

#[test]
fn deselected_attributes_are_not_preserved() {
    let temp = tempfile::tempdir().unwrap();
    let (source, target) = (temp.path().join("source"), temp.path().join("target"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "x").unwrap();
    let has_xattrs = set_xattr(&source.join("file"), "user.x", b"x");
    set_mode(&source.join("file"), 0o666);
    set_times(&source.join("file"), 1);
    let preserve = Preserve { mode: false, owner: false, times: false, xattrs: false };
    copy_with(&source, &target, &TreeOptions { preserve, ..TreeOptions::default() });
    let copied = &tree(&target)[std::path::Path::new("file")];
    assert!(copied.xattrs.is_empty());
    assert!(copied.modified.0 > 1_000_001_000);
    let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::umask(umask);
    assert_eq!(copied.mode & 0o777, 0o666 & !umask.as_raw_mode());
    assert!(has_xattrs || !is_root());
}

#[test]
fn default_acl_of_the_target_directory_is_not_inherited() {
    let temp = tempfile::tempdir().unwrap();
    let (source, target) = (temp.path().join("source"), temp.path().join("acl/target"));
    fs::create_dir(temp.path().join("acl")).unwrap();
    if !set_xattr(&temp.path().join("acl"), "system.posix_acl_default", &acl(7)) {
        return skip("no ACLs on this file system");
    }
    everything(&source);
    let before = tree(&source);
    copy(&source, &target);
    assert_same(&before, &tree(&target));
    // Merging into a directory with a default ACL.
    set_xattr(&target, "system.posix_acl_default", &acl(7));
    copy(&source, &target);
    assert_same(&before, &tree(&target));
}

#[test]
fn setuid_is_cleared_if_the_owner_is_not_preserved() {
    if !is_root() {
        return skip("owners: not root");
    }
    let temp = tempfile::tempdir().unwrap();
    let (source, target) = (temp.path().join("source"), temp.path().join("target"));
    fs::create_dir(&source).unwrap();
    for (name, owner) in [("own", 0), ("another's", 1234)] {
        fs::write(source.join(name), "x").unwrap();
        std::os::unix::fs::chown(source.join(name), Some(owner), Some(owner)).unwrap();
        set_mode(&source.join(name), 0o6755);
    }
    let preserve = Preserve { owner: false, ..Preserve::default() };
    copy_with(&source, &target, &TreeOptions { preserve, ..TreeOptions::default() });
    let mode = |name: &str| fs::metadata(target.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("own"), mode("another's")), (0o6755, 0o755));
    assert_eq!(fs::metadata(target.join("another's")).unwrap().uid(), 0);
}

#[test]
fn hole_in_a_small_file_is_preserved() {
    let temp = tempfile::tempdir().unwrap();
    let (source, target) = (temp.path().join("source"), temp.path().join("target"));
    fs::create_dir(&source).unwrap();
    crate::make::sparse(&source.join("small"), 128 << 10, &[(64 << 10, 4096)]);
    let report = copy(&source, &target);
    let blocks = |path: &std::path::Path| fs::metadata(path.join("small")).unwrap().blocks();
    assert_eq!(blocks(&target), blocks(&source));
    assert_eq!((report.counts.bytes, report.counts.hole_bytes), (4096, 124 << 10));
}

#[test]
fn generated_directory_is_copied_with_contents() {
    let temp = tempfile::tempdir().unwrap();
    let target = temp.path().join("target");
    let source = std::path::Path::new("/proc/sys/kernel/random");
    if !source.is_dir() {
        return skip("no /proc/sys/kernel/random");
    }
    let options = TreeOptions { keep_going: true, ..TreeOptions::default() };
    copy_with(source, &target, &options);
    let read = |path: &std::path::Path| fs::read_to_string(path.join("poolsize")).unwrap();
    assert_eq!(read(&target), read(source));
}
