//! Lays out the contents: every screen, row and item gets its frame. Lengths are for a screen
//! height of 1080, and are multiplied by the unit of the screen.

use crate::contents::{Channel, Contents, Entry, Film, Programme};
use crate::model::{Frame, Kind, Look, Recipe};
use crate::plain::{PlainInterface, PlainItem, PlainRow, PlainScreen};
use crate::times::{clock, weekday};

/// Margin at the left and right of every screen, because televisions hide the edges.
pub const MARGIN: f32 = 96.0;
/// Width of the guide's channel column.
pub const CHANNEL_COLUMN: f32 = 272.0;
/// Height of a row in the guide.
pub const GUIDE_ROW: f32 = 92.0;
/// Width of a minute in the guide: half an hour is 228 pixels.
pub const MINUTE: f32 = 7.6;
/// Number of films on a shelf.
const SHELF_ITEMS: usize = 16;
const GAP: f32 = 28.0;

/// Lays out all screens.
pub fn lay_out(contents: Contents, width: u32, height: u32) -> PlainInterface {
    let unit = height as f32 / 1080.0;
    let layout = Layout { unit, width: width as f32 / unit, now: contents.now_minute };
    let mut screens = vec![layout.home(&contents), layout.posters(&contents.films)];
    let mut lists = Vec::new();
    for (at, entry) in contents.menu.iter().enumerate() {
        layout.lists(entry, &format!("menu/{at}"), &mut lists);
    }
    screens.push(layout.guide(contents.channels));
    screens.append(&mut lists);
    PlainInterface { width, height, screens }
}

struct Layout {
    /// Pixels for a length of 1.
    unit: f32,
    /// Width of the screen as a length.
    width: f32,
    now: u32,
}

impl Layout {
    /// Returns a frame on whole pixels.
    fn frame(&self, left: f32, top: f32, width: f32, height: f32) -> Frame {
        let at = |length: f32| (length * self.unit).round();
        let (x, y) = (at(left), at(top));
        Frame { left: x, top: y, width: at(left + width) - x, height: at(top + height) - y }
    }

    fn screen(&self, name: &str, title: &str, kind: Kind, viewport: Frame) -> PlainScreen {
        PlainScreen {
            name: name.to_string(),
            title: title.to_string(),
            kind,
            viewport,
            fixed_rows: 0,
            start_row: 0,
            start_item: 0,
            start_left: 0.0,
            first_minute: self.now,
            now_minute: self.now,
            rows: Vec::new(),
        }
    }

    fn home(&self, contents: &Contents) -> PlainScreen {
        let viewport = self.frame(0.0, 500.0, self.width, 580.0);
        let mut screen = self.screen("home", "Home", Kind::Home, viewport);
        screen.fixed_rows = 1;
        screen.start_row = 1;
        let mut left = 0.0;
        let mut buttons = PlainRow {
            title: String::new(),
            frame: self.frame(MARGIN, 54.0, self.width - 2.0 * MARGIN, 76.0),
            items: Vec::new(),
        };
        for (at, entry) in contents.menu.iter().enumerate() {
            let width = 128.0 + 19.0 * entry.title.chars().count() as f32;
            let mut item = self.entry(entry, &format!("menu/{at}"));
            item.frame = self.frame(left, 0.0, width, 76.0);
            item.look = Look::Button;
            buttons.items.push(item);
            left += width + 20.0;
        }
        screen.rows.push(buttons);
        let now_on: Vec<(&Channel, &Programme)> = contents
            .channels
            .iter()
            .filter_map(|channel| {
                let is_on = |p: &&Programme| (p.start..p.stop).contains(&self.now);
                Some((channel, channel.programmes.iter().find(is_on)?))
            })
            .take(SHELF_ITEMS)
            .collect();
        let mut top = 0.0;
        let cards = now_on.iter().enumerate().map(|(at, (channel, programme))| {
            let frame = self.frame(at as f32 * (360.0 + GAP), 64.0, 360.0, 204.0);
            card(programme, channel, frame)
        });
        screen.rows.push(self.shelf("On now", top, 204.0, cards.collect()));
        top += 204.0 + 64.0 + 44.0;
        let mut genres: Vec<&str> = Vec::new();
        for film in &contents.films {
            if !genres.contains(&film.genre.as_str()) {
                genres.push(&film.genre);
            }
        }
        for genre in genres {
            let films = contents.films.iter().filter(|film| film.genre == genre);
            let posters = films.take(SHELF_ITEMS).enumerate().map(|(at, film)| {
                let frame = self.frame(at as f32 * (216.0 + GAP), 64.0, 216.0, 324.0);
                poster(film, frame)
            });
            screen.rows.push(self.shelf(genre, top, 324.0, posters.collect()));
            top += 324.0 + 64.0 + 44.0;
        }
        screen.rows.retain(|row| !row.items.is_empty());
        // Without other rows, the focus starts in the menu bar.
        screen.start_row = u32::from(screen.rows.len() > 1);
        screen
    }

