//! Draws the screens from any [`Interface`]: an ordinary tree, or a tree in an object.

use anyrender::PaintScene;
use kurbo::RoundedRect;

use crate::art::{icon, picture};
use crate::canvas::{Canvas, Style, color, faded, palette, rect, style};
use crate::fonts::Weight::{Text, Title};
use crate::layout::{CHANNEL_COLUMN, MARGIN, MINUTE, minutes_between};
use crate::model::{Frame, Interface, ItemRef, Kind, Look, ScreenRef};
use crate::state::{Place, State};
use crate::times::{clock, weekday};

const HEADLINE: Style = style(Title, 60.0, palette::TEXT);
const NAME: Style = style(Title, 46.0, palette::TEXT);
const NOTE: Style = style(Text, 30.0, palette::DIM);
const BODY: Style = style(Text, 30.0, palette::TEXT);
const SHELF: Style = style(Title, 32.0, palette::TEXT);

/// State of drawing one screen.
pub(crate) struct View<'a> {
    pub interface: &'a dyn Interface,
    pub state: &'a State,
    pub place: &'a Place,
    pub screen: ScreenRef<'a>,
    /// Frame of the whole screen.
    pub all: Frame,
}

/// Visible item.
pub(crate) struct Seen<'a> {
    pub item: ItemRef<'a>,
    /// Position on the screen.
    pub frame: Frame,
    pub focused: bool,
    /// The programme is on now, or over.
    pub on: bool,
    pub past: bool,
}

/// Draws the current state.
pub(crate) fn draw<S: PaintScene>(
    canvas: &mut Canvas<'_, S>,
    interface: &dyn Interface,
    state: &State,
) {
    let (width, height) = interface.size();
    let all = Frame { left: 0.0, top: 0.0, width: width as f32, height: height as f32 };
    canvas.shade(all, color(palette::BACK_ABOVE), color(palette::BACK_BELOW));
    let Some(place) = state.place() else { return };
    let Some(screen) = interface.screen(place.screen) else { return };
    let view = View { interface, state, place, screen, all };
    if state.opened {
        if let Some(item) = state.focused(interface) {
            view.opened(canvas, item);
        }
        return;
    }
    match screen.kind {
        Kind::Home => view.home(canvas),
        Kind::Grid => view.grid(canvas),
        Kind::Guide => view.guide(canvas),
        Kind::List => view.list(canvas),
    }
}

