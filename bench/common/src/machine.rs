//! Describes the machine of a run, and which caches were warm.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Outcome;
use crate::bench::Bench;
use crate::volumes;

/// Remarks of one benchmark about its figures.
#[derive(Clone, Copy, Debug)]
pub struct Remarks<'a> {
    pub facts: &'a [Fact<'a>],
    /// Subject of a single figure.
    pub each: &'a str,
    /// Caches that are emptied before a cold step.
    pub cold: &'a str,
    /// Peers that are not installed.
    pub missing: &'a [&'a str],
}

/// Property of the machine that matters to this benchmark only.
#[derive(Clone, Debug)]
pub struct Fact<'a> {
    /// Key in the raw figures.
    pub key: &'a str,
    /// Name in the report.
    pub name: &'a str,
    pub value: String,
}

/// Description of the machine in the raw figures.
#[derive(Debug, Serialize)]
struct Machine<'a> {
    machine: String,
    kernel: String,
    file_system: String,
    #[serde(flatten)]
    facts: BTreeMap<&'a str, &'a str>,
    rounds: usize,
    quick: bool,
    evermap: Option<String>,
}

/// Prints the head of a report, and writes the first line of the raw figures.
pub fn describe<Own>(bench: &mut Bench<Own>, remarks: &Remarks<'_>) -> Outcome {
    let options = &bench.options;
    let processors = text_of("/proc/cpuinfo");
    let model = processors.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name);
    let count = std::thread::available_parallelism()?;
    let memory = text_of("/proc/meminfo");
    let memory = memory.lines().next().unwrap_or_default();
    let memory = memory.split_whitespace().collect::<Vec<_>>().join(" ");
    let machine = format!("{count} processors, {model}; {memory}");
    let kernel = text_of("/proc/sys/kernel/osrelease");
    let file_system = volumes::kind(&options.folder).unwrap_or("a file system of another kind");
    println!("- {machine}");
    println!("- Linux {kernel}");
    println!("- disk: {file_system} ({})", options.folder.display());
    for Fact { name, value, .. } in remarks.facts {
        println!("- {name}: {value}");
    }
    println!("- load before the start: {}", text_of("/proc/loadavg"));
    let evermap = options.evermap.as_ref().map(|path| path.display().to_string());
    match &options.evermap {
        Some(path) => println!("- evermap: {}", version(path)?),
        None => println!("- **evermap itself is not measured**: peers alone"),
    }
    println!("- system calls: {}", bench.counter.describe());
    println!(
        "- {} rounds that count{}; subjects in turns; a ratio compares figures of the same round",
        options.rounds,
        if options.quick { "" } else { ", after one that does not" }
    );
    println!(
        "- figures are medians, minimum and maximum in parentheses; each is of {}",
        remarks.each
    );
    limits(bench, remarks);
    let facts = remarks.facts.iter().map(|fact| (fact.key, fact.value.as_str())).collect();
    let (file_system, rounds, quick) = (file_system.into(), options.rounds, options.quick);
    let machine = Machine { machine, kernel, file_system, facts, rounds, quick, evermap };
    bench.raw.write(&machine)
}

/// Returns the text of a kernel file, or an empty string if the file is missing.
pub fn text_of(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

/// Prints what cannot be measured here, and how the host's memory is treated.
fn limits<Own>(bench: &Bench<Own>, remarks: &Remarks<'_>) {
    let missing = remarks.missing;
    match bench.can_drop {
        true => println!(
            "- cold: {}; the host of a virtual machine may still cache the disk's blocks",
            remarks.cold
        ),
        false => println!("- **cold figures are skipped**: emptying the page cache needs root"),
    }
    if !bench.can_mount {
        println!("- **file systems other than the folder's are skipped**: mounting needs root");
    }
    match bench.options.warm_memory {
        true => println!(
            "- the host of a virtual machine takes free memory and returns it slowly: before each step, as much \
                         memory as the step needs is touched and freed"
        ),
        false => println!(
            "- memory is not prepared (EVERMAP_BENCH_MEMORY=0): waiting for the host's memory is in the figures"
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
