//! User interface as seen by drawing and navigation: screens of rows of items, each with its
//! position.
//!
//! There are two implementations with the same fields: [`crate::plain`], an ordinary tree in the
//! process's memory, and [`crate::kept`], a tree in an object of a store. The code that uses them
//! cannot distinguish them.

use evermap::{Persist, Plain};

/// Rectangle in pixels. Items are placed in their row, rows in their screen's content, viewports on
/// the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Persist, Plain)]
#[repr(C)]
pub struct Frame {
    /// Distance from the left.
    pub left: f32,
    /// Distance from the top.
    pub top: f32,
    /// Width in pixels.
    pub width: f32,
    /// Height in pixels.
    pub height: f32,
}

impl Frame {
    /// Returns the right edge.
    pub fn right(&self) -> f32 {
        self.left + self.width
    }

    /// Returns the bottom edge.
    pub fn bottom(&self) -> f32 {
        self.top + self.height
    }

    /// Returns the frame moved by `x` and `y`.
    pub fn moved(self, x: f32, y: f32) -> Frame {
        Frame { left: self.left + x, top: self.top + y, ..self }
    }

    /// Returns the frame enlarged by `by` at each side.
    pub fn grown(self, by: f32) -> Frame {
        Frame {
            left: self.left - by,
            top: self.top - by,
            width: self.width + 2.0 * by,
            height: self.height + 2.0 * by,
        }
    }
}

/// Arrangement of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
#[repr(u8)]
pub enum Kind {
    /// Menu bar, large view of the focused item, shelves.
    Home = 0,
    /// Rows of posters.
    Grid = 1,
    /// Programmes of channels over time.
    Guide = 2,
    /// Entries in a vertical list.
    List = 3,
}

/// Appearance of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
#[repr(u8)]
pub enum Look {
    /// Button of the menu bar, with an icon.
    Button = 0,
    /// Poster of a film.
    Poster = 1,
    /// Card of a programme.
    Card = 2,
    /// Cell of a programme in the guide.
    Cell = 3,
    /// Line of a menu.
    Entry = 4,
}

/// Recipe of a poster: three colours, a shape, and a seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Persist, Plain)]
#[repr(C)]
pub struct Recipe {
    /// Colours above, below and of accents; 0x00RRGGBB.
    pub colors: [u32; 3],
    /// Number of the shape or icon.
    pub shape: u32,
    /// Seed for the positions of the shape's parts.
    pub seed: u32,
}

/// Screen without its rows.
#[derive(Clone, Copy, Debug)]
pub struct ScreenRef<'a> {
    /// Name that opens it.
    pub name: &'a str,
    /// Title above it.
    pub title: &'a str,
    /// Arrangement of the screen.
    pub kind: Kind,
    /// Area of the scrolling rows.
    pub viewport: Frame,
    /// Number of first rows that don't scroll and are outside the viewport.
    pub fixed_rows: usize,
    /// Initial focus: row and item.
    pub start: (usize, usize),
    /// Initial horizontal scroll position.
    pub start_left: f32,
    /// Minute since 1970 at the content's left edge.
    pub first_minute: u32,
    /// Current minute since 1970.
    pub now_minute: u32,
    /// Number of rows.
    pub rows: usize,
}

/// Row without its items.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    /// Title of the shelf, name of the channel, or empty.
    pub title: &'a str,
    /// Position of the row.
    pub frame: Frame,
    /// Number of items.
    pub items: usize,
}

/// Item that can have the focus.
#[derive(Clone, Copy, Debug)]
pub struct ItemRef<'a> {
    /// Name of the item.
    pub title: &'a str,
    /// Year and genre, or time and channel.
    pub note: &'a str,
    /// Description.
    pub text: &'a str,
    /// Screen that it opens; if empty, the item itself opens in large.
    pub target: &'a str,
    /// Position in its row.
    pub frame: Frame,
    /// Appearance of the item.
    pub look: Look,
    /// Recipe of its picture.
    pub recipe: Recipe,
}

/// Laid-out user interface. Invalid indices give `None`.
pub trait Interface {
    /// Returns the size in pixels that it was laid out for.
    fn size(&self) -> (u32, u32);
    /// Returns the number of screens.
    fn screens(&self) -> usize;
    /// Returns a screen.
    fn screen(&self, screen: usize) -> Option<ScreenRef<'_>>;
    /// Returns a row of a screen.
    fn row(&self, screen: usize, row: usize) -> Option<RowRef<'_>>;
    /// Returns an item of a row.
    fn item(&self, screen: usize, row: usize, item: usize) -> Option<ItemRef<'_>>;

    /// Returns the index of the screen with this name.
    fn find(&self, name: &str) -> Option<usize> {
        (0..self.screens()).find(|at| self.screen(*at).is_some_and(|s| s.name == name))
    }

    /// Returns the pixels for a length of 1, on a scale of 1080 lengths per screen height.
    fn unit(&self) -> f32 {
        self.size().1 as f32 / 1080.0
    }

    /// Returns the first item of a row that extends beyond `left`. Items are sorted, so a binary
    /// search finds it.
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

/// Implements [`Interface`] for both trees: their strings and vectors are borrowed alike.
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
