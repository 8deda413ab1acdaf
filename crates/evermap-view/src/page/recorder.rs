//! Records paint commands as a page block.
//!
//! A [`Recorder`] accepts everything that paints through `anyrender` (the layout engine, or any
//! other program) and stores it as a display list.

use std::sync::Arc;

use anyrender::{Filter, Glyph, NormalizedCoord, Paint, PaintRef, PaintScene, RenderContext};
use kurbo::{Affine, Rect, Shape, Stroke, Vec2};
use peniko::{BlendMode, Color, Fill, FontData, StyleRef};

use super::aligned::AlignedBytes;
use super::clusters::ClusterWriter;
use super::encode;
use super::extent::Extent;
use super::layout::*;
use super::parts::Part;
use super::size::PageSize;
use super::tables::Tables;

/// Assumed maximum distance of a glyph's parts from its origin, in ems. A glyph that extends
/// further may be culled wrongly.
const GLYPH_REACH_EMS: f64 = 3.0;
/// Visible extent of a blurred shadow, in standard deviations.
const SHADOW_REACH: f64 = 4.0;

/// A recorded page.
pub struct Recorded {
    /// The page block.
    pub block: AlignedBytes,
    /// Fonts and images of the page, each once.
    pub parts: Vec<Part>,
    /// Number of commands that could not be recorded: custom paints, which pages do not have.
    pub unsupported: usize,
}

/// Records paint commands into a page block.
pub struct Recorder {
    tables: Tables,
    size: PageSize,
    title: String,
    url: String,
    /// Open layers, with the extent of their content.
    open: Vec<Layer>,
    unsupported: usize,
}

struct Layer {
    command: usize,
    content: Extent,
    /// A filter may show content far from where it was drawn.
    filtered: bool,
}

impl Recorder {
    /// Creates a recorder with an empty page.
    pub fn new(size: PageSize) -> Recorder {
        Recorder {
            tables: Tables::default(),
            size,
            title: String::new(),
            url: String::new(),
            open: Vec::new(),
            unsupported: 0,
        }
    }

    /// Sets the page's title and address.
    pub fn set_title(&mut self, title: &str, url: &str) {
        self.title = title.to_string();
        self.url = url.to_string();
    }

    /// Adds a rectangle that links to `url`. `node` is the element's id in the document's tables,
    /// or `u32::MAX`.
    pub fn add_link(&mut self, rect: Rect, url: &str, node: u32) {
        let target = self.tables.target(url);
        let rect = [rect.x0, rect.y0, rect.x1, rect.y1].map(|value| value as f32);
        self.tables.links.push(LinkRecord { rect, target, node });
    }

    /// Adds the position of `#name`.
    pub fn add_anchor(&mut self, name: &str, top: f64) {
        let name = self.tables.text(name);
        self.tables.anchors.push(Anchor { name, top: top as f32 });
    }

    /// Adds a line of searchable text: its position, and its clusters in reading order, each with
    /// its text and its advance in pixels. Lines must be added from top to bottom.
    pub fn add_line<'a>(
        &mut self,
        left: f64,
        top: f64,
        height: f64,
        right_to_left: bool,
        clusters: impl Iterator<Item = (&'a str, f32)>,
    ) {
        let offset = self.tables.searchable.len();
        let first = self.tables.clusters.len();
        let mut writer = ClusterWriter::default();
        for (text, advance) in clusters {
            self.tables.searchable.push_str(text);
            writer.add(&mut self.tables.clusters, advance, text.len());
        }
        let clusters = (self.tables.clusters.len() - first) as u32;
        self.tables.lines.push(Line {
            left: left as f32,
            top: top as f32,
            height: height as f32,
            text: Span {
                offset: offset as u32,
                bytes: (self.tables.searchable.len() - offset) as u32,
            },
            first_cluster: first as u32,
            clusters: clusters | if right_to_left { LINE_RIGHT_TO_LEFT } else { 0 },
        });
    }

    /// Ends a block of lines. Matches do not extend across it.
    pub fn end_block(&mut self) {
        if !self.tables.searchable.is_empty() && !self.tables.searchable.ends_with('\n') {
            self.tables.searchable.push('\n');
        }
    }

    /// Returns the number of commands so far.
    pub fn commands(&self) -> usize {
        self.tables.commands.len()
    }

