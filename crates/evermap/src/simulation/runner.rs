//! Runs a program of steps against an object on a simulated disk, and writes down what it promises
//! and sees.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::disk::SimulatedDisk;
use super::image::{Image, Operation};
use super::model::{Mark, Outlives, Stamp};
use super::platter::Medium;
use super::random::Random;
use super::state::{self, Edit};
use super::subject::{self, BUILDING, LOG, Look, Neighbour, OBJECTS, Session, Worker};
use crate::alloc::Heap;
use crate::commit::{Deferral, Durability, LogPolicy, WriteOptions};
use crate::error::Error;
use crate::storage::OpenMode;

/// One thing a program does with an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Makes the object with room for so many bytes; its first state has two blocks.
    Make {
        room: u64,
    },
    /// The same with a log that is kept for good.
    MakePermanent {
        room: u64,
    },
    /// A process beside this one opens the object for reading.
    NeighbourComes,
    /// It looks again, and must see what it saw.
    NeighbourLooks,
    NeighbourGoes,
    /// Opens it for writing, and looks at what is there.
    Open,
    /// The same with other choices.
    OpenWith(Choice),
    /// Makes durable what the level has not.
    Sync,
    Change(Edit),
    Commit,
    /// Commits when nothing was changed: nothing may happen.
    CommitNothing,
    Rollback,
    Checkpoint,
    /// Gives back the disk space of free chunks, after a commit.
    Shrink,
    /// Gives back the unused end of the file, after a commit.
    Release,
    Close,
    /// Ends the session without closing it.
    Abandon,
    /// Opens it for reading, looks, and closes it.
    Read,
    /// Puts a log beside the closed object that belongs to another one.
    ForeignLog,
}

/// How a session is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Default,
    /// A checkpoint after nearly every commit.
    ShortLog,
    /// No page is kept after its commit.
    Cold,
    FullPages,
    /// Flushed by `Sync`, checkpoint and close only: the interval is longer than any test.
    Interval,
    /// The same, and no page is kept after its commit.
    IntervalCold,
    Close,
    CloseCold,
    /// The log is left for the next session.
    KeepLog,
    IntervalKeepLog,
    CloseKeepLog,
    /// Growth that is large for a simulated object takes space in steps.
    Deferred,
    DeferredClose,
}

/// Blocks of more than a chunk are large.
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

    fn outlives(self) -> Outlives {
        match self {
            Choice::Interval | Choice::IntervalCold | Choice::IntervalKeepLog => Outlives::Kill,
            Choice::Close | Choice::CloseCold | Choice::CloseKeepLog | Choice::DeferredClose => {
                Outlives::Nothing
            }
            _ => Outlives::PowerCut,
        }
    }
}

/// Why a program stopped.
#[derive(Debug)]
pub(super) enum Trouble {
    Engine(Error),
    /// What was found is not a state.
    Judged(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Engine(error) => write!(f, "{error}"),
            Trouble::Judged(what) => f.write_str(what),
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Engine(error)
    }
}

/// A program at work.
pub(super) struct Runner<'a> {
    worker: &'a Worker,
    pub(super) disk: SimulatedDisk,
    session: Option<Session>,
    choice: Choice,
    pub(super) policy: LogPolicy,
    neighbours: Vec<(Neighbour, Stamp)>,
    /// The state that the session goes on from.
    current: Option<Stamp>,
    /// Who opens the object after an error is another process, which does not know of it.
    pub(super) goes_on_elsewhere: bool,
    random: Random,
}

/// An empty disk with a store's directories, durable.
pub(super) fn fresh_image(medium: Medium) -> Image {
    let mut image = Image::new(medium);
    for path in ["/store", BUILDING, OBJECTS] {
        image.happen(&Operation::MakeDirectory(path.into()));
    }
    image.settled()
}

