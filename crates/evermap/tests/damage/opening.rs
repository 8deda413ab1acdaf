//! Opens a store in a child process, to distinguish errors, signals, panics and hangs.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use evermap::{Error, Options, PVec, Verify};

use crate::common::{argument, child_command};

/// Name of the damaged object and its number of elements: one large block and a root.
pub const OBJECT: &str = "v";
pub const ELEMENTS: u64 = 8192;

/// Time after which a child counts as hung. No case takes a hundredth of it.
const PATIENCE: Duration = Duration::from_secs(20);

/// How the object is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// For reading; then reads every element.
    Read,
    /// For writing; then reads every element, adds one and commits.
    Write,
    /// For reading, after verifying every page.
    ReadVerified,
    /// For writing, after verifying every page.
    WriteVerified,
}

pub const WAYS: [How; 4] = [How::Read, How::Write, How::ReadVerified, How::WriteVerified];

impl How {
    fn options(self) -> Options {
        match self {
            How::Read | How::Write => Options::new(),
            How::ReadVerified | How::WriteVerified => Options::new().verify(Verify::Full),
        }
    }

    /// Opens the store and prints its contents.
    pub fn open(self, path: &Path) -> Result<Option<u64>, Error> {
        match self {
            How::Read | How::ReadVerified => read(path, &self.options()),
            How::Write | How::WriteVerified => write(path, &self.options()),
        }
    }
}

/// Result of opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Complete, with this version.
    Data(u64),
    /// It opened, but the elements were never written.
    WrongData,
    /// A typed error: its variant and text.
    Error(String, String),
    /// The process was killed by this signal.
    Signal(i32),
    /// The process ended without a result: a panic.
    Panic(String),
    /// The process did not end.
    Hang,
}

/// Opens in a child. `prepare` names the child's first action.
pub fn open_in_child(store: &Path, how: How, prepare: &str) -> Outcome {
    let how = format!("{how:?}");
    let mut command =
        child_command("opening::child_opens", &[store.to_str().unwrap(), &how, prepare]);
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let since = Instant::now();
    let status = loop {
        match process.try_wait().unwrap() {
            Some(status) => break status,
            None if since.elapsed() > PATIENCE => {
                process.kill().unwrap();
                process.wait().unwrap();
                return Outcome::Hang;
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let mut output = String::new();
    process.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    if let Some(signal) = status.signal() {
        return Outcome::Signal(signal);
    }
    match output.lines().find_map(|line| line.strip_prefix('@')).map(parse) {
        Some(outcome) if status.success() => outcome,
        _ => {
            let mut said = String::new();
            process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            Outcome::Panic(said)
        }
    }
}

fn parse(line: &str) -> Outcome {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "data" => Outcome::Data(rest.parse().unwrap()),
        "wrong" => Outcome::WrongData,
        "error" => {
            let (variant, text) = rest.split_once(' ').unwrap();
            Outcome::Error(variant.to_string(), text.to_string())
        }
        other => panic!("unexpected output of a child: {other:?}"),
    }
}

/// Formats an outcome as one line.
fn line_of(outcome: Result<Option<u64>, Error>) -> String {
    match outcome {
        Ok(Some(version)) => format!("@data {version}"),
        Ok(None) => "@wrong".to_string(),
        Err(error) => {
            let debug = format!("{error:?}");
            let variant = debug.split([' ', '(', '{']).next().unwrap_or_default();
            format!("@error {variant} {}", error.to_string().replace('\n', " "))
        }
    }
}

#[test]
#[ignore = "a child of the damage tests"]
fn child_opens() {
    let Some(path) = argument(0) else { return };
    let how = argument(1).unwrap();
    if argument(2).as_deref() == Some("as nobody") {
        // SAFETY: drops privileges; no other thread of this process needs them.
        let given_up = unsafe { libc::setgid(65534) == 0 && libc::setuid(65534) == 0 };
        assert!(given_up);
    }
    let how = WAYS.into_iter().find(|way| format!("{way:?}") == how).unwrap();
    println!("\n{}", line_of(how.open(Path::new(&path))));
}

/// Returns the version of all elements, or `None` if they differ.
pub fn version_of(v: &PVec<u64>) -> Option<u64> {
    let version = *v.first()?;
    let whole = (ELEMENTS..=ELEMENTS + 8).contains(&(v.len() as u64));
    (whole && v.iter().all(|n| *n == version)).then_some(version)
}

fn read(path: &Path, options: &Options) -> Result<Option<u64>, Error> {
    let store = options.open(path)?;
    let v = store.read::<PVec<u64>>(OBJECT)?;
    Ok(version_of(&v))
}

fn write(path: &Path, options: &Options) -> Result<Option<u64>, Error> {
    let store = options.open(path)?;
    let mut session = store.write::<PVec<u64>>(OBJECT)?;
    let version = version_of(&session);
    let element = version.unwrap_or(0);
    session.root_mut().push(element)?;
    session.commit()?;
    let after = version_of(&session);
    session.close()?;
    Ok(version.filter(|_| after == version))
}
