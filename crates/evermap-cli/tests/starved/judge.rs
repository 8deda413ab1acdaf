//! Runs one call under a limit, and checks its exit code, its message, and the state it leaves.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cases::{Case, prepare};
use crate::mount::Mount;

/// Maximum time of a run. A hang is a failure.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Words that occur in remedies.
const REMEDIES: [&str; 9] =
    ["raise", "free ", "ulimit", "elsewhere", "another disk", "make room", "remove ", "--", "see "];

/// The limited resource, in bytes.
#[derive(Debug, Clone, Copy)]
pub enum Limit {
    None,
    FileSize(u64),
    Addresses(u64),
    Data(u64),
    Stack(u64),
}

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    Done,
    Refused,
}

/// State of a directory: the documents of its store, and its other files.
#[derive(Debug, Clone, PartialEq)]
struct State {
    documents: Vec<String>,
    files: BTreeMap<String, Vec<u8>>,
}

/// A directory with a store and files. Each run gets a copy of it.
pub struct Prepared {
    directory: tempfile::TempDir,
    old: State,
    new: Mutex<HashMap<&'static [&'static str], State>>,
    runs: AtomicUsize,
}

impl Prepared {
    pub fn new(within: &Path) -> Prepared {
        let directory = tempfile::tempdir_in(within).or_else(|_| tempfile::tempdir()).unwrap();
        let template = directory.path().join("template");
        std::fs::create_dir(&template).unwrap();
        prepare(&template, |arguments| {
            let ran = end(command(&template, arguments, Limit::None).spawn().unwrap());
            assert_eq!(ran.code, Ok(0), "{arguments:?}: {}", ran.err);
        });
        let old = state(&template).unwrap();
        Prepared { directory, old, new: Mutex::default(), runs: AtomicUsize::new(0) }
    }

    /// Returns the lowest limit with which the system can start the program.
    pub fn minimum_to_start(&self, limit: fn(u64) -> Limit) -> u64 {
        let starts = |kib: u64| {
            let ran = command(self.directory.path(), &["--version"], limit(kib << 10)).spawn();
            // Under the lowest limits `exec` itself fails.
            ran.is_ok_and(|child| matches!(end(child).code, Ok(0 | 7)))
        };
        let (mut too_little, mut enough) = (0, 1 << 20);
        assert!(starts(enough));
        while enough - too_little > 4 {
            let middle = (too_little + enough) / 2;
            match starts(middle) {
                true => enough = middle,
                false => too_little = middle,
            }
        }
        enough << 10
    }

    /// Makes a copy of the prepared directory.
    fn copy(&self) -> PathBuf {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let copy = self.directory.path().join(format!("run-{number}"));
        let copied = Command::new("cp")
            .arg("-a")
            .arg(self.directory.path().join("template"))
            .arg(&copy)
            .status();
        assert!(copied.unwrap().success());
        copy
    }

    /// Returns the state after the call without a limit.
    fn new_state(&self, case: &Case) -> Result<State, String> {
        if let Some(new) = self.new.lock().unwrap().get(case.verb) {
            return Ok(new.clone());
        }
        let place = self.copy();
        let ran = run(case, &place, Limit::None);
        if ran.code != Ok(0) {
            return Err(format!("fails without a limit: {ran:?}"));
        }
        let new = state(&place)?;
        std::fs::remove_dir_all(&place).unwrap();
        self.new.lock().unwrap().insert(case.verb, new.clone());
        Ok(new)
    }

    pub fn judge(&self, case: &Case, limit: Limit) -> Result<Verdict, String> {
        let new = self.new_state(case)?;
        let place = self.copy();
        let ran = run(case, &place, limit);
        let judged = self
            .judge_end(case, &ran)
            .and_then(|verdict| self.judge_state(case, verdict, &new, &place));
        std::fs::remove_dir_all(&place).unwrap();
        judged.map_err(|why| format!("{why}; {ran:?}"))
    }

    pub fn judge_on_full_disk(
        &self,
        case: &Case,
        mount: &Mount,
        left: u64,
    ) -> Result<Verdict, String> {
        let new = self.new_state(case)?;
        let place = self.copy();
        let reserve = mount.path().join("reserve");
        std::fs::write(&reserve, vec![1; left as usize]).unwrap();
        mount.fill();
        std::fs::remove_file(reserve).unwrap();
        let ran = run(case, &place, Limit::None);
        mount.empty();
        let judged = self
            .judge_end(case, &ran)
            .and_then(|verdict| self.judge_state(case, verdict, &new, &place));
        std::fs::remove_dir_all(&place).unwrap();
        judged.map_err(|why| format!("{why}; {ran:?}"))
    }

    fn judge_end(&self, case: &Case, ran: &Ran) -> Result<Verdict, String> {
        let code = match ran.code {
            Ok(code) => code,
            Err(Some(signal)) => return Err(format!("ended by signal {signal}")),
            Err(None) => return Err("a hang".into()),
        };
        if ran.err.contains("panicked") || ran.err.contains("stack backtrace") {
            return Err("a panic".into());
        }
        match code {
            0 => return Ok(Verdict::Done),
            // The started command failed under the limit, and its own message tells why.
            code if case.also.contains(&code) => return Ok(Verdict::Refused),
            7 => {}
            _ => return Err(format!("exit code {code}, expected 7")),
        }
        let has_message = ran.err.lines().any(|line| line.starts_with("evermap: "));
        if !has_message || !REMEDIES.iter().any(|remedy| ran.err.contains(remedy)) {
            return Err("no message with a remedy".into());
        }
        Ok(Verdict::Refused)
    }

