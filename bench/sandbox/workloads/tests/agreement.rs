//! Runs every workload at a small scale with the real programs: all variants must reach the same
//! result.
//!
//! Workloads run natively, and also as guests if `EVERMAP_GUEST_RUNNER` names a program that runs
//! them: `RUNNER MODULE DATA STORE ARGUMENTS...` runs the module with these arguments, the folder
//! `DATA` as its `.`, and heaps in `STORE`. `EVERMAP_GUEST_MODULE` is the module.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Values that a step printed, by name.
type Figures = BTreeMap<String, String>;

/// Environment that runs the programs.
enum Machine {
    Native,
    Guest { runner: String, module: String },
}

struct Bench {
    folder: TempDir,
    machine: Machine,
}

impl Bench {
    fn new(machine: Machine) -> Bench {
        let bench = Bench { folder: tempfile::tempdir().unwrap(), machine };
        let wordnet = bench.path("wordnet");
        std::fs::create_dir(&wordnet).unwrap();
        std::fs::create_dir(bench.path("data")).unwrap();
        for part in ["noun", "verb", "adj", "adv"] {
            let words =
                "  1 a licence\nheap n 1\nwindow_pane n 1\nguest n 1\nobject n 1\nsnapshot n 1\n";
            std::fs::write(wordnet.join(format!("index.{part}")), words).unwrap();
            std::fs::write(wordnet.join(format!("{part}.exc")), "oxen ox\n").unwrap();
        }
        bench
    }

    /// Path of the data or the store. The store is outside the folder that guests may access.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn generate(&self, sets: &[&str]) -> Figures {
        let mut command = Command::new(env!("CARGO_BIN_EXE_generate"));
        command.args(sets).arg("--data").arg(self.path("data")).args(["--scale", "0.02"]);
        command.arg("--wordnet").arg(self.path("wordnet"));
        command.arg("--source").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
        figures(command.output().unwrap())
    }

    fn command(&self, line: &str) -> Command {
        let mut command = match &self.machine {
            Machine::Native => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_workload"));
                command.args(line.split(' ')).arg("--data").arg(self.path("data"));
                command
            }
            Machine::Guest { runner, module } => {
                let mut command = Command::new(runner);
                command.arg(module).args([self.path("data"), self.path("store")]);
                command.args(line.split(' '));
                command
            }
        };
        command.env("EVERMAP_STORE", self.path("store"));
        // Keeps the user's registry of addresses unchanged.
        command.env("XDG_STATE_HOME", self.path("state"));
        command
    }

    fn run(&self, line: &str) -> Figures {
        figures(self.command(line).output().unwrap())
    }

    /// Returns the checksum of a step.
    fn checksum(&self, line: &str) -> String {
        let figures = self.run(line);
        let checksum = figures.iter().find(|(name, _)| name.ends_with(".checksum"));
        checksum.unwrap_or_else(|| panic!("`{line}` has no checksum")).1.clone()
    }
}

fn figures(output: Output) -> Figures {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let parts: Vec<&str> = line.split(' ').collect();
        let [name, value, unit] = parts[..] else {
            panic!("`{line}`: expected a name, a value and a unit")
        };
        assert!(name.split('.').count() >= 3 && !unit.is_empty(), "{line}");
        (name.to_string(), value.to_string())
    };
    text.lines().map(line).collect()
}

/// Checks a claim natively, and as a guest if that is possible.
fn everywhere(claim: impl Fn(&Bench) -> Vec<String>) {
    let native = claim(&Bench::new(Machine::Native));
    let runner = std::env::var("EVERMAP_GUEST_RUNNER").ok();
    let module = std::env::var("EVERMAP_GUEST_MODULE").ok();
    match (runner, module) {
        (Some(runner), Some(module)) => {
            assert_eq!(claim(&Bench::new(Machine::Guest { runner, module })), native);
        }
        _ => eprintln!(
            "EVERMAP_GUEST_RUNNER and EVERMAP_GUEST_MODULE are not set: not tested as guests"
        ),
    }
}

/// Asserts that all results are equal.
fn same(results: Vec<String>) -> Vec<String> {
    assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
    results
}

const DNA: &str = "--bytes 300000 --k 1,6,18";

