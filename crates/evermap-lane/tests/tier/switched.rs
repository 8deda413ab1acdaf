//! Files that move to another disk: a loop device with a file system of its own, which takes root.

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

/// A disk of so many bytes; none, with a word, where that cannot be had. Mounted for this thread only, and let go of with it.
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
    // The mount has the image's file open for as long as it is there.
    if !run(Command::new("mount").args(["-o", "loop"]).arg(image.path()).arg(place.path())) {
        skip(format_args!("no loop devices, or no {kind} in this kernel"));
        return None;
    }
    Some(place)
}

/// What was mounted is let go of before its directory is removed.
fn let_go(disk: &Path) {
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
    assert!(applied.view().is_empty(), "all see it");
    assert_eq!(fs::metadata(&file).unwrap().dev(), fs::metadata(disk.path()).unwrap().dev());
    assert!(fs::read(&file).unwrap() == pattern(10 << 20));
    assert_eq!(placed_path(disk.path(), &file), Some(placed.copy.clone()));
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(&file, "user.kept", &mut value), Ok(5));
    assert_eq!(verify(Some(&journal), None, &watch).unwrap()[0].health, Health::Sound);
    let again =
        Plan::make(&crate::common::request(disk.path(), Placement::Switch, &[&file])).unwrap();
    assert!(again.files.is_empty(), "it is there already");
    // By another name that leads to it.
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
    let_go(disk.path());
}

#[test]
fn a_disk_that_fills_while_a_file_moves_leaves_it_where_it_is() {
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
    let_go(disk.path());
}

#[test]
fn an_attribute_that_the_tier_cannot_keep_keeps_the_file_where_it_is() {
    // An attribute of 3,000 bytes, which blocks of 1 KiB have no room for.
    let Some(disk) = disk(16 << 20, "ext4", &["-q", "-F", "-b", "1024"]) else { return };
    let files = directory();
    let file = files.path().join("clip.mkv");
    fs::write(&file, pattern(100_000)).unwrap();
    let value = pattern(3_000);
    if rustix::fs::setxattr(&file, "user.kept", &value, rustix::fs::XattrFlags::empty()).is_err() {
        return skip("no attribute of 3,000 bytes where the files are");
    }
    stays_for(disk.path(), &file, "user.kept");
    // A view has its contents all the same, and it is said.
    let shown = crate::common::viewed(disk.path(), &[&file]);
    let not_kept = shown.placed[0].not_kept.as_deref();
    assert!(not_kept.is_some_and(|what| what.contains("user.kept")), "{not_kept:?}");
    let_go(disk.path());
}

#[test]
fn times_that_a_tier_rounds_without_a_word_keep_the_file_where_it_is() {
    // Inodes of 128 bytes have room for seconds only.
    let Some(disk) = disk(16 << 20, "ext4", &["-q", "-F", "-I", "128"]) else { return };
    let files = directory();
    let file = files.path().join("clip.mkv");
    fs::write(&file, pattern(100_000)).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_234_567_891_234_567_891);
    fs::File::open(&file).unwrap().set_modified(then).unwrap();
    stays_for(disk.path(), &file, "time of change");
    let_go(disk.path());
}

#[test]
fn what_a_tier_drops_without_a_word_keeps_the_file_where_it_is() {
    // This one rounds times to two seconds, and all of its files have one owner and one mode.
    let Some(disk) = disk(16 << 20, "vfat", &[]) else { return };
    let files = directory();
    let file = files.path().join("clip.mkv");
    fs::write(&file, pattern(100_000)).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_234_567_891_234_567_891);
    fs::File::open(&file).unwrap().set_modified(then).unwrap();
    std::os::unix::fs::chown(&file, Some(crate::common::NOBODY), None).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for what in ["owner", "mode", "time of change"] {
        stays_for(disk.path(), &file, what);
    }
    let_go(disk.path());
}

/// A file is not switched, because of this.
fn stays_for(tier: &Path, file: &Path, because: &str) {
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
fn an_unmounted_tier_is_waited_for() {
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
    assert!(recover(&journal).unwrap().is_settled(), "nothing was on its way");
    assert_eq!(verify(Some(&journal), None, &watch).unwrap()[0].health, Health::TierMissing);
    rustix::mount::mount_move(elsewhere.path(), disk.path()).unwrap();
    back(Some(&journal), None, &file, Keep::Neither, &watch).unwrap();
    assert!(fs::read(&file).unwrap() == pattern(100_000));
    let_go(disk.path());
}
