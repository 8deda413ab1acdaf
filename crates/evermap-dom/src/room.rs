//! Fallible growth of tables: an error instead of an abort if memory is short.
//!
//! A `Vec` that grows by itself ends the process if the allocator fails. The large tables ask here
//! first. Some memory per node stays reserved for the parsers' own lists, which do not ask:
//! html5ever needs 24 bytes for each open element, and twice that while the list grows.

/// Bytes that always stay free.
const SPARE_BYTES_MIN: usize = 16 << 20;
/// Bytes that stay free for each node.
const SPARE_NODE_BYTES: usize = 72;
/// Smaller tables grow without asking the kernel.
const SMALL_TABLE_BYTES: usize = 1 << 20;

/// Reserves `extra` more elements. Returns false if memory is short.
#[inline]
pub(crate) fn has_room<T>(table: &mut Vec<T>, extra: usize) -> bool {
    table.capacity() - table.len() >= extra || grow(table, extra, 0)
}

/// Like [`has_room`], for one more node.
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

/// Returns true if `bytes` bytes could be allocated now, with a reserve. Touches no page.
pub(crate) fn is_free(bytes: usize) -> bool {
    let mut trial: Vec<u8> = Vec::new();
    trial.try_reserve_exact(bytes.saturating_add(SPARE_BYTES_MIN)).is_ok()
}
