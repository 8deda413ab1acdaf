//! Positions of the window's parts in device pixels, for drawing and hit testing.
//!
//! From top to bottom: the toolbar, the page with its scroll bar, and the status line. The page's
//! area does not depend on the page, so its width and height are known before the page is loaded.

use crate::Layout;

/// A rectangle of whole pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rectangle {
    pub left: u32,
    pub top: u32,
    pub width: u32,
    pub height: u32,
}

impl Rectangle {
    pub(crate) fn new(left: u32, top: u32, width: u32, height: u32) -> Rectangle {
        Rectangle { left, top, width, height }
    }

    pub(crate) fn right(&self) -> u32 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> u32 {
        self.top + self.height
    }

    pub(crate) fn contains(&self, (x, y): (f64, f64)) -> bool {
        let inside = |at: f64, from: u32, to: u32| (f64::from(from)..f64::from(to)).contains(&at);
        inside(x, self.left, self.right()) && inside(y, self.top, self.bottom())
    }

    /// Returns the rectangle reduced by `by` on all sides.
    pub(crate) fn inset(&self, by: u32) -> Rectangle {
        let (x, y) = (by.min(self.width / 2), by.min(self.height / 2));
        Rectangle::new(self.left + x, self.top + y, self.width - 2 * x, self.height - 2 * y)
    }
}

/// Buttons of the toolbar and the find bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Button {
    Back,
    Forward,
    /// Loads the page again. While a page is loading, stops that instead.
    Reload,
    Home,
    FindPrevious,
    FindNext,
    FindClose,
}

// Sizes of parts, in CSS pixels.
const TOOLBAR: f64 = 40.0;
const STATUS: f64 = 24.0;
const SCROLL_BAR: f64 = 14.0;
const THUMB_MIN: f64 = 28.0;
const BUTTON: f64 = 30.0;
const FIND_WIDTH: f64 = 380.0;
const FIND_HEIGHT: f64 = 40.0;

/// Number of buttons in the toolbar. The others are in the find bar.
const TOOLBAR_BUTTONS: usize = 4;

/// Positions of the window's parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Geometry {
    /// Size of the whole window.
    pub window: (u32, u32),
    /// Device pixels per CSS pixel, without zoom.
    pub scale: f64,
    pub toolbar: Rectangle,
    pub address: Rectangle,
    pub page: Rectangle,
    pub scroll_bar: Rectangle,
    pub status: Rectangle,
    /// The find bar, which covers part of the page.
    pub find: Rectangle,
    pub find_field: Rectangle,
    /// The buttons of the toolbar, then those of the find bar.
    buttons: [(Button, Rectangle); 7],
}

impl Geometry {
    pub(crate) fn new(width: u32, height: u32, scale: f64) -> Geometry {
        let scale = if scale.is_finite() { scale.clamp(0.25, 16.0) } else { 1.0 };
        let px = |css: f64| (css * scale).round() as u32;
        let toolbar = Rectangle::new(0, 0, width, px(TOOLBAR).min(height));
        let status_height = px(STATUS).min(height - toolbar.height);
        let status = Rectangle::new(0, height - status_height, width, status_height);
        let rest = status.top - toolbar.bottom();
        let bar_width = px(SCROLL_BAR).min(width);
        let page = Rectangle::new(0, toolbar.bottom(), width - bar_width, rest);
        let scroll_bar = Rectangle::new(page.right(), page.top, bar_width, rest);
        let find_width = px(FIND_WIDTH).min(page.width);
        let find_height = px(FIND_HEIGHT).min(page.height);
        let find = Rectangle::new(page.right() - find_width, page.top, find_width, find_height);
        let side = px(BUTTON);
        let gap = (toolbar.height.saturating_sub(side)) / 2;
        let button = |n: u32| Rectangle::new(gap + n * (side + px(2.0)), gap, side, side);
        let from_right = |n: u32| {
            let right = (n * (side + px(2.0)) + gap).min(find.width);
            Rectangle::new(find.right() - right, find.top + gap, side.min(right), side)
        };
        let address_left = (button(4).left + gap).min(width);
        let address_width = (width - address_left).saturating_sub(gap + px(3.0));
        let find_end = from_right(3).left.max(find.left);
        let field_left = (find.left + gap + px(3.0)).min(find_end);
        Geometry {
            window: (width, height),
            scale,
            toolbar,
            address: Rectangle::new(address_left, gap, address_width, side),
            page,
            scroll_bar,
            status,
            find,
            find_field: Rectangle::new(field_left, find.top + gap, find_end - field_left, side),
            buttons: [
                (Button::Back, button(0)),
                (Button::Forward, button(1)),
                (Button::Reload, button(2)),
                (Button::Home, button(3)),
                (Button::FindPrevious, from_right(3)),
                (Button::FindNext, from_right(2)),
                (Button::FindClose, from_right(1)),
            ],
        }
    }

