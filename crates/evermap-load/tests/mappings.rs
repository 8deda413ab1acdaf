//! Images that are given away: their memory stays, and nothing else of them.
#![allow(clippy::unwrap_used)]

use evermap_load::{Error, Loader, Method};

const BYTES: usize = (5 << 20) + 77;

#[test]
fn memory_that_is_given_away_stays_with_all_its_bytes_whatever_made_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at / 7) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    for method in Method::ALL {
        // SAFETY: the file is this test's alone, which does not change it.
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
        // SAFETY: the mapping is this test's now; nobody else has it.
        unsafe {
            let first = mapping.address.add(mapping.image_at);
            let there = std::slice::from_raw_parts(first, mapping.image_bytes);
            assert!(there == &bytes[4096..], "{method}");
            rustix::mm::munmap(mapping.address.cast(), mapping.bytes).unwrap();
        }
    }
}

#[test]
fn what_was_left_out_or_recorded_is_there_before_it_is_given_away() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    std::fs::write(&path, vec![9; BYTES]).unwrap();
    let image = Loader::open(&path).record().load().unwrap();
    let mapping = image.into_mapping().map_err(|(_, error)| error).unwrap();
    // SAFETY: as above.
    unsafe {
        let there = std::slice::from_raw_parts(mapping.address.add(mapping.image_at), BYTES);
        assert!(there.iter().all(|byte| *byte == 9));
        rustix::mm::munmap(mapping.address.cast(), mapping.bytes).unwrap();
    }
}
