//! Programs started behind a wall.

use std::collections::HashMap;
use std::process::Command;

use evermap_compartment::wall::Enclosure;

use super::attempts::{ATTRIBUTES, DANGEROUS, SOCKETS};
use super::{text, this_program};

/// Runs a shell command behind the wall and returns its exit code and output.
fn shell(enclosure: Enclosure, line: &str) -> (Option<i32>, String) {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).current_dir("/");
    enclosure.enclose(&mut command).unwrap();
    let output = command.output().unwrap();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

pub fn files() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "text\n").unwrap();
    let path = file.display();
    let closed = Enclosure::new;
    assert_eq!(shell(closed(), "echo started; exit 3"), (Some(3), "started\n".to_string()));
    assert_ne!(shell(closed(), &format!("cat {path}")).0, Some(0));
    let (code, printed) = shell(closed().read(directory.path()), &format!("cat {path}"));
    assert_eq!((code, printed.as_str()), (Some(0), "text\n"));
    let write = format!("echo more >> {path}");
    assert_ne!(shell(closed().read(directory.path()), &write).0, Some(0));
    assert_eq!(shell(closed().write(directory.path()), &write).0, Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "text\nmore\n");
    assert_eq!(shell(closed(), "echo nothing > /dev/null").0, Some(0));

    // Other processes' secrets, and its own memory as a file.
    let environment = format!("cat /proc/{}/environ", std::process::id());
    assert_ne!(shell(closed(), &environment).0, Some(0));
    assert_ne!(shell(closed(), "cat /proc/$PPID/mem").0, Some(0));
    assert_ne!(shell(closed(), "echo > /proc/self/mem").0, Some(0));
    // Without the system paths, nothing starts.
    let mut command = Command::new("/bin/sh");
    closed().no_system().enclose(&mut command).unwrap();
    assert!(command.output().is_err());
}

/// Makes each call behind the wall and returns its error number.
fn attempts(enclosure: Enclosure) -> HashMap<String, i32> {
    let mut command = this_program(&["--part", "attempts", "/"]);
    enclosure.read(std::env::current_exe().unwrap()).enclose(&mut command).unwrap();
    let output = command.current_dir("/").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let pairs = printed.lines().map(|line| line.rsplit_once(": ").unwrap());
    pairs.map(|(name, error)| (name.to_string(), error.parse().unwrap())).collect()
}

pub fn calls() {
    let errors = attempts(Enclosure::new());
    for (name, _) in DANGEROUS.iter().chain(SOCKETS).chain(ATTRIBUTES) {
        assert_eq!(errors[*name], libc::EPERM, "{name}");
    }
}

pub fn exceptions() {
    let errors = attempts(Enclosure::new().network().attributes());
    for (name, _) in SOCKETS.iter().chain(ATTRIBUTES) {
        assert_ne!(errors[*name], libc::EPERM, "{name}");
    }
    for (name, _) in DANGEROUS {
        assert_eq!(errors[*name], libc::EPERM, "{name}");
    }
}
