//! User interface as an ordinary tree, which a program without persistent objects builds at each
//! start.

use crate::model::{Frame, Kind, Look, Recipe, implement_interface};

/// User interface, laid out for one size.
#[derive(Clone, Debug, Default)]
pub struct PlainInterface {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// All screens; the first one is home.
    pub screens: Vec<PlainScreen>,
}

/// Screen with the fields of [`crate::model::ScreenRef`].
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct PlainScreen {
    pub name: String,
    pub title: String,
    pub kind: Kind,
    pub viewport: Frame,
    pub fixed_rows: u32,
    pub start_row: u32,
    pub start_item: u32,
    pub start_left: f32,
    pub first_minute: u32,
    pub now_minute: u32,
    pub rows: Vec<PlainRow>,
}

/// Row with the fields of [`crate::model::RowRef`].
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct PlainRow {
    pub title: String,
    pub frame: Frame,
    pub items: Vec<PlainItem>,
}

/// Item with the fields of [`crate::model::ItemRef`].
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct PlainItem {
    pub title: String,
    pub note: String,
    pub text: String,
    pub target: String,
    pub frame: Frame,
    pub look: Look,
    pub recipe: Recipe,
}

implement_interface!(PlainInterface);

impl PlainInterface {
    /// Returns the bytes of all tables and strings.
    pub fn bytes(&self) -> u64 {
        let mut bytes = self.screens.capacity() * size_of::<PlainScreen>();
        for screen in &self.screens {
            bytes += screen.name.capacity() + screen.title.capacity();
            bytes += screen.rows.capacity() * size_of::<PlainRow>();
            for row in &screen.rows {
                bytes += row.title.capacity() + row.items.capacity() * size_of::<PlainItem>();
                for item in &row.items {
                    let strings = [&item.title, &item.note, &item.text, &item.target];
                    bytes += strings.iter().map(|text| text.capacity()).sum::<usize>();
                }
            }
        }
        bytes as u64
    }
}
