//! Handles the mouse, touch, and the links that they and the Tab key reach.

use kurbo::Rect;

use super::geometry::Button;
use super::state::{Cursor, Focus, State};
use crate::page::Link;

/// Maximum movement of a tap, in CSS pixels.
const TAP: f64 = 8.0;

/// Distance of one notch of a mouse wheel, in CSS pixels.
pub(crate) const NOTCH: f64 = 60.0;
/// Width reserved for "3 of 17", in CSS pixels.
const COUNT: f64 = 96.0;

/// Target of a pressed pointer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Grab {
    Button(Button),
    /// Distance of the grabbed point from the thumb's start.
    Thumb {
        horizontal: bool,
        offset: f64,
    },
    Link(String),
    /// A text selection. `first` is true for the click that focuses the field.
    Field {
        first: bool,
    },
    Finger {
        start: (f64, f64),
        last: (f64, f64),
        moved: bool,
    },
}

impl State {
    pub(super) fn pointer_moved(&mut self, to: Option<(f64, f64)>) {
        self.pointer = to;
        let Some(point) = to else { return };
        match self.pressed {
            Some(Grab::Thumb { horizontal, offset }) => self.drag(point, horizontal, offset),
            Some(Grab::Field { first: false }) => self.place_cursor(point, true),
            Some(Grab::Button(_)) => self.redraw(),
            _ => (),
        }
    }

    fn drag(&mut self, (x, y): (f64, f64), horizontal: bool, offset: f64) {
        let bar = self.geometry.scroll_bar;
        let to = if horizontal { x } else { y - f64::from(bar.top) };
        self.drag_thumb(horizontal, to - offset);
    }

    pub(super) fn pressed(&mut self) {
        let Some(point) = self.pointer else { return };
        self.pressed = self.grab_at(point);
        self.redraw();
    }

    fn grab_at(&mut self, point: (f64, f64)) -> Option<Grab> {
        if let Some(button) = self.geometry.button_at(point, self.find.open) {
            return Some(Grab::Button(button));
        }
        if self.geometry.address.contains(point) {
            let first = self.focus != Focus::Address;
            match first {
                true => self.focus_address(),
                false => self.place_cursor(point, self.modifiers.shift),
            }
            return Some(Grab::Field { first });
        }
        if self.find.open && self.geometry.find.contains(point) {
            self.focus = Focus::Find;
            self.place_cursor(point, self.modifiers.shift);
            return Some(Grab::Field { first: false });
        }
        self.leave_fields();
        self.bar_at(point).or_else(|| self.link_at(point).map(Grab::Link))
    }

    /// A click outside the address bar ends its editing.
    fn leave_fields(&mut self) {
        if self.focus == Focus::Address {
            self.restore_address();
        }
        self.focus = Focus::Page;
    }

    /// Handles the scroll bars: grabs a thumb, or scrolls by a screen beside it.
    fn bar_at(&mut self, point: (f64, f64)) -> Option<Grab> {
        let (x, y) = point;
        let screen = self.screen();
        if let Some(thumb) = self.horizontal_thumb()
            && self.geometry.horizontal_bar().contains(point)
        {
            if thumb.contains(point) {
                return Some(Grab::Thumb { horizontal: true, offset: x - f64::from(thumb.left) });
            }
            self.scroll_by(if x < f64::from(thumb.left) { -screen } else { screen }, 0);
            return None;
        }
        let thumb = self.thumb().filter(|_| self.geometry.scroll_bar.contains(point))?;
        if thumb.contains(point) {
            return Some(Grab::Thumb { horizontal: false, offset: y - f64::from(thumb.top) });
        }
        self.scroll_by(0, if y < f64::from(thumb.top) { -screen } else { screen });
        None
    }

