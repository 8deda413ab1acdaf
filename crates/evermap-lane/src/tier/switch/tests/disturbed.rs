//! Others who open, write, rename and remove the file while it moves, and processes that stop in the middle.

use std::fs;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};

use super::stage::{Stage, contents, names, signal};
use crate::tier::Error;
use crate::tier::switch::Keep;
use crate::tier::watch::{Step, Watch};

/// Until it has stopped by itself, or ended.
fn is_stopped(child: &Child) -> bool {
    let id = WaitId::Pid(rustix::process::Pid::from_child(child));
    let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(id, options).unwrap().unwrap().stopped()
}

/// Continued, killed and waited for, whatever happens.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn whoever_reads_while_the_mover_is_stopped_has_all_of_it() {
    for step in Step::GOING {
        let stage = Stage::new();
        let mut child = Stopped(stage.act("go", step, Signal::STOP));
        assert!(is_stopped(&child.0), "{step:?}");
        let opened =
            fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(stage.file());
        match opened {
            Ok(mut file) => {
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
                assert!(bytes == contents(), "{step:?}");
            }
            // Nobody may have it open now: whoever does not mind waits.
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{step:?}: {error}");
                assert!(matches!(step, Step::Leased | Step::Closed), "{step:?}");
            }
        }
        let recovered = stage.recover();
        assert_eq!(recovered.busy.len(), 1, "{step:?}: what somebody is at is left alone");
        signal(&child.0, Signal::CONT);
        let status = child.0.wait().unwrap();
        assert!(matches!(status.code(), Some(0 | 17)), "{step:?}: {status}");
        assert!(stage.recover().is_settled(), "{step:?}");
        assert!(stage.read() == contents(), "{step:?}");
    }
}

#[test]
fn whoever_wants_to_write_is_let_in_and_what_they_write_is_there() {
    for step in Step::GOING {
        let stage = Stage::new();
        let mut child = Stopped(stage.act("go", step, Signal::STOP));
        assert!(is_stopped(&child.0), "{step:?}");
        let path = stage.file();
        let writer = std::thread::spawn(move || {
            let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(b"written").unwrap();
        });
        // It waits in the kernel, or is done; either way the mover goes on.
        std::thread::sleep(std::time::Duration::from_millis(50));
        signal(&child.0, Signal::CONT);
        let status = child.0.wait().unwrap();
        assert!(matches!(status.code(), Some(0 | 17)), "{step:?}: {status}");
        writer.join().unwrap();
        assert!(stage.recover().is_settled(), "{step:?}");
        let expected = [contents().as_slice(), b"written"].concat();
        assert!(stage.read() == expected, "{step:?}: {status}");
        if status.code() == Some(0) {
            stage.back(Keep::Neither).unwrap();
            assert!(stage.read() == expected, "{step:?}: it comes back");
        }
        stage.is_as_before();
    }
}

/// Takes this process' leases on a file away, without a word, as the kernel does when they were not given back in time.
fn take_leases_away(path: &Path) {
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap().path();
        if fs::read_link(&entry).is_ok_and(|opened| opened == path) {
            let number = entry.file_name().unwrap().to_str().unwrap().parse().unwrap();
            // SAFETY: it is open during the call, as whoever moves the file waits for this thread.
            crate::sys::lease::release(unsafe { BorrowedFd::borrow_raw(number) });
        }
    }
}

#[test]
fn a_lease_that_was_taken_away_is_noticed_at_once_and_what_was_written_is_there() {
    for at in [Step::Copied, Step::Closed, Step::Exchanged, Step::Flushed] {
        let stage = Stage::new();
        let (file, kept) = (stage.file(), stage.kept());
        let watch = Watch::default().on_step(move |_, step| {
            if step == at {
                // The descriptor follows the file to its other name.
                let original = if kept.is_file() && !kept.is_symlink() { &kept } else { &file };
                take_leases_away(original);
                let mut file = fs::OpenOptions::new().append(true).open(original).unwrap();
                file.write_all(b"written").unwrap();
            }
        });
        let error = stage.go_watched(&watch).unwrap_err();
        assert!(matches!(error, Error::Interrupted { .. }), "{at:?}: {error}");
        assert!(stage.read() == [contents().as_slice(), b"written"].concat(), "{at:?}");
        stage.is_as_before();
    }
}

