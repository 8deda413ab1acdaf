//! Guardian: a process that undoes a lane when the processes that made it are gone.
//!
//! It is a separate program (the command's hidden verb `lane guard`) in its own session, so that no
//! terminal and no process group ends it, and it shares no memory with the lane. It only waits: for
//! the end of the lane or the program, for a message of the lane, and for the end of the lane's
//! time. It runs on another core than the lane's and at a higher priority, if it may, and the
//! memory that it has touched stays locked, so that a machine that is busy or short of memory does
//! not delay it.
//!
//! Its standard input is the channel to the lane, its standard output the claim of the core; these
//! descriptors are never open in any other program. It releases the claim when all is undone.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mm::MlockAllFlags;
use serde::{Deserialize, Serialize};

use super::channel::Channel;
use super::journal::Journal;
use super::undo::undo_one;
use super::{Claim, StateDirectory, UndoneLane};
use crate::hold::tree::RealTree;
use crate::process::Process;
use crate::sys::scheduler::{self, Scheduling, Thread};
use crate::sys::signals;
use crate::{Error, Result};

/// Environment variable with the path of the guardian program, for programs that have it elsewhere
/// than beside themselves.
pub const GUARDIAN_VARIABLE: &str = "EVERMAP_LANE_GUARDIAN";
/// Name of the guardian program.
const PROGRAM: &str = "evermap";
/// Above all programs of lanes.
const PRIORITY: u32 = 99;
/// Longest time until the guardian is ready. Starting a program from a busy disk takes seconds.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time that the lane waits for the guardian to undo before it does so itself.
const UNDO_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of attempts to undo, for example while tasks take long to end. Then the next `undo`
/// continues.
const ATTEMPTS_MAX: usize = 8;
/// Time for a living lane to notice by itself that its program or its time has ended.
const LANE_GRACE: Duration = Duration::from_millis(250);

#[derive(Serialize, Deserialize)]
enum Request {
    /// Names the program.
    Program(Process),
    /// Ends the lane.
    Undo,
}

#[derive(Serialize, Deserialize)]
enum Response {
    Ready(Process),
    Undone(Vec<String>),
    Failed(String),
}

/// Guardian as seen by the lane.
#[derive(Debug)]
pub(crate) struct Guardian {
    pub(crate) process: Process,
    child: Child,
    channel: Channel,
    /// Becomes readable when the guardian has ended.
    end: OwnedFd,
}

impl Guardian {
    /// Starts the guardian of a lane of this process, and waits until it is ready.
    ///
    /// # Errors
    /// [`Error::NoGuardian`] if its program is missing or does not get ready.
    pub(super) fn start(
        state: &StateDirectory,
        journal: &Journal,
        claim: Option<&Claim>,
        helper: Option<&Path>,
        max_time: Option<Duration>,
    ) -> Result<Self> {
        let program = program(helper)?;
        let failed =
            |why: String| Error::NoGuardian { why: format!("{}: {why}", program.display()) };
        let of_io = |error: io::Error| failed(error.to_string());
        let (mut channel, there) = Channel::pair().map_err(of_io)?;
        let claim = claim.map(Claim::share).transpose().map_err(of_io)?;
        let mut command = Command::new(&program);
        command.args(["lane", "guard", "--id", &journal.record.id, "--state"]).arg(state.path());
        if let Some(max_time) = max_time {
            let ms = u64::try_from(max_time.as_millis()).unwrap_or(u64::MAX);
            command.arg("--max-time-ms").arg(ms.to_string());
        }
        command.stdin(there).stdout(claim.map_or(Stdio::null(), Stdio::from));
        // The guardian keeps no directory busy, and follows no environment variable of the lane.
        command.env_clear().current_dir("/");
        let mut child = command.spawn().map_err(of_io)?;
        drop(command);
        let ready = match channel.receive(READY_TIMEOUT) {
            Ok(Some(Response::Ready(process))) => process.descriptor().map(|end| (process, end)),
            Ok(Some(Response::Failed(why))) => Err(io::Error::other(why)),
            Ok(_) => Err(io::Error::other("it sent no answer")),
            Err(error) => Err(error),
        };
        match ready {
            Ok((process, Some(end))) => Ok(Self { process, child, channel, end }),
            other => {
                drop(child.kill());
                drop(child.wait());
                let why = other.err().map_or("it ended".into(), |error| error.to_string());
                Err(failed(why))
            }
        }
    }

