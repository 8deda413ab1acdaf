//! Runs the engine: finds its program, exchanges frames with it, and stops it on a timeout.

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
use crate::{Result, ViewError};

/// Environment variable with the path of the engine's program.
const ENGINE_VARIABLE: &str = "EVERMAP_ENGINE";
/// File name of the engine's program.
const ENGINE_NAME: &str = "evermap-engine";
/// Maximum length of the standard error output that is kept for a message.
const STDERR_BYTES_MAX: u64 = 16 * 1024;

/// Output of the engine.
pub(crate) struct EngineOutput {
    pub answer: Answer,
    pub block: AlignedBytes,
    /// Block of the document, if the page was parsed.
    pub document: Option<AlignedBytes>,
    pub parts: Vec<Part>,
}

/// Callbacks of a visit's caller.
#[derive(Clone, Copy)]
pub(crate) struct Watch<'a> {
    /// Receives the name of each stage that is reached.
    pub stage: &'a (dyn Fn(&str) + Sync),
    /// Returns true once the page is no longer wanted. The engine is stopped then.
    pub cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl Watch<'static> {
    /// Ignores the stages, and never cancels.
    pub(crate) const IGNORED: Watch<'static> = Watch { stage: &|_| (), cancelled: &|| false };
}

/// Lays a page out in a separate process. The process is killed on a timeout or when the visit
/// is cancelled.
pub(crate) fn run(request: &Request, timeout: Duration, watch: &Watch<'_>) -> Result<EngineOutput> {
    #[cfg(test)]
    if let Some(made) =
        MOCK_ENGINE.with_borrow(|mock_engine| mock_engine.as_ref().map(|f| f(request)))
    {
        return made;
    }
    let mut child = spawn()?;
    let input = child.stdin.take();
    let output = child.stdout.take();
    let stderr = child.stderr.take();
    let watched = WatchedChild::new(child);
    let stderr_text = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stderr.map(|stderr| stderr.take(STDERR_BYTES_MAX).read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    });
    let sent = serde_json::to_vec(request).map_err(io::Error::other).and_then(|json| {
        let mut input = input.ok_or(io::ErrorKind::BrokenPipe)?;
        write_frame(&mut input, protocol::REQUEST, &[&json])
    });
    let read = std::thread::scope(|scope| {
        scope.spawn(|| watched.watch(timeout, watch.cancelled));
        let read = match (sent, output) {
            (Ok(()), Some(output)) => read_answer(output, watch.stage),
            (Err(error), _) => Err(error),
            (_, None) => Err(io::ErrorKind::BrokenPipe.into()),
        };
        watched.finish();
        read
    });
    match read {
        Ok(Ok(made)) => {
            // The answer is complete. The process may go on to write its cached responses.
            watched.leave();
            Ok(made)
        }
        Ok(Err(failure)) => {
            watched.leave();
            Err(failure.into_error())
        }
        Err(error) => {
            let (status, done) = watched.end();
            let stderr_text = stderr_text.join().unwrap_or_default();
            let what = match done {
                Done::Overdue => {
                    format!("took longer than {} s and was stopped", timeout.as_secs())
                }
                Done::Cancelled => "was stopped because the visit was cancelled".to_string(),
                _ => ending(status, &error, stderr_text.trim(), request.memory_bytes_max),
            };
            Err(ViewError::Engine { url: request.url.clone(), what })
        }
    }
}

/// Starts a process that requests missing resources again. Does not wait for it.
pub(crate) fn start_retry(retry: &Retry) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let program = program()?;
    let failed =
        |error: io::Error| ViewError::NoEngine { why: format!("{}: {error}", program.display()) };
    let json = serde_json::to_vec(retry).map_err(|error| failed(error.into()))?;
    // In its own process group, so that an interrupt of this command does not reach it.
    let spawned = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = spawned.map_err(failed)?;
    let stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe.into());
    stdin
        .and_then(|mut input| write_frame(&mut input, protocol::RETRY, &[&json]))
        .map_err(failed)?;
    // Reaps the child if this process outlives it.
    std::thread::spawn(move || child.wait());
    Ok(())
}

#[cfg(test)]
type MockEngine = Box<dyn Fn(&Request) -> Result<EngineOutput>>;

#[cfg(test)]
thread_local! {
    static MOCK_ENGINE: std::cell::RefCell<Option<MockEngine>> = const { std::cell::RefCell::new(None) };
}

