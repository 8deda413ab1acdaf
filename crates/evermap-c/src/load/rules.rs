//! Handle table for open sets of rules. Rules never change, so loading by them and closing them do
//! not conflict.

use std::sync::Arc;

use evermap_load::Rules;

use super::types::evermap_rules;
use crate::abi::failure::Result;
use crate::runtime::table::Table;

static RULES: Table<Rules> = Table::new(0x8 << 60, "sets of rules");

/// Stores rules and returns their handle.
///
/// # Errors
/// `TOO_MANY_OPEN`.
pub fn insert(rules: Rules) -> Result<*mut evermap_rules> {
    Ok(RULES.insert(|_| rules)? as *mut evermap_rules)
}

/// Returns the rules of a handle.
///
/// # Errors
/// `CLOSED`, `FORKED`.
pub fn find(handle: *const evermap_rules) -> Result<Arc<Rules>> {
    RULES.find(handle as u64)
}

/// Closes a handle.
///
/// # Errors
/// `CLOSED`, `FORKED`.
pub fn remove(handle: *const evermap_rules) -> Result<()> {
    RULES.remove(handle as u64).map(drop)
}
