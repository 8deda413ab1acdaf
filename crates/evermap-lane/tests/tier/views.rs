//! Views: files as seen by a program in a view and by other programs.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use evermap_lane::tier::{Error, View};

use crate::common::{
    argument, directory, is_helper, is_root, memory, pattern, run_as_nobody, skip, viewed,
};

/// Returns a shell that enters a view before its `exec`, as the lane does.
fn shell(view: &View, script: &str, file: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(file);
    let view = view.clone();
    // SAFETY: the child has one thread. The closure may allocate, because glibc's allocator works
    // after a fork.
    unsafe {
        command.pre_exec(move || view.enter().map_err(std::io::Error::other));
    }
    command
}

fn output_of(view: &View, script: &str, file: &Path) -> Output {
    shell(view, script, file).output().unwrap()
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").unwrap()
}

/// Checks the guarantees of a view. They hold for every user.
fn a_view_keeps_its_promises(place: &Path, tier: &Path) {
    let file = place.join("clip.mkv");
    fs::write(&file, pattern(300_000)).unwrap();
    let view = viewed(tier, &[&file]).view();
    let before = mounts();

    let seen = output_of(&view, "cat \"$1\"", &file);
    assert!(seen.stdout == pattern(300_000), "{}", String::from_utf8_lossy(&seen.stderr));
    let device = String::from_utf8(output_of(&view, "stat -c %d \"$1\"", &file).stdout).unwrap();
    assert_eq!(
        device.trim(),
        fs::metadata(tier).unwrap().dev().to_string(),
        "the program reads the copy"
    );
    assert_ne!(
        device.trim(),
        fs::metadata(&file).unwrap().dev().to_string(),
        "other programs read the original"
    );

    let written = output_of(&view, "echo x >> \"$1\"", &file);
    assert!(!written.status.success());
    let words = String::from_utf8_lossy(&written.stderr);
    assert!(words.contains("Read-only file system"), "{words}");
    assert!(fs::read(&file).unwrap() == pattern(300_000));
    assert_eq!(mounts(), before, "the mount is not visible outside");

    let whose = output_of(&view, "id -u", &file);
    let whose = String::from_utf8(whose.stdout).unwrap();
    assert_eq!(
        whose.trim(),
        rustix::process::geteuid().as_raw().to_string(),
        "the user id is unchanged"
    );
}

#[test]
fn a_program_in_a_view_reads_a_read_only_copy_and_others_see_the_original() {
    let Some(tier) = memory() else { return };
    a_view_keeps_its_promises(directory().path(), tier.path());
}

#[test]
fn a_view_needs_no_privileges() {
    if !is_root() {
        return skip("this user is unprivileged, and another test covers that");
    }
    let (place, Some(tier)) = (directory(), memory()) else { return };
    for directory in [&place, &tier] {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    }
    let limit = fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap_or_default();
    if limit.trim() == "0" {
        return skip("no user namespaces here");
    }
    run_as_nobody("views::helper_in_a_view", &[("PLACE", place.path()), ("TIER", tier.path())]);
}

#[test]
#[ignore = "a helper process that another test starts"]
fn helper_in_a_view() {
    if is_helper() {
        a_view_keeps_its_promises(&argument("PLACE"), &argument("TIER"));
    }
}

/// Child process that is killed and reaped when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program in a view that answers each input line with the first 8 bytes of the file.
fn waiting(view: &View, file: &Path) -> (Running, impl FnMut() -> String + use<>) {
    let script = "while read -r line; do head -c 8 \"$1\"; echo; done";
    let mut command = shell(view, script, file);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut asks = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    let ask = move || {
        asks.write_all(b"?\n").unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    };
    (Running(child), ask)
}

#[test]
fn a_program_in_a_view_keeps_it_when_file_and_copy_change_or_are_removed() {
    let (place, Some(tier)) = (directory(), memory()) else { return };
    let file = place.path().join("file");
    fs::write(&file, "contents").unwrap();
    let view = viewed(tier.path(), &[&file]).view();
    let (_running, mut ask) = waiting(&view, &file);
    assert_eq!(ask(), "contents");
    fs::write(&file, "other").unwrap();
    assert_eq!(ask(), "contents", "the original was modified");
    let other = viewed(tier.path(), &[&file]).view();
    let (_second, mut ask_second) = waiting(&other, &file);
    assert_eq!((ask(), ask_second()), ("contents".into(), "other".into()), "the copy was replaced");
    let watch = evermap_lane::tier::Watch::default();
    evermap_lane::tier::back(None, Some(tier.path()), &file, Default::default(), &watch).unwrap();
    assert_eq!((ask(), ask_second()), ("contents".into(), "other".into()), "the copy was removed");
}

#[test]
fn a_killed_program_leaves_nothing_of_its_view() {
    let (place, Some(tier)) = (directory(), memory()) else { return };
    let file = place.path().join("file");
    fs::write(&file, "contents").unwrap();
    let before = mounts();
    let view = viewed(tier.path(), &[&file]).view();
    let (running, mut ask) = waiting(&view, &file);
    assert_eq!(ask(), "contents");
    drop(running);
    assert_eq!(mounts(), before);
    fs::write(&file, "written").unwrap();
    fs::rename(&file, place.path().join("renamed")).unwrap();
    fs::remove_file(place.path().join("renamed")).unwrap();
}

#[test]
fn a_copy_of_an_earlier_version_is_not_shown() {
    let (place, Some(tier)) = (directory(), memory()) else { return };
    let file = place.path().join("file");
    fs::write(&file, "contents").unwrap();
    let view = viewed(tier.path(), &[&file]).view();
    fs::write(&file, "other contents").unwrap();
    // The view is refused before any change, so this process can try.
    let error = view.enter().unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    fs::remove_file(&file).unwrap();
    assert!(matches!(view.enter(), Err(Error::Changed { .. })));
}

#[test]
fn a_view_can_be_sent_to_another_process_as_json() {
    use std::os::unix::ffi::OsStrExt;
    let (place, Some(tier)) = (directory(), memory()) else { return };
    let file = place.path().join(std::ffi::OsStr::from_bytes(b"no text: \xff"));
    fs::write(&file, "contents").unwrap();
    let view = viewed(tier.path(), &[&file]).view();
    assert_eq!(view.shown.len(), 1);
    let text = serde_json::to_string(&view).unwrap();
    assert_eq!(serde_json::from_str::<View>(&text).unwrap(), view);
    assert_eq!(output_of(&view, "cat \"$1\"", &file).stdout, b"contents");
}
