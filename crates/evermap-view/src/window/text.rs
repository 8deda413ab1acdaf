//! The window's own text: maps characters to glyphs of one font without shaping. Uses the
//! rasterizer of the pages.

use anyrender::{Glyph, PaintScene};
use kurbo::{Affine, Vec2};
use peniko::{Blob, Color, Fill, FontData};
use skrifa::instance::{LocationRef, Size};
use skrifa::{FontRef, MetadataProvider};

use crate::paint::SharedBytes;

/// Width of a character without a font, in ems.
const ADVANCE_WITHOUT_FONT: f32 = 0.5;
/// Maximum number of characters of a line. More would not fit into any window.
const CHARS_MAX: usize = 4096;

/// The font of the window's own text.
#[derive(Clone)]
pub(crate) struct InterfaceFont {
    data: FontData,
}

impl InterfaceFont {
    /// Returns the font with this index in a file, if it is valid and has characters.
    pub(crate) fn new(bytes: SharedBytes, index: u32) -> Option<InterfaceFont> {
        let data = FontData::new(Blob::new(bytes), index);
        let font = InterfaceFont { data };
        let has_characters = font.reference()?.charmap().has_map();
        has_characters.then_some(font)
    }

    fn reference(&self) -> Option<FontRef<'_>> {
        FontRef::from_index(self.data.data.data(), self.data.index).ok()
    }

    /// Returns the height of capital letters above the baseline.
    fn rise(&self, size: f32) -> f32 {
        let metrics =
            self.reference().map(|font| font.metrics(Size::new(size), LocationRef::default()));
        metrics.and_then(|m| m.cap_height).filter(|height| *height > 0.0).unwrap_or(size * 0.7)
    }
}

/// Size of text, and its font if there is one.
#[derive(Clone, Copy)]
pub(crate) struct TextStyle<'a> {
    pub font: Option<&'a InterfaceFont>,
    /// Pixels per em.
    pub size: f32,
}

