//! Slow disk: ext4 on a loop device on the file of the model (`disk_model.rs`). It is remounted
//! before each process, so that nothing of it is in the page cache, directories and metadata
//! included.
//!
//! The kernel treats it like any disk, with default read-ahead. Mounting needs root; without it the
//! medium is reported as skipped.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use super::Medium;
use super::disk_model::{BYTES_PER_SECOND, FILE, SEEK};
use harness::Outcome;
use harness::process::{find_program, tool};
use harness::running::Running;

const TIMEOUT: Duration = Duration::from_secs(10);

pub struct SlowDisk {
    /// True while the file system is mounted.
    mounted: bool,
    files: TempDir,
    model: TempDir,
    model_mounted: bool,
    server: Option<Running>,
}

impl SlowDisk {
    pub fn new(can_mount: bool) -> Outcome<SlowDisk> {
        for program in ["mkfs.ext4", "mount", "umount"] {
            if find_program(program).is_none() {
                return Err(format!("`{program}` is not installed").into());
            }
        }
        if !Path::new("/dev/fuse").exists() || !can_mount {
            return Err("mounting it needs /dev/fuse and root".into());
        }
        let mut disk = SlowDisk {
            mounted: false,
            files: tempfile::tempdir()?,
            model: tempfile::tempdir()?,
            model_mounted: false,
            server: None,
        };
        disk.serve()?;
        // The lazy options write as little as possible: the model holds a gigabyte in memory.
        let options = ["-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard"].map(OsStr::new);
        tool("mkfs.ext4", &[&options[..], &[disk.image().as_os_str()]].concat())?;
        disk.mount()?;
        Ok(disk)
    }

    fn image(&self) -> PathBuf {
        self.model.path().join(FILE)
    }

    fn serve(&mut self) -> Outcome {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["child", "disk"]).arg(self.model.path());
        // A signal of the terminal must not stop the model before the unmount.
        command.process_group(0);
        let mut server = Running::start_family(command)?;
        let start = Instant::now();
        while !self.image().exists() {
            if server.ends_within(Duration::from_millis(10))? || start.elapsed() > TIMEOUT {
                return Err(server.failure("does not mount"));
            }
        }
        self.model_mounted = true;
        self.server = Some(server);
        Ok(())
    }

    fn mount(&mut self) -> Outcome {
        // The loop device is detached by the unmount.
        let options = ["-o", "loop,noatime"].map(OsStr::new);
        let places = [self.image().into_os_string(), self.files.path().into()];
        let places = places.each_ref().map(|place| place.as_os_str());
        tool("mount", &[options, places].concat())?;
        self.mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Outcome {
        unmount(self.files.path(), UnmountFlags::empty())?;
        self.mounted = false;
        Ok(())
    }
}

impl Medium for SlowDisk {
    fn name(&self) -> String {
        let (seek_ms, rate_mb) = (SEEK.as_secs_f64() * 1e3, BYTES_PER_SECOND / 1_000_000);
        format!("slow disk, cold ({seek_ms} ms, {rate_mb} MB/s)")
    }

    fn folder(&self) -> &Path {
        self.files.path()
    }

    fn prepare(&mut self) -> Outcome {
        self.unmount()?;
        self.mount()
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let complain = |what: &Path, error: &dyn std::fmt::Display| {
            eprintln!("{} stays mounted until this process ends: {error}", what.display());
        };
        if self.mounted
            && let Err(error) = unmount(self.files.path(), UnmountFlags::DETACH)
        {
            complain(self.files.path(), &error);
        }
        if self.model_mounted
            && let Err(error) = unmount(self.model.path(), UnmountFlags::DETACH)
        {
            complain(self.model.path(), &error);
        }
        // After the unmount the server ends on its own, once the loop device has released it.
        if let Some(server) = self.server.take() {
            let _ = server.ends_within(TIMEOUT);
        }
    }
}
