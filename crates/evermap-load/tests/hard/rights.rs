//! Users and containers with restricted rights.

use evermap_load::{Error, Loader, Method};
use seccompiler::SeccompAction;

use crate::common::{
    WINDOW, argument, by, child_test, cold_file, every_method_gives, is_root, is_started,
    on_demand, pattern, skip,
};
use crate::served::{Reads, serve};
use crate::threads::filter;

const USERFAULTFD_IOC_NEW: u64 = 0xaa00;
/// Size of the files that child tests load, in bytes.
const BYTES: usize = 12 * WINDOW;

#[test]
fn an_unprivileged_user_accesses_on_demand_images_and_ensures_for_system_calls() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let Some(disk) = serve(BYTES, true, Reads::default()) else { return };
    child_test("rights::child_in_user_mode")
        .with("FILE", &disk.path)
        .with("GATE", disk.gate())
        .run_as_nobody()
        .succeeds();
}

#[test]
#[ignore = "started as a process by another test"]
fn child_in_user_mode() {
    if !is_started() {
        return;
    }
    let path = argument("FILE");
    let Some(image) = on_demand(&path) else { return };
    if image.report().serves_system_calls {
        return skip("every user has a full userfaultfd");
    }
    assert!(!image.serves_system_calls());
    let (reader, writer) = std::io::pipe().unwrap();
    // The disk has not answered yet, so no page is loaded.
    let refused = rustix::io::write(&writer, &image[WINDOW..WINDOW + 100]);
    assert_eq!(refused, Err(rustix::io::Errno::FAULT));
    std::fs::write(argument("GATE"), "").unwrap();
    image.ensure(WINDOW..WINDOW + 100).unwrap();
    assert_eq!(rustix::io::write(&writer, &image[WINDOW..WINDOW + 100]), Ok(100));
    let mut written = [0; 100];
    rustix::io::read(&reader, &mut written).unwrap();
    let bytes = pattern(BYTES);
    assert_eq!(written, bytes[WINDOW..WINDOW + 100]);
    assert!(*image == *bytes, "an access needs no privilege");
    image.wait().unwrap();
    assert!(image.serves_system_calls(), "a complete image is ordinary memory");
}

#[test]
fn every_method_works_for_an_unprivileged_user() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let file = cold_file(BYTES);
    child_test("rights::child_with_every_method")
        .with("FILE", &file.path)
        .run_as_nobody()
        .succeeds();
}

#[test]
#[ignore = "started as a process by another test"]
fn child_with_every_method() {
    if is_started() {
        every_method_gives(&argument("FILE"), &pattern(BYTES));
    }
}

#[test]
fn without_userfaultfd_a_load_uses_another_method_and_gives_the_reason() {
    let file = cold_file(BYTES);
    for errno in [libc::EPERM, libc::ENOSYS] {
        let without = child_test("rights::child_without_userfaultfd").with("FILE", &file.path);
        without.with("ERRNO", errno.to_string()).succeeds();
    }
}

#[test]
#[ignore = "started as a process by another test"]
fn child_without_userfaultfd() {
    if !is_started() {
        return;
    }
    let errno: i32 = argument("ERRNO").to_str().unwrap().parse().unwrap();
    let calls = [(libc::SYS_userfaultfd, None), (libc::SYS_ioctl, Some((1, USERFAULTFD_IOC_NEW)))];
    filter(&calls, SeccompAction::Errno(errno as u32));
    let path = argument("FILE");
    let (_, plan) = Loader::open(&path).probe().unwrap();
    let image = Loader::open(&path).load().unwrap();
    assert!(*image == *pattern(BYTES));
    assert_ne!(image.method(), Method::TakeoverOnDemand);
    if plan[0].method == Method::TakeoverOnDemand {
        assert!(image.why().contains("userfaultfd"), "{}", image.why());
        assert_eq!(image.report().refused[0].0, Method::TakeoverOnDemand);
    }
    let error = Loader::open(&path).method(Method::TakeoverOnDemand).load().unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    let remedy = if errno == libc::EPERM { "allow the system call" } else { "no userfaultfd" };
    assert!(error.to_string().contains(remedy), "{error}");
}

#[test]
fn without_io_uring_every_method_works() {
    let file = cold_file(BYTES);
    for errno in [libc::EPERM, libc::ENOSYS] {
        let without = child_test("rights::child_without_rings").with("FILE", &file.path);
        without.with("ERRNO", errno.to_string()).succeeds();
    }
}

#[test]
#[ignore = "started as a process by another test"]
fn child_without_rings() {
    if !is_started() {
        return;
    }
    let errno: i32 = argument("ERRNO").to_str().unwrap().parse().unwrap();
    let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter].map(|call| (call, None));
    filter(&calls, SeccompAction::Errno(errno as u32));
    let path = argument("FILE");
    let bytes = pattern(BYTES);
    every_method_gives(&path, &bytes);
    let Some(image) = by(&Loader::open(&path), Method::TakeoverOnDemand) else { return };
    for window in [11, 3, 7] {
        assert_eq!(image[window * WINDOW], bytes[window * WINDOW]);
    }
    assert!(*image == *bytes);
}

#[test]
fn a_container_that_forbids_all_new_calls_still_loads() {
    let file = cold_file(BYTES);
    child_test("rights::child_with_old_calls_only").with("FILE", &file.path).succeeds();
}

#[test]
#[ignore = "started as a process by another test"]
fn child_with_old_calls_only() {
    if !is_started() {
        return;
    }
    let calls = [
        (libc::SYS_io_uring_setup, None),
        (libc::SYS_userfaultfd, None),
        (libc::SYS_ioctl, Some((1, USERFAULTFD_IOC_NEW))),
        // cachestat, and preadv2 with `RWF_DONTCACHE`.
        (451, None),
        (libc::SYS_preadv2, None),
    ];
    filter(&calls, SeccompAction::Errno(libc::ENOSYS as u32));
    every_method_gives(&argument("FILE"), &pattern(BYTES));
    assert!(*Loader::open(argument("FILE")).load().unwrap() == *pattern(BYTES));
}