    /// Returns the layout of pages at this zoom.
    pub(crate) fn layout(&self, zoom: f32) -> Layout {
        Layout {
            width: self.page.width.max(1),
            height: self.page.height.max(1),
            scale: self.scale as f32 * zoom,
        }
    }

    /// Converts CSS pixels to device pixels.
    pub(crate) fn px(&self, css: f64) -> u32 {
        (css * self.scale).round() as u32
    }

    /// Returns the position of a button.
    pub(crate) fn button(&self, button: Button) -> Rectangle {
        let found = self.buttons.iter().find(|(this, _)| *this == button);
        found.map_or(Rectangle::default(), |(_, at)| *at)
    }

    /// Returns the button at a point of the window. Ignores the buttons of a closed find bar.
    pub(crate) fn button_at(&self, point: (f64, f64), is_find_open: bool) -> Option<Button> {
        let count = if is_find_open { self.buttons.len() } else { TOOLBAR_BUTTONS };
        let shown = &self.buttons[..count];
        shown.iter().find(|(_, at)| at.contains(point)).map(|(button, _)| *button)
    }

    /// Returns the horizontal scroll bar, which is shown if the page is wider than the window. It
    /// covers part of the page.
    pub(crate) fn horizontal_bar(&self) -> Rectangle {
        let height = self.scroll_bar.width.min(self.page.height);
        Rectangle::new(0, self.page.bottom() - height, self.page.width, height)
    }

    /// Returns the offset and length of the thumb in a bar that is `track` pixels long. The page is
    /// `page` pixels long, and `visible` of them are visible from `position`.
    pub(crate) fn thumb(&self, track: u32, visible: u32, page: u32, position: u32) -> (u32, u32) {
        if page <= visible || visible == 0 {
            return (0, track);
        }
        let length = (f64::from(track) * f64::from(visible) / f64::from(page)).round() as u32;
        let length = length.max(self.px(THUMB_MIN)).min(track);
        let position_max = page - visible;
        let scrolled = f64::from(position.min(position_max)) / f64::from(position_max);
        ((f64::from(track - length) * scrolled).round() as u32, length)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parts_fill_the_window_without_overlap() {
        for (width, height, scale) in
            [(1024, 768, 1.0), (2000, 1500, 2.0), (640, 480, 1.25), (99, 70, 3.0), (1, 1, 1.0)]
        {
            let g = Geometry::new(width, height, scale);
            assert_eq!(g.toolbar.height + g.page.height + g.status.height, height);
            assert_eq!(g.page.width + g.scroll_bar.width, width);
            assert_eq!((g.page.top, g.page.bottom()), (g.toolbar.bottom(), g.status.top));
            assert!(g.address.right() <= width && g.find.right() <= g.page.right());
        }
    }

    #[test]
    fn buttons_of_a_closed_find_bar_are_not_hit() {
        let g = Geometry::new(1024, 768, 1.0);
        let close = g.button(Button::FindClose);
        let middle = (f64::from(close.left + 5), f64::from(close.top + 5));
        assert_eq!(g.button_at(middle, true), Some(Button::FindClose));
        assert_eq!(g.button_at(middle, false), None);
        assert_eq!(g.button_at((12.0, 20.0), false), Some(Button::Back));
        assert!(g.find_field.right() <= g.button(Button::FindPrevious).left);
    }

    #[test]
    fn the_thumb_moves_from_end_to_end() {
        let g = Geometry::new(1024, 768, 1.0);
        assert_eq!(g.thumb(700, 700, 700, 0), (0, 700));
        assert_eq!(g.thumb(700, 700, 1400, 0), (0, 350));
        assert_eq!(g.thumb(700, 700, 1400, 700), (350, 350));
        assert_eq!(g.thumb(700, 700, 1400, 9999), (350, 350));
        assert_eq!(g.thumb(700, 700, 10_000_000, 0).1, 28, "the thumb has a minimum length");
    }
}
