//! The programs of `examples/libraries`: built into a temporary directory with this build of the
//! library, and run.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::{Display, Formatter};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use evermap_core::tools::{AuditOptions, Confidence, MemoryMap, PointerKind, audit};
use tempfile::TempDir;

use crate::staged::{here, staged};

/// Returns the repository's root.
pub fn repository() -> PathBuf {
    here().join("../..")
}

/// One line of `libraries.txt`.
pub struct Listed {
    pub source: String,
    pub package: String,
    pub format: String,
}

/// Returns all lines of the list.
pub fn list_lines() -> Vec<Listed> {
    let list =
        std::fs::read_to_string(repository().join("examples/libraries/libraries.txt")).unwrap();
    let lines = list.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let fields = lines.map(|line| line.split_whitespace().map(str::to_string).collect());
    fields
        .map(|fields: Vec<String>| match &fields[..] {
            [source, _, package, format, _] => {
                Listed { source: source.clone(), package: package.clone(), format: format.clone() }
            }
            other => panic!("a line of libraries.txt has other fields: {other:?}"),
        })
        .collect()
}

/// Returns the version of an installed Debian or Ubuntu package, without epoch.
pub fn version_of(package: &str) -> Option<String> {
    let query = ["--show", "--showformat=${Version}", package];
    let output = Command::new("dpkg-query").args(query).output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    let version = version.split_once(':').map_or(version.as_str(), |(_, rest)| rest);
    (output.status.success() && !version.is_empty()).then(|| version.to_string())
}

/// Built programs, in a temporary directory.
pub struct Programs {
    directory: TempDir,
    listed: Vec<Listed>,
}

impl Programs {
    /// Builds the programs whose sources begin with one of the prefixes, or all.
    pub fn build(prefixes: &[&str]) -> Programs {
        let directory = tempfile::tempdir().unwrap();
        let evermap = staged().display();
        let output = Command::new(repository().join("examples/libraries/build.sh"))
            .arg(directory.path())
            .args(prefixes)
            .env("EVERMAP_CFLAGS", format!("-Werror -I{evermap}/include"))
            .env("EVERMAP_LIBS", format!("-L{evermap}/lib -levermap -Wl,-rpath,{evermap}/lib"))
            .output()
            .unwrap();
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{said}{errors}");
        for line in said.lines().filter(|line| line.starts_with("skipped:")) {
            eprintln!("SKIPPED{}", line.trim_start_matches("skipped"));
        }
        Programs { directory, listed: list_lines() }
    }

    /// Returns an example by its folder, unless its library isn't installed.
    pub fn get(&self, name: &str) -> Option<Program> {
        let source = self.listed.iter().find(|each| each.source.starts_with(&format!("{name}/")));
        self.by_source(&source.unwrap().source)
    }

    /// Returns a program by its source, unless its library isn't installed.
    pub fn by_source(&self, source: &str) -> Option<Program> {
        let listed = self.listed.iter().find(|each| each.source == source).unwrap();
        let (folder, file) = source.split_once('/').unwrap();
        let name = match folder {
            "trials" => format!("trials-{}", file.split_once('.').unwrap().0),
            _ => folder.to_string(),
        };
        let path = self.directory.path().join(name);
        path.exists().then(|| Program {
            path,
            package: listed.package.clone(),
            format: listed.format.clone(),
        })
    }
}

/// One program.
pub struct Program {
    path: PathBuf,
    pub package: String,
    pub format: String,
}

impl Program {
    /// Returns true if the program can add to a tree. (yyjson's documents never change.)
    pub fn adds(&self) -> bool {
        !self.path.ends_with("yyjson")
    }

