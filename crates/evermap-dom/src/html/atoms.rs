//! Converts html5ever's atoms to name ids.
//!
//! An atom's number or address is the same for equal names during the life of the process, so each
//! name's text is looked up once per page. These numbers are never stored.

use html5ever::LocalName;

use crate::layout::NONE;
use crate::names::NAMESPACE_DEFAULT;

/// A cache that lives as long as one parse.
pub(super) struct AtomCache {
    /// Name ids by number of the static atom, for names in the default namespace.
    by_static: Vec<u32>,
    /// All other names. The atom is kept so that its address is not reused for another name.
    others: Vec<Option<(LocalName, u32, u32)>>,
}

const OTHERS: usize = 256;

impl AtomCache {
    pub(super) fn new() -> AtomCache {
        AtomCache { by_static: Vec::new(), others: vec![None; OTHERS] }
    }

    #[inline]
    pub(super) fn find(&self, local: &LocalName, namespace: u32) -> Option<u32> {
        if namespace == NAMESPACE_DEFAULT && local.is_static() {
            let id = *self.by_static.get(static_number(local))?;
            return (id != NONE).then_some(id);
        }
        match &self.others[other_slot(local, namespace)] {
            Some((kept, its_namespace, id)) if kept == local && *its_namespace == namespace => {
                Some(*id)
            }
            _ => None,
        }
    }

    pub(super) fn put(&mut self, local: &LocalName, namespace: u32, id: u32) {
        if namespace == NAMESPACE_DEFAULT && local.is_static() {
            let number = static_number(local);
            if number >= self.by_static.len() {
                self.by_static.resize((number + 1).next_power_of_two(), NONE);
            }
            self.by_static[number] = id;
        } else {
            self.others[other_slot(local, namespace)] = Some((local.clone(), namespace, id));
        }
    }
}

fn static_number(local: &LocalName) -> usize {
    (local.unsafe_data() >> 32) as usize
}

fn other_slot(local: &LocalName, namespace: u32) -> usize {
    let key = local.unsafe_data() ^ (u64::from(namespace) << 56);
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize % OTHERS
}
