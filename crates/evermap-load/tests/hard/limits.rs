//! Processes that run out of descriptors, threads or addresses.

use std::io::Error as IoError;

use evermap_load::{Error, Latency, Loader, Method};

use crate::common::{
    WINDOW, argument, child_test, cold_file, is_root, is_started, loader, pattern, skip,
};

const BYTES: usize = 6 * WINDOW;

fn limit(resource: rustix::process::Resource, most: u64) {
    let limit = rustix::process::Rlimit { current: Some(most), maximum: Some(most) };
    rustix::process::setrlimit(resource, limit).unwrap();
}

fn entries(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

/// Checks that the image is right or that the error is one of `errnos`. Returns true for an image.
fn is_right_or(outcome: Result<evermap_load::Image, Error>, errnos: &[i32], what: &str) -> bool {
    match outcome.and_then(|image| image.wait().map(|()| image)) {
        Ok(image) => {
            assert!(*image == *pattern(BYTES), "{what}");
            true
        }
        Err(Error::Io { source, .. }) => {
            let errno = source.raw_os_error().unwrap_or(0);
            assert!(errnos.contains(&errno), "{what}: {source}");
            false
        }
        Err(Error::Refused { .. }) => false,
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn with_few_descriptors_a_load_uses_another_method_or_fails_with_a_reason() {
    let file = cold_file(BYTES);
    for spare in 0..9 {
        let child = child_test("limits::child_with_few_descriptors").with("FILE", &file.path);
        child.with("SPARE", spare.to_string()).succeeds();
    }
}

/// Closes gaps in the descriptor numbers and returns the number of open descriptors, because the
/// limit applies to numbers.
fn without_gaps() -> u64 {
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = numbers.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_string());
    let numbers: Vec<i32> = numbers.map(|number| number.parse().unwrap()).collect();
    // The listing includes the directory's own descriptor, which is closed by now.
    // SAFETY: queries a descriptor number, which need not be open.
    let is_open = |number: &i32| unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0;
    let highest = numbers.into_iter().filter(is_open).max().unwrap();
    loop {
        let more = rustix::io::dup(std::io::stderr()).unwrap();
        if std::os::fd::AsRawFd::as_raw_fd(&more) > highest {
            return highest as u64 + 1;
        }
        std::mem::forget(more);
    }
}

#[test]
#[ignore = "started as a process by another test"]
fn child_with_few_descriptors() {
    if !is_started() {
        return;
    }
    let path = argument("FILE");
    let spare: u64 = argument("SPARE").to_str().unwrap().parse().unwrap();
    let open = without_gaps();
    limit(rustix::process::Resource::Nofile, open + spare);
    let outcome = Loader::open(&path).load();
    if spare == 0 {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("too many files are open"), "{error}");
        return;
    }
    is_right_or(outcome, &[libc::EMFILE], "automatic");
    for method in Method::ALL {
        is_right_or(loader(&path).method(method).load(), &[libc::EMFILE], method.name());
    }
    // Refused methods leave nothing open.
    assert_eq!(without_gaps(), open);
}

#[test]
fn without_threads_the_calling_thread_loads() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let file = cold_file(BYTES);
    child_test("limits::child_without_threads").with("FILE", &file.path).run_as_nobody().succeeds();
}

#[test]
#[ignore = "started as a process by another test"]
fn child_without_threads() {
    if !is_started() {
        return;
    }
    limit(rustix::process::Resource::Nproc, 1);
    if std::thread::Builder::new().spawn(|| ()).is_ok() {
        return skip("the thread limit does not apply to this user");
    }
    let path = argument("FILE");
    for latency in [Latency::FirstUse, Latency::Finish] {
        let image = Loader::open(&path).latency(latency).load().unwrap();
        assert!(*image == *pattern(BYTES), "{}", image.why());
    }
    for method in Method::ALL {
        is_right_or(loader(&path).threads(8).method(method).load(), &[], method.name());
    }
}

#[test]
fn with_few_addresses_a_load_uses_another_method_or_fails_with_a_reason() {
    let file = cold_file(BYTES);
    for spare_windows in [0, 1, 3, 6, 7, 8, 12, 16, 20, 30] {
        child_test("limits::child_with_few_addresses")
            .with("FILE", &file.path)
            .with("SPARE", spare_windows.to_string())
            .succeeds();
    }
}

#[test]
#[ignore = "started as a process by another test"]
fn child_with_few_addresses() {
    if !is_started() {
        return;
    }
    let path = argument("FILE");
    let spare: u64 = argument("SPARE").to_str().unwrap().parse().unwrap();
    let expected = pattern(BYTES);
    // Let the allocator get its memory before the limit applies.
    drop(vec![1u8; 100_000]);
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    limit(rustix::process::Resource::As, pages * 4096 + spare * WINDOW as u64 + (512 << 10));
    let mut methods = vec![None];
    methods.extend(Method::ALL.map(Some));
    for method in methods {
        let load = match method {
            Some(method) => loader(&path).method(method),
            None => loader(&path),
        };
        match load.load().and_then(|image| image.wait().map(|()| image)) {
            Ok(image) => assert!(*image == *expected, "{method:?}"),
            Err(Error::Io { source, .. }) => {
                assert_eq!(source.raw_os_error(), Some(libc::ENOMEM), "{method:?}: {source}");
            }
            Err(Error::Refused { .. }) => {}
            Err(error) => panic!("{method:?}: {error}"),
        }
    }
}

#[test]
fn loads_release_all_resources() {
    let file = cold_file(BYTES);
    child_test("limits::child_with_many_loads").with("FILE", &file.path).succeeds();
}

#[test]
#[ignore = "started as a process by another test"]
fn child_with_many_loads() {
    if !is_started() {
        return;
    }
    let path = argument("FILE");
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let loads = |count: usize| {
        for number in 0..count {
            for method in Method::ALL {
                let Ok(image) = loader(&path).method(method).load() else { continue };
                match number % 3 {
                    0 => drop(image),
                    1 => assert_eq!(image[5 * WINDOW], pattern(BYTES)[5 * WINDOW]),
                    _ => image.wait().unwrap(),
                }
            }
            // Failed loads release everything too.
            assert!(Loader::open(&path).range(1..u64::MAX).load().is_err());
            assert!(Loader::open("/nonexistent").load().is_err());
        }
    };
    let threads = entries("/proc/self/task");
    loads(20);
    let settled = |what: &str, most: usize, count: &dyn Fn() -> usize| {
        // Ended threads release their resources a moment later.
        for _ in 0..2000 {
            if count() <= most {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        panic!("{} {what} at most, and {} are left", most, count());
    };
    settled("threads", threads, &|| entries("/proc/self/task"));
    let (open, mapped) = (entries("/proc/self/fd"), mappings());
    loads(50);
    settled("threads", threads, &|| entries("/proc/self/task"));
    settled("descriptors", open, &|| entries("/proc/self/fd"));
    // Stacks and arenas of threads are kept for reuse.
    settled("mappings", mapped + 16, &mappings);
}

#[test]
fn errors_of_missing_resources_name_the_file() {
    let error = Loader::open("/nonexistent/file").load().unwrap_err();
    let Error::Io { path, source, .. } = &error else { panic!("{error}") };
    assert_eq!(path.to_str(), Some("/nonexistent/file"));
    assert_eq!(source.kind(), IoError::from_raw_os_error(libc::ENOENT).kind());
}
