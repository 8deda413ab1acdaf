//! Rules that are open. They never change, so whoever loads by them and whoever closes them are no trouble to each other.

use std::sync::Arc;

use evermap_load::Rules;

use super::types::evermap_rules;
use crate::failure::Result;
use crate::table::Table;

static RULES: Table<Rules> = Table::new(0x8 << 60, "sets of rules");

/// # Errors
/// `TOO_MANY_OPEN`.
pub fn insert(rules: Rules) -> Result<*mut evermap_rules> {
    Ok(RULES.insert(|_| rules)? as *mut evermap_rules)
}

/// # Errors
/// `CLOSED`, `FORKED`.
pub fn find(handle: *const evermap_rules) -> Result<Arc<Rules>> {
    RULES.find(handle as u64)
}

/// # Errors
/// `CLOSED`, `FORKED`.
pub fn remove(handle: *const evermap_rules) -> Result<()> {
    RULES.remove(handle as u64).map(drop)
}