    /// Moves the cursor of the focused field to the pointer.
    fn place_cursor(&mut self, (x, _): (f64, f64), selecting: bool) {
        let start = self.field_start();
        let text = match self.focus {
            Focus::Page => return,
            Focus::Address => self.address.text(),
            Focus::Find => self.find.field.text(),
        };
        let byte = self.type_of(1.0).byte_at(text, x as f32 - start);
        if let Some(field) = self.focused_field() {
            field.place(byte, selecting);
        }
        self.redraw();
    }

    /// Returns the start of the focused field's text. It is left of the field if the cursor would
    /// be outside otherwise.
    pub(crate) fn field_start(&self) -> f32 {
        let (field, bounds) = match self.focus {
            Focus::Find => (&self.find.field, self.geometry.find_field),
            _ => (&self.address, self.geometry.address),
        };
        let padding = self.field_padding();
        let room = bounds.width as f32 - 2.0 * padding - self.field_reserve();
        let cursor = self.type_of(1.0).width(&field.text()[..field.cursor()]);
        bounds.left as f32 + padding - (cursor - room).max(0.0)
    }

    /// Returns the width reserved at the right end of the focused field, where the find bar shows
    /// its count.
    pub(crate) fn field_reserve(&self) -> f32 {
        if self.focus == Focus::Find { self.geometry.px(COUNT) as f32 } else { 0.0 }
    }

    /// Returns the distance between a field's edge and its text.
    pub(crate) fn field_padding(&self) -> f32 {
        self.geometry.px(9.0) as f32
    }

    pub(super) fn released(&mut self) {
        let grab = self.pressed.take();
        self.redraw();
        let Some(point) = self.pointer else { return };
        match grab {
            Some(Grab::Button(button))
                if self.geometry.button_at(point, self.find.open) == Some(button) =>
            {
                self.press_button(button);
            }
            Some(Grab::Link(url)) if self.link_at(point).as_ref() == Some(&url) => {
                self.open(&url);
            }
            _ => (),
        }
    }

    /// Wheels turn by notches, touchpads by fractions of a pixel. The remainder of a step is kept
    /// for the next event.
    pub(super) fn wheel(&mut self, x: f64, y: f64) {
        let step = if self.modifiers.control { NOTCH * self.geometry.scale } else { 1.0 };
        let whole = |turned: f64, rest: &mut f64| {
            // A change of direction takes effect at once.
            let remainder = if turned * *rest < 0.0 { 0.0 } else { *rest };
            let steps = ((turned + remainder) / step).trunc();
            *rest = turned + remainder - steps * step;
            steps as i64
        };
        let (x, y) = (whole(x, &mut self.turned.0), whole(y, &mut self.turned.1));
        match (self.modifiers.control, self.modifiers.shift) {
            // Turning towards the user zooms out.
            (true, _) => (0..y.abs().min(4)).for_each(|_| self.zoom_by(-y.signum() as i32)),
            (false, true) => self.scroll_by(y, x),
            (false, false) => self.scroll_by(x, y),
        }
    }

    pub(super) fn touched(&mut self, point: (f64, f64)) {
        self.pressed = Some(Grab::Finger { start: point, last: point, moved: false });
    }

    pub(super) fn touch_moved(&mut self, point: (f64, f64)) {
        let Some(Grab::Finger { start, last, moved }) = self.pressed else { return };
        let far = (point.0 - start.0).hypot(point.1 - start.1) > TAP * self.geometry.scale;
        let moved = moved || far;
        if moved {
            let (x, y) = ((last.0 - point.0).round(), (last.1 - point.1).round());
            self.scroll_by(x as i64, y as i64);
            // Keep the rounding error for the next move.
            let last = (last.0 - x, last.1 - y);
            self.pressed = Some(Grab::Finger { start, last, moved });
        }
    }

    /// A finger that did not move acts as a click.
    pub(super) fn touch_ended(&mut self) {
        if let Some(Grab::Finger { start, moved: false, .. }) = self.pressed.take() {
            self.pointer = Some(start);
            self.pressed();
            self.released();
            self.pointer = None;
        }
    }

