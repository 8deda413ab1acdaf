//! What is decided when files were written to, removed, replaced or damaged after they were placed.

use std::fs;
use std::io::Write;

use super::stage::{Stage, contents, names};
use crate::tier::health::Health;
use crate::tier::slot::Slot;
use crate::tier::switch::Keep;
use crate::tier::switch::journal::Record;
use crate::tier::watch::Watch;
use crate::tier::{Error, verify};

fn health(stage: &Stage) -> Health {
    let checked = verify(Some(&stage.journal()), None, &Watch::default()).unwrap();
    assert_eq!(checked.len(), 1, "{checked:?}");
    checked[0].health
}

/// Changes the record of the file.
fn rewrite(stage: &Stage, change: impl Fn(&mut Record)) {
    let journal = stage.journal();
    let found: Option<(Slot, Record)> =
        journal.find_record(&stage.file(), &Watch::default()).unwrap();
    let (slot, mut record) = found.unwrap();
    change(&mut record);
    slot.write_record(&record).unwrap();
}

#[test]
fn a_file_goes_and_comes_back_with_its_attributes_and_holes() {
    use std::os::unix::fs::MetadataExt;
    let stage = Stage::new();
    let (before, blocks) = (stage.attributes(), fs::metadata(stage.file()).unwrap().blocks());
    let inode = fs::metadata(stage.file()).unwrap().ino();
    let copy = stage.go().unwrap();
    assert_eq!(fs::read_link(stage.file()).unwrap(), copy);
    assert!(fs::read(stage.kept()).unwrap() == contents());
    assert!(stage.read() == contents());
    assert_eq!(stage.attributes(), before);
    // The file was written whole; its copy may have its zeros as a hole, and never takes more.
    assert!(fs::metadata(&copy).unwrap().blocks() <= blocks + 8);
    assert_eq!(health(&stage), Health::Sound);
    stage.back(Keep::Neither).unwrap();
    stage.is_as_before();
    assert_eq!(stage.attributes(), before);
    assert_eq!(
        fs::metadata(stage.file()).unwrap().ino(),
        inode,
        "the original has its place again"
    );
}

#[test]
fn a_second_placement_is_refused_and_changes_nothing() {
    let stage = Stage::new();
    stage.go().unwrap();
    let before = stage.everything();
    let error = stage.go().unwrap_err();
    assert!(matches!(error, Error::AlreadyPlaced { .. }), "{error}");
    assert!(stage.everything() == before);
}

#[test]
fn what_was_written_on_the_tier_comes_back() {
    let stage = Stage::new();
    stage.go().unwrap();
    stage.write(b"new");
    assert_eq!(health(&stage), Health::Modified);
    stage.back(Keep::Neither).unwrap();
    assert_eq!(stage.read(), b"new");
    stage.is_as_before();
}

#[test]
fn what_was_written_to_the_kept_original_comes_back() {
    let stage = Stage::new();
    stage.go().unwrap();
    fs::OpenOptions::new().append(true).open(stage.kept()).unwrap().write_all(b"more").unwrap();
    assert_eq!(health(&stage), Health::Conflict);
    assert!(matches!(stage.commit(), Err(Error::Conflict { .. })));
    stage.back(Keep::Neither).unwrap();
    assert_eq!(stage.read(), [contents().as_slice(), b"more"].concat());
    stage.is_as_before();
}

#[test]
fn where_both_were_written_to_both_are_kept_until_somebody_says_which() {
    for (keep, expected) in [(Keep::Copy, &b"on the tier"[..]), (Keep::Original, b"beside it")] {
        let stage = Stage::new();
        stage.go().unwrap();
        stage.write(b"on the tier");
        fs::write(stage.kept(), b"beside it").unwrap();
        let before = stage.everything();
        let error = stage.back(Keep::Neither).unwrap_err();
        assert!(matches!(error, Error::Conflict { .. }), "{error}");
        assert!(stage.everything() == before);
        assert_eq!(health(&stage), Health::Conflict);
        stage.back(keep).unwrap();
        assert_eq!(stage.read(), expected, "{keep:?}");
        stage.is_as_before();
    }
}

