//! Finds text on the page: the search text, its matches, and the current match.

use super::address_bar::TextField;
use super::state::{Focus, State};
use crate::page::Match;

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
}

impl State {
    pub(super) fn open_find(&mut self) {
        if !self.find.open {
            self.find.open = true;
            self.find.from = self.top;
            self.find_again();
        }
        self.find.field.select_all();
        self.focus = Focus::Find;
        self.redraw();
    }

    pub(super) fn close_find(&mut self) {
        if self.find.open {
            self.find.open = false;
            self.find.matches.clear();
            self.find.current = None;
            self.focus = Focus::Page;
            self.redraw();
        }
    }

    /// Updates the matches after the search text has changed.
    pub(super) fn find_typed(&mut self) {
        self.find_again();
        let from = f64::from(self.find.from);
        let tops = self.find.matches.iter().map(|found| found.rects.first().map_or(0.0, |r| r.y0));
        let below = tops.clone().position(|top| top >= from);
        self.find.current = below.or((tops.len() > 0).then_some(0));
        self.show_match();
    }

    /// Repeats the search on a new page, without scrolling.
    pub(super) fn find_again(&mut self) {
        if !self.find.open {
            return;
        }
        let matches = self.block().map(|block| block.find(self.find.field.text()));
        self.find.matches = matches.unwrap_or_default();
        let last = self.find.matches.len().checked_sub(1);
        self.find.current = self.find.current.and_then(|current| Some(current.min(last?)));
        self.redraw();
    }

    /// Goes to the next or previous match.
    pub(super) fn find_step(&mut self, step: isize) {
        if !self.find.open {
            self.open_find();
        }
        let all = self.find.matches.len() as isize;
        if all == 0 {
            return;
        }
        let next = match self.find.current {
            Some(current) => current as isize + step,
            None if step > 0 => 0,
            None => -1,
        };
        self.find.current = Some(next.rem_euclid(all) as usize);
        self.show_match();
    }

    fn show_match(&mut self) {
        self.redraw();
        let current = self.find.current.and_then(|current| self.find.matches.get(current));
        let rect = current.and_then(|found| {
            let mut rects = found.rects.iter();
            let first = *rects.next()?;
            Some(rects.fold(first, |all, rect| all.union(*rect)))
        });
        if let Some(rect) = rect {
            self.scroll_into_view(rect);
            // A later search continues from this match.
            self.find.from = rect.y0.max(0.0) as u32;
        }
    }
}
