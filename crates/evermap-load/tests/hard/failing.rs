//! Disks with an unreadable part of a file.

use evermap_load::{Error, Method};

use crate::common::{WINDOW, argument, by, child_test, is_started, loader, on_demand, pattern};
use crate::served::{Reads, Served, serve};

/// The unreadable bytes are in the third of six windows.
const LOST: std::ops::Range<usize> = 2 * WINDOW + 8192..2 * WINDOW + 12288;

fn failing_disk() -> Option<Served> {
    serve(6 * WINDOW, false, Reads { failing: LOST, ..Reads::default() })
}

#[test]
fn an_unreadable_window_is_named_in_the_error_of_every_reading_method() {
    let Some(disk) = failing_disk() else { return };
    for method in Method::ALL {
        if !method.is_private() || method == Method::TakeoverOnDemand {
            continue;
        }
        match loader(&disk.path).method(method).load() {
            Err(Error::Unreadable { offset_bytes, length_bytes, source, .. }) => {
                let lost = offset_bytes..offset_bytes + length_bytes;
                assert!(lost.contains(&(LOST.start as u64)), "{method}: {lost:?}");
                assert_eq!(source.raw_os_error(), Some(libc::EIO), "{method}");
            }
            Err(Error::Refused { .. }) => {}
            Ok(_) => panic!("{method} has read an unreadable window"),
            Err(error) => panic!("{method}: {error}"),
        }
    }
}

#[test]
fn on_demand_all_other_windows_are_loaded() {
    let Some(disk) = failing_disk() else { return };
    let Some(image) = on_demand(&disk.path) else { return };
    let error = image.wait().unwrap_err();
    let Error::Unreadable { offset_bytes, length_bytes, .. } = &error else { panic!("{error}") };
    assert_eq!((*offset_bytes, *length_bytes), (2 * WINDOW as u64, WINDOW as u64));
    assert!(image.get(LOST).is_err());
    for part in [0..2 * WINDOW, 3 * WINDOW..6 * WINDOW] {
        assert!(*image.get(part.clone()).unwrap() == disk.bytes[part]);
    }
}

#[test]
fn accessing_an_unreadable_window_raises_a_signal() {
    let Some(disk) = failing_disk() else { return };
    if on_demand(&disk.path).is_none() {
        return;
    }
    for waits in ["", "yes"] {
        child_test("failing::child_accesses_unreadable_window")
            .with("FILE", &disk.path)
            .with("WAITS", waits)
            .ends_by(libc::SIGBUS);
    }
}

#[test]
#[ignore = "started as a process by another test"]
fn child_accesses_unreadable_window() {
    if !is_started() {
        return;
    }
    let Some(image) = on_demand(&argument("FILE")) else { return };
    assert!(image[..WINDOW] == pattern(WINDOW));
    if argument("WAITS").to_str() == Some("yes") {
        assert!(image.wait().is_err());
    }
    // This access must not return.
    std::hint::black_box(image[LOST.start]);
}

#[test]
fn a_fork_does_not_wait_for_unreadable_windows() {
    let Some(disk) = failing_disk() else { return };
    let Some(image) = on_demand(&disk.path) else { return };
    assert_eq!(crate::common::forked(|| true), 0);
    assert!(image.wait().is_err());
}

#[test]
fn advice_that_reads_returns_read_errors() {
    let Some(disk) = failing_disk() else { return };
    let Some(mut image) = by(&loader(&disk.path), Method::Mmap) else { return };
    image[WINDOW..WINDOW + 10].fill(1);
    // Advice takes over mapped pages only, so access every window except the unreadable one first.
    for window in [0, 3] {
        std::hint::black_box(
            image[window * WINDOW..][..WINDOW].iter().map(|b| u64::from(*b)).sum::<u64>(),
        );
    }
    let outcome = image.advise(0..6 * WINDOW, evermap_load::Advice::WriteSoon);
    assert!(matches!(outcome, Ok(()) | Err(Error::Unreadable { .. })), "{outcome:?}");
    assert!(image[3 * WINDOW..4 * WINDOW] == disk.bytes[3 * WINDOW..4 * WINDOW]);
    assert_eq!(image[WINDOW], 1);
}