    /// Creates a row of items below its title.
    fn shelf(&self, title: &str, top: f32, height: f32, items: Vec<PlainItem>) -> PlainRow {
        let frame = self.frame(MARGIN, top, self.width - 2.0 * MARGIN, height + 64.0);
        PlainRow { title: title.to_string(), frame, items }
    }

    fn posters(&self, films: &[Film]) -> PlainScreen {
        let viewport = self.frame(0.0, 232.0, self.width, 848.0);
        let mut screen = self.screen("posters", "Films", Kind::Grid, viewport);
        let columns = (((self.width - 2.0 * MARGIN + GAP) / (222.0 + GAP)) as usize).max(1);
        let step = (self.width - 2.0 * MARGIN + GAP) / columns as f32;
        let (width, height) = (step - GAP, (step - GAP) * 1.5);
        for (number, films) in films.chunks(columns).enumerate() {
            let top = 24.0 + number as f32 * (height + GAP + 12.0);
            let posters = films
                .iter()
                .enumerate()
                .map(|(at, film)| poster(film, self.frame(at as f32 * step, 0.0, width, height)));
            screen.rows.push(PlainRow {
                title: String::new(),
                frame: self.frame(MARGIN, top, self.width - 2.0 * MARGIN, height),
                items: posters.collect(),
            });
        }
        screen
    }

    fn guide(&self, channels: Vec<Channel>) -> PlainScreen {
        let left = MARGIN + CHANNEL_COLUMN;
        let viewport = self.frame(left, 324.0, self.width - left, 756.0);
        let mut screen = self.screen("guide", "Guide", Kind::Guide, viewport);
        let first = channels.iter().flat_map(|channel| &channel.programmes).map(|p| p.start).min();
        let first = first.unwrap_or(self.now) / 30 * 30;
        screen.first_minute = first;
        let x = |minute: u32| minutes_between(first, minute) * MINUTE;
        for (number, channel) in channels.into_iter().enumerate() {
            let Channel { name, programmes, .. } = channel;
            let cells = programmes.into_iter().map(|programme| {
                let (from, to) = (x(programme.start), x(programme.stop));
                let mut cell = cell(programme, &name);
                cell.frame = self.frame(from, 0.0, to - from, GUIDE_ROW);
                cell
            });
            let items = cells.collect();
            let frame = self.frame(0.0, number as f32 * GUIDE_ROW, self.width - left, GUIDE_ROW);
            screen.rows.push(PlainRow { title: name, frame, items });
        }
        let now_x = x(self.now) * self.unit;
        let on_now = |item: &PlainItem| item.frame.right() > now_x;
        if let Some(row) = screen.rows.first() {
            screen.start_item = row.items.iter().position(on_now).unwrap_or(0) as u32;
        }
        // The current half hour is at the left edge.
        screen.start_left = (x(self.now / 30 * 30) * self.unit).round().max(0.0);
        screen
    }

