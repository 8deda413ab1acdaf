//! `evermap sandbox exec`: access of a confined command, and its exit code.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use common::{Place, Ran};

/// Makes a place for a test. Prints a notice and returns `None` if the system cannot confine
/// commands.
fn place_with_sandbox() -> Option<Place> {
    let place = Place::new();
    let ran = shell(&place, &[], "true");
    if ran.code == 125 && ran.err.contains("Landlock") {
        eprintln!("SKIPPED: {}", ran.err);
        return None;
    }
    assert_eq!(ran.code, 0, "{ran:?}");
    Some(place)
}

/// Runs a confined command, without a store.
fn exec(place: &Place, arguments: &[&str]) -> Ran {
    let mut command = place.bare(&["sandbox", "exec"]);
    Ran::of(command.args(arguments).env("PATH", "/usr/bin:/bin").output().unwrap())
}

/// Runs a confined shell command, with these options.
fn shell(place: &Place, options: &[&str], line: &str) -> Ran {
    exec(place, &[options, &["--", "/bin/sh", "-c", line]].concat())
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let Some(place) = place_with_sandbox() else { return };
    let ran = shell(&place, &[], "echo out; echo err >&2; exit 42");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (42, "out\n", "err\n"));
    assert_eq!(shell(&place, &[], "kill -9 $$").code, 137);
    assert_eq!(shell(&place, &[], "kill -TERM $$").code, 143);
    place.file("input", "through");
    let mut command = place.bare(&["sandbox", "exec", "--", "/bin/cat"]);
    command.stdin(std::fs::File::open(place.path("input")).unwrap());
    assert_eq!(Ran::of(command.output().unwrap()).out, "through");
}

#[test]
fn a_missing_command_or_a_file_that_is_no_program_is_reported() {
    let Some(place) = place_with_sandbox() else { return };
    place.file("text", "no program");
    let fails = |code, says: &str, arguments: &[&str]| exec(&place, arguments).failed(code, says);
    fails(127, "command `frobnicate` not found", &["--", "frobnicate"]);
    fails(127, "command `./frobnicate` not found", &["--", "./frobnicate"]);
    fails(126, "not executable", &["--", "./text"]);
    fails(126, "--read", &["--no-system", "--", "/bin/sh"]);
    fails(125, "/nothing/there", &["--read", "/nothing/there", "--", "/bin/true"]);
    assert_eq!(exec(&place, &[]).code, 2);
    assert_eq!(exec(&place, &["/bin/true"]).code, 2, "`--` is missing");
    // `--store` gives the command access to the store.
    place.fails(125, place.store().to_str().unwrap(), &["sandbox", "exec", "--", "/bin/true"]);
}

#[test]
fn a_command_reads_and_writes_only_the_named_files() {
    let Some(place) = place_with_sandbox() else { return };
    for folder in ["read", "write", "other"] {
        std::fs::create_dir(place.path(folder)).unwrap();
        place.file(&format!("{folder}/file"), folder);
    }
    let (read, write) = (place.path("read"), place.path("write"));
    let options = ["--read", read.to_str().unwrap(), "--write", write.to_str().unwrap()];
    let works = |line: &str| shell(&place, &options, line).code == 0;
    assert!(works("cat read/file && cat write/file && ls read"));
    assert!(!works("cat other/file"));
    assert!(!works("ls other") && !works("ls ."));
    assert!(!works("echo a >> read/file") && !works("echo a > read/new") && !works("rm read/file"));
    assert!(works("echo a >> write/file && mkdir write/new && mv write/file write/new/file"));
    assert!(!works("ln write/new/file other/link") && !works("ln -s a other/link"));
    assert!(!works("echo a > /usr/evermap-test") && !works("echo a > /etc/evermap-test"));
    assert!(works("cat < /dev/null > /dev/null && ls /usr/bin > /dev/null"));
    // A program outside of the system directories starts if it is the command, or named by
    // `--read`. Another process copies the program. A file that this process has open for writing
    // cannot be started, and the children of other tests inherit the open file.
    let program_at = |path: &str| {
        let copied = Command::new("cp").arg("/bin/true").arg(place.path(path)).status().unwrap();
        assert!(copied.success());
    };
    program_at("read/program");
    assert!(works("read/program"));
    program_at("other/program");
    assert!(!works("other/program"));
    assert_eq!(exec(&place, &["--", "other/program"]).code, 0);
}

