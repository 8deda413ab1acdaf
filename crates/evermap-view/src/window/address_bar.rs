//! A line of text that can be edited: the address bar's, and the find bar's.
//!
//! Owns the text, the cursor and the selection. The cursor stands between graphemes always: what a user sees as one
//! character is moved over and erased at once.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

/// Longer texts are cut: `data:` addresses may be megabytes, and nobody edits those by hand.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// An editable line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TextField {
    text: String,
    cursor: usize,
    /// The other end of the selection; where the cursor is if nothing is selected.
    anchor: usize,
}

/// Where a cursor goes.
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

    /// Bytes before the cursor.
    pub(crate) fn cursor(&self) -> usize {
        self.cursor
    }

    /// The bytes that are selected; empty if nothing is.
    pub(crate) fn selection(&self) -> Range<usize> {
        self.cursor.min(self.anchor)..self.cursor.max(self.anchor)
    }

    pub(crate) fn selected(&self) -> &str {
        &self.text[self.selection()]
    }

    /// Another text, with the cursor behind it.
    pub(crate) fn set(&mut self, text: &str) {
        self.text.clear();
        (self.cursor, self.anchor) = (0, 0);
        self.insert(text);
    }

    pub(crate) fn select_all(&mut self) {
        (self.anchor, self.cursor) = (0, self.text.len());
    }

    /// Puts `text` in the selection's place, without line feeds and other control characters.
    pub(crate) fn insert(&mut self, text: &str) {
        self.erase_selection();
        let room = TEXT_BYTES_MAX - self.text.len().min(TEXT_BYTES_MAX);
        let mut added: String = text.chars().filter(|c| !c.is_control()).collect();
        added.truncate(added.floor_char_boundary(room));
        self.text.insert_str(self.cursor, &added);
        // The text may join with what stands behind it.
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

    /// Puts the cursor at a byte, or where the grapheme ends that the byte is in.
    pub(crate) fn place(&mut self, byte: usize, selecting: bool) {
        let mut ends = self.text.grapheme_indices(true).map(|(at, _)| at);
        self.cursor = ends.find(|at| *at >= byte).unwrap_or(self.text.len());
        if !selecting {
            self.anchor = self.cursor;
        }
    }

    /// Erases the selection, or else what the cursor passes over in `motion`.
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
        let (before, behind) = self.text.split_at(self.cursor);
        let is_word = |(_, word): &(usize, &str)| word.chars().any(char::is_alphanumeric);
        match motion {
            Motion::Start => 0,
            Motion::End => self.text.len(),
            Motion::Left => before.grapheme_indices(true).next_back().map_or(0, |(at, _)| at),
            Motion::Right => {
                self.cursor + behind.graphemes(true).next().map_or(0, |grapheme| grapheme.len())
            }
            Motion::WordLeft => {
                before.split_word_bound_indices().rev().find(is_word).map_or(0, |(at, _)| at)
            }
            Motion::WordRight => {
                let word = behind.split_word_bound_indices().find(is_word);
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
    fn what_is_typed_replaces_what_is_selected() {
        let mut field = field("https://example.org/");
        field.select_all();
        field.insert("a");
        field.insert("b\n\u{7f}c");
        assert_eq!((field.text(), field.cursor()), ("abc", 3));
        assert!(field.selection().is_empty());
    }

    #[test]
    fn a_grapheme_is_passed_and_erased_as_one() {
        let mut field = field("e\u{301}🇩🇪x");
        field.move_cursor(Motion::Left, false);
        field.move_cursor(Motion::Left, false);
        assert_eq!(field.cursor(), 3);
        field.erase(Motion::Left);
        assert_eq!(field.text(), "🇩🇪x");
        field.erase(Motion::Right);
        assert_eq!(field.text(), "x");
        field.erase(Motion::Left);
        assert_eq!(field.text(), "x", "nothing stands before the start");
    }

    #[test]
    fn words_are_passed_as_words() {
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
        assert_eq!(field.text(), "://example.org/one two", "a selection goes first");
    }

    #[test]
    fn arrows_leave_a_selection_at_the_end_they_point_to() {
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
