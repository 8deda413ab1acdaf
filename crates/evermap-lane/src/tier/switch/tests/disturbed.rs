//! Other processes open, write, rename and remove the file during a move, and movers are stopped
//! half-way.

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

use super::fixture::{Fixture, contents, names, signal};
use crate::tier::Error;
use crate::tier::switch::Keep;
use crate::tier::watch::{Step, Watch};

/// Waits until the child has stopped or ended. Returns true if it has stopped.
fn is_stopped(child: &Child) -> bool {
    let id = WaitId::Pid(rustix::process::Pid::from_child(child));
    let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(id, options).unwrap().unwrap().stopped()
}

/// Child process that is killed and reaped when dropped, even if it is stopped.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_reader_gets_the_whole_file_while_the_mover_is_stopped() {
    for step in Step::PLACE {
        let fixture = Fixture::new();
        let mut child = Stopped(fixture.spawn_helper("place", step, Signal::STOP));
        assert!(is_stopped(&child.0), "{step:?}");
        let opened =
            fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(fixture.file());
        match opened {
            Ok(mut file) => {
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
                assert!(bytes == contents(), "{step:?}");
            }
            // The mover holds an exclusive lease. A blocking reader would wait.
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{step:?}: {error}");
                assert!(matches!(step, Step::Leased | Step::Closed), "{step:?}");
            }
        }
        let recovered = fixture.recover();
        assert_eq!(
            recovered.busy.len(),
            1,
            "{step:?}: a record held by another process is skipped"
        );
        signal(&child.0, Signal::CONT);
        let status = child.0.wait().unwrap();
        assert!(matches!(status.code(), Some(0 | 17)), "{step:?}: {status}");
        assert!(fixture.recover().is_complete(), "{step:?}");
        assert!(fixture.read() == contents(), "{step:?}");
    }
}

#[test]
fn a_writer_is_let_in_and_its_data_is_kept() {
    for step in Step::PLACE {
        let fixture = Fixture::new();
        let mut child = Stopped(fixture.spawn_helper("place", step, Signal::STOP));
        assert!(is_stopped(&child.0), "{step:?}");
        let path = fixture.file();
        let writer = std::thread::spawn(move || {
            let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(b"written").unwrap();
        });
        // The writer waits in the kernel or is done. The mover continues in both cases.
        std::thread::sleep(std::time::Duration::from_millis(50));
        signal(&child.0, Signal::CONT);
        let status = child.0.wait().unwrap();
        assert!(matches!(status.code(), Some(0 | 17)), "{step:?}: {status}");
        writer.join().unwrap();
        assert!(fixture.recover().is_complete(), "{step:?}");
        let expected = [contents().as_slice(), b"written"].concat();
        assert!(fixture.read() == expected, "{step:?}: {status}");
        if status.code() == Some(0) {
            fixture.back(Keep::Neither).unwrap();
            assert!(fixture.read() == expected, "{step:?}: the file is taken back");
        }
        fixture.assert_unchanged();
    }
}

/// Releases this process's leases on a file without notice, as the kernel does after the lease
/// break time.
fn take_leases_away(path: &Path) {
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap().path();
        if fs::read_link(&entry).is_ok_and(|opened| opened == path) {
            let number = entry.file_name().unwrap().to_str().unwrap().parse().unwrap();
            // SAFETY: the descriptor is open during the call, because the mover waits for this
            // callback.
            crate::sys::lease::release(unsafe { BorrowedFd::borrow_raw(number) });
        }
    }
}

#[test]
fn a_lost_lease_is_detected_at_once_and_written_data_is_kept() {
    for at in [Step::Copied, Step::Closed, Step::Exchanged, Step::Flushed] {
        let fixture = Fixture::new();
        let (file, kept) = (fixture.file(), fixture.kept());
        let watch = Watch::default().on_step(move |_, step| {
            if step == at {
                // The descriptor follows the file to its other name.
                let original = if kept.is_file() && !kept.is_symlink() { &kept } else { &file };
                take_leases_away(original);
                let mut file = fs::OpenOptions::new().append(true).open(original).unwrap();
                file.write_all(b"written").unwrap();
            }
        });
        let error = fixture.place_watched(&watch).unwrap_err();
        assert!(matches!(error, Error::Interrupted { .. }), "{at:?}: {error}");
        assert!(fixture.read() == [contents().as_slice(), b"written"].concat(), "{at:?}");
        fixture.assert_unchanged();
    }
}

