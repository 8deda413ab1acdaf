//! History of visited pages, with the scroll position on each.

use crate::page::Block;

/// A scroll position. It is restored exactly on a page of the same size, and near the same text on
/// a page with another layout.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ScrollPosition {
    pub left: u32,
    pub top: u32,
    /// Size of the page that `left` and `top` refer to.
    page: (u32, u32),
    anchor: Option<TextAnchor>,
}

/// The first visible line: the offset of its text in the page's text, and its distance from the
/// scroll position.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TextAnchor {
    offset: u32,
    below: f32,
    /// Length of the page's text. A different length means different text.
    text_bytes: usize,
    scale: f32,
}

impl ScrollPosition {
    /// Returns the position of a page whose upper left corner is at (`left`, `top`).
    pub(crate) fn on(block: Block<'_>, left: u32, top: u32) -> ScrollPosition {
        let size = block.size();
        let seen = block.lines().iter().filter(|line| line.top >= top as f32);
        let first = seen.min_by(|a, b| a.top.total_cmp(&b.top));
        let anchor = first.map(|line| TextAnchor {
            offset: line.text.offset,
            below: line.top - top as f32,
            text_bytes: block.searchable().len(),
            scale: size.scale,
        });
        // A position at the top stays at the top.
        let anchor = anchor.filter(|_| top > 0);
        ScrollPosition { left, top, page: (size.width, size.height), anchor }
    }

    /// Returns this position on `block`, in pixels from its left and its top.
    pub(crate) fn find_on(&self, block: Block<'_>) -> (u32, u32) {
        let size = block.size();
        if (size.width, size.height) == self.page || self.page == (0, 0) {
            return (self.left, self.top);
        }
        let part = |at: u32, of: u32, now: u32| {
            (f64::from(at) * f64::from(now) / f64::from(of.max(1))).round() as u32
        };
        let left = part(self.left, self.page.0, size.width);
        (left, self.anchor_on(block).unwrap_or_else(|| part(self.top, self.page.1, size.height)))
    }

    fn anchor_on(&self, block: Block<'_>) -> Option<u32> {
        let anchor = self.anchor.filter(|anchor| anchor.text_bytes == block.searchable().len())?;
        let mut lines = block.lines().iter();
        let line =
            lines.find(|line| line.text.offset.saturating_add(line.text.bytes) > anchor.offset)?;
        let top = line.top - anchor.below * (block.size().scale / anchor.scale);
        top.is_finite().then_some(top.max(0.0).round() as u32)
    }
}

/// An entry of the history.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Address, with the fragment if there is one.
    pub url: String,
    pub position: ScrollPosition,
}

/// The history. The oldest entries are dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    entries: Vec<Entry>,
    current: usize,
}

const ENTRIES_MAX: usize = 1000;

impl History {
    /// Returns the index of the current entry.
    pub(crate) fn number(&self) -> usize {
        self.current
    }

    pub(crate) fn current(&self) -> Option<&Entry> {
        self.entries.get(self.current)
    }

    /// Records the scroll position on the current page before another one is shown.
    pub(crate) fn record_position(&mut self, position: ScrollPosition) {
        if let Some(entry) = self.entries.get_mut(self.current) {
            entry.position = position;
        }
    }

    /// Adds an entry after the current one. Drops all entries ahead.
    pub(crate) fn push(&mut self, url: String) {
        self.entries.truncate(self.current + 1);
        if self.entries.len() == ENTRIES_MAX {
            self.entries.remove(0);
        }
        self.entries.push(Entry { url, position: ScrollPosition::default() });
        self.current = self.entries.len() - 1;
    }

    /// Changes the address of the current entry, after redirects for example.
    pub(crate) fn rename(&mut self, url: String) {
        match self.entries.get_mut(self.current) {
            Some(entry) => entry.url = url,
            None => self.push(url),
        }
    }

    /// Returns the entry that many steps ahead (or back, if negative), and its index.
    pub(crate) fn ahead(&self, steps: isize) -> Option<(usize, &Entry)> {
        let number = self.current.checked_add_signed(steps)?;
        Some((number, self.entries.get(number)?))
    }

    /// Makes an entry the current one.
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
    fn a_new_entry_drops_those_ahead() {
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
    fn the_oldest_entries_are_dropped() {
        let mut history = History::default();
        for number in 0..ENTRIES_MAX + 5 {
            history.push(number.to_string());
        }
        assert_eq!(history.entries.len(), ENTRIES_MAX);
        assert_eq!(urls(&history), (Some("1003"), Some("1004"), None));
    }

    #[test]
    fn a_position_is_exact_on_a_page_of_the_same_size() {
        let page = fake::page("a", 1000, 5000);
        let position = ScrollPosition::on(page.block(), 7, 1234);
        assert_eq!(position.find_on(page.block()), (7, 1234));
    }

    #[test]
    fn a_position_follows_its_text_to_another_layout() {
        // Lines of 20 pixels, each with the same text, further apart on the second page.
        let close = fake::lines("a", 100, 20, 1.0);
        let wide = fake::lines("a", 100, 55, 2.0);
        let position = ScrollPosition::on(close.block(), 0, 400 - 3);
        assert_eq!(position.find_on(wide.block()), (0, 20 * 55 - 6));
    }

    #[test]
    fn a_position_without_text_is_proportional() {
        let page = fake::page("a", 1000, 5000);
        let position = ScrollPosition::on(page.block(), 100, 500);
        assert_eq!(position.find_on(fake::page("a", 500, 10_000).block()), (50, 1000));
        assert_eq!(ScrollPosition::default().find_on(page.block()), (0, 0));
    }
}
