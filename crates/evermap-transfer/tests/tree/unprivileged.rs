//! Copies of a user who may not do everything. As root they run in a process of another user.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::child::command;
use crate::compare::temporary_names;
use crate::make::{is_root, set_mode, set_times, set_xattr, skip};

/// Nobody, on most systems; any other would do.
const USER: u32 = 65534;

/// A place where that user may make things, and this program where that user may run it.
fn place() -> Option<(tempfile::TempDir, PathBuf)> {
    if !is_root() {
        // The tests' own user is unprivileged already, and owns what it makes.
        skip("files of other users: not root");
        return None;
    }
    let place = crate::make::fast();
    set_mode(place.path(), 0o755);
    let program = place.path().join("program");
    crate::programs::copy_program(&std::env::current_exe().unwrap(), &program);
    set_mode(&program, 0o755);
    fs::create_dir(place.path().join("work")).unwrap();
    std::os::unix::fs::chown(place.path().join("work"), Some(USER), Some(USER)).unwrap();
    Some((place, program))
}

fn copy_as_user(program: &Path, source: &Path, target: &Path, keep_going: bool) -> Output {
    let own = command(source, target, keep_going);
    let mut command = Command::new(program);
    command.args(own.get_args()).uid(USER).gid(USER).current_dir("/");
    own.get_envs().for_each(|(name, value)| {
        command.env(name, value.unwrap());
    });
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_file_that_cannot_be_read_keeps_the_whole_from_being_published() {
    let Some((place, program)) = place() else { return };
    let (source, target) = (place.path().join("source"), place.path().join("work/target"));
    fs::create_dir_all(source.join("inner")).unwrap();
    fs::create_dir_all(source.join("closed")).unwrap();
    fs::write(source.join("inner/secret"), "secret").unwrap();
    fs::write(source.join("inner/open"), "open").unwrap();
    set_mode(&source.join("inner/secret"), 0o600);
    set_mode(&source.join("closed"), 0o700);
    let output = copy_as_user(&program, &source, &target, false);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert!(said(&output).contains("2 things"), "{}", said(&output));
    assert!(fs::read_dir(place.path().join("work")).unwrap().next().is_none(), "something is left");

    let output = copy_as_user(&program, &source, &target, true);
    assert!(
        output.status.success() && said(&output).contains("Published 2 errors"),
        "{}",
        said(&output)
    );
    assert!(
        said(&output).contains("inner/secret") && said(&output).contains("closed"),
        "{}",
        said(&output)
    );
    assert_eq!(fs::read_to_string(target.join("inner/open")).unwrap(), "open");
    assert!(!target.join("inner/secret").exists());
}

#[test]
fn what_only_root_may_keep_is_said_and_no_error() {
    let Some((place, program)) = place() else { return };
    let (source, target) = (place.path().join("source"), place.path().join("work/target"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("setuid"), "x").unwrap();
    set_mode(&source.join("setuid"), 0o6755);
    fs::write(source.join("own"), "x").unwrap();
    let has_xattr = set_xattr(&source.join("own"), "user.x", b"kept");
    set_mode(&source.join("own"), 0o444);
    set_times(&source.join("own"), 5);
    std::os::unix::fs::chown(source.join("own"), Some(USER), Some(USER)).unwrap();
    let device = rustix::fs::makedev(1, 3);
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    let kind = rustix::fs::FileType::CharacterDevice;
    let has_device =
        rustix::fs::mknodat(rustix::fs::CWD, source.join("device"), kind, mode, device).is_ok();
    let output = copy_as_user(&program, &source, &target, false);
    assert!(
        output.status.success() && said(&output).contains("Published 0 errors"),
        "{}",
        said(&output)
    );
    assert!(said(&output).contains("not kept: owner 0:0"), "{}", said(&output));
    assert_eq!(said(&output).contains("not kept: device"), has_device, "{}", said(&output));
    let setuid = fs::metadata(target.join("setuid")).unwrap();
    assert_eq!(
        (setuid.uid(), setuid.permissions().mode() & 0o7777),
        (USER, 0o755),
        "setuid went to another user"
    );
    let own = &crate::compare::tree(&target)[Path::new("own")];
    assert_eq!((own.mode & 0o7777, own.modified), (0o444, (1_000_000_005, 987_654_321)));
    assert_eq!(own.xattrs.len(), usize::from(has_xattr), "no write permission, no attribute");
    assert!(!target.join("device").exists());
}

#[test]
fn directories_that_are_closed_to_their_owner_are_filled_first_and_removed_if_need_be() {
    let Some((place, program)) = place() else { return };
    let source = place.path().join("source");
    for directory in ["read only", "no rights at all"] {
        fs::create_dir_all(source.join(directory).join("inner")).unwrap();
        fs::write(source.join(directory).join("inner/file"), "x").unwrap();
        std::os::unix::fs::chown(source.join(directory).join("inner"), Some(USER), Some(USER))
            .unwrap();
        set_mode(&source.join(directory).join("inner"), 0o500);
    }
    set_mode(&source.join("read only"), 0o555);
    // The group's and others' only: its copy's owner has none, who is not this one's.
    set_mode(&source.join("no rights at all"), 0o055);
    let (target, other) = (place.path().join("work/target"), place.path().join("work/other"));
    let output = copy_as_user(&program, &source, &target, false);
    assert!(output.status.success(), "{}", said(&output));
    let mode = |name: &str| fs::metadata(target.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("read only"), mode("read only/inner"), mode("no rights at all")),
        (0o555, 0o500, 0o055)
    );
    assert_eq!(fs::read_to_string(target.join("no rights at all/inner/file")).unwrap(), "x");

    fs::write(source.join("secret"), "x").unwrap();
    set_mode(&source.join("secret"), 0);
    let output = copy_as_user(&program, &source, &other, false);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert!(!other.exists());
    assert!(
        temporary_names(&place.path().join("work")).is_empty(),
        "{:?}",
        temporary_names(place.path())
    );
}

#[test]
fn a_target_where_nothing_may_be_made_is_an_error() {
    let Some((place, program)) = place() else { return };
    let source = place.path().join("source");
    fs::create_dir(&source).unwrap();
    let output = copy_as_user(&program, &source, &place.path().join("target"), false);
    assert_eq!(output.status.code(), Some(8));
    assert!(said(&output).contains("Permission denied"), "{}", said(&output));
    // A merge into a directory of another user.
    fs::create_dir(place.path().join("target")).unwrap();
    fs::write(source.join("file"), "x").unwrap();
    let output = copy_as_user(&program, &source, &place.path().join("target"), false);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert!(fs::read_dir(place.path().join("target")).unwrap().next().is_none());
}
