//! The judge: which states an object may be in when it is opened again.
//!
//! Each commit that is tried is a state with a stamp of its own. What was promised or seen moves a
//! floor up; a reopening must find a state between the floor and the last one tried, and what it
//! finds ends the others for good: a commit that was lost must not come back.

/// Names one state: its number in the object's life, and a number that no other attempt has.
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

/// What a commit that returned has to outlive, by its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outlives {
    Nothing,
    Kill,
    PowerCut,
}

/// How a program's life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Kill,
    PowerCut,
}

/// What a program did, as far as promises go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// A commit begins.
    Attempt(Stamp),
    /// It returned success.
    Acknowledged(Stamp, Outlives),
    /// Everything acknowledged so far was made durable.
    Synced,
    /// It returned an error that says nothing happened.
    Refused(Stamp),
    /// The object that is being made has a log that is kept for good.
    LogIsPermanent,
    /// That log was replayed for a session.
    Replayed,
    /// A reader or a new session found this state.
    Seen(Stamp),
    /// A reader beside a session found this state: what came after it goes on.
    SeenBeside(Stamp),
}

/// The states there may be.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    states: Vec<Stamp>,
    /// States before these indices are over; without one, there may be no object.
    after_kill: Option<usize>,
    after_power_cut: Option<usize>,
}

impl Model {
    /// Follows what a program did; an error when it found what it must not find.
    pub(super) fn follow(&mut self, mark: Mark) -> Result<(), String> {
        match mark {
            Mark::Attempt(stamp) => self.states.push(stamp),
            Mark::Acknowledged(stamp, outlives) => {
                if self.states.last() != Some(&stamp) {
                    return Err(format!("{stamp} was acknowledged, {self} was expected"));
                }
                let newest = Some(self.states.len() - 1);
                if outlives >= Outlives::Kill {
                    self.after_kill = newest;
                }
                if outlives >= Outlives::PowerCut {
                    self.after_power_cut = newest;
                }
            }
            Mark::LogIsPermanent | Mark::Replayed => {}
            Mark::Synced => {
                self.after_kill = self.states.len().checked_sub(1);
                self.after_power_cut = self.after_kill;
            }
            Mark::Refused(stamp) => {
                if self.states.pop() != Some(stamp) {
                    return Err(format!("{stamp} was refused and is not the last of {self}"));
                }
            }
            Mark::Seen(stamp) | Mark::SeenBeside(stamp) => {
                let Some(index) = self.states.iter().position(|state| *state == stamp) else {
                    return Err(format!("found {stamp}, which is over or never was; {self}"));
                };
                if self.after_kill.is_some_and(|floor| index < floor) {
                    return Err(format!("found {stamp}, which is too old; {self}"));
                }
                if mark == Mark::Seen(stamp) {
                    self.states.truncate(index + 1);
                }
                self.after_kill = Some(index);
                self.after_power_cut = self.after_power_cut.max(Some(index));
            }
        }
        Ok(())
    }

    /// Was an object made? Until its name is durable nobody looks for it.
    pub(super) fn has_object(&self) -> bool {
        self.after_kill.is_some()
    }

    /// May this state be found?
    pub(super) fn allows(&self, stamp: Stamp) -> bool {
        self.clone().follow(Mark::Seen(stamp)).is_ok()
    }

    /// The program's life ended.
    pub(super) fn ended(&mut self, end: End) {
        if end == End::PowerCut {
            self.after_kill = self.after_power_cut;
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
    fn a_lost_promise_a_step_back_and_a_commit_that_comes_back_are_noticed() {
        let mut model = Model::default();
        for n in 1..=3 {
            model.follow(Mark::Attempt(stamp(n))).unwrap();
            model.follow(Mark::Acknowledged(stamp(n), Outlives::PowerCut)).unwrap();
        }
        model.follow(Mark::Attempt(stamp(4))).unwrap();
        model.ended(End::PowerCut);
        assert!(model.clone().follow(Mark::Seen(stamp(2))).is_err());
        assert!(model.clone().follow(Mark::Seen(stamp(5))).is_err());
        let mut lucky = model.clone();
        lucky.follow(Mark::Seen(stamp(4))).unwrap();
        assert!(lucky.follow(Mark::Seen(stamp(3))).is_err());
        model.follow(Mark::Seen(stamp(3))).unwrap();
        assert!(model.follow(Mark::Seen(stamp(4))).is_err());
    }

    #[test]
    fn what_outlives_a_kill_only_may_be_lost_in_a_power_cut() {
        let mut model = Model::default();
        model.follow(Mark::Attempt(stamp(1))).unwrap();
        model.follow(Mark::Acknowledged(stamp(1), Outlives::PowerCut)).unwrap();
        model.follow(Mark::Attempt(stamp(2))).unwrap();
        model.follow(Mark::Acknowledged(stamp(2), Outlives::Kill)).unwrap();
        let mut killed = model.clone();
        killed.ended(End::Kill);
        assert!(killed.follow(Mark::Seen(stamp(1))).is_err());
        model.ended(End::PowerCut);
        model.follow(Mark::Seen(stamp(1))).unwrap();
    }
}
