//! Tables of a page during recording, and their conversion to a block.
//!
//! Repeated numbers, rectangles, paths, paints and styles are stored once. A page of ten thousand
//! commands has a few dozen paints and a few hundred shapes.

use std::hash::Hash;

use bytemuck::Pod;
use foldhash::HashMap;

use super::aligned::AlignedBytes;
use super::glyphs::Pieces;
use super::layout::*;
use super::parts::SharedParts;

/// Sections of a block under construction.
#[derive(Default)]
pub(crate) struct Tables {
    pub commands: Vec<Command>,
    pub rects: Vec<[f32; 4]>,
    pub numbers: Vec<f64>,
    pub paths: Vec<Path>,
    pub verbs: Vec<u8>,
    pub points: Vec<[f32; 2]>,
    pub paints: Vec<PaintRecord>,
    pub gradients: Vec<GradientRecord>,
    pub stops: Vec<Stop>,
    pub shared: SharedParts,
    pub coordinates: Vec<i16>,
    pub pieces: Pieces,
    pub strokes: Vec<StrokeRecord>,
    pub filters: Vec<Span>,
    pub links: Vec<LinkRecord>,
    pub targets: Vec<Span>,
    pub anchors: Vec<Anchor>,
    pub lines: Vec<Line>,
    pub clusters: Vec<u16>,
    /// Searchable text, which comes first in the text section.
    pub searchable: String,
    /// All other text.
    pub text: String,
    known: Known,
}

/// Indices of stored records, by their bytes.
#[derive(Default)]
struct Known {
    rects: HashMap<[u32; 4], u32>,
    numbers: HashMap<Vec<u64>, u32>,
    paths: HashMap<(Vec<u8>, Vec<u64>), u32>,
    paints: HashMap<Vec<u8>, u32>,
    strokes: HashMap<Vec<u8>, u32>,
    gradients: HashMap<Vec<u8>, u32>,
    coordinates: HashMap<Vec<u8>, u32>,
    targets: HashMap<String, u32>,
    texts: HashMap<String, Span>,
}

/// Returns the value as `f32` if the conversion is exact.
pub(crate) fn exact(value: f64) -> Option<f32> {
    let short = value as f32;
    (f64::from(short).to_bits() == value.to_bits()).then_some(short)
}

/// Returns the values as `f32` if all conversions are exact.
pub(crate) fn all_exact<const N: usize>(values: [f64; N]) -> Option<[f32; N]> {
    let short = values.map(|value| value as f32);
    let same = short.iter().zip(values).all(|(s, v)| f64::from(*s).to_bits() == v.to_bits());
    same.then_some(short)
}

impl Tables {
    pub(crate) fn rect(&mut self, rect: [f32; 4]) -> u32 {
        let next = self.rects.len() as u32;
        let index = *self.known.rects.entry(rect.map(f32::to_bits)).or_insert(next);
        if index == next {
            self.rects.push(rect);
        }
        index
    }

    /// Returns the index of the first of `values` in the numbers.
    pub(crate) fn numbers(&mut self, values: &[f64]) -> u32 {
        let next = self.numbers.len() as u32;
        let index = known_or(&mut self.known.numbers, bytemuck::cast_slice(values), next);
        if index == next {
            self.numbers.extend_from_slice(values);
        }
        index
    }

    /// Adds a path of `verbs` that use `points` (x and y alternate).
    pub(crate) fn path(&mut self, verbs: Vec<u8>, points: &[f64]) -> u32 {
        let bits = points.iter().map(|value| value.to_bits()).collect();
        let key = (verbs, bits);
        if let Some(index) = self.known.paths.get(&key) {
            return *index;
        }
        let verbs = &key.0;
        let mut path = Path {
            first_verb: self.verbs.len() as u32,
            verbs: verbs.len() as u32,
            first_point: self.points.len() as u32,
            flags: 0,
        };
        self.verbs.extend_from_slice(verbs);
        if points.iter().all(|value| exact(*value).is_some()) {
            let pairs = points.chunks_exact(2).map(|pair| [pair[0] as f32, pair[1] as f32]);
            self.points.extend(pairs);
        } else {
            path.flags = PATH_PRECISE;
            path.first_point = self.numbers.len() as u32;
            self.numbers.extend_from_slice(points);
        }
        let index = self.paths.len() as u32;
        self.paths.push(path);
        self.known.paths.insert(key, index);
        index
    }

    pub(crate) fn paint(&mut self, record: PaintRecord) -> u32 {
        intern(&mut self.known.paints, &mut self.paints, record)
    }

    pub(crate) fn stroke(&mut self, record: StrokeRecord) -> u32 {
        intern(&mut self.known.strokes, &mut self.strokes, record)
    }

    /// Adds a gradient with its stops, and sets the indices of the stops.
    pub(crate) fn gradient(&mut self, mut record: GradientRecord, stops: &[Stop]) -> u32 {
        let mut key = bytemuck::bytes_of(&record).to_vec();
        key.extend_from_slice(bytemuck::cast_slice(stops));
        let next = self.gradients.len() as u32;
        let index = known_or(&mut self.known.gradients, &key, next);
        if index == next {
            record.first_stop = self.stops.len() as u32;
            record.stops = stops.len() as u32;
            self.stops.extend_from_slice(stops);
            self.gradients.push(record);
        }
        index
    }

