//! Encodes glyphs in one byte each.
//!
//! Text repeats its letters. Each text style has a **palette** of at most 256 letters. A letter is
//! a glyph with its advance: the distance to the next glyph. A piece of text stores one byte per
//! glyph. Layout computes positions by adding advances in `f32`. So the palette stores the one
//! advance with which all uses of a letter reproduce the recorded positions exactly. Layout does
//! not report advances. Each use only determines an interval that contains the advance.
//!
//! A piece whose positions can't be reproduced, or that is not on one line, is stored with its
//! positions.

use anyrender::Glyph;
use foldhash::HashMap;
use kurbo::Rect;

use super::block::{Block, slice};
use super::layout::*;

/// A byte is an index into the palette.
const LETTERS_MAX: usize = 256;

/// Pieces of text during recording.
#[derive(Default)]
pub(crate) struct Pieces {
    runs: Vec<Run>,
    palettes: Vec<Palette>,
    /// Current palette of each style. A full palette is followed by another one.
    open: HashMap<Vec<u8>, u32>,
    pieces: Vec<Piece>,
    codes: Vec<u8>,
    /// Recorded positions of the glyphs in `codes`.
    recorded: Vec<f32>,
    ids: Vec<u16>,
    positions: Vec<f32>,
    scratch: Scratch,
}

/// Glyphs of a piece.
#[derive(Default)]
struct Scratch {
    ids: Vec<u16>,
    xs: Vec<f32>,
    ys: Vec<f32>,
}

/// Sections of a block that hold pieces of text.
pub(crate) struct PieceSections {
    pub runs: Vec<Run>,
    pub pieces: Vec<Piece>,
    pub codes: Vec<u8>,
    pub letters: Vec<u16>,
    pub advances: Vec<f32>,
    pub ids: Vec<u16>,
    pub positions: Vec<f32>,
}

#[derive(Default)]
struct Palette {
    letters: Vec<Letter>,
    /// For each glyph, its last added letter, or [`NO_LETTER`].
    newest: Vec<u16>,
}

struct Letter {
    glyph: u16,
    /// Previous letter of the same glyph, or [`NO_LETTER`].
    older: u16,
    advance: Interval,
}

const NO_LETTER: u16 = u16::MAX;

/// Open interval that contains an advance.
#[derive(Clone, Copy)]
struct Interval {
    low: f64,
    high: f64,
}

impl Interval {
    /// Interval of a piece's last glyph, whose advance is unknown.
    const ALL: Interval = Interval { low: f64::NEG_INFINITY, high: f64::INFINITY };

    /// Returns the values that round to `to` when added to `from`.
    fn between(from: f32, to: f32) -> Interval {
        let half_way = |neighbour: f32| (f64::from(to) + f64::from(neighbour)) / 2.0;
        let low = half_way(to.next_down()) - f64::from(from);
        let high = half_way(to.next_up()) - f64::from(from);
        // A value half-way between two numbers rounds to the one whose last bit is 0.
        match to.to_bits() & 1 {
            0 => Interval { low: low.next_down(), high: high.next_up() },
            _ => Interval { low, high },
        }
    }

    fn and(self, other: Interval) -> Interval {
        Interval { low: self.low.max(other.low), high: self.high.min(other.high) }
    }

    /// Returns a number inside the interval, if there is one.
    fn number(self) -> Option<f32> {
        if self.low == f64::NEG_INFINITY && self.high == f64::INFINITY {
            return Some(0.0);
        }
        // If there is only one `f32` inside, it is the nearest to the middle, or its neighbour
        // where the spacing of `f32` changes.
        let number = ((self.low + self.high) / 2.0) as f32;
        let inside = |number: &f32| self.low < f64::from(*number) && f64::from(*number) < self.high;
        [number, number.next_down(), number.next_up()].into_iter().find(inside)
    }
}

impl Palette {
    /// Returns the letter for `glyph` with an advance in `advance`, or `None` if the palette is
    /// full.
    fn letter(&mut self, glyph: u16, advance: Interval) -> Option<u8> {
        if self.newest.len() <= usize::from(glyph) {
            self.newest.resize(usize::from(glyph) + 1, NO_LETTER);
        }
        let newest = &mut self.newest[usize::from(glyph)];
        let mut at = *newest;
        while let Some(letter) = self.letters.get_mut(usize::from(at)) {
            let both = letter.advance.and(advance);
            if both.number().is_some() {
                letter.advance = both;
                return Some(at as u8);
            }
            at = letter.older;
        }
        let code = self.letters.len();
        if code == LETTERS_MAX {
            return None;
        }
        self.letters.push(Letter { glyph, older: *newest, advance });
        *newest = code as u16;
        Some(code as u8)
    }

