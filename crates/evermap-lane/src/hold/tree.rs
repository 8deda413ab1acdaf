//! Files of control groups, behind a trait. Tests use a simulated kernel with the rules and
//! refusals of both versions, since a machine usually has only one of them.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::process::Stat;

/// Maximum size of a file. The longest is a list of tasks: at most four million, with up to eight
/// bytes each.
const BYTES_MAX: u64 = 32 << 20;

/// Operations on control groups.
pub(crate) trait Tree {
    /// Reads a file, without surrounding blanks.
    fn read(&self, file: &Path) -> io::Result<String>;
    /// Writes a file with one call, since the kernel treats each call as a complete value.
    fn write(&self, file: &Path, text: &str) -> io::Result<()>;
    /// Makes a group.
    fn make(&self, group: &Path) -> io::Result<()>;
    /// Removes an empty group.
    fn remove(&self, group: &Path) -> io::Result<()>;
    /// Lists the groups in a group.
    fn groups(&self, group: &Path) -> io::Result<Vec<PathBuf>>;
    /// Returns the inode, which tells a group from an earlier one of its name.
    fn inode(&self, group: &Path) -> io::Result<u64>;
    /// Returns true for kernel threads.
    fn is_kernel_thread(&self, task: u32) -> bool;
}

/// Control groups of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RealTree;

impl Tree for RealTree {
    fn read(&self, file: &Path) -> io::Result<String> {
        let mut text = String::new();
        io::Read::read_to_string(&mut io::Read::take(fs::File::open(file)?, BYTES_MAX), &mut text)?;
        Ok(text.trim().to_owned())
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        fs::File::options().write(true).open(file)?.write_all(text.as_bytes())
    }

    fn make(&self, group: &Path) -> io::Result<()> {
        fs::create_dir(group)
    }

    fn remove(&self, group: &Path) -> io::Result<()> {
        fs::remove_dir(group)
    }

    fn groups(&self, group: &Path) -> io::Result<Vec<PathBuf>> {
        let mut groups = Vec::new();
        for entry in fs::read_dir(group)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                groups.push(entry.path());
            }
        }
        Ok(groups)
    }

    fn inode(&self, group: &Path) -> io::Result<u64> {
        Ok(fs::symlink_metadata(group)?.ino())
    }

    fn is_kernel_thread(&self, task: u32) -> bool {
        Stat::of(task).is_some_and(|stat| stat.is_kernel_thread())
    }
}

/// Reads a list of tasks.
pub(crate) fn tasks(tree: &dyn Tree, file: &Path) -> io::Result<Vec<u32>> {
    let text = tree.read(file)?;
    Ok(text.split_ascii_whitespace().filter_map(|task| task.parse().ok()).collect())
}
