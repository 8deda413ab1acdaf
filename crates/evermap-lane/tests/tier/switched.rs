//! Files that are switched to another disk: a loop device with its own file system. Needs root.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use evermap_lane::Placement;
use evermap_lane::tier::{
    Error, Health, Journal, Keep, Kind, Plan, Watch, back, commit, place, placed_path, recover,
    verify,
};

use crate::common::{directory, files_below, has_own_mounts, pattern, plan, skip};

/// Creates and mounts a disk of `bytes`, for this thread only. Reports a skip and returns `None` if
/// that is not possible.
fn disk(bytes: u64, kind: &str, options: &[&str]) -> Option<tempfile::TempDir> {
    if !has_own_mounts() {
        return None;
    }
    let (place, image) = (directory(), tempfile::NamedTempFile::new().unwrap());
    image.as_file().set_len(bytes).unwrap();
    let run = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    let mut make = Command::new(format!("mkfs.{kind}"));
    if !run(make.args(options).arg(image.path())) {
        skip(format_args!("no mkfs.{kind}"));
        return None;
    }
    // The mount keeps the image file open.
    if !run(Command::new("mount").args(["-o", "loop"]).arg(image.path()).arg(place.path())) {
        skip(format_args!("no loop devices, or no {kind} in this kernel"));
        return None;
    }
    Some(place)
}

/// Unmounts the disk, so that its directory can be removed.
fn unmount_disk(disk: &Path) {
    rustix::mount::unmount(disk, rustix::mount::UnmountFlags::DETACH).unwrap();
}

#[test]
fn a_file_moves_to_another_disk_and_back() {
    let Some(disk) = disk(64 << 20, "ext4", &["-q", "-F"]) else { return };
    let files = directory();
    let file = files.path().join("clip.mkv");
    fs::write(&file, pattern(10 << 20)).unwrap();
    rustix::fs::setxattr(&file, "user.kept", b"value", rustix::fs::XattrFlags::empty()).unwrap();
    let before = fs::metadata(&file).unwrap();
    let journal = Journal::at(&files.path().join("journal")).unwrap();
    let plan = plan(disk.path(), Placement::Switch, &[&file]);
    assert_eq!((plan.tier.kind, plan.tier.is_lasting()), (Kind::Disk, true), "{plan:?}");
    let watch = Watch::default();
    let applied = place(&plan, Some(&journal), &watch).unwrap();
    let [placed] = applied.placed.as_slice() else { panic!("{applied:?}") };
    assert!(applied.view().is_empty(), "all programs see the switched file");
    assert_eq!(fs::metadata(&file).unwrap().dev(), fs::metadata(disk.path()).unwrap().dev());
    assert!(fs::read(&file).unwrap() == pattern(10 << 20));
    assert_eq!(placed_path(disk.path(), &file), Some(placed.copy.clone()));
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(&file, "user.kept", &mut value), Ok(5));
    assert_eq!(verify(Some(&journal), None, &watch).unwrap()[0].health, Health::Sound);
    let again =
        Plan::make(&crate::common::request(disk.path(), Placement::Switch, &[&file])).unwrap();
    assert!(again.files.is_empty(), "the file is on the tier already");
    // Use another name that leads to the file.
    let link = files.path().join("link");
    std::os::unix::fs::symlink("clip.mkv", &link).unwrap();
    commit(&journal, &link, &watch).unwrap();
    back(Some(&journal), None, &link, Keep::Neither, &watch).unwrap();
    let after = fs::symlink_metadata(&file).unwrap();
    assert!(after.is_file() && after.dev() == before.dev());
    assert_eq!(
        (after.mode(), after.mtime_nsec(), after.len()),
        (before.mode(), before.mtime_nsec(), before.len())
    );
    assert_eq!(rustix::fs::getxattr(&file, "user.kept", &mut value), Ok(5));
    assert!(fs::read(&file).unwrap() == pattern(10 << 20));
    assert!(journal.files().unwrap().is_empty());
    unmount_disk(disk.path());
}

#[test]
fn a_file_stays_in_place_if_the_tier_fills_up() {
    let Some(disk) = disk(16 << 20, "ext4", &["-q", "-F"]) else { return };
    let files = directory();
    let file = files.path().join("clip.mkv");
    fs::write(&file, pattern(6 << 20)).unwrap();
    let journal = Journal::at(&files.path().join("journal")).unwrap();
    let plan = plan(disk.path(), Placement::Switch, &[&file]);
    assert_eq!(plan.files.len(), 1, "{plan:?}");
    let filler = disk.path().join("other");
    let filled = fs::write(&filler, pattern(32 << 20));
    assert!(filled.is_err(), "the disk is full");
    let applied = place(&plan, Some(&journal), &Watch::default()).unwrap();
    assert!(matches!(applied.failed.as_slice(), [(_, Error::TierFull { .. })]), "{applied:?}");
    assert!(!file.is_symlink() && fs::read(&file).unwrap() == pattern(6 << 20));
    assert!(journal.files().unwrap().is_empty());
    fs::remove_file(filler).unwrap();
    assert!(files_below(disk.path()).is_empty(), "{:?}", files_below(disk.path()));
    assert_eq!(fs::read_dir(files.path()).unwrap().count(), 2, "file and journal");
    unmount_disk(disk.path());
}