#[test]
#[ignore = "waits for as long as the kernel waits for a lease: 45 s"]
fn a_lease_that_the_kernel_took_away_is_noticed() {
    // Whoever is stopped for longer than the kernel waits (45 s unless set otherwise) loses the lease without a word.
    let wait_s = fs::read_to_string("/proc/sys/fs/lease-break-time").unwrap_or_default();
    if !wait_s.trim().parse::<u64>().is_ok_and(|wait_s| wait_s <= 60) {
        return eprintln!("skipped: leases are not broken within a minute here");
    }
    let stage = Stage::new();
    let mut child = Stopped(stage.act("go", Step::Closed, Signal::STOP));
    assert!(is_stopped(&child.0));
    // Comes back once the lease is gone, as the mover does not give it back.
    fs::OpenOptions::new().append(true).open(stage.file()).unwrap().write_all(b"written").unwrap();
    signal(&child.0, Signal::CONT);
    assert_eq!(child.0.wait().unwrap().code(), Some(17));
    let expected = [contents().as_slice(), b"written"].concat();
    assert!(stage.read() == expected);
    assert!(stage.recover().is_settled());
    assert!(stage.read() == expected);
    stage.is_as_before();
}

/// Tries until nobody has the file open: processes that other tests start have a copy of each descriptor here until they are the programs that they are to be.
fn at_last<T>(attempt: impl Fn() -> crate::tier::Result<T>) -> T {
    let begin = std::time::Instant::now();
    loop {
        match attempt() {
            Err(Error::InUse { .. }) if begin.elapsed().as_secs() < 20 => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            done => return done.unwrap(),
        }
    }
}

/// `sleep`, which has the file open.
fn holder(stage: &Stage, writes: bool) -> Stopped {
    let file = fs::OpenOptions::new().read(true).append(writes).open(stage.file()).unwrap();
    Stopped(Command::new("sleep").arg("600").stdin(Stdio::from(file)).spawn().unwrap())
}

#[test]
fn a_file_that_somebody_has_open_is_refused_and_they_are_named() {
    for writes in [false, true] {
        let stage = Stage::new();
        let holder = holder(&stage, writes);
        let error = stage.go().unwrap_err();
        let Error::InUse { path, by } = &error else { panic!("{error}") };
        assert_eq!(*path, stage.file());
        let by = by.iter().find(|opener| opener.process == holder.0.id()).unwrap();
        assert_eq!(by.writes, writes);
        assert!(error.to_string().contains(&holder.0.id().to_string()), "{error}");
        stage.is_as_before();
        drop(holder);
        at_last(|| stage.go());
    }
}

#[test]
fn a_copy_that_somebody_has_open_stays() {
    let stage = Stage::new();
    stage.go().unwrap();
    let holder = holder(&stage, true);
    let error = stage.back(Keep::Neither).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert!(stage.file().is_symlink() && stage.read() == contents());
    assert!(stage.recover().is_settled());
    drop(holder);
    at_last(|| stage.back(Keep::Neither));
    stage.is_as_before();
}

#[test]
fn cancelled_at_any_time_it_is_where_it_was() {
    let stage = Stage::new();
    let before = stage.attributes();
    for at in [Step::Recorded, Step::Copied, Step::Vouched, Step::Closed] {
        let cancelled = Arc::new(AtomicBool::new(false));
        let cancel = Arc::clone(&cancelled);
        let watch = Watch::default().cancelled_by(cancelled).on_step(move |_, step| {
            cancel.fetch_or(step == at, Ordering::Relaxed);
        });
        let error = stage.go_watched(&watch).unwrap_err();
        assert!(matches!(error, Error::Cancelled { .. }), "{at:?}: {error}");
        stage.is_as_before();
        assert_eq!(stage.attributes(), before);
    }
}

#[test]
fn a_directory_that_is_renamed_meanwhile_keeps_its_file() {
    let stage = Stage::new();
    let (from, to) = (stage.path("files"), stage.path("renamed"));
    let watch = Watch::default().on_step(move |_, step| {
        if step == Step::Linked {
            fs::rename(&from, &to).unwrap();
        }
    });
    let error = stage.go_watched(&watch).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    assert!(fs::read(stage.path("renamed/clip.mkv")).unwrap() == contents());
    let recovered = stage.recover();
    assert!(
        matches!(recovered.left.as_slice(), [(_, Error::DirectoryGone { .. })]),
        "{recovered:?}"
    );
    fs::rename(stage.path("renamed"), stage.path("files")).unwrap();
    assert!(stage.recover().is_settled());
    stage.is_as_before();
    assert!(stage.read() == contents());
}

