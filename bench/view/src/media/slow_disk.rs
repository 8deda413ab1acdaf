//! Slow disk: ext4 on a loop device on the file of the model (`disk_model.rs`). It is remounted
//! before each process, so that nothing of it is in the page cache, directories and metadata
//! included.
//!
//! The kernel treats it like any disk, with default read-ahead. Mounting needs root; without it the
//! medium is reported as skipped.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use super::Medium;
use super::disk_model::{BYTES_PER_SECOND, FILE, SEEK};
use crate::Outcome;
use crate::environment::{Walls, find_program};
use crate::process::Running;

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
    pub fn new(walls: &Walls) -> Outcome<SlowDisk> {
        for program in ["mkfs.ext4", "mount", "umount"] {
            if find_program(program).is_none() {
                return Err(format!("`{program}` is not installed").into());
            }
        }
        if !Path::new("/dev/fuse").exists() || !walls.private_mounts {
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
        let mut command = Command::new("mkfs.ext4");
        command
            .args(["-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard"])
            .arg(disk.image());
        run(command)?;
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
        let mut server = Running::start(command)?;
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
        let mut command = Command::new("mount");
        // The loop device is detached by the unmount.
        command.args(["-o", "loop,noatime"]).arg(self.image()).arg(self.files.path());
        run(command)?;
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

/// Runs a system tool in the normal environment.
fn run(mut command: Command) -> Outcome {
    let result = command.stdin(Stdio::null()).output()?;
    match result.status.success() {
        true => Ok(()),
        false => {
            let stderr = String::from_utf8_lossy(&result.stderr).trim().to_string();
            Err(format!("{}: {stderr}", command.get_program().display()).into())
        }
    }
}
