//! Prints a description of the machine, and which caches were warm.

use std::path::Path;

use crate::Outcome;
use crate::options::Options;

pub fn describe(options: &Options) -> Outcome {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let processors = read("/proc/cpuinfo");
    let model = processors.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name);
    let count = std::thread::available_parallelism()?;
    let memory = read("/proc/meminfo");
    let memory = memory.lines().next().unwrap_or_default();
    let memory = memory.split_whitespace().collect::<Vec<_>>().join(" ");
    println!("- {count} processors, {model}; {memory}");
    println!("- Linux {}", read("/proc/sys/kernel/osrelease"));
    println!("- disk: {} ({})", file_system(&options.folder), options.folder.display());
    println!("- load before the start: {}", read("/proc/loadavg"));
    println!(
        "- {} rounds that count, contestants in turns, after one that does not",
        options.rounds
    );
    println!(
        "- warm: programs, compiled modules, data sets and recently written files are in the page cache. \
         Each step is a new process with nothing mapped"
    );
    println!(
        "- figures are medians, minimum and maximum in parentheses; ratios compare figures of the same round"
    );
    if options.quick {
        println!(
            "- **EVERMAP_BENCH_QUICK: data are small; these figures only show that everything works**"
        );
    }
    Ok(())
}

fn file_system(path: &Path) -> &'static str {
    let Ok(about) = rustix::fs::statfs(path) else { return "unknown" };
    match about.f_type {
        libc::EXT4_SUPER_MAGIC => "ext4",
        libc::XFS_SUPER_MAGIC => "xfs",
        libc::BTRFS_SUPER_MAGIC => "btrfs",
        libc::TMPFS_MAGIC => "tmpfs: nothing is durable there, set EVERMAP_BENCH_DIR",
        _ => "a file system of another kind",
    }
}
