//! Links that the Tab key reaches.

use std::ops::Range;

use kurbo::Rect;

use crate::page::{Block, Link};

/// Returns the rectangles of the link that begins with number `ring`.
pub(super) fn rects(block: Block<'_>, ring: usize) -> Vec<Rect> {
    let mut links = block.links().skip(ring);
    let Some(first) = links.next() else { return Vec::new() };
    let same = links.take_while(|link| is_same(link, &first)).map(|link| link.rect);
    std::iter::once(first.rect).chain(same).collect()
}

/// Returns the number of the next or previous link. Without a `ring`, returns a link in the visible
/// rows if there is one.
pub(super) fn next(
    block: Block<'_>,
    ring: Option<usize>,
    step: isize,
    visible: Range<u32>,
) -> Option<usize> {
    let links: Vec<Link<'_>> = block.links().collect();
    let is_first = |at: &usize| *at == 0 || !is_same(&links[*at], &links[*at - 1]);
    let firsts: Vec<usize> = (0..links.len()).filter(is_first).collect();
    let (top, bottom) = (f64::from(visible.start), f64::from(visible.end));
    let in_view = |at: &usize| links[*at].rect.y1 > top && links[*at].rect.y0 < bottom;
    let is_ring = |at: &usize| Some(*at) == ring;
    let all = firsts.len() as isize;
    let next = match firsts.iter().position(is_ring) {
        Some(at) => at as isize + step,
        None if step > 0 => firsts.iter().position(in_view).unwrap_or(0) as isize,
        None => firsts.iter().rposition(in_view).map_or(-1, |at| at as isize),
    };
    (all > 0).then(|| firsts[next.rem_euclid(all) as usize])
}

/// Returns true if two rectangles belong to one link.
fn is_same(one: &Link<'_>, other: &Link<'_>) -> bool {
    one.node.is_some() && one.node == other.node && one.url == other.url
}
