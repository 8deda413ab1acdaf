//! Decisions about files that were modified, removed, replaced or damaged after they were placed.

use std::fs;
use std::io::Write;

use super::fixture::{Fixture, contents, names};
use crate::tier::health::Health;
use crate::tier::slot::Slot;
use crate::tier::switch::Keep;
use crate::tier::switch::journal::Record;
use crate::tier::watch::Watch;
use crate::tier::{Error, verify};

fn health(fixture: &Fixture) -> Health {
    let checked = verify(Some(&fixture.journal()), None, &Watch::default()).unwrap();
    assert_eq!(checked.len(), 1, "{checked:?}");
    checked[0].health
}

/// Modifies the record of the file.
fn rewrite(fixture: &Fixture, change: impl Fn(&mut Record)) {
    let journal = fixture.journal();
    let found: Option<(Slot, Record)> =
        journal.find_record(&fixture.file(), &Watch::default()).unwrap();
    let (slot, mut record) = found.unwrap();
    change(&mut record);
    slot.write_record(&record).unwrap();
}

#[test]
fn a_file_is_placed_and_taken_back_with_its_attributes_and_holes() {
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::new();
    let (before, blocks) = (fixture.attributes(), fs::metadata(fixture.file()).unwrap().blocks());
    let inode = fs::metadata(fixture.file()).unwrap().ino();
    let copy = fixture.place().unwrap();
    assert_eq!(fs::read_link(fixture.file()).unwrap(), copy);
    assert!(fs::read(fixture.kept()).unwrap() == contents());
    assert!(fixture.read() == contents());
    assert_eq!(fixture.attributes(), before);
    // The file was written without holes. Its copy may store the zeros as a hole, and never needs
    // more blocks.
    assert!(fs::metadata(&copy).unwrap().blocks() <= blocks + 8);
    assert_eq!(health(&fixture), Health::Sound);
    fixture.back(Keep::Neither).unwrap();
    fixture.assert_unchanged();
    assert_eq!(fixture.attributes(), before);
    assert_eq!(
        fs::metadata(fixture.file()).unwrap().ino(),
        inode,
        "the original has its place again"
    );
}

#[test]
fn a_second_placement_is_refused_and_changes_nothing() {
    let fixture = Fixture::new();
    fixture.place().unwrap();
    let before = fixture.everything();
    let error = fixture.place().unwrap_err();
    assert!(matches!(error, Error::AlreadyPlaced { .. }), "{error}");
    assert!(fixture.everything() == before);
}

#[test]
fn writes_on_the_tier_come_back() {
    let fixture = Fixture::new();
    fixture.place().unwrap();
    fixture.write(b"new");
    assert_eq!(health(&fixture), Health::Modified);
    fixture.back(Keep::Neither).unwrap();
    assert_eq!(fixture.read(), b"new");
    fixture.assert_unchanged();
}

#[test]
fn writes_to_the_kept_original_come_back() {
    let fixture = Fixture::new();
    fixture.place().unwrap();
    fs::OpenOptions::new().append(true).open(fixture.kept()).unwrap().write_all(b"more").unwrap();
    assert_eq!(health(&fixture), Health::Conflict);
    assert!(matches!(fixture.commit(), Err(Error::Conflict { .. })));
    fixture.back(Keep::Neither).unwrap();
    assert_eq!(fixture.read(), [contents().as_slice(), b"more"].concat());
    fixture.assert_unchanged();
}

#[test]
fn both_modified_files_are_kept_until_the_caller_chooses() {
    for (keep, expected) in
        [(Keep::Copy, &b"on the tier"[..]), (Keep::Original, b"on the original")]
    {
        let fixture = Fixture::new();
        fixture.place().unwrap();
        fixture.write(b"on the tier");
        fs::write(fixture.kept(), b"on the original").unwrap();
        let before = fixture.everything();
        let error = fixture.back(Keep::Neither).unwrap_err();
        assert!(matches!(error, Error::Conflict { .. }), "{error}");
        assert!(fixture.everything() == before);
        assert_eq!(health(&fixture), Health::Conflict);
        fixture.back(keep).unwrap();
        assert_eq!(fixture.read(), expected, "{keep:?}");
        fixture.assert_unchanged();
    }
}

