//! Images that are dropped, released, or numerous.

use std::panic::{AssertUnwindSafe, catch_unwind};

use evermap_load::{Advice, Image, Loader};

use crate::common::{WINDOW, cold_file, on_demand};
use crate::served::{Reads, serve};

#[test]
fn an_image_can_be_dropped_during_its_load() {
    let file = cold_file(32 * WINDOW);
    for touched in 0..20 {
        let Some(image) = on_demand(&file.path) else { return };
        for window in 0..touched % 4 {
            assert_eq!(image[window * 7 * WINDOW], file.bytes[window * 7 * WINDOW]);
        }
        drop(image);
    }
    let image = on_demand(&file.path).unwrap();
    assert!(*image == *file.bytes);
}

#[test]
fn dropping_an_image_waits_only_for_outstanding_reads() {
    let Some(disk) = serve(64 * WINDOW, true, Reads::default()) else { return };
    let Some(image) = on_demand(&disk.path) else { return };
    image.want(40 * WINDOW..41 * WINDOW);
    std::thread::scope(|scope| {
        let dropping = scope.spawn(|| drop(image));
        disk.open_gate();
        dropping.join().unwrap();
    });
}

#[test]
fn a_panic_drops_an_image() {
    let file = cold_file(16 * WINDOW);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let image = on_demand(&file.path);
        let at = std::hint::black_box(usize::MAX);
        image.map_or(0, |image| image[at])
    }));
    assert!(panicked.is_err() || on_demand(&file.path).is_none());
    let image = Loader::open(&file.path).load().unwrap();
    assert!(*image == *file.bytes);
}

#[test]
fn a_hundred_concurrent_images_have_their_own_bytes() {
    let files: Vec<_> = (1..=5).map(|windows| cold_file(windows * WINDOW + 100)).collect();
    let images: Vec<Image> = (0..100)
        .map(|number| {
            let load = Loader::open(&files[number % 5].path);
            on_demand(&files[number % 5].path).unwrap_or_else(|| load.load().unwrap())
        })
        .collect();
    for (number, image) in images.iter().enumerate().rev() {
        assert!(**image == *files[number % 5].bytes, "image {number}");
    }
    for image in &images {
        image.wait().unwrap();
    }
}

#[test]
fn an_image_can_be_used_and_dropped_by_another_thread() {
    let file = cold_file(8 * WINDOW);
    let Some(mut image) = on_demand(&file.path) else { return };
    let bytes = file.bytes.clone();
    let thread = std::thread::spawn(move || {
        image[5 * WINDOW] = 3;
        image.advise(0..WINDOW, Advice::WriteSoon).unwrap();
        image.wait().unwrap();
        assert!(image[5 * WINDOW + 1..] == bytes[5 * WINDOW + 1..]);
        image
    });
    let image = thread.join().unwrap();
    assert_eq!(image[5 * WINDOW], 3);
    std::thread::spawn(move || drop(image)).join().unwrap();
}

#[test]
fn skipped_windows_are_loaded_by_a_much_later_access() {
    let file = cold_file(24 * WINDOW);
    let Some(mut image) = on_demand(&file.path) else { return };
    let all = image.len();
    image.advise(WINDOW..all, Advice::Never).unwrap();
    image.wait().unwrap();
    for window in (1..24).rev() {
        assert_eq!(image[window * WINDOW + 9], file.bytes[window * WINDOW + 9]);
    }
    image.wait().unwrap();
    assert!(*image == *file.bytes);
}

#[test]
fn system_calls_can_write_into_a_loading_image() {
    let file = cold_file(16 * WINDOW);
    let Some(mut image) = on_demand(&file.path) else { return };
    if !image.serves_system_calls() {
        return crate::common::skip("system calls of this user fail with EFAULT without `ensure`");
    }
    let opened = std::fs::File::open("/dev/zero").unwrap();
    let part = 9 * WINDOW + 5000..9 * WINDOW + 15000;
    assert_eq!(rustix::io::read(&opened, &mut image[part.clone()]), Ok(10000));
    let mut expected = file.bytes.clone();
    expected[part].fill(0);
    assert!(*image == *expected);
}