#[test]
fn modes_and_owners_can_be_changed_only_with_attributes() {
    let Some(place) = place_with_sandbox() else { return };
    place.file("file", "text");
    assert_ne!(shell(&place, &["--write", "."], "chmod 600 file").code, 0);
    assert_ne!(shell(&place, &["--write", "."], "touch -d 2001-01-01 file").code, 0);
    let ran = shell(&place, &["--write", ".", "--attributes"], "chmod 600 file && touch file");
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn the_network_can_be_used_only_with_net() {
    let Some(place) = place_with_sandbox() else { return };
    // bash can open sockets itself, and every system has it.
    let line = "exec 3<>/dev/tcp/127.0.0.1/1";
    let refused = |options: &[&str]| {
        let mut command = place.bare(&["sandbox", "exec"]);
        command.args(options).args(["--", "/bin/bash", "-c", line]);
        Ran::of(command.output().unwrap())
    };
    if !std::path::Path::new("/bin/bash").exists() {
        eprintln!("SKIPPED: the network: bash is not installed");
        return;
    }
    assert!(refused(&[]).err.contains("not permitted"), "{:?}", refused(&[]));
    assert!(refused(&["--net"]).err.contains("refused"), "{:?}", refused(&["--net"]));
}

/// Runs a line of Perl, which every Debian has, without confinement. Returns its output.
fn perl(line: &str) -> String {
    let done = Command::new("perl").args(["-e", line]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// A segment of shared memory, removed when dropped.
struct Segment(String);

impl Drop for Segment {
    fn drop(&mut self) {
        perl(&format!("shmctl({}, 0, 0)", self.0));
    }
}

#[test]
fn shared_memory_of_other_processes_is_not_accessible() {
    let Some(place) = place_with_sandbox() else { return };
    if Command::new("perl").arg("-v").output().is_err() {
        eprintln!("SKIPPED: shared memory: perl is not installed");
        return;
    }
    let make = "my $id = shmget(0, 4096, 0666 | 01000); shmwrite($id, 'outside', 0, 7); print $id";
    let segment = Segment(perl(make));
    let look = format!("shmread({}, my $found, 0, 7) or die $!; print $found", segment.0);
    assert_eq!(perl(&look), "outside");
    let inside = exec(&place, &["--", "perl", "-e", &look]);
    assert!(inside.code != 0 && inside.out.is_empty(), "{inside:?}");
    assert!(inside.err.contains("not permitted"), "{inside:?}");
    let change = format!("shmwrite({}, 'changed', 0, 7) or die $!", segment.0);
    assert_ne!(exec(&place, &["--", "perl", "-e", &change]).code, 0);
    assert_eq!(perl(&look), "outside");
}

#[test]
fn a_command_can_use_the_named_store() {
    let Some(place) = place_with_sandbox() else { return };
    place.file("page.html", "<p>first");
    place.ok(&["parse", "page.html"]);
    let store = place.store();
    let evermap = env!("CARGO_BIN_EXE_evermap");
    let inside = |options: &[&str], arguments: &[&str]| {
        let mut command = place.bare(&["sandbox", "exec", "--read", evermap]);
        command.args(options).args(["--", evermap, "--store"]).arg(&store).args(arguments);
        Ran::of(command.output().unwrap())
    };
    let with_store = ["--store", store.to_str().unwrap()];
    assert_eq!(inside(&with_store, &["query", "page.html", "p", "--text"]).out, "first\n");
    assert_ne!(inside(&[], &["query", "page.html", "p", "--text"]).code, 0);
    place.file("page.html", "<p>second");
    let both = ["--store", store.to_str().unwrap(), "--read", "page.html"];
    let ran = inside(&both, &["parse", "page.html", "--force"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(place.ok(&["query", "page.html", "p", "--text"]), "second\n");
    place.ok(&["check"]);
}

#[test]
fn signals_reach_the_command_and_it_does_not_outlive_the_sandbox() {
    let Some(place) = place_with_sandbox() else { return };
    let start = || {
        let line = "trap 'echo told; exit 5' TERM; echo started $$; while :; do sleep 0.05; done";
        let mut command = place.bare(&["sandbox", "exec", "--", "/bin/sh", "-c", line]);
        command.env("PATH", "/usr/bin:/bin");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let inner: i32 = line.strip_prefix("started ").unwrap().trim().parse().unwrap();
        (child, output, inner)
    };
    let signal = |child: &std::process::Child, signal| {
        let process = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(process, signal).unwrap();
    };
    let (mut child, mut output, _) = start();
    signal(&child, rustix::process::Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(5));
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert_eq!(text, "told\n");

    let (mut child, mut output, _) = start();
    signal(&child, rustix::process::Signal::KILL);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    // The pipe ends when its last writer has exited.
    output.read_to_string(&mut text).unwrap();
    assert_eq!(text, "told\n");
}

#[test]
fn open_files_are_not_inherited() {
    let Some(place) = place_with_sandbox() else { return };
    place.file("secret", "secret");
    let line = format!(
        "exec 7<secret; cat <&7; exec {} sandbox exec -- /bin/sh -c 'cat <&7'",
        env!("CARGO_BIN_EXE_evermap")
    );
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", &line]).current_dir(place.path(""));
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.out, "secret", "{ran:?}");
    assert_ne!(ran.code, 0);
}
