//! Scroll position of the page.

use kurbo::Rect;
use percent_encoding::percent_decode_str;

use super::geometry::Rectangle;
use super::history::ScrollPosition;
use super::state::State;

/// Step of an arrow key, in CSS pixels.
const LINE: f64 = 40.0;
/// Overlap of two screens when scrolling by a screen, in CSS pixels.
const OVERLAP: f64 = 40.0;

impl State {
    /// Returns the step of an arrow key.
    pub(super) fn line(&self) -> i64 {
        i64::from(self.geometry.px(LINE))
    }

    /// Returns the step of a screen.
    pub(super) fn screen(&self) -> i64 {
        i64::from(self.geometry.page.height.saturating_sub(self.geometry.px(OVERLAP)).max(1))
    }

    /// Returns true if the page is wider than its layout.
    pub(crate) fn is_wide(&self) -> bool {
        self.block().is_some_and(|block| block.size().width > block.size().window.0)
    }

    /// Returns the scrollable width and height.
    pub(crate) fn extent(&self) -> (u32, u32) {
        let Some(block) = self.block() else { return (0, 0) };
        let size = block.size();
        match self.is_wide() {
            // The bar covers the bottom of the page, so the page can be scrolled further by its
            // height.
            true => (size.width, size.height + self.geometry.horizontal_bar().height),
            false => (self.geometry.page.width.min(size.width), size.height),
        }
    }

    pub(super) fn scroll_to(&mut self, left: u32, top: u32) {
        let (width, height) = self.extent();
        let page = self.geometry.page;
        let left = left.min(width.saturating_sub(page.width));
        let top = top.min(height.saturating_sub(page.height));
        if (self.left, self.top) != (left, top) {
            (self.left, self.top) = (left, top);
            self.redraw();
        }
    }

    pub(super) fn scroll_by(&mut self, x: i64, y: i64) {
        let moved = |at: u32, by: i64| {
            u32::try_from((i64::from(at).saturating_add(by)).max(0)).unwrap_or(u32::MAX)
        };
        self.scroll_to(moved(self.left, x), moved(self.top, y));
    }

    pub(super) fn scroll_to_position(&mut self, position: ScrollPosition) {
        if let Some(block) = self.block() {
            let (left, top) = position.find_on(block);
            self.scroll_to(left, top);
        }
    }

    /// Scrolls to `#fragment`. Does nothing without such an anchor.
    pub(super) fn scroll_to_fragment(&mut self, fragment: &str) {
        let Some(block) = self.block() else { return };
        let decoded = percent_decode_str(fragment).decode_utf8_lossy();
        let found = block.anchor(fragment).or_else(|| block.anchor(&decoded));
        match found {
            Some(top) => self.scroll_to(0, top.max(0.0) as u32),
            None if fragment.is_empty() || fragment.eq_ignore_ascii_case("top") => {
                self.scroll_to(0, 0);
            }
            None => (),
        }
    }

    /// Scrolls until a part of the page is visible, with some context around it.
    pub(super) fn scroll_into_view(&mut self, rect: Rect) {
        let page = self.geometry.page;
        let hidden = if self.find.open { self.geometry.find.height } else { 0 };
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
        self.scroll_to(to.0.max(0.0) as u32, to.1.max(0.0) as u32);
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

    /// Scrolls so that the thumb starts at a position of its bar.
    pub(super) fn drag_thumb(&mut self, horizontal: bool, to: f64) {
        let part = |track: u32, length: u32, all: u32, seen: u32| {
            let room = f64::from(track.saturating_sub(length)).max(1.0);
            ((to / room).clamp(0.0, 1.0) * f64::from(all.saturating_sub(seen))).round() as u32
        };
        let ((width, height), page) = (self.extent(), self.geometry.page);
        match (horizontal, self.thumb(), self.horizontal_thumb()) {
            (false, Some(thumb), _) => {
                let top = part(self.geometry.scroll_bar.height, thumb.height, height, page.height);
                self.scroll_to(self.left, top);
            }
            (true, _, Some(thumb)) => {
                let left = part(page.width, thumb.width, width, page.width);
                self.scroll_to(left, self.top);
            }
            _ => (),
        }
    }
}
