//! Children of a process that loads.

use std::process::Command;

use evermap_load::{ForkPolicy, Loader, Method};

use crate::common::{WINDOW, by, cold_file, forked, on_demand, skip};
use crate::served::{Reads, serve};

/// Compares without allocating, for use in a child.
fn is_right(image: &[u8], bytes: &[u8]) -> bool {
    image.iter().zip(bytes).step_by(509).fold(true, |right, (a, b)| right & (a == b))
}

#[test]
fn children_of_concurrently_forking_threads_have_every_byte() {
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
fn a_child_sees_earlier_writes_and_its_own_stay_private() {
    let file = cold_file(8 * WINDOW);
    let Some(mut image) = on_demand(&file.path) else { return };
    image[3 * WINDOW + 1] = 77;
    let bytes = image.bytes_mut().unwrap();
    let status = forked(|| {
        let is_present = bytes[3 * WINDOW + 1] == 77;
        bytes[3 * WINDOW + 1] = 99;
        is_present
    });
    assert_eq!(status, 0);
    assert_eq!(image[3 * WINDOW + 1], 77);
}

#[test]
fn with_dont_fork_an_access_in_a_child_raises_a_signal() {
    let file = cold_file(16 * WINDOW);
    let load = Loader::open(&file.path).fork(ForkPolicy::DontFork);
    let Some(image) = by(&load, Method::TakeoverOnDemand) else { return };
    let status = forked(|| image[7 * WINDOW] == file.bytes[7 * WINDOW]);
    assert!(libc::WIFSIGNALED(status), "the child was not killed by a signal: {status:#x}");
    assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
    image.wait().unwrap();
    assert!(*image == *file.bytes, "the parent's image is unchanged");
}

#[test]
fn a_child_that_drops_the_image_does_not_disturb_its_parents_load() {
    let Some(disk) = serve(8 * WINDOW, true, Reads::default()) else { return };
    let load = Loader::open(&disk.path).fork(ForkPolicy::DontFork);
    let Some(image) = by(&load, Method::TakeoverOnDemand) else { return };
    let mut image = Some(image);
    let status = forked(|| {
        let is_lost = image.as_ref().is_some_and(|image| image.wait().is_err());
        drop(image.take());
        is_lost
    });
    assert_eq!(status, 0, "the child has no loading threads");
    disk.open_gate();
    let image = image.unwrap();
    image.wait().unwrap();
    assert!(*image == **disk.bytes);
}

#[test]
fn a_fork_waits_for_the_load_and_the_child_has_every_byte() {
    let Some(disk) = serve(8 * WINDOW, true, Reads::default()) else { return };
    let Some(image) = on_demand(&disk.path) else { return };
    std::thread::scope(|scope| {
        let child = scope.spawn(|| forked(|| is_right(&image, &disk.bytes)));
        disk.open_gate();
        assert_eq!(child.join().unwrap(), 0);
    });
}

#[test]
fn programs_can_be_started_while_a_load_waits_for_its_disk() {
    let Some(disk) = serve(8 * WINDOW, true, Reads::default()) else { return };
    let Some(image) = on_demand(&disk.path) else { return };
    // This uses `posix_spawn`, because the child needs no setup.
    assert!(Command::new("true").status().unwrap().success());
    assert_eq!(image.progress().loaded_bytes, 0, "the disk has not answered yet");
    disk.open_gate();
    image.wait().unwrap();
    assert!(*image == **disk.bytes);
}

#[test]
fn a_fork_during_starting_and_ending_loads_does_not_hang() {
    let file = cold_file(4 * WINDOW);
    if on_demand(&file.path).is_none() {
        return skip("on-demand loads are not possible");
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
