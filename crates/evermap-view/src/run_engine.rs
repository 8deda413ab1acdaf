//! Running the engine: finding its program, talking to it, and what becomes of it when it does not come to an end.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use peniko::Blob;

use crate::page::{AlignedBytes, Part, PartKind};
use crate::protocol::{self, Answer, Failure, Request, read_content, read_header, write_frame};
use crate::{Result, ViewError};

/// Names the engine's program when it isn't beside this one.
const ENGINE_VARIABLE: &str = "EVERMAP_ENGINE";
/// What the engine's program is called.
const ENGINE_NAME: &str = "evermap-engine";
/// How much of what it says on standard error is kept for a message.
const WORDS_BYTES_MAX: u64 = 16 * 1024;

/// What the engine made.
pub(crate) struct Made {
    pub answer: Answer,
    pub block: AlignedBytes,
    /// The document's block, if the page was parsed.
    pub document: Option<AlignedBytes>,
    pub parts: Vec<Part>,
}

/// Has a page laid out. Costs a process.
pub(crate) fn run(request: &Request, timeout: Duration, stage: &dyn Fn(&str)) -> Result<Made> {
    let mut child = spawn()?;
    let input = child.stdin.take();
    let output = child.stdout.take();
    let words = child.stderr.take();
    let watched = Watched::new(child, timeout);
    let words = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = words.map(|words| words.take(WORDS_BYTES_MAX).read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    });
    let asked = serde_json::to_vec(request).map_err(io::Error::other).and_then(|json| {
        let mut input = input.ok_or(io::ErrorKind::BrokenPipe)?;
        write_frame(&mut input, protocol::REQUEST, &[&json])
    });
    let read = match (asked, output) {
        (Ok(()), Some(output)) => read_answer(output, stage),
        (Err(error), _) => Err(error),
        (_, None) => Err(io::ErrorKind::BrokenPipe.into()),
    };
    match read {
        Ok(Ok(made)) => {
            // It has said all; what it still keeps of its responses it may keep in peace.
            watched.leave();
            Ok(made)
        }
        Ok(Err(failure)) => {
            watched.leave();
            Err(failure.into_error())
        }
        Err(error) => {
            let (status, overdue) = watched.end();
            let words = words.join().unwrap_or_default();
            let what = match overdue {
                true => format!("took longer than {} s and was stopped", timeout.as_secs()),
                false => ending(status, &error, words.trim(), request.memory_bytes_max),
            };
            Err(ViewError::Engine { url: request.url.clone(), what })
        }
    }
}

fn spawn() -> Result<Child> {
    let program = program()?;
    let spawned = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    spawned.map_err(|error| ViewError::NoEngine { why: format!("{}: {error}", program.display()) })
}

/// The engine's program: named by the environment, else beside this one, else on the path.
fn program() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(ENGINE_VARIABLE).filter(|name| !name.is_empty()) {
        return Ok(named.into());
    }
    let own = std::env::current_exe().ok();
    let beside =
        own.iter().flat_map(|own| own.ancestors().skip(1).take(2)).map(|d| d.join(ENGINE_NAME));
    if let Some(program) = beside.into_iter().find(|program| program.is_file()) {
        return Ok(program);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|d| d.join(ENGINE_NAME)).find(|p| p.is_file());
    found.ok_or_else(|| ViewError::NoEngine {
        why: format!("there is no {ENGINE_NAME} beside this program or on the path"),
    })
}

type Answered = std::result::Result<Made, Failure>;

