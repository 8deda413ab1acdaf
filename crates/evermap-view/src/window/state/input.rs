//! Performs commands of keys and buttons, clicks, and edits of the two text fields.

use kurbo::Rect;

use super::State;
use crate::window::address_bar::TextField;
use crate::window::event::{Cursor, Effect};
use crate::window::geometry::Button;
use crate::window::keys::{Command, Focus};
use crate::window::pointer::{Grab, NOTCH};
use crate::window::visits::Content;
use crate::window::{links, zoom};

/// Width reserved for "3 of 17", in CSS pixels.
const COUNT: f64 = 96.0;

impl State {
    pub(super) fn perform(&mut self, command: Command<'_>) {
        match command {
            Command::Travel(steps) => self.travel(steps),
            Command::Home => self.go_home(),
            Command::Reload { fresh } => self.reload(fresh),
            Command::Find => self.open_find(),
            Command::FindStep(step) => self.find_step(step),
            Command::FocusAddress => self.focus_address(),
            Command::FocusPage => self.focus_page(),
            Command::Zoom(steps) => self.zoom_by(steps),
            Command::Exit => self.effects.push(Effect::Exit),
            Command::SelectAll => self.edit(TextField::select_all),
            Command::Copy => {
                self.copy();
            }
            Command::Cut => {
                if self.copy() {
                    self.insert("");
                }
            }
            Command::Paste => self.effects.push(Effect::Paste),
            Command::Insert(text) => self.insert(text),
            Command::Move { motion, selecting } => {
                self.edit(|field| field.move_cursor(motion, selecting));
            }
            Command::Erase(motion) => {
                self.edit(|field| field.erase(motion));
                self.field_changed();
            }
            Command::ScrollLines(x, y) => {
                let line = self.scroll().line();
                self.scroll_by(x * line, y * line);
            }
            Command::ScrollScreens(screens) => self.scroll_by(0, screens * self.scroll().screen()),
            Command::ScrollToTop => self.scroll_to((self.left, 0)),
            Command::ScrollToBottom => self.scroll_to((self.left, u32::MAX)),
            Command::MoveRing(step) => self.move_ring(step),
            Command::Accept => self.accept(),
            Command::Dismiss => self.dismiss(),
        }
    }

    fn accept(&mut self) {
        if self.focus == Focus::Address {
            let address = self.address.text().to_string();
            self.focus_page();
            return self.open(&address);
        }
        if matches!(self.visits.content, Content::Failed(_)) {
            return self.reload(false);
        }
        if let Some(url) = self.ring_url() {
            self.open(&url);
        }
    }

    fn dismiss(&mut self) {
        let is_loading = self.visits.loading.is_some();
        match self.focus {
            Focus::Find => self.close_find(),
            Focus::Address if is_loading && !self.edited => self.stop(),
            Focus::Address => {
                self.restore_address();
                self.focus_page();
            }
            Focus::Page if is_loading => self.stop(),
            Focus::Page if self.find.open => self.close_find(),
            Focus::Page => {
                self.ring = None;
                self.message.clear();
                self.redraw();
            }
        }
    }

    fn press_button(&mut self, button: Button) {
        match button {
            Button::Back => self.travel(-1),
            Button::Forward => self.travel(1),
            Button::Reload if self.visits.loading.is_some() => self.stop(),
            Button::Reload => self.reload(false),
            Button::Home => self.go_home(),
            Button::FindPrevious => self.find_step(-1),
            Button::FindNext => self.find_step(1),
            Button::FindClose => self.close_find(),
        }
    }

    fn zoom_by(&mut self, steps: i32) {
        if let Some(zoom) = zoom::stepped(self.zoom, steps) {
            self.zoom = zoom;
            self.redraw();
            self.relayout();
        }
    }

    fn focus_address(&mut self) {
        self.focus = Focus::Address;
        self.address.select_all();
        self.redraw();
    }

    fn focus_page(&mut self) {
        self.focus = Focus::Page;
        self.redraw();
    }

    fn focused_field(&mut self) -> Option<&mut TextField> {
        match self.focus {
            Focus::Page => None,
            Focus::Address => Some(&mut self.address),
            Focus::Find => Some(&mut self.find.field),
        }
    }

    fn edit(&mut self, edit: impl FnOnce(&mut TextField)) {
        if let Some(field) = self.focused_field() {
            edit(field);
            self.redraw();
        }
    }

    /// Copies the selection of the focused field. Returns false if it is empty.
    fn copy(&mut self) -> bool {
        let selected = self.focused_field().map(|field| field.selected().to_string());
        let copied = selected.filter(|text| !text.is_empty()).map(Effect::Copy);
        let any = copied.is_some();
        self.effects.extend(copied);
        self.redraw();
        any
    }

    /// Inserts text into the focused field.
    pub(super) fn insert(&mut self, text: &str) {
        if self.focused_field().is_some() {
            self.edit(|field| field.insert(text));
            self.field_changed();
        }
    }

    fn field_changed(&mut self) {
        match self.focus {
            Focus::Page => (),
            Focus::Address => self.edited = true,
            Focus::Find => {
                self.find.typed(self.visits.block());
                self.show_match();
            }
        }
        self.redraw();
    }

