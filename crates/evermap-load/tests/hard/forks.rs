//! Children of a process that loads.

use std::process::Command;

use evermap_load::{ForkPolicy, Loader, Method};

use crate::common::{WINDOW, by, cold_file, forked, on_demand, skip};
use crate::served::{Reads, serve};

/// In a child: compares without allocating.
fn is_right(image: &[u8], bytes: &[u8]) -> bool {
    image.iter().zip(bytes).step_by(509).fold(true, |right, (a, b)| right & (a == b))
}

#[test]
fn children_of_several_threads_that_fork_at_once_have_every_byte() {
    let file = cold_file(32 * WINDOW);
    let Some(image) = on_demand(&file.path) else { return };
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                assert_eq!(forked(|| is_right(&image, &file.bytes)), 0, "a child saw other bytes");
            });
        }
    });
    assert!(*image == *file.bytes);
}

#[test]
fn a_child_has_what_was_written_before_the_fork_and_its_writes_are_its_own() {
    let file = cold_file(8 * WINDOW);
    let Some(mut image) = on_demand(&file.path) else { return };
    image[3 * WINDOW + 1] = 77;
    let bytes = image.bytes_mut().unwrap();
    let status = forked(|| {
        let is_there = bytes[3 * WINDOW + 1] == 77;
        bytes[3 * WINDOW + 1] = 99;
        is_there
    });
    assert_eq!(status, 0);
    assert_eq!(image[3 * WINDOW + 1], 77);
}

#[test]
fn with_dont_fork_a_child_gets_a_signal_and_no_zeros() {
    let file = cold_file(16 * WINDOW);
    let load = Loader::open(&file.path).fork(ForkPolicy::DontFork);
    let Some(image) = by(&load, Method::TakeoverOnDemand) else { return };
    let status = forked(|| image[7 * WINDOW] == file.bytes[7 * WINDOW]);
    assert!(libc::WIFSIGNALED(status), "the child ended by itself: {status:#x}");
    assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
    image.wait().unwrap();
    assert!(*image == *file.bytes, "the parent's image is as it was");
}

#[test]
fn a_child_that_drops_an_image_it_does_not_have_leaves_its_parents_load_alone() {
    let Some(disk) = serve(8 * WINDOW, true, Reads::default()) else { return };
    let load = Loader::open(&disk.path).fork(ForkPolicy::DontFork);
    let Some(image) = by(&load, Method::TakeoverOnDemand) else { return };
    let mut image = Some(image);
    let status = forked(|| {
        let is_lost = image.as_ref().is_some_and(|image| image.wait().is_err());
        drop(image.take());
        is_lost
    });
    assert_eq!(status, 0, "a child has no threads that load");
    disk.open_gate();
    let image = image.unwrap();
    image.wait().unwrap();
    assert!(*image == **disk.bytes);
}

#[test]
fn a_fork_waits_for_a_slow_disk_and_the_child_has_every_byte() {
    let Some(disk) = serve(8 * WINDOW, true, Reads::default()) else { return };
    let Some(image) = on_demand(&disk.path) else { return };
    std::thread::scope(|scope| {
        let child = scope.spawn(|| forked(|| is_right(&image, &disk.bytes)));
        disk.open_gate();
        assert_eq!(child.join().unwrap(), 0);
    });
}

#[test]
fn programs_are_started_while_a_load_waits_for_its_disk() {
    let Some(disk) = serve(8 * WINDOW, true, Reads::default()) else { return };
    let Some(image) = on_demand(&disk.path) else { return };
    // By `posix_spawn`, as there is nothing to be done in the child.
    assert!(Command::new("true").status().unwrap().success());
    assert_eq!(image.progress().loaded_bytes, 0, "the disk has answered nothing");
    disk.open_gate();
    image.wait().unwrap();
    assert!(*image == **disk.bytes);
}

#[test]
fn a_fork_during_loads_that_are_made_and_dropped_does_not_hang() {
    let file = cold_file(4 * WINDOW);
    if on_demand(&file.path).is_none() {
        return skip("nothing is loaded on demand here");
    }
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| {
            for _ in 0..40 {
                drop(on_demand(&file.path));
            }
        });
        while !loading.is_finished() {
            assert_eq!(forked(|| true), 0);
        }
    });
}
