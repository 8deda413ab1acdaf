//! File systems of limited size, for tests that fill them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A mounted file system. Unmounted when dropped, also if a test panics.
pub struct Mount {
    pub name: &'static str,
    point: tempfile::TempDir,
    _image: Option<tempfile::NamedTempFile>,
}

impl Mount {
    /// Mounts a new file system. If that is impossible, prints the reason and returns `None`.
    pub fn new(name: &'static str, mebibytes: u64) -> Option<Mount> {
        let directory = env!("CARGO_TARGET_TMPDIR");
        let point = tempfile::tempdir_in(directory).unwrap();
        let at = point.path().to_str().unwrap();
        if name == "tmpfs" {
            let size = format!("size={mebibytes}m");
            return match run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", at]) {
                true => Some(Mount { name, point, _image: None }),
                false => skip("mounting a tmpfs takes root"),
            };
        }
        let image = tempfile::NamedTempFile::new_in(directory).unwrap();
        image.as_file().set_len(mebibytes << 20).unwrap();
        let path = image.path().to_str().unwrap();
        // Few inodes, so that a large, hardly used file system writes nearly nothing.
        if !run(&format!("mkfs.{name}"), &["-q", "-m", "0", "-N", "1024", "-J", "size=4", path]) {
            return skip(&format!("no mkfs.{name}"));
        }
        match run("mount", &["-o", "loop,noinit_itable", path, at]) {
            true => Some(Mount { name, point, _image: Some(image) }),
            false => skip(&format!("mounting {name} takes root and a loop device")),
        }
    }

    /// Mounts one file system of each kind that is available.
    pub fn each(mebibytes: u64) -> Vec<Mount> {
        ["tmpfs", "ext4"].into_iter().filter_map(|name| Mount::new(name, mebibytes)).collect()
    }

    pub fn path(&self) -> &Path {
        self.point.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Fills the file system to its last block.
    pub fn fill(&self) {
        let options = File::options().create(true).append(true).open(self.ballast());
        let mut file = options.unwrap();
        for bytes in [1 << 20, 4096, 512, 1] {
            while file.write_all(&vec![1; bytes]).is_ok() {}
        }
        // ext4 allocates blocks at write-back. All delayed allocations must happen before the test.
        let _ = file.sync_all();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    /// Releases the space that [`fill`](Mount::fill) took.
    pub fn empty(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
        // ext4 reuses blocks only after the journal has committed their release.
        std::fs::File::open(self.path()).and_then(|directory| directory.sync_all()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let at = self.path().to_str().unwrap();
        // Open files of a panicking thread may keep it busy. It is unmounted once they are closed.
        if !run("umount", &[at]) {
            run("umount", &["-l", at]);
        }
    }
}

fn skip<T>(why: &str) -> Option<T> {
    eprintln!("SKIPPED: {why}");
    None
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let command = &mut Command::new(program);
    let status = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
