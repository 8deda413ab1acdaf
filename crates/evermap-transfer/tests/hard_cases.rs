//! Killed copies, full disks, streams.
//!
//! Tests that need a small disk mount one, as root or in a user namespace.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use evermap_transfer::engines::EngineKind;
use evermap_transfer::{Copy, Durability, Error};
use tempfile::TempDir;

fn temp_dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let word = |at: u64| (at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..length.div_ceil(8) as u64).flat_map(word).take(length).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Starts an ignored test of this program as a child process.
fn child(act: &str, arguments: &[(&str, &Path)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([act, "--exact", "--ignored", "--nocapture"]).stdout(Stdio::null());
    for (name, value) in arguments {
        command.env(name, value);
    }
    command
}

fn argument(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

#[test]
#[ignore = "child process of other tests"]
fn child_copying_forever() {
    let (Some(a), Some(b), Some(to)) = (argument("A"), argument("B"), argument("TO")) else {
        return;
    };
    let durability =
        if argument("DURABLE").is_some() { Durability::Full } else { Durability::None };
    loop {
        for from in [&a, &b] {
            Copy::new(from, &to).durability(durability).run().unwrap();
        }
    }
}

/// Kills the child on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn killed_copy_leaves_a_complete_old_or_new_file() {
    let temp = temp_dir();
    let path = |name: &str| temp.path().join(name);
    let contents = [bytes(700_000, 1), bytes(1_500_000, 2)];
    fs::write(path("a"), &contents[0]).unwrap();
    fs::write(path("b"), &contents[1]).unwrap();
    for round in 0..40u64 {
        fs::create_dir(path("into")).unwrap();
        let to = path("into").join("to");
        let mut arguments = vec![("A", path("a")), ("B", path("b")), ("TO", to.clone())];
        if round % 4 == 0 {
            arguments.push(("DURABLE", PathBuf::from("yes")));
        }
        let arguments: Vec<_> =
            arguments.iter().map(|(name, value)| (*name, value.as_path())).collect();
        let copying = Killed(child("child_copying_forever", &arguments).spawn().unwrap());
        let start = std::time::Instant::now();
        while !to.exists() && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(round * 997 % 9000));
        drop(copying);
        let content = fs::read(&to).unwrap();
        assert!(contents.contains(&content), "{} bytes", content.len());
        // A temporary name exists only between the new file's link and its rename.
        let left: Vec<_> = names(&path("into")).into_iter().filter(|name| name != "to").collect();
        assert!(
            left.len() <= 1 && left.iter().all(|name| name.starts_with(".to.evermap-")),
            "{left:?}"
        );
        fs::remove_dir_all(path("into")).unwrap();
    }
    assert_eq!(fs::read(path("a")).unwrap(), contents[0]);
}

#[test]
#[ignore = "child process of other tests, with its own small disk"]
fn child_filling_a_disk() {
    let (Some(from), Some(disk)) = (argument("FROM"), argument("DISK")) else { return };
    let to = disk.join("to");
    for engine in [None].into_iter().chain(EngineKind::ALL.map(Some)) {
        fs::write(&to, "before").unwrap();
        let copy = Copy::new(&from, &to);
        let result = match engine {
            Some(engine) => copy.engine(engine).run(),
            None => copy.run(),
        };
        match result {
            Err(Error::NoSpace { needed_bytes, .. }) => assert_eq!(needed_bytes, 16 << 20),
            Err(Error::Refused { .. }) if engine.is_some() => {}
            other => panic!("{engine:?}: {other:?}"),
        }
        assert_eq!(fs::read(&to).unwrap(), b"before", "{engine:?}");
        assert_eq!(names(&disk), ["to"], "{engine:?}");
    }
    // A file that fits is copied afterwards, so no space is leaked.
    let fits = disk.join("fits");
    fs::write(&fits, vec![1; 3 << 20]).unwrap();
    Copy::new(&fits, &to).verify(true).run().unwrap();
    println!("filled");
    File::create(from.with_extension("done")).unwrap();
}

