//! Copying programs: `evermap copy` with its policy and with each engine, and widely used programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::process::{Job, find_program};

/// All engines of `evermap copy`, as named by `--engine`.
pub const ENGINES: [&str; 12] = [
    "read-write",
    "mmap-write",
    "mmap-direct",
    "sendfile",
    "splice",
    "dual-pipe",
    "dual-pipe-interleaved",
    "copy-file-range",
    "reflink",
    "uring",
    "uring-splice",
    "uring-direct",
];

/// `evermap copy` without an engine: its policy decides.
pub const POLICY: &str = "evermap copy";

/// Copying program.
#[derive(Clone, Debug)]
pub struct Subject {
    pub name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Evermap { program: PathBuf, engine: Option<&'static str>, lanes: Option<u32> },
    Peer { program: PathBuf, peer: &'static Peer },
}

/// Command line of a peer.
#[derive(Debug)]
struct Peer {
    name: &'static str,
    program: &'static str,
    /// Options before the names of source and destination.
    options: &'static [&'static str],
    names: Names,
    /// Options for a whole tree, for peers that can copy one.
    tree: Option<&'static [&'static str]>,
}

/// Form in which a program takes source and destination.
#[derive(Clone, Copy, Debug)]
enum Names {
    Arguments,
    /// The source is an argument; the copy is the standard output.
    ToOutput,
    Dd,
    Socat,
}

static PEERS: [Peer; 9] = [
    Peer { name: "cp", program: "cp", options: &[], names: Names::Arguments, tree: Some(&["-a"]) },
    Peer {
        name: "cp --reflink=never",
        program: "cp",
        options: &["--reflink=never"],
        names: Names::Arguments,
        tree: None,
    },
    Peer { name: "cat", program: "cat", options: &[], names: Names::ToOutput, tree: None },
    Peer { name: "dd bs=1M", program: "dd", options: &["bs=1M"], names: Names::Dd, tree: None },
    Peer { name: "pv", program: "pv", options: &["-q"], names: Names::ToOutput, tree: None },
    Peer {
        name: "rsync -W",
        program: "rsync",
        options: &["-W"],
        names: Names::Arguments,
        tree: Some(&["-a", "-W"]),
    },
    Peer { name: "socat", program: "socat", options: &["-u"], names: Names::Socat, tree: None },
    Peer {
        name: "std::fs::copy",
        program: "std-fs-copy",
        options: &[],
        names: Names::Arguments,
        tree: None,
    },
    Peer {
        name: "xcp",
        program: "xcp",
        options: &["--no-progress"],
        names: Names::Arguments,
        tree: Some(&["--no-progress", "-r"]),
    },
];

/// Plain reader and writer: it copies twice, so `copies` calibrates with it.
static READ_WRITE: Peer =
    Peer { name: "dd bs=128K", program: "dd", options: &["bs=128K"], names: Names::Dd, tree: None };

/// Copy to make.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    pub source: &'a Path,
    pub destination: &'a Path,
    pub synced: bool,
    pub tree: bool,
}

impl Subject {
    /// Returns `evermap copy` at this path, with its policy or an engine, on this many lanes.
    pub fn evermap(program: &Path, engine: Option<&'static str>, lanes: Option<u32>) -> Subject {
        let name = match (engine, lanes) {
            (None, _) => POLICY.to_string(),
            (Some(engine), None) => engine.to_string(),
            (Some(engine), Some(lanes)) => format!("{engine}, {lanes} lanes"),
        };
        Subject { name, kind: Kind::Evermap { program: program.to_path_buf(), engine, lanes } }
    }

    pub fn is_peer(&self) -> bool {
        matches!(self.kind, Kind::Peer { .. })
    }

    /// Returns Evermap's job with a report of the engines: a JSON object on the standard
    /// output.
    pub fn job_with_report(&self, task: Task<'_>, output: &Path) -> Option<Job> {
        if self.is_peer() {
            return None;
        }
        let mut job = self.job(task);
        job.command.arg("--json");
        job.output = Some(output.to_path_buf());
        Some(job)
    }

    /// Returns the program to run, and the copy to sync: Evermap syncs itself, a peer's copy is
    /// synced by this process.
    pub fn job(&self, task: Task<'_>) -> Job {
        match &self.kind {
            Kind::Evermap { program, engine, lanes } => {
                let mut command = Command::new(program);
                command.arg("copy");
                command.args(engine.iter().flat_map(|engine| ["--engine", engine]));
                if let Some(lanes) = lanes {
                    command.args(["--lanes", &lanes.to_string()]);
                }
                command.args(["--durability", if task.synced { "data" } else { "none" }]);
                command.arg(task.source).arg(task.destination);
                Job::new(command)
            }
            Kind::Peer { program, peer } => peer.job(program, task),
        }
    }
}