    /// Names the process that becomes ordinary again.
    pub(super) fn name_program(&mut self, program: Process) -> io::Result<()> {
        self.channel.send(&Request::Program(program))
    }

    /// Requests the undo and waits until it is complete. Returns `None` if the guardian is gone or
    /// does not answer.
    pub(super) fn undo(&mut self) -> Option<Result<Vec<String>, String>> {
        // The guardian may have begun by itself; its answer is received even then.
        drop(self.channel.send(&Request::Undo));
        match self.channel.receive(UNDO_TIMEOUT) {
            Ok(Some(Response::Undone(did))) => Some(Ok(did)),
            Ok(Some(Response::Failed(why))) => Some(Err(why)),
            _ => None,
        }
    }

    /// Descriptor that becomes readable when the guardian has ended.
    pub(crate) fn end(&self) -> &OwnedFd {
        &self.end
    }

    /// Returns true if the guardian has ended or was killed.
    pub(super) fn is_gone(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut end = [PollFd::new(&self.end, PollFlags::IN)];
        rustix::event::poll(&mut end, Some(&now)).is_ok_and(|count| count > 0)
    }

    /// Closes the channel and waits for the guardian's end. Kills it after a second, if it is
    /// stopped.
    pub(super) fn dismiss(mut self) {
        drop(self.channel);
        let until = Instant::now() + Duration::from_secs(1);
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                drop(self.child.kill());
                drop(self.child.wait());
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Finds the program that serves as guardian and starts programs in lanes: `named`, else the one
/// that the environment names, else `evermap` beside this program, else the one in `PATH`.
pub(crate) fn program(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    if let Some(path) = std::env::var_os(GUARDIAN_VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let this = std::env::current_exe().unwrap_or_default();
    let beside = this.parent().map(|folder| folder.join(PROGRAM));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM));
    beside.into_iter().chain(in_path).find(|path| path.is_file()).ok_or_else(|| Error::NoGuardian {
        why: format!(
            "no program `{PROGRAM}` beside {} or in PATH: install it, or set {GUARDIAN_VARIABLE} to its path",
            this.display()
        ),
    })
}

/// Runs the guardian of the lane with this id until all is undone. For the program that the lane
/// started as its guardian: standard input and output belong to the lane.
///
/// # Errors
/// The guardian cannot start, in which case the lane is not made; or some change could not be
/// undone.
pub fn guard(state: &StateDirectory, id: &str, max_time: Option<Duration>) -> Result<()> {
    let until =
        max_time.and_then(|time| Instant::now().checked_add(time.saturating_add(LANE_GRACE)));
    let failed = |source| Error::NoGuardian { why: format!("it cannot start: {source}") };
    // Ignores requests to end: without a guardian the lane would be unguarded, and would end.
    signals::ignore(&[
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGPIPE,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ]);
    // Fails only if this process already leads a session.
    let _ = rustix::process::setsid();
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let mut channel = Channel::of(input);
    let prepared = prepare(state, id);
    let (journal, lane) = match prepared {
        Ok((journal, Some(lane))) => (journal, lane),
        // The lane was killed before it had a guardian, so it has changed nothing.
        Ok((_, None)) => return undo_one(state, id, &RealTree).map(|_| ()),
        Err(error) => {
            drop(channel.send(&Response::Failed(error.to_string())));
            return Err(error);
        }
    };
    let claim = journal.record.core.and_then(|core| {
        let output = io::stdout().as_fd().try_clone_to_owned().ok()?;
        Some(Claim::from_shared(core, output))
    });
    let ready = Process::this().and_then(|process| channel.send(&Response::Ready(process)));
    if let Err(error) = ready
        && journal.record.lane.is_alive()
    {
        // Without this check, a guardian started by hand would undo a running lane.
        return Err(failed(error));
    }
    let why = wait(&mut channel, &lane, until);
    let mut undone = undo_one(state, id, &RealTree);
    for _ in 1..ATTEMPTS_MAX {
        if undone.is_ok() || why == Reason::Requested {
            break;
        }
        std::thread::sleep(LANE_GRACE);
        undone = undo_one(state, id, &RealTree);
    }
    drop(claim.map(Claim::release));
    report(&mut channel, why, undone)
}

/// Prepares to wait, and opens the lane's process. The descriptor is `None` if that has ended
/// already.
fn prepare(state: &StateDirectory, id: &str) -> Result<(Journal, Option<OwnedFd>)> {
    // Locks pages as they are touched, so that they are in memory when they are needed again.
    let ready_by = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    let _ = rustix::mm::mlockall(ready_by);
    drop(fs::write("/proc/self/oom_score_adj", "-1000"));
    let no_lane = || Error::NoGuardian { why: format!("no lane {id}") };
    let journal = Journal::of_id(state, id)?.ok_or_else(no_lane)?;
    let lane = journal.record.lane.descriptor().map_err(|source| Error::NoGuardian {
        why: format!("cannot wait for the lane's process: {source}"),
    })?;
    if let Some(core) = journal.record.core {
        avoid_core(core);
    }
    // Without the right, the guardian runs as an ordinary process.
    drop(scheduler::set(Thread::CURRENT, &Scheduling::fifo(PRIORITY)));
    Ok((journal, lane))
}

/// Moves the calling thread off the core, if there is another one.
pub(crate) fn avoid_core(core: u32) {
    let mut others: BTreeSet<u32> = scheduler::affinity(Thread::CURRENT).unwrap_or_default();
    others.remove(&core);
    if !others.is_empty() {
        drop(scheduler::set_affinity(Thread::CURRENT, &others));
    }
}

/// Reason why a guardian undoes the lane.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Requested,
    LaneGone,
    ProgramGone,
    TimeOver,
}

