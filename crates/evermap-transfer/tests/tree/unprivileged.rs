//! Copies by an unprivileged user. As root, these tests run a child process as another user.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::child::command;
use crate::compare::temporary_names;
use crate::make::{is_root, set_mode, set_times, set_xattr, skip};

/// User `nobody` on most systems. Any other unprivileged user works too.
const USER: u32 = 65534;

/// Creates a directory in which that user may create files, with a copy of this program that it may
/// run.
fn temp_dir() -> Option<(tempfile::TempDir, PathBuf)> {
    if !is_root() {
        // The current user is unprivileged already and owns its files.
        skip("files of other users: not root");
        return None;
    }
    let temp = crate::make::fast();
    set_mode(temp.path(), 0o755);
    let program = temp.path().join("program");
    crate::programs::copy_program(&std::env::current_exe().unwrap(), &program);
    set_mode(&program, 0o755);
    fs::create_dir(temp.path().join("work")).unwrap();
    std::os::unix::fs::chown(temp.path().join("work"), Some(USER), Some(USER)).unwrap();
    Some((temp, program))
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

fn stdout_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn unreadable_file_prevents_publication_unless_keep_going() {
    let Some((temp, program)) = temp_dir() else { return };
    let (source, target) = (temp.path().join("source"), temp.path().join("work/target"));
    fs::create_dir_all(source.join("inner")).unwrap();
    fs::create_dir_all(source.join("closed")).unwrap();
    fs::write(source.join("inner/secret"), "secret").unwrap();
    fs::write(source.join("inner/open"), "open").unwrap();
    set_mode(&source.join("inner/secret"), 0o600);
    set_mode(&source.join("closed"), 0o700);
    let output = copy_as_user(&program, &source, &target, false);
    assert_eq!(output.status.code(), Some(7), "{}", stdout_of(&output));
    assert!(stdout_of(&output).contains("2 entries"), "{}", stdout_of(&output));
    assert!(fs::read_dir(temp.path().join("work")).unwrap().next().is_none(), "files remain");

    let output = copy_as_user(&program, &source, &target, true);
    assert!(
        output.status.success() && stdout_of(&output).contains("Published 2 errors"),
        "{}",
        stdout_of(&output)
    );
    assert!(
        stdout_of(&output).contains("inner/secret") && stdout_of(&output).contains("closed"),
        "{}",
        stdout_of(&output)
    );
    assert_eq!(fs::read_to_string(target.join("inner/open")).unwrap(), "open");
    assert!(!target.join("inner/secret").exists());
}

#[test]
fn attributes_that_need_root_are_reported_without_error() {
    let Some((temp, program)) = temp_dir() else { return };
    let (source, target) = (temp.path().join("source"), temp.path().join("work/target"));
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
        output.status.success() && stdout_of(&output).contains("Published 0 errors"),
        "{}",
        stdout_of(&output)
    );
    assert!(stdout_of(&output).contains("not kept: owner 0:0"), "{}", stdout_of(&output));
    assert_eq!(
        stdout_of(&output).contains("not kept: device"),
        has_device,
        "{}",
        stdout_of(&output)
    );
    let setuid = fs::metadata(target.join("setuid")).unwrap();
    assert_eq!(
        (setuid.uid(), setuid.permissions().mode() & 0o7777),
        (USER, 0o755),
        "setuid was set for another owner"
    );
    let own = &crate::compare::tree(&target)[Path::new("own")];
    assert_eq!((own.mode & 0o7777, own.modified), (0o444, (1_000_000_005, 987_654_321)));
    assert_eq!(
        own.xattrs.len(),
        usize::from(has_xattr),
        "xattrs of a read-only file must be preserved"
    );
    assert!(!target.join("device").exists());
}

#[test]
fn directories_without_owner_rights_are_copied_and_removed() {
    let Some((temp, program)) = temp_dir() else { return };
    let source = temp.path().join("source");
    for directory in ["read only", "no rights at all"] {
        fs::create_dir_all(source.join(directory).join("inner")).unwrap();
        fs::write(source.join(directory).join("inner/file"), "x").unwrap();
        std::os::unix::fs::chown(source.join(directory).join("inner"), Some(USER), Some(USER))
            .unwrap();
        set_mode(&source.join(directory).join("inner"), 0o500);
    }
    set_mode(&source.join("read only"), 0o555);
    // Readable for group and others only. The copy's owner is another user and has no rights.
    set_mode(&source.join("no rights at all"), 0o055);
    let (target, other) = (temp.path().join("work/target"), temp.path().join("work/other"));
    let output = copy_as_user(&program, &source, &target, false);
    assert!(output.status.success(), "{}", stdout_of(&output));
    let mode = |name: &str| fs::metadata(target.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("read only"), mode("read only/inner"), mode("no rights at all")),
        (0o555, 0o500, 0o055)
    );
    assert_eq!(fs::read_to_string(target.join("no rights at all/inner/file")).unwrap(), "x");

    fs::write(source.join("secret"), "x").unwrap();
    set_mode(&source.join("secret"), 0);
    let output = copy_as_user(&program, &source, &other, false);
    assert_eq!(output.status.code(), Some(7), "{}", stdout_of(&output));
    assert!(!other.exists());
    assert!(
        temporary_names(&temp.path().join("work")).is_empty(),
        "{:?}",
        temporary_names(temp.path())
    );
}

#[test]
fn unwritable_target_directory_is_an_error() {
    let Some((temp, program)) = temp_dir() else { return };
    let source = temp.path().join("source");
    fs::create_dir(&source).unwrap();
    let output = copy_as_user(&program, &source, &temp.path().join("target"), false);
    assert_eq!(output.status.code(), Some(8));
    assert!(stdout_of(&output).contains("Permission denied"), "{}", stdout_of(&output));
    // Merging into a directory of another user.
    fs::create_dir(temp.path().join("target")).unwrap();
    fs::write(source.join("file"), "x").unwrap();
    let output = copy_as_user(&program, &source, &temp.path().join("target"), false);
    assert_eq!(output.status.code(), Some(7), "{}", stdout_of(&output));
    assert!(fs::read_dir(temp.path().join("target")).unwrap().next().is_none());
}