    fn open_find(&mut self) {
        self.find.begin(self.visits.block(), self.top);
        self.focus = Focus::Find;
        self.redraw();
    }

    fn close_find(&mut self) {
        if self.find.close() {
            self.focus_page();
        }
    }

    fn find_step(&mut self, step: isize) {
        if !self.find.open {
            self.open_find();
        }
        if self.find.step(step) {
            self.show_match();
        }
    }

    /// Repeats the search on a new page, without scrolling.
    pub(super) fn search_again(&mut self) {
        self.find.search(self.visits.block());
        self.redraw();
    }

    fn show_match(&mut self) {
        self.redraw();
        if let Some(rect) = self.find.show() {
            self.scroll_into_view(rect);
        }
    }

    fn scroll_into_view(&mut self, rect: Rect) {
        let hidden = if self.find.open { self.geometry.find.height } else { 0 };
        self.scroll_to(self.scroll().to_rect(rect, hidden));
    }

    /// Moves the focus ring to the next or previous link. The first time, picks a visible link.
    fn move_ring(&mut self, step: isize) {
        let Some(block) = self.visits.block() else { return };
        let visible = self.top..self.top + self.geometry.page.height;
        let Some(ring) = links::next(block, self.ring, step, visible) else { return };
        self.ring = Some(ring);
        let rects = self.ring_rects().into_iter();
        if let Some(whole) = rects.reduce(|whole, rect| whole.union(rect)) {
            self.scroll_into_view(whole);
        }
        self.redraw();
    }

    pub(super) fn pointer_moved(&mut self, to: Option<(f64, f64)>) {
        self.pointer.at = to;
        let Some(point) = to else { return };
        match self.pointer.pressed {
            Some(Grab::Thumb { horizontal, offset }) => self.drag(point, horizontal, offset),
            Some(Grab::Field { first: false }) => self.place_cursor(point, true),
            Some(Grab::Button(_)) => self.redraw(),
            _ => (),
        }
    }

    fn drag(&mut self, (x, y): (f64, f64), horizontal: bool, offset: f64) {
        let bar = self.geometry.scroll_bar;
        let start = if horizontal { x } else { y - f64::from(bar.top) };
        if let Some(to) = self.scroll().of_thumb(horizontal, start - offset) {
            self.scroll_to(to);
        }
    }

    pub(super) fn pressed(&mut self) {
        let Some(point) = self.pointer.at else { return };
        self.pointer.pressed = self.grab_at(point);
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
        let scroll = self.scroll();
        let screen = scroll.screen();
        if let Some(thumb) = scroll.horizontal_thumb()
            && self.geometry.horizontal_bar().contains(point)
        {
            if thumb.contains(point) {
                return Some(Grab::Thumb { horizontal: true, offset: x - f64::from(thumb.left) });
            }
            self.scroll_by(if x < f64::from(thumb.left) { -screen } else { screen }, 0);
            return None;
        }
        let thumb = scroll.thumb().filter(|_| self.geometry.scroll_bar.contains(point))?;
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
        let byte = self.text_style(1.0).byte_at(text, x as f32 - start);
        self.edit(|field| field.place(byte, selecting));
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
        let cursor = self.text_style(1.0).width(&field.text()[..field.cursor()]);
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
        let grab = self.pointer.pressed.take();
        self.redraw();
        let Some(point) = self.pointer.at else { return };
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

    pub(super) fn wheel(&mut self, x: f64, y: f64) {
        let (control, shift) = (self.modifiers.control, self.modifiers.shift);
        let step = if control { NOTCH * self.geometry.scale } else { 1.0 };
        let (x, y) = self.pointer.wheel((x, y), step);
        match (control, shift) {
            // Turning towards the user zooms out.
            (true, _) => (0..y.abs().min(4)).for_each(|_| self.zoom_by(-y.signum() as i32)),
            (false, true) => self.scroll_by(y, x),
            (false, false) => self.scroll_by(x, y),
        }
    }

    pub(super) fn touch_moved(&mut self, point: (f64, f64)) {
        if let Some((x, y)) = self.pointer.touch_moved(point, self.geometry.scale) {
            self.scroll_by(x, y);
        }
    }

    pub(super) fn touch_ended(&mut self) {
        if let Some(tap) = self.pointer.touch_ended() {
            self.pointer.at = Some(tap);
            self.pressed();
            self.released();
            self.pointer.at = None;
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
        self.visits.block()?.link_at(x, y).map(|link| link.url.to_string())
    }

    /// Updates the hovered link and button after anything may have moved.
    pub(super) fn update_hover(&mut self) {
        let pressed = self.pointer.pressed.as_ref();
        let dragging = pressed.is_some_and(|grab| !matches!(grab, Grab::Link(_)));
        let point = self.pointer.at.filter(|_| !dragging);
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
        let lit = self.pointer.button(&self.geometry, self.find.open);
        if self.pointer.hover != hover || self.pointer.lit != lit {
            (self.pointer.hover, self.pointer.lit) = (hover, lit);
            self.redraw();
        }
    }
}
