//! Runs the program as a user does: in a temporary directory, with a clean environment.
#![allow(dead_code, reason = "each test program uses its own part")]

pub mod programs;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A temporary directory for a test's files and store. The first `parse` makes the store.
pub struct Place {
    directory: tempfile::TempDir,
}

/// Exit code and output of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Place {
        Place { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    /// In memory, where flushes cost nothing.
    pub fn in_memory() -> Place {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Place { directory: directory.expect("a temporary directory") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// Writes a file with a time stamp that is old enough to be relied on.
    pub fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).expect("the file is written");
        set_age(&path, 60);
        path
    }

    /// Returns a command that runs the program in this directory with this store.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.bare(&[]);
        command.arg("--store").arg(self.store()).args(arguments);
        command
    }

    /// Returns a command that runs the program in this directory without `--store`.
    pub fn bare(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evermap"));
        command.env_clear().env("HOME", self.directory.path());
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        command.args(arguments);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().expect("the program runs"))
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(input).expect("the input is written");
        drop(stdin);
        Ran::of(child.wait_with_output().expect("the program ends"))
    }

    /// Runs a command line that must succeed, and returns its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        assert_eq!(ran.err, "", "{arguments:?}");
        ran.out
    }

    /// Runs a command line that must fail with this code and a message that contains `says`.
    pub fn fails(&self, code: i32, says: &str, arguments: &[&str]) {
        let ran = self.run(arguments);
        ran.failed(code, says);
    }

    /// Returns the candidates that the completion script of a shell gets for the last of the words.
    pub fn completions(&self, shell: &str, words: &[&str]) -> String {
        let mut command = self.bare(&["--", "evermap"]);
        command.args(words).env("EVERMAP_COMPLETE", shell);
        command.env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        let ran = Ran::of(command.output().expect("the program runs"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{shell}: {words:?}");
        ran.out
    }

    /// Returns the output of `evermap info --json`.
    pub fn info(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(&["info", "--json", name])).expect("info is JSON")
    }

    pub fn uuid(&self, name: &str) -> String {
        self.info(name)["object"]["uuid"].as_str().expect("a uuid").to_string()
    }

    /// Returns the names of the files in the store and its subdirectories.
    pub fn store_files(&self) -> Vec<String> {
        let mut files = Vec::new();
        for folder in ["", "objects", "building"] {
            for entry in std::fs::read_dir(self.store().join(folder)).expect("a store") {
                let entry = entry.expect("a file");
                files.push(format!("{folder}/{}", entry.file_name().to_string_lossy()));
            }
        }
        files.sort();
        files
    }
}

impl Ran {
    pub fn of(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            err: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        }
    }

    /// Asserts that the run failed with this code and a message that contains `says`.
    pub fn failed(&self, code: i32, says: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        assert!(self.err.starts_with("evermap: ") || self.err.starts_with("error: "), "{self:?}");
        assert!(self.err.contains(says), "{says:?} is not in {self:?}");
        assert!(!names_rust(&self.err), "a message for users names a Rust item: {self:?}");
    }
}

/// Returns true if the text contains the path of a Rust item, such as `Store::open`.
pub fn names_rust(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.match_indices("::")
        .any(|(at, _)| text[..at].ends_with(is_of_name) && text[at + 2..].starts_with(is_of_name))
}

/// A directory and everything below it: the contents of each file, and `None` for each directory.
/// Empty if the directory does not exist.
pub type Contents = std::collections::BTreeMap<PathBuf, Option<Vec<u8>>>;

pub fn contents(directory: &Path) -> Contents {
    let mut found = Contents::new();
    let mut left = vec![directory.to_path_buf()];
    left.retain(|path| path.exists());
    while let Some(at) = left.pop() {
        for entry in std::fs::read_dir(&at).expect("a directory") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => left.push(path),
                false => {
                    let bytes = std::fs::read(&path).expect("a file");
                    found.insert(path, Some(bytes));
                }
            }
        }
        found.insert(at, None);
    }
    found
}

/// Restores a directory to the given contents.
pub fn restore_contents(directory: &Path, contents: &Contents) {
    std::fs::remove_dir_all(directory).expect("the directory is removed");
    for (path, bytes) in contents {
        match bytes {
            None => std::fs::create_dir(path).expect("a directory"),
            Some(bytes) => std::fs::write(path, bytes).expect("a file"),
        }
    }
}

/// Sets a file's time stamp to the given number of seconds ago.
pub fn set_age(path: &Path, seconds: u64) {
    let file = std::fs::File::options().write(true).open(path).expect("the file");
    let stamp = std::time::SystemTime::now() - std::time::Duration::from_secs(seconds);
    file.set_modified(stamp).expect("a time stamp");
}

/// Parses each line as JSON.
pub fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// Returns a page with this many numbered paragraphs, each of which contains `version`.
pub fn page(paragraphs: usize, version: &str) -> String {
    let mut page = format!("<!DOCTYPE html><title>{version}</title><h1>{version}</h1>\n");
    for number in 0..paragraphs {
        page += &format!(
            "<p id=p{number} class='row n{}'>{version} <b>{number}</b></p>\n",
            number % 97
        );
    }
    page
}