impl<'a> View<'a> {
    /// Returns the visible items of a row, in order.
    pub fn seen(&self, row: usize) -> Vec<Seen<'a>> {
        let (interface, place, screen) = (self.interface, self.place, self.screen);
        let Some(about) = interface.row(place.screen, row) else { return Vec::new() };
        let guide = screen.kind == Kind::Guide;
        let left = place.lefts.get(if guide { 0 } else { row }).map_or(0.0, |left| left.shown);
        let (mut x, mut y) = (about.frame.left - left, about.frame.top);
        let mut edge = 0.0;
        if row >= screen.fixed_rows {
            x += screen.viewport.left;
            y += screen.viewport.top - place.top.shown;
            edge = screen.viewport.left;
        }
        if y > self.all.bottom() || y + about.frame.height < 0.0 {
            return Vec::new();
        }
        let now =
            minutes_between(screen.first_minute, screen.now_minute) * MINUTE * interface.unit();
        // The focus ring of an item slightly outside may be visible.
        let first = interface.first_beyond(place.screen, row, edge - x - 16.0);
        let mut seen = Vec::new();
        for number in first..about.items {
            let Some(item) = interface.item(place.screen, row, number) else { break };
            let frame = item.frame.moved(x, y);
            if frame.left > self.all.right() {
                break;
            }
            let focused = (row, number) == (place.row, place.item);
            let on = guide && item.frame.left <= now && now < item.frame.right();
            seen.push(Seen { item, frame, focused, on, past: guide && item.frame.right() <= now });
        }
        seen
    }

    /// Returns the scrolling rows that may be visible.
    pub fn moving_rows(&self) -> std::ops::Range<usize> {
        let shown = |row: &usize| {
            let Some(row) = self.interface.row(self.place.screen, *row) else { return false };
            row.frame.bottom() + 32.0 > self.place.top.shown
                && row.frame.top - 32.0 < self.place.top.shown + self.screen.viewport.height
        };
        let rows = self.screen.fixed_rows..self.screen.rows;
        let first = rows.clone().find(shown).unwrap_or(rows.end);
        let end = (first..rows.end).find(|row| !shown(row)).unwrap_or(rows.end);
        first..end
    }

    fn header<S: PaintScene>(&self, canvas: &mut Canvas<'_, S>, base: f32) {
        let now = format!("{} {}", weekday(self.screen.now_minute), clock(self.screen.now_minute));
        let right = self.all.right() - canvas.length(MARGIN);
        let clock_style = style(Title, 34.0, palette::TEXT);
        canvas.text_ending(clock_style, &now, right, canvas.length(base), canvas.length(460.0));
    }

    fn home<S: PaintScene>(&self, canvas: &mut Canvas<'_, S>) {
        let unit = canvas.unit;
        let left = canvas.length(MARGIN);
        let focused = self.state.focused(self.interface);
        if let Some(item) = focused {
            if item.look != Look::Button {
                self.backdrop(canvas, item);
            }
            let room = canvas.length(1060.0);
            canvas.text(HEADLINE, item.title, left, 238.0 * unit, room);
            canvas.text(NOTE, item.note, left, 290.0 * unit, room);
            let lines = Frame { left, top: 346.0 * unit, width: room, height: 0.0 };
            canvas.paragraph(BODY, item.text, lines, 42.0, 3);
        }
        self.header(canvas, 104.0);
        for row in 0..self.screen.fixed_rows {
            for seen in self.seen(row) {
                button(canvas, &seen);
            }
        }
        let viewport = rect(Frame { left: 0.0, width: self.all.width, ..self.screen.viewport });
        canvas.clipped(&viewport, |canvas| {
            for row in self.moving_rows() {
                self.shelf(canvas, row);
            }
        });
    }

    fn shelf<S: PaintScene>(&self, canvas: &mut Canvas<'_, S>, row: usize) {
        let Some(about) = self.interface.row(self.place.screen, row) else { return };
        let top = about.frame.top + self.screen.viewport.top - self.place.top.shown;
        let base = top + canvas.length(34.0);
        canvas.text(SHELF, about.title, about.frame.left, base, about.frame.width);
        self.items(canvas, row);
    }

    /// Draws a large picture of the focused item behind the right part of the screen.
    fn backdrop<S: PaintScene>(&self, canvas: &mut Canvas<'_, S>, item: ItemRef<'_>) {
        let (width, height) = (self.all.width * 0.5, canvas.length(500.0));
        let frame = Frame { left: self.all.width - width, top: 0.0, width, height };
        canvas.clipped(&rect(frame), |canvas| picture(canvas, frame, item.recipe));
        let back = palette::BACK_ABOVE;
        canvas.shade(frame, faded(back, 0.75), faded(back, 0.2));
        canvas.shade_across(frame, color(back), faded(back, 0.0));
        let below = Frame { top: height * 0.5, height: height * 0.5, ..frame };
        canvas.shade(below, faded(0x12_1a_26, 0.0), color(0x11_18_24));
    }

    /// Draws the posters and cards of a row, the focused one last.
    fn items<S: PaintScene>(&self, canvas: &mut Canvas<'_, S>, row: usize) {
        let seen = self.seen(row);
        for seen in seen.iter().filter(|seen| !seen.focused) {
            tile(canvas, seen);
        }
        if let Some(seen) = seen.iter().find(|seen| seen.focused) {
            tile(canvas, seen);
        }
    }

    fn grid<S: PaintScene>(&self, canvas: &mut Canvas<'_, S>) {
        self.header(canvas, 104.0);
        let (unit, left) = (canvas.unit, canvas.length(MARGIN));
        let small = style(Title, 32.0, palette::ACCENT);
        canvas.text(small, self.screen.title, left, 92.0 * unit, canvas.length(600.0));
        if let Some(item) = self.state.focused(self.interface) {
            canvas.text(NAME, item.title, left, 152.0 * unit, canvas.length(1300.0));
            let room = self.all.width - 2.0 * left;
            canvas.text(NOTE, item.note, left, 200.0 * unit, room);
        }
        let viewport = rect(Frame { left: 0.0, width: self.all.width, ..self.screen.viewport });
        canvas.clipped(&viewport, |canvas| {
            // The focused row is last, because its ring overlaps other rows.
            let rows = self.moving_rows().filter(|row| *row != self.place.row);
            for row in rows.chain([self.place.row]) {
                self.items(canvas, row);
            }
        });
    }

    fn list<S: PaintScene>(&self, canvas: &mut Canvas<'_, S>) {
        self.header(canvas, 104.0);
        let (unit, left) = (canvas.unit, canvas.length(MARGIN));
        canvas.text(HEADLINE, self.screen.title, left, 160.0 * unit, canvas.length(1300.0));
        for row in self.moving_rows() {
            for seen in self.seen(row) {
                entry(canvas, &seen);
            }
        }
    }

    /// Draws one item over the whole screen.
    fn opened<S: PaintScene>(&self, canvas: &mut Canvas<'_, S>, item: ItemRef<'_>) {
        let unit = canvas.unit;
        let whole = Frame { left: 0.0, top: 0.0, width: self.all.width, height: self.all.height };
        canvas.shade(whole, color(palette::BACK_ABOVE), color(palette::BACK_BELOW));
        let tall = item.look == Look::Poster;
        let (width, height) = if tall { (520.0, 780.0) } else { (700.0, 394.0) };
        let frame = Frame {
            left: canvas.length(MARGIN),
            top: canvas.length(if tall { 150.0 } else { 220.0 }),
            width: canvas.length(width),
            height: canvas.length(height),
        };
        canvas.shadow(frame, 16.0);
        let shape = RoundedRect::from_rect(rect(frame), f64::from(16.0 * unit));
        canvas.clipped(&shape, |canvas| picture(canvas, frame, item.recipe));
        let left = frame.right() + canvas.length(80.0);
        let room = self.all.right() - canvas.length(MARGIN) - left;
        let place = Frame { left, top: frame.top + 62.0 * unit, width: room, height: 0.0 };
        let base = canvas.paragraph(style(Title, 68.0, palette::TEXT), item.title, place, 82.0, 2);
        canvas.text(NOTE, item.note, left, base - 14.0 * unit, room);
        let place = Frame { top: base + 62.0 * unit, ..place };
        canvas.paragraph(style(Text, 34.0, palette::TEXT), item.text, place, 52.0, 8);
        let base = self.all.bottom() - canvas.length(70.0);
        let hint = style(Text, 28.0, palette::FAINT);
        canvas.text(hint, "Back returns", left, base, room);
        self.header(canvas, 104.0);
    }

    fn guide<S: PaintScene>(&self, canvas: &mut Canvas<'_, S>) {
        self.header(canvas, 104.0);
        let (unit, left) = (canvas.unit, canvas.length(MARGIN));
        if let Some(item) = self.state.focused(self.interface) {
            let room = canvas.length(1180.0);
            canvas.text(NAME, item.title, left, 104.0 * unit, room);
            canvas.text(NOTE, item.note, left, 152.0 * unit, self.all.width - 2.0 * left);
            let lines =
                Frame { left, top: 200.0 * unit, width: self.all.width - 2.0 * left, height: 0.0 };
            canvas.paragraph(style(Text, 28.0, palette::TEXT), item.text, lines, 38.0, 2);
        }
        self.time_axis(canvas);
        let viewport = self.screen.viewport;
        for row in self.moving_rows() {
            let Some(about) = self.interface.row(self.place.screen, row) else { continue };
            let top = viewport.top + about.frame.top - self.place.top.shown;
            self.channel(canvas, about.title, Frame { left, top, ..about.frame }, row);
            let cells = self.seen(row);
            canvas.clipped(&rect(viewport), |canvas| {
                for seen in &cells {
                    cell(canvas, seen, viewport);
                }
            });
        }
        self.now_line(canvas);
    }

    /// Draws the name of a channel in its column.
    fn channel<S: PaintScene>(
        &self,
        canvas: &mut Canvas<'_, S>,
        name: &str,
        row: Frame,
        number: usize,
    ) {
        let column = Frame { width: canvas.length(CHANNEL_COLUMN - 12.0), ..row };
        let viewport = Frame { left: 0.0, width: self.all.width, ..self.screen.viewport };
        let focused = number == self.place.row;
        canvas.clipped(&rect(viewport), |canvas| {
            let inner = column.grown(-canvas.length(3.0));
            let back = if focused { palette::PANEL_ON } else { palette::PANEL };
            canvas.panel(inner, 10.0, color(back));
            let base = inner.top + inner.height / 2.0 + canvas.length(10.0);
            let number_style = style(Text, 26.0, palette::FAINT);
            let (x, room) = (inner.left + canvas.length(18.0), canvas.length(52.0));
            canvas.text(number_style, &(number + 1).to_string(), x, base, room);
            let color = if focused { palette::TEXT } else { palette::DIM };
            let x = x + room;
            let room = inner.right() - x - canvas.length(10.0);
            canvas.text(style(Title, 28.0, color), name, x, base, room);
        });
    }

    fn x_of(&self, minute: u32) -> f32 {
        let shown = self.place.lefts.first().map_or(0.0, |left| left.shown);
        let x = minutes_between(self.screen.first_minute, minute) * MINUTE * self.interface.unit();
        (self.screen.viewport.left + x - shown).round()
    }

    fn time_axis<S: PaintScene>(&self, canvas: &mut Canvas<'_, S>) {
        let viewport = self.screen.viewport;
        let (top, base) = (canvas.length(262.0), canvas.length(300.0));
        let strip =
            Frame { left: viewport.left, top, width: viewport.width, height: viewport.top - top };
        let per_minute = MINUTE * self.interface.unit();
        let shown = self.place.lefts.first().map_or(0.0, |left| left.shown);
        let first = self.screen.first_minute + (shown / per_minute) as u32;
        let day = style(Title, 28.0, palette::ACCENT);
        let left = canvas.length(MARGIN);
        canvas.text(day, weekday(first + 1), left, base, canvas.length(CHANNEL_COLUMN));
        canvas.clipped(&rect(strip), |canvas| {
            let mut minute = first / 30 * 30;
            while self.x_of(minute) < viewport.right() {
                let x = self.x_of(minute);
                let tick = Frame {
                    left: x,
                    top: canvas.length(312.0),
                    width: canvas.length(2.0),
                    height: canvas.length(12.0),
                };
                canvas.fill(&rect(tick), color(palette::FAINT));
                let label = style(Text, 28.0, palette::DIM);
                canvas.text(
                    label,
                    &clock(minute),
                    x + canvas.length(10.0),
                    base,
                    canvas.length(120.0),
                );
                minute += 30;
            }
        });
    }

    fn now_line<S: PaintScene>(&self, canvas: &mut Canvas<'_, S>) {
        let (x, viewport) = (self.x_of(self.screen.now_minute), self.screen.viewport);
        if x < viewport.left || x > viewport.right() {
            return;
        }
        let top = viewport.top - canvas.length(12.0);
        let height = viewport.bottom() - top;
        let line = Frame { left: x - canvas.length(1.0), top, width: canvas.length(3.0), height };
        canvas.fill(&rect(line), faded(palette::ACCENT, 0.8));
    }
}

