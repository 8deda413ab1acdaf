//! Media for pages and their store: memory, a disk that is cached or cold, a slow disk. Dropping a
//! medium undoes it.

pub mod disk_model;
mod slow_disk;

use std::fs::File;
use std::path::Path;

use tempfile::TempDir;

use harness::files::working;
use harness::volumes;
use harness::{Outcome, caches};

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
        match is_in_memory(Path::new(MEMORY)) {
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
            caches::drop_file(path)?;
            let (resident, all) = caches::resident_pages(&File::open(path)?)?;
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

fn is_in_memory(folder: &Path) -> bool {
    volumes::kind(folder) == Some("tmpfs")
}

fn on_disk() -> Outcome<TempDir> {
    let parent = working();
    if is_in_memory(&parent) {
        let parent = parent.display();
        return Err(
            format!("{parent} is in memory: set EVERMAP_BENCH_DIR to a folder on a disk").into()
        );
    }
    Ok(tempfile::Builder::new().prefix("pages-").tempdir_in(parent)?)
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
        assert_eq!(caches::resident_pages(&File::open(&path).unwrap()).unwrap(), (256, 256));
        disk.prepare().unwrap();
        assert_eq!(caches::resident_pages(&File::open(&path).unwrap()).unwrap(), (0, 256));
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
        assert_eq!(caches::resident_pages(&File::open(&path).unwrap()).unwrap(), (256, 256));
    }
}
