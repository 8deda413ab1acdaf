//! Loading threads that are killed, and threads that compete for windows.

use std::collections::BTreeMap;

use evermap_load::Error;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::common::{
    File, WINDOW, argument, child_test, cold_file, is_started, on_demand, pattern,
};

/// System call, optionally with a required value of one argument.
pub type Call = (libc::c_long, Option<(u8, u64)>);

/// Applies `action` to some calls of this thread and threads it starts.
pub fn filter(calls: &[Call], action: SeccompAction) {
    let mut rules = BTreeMap::new();
    for (call, argument) in calls {
        let rule = argument.map(|(number, value)| {
            let is = SeccompCmpOp::Eq;
            let is = SeccompCondition::new(number, SeccompCmpArgLen::Dword, is, value).unwrap();
            SeccompRule::new(vec![is]).unwrap()
        });
        rules.insert(*call, rule.into_iter().collect());
    }
    let target = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, target).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

const UFFDIO_MOVE: u64 = 0xc028_aa05;

#[test]
fn threads_killed_for_a_call_are_replaced_by_one_that_avoids_it() {
    let file = cold_file(12 * WINDOW);
    child_test("threads::child_with_rings_that_kill").with("FILE", &file.path).succeeds();
}

#[test]
#[ignore = "started as a process by another test"]
fn child_with_rings_that_kill() {
    if !is_started() {
        return;
    }
    filter(&[(libc::SYS_io_uring_setup, None)], SeccompAction::KillThread);
    let path = argument("FILE");
    let Some(image) = on_demand(&path) else { return };
    assert!(*image == *pattern(12 * WINDOW));
    image.wait().unwrap();
    assert!(image.report().threads_replaced > 0);
}

#[test]
fn killing_every_thread_is_an_error_and_an_access_raises_a_signal() {
    let file = cold_file(12 * WINDOW);
    child_test("threads::child_with_moves_that_kill").with("FILE", &file.path).succeeds();
    let Some(_) = on_demand(&file.path) else { return };
    let touching = child_test("threads::child_with_moves_that_kill").with("FILE", &file.path);
    touching.with("TOUCH", "yes").ends_by(libc::SIGBUS);
}

#[test]
#[ignore = "started as a process by another test"]
fn child_with_moves_that_kill() {
    if !is_started() {
        return;
    }
    filter(&[(libc::SYS_ioctl, Some((1, UFFDIO_MOVE)))], SeccompAction::KillThread);
    let path = argument("FILE");
    let Some(image) = on_demand(&path) else { return };
    if std::env::var_os("TOUCH").is_some() {
        assert_ne!(image[5 * WINDOW], image[5 * WINDOW + 1], "the access returned");
        return;
    }
    let error = image.wait().unwrap_err();
    assert!(matches!(error, Error::ThreadsLost { .. }), "{error}");
    assert!(matches!(image.get(0..1), Err(Error::ThreadsLost { .. })));
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

fn all_at_once(file: &File, threads: usize, part_of: impl Fn(usize) -> std::ops::Range<usize>) {
    let Some(image) = on_demand(&file.path) else { return };
    let start = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (image, start, part) = (&image, &start, part_of(thread));
            scope.spawn(move || {
                start.wait();
                assert_eq!(sum(&image[part.clone()]), sum(&file.bytes[part]), "thread {thread}");
            });
        }
    });
    image.wait().unwrap();
}

#[test]
fn threads_that_access_one_window_at_once_all_get_its_bytes() {
    let file = cold_file(8 * WINDOW);
    for threads in [2, 16] {
        all_at_once(&file, threads, |_| 5 * WINDOW..6 * WINDOW);
    }
}

#[test]
fn threads_that_access_a_window_each_get_its_bytes() {
    let file = cold_file(32 * WINDOW);
    for threads in [2, 16] {
        // From the end, which the stream reaches last.
        all_at_once(&file, threads, |thread| (31 - thread) * WINDOW..(32 - thread) * WINDOW);
    }
}

#[test]
fn writes_during_a_load_are_kept() {
    let file = cold_file(16 * WINDOW);
    let Some(mut image) = on_demand(&file.path) else { return };
    std::thread::scope(|scope| {
        for part in image.chunks_mut(WINDOW) {
            scope.spawn(move || part.iter_mut().step_by(4096).for_each(|byte| *byte ^= 0xff));
        }
    });
    image.wait().unwrap();
    let mut expected = file.bytes.clone();
    expected.iter_mut().step_by(4096).for_each(|byte| *byte ^= 0xff);
    assert!(*image == *expected);
}
