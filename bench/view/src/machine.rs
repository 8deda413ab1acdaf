//! Prints a description of the machine.

use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::command::Evermap;
use crate::environment::Walls;
use crate::pages::Page;

pub fn describe(pages: &[Page], walls: &Walls, evermap: Option<&Evermap>) -> Outcome {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let processors = read("/proc/cpuinfo");
    let model = processors.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name);
    let count = std::thread::available_parallelism()?;
    let memory = read("/proc/meminfo");
    let memory = memory.lines().next().unwrap_or_default();
    println!(
        "- {count} processors, {model}; {}",
        memory.split_whitespace().collect::<Vec<_>>().join(" ")
    );
    println!("- Linux {}", read("/proc/sys/kernel/osrelease"));
    println!("- disk: {} ({})", file_system(&disk_folder()), disk_folder().display());
    println!("- load before the start: {}", read("/proc/loadavg"));
    let bytes: u64 = pages.iter().map(|page| page.bytes).sum();
    println!("- pages: {} of {bytes} bytes", pages.len());
    println!("- programs, libraries and fonts in the page cache, unless noted");
    match walls.no_network {
        true => {
            println!("- remote resources are unreachable for all: the programs have no network")
        }
        false => println!("- **the programs have the network, and may wait for remote resources**"),
    }
    match evermap {
        Some(evermap) => println!("- evermap: {}", evermap.version()?),
        None => println!("- **evermap itself is not measured** (EVERMAP_COMMAND=none)"),
    }
    Ok(())
}

/// Folder on the disk to measure.
pub fn disk_folder() -> PathBuf {
    std::env::var_os("EVERMAP_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

pub fn file_system(path: &Path) -> &'static str {
    let Ok(about) = rustix::fs::statfs(path) else { return "unknown" };
    match about.f_type {
        libc::EXT4_SUPER_MAGIC => "ext4",
        libc::XFS_SUPER_MAGIC => "xfs",
        libc::BTRFS_SUPER_MAGIC => "btrfs",
        libc::TMPFS_MAGIC => "tmpfs",
        _ => "a file system of another kind",
    }
}

pub fn is_in_memory(path: &Path) -> bool {
    file_system(path) == "tmpfs"
}
