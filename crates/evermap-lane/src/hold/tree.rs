//! The files of control groups, behind a trait: what is done to them is tested against a kernel that is simulated, with the rules and
//! refusals of both versions, where this machine has only one.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::process::Stat;

/// No file of a control group is longer, but for lists of tasks: a kernel has four million at most, with up to eight bytes each.
const BYTES_MAX: u64 = 32 << 20;

/// What is done with control groups.
pub(crate) trait Tree {
    /// The text of a file, without blanks around it.
    fn read(&self, file: &Path) -> io::Result<String>;
    /// Writes a file by one call: the kernel takes each as one wish.
    fn write(&self, file: &Path, text: &str) -> io::Result<()>;
    /// Makes a group.
    fn make(&self, group: &Path) -> io::Result<()>;
    /// Removes a group, which must be empty.
    fn remove(&self, group: &Path) -> io::Result<()>;
    /// The groups in a group.
    fn groups(&self, group: &Path) -> io::Result<Vec<PathBuf>>;
    /// What tells a group from one that had its name before.
    fn inode(&self, group: &Path) -> io::Result<u64>;
    /// Whether a task is the kernel's.
    fn is_of_kernel(&self, task: u32) -> bool;
}

/// This machine's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files;

impl Tree for Files {
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

    fn is_of_kernel(&self, task: u32) -> bool {
        Stat::of(task).is_some_and(|stat| stat.is_of_kernel())
    }
}

/// The numbers in a list of tasks.
pub(crate) fn tasks(tree: &dyn Tree, file: &Path) -> io::Result<Vec<u32>> {
    let text = tree.read(file)?;
    Ok(text.split_ascii_whitespace().filter_map(|task| task.parse().ok()).collect())
}
