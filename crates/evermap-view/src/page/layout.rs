//! Format of the page block.
//!
//! A block is one position-independent piece of memory: a header, a table of sections, and the
//! sections, which are plain arrays. References inside are indices or offsets, never addresses.
//! Numbers are little-endian. Sections start at multiples of 8 bytes, and a block must be placed at
//! a multiple of 8. Lengths are in device pixels of the layout.
//!
//! An `f64` of the engine is stored as `f32` only where that is exact, so that painting from the
//! block gives exactly the pixels that the engine gives. Any change here requires a new
//! [`FORMAT_VERSION`].

use bytemuck::{Pod, Zeroable};

/// First eight bytes of every block.
pub(crate) const MAGIC: [u8; 8] = *b"EVMPAGE\n";
/// Format version that this crate writes, and the only one that it reads.
pub const FORMAT_VERSION: u32 = 2;
/// Alignment of sections.
pub(crate) const ALIGNMENT: usize = 8;
/// Marks a missing index.
pub(crate) const NONE: u32 = u32::MAX;

/// Header at offset 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// Bytes from the start of the block to the first section.
    pub header_bytes: u32,
    /// Bytes of the whole block.
    pub block_bytes: u64,
    /// Width of the page in pixels; at least the window's.
    pub width: u32,
    /// Height of the page in pixels.
    pub height: u32,
    /// Width of the window that the page was laid out for.
    pub window_width: u32,
    /// Height of that window.
    pub window_height: u32,
    /// Device pixels per CSS pixel.
    pub scale: f32,
    /// Background colour, 0x00RRGGBB.
    pub background: u32,
    /// Title, in the text section.
    pub title: Span,
    /// Address, in the text section.
    pub url: Span,
    /// Length of the searchable text, which comes first in the text section.
    pub searchable_bytes: u32,
    /// Zero.
    pub reserved: u32,
    /// Positions of the sections.
    pub sections: [Section; SECTION_COUNT],
}

/// Position of a section in the block.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct Section {
    /// Bytes from the start of the block, a multiple of [`ALIGNMENT`].
    pub offset: u64,
    /// Bytes, a multiple of the record's size.
    pub bytes: u64,
}

/// A range of the text section.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
pub(crate) struct Span {
    pub offset: u32,
    pub bytes: u32,
}

pub(crate) const SECTION_COUNT: usize = 27;
pub(crate) const COMMANDS: usize = 0;
pub(crate) const RECTS: usize = 1;
pub(crate) const NUMBERS: usize = 2;
pub(crate) const PATHS: usize = 3;
pub(crate) const VERBS: usize = 4;
pub(crate) const POINTS: usize = 5;
pub(crate) const PAINTS: usize = 6;
pub(crate) const GRADIENTS: usize = 7;
pub(crate) const STOPS: usize = 8;
pub(crate) const IMAGES: usize = 9;
pub(crate) const FONTS: usize = 10;
pub(crate) const RUNS: usize = 11;
pub(crate) const COORDINATES: usize = 12;
pub(crate) const PIECES: usize = 13;
pub(crate) const CODES: usize = 14;
pub(crate) const LETTERS: usize = 15;
pub(crate) const ADVANCES: usize = 16;
pub(crate) const GLYPHS: usize = 17;
pub(crate) const POSITIONS: usize = 18;
pub(crate) const STROKES: usize = 19;
pub(crate) const FILTERS: usize = 20;
pub(crate) const LINKS: usize = 21;
pub(crate) const TARGETS: usize = 22;
pub(crate) const ANCHORS: usize = 23;
pub(crate) const LINES: usize = 24;
pub(crate) const CLUSTERS: usize = 25;
pub(crate) const TEXT: usize = 26;