#[test]
fn a_file_with_a_dropped_original_comes_back() {
    let fixture = Fixture::new();
    let before = fixture.attributes();
    fixture.place().unwrap();
    fixture.commit().unwrap();
    fixture.commit().unwrap();
    assert_eq!(names(&fixture.path("files")), ["clip.mkv"]);
    assert_eq!(health(&fixture), Health::Sound);
    let error = fixture.back(Keep::Original).unwrap_err();
    assert!(matches!(error, Error::NotPlaced { .. }), "{error}");
    fixture.back(Keep::Neither).unwrap();
    assert!(fixture.read() == contents());
    assert_eq!(fixture.attributes(), before);
    fixture.assert_unchanged();
}

#[test]
fn a_damaged_copy_is_detected_and_the_original_can_be_restored() {
    let fixture = Fixture::new();
    fixture.place().unwrap();
    // Simulates a tier that returns other bytes than were written.
    rewrite(&fixture, |record| {
        if let Some(copied) = &mut record.copied {
            copied.hash = "0".repeat(64);
        }
    });
    assert_eq!(health(&fixture), Health::Damaged);
    assert!(matches!(fixture.commit(), Err(Error::Damaged { .. })));
    let error = fixture.back(Keep::Neither).unwrap_err();
    assert!(
        matches!(&error, Error::Damaged { kept: Some(kept), .. } if *kept == fixture.kept()),
        "{error}"
    );
    fixture.back(Keep::Original).unwrap();
    assert!(fixture.read() == contents());
    fixture.assert_unchanged();
}

#[test]
fn a_missing_copy_is_detected_and_the_original_can_be_restored() {
    let fixture = Fixture::new();
    fs::remove_file(fixture.place().unwrap()).unwrap();
    assert_eq!(health(&fixture), Health::Damaged);
    assert!(matches!(fixture.back(Keep::Neither), Err(Error::Damaged { .. })));
    fixture.back(Keep::Original).unwrap();
    assert!(fixture.read() == contents());
    fixture.assert_unchanged();
}

#[test]
fn a_file_without_its_tier_changes_only_if_the_original_is_requested() {
    let fixture = Fixture::new();
    fixture.place().unwrap();
    let home = crate::tier::layout::user_directory(&fixture.path("tier"));
    fs::rename(&home, fixture.path("away")).unwrap();
    assert_eq!(health(&fixture), Health::TierMissing);
    let before = fixture.everything();
    assert!(matches!(fixture.back(Keep::Neither), Err(Error::TierMissing { .. })));
    assert!(matches!(fixture.commit(), Err(Error::TierMissing { .. })));
    assert!(fixture.everything() == before);
    // The path leads to the original again. The copy stays until its tier is available.
    assert!(matches!(fixture.back(Keep::Original), Err(Error::TierMissing { .. })));
    assert!(fixture.read() == contents() && !fixture.file().is_symlink());
    fs::rename(fixture.path("away"), &home).unwrap();
    assert!(fixture.recover().is_complete());
    fixture.assert_unchanged();
}

#[test]
fn a_path_taken_by_another_file_is_not_changed() {
    let fixture = Fixture::new();
    fixture.place().unwrap();
    fs::remove_file(fixture.file()).unwrap();
    fs::write(fixture.file(), "another file").unwrap();
    assert_eq!(health(&fixture), Health::Replaced);
    let before = fixture.everything();
    let error = fixture.back(Keep::Neither).unwrap_err();
    assert!(matches!(error, Error::Replaced { .. }), "{error}");
    assert!(fixture.everything() == before);
    fs::remove_file(fixture.file()).unwrap();
    fixture.back(Keep::Neither).unwrap();
    assert!(fixture.read() == contents(), "the path is free, so the file comes back");
    fixture.assert_unchanged();
}

#[test]
fn taking_back_an_original_that_was_moved_by_hand_removes_the_copy() {
    let fixture = Fixture::new();
    fixture.place().unwrap();
    fs::rename(fixture.kept(), fixture.file()).unwrap();
    assert_eq!(health(&fixture), Health::Replaced);
    fixture.back(Keep::Neither).unwrap();
    assert!(fixture.read() == contents());
    fixture.assert_unchanged();
}

#[test]
fn an_invalid_record_does_not_stop_the_recovery_of_others() {
    use rustix::process::Signal;
    let fixture = Fixture::new();
    fixture.spawn_helper("place", crate::tier::Step::Copied, Signal::KILL).wait().unwrap();
    let slot = fixture.path("journal/0123456789abcdef0123456789abcdef");
    fs::create_dir(&slot).unwrap();
    fs::write(slot.join("record"), "{ half a rec").unwrap();
    let recovered = fixture.recover();
    assert_eq!(recovered.returned, [fixture.file()]);
    assert!(matches!(recovered.left.as_slice(), [(_, Error::Record { .. })]), "{recovered:?}");
    assert!(slot.join("record").exists());
}