    /// Returns the block with its fonts and images. Closes open layers.
    pub fn finish(mut self) -> Recorded {
        while !self.open.is_empty() {
            self.pop_layer();
        }
        let header = Header {
            width: self.size.width,
            height: self.size.height,
            window_width: self.size.window.0,
            window_height: self.size.window.1,
            scale: self.size.scale,
            background: 0x00FF_FFFF,
            title: self.tables.text(&self.title),
            url: self.tables.text(&self.url),
            ..bytemuck::Zeroable::zeroed()
        };
        let parts = std::mem::take(&mut self.tables.shared.parts);
        let block = self.tables.into_block(header);
        Recorded { block, parts, unsupported: self.unsupported }
    }

    /// Appends a command and adds its extent to the innermost open layer.
    fn push(&mut self, mut command: Command, extent: Extent) {
        let inside_filter = self.open.iter().any(|layer| layer.filtered);
        let extent = if inside_filter { Extent::ALL } else { extent };
        if let Some(layer) = self.open.last_mut() {
            layer.content.grow(extent);
        }
        extent.put_into(&mut command);
        self.tables.commands.push(command);
    }

    fn open_layer(&mut self, command: Command, filtered: bool) {
        self.open.push(Layer {
            command: self.tables.commands.len(),
            content: Extent::EMPTY,
            filtered,
        });
        self.tables.commands.push(command);
    }

    /// Encodes a paint. Custom paints are invisible.
    fn paint(&mut self, paint: PaintRef<'_>, transform: Option<Affine>) -> u32 {
        encode::paint(&mut self.tables, paint, transform).unwrap_or_else(|| {
            self.unsupported += 1;
            self.paint(Paint::Solid(Color::TRANSPARENT), transform)
        })
    }

    /// Encodes a command with a shape. Also returns the shape's bounds before the transform.
    fn command(
        &mut self,
        kind: u8,
        fill: Fill,
        transform: Affine,
        shape: &impl Shape,
    ) -> (Command, Rect) {
        let (transform_kind, transform) = encode::transform(&mut self.tables, transform);
        let (shape_kind, shape, bounds) = encode::shape(&mut self.tables, shape);
        let flags = Command::flags_of(fill == Fill::EvenOdd, transform_kind, shape_kind);
        (Command { kind, flags, transform, shape, style: NONE, ..Default::default() }, bounds)
    }
}

impl RenderContext for Recorder {}

impl PaintScene for Recorder {
    fn reset(&mut self) {
        *self = Recorder {
            title: self.title.clone(),
            url: self.url.clone(),
            ..Recorder::new(self.size)
        };
    }

    fn push_layer(
        &mut self,
        fill: Fill,
        blend: impl Into<BlendMode>,
        alpha: f32,
        transform: Affine,
        clip: &impl Shape,
        filter: Option<Arc<Filter>>,
        // The rasterizer does not support backdrop filters.
        _backdrop_filter: Option<Arc<Filter>>,
    ) {
        let blend = blend.into();
        let (mut command, _) = self.command(COMMAND_LAYER, fill, transform, clip);
        (command.mix, command.compose) = (blend.mix as u8, blend.compose as u8);
        command.paint = alpha.to_bits();
        let json = filter.and_then(|filter| serde_json::to_string(&*filter).ok());
        if let Some(json) = &json {
            let span = self.tables.text(json);
            command.style = self.tables.filters.len() as u32;
            self.tables.filters.push(span);
        }
        self.open_layer(command, json.is_some());
    }

    fn push_clip_layer(&mut self, fill: Fill, transform: Affine, clip: &impl Shape) {
        let (command, _) = self.command(COMMAND_CLIP, fill, transform, clip);
        self.open_layer(command, false);
    }

    fn pop_layer(&mut self) {
        let Some(layer) = self.open.pop() else { return };
        // A layer with a destructive compose mode is visible where nothing was drawn in it.
        let begin = &self.tables.commands[layer.command];
        let spreads =
            begin.kind == COMMAND_LAYER && begin.compose != peniko::Compose::SrcOver as u8;
        let extent = if layer.filtered || spreads { Extent::ALL } else { layer.content };
        extent.put_into(&mut self.tables.commands[layer.command]);
        self.push(Command { kind: COMMAND_POP, ..Default::default() }, extent);
    }

