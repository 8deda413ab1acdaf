//! Disks that cannot read a part of a file.

use evermap_load::{Error, Method};

use crate::common::{WINDOW, act, argument, by, is_started, loader, on_demand, pattern};
use crate::served::{Reads, Served, serve};

/// The lost bytes are in the third window of six.
const LOST: std::ops::Range<usize> = 2 * WINDOW + 8192..2 * WINDOW + 12288;

fn failing_disk() -> Option<Served> {
    serve(6 * WINDOW, false, Reads { failing: LOST, ..Reads::default() })
}

#[test]
fn a_window_that_cannot_be_read_is_an_error_that_names_it_by_every_method_that_reads() {
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
            Ok(_) => panic!("{method} has read what cannot be read"),
            Err(error) => panic!("{method}: {error}"),
        }
    }
}

#[test]
fn on_demand_all_other_windows_are_there() {
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
fn whoever_touches_what_cannot_be_read_gets_a_signal_and_no_zeros() {
    let Some(disk) = failing_disk() else { return };
    if on_demand(&disk.path).is_none() {
        return;
    }
    for waits in ["", "yes"] {
        act("failing::act_of_touching")
            .with("FILE", &disk.path)
            .with("WAITS", waits)
            .ends_by(libc::SIGBUS);
    }
}

#[test]
#[ignore = "a program that another test starts"]
fn act_of_touching() {
    if !is_started() {
        return;
    }
    let Some(image) = on_demand(&argument("FILE")) else { return };
    assert!(image[..WINDOW] == pattern(WINDOW));
    if argument("WAITS").to_str() == Some("yes") {
        assert!(image.wait().is_err());
    }
    // Whatever it is, it is not there.
    std::hint::black_box(image[LOST.start]);
}

#[test]
fn a_child_does_not_wait_for_what_cannot_be_read() {
    let Some(disk) = failing_disk() else { return };
    let Some(image) = on_demand(&disk.path) else { return };
    assert_eq!(crate::common::forked(|| true), 0);
    assert!(image.wait().is_err());
}

#[test]
fn advice_that_reads_says_what_it_could_not_read() {
    let Some(disk) = failing_disk() else { return };
    let Some(mut image) = by(&loader(&disk.path), Method::Mmap) else { return };
    image[WINDOW..WINDOW + 10].fill(1);
    // Only pages that were mapped are taken over: each is touched first, apart from those that are lost.
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
