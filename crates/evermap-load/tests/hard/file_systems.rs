//! Unusual file systems: layered, compressed, in memory, in user space.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use evermap_load::{Loader, Method};

use crate::common::{
    WINDOW, directory, every_method_gives, has_own_mounts, on_demand, pattern, skip,
};
use crate::served::{Reads, serve};

/// Size of the loaded files, in bytes.
const BYTES: usize = 5 * WINDOW + 4097;

/// Runs a program. Prints a notice and returns false if it is missing or fails.
fn run_tool(program: &str, arguments: &[&std::ffi::OsStr]) -> bool {
    match Command::new(program).args(arguments).stdout(Stdio::null()).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            skip(format_args!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()));
            false
        }
        Err(error) => {
            skip(format_args!("{program}: {error}"));
            false
        }
    }
}

/// Directories and files of a test.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Option<Place> {
        has_own_mounts().then(|| Place { directory: directory() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn make(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    /// Mounts an image of a file system.
    fn mount(&self, image: &Path, kind: &str) -> Option<PathBuf> {
        let at = self.make("mounted");
        let arguments = ["-o".as_ref(), "loop".as_ref(), "-t".as_ref(), kind.as_ref()];
        let arguments = arguments.into_iter().chain([image.as_os_str(), at.as_os_str()]);
        run_tool("mount", &arguments.collect::<Vec<_>>()).then_some(at)
    }
}

impl Drop for Place {
    /// The thread's mounts end with the thread, which may be later than its files.
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.path("mounted"), rustix::mount::UnmountFlags::DETACH);
    }
}

/// Creates files with data and with holes.
fn fill(directory: &Path) -> Vec<(&'static str, Vec<u8>)> {
    std::fs::write(directory.join("data"), pattern(BYTES)).unwrap();
    std::fs::write(directory.join("short"), "short").unwrap();
    std::fs::write(directory.join("empty"), "").unwrap();
    let holes = std::fs::File::create(directory.join("holes")).unwrap();
    holes.set_len(BYTES as u64).unwrap();
    holes.write_all_at(&pattern(10_000), 3 * WINDOW as u64 - 5000).unwrap();
    let mut sparse = vec![0; BYTES];
    sparse[3 * WINDOW - 5000..3 * WINDOW + 5000].copy_from_slice(&pattern(10_000));
    vec![
        ("data", pattern(BYTES)),
        ("short", b"short".to_vec()),
        ("empty", Vec::new()),
        ("holes", sparse),
    ]
}

fn every_file_is_right(directory: &Path, files: &[(&str, Vec<u8>)]) {
    for (name, expected) in files {
        let path = directory.join(name);
        every_method_gives(&path, expected);
        let image = Loader::open(&path).load().unwrap();
        assert!(*image == **expected, "{name}: {}", image.why());
    }
}

#[test]
fn on_tmpfs_every_method_works() {
    let Some(place) = Place::new() else { return };
    let at = place.make("mounted");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("evermap-test", &at, "tmpfs", flags, None).unwrap();
    every_file_is_right(&at, &fill(&at));
}

#[test]
fn on_overlayfs_every_method_works_and_a_copy_up_keeps_one_version() {
    let Some(place) = Place::new() else { return };
    let [lower, upper, work, at] =
        ["lower", "upper", "work", "mounted"].map(|name| place.make(name));
    let files = fill(&lower);
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let options = std::ffi::CString::new(options).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    if let Err(errno) =
        rustix::mount::mount("evermap-test", &at, "overlay", flags, Some(options.as_c_str()))
    {
        return skip(format_args!("cannot mount overlayfs: {errno}"));
    }
    every_file_is_right(&at, &files);
    let Some(image) = on_demand(&at.join("data")) else { return };
    let writer = std::fs::File::options().write(true).open(at.join("data")).unwrap();
    writer.write_all_at(b"copied up", 4 * WINDOW as u64).unwrap();
    let mut expected = files[0].1.clone();
    for window in 0..5 {
        let part = window * WINDOW..(window + 1) * WINDOW;
        if let Ok(bytes) = image.get(part.clone()) {
            assert!(*bytes == expected[part], "window {window} has bytes of another version");
        }
    }
    drop(image);
    expected[4 * WINDOW..4 * WINDOW + 9].copy_from_slice(b"copied up");
    every_method_gives(&at.join("data"), &expected);
}