/// Size of a record of each section, in bytes.
pub(crate) const RECORD_BYTES: [usize; SECTION_COUNT] = [
    size_of::<Command>(),
    size_of::<[f32; 4]>(),
    size_of::<f64>(),
    size_of::<Path>(),
    1,
    size_of::<[f32; 2]>(),
    size_of::<PaintRecord>(),
    size_of::<GradientRecord>(),
    size_of::<Stop>(),
    size_of::<ImageRecord>(),
    size_of::<FontRecord>(),
    size_of::<Run>(),
    size_of::<i16>(),
    size_of::<Piece>(),
    1,
    size_of::<u16>(),
    size_of::<f32>(),
    size_of::<u16>(),
    size_of::<f32>(),
    size_of::<StrokeRecord>(),
    size_of::<Span>(),
    size_of::<LinkRecord>(),
    size_of::<Span>(),
    size_of::<Anchor>(),
    size_of::<Line>(),
    size_of::<u16>(),
    1,
];

/// One command of the display list.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct Command {
    /// One of the `COMMAND_` constants.
    pub kind: u8,
    /// Bit 0: fill rule is even-odd. Bits 1-2: `TRANSFORM_`. Bits 3-5: `SHAPE_`.
    pub flags: u8,
    /// Layers: the mix and compose modes (the numbers of CSS compositing, as in `peniko`).
    pub mix: u8,
    pub compose: u8,
    /// Fill, stroke, glyphs: the paint. Layer: the bits of its opacity, an `f32`.
    pub paint: u32,
    /// Vertical range of the drawn content, for culling. A command that ends a layer has the range
    /// of the one that begins it.
    pub top: f32,
    pub bottom: f32,
    /// See the `TRANSFORM_` constants.
    pub transform: [u32; 2],
    /// The shape, see the `SHAPE_` constants. Glyphs: the piece. Shadow: first of six numbers
    /// (rectangle, radius, deviation).
    pub shape: u32,
    /// Stroke: its style. Layer: its filter, or [`NONE`].
    pub style: u32,
}

pub(crate) const COMMAND_LAYER: u8 = 1;
pub(crate) const COMMAND_CLIP: u8 = 2;
pub(crate) const COMMAND_POP: u8 = 3;
pub(crate) const COMMAND_FILL: u8 = 4;
pub(crate) const COMMAND_STROKE: u8 = 5;
pub(crate) const COMMAND_GLYPHS: u8 = 6;
pub(crate) const COMMAND_SHADOW: u8 = 7;

pub(crate) const FLAG_EVEN_ODD: u8 = 1;
const TRANSFORM_SHIFT: u8 = 1;
const SHAPE_SHIFT: u8 = 3;
/// Translation by two `f32`, whose bits are in the field.
pub(crate) const TRANSFORM_MOVE: u8 = 0;
/// Translation by two of the numbers. The first field is their index.
pub(crate) const TRANSFORM_MOVE_PRECISE: u8 = 1;
/// Six coefficients of an affine map, from the numbers. The first field is their index.
pub(crate) const TRANSFORM_AFFINE: u8 = 2;
/// No shape.
pub(crate) const SHAPE_NONE: u8 = 0;
/// One of the rectangles.
pub(crate) const SHAPE_RECT: u8 = 1;
/// Four of the numbers.
pub(crate) const SHAPE_RECT_PRECISE: u8 = 2;
/// Eight of the numbers: the rectangle and the radii of its corners.
pub(crate) const SHAPE_ROUNDED: u8 = 3;
/// One of the paths.
pub(crate) const SHAPE_PATH: u8 = 4;

impl Command {
    pub(crate) fn flags_of(even_odd: bool, transform: u8, shape: u8) -> u8 {
        u8::from(even_odd) | transform << TRANSFORM_SHIFT | shape << SHAPE_SHIFT
    }

    pub(crate) fn transform_kind(&self) -> u8 {
        self.flags >> TRANSFORM_SHIFT & 3
    }

    pub(crate) fn shape_kind(&self) -> u8 {
        self.flags >> SHAPE_SHIFT & 7
    }
}

