//! A guest's budget: one limit in bytes for everything that a guest can grow, and limits on
//! everything it can open.
//!
//! wasmtime asks before it grows a memory or a table, and when it creates an instance. The bytes of
//! all memories and tables count in one budget. The other limits are constants: instances, memories
//! and tables of a store, and open WASI handles. wasmtime's stack limits recursion
//! (`Config::max_wasm_stack`), and WASI limits the copies of one call.

use wasmtime::ResourceLimiter;

/// Default budget of a guest in bytes of memories and tables: all that 32-bit addresses reach.
pub(crate) const BYTES_DEFAULT: usize = 1 << 32;
/// Bytes counted per table element: twice a pointer, because the host's array can reserve twice its
/// length.
pub(crate) const TABLE_ELEMENT_BYTES: usize = 16;
/// Maximum number of open files, directories and streams. Each file takes one of the host process's
/// descriptors, of which there are often only 1,024.
pub(crate) const HANDLES_MAX: usize = 256;
/// Limits on instances, memories and tables of one guest. Each memory reserves 4 GiB of addresses.
const INSTANCES_MAX: usize = 16;
const MEMORIES_MAX: usize = 16;
const TABLES_MAX: usize = 100;

/// Budget of one guest: the limit and the used bytes.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: usize,
    /// Bytes of granted growths. A growth that the kernel then refuses still counts, because
    /// wasmtime does not say which growth failed.
    used_bytes: usize,
    refused: u64,
}

impl Budget {
    pub(crate) fn new(bytes_max: usize) -> Budget {
        Budget { bytes_max, used_bytes: 0, refused: 0 }
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the number of growths that the budget refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes the bytes of a growth from `current` to `desired` units from the budget. Returns false
    /// if too few are left, or if the module's own maximum is lower.
    fn grant(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
        unit_bytes: usize,
    ) -> bool {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return false;
        }
        let bytes = desired.saturating_sub(current).saturating_mul(unit_bytes);
        let within = bytes <= self.bytes_max.saturating_sub(self.used_bytes);
        if within {
            self.used_bytes += bytes;
        } else {
            self.refused += 1;
        }
        within
    }
}

impl ResourceLimiter for Budget {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grant(current, desired, maximum, 1))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grant(current, desired, maximum, TABLE_ELEMENT_BYTES))
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn memories_and_tables_share_one_budget() {
        let mut budget = Budget::new(1000);
        assert!(budget.memory_growing(0, 600, None).unwrap());
        assert!(!budget.table_growing(0, 26, None).unwrap(), "416 bytes of 400");
        assert!(budget.table_growing(0, 25, None).unwrap());
        assert!(!budget.memory_growing(600, 601, None).unwrap());
        assert_eq!(budget.refused(), 2);
    }

    #[test]
    fn exceeding_the_modules_own_maximum_is_not_counted_as_refused() {
        let mut budget = Budget::new(1000);
        assert!(!budget.table_growing(0, 11, Some(10)).unwrap());
        assert!(!budget.memory_growing(0, usize::MAX, Some(10)).unwrap());
        assert!(!budget.table_growing(0, usize::MAX, None).unwrap(), "overflow");
        assert_eq!(budget.refused(), 1);
    }
}
