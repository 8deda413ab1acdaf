//! What a program in a view sees, and what others do.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use evermap_lane::tier::{Error, View};

use crate::common::{
    act_of_nobody, argument, directory, is_root, is_started, memory, pattern, skip, viewed,
};

/// A shell in a view, as whoever starts a program makes one.
fn shell(view: &View, script: &str, file: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(file);
    let view = view.clone();
    // SAFETY: the child has one thread; what it allocates it may, as glibc's allocator is usable after a fork.
    unsafe {
        command.pre_exec(move || view.enter().map_err(std::io::Error::other));
    }
    command
}

fn said(view: &View, script: &str, file: &Path) -> Output {
    shell(view, script, file).output().unwrap()
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").unwrap()
}

/// What holds for every user.
fn a_view_keeps_its_promises(place: &Path, tier: &Path) {
    let file = place.join("clip.mkv");
    fs::write(&file, pattern(300_000)).unwrap();
    let view = viewed(tier, &[&file]).view();
    let before = mounts();

    let seen = said(&view, "cat \"$1\"", &file);
    assert!(seen.stdout == pattern(300_000), "{}", String::from_utf8_lossy(&seen.stderr));
    let device = String::from_utf8(said(&view, "stat -c %d \"$1\"", &file).stdout).unwrap();
    assert_eq!(device.trim(), fs::metadata(tier).unwrap().dev().to_string(), "it is the copy");
    assert_ne!(
        device.trim(),
        fs::metadata(&file).unwrap().dev().to_string(),
        "others have the original"
    );

    let written = said(&view, "echo x >> \"$1\"", &file);
    assert!(!written.status.success());
    let words = String::from_utf8_lossy(&written.stderr);
    assert!(words.contains("Read-only file system"), "{words}");
    assert!(fs::read(&file).unwrap() == pattern(300_000));
    assert_eq!(mounts(), before, "nobody else sees a mount");

    let whose = said(&view, "id -u", &file);
    let whose = String::from_utf8(whose.stdout).unwrap();
    assert_eq!(
        whose.trim(),
        rustix::process::geteuid().as_raw().to_string(),
        "it is the same user"
    );
}

#[test]
fn a_program_in_a_view_reads_the_copy_and_cannot_write_to_it_and_others_have_the_original() {
    let Some(tier) = memory() else { return };
    a_view_keeps_its_promises(directory().path(), tier.path());
}

#[test]
fn a_view_needs_no_right() {
    if !is_root() {
        return skip("the test of every user is that of no right here");
    }
    let (place, Some(tier)) = (directory(), memory()) else { return };
    for directory in [&place, &tier] {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    }
    let limit = fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap_or_default();
    if limit.trim() == "0" {
        return skip("no user namespaces here");
    }
    act_of_nobody("views::act_of_a_view", &[("PLACE", place.path()), ("TIER", tier.path())]);
}

#[test]
#[ignore = "a program that another test starts"]
fn act_of_a_view() {
    if is_started() {
        a_view_keeps_its_promises(&argument("PLACE"), &argument("TIER"));
    }
}

/// Killed and waited for, whatever happens.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program in a view that says what the file has, line for line of what it is sent.
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
fn whoever_is_in_a_view_keeps_it_when_file_and_copy_change_and_go() {
    let (place, Some(tier)) = (directory(), memory()) else { return };
    let file = place.path().join("file");
    fs::write(&file, "contents").unwrap();
    let view = viewed(tier.path(), &[&file]).view();
    let (_running, mut ask) = waiting(&view, &file);
    assert_eq!(ask(), "contents");
    fs::write(&file, "other").unwrap();
    assert_eq!(ask(), "contents", "the original was written to");
    let other = viewed(tier.path(), &[&file]).view();
    let (_second, mut ask_second) = waiting(&other, &file);
    assert_eq!((ask(), ask_second()), ("contents".into(), "other".into()), "the copy was replaced");
    let watch = evermap_lane::tier::Watch::default();
    evermap_lane::tier::back(None, Some(tier.path()), &file, Default::default(), &watch).unwrap();
    assert_eq!((ask(), ask_second()), ("contents".into(), "other".into()), "the copy was removed");
}

#[test]
fn nothing_is_left_of_a_view_whose_program_is_killed() {
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
fn a_copy_of_what_a_file_was_is_not_shown() {
    let (place, Some(tier)) = (directory(), memory()) else { return };
    let file = place.path().join("file");
    fs::write(&file, "contents").unwrap();
    let view = viewed(tier.path(), &[&file]).view();
    fs::write(&file, "other contents").unwrap();
    // Refused before anything is done: this process may try.
    let error = view.enter().unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    fs::remove_file(&file).unwrap();
    assert!(matches!(view.enter(), Err(Error::Changed { .. })));
}

#[test]
fn a_view_is_sent_to_another_process_as_text() {
    use std::os::unix::ffi::OsStrExt;
    let (place, Some(tier)) = (directory(), memory()) else { return };
    let file = place.path().join(std::ffi::OsStr::from_bytes(b"no text: \xff"));
    fs::write(&file, "contents").unwrap();
    let view = viewed(tier.path(), &[&file]).view();
    assert_eq!(view.shown.len(), 1);
    let text = serde_json::to_string(&view).unwrap();
    assert_eq!(serde_json::from_str::<View>(&text).unwrap(), view);
    assert_eq!(said(&view, "cat \"$1\"", &file).stdout, b"contents");
}