/// A path: its verbs, and the points that they use.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
pub(crate) struct Path {
    pub first_verb: u32,
    pub verbs: u32,
    /// Index into the points, or with [`PATH_PRECISE`] into the numbers.
    pub first_point: u32,
    pub flags: u32,
}

/// The points are pairs of numbers.
pub(crate) const PATH_PRECISE: u32 = 1;

pub(crate) const VERB_MOVE: u8 = 0;
pub(crate) const VERB_LINE: u8 = 1;
pub(crate) const VERB_QUAD: u8 = 2;
pub(crate) const VERB_CUBIC: u8 = 3;
pub(crate) const VERB_CLOSE: u8 = 4;

/// Paint of a command.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct PaintRecord {
    /// One of the `PAINT_` constants.
    pub kind: u32,
    /// First of the six numbers of the paint's own transform, or [`NONE`].
    pub transform: u32,
    /// Solid: the bits of red, green, blue, alpha, each an `f32`. Gradient: its index. Image: its
    /// index, the extends and quality (`x | y << 8 | quality << 16`), the bits of its opacity.
    pub data: [u32; 4],
}

pub(crate) const PAINT_SOLID: u32 = 0;
pub(crate) const PAINT_GRADIENT: u32 = 1;
pub(crate) const PAINT_IMAGE: u32 = 2;

/// A gradient.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct GradientRecord {
    /// One of the `GRADIENT_` constants.
    pub kind: u8,
    pub extend: u8,
    pub color_space: u8,
    pub hue_direction: u8,
    /// 1 if colours are interpolated without premultiplied alpha.
    pub straight_alpha: u8,
    pub reserved: [u8; 3],
    pub first_stop: u32,
    pub stops: u32,
    /// Linear: start, end. Radial: start, end, radii. Sweep: centre, angles.
    pub geometry: [f64; 6],
}

pub(crate) const GRADIENT_LINEAR: u8 = 0;
pub(crate) const GRADIENT_RADIAL: u8 = 1;
pub(crate) const GRADIENT_SWEEP: u8 = 2;

/// A stop of a gradient.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct Stop {
    pub offset: f32,
    pub color_space: u8,
    /// Bit n: component n is missing (CSS `none`).
    pub missing: u8,
    pub reserved: [u8; 2],
    pub components: [f32; 4],
}

/// An image: hash and format of its pixels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct ImageRecord {
    /// BLAKE3 of the pixels' bytes.
    pub hash: [u8; 32],
    pub width: u32,
    pub height: u32,
    pub format: u8,
    pub alpha: u8,
    pub reserved: [u8; 6],
}

/// A font file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct FontRecord {
    /// BLAKE3 of the file.
    pub hash: [u8; 32],
    /// Index of the font in a collection.
    pub index: u32,
    pub reserved: u32,
}

/// Style that some pieces of text share, and its palette of letters.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub(crate) struct Run {
    pub font: u32,
    /// Pixels per em.
    pub size: f32,
    /// Bit 0: hinted. Bit 1: even-odd fill.
    pub flags: u32,
    /// Normalised variation coordinates.
    pub first_coordinate: u32,
    pub coordinates: u32,
    /// First of two numbers, or [`NONE`].
    pub embolden: u32,
    /// First of six numbers, applied to each glyph, or [`NONE`].
    pub glyph_transform: u32,
    /// Style for stroking the outlines, or [`NONE`] for filling them.
    pub stroke: u32,
    /// Opacity.
    pub alpha: f32,
    /// Index of the palette's first letter; its advance has the same index.
    pub first_letter: u32,
    /// Number of letters, at most 256.
    pub letters: u32,
}

pub(crate) const RUN_HINTED: u32 = 1;
pub(crate) const RUN_EVEN_ODD: u32 = 2;

