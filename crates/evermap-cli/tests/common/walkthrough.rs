//! Follows a page of documentation as a reader does. A block in another language than `console` is
//! saved under the last name in backticks before it. The lines of `console` blocks that begin with
//! `$ ` run in a shell, and their output must match the lines below them. Other crates' tests
//! include this file.
//!
//! In the expected output, `...` stands for any text, as a line of its own for any lines. A number
//! with a decimal point stands for any number, with the unit after it. The amount of white space
//! between words does not matter. Three kinds of blocks are not followed: `sh` sets up the machine,
//! `text` is output of one machine, and `rust` is part of an example that cargo builds.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Files and commands of a page, in its order.
enum Step {
    File { name: String, contents: String },
    Run { command: String, expected: Vec<String> },
}

/// Follows a page in a directory. `programs` are commands of the page, by the names it uses.
pub fn follow(page: &Path, directory: &Path, programs: &[(&str, &Path)]) {
    let bin = directory.join("bin");
    fs::create_dir_all(&bin).expect("a directory");
    for (name, program) in programs {
        std::os::unix::fs::symlink(program, bin.join(name)).expect("a link");
    }
    let search = std::env::join_paths([bin.as_path(), "/usr/bin".as_ref(), "/bin".as_ref()]);
    let search = search.expect("a search path");
    let text = fs::read_to_string(page).expect("the page");
    let steps = steps(&text);
    let runs = steps.iter().filter(|step| matches!(step, Step::Run { .. })).count();
    assert!(runs > 0, "{}: no commands", page.display());
    for step in steps {
        match step {
            Step::File { name, contents } => {
                let path = directory.join(name);
                fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
                fs::write(path, contents).expect("a file");
            }
            Step::Run { command, expected } => {
                let actual = run(&command, directory, &search);
                let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
                let lines: Vec<&str> = actual.lines().map(str::trim_end).collect();
                let shown = expected.join("\n");
                assert!(
                    lines_match(&expected, &lines),
                    "{}: $ {command}\nexpected:\n{shown}\nprinted:\n{actual}",
                    page.display()
                );
            }
        }
    }
}

/// Returns the output and errors of a shell command that must succeed.
fn run(command: &str, directory: &Path, search: &OsStr) -> String {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(format!("exec 2>&1\n{command}")).current_dir(directory).env_clear();
    shell.env("PATH", search).env("HOME", directory.join("home"));
    shell.stdin(Stdio::null());
    let output = shell.output().expect("a shell");
    let text = String::from_utf8(output.stdout).expect("output in UTF-8");
    assert!(output.status.success(), "$ {command}\n{}\n{text}", output.status);
    text
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut name = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            if let Some((before, _)) = line.rsplit_once('`') {
                name = before.rsplit('`').next().unwrap_or_default().to_string();
            }
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match language {
            "console" => steps.extend(commands(&block)),
            "sh" | "text" | "rust" => {}
            _ => {
                let contents = block.iter().map(|line| format!("{line}\n")).collect();
                steps.push(Step::File { name: name.clone(), contents });
            }
        }
    }
    steps
}

fn commands(block: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => {
                steps.push(Step::Run { command: command.to_string(), expected: Vec::new() });
            }
            (None, Some(Step::Run { command, .. })) if command.ends_with('\\') => {
                *command += &format!("\n{line}");
            }
            (None, Some(Step::Run { expected, .. })) => expected.push(line.trim_end().to_string()),
            (None, _) => panic!("a `console` block begins with `$ `: {line}"),
        }
    }
    steps
}

/// Compares lines of output with the expected ones.
pub fn lines_match(expected: &[&str], actual: &[&str]) -> bool {
    match (expected, actual) {
        ([], _) => actual.is_empty(),
        (["...", rest @ ..], _) => (0..=actual.len()).any(|at| lines_match(rest, &actual[at..])),
        ([first, rest @ ..], [line, more @ ..]) => {
            let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
            words_match(&words(first), &words(line)) && lines_match(rest, more)
        }
        _ => false,
    }
}

fn words_match(expected: &[String], actual: &[String]) -> bool {
    match (expected, actual) {
        ([], _) => actual.is_empty(),
        ([any, rest @ ..], _) if any == "..." => {
            (0..=actual.len()).any(|at| words_match(rest, &actual[at..]))
        }
        ([first, rest @ ..], [word, more @ ..]) => {
            let (number, other) = (bare(first), bare(word));
            if number.contains('.') && is_number(number) && is_number(other) {
                let units = rest.first().zip(more.first());
                let has_units = units.is_some_and(|(a, b)| is_unit(bare(a)) && is_unit(bare(b)));
                let skipped = usize::from(has_units);
                return words_match(&rest[skipped..], &more[skipped..]);
            }
            text_matches(first, word) && words_match(rest, more)
        }
        _ => false,
    }
}

/// Compares two words. `...` within the expected one stands for any text.
fn text_matches(expected: &str, actual: &str) -> bool {
    let Some((start, end)) = expected.split_once("...") else { return expected == actual };
    actual.strip_prefix(start).is_some_and(|rest| {
        let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
        ends.any(|at| text_matches(end, &rest[at..]))
    })
}

/// Removes punctuation around a number or a unit.
fn bare(word: &str) -> &str {
    let end = word.trim_end_matches([',', ';', ':', ')']);
    end.trim_start_matches('(')
}

fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

fn is_unit(word: &str) -> bool {
    let unit = word.strip_suffix("/s").unwrap_or(word);
    ["s", "ms", "us", "µs", "ns", "B", "kB", "MB", "GB", "KiB", "MiB", "GiB", "%"].contains(&unit)
}

/// Returns a page in the project's `docs/tutorials`.
pub fn tutorial(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorials").join(name)
}