    fn stroke<'a>(
        &mut self,
        style: &Stroke,
        transform: Affine,
        brush: impl Into<PaintRef<'a>>,
        brush_transform: Option<Affine>,
        shape: &impl Shape,
    ) {
        let paint = self.paint(brush.into(), brush_transform);
        let (command, bounds) = self.command(COMMAND_STROKE, Fill::NonZero, transform, shape);
        let reach = style.width * style.miter_limit.max(1.5);
        let bounds = transform.transform_rect_bbox(bounds.inflate(reach, reach));
        let style = encode::stroke_style(&mut self.tables, style);
        let command = Command { paint, style, ..command };
        self.push(command, Extent::of(bounds));
    }

    fn fill<'a>(
        &mut self,
        style: Fill,
        transform: Affine,
        brush: impl Into<PaintRef<'a>>,
        brush_transform: Option<Affine>,
        shape: &impl Shape,
    ) {
        let paint = self.paint(brush.into(), brush_transform);
        let (command, bounds) = self.command(COMMAND_FILL, style, transform, shape);
        let command = Command { paint, ..command };
        self.push(command, Extent::of(transform.transform_rect_bbox(bounds)));
    }

    fn draw_glyphs<'a, 's: 'a>(
        &'s mut self,
        font: &'a FontData,
        font_size: f32,
        hint: bool,
        normalized_coords: &'a [NormalizedCoord],
        embolden: Vec2,
        style: impl Into<StyleRef<'a>>,
        brush: impl Into<PaintRef<'a>>,
        brush_alpha: f32,
        transform: Affine,
        glyph_transform: Option<Affine>,
        glyphs: impl Iterator<Item = Glyph> + Clone,
    ) {
        let paint = self.paint(brush.into(), None);
        let (flags, stroke) = match style.into() {
            StyleRef::Fill(fill) => (if fill == Fill::EvenOdd { RUN_EVEN_ODD } else { 0 }, NONE),
            StyleRef::Stroke(stroke) => (0, encode::stroke_style(&mut self.tables, stroke)),
        };
        let run = Run {
            font: self.tables.shared.font(font),
            size: font_size,
            flags: flags | if hint { RUN_HINTED } else { 0 },
            first_coordinate: self.tables.coordinates(normalized_coords),
            coordinates: normalized_coords.len() as u32,
            embolden: match embolden == Vec2::ZERO {
                true => NONE,
                false => self.tables.numbers(&[embolden.x, embolden.y]),
            },
            glyph_transform: match glyph_transform {
                Some(transform) => self.tables.numbers(&transform.as_coeffs()),
                None => NONE,
            },
            stroke,
            alpha: brush_alpha,
            first_letter: 0,
            letters: 0,
        };
        let (piece, origins) = self.tables.pieces.add(run, glyphs);
        let reach = f64::from(font_size) * GLYPH_REACH_EMS;
        let bounds = transform.transform_rect_bbox(origins.inflate(reach, reach));
        let (transform_kind, coded) = encode::transform(&mut self.tables, transform);
        let command = Command {
            kind: COMMAND_GLYPHS,
            flags: Command::flags_of(false, transform_kind, SHAPE_NONE),
            paint,
            transform: coded,
            shape: piece,
            style: NONE,
            ..Default::default()
        };
        self.push(command, Extent::of(bounds));
    }

    fn draw_box_shadow(
        &mut self,
        transform: Affine,
        rect: Rect,
        brush: Color,
        radius: f64,
        std_dev: f64,
    ) {
        let paint = self.paint(Paint::Solid(brush), None);
        let reach = std_dev * SHADOW_REACH;
        let bounds = transform.transform_rect_bbox(rect.abs().inflate(reach, reach));
        let (transform_kind, coded) = encode::transform(&mut self.tables, transform);
        let command = Command {
            kind: COMMAND_SHADOW,
            flags: Command::flags_of(false, transform_kind, SHAPE_NONE),
            paint,
            transform: coded,
            shape: self.tables.numbers(&[rect.x0, rect.y0, rect.x1, rect.y1, radius, std_dev]),
            style: NONE,
            ..Default::default()
        };
        self.push(command, Extent::of(bounds));
    }
}
