//! seccomp filters: system calls by number, with conditions on their arguments, compiled and
//! installed.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::error::{Error, Result};

/// Set of system calls with conditions on their arguments. A call without conditions matches any
/// arguments. A call with several sets of conditions matches if any set holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    rules: BTreeMap<i64, Vec<Vec<Condition>>>,
}

/// Condition on one argument. Compares only the bits that the kernel uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Condition {
    /// Low 32 bits equal the value.
    Equal(u8, u32),
    /// Low 32 bits differ from the value.
    NotEqual(u8, u32),
    /// Low 32 bits under the mask (first value) equal the second value.
    MaskedEqual(u8, u32, u32),
}

impl Calls {
    /// Adds calls with any arguments.
    pub(super) fn always(&mut self, calls: &[i64]) {
        for call in calls {
            self.rules.insert(*call, Vec::new());
        }
    }

    /// Adds a call if all conditions hold.
    pub(super) fn when(&mut self, call: i64, conditions: &[Condition]) {
        let is_new = !self.rules.contains_key(&call);
        let rules = self.rules.entry(call).or_default();
        // An empty list of rules already matches any arguments.
        if is_new || !rules.is_empty() {
            rules.push(conditions.to_vec());
        }
    }

    /// Compiles a program that returns `named` for these calls and `otherwise` for all others. A
    /// call by another architecture's numbers (32-bit programs) ends the process.
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

fn rule_of(conditions: &[Condition]) -> Result<SeccompRule> {
    let conditions: std::result::Result<Vec<_>, _> = conditions.iter().map(condition_of).collect();
    conditions
        .and_then(SeccompRule::new)
        .map_err(|error| Error::NoFilter { why: error.to_string() })
}

fn condition_of(
    holds: &Condition,
) -> std::result::Result<SeccompCondition, seccompiler::BackendError> {
    use SeccompCmpArgLen::Dword;
    match *holds {
        Condition::Equal(argument, value) => {
            SeccompCondition::new(argument, Dword, SeccompCmpOp::Eq, u64::from(value))
        }
        Condition::NotEqual(argument, value) => {
            SeccompCondition::new(argument, Dword, SeccompCmpOp::Ne, u64::from(value))
        }
        Condition::MaskedEqual(argument, mask, value) => {
            let operator = SeccompCmpOp::MaskedEq(u64::from(mask));
            SeccompCondition::new(argument, Dword, operator, u64::from(value))
        }
    }
}

/// Returns the action for refused calls: `EPERM`.
pub(super) fn refusal() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM as u32)
}

/// Compiles a program that reports `clone3` as missing. The flags of `clone3` are behind a pointer,
/// which a filter cannot follow. Libraries then use `clone`, whose flags are an argument.
pub(super) fn without_clone3() -> Result<BpfProgram> {
    let mut calls = Calls::default();
    calls.always(&[libc::SYS_clone3]);
    calls.compile(SeccompAction::Errno(libc::ENOSYS as u32), SeccompAction::Allow)
}

/// Installs a program for every thread of the process.
pub(super) fn install_everywhere(program: &BpfProgram) -> Result<()> {
    seccompiler::apply_filter_all_threads(program)
        .map_err(|error| Error::NoFilter { why: error.to_string() })
}