    /// Returns the button under the pointer, and whether it is pressed. Returns `None` if something
    /// else is pressed.
    pub(crate) fn button_under_pointer(&self) -> Option<(Button, bool)> {
        let button = self.geometry.button_at(self.pointer?, self.find.open)?;
        match &self.pressed {
            None => Some((button, false)),
            Some(grab) => (*grab == Grab::Button(button)).then_some((button, true)),
        }
    }

    /// Returns the target of the link at a point of the window.
    fn link_at(&self, point: (f64, f64)) -> Option<String> {
        let over_find = self.find.open && self.geometry.find.contains(point);
        if over_find || !self.geometry.page.contains(point) {
            return None;
        }
        let x = point.0 + f64::from(self.left);
        let y = point.1 - f64::from(self.geometry.page.top) + f64::from(self.top);
        self.block()?.link_at(x, y).map(|link| link.url.to_string())
    }

    /// Updates the hovered link and button after anything may have moved.
    pub(super) fn update_hover(&mut self) {
        let dragging = self.pressed.as_ref().is_some_and(|grab| !matches!(grab, Grab::Link(_)));
        let point = self.pointer.filter(|_| !dragging);
        let hover = point.and_then(|point| self.link_at(point));
        let over_text = point.is_some_and(|point| {
            let find = self.find.open && self.geometry.find_field.contains(point);
            find || self.geometry.address.contains(point)
        });
        let cursor = match (&hover, over_text) {
            (Some(_), _) => Cursor::Hand,
            (None, true) => Cursor::Text,
            (None, false) => Cursor::Arrow,
        };
        self.set_cursor(cursor);
        let button = self.button_under_pointer();
        if self.hover != hover || self.lit != button {
            (self.hover, self.lit) = (hover, button);
            self.redraw();
        }
    }

    /// Returns the rectangles of the link with the keyboard focus.
    pub(crate) fn ring_rects(&self) -> Vec<Rect> {
        let (Some(block), Some(ring)) = (self.block(), self.ring) else { return Vec::new() };
        let mut links = block.links().skip(ring).peekable();
        let Some(first) = links.next() else { return Vec::new() };
        let same = links.take_while(|link| is_same_link(link, &first)).map(|link| link.rect);
        std::iter::once(first.rect).chain(same).collect()
    }

    pub(super) fn ring_url(&self) -> Option<String> {
        let link = self.block()?.links().nth(self.ring?)?;
        Some(link.url.to_string())
    }

    /// Moves the focus ring to the next or previous link. The first time, picks a visible link.
    pub(super) fn move_ring(&mut self, step: isize) {
        let Some(block) = self.block() else { return };
        let links: Vec<Link<'_>> = block.links().collect();
        let is_first = |at: &usize| *at == 0 || !is_same_link(&links[*at], &links[*at - 1]);
        let firsts: Vec<usize> = (0..links.len()).filter(is_first).collect();
        let (top, bottom) = (f64::from(self.top), f64::from(self.top + self.geometry.page.height));
        let in_view = |at: &usize| links[*at].rect.y1 > top && links[*at].rect.y0 < bottom;
        let is_ring = |at: &usize| Some(*at) == self.ring;
        let all = firsts.len() as isize;
        let next = match firsts.iter().position(is_ring) {
            Some(at) => at as isize + step,
            None if step > 0 => firsts.iter().position(in_view).unwrap_or(0) as isize,
            None => firsts.iter().rposition(in_view).map_or(-1, |at| at as isize),
        };
        if all == 0 {
            return;
        }
        self.ring = Some(firsts[next.rem_euclid(all) as usize]);
        let mut rects = self.ring_rects().into_iter();
        if let Some(first) = rects.next() {
            self.scroll_into_view(rects.fold(first, |whole, rect| whole.union(rect)));
        }
        self.redraw();
    }
}

/// Returns true if two rectangles belong to one link.
fn is_same_link(one: &Link<'_>, other: &Link<'_>) -> bool {
    one.node.is_some() && one.node == other.node && one.url == other.url
}