#[test]
#[ignore = "waits for as long as the kernel waits for a lease: 45 s"]
fn a_lease_revoked_by_the_kernel_is_detected() {
    // A process that is stopped for longer than the lease break time (45 s by default) loses the
    // lease without notice.
    let wait_s = fs::read_to_string("/proc/sys/fs/lease-break-time").unwrap_or_default();
    if !wait_s.trim().parse::<u64>().is_ok_and(|wait_s| wait_s <= 60) {
        return eprintln!("skipped: leases are not broken within a minute here");
    }
    let fixture = Fixture::new();
    let mut child = Stopped(fixture.spawn_helper("place", Step::Closed, Signal::STOP));
    assert!(is_stopped(&child.0));
    // This call returns once the kernel revokes the lease, because the stopped mover does not
    // release it.
    fs::OpenOptions::new()
        .append(true)
        .open(fixture.file())
        .unwrap()
        .write_all(b"written")
        .unwrap();
    signal(&child.0, Signal::CONT);
    assert_eq!(child.0.wait().unwrap().code(), Some(17));
    let expected = [contents().as_slice(), b"written"].concat();
    assert!(fixture.read() == expected);
    assert!(fixture.recover().is_complete());
    assert!(fixture.read() == expected);
    fixture.assert_unchanged();
}

/// Repeats until no process has the file open. Helper processes of other tests inherit each
/// descriptor until their `exec`.
fn retry_while_in_use<T>(attempt: impl Fn() -> crate::tier::Result<T>) -> T {
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

/// Starts `sleep` with the file open.
fn holder(fixture: &Fixture, writes: bool) -> Stopped {
    let file = fs::OpenOptions::new().read(true).append(writes).open(fixture.file()).unwrap();
    Stopped(Command::new("sleep").arg("600").stdin(Stdio::from(file)).spawn().unwrap())
}

#[test]
fn an_open_file_is_refused_and_its_openers_are_named() {
    for writes in [false, true] {
        let fixture = Fixture::new();
        let holder = holder(&fixture, writes);
        let error = fixture.place().unwrap_err();
        let Error::InUse { path, by } = &error else { panic!("{error}") };
        assert_eq!(*path, fixture.file());
        let by = by.iter().find(|opener| opener.process == holder.0.id()).unwrap();
        assert_eq!(by.writes, writes);
        assert!(error.to_string().contains(&holder.0.id().to_string()), "{error}");
        fixture.assert_unchanged();
        drop(holder);
        retry_while_in_use(|| fixture.place());
    }
}

#[test]
fn an_open_copy_stays_on_the_tier() {
    let fixture = Fixture::new();
    fixture.place().unwrap();
    let holder = holder(&fixture, true);
    let error = fixture.back(Keep::Neither).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert!(fixture.file().is_symlink() && fixture.read() == contents());
    assert!(fixture.recover().is_complete());
    drop(holder);
    retry_while_in_use(|| fixture.back(Keep::Neither));
    fixture.assert_unchanged();
}

#[test]
fn a_cancelled_move_leaves_the_file_in_place() {
    let fixture = Fixture::new();
    let before = fixture.attributes();
    for at in [Step::Recorded, Step::Copied, Step::Vouched, Step::Closed] {
        let cancelled = Arc::new(AtomicBool::new(false));
        let cancel = Arc::clone(&cancelled);
        let watch = Watch::default().cancelled_by(cancelled).on_step(move |_, step| {
            cancel.fetch_or(step == at, Ordering::Relaxed);
        });
        let error = fixture.place_watched(&watch).unwrap_err();
        assert!(matches!(error, Error::Cancelled { .. }), "{at:?}: {error}");
        fixture.assert_unchanged();
        assert_eq!(fixture.attributes(), before);
    }
}

#[test]
fn a_directory_renamed_during_a_move_keeps_its_file() {
    let fixture = Fixture::new();
    let (from, to) = (fixture.path("files"), fixture.path("renamed"));
    let watch = Watch::default().on_step(move |_, step| {
        if step == Step::Linked {
            fs::rename(&from, &to).unwrap();
        }
    });
    let error = fixture.place_watched(&watch).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    assert!(fs::read(fixture.path("renamed/clip.mkv")).unwrap() == contents());
    let recovered = fixture.recover();
    assert!(
        matches!(recovered.left.as_slice(), [(_, Error::DirectoryGone { .. })]),
        "{recovered:?}"
    );
    fs::rename(fixture.path("renamed"), fixture.path("files")).unwrap();
    assert!(fixture.recover().is_complete());
    fixture.assert_unchanged();
    assert!(fixture.read() == contents());
}

#[test]
fn a_file_removed_during_a_move_can_be_restored_from_the_tier() {
    let fixture = Fixture::new();
    let file = fixture.file();
    let watch = Watch::default().on_step(move |_, step| {
        if step == Step::Linked {
            fs::remove_file(&file).unwrap();
        }
    });
    assert!(fixture.place_watched(&watch).is_err());
    let recovered = fixture.recover();
    assert!(matches!(recovered.left.as_slice(), [(_, Error::Vanished { .. })]), "{recovered:?}");
    fixture.back(Keep::Neither).unwrap();
    assert!(fixture.read() == contents());
    fixture.assert_unchanged();
}

#[test]
fn a_file_that_changes_before_the_exchange_is_not_moved() {
    let fixture = Fixture::new();
    let file = fixture.file();
    // Changes the mode, which no lease prevents.
    let watch = Watch::default().on_step(move |_, step| {
        if step == Step::Hashed {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            fs::set_permissions(&file, mode).unwrap();
        }
    });
    let error = fixture.place_watched(&watch).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    assert!(fixture.read() == contents());
    fixture.assert_unchanged();
}

#[test]
fn a_file_renamed_to_the_path_at_the_last_moment_keeps_it() {
    // Simulates an editor that saves by renaming, which no lease prevents.
    for killed_at in [None, Some(Step::Exchanged), Some(Step::Flushed)] {
        let fixture = Fixture::new();
        fs::write(fixture.path("newer"), "newer").unwrap();
        let (step, signal) = (killed_at.unwrap_or(Step::Placed), Signal::KILL);
        let status = fixture.spawn_helper("place", step, signal).wait().unwrap();
        assert_eq!(
            status.code(),
            if killed_at.is_some() { None } else { Some(17) },
            "{killed_at:?}"
        );
        assert!(fixture.recover().is_complete(), "{killed_at:?}");
        assert_eq!(fixture.read(), b"newer", "{killed_at:?}");
        fixture.assert_unchanged();
    }
}

#[test]
fn a_foreign_link_next_to_a_file_does_not_redirect_data() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("elsewhere")).unwrap();
    let other = fixture.path("elsewhere/other");
    fs::write(&other, "another file").unwrap();
    for name in [".clip.mkv.lane-back", ".lane-back-0123"] {
        symlink(&other, fixture.path("files").join(name)).unwrap();
    }
    fixture.place().unwrap();
    fixture.write(b"on the tier");
    fixture.back(Keep::Neither).unwrap();
    assert_eq!(fixture.read(), b"on the tier");
    assert!(!fixture.file().is_symlink());
    assert_eq!(fs::read(&other).unwrap(), b"another file");
    assert_eq!(names(&fixture.path("files")).len(), 3, "foreign links are not changed");
}