#[test]
fn full_disk_is_detected_before_the_first_byte_and_left_clean() {
    let temp = temp_dir();
    let from = temp.path().join("from");
    let disk = temp.path().join("disk");
    fs::create_dir(&disk).unwrap();
    fs::write(&from, bytes(16 << 20, 3)).unwrap();
    // The mount belongs to the namespace and ends with its last process.
    let script = "mount -t tmpfs -o size=8m,mode=777 none \"$DISK\" || exit 77; exec \"$@\"";
    let program = child("child_filling_a_disk", &[]);
    let namespaces: &[&str] = match rustix::process::geteuid().is_root() {
        true => &["--mount"],
        false => &["--mount", "--user", "--map-root-user"],
    };
    let status = Command::new("unshare")
        .args(namespaces)
        .args(["sh", "-c", script, "sh"])
        .arg(program.get_program())
        .args(program.get_args())
        .env("FROM", &from)
        .env("DISK", &disk)
        .status();
    match status.map(|status| status.code()) {
        Ok(Some(0)) => assert!(from.with_extension("done").exists(), "the child did not run"),
        Ok(Some(77 | 1)) | Err(_) => eprintln!("SKIPPED: no small disk can be mounted here"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn fifo_works_as_source_and_target() {
    let temp = temp_dir();
    let (fifo, to) = (temp.path().join("fifo"), temp.path().join("to"));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let content = bytes((3 << 20) + 17, 4);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = File::options().write(true).open(&fifo).unwrap();
            // Slow at first: the reader waits, and a short read is not an end.
            for part in content.chunks(500_000) {
                writer.write_all(part).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let report = Copy::new(&fifo, &to).run().unwrap();
        assert_eq!(report.size_bytes, content.len() as u64);
    });
    assert!(fs::read(&to).unwrap() == content);

    let read = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut read = Vec::new();
            File::open(&fifo).unwrap().read_to_end(&mut read).unwrap();
            read
        });
        Copy::new(&to, &fifo).run().unwrap();
        reading.join().unwrap()
    });
    assert!(read == content);
    assert!(
        fs::symlink_metadata(&fifo).unwrap().permissions().mode() & 0o170_000 == 0o010_000,
        "still a FIFO"
    );
}

#[test]
fn file_larger_than_one_call_is_copied_completely() {
    let temp = temp_dir();
    let (from, to) = (temp.path().join("from"), temp.path().join("to"));
    let file = File::create(&from).unwrap();
    // Data on both sides of the limits of one call and of 32 bits.
    let size = (5u64 << 30) + 123;
    file.set_len(size).unwrap();
    let marks = [0u64, 0x7fff_f000 - 4096, 0x8000_0000, (1 << 32) - 4096, 1 << 32, size - 123];
    for at in marks {
        file.write_all_at(&bytes(123, at), at).unwrap();
    }
    let report = Copy::new(&from, &to).run().unwrap();
    assert_eq!(report.size_bytes, size);
    let copied = File::open(&to).unwrap();
    assert_eq!(copied.metadata().unwrap().len(), size);
    for at in marks {
        let mut read = [0; 123];
        copied.read_exact_at(&mut read, at).unwrap();
        assert_eq!(read.to_vec(), bytes(123, at), "at {at}");
    }
}

#[test]
fn permission_errors_name_the_file_or_directory() {
    if rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: root may read and write everything");
        return;
    }
    let temp = temp_dir();
    let from = temp.path().join("from");
    fs::write(&from, "content").unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o000)).unwrap();
    let error = Copy::new(&from, temp.path().join("to")).run().unwrap_err().to_string();
    assert!(error.contains("from") && error.contains("denied"), "{error}");
    fs::set_permissions(&from, fs::Permissions::from_mode(0o600)).unwrap();
    let closed = temp.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    let error = Copy::new(&from, closed.join("to")).run().unwrap_err().to_string();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(error.contains("closed") && error.contains("denied"), "{error}");
}
