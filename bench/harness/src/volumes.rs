//! File systems to measure on.
//!
//! If the measured folder is on the wanted file system, it is used directly. Other file systems are
//! made on unlinked files in that folder, through loop devices with direct I/O, and mounted in a
//! private namespace. Without root, only the folder itself and the system's memory file system are
//! available.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::Outcome;
use crate::loop_device::LoopDevice;
use crate::process::{find_program, tool};
use crate::units::GIB;

/// Prefix of folders that are removed when a run ends.
pub const PREFIX: &str = "evermap-bench-";

/// Size of an image: all files and a copy of the largest fit. The images are sparse.
const IMAGE_BYTES: u64 = 6 * GIB;

/// Read-only file system that is built from a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    SquashfsZstd,
    /// Files are not compressed, so only the way of reading differs.
    ErofsPlain,
    ErofsLz4hc,
}

impl Packed {
    pub const ALL: [Packed; 3] = [Packed::SquashfsZstd, Packed::ErofsPlain, Packed::ErofsLz4hc];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Packed::SquashfsZstd => "squashfs zstd",
            Packed::ErofsPlain => "erofs plain",
            Packed::ErofsLz4hc => "erofs lz4hc",
        }
    }

    /// File system type of the kernel.
    fn kind(self) -> &'static str {
        match self {
            Packed::SquashfsZstd => "squashfs",
            Packed::ErofsPlain | Packed::ErofsLz4hc => "erofs",
        }
    }

    /// Program that builds it, with the arguments before and after the names of folder and
    /// image.
    fn maker(self) -> (&'static str, &'static [&'static str], &'static [&'static str]) {
        match self {
            Packed::SquashfsZstd => {
                ("mksquashfs", &[], &["-comp", "zstd", "-noappend", "-quiet", "-no-progress"])
            }
            Packed::ErofsPlain => ("mkfs.erofs", &["--quiet"], &[]),
            Packed::ErofsLz4hc => ("mkfs.erofs", &["-zlz4hc", "-C65536", "--quiet"], &[]),
        }
    }
}

/// A folder on a file system.
pub struct Volume {
    pub name: String,
    folder: PathBuf,
    mounted: bool,
    /// Block device of this volume alone, if there is one.
    device: Option<LoopDevice>,
    /// Image file below the device. It is unlinked, and freed on close.
    _image: Option<File>,
    /// Set only if nothing can be mounted.
    _temporary: Option<tempfile::TempDir>,
}

impl Volume {
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn device(&self) -> Option<&LoopDevice> {
        self.device.as_ref()
    }

    /// Returns true if the files are in memory and never reach a disk.
    pub fn is_memory(&self) -> bool {
        kind(&self.folder) == Some("tmpfs")
    }

    fn plain(name: &str, folder: PathBuf) -> Outcome<Volume> {
        std::fs::create_dir_all(&folder)?;
        let name = name.to_string();
        Ok(Volume { name, folder, mounted: false, device: None, _image: None, _temporary: None })
    }

    /// Mounts this device, or a file system in memory without a device.
    fn mount(&mut self, kind: &str, device: Option<LoopDevice>, options: &str) -> Outcome {
        let source = device.as_ref().map_or(Path::new(kind), LoopDevice::path);
        let read_only = matches!(kind, "squashfs" | "erofs");
        let flags = match read_only {
            true => MountFlags::NOATIME | MountFlags::RDONLY,
            false => MountFlags::NOATIME,
        };
        let options = std::ffi::CString::new(options)?;
        mount(source, &self.folder, kind, flags, options.as_c_str())
            .map_err(|error| format!("mounting {kind}: {error}"))?;
        self.mounted = true;
        self.device = device;
        Ok(())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if !self.mounted {
            // The guard removes the rest if this fails.
            let _ = std::fs::remove_dir_all(&self.folder);
            return;
        }
        let undone = unmount(&self.folder, UnmountFlags::empty()).is_ok()
            || unmount(&self.folder, UnmountFlags::DETACH).is_ok();
        if !undone {
            eprintln!("{} stays mounted until this process ends", self.folder.display());
        }
    }
}

/// Creates volumes below one folder.
pub struct Volumes {
    folder: PathBuf,
    can_mount: bool,
}

impl Volumes {
    /// Uses this folder, which is on the disk to measure. `can_mount` tells if this process may
    /// mount.
    pub fn new(folder: &Path, can_mount: bool) -> Volumes {
        Volumes { folder: folder.to_path_buf(), can_mount }
    }

    /// Creates a volume with `ext4`, `xfs`, `btrfs` or `tmpfs`. The error says why that is not
    /// possible here.
    pub fn create(&self, name: &str) -> Outcome<Volume> {
        if name == "tmpfs" {
            return self.memory();
        }
        if kind(&self.folder) == Some(name) {
            return Volume::plain(name, self.folder.join(name));
        }
        self.on_loop(name, name)
    }

    /// Like [`create`](Self::create), but always on a separate block device.
    pub fn on_loop(&self, name: &str, file_system: &str) -> Outcome<Volume> {
        let (options, arguments): (&str, &[&str]) = match file_system {
            "ext4" => ("noinit_itable", &["-q", "-F", "-E", "nodiscard,lazy_itable_init=1"]),
            "xfs" => ("", &["-q", "-f", "-K"]),
            "btrfs" => ("", &["-q", "-f", "-K"]),
            _ => return Err(format!("no file system `{file_system}`").into()),
        };
        self.formatted(name, file_system, options, arguments)
    }

    /// Creates ext4 on a separate device, with inodes for many small files and no removed
    /// files in its history. Uses the folder itself if nothing can be mounted.
    pub fn for_small_files(&self) -> Outcome<Volume> {
        if !self.can_mount {
            return Volume::plain("small-files", self.folder.join("small-files"));
        }
        let format = ["-q", "-F", "-i", "4096", "-E", "nodiscard,lazy_itable_init=1"];
        self.formatted("small-files", "ext4", "noinit_itable", &format)
    }

    /// Creates btrfs with zstd compression.
    pub fn compressing(&self) -> Outcome<Volume> {
        self.formatted("btrfs-zstd", "btrfs", "compress=zstd:3", &["-q", "-f", "-K"])
    }

    fn formatted(
        &self,
        name: &str,
        kind: &str,
        options: &str,
        arguments: &[&str],
    ) -> Outcome<Volume> {
        self.needs(&format!("mkfs.{kind}"))?;
        let image = tempfile::tempfile_in(&self.folder)?;
        image.set_len(IMAGE_BYTES)?;
        let device = LoopDevice::new(image.as_fd(), false)?;
        let mut all: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        all.push(device.path().as_os_str());
        tool(&format!("mkfs.{kind}"), &all)?;
        self.mounted(name, kind, Some(device), Some(image), options)
    }

    fn memory(&self) -> Outcome<Volume> {
        if self.can_mount {
            return self.mounted("tmpfs", "tmpfs", None, None, "size=75%");
        }
        let temporary = tempfile::Builder::new().prefix(PREFIX).tempdir_in("/dev/shm")?;
        let mut volume = Volume::plain("tmpfs", temporary.path().to_path_buf())?;
        volume._temporary = Some(temporary);
        Ok(volume)
    }

    /// Packs a folder into a read-only file system and mounts it.
    pub fn packed(&self, how: Packed, content: &Path) -> Outcome<Volume> {
        let image = self.image(how, content)?;
        self.on_image(how.name(), how, image)
    }

    /// Packs a folder into an image, which is an unlinked file.
    pub fn image(&self, how: Packed, content: &Path) -> Outcome<File> {
        let (program, before, after) = how.maker();
        self.needs(program)?;
        let name = how.name().replace(' ', "-");
        let path = self.folder.join(format!("{name}.image"));
        let ends = match how.kind() {
            "squashfs" => [content, &path],
            _ => [&path, content],
        };
        let arguments = before.iter().map(OsStr::new).chain(ends.map(Path::as_os_str));
        let made =
            tool(program, &arguments.chain(after.iter().map(OsStr::new)).collect::<Vec<_>>());
        let file = made.and_then(|()| Ok(File::open(&path)?));
        // Unlinks the image: only the open file keeps it.
        let _ = std::fs::remove_file(&path);
        file
    }

    /// Mounts an image from any folder.
    pub fn on_image(&self, name: &str, how: Packed, image: File) -> Outcome<Volume> {
        let device = LoopDevice::new(image.as_fd(), true)?;
        self.mounted(&name.replace(' ', "-"), how.kind(), Some(device), Some(image), "")
    }

    fn mounted(
        &self,
        name: &str,
        kind: &str,
        device: Option<LoopDevice>,
        image: Option<File>,
        options: &str,
    ) -> Outcome<Volume> {
        let mut volume = Volume::plain(name, self.folder.join(format!("on-{name}")))?;
        volume._image = image;
        volume.mount(kind, device, options)?;
        Ok(volume)
    }

    fn needs(&self, program: &str) -> Outcome {
        if !self.can_mount {
            return Err("mounting needs root".into());
        }
        match find_program(program) {
            Some(_) => Ok(()),
            None => Err(format!("`{program}` is not installed").into()),
        }
    }
}

/// Returns the file system type of a folder, if it is a known one.
pub fn kind(folder: &Path) -> Option<&'static str> {
    match rustix::fs::statfs(folder).ok()?.f_type {
        libc::EXT4_SUPER_MAGIC => Some("ext4"),
        libc::XFS_SUPER_MAGIC => Some("xfs"),
        libc::BTRFS_SUPER_MAGIC => Some("btrfs"),
        libc::TMPFS_MAGIC => Some("tmpfs"),
        _ => None,
    }
}
