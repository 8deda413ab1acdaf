//! Released images: the memory stays, all other resources are closed.
#![allow(clippy::unwrap_used)]

use evermap_load::{Error, Loader, Method};

const BYTES: usize = (5 << 20) + 77;

#[test]
fn released_memory_keeps_its_bytes_for_every_method() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at / 7) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    for method in Method::ALL {
        // SAFETY: only this test uses the file, and it does not change it.
        let loader = unsafe { Loader::open(&path).range(4096..).method(method).may_map() };
        let image = match loader.load() {
            Ok(image) => image,
            Err(Error::Refused { why, .. }) => {
                println!("skipped: {method}: {why}");
                continue;
            }
            Err(error) => panic!("{method}: {error}"),
        };
        let expected = image.mapping();
        let mapping = image.into_mapping().map_err(|(_, error)| error).unwrap();
        assert_eq!(mapping, expected, "{method}");
        assert_eq!(mapping.image_bytes, BYTES - 4096, "{method}");
        // SAFETY: this test now owns the mapping.
        unsafe {
            let first = mapping.address.add(mapping.image_at);
            let there = std::slice::from_raw_parts(first, mapping.image_bytes);
            assert!(there == &bytes[4096..], "{method}");
            rustix::mm::munmap(mapping.address.cast(), mapping.bytes).unwrap();
        }
    }
}

#[test]
fn skipped_and_recorded_windows_are_loaded_before_release() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    std::fs::write(&path, vec![9; BYTES]).unwrap();
    let image = Loader::open(&path).record().load().unwrap();
    let mapping = image.into_mapping().map_err(|(_, error)| error).unwrap();
    // SAFETY: only this test uses the file, and it does not change it.
    unsafe {
        let there = std::slice::from_raw_parts(mapping.address.add(mapping.image_at), BYTES);
        assert!(there.iter().all(|byte| *byte == 9));
        rustix::mm::munmap(mapping.address.cast(), mapping.bytes).unwrap();
    }
}
