//! Merging into an existing directory.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use evermap_transfer::tree::{self, Outcome, TreeMeter, TreeOptions};
use evermap_transfer::{Durability, Error};

use crate::compare::{assert_same, temporary_names, tree};
use crate::make::{copy, copy_with, everything};

fn two_trees() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let (source, target) = (temp.path().join("source"), temp.path().join("target"));
    fs::create_dir_all(source.join("both")).unwrap();
    fs::create_dir_all(target.join("both")).unwrap();
    (temp, source, target)
}

#[test]
fn files_are_replaced_and_other_entries_stay() {
    for durability in [Durability::None, Durability::Data, Durability::Full] {
        let (temp, source, target) = two_trees();
        for (directory, word) in [(&source, "new"), (&target, "old")] {
            fs::write(directory.join("both/file"), word).unwrap();
            fs::write(directory.join(format!("only {word}")), word).unwrap();
        }
        fs::create_dir_all(source.join("fresh/inner")).unwrap();
        fs::write(source.join("fresh/inner/file"), "new").unwrap();
        let mut held = fs::File::open(target.join("both/file")).unwrap();
        let report =
            copy_with(&source, &target, &TreeOptions { durability, ..TreeOptions::default() });
        assert_eq!(report.outcome, Outcome::Merged);
        let read = |name: &str| fs::read_to_string(target.join(name)).unwrap();
        assert_eq!(read("both/file"), "new");
        assert_eq!(
            (read("only new"), read("only old"), read("fresh/inner/file")),
            ("new".into(), "old".into(), "new".into())
        );
        let mut old = String::new();
        held.read_to_string(&mut old).unwrap();
        assert_eq!(old, "old", "the existing file was overwritten in temp");
        assert!(temporary_names(temp.path()).is_empty());
    }
}

#[test]
fn merging_twice_yields_the_source() {
    for durability in [Durability::None, Durability::Full] {
        let temp = tempfile::tempdir().unwrap();
        let (source, target) = (temp.path().join("source"), temp.path().join("target"));
        everything(&source);
        let before = tree(&source);
        fs::create_dir(&target).unwrap();
        let options = TreeOptions { durability, ..TreeOptions::default() };
        for _ in 0..2 {
            copy_with(&source, &target, &options);
            assert_same(&before, &tree(&target));
        }
        assert!(temporary_names(temp.path()).is_empty());
    }
}

#[test]
fn links_in_the_target_are_not_followed() {
    let (temp, source, target) = two_trees();
    let outside = temp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "outside").unwrap();
    fs::write(source.join("file"), "new").unwrap();
    fs::create_dir(source.join("directory")).unwrap();
    fs::write(source.join("directory/file"), "new").unwrap();
    symlink(outside.join("file"), target.join("file")).unwrap();
    symlink(&outside, target.join("directory")).unwrap();
    let failed =
        tree::copy(&source, &target, &TreeOptions::default(), &TreeMeter::default()).unwrap_err();
    let Error::Incomplete(report) = failed else { panic!("{failed}") };
    assert_eq!(report.errors_total, 1, "{report}");
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "outside");
    assert!(!target.join("file").symlink_metadata().unwrap().is_symlink());
    assert!(target.join("directory").symlink_metadata().unwrap().is_symlink());
}

#[test]
fn type_conflicts_are_errors_and_the_rest_is_copied() {
    let (temp, source, target) = two_trees();
    fs::write(source.join("a"), "file").unwrap();
    fs::create_dir_all(target.join("a/kept")).unwrap();
    fs::create_dir(source.join("b")).unwrap();
    fs::write(source.join("b/file"), "new").unwrap();
    fs::write(target.join("b"), "kept").unwrap();
    fs::write(source.join("both/c"), "new").unwrap();
    let failed =
        tree::copy(&source, &target, &TreeOptions::default(), &TreeMeter::default()).unwrap_err();
    let Error::Incomplete(report) = failed else { panic!("{failed}") };
    assert_eq!((report.errors_total, report.outcome), (2, Outcome::Merged));
    assert!(report.to_string().contains("remain"), "{report}");
    assert!(target.join("a/kept").is_dir());
    assert_eq!(fs::read_to_string(target.join("b")).unwrap(), "kept");
    assert_eq!(fs::read_to_string(target.join("both/c")).unwrap(), "new");
    assert!(temporary_names(temp.path()).is_empty());
}

#[test]
fn hard_links_are_preserved_in_a_merge() {
    let (_place, source, target) = two_trees();
    fs::write(source.join("a"), "new").unwrap();
    fs::hard_link(source.join("a"), source.join("both/b")).unwrap();
    fs::write(target.join("a"), "old").unwrap();
    fs::hard_link(target.join("a"), target.join("other")).unwrap();
    copy(&source, &target);
    let inode = |name: &str| fs::metadata(target.join(name)).unwrap().ino();
    assert_eq!(inode("a"), inode("both/b"));
    assert_ne!(inode("a"), inode("other"));
    assert_eq!(fs::read_to_string(target.join("other")).unwrap(), "old");
}

#[test]
fn source_below_its_target_is_never_written() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("sub");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("sub/file"), "inner").unwrap();
    fs::write(source.join("file"), "outer").unwrap();
    // Merging would map `sub/sub` to `sub`, the source.
    let failed = tree::copy(&source, temp.path(), &TreeOptions::default(), &TreeMeter::default());
    assert!(matches!(failed, Err(Error::Incomplete(_))), "{failed:?}");
    assert_eq!(fs::read_to_string(source.join("file")).unwrap(), "outer");
    assert_eq!(fs::read_to_string(temp.path().join("file")).unwrap(), "outer");
}

#[test]
fn target_link_to_a_directory_is_followed() {
    let (temp, source, target) = two_trees();
    fs::write(source.join("both/file"), "new").unwrap();
    let link = temp.path().join("link");
    symlink(Path::new("target"), &link).unwrap();
    copy(&source, &link);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read_to_string(target.join("both/file")).unwrap(), "new");
}
