//! File systems to measure on: what they are while they are there, and that they are gone whatever happens.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use evermap_bench_common::Outcome;
use evermap_bench_common::ends::private_mounts;
use evermap_bench_common::grounds::{self, Ground, Grounds, Packed};
use evermap_bench_common::leftovers::{left_behind, loop_devices, until};

/// Does this in a thread of its own, whose mounts nobody else sees, and gives how that ended.
fn apart(
    folder: &Path,
    work: impl FnOnce(&Grounds) -> Outcome + Send + 'static,
) -> std::thread::Result<Result<(), String>> {
    let folder = folder.to_path_buf();
    let thread = std::thread::spawn(move || {
        let can_mount = private_mounts();
        work(&Grounds::new(&folder, can_mount)).map_err(|error| error.to_string())
    });
    thread.join()
}

/// A file system on a loop device; nothing, visibly, where that can't be.
fn mounted(grounds: &Grounds, name: &str) -> Option<Ground> {
    grounds.on_loop(name, name).map_err(|error| eprintln!("skipped: {error}")).ok()
}

fn nothing_is_left(folder: &Path) {
    until("loop devices are let go of", || loop_devices(folder).is_empty());
    assert_eq!(left_behind(folder), Vec::<String>::new());
}

#[test]
fn a_file_system_is_there_and_then_it_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    let end = apart(folder.path(), move |grounds| {
        let Some(ground) = mounted(grounds, "ext4") else { return Ok(()) };
        std::fs::write(ground.folder().join("file"), "here")?;
        assert_eq!(grounds::kind(ground.folder()), Some("ext4"));
        assert_eq!(loop_devices(&path).len(), 1);
        Ok(())
    });
    end.unwrap().unwrap();
    std::fs::remove_dir(folder.path().join("on-ext4")).ok();
    nothing_is_left(folder.path());
}

#[test]
fn a_step_that_fails_leaves_no_mount_and_no_device() {
    let folder = tempfile::tempdir().unwrap();
    let end = apart(folder.path(), |grounds| {
        let Some(_ground) = mounted(grounds, "ext4") else { return Err("a step failed".into()) };
        Err("a step failed".into())
    });
    assert_eq!(end.unwrap().unwrap_err(), "a step failed");
    std::fs::remove_dir(folder.path().join("on-ext4")).ok();
    nothing_is_left(folder.path());
}

#[test]
fn a_panic_leaves_no_mount_and_no_device_even_with_a_file_open_there() {
    let folder = tempfile::tempdir().unwrap();
    let end = apart(folder.path(), |grounds| {
        let ground = mounted(grounds, "ext4");
        let _file = ground.map(|ground| {
            let file = std::fs::File::create(ground.folder().join("open")).unwrap();
            (file, ground)
        });
        panic!("a step panicked, as it should");
    });
    assert!(end.is_err());
    std::fs::remove_dir(folder.path().join("on-ext4")).ok();
    nothing_is_left(folder.path());
}

#[test]
fn an_image_that_can_not_be_made_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let end = apart(folder.path(), |grounds| {
        for how in Packed::ALL {
            assert!(grounds.packed(how, Path::new("/nonexistent/content")).is_err(), "{how:?}");
        }
        Ok(())
    });
    end.unwrap().unwrap();
    nothing_is_left(folder.path());
}

#[test]
fn an_image_has_what_the_folder_had_and_only_a_compressed_one_is_smaller() {
    let folder = tempfile::tempdir().unwrap();
    let content = tempfile::tempdir().unwrap();
    let line = "much the same, again and again\n".repeat(100_000);
    std::fs::write(content.path().join("lines"), &line).unwrap();
    let end = apart(folder.path(), move |grounds| {
        for how in Packed::ALL {
            let ground = match grounds.packed(how, content.path()) {
                Ok(ground) => ground,
                Err(error) => {
                    eprintln!("skipped: {}: {error}", how.name());
                    continue;
                }
            };
            assert!(std::fs::read_to_string(ground.folder().join("lines"))? == line, "{how:?}");
            assert!(std::fs::write(ground.folder().join("more"), "").is_err(), "{how:?}");
            let sectors = ground.device().unwrap().setting("size")?;
            let bytes = std::fs::read_to_string(sectors)?.trim().parse::<usize>()? * 512;
            assert_eq!(bytes < line.len() / 2, how != Packed::ErofsPlain, "{how:?}: {bytes}");
        }
        Ok(())
    });
    end.unwrap().unwrap();
    for how in Packed::ALL {
        let name = how.name().replace(' ', "-");
        std::fs::remove_dir(folder.path().join(format!("on-{name}"))).ok();
    }
    nothing_is_left(folder.path());
}

#[test]
fn without_the_right_to_mount_the_reason_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let grounds = Grounds::new(folder.path(), false);
    let error = grounds.on_loop("xfs", "xfs").map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("root"), "{error}");
    let memory = grounds.new_ground("tmpfs").unwrap();
    let path = memory.folder().to_path_buf();
    assert!(memory.is_memory() && path.exists());
    drop(memory);
    assert!(!path.exists());
}