fn button<S: PaintScene>(canvas: &mut Canvas<'_, S>, seen: &Seen<'_>) {
    let (back, ink) = match seen.focused {
        true => (color(palette::FOCUS), palette::ON_FOCUS),
        false => (faded(palette::PANEL_ON, 0.85), palette::TEXT),
    };
    canvas.panel(seen.frame, 38.0, back);
    let middle = seen.frame.top + seen.frame.height / 2.0;
    let x = seen.frame.left + canvas.length(46.0);
    icon(canvas, seen.item.recipe.shape, (x, middle), canvas.length(32.0), ink);
    let left = seen.frame.left + canvas.length(82.0);
    let room = seen.frame.right() - left - canvas.length(16.0);
    let base = middle + canvas.length(11.0);
    canvas.text(style(Title, 30.0, ink), seen.item.title, left, base, room);
}

fn entry<S: PaintScene>(canvas: &mut Canvas<'_, S>, seen: &Seen<'_>) {
    let (back, ink, faint) = match seen.focused {
        true => (palette::FOCUS, palette::ON_FOCUS, 0x3c_4a_5c),
        false => (palette::PANEL, palette::TEXT, palette::DIM),
    };
    canvas.panel(seen.frame, 16.0, color(back));
    let middle = seen.frame.top + seen.frame.height / 2.0;
    let x = seen.frame.left + canvas.length(56.0);
    icon(canvas, seen.item.recipe.shape, (x, middle), canvas.length(38.0), ink);
    let (left, base) = (seen.frame.left + canvas.length(108.0), middle + canvas.length(12.0));
    let name = style(Title, 34.0, ink);
    let width = canvas.text(name, seen.item.title, left, base, canvas.length(440.0));
    let right = seen.frame.right() - canvas.length(36.0);
    let room = right - left - width - canvas.length(40.0);
    canvas.text_ending(style(Text, 28.0, faint), seen.item.note, right, base, room);
}

