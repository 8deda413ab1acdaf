//! Copies for views: created once, reused while current, and removed when stale.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evermap_lane::Placement;
use evermap_lane::tier::{
    Error, Health, Keep, Plan, Watch, back, place, placed_path, sweep, verify, views,
};

use crate::common::{
    argument, directory, files_below, has_own_mounts, is_helper, memory, pattern, plan, request,
    viewed,
};

#[test]
fn a_current_copy_is_used_again_and_a_stale_one_is_replaced() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("file");
    fs::write(&file, "contents").unwrap();
    assert_eq!(placed_path(tier.path(), &file), None);
    let first = viewed(tier.path(), &[&file]);
    assert!(!first.placed[0].was_there);
    let inode = fs::metadata(&first.placed[0].copy).unwrap().ino();
    let second = viewed(tier.path(), &[&file]);
    assert!(second.placed[0].was_there);
    assert_eq!(fs::metadata(&second.placed[0].copy).unwrap().ino(), inode);
    assert_eq!(placed_path(tier.path(), &file), Some(second.placed[0].copy.clone()));
    fs::write(&file, "changed").unwrap();
    assert_eq!(placed_path(tier.path(), &file), None, "the copy is of the earlier version");
    let third = viewed(tier.path(), &[&file]);
    assert!(!third.placed[0].was_there);
    assert_eq!(fs::read(&third.placed[0].copy).unwrap(), b"changed");
}

#[test]
fn taking_a_view_back_leaves_nothing_on_the_tier() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("file");
    fs::write(&file, "contents").unwrap();
    viewed(tier.path(), &[&file]);
    assert_eq!(views(tier.path()).unwrap(), [fs::canonicalize(&file).unwrap()]);
    let watch = Watch::default();
    back(None, Some(tier.path()), &file, Keep::Neither, &watch).unwrap();
    assert!(files_below(tier.path()).is_empty());
    assert_eq!(fs::read(&file).unwrap(), b"contents");
    let error = back(None, Some(tier.path()), &file, Keep::Neither, &watch).unwrap_err();
    assert!(matches!(error, Error::NotPlaced { .. }), "{error}");
}

#[test]
fn sweep_removes_stale_copies() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let paths = ["same", "changed", "removed"].map(|name| files.path().join(name));
    for path in &paths {
        fs::write(path, "contents").unwrap();
    }
    viewed(tier.path(), &paths.each_ref().map(|path| path.as_path()));
    fs::write(&paths[1], "other").unwrap();
    fs::remove_file(&paths[2]).unwrap();
    let mut checked = verify(None, Some(tier.path()), &Watch::default()).unwrap();
    checked.sort_by(|a, b| a.path.cmp(&b.path));
    let health: Vec<_> = checked.iter().map(|checked| checked.health).collect();
    assert_eq!(health, [Health::Stale, Health::Stale, Health::Sound]);
    assert_eq!(sweep(tier.path()).unwrap().len(), 2);
    assert_eq!(views(tier.path()).unwrap(), [fs::canonicalize(&paths[0]).unwrap()]);
    assert!(sweep(tier.path()).unwrap().is_empty());
}

#[test]
fn a_modified_copy_is_damaged_and_replaced() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("file");
    fs::write(&file, "contents").unwrap();
    let copy = viewed(tier.path(), &[&file]).placed[0].copy.clone();
    fs::write(&copy, "contentz").unwrap();
    let checked = verify(None, Some(tier.path()), &Watch::default()).unwrap();
    assert_eq!(checked[0].health, Health::Damaged);
    assert_eq!(placed_path(tier.path(), &file), None);
    let again = viewed(tier.path(), &[&file]);
    assert!(!again.placed[0].was_there);
    assert_eq!(fs::read(&again.placed[0].copy).unwrap(), b"contents");
}

#[test]
fn concurrent_placements_of_one_file_make_one_copy() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("file");
    fs::write(&file, pattern(8 << 20)).unwrap();
    let made: Vec<_> = std::thread::scope(|scope| {
        let place = || scope.spawn(|| viewed(tier.path(), &[&file]));
        let threads: Vec<_> = (0..4).map(|_| place()).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().placed[0].clone()).collect()
    });
    assert_eq!(made.iter().filter(|placed| !placed.was_there).count(), 1);
    assert!(fs::read(&made[0].copy).unwrap() == pattern(8 << 20));
}

#[test]
fn a_file_that_changes_while_it_is_copied_is_not_placed() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("file");
    fs::write(&file, pattern(4 << 20)).unwrap();
    let plan = plan(tier.path(), Placement::View, &[&file]);
    let (is_changed, path) = (AtomicBool::new(false), file.clone());
    let watch = Watch::default().on_progress(move |_, _| {
        if !is_changed.swap(true, Ordering::Relaxed) {
            fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        }
    });
    let applied = place(&plan, None, &watch).unwrap();
    assert!(matches!(applied.failed.as_slice(), [(_, Error::Changed { .. })]), "{applied:?}");
    assert!(applied.placed.is_empty() && applied.view().is_empty());
    assert!(files_below(tier.path()).is_empty(), "{:?}", files_below(tier.path()));
}