#[test]
fn a_file_that_is_removed_meanwhile_can_be_had_from_the_tier() {
    let stage = Stage::new();
    let file = stage.file();
    let watch = Watch::default().on_step(move |_, step| {
        if step == Step::Linked {
            fs::remove_file(&file).unwrap();
        }
    });
    assert!(stage.go_watched(&watch).is_err());
    let recovered = stage.recover();
    assert!(matches!(recovered.left.as_slice(), [(_, Error::Vanished { .. })]), "{recovered:?}");
    stage.back(Keep::Neither).unwrap();
    assert!(stage.read() == contents());
    stage.is_as_before();
}

#[test]
fn a_file_that_changes_before_the_link_takes_its_place_stays() {
    let stage = Stage::new();
    let file = stage.file();
    // A change of its mode, which no lease keeps anybody from.
    let watch = Watch::default().on_step(move |_, step| {
        if step == Step::Hashed {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            fs::set_permissions(&file, mode).unwrap();
        }
    });
    let error = stage.go_watched(&watch).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    assert!(stage.read() == contents());
    stage.is_as_before();
}

#[test]
fn a_file_that_takes_the_path_at_the_last_moment_keeps_it() {
    // As an editor saves: a lease keeps nobody from renaming.
    for killed_at in [None, Some(Step::Exchanged), Some(Step::Flushed)] {
        let stage = Stage::new();
        fs::write(stage.path("newer"), "newer").unwrap();
        let (step, signal) = (killed_at.unwrap_or(Step::Placed), Signal::KILL);
        let status = stage.act("go", step, signal).wait().unwrap();
        assert_eq!(
            status.code(),
            if killed_at.is_some() { None } else { Some(17) },
            "{killed_at:?}"
        );
        assert!(stage.recover().is_settled(), "{killed_at:?}");
        assert_eq!(stage.read(), b"newer", "{killed_at:?}");
        stage.is_as_before();
    }
}

#[test]
fn a_link_that_somebody_puts_beside_a_file_leads_nothing_elsewhere() {
    let stage = Stage::new();
    fs::create_dir(stage.path("elsewhere")).unwrap();
    let other = stage.path("elsewhere/other");
    fs::write(&other, "somebody else's").unwrap();
    for name in [".clip.mkv.lane-back", ".lane-back-0123"] {
        symlink(&other, stage.path("files").join(name)).unwrap();
    }
    stage.go().unwrap();
    stage.write(b"on the tier");
    stage.back(Keep::Neither).unwrap();
    assert_eq!(stage.read(), b"on the tier");
    assert!(!stage.file().is_symlink());
    assert_eq!(fs::read(&other).unwrap(), b"somebody else's");
    assert_eq!(names(&stage.path("files")).len(), 3, "what is not ours is left alone");
}

#[test]
fn a_copy_that_somebody_still_writes_to_is_not_removed_by_who_recovers() {
    let stage = Stage::new();
    let copy = stage.go().unwrap();
    stage.act("back", Step::BackFlushed, Signal::KILL).wait().unwrap();
    // Who had looked the path up before it led to the file again.
    let mut writer = fs::OpenOptions::new().append(true).open(&copy).unwrap();
    let recovered = stage.recover();
    assert!(matches!(recovered.left.as_slice(), [(_, Error::InUse { .. })]), "{recovered:?}");
    writer.write_all(b"more").unwrap();
    drop(writer);
    let error = at_last(|| match stage.recover().left.pop() {
        Some((_, error @ Error::InUse { .. })) => Err(error),
        left => Ok(left),
    });
    assert!(matches!(error, Some((_, Error::Conflict { .. }))), "{error:?}");
    assert!(stage.read() == contents(), "the path leads to the original");
    stage.back(Keep::Copy).unwrap();
    assert!(stage.read() == [contents().as_slice(), b"more"].concat());
    stage.is_as_before();
}

#[test]
fn a_mover_that_is_killed_holds_nobody_up() {
    let stage = Stage::new();
    let status = stage.act("go", Step::Closed, Signal::KILL).wait().unwrap();
    assert_eq!(status.signal(), Some(9));
    let opened =
        fs::OpenOptions::new().append(true).custom_flags(libc::O_NONBLOCK).open(stage.file());
    drop(opened.unwrap());
}
