//! Prints a description of the machine.

use std::ffi::CString;
use std::path::Path;

use crate::corpus::Corpus;
use crate::{Outcome, files};

pub fn describe(corpus: &Corpus) -> Outcome {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let processors = read("/proc/cpuinfo");
    let model = processors.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name);
    let count = std::thread::available_parallelism()?;
    println!("- {count} processors, {model}; {}", first_line(&read("/proc/meminfo")));
    println!("- Linux {}", read("/proc/sys/kernel/osrelease"));
    println!("- files on {}", file_system(&files::parent())?);
    println!("- load before the start: {}", read("/proc/loadavg"));
    let (pages, bytes) = (corpus.html.len(), corpus.html_bytes());
    println!("- documents: {}: {pages} pages of {bytes} bytes", corpus.folders);
    Ok(())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn file_system(path: &Path) -> Outcome<String> {
    let name = CString::new(files::text(path)?)?;
    // SAFETY: all-zero bytes are a valid `statfs`, and the name is a zero-terminated string.
    let (result, about) = unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        (libc::statfs(name.as_ptr(), &mut about), about)
    };
    if result != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let kind = match about.f_type {
        libc::EXT4_SUPER_MAGIC => "ext4",
        libc::XFS_SUPER_MAGIC => "xfs",
        libc::BTRFS_SUPER_MAGIC => "btrfs",
        libc::TMPFS_MAGIC => "tmpfs: nothing is durable there, set EVERMAP_BENCH_DIR",
        _ => "a file system of another kind",
    };
    Ok(format!("{kind} ({})", path.display()))
}

/// Empties the kernel's page, inode and directory caches. Needs root.
pub fn drop_caches() -> std::io::Result<()> {
    // SAFETY: `sync` takes no arguments. It writes dirty pages, which would not be dropped.
    unsafe { libc::sync() };
    std::fs::write("/proc/sys/vm/drop_caches", "3")
}