    /// Limits the processor time: a library that follows a wild pointer may never return.
    fn command(&self, arguments: &[OsString]) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -c 0; ulimit -t 60; exec \"$@\"", "sh"])
            .arg(&self.path)
            .args(arguments)
            // Older GLibs otherwise keep their own memory pools, which are created before main().
            .env("G_SLICE", "always-malloc")
            // Cargo puts its own directories into the search path for libraries.
            .env_remove("LD_LIBRARY_PATH");
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, arguments: &[OsString]) -> Run {
        let output = self.command(arguments).stdin(Stdio::null()).output().unwrap();
        Run { said: text(&output.stdout), errors: text(&output.stderr), status: output.status }
    }

    /// Parses in an object, and audits it while the parsing process still exists. Returns the files
    /// and stacks of that process that pointers in the object lead to.
    pub fn foreign_targets(&self, text: &str) -> BTreeSet<String> {
        let directory = tempfile::tempdir().unwrap();
        let (store, file) = (directory.path().join("store"), directory.path().join("document"));
        std::fs::write(&file, text).unwrap();
        let arguments = ["build".into(), store.clone().into(), file.into(), "wait".into()];
        let mut builds = self.command(&arguments);
        let mut builder = builds.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(builder.stdout.take().unwrap()).lines();
        let is_done = lines.map(Result::unwrap).any(|line| line.starts_with("file_bytes "));
        assert!(is_done, "{:?} built nothing", self.path);
        let map = MemoryMap::of_process(builder.id()).unwrap();
        let report = audit(&store, "tree", &AuditOptions::new().memory_map(map)).unwrap();
        drop(builder.stdin.take());
        assert!(builder.wait().unwrap().success());
        let foreign = report.findings.into_iter().filter(|finding| {
            finding.kind == PointerKind::Foreign && finding.confidence >= Confidence::Likely
        });
        foreign.map(|finding| finding.to).collect()
    }

    /// Parses in ordinary memory, and queries the tree.
    pub fn parse(&self, text: &str, question: Option<&str>) -> Run {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let mut arguments = vec!["parse".into(), file.path().into()];
        arguments.extend(question.map(OsString::from));
        self.run(&arguments).success()
    }

    /// Parses in an object and removes the source text afterwards.
    pub fn build(&self, text: &str) -> Tree<'_> {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        let file = directory.path().join("document");
        std::fs::write(&file, text).unwrap();
        self.run(&["build".into(), store.clone().into(), file.clone().into()]).success();
        std::fs::remove_file(file).unwrap();
        Tree { program: self, store, _directory: directory }
    }

    /// Builds a tree and walks it in this many processes. Returns the addresses at which they ran.
    pub fn walks_like_a_fresh_parse(
        &self,
        text: &str,
        question: &str,
        walks: usize,
    ) -> BTreeSet<String> {
        let parsed = self.parse(text, Some(question));
        let tree = self.build(text);
        let mut addresses = BTreeSet::from([parsed.value("program_at")]);
        for _ in 0..walks {
            let walked = self.run(&["walk".into(), tree.store.clone().into(), question.into()]);
            assert_eq!(walked.answer(), parsed.answer());
            assert_eq!(walked.value("found"), parsed.value("found"));
            assert_eq!(walked.number("walk_allocations"), 0, "{:?} allocated", self.path);
            addresses.insert(walked.value("program_at"));
        }
        addresses
    }
}

/// A tree in an object in a separate store.
pub struct Tree<'a> {
    program: &'a Program,
    pub store: PathBuf,
    _directory: TempDir,
}

impl Tree<'_> {
    /// Runs the program on the tree in another process.
    pub fn run(&self, mode: &str) -> Run {
        self.program.run(&[mode.into(), self.store.clone().into()])
    }
}

/// Result of a walk, in the words of the table.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Same,
    Differs,
    Refused,
    Died,
}

impl Display for Outcome {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Outcome::Same => "works",
            Outcome::Differs => "wrong answer",
            Outcome::Refused => "refused",
            Outcome::Died => "dies",
        })
    }
}

/// A finished program.
pub struct Run {
    said: String,
    pub errors: String,
    status: ExitStatus,
}

impl Run {
    /// Returns itself after asserting success.
    pub fn success(self) -> Run {
        assert!(self.status.success(), "{}: {}{}", self.status, self.said, self.errors);
        self
    }

    /// Returns the value printed for a name.
    pub fn value(&self, name: &str) -> String {
        let value = self.said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name}: {}{}", self.said, self.errors)).to_string()
    }

    pub fn number(&self, name: &str) -> u64 {
        self.value(name).parse().unwrap()
    }

    /// Returns the answer of a successful walk.
    pub fn answer(&self) -> String {
        assert!(self.status.success(), "{}: {}{}", self.status, self.said, self.errors);
        self.value("answer")
    }

    /// Compares the walk with the expected answer of a fresh parse.
    pub fn outcome(&self, expected: &str) -> Outcome {
        match (self.status.code(), self.status.signal()) {
            (Some(0), _) if self.value("answer") == expected => Outcome::Same,
            (Some(0), _) => Outcome::Differs,
            (_, Some(_)) => Outcome::Died,
            _ => Outcome::Refused,
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
