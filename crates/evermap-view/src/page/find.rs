//! Finds text on a page and its position, using the block's lines and clusters.

use kurbo::Rect;

use super::block::Block;
use super::clusters::clusters;
use super::layout::{LINE_RIGHT_TO_LEFT, Line};

/// A match: one rectangle for each line that it spans, in device pixels of the page.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// From top to bottom; never empty.
    pub rects: Vec<Rect>,
}

/// Maximum number of matches. A page of a megabyte has a million matches of `e`.
const MATCHES_MAX: usize = 10_000;
/// Maximum number of clusters visited. In a damaged page, every line may refer to all clusters.
const STEPS_MAX: usize = 1 << 26;
/// Maximum gap between adjacent pieces of a line, in pixels. Advances are stored in 1/16 pixel.
const GAP_MAX: f64 = 1.0;

impl Block<'_> {
    /// Returns all matches of `needle` in document order, ignoring case; at most 10,000. White
    /// space matches any white space except the end of a block.
    ///
    /// Costs a scan of the page's text.
    pub fn find(&self, needle: &str) -> Vec<Match> {
        let folded: Vec<char> = needle.chars().flat_map(fold).collect();
        if folded.is_empty() {
            return Vec::new();
        }
        let hay = Folded::of(self.searchable());
        let mut matches = Vec::new();
        let mut lines = self.lines();
        let mut at = 0;
        let mut steps = 0;
        while let Some(found) = hay.next_match(at, &folded) {
            let (start, end) = (hay.offset(found), hay.offset(found + folded.len()));
            lines = after(lines, start);
            let mut rects = Vec::new();
            for line in lines.iter().take_while(|line| (line.text.offset as usize) < end) {
                steps += 1 + self.clusters_of(line).len();
                if steps > STEPS_MAX {
                    return matches;
                }
                if let Some(rect) = self.marked(line, start, end) {
                    add(&mut rects, rect);
                }
            }
            if !rects.is_empty() {
                matches.push(Match { rects });
            }
            if matches.len() == MATCHES_MAX {
                break;
            }
            at = found + folded.len();
        }
        matches
    }

    /// Returns the part of a line that bytes `start..end` of the searchable text occupy.
    fn marked(&self, line: &Line, start: usize, end: usize) -> Option<Rect> {
        let clusters = || clusters(self.clusters_of(line));
        let (mut x, direction) = match line.clusters & LINE_RIGHT_TO_LEFT {
            0 => (f64::from(line.left), 1.0),
            _ => (
                f64::from(line.left) + clusters().map(|cluster| cluster.advance).sum::<f64>(),
                -1.0,
            ),
        };
        let mut offset = line.text.offset as usize;
        let mut marked: Option<(f64, f64)> = None;
        for cluster in clusters() {
            let (from, to) = (offset, offset + cluster.bytes);
            let next = x + direction * cluster.advance;
            if from < end && to > start {
                marked = Some((marked.map_or(x, |(first, _)| first), next));
            }
            (offset, x) = (to, next);
        }
        let (top, bottom) = (f64::from(line.top), f64::from(line.top) + f64::from(line.height));
        let rect = marked.map(|(first, last)| Rect::new(first, top, last, bottom).abs());
        rect.filter(|rect| rect.is_finite())
    }
}

/// Adds a rectangle. Merges it with the last one if they touch, as for text that changes to bold.
fn add(rects: &mut Vec<Rect>, rect: Rect) {
    match rects.last_mut() {
        Some(last)
            if (last.y0, last.y1) == (rect.y0, rect.y1)
                && rect.x0 <= last.x1 + GAP_MAX
                && last.x0 <= rect.x1 + GAP_MAX =>
        {
            *last = last.union(rect);
        }
        _ => rects.push(rect),
    }
}

/// Returns the lines from the first one with text after `start`. Offsets increase from line to
/// line.
fn after(lines: &[Line], start: usize) -> &[Line] {
    let skipped =
        lines.partition_point(|line| line.text.offset as usize + line.text.bytes as usize <= start);
    &lines[skipped..]
}

/// Text in the form that is compared, with the offset of each character's source.
struct Folded {
    chars: Vec<char>,
    offsets: Vec<u32>,
    length: usize,
}

impl Folded {
    fn of(text: &str) -> Folded {
        let mut folded = Folded {
            chars: Vec::with_capacity(text.len()),
            offsets: Vec::with_capacity(text.len()),
            length: text.len(),
        };
        for (offset, char) in text.char_indices() {
            for char in fold(char) {
                folded.chars.push(char);
                folded.offsets.push(offset as u32);
            }
        }
        folded
    }

    fn next_match(&self, from: usize, needle: &[char]) -> Option<usize> {
        let mut windows = self.chars.get(from..)?.windows(needle.len());
        windows.position(|window| window == needle).map(|at| from + at)
    }

    fn offset(&self, index: usize) -> usize {
        self.offsets.get(index).map_or(self.length, |offset| *offset as usize)
    }
}

/// Converts to lower case, and any white space inside a block to a space.
fn fold(char: char) -> impl Iterator<Item = char> {
    let char = match char {
        '\n' => '\n',
        char if char.is_whitespace() => ' ',
        char => char,
    };
    char.to_lowercase()
}
