//! Running the engine: finding its program, talking to it, and what becomes of it when it does not come to an end.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use peniko::Blob;

use crate::page::{AlignedBytes, Part, PartKind};
use crate::protocol::{
    self, Answer, Failure, Request, Retry, read_content, read_header, write_frame,
};
use crate::visit::Watch;
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

/// Has a page laid out. Costs a process, which is stopped when its time is over or nobody waits for it any longer.
pub(crate) fn run(request: &Request, timeout: Duration, watch: &Watch<'_>) -> Result<Made> {
    #[cfg(test)]
    if let Some(made) = STAND_IN.with_borrow(|stand_in| stand_in.as_ref().map(|f| f(request))) {
        return made;
    }
    let mut child = spawn()?;
    let input = child.stdin.take();
    let output = child.stdout.take();
    let words = child.stderr.take();
    let watched = Watched::new(child);
    let words = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = words.map(|words| words.take(WORDS_BYTES_MAX).read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    });
    let asked = serde_json::to_vec(request).map_err(io::Error::other).and_then(|json| {
        let mut input = input.ok_or(io::ErrorKind::BrokenPipe)?;
        write_frame(&mut input, protocol::REQUEST, &[&json])
    });
    let read = std::thread::scope(|scope| {
        scope.spawn(|| watched.watch(timeout, watch.given_up));
        let read = match (asked, output) {
            (Ok(()), Some(output)) => read_answer(output, watch.stage),
            (Err(error), _) => Err(error),
            (_, None) => Err(io::ErrorKind::BrokenPipe.into()),
        };
        watched.finish();
        read
    });
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
            let (status, done) = watched.end();
            let words = words.join().unwrap_or_default();
            let what = match done {
                Done::Overdue => {
                    format!("took longer than {} s and was stopped", timeout.as_secs())
                }
                Done::GivenUp => "was stopped, because nobody waited any longer,".to_string(),
                _ => ending(status, &error, words.trim(), request.memory_bytes_max),
            };
            Err(ViewError::Engine { url: request.url.clone(), what })
        }
    }
}

/// Starts a process that asks again for what a page lacks, and does not wait for it.
pub(crate) fn start_retry(retry: &Retry) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let program = program()?;
    let failed =
        |error: io::Error| ViewError::NoEngine { why: format!("{}: {error}", program.display()) };
    let json = serde_json::to_vec(retry).map_err(|error| failed(error.into()))?;
    // In a group of its own: an interrupt of this command is not meant for it.
    let spawned = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = spawned.map_err(failed)?;
    let asked = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe.into());
    asked
        .and_then(|mut input| write_frame(&mut input, protocol::RETRY, &[&json]))
        .map_err(failed)?;
    // A process that lives on collects it; one that ends leaves that to the system.
    std::thread::spawn(move || child.wait());
    Ok(())
}

#[cfg(test)]
type StandIn = Box<dyn Fn(&Request) -> Result<Made>>;

#[cfg(test)]
thread_local! {
    static STAND_IN: std::cell::RefCell<Option<StandIn>> = const { std::cell::RefCell::new(None) };
}

/// Has this thread's pages laid out by a function instead of a process.
#[cfg(test)]
pub(crate) fn stand_in(instead: Option<StandIn>) {
    STAND_IN.set(instead);
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

fn read_answer(mut output: ChildStdout, stage: &(dyn Fn(&str) + Sync)) -> io::Result<Answered> {
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

/// How often it is asked whether somebody still waits.
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// A child that is killed when its time is over.
struct Watched {
    child: Mutex<Option<Child>>,
    done: Mutex<Done>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq)]
enum Done {
    No,
    Yes,
    Overdue,
    GivenUp,
}

impl Watched {
    fn new(child: Child) -> Watched {
        Watched {
            child: Mutex::new(Some(child)),
            done: Mutex::new(Done::No),
            changed: Condvar::new(),
        }
    }

    /// Returns when it is done, or was killed.
    fn watch(&self, timeout: Duration, given_up: &(dyn Fn() -> bool + Sync)) {
        let end = Instant::now() + timeout;
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while *done == Done::No {
            let left = end.saturating_duration_since(Instant::now());
            *done = match (left.is_zero(), given_up()) {
                (true, _) => Done::Overdue,
                (_, true) => Done::GivenUp,
                _ => {
                    let wait = left.min(ASKED_EVERY);
                    let waited = self.changed.wait_timeout(done, wait);
                    done = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
            };
            drop(done);
            let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(child) = child.as_mut() {
                // It may have ended by itself.
                let _ = child.kill();
            }
            return;
        }
    }

    fn finish(&self) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if *done == Done::No {
            *done = Done::Yes;
        }
        drop(done);
        self.changed.notify_all();
    }

    /// It may end by itself.
    fn leave(self) {
        if let Some(mut child) = self.take_child() {
            std::thread::spawn(move || child.wait());
        }
    }

    /// Ends it, if it has not ended; gives how it did, and whether it was killed here.
    fn end(self) -> (Option<ExitStatus>, Done) {
        let done = *self.done.lock().unwrap_or_else(PoisonError::into_inner);
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
        (status, done)
    }

    fn take_child(&self) -> Option<Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
