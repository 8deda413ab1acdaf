//! `send` and `receive`, as a user runs them.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use common::{Place, Ran};

/// A receiver that listens, and its address. It is killed if it still runs when the test ends.
struct Receiver(Option<Child>, String);

impl Receiver {
    fn start(place: &Place, arguments: &[&str]) -> Receiver {
        let mut command = place.bare(&["receive"]);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::with_capacity(1, child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_string();
        Receiver(Some(child), address)
    }

    fn end(mut self) -> Ran {
        Ran::of(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_sent_file_is_received_and_both_sides_report_it() {
    let place = Place::new();
    place.file("file", "what is sent");
    let receiving = Receiver::start(&place, &["--json", "127.0.0.1:0", "copy"]);
    let sent = Ran::of(place.bare(&["send", "--verify", "file", &receiving.1]).output().unwrap());
    assert_eq!((sent.code, sent.err.as_str()), (0, ""), "{sent:?}");
    assert!(sent.out.contains("12 B") && sent.out.contains("verified"), "{sent:?}");
    let received = receiving.end();
    let report: serde_json::Value = serde_json::from_str(&received.out).unwrap();
    assert_eq!(
        (received.code, &report["path"], &report["size_bytes"]),
        (0, &"./copy".into(), &12.into())
    );
    assert_eq!(std::fs::read(place.path("copy")).unwrap(), b"what is sent");
}

#[test]
fn each_cause_has_its_exit_code() {
    let place = Place::new();
    place.file("file", "text");
    let code = |arguments: &[&str]| Ran::of(place.bare(arguments).output().unwrap()).code;
    assert_eq!(code(&["send", "file", "nowhere"]), 2);
    assert_eq!(code(&["send", "--raw", "--verify", "file", "unix:none"]), 2);
    assert_eq!(code(&["send", "none", "unix:none"]), 3);
    assert_eq!(code(&["send", "file", "unix:none"]), 13);
    assert_eq!(code(&["receive", "127.0.0.1:0"]), 2);
    assert_eq!(code(&["receive", "127.0.0.1:0", "no/where"]), 3);
}

#[test]
fn a_receiver_refuses_dot_files_and_large_files_unless_options_allow_them() {
    let place = Place::new();
    place.file(".profile", "four");
    std::fs::create_dir(place.path("inbox")).unwrap();
    let send = |options: &[&str]| {
        let mut arguments = options.to_vec();
        arguments.extend(["127.0.0.1:0", "inbox"]);
        let receiving = Receiver::start(&place, &arguments);
        let sent = Ran::of(place.bare(&["send", ".profile", &receiving.1]).output().unwrap());
        (receiving.end(), sent)
    };
    let (received, sent) = send(&[]);
    assert_eq!((received.code, sent.code), (13, 13), "{received:?} {sent:?}");
    assert!(received.err.contains("--dot-files"), "{received:?}");
    let (received, sent) = send(&["--dot-files", "--room", "3"]);
    assert_eq!((received.code, sent.code), (7, 13), "{received:?} {sent:?}");
    assert!(received.err.contains("--room"), "{received:?}");
    let (received, sent) = send(&["--dot-files", "--room", "1K"]);
    assert_eq!((received.code, sent.code), (0, 0), "{received:?} {sent:?}");
    assert_eq!(std::fs::read(place.path("inbox/.profile")).unwrap(), b"four");
}