impl TextStyle<'_> {
    /// Returns the byte offset, glyph and advance of each character.
    fn advances(&self, text: &str) -> Vec<(usize, u32, f32)> {
        let font = self.font.and_then(InterfaceFont::reference);
        let Some(font) = font else {
            let advance = ADVANCE_WITHOUT_FONT * self.size;
            return text.char_indices().take(CHARS_MAX).map(|(at, _)| (at, 0, advance)).collect();
        };
        let charmap = font.charmap();
        let metrics = font.glyph_metrics(Size::new(self.size), LocationRef::default());
        text.char_indices()
            .take(CHARS_MAX)
            .map(|(at, character)| {
                let glyph = charmap.map(character).unwrap_or_default();
                (at, glyph.to_u32(), metrics.advance_width(glyph).unwrap_or(0.0))
            })
            .collect()
    }

    /// Returns the width of the text.
    pub(crate) fn width(&self, text: &str) -> f32 {
        self.advances(text).iter().map(|(_, _, advance)| advance).sum()
    }

    /// Returns the byte offset of a cursor placed at `x`.
    pub(crate) fn byte_at(&self, text: &str, x: f32) -> usize {
        let mut right = 0.0;
        for (at, _, advance) in self.advances(text) {
            if x < right + advance / 2.0 {
                return at;
            }
            right += advance;
        }
        text.len()
    }

    /// Returns the text, shortened in the middle to fit `width`.
    pub(crate) fn shortened(&self, text: &str, width: f32) -> String {
        let advances = self.advances(text);
        let whole: f32 = advances.iter().map(|(_, _, advance)| advance).sum();
        if whole <= width && advances.len() < CHARS_MAX {
            return text.to_string();
        }
        let dots = self.width("…");
        let room = (width - dots).max(0.0);
        let fitting = |sides: &mut dyn Iterator<Item = f32>, room: f32| {
            let mut used = 0.0;
            sides
                .take_while(|advance| {
                    used += advance;
                    used <= room
                })
                .count()
        };
        let tail_text: String =
            text.chars().rev().take(CHARS_MAX).collect::<Vec<_>>().into_iter().rev().collect();
        let tail = self.advances(&tail_text);
        // The beginning is more informative, so the end gets a third.
        let last = fitting(&mut tail.iter().rev().map(|(_, _, a)| *a), room / 3.0);
        let used: f32 = tail.iter().rev().take(last).map(|(_, _, a)| a).sum();
        let first = fitting(&mut advances.iter().map(|(_, _, a)| *a), room - used);
        let head: String = text.chars().take(first).collect();
        let from = tail
            .len()
            .checked_sub(last)
            .and_then(|at| tail.get(at))
            .map_or(tail_text.len(), |(at, _, _)| *at);
        head + "…" + &tail_text[from..]
    }

    /// Breaks the text into lines that fit, at spaces where possible.
    pub(crate) fn lines(&self, text: &str, width: f32) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = String::new();
        let mut used = 0.0;
        for word in text.split_inclusive(' ') {
            let mut rest = word;
            let mut advance = self.width(rest);
            if used + self.width(rest.trim_end()) > width && !line.is_empty() {
                lines.push(std::mem::take(&mut line));
                used = 0.0;
            }
            while advance > width {
                let cut = self.byte_at(rest, width - self.size);
                if cut == 0 || cut >= rest.len() {
                    break;
                }
                lines.push(rest[..cut].to_string());
                rest = &rest[cut..];
                advance = self.width(rest);
            }
            line.push_str(rest);
            used += advance;
        }
        lines.push(line);
        lines
    }

    /// Draws a line of text that begins at `x`, with its capital letters centred at `middle`.
    pub(crate) fn draw(
        &self,
        scene: &mut impl PaintScene,
        text: &str,
        x: f32,
        middle: f32,
        color: Color,
    ) {
        let Some(font) = self.font else { return };
        let baseline = (middle + font.rise(self.size) / 2.0).round();
        let mut right = x;
        let glyphs: Vec<Glyph> = self
            .advances(text)
            .into_iter()
            .map(|(_, id, advance)| {
                let glyph = Glyph { id, x: right, y: 0.0 };
                right += advance;
                glyph
            })
            .collect();
        scene.draw_glyphs(
            &font.data,
            self.size,
            true,
            &[],
            Vec2::ZERO,
            Fill::NonZero,
            color,
            1.0,
            Affine::translate((0.0, f64::from(baseline))),
            None,
            glyphs.into_iter(),
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Without a font, every character is 10 pixels wide.
    const STYLE: TextStyle<'static> = TextStyle { font: None, size: 20.0 };

    #[test]
    fn a_long_text_keeps_its_ends() {
        assert_eq!(STYLE.shortened("abcdef", 60.0), "abcdef");
        assert_eq!(STYLE.shortened("abcdefghij", 70.0), "abcd…ij");
        assert_eq!(STYLE.shortened("äöüßéàîô", 40.0), "äö…ô");
        assert_eq!(STYLE.shortened("abc", 5.0), "…");
        let long = "x".repeat(CHARS_MAX * 2) + "yz";
        assert!(STYLE.shortened(&long, 100.0).ends_with("yz"));
    }

    #[test]
    fn a_click_sets_the_cursor_to_the_nearer_side() {
        assert_eq!(STYLE.byte_at("aéb", 4.0), 0);
        assert_eq!(STYLE.byte_at("aéb", 6.0), 1);
        assert_eq!(STYLE.byte_at("aéb", 16.0), 3);
        assert_eq!(STYLE.byte_at("aéb", 900.0), 4);
    }

    #[test]
    fn lines_break_at_spaces_and_long_words_anywhere() {
        assert_eq!(STYLE.lines("one two three", 80.0), ["one two ", "three"]);
        let lines = STYLE.lines(&"x".repeat(30), 100.0);
        assert_eq!(lines.concat(), "x".repeat(30));
        assert!(lines.iter().all(|line| line.len() <= 10));
    }

    #[test]
    fn invalid_font_bytes_are_rejected() {
        let bytes: SharedBytes = std::sync::Arc::new(b"not a font".to_vec());
        assert!(InterfaceFont::new(bytes, 0).is_none());
    }
}
