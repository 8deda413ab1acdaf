//! Paths that do not directly name a readable regular file: other kinds of files, missing and
//! unreadable files, symbolic links, and removed files that are still open.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use evermap_load::{Error, Loader, Method};

use crate::common::{argument, child_test, cold_file, directory, is_root, is_started, skip};

/// Returns the kind of file in the error of a refused load.
fn refused_kind(path: &Path) -> String {
    match Loader::open(path).load() {
        Err(Error::NotAFile { what, path: named }) => {
            assert_eq!(named, path);
            what.to_string()
        }
        Err(error) => panic!("{}: {error}", path.display()),
        Ok(_) => panic!("{} was loaded", path.display()),
    }
}

fn errno_of(path: &Path) -> i32 {
    match Loader::open(path).load() {
        Err(Error::Io { source, .. }) => source.raw_os_error().unwrap(),
        Err(error) => panic!("{}: {error}", path.display()),
        Ok(_) => panic!("{} was loaded", path.display()),
    }
}

#[test]
fn errors_name_the_kind_of_a_non_regular_file_without_opening_it() {
    let directory = directory();
    assert_eq!(refused_kind(directory.path()), "a directory");
    assert_eq!(refused_kind(Path::new("/dev/zero")), "a character device");
    let socket = directory.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    assert_eq!(refused_kind(&socket), "a socket");
    let fifo = directory.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    // The load does not wait for a writer of the FIFO, and does not act as its reader.
    assert_eq!(refused_kind(&fifo), "a FIFO");
    let link = directory.path().join("link");
    symlink(&fifo, &link).unwrap();
    assert_eq!(refused_kind(&link), "a FIFO");
}

#[test]
fn errors_name_a_block_device() {
    let devices = std::fs::read_dir("/dev").unwrap().filter_map(Result::ok);
    let is_block = |entry: &std::fs::DirEntry| {
        entry.file_type().is_ok_and(|kind| std::os::unix::fs::FileTypeExt::is_block_device(&kind))
    };
    match devices.into_iter().find(is_block) {
        Some(device) => assert_eq!(refused_kind(&device.path()), "a block device"),
        None => skip("there is no block device"),
    }
}

#[test]
fn missing_files_are_errors_with_the_kernels_reason() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name);
    assert_eq!(errno_of(&path("missing")), libc::ENOENT);
    symlink("round", path("round")).unwrap();
    assert_eq!(errno_of(&path("round")), libc::ELOOP);
    symlink("missing", path("dangling")).unwrap();
    assert_eq!(errno_of(&path("dangling")), libc::ENOENT);
    assert_eq!(errno_of(&path(&"long".repeat(100))), libc::ENAMETOOLONG);
    std::fs::write(path("file"), "bytes").unwrap();
    assert_eq!(errno_of(&path("file/below")), libc::ENOTDIR);
    assert_eq!(errno_of(Path::new("")), libc::ENOENT);
}

#[test]
fn a_link_to_a_file_is_loaded_by_every_method() {
    let file = cold_file(10_000);
    let link = file.path.with_extension("link");
    symlink(&file.path, &link).unwrap();
    crate::common::every_method_gives(&link, &file.bytes);
}

#[test]
fn a_removed_open_file_is_loaded_by_its_descriptor_path() {
    let file = cold_file(3 << 20);
    let opened = std::fs::File::open(&file.path).unwrap();
    std::fs::remove_file(&file.path).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&opened);
    let path = format!("/proc/self/fd/{number}");
    for method in Method::ALL {
        let loaded = crate::common::loader(Path::new(&path)).method(method).load();
        match loaded {
            Ok(image) => assert!(*image == *file.bytes, "{method}"),
            Err(Error::Refused { .. }) => {}
            Err(error) => panic!("{method}: {error}"),
        }
    }
}

#[test]
fn an_unreadable_file_is_an_error_with_a_remedy() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let file = cold_file(5000);
    std::fs::set_permissions(&file.path, std::fs::Permissions::from_mode(0o600)).unwrap();
    child_test("names::child_without_permission")
        .with("FILE", &file.path)
        .run_as_nobody()
        .succeeds();
}

#[test]
#[ignore = "started as a process by another test"]
fn child_without_permission() {
    if !is_started() {
        return;
    }
    let path = argument("FILE");
    assert_eq!(errno_of(&path), libc::EACCES);
    let error = Loader::open(&path).load().unwrap_err();
    assert!(error.to_string().contains("make it readable"), "{error}");
}
