//! Loop devices that detach on their own.
//!
//! A device is set up with `LO_FLAGS_AUTOCLEAR`: it detaches from its file at the last close, by an
//! unmount or by the end of this process. Reads and writes bypass the page cache of the file below
//! (`LO_FLAGS_DIRECT_IO`); otherwise everything would be cached twice and a cold read would not
//! reach the disk.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use crate::Outcome;

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;
/// Another process may take the free device first, so this many are tried.
const TRIES: usize = 20;

/// `struct loop_config` of `linux/loop.h`. Only the fields named here are set; the others are zero.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info_begin: [u64; 5],
    info_kinds: [u32; 3],
    flags: u32,
    info_end: [u8; 64 + 64 + 32 + 16],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 304);

/// Block device on a file.
pub struct LoopDevice {
    path: PathBuf,
    /// Keeps the device attached until it is mounted, and while its settings change.
    _open: File,
}

impl LoopDevice {
    /// Attaches a free loop device to this file.
    pub fn new(image: BorrowedFd<'_>, read_only: bool) -> Outcome<LoopDevice> {
        let control = File::options().read(true).write(true).open("/dev/loop-control")?;
        let flags = LO_FLAGS_AUTOCLEAR
            | LO_FLAGS_DIRECT_IO
            | if read_only { LO_FLAGS_READ_ONLY } else { 0 };
        let mut last = None;
        for _ in 0..TRIES {
            // SAFETY: the request has no argument and writes to no memory of this
            // process.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(format!("no loop device: {}", std::io::Error::last_os_error()).into());
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let open = File::options().read(true).write(!read_only).open(&path)?;
            match configure(&open, image, flags) {
                Ok(()) => return LoopDevice::checked(path, open),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => last = Some(error),
                Err(error) => return Err(format!("{}: {error}", path.display()).into()),
            }
        }
        Err(format!("every free loop device was taken by another process: {last:?}").into())
    }

    fn checked(path: PathBuf, open: File) -> Outcome<LoopDevice> {
        let device = LoopDevice { path, _open: open };
        match std::fs::read_to_string(device.setting("loop/dio")?)?.trim() {
            "1" => Ok(device),
            _ => Err("the file system below the loop device does not support direct I/O".into()),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of a file of this device below `/sys/block`.
    pub fn setting(&self, name: &str) -> Outcome<PathBuf> {
        let device = self.path.file_name().ok_or("a device has a name")?;
        Ok(Path::new("/sys/block").join(device).join(name))
    }
}

fn configure(device: &File, image: BorrowedFd<'_>, flags: u32) -> std::io::Result<()> {
    let config = LoopConfig {
        fd: image.as_raw_fd() as u32,
        block_size: 0,
        info_begin: [0; 5],
        info_kinds: [0; 3],
        flags,
        info_end: [0; 176],
        reserved: [0; 8],
    };
    // SAFETY: `config` has the size and layout of the kernel's structure, and lives during the
    // call, which only reads it.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_loop_device_detaches_after_the_last_close() {
        let image = tempfile::tempfile_in(std::env::temp_dir()).unwrap();
        image.set_len(1 << 20).unwrap();
        let device = match LoopDevice::new(image.as_fd(), false) {
            Ok(device) => device,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let size: u64 = std::fs::read_to_string(device.setting("size").unwrap())
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        assert_eq!(size * 512, 1 << 20);
        let backing = device.setting("loop/backing_file").unwrap();
        assert!(backing.exists());
        drop(device);
        // The kernel detaches it a moment later.
        let start = std::time::Instant::now();
        while backing.exists() && start.elapsed().as_secs() < 10 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(!backing.exists());
    }
}