/// Waits for a reason to undo the lane.
fn wait(channel: &mut Channel, lane: &OwnedFd, mut until: Option<Instant>) -> Reason {
    let mut program: Option<OwnedFd> = None;
    let mut is_open = true;
    let mut otherwise = Reason::TimeOver;
    loop {
        let mut all = vec![PollFd::new(lane, PollFlags::IN)];
        all.extend(is_open.then(|| PollFd::new(&*channel, PollFlags::IN)));
        all.extend(program.as_ref().map(|program| PollFd::new(program, PollFlags::IN)));
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let time = left.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        // An interrupted wait is repeated.
        let _ = rustix::event::poll(&mut all, time.as_ref());
        let is_ready = |at: usize| all.get(at).is_some_and(|one| !one.revents().is_empty());
        let (lane_is_gone, has_request) = (is_ready(0), is_open && is_ready(1));
        let program_is_gone = is_ready(1 + usize::from(is_open)) && program.is_some();
        if has_request {
            match channel.receive(Duration::ZERO) {
                Ok(Some(Request::Undo)) => return Reason::Requested,
                Ok(Some(Request::Program(process))) => match process.descriptor() {
                    Ok(Some(descriptor)) => program = Some(descriptor),
                    // The program ended before it was waited for.
                    _ => {
                        (until, otherwise) =
                            (Some(Instant::now() + LANE_GRACE), Reason::ProgramGone)
                    }
                },
                // The lane's process closed the channel without ending.
                _ if channel.is_closed() => is_open = false,
                _ => {}
            }
            continue;
        }
        if lane_is_gone {
            return Reason::LaneGone;
        }
        if program_is_gone {
            // The lane notices that, too, and sends a request.
            program = None;
            (until, otherwise) = (Some(Instant::now() + LANE_GRACE), Reason::ProgramGone);
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            return otherwise;
        }
    }
}

/// Reports to the lane, or on stderr if the lane is gone. This is the guardian's last action, so a
/// reader that does not read delays nothing.
fn report(channel: &mut Channel, why: Reason, undone: Result<Option<UndoneLane>>) -> Result<()> {
    let did = match undone {
        Ok(lane) => lane.map(|lane| lane.did).unwrap_or_default(),
        Err(error) => {
            drop(channel.send(&Response::Failed(error.to_string())));
            return Err(error);
        }
    };
    drop(channel.send(&Response::Undone(did.clone())));
    if why == Reason::LaneGone {
        let did = if did.is_empty() { "nothing was left to undo".into() } else { did.join("; ") };
        use io::Write;
        drop(writeln!(io::stderr(), "evermap: the lane was killed and has been undone: {did}"));
    }
    Ok(())
}
