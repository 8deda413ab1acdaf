//! Judges which state an object may have when it is reopened.
//!
//! Each attempted commit is a state with its own stamp. A promise or an observation raises a floor.
//! A reopened object must be in a state between the floor and the last attempt. The state that is
//! found discards all later ones: a lost commit must not come back.

/// Identifies one state: its number in the object's life, and a nonce unique to the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) number: u64,
    pub(super) nonce: u64,
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{:04x}", self.number, self.nonce & 0xffff)
    }
}

/// The crash that an acknowledged commit must survive, by its durability level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Survives {
    Nothing,
    Kill,
    PowerFailure,
}

/// How a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Kill,
    PowerFailure,
}

/// An event that matters for the promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// A commit begins.
    Attempt(Stamp),
    /// The commit returned success.
    Acknowledged(Stamp, Survives),
    /// Everything acknowledged so far was made durable.
    Synced,
    /// The commit returned an error that promises no effect.
    Refused(Stamp),
    /// The object being created has a permanent log.
    LogIsPermanent,
    /// The permanent log was replayed for a session.
    Replayed,
    /// A reader or a new session found this state.
    Seen(Stamp),
    /// A reader found this state during a session, so later states stay possible.
    SeenByReader(Stamp),
}

/// The states that a reopened object may have.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    states: Vec<Stamp>,
    /// Index of the oldest allowed state. If `None`, the object may be missing.
    after_kill: Option<usize>,
    after_power_failure: Option<usize>,
}

impl Model {
    /// Updates the model with one event. Returns an error if the program found a state that is not
    /// allowed.
    pub(super) fn follow(&mut self, mark: Mark) -> Result<(), String> {
        match mark {
            Mark::Attempt(stamp) => self.states.push(stamp),
            Mark::Acknowledged(stamp, survives) => {
                if self.states.last() != Some(&stamp) {
                    return Err(format!("{stamp} was acknowledged, {self} was expected"));
                }
                let newest = Some(self.states.len() - 1);
                if survives >= Survives::Kill {
                    self.after_kill = newest;
                }
                if survives >= Survives::PowerFailure {
                    self.after_power_failure = newest;
                }
            }
            Mark::LogIsPermanent | Mark::Replayed => {}
            Mark::Synced => {
                self.after_kill = self.states.len().checked_sub(1);
                self.after_power_failure = self.after_kill;
            }
            Mark::Refused(stamp) => {
                if self.states.pop() != Some(stamp) {
                    return Err(format!("{stamp} was refused but is not the last state; {self}"));
                }
            }
            Mark::Seen(stamp) | Mark::SeenByReader(stamp) => {
                let Some(index) = self.states.iter().position(|state| *state == stamp) else {
                    return Err(format!("found {stamp}, which is outdated or unknown; {self}"));
                };
                if self.after_kill.is_some_and(|floor| index < floor) {
                    return Err(format!("found {stamp}, which is too old; {self}"));
                }
                if mark == Mark::Seen(stamp) {
                    self.states.truncate(index + 1);
                }
                self.after_kill = Some(index);
                self.after_power_failure = self.after_power_failure.max(Some(index));
            }
        }
        Ok(())
    }

    /// Returns true if the object was created. Until its name is durable, it is not opened.
    pub(super) fn has_object(&self) -> bool {
        self.after_kill.is_some()
    }

    /// Returns true if this state may be found.
    pub(super) fn allows(&self, stamp: Stamp) -> bool {
        self.clone().follow(Mark::Seen(stamp)).is_ok()
    }

    /// The program has ended in this way.
    pub(super) fn ended(&mut self, end: End) {
        if end == End::PowerFailure {
            self.after_kill = self.after_power_failure;
        }
    }
}

impl std::fmt::Display for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "allowed:")?;
        if self.after_kill.is_none() {
            write!(f, " no object")?;
        }
        for state in &self.states[self.after_kill.unwrap_or(0)..] {
            write!(f, " {state}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(number: u64) -> Stamp {
        Stamp { number, nonce: number * 7 }
    }

    #[test]
    fn lost_commits_older_states_and_resurrected_commits_are_detected() {
        let mut model = Model::default();
        for n in 1..=3 {
            model.follow(Mark::Attempt(stamp(n))).unwrap();
            model.follow(Mark::Acknowledged(stamp(n), Survives::PowerFailure)).unwrap();
        }
        model.follow(Mark::Attempt(stamp(4))).unwrap();
        model.ended(End::PowerFailure);
        assert!(model.clone().follow(Mark::Seen(stamp(2))).is_err());
        assert!(model.clone().follow(Mark::Seen(stamp(5))).is_err());
        let mut lucky = model.clone();
        lucky.follow(Mark::Seen(stamp(4))).unwrap();
        assert!(lucky.follow(Mark::Seen(stamp(3))).is_err());
        model.follow(Mark::Seen(stamp(3))).unwrap();
        assert!(model.follow(Mark::Seen(stamp(4))).is_err());
    }

    #[test]
    fn a_commit_that_only_survives_kills_may_be_lost_on_power_failure() {
        let mut model = Model::default();
        model.follow(Mark::Attempt(stamp(1))).unwrap();
        model.follow(Mark::Acknowledged(stamp(1), Survives::PowerFailure)).unwrap();
        model.follow(Mark::Attempt(stamp(2))).unwrap();
        model.follow(Mark::Acknowledged(stamp(2), Survives::Kill)).unwrap();
        let mut killed = model.clone();
        killed.ended(End::Kill);
        assert!(killed.follow(Mark::Seen(stamp(1))).is_err());
        model.ended(End::PowerFailure);
        model.follow(Mark::Seen(stamp(1))).unwrap();
    }
}
