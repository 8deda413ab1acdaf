//! Runs the steps of a program on a simulated disk, and records its promises and observations.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::disk::SimulatedDisk;
use super::image::{Image, Operation};
use super::model::{Mark, Stamp, Survives};
use super::random::Random;
use super::state::{self, Edit};
use super::subject::{self, BUILDING, LOG, OBJECTS, ReadSession, Session, SimulatedReader, Worker};
use super::versions::Medium;
use crate::alloc::Heap;
use crate::commit::{Deferral, Durability, LogPolicy, WriteOptions};
use crate::error::Error;
use crate::storage::OpenMode;

/// One step of a program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Creates the object with room for this many bytes; its first state has two blocks.
    Make {
        room: u64,
    },
    /// Like `Make`, with a permanent log.
    MakePermanent {
        room: u64,
    },
    /// Another process opens the object for reading.
    ReaderOpens,
    /// All reading processes check that they still see the same state.
    ReaderChecks,
    ReaderCloses,
    /// Opens the object for writing and verifies the state.
    Open,
    /// Like `Open`, with other options.
    OpenWith(Choice),
    /// Makes all commits durable.
    Sync,
    Change(Edit),
    Commit,
    /// Commits without changes. Must have no effect.
    CommitNothing,
    Rollback,
    Checkpoint,
    /// Releases the disk space of free chunks, after a commit.
    Shrink,
    /// Releases the unused end of the file, after a commit.
    Release,
    Close,
    /// Ends the session without closing it.
    Abandon,
    /// Opens the object for reading, verifies it, and closes it.
    Read,
    /// Creates a log of another object next to the closed object.
    ForeignLog,
}

/// Options for opening a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Default,
    /// Checkpoints after nearly every commit.
    ShortLog,
    /// Retains no page after its commit.
    Cold,
    FullPages,
    /// Flushed only by `Sync`, checkpoint and close: the interval is longer than any test.
    Interval,
    /// Like `Interval`, and retains no page after its commit.
    IntervalCold,
    Close,
    CloseCold,
    /// Leaves the log for the next session.
    KeepLog,
    IntervalKeepLog,
    CloseKeepLog,
    /// Allocates space in steps for growth that is large for a simulated object.
    Deferred,
    DeferredClose,
}

/// Blocks larger than a chunk are large.
const DEFERRAL: Deferral = Deferral { from_bytes: 64 * 1024, step_bytes: 32 * 1024 };

const INTERVAL: Durability = Durability::Interval(Duration::from_secs(3600));

impl Choice {
    fn options(self) -> WriteOptions {
        let options = WriteOptions::new();
        match self {
            Choice::Default => options,
            // Room for the record of one small commit.
            Choice::ShortLog => options.log_bytes_max(1100),
            Choice::Cold => options.hot_bytes_max(0),
            Choice::FullPages => options.log_full_pages(true),
            Choice::Interval => options.durability(INTERVAL),
            Choice::IntervalCold => options.durability(INTERVAL).hot_bytes_max(0),
            Choice::Close => options.durability(Durability::Close),
            Choice::CloseCold => options.durability(Durability::Close).hot_bytes_max(0),
            Choice::KeepLog => WriteOptions { log_kept_from_bytes: 0, ..options },
            Choice::CloseKeepLog => {
                WriteOptions { log_kept_from_bytes: 0, ..options.durability(Durability::Close) }
            }
            Choice::IntervalKeepLog => {
                WriteOptions { log_kept_from_bytes: 0, ..options.durability(INTERVAL) }
            }
            Choice::Deferred => WriteOptions { deferral: DEFERRAL, ..options },
            Choice::DeferredClose => {
                WriteOptions { deferral: DEFERRAL, ..options.durability(Durability::Close) }
            }
        }
    }

    fn survives(self) -> Survives {
        match self {
            Choice::Interval | Choice::IntervalCold | Choice::IntervalKeepLog => Survives::Kill,
            Choice::Close | Choice::CloseCold | Choice::CloseKeepLog | Choice::DeferredClose => {
                Survives::Nothing
            }
            _ => Survives::PowerFailure,
        }
    }
}

/// Reason why a program stopped.
#[derive(Debug)]
pub(super) enum StepError {
    Engine(Error),
    /// A promise was broken.
    Violation(String),
}

impl std::fmt::Display for StepError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StepError::Engine(error) => write!(f, "{error}"),
            StepError::Violation(what) => f.write_str(what),
        }
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> StepError {
        StepError::Engine(error)
    }
}

