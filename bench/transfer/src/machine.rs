//! What the figures were measured on, and what was warm.

use common::Outcome;
use common::grounds;
use serde::Serialize;

use crate::bench::Bench;

/// The same for programs.
#[derive(Debug, Serialize)]
pub struct Machine {
    machine: String,
    kernel: String,
    file_system: String,
    congestion_control: String,
    rounds: usize,
    quick: bool,
    evermap: Option<String>,
}

pub fn describe(bench: &Bench, missing: &[&str], can_mount: bool) -> Outcome<Machine> {
    let options = &bench.options;
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let processors = read("/proc/cpuinfo");
    let model = processors.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name);
    let count = std::thread::available_parallelism()?;
    let memory = read("/proc/meminfo");
    let memory = memory.lines().next().unwrap_or_default();
    let memory = memory.split_whitespace().collect::<Vec<_>>().join(" ");
    let machine = format!("{count} processors, {model}; {memory}");
    let kernel = read("/proc/sys/kernel/osrelease");
    let file_system = grounds::kind(&options.folder).unwrap_or("a file system of another kind");
    println!("- {machine}");
    println!("- Linux {kernel}");
    println!("- disk: {file_system} ({})", options.folder.display());
    let congestion_control = read("/proc/sys/net/ipv4/tcp_congestion_control");
    println!("- TCP's congestion control: {congestion_control}");
    println!("- load before the start: {}", read("/proc/loadavg"));
    let evermap = options.evermap.as_ref().map(|path| path.display().to_string());
    match &options.evermap {
        Some(path) => println!("- evermap: {}", version(path)?),
        None => println!("- **evermap itself is not measured**: peers alone"),
    }
    println!("- system calls: {}", bench.counter.describe());
    println!(
        "- {} rounds that count{}; subjects in turns; a ratio is that of the same round",
        options.rounds,
        if options.quick { "" } else { ", after one that does not" }
    );
    println!(
        "- figures are medians, least and most in parentheses; each is of a whole new process"
    );
    limits(bench, missing, can_mount);
    let rounds = options.rounds;
    Ok(Machine {
        machine,
        kernel,
        file_system: file_system.into(),
        congestion_control,
        rounds,
        quick: options.quick,
        evermap,
    })
}

/// What can't be had here, and what is done about the host's memory.
fn limits(bench: &Bench, missing: &[&str], can_mount: bool) {
    match bench.can_drop {
        true => println!(
            "- cold: the page cache was emptied, then programs and their libraries were read again; the host of a \
             virtual machine may have the disk's blocks all the same"
        ),
        false => println!("- **cold figures are skipped**: emptying the page cache takes root"),
    }
    if !can_mount {
        println!("- **other file systems than the folder's are skipped**: mounting takes root");
    }
    match bench.options.warm_memory {
        true => println!(
            "- the host of a virtual machine takes free memory away and gives it back slowly: as much as a step needs \
             is touched and freed before it"
        ),
        false => println!(
            "- memory is as it is (EVERMAP_BENCH_MEMORY=0): a host that has to give it first costs time"
        ),
    }
    if !missing.is_empty() {
        println!("- **not installed, and skipped**: {}", missing.join(", "));
        eprintln!("not installed, and skipped: {}", missing.join(", "));
    }
    if bench.options.quick {
        println!("- **quick: files are small; these figures only show that everything works**");
    }
}

fn version(path: &std::path::Path) -> Outcome<String> {
    let output = std::process::Command::new(path)
        .arg("--version")
        .output()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or("of no version").to_string())
}
