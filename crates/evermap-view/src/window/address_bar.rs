//! A line of editable text, for the address bar and the find bar.
//!
//! Owns the text, the cursor and the selection. The cursor is always between graphemes, so that one
//! visible character is skipped or erased at once.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

/// Maximum length of the text. `data:` addresses may be megabytes long.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// An editable line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TextField {
    text: String,
    cursor: usize,
    /// Other end of the selection; equal to the cursor if nothing is selected.
    anchor: usize,
}

/// A movement of the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    Left,
    Right,
    WordLeft,
    WordRight,
    Start,
    End,
}

impl TextField {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number of bytes before the cursor.
    pub(crate) fn cursor(&self) -> usize {
        self.cursor
    }

    /// Returns the selected byte range; empty without a selection.
    pub(crate) fn selection(&self) -> Range<usize> {
        self.cursor.min(self.anchor)..self.cursor.max(self.anchor)
    }

    pub(crate) fn selected(&self) -> &str {
        &self.text[self.selection()]
    }

    /// Replaces the text and puts the cursor at its end.
    pub(crate) fn set(&mut self, text: &str) {
        self.text.clear();
        (self.cursor, self.anchor) = (0, 0);
        self.insert(text);
    }

    pub(crate) fn select_all(&mut self) {
        (self.anchor, self.cursor) = (0, self.text.len());
    }

    /// Replaces the selection by `text` without control characters, such as line feeds.
    pub(crate) fn insert(&mut self, text: &str) {
        self.erase_selection();
        let room = TEXT_BYTES_MAX - self.text.len().min(TEXT_BYTES_MAX);
        let mut added: String = text.chars().filter(|c| !c.is_control()).collect();
        added.truncate(added.floor_char_boundary(room));
        self.text.insert_str(self.cursor, &added);
        // The inserted text may join the following grapheme.
        self.place(self.cursor + added.len(), false);
    }

    pub(crate) fn move_cursor(&mut self, motion: Motion, selecting: bool) {
        let selection = self.selection();
        let target = match motion {
            Motion::Left if !selecting && !selection.is_empty() => selection.start,
            Motion::Right if !selecting && !selection.is_empty() => selection.end,
            _ => self.target(motion),
        };
        self.place(target, selecting);
    }

    /// Puts the cursor at a byte, or at the end of the grapheme that contains it.
    pub(crate) fn place(&mut self, byte: usize, selecting: bool) {
        let mut ends = self.text.grapheme_indices(true).map(|(at, _)| at);
        self.cursor = ends.find(|at| *at >= byte).unwrap_or(self.text.len());
        if !selecting {
            self.anchor = self.cursor;
        }
    }

    /// Erases the selection, or the text that `motion` would skip if there is none.
    pub(crate) fn erase(&mut self, motion: Motion) {
        if self.selection().is_empty() {
            self.cursor = self.target(motion);
        }
        self.erase_selection();
    }

    fn erase_selection(&mut self) {
        let selection = self.selection();
        (self.cursor, self.anchor) = (selection.start, selection.start);
        self.text.replace_range(selection, "");
    }

    fn target(&self, motion: Motion) -> usize {
        let (before, after) = self.text.split_at(self.cursor);
        let is_word = |(_, word): &(usize, &str)| word.chars().any(char::is_alphanumeric);
        match motion {
            Motion::Start => 0,
            Motion::End => self.text.len(),
            Motion::Left => before.grapheme_indices(true).next_back().map_or(0, |(at, _)| at),
            Motion::Right => {
                self.cursor + after.graphemes(true).next().map_or(0, |grapheme| grapheme.len())
            }
            Motion::WordLeft => {
                before.split_word_bound_indices().rev().find(is_word).map_or(0, |(at, _)| at)
            }
            Motion::WordRight => {
                let word = after.split_word_bound_indices().find(is_word);
                word.map_or(self.text.len(), |(at, word)| self.cursor + at + word.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn field(text: &str) -> TextField {
        let mut field = TextField::default();
        field.set(text);
        field
    }

    #[test]
    fn typed_text_replaces_the_selection() {
        let mut field = field("https://example.org/");
        field.select_all();
        field.insert("a");
        field.insert("b\n\u{7f}c");
        assert_eq!((field.text(), field.cursor()), ("abc", 3));
        assert!(field.selection().is_empty());
    }

    #[test]
    fn a_grapheme_is_skipped_and_erased_at_once() {
        let mut field = field("e\u{301}🇩🇪x");
        field.move_cursor(Motion::Left, false);
        field.move_cursor(Motion::Left, false);
        assert_eq!(field.cursor(), 3);
        field.erase(Motion::Left);
        assert_eq!(field.text(), "🇩🇪x");
        field.erase(Motion::Right);
        assert_eq!(field.text(), "x");
        field.erase(Motion::Left);
        assert_eq!(field.text(), "x", "nothing is before the start");
    }

    #[test]
    fn word_motions_stop_at_words() {
        let mut field = field("https://example.org/one two");
        let mut stops = Vec::new();
        for _ in 0..6 {
            field.move_cursor(Motion::WordLeft, false);
            stops.push(field.cursor());
        }
        assert_eq!(stops, [24, 20, 8, 0, 0, 0]);
        field.move_cursor(Motion::WordRight, true);
        assert_eq!(field.selected(), "https");
        field.erase(Motion::WordLeft);
        assert_eq!(field.text(), "://example.org/one two", "a selection is erased first");
    }

    #[test]
    fn arrows_move_to_the_end_of_the_selection_they_point_to() {
        let mut field = field("abcdef");
        field.move_cursor(Motion::Start, false);
        field.move_cursor(Motion::Right, false);
        field.move_cursor(Motion::Right, true);
        field.move_cursor(Motion::Right, true);
        assert_eq!(field.selected(), "bc");
        let mut other = field.clone();
        field.move_cursor(Motion::Left, false);
        other.move_cursor(Motion::Right, false);
        assert_eq!((field.cursor(), other.cursor()), (1, 3));
    }

    #[test]
    fn a_cursor_is_never_placed_inside_a_character() {
        let mut field = field("aé🇩🇪");
        for byte in 0..20 {
            field.place(byte, false);
            assert!([0, 1, 3, 11].contains(&field.cursor()), "{byte}: {}", field.cursor());
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let mut field = field(&"é".repeat(TEXT_BYTES_MAX));
        assert_eq!(field.text().len(), TEXT_BYTES_MAX);
        field.insert("x");
        assert_eq!(field.text().len(), TEXT_BYTES_MAX);
    }
}
