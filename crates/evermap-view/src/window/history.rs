//! Where the user has been, and at which place of each page.

use crate::page::Block;

/// A place on a page. It is found again exactly on a page of the same size, and near the same words on one that was laid out
/// otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Place {
    pub left: u32,
    pub top: u32,
    /// The size of the page that `left` and `top` are meant for.
    page: (u32, u32),
    words: Option<Words>,
}

/// The first line that is seen: where its text stands among all the page's text, and how far below the place it is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Words {
    offset: u32,
    below: f32,
    /// All of the page's text: another length means another text.
    text_bytes: usize,
    scale: f32,
}

impl Place {
    /// The place of a page whose upper left corner is at (`left`, `top`).
    pub(crate) fn on(block: Block<'_>, left: u32, top: u32) -> Place {
        let size = block.size();
        let seen = block.lines().iter().filter(|line| line.top >= top as f32);
        let first = seen.min_by(|a, b| a.top.total_cmp(&b.top));
        let words = first.map(|line| Words {
            offset: line.text.offset,
            below: line.top - top as f32,
            text_bytes: block.searchable().len(),
            scale: size.scale,
        });
        // What is at the top or bottom stays there.
        let words = words.filter(|_| top > 0);
        Place { left, top, page: (size.width, size.height), words }
    }

    /// Where this place is on `block`: pixels from its left and its top.
    pub(crate) fn find_on(&self, block: Block<'_>) -> (u32, u32) {
        let size = block.size();
        if (size.width, size.height) == self.page || self.page == (0, 0) {
            return (self.left, self.top);
        }
        let part = |at: u32, of: u32, now: u32| {
            (f64::from(at) * f64::from(now) / f64::from(of.max(1))).round() as u32
        };
        let left = part(self.left, self.page.0, size.width);
        (left, self.words_on(block).unwrap_or_else(|| part(self.top, self.page.1, size.height)))
    }

    fn words_on(&self, block: Block<'_>) -> Option<u32> {
        let words = self.words.filter(|words| words.text_bytes == block.searchable().len())?;
        let mut lines = block.lines().iter();
        let line =
            lines.find(|line| line.text.offset.saturating_add(line.text.bytes) > words.offset)?;
        let top = line.top - words.below * (block.size().scale / words.scale);
        top.is_finite().then_some(top.max(0.0).round() as u32)
    }
}

/// One stop on the user's way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// With the fragment, if there is one.
    pub url: String,
    pub place: Place,
}

/// The user's way. Older stops are forgotten.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    entries: Vec<Entry>,
    current: usize,
}

const ENTRIES_MAX: usize = 1000;

impl History {
    /// Number of the current stop.
    pub(crate) fn number(&self) -> usize {
        self.current
    }

    pub(crate) fn current(&self) -> Option<&Entry> {
        self.entries.get(self.current)
    }

    /// Notes where the user is on the current page, before it is left.
    pub(crate) fn note_place(&mut self, place: Place) {
        if let Some(entry) = self.entries.get_mut(self.current) {
            entry.place = place;
        }
    }

    /// A new stop behind the current one; those that were ahead are forgotten.
    pub(crate) fn push(&mut self, url: String) {
        self.entries.truncate(self.current + 1);
        if self.entries.len() == ENTRIES_MAX {
            self.entries.remove(0);
        }
        self.entries.push(Entry { url, place: Place::default() });
        self.current = self.entries.len() - 1;
    }

    /// The current stop's page turned out to have another address.
    pub(crate) fn rename(&mut self, url: String) {
        match self.entries.get_mut(self.current) {
            Some(entry) => entry.url = url,
            None => self.push(url),
        }
    }

    /// The stop so many steps ahead (or back, if negative), and its number.
    pub(crate) fn ahead(&self, steps: isize) -> Option<(usize, &Entry)> {
        let number = self.current.checked_add_signed(steps)?;
        Some((number, self.entries.get(number)?))
    }

    /// Makes a stop the current one.
    pub(crate) fn go(&mut self, number: usize) {
        self.current = number.min(self.entries.len().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::fake;
    use super::*;

    fn urls(history: &History) -> (Option<&str>, Option<&str>, Option<&str>) {
        let url = |steps| history.ahead(steps).map(|(_, entry)| entry.url.as_str());
        (url(-1), url(0), url(1))
    }

    #[test]
    fn a_new_stop_forgets_those_ahead() {
        let mut history = History::default();
        assert_eq!(urls(&history), (None, None, None));
        for url in ["a", "b", "c"] {
            history.push(url.to_string());
        }
        history.go(0);
        assert_eq!(urls(&history), (None, Some("a"), Some("b")));
        history.push("d".to_string());
        assert_eq!(urls(&history), (Some("a"), Some("d"), None));
    }

    #[test]
    fn the_oldest_stops_are_forgotten() {
        let mut history = History::default();
        for number in 0..ENTRIES_MAX + 5 {
            history.push(number.to_string());
        }
        assert_eq!(history.entries.len(), ENTRIES_MAX);
        assert_eq!(urls(&history), (Some("1003"), Some("1004"), None));
    }

    #[test]
    fn a_place_is_exact_on_a_page_of_the_same_size() {
        let page = fake::page("a", 1000, 5000);
        let place = Place::on(page.block(), 7, 1234);
        assert_eq!(place.find_on(page.block()), (7, 1234));
    }

    #[test]
    fn a_place_follows_its_words_to_another_layout() {
        // Lines of 20 pixels, each with the same text, further apart on the second page.
        let close = fake::lines("a", 100, 20, 1.0);
        let wide = fake::lines("a", 100, 55, 2.0);
        let place = Place::on(close.block(), 0, 400 - 3);
        assert_eq!(place.find_on(wide.block()), (0, 20 * 55 - 6));
    }

    #[test]
    fn a_place_without_words_keeps_its_part_of_the_page() {
        let page = fake::page("a", 1000, 5000);
        let place = Place::on(page.block(), 100, 500);
        assert_eq!(place.find_on(fake::page("a", 500, 10_000).block()), (50, 1000));
        assert_eq!(Place::default().find_on(page.block()), (0, 0));
    }
}
