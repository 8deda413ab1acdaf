//! Global changes of one lane, from its first journal to their undoing.
//!
//! Invariant: every change is journalled before it is made, and no lane has changes without a
//! guardian. Dropping the value undoes them.

use std::path::Path;
use std::time::{Duration, Instant};

use super::guardian::Guardian;
use super::journal::{FormerState, FormerThread, Journal};
use super::undo::{self, is_in_use, undo_own};
use super::{Claim, StateDirectory, UndoneLane};
use crate::hold::Hold;
use crate::hold::tree::RealTree;
use crate::machine::{Groups, Roots};
use crate::process::Process;
use crate::workqueues::{self, Exclusion};
use crate::{Error, Result};

/// Global changes of one lane.
#[derive(Debug)]
pub(crate) struct Changes {
    state: StateDirectory,
    journal: Journal,
    claim: Option<Claim>,
    guardian: Option<Guardian>,
    /// End of the lane's time. The guardian waits a little longer.
    until: Option<Instant>,
    is_over: bool,
}

impl Changes {
    /// Begins a lane of this process, without changes. `command` is for messages; `before` is the
    /// state that a program gets back.
    pub(crate) fn begin(
        state: &StateDirectory,
        claim: Option<Claim>,
        command: &str,
        before: FormerState,
    ) -> Result<Self> {
        let journal = Journal::begin(state, claim.as_ref().map(Claim::core), command, before)?;
        let state = state.clone();
        Ok(Self { state, journal, claim, guardian: None, until: None, is_over: false })
    }

    /// Starts the guardian, before anything is changed. It also ends the lane after `max_time`.
    pub(crate) fn guard(
        &mut self,
        helper: Option<&Path>,
        max_time: Option<Duration>,
    ) -> Result<()> {
        self.until = max_time.and_then(|time| Instant::now().checked_add(time));
        let guardian =
            Guardian::start(&self.state, &self.journal, self.claim.as_ref(), helper, max_time)?;
        self.journal.record.guardian = Some(guardian.process);
        self.guardian = Some(guardian);
        self.journal.write()
    }

    /// Journals the process whose threads will all be in the lane, before they are.
    pub(crate) fn program(&mut self, program: Process) -> Result<()> {
        self.journal.record.program = Some(program);
        self.journal.write()?;
        if let Some(guardian) = &mut self.guardian {
            // If the guardian is gone, the wait for its end reports that.
            drop(guardian.name_program(program));
        }
        Ok(())
    }

    /// Journals a thread of this process that will be in the lane, with its present state.
    pub(crate) fn thread(&mut self, thread: Process, before: FormerState) -> Result<()> {
        self.journal.record.threads.push(FormerThread { thread, before });
        self.journal.write()
    }

    /// Reserves the claimed core for the lane alone.
    ///
    /// # Errors
    /// [`Error::HoldRefused`]; changes made before the error are undone.
    pub(crate) fn hold(&mut self, core: u32, groups: &Groups) -> Result<()> {
        let mut hold = Hold::plan(&RealTree, groups, core)?;
        for other in other_holds(&self.state) {
            hold.inherit_controller(&other);
        }
        let journal = &mut self.journal;
        let made = hold.make(&RealTree, &mut |now| {
            journal.record.hold = Some(now.clone());
            journal.write()
        });
        if made.is_err() {
            // Undoes by the plan: after a failure between two steps it knows more than the journal.
            hold.undo(&RealTree).map_err(|why| Error::HoldRefused { core, why })?;
            journal.record.hold = None;
            journal.write()?;
        }
        made
    }

    /// Keeps the kernel's unbound work off the core.
    ///
    /// # Errors
    /// Errors of the journal.
    pub(crate) fn exclude_workqueues(&mut self, roots: &Roots) -> Result<workqueues::Outcome> {
        use workqueues::Outcome;
        let Some(core) = self.core() else { return Ok(Outcome::NotNeeded) };
        let exclusion = match Exclusion::plan(&roots.sys.join(workqueues::DIRECTORY), core) {
            Ok(Some(exclusion)) => exclusion,
            Ok(None) => return Ok(Outcome::NotNeeded),
            Err(not_excluded) => return Ok(Outcome::Refused(not_excluded)),
        };
        self.journal.record.workqueues = Some(exclusion.clone());
        self.journal.write()?;
        if let Err(not_excluded) = exclusion.make() {
            self.journal.record.workqueues = None;
            self.journal.write()?;
            return Ok(Outcome::Refused(not_excluded));
        }
        Ok(Outcome::Excluded)
    }

    /// Hold of the core, if there is one.
    pub(crate) fn held(&self) -> Option<&Hold> {
        self.journal.record.hold.as_ref()
    }

    /// After [`Changes::end`]: begins the same lane on another core, without changes, and guarded.
    pub(crate) fn restart(
        &mut self,
        claim: Claim,
        helper: Option<&Path>,
        max_time: Option<Duration>,
    ) -> Result<()> {
        let record = &mut self.journal.record;
        (record.core, record.guardian, record.program) = (Some(claim.core()), None, None);
        (record.hold, self.claim, self.is_over) = (None, Some(claim), false);
        record.workqueues = None;
        record.threads.clear();
        self.journal.write()?;
        self.guard(helper, max_time)
    }

