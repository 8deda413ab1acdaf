//! State of focus, open screens and scrolling; keys change it, without a display.

use crate::model::{Frame, Interface, ItemRef, Kind, Look};

/// Key of the remote control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Arrow to the left.
    Left,
    /// Arrow to the right.
    Right,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Opens the focused item.
    Enter,
    /// Closes the last opened item or screen.
    Back,
    /// One screen up: channels in the guide, rows elsewhere.
    PageUp,
    /// One screen down.
    PageDown,
    /// Two hours back in the guide.
    HoursBack,
    /// Two hours forward in the guide.
    HoursOn,
}

/// Effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No effect.
    Nothing,
    /// The screen has changed.
    Changed,
    /// The first screen was closed.
    Exit,
}

/// Time in which a scroll covers half of its remaining distance, in seconds.
const HALFWAY_S: f32 = 0.045;
/// Pixels of two hours, at a height of 1080.
const HOURS: f32 = 120.0 * crate::layout::MINUTE;

/// Open screen with the focus and scroll positions.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Index of the screen.
    pub screen: usize,
    /// Focused row.
    pub row: usize,
    /// Focused item of the row.
    pub item: usize,
    /// Vertical scroll position.
    pub top: Scroll,
    /// Horizontal scroll position of each row; the guide has one for all.
    pub lefts: Vec<Scroll>,
    /// Horizontal position of the focus while it moves between rows of the guide.
    anchor: f32,
}

/// Animated scroll position.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scroll {
    /// Visible position.
    pub shown: f32,
    /// Position at the end of the animation.
    pub target: f32,
}

impl Scroll {
    /// Advances the animation by `seconds`. Returns true while it continues.
    fn advance(&mut self, seconds: f32) -> bool {
        let rest = self.target - self.shown;
        let left = rest * 0.5f32.powf(seconds / HALFWAY_S);
        let arrived = left.abs() < 0.75;
        self.shown = if arrived { self.target } else { (self.target - left).round() };
        // Rounding must not stop the animation.
        if !arrived && self.shown == self.target - rest {
            self.shown += rest.signum();
        }
        self.shown != self.target
    }
}

/// State that changes while the television is on.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Open screens, the visible one last.
    pub places: Vec<Place>,
    /// True if the focused item is shown in large.
    pub opened: bool,
}

impl State {
    /// Returns the initial state with one screen open.
    pub fn new(interface: &dyn Interface, screen: usize) -> State {
        let mut state = State { places: Vec::new(), opened: false };
        state.open(interface, screen);
        state
    }

    /// Returns the visible screen's state.
    pub fn place(&self) -> Option<&Place> {
        self.places.last()
    }

