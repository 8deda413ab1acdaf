//! The file systems to measure on.
//!
//! The folder that is measured is used as it is where its file system is the wanted one. The others are made on files
//! without names in that folder, through loop devices that read and write them directly, and mounted where only this
//! run sees them. Without root there are only the folder itself and the system's memory file system.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::Outcome;
use crate::loop_device::LoopDevice;
use crate::process::{find_program, tool};
use crate::units::GIB;

/// Of folders that are gone when a run ends.
pub const PREFIX: &str = "evermap-bench-";

/// Room for all files and a copy of the largest. The images are sparse.
const IMAGE_BYTES: u64 = 6 * GIB;

/// A file system that is made from a folder and can only be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    SquashfsZstd,
    /// Its files are not compressed: what is left is the way they are read.
    ErofsPlain,
    ErofsLz4hc,
}

impl Packed {
    pub const ALL: [Packed; 3] = [Packed::SquashfsZstd, Packed::ErofsPlain, Packed::ErofsLz4hc];

    /// As tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Packed::SquashfsZstd => "squashfs zstd",
            Packed::ErofsPlain => "erofs plain",
            Packed::ErofsLz4hc => "erofs lz4hc",
        }
    }

    /// What the kernel calls it.
    fn kind(self) -> &'static str {
        match self {
            Packed::SquashfsZstd => "squashfs",
            Packed::ErofsPlain | Packed::ErofsLz4hc => "erofs",
        }
    }

    /// The program that makes it, and what it is told before and after the names of folder and image.
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
pub struct Ground {
    pub name: String,
    folder: PathBuf,
    mounted: bool,
    /// Its own block device, if it has one.
    device: Option<LoopDevice>,
    /// The file below: open as long as it is needed, and gone then.
    _image: Option<File>,
    /// Only where nothing can be mounted.
    _temporary: Option<tempfile::TempDir>,
}

impl Ground {
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn device(&self) -> Option<&LoopDevice> {
        self.device.as_ref()
    }

    /// Is nothing ever written to, or read from, a disk?
    pub fn is_memory(&self) -> bool {
        kind(&self.folder) == Some("tmpfs")
    }

    fn plain(name: &str, folder: PathBuf) -> Outcome<Ground> {
        std::fs::create_dir_all(&folder)?;
        let name = name.to_string();
        Ok(Ground { name, folder, mounted: false, device: None, _image: None, _temporary: None })
    }

    /// Mounts what is on this device, or nothing but memory.
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

impl Drop for Ground {
    fn drop(&mut self) {
        if !self.mounted {
            // The guard removes what can't be removed now.
            let _ = std::fs::remove_dir_all(&self.folder);
            return;
        }
        let undone = unmount(&self.folder, UnmountFlags::empty()).is_ok()
            || unmount(&self.folder, UnmountFlags::DETACH).is_ok();
        if !undone {
            eprintln!("{} is mounted until this process ends", self.folder.display());
        }
    }
}

/// Makes grounds below one folder.
pub struct Grounds {
    folder: PathBuf,
    can_mount: bool,
}

impl Grounds {
    /// Below this folder, which is on the disk to measure; with the right to mount, or without.
    pub fn new(folder: &Path, can_mount: bool) -> Grounds {
        Grounds { folder: folder.to_path_buf(), can_mount }
    }

    /// One of `ext4`, `xfs`, `btrfs`, `tmpfs`. An error says why there is none here.
    pub fn new_ground(&self, name: &str) -> Outcome<Ground> {
        if name == "tmpfs" {
            return self.memory();
        }
        if kind(&self.folder) == Some(name) {
            return Ground::plain(name, self.folder.join(name));
        }
        self.on_loop(name, name)
    }

    /// The same with a block device of its own, whatever the folder itself is on.
    pub fn on_loop(&self, name: &str, file_system: &str) -> Outcome<Ground> {
        let (options, arguments): (&str, &[&str]) = match file_system {
            "ext4" => ("noinit_itable", &["-q", "-F", "-E", "nodiscard,lazy_itable_init=1"]),
            "xfs" => ("", &["-q", "-f", "-K"]),
            "btrfs" => ("", &["-q", "-f", "-K"]),
            _ => return Err(format!("no file system `{file_system}`").into()),
        };
        self.formatted(name, file_system, options, arguments)
    }

    /// ext4 on a device of its own, with room for many small files: nothing on it has ever been removed. Where nothing can be
    /// mounted, the folder itself.
    pub fn for_small_files(&self) -> Outcome<Ground> {
        if !self.can_mount {
            return Ground::plain("small-files", self.folder.join("small-files"));
        }
        let format = ["-q", "-F", "-i", "4096", "-E", "nodiscard,lazy_itable_init=1"];
        self.formatted("small-files", "ext4", "noinit_itable", &format)
    }

    /// btrfs that compresses with zstd.
    pub fn compressing(&self) -> Outcome<Ground> {
        self.formatted("btrfs-zstd", "btrfs", "compress=zstd:3", &["-q", "-f", "-K"])
    }

    fn formatted(
        &self,
        name: &str,
        kind: &str,
        options: &str,
        arguments: &[&str],
    ) -> Outcome<Ground> {
        self.needs(&format!("mkfs.{kind}"))?;
        let image = tempfile::tempfile_in(&self.folder)?;
        image.set_len(IMAGE_BYTES)?;
        let device = LoopDevice::new(image.as_fd(), false)?;
        let mut all: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        all.push(device.path().as_os_str());
        tool(&format!("mkfs.{kind}"), &all)?;
        self.mounted(name, kind, Some(device), Some(image), options)
    }

    fn memory(&self) -> Outcome<Ground> {
        if self.can_mount {
            return self.mounted("tmpfs", "tmpfs", None, None, "size=75%");
        }
        let temporary = tempfile::Builder::new().prefix(PREFIX).tempdir_in("/dev/shm")?;
        let mut ground = Ground::plain("tmpfs", temporary.path().to_path_buf())?;
        ground._temporary = Some(temporary);
        Ok(ground)
    }

    /// A folder, as it is now, on a file system that can only be read.
    pub fn packed(&self, how: Packed, content: &Path) -> Outcome<Ground> {
        let image = self.image(how, content)?;
        self.on_image(how.name(), how, image)
    }

    /// The image alone: a file without a name.
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
        // It has no name from now on.
        let _ = std::fs::remove_file(&path);
        file
    }

    /// What is in an image, wherever that is.
    pub fn on_image(&self, name: &str, how: Packed, image: File) -> Outcome<Ground> {
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
    ) -> Outcome<Ground> {
        let mut ground = Ground::plain(name, self.folder.join(format!("on-{name}")))?;
        ground._image = image;
        ground.mount(kind, device, options)?;
        Ok(ground)
    }

    fn needs(&self, program: &str) -> Outcome {
        if !self.can_mount {
            return Err("mounting takes root".into());
        }
        match find_program(program) {
            Some(_) => Ok(()),
            None => Err(format!("there is no `{program}`").into()),
        }
    }
}

/// The kind of file system that a folder is on.
pub fn kind(folder: &Path) -> Option<&'static str> {
    match rustix::fs::statfs(folder).ok()?.f_type {
        libc::EXT4_SUPER_MAGIC => Some("ext4"),
        libc::XFS_SUPER_MAGIC => Some("xfs"),
        libc::BTRFS_SUPER_MAGIC => Some("btrfs"),
        libc::TMPFS_MAGIC => Some("tmpfs"),
        _ => None,
    }
}
