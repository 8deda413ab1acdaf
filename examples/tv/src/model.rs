//! The user interface as what draws it and what moves in it see it: screens of rows of items, each with its place.
//!
//! There are two of them with the same fields: [`crate::plain`], an ordinary tree in the process's memory, and
//! [`crate::kept`], which lies in an object of a store. Whoever draws can't tell which one it was given.

use evermap::{Persist, Plain};

/// A place, in pixels. Items are placed in their row, rows in their screen's content, viewports on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Persist, Plain)]
#[repr(C)]
pub struct Frame {
    /// From the left.
    pub left: f32,
    /// From the top.
    pub top: f32,
    /// Pixels wide.
    pub width: f32,
    /// Pixels high.
    pub height: f32,
}

impl Frame {
    /// The right edge.
    pub fn right(&self) -> f32 {
        self.left + self.width
    }

    /// The bottom edge.
    pub fn bottom(&self) -> f32 {
        self.top + self.height
    }

    /// The same, elsewhere.
    pub fn moved(self, x: f32, y: f32) -> Frame {
        Frame { left: self.left + x, top: self.top + y, ..self }
    }

    /// Larger by `by` at each side.
    pub fn grown(self, by: f32) -> Frame {
        Frame {
            left: self.left - by,
            top: self.top - by,
            width: self.width + 2.0 * by,
            height: self.height + 2.0 * by,
        }
    }
}

/// How a screen is arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
#[repr(u8)]
pub enum Kind {
    /// A menu bar, what has the focus in large, shelves.
    Home = 0,
    /// Posters in rows.
    Grid = 1,
    /// Programmes of channels over time.
    Guide = 2,
    /// Entries below each other.
    List = 3,
}

/// What an item looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
#[repr(u8)]
pub enum Look {
    /// A button of the menu bar, with an icon.
    Button = 0,
    /// A film's poster.
    Poster = 1,
    /// A programme's card.
    Card = 2,
    /// A programme's cell of the guide.
    Cell = 3,
    /// A line of a menu.
    Entry = 4,
}

/// How a poster is drawn: three colours, one of some shapes, and a seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Persist, Plain)]
#[repr(C)]
pub struct Recipe {
    /// Above, below and on top; 0x00RRGGBB.
    pub colors: [u32; 3],
    /// Which shape, or which icon.
    pub shape: u32,
    /// Where the parts of the shape are.
    pub seed: u32,
}

/// A screen without its rows.
#[derive(Clone, Copy, Debug)]
pub struct ScreenRef<'a> {
    /// What opens it.
    pub name: &'a str,
    /// What stands above it.
    pub title: &'a str,
    /// How it is arranged.
    pub kind: Kind,
    /// Where rows are seen that move.
    pub viewport: Frame,
    /// How many of the first rows don't move, and lie outside the viewport.
    pub fixed_rows: usize,
    /// What has the focus first: row and item.
    pub start: (usize, usize),
    /// How far the content is moved to the left at first.
    pub start_left: f32,
    /// The minute that the content's left edge stands for, since 1970.
    pub first_minute: u32,
    /// The minute that it is.
    pub now_minute: u32,
    /// Number of rows.
    pub rows: usize,
}

/// A row without its items.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    /// The shelf's title, the channel's name, or nothing.
    pub title: &'a str,
    /// Where it is.
    pub frame: Frame,
    /// Number of items.
    pub items: usize,
}

/// Something that can have the focus.
#[derive(Clone, Copy, Debug)]
pub struct ItemRef<'a> {
    /// Its name.
    pub title: &'a str,
    /// Year and genre, or time and channel.
    pub note: &'a str,
    /// What it is about.
    pub text: &'a str,
    /// The screen that it opens; if empty, it opens in large.
    pub target: &'a str,
    /// Where it is in its row.
    pub frame: Frame,
    /// What it looks like.
    pub look: Look,
    /// How its picture is drawn.
    pub recipe: Recipe,
}

/// A user interface, laid out. Indices that lead nowhere give `None`.
pub trait Interface {
    /// Pixels that it was laid out for.
    fn size(&self) -> (u32, u32);
    /// Number of screens.
    fn screens(&self) -> usize;
    /// A screen.
    fn screen(&self, screen: usize) -> Option<ScreenRef<'_>>;
    /// A row of it.
    fn row(&self, screen: usize, row: usize) -> Option<RowRef<'_>>;
    /// An item of that.
    fn item(&self, screen: usize, row: usize, item: usize) -> Option<ItemRef<'_>>;

    /// The screen with this name.
    fn find(&self, name: &str) -> Option<usize> {
        (0..self.screens()).find(|at| self.screen(*at).is_some_and(|s| s.name == name))
    }

    /// Pixels of the screen a pixel of a screen that is 1080 high.
    fn unit(&self) -> f32 {
        self.size().1 as f32 / 1080.0
    }

    /// The first item of a row that reaches beyond `left`. Items are in order: it is found by halving.
    fn first_beyond(&self, screen: usize, row: usize, left: f32) -> usize {
        let items = self.row(screen, row).map_or(0, |row| row.items);
        let (mut low, mut high) = (0, items);
        while low < high {
            let middle = low.midpoint(high);
            match self.item(screen, row, middle) {
                Some(item) if item.frame.right() <= left => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }
}

/// The same code for both kinds of tables: strings and vectors of both are borrowed alike.
macro_rules! implement_interface {
    ($interface:ty) => {
        impl $crate::model::Interface for $interface {
            fn size(&self) -> (u32, u32) {
                (self.width, self.height)
            }

            fn screens(&self) -> usize {
                self.screens.len()
            }

            fn screen(&self, screen: usize) -> Option<$crate::model::ScreenRef<'_>> {
                let screen = self.screens.get(screen)?;
                Some($crate::model::ScreenRef {
                    name: &screen.name,
                    title: &screen.title,
                    kind: screen.kind,
                    viewport: screen.viewport,
                    fixed_rows: screen.fixed_rows as usize,
                    start: (screen.start_row as usize, screen.start_item as usize),
                    start_left: screen.start_left,
                    first_minute: screen.first_minute,
                    now_minute: screen.now_minute,
                    rows: screen.rows.len(),
                })
            }

            fn row(&self, screen: usize, row: usize) -> Option<$crate::model::RowRef<'_>> {
                let row = self.screens.get(screen)?.rows.get(row)?;
                let items = row.items.len();
                Some($crate::model::RowRef { title: &row.title, frame: row.frame, items })
            }

            fn item(
                &self,
                screen: usize,
                row: usize,
                item: usize,
            ) -> Option<$crate::model::ItemRef<'_>> {
                let item = self.screens.get(screen)?.rows.get(row)?.items.get(item)?;
                Some($crate::model::ItemRef {
                    title: &item.title,
                    note: &item.note,
                    text: &item.text,
                    target: &item.target,
                    frame: item.frame,
                    look: item.look,
                    recipe: item.recipe,
                })
            }
        }
    };
}
pub(crate) use implement_interface;