    fn judge_state(
        &self,
        case: &Case,
        verdict: Verdict,
        new: &State,
        place: &Path,
    ) -> Result<Verdict, String> {
        let found = state(place)?;
        let may_be_old = verdict == Verdict::Refused || case.may_stay;
        let is_old = may_be_old && found.documents == self.old.documents;
        if !is_old && found.documents != new.documents {
            return Err(format!("the store is in neither state: {:?}", found.documents));
        }
        // New files differ between runs, so only files of the old state are compared.
        for (name, old) in &self.old.files {
            let (new, found) = (new.files.get(name), found.files.get(name));
            if found != Some(old) && found != new {
                return Err(format!("{name} is in neither state"));
            }
        }
        Ok(verdict)
    }
}

#[derive(Debug)]
struct Ran {
    /// Exit code. The error is the signal that ended the process, `None` for a hang.
    code: Result<i32, Option<i32>>,
    err: String,
}

fn command(place: &Path, arguments: &[&str], limit: Limit) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evermap"));
    command.env_clear().env("HOME", place).env("PATH", "/usr/bin:/bin").current_dir(place);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.args(arguments);
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            let (what, bytes) = match limit {
                Limit::None => return Ok(()),
                Limit::FileSize(bytes) => (Resource::Fsize, bytes),
                Limit::Addresses(bytes) => (Resource::As, bytes),
                Limit::Data(bytes) => (Resource::Data, bytes),
                Limit::Stack(bytes) => (Resource::Stack, bytes),
            };
            let limit = Rlimit { current: Some(bytes), maximum: getrlimit(what).maximum };
            setrlimit(what, limit).map_err(Into::into)
        });
    }
    command
}

/// Runs a case under a limit. Its peer, if it has one, runs without a limit.
fn run(case: &Case, place: &Path, limit: Limit) -> Ran {
    let own = std::process::id().to_string();
    let fill = |words: &[&'static str]| -> Vec<String> {
        words.iter().map(|word| word.replace("PID", &own)).collect()
    };
    let arguments: Vec<String> = fill(&["--store", "store"])
        .into_iter()
        .chain(fill(case.verb))
        .chain(fill(case.arguments))
        .collect();
    // `sandbox exec` has an option of this name for another purpose.
    let skipped = if case.has_store() { 0 } else { 2 };
    let arguments: Vec<&str> = arguments[skipped..].iter().map(String::as_str).collect();
    let socket = place.join("socket");
    let started = Instant::now();
    let is_listening = || {
        while !socket.exists() && started.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(1));
        }
        socket.exists()
    };
    let other = |arguments: &[&str]| command(place, arguments, Limit::None).spawn().unwrap();
    match case.verb {
        ["receive"] => {
            let mut child = command(place, &arguments, limit).spawn().unwrap();
            if is_listening() {
                // After a failed transfer the receiver keeps listening, but no other sender
                // follows.
                let sent = end(other(&["send", "data", "unix:socket"]));
                let until = Instant::now() + Duration::from_millis(300);
                while sent.code != Ok(0) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(5));
                }
                if sent.code != Ok(0) && child.try_wait().unwrap().is_none() {
                    child.kill().unwrap();
                    return Ran { code: Ok(13), ..end(child) };
                }
            }
            end(child)
        }
        ["send"] => {
            let mut receiver = other(&["receive", "unix:socket", "received"]);
            assert!(is_listening(), "the receiver does not listen");
            let ran = end(command(place, &arguments, limit).spawn().unwrap());
            let _ = receiver.kill();
            receiver.wait().unwrap();
            ran
        }
        _ => end(command(place, &arguments, limit).spawn().unwrap()),
    }
}

/// Waits for a child to exit. Kills it after the timeout.
fn end(mut child: Child) -> Ran {
    let begin = Instant::now();
    let mut stderr = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stderr.read_to_end(&mut bytes);
        bytes
    });
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if begin.elapsed() > TIMEOUT {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let err = String::from_utf8_lossy(&reader.join().unwrap()).into_owned();
    let signal = status.and_then(|status| status.signal());
    Ran { code: status.and_then(|status| status.code()).ok_or(signal), err }
}

/// Checks the store, lists its documents, and reads all other files.
fn state(place: &Path) -> Result<State, String> {
    let output = |arguments: &[&str]| {
        let arguments = [&["--store", "store"], arguments].concat();
        let mut command = command(place, &arguments, Limit::None);
        let output = command.stdout(Stdio::piped()).output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(out),
            false => Err(format!(
                "afterwards {arguments:?} fails: {} {out}",
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    };
    output(&["check"])?;
    let field = |line: &serde_json::Value, name: &str| line[name].to_string();
    let documents = output(&["ls", "--json"])?
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .map(|line| {
            ["name", "type", "nodes", "source_bytes"].map(|name| field(&line, name)).join(" ")
        })
        .collect();
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(place).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            let name = entry.file_name().into_string().unwrap();
            files.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    Ok(State { documents, files })
}
