//! Removal from a [`PBTree`]: nodes that get too small borrow from a neighbour or are merged with
//! one. Allocates nothing, so it can't fail, and runs no user code.

use std::mem::MaybeUninit;

use super::node::{LEN_MIN, NodeRef, Path};
use crate::persist::{Mut, PBTree, Persist};

impl<K: Persist, V: Persist> Mut<'_, PBTree<K, V>> {
    /// Removes the entry at `level` of the path from the tree, without releasing it.
    pub(super) fn unlink(
        &mut self,
        mut path: Path<K, V>,
        level: usize,
    ) -> (MaybeUninit<K>, MaybeUninit<V>) {
        let (node, at) = (path.node(level), path.place(level));
        let entry = if level == 0 {
            node.remove(at)
        } else {
            // The entry before it, the last one of a leaf, replaces it.
            path.descend_last(level);
            let leaf = path.node(0);
            let entry = node.read(at);
            let (key, value) = leaf.remove(leaf.len() - 1);
            node.write(at, key, value);
            entry
        };
        self.raw().len -= 1;
        self.rebalance(&path);
        entry
    }

    /// Ensures that the nodes of the path, from the leaf up, have enough entries again.
    fn rebalance(&mut self, path: &Path<K, V>) {
        for level in 0..path.height() - 1 {
            if path.node(level).len() >= LEN_MIN {
                return;
            }
            let (parent, at) = (path.node(level + 1), path.place(level + 1));
            let is_leaf = level == 0;
            if at > 0 && parent.child(at - 1).len() > LEN_MIN {
                parent.lend_right(at - 1, 1, is_leaf);
                return;
            }
            if at < parent.len() && parent.child(at + 1).len() > LEN_MIN {
                parent.lend_left(at, is_leaf);
                return;
            }
            let emptied = parent.merge(at.saturating_sub(1), is_leaf);
            self.free_node(emptied);
        }
        self.lower(path.node(path.height() - 1));
    }

    /// Removes a root without entries.
    fn lower(&mut self, root: NodeRef<K, V>) {
        if root.len() > 0 {
            return;
        }
        let tree = self.raw();
        tree.root = (tree.height > 1).then(|| root.child(0));
        tree.height -= 1;
        self.free_node(root);
    }

    fn free_node(&mut self, node: NodeRef<K, V>) {
        // SAFETY: a block that the tree owned and no longer points to.
        unsafe { self.heap.free(node.block()) };
    }

    /// Keeps the first `len` entries and forgets the others without releasing them.
    pub(super) fn truncate_unreleased(&mut self, len: usize) {
        while self.len() > len {
            let Some(mut path) = self.last_edge() else { return };
            path.set_place(0, path.place(0) - 1);
            let _ = self.unlink(path, 0);
        }
    }
}