#[test]
fn recovery_does_not_remove_a_copy_that_is_open_for_writing() {
    let fixture = Fixture::new();
    let copy = fixture.place().unwrap();
    fixture.spawn_helper("back", Step::BackFlushed, Signal::KILL).wait().unwrap();
    // This writer resolved the path before it led to the file again.
    let mut writer = fs::OpenOptions::new().append(true).open(&copy).unwrap();
    let recovered = fixture.recover();
    assert!(matches!(recovered.left.as_slice(), [(_, Error::InUse { .. })]), "{recovered:?}");
    writer.write_all(b"more").unwrap();
    drop(writer);
    let error = retry_while_in_use(|| match fixture.recover().left.pop() {
        Some((_, error @ Error::InUse { .. })) => Err(error),
        left => Ok(left),
    });
    assert!(matches!(error, Some((_, Error::Conflict { .. }))), "{error:?}");
    assert!(fixture.read() == contents(), "the path leads to the original");
    fixture.back(Keep::Copy).unwrap();
    assert!(fixture.read() == [contents().as_slice(), b"more"].concat());
    fixture.assert_unchanged();
}

#[test]
fn a_killed_mover_blocks_no_other_process() {
    let fixture = Fixture::new();
    let status = fixture.spawn_helper("place", Step::Closed, Signal::KILL).wait().unwrap();
    assert_eq!(status.signal(), Some(9));
    let opened =
        fs::OpenOptions::new().append(true).custom_flags(libc::O_NONBLOCK).open(fixture.file());
    drop(opened.unwrap());
}