#[test]
fn a_dropped_original_is_gone_and_the_file_comes_back_all_the_same() {
    let stage = Stage::new();
    let before = stage.attributes();
    stage.go().unwrap();
    stage.commit().unwrap();
    stage.commit().unwrap();
    assert_eq!(names(&stage.path("files")), ["clip.mkv"]);
    assert_eq!(health(&stage), Health::Sound);
    let error = stage.back(Keep::Original).unwrap_err();
    assert!(matches!(error, Error::NotPlaced { .. }), "{error}");
    stage.back(Keep::Neither).unwrap();
    assert!(stage.read() == contents());
    assert_eq!(stage.attributes(), before);
    stage.is_as_before();
}

#[test]
fn a_damaged_copy_is_noticed_and_the_original_is_to_be_had() {
    let stage = Stage::new();
    stage.go().unwrap();
    // As if the tier gave back other bytes than it was given.
    rewrite(&stage, |record| {
        if let Some(copied) = &mut record.copied {
            copied.hash = "0".repeat(64);
        }
    });
    assert_eq!(health(&stage), Health::Damaged);
    assert!(matches!(stage.commit(), Err(Error::Damaged { .. })));
    let error = stage.back(Keep::Neither).unwrap_err();
    assert!(
        matches!(&error, Error::Damaged { kept: Some(kept), .. } if *kept == stage.kept()),
        "{error}"
    );
    stage.back(Keep::Original).unwrap();
    assert!(stage.read() == contents());
    stage.is_as_before();
}

#[test]
fn a_copy_that_is_gone_is_noticed_and_the_original_is_to_be_had() {
    let stage = Stage::new();
    fs::remove_file(stage.go().unwrap()).unwrap();
    assert_eq!(health(&stage), Health::Damaged);
    assert!(matches!(stage.back(Keep::Neither), Err(Error::Damaged { .. })));
    stage.back(Keep::Original).unwrap();
    assert!(stage.read() == contents());
    stage.is_as_before();
}

#[test]
fn without_its_tier_a_file_is_not_touched_unless_the_original_is_asked_for() {
    let stage = Stage::new();
    stage.go().unwrap();
    let home = crate::tier::layout::home_of(&stage.path("tier"));
    fs::rename(&home, stage.path("away")).unwrap();
    assert_eq!(health(&stage), Health::TierMissing);
    let before = stage.everything();
    assert!(matches!(stage.back(Keep::Neither), Err(Error::TierMissing { .. })));
    assert!(matches!(stage.commit(), Err(Error::TierMissing { .. })));
    assert!(stage.everything() == before);
    // The path leads to the original again; the copy waits for its tier.
    assert!(matches!(stage.back(Keep::Original), Err(Error::TierMissing { .. })));
    assert!(stage.read() == contents() && !stage.file().is_symlink());
    fs::rename(stage.path("away"), &home).unwrap();
    assert!(stage.recover().is_settled());
    stage.is_as_before();
}

#[test]
fn a_path_that_somebody_else_took_is_left_alone() {
    let stage = Stage::new();
    stage.go().unwrap();
    fs::remove_file(stage.file()).unwrap();
    fs::write(stage.file(), "another file").unwrap();
    assert_eq!(health(&stage), Health::Replaced);
    let before = stage.everything();
    let error = stage.back(Keep::Neither).unwrap_err();
    assert!(matches!(error, Error::Replaced { .. }), "{error}");
    assert!(stage.everything() == before);
    fs::remove_file(stage.file()).unwrap();
    stage.back(Keep::Neither).unwrap();
    assert!(stage.read() == contents(), "the path was free: it comes back");
    stage.is_as_before();
}

#[test]
fn an_original_that_was_moved_back_by_hand_is_cleared_up_after() {
    let stage = Stage::new();
    stage.go().unwrap();
    fs::rename(stage.kept(), stage.file()).unwrap();
    assert_eq!(health(&stage), Health::Replaced);
    stage.back(Keep::Neither).unwrap();
    assert!(stage.read() == contents());
    stage.is_as_before();
}

#[test]
fn a_record_that_makes_no_sense_keeps_the_others_from_nothing() {
    use rustix::process::Signal;
    let stage = Stage::new();
    stage.act("go", crate::tier::Step::Copied, Signal::KILL).wait().unwrap();
    let slot = stage.path("journal/0123456789abcdef0123456789abcdef");
    fs::create_dir(&slot).unwrap();
    fs::write(slot.join("record"), "{ half a rec").unwrap();
    let recovered = stage.recover();
    assert_eq!(recovered.returned, [stage.file()]);
    assert!(matches!(recovered.left.as_slice(), [(_, Error::Record { .. })]), "{recovered:?}");
    assert!(slot.join("record").exists());
}

