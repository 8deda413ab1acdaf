//! What the figures were measured on, and what was warm.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Outcome;
use crate::bench::Bench;
use crate::grounds;

/// What one benchmark says and others don't.
#[derive(Clone, Copy, Debug)]
pub struct Remarks<'a> {
    pub facts: &'a [Fact<'a>],
    /// What a single figure is of.
    pub each: &'a str,
    /// What is emptied before something is cold.
    pub cold: &'a str,
    /// Who is not here to be measured.
    pub missing: &'a [&'a str],
}

/// Something about the machine that only some figures depend on.
#[derive(Clone, Debug)]
pub struct Fact<'a> {
    /// Its name for programs.
    pub key: &'a str,
    /// And for people.
    pub name: &'a str,
    pub value: String,
}

/// The same for programs.
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

/// The first words of a report, and the first line of the raw figures.
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
    let file_system = grounds::kind(&options.folder).unwrap_or("a file system of another kind");
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
        "- {} rounds that count{}; subjects in turns; a ratio is that of the same round",
        options.rounds,
        if options.quick { "" } else { ", after one that does not" }
    );
    println!("- figures are medians, least and most in parentheses; each is of {}", remarks.each);
    limits(bench, remarks);
    let facts = remarks.facts.iter().map(|fact| (fact.key, fact.value.as_str())).collect();
    let (file_system, rounds, quick) = (file_system.into(), options.rounds, options.quick);
    let machine = Machine { machine, kernel, file_system, facts, rounds, quick, evermap };
    bench.raw.write(&machine)
}

/// What a file of the kernel says, which is nothing where there is none.
pub fn text_of(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

/// What can't be had here, and what is done about the host's memory.
fn limits<Own>(bench: &Bench<Own>, remarks: &Remarks<'_>) {
    let missing = remarks.missing;
    match bench.can_drop {
        true => println!(
            "- cold: {}; the host of a virtual machine may have the disk's blocks all the same",
            remarks.cold
        ),
        false => println!("- **cold figures are skipped**: emptying the page cache takes root"),
    }
    if !bench.can_mount {
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