    /// Adds normalised variation coordinates. Returns the index of the first.
    pub(crate) fn coordinates(&mut self, coordinates: &[i16]) -> u32 {
        if coordinates.is_empty() {
            return 0;
        }
        let next = self.coordinates.len() as u32;
        let index = known_or(&mut self.known.coordinates, bytemuck::cast_slice(coordinates), next);
        if index == next {
            self.coordinates.extend_from_slice(coordinates);
        }
        index
    }

    /// Adds a text that is not searchable, once.
    pub(crate) fn text(&mut self, text: &str) -> Span {
        if let Some(span) = self.known.texts.get(text) {
            return *span;
        }
        let span = Span { offset: self.text.len() as u32, bytes: text.len() as u32 };
        self.text.push_str(text);
        self.known.texts.insert(text.to_string(), span);
        span
    }

    /// Returns the index of a link's target.
    pub(crate) fn target(&mut self, url: &str) -> u32 {
        if let Some(index) = self.known.targets.get(url) {
            return *index;
        }
        let index = self.targets.len() as u32;
        let span = self.text(url);
        self.targets.push(span);
        self.known.targets.insert(url.to_string(), index);
        index
    }

    /// Returns the block. `header` provides the fields that are not in the tables. Its text spans
    /// must come from [`Tables::text`].
    pub(crate) fn into_block(mut self, mut header: Header) -> AlignedBytes {
        let shift = self.searchable.len() as u32;
        for span in [&mut header.title, &mut header.url]
            .into_iter()
            .chain(&mut self.targets)
            .chain(&mut self.filters)
            .chain(self.anchors.iter_mut().map(|anchor| &mut anchor.name))
        {
            span.offset += shift;
        }
        let text = std::mem::take(&mut self.searchable) + &self.text;
        let pieces = std::mem::take(&mut self.pieces).finish();
        let sections: [&[u8]; SECTION_COUNT] = [
            bytemuck::cast_slice(&self.commands),
            bytemuck::cast_slice(&self.rects),
            bytemuck::cast_slice(&self.numbers),
            bytemuck::cast_slice(&self.paths),
            &self.verbs,
            bytemuck::cast_slice(&self.points),
            bytemuck::cast_slice(&self.paints),
            bytemuck::cast_slice(&self.gradients),
            bytemuck::cast_slice(&self.stops),
            bytemuck::cast_slice(&self.shared.images),
            bytemuck::cast_slice(&self.shared.fonts),
            bytemuck::cast_slice(&pieces.runs),
            bytemuck::cast_slice(&self.coordinates),
            bytemuck::cast_slice(&pieces.pieces),
            &pieces.codes,
            bytemuck::cast_slice(&pieces.letters),
            bytemuck::cast_slice(&pieces.advances),
            bytemuck::cast_slice(&pieces.ids),
            bytemuck::cast_slice(&pieces.positions),
            bytemuck::cast_slice(&self.strokes),
            bytemuck::cast_slice(&self.filters),
            bytemuck::cast_slice(&self.links),
            bytemuck::cast_slice(&self.targets),
            bytemuck::cast_slice(&self.anchors),
            bytemuck::cast_slice(&self.lines),
            bytemuck::cast_slice(&self.clusters),
            text.as_bytes(),
        ];
        let mut offset = size_of::<Header>();
        for (place, section) in header.sections.iter_mut().zip(sections) {
            *place = Section { offset: offset as u64, bytes: section.len() as u64 };
            offset += section.len().next_multiple_of(ALIGNMENT);
        }
        header.magic = MAGIC;
        header.version = FORMAT_VERSION;
        header.header_bytes = size_of::<Header>() as u32;
        header.block_bytes = offset as u64;
        header.searchable_bytes = shift;
        let mut block = AlignedBytes::zeroed(offset);
        let bytes = block.as_mut_bytes();
        bytes[..size_of::<Header>()].copy_from_slice(bytemuck::bytes_of(&header));
        for (place, section) in header.sections.iter().zip(sections) {
            let start = place.offset as usize;
            bytes[start..start + section.len()].copy_from_slice(section);
        }
        block
    }
}

/// Returns the index stored under `key`. Stores and returns `next` if the key is new.
fn known_or<K: Hash + Eq + Clone>(known: &mut HashMap<Vec<K>, u32>, key: &[K], next: u32) -> u32 {
    if let Some(index) = known.get(key) {
        return *index;
    }
    known.insert(key.to_vec(), next);
    next
}

fn intern<T: Pod>(known: &mut HashMap<Vec<u8>, u32>, table: &mut Vec<T>, record: T) -> u32 {
    let next = table.len() as u32;
    let index = known_or(known, bytemuck::bytes_of(&record), next);
    if index == next {
        table.push(record);
    }
    index
}