fn read_answer(mut output: ChildStdout, stage: &dyn Fn(&str)) -> io::Result<Answered> {
    let mut answer = None;
    let mut block = None;
    let mut document = None;
    let mut parts = Vec::new();
    loop {
        let (kind, length) = read_header(&mut output)?;
        let content = read_content(&mut output, length)?;
        match kind {
            protocol::STAGE => stage(&String::from_utf8_lossy(&content)),
            protocol::ANSWER => answer = Some(serde_json::from_slice(&content)?),
            protocol::FAILURE => return Ok(Err(serde_json::from_slice(&content)?)),
            protocol::BLOCK => block = Some(AlignedBytes::copy_of(&content)),
            protocol::DOCUMENT => document = Some(AlignedBytes::copy_of(&content)),
            protocol::FONT => parts.push(part(PartKind::Font, &content)?),
            protocol::IMAGE => parts.push(part(PartKind::Image, &content)?),
            protocol::END => break,
            _ => return Err(io::Error::other("it speaks another language")),
        }
    }
    match (answer, block) {
        (Some(answer), Some(block)) => Ok(Ok(Made { answer, block, document, parts })),
        _ => Err(io::Error::other("it said nothing")),
    }
}

fn part(kind: PartKind, content: &[u8]) -> io::Result<Part> {
    let (hash, data) = content.split_first_chunk::<32>().ok_or(io::ErrorKind::InvalidData)?;
    Ok(Part { kind, hash: *hash, data: Blob::new(Arc::new(data.to_vec())) })
}

/// How the engine ended, for people.
fn ending(
    status: Option<ExitStatus>,
    error: &io::Error,
    words: &str,
    memory_bytes_max: u64,
) -> String {
    use std::os::unix::process::ExitStatusExt;
    let last = words.lines().last().unwrap_or_default();
    let signal = status.and_then(|status| status.signal());
    if words.contains("overflowed its stack") {
        return "ran out of stack (elements that nest too deep)".to_string();
    }
    if words.contains("memory allocation of") {
        return format!("ran out of its {} MiB of memory", memory_bytes_max >> 20);
    }
    match (signal, status) {
        (Some(signal), _) => format!("was ended by signal {signal}; {last}"),
        (None, Some(status)) if !status.success() => format!("failed ({status}); {last}"),
        _ => format!("broke off ({error}); {last}"),
    }
}

/// A child that is killed when its time is over.
struct Watched {
    shared: Arc<Shared>,
}

struct Shared {
    child: Mutex<Option<Child>>,
    done: Mutex<Done>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq)]
enum Done {
    No,
    Yes,
    Overdue,
}

impl Watched {
    fn new(child: Child, timeout: Duration) -> Watched {
        let shared = Arc::new(Shared {
            child: Mutex::new(Some(child)),
            done: Mutex::new(Done::No),
            changed: Condvar::new(),
        });
        let watcher = shared.clone();
        std::thread::spawn(move || {
            let done = watcher.done.lock().unwrap_or_else(PoisonError::into_inner);
            let waited =
                watcher.changed.wait_timeout_while(done, timeout, |done| *done == Done::No);
            let (mut done, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() {
                *done = Done::Overdue;
                drop(done);
                let mut child = watcher.child.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(child) = child.as_mut() {
                    let _ = child.kill();
                }
            }
        });
        Watched { shared }
    }

    /// It may end by itself, within the time that it had.
    fn leave(self) {
        self.finish();
        if let Some(mut child) = self.take_child() {
            std::thread::spawn(move || child.wait());
        }
    }

    /// Ends it, if it has not ended; gives how it did, and whether its time was over.
    fn end(self) -> (Option<ExitStatus>, bool) {
        let overdue = self.finish();
        let status = self.take_child().and_then(|mut child| {
            if let Ok(Some(status)) = child.try_wait() {
                return Some(status);
            }
            // Its pipe is closed: it has ended or is about to. A moment for that, so that the reason is its own.
            std::thread::sleep(Duration::from_millis(100));
            match child.try_wait() {
                Ok(Some(status)) => Some(status),
                _ => {
                    let _ = child.kill();
                    child.wait().ok()
                }
            }
        });
        (status, overdue)
    }

    fn finish(&self) -> bool {
        let mut done = self.shared.done.lock().unwrap_or_else(PoisonError::into_inner);
        let overdue = *done == Done::Overdue;
        if !overdue {
            *done = Done::Yes;
        }
        drop(done);
        self.shared.changed.notify_all();
        overdue
    }

    fn take_child(&self) -> Option<Child> {
        self.shared.child.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