#[test]
fn a_journal_that_is_somebody_s_directory_of_other_things_leaves_them_alone() {
    let place = tempfile::tempdir().unwrap();
    let inside =
        ["Documents", "0123456789abcdef0123456789abcdef"].map(|name| place.path().join(name));
    for directory in &inside {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("letter"), "dear").unwrap();
    }
    fs::write(place.path().join("fedcba9876543210fedcba9876543210"), "a file").unwrap();
    let journal = crate::tier::Journal::find(place.path()).unwrap().unwrap();
    let recovered = crate::tier::recover(&journal).unwrap();
    assert!(recovered.placed.is_empty() && recovered.returned.is_empty(), "{recovered:?}");
    assert!(journal.files().unwrap().is_empty());
    for directory in &inside {
        assert_eq!(fs::read(directory.join("letter")).unwrap(), b"dear");
    }
    assert_eq!(names(place.path()).len(), 3);
}

#[test]
fn a_file_whose_disk_is_not_mounted_does_not_come_back_to_what_is_there_instead() {
    for is_dropped in [false, true] {
        let stage = Stage::new();
        let copy = stage.go().unwrap();
        if is_dropped {
            stage.commit().unwrap();
        }
        // As if the disk were unmounted: another directory has its path.
        fs::rename(stage.path("files"), stage.path("unmounted")).unwrap();
        fs::create_dir(stage.path("files")).unwrap();
        let before = stage.everything();
        for keep in [Keep::Neither, Keep::Original] {
            let error = stage.back(keep).unwrap_err();
            assert!(matches!(error, Error::DirectoryGone { .. }), "{error}");
        }
        assert!(stage.recover().is_settled() && stage.everything() == before);
        assert!(fs::read(&copy).unwrap() == contents());
        fs::remove_dir(stage.path("files")).unwrap();
        fs::rename(stage.path("unmounted"), stage.path("files")).unwrap();
        stage.back(Keep::Neither).unwrap();
        assert!(stage.read() == contents());
        stage.is_as_before();
    }
}

#[test]
fn a_file_whose_directory_was_removed_comes_back_to_a_new_one_when_that_is_said() {
    let stage = Stage::new();
    stage.go().unwrap();
    fs::remove_dir_all(stage.path("files")).unwrap();
    let error = stage.back(Keep::Copy).unwrap_err();
    assert!(error.to_string().contains("--keep copy"), "{error}");
    // Its number may be that of the old one, and then nothing has to be said.
    fs::create_dir(stage.path("files")).unwrap();
    stage.back(Keep::Copy).unwrap();
    assert!(stage.read() == contents());
    stage.is_as_before();
}

#[test]
fn names_that_this_program_uses_itself_are_names_like_others() {
    for name in ["stage", "record", "copy", "-", " ", "\u{1F3AC}\n"] {
        let stage = Stage::new();
        let file = stage.path("files").join(name);
        fs::rename(stage.file(), &file).unwrap();
        let (journal, watch) = (stage.journal(), Watch::default());
        let copy = crate::tier::switch::go(&journal, &stage.path("tier"), &file, &watch).unwrap();
        assert_eq!(copy.file_name().unwrap().to_str().unwrap(), name);
        assert!(fs::read(&file).unwrap() == contents(), "{name:?}");
        crate::tier::switch::back(&journal, &file, Keep::Neither, &watch).unwrap();
        assert!(fs::read(&file).unwrap() == contents(), "{name:?}");
        assert_eq!(names(&stage.path("files")), [name]);
    }
}

#[test]
fn a_name_that_is_no_text_is_a_name_like_others() {
    use std::os::unix::ffi::OsStrExt;
    let stage = Stage::new();
    let file = stage.path("files").join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    fs::rename(stage.file(), &file).unwrap();
    let (journal, watch) = (stage.journal(), Watch::default());
    crate::tier::switch::go(&journal, &stage.path("tier"), &file, &watch).unwrap();
    assert_eq!(verify(Some(&journal), None, &watch).unwrap()[0].path, file);
    crate::tier::switch::back(&journal, &file, Keep::Neither, &watch).unwrap();
    assert!(fs::read(&file).unwrap() == contents());
}