/// A running program.
pub(super) struct Runner<'a> {
    worker: &'a Worker,
    pub(super) disk: SimulatedDisk,
    session: Option<Session>,
    choice: Choice,
    pub(super) policy: LogPolicy,
    readers: Vec<(SimulatedReader, Stamp)>,
    /// The state that the session continues from.
    current: Option<Stamp>,
    /// After an error, another process opens the object, which does not know of the error.
    pub(super) continues_elsewhere: bool,
    random: Random,
}

/// Returns an empty disk with a store's directories, all durable.
pub(super) fn fresh_image(medium: Medium) -> Image {
    let mut image = Image::new(medium);
    for path in ["/store", BUILDING, OBJECTS] {
        image.apply(&Operation::MakeDirectory(path.into()));
    }
    image.flushed()
}

impl<'a> Runner<'a> {
    pub(super) fn new(worker: &'a Worker, image: Image, seed: u64) -> Runner<'a> {
        Runner {
            worker,
            disk: SimulatedDisk::new(image),
            session: None,
            choice: Choice::Default,
            policy: LogPolicy::WhileOpen,
            readers: Vec::new(),
            current: None,
            continues_elsewhere: false,
            random: Random::of(&[seed, 0x7e57]),
        }
    }

    /// Continues in another process, on the same disk.
    pub(super) fn into_another_process(self) -> Runner<'a> {
        let Runner { worker, disk, policy, current, random, .. } = self;
        let policy = match policy {
            LogPolicy::Permanent { .. } => LogPolicy::Permanent { applied: false },
            other => other,
        };
        let disk = SimulatedDisk::new(disk.image());
        Runner {
            policy,
            current,
            random,
            disk,
            ..Runner::new(worker, fresh_image(Medium::DISK), 0)
        }
    }

    pub(super) fn run(&mut self, steps: &[Step]) -> Result<(), StepError> {
        steps.iter().try_for_each(|step| self.step(*step))
    }

    fn session(&mut self) -> Result<&mut Session, StepError> {
        let none = || StepError::Violation("the program has no open session".to_string());
        self.session.as_mut().ok_or_else(none)
    }

    fn next_stamp(&mut self) -> Stamp {
        let number = self.current.map_or(1, |current| current.number + 1);
        Stamp { number, nonce: self.random.next() }
    }

    pub(super) fn step(&mut self, step: Step) -> Result<(), StepError> {
        let done = self.take(step);
        let failed = matches!(done, Err(StepError::Engine(_)));
        let behind = self.session.as_ref().is_some_and(|session| !session.is_applied());
        let knows = (failed || behind) && !self.continues_elsewhere;
        if let (true, LogPolicy::Permanent { applied }) = (knows, &mut self.policy) {
            // Do as a store does with its catalog: replay writes that the kernel may have dropped,
            // and writes that a full disk let through only in part.
            *applied = false;
        }
        done
    }

