//! Files whose length is known only when they were read: the kernel's.

use std::path::Path;

use evermap_load::{Error, Loader, Method};

use crate::common::{loader, skip};
use crate::served::{Reads, serve};

#[test]
fn files_of_the_kernel_are_read_to_their_end() {
    for path in
        ["/proc/version", "/proc/sys/kernel/ostype", "/sys/kernel/mm/transparent_hugepage/enabled"]
    {
        let Ok(expected) = std::fs::read(path) else {
            skip(format_args!("there is no {path}"));
            continue;
        };
        let image = Loader::open(path).load().unwrap();
        assert_eq!(*image, *expected, "{path}: {}", image.why());
        image.check().unwrap();
        assert_eq!(image.report().bytes, expected.len() as u64);
    }
    let maps = Loader::open("/proc/self/maps").load().unwrap();
    assert!(maps.ends_with(b"\n"));
    assert!(String::from_utf8_lossy(&maps).contains("[stack]"));
}

#[test]
fn a_long_one_is_read_to_its_end_too() {
    let path = "/proc/kallsyms";
    let Ok(expected) = std::fs::read(path) else { return skip("there is no /proc/kallsyms") };
    assert!(*Loader::open(path).load().unwrap() == *expected);
    assert!(*loader(Path::new(path)).written(0.0).load().unwrap() == *expected);
}

#[test]
fn a_range_of_one_is_a_range_of_what_was_read() {
    let all = std::fs::read("/proc/version").unwrap();
    let image = Loader::open("/proc/version").range(6..13).load().unwrap();
    assert_eq!(*image, all[6..13]);
    let error = Loader::open("/proc/version").range(..1 << 20).load().unwrap_err();
    let Error::NoSuchRange { there_bytes, .. } = error else { panic!("{error}") };
    assert_eq!(there_bytes, all.len() as u64);
}

#[test]
fn methods_that_do_more_than_read_are_refused_and_say_why() {
    let all = std::fs::read("/proc/version").unwrap();
    for method in Method::ALL {
        match loader(Path::new("/proc/version")).method(method).load() {
            Ok(image) => {
                assert!(method.name().starts_with("read"), "{method}");
                assert_eq!(*image, *all);
            }
            Err(error @ Error::Refused { .. }) => {
                assert!(!method.name().starts_with("read"), "{error}");
                assert!(error.to_string().contains("length is not known"), "{error}");
            }
            Err(error) => panic!("{method}: {error}"),
        }
    }
}

#[test]
fn what_cannot_be_read_is_an_error_and_no_empty_image() {
    // Reads of another process's memory at 0 fail.
    let error = Loader::open("/proc/self/mem").load().unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

#[test]
fn what_has_no_end_is_an_error_and_takes_no_more_memory_than_it_may() {
    let Some(disk) = serve(257 << 20, false, Reads { is_unsized: true, ..Reads::default() }) else {
        return;
    };
    let error = Loader::open(&disk.path).load().unwrap_err();
    assert!(matches!(error, Error::NotAFile { .. }), "{error}");
    assert!(error.to_string().contains("256 MiB"), "{error}");
}

#[test]
fn files_without_a_length_elsewhere_are_read_as_well() {
    let reads = Reads { is_unsized: true, ..Reads::default() };
    let Some(disk) = serve(3_000_000, false, reads) else { return };
    let image = Loader::open(&disk.path).load().unwrap();
    assert!(*image == **disk.bytes);
}
