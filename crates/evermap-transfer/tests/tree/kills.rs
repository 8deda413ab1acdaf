//! Copies killed at any time: the target is missing or complete.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::time::Duration;

use crate::child::command;
use crate::compare::{assert_same, temporary_names, tree};
use crate::make::fast;

const KILLS: u32 = 40;

#[test]
fn killed_copy_is_complete_or_absent() {
    let temp = fast();
    let source = temp.path().join("source");
    for directory in 0..30 {
        fs::create_dir_all(source.join(format!("{directory}/inner"))).unwrap();
        for file in 0..30 {
            let content = vec![file as u8; 1 + file * 500];
            fs::write(source.join(format!("{directory}/inner/{file}")), content).unwrap();
        }
    }
    fs::write(source.join("large"), vec![1; 2 << 20]).unwrap();
    let before = tree(&source);
    // Spread the kills over the duration of one copy.
    let started = std::time::Instant::now();
    let whole = temp.path().join("whole");
    assert!(command(&source, &whole, false).stdout(Stdio::null()).status().unwrap().success());
    assert_same(&before, &tree(&whole));
    let duration = started.elapsed();
    let (mut absent, mut left) = (0, 0);
    for kill in 0..KILLS {
        let target = temp.path().join("target");
        let mut child = command(&source, &target, false).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(duration * kill / KILLS + Duration::from_micros(u64::from(kill) * 37));
        child.kill().unwrap();
        child.wait().unwrap();
        if target.exists() {
            assert_same(&before, &tree(&target));
            fs::remove_dir_all(&target).unwrap();
        } else {
            absent += 1;
        }
        for temporary in temporary_names(temp.path()) {
            let name = temporary.file_name().unwrap();
            assert!(name.as_bytes().starts_with(b".target.evermap-"), "{name:?}");
            left += 1;
            fs::remove_dir_all(&temporary).unwrap();
        }
        assert_same(&before, &tree(&source));
    }
    eprintln!("{KILLS} kills: {absent} without a target, {left} with temporary files");
    assert!(absent > 0, "every copy completed before its kill");
}

#[test]
fn killed_merge_leaves_each_file_old_or_new() {
    let temp = fast();
    let (source, target) = (temp.path().join("source"), temp.path().join("target"));
    let names: Vec<String> = (0..300).map(|name| format!("{}/{name}", name % 10)).collect();
    for name in &names {
        fs::create_dir_all(source.join(name).parent().unwrap()).unwrap();
        fs::write(source.join(name), vec![b'n'; 5000]).unwrap();
    }
    let started = std::time::Instant::now();
    assert!(
        command(&source, &temp.path().join("whole"), false)
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let duration = started.elapsed();
    for kill in 0..KILLS / 2 {
        for name in &names {
            fs::create_dir_all(target.join(name).parent().unwrap()).unwrap();
            fs::write(target.join(name), b"old").unwrap();
        }
        let mut child = command(&source, &target, false).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(duration * kill / (KILLS / 2));
        child.kill().unwrap();
        child.wait().unwrap();
        for name in &names {
            let content = fs::read(target.join(name)).unwrap();
            assert!(
                content == b"old" || content == vec![b'n'; 5000],
                "{name} is neither old nor new"
            );
        }
        temporary_names(&target).iter().for_each(|name| fs::remove_file(name).unwrap());
    }
}
