//! `send` to HOST:PATH, through a stand-in for ssh, and through an sshd on loopback if one is
//! installed.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::programs::write_script;
use common::{Place, Ran};

const EVERMAP: &str = env!("CARGO_BIN_EXE_evermap");

/// Makes a program to use instead of ssh. It runs the remote command on this machine.
fn fake_ssh(place: &Place, script: &str) -> String {
    let path = place.path("fake-ssh");
    write_script(&path, &format!("#!/bin/bash\n{script}\n"));
    path.to_str().unwrap().to_string()
}

fn photos(place: &Place) {
    fs::create_dir_all(place.path("photos/2026")).unwrap();
    fs::write(place.path("photos/2026/a.jpg"), vec![7; 3 << 20]).unwrap();
    fs::write(place.path("photos/odd \'$(name)\n"), "text").unwrap();
    std::os::unix::fs::symlink("2026/a.jpg", place.path("photos/link")).unwrap();
}

fn send(place: &Place, ssh: &str, arguments: &[&str]) -> Ran {
    let mut command = place.bare(&["send", "--ssh", ssh, "--remote-command", EVERMAP]);
    command.env("PATH", std::env::var_os("PATH").unwrap()).args(arguments);
    Ran::of(command.output().unwrap())
}

/// Checks transfers of files and directories with the given ssh.
fn check_transfers(place: &Place, ssh: &str, host: &str) {
    photos(place);
    let to = |name: &str| format!("{host}:{}", place.path(name).display());
    fs::create_dir(place.path("backup dir")).unwrap();
    let ran = send(place, ssh, &["photos", &to("backup dir")]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let copy = place.path("backup dir/photos");
    assert_eq!(fs::read(copy.join("2026/a.jpg")).unwrap(), vec![7; 3 << 20]);
    assert_eq!(fs::read_link(copy.join("link")).unwrap(), Path::new("2026/a.jpg"));
    assert_eq!(fs::read_to_string(copy.join("odd \'$(name)\n")).unwrap(), "text");
    let modified = |path: PathBuf| {
        let stat = fs::metadata(path).unwrap();
        (stat.mtime(), stat.mtime_nsec())
    };
    assert_eq!(modified(copy.join("2026/a.jpg")), modified(place.path("photos/2026/a.jpg")));
    // A second transfer merges into the existing directory.
    fs::write(place.path("photos/new"), "new").unwrap();
    let ran = send(place, ssh, &["photos", &to("backup dir")]);
    assert_eq!(
        (ran.code, fs::read_to_string(copy.join("new")).unwrap()),
        (0, "new".into()),
        "{ran:?}"
    );

    let ran = send(
        place,
        ssh,
        &["--verify", "--durability", "full", "photos/2026/a.jpg", &to("one file")],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("verified"), "{ran:?}");
    assert_eq!(fs::metadata(place.path("one file")).unwrap().len(), 3 << 20);
}

/// Checks that failures on the remote side are reported and leave nothing.
fn check_failures(place: &Place, ssh: &str, host: &str) {
    let to = |name: &str| format!("{host}:{}", place.path(name).display());
    let ran = send(place, ssh, &["photos", &to("no/where")]);
    assert_eq!(ran.code, 13, "{ran:?}");
    assert!(ran.err.contains("create a directory in") && ran.err.contains("/no:"), "{ran:?}");
    let ran = send(place, ssh, &["photos/new", &to("no/where")]);
    assert_eq!(ran.code, 13, "{ran:?}");
    let mut command = place.bare(&["send", "--ssh", ssh, "--remote-command", "no-such-command"]);
    command.env("PATH", std::env::var_os("PATH").unwrap()).args(["photos/new", &to("x")]);
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, 13, "{ran:?}");
    assert!(ran.err.contains("--remote-command"), "{ran:?}");
    let left = fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains(".evermap-")));
}

#[test]
fn files_and_directories_are_sent_to_a_remote_command() {
    let place = Place::new();
    // Arguments: -T -- HOST COMMAND
    let ssh = fake_ssh(&place, "exec sh -c \"$4\"");
    check_transfers(&place, &ssh, "host");
    check_failures(&place, &ssh, "host");
}

/// Some servers connect the command's input and output to two pipes.
#[test]
fn files_and_directories_are_sent_through_pipes() {
    let place = Place::new();
    let ssh = fake_ssh(&place, "set -o pipefail; cat | sh -c \"$4\" | cat");
    check_transfers(&place, &ssh, "host");
}

#[test]
fn an_unreachable_host_is_reported() {
    let place = Place::new();
    place.file("file", "text");
    let ssh = fake_ssh(&place, "echo no route >&2; exit 255");
    let ran = send(&place, &ssh, &["file", "host:x"]);
    assert_eq!(ran.code, 13, "{ran:?}");
    assert!(ran.err.contains("no route") && ran.err.contains("could not connect"), "{ran:?}");
    let ran = send(&place, "no-such-ssh", &["file", "host:x"]);
    assert!(ran.err.contains("no-such-ssh"), "{ran:?}");
    let ran = send(&place, "ssh", &["file", "-oProxyCommand=x:y"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}

/// An sshd for this test on loopback, with generated keys.
struct Sshd {
    server: Child,
    port: u16,
}

impl Sshd {
    fn start(directory: &Path) -> Option<Sshd> {
        let sshd = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"]
            .into_iter()
            .find(|path| Path::new(path).exists());
        let Some(sshd) = sshd else {
            eprintln!("SKIPPED: sshd is not installed (Debian, Ubuntu: openssh-server)");
            return None;
        };
        for name in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(directory.join(name))
                .stdin(Stdio::null())
                .status();
            if !made.is_ok_and(|status| status.success()) {
                eprintln!("SKIPPED: ssh-keygen cannot make keys here");
                return None;
            }
        }
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            // An sshd that runs as root uses this directory as its chroot. The package's service
            // makes it at start.
            let _ = fs::create_dir_all("/run/sshd");
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {0}/host\nAuthorizedKeysFile {0}/user.pub\nStrictModes no\n\
             PidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n",
            directory.display()
        );
        fs::write(directory.join("config"), config).unwrap();
        let mut server = Command::new(sshd)
            .args(["-D", "-e", "-f"])
            .arg(directory.join("config"))
            .stdin(Stdio::null())
            .stderr(fs::File::create(directory.join("log")).unwrap())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(20) {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(Sshd { server, port });
            }
            if server.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = server.kill();
        let _ = server.wait();
        let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
        eprintln!("SKIPPED: sshd cannot start here: {log}");
        None
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn files_and_directories_are_sent_through_an_sshd() {
    let keys = tempfile::tempdir().unwrap();
    let Some(sshd) = Sshd::start(keys.path()) else { return };
    let place = Place::new();
    let ssh = format!(
        "ssh -F none -p {} -i {}/user -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no \
         -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
        sshd.port,
        keys.path().display()
    );
    check_transfers(&place, &ssh, "127.0.0.1");
    check_failures(&place, &ssh, "127.0.0.1");
}