#[test]
fn recovery_ignores_unrelated_entries_of_the_journal_directory() {
    let dir = tempfile::tempdir().unwrap();
    let inside =
        ["Documents", "0123456789abcdef0123456789abcdef"].map(|name| dir.path().join(name));
    for directory in &inside {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("letter"), "dear").unwrap();
    }
    fs::write(dir.path().join("fedcba9876543210fedcba9876543210"), "a file").unwrap();
    let journal = crate::tier::Journal::find(dir.path()).unwrap().unwrap();
    let recovered = crate::tier::recover(&journal).unwrap();
    assert!(recovered.placed.is_empty() && recovered.returned.is_empty(), "{recovered:?}");
    assert!(journal.files().unwrap().is_empty());
    for directory in &inside {
        assert_eq!(fs::read(directory.join("letter")).unwrap(), b"dear");
    }
    assert_eq!(names(dir.path()).len(), 3);
}

#[test]
fn a_file_does_not_come_back_to_the_mount_point_of_an_unmounted_disk() {
    for is_dropped in [false, true] {
        let fixture = Fixture::new();
        let copy = fixture.place().unwrap();
        if is_dropped {
            fixture.commit().unwrap();
        }
        // Simulates an unmounted disk: the path leads to another directory.
        fs::rename(fixture.path("files"), fixture.path("unmounted")).unwrap();
        fs::create_dir(fixture.path("files")).unwrap();
        let before = fixture.everything();
        for keep in [Keep::Neither, Keep::Original] {
            let error = fixture.back(keep).unwrap_err();
            assert!(matches!(error, Error::DirectoryGone { .. }), "{error}");
        }
        assert!(fixture.recover().is_complete() && fixture.everything() == before);
        assert!(fs::read(&copy).unwrap() == contents());
        fs::remove_dir(fixture.path("files")).unwrap();
        fs::rename(fixture.path("unmounted"), fixture.path("files")).unwrap();
        fixture.back(Keep::Neither).unwrap();
        assert!(fixture.read() == contents());
        fixture.assert_unchanged();
    }
}

#[test]
fn a_file_comes_back_to_a_new_directory_on_request() {
    let fixture = Fixture::new();
    fixture.place().unwrap();
    fs::remove_dir_all(fixture.path("files")).unwrap();
    let error = fixture.back(Keep::Copy).unwrap_err();
    assert!(error.to_string().contains("--keep copy"), "{error}");
    // The new directory may reuse the inode of the old one, in which case no request would be
    // necessary.
    fs::create_dir(fixture.path("files")).unwrap();
    fixture.back(Keep::Copy).unwrap();
    assert!(fixture.read() == contents());
    fixture.assert_unchanged();
}

#[test]
fn files_may_have_the_names_that_this_program_uses() {
    for name in ["stage", "record", "copy", "-", " ", "\u{1F3AC}\n"] {
        let fixture = Fixture::new();
        let file = fixture.path("files").join(name);
        fs::rename(fixture.file(), &file).unwrap();
        let (journal, watch) = (fixture.journal(), Watch::default());
        let copy =
            crate::tier::switch::place(&journal, &fixture.path("tier"), &file, &watch).unwrap();
        assert_eq!(copy.file_name().unwrap().to_str().unwrap(), name);
        assert!(fs::read(&file).unwrap() == contents(), "{name:?}");
        crate::tier::switch::back(&journal, &file, Keep::Neither, &watch).unwrap();
        assert!(fs::read(&file).unwrap() == contents(), "{name:?}");
        assert_eq!(names(&fixture.path("files")), [name]);
    }
}

#[test]
fn a_file_name_may_be_invalid_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let fixture = Fixture::new();
    let file = fixture.path("files").join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    fs::rename(fixture.file(), &file).unwrap();
    let (journal, watch) = (fixture.journal(), Watch::default());
    crate::tier::switch::place(&journal, &fixture.path("tier"), &file, &watch).unwrap();
    assert_eq!(verify(Some(&journal), None, &watch).unwrap()[0].path, file);
    crate::tier::switch::back(&journal, &file, Keep::Neither, &watch).unwrap();
    assert!(fs::read(&file).unwrap() == contents());
}
