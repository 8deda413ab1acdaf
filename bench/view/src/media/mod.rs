//! Media for pages and their store: memory, a disk that is cached or cold, a slow disk. Dropping a
//! medium undoes it.

pub mod disk_model;
mod slow_disk;

use std::fs::File;
use std::path::Path;

use memmap2::MmapOptions;
use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;

use crate::{Outcome, machine};

pub use slow_disk::SlowDisk;

const MEMORY: &str = "/dev/shm";

pub trait Medium {
    /// Name in tables and figures.
    fn name(&self) -> String;

    /// Folder for pages and store.
    fn folder(&self) -> &Path;

    /// Brings the medium into its state; called before each process.
    fn prepare(&mut self) -> Outcome;
}

/// `tmpfs`, the paper's RAM disk.
pub struct Memory(TempDir);

impl Memory {
    pub fn new() -> Outcome<Memory> {
        match machine::is_in_memory(Path::new(MEMORY)) {
            true => Ok(Memory(tempfile::tempdir_in(MEMORY)?)),
            false => Err(format!("no tmpfs at {MEMORY}").into()),
        }
    }
}

impl Medium for Memory {
    fn name(&self) -> String {
        "memory (tmpfs)".to_string()
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    fn prepare(&mut self) -> Outcome {
        Ok(())
    }
}

/// The machine's disk, with its files in the page cache.
pub struct WarmDisk(TempDir);

impl WarmDisk {
    pub fn new() -> Outcome<WarmDisk> {
        Ok(WarmDisk(on_disk()?))
    }
}

impl Medium for WarmDisk {
    fn name(&self) -> String {
        "disk, in the page cache".to_string()
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    fn prepare(&mut self) -> Outcome {
        Ok(())
    }
}

/// The machine's disk, with none of its files' bytes in the page cache.
pub struct ColdDisk(TempDir);

impl ColdDisk {
    pub fn new() -> Outcome<ColdDisk> {
        Ok(ColdDisk(on_disk()?))
    }
}

impl Medium for ColdDisk {
    fn name(&self) -> String {
        "disk, cold".to_string()
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    fn prepare(&mut self) -> Outcome {
        let (mut kept, mut pages) = (0, 0);
        for_each_file(self.0.path(), &mut |path| {
            let file = File::open(path)?;
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
            let (resident, all) = resident(&file)?;
            kept += resident;
            pages += all;
            Ok(())
        })?;
        match kept * 50 > pages {
            true => Err(format!("the kernel keeps {kept} of {pages} pages in its cache").into()),
            false => Ok(()),
        }
    }
}

fn on_disk() -> Outcome<TempDir> {
    let parent = machine::disk_folder();
    if machine::is_in_memory(&parent) {
        let parent = parent.display();
        return Err(
            format!("{parent} is in memory: set EVERMAP_BENCH_DIR to a folder on a disk").into()
        );
    }
    Ok(tempfile::Builder::new().prefix("evermap-view-bench-").tempdir_in(parent)?)
}

fn for_each_file(folder: &Path, what: &mut dyn FnMut(&Path) -> Outcome) -> Outcome {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let about = path.symlink_metadata()?;
        if about.is_dir() {
            for_each_file(&path, what)?;
        } else if about.is_file() && about.len() > 0 {
            what(&path)?;
        }
    }
    Ok(())
}

/// Returns the pages of a file that are in the page cache, and all its pages.
fn resident(file: &File) -> Outcome<(usize, usize)> {
    let map = MmapOptions::new().map_raw_read_only(file)?;
    let pages = map.len().div_ceil(rustix::param::page_size());
    let mut states = vec![0; pages];
    // SAFETY: the range is mapped, and `states` has a byte for each of its pages.
    let result = unsafe { libc::mincore(map.as_mut_ptr().cast(), map.len(), states.as_mut_ptr()) };
    if result != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok((states.iter().filter(|state| *state & 1 == 1).count(), pages))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_cold_disk_has_nothing_in_the_page_cache() {
        let mut disk = match ColdDisk::new() {
            Ok(disk) => disk,
            Err(reason) => return eprintln!("skipped: {reason}"),
        };
        let path = disk.folder().join("file");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        assert_eq!(resident(&File::open(&path).unwrap()).unwrap(), (256, 256));
        disk.prepare().unwrap();
        assert_eq!(resident(&File::open(&path).unwrap()).unwrap(), (0, 256));
    }

    #[test]
    fn memory_is_never_cold() {
        let mut memory = match Memory::new() {
            Ok(memory) => memory,
            Err(reason) => return eprintln!("skipped: {reason}"),
        };
        let path = memory.folder().join("file");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        memory.prepare().unwrap();
        assert_eq!(resident(&File::open(&path).unwrap()).unwrap(), (256, 256));
    }
}