#[test]
fn a_file_with_an_attribute_that_the_tier_cannot_store_is_not_switched() {
    // The file system's blocks of 1 KiB have no space for an attribute of 3,000 bytes.
    let Some(disk) = disk(16 << 20, "ext4", &["-q", "-F", "-b", "1024"]) else { return };
    let files = directory();
    let file = files.path().join("clip.mkv");
    fs::write(&file, pattern(100_000)).unwrap();
    let value = pattern(3_000);
    if rustix::fs::setxattr(&file, "user.kept", &value, rustix::fs::XattrFlags::empty()).is_err() {
        return skip("the file system of the files does not store an attribute of 3,000 bytes");
    }
    assert_not_switched(disk.path(), &file, "user.kept");
    // A view still shows the contents, and reports the missing attribute.
    let shown = crate::common::viewed(disk.path(), &[&file]);
    let not_kept = shown.placed[0].not_kept.as_deref();
    assert!(not_kept.is_some_and(|what| what.contains("user.kept")), "{not_kept:?}");
    unmount_disk(disk.path());
}

#[test]
fn a_file_is_not_switched_to_a_tier_that_silently_rounds_times() {
    // Inodes of 128 bytes store whole seconds only.
    let Some(disk) = disk(16 << 20, "ext4", &["-q", "-F", "-I", "128"]) else { return };
    let files = directory();
    let file = files.path().join("clip.mkv");
    fs::write(&file, pattern(100_000)).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_234_567_891_234_567_891);
    fs::File::open(&file).unwrap().set_modified(then).unwrap();
    assert_not_switched(disk.path(), &file, "time of change");
    unmount_disk(disk.path());
}

#[test]
fn a_file_is_not_switched_to_a_tier_that_silently_drops_attributes() {
    // This file system rounds times to two seconds, and gives all files one owner and one mode.
    let Some(disk) = disk(16 << 20, "vfat", &[]) else { return };
    let files = directory();
    let file = files.path().join("clip.mkv");
    fs::write(&file, pattern(100_000)).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_234_567_891_234_567_891);
    fs::File::open(&file).unwrap().set_modified(then).unwrap();
    std::os::unix::fs::chown(&file, Some(crate::common::NOBODY), None).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for what in ["owner", "mode", "time of change"] {
        assert_not_switched(disk.path(), &file, what);
    }
    unmount_disk(disk.path());
}

/// Checks that a file is not switched because the tier would lose `because`.
fn assert_not_switched(tier: &Path, file: &Path, because: &str) {
    let before = fs::metadata(file).unwrap();
    let journal = Journal::at(&file.with_file_name("journal")).unwrap();
    let plan = plan(tier, Placement::Switch, &[file]);
    let applied = place(&plan, Some(&journal), &Watch::default()).unwrap();
    let [(_, Error::NotKept { what, .. })] = applied.failed.as_slice() else {
        panic!("{applied:?}")
    };
    assert!(what.contains(because), "{what}");
    assert!(!file.is_symlink() && fs::read(file).unwrap() == pattern(100_000));
    assert_eq!(fs::metadata(file).unwrap().ino(), before.ino());
    assert!(journal.files().unwrap().is_empty());
    assert!(files_below(tier).is_empty(), "{:?}", files_below(tier));
}

#[test]
fn taking_back_needs_the_tier_to_be_mounted() {
    let Some(disk) = disk(16 << 20, "ext4", &["-q", "-F"]) else { return };
    let (files, elsewhere) = (directory(), directory());
    let file = files.path().join("clip.mkv");
    fs::write(&file, pattern(100_000)).unwrap();
    let journal = Journal::at(&files.path().join("journal")).unwrap();
    let watch = Watch::default();
    place(&plan(disk.path(), Placement::Switch, &[&file]), Some(&journal), &watch).unwrap();
    rustix::mount::mount_move(disk.path(), elsewhere.path()).unwrap();
    assert!(fs::read(&file).is_err(), "its contents are on the tier");
    let error = back(Some(&journal), None, &file, Keep::Neither, &watch).unwrap_err();
    assert!(matches!(error, Error::TierMissing { .. }), "{error}");
    assert!(recover(&journal).unwrap().is_complete(), "no move was interrupted");
    assert_eq!(verify(Some(&journal), None, &watch).unwrap()[0].health, Health::TierMissing);
    rustix::mount::mount_move(elsewhere.path(), disk.path()).unwrap();
    back(Some(&journal), None, &file, Keep::Neither, &watch).unwrap();
    assert!(fs::read(&file).unwrap() == pattern(100_000));
    unmount_disk(disk.path());
}