#[test]
fn dna_is_the_same_for_any_block_size_and_in_heaps() {
    everywhere(|bench| {
        let mut all = Vec::new();
        for workload in ["fasta", "reverse-complement", "k-nucleotide"] {
            let mut results = Vec::new();
            for block in [512, 4096, 65536] {
                let line = format!("{workload} file run {DNA} --block-bytes {block}");
                results.push(bench.checksum(&line));
            }
            results.push(bench.checksum(&format!("{workload} heap run {DNA}")));
            // Runs again over the existing output.
            results.push(bench.checksum(&format!("{workload} heap run {DNA}")));
            all.extend(same(results));
        }
        all
    });
}

#[test]
fn the_same_words_are_misspelled_for_any_block_size_and_in_a_heap() {
    everywhere(|bench| {
        bench.generate(&["words", "text"]);
        let mut results: Vec<String> = [1, 512, 4096, 65536]
            .map(|block| bench.checksum(&format!("spell-check file run --block-bytes {block}")))
            .into();
        for _ in 0..2 {
            bench.run("spell-check heap prepare");
            results.push(bench.checksum("spell-check heap run"));
        }
        same(results)
    });
}

#[test]
fn all_interfaces_compress_a_cache_to_the_same_bytes() {
    everywhere(|bench| {
        let made = bench.generate(&["cache"]);
        assert_eq!(
            (&*made["generate.cache.files"], &*made["generate.cache.bytes"]),
            ("60", "8800000")
        );
        let mut results: Vec<String> = [512, 65536]
            .map(|block| {
                bench.checksum(&format!("snappy posix run --no-durable --block-bytes {block}"))
            })
            .into();
        results.push(bench.checksum("snappy mmap run"));
        bench.run("snappy heap prepare");
        for _ in 0..2 {
            results.push(bench.checksum("snappy heap run"));
        }
        same(results)
    });
}

#[test]
fn mails_are_classified_alike_from_each_storage_of_the_model() {
    everywhere(|bench| {
        bench.generate(&["mail"]);
        let mut results = Vec::new();
        for variant in ["compact", "postcard", "heap"] {
            let corpus = "--mails 40 --categories 7";
            let prepared = bench.run(&format!("classifier {variant} prepare {corpus}"));
            assert_eq!(prepared[&format!("classifier.{variant}.prepare.categories")], "7");
            let run = bench.run(&format!("classifier {variant} run"));
            let figure = |name: &str| run[&format!("classifier.{variant}.run.{name}")].clone();
            let right: u64 = figure("right").parse().unwrap();
            // So few posts teach little; random guesses would give six.
            assert!(figure("mails") == "40" && right > 12, "{right} of 40");
            let trained = &prepared[&format!("classifier.{variant}.prepare.checksum")];
            results.push(format!("{trained} {}", figure("checksum")));
        }
        same(results)
    });
}

#[test]
fn a_hash_map_has_the_same_entries_in_a_file_and_in_a_heap() {
    everywhere(|bench| {
        let size = "--entries 20000 --lookups 5000";
        let mut results = Vec::new();
        for variant in ["file", "heap", "heap"] {
            bench.run(&format!("hash-map {variant} prepare {size}"));
            results.push(bench.checksum(&format!("hash-map {variant} run {size}")));
        }
        assert_ne!(results[0], "0000000000000000", "a key is missing");
        same(results)
    });
}

#[test]
fn calls_write_and_read_the_same_bytes_in_a_file_and_in_a_heap() {
    everywhere(|bench| {
        let result = |variant: &str| {
            let figures = bench.run(&format!("calls {variant} run --bytes 200000 --rounds 1"));
            let name = |what: &str| format!("calls.{variant}.run.{what}");
            assert!(
                figures.contains_key(&name("read_512"))
                    && figures.contains_key(&name("write_65536"))
            );
            format!("{} {}", figures[&name("checksum")], figures[&name("seen_checksum")])
        };
        same(vec![result("file"), result("heap")])
    });
}

#[test]
fn missing_data_is_named_with_the_command_that_makes_it() {
    let bench = Bench::new(Machine::Native);
    let stderr = |line: &str| {
        let output = bench.command(line).output().unwrap();
        assert!(!output.status.success(), "`{line}` works without data");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(stderr("k-nucleotide file run").contains("fasta"));
    assert!(stderr("spell-check heap run").contains("spell-check"));
    assert!(stderr("hash-map file prepare --entries 0").contains("--entries 0"));
    assert!(stderr("hash-map mmap run").contains("`prepare` and `run` of `file` and `heap`"));
    assert!(stderr("sort file run").contains("k-nucleotide"));
}