/// Draws a poster or a programme's card.
fn tile<S: PaintScene>(canvas: &mut Canvas<'_, S>, seen: &Seen<'_>) {
    let frame = if seen.focused { seen.frame.grown(canvas.length(6.0)) } else { seen.frame };
    if seen.focused {
        canvas.shadow(frame, 14.0);
    }
    let shape = RoundedRect::from_rect(rect(frame), f64::from(14.0 * canvas.unit));
    canvas.clipped(&shape, |canvas| match seen.item.look {
        Look::Poster => poster(canvas, seen.item, frame),
        _ => card(canvas, seen.item, frame),
    });
    if seen.focused {
        canvas.ring(frame, 14.0);
    }
}

fn poster<S: PaintScene>(canvas: &mut Canvas<'_, S>, item: ItemRef<'_>, frame: Frame) {
    picture(canvas, frame, item.recipe);
    let below =
        Frame { top: frame.top + frame.height * 0.52, height: frame.height * 0.48, ..frame };
    canvas.shade(below, faded(0x08_0b_12, 0.0), faded(0x08_0b_12, 0.88));
    let title = style(Title, 26.0, palette::TEXT);
    let inner = frame.grown(-canvas.length(16.0));
    let size = title.size * canvas.unit;
    let lines = canvas.fonts.broken(title.weight, size, item.title, inner.width, 3).len();
    let step = 32.0;
    let top = inner.bottom() - canvas.length(4.0) - step * canvas.unit * (lines as f32 - 1.0);
    canvas.paragraph(title, item.title, Frame { top, ..inner }, step, 3);
}