#[test]
fn on_squashfs_every_method_works() {
    let Some(place) = Place::new() else { return };
    let (tree, image) = (place.make("tree"), place.path("image"));
    let files = fill(&tree);
    let arguments = [tree.as_os_str(), image.as_os_str(), "-quiet".as_ref()];
    if !run_tool("mksquashfs", &arguments) {
        return;
    }
    let Some(at) = place.mount(&image, "squashfs") else { return };
    let (facts, plan) = Loader::open(at.join("data")).probe().unwrap();
    assert!(facts.is_compressed && facts.is_unchangeable);
    assert_eq!(plan[0].method, Method::ReadHuge);
    every_file_is_right(&at, &files);
}

#[test]
fn on_erofs_every_method_works_compressed_or_not() {
    for compression in ["", "-zlz4hc"] {
        let Some(place) = Place::new() else { return };
        let (tree, image) = (place.make("tree"), place.path("image"));
        let files = fill(&tree);
        let mut arguments = vec![image.as_os_str(), tree.as_os_str()];
        if !compression.is_empty() {
            arguments.insert(0, compression.as_ref());
        }
        if !run_tool("mkfs.erofs", &arguments) {
            continue;
        }
        let Some(at) = place.mount(&image, "erofs") else { continue };
        every_file_is_right(&at, &files);
    }
}

/// Tests a file system on its own loop device.
fn on_a_disk(kind: &str, options: &[&str]) {
    let Some(place) = Place::new() else { return };
    let image = place.path("image");
    std::fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
    let mut arguments: Vec<&std::ffi::OsStr> = options.iter().map(std::ffi::OsStr::new).collect();
    arguments.push(image.as_os_str());
    if !run_tool(&format!("mkfs.{kind}"), &arguments) {
        return;
    }
    let Some(at) = place.mount(&image, kind) else { return };
    let files = fill(&at);
    rustix::fs::syncfs(std::fs::File::open(&at).unwrap()).unwrap();
    every_file_is_right(&at, &files);
}

#[test]
fn on_ext4_with_small_blocks_every_method_works() {
    on_a_disk("ext4", &["-q", "-b", "1024"]);
}

#[test]
fn on_ext4_that_keeps_short_files_in_its_inodes_every_method_works() {
    on_a_disk("ext4", &["-q", "-O", "inline_data", "-I", "1024"]);
}

#[test]
fn on_xfs_every_method_works() {
    on_a_disk("xfs", &["-q"]);
}

#[test]
fn on_btrfs_every_method_works() {
    on_a_disk("btrfs", &["-q"]);
}

#[test]
fn on_vfat_every_method_works() {
    on_a_disk("vfat", &[]);
}

#[test]
fn on_fuse_every_method_works() {
    let Some(disk) = serve(BYTES, false, Reads::default()) else { return };
    every_method_gives(&disk.path, &disk.bytes);
    let image = Loader::open(&disk.path).load().unwrap();
    assert!(*image == **disk.bytes, "{}", image.why());
}

/// Returns true if a file counts as unchangeable.
fn is_unchangeable(path: &Path) -> bool {
    let (facts, _) = Loader::open(path).probe().unwrap();
    let mapped = Loader::open(path).method(Method::Mmap).load();
    assert_eq!(mapped.is_ok(), facts.is_unchangeable, "{}", path.display());
    facts.is_unchangeable
}

#[test]
fn a_read_only_mount_of_a_writable_file_system_is_not_mapped_without_a_promise() {
    let Some(place) = Place::new() else { return };
    let (writable, at) = (place.make("writable"), place.make("mounted"));
    fill(&writable);
    rustix::mount::mount_bind(&writable, &at).unwrap();
    let read_only = rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount_remount(&at, read_only, c"").unwrap();
    assert!(std::fs::write(at.join("data"), "").is_err());
    assert!(!is_unchangeable(&at.join("data")));
}

#[test]
fn a_read_only_fuse_mount_is_not_mapped_without_a_promise() {
    let Some(disk) = serve(BYTES, false, Reads::default()) else { return };
    assert!(!is_unchangeable(&disk.path));
}

#[test]
fn a_read_only_file_system_is_mapped_without_a_promise() {
    let Some(place) = Place::new() else { return };
    let image = place.path("image");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    if !run_tool("mkfs.ext4", &["-q".as_ref(), image.as_os_str()]) {
        return;
    }
    let Some(at) = place.mount(&image, "ext4") else { return };
    fill(&at);
    assert!(!is_unchangeable(&at.join("data")));
    rustix::mount::mount_remount(&at, rustix::mount::MountFlags::RDONLY, c"").unwrap();
    assert!(is_unchangeable(&at.join("data")));
}
