//! Tests of processes that cannot be observed.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use evermap_lane::Error;
use evermap_lane::observe::{Options, Unobservable, observe};

use crate::workloads::Workload;

const NOBODY: u32 = 65_534;

fn short() -> Options {
    Options { time: Duration::from_millis(300), ..Options::default() }
}

fn why(process: u32) -> Unobservable {
    match observe(process, &short()) {
        Err(Error::Unobservable { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn unused_process_numbers_are_errors() {
    for process in [0, 4_194_304, u32::MAX] {
        let error = observe(process, &short()).unwrap_err();
        assert!(matches!(error, Error::NoProcess { .. }), "{error}");
        assert!(error.to_string().contains(&process.to_string()), "{error}");
    }
}

#[test]
fn a_thread_number_is_refused_and_its_process_named() {
    let (sender, thread) = std::sync::mpsc::channel();
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        sender.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
        let _ = wait.recv();
    });
    let process = std::process::id();
    assert_eq!(why(thread.recv().unwrap()), Unobservable::ThreadOf { process });
    drop(end);
    other.join().unwrap();
}

#[test]
fn a_zombie_is_refused() {
    let mut child = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(why(child.id()), Unobservable::Zombie);
    child.wait().unwrap();
    assert!(matches!(observe(child.id(), &short()), Err(Error::NoProcess { .. })));
}

#[test]
fn kernel_threads_are_refused() {
    // Thread 2 starts all kernel threads. A container with its own process numbers does not show
    // it.
    let name = std::fs::read_to_string("/proc/2/comm").unwrap_or_default();
    if name.trim() != "kthreadd" {
        eprintln!("skipped: no kernel thread is visible here");
        return;
    }
    assert_eq!(why(2), Unobservable::KernelThread);
}

#[test]
fn a_process_that_ends_too_early_is_an_error() {
    let workload = Workload::start("workload_short", &[]);
    let options = Options { time: Duration::from_secs(30), ..Options::default() };
    match observe(workload.id(), &options) {
        Err(Error::Unobservable { why: Unobservable::Ended { after_ms }, .. }) => {
            assert!(after_ms < 30_000)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_process_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become nobody");
        return;
    }
    // A copy of this program that every user may execute.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), everybody).unwrap();
    let copy = folder.path().join("child");
    crate::programs::copy_program(&std::env::current_exe().unwrap(), &copy);
    let mut command = Command::new(copy);
    command
        .args(["--ignored", "--exact", "refusals::workload_nobody_observes"])
        .env("OTHER", std::process::id().to_string())
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "run by `a_process_of_another_user_is_refused`"]
fn workload_nobody_observes() {
    let other = std::env::var("OTHER").unwrap().parse().unwrap();
    assert_eq!(why(other), Unobservable::NotPermitted { owner: 0 });
}
