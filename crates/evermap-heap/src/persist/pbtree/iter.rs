//! Iterators over a [`PBTree`]: two edges that move towards each other.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::node::{NodeRef, Path};
use crate::alloc::Heap;
use crate::persist::pairs::{half, values_mut};
use crate::persist::{Mut, PBTree, Persist};

/// The entries between two edges of a tree.
pub(super) struct Span<K, V>(Option<(Path<K, V>, Path<K, V>)>);

impl<K, V> Span<K, V> {
    pub(super) fn new(front: Option<Path<K, V>>, back: Option<Path<K, V>>) -> Self {
        Span(front.zip(back))
    }

    fn next(&mut self) -> Option<(NodeRef<K, V>, usize)> {
        let (front, back) = self.0.as_mut()?;
        if front.same_end(back) { None } else { front.next() }
    }

    fn next_back(&mut self) -> Option<(NodeRef<K, V>, usize)> {
        let (front, back) = self.0.as_mut()?;
        if front.same_end(back) { None } else { back.previous() }
    }
}

impl<K, V> Default for Span<K, V> {
    fn default() -> Self {
        Span(None)
    }
}

impl<K, V> Clone for Span<K, V> {
    fn clone(&self) -> Self {
        Span(self.0.clone())
    }
}

/// Iterator of [`PBTree::range`].
pub struct Range<'a, K, V> {
    span: Span<K, V>,
    tree: PhantomData<&'a PBTree<K, V>>,
}

// SAFETY: the iterator returns `&K` and `&V` of a tree that is borrowed during iteration.
unsafe impl<K: Sync, V: Sync> Send for Range<'_, K, V> {}
// SAFETY: the iterator returns `&K` and `&V` of a tree that is borrowed during iteration.
unsafe impl<K: Sync, V: Sync> Sync for Range<'_, K, V> {}

impl<'a, K, V> Range<'a, K, V> {
    pub(super) fn new(span: Span<K, V>) -> Self {
        Range { span, tree: PhantomData }
    }

    fn pair((node, at): (NodeRef<K, V>, usize)) -> (&'a K, &'a V) {
        // SAFETY: a valid entry of the tree, which is borrowed for `'a`.
        unsafe { (node.key_place(at).as_ref(), node.value_place(at).as_ref()) }
    }
}

impl<'a, K, V> Iterator for Range<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        self.span.next().map(Self::pair)
    }
}

impl<K, V> DoubleEndedIterator for Range<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.span.next_back().map(Self::pair)
    }
}

impl<K, V> FusedIterator for Range<'_, K, V> {}

impl<K, V> Clone for Range<'_, K, V> {
    fn clone(&self) -> Self {
        Range { span: self.span.clone(), tree: PhantomData }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Range<'_, K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.clone()).finish()
    }
}

/// Iterator of [`PBTree::iter`].
pub struct Iter<'a, K, V> {
    range: Range<'a, K, V>,
    left: usize,
}

impl<'a, K, V> Iter<'a, K, V> {
    pub(super) fn new(tree: &'a PBTree<K, V>) -> Self {
        let span = Span::new(tree.first_edge(), tree.last_edge());
        Iter { range: Range::new(span), left: tree.len() }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let pair = self.range.next()?;
        self.left -= 1;
        Some(pair)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V> DoubleEndedIterator for Iter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let pair = self.range.next_back()?;
        self.left -= 1;
        Some(pair)
    }
}

impl<K, V> ExactSizeIterator for Iter<'_, K, V> {}
impl<K, V> FusedIterator for Iter<'_, K, V> {}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Iter { range: self.range.clone(), left: self.left }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Iter<'_, K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.range.fmt(formatter)
    }
}

impl<'a, K, V> IntoIterator for &'a PBTree<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

half!(
    /// Iterator of [`PBTree::keys`].
    Keys, Iter, K, 0
);
half!(
    /// Iterator of [`PBTree::values`].
    Values, Iter, V, 1
);

/// Iterator of `Mut<'_, PBTree<K, V>>::range_mut`: each key with a cursor to its value.
pub struct RangeMut<'a, K, V> {
    heap: &'a Heap,
    span: Span<K, V>,
    exclusive: PhantomData<(&'a K, &'a mut V)>,
}

// SAFETY: the iterator returns `&K` and exclusive access to values; the heap is `Sync`. The tree is
// exclusively borrowed during iteration.
unsafe impl<K: Sync, V: Send> Send for RangeMut<'_, K, V> {}
// SAFETY: a shared iterator gives no access.
unsafe impl<K: Sync, V: Sync> Sync for RangeMut<'_, K, V> {}

impl<'a, K: Persist, V: Persist> RangeMut<'a, K, V> {
    /// # Safety
    ///
    /// The span lies in a tree of `heap`'s object, exclusively borrowed for `'a`.
    pub(super) unsafe fn new(heap: &'a Heap, span: Span<K, V>) -> Self {
        RangeMut { heap, span, exclusive: PhantomData }
    }

    fn pair(&self, (node, at): (NodeRef<K, V>, usize)) -> (&'a K, Mut<'a, V>) {
        let (key, value): (NonNull<K>, NonNull<V>) = (node.key_place(at), node.value_place(at));
        // SAFETY: a valid entry of the tree that the caller of `new` guaranteed. The edges only
        // move towards each other (or apart, if an inconsistent order put them the wrong way
        // round), so each entry is returned once.
        unsafe { (key.as_ref(), Mut::from_raw(self.heap, value)) }
    }
}

impl<'a, K: Persist, V: Persist> Iterator for RangeMut<'a, K, V> {
    type Item = (&'a K, Mut<'a, V>);

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.span.next()?;
        Some(self.pair(entry))
    }
}

impl<K: Persist, V: Persist> DoubleEndedIterator for RangeMut<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.span.next_back()?;
        Some(self.pair(entry))
    }
}

impl<K: Persist, V: Persist> FusedIterator for RangeMut<'_, K, V> {}

/// Iterator of `Mut<'_, PBTree<K, V>>::iter_mut`: each key with a cursor to its value.
pub struct IterMut<'a, K, V> {
    range: RangeMut<'a, K, V>,
    left: usize,
}

impl<'a, K: Persist, V: Persist> Iterator for IterMut<'a, K, V> {
    type Item = (&'a K, Mut<'a, V>);

    fn next(&mut self) -> Option<Self::Item> {
        let pair = self.range.next()?;
        self.left -= 1;
        Some(pair)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K: Persist, V: Persist> DoubleEndedIterator for IterMut<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let pair = self.range.next_back()?;
        self.left -= 1;
        Some(pair)
    }
}

impl<K: Persist, V: Persist> ExactSizeIterator for IterMut<'_, K, V> {}
impl<K: Persist, V: Persist> FusedIterator for IterMut<'_, K, V> {}

impl<'a, K: Persist, V: Persist> IntoIterator for Mut<'a, PBTree<K, V>> {
    type Item = (&'a K, Mut<'a, V>);
    type IntoIter = IterMut<'a, K, V>;

    fn into_iter(self) -> IterMut<'a, K, V> {
        let left = self.len();
        let span = Span::new(self.first_edge(), self.last_edge());
        // SAFETY: the span lies in the cursor's tree, and the cursor is consumed.
        IterMut { range: unsafe { RangeMut::new(self.heap, span) }, left }
    }
}

values_mut!(
    /// Iterator of `Mut<'_, PBTree<K, V>>::values_mut`.
    ValuesMut, IterMut
);
