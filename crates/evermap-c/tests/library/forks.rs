//! Tests of programs that fork: access of their children to inherited objects.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::staged::{Link, Place, compile, here, run, said, staged};

#[test]
fn a_forked_child_only_reads_inherited_objects() {
    let place = Place::new();
    let program = compile("forked", place.path(), Link::Shared, &["-std=c11"]);
    let said = run(place.command(&program).arg(place.store()));
    assert_eq!(said, "a child reads what its parent had, and no more\n");
}

#[test]
fn programs_are_started_with_what_lies_in_an_object() {
    let place = Place::new();
    let program = compile("starts", place.path(), Link::Shared, &["-std=gnu11"]);
    let said = run(&mut place.command(&program));
    assert_eq!(said, "programs got what lies in an object\n");
}

#[test]
fn workers_of_a_pre_fork_server_serve_the_page_that_it_opened() {
    let place = Place::new();
    let program = compile("prefork", place.path(), Link::Shared, &[]);
    run(place.command(&program).arg("make"));
    let mut writer = place.command(&program);
    let writer = writer.arg("write").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut writer = writer.spawn().unwrap();
    let mut commits = BufReader::new(writer.stdout.take().unwrap()).lines();
    assert_eq!(commits.next().unwrap().unwrap(), "1");
    // Its output is read, so that its commits continue.
    let reading = std::thread::spawn(move || commits.map_while(Result::ok).count());
    let served = place.command(&program).arg("serve").output().unwrap();
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success());
    assert!(served.status.success(), "{}", said(&served));
    assert_eq!(
        String::from_utf8_lossy(&served.stdout),
        "24 workers served the page of their generation\n"
    );
    assert!(reading.join().unwrap() > 10, "the writer did not commit meanwhile");
}

#[test]
fn children_of_pythons_multiprocessing_keep_what_they_inherit_by_every_start_method() {
    let python = Command::new("python3").args(["-c", "import ctypes, multiprocessing"]).output();
    if !python.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: no python3 with ctypes and multiprocessing");
        return;
    }
    let (place, scripts) = (Place::new(), here().join("tests/python"));
    let mut command = place.command("python3".as_ref());
    command.arg(scripts.join("forks.py")).env("PYTHONPATH", &scripts);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("EVERMAP_LIBRARY", staged().join("lib/libevermap.so"));
    let said = run(&mut command);
    for method in ["fork", "spawn", "forkserver"] {
        assert!(said.contains(&format!("{method}: 12 children\n")), "{said}");
    }
}