/// Some adjacent glyphs of one style.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct Piece {
    pub run: u32,
    /// With [`PIECE_CODED`], index of the first code, which is a letter of the run's palette.
    /// Otherwise index of the first glyph id.
    pub first: u32,
    /// Bits 30 and 31: encoding of the positions. The rest: number of glyphs.
    pub glyphs: u32,
    /// With [`PIECE_CODED`], bits of the first glyph's x, an `f32`. Otherwise index of the first
    /// position.
    pub start: u32,
    /// The y of all glyphs, unless they differ.
    pub y: f32,
}

/// Each glyph is at the previous position plus the letter's advance, added in `f32`.
pub(crate) const PIECE_CODED: u32 = 1 << 30;
/// All glyphs have the same y, and positions hold only x. Without this flag and [`PIECE_CODED`], x
/// and y alternate.
pub(crate) const PIECE_LEVEL: u32 = 1 << 31;

impl Piece {
    /// Returns the number of glyphs.
    pub(crate) fn count(&self) -> u32 {
        self.glyphs & !(PIECE_CODED | PIECE_LEVEL)
    }
}

/// Style of a stroke.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct StrokeRecord {
    pub width: f64,
    pub miter_limit: f64,
    pub dash_offset: f64,
    /// Index into the numbers.
    pub first_dash: u32,
    pub dashes: u32,
    /// 0 bevel, 1 miter, 2 round.
    pub join: u8,
    /// 0 butt, 1 square, 2 round.
    pub start_cap: u8,
    pub end_cap: u8,
    pub reserved: [u8; 5],
}

/// A clickable rectangle.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct LinkRecord {
    /// Left, top, right, bottom.
    pub rect: [f32; 4],
    /// Index of the target, an absolute address.
    pub target: u32,
    /// Id of the element in the document's tables.
    pub node: u32,
}

/// Position that a `#fragment` refers to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct Anchor {
    pub name: Span,
    pub top: f32,
}

/// A line of text, or the part of it with one direction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct Line {
    pub left: f32,
    pub top: f32,
    pub height: f32,
    /// Range of the searchable text. Offsets increase from line to line.
    pub text: Span,
    pub first_cluster: u32,
    /// Bit 31: [`LINE_RIGHT_TO_LEFT`]. The rest: number of cluster records, in reading order.
    pub clusters: u32,
}

/// The first cluster is the rightmost one.
pub(crate) const LINE_RIGHT_TO_LEFT: u32 = 1 << 31;

/// Header of an empty page of one pixel.
pub(crate) static EMPTY: Header = Header {
    magic: MAGIC,
    version: FORMAT_VERSION,
    header_bytes: size_of::<Header>() as u32,
    block_bytes: size_of::<Header>() as u64,
    width: 1,
    height: 1,
    window_width: 1,
    window_height: 1,
    scale: 1.0,
    background: 0x00FF_FFFF,
    title: Span { offset: 0, bytes: 0 },
    url: Span { offset: 0, bytes: 0 },
    searchable_bytes: 0,
    reserved: 0,
    sections: [Section { offset: size_of::<Header>() as u64, bytes: 0 }; SECTION_COUNT],
};

const _: () = {
    assert!(size_of::<Header>() == 72 + 16 * SECTION_COUNT);
    assert!(size_of::<Command>() == 32 && align_of::<Command>() == 4);
    assert!(size_of::<Path>() == 16);
    assert!(size_of::<PaintRecord>() == 24);
    assert!(size_of::<GradientRecord>() == 64);
    assert!(size_of::<Stop>() == 24);
    assert!(size_of::<ImageRecord>() == 48);
    assert!(size_of::<FontRecord>() == 40);
    assert!(size_of::<Run>() == 44);
    assert!(size_of::<Piece>() == 20);
    assert!(size_of::<StrokeRecord>() == 40);
    assert!(size_of::<LinkRecord>() == 24);
    assert!(size_of::<Anchor>() == 12);
    assert!(size_of::<Line>() == 28);
    // Records are read in place, so the byte order must match.
    assert!(cfg!(target_endian = "little"));
};