/// Replaces the engine's process by a function, in this thread.
#[cfg(test)]
pub(crate) fn mock_engine(engine: Option<MockEngine>) {
    MOCK_ENGINE.set(engine);
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

/// Returns the engine's program: the one in the environment variable, next to this program, or on
/// the path.
fn program() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(ENGINE_VARIABLE).filter(|name| !name.is_empty()) {
        return Ok(named.into());
    }
    let own = std::env::current_exe().ok();
    let next_to_own =
        own.iter().flat_map(|own| own.ancestors().skip(1).take(2)).map(|d| d.join(ENGINE_NAME));
    if let Some(program) = next_to_own.into_iter().find(|program| program.is_file()) {
        return Ok(program);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|d| d.join(ENGINE_NAME)).find(|p| p.is_file());
    found.ok_or_else(|| ViewError::NoEngine {
        why: format!("no {ENGINE_NAME} next to this program or on the path"),
    })
}

type Answered = std::result::Result<EngineOutput, Failure>;

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
            _ => return Err(io::Error::other("unknown frame")),
        }
    }
    match (answer, block) {
        (Some(answer), Some(block)) => Ok(Ok(EngineOutput { answer, block, document, parts })),
        _ => Err(io::Error::other("incomplete answer")),
    }
}

fn part(kind: PartKind, content: &[u8]) -> io::Result<Part> {
    let (hash, data) = content.split_first_chunk::<32>().ok_or(io::ErrorKind::InvalidData)?;
    Ok(Part { kind, hash: *hash, data: Blob::new(Arc::new(data.to_vec())) })
}

/// Describes how the engine ended, for people.
fn ending(
    status: Option<ExitStatus>,
    error: &io::Error,
    stderr_text: &str,
    memory_bytes_max: u64,
) -> String {
    use std::os::unix::process::ExitStatusExt;
    let last = stderr_text.lines().last().unwrap_or_default();
    let signal = status.and_then(|status| status.signal());
    if stderr_text.contains("overflowed its stack") {
        return "ran out of stack (elements that nest too deep)".to_string();
    }
    if stderr_text.contains("memory allocation of") {
        return format!("ran out of its {} MiB of memory", memory_bytes_max >> 20);
    }
    match (signal, status) {
        (Some(signal), _) => format!("was ended by signal {signal}; {last}"),
        (None, Some(status)) if !status.success() => format!("failed ({status}); {last}"),
        _ => format!("broke off ({error}); {last}"),
    }
}

/// Interval at which the watcher checks whether the caller has given up.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A child process that is killed on a timeout.
struct WatchedChild {
    child: Mutex<Option<Child>>,
    done: Mutex<Done>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq)]
enum Done {
    No,
    Yes,
    Overdue,
    Cancelled,
}

impl WatchedChild {
    fn new(child: Child) -> WatchedChild {
        WatchedChild {
            child: Mutex::new(Some(child)),
            done: Mutex::new(Done::No),
            changed: Condvar::new(),
        }
    }

    /// Waits until the child is done, or kills it.
    fn watch(&self, timeout: Duration, cancelled: &(dyn Fn() -> bool + Sync)) {
        let end = Instant::now() + timeout;
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while *done == Done::No {
            let left = end.saturating_duration_since(Instant::now());
            *done = match (left.is_zero(), cancelled()) {
                (true, _) => Done::Overdue,
                (_, true) => Done::Cancelled,
                _ => {
                    let wait = left.min(POLL_INTERVAL);
                    let waited = self.changed.wait_timeout(done, wait);
                    done = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
            };
            drop(done);
            let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(child) = child.as_mut() {
                // An error is ignored: the child may have exited.
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

    /// Lets the child exit by itself, and reaps it.
    fn leave(self) {
        if let Some(mut child) = self.take_child() {
            std::thread::spawn(move || child.wait());
        }
    }

    /// Kills the child if it has not exited. Returns its status, and whether `watch` killed it.
    fn end(self) -> (Option<ExitStatus>, Done) {
        let done = *self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let status = self.take_child().and_then(|mut child| {
            if let Ok(Some(status)) = child.try_wait() {
                return Some(status);
            }
            // The pipe is closed, so the child has exited or is about to. Wait briefly, so that the
            // status shows the child's own reason.
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
