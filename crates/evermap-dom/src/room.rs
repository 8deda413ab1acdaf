//! Growth of tables that fails with an error where there is no memory.
//!
//! A `Vec` that grows by itself ends the process when the allocator refuses. The large tables ask here
//! first. For each node some memory is left free besides, for the parsers' own lists, which do not ask:
//! html5ever has 24 bytes for each open element, twice that while the list grows.

/// Left free at least.
const SPARE_BYTES_MIN: usize = 16 << 20;
/// Left free for each node.
const SPARE_NODE_BYTES: usize = 72;
/// A table below this is no reason to ask the kernel.
const SMALL_TABLE_BYTES: usize = 1 << 20;

/// Makes room for `extra` more elements. Returns false if there is no memory for them.
#[inline]
pub(crate) fn has_room<T>(table: &mut Vec<T>, extra: usize) -> bool {
    table.capacity() - table.len() >= extra || grow(table, extra, 0)
}

/// As [`has_room`] for one more node.
#[inline]
pub(crate) fn has_room_for_node<T>(nodes: &mut Vec<T>) -> bool {
    nodes.len() < nodes.capacity() || grow(nodes, 1, SPARE_NODE_BYTES)
}

#[cold]
fn grow<T>(table: &mut Vec<T>, extra: usize, spare_bytes: usize) -> bool {
    let more = extra.max(table.capacity());
    if table.try_reserve(more).is_err() {
        return false;
    }
    let is_small = table.capacity().saturating_mul(size_of::<T>()) < SMALL_TABLE_BYTES;
    is_small || is_free(table.capacity().saturating_mul(spare_bytes))
}

/// Returns true if so many bytes could be allocated now, with some to spare. Touches no page.
pub(crate) fn is_free(bytes: usize) -> bool {
    let mut trial: Vec<u8> = Vec::new();
    trial.try_reserve_exact(bytes.saturating_add(SPARE_BYTES_MIN)).is_ok()
}