    /// Appends the letters of a piece to `codes`. Returns false, and changes nothing, if the
    /// palette is full.
    fn code(&mut self, ids: &[u16], xs: &[f32], codes: &mut Vec<u8>) -> bool {
        let (letters_before, codes_before) = (self.letters.len(), codes.len());
        let advances = xs.windows(2).map(|pair| Interval::between(pair[0], pair[1]));
        for (id, advance) in ids.iter().zip(advances.chain([Interval::ALL])) {
            let Some(code) = self.letter(*id, advance) else {
                codes.truncate(codes_before);
                for letter in self.letters.drain(letters_before..).rev() {
                    self.newest[usize::from(letter.glyph)] = letter.older;
                }
                return false;
            };
            codes.push(code);
        }
        true
    }
}

impl Letter {
    fn advance(&self) -> f32 {
        self.advance.number().unwrap_or(0.0)
    }
}

impl Pieces {
    /// Adds glyphs of a style, whose palette fields are not set yet. Returns the index of the piece
    /// and the bounding box of the glyphs' origins.
    pub(crate) fn add(&mut self, style: Run, glyphs: impl Iterator<Item = Glyph>) -> (u32, Rect) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.ids.clear();
        scratch.xs.clear();
        scratch.ys.clear();
        for glyph in glyphs {
            // Glyph ids of OpenType have 16 bits.
            scratch.ids.push(glyph.id as u16);
            scratch.xs.push(glyph.x);
            scratch.ys.push(glyph.y);
        }
        let bounds = bounds_of(&scratch.xs, &scratch.ys);
        let piece = self.piece(style, &scratch);
        self.scratch = scratch;
        self.pieces.push(piece);
        (self.pieces.len() as u32 - 1, bounds)
    }

    fn piece(&mut self, style: Run, glyphs: &Scratch) -> Piece {
        let Scratch { ids, xs, ys } = glyphs;
        let mut run = self.palette_of(&style);
        let y = ys.first().copied().unwrap_or(0.0);
        if ys.iter().any(|other| other.to_bits() != y.to_bits()) {
            let places: Vec<f32> = xs.iter().zip(ys).flat_map(|(x, y)| [*x, *y]).collect();
            return self.placed(run, ids, &places, 0, 0.0);
        }
        let first = self.codes.len() as u32;
        let mut coded = self.palettes[run as usize].code(ids, xs, &mut self.codes);
        if !coded {
            run = self.new_palette(&style);
            coded = self.palettes[run as usize].code(ids, xs, &mut self.codes);
        }
        if !coded {
            return self.placed(run, ids, xs, PIECE_LEVEL, y);
        }
        self.recorded.extend(xs);
        let start = xs.first().map_or(0, |x| x.to_bits());
        Piece { run, first, glyphs: PIECE_CODED | ids.len() as u32, start, y }
    }

    fn placed(&mut self, run: u32, ids: &[u16], positions: &[f32], level: u32, y: f32) -> Piece {
        let (first, start) = (self.ids.len() as u32, self.positions.len() as u32);
        self.ids.extend(ids);
        self.positions.extend(positions);
        Piece { run, first, glyphs: level | ids.len() as u32, start, y }
    }

    fn palette_of(&mut self, style: &Run) -> u32 {
        match self.open.get(bytemuck::bytes_of(style)) {
            Some(run) => *run,
            None => self.new_palette(style),
        }
    }

    fn new_palette(&mut self, style: &Run) -> u32 {
        let run = self.runs.len() as u32;
        self.runs.push(*style);
        self.palettes.push(Palette::default());
        self.open.insert(bytemuck::bytes_of(style).to_vec(), run);
        run
    }

    /// Returns the sections. Decodes every piece as a reader does, and stores positions where a sum
    /// differs from the recorded position.
    pub(crate) fn finish(mut self) -> PieceSections {
        let (mut letters, mut advances) = (Vec::new(), Vec::new());
        for (run, palette) in self.runs.iter_mut().zip(&self.palettes) {
            run.first_letter = letters.len() as u32;
            run.letters = palette.letters.len() as u32;
            letters.extend(palette.letters.iter().map(|letter| letter.glyph));
            advances.extend(palette.letters.iter().map(Letter::advance));
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        let recorded = std::mem::take(&mut self.recorded);
        let all_codes = std::mem::take(&mut self.codes);
        let mut codes = Vec::with_capacity(all_codes.len());
        for piece in pieces.iter_mut().filter(|piece| piece.glyphs & PIECE_CODED != 0) {
            let run = self.runs[piece.run as usize];
            let range = piece.first as usize..(piece.first + piece.count()) as usize;
            let (coded, xs) = (&all_codes[range.clone()], &recorded[range]);
            let read = Glyphs::Coded {
                codes: coded,
                letters: slice(&letters, run.first_letter, run.letters).unwrap_or_default(),
                advances: slice(&advances, run.first_letter, run.letters).unwrap_or_default(),
                x: f32::from_bits(piece.start),
                y: piece.y,
            };
            if read.clone().map(|glyph| glyph.x.to_bits()).eq(xs.iter().map(|x| x.to_bits())) {
                piece.first = codes.len() as u32;
                codes.extend(coded);
            } else {
                let ids: Vec<u16> = read.map(|glyph| glyph.id as u16).collect();
                *piece = self.placed(piece.run, &ids, xs, PIECE_LEVEL, piece.y);
            }
        }
        PieceSections {
            runs: self.runs,
            pieces,
            codes,
            letters,
            advances,
            ids: self.ids,
            positions: self.positions,
        }
    }
}