impl Peer {
    fn job(&self, program: &Path, task: Task<'_>) -> Job {
        let Task { source, destination, synced, tree } = task;
        let mut command = Command::new(program);
        command.args(self.tree.filter(|_| tree).unwrap_or(self.options));
        let mut output = None;
        match self.names {
            Names::Arguments if self.program == "rsync" && tree => {
                // The slash copies the contents of the folder instead of the
                // folder.
                command.arg(source.join("")).arg(destination);
            }
            Names::Arguments => {
                command.arg(source).arg(destination);
            }
            Names::ToOutput => {
                command.arg(source);
                output = Some(destination.to_path_buf());
            }
            Names::Dd => {
                command.arg("status=none");
                command.arg(joined("if=", source)).arg(joined("of=", destination));
            }
            Names::Socat => {
                command.arg(format!("OPEN:{},rdonly", socat_path(source)));
                command.arg(format!("OPEN:{},creat,wronly,trunc", socat_path(destination)));
            }
        }
        let synced = synced.then(|| destination.to_path_buf());
        Job { output, synced, ..Job::new(command) }
    }
}

fn joined(option: &str, path: &Path) -> std::ffi::OsString {
    let mut argument = std::ffi::OsString::from(option);
    argument.push(path);
    argument
}

/// Escapes the characters that socat interprets.
fn socat_path(path: &Path) -> String {
    let mut text = String::new();
    for c in path.to_string_lossy().chars() {
        if ":,!\"'\\([{".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

/// Returns the engines that moved bytes, from evermap's report: `copy-file-range`, or `reflink +
/// read-write`.
pub fn engines_of_report(report: &str) -> Option<String> {
    let report: serde_json::Value = serde_json::from_str(report.lines().next()?).ok()?;
    let used = report.get("engines")?.as_array()?.iter();
    let names: Vec<&str> = used.filter_map(|engine| engine.get("engine")?.as_str()).collect();
    if names.is_empty() { None } else { Some(names.join(" + ")) }
}

/// Returns the installed peers, and the names of the missing ones. Programs of the benchmark itself
/// are in `own_folder`.
pub fn find_peers(own_folder: &Path) -> (Vec<Subject>, Vec<&'static str>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for peer in &PEERS {
        match find(peer, own_folder) {
            Some(subject) => found.push(subject),
            None => missing.push(peer.name),
        }
    }
    (found, missing)
}

/// Returns the peer that copies through a buffer of 128 KiB.
pub fn read_write(own_folder: &Path) -> Option<Subject> {
    find(&READ_WRITE, own_folder)
}

fn find(peer: &'static Peer, own_folder: &Path) -> Option<Subject> {
    let own = own_folder.join(peer.program);
    let program = if own.exists() { Some(own) } else { find_program(peer.program) }?;
    Some(Subject { name: peer.name.to_string(), kind: Kind::Peer { program, peer } })
}

/// Returns Evermap with its policy and with every engine.
pub fn engines(program: &Path) -> Vec<Subject> {
    let engines = ENGINES.iter().map(|engine| Some(*engine));
    let all = std::iter::once(None).chain(engines);
    all.map(|engine| Subject::evermap(program, engine, None)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn line(job: &Job) -> String {
        let words = std::iter::once(job.command.get_program()).chain(job.command.get_args());
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    fn task(synced: bool, tree: bool) -> Task<'static> {
        Task { source: Path::new("/a,b"), destination: Path::new("/c"), synced, tree }
    }

    #[test]
    fn evermap_gets_the_engine_the_lanes_and_the_durability() {
        let program = Path::new("evermap");
        let policy = Subject::evermap(program, None, None).job(task(false, false));
        assert_eq!(line(&policy), "evermap copy --durability none /a,b /c");
        let lanes = Subject::evermap(program, Some("splice"), Some(4));
        assert_eq!(lanes.name, "splice, 4 lanes");
        let job = lanes.job(task(true, false));
        assert_eq!(line(&job), "evermap copy --engine splice --lanes 4 --durability data /a,b /c");
        assert_eq!(job.synced, None);
        assert_eq!(engines(program).len(), 13);
    }

    #[test]
    fn the_engines_are_read_from_the_report() {
        let report = r#"{"size_bytes":1,"engines":[{"engine":"reflink","bytes":1},{"engine":"read-write"}]}"#;
        assert_eq!(engines_of_report(report).unwrap(), "reflink + read-write");
        assert_eq!(engines_of_report(""), None);
        assert_eq!(engines_of_report("{\"engines\":[]}"), None);
        let subject = Subject::evermap(Path::new("evermap"), None, None);
        let job = subject.job_with_report(task(false, false), Path::new("/report")).unwrap();
        assert!(line(&job).ends_with("/a,b /c --json") && job.output == Some("/report".into()));
    }

    #[test]
    fn peers_get_their_usual_arguments_and_are_synced() {
        let peer = |name: &str| PEERS.iter().find(|peer| peer.name == name).unwrap();
        let job = |name: &str, tree| peer(name).job(Path::new(name), task(true, tree));
        assert_eq!(line(&job("cp", false)), "cp /a,b /c");
        assert_eq!(line(&job("cp", true)), "cp -a /a,b /c");
        assert_eq!(line(&job("rsync -W", true)), "rsync -W -a -W /a,b/ /c");
        assert_eq!(line(&job("dd bs=1M", false)), "dd bs=1M bs=1M status=none if=/a,b of=/c");
        assert_eq!(
            line(&job("socat", false)),
            "socat -u OPEN:/a\\,b,rdonly OPEN:/c,creat,wronly,trunc"
        );
        let cat = job("cat", false);
        assert_eq!(cat.output, Some("/c".into()));
        assert_eq!(cat.synced, Some("/c".into()));
    }
}
