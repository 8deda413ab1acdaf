//! Scrolling: positions on the page that is shown, and the thumbs of its scroll bars.

use kurbo::Rect;
use percent_encoding::percent_decode_str;

use super::geometry::{Geometry, Rectangle};
use crate::page::Block;

/// Step of an arrow key, in CSS pixels.
const LINE: f64 = 40.0;
/// Overlap of two screens when scrolling by a screen, in CSS pixels.
const OVERLAP: f64 = 40.0;

/// The page in the window. All methods return positions and change nothing.
#[derive(Clone, Copy)]
pub(crate) struct Scroll<'a> {
    pub geometry: &'a Geometry,
    /// The page, if one is shown.
    pub block: Option<Block<'a>>,
    pub left: u32,
    pub top: u32,
}

impl Scroll<'_> {
    /// Returns the step of an arrow key.
    pub(super) fn line(&self) -> i64 {
        i64::from(self.geometry.px(LINE))
    }

    /// Returns the step of a screen.
    pub(super) fn screen(&self) -> i64 {
        i64::from(self.geometry.page.height.saturating_sub(self.geometry.px(OVERLAP)).max(1))
    }

    /// Returns true if the page is wider than its layout.
    fn is_wide(&self) -> bool {
        self.block.is_some_and(|block| block.size().width > block.size().window.0)
    }

    /// Returns the scrollable width and height.
    fn extent(&self) -> (u32, u32) {
        let Some(block) = self.block else { return (0, 0) };
        let size = block.size();
        match self.is_wide() {
            // The bar covers the bottom of the page, so the page can be scrolled further by its
            // height.
            true => (size.width, size.height + self.geometry.horizontal_bar().height),
            false => (self.geometry.page.width.min(size.width), size.height),
        }
    }

    /// Returns the nearest valid position.
    pub(super) fn to(&self, (left, top): (u32, u32)) -> (u32, u32) {
        let (width, height) = self.extent();
        let page = self.geometry.page;
        (left.min(width.saturating_sub(page.width)), top.min(height.saturating_sub(page.height)))
    }

    pub(super) fn by(&self, x: i64, y: i64) -> (u32, u32) {
        let moved = |at: u32, by: i64| {
            u32::try_from((i64::from(at).saturating_add(by)).max(0)).unwrap_or(u32::MAX)
        };
        (moved(self.left, x), moved(self.top, y))
    }

    /// Returns the position of `#fragment`; `None` without such an anchor.
    pub(super) fn to_fragment(self, fragment: &str) -> Option<(u32, u32)> {
        let block = self.block?;
        let decoded = percent_decode_str(fragment).decode_utf8_lossy();
        let found = block.anchor(fragment).or_else(|| block.anchor(&decoded));
        match found {
            Some(top) => Some((0, top.max(0.0) as u32)),
            None if fragment.is_empty() || fragment.eq_ignore_ascii_case("top") => Some((0, 0)),
            None => None,
        }
    }

    /// Returns the position that shows a part of the page, with some context around it. `hidden`
    /// rows at the top of the page are covered.
    pub(super) fn to_rect(self, rect: Rect, hidden: u32) -> (u32, u32) {
        let page = self.geometry.page;
        let (left, top) = (f64::from(self.left), f64::from(self.top));
        let (right, bottom) = (left + f64::from(page.width), top + f64::from(page.height));
        let mut to = (left, top);
        if rect.y0 < top + f64::from(hidden) || rect.y1 > bottom {
            // A third of the screen from the top, so that the preceding text is visible too.
            to.1 = rect.y0 - f64::from(page.height) / 3.0;
        }
        if rect.x0 < left || rect.x1 > right {
            to.0 = rect.x0 - f64::from(page.width) / 3.0;
        }
        (to.0.max(0.0) as u32, to.1.max(0.0) as u32)
    }

    /// Returns the thumb of the vertical bar; `None` if the whole height is visible.
    pub(crate) fn thumb(&self) -> Option<Rectangle> {
        let (bar, seen, all) =
            (self.geometry.scroll_bar, self.geometry.page.height, self.extent().1);
        let (at, length) = self.geometry.thumb(bar.height, seen, all, self.top);
        (all > seen).then(|| Rectangle::new(bar.left, bar.top + at, bar.width, length))
    }

    /// Returns the thumb of the horizontal bar; `None` if the whole width is visible.
    pub(crate) fn horizontal_thumb(&self) -> Option<Rectangle> {
        let bar = self.geometry.horizontal_bar();
        let (seen, all) = (self.geometry.page.width, self.extent().0);
        let (at, length) = self.geometry.thumb(bar.width, seen, all, self.left);
        (self.is_wide() && all > seen)
            .then(|| Rectangle::new(bar.left + at, bar.top, length, bar.height))
    }

    /// Returns the position for a thumb that starts at `to` pixels of its bar.
    pub(super) fn of_thumb(&self, horizontal: bool, to: f64) -> Option<(u32, u32)> {
        let part = |track: u32, length: u32, all: u32, seen: u32| {
            let room = f64::from(track.saturating_sub(length)).max(1.0);
            ((to / room).clamp(0.0, 1.0) * f64::from(all.saturating_sub(seen))).round() as u32
        };
        let ((width, height), page) = (self.extent(), self.geometry.page);
        match (horizontal, self.thumb(), self.horizontal_thumb()) {
            (false, Some(thumb), _) => {
                let track = self.geometry.scroll_bar.height;
                Some((self.left, part(track, thumb.height, height, page.height)))
            }
            (true, _, Some(thumb)) => {
                Some((part(page.width, thumb.width, width, page.width), self.top))
            }
            _ => None,
        }
    }
}