/// Returns the bounding box of some points, or `Rect::ZERO` without points.
fn bounds_of(xs: &[f32], ys: &[f32]) -> Rect {
    let range = |all: &[f32]| {
        let all = all.iter().map(|number| f64::from(*number));
        all.fold(None, |range: Option<(f64, f64)>, number| match range {
            Some((least, most)) => Some((least.min(number), most.max(number))),
            None => Some((number, number)),
        })
    };
    match (range(xs), range(ys)) {
        (Some((left, right)), Some((top, bottom))) => Rect::new(left, top, right, bottom),
        _ => Rect::ZERO,
    }
}

/// Glyphs of a piece, as they were recorded.
#[derive(Clone)]
pub(crate) enum Glyphs<'a> {
    /// One byte per glyph. `x` is the position of the next one.
    Coded { codes: &'a [u8], letters: &'a [u16], advances: &'a [f32], x: f32, y: f32 },
    /// A position per glyph. Includes y only if it is not the same for all.
    Placed { ids: &'a [u16], positions: &'a [f32], level: Option<f32> },
}

impl<'a> Block<'a> {
    /// Returns the glyphs of a piece, or `None` if an index is out of range.
    pub(crate) fn glyphs_of(&self, piece: &Piece, run: &Run) -> Option<Glyphs<'a>> {
        let count = piece.count();
        if piece.glyphs & PIECE_CODED != 0 {
            let codes = slice(self.section::<u8>(CODES), piece.first, count)?;
            let letters = slice(self.section::<u16>(LETTERS), run.first_letter, run.letters)?;
            let advances = slice(self.section::<f32>(ADVANCES), run.first_letter, run.letters)?;
            if codes.iter().any(|code| usize::from(*code) >= letters.len()) {
                return None;
            }
            let x = f32::from_bits(piece.start);
            return Some(Glyphs::Coded { codes, letters, advances, x, y: piece.y });
        }
        let level = (piece.glyphs & PIECE_LEVEL != 0).then_some(piece.y);
        let numbers = if level.is_some() { count } else { count.checked_mul(2)? };
        Some(Glyphs::Placed {
            ids: slice(self.section::<u16>(GLYPHS), piece.first, count)?,
            positions: slice(self.section::<f32>(POSITIONS), piece.start, numbers)?,
            level,
        })
    }
}

