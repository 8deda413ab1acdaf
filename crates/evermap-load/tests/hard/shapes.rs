//! Files of every shape: tails, holes, odd ranges.

use std::os::unix::fs::FileExt;

use evermap_load::Method;

use crate::common::{WINDOW, by, cold_file, directory, every_method_gives, evict, loader, pattern};

#[test]
fn every_method_loads_sizes_around_pages_and_windows() {
    for bytes in [0, 1, 4095, 4096, 4097, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW - 4096] {
        let file = cold_file(bytes);
        every_method_gives(&file.path, &file.bytes);
    }
}

#[test]
fn every_method_loads_exactly_the_bytes_of_odd_ranges() {
    let file = cold_file(5 * WINDOW + 4097);
    let end = file.bytes.len();
    let ranges = [
        0..end,
        1..end,
        4095..4097,
        4096..WINDOW + 4096,
        WINDOW - 1..WINDOW + 1,
        WINDOW + 1..WINDOW + 1,
        2 * WINDOW + 77..5 * WINDOW - 3,
        end - 1..end,
        end..end,
        5 * WINDOW..end,
    ];
    for range in ranges {
        for method in Method::ALL {
            evict(&file.path);
            let load = loader(&file.path).range(range.start as u64..range.end as u64);
            let Some(image) = by(&load, method) else { continue };
            assert!(*image == file.bytes[range.clone()], "{method}, {range:?}");
            let middle = image.len() / 2;
            assert!(
                *image.get(middle..image.len()).unwrap()
                    == file.bytes[range.start + middle..range.end]
            );
        }
    }
}

#[test]
fn holes_are_zeros_and_data_between_holes_is_loaded() {
    let directory = directory();
    let path = directory.path().join("file");
    let length = 20 * WINDOW + 5000;
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(length as u64).unwrap();
    let mut expected = vec![0; length];
    let data = pattern(WINDOW);
    // Whole windows, pages within windows, and ranges across windows. The first hole uses a staging
    // slot that held data before.
    for (at, bytes) in [
        (0, WINDOW),
        (3 * WINDOW - 4096, 8192),
        (5 * WINDOW + 4096, 4096),
        (9 * WINDOW, WINDOW),
        (10 * WINDOW, WINDOW),
        (17 * WINDOW + 12345, 100),
    ] {
        file.write_all_at(&data[..bytes], at as u64).unwrap();
        expected[at..at + bytes].copy_from_slice(&data[..bytes]);
    }
    for is_cold in [false, true] {
        if is_cold {
            evict(&path);
        }
        every_method_gives(&path, &expected);
    }
}

#[test]
fn a_file_that_ends_with_a_hole_ends_with_zeros() {
    let directory = directory();
    for tail in [1, 4096, WINDOW - 1, 2 * WINDOW + 1] {
        let path = directory.path().join(tail.to_string());
        let mut expected = pattern(WINDOW + 100);
        std::fs::write(&path, &expected).unwrap();
        expected.resize(WINDOW + 100 + tail, 0);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(expected.len() as u64).unwrap();
        evict(&path);
        every_method_gives(&path, &expected);
    }
}

#[test]
fn bytes_after_a_range_are_not_copied() {
    let file = cold_file(4 * WINDOW);
    for method in Method::ALL {
        if method.maps_the_file() || method == Method::Clone {
            continue;
        }
        let Some(image) = by(&loader(&file.path).range(0..WINDOW as u64 + 100), method) else {
            continue;
        };
        image.wait().unwrap();
        // SAFETY: an image's last page is complete, and its rest is zero as documented.
        let behind =
            unsafe { std::slice::from_raw_parts(image.as_ptr().add(image.len()), 4096 - 100) };
        assert!(behind.iter().all(|byte| *byte == 0), "{method}");
    }
}
