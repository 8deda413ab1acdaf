//! Describes the machine of a run, and which caches were warm.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::Outcome;
use crate::bench::Bench;
use crate::volumes;

/// Remarks of one area about its figures.
#[derive(Clone, Debug, Default)]
pub struct Remarks<'a> {
    pub facts: &'a [Fact<'a>],
    /// Remarks on the method of measuring.
    pub notes: Vec<String>,
    /// Peers that are not installed.
    pub missing: &'a [&'a str],
}

/// Property of the machine that matters to one area only.
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
    let machine = processors()?;
    let kernel = text_of("/proc/sys/kernel/osrelease");
    let file_system = volumes::kind(&options.folder).unwrap_or("a file system of another kind");
    let warning = match file_system {
        "tmpfs" => ": nothing is durable there, set EVERMAP_BENCH_DIR",
        _ => "",
    };
    println!("- {machine}");
    println!("- Linux {kernel}");
    println!("- disk: {file_system}{warning} ({})", options.folder.display());
    for Fact { name, value, .. } in remarks.facts {
        println!("- {name}: {value}");
    }
    println!("- load before the start: {}", text_of("/proc/loadavg"));
    match &options.evermap {
        Some(path) => println!("- evermap: {}", version(path)?),
        None if options.command => {
            println!("- **evermap itself is not measured**: peers alone");
        }
        None => println!("- evermap: {}, linked into this program", env!("CARGO_PKG_VERSION")),
    }
    remarks.notes.iter().for_each(|note| println!("- {note}"));
    if !remarks.missing.is_empty() {
        println!("- **not installed, and skipped**: {}", remarks.missing.join(", "));
        eprintln!("not installed, and skipped: {}", remarks.missing.join(", "));
    }
    if options.quick {
        println!("- **quick: the work is small; these figures only show that everything works**");
    }
    let evermap = options.evermap.as_ref().map(|path| path.display().to_string());
    let facts = remarks.facts.iter().map(|fact| (fact.key, fact.value.as_str())).collect();
    let (file_system, rounds, quick) = (file_system.into(), options.rounds, options.quick);
    let machine = Machine { machine, kernel, file_system, facts, rounds, quick, evermap };
    bench.raw.write(&machine)
}

/// Returns the notes of areas whose subjects compete in turns. `each` is the subject of a single
/// figure, `cold` names the caches that are emptied before a cold step.
pub fn notes<Own>(bench: &Bench<Own>, each: &str, cold: &str) -> Vec<String> {
    let mut notes = vec![format!("system calls: {}", bench.counter.describe())];
    notes.extend(turns(bench, each));
    notes.push(match bench.can_drop {
        true => {
            format!("cold: {cold}; the host of a virtual machine may still cache the disk's blocks")
        }
        false => "**cold figures are skipped**: emptying the page cache needs root".to_string(),
    });
    if !bench.can_mount {
        let what = "**file systems other than the folder's are skipped**: mounting needs root";
        notes.push(what.to_string());
    }
    notes
}

/// Returns the notes on rounds, figures and memory.
pub fn turns<Own>(bench: &Bench<Own>, each: &str) -> [String; 3] {
    let options = &bench.options;
    let warming = if options.quick { "" } else { ", after one that does not" };
    let memory = match options.warm_memory {
        true => {
            "the host of a virtual machine takes free memory and returns it slowly: before each step, \
             as much memory as the step needs is touched and freed"
        }
        false => {
            "memory is not prepared (EVERMAP_BENCH_MEMORY=0): waiting for the host's memory is in the \
             figures"
        }
    };
    [
        format!(
            "{} rounds that count{warming}; subjects in turns; a ratio compares figures of the same round",
            options.rounds
        ),
        format!("figures are medians, minimum and maximum in parentheses; each is of {each}"),
        memory.to_string(),
    ]
}

/// Returns the text of a kernel file, or an empty string if the file is missing.
pub fn text_of(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

/// Returns number and model of the processors, and the memory.
fn processors() -> Outcome<String> {
    let processors = text_of("/proc/cpuinfo");
    let model = processors.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name);
    let memory = text_of("/proc/meminfo");
    let memory = memory.lines().next().unwrap_or_default();
    let memory = memory.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(format!("{} processors, {model}; {memory}", std::thread::available_parallelism()?))
}

fn version(path: &Path) -> Outcome<String> {
    let output = std::process::Command::new(path)
        .arg("--version")
        .output()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or("of no version").to_string())
}
