//! Tests of the volumes: they have the wanted file system, and no end of a run leaves one behind.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use bench_harness::Outcome;
use bench_harness::ends::private_mounts;
use bench_harness::testing::{left_behind, loop_devices, until};
use bench_harness::volumes::{self, Packed, Volume, Volumes};

/// Runs this in a thread with private mounts, and returns how it ended.
fn in_private_namespace(
    folder: &Path,
    work: impl FnOnce(&Volumes) -> Outcome + Send + 'static,
) -> std::thread::Result<Result<(), String>> {
    let folder = folder.to_path_buf();
    let thread = std::thread::spawn(move || {
        let can_mount = private_mounts();
        work(&Volumes::new(&folder, can_mount)).map_err(|error| error.to_string())
    });
    thread.join()
}

/// Creates a file system on a loop device. Prints the reason and returns `None` if that fails.
fn mounted(volumes: &Volumes, name: &str) -> Option<Volume> {
    volumes.on_loop(name, name).map_err(|error| eprintln!("skipped: {error}")).ok()
}

fn assert_nothing_left(folder: &Path) {
    until("loop devices are detached", || loop_devices(folder).is_empty());
    assert_eq!(left_behind(folder), Vec::<String>::new());
}

#[test]
fn a_file_system_exists_until_it_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    let end = in_private_namespace(folder.path(), move |volumes| {
        let Some(volume) = mounted(volumes, "ext4") else { return Ok(()) };
        std::fs::write(volume.folder().join("file"), "here")?;
        assert_eq!(volumes::kind(volume.folder()), Some("ext4"));
        assert_eq!(loop_devices(&path).len(), 1);
        Ok(())
    });
    end.unwrap().unwrap();
    std::fs::remove_dir(folder.path().join("on-ext4")).ok();
    assert_nothing_left(folder.path());
}

#[test]
fn a_step_that_fails_leaves_no_mount_and_no_device() {
    let folder = tempfile::tempdir().unwrap();
    let end = in_private_namespace(folder.path(), |volumes| {
        let Some(_ground) = mounted(volumes, "ext4") else { return Err("a step failed".into()) };
        Err("a step failed".into())
    });
    assert_eq!(end.unwrap().unwrap_err(), "a step failed");
    std::fs::remove_dir(folder.path().join("on-ext4")).ok();
    assert_nothing_left(folder.path());
}

#[test]
fn a_panic_leaves_no_mount_and_no_device_even_with_a_file_open_there() {
    let folder = tempfile::tempdir().unwrap();
    let end = in_private_namespace(folder.path(), |volumes| {
        let volume = mounted(volumes, "ext4");
        let _file = volume.map(|volume| {
            let file = std::fs::File::create(volume.folder().join("open")).unwrap();
            (file, volume)
        });
        panic!("a step panicked, as it should");
    });
    assert!(end.is_err());
    std::fs::remove_dir(folder.path().join("on-ext4")).ok();
    assert_nothing_left(folder.path());
}

#[test]
fn a_failed_image_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let end = in_private_namespace(folder.path(), |volumes| {
        for how in Packed::ALL {
            assert!(volumes.packed(how, Path::new("/nonexistent/content")).is_err(), "{how:?}");
        }
        Ok(())
    });
    end.unwrap().unwrap();
    assert_nothing_left(folder.path());
}

#[test]
fn an_image_has_the_folders_files_and_only_compression_makes_it_smaller() {
    let folder = tempfile::tempdir().unwrap();
    let content = tempfile::tempdir().unwrap();
    let line = "much the same, again and again\n".repeat(100_000);
    std::fs::write(content.path().join("lines"), &line).unwrap();
    let end = in_private_namespace(folder.path(), move |volumes| {
        for how in Packed::ALL {
            let volume = match volumes.packed(how, content.path()) {
                Ok(volume) => volume,
                Err(error) => {
                    eprintln!("skipped: {}: {error}", how.name());
                    continue;
                }
            };
            assert!(std::fs::read_to_string(volume.folder().join("lines"))? == line, "{how:?}");
            assert!(std::fs::write(volume.folder().join("more"), "").is_err(), "{how:?}");
            let sectors = volume.device().unwrap().setting("size")?;
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
    assert_nothing_left(folder.path());
}

#[test]
fn without_root_the_error_names_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let volumes = Volumes::new(folder.path(), false);
    let error = volumes.on_loop("xfs", "xfs").map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("root"), "{error}");
    let memory = volumes.create("tmpfs").unwrap();
    let path = memory.folder().to_path_buf();
    assert!(memory.is_memory() && path.exists());
    drop(memory);
    assert!(!path.exists());
}