impl<'a> Runner<'a> {
    pub(super) fn new(worker: &'a Worker, image: Image, seed: u64) -> Runner<'a> {
        Runner {
            worker,
            disk: SimulatedDisk::new(image),
            session: None,
            choice: Choice::Default,
            policy: LogPolicy::WhileOpen,
            neighbours: Vec::new(),
            current: None,
            goes_on_elsewhere: false,
            random: Random::of(&[seed, 0x7e57]),
        }
    }

    /// Goes on in another process, on the disk as it is.
    pub(super) fn moved_to_another_process(self) -> Runner<'a> {
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

    pub(super) fn run(&mut self, steps: &[Step]) -> Result<(), Trouble> {
        steps.iter().try_for_each(|step| self.step(*step))
    }

    fn session(&mut self) -> Result<&mut Session, Trouble> {
        let none = || Trouble::Judged("the program has no session here".to_string());
        self.session.as_mut().ok_or_else(none)
    }

    fn next_stamp(&mut self) -> Stamp {
        let number = self.current.map_or(1, |current| current.number + 1);
        Stamp { number, nonce: self.random.next() }
    }

    pub(super) fn step(&mut self, step: Step) -> Result<(), Trouble> {
        let done = self.take(step);
        let failed = matches!(done, Err(Trouble::Engine(_)));
        let behind = self.session.as_ref().is_some_and(|session| !session.is_applied());
        let knows = (failed || behind) && !self.goes_on_elsewhere;
        if let (true, LogPolicy::Permanent { applied }) = (knows, &mut self.policy) {
            // As a store does with its catalog: what the kernel may have forgotten is replayed, and
            // what a full disk let through in part.
            *applied = false;
        }
        done
    }

    fn take(&mut self, step: Step) -> Result<(), Trouble> {
        match step {
            Step::Make { room } => self.make((room, false)),
            Step::MakePermanent { room } => {
                self.policy = LogPolicy::Permanent { applied: false };
                self.disk.mark(Mark::LogIsPermanent);
                self.make((room, true))
            }
            Step::NeighbourComes => {
                self.disk.forget_failed_flushes();
                let come = Neighbour::open(&self.disk)?;
                let none = || Trouble::Judged("a reader would have to wait".to_string());
                let neighbour = come.ok_or_else(none)?;
                let stamp = neighbour.look()?.map_err(beside)?;
                self.disk.mark(Mark::SeenBeside(stamp));
                self.neighbours.push((neighbour, stamp));
                Ok(())
            }
            Step::NeighbourLooks => self.neighbours_look(),
            Step::NeighbourGoes => {
                self.neighbours_look()?;
                self.neighbours.remove(0);
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
                // SAFETY: the session has the object to itself, and its state was looked at.
                let done =
                    unsafe { state::change(session.root(), session.heap(), change, &mut random) };
                self.random = random;
                Ok(done?)
            }
            Step::Commit => self.commit(),
            Step::CommitNothing => match self.session()?.commit()? {
                false => Ok(()),
                true => Err(Trouble::Judged("a commit of nothing was one".to_string())),
            },
            Step::Rollback => {
                self.session()?.rollback()?;
                let found = self.look_at_session()?;
                let current = self.current;
                match current == Some(found) {
                    true => Ok(()),
                    false => Err(Trouble::Judged(format!(
                        "rolled back to {found}, {current:?} was committed"
                    ))),
                }
            }
            Step::Checkpoint => {
                // Pages that the disk refuses stay in the log: it is as durable as the object.
                let done = self.session()?.checkpoint()? || !self.disk.faults().is_empty();
                self.disk.mark(Mark::Synced);
                match done {
                    true => Ok(()),
                    false => Err(Trouble::Judged("nobody reads, and no checkpoint".to_string())),
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
                    // The session before met an error and left its own.
                    Err(Error::Io { source, .. })
                        if source.raw_os_error() == Some(libc::EEXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                Ok(())
            }
        }
    }

    fn make(&mut self, room: (u64, bool)) -> Result<(), Trouble> {
        let stamp = self.next_stamp();
        self.disk.mark(Mark::Attempt(stamp));
        let (random, disk) = (&mut self.random, &self.disk);
        let build = |heap: &Heap, root| {
            // SAFETY: the draft's root is mapped for writing and nobody else's; so are the blocks.
            unsafe {
                state::write_first(root);
                state::change(root, heap, Edit::Gain { blocks: 2, bytes: 4096 }, random)?;
                state::stamp(root, stamp);
            }
            Ok(())
        };
        let named = || disk.mark(Mark::Acknowledged(stamp, Outlives::PowerCut));
        subject::make(self.worker, disk, room, build, named)?;
        self.current = Some(stamp);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Trouble> {
        let stamp = self.next_stamp();
        let session = self.session()?;
        // SAFETY: the session has the object to itself, and its state was looked at.
        unsafe { state::stamp(session.root(), stamp) };
        self.disk.mark(Mark::Attempt(stamp));
        match self.session()?.commit() {
            Ok(true) => {
                self.current = Some(stamp);
                self.disk.mark(Mark::Acknowledged(stamp, self.choice.outlives()));
                Ok(())
            }
            Ok(false) => Err(Trouble::Judged(format!("{stamp} was not worth a commit"))),
            // Reopening decides.
            Err(error @ Error::DurabilityUnknown { .. }) => Err(error.into()),
            Err(error) => {
                self.disk.mark(Mark::Refused(stamp));
                Err(error.into())
            }
        }
    }

    fn look_at_session(&mut self) -> Result<Stamp, Trouble> {
        let found = self.session()?.verify();
        found.map_err(|why| Trouble::Judged(format!("opened for writing: {why}")))
    }

    fn read(&mut self) -> Result<(), Trouble> {
        self.disk.forget_failed_flushes();
        let stamp = Look::verify(self.worker, &self.disk)?
            .map_err(|why| Trouble::Judged(format!("opened for reading: {why}")))?;
        self.disk.mark(Mark::Seen(stamp));
        Ok(())
    }

    fn neighbours_look(&mut self) -> Result<(), Trouble> {
        for (neighbour, seen) in &self.neighbours {
            let sees = neighbour.look()?.map_err(beside)?;
            if sees != *seen {
                return Err(beside(format!("sees {sees}, saw {seen}")));
            }
        }
        Ok(())
    }
}

fn beside(why: String) -> Trouble {
    Trouble::Judged(format!("a reader beside the writer: {why}"))
}

/// The bytes of a write, for traces in messages.
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