impl Iterator for Glyphs<'_> {
    type Item = Glyph;

    fn next(&mut self) -> Option<Glyph> {
        match self {
            Glyphs::Coded { codes, letters, advances, x, y } => {
                let (code, rest) = codes.split_first()?;
                *codes = rest;
                let code = usize::from(*code);
                let glyph = Glyph { id: u32::from(*letters.get(code)?), x: *x, y: *y };
                *x += advances.get(code)?;
                Some(glyph)
            }
            Glyphs::Placed { ids, positions, level } => {
                let (id, rest) = ids.split_first()?;
                *ids = rest;
                let used = if level.is_some() { 1 } else { 2 };
                let (place, rest) = positions.split_at_checked(used)?;
                *positions = rest;
                let y = level.unwrap_or(place[used - 1]);
                Some(Glyph { id: u32::from(*id), x: place[0], y })
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::super::aligned::AlignedBytes;
    use super::super::tables::Tables;
    use super::*;

    fn block_of(pieces: &[(f32, Vec<Glyph>)]) -> AlignedBytes {
        let mut tables = Tables::default();
        for (size, glyphs) in pieces {
            tables.pieces.add(Run { size: *size, ..Run::default() }, glyphs.iter().copied());
        }
        tables.into_block(Header { width: 1, height: 1, ..EMPTY })
    }

    fn read(bytes: &AlignedBytes) -> Vec<Vec<(u32, u32, u32)>> {
        let block = Block::new(bytes.as_bytes()).unwrap();
        let pieces = block.section::<Piece>(PIECES).iter();
        let glyphs = pieces.map(|piece| {
            let run = &block.section::<Run>(RUNS)[piece.run as usize];
            bits(block.glyphs_of(piece, run).unwrap())
        });
        glyphs.collect()
    }

    fn bits(glyphs: impl Iterator<Item = Glyph>) -> Vec<(u32, u32, u32)> {
        glyphs.map(|glyph| (glyph.id, glyph.x.to_bits(), glyph.y.to_bits())).collect()
    }

    /// Returns a line with positions added up as layout does.
    fn line(x: f32, letters: impl Iterator<Item = (u32, f32)>) -> Vec<Glyph> {
        let mut at = x;
        let glyphs = letters.map(|(id, advance)| {
            let glyph = Glyph { id, x: at, y: 12.25 };
            at += advance;
            glyph
        });
        glyphs.collect()
    }

    /// Returns the advance of a letter in a font of 2,048 units per em.
    fn advance(id: u32, size: f32) -> f32 {
        (600 + id * 7 % 900) as f32 * (size / 2_048.0)
    }

    fn section(bytes: &AlignedBytes, number: usize) -> usize {
        Block::new(bytes.as_bytes()).unwrap().section::<u8>(number).len()
    }

    #[test]
    fn a_letter_has_one_advance_at_every_position() {
        let lines: Vec<_> = (0..400)
            .map(|n| {
                let letters = (0..90).map(move |at| (n * 31 + at * 17) % 70);
                let letters = letters.map(|id| (id, advance(id, 17.3)));
                (17.3, line(n as f32 * 2.37, letters))
            })
            .collect();
        let block = block_of(&lines);
        assert_eq!(section(&block, CODES), 400 * 90, "one byte per glyph");
        assert_eq!(section(&block, LETTERS), 70 * 2, "one letter for each glyph");
        assert_eq!(section(&block, GLYPHS), 0);
        for (read, (_, line)) in read(&block).into_iter().zip(lines) {
            assert_eq!(read, bits(line.into_iter()));
        }
    }

    #[test]
    fn a_full_palette_is_followed_by_another() {
        let lines: Vec<_> = (0..20)
            .map(|n| {
                let ids = n * 100..n * 100 + 100;
                (16.0, line(0.0, ids.map(|id| (id, advance(id, 16.0)))))
            })
            .collect();
        let block = block_of(&lines);
        assert_eq!(section(&block, RUNS), 10 * size_of::<Run>(), "two lines per palette");
        assert_eq!(
            section(&block, LETTERS),
            2_000 * 2,
            "no letters remain of pieces that did not fit"
        );
        assert_eq!(
            read(&block),
            lines.into_iter().map(|(_, l)| bits(l.into_iter())).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_piece_with_more_letters_than_a_palette_keeps_its_positions() {
        let glyphs = line(0.0, (0..300).map(|id| (id, advance(id, 16.0))));
        let block = block_of(&[(16.0, glyphs.clone())]);
        assert_eq!(section(&block, POSITIONS), 300 * 4);
        assert_eq!(read(&block), [bits(glyphs.into_iter())]);
    }

    proptest! {
        #[test]
        fn recorded_glyphs_are_read_exactly(
            pieces in prop::collection::vec(
                (
                    prop::sample::select(vec![12.0_f32, 17.0]),
                    prop::collection::vec((0_u32..5, any::<f32>(), 0_u8..12), 0..12),
                ),
                0..8,
            )
        ) {
            let pieces: Vec<(f32, Vec<Glyph>)> = pieces
                .into_iter()
                .map(|(size, glyphs)| {
                    let mut at = 0.0_f32;
                    let glyphs = glyphs.into_iter().map(|(id, any, how)| {
                        // Mostly as layout does it, sometimes arbitrary.
                        let (x, y) = match how {
                            0 => (any, 3.0),
                            1 => (at, any),
                            _ => (at, 3.0),
                        };
                        at = x + advance(id, size);
                        Glyph { id, x, y }
                    });
                    (size, glyphs.collect())
                })
                .collect();
            let block = block_of(&pieces);
            let expected = pieces.into_iter().map(|(_, glyphs)| bits(glyphs.into_iter()));
            prop_assert!(read(&block) == expected.collect::<Vec<_>>());
        }
    }
}