#[test]
fn a_cancelled_placement_leaves_nothing() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("file");
    fs::write(&file, pattern(4 << 20)).unwrap();
    let plan = plan(tier.path(), Placement::View, &[&file]);
    let cancelled = Arc::new(AtomicBool::new(false));
    let cancel = Arc::clone(&cancelled);
    let watch = Watch::default()
        .cancelled_by(cancelled)
        .on_progress(move |_, _| cancel.store(true, Ordering::Relaxed));
    let error = place(&plan, None, &watch).unwrap_err();
    assert!(matches!(error, Error::Cancelled { .. }), "{error}");
    assert!(files_below(tier.path()).is_empty());
}

#[test]
fn the_next_placement_removes_what_a_killed_one_left() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("file");
    fs::write(&file, pattern(32 << 20)).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["copies::helper_that_copies", "--exact", "--ignored", "--nocapture"])
        .envs([("EVERMAP_ACT", Path::new("copy")), ("FILE", &file), ("TIER", tier.path())])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(!child.wait().unwrap().success(), "it was killed");
    // Simulates remains that this kernel does not leave.
    for name in ["stage", ".stage.evermap-01234567", "record.new"] {
        let slot = fs::read_dir(tier.path()).unwrap().next().unwrap().unwrap().path();
        let slot = fs::read_dir(slot).unwrap().next().unwrap().unwrap().path();
        fs::write(slot.join(name), "half").unwrap();
    }
    let applied = viewed(tier.path(), &[&file]);
    assert!(fs::read(&applied.placed[0].copy).unwrap() == pattern(32 << 20));
    assert_eq!(files_below(tier.path()).len(), 2, "the copy and its record");
}

#[test]
#[ignore = "a helper process that another test starts"]
fn helper_that_copies() {
    if !is_helper() {
        return;
    }
    let (file, tier) = (argument("FILE"), argument("TIER"));
    let watch = Watch::default().on_progress(|_, progress| {
        if progress.done_bytes > 0 {
            // SAFETY: `raise` accesses no memory; SIGKILL ends this process.
            unsafe { libc::raise(libc::SIGKILL) };
        }
    });
    let _ = place(&plan(&tier, Placement::View, &[&file]), None, &watch);
}

#[test]
fn a_view_follows_links_and_allows_hard_links_and_holes() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let [file, hard, soft] = ["file", "hard", "soft"].map(|name| files.path().join(name));
    let opened = fs::File::create(&file).unwrap();
    opened.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&opened, b"end", (1 << 29) + 5).unwrap();
    drop(opened);
    fs::hard_link(&file, &hard).unwrap();
    symlink(&file, &soft).unwrap();
    let plan = plan(tier.path(), Placement::View, &[&soft]);
    assert_eq!(plan.files[0].path, fs::canonicalize(&file).unwrap());
    assert!(plan.files[0].data_bytes <= 64 << 10, "{plan:?}");
    let applied = place(&plan, None, &Watch::default()).unwrap();
    let copy = fs::metadata(&applied.placed[0].copy).unwrap();
    assert_eq!(copy.len(), 1 << 30);
    assert!(copy.blocks() * 512 <= 1 << 20, "holes stay holes");
}

#[test]
fn a_tier_that_fills_up_is_reported_and_the_file_is_not_placed() {
    if !has_own_mounts() {
        return;
    }
    let (files, tier) = (directory(), directory());
    let size = Some(c"size=8m");
    rustix::mount::mount("tier", tier.path(), "tmpfs", rustix::mount::MountFlags::empty(), size)
        .unwrap();
    let paths = ["fits", "does not", "is small"].map(|name| files.path().join(name));
    fs::write(&paths[0], pattern(2 << 20)).unwrap();
    fs::write(&paths[1], pattern(4 << 20)).unwrap();
    fs::write(&paths[2], pattern(4 << 10)).unwrap();
    let plan: Plan = Plan::make(&request(
        tier.path(),
        Placement::View,
        &paths.each_ref().map(|path| path.as_path()),
    ))
    .unwrap();
    assert_eq!(plan.files.len(), 3);
    // Another file takes the free space.
    fs::write(tier.path().join("other"), pattern(5 << 20)).unwrap();
    let applied = place(&plan, None, &Watch::default()).unwrap();
    let [(path, error)] = applied.failed.as_slice() else { panic!("{applied:?}") };
    assert_eq!(path.file_name(), paths[1].file_name());
    assert!(
        matches!(error, Error::TierFull { needed_bytes, .. } if *needed_bytes >= 4 << 20),
        "{error}"
    );
    assert_eq!(applied.placed.len(), 2, "the other files are placed");
    assert_eq!(files_below(tier.path()).len(), 5, "{:?}", files_below(tier.path()));
    rustix::mount::unmount(tier.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
}

#[test]
fn waiting_for_a_held_slot_times_out() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("file");
    fs::write(&file, "contents").unwrap();
    let copy = viewed(tier.path(), &[&file]).placed[0].copy.clone();
    let slot = fs::File::open(copy.parent().unwrap()).unwrap();
    rustix::fs::flock(&slot, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let watch = Watch::default().timeout(Duration::from_millis(100));
    let begin = Instant::now();
    let applied = place(&plan(tier.path(), Placement::View, &[&file]), None, &watch).unwrap();
    assert!(matches!(applied.failed.as_slice(), [(_, Error::Busy { .. })]), "{applied:?}");
    assert!(begin.elapsed() >= Duration::from_millis(100));
}