    fn take(&mut self, step: Step) -> Result<(), StepError> {
        match step {
            Step::Make { room } => self.make((room, false)),
            Step::MakePermanent { room } => {
                self.policy = LogPolicy::Permanent { applied: false };
                self.disk.mark(Mark::LogIsPermanent);
                self.make((room, true))
            }
            Step::ReaderOpens => {
                self.disk.forget_failed_flushes();
                let come = SimulatedReader::open(&self.disk)?;
                let none = || StepError::Violation("a reader has to wait".to_string());
                let reader = come.ok_or_else(none)?;
                let stamp = reader.look()?.map_err(reader_violation)?;
                self.disk.mark(Mark::SeenByReader(stamp));
                self.readers.push((reader, stamp));
                Ok(())
            }
            Step::ReaderChecks => self.readers_check(),
            Step::ReaderCloses => {
                self.readers_check()?;
                self.readers.remove(0);
                Ok(())
            }
            Step::Open => self.step(Step::OpenWith(Choice::Default)),
            Step::OpenWith(choice) => {
                self.disk.forget_failed_flushes();
                let session =
                    Session::open(self.worker, &self.disk, &choice.options(), self.policy)?;
                if let LogPolicy::Permanent { applied } = &mut self.policy {
                    *applied = true;
                    self.disk.mark(Mark::Replayed);
                }
                self.session = Some(session);
                self.choice = choice;
                let stamp = self.look_at_session()?;
                self.current = Some(stamp);
                self.disk.mark(Mark::Seen(stamp));
                Ok(())
            }
            Step::Change(change) => {
                let mut random = self.random.clone();
                let session = self.session()?;
                // SAFETY: the session has exclusive access to the object, and its state was
                // verified.
                let done =
                    unsafe { state::change(session.root(), session.heap(), change, &mut random) };
                self.random = random;
                Ok(done?)
            }
            Step::Commit => self.commit(),
            Step::CommitNothing => match self.session()?.commit()? {
                false => Ok(()),
                true => {
                    Err(StepError::Violation("a commit without changes had an effect".to_string()))
                }
            },
            Step::Rollback => {
                self.session()?.rollback()?;
                let found = self.look_at_session()?;
                let current = self.current;
                match current == Some(found) {
                    true => Ok(()),
                    false => Err(StepError::Violation(format!(
                        "rolled back to {found}, but {current:?} was committed"
                    ))),
                }
            }
            Step::Checkpoint => {
                // Pages that the disk rejects stay in the log, which is as durable as the object.
                let done = self.session()?.checkpoint()? || !self.disk.faults().is_empty();
                self.disk.mark(Mark::Synced);
                match done {
                    true => Ok(()),
                    false => Err(StepError::Violation(
                        "no checkpoint although there is no reader".to_string(),
                    )),
                }
            }
            Step::Shrink => Ok(self.session()?.shrink()?),
            Step::Release => Ok(self.session()?.release()?),
            Step::Sync => {
                self.session()?.sync()?;
                self.disk.mark(Mark::Synced);
                Ok(())
            }
            Step::Close => {
                let closed = self.session()?.close();
                self.session = None;
                closed?;
                self.disk.mark(Mark::Synced);
                Ok(())
            }
            Step::Abandon => {
                self.session = None;
                Ok(())
            }
            Step::Read => self.read(),
            Step::ForeignLog => {
                match self.disk.storage().open(Path::new(LOG), OpenMode::CreateNew) {
                    Ok(log) => log.write_at(b"EVERLOG\nnot of this object", 0)?,
                    // The previous session failed and left its own log.
                    Err(Error::Io { source, .. })
                        if source.raw_os_error() == Some(libc::EEXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                Ok(())
            }
        }
    }

    fn make(&mut self, room: (u64, bool)) -> Result<(), StepError> {
        let stamp = self.next_stamp();
        self.disk.mark(Mark::Attempt(stamp));
        let (random, disk) = (&mut self.random, &self.disk);
        let build = |heap: &Heap, root| {
            // SAFETY: the draft's root and blocks are mapped writable and are not shared.
            unsafe {
                state::write_first(root);
                state::change(root, heap, Edit::Gain { blocks: 2, bytes: 4096 }, random)?;
                state::stamp(root, stamp);
            }
            Ok(())
        };
        let named = || disk.mark(Mark::Acknowledged(stamp, Survives::PowerFailure));
        subject::make(self.worker, disk, room, build, named)?;
        self.current = Some(stamp);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StepError> {
        let stamp = self.next_stamp();
        let session = self.session()?;
        // SAFETY: the session has exclusive access to the object, and its state was verified.
        unsafe { state::stamp(session.root(), stamp) };
        self.disk.mark(Mark::Attempt(stamp));
        match self.session()?.commit() {
            Ok(true) => {
                self.current = Some(stamp);
                self.disk.mark(Mark::Acknowledged(stamp, self.choice.survives()));
                Ok(())
            }
            Ok(false) => Err(StepError::Violation(format!("{stamp} was not committed"))),
            // Only reopening can tell.
            Err(error @ Error::DurabilityUnknown { .. }) => Err(error.into()),
            Err(error) => {
                self.disk.mark(Mark::Refused(stamp));
                Err(error.into())
            }
        }
    }

    fn look_at_session(&mut self) -> Result<Stamp, StepError> {
        let found = self.session()?.verify();
        found.map_err(|why| StepError::Violation(format!("opened for writing: {why}")))
    }

    fn read(&mut self) -> Result<(), StepError> {
        self.disk.forget_failed_flushes();
        let stamp = ReadSession::verify(self.worker, &self.disk)?
            .map_err(|why| StepError::Violation(format!("opened for reading: {why}")))?;
        self.disk.mark(Mark::Seen(stamp));
        Ok(())
    }

    fn readers_check(&mut self) -> Result<(), StepError> {
        for (reader, seen) in &self.readers {
            let sees = reader.look()?.map_err(reader_violation)?;
            if sees != *seen {
                return Err(reader_violation(format!("sees {sees}, saw {seen}")));
            }
        }
        Ok(())
    }
}

fn reader_violation(why: String) -> StepError {
    StepError::Violation(format!("a concurrent reader: {why}"))
}

/// Describes an operation for traces in messages.
pub(super) fn describe(operation: &Operation) -> String {
    match operation {
        Operation::Write { file, offset, bytes, durable } => {
            let how = if *durable { "writes durably" } else { "writes" };
            format!("{how} {} bytes at {offset} of file {file}", bytes.len())
        }
        Operation::Stored { file, offset, bytes } => {
            format!("stores {} bytes at {offset} of file {file}", Arc::as_ref(bytes).len())
        }
        other => format!("{other:?}"),
    }
}
