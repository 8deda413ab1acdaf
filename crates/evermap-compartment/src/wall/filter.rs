//! seccomp: system calls by number, with conditions on their arguments, compiled and installed.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::error::{Error, Result};

/// System calls with what holds of their arguments. A call that is named without a condition is named
/// whatever its arguments are; one with several sets of conditions, when any of them holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    rules: BTreeMap<i64, Vec<Vec<Holds>>>,
}

/// A condition on one argument. Arguments are compared as far as the kernel looks at them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holds {
    /// These 32 bits.
    Is(u8, u32),
    /// Not these 32 bits.
    IsNot(u8, u32),
    /// Of these bits of the low 32, those are set.
    Bits(u8, u32, u32),
}

impl Calls {
    /// Names calls whatever their arguments are.
    pub(super) fn always(&mut self, calls: &[i64]) {
        for call in calls {
            self.rules.insert(*call, Vec::new());
        }
    }

    /// Names a call when all of these hold.
    pub(super) fn when(&mut self, call: i64, conditions: &[Holds]) {
        let is_new = !self.rules.contains_key(&call);
        let rules = self.rules.entry(call).or_default();
        // No rules at all: it is named in any case.
        if is_new || !rules.is_empty() {
            rules.push(conditions.to_vec());
        }
    }

    /// A program that gives `named` for these calls, and `otherwise` for all others. A call by another
    /// architecture's numbers (32-bit programs) ends the process.
    pub(super) fn compile(
        &self,
        named: SeccompAction,
        otherwise: SeccompAction,
    ) -> Result<BpfProgram> {
        let refused = |error: &dyn std::fmt::Display| Error::NoFilter { why: error.to_string() };
        let mut rules = BTreeMap::new();
        for (call, sets) in &self.rules {
            let sets: Result<Vec<SeccompRule>> = sets.iter().map(|set| rule_of(set)).collect();
            rules.insert(*call, sets?);
        }
        let architecture = std::env::consts::ARCH.try_into();
        let architecture = architecture.map_err(|e: seccompiler::BackendError| refused(&e))?;
        SeccompFilter::new(rules, otherwise, named, architecture)
            .and_then(BpfProgram::try_from)
            .map_err(|error| refused(&error))
    }
}

fn rule_of(conditions: &[Holds]) -> Result<SeccompRule> {
    let conditions: std::result::Result<Vec<_>, _> = conditions.iter().map(condition_of).collect();
    conditions
        .and_then(SeccompRule::new)
        .map_err(|error| Error::NoFilter { why: error.to_string() })
}

fn condition_of(holds: &Holds) -> std::result::Result<SeccompCondition, seccompiler::BackendError> {
    use SeccompCmpArgLen::Dword;
    match *holds {
        Holds::Is(argument, value) => {
            SeccompCondition::new(argument, Dword, SeccompCmpOp::Eq, u64::from(value))
        }
        Holds::IsNot(argument, value) => {
            SeccompCondition::new(argument, Dword, SeccompCmpOp::Ne, u64::from(value))
        }
        Holds::Bits(argument, mask, value) => {
            let operator = SeccompCmpOp::MaskedEq(u64::from(mask));
            SeccompCondition::new(argument, Dword, operator, u64::from(value))
        }
    }
}

/// The answer to a call that is refused.
pub(super) fn refusal() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM as u32)
}

/// A program that says there is no `clone3`: its flags lie behind a pointer, which no filter can
/// follow. Libraries then use `clone`, whose flags are an argument.
pub(super) fn without_clone3() -> Result<BpfProgram> {
    let mut calls = Calls::default();
    calls.always(&[libc::SYS_clone3]);
    calls.compile(SeccompAction::Errno(libc::ENOSYS as u32), SeccompAction::Allow)
}

/// Puts a program in force for every thread of the process.
pub(super) fn install_everywhere(program: &BpfProgram) -> Result<()> {
    seccompiler::apply_filter_all_threads(program)
        .map_err(|error| Error::NoFilter { why: error.to_string() })
}