    /// Returns the focused item.
    pub fn focused<'a>(&self, interface: &'a dyn Interface) -> Option<ItemRef<'a>> {
        let place = self.place()?;
        interface.item(place.screen, place.row, place.item)
    }

    fn open(&mut self, interface: &dyn Interface, screen: usize) {
        let Some(about) = interface.screen(screen) else { return };
        let (row, item) = about.start;
        let left = Scroll { shown: about.start_left, target: about.start_left };
        let place = Place {
            screen,
            row,
            item,
            top: Scroll::default(),
            lefts: vec![left; if about.kind == Kind::Guide { 1 } else { about.rows }],
            anchor: 0.0,
        };
        self.places.push(place);
        self.follow(interface);
        self.arrive();
        self.set_anchor(interface);
    }

    /// Ends all animations at their targets.
    pub fn arrive(&mut self) {
        if let Some(place) = self.places.last_mut() {
            for scroll in place.lefts.iter_mut().chain([&mut place.top]) {
                scroll.shown = scroll.target;
            }
        }
    }

    /// Advances all animations by `seconds`. Returns true while one continues.
    pub fn advance(&mut self, seconds: f32) -> bool {
        let Some(place) = self.places.last_mut() else { return false };
        let scrolls = place.lefts.iter_mut().chain([&mut place.top]);
        scrolls.fold(false, |moves, scroll| scroll.advance(seconds) | moves)
    }

    /// Handles a key.
    pub fn press(&mut self, interface: &dyn Interface, key: Key) -> Outcome {
        let before = self.clone();
        match key {
            Key::Back if self.opened => self.opened = false,
            Key::Back if self.places.len() <= 1 => return Outcome::Exit,
            Key::Back => _ = self.places.pop(),
            Key::Enter => self.enter(interface),
            _ if self.opened => (),
            Key::Left => self.along(interface, -1),
            Key::Right => self.along(interface, 1),
            Key::Up => self.across(interface, -1),
            Key::Down => self.across(interface, 1),
            Key::PageUp => self.across(interface, -self.page(interface)),
            Key::PageDown => self.across(interface, self.page(interface)),
            Key::HoursBack => self.hours(interface, -HOURS),
            Key::HoursOn => self.hours(interface, HOURS),
        }
        if *self == before { Outcome::Nothing } else { Outcome::Changed }
    }

    fn enter(&mut self, interface: &dyn Interface) {
        let Some(item) = self.focused(interface) else { return };
        if self.opened {
            return;
        }
        if item.target.is_empty() {
            self.opened = matches!(item.look, Look::Poster | Look::Card | Look::Cell);
            return;
        }
        let Some(screen) = interface.find(item.target) else { return };
        // Returns to a screen that is already open, so that the stack does not grow without bound.
        match self.places.iter().position(|place| place.screen == screen) {
            Some(at) => self.places.truncate(at + 1),
            None => self.open(interface, screen),
        }
    }

    /// Moves to another item of the row.
    fn along(&mut self, interface: &dyn Interface, by: isize) {
        let Some(place) = self.places.last_mut() else { return };
        let items = interface.row(place.screen, place.row).map_or(0, |row| row.items);
        place.item = place.item.saturating_add_signed(by).min(items.saturating_sub(1));
        self.follow(interface);
        self.set_anchor(interface);
    }

    /// Moves to the nearest item of another row, skipping rows without items.
    fn across(&mut self, interface: &dyn Interface, by: isize) {
        let Some(place) = self.places.last() else { return };
        let Some(screen) = interface.screen(place.screen) else { return };
        let last = screen.rows.saturating_sub(1);
        let mut row = place.row.saturating_add_signed(by).min(last);
        let has_items = |row| interface.row(place.screen, row).is_some_and(|row| row.items > 0);
        while !has_items(row) && row != 0 && row != last {
            row = row.saturating_add_signed(by.signum());
        }
        if row == place.row || !has_items(row) {
            return;
        }
        let item = match screen.kind {
            Kind::Guide => {
                let items = interface.row(place.screen, row).map_or(0, |row| row.items);
                let found = interface.first_beyond(place.screen, row, place.anchor);
                found.min(items.saturating_sub(1))
            }
            _ => self.nearest(interface, row),
        };
        if let Some(place) = self.places.last_mut() {
            (place.row, place.item) = (row, item);
        }
        self.follow(interface);
    }

    fn nearest(&self, interface: &dyn Interface, row: usize) -> usize {
        let Some(place) = self.place() else { return 0 };
        let middle = |row: usize, item: usize| {
            let frame = self.on_screen(interface, row, item)?;
            Some(frame.left + frame.width / 2.0)
        };
        let from = middle(place.row, place.item).unwrap_or(0.0);
        let items = interface.row(place.screen, row).map_or(0, |row| row.items);
        let distance = |item: &usize| middle(row, *item).map_or(f32::MAX, |x| (x - from).abs());
        (0..items).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
    }

    /// Returns the number of rows that fit on the screen.
    fn page(&self, interface: &dyn Interface) -> isize {
        let seen = self.place().and_then(|place| {
            let screen = interface.screen(place.screen)?;
            let last = screen.rows.checked_sub(1)?;
            let first = interface.row(place.screen, screen.fixed_rows.min(last))?;
            let next = interface.row(place.screen, (screen.fixed_rows + 1).min(last))?;
            let step = (next.frame.top - first.frame.top).max(first.frame.height).max(1.0);
            Some((screen.viewport.height / step) as isize)
        });
        seen.unwrap_or(1).max(1)
    }

    /// Moves the guide in time, together with the focus.
    fn hours(&mut self, interface: &dyn Interface, by: f32) {
        let Some(place) = self.places.last_mut() else { return };
        if interface.screen(place.screen).is_none_or(|screen| screen.kind != Kind::Guide) {
            return;
        }
        let items = interface.row(place.screen, place.row).map_or(0, |row| row.items);
        let Some(last) = items.checked_sub(1) else { return };
        let end = interface.item(place.screen, place.row, last).map_or(0.0, |i| i.frame.left);
        place.anchor = (place.anchor + by * interface.unit()).clamp(0.0, end.max(0.0));
        let found = interface.first_beyond(place.screen, place.row, place.anchor);
        place.item = found.min(last);
        if let Some(left) = place.lefts.first_mut() {
            left.target = (left.target + (by * interface.unit()).round()).clamp(0.0, end.max(0.0));
        }
        self.follow(interface);
    }

    /// Sets the anchor to the visible start of the focused item.
    fn set_anchor(&mut self, interface: &dyn Interface) {
        let Some(item) = self.focused(interface) else { return };
        let begins = item.frame.left;
        let Some(place) = self.places.last_mut() else { return };
        let seen = place.lefts.first().map_or(0.0, |left| left.target);
        place.anchor = begins.max(seen) + 1.0;
    }

    /// Returns the position of an item on the screen after all animations have ended.
    pub fn on_screen(&self, interface: &dyn Interface, row: usize, item: usize) -> Option<Frame> {
        let place = self.place()?;
        let about = interface.row(place.screen, row)?;
        let frame = interface.item(place.screen, row, item)?.frame;
        let screen = interface.screen(place.screen)?;
        let left = place.lefts.get(if screen.kind == Kind::Guide { 0 } else { row });
        let x = about.frame.left - left.map_or(0.0, |left| left.target);
        let moved = frame.moved(x, about.frame.top);
        Some(match row < screen.fixed_rows {
            true => moved,
            false => moved.moved(screen.viewport.left, screen.viewport.top - place.top.target),
        })
    }

    /// Scrolls so that the focus is visible.
    fn follow(&mut self, interface: &dyn Interface) {
        let Some(focused) = self.focused(interface).map(|item| item.frame) else { return };
        let Some(place) = self.places.last_mut() else { return };
        let Some(screen) = interface.screen(place.screen) else { return };
        let Some(row) = interface.row(place.screen, place.row) else { return };
        let unit = interface.unit();
        if place.row >= screen.fixed_rows {
            let (margin_above, margin_below) = match screen.kind {
                Kind::Home => (0.0, f32::MAX),
                Kind::Guide => (0.0, 0.0),
                _ => (24.0 * unit, 48.0 * unit),
            };
            let top = (row.frame.top - margin_above).round();
            let bottom = row.frame.bottom() + margin_below.min(screen.viewport.height);
            let lowest = (bottom - screen.viewport.height).round();
            // Applies the bottom limit first: if a row is higher than the screen, its top is
            // visible.
            place.top.target = place.top.target.max(lowest).min(top).max(0.0);
        }
        let (at, room, step) = match screen.kind {
            // Scrolls by half hours, so that the grid stays aligned.
            Kind::Guide => (0, screen.viewport.width, 30.0 * crate::layout::MINUTE * unit),
            _ => (place.row, row.frame.width, 1.0),
        };
        let Some(left) = place.lefts.get_mut(at) else { return };
        let farthest = (focused.right() - room) / step;
        let wanted = left.target.max(farthest.ceil() * step);
        let begins = (focused.left / step).floor() * step;
        // A programme that began long before the visible part is visible enough, so the guide does
        // not scroll back.
        let reaches = screen.kind == Kind::Guide && focused.right() >= left.target + 3.0 * step;
        let nearest =
            if reaches && focused.right() <= left.target + room { left.target } else { begins };
        left.target = wanted.min(nearest.max(0.0)).max(0.0).round();
    }
}
