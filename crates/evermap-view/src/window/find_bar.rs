//! Finds text on the page: the search text, its matches, and the current match.

use kurbo::Rect;

use super::address_bar::TextField;
use crate::page::{Block, Match};

/// The find bar, open or closed.
#[derive(Default)]
pub(crate) struct FindBar {
    pub open: bool,
    pub field: TextField,
    pub matches: Vec<Match>,
    pub current: Option<usize>,
    /// Scroll position when typing began. The first match below it becomes the current one.
    from: u32,
}

impl FindBar {
    /// Returns the count, such as "3 of 17".
    pub(crate) fn count(&self) -> String {
        match (self.field.text().is_empty(), self.matches.len(), self.current) {
            (true, ..) => String::new(),
            (false, 0, _) => "not found".to_string(),
            (false, all, Some(current)) => format!("{} of {all}", current + 1),
            (false, all, None) => all.to_string(),
        }
    }

    /// Opens the bar on the page `block`, scrolled to `top`.
    pub(super) fn begin(&mut self, block: Option<Block<'_>>, top: u32) {
        if !self.open {
            self.open = true;
            self.from = top;
            self.search(block);
        }
        self.field.select_all();
    }

    /// Closes the bar. Returns true if it was open.
    pub(super) fn close(&mut self) -> bool {
        self.matches.clear();
        self.current = None;
        std::mem::take(&mut self.open)
    }

    /// Repeats the search, on a new page for example.
    pub(super) fn search(&mut self, block: Option<Block<'_>>) {
        if !self.open {
            return;
        }
        self.matches = block.map(|block| block.find(self.field.text())).unwrap_or_default();
        let last = self.matches.len().checked_sub(1);
        self.current = self.current.and_then(|current| Some(current.min(last?)));
    }

    /// Updates the matches after the search text has changed, and chooses the current one.
    pub(super) fn typed(&mut self, block: Option<Block<'_>>) {
        self.search(block);
        let from = f64::from(self.from);
        let tops = self.matches.iter().map(|found| found.rects.first().map_or(0.0, |r| r.y0));
        let below = tops.clone().position(|top| top >= from);
        self.current = below.or((tops.len() > 0).then_some(0));
    }

    /// Goes to the next or previous match. Returns false if there is none.
    pub(super) fn step(&mut self, step: isize) -> bool {
        let all = self.matches.len() as isize;
        if all == 0 {
            return false;
        }
        let next = match self.current {
            Some(current) => current as isize + step,
            None if step > 0 => 0,
            None => -1,
        };
        self.current = Some(next.rem_euclid(all) as usize);
        true
    }

    /// Returns the rectangle of the current match. A later search continues from there.
    pub(super) fn show(&mut self) -> Option<Rect> {
        let found = self.matches.get(self.current?)?;
        let rect = found.rects.iter().copied().reduce(|all, rect| all.union(rect))?;
        self.from = rect.y0.max(0.0) as u32;
        Some(rect)
    }
}