fn card<S: PaintScene>(canvas: &mut Canvas<'_, S>, item: ItemRef<'_>, frame: Frame) {
    picture(canvas, frame, item.recipe);
    let below = Frame { top: frame.top + frame.height * 0.3, height: frame.height * 0.7, ..frame };
    canvas.shade(below, faded(0x08_0b_12, 0.0), faded(0x08_0b_12, 0.9));
    let inner = frame.grown(-canvas.length(18.0));
    let channel = item.note.split("  ·  ").next().unwrap_or_default();
    let base = inner.bottom() - canvas.length(4.0);
    canvas.text(style(Text, 26.0, palette::DIM), channel, inner.left, base, inner.width);
    let base = base - canvas.length(36.0);
    canvas.text(style(Title, 30.0, palette::TEXT), item.title, inner.left, base, inner.width);
}

fn cell<S: PaintScene>(canvas: &mut Canvas<'_, S>, seen: &Seen<'_>, viewport: Frame) {
    let gap = canvas.length(3.0);
    let inner = seen.frame.grown(-gap);
    if inner.width <= 0.0 {
        return;
    }
    let (back, ink) = match (seen.focused, seen.on, seen.past) {
        (true, _, _) => (palette::FOCUS, palette::ON_FOCUS),
        (_, true, _) => (palette::PANEL_ON, palette::TEXT),
        (_, _, true) => (palette::PANEL_PAST, palette::FAINT),
        _ => (palette::PANEL, palette::TEXT),
    };
    canvas.panel(inner, 10.0, color(back));
    // A programme that began before the left edge has its name at the edge.
    let left = inner.left.max(viewport.left) + canvas.length(16.0);
    let room = inner.right() - left - canvas.length(10.0);
    if room < canvas.length(30.0) {
        return;
    }
    let base = inner.top + inner.height / 2.0 + canvas.length(10.0);
    let name = style(if seen.focused { Title } else { Text }, 28.0, ink);
    canvas.text(name, seen.item.title, left, base, room);
}