    /// Creates the screens of an entry with subentries, recursively.
    fn lists(&self, entry: &Entry, name: &str, screens: &mut Vec<PlainScreen>) {
        if entry.entries.is_empty() {
            return;
        }
        let viewport = self.frame(0.0, 232.0, self.width, 848.0);
        let mut screen = self.screen(name, &entry.title, Kind::List, viewport);
        for (at, below) in entry.entries.iter().enumerate() {
            let mut item = self.entry(below, &format!("{name}/{at}"));
            item.frame = self.frame(0.0, 0.0, 1080.0, 104.0);
            screen.rows.push(PlainRow {
                title: String::new(),
                frame: self.frame(MARGIN, 16.0 + at as f32 * 120.0, 1080.0, 104.0),
                items: vec![item],
            });
        }
        screens.push(screen);
        for (at, below) in entry.entries.iter().enumerate() {
            self.lists(below, &format!("{name}/{at}"), screens);
        }
    }

    fn entry(&self, entry: &Entry, name: &str) -> PlainItem {
        let target = match (entry.opens.is_empty(), entry.entries.is_empty()) {
            (false, _) => entry.opens.as_str(),
            (true, false) => name,
            (true, true) => "",
        };
        PlainItem {
            title: entry.title.clone(),
            note: entry.note.clone(),
            text: String::new(),
            target: target.to_string(),
            frame: Frame::default(),
            look: Look::Entry,
            recipe: Recipe { shape: entry.icon, ..Recipe::default() },
        }
    }
}

fn poster(film: &Film, frame: Frame) -> PlainItem {
    PlainItem {
        title: film.title.clone(),
        note: format!("{}  ·  {}  ·  {} min", film.year, film.genre, film.minutes),
        text: film.synopsis.clone(),
        target: String::new(),
        frame,
        look: Look::Poster,
        recipe: film.recipe,
    }
}

fn card(programme: &Programme, channel: &Channel, frame: Frame) -> PlainItem {
    PlainItem {
        title: programme.title.clone(),
        note: note(programme, &channel.name),
        text: programme.synopsis.clone(),
        target: String::new(),
        frame,
        look: Look::Card,
        recipe: picture(programme),
    }
}

fn cell(programme: Programme, channel: &str) -> PlainItem {
    PlainItem {
        note: note(&programme, channel),
        recipe: picture(&programme),
        title: programme.title,
        text: programme.synopsis,
        target: String::new(),
        frame: Frame::default(),
        look: Look::Cell,
    }
}

fn note(programme: &Programme, channel: &str) -> String {
    let (day, from, to) = (weekday(programme.start), clock(programme.start), clock(programme.stop));
    format!("{channel}  ·  {day} {from} – {to}  ·  {}", programme.category)
}

/// Returns a picture for a programme, with the colours of its category.
fn picture(programme: &Programme) -> Recipe {
    const COLORS: [[u32; 3]; 8] = [
        [0x4a2f4d, 0x1d1326, 0xe99a7a],
        [0x2d3561, 0x12152c, 0xc7a6e0],
        [0x27495c, 0x0e1d27, 0x9fd3c7],
        [0x1e4d4a, 0x0c2224, 0xd9d08a],
        [0x5c2e3a, 0x241017, 0xf2b8a0],
        [0x3c4a35, 0x161d14, 0xe3d9a8],
        [0x5a3a2a, 0x22140f, 0xf0c48a],
        [0x4b4458, 0x1b1822, 0xe6c3d2],
    ];
    let sum = |text: &str| {
        text.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
    };
    let number = sum(&programme.category);
    Recipe {
        colors: COLORS[(number % 8) as usize],
        shape: number / 8 % 6,
        seed: sum(&programme.title) % 100_000,
    }
}

/// Returns the minutes between two times. Minutes since 1970 exceed the precision of an `f32`;
/// their difference does not.
pub(crate) fn minutes_between(from: u32, to: u32) -> f32 {
    (i64::from(to) - i64::from(from)) as f32
}