    /// Ends the lane before it has changed anything, and returns the claim of its core.
    pub(crate) fn into_claim(mut self) -> Option<Claim> {
        self.claim.take()
    }

    /// Gives up the lane's core.
    pub(crate) fn give_up_core(&mut self) -> Result<()> {
        self.journal.record.core = None;
        if let Some(exclusion) = &self.journal.record.workqueues {
            exclusion.undo().map_err(|source| undo::workqueue_error(exclusion, source))?;
            self.journal.record.workqueues = None;
        }
        if let Some(claim) = self.claim.take() {
            // Releases it for the guardian, too.
            drop(claim.release());
        }
        self.journal.write()
    }

    /// Id of the lane.
    pub(crate) fn id(&self) -> &str {
        &self.journal.record.id
    }

    /// State directory of the lane.
    pub(crate) fn state(&self) -> &StateDirectory {
        &self.state
    }

    /// Core of the lane.
    pub(crate) fn core(&self) -> Option<u32> {
        self.journal.record.core
    }

    /// State of a program before the lane.
    pub(crate) fn before(&self) -> &FormerState {
        &self.journal.record.before
    }

    /// Guardian of the lane.
    pub(crate) fn guardian(&self) -> Option<&Guardian> {
        self.guardian.as_ref()
    }

    /// End of the lane's time.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Undoes all changes, and returns when nothing is left. A second call does nothing.
    ///
    /// # Errors
    /// The first change that could not be undone; `undo` tries it again.
    pub(crate) fn end(&mut self) -> Result<UndoneLane> {
        let mut undone = UndoneLane {
            id: self.journal.record.id.clone(),
            command: self.journal.record.command.clone(),
            core: self.core(),
            did: Vec::new(),
        };
        if self.is_over {
            return Ok(undone);
        }
        self.is_over = true;
        let mut guardian = self.guardian.take();
        // A guardian that began by itself does not know the changes made since.
        let is_time_over = self.until.is_some_and(|until| until <= Instant::now());
        let was_alone = is_time_over || guardian.as_ref().is_some_and(Guardian::is_gone);
        let outcome = guardian.as_mut().and_then(Guardian::undo);
        let is_done = !was_alone && matches!(outcome, Some(Ok(_)));
        undone.did.extend(outcome.and_then(Result::ok).unwrap_or_default());
        let rest = match is_done {
            true => Ok(Vec::new()),
            false => undo_own(&self.state, &self.journal, &RealTree).map(|lane| lane.did),
        };
        if let Some(guardian) = guardian {
            guardian.dismiss();
        }
        drop(self.claim.take().map(Claim::release));
        undone.did.extend(rest?);
        Ok(undone)
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // Failures stay in the journal.
        drop(self.end());
    }
}

/// Holds of other lanes.
fn other_holds(state: &StateDirectory) -> Vec<Hold> {
    let journals = Journal::all(state).unwrap_or_default();
    let journals = journals.iter().filter_map(|path| Journal::read(path).ok().flatten());
    journals.filter(is_in_use).filter_map(|journal| journal.record.hold).collect()
}

#[cfg(test)]
mod tests {
    use super::super::journal::tests::{before, state};
    use super::*;
    use crate::guard::claimed;
    use crate::sys::scheduler::{self, Thread};

    #[test]
    fn dropping_changes_undoes_them() {
        let (_place, state) = state();
        let claim = Claim::take(&state, 5).unwrap();
        let changes = Changes::begin(&state, Some(claim), "player", before()).unwrap();
        assert_eq!(Journal::all(&state).unwrap().len(), 1);
        assert_eq!(claimed(&state), [5]);
        drop(changes);
        assert!(Journal::all(&state).unwrap().is_empty());
        assert!(claimed(&state).is_empty());
    }

    #[test]
    fn changes_are_undone_without_the_journal_file() {
        let (_place, state) = state();
        let mut changes = Changes::begin(&state, None, "player", before()).unwrap();
        std::fs::remove_dir_all(state.path()).unwrap();
        let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let now = scheduler::affinity(Thread::CURRENT).unwrap();
        let before = FormerState { affinity: now.clone(), ..before() };
        let thread = Process::of(id).unwrap();
        let threads = &mut changes.journal.record.threads;
        threads.push(FormerThread { thread, before });
        let one = now.iter().copied().take(1).collect();
        scheduler::set_affinity(Thread::CURRENT, &one).unwrap();
        changes.end().unwrap();
        assert_eq!(scheduler::affinity(Thread::CURRENT).unwrap(), now);
    }

    #[test]
    fn a_program_that_is_not_a_guardian_is_refused_and_leaves_nothing() {
        let (_place, state) = state();
        let mut changes = Changes::begin(&state, None, "player", before()).unwrap();
        for helper in ["/bin/true", "/no/such/program"] {
            let error = changes.guard(Some(Path::new(helper)), None).unwrap_err();
            assert!(matches!(error, Error::NoGuardian { .. }), "{error}");
            assert!(error.to_string().contains(helper), "{error}");
        }
        changes.end().unwrap();
        assert!(changes.end().unwrap().did.is_empty());
        assert!(Journal::all(&state).unwrap().is_empty());
    }
}
