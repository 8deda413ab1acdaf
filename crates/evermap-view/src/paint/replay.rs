//! Replays the commands of a page block in a rasterizer.
//!
//! Commands with an invalid index or with values or work beyond [`bounds`] are skipped. Layers are
//! always closed.

use anyrender::{Filter, Paint, PaintRef, PaintScene};
use bytemuck::Contiguous;
use kurbo::{Affine, Cap, Join, Rect, Stroke, Vec2};
use peniko::color::{AlphaColor, ColorSpaceTag, DynamicColor, Flags, HueDirection, Missing, Srgb};
use peniko::{
    BlendMode, ColorStop, ColorStops, Compose, Extend, Fill, FontData, Gradient, GradientKind,
    ImageBrush, ImageData, ImageQuality, ImageSampler, InterpolationAlphaSpace,
    LinearGradientPosition, Mix, RadialGradientPosition, Style, SweepGradientPosition,
};
use std::sync::Arc;

use super::bounds::{self, Budget};
use crate::page::layout::*;
use crate::page::{AnyShape, Block, slice};

/// Source of fonts and images. A command whose font or image is `None` is skipped.
pub(crate) trait PartSource {
    fn font(&self, index: u32) -> Option<FontData>;
    fn image(&self, index: u32) -> Option<ImageData>;
}

/// Part of the page to paint: `width` by `height` pixels from (`left`, `top`).
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

/// Maximum depth of nested layers. The rasterizer's memory grows with each.
const LAYERS_MAX: usize = 256;

pub(crate) fn replay(
    block: Block<'_>,
    parts: &dyn PartSource,
    scene: &mut impl PaintScene,
    view: View,
) {
    let moved = Affine::translate((-view.left, -view.top));
    let budget = Budget::new(view.width, view.height);
    let mut replay = Replay { block, parts, moved, budget, filters: Vec::new() };
    let (top, bottom) = (view.top as f32, (view.top + view.height) as f32);
    let mut commands = block.section::<Command>(COMMANDS).iter();
    let mut open = 0;
    while let Some(command) = commands.next() {
        if replay.budget.is_spent() {
            break;
        }
        let unseen = command.bottom < top || command.top > bottom;
        match command.kind {
            COMMAND_LAYER | COMMAND_CLIP => {
                let drawn = !unseen
                    && open < LAYERS_MAX
                    && replay.begin_layer(command, open, scene).is_some();
                match drawn {
                    true => open += 1,
                    false => skip_layer(&mut commands),
                }
            }
            COMMAND_POP if open > 0 => {
                scene.pop_layer();
                open -= 1;
                replay.filters.pop_if(|depth| *depth == open);
            }
            _ if unseen => (),
            _ => _ = replay.draw(command, scene),
        }
    }
    for _ in 0..open {
        scene.pop_layer();
    }
}

/// Skips the content and the end of a layer.
fn skip_layer(commands: &mut std::slice::Iter<'_, Command>) {
    let mut depth = 1;
    for command in commands {
        match command.kind {
            COMMAND_LAYER | COMMAND_CLIP => depth += 1,
            COMMAND_POP => depth -= 1,
            _ => (),
        }
        if depth == 0 {
            return;
        }
    }
}

struct Replay<'a> {
    block: Block<'a>,
    parts: &'a dyn PartSource,
    moved: Affine,
    budget: Budget,
    /// For each open layer with a filter, the number of layers around it.
    filters: Vec<usize>,
}

/// A paint that owns its data, so that it can be borrowed.
enum OwnedPaint {
    Solid(AlphaColor<Srgb>),
    Gradient(Gradient),
    Image(ImageBrush),
}

impl OwnedPaint {
    /// Returns the work of a pixel.
    fn pixel(&self) -> u64 {
        match self {
            OwnedPaint::Solid(_) => 1,
            _ => bounds::RICH_PIXEL,
        }
    }

    fn borrow(&self) -> PaintRef<'_> {
        match self {
            OwnedPaint::Solid(color) => Paint::Solid(*color),
            OwnedPaint::Gradient(gradient) => Paint::Gradient(gradient),
            OwnedPaint::Image(image) => Paint::Image(image.as_ref()),
        }
    }
}

impl Replay<'_> {
    fn begin_layer(
        &mut self,
        command: &Command,
        depth: usize,
        scene: &mut impl PaintScene,
    ) -> Option<()> {
        let transform = self.transform(command)?;
        let fill = fill_of(command.flags & FLAG_EVEN_ODD != 0);
        let shape = self.layer_shape(command, transform)?;
        if command.kind == COMMAND_CLIP {
            match &shape {
                AnyShape::Rect(clip) => scene.push_clip_layer(fill, transform, clip),
                AnyShape::Rounded(clip) => scene.push_clip_layer(fill, transform, clip),
                AnyShape::Path(clip) => scene.push_clip_layer(fill, transform, clip),
            }
            return Some(());
        }
        let blend = BlendMode {
            mix: Mix::from_integer(command.mix)?,
            compose: Compose::from_integer(command.compose)?,
        };
        let alpha = opacity(f32::from_bits(command.paint))?;
        let filter = match command.style {
            NONE => None,
            index => self.filter(index, transform),
        };
        if filter.is_some() {
            self.filters.push(depth);
        }
        match &shape {
            AnyShape::Rect(clip) => {
                scene.push_layer(fill, blend, alpha, transform, clip, filter, None)
            }
            AnyShape::Rounded(clip) => {
                scene.push_layer(fill, blend, alpha, transform, clip, filter, None)
            }
            AnyShape::Path(clip) => {
                scene.push_layer(fill, blend, alpha, transform, clip, filter, None)
            }
        }
        Some(())
    }

    fn filter(&mut self, index: u32, transform: Affine) -> Option<Arc<Filter>> {
        let span = self.block.section::<Span>(FILTERS).get(index as usize)?;
        if span.bytes > bounds::FILTER_BYTES_MAX || self.filters.len() >= bounds::FILTERS_NESTED_MAX
        {
            return None;
        }
        self.budget.take_elements(u64::from(span.bytes))?;
        let filter: Filter = serde_json::from_str(self.block.text(*span)?).ok()?;
        self.budget.take_filter(&filter, transform)?;
        Some(Arc::new(filter))
    }

    /// Returns the transform from the command's pixels to the view's.
    fn transform(&self, command: &Command) -> Option<Affine> {
        bounds::transform(self.moved * bounds::transform(self.block.transform_of(command)?)?)
    }

    /// Returns the shape of a command, if it can be read within the budget.
    fn shape(&mut self, command: &Command) -> Option<AnyShape> {
        self.budget.take_elements(self.block.elements_of(command))?;
        self.block.shape_of(command)
    }

    /// Returns the clip of a layer, and subtracts the work of the layer's pixels.
    fn layer_shape(&mut self, command: &Command, transform: Affine) -> Option<AnyShape> {
        let shape = self.shape(command)?;
        self.take_fill(&shape, transform, bounds::RICH_PIXEL)?;
        Some(shape)
    }

    fn take_fill(&mut self, shape: &AnyShape, transform: Affine, pixel: u64) -> Option<()> {
        match shape {
            AnyShape::Rect(shape) => self.budget.take_fill(shape, transform, pixel),
            AnyShape::Rounded(shape) => self.budget.take_fill(shape, transform, pixel),
            AnyShape::Path(shape) => self.budget.take_fill(shape, transform, pixel),
        }
    }

    fn take_stroke(
        &mut self,
        shape: &AnyShape,
        transform: Affine,
        style: &Stroke,
        pixel: u64,
    ) -> Option<()> {
        match shape {
            AnyShape::Rect(shape) => self.budget.take_stroke(shape, transform, style, pixel),
            AnyShape::Rounded(shape) => self.budget.take_stroke(shape, transform, style, pixel),
            AnyShape::Path(shape) => self.budget.take_stroke(shape, transform, style, pixel),
        }
    }

    fn draw(&mut self, command: &Command, scene: &mut impl PaintScene) -> Option<()> {
        let transform = self.transform(command)?;
        let record = self.block.section::<PaintRecord>(PAINTS).get(command.paint as usize)?;
        let paint = self.paint(record)?;
        let brush_transform = match record.transform {
            NONE => None,
            first => Some(bounds::transform(self.block.affine(first)?)?),
        };
        match command.kind {
            COMMAND_FILL => {
                let fill = fill_of(command.flags & FLAG_EVEN_ODD != 0);
                let shape = self.shape(command)?;
                self.take_fill(&shape, transform, paint.pixel())?;
                match &shape {
                    AnyShape::Rect(shape) => {
                        scene.fill(fill, transform, paint.borrow(), brush_transform, shape)
                    }
                    AnyShape::Rounded(shape) => {
                        scene.fill(fill, transform, paint.borrow(), brush_transform, shape)
                    }
                    AnyShape::Path(shape) => {
                        scene.fill(fill, transform, paint.borrow(), brush_transform, shape)
                    }
                }
            }
            COMMAND_STROKE => {
                let style = self.stroke(command.style)?;
                let shape = self.shape(command)?;
                self.take_stroke(&shape, transform, &style, paint.pixel())?;
                match &shape {
                    AnyShape::Rect(shape) => {
                        scene.stroke(&style, transform, paint.borrow(), brush_transform, shape)
                    }
                    AnyShape::Rounded(shape) => {
                        scene.stroke(&style, transform, paint.borrow(), brush_transform, shape)
                    }
                    AnyShape::Path(shape) => {
                        scene.stroke(&style, transform, paint.borrow(), brush_transform, shape)
                    }
                }
            }
            COMMAND_GLYPHS => self.glyphs(command, transform, &paint, scene)?,
            COMMAND_SHADOW => {
                let [x0, y0, x1, y1, radius, deviation] = self.block.numbers(command.shape)?;
                let OwnedPaint::Solid(color) = paint else { return None };
                let rect = bounds::inside(Rect { x0, y0, x1, y1 })?;
                (0.0..=bounds::DEVIATION_MAX).contains(&deviation).then_some(())?;
                (radius.abs() <= bounds::COORDINATE_MAX).then_some(())?;
                self.budget.take_shadow(rect, transform, deviation)?;
                scene.draw_box_shadow(transform, rect, color, radius, deviation);
            }
            _ => return None,
        }
        Some(())
    }

    fn glyphs(
        &mut self,
        command: &Command,
        transform: Affine,
        paint: &OwnedPaint,
        scene: &mut impl PaintScene,
    ) -> Option<()> {
        let piece = self.block.section::<Piece>(PIECES).get(command.shape as usize)?;
        let run = self.block.section::<Run>(RUNS).get(piece.run as usize)?;
        if run.coordinates > bounds::AXES_MAX || !(0.0..=bounds::FONT_SIZE_MAX).contains(&run.size)
        {
            return None;
        }
        let coordinates =
            slice(self.block.section::<i16>(COORDINATES), run.first_coordinate, run.coordinates)?;
        let embolden = match run.embolden {
            NONE => Vec2::ZERO,
            first => self.block.numbers(first).map(|[x, y]| Vec2::new(x, y))?,
        };
        if embolden.x.abs().max(embolden.y.abs()) > f64::from(bounds::FONT_SIZE_MAX) {
            return None;
        }
        let glyph_transform = match run.glyph_transform {
            NONE => None,
            first => Some(bounds::transform(self.block.affine(first)?)?),
        };
        let style = match run.stroke {
            NONE => Style::Fill(fill_of(run.flags & RUN_EVEN_ODD != 0)),
            index => Style::Stroke(self.stroke(index)?),
        };
        let glyphs = self.block.glyphs_of(piece, run)?;
        let known = |position: f32| f64::from(position.abs()) <= bounds::COORDINATE_MAX;
        let on_glyphs = bounds::transform(transform * glyph_transform.unwrap_or_default())?;
        let stroke = match &style {
            Style::Stroke(stroke) => Some(stroke),
            Style::Fill(_) => None,
        };
        self.budget.take_glyphs(piece.count(), run.size, on_glyphs, stroke)?;
        if !glyphs.clone().all(|glyph| known(glyph.x) && known(glyph.y)) {
            return None;
        }
        let font = self.parts.font(run.font)?;
        let hinted = run.flags & RUN_HINTED != 0;
        let (size, alpha) = (run.size, opacity(run.alpha)?);
        scene.draw_glyphs(
            &font,
            size,
            hinted,
            coordinates,
            embolden,
            &style,
            paint.borrow(),
            alpha,
            transform,
            glyph_transform,
            glyphs,
        );
        Some(())
    }

    fn paint(&mut self, record: &PaintRecord) -> Option<OwnedPaint> {
        let [first, how, alpha, _] = record.data;
        Some(match record.kind {
            PAINT_SOLID => {
                OwnedPaint::Solid(AlphaColor::new(components(record.data.map(f32::from_bits))?))
            }
            PAINT_GRADIENT => OwnedPaint::Gradient(self.gradient(first)?),
            PAINT_IMAGE => OwnedPaint::Image(ImageBrush {
                image: self.parts.image(first)?,
                sampler: ImageSampler {
                    x_extend: Extend::from_integer(how as u8)?,
                    y_extend: Extend::from_integer((how >> 8) as u8)?,
                    quality: ImageQuality::from_integer((how >> 16) as u8)?,
                    alpha: opacity(f32::from_bits(alpha))?,
                },
            }),
            _ => return None,
        })
    }

    fn gradient(&mut self, index: u32) -> Option<Gradient> {
        let record = self.block.section::<GradientRecord>(GRADIENTS).get(index as usize)?;
        let [a, b, c, d, e, f] = record.geometry;
        let known = |number: &f64| number.abs() <= bounds::COORDINATE_MAX;
        if !record.geometry.iter().all(known) || record.stops > bounds::STOPS_MAX {
            return None;
        }
        self.budget.take(bounds::GRADIENT)?;
        let kind = match record.kind {
            GRADIENT_LINEAR => GradientKind::Linear(LinearGradientPosition::new((a, b), (c, d))),
            GRADIENT_RADIAL if e < 0.0 || f < 0.0 => return None,
            GRADIENT_RADIAL => GradientKind::Radial(RadialGradientPosition::new_two_point(
                (a, b),
                e as f32,
                (c, d),
                f as f32,
            )),
            GRADIENT_SWEEP => {
                GradientKind::Sweep(SweepGradientPosition::new((a, b), c as f32, d as f32))
            }
            _ => return None,
        };
        let stops = slice(self.block.section::<Stop>(STOPS), record.first_stop, record.stops)?;
        let stops = stops.iter().map(color_stop).collect::<Option<_>>()?;
        Some(Gradient {
            kind,
            extend: Extend::from_integer(record.extend)?,
            interpolation_cs: ColorSpaceTag::from_integer(record.color_space)?,
            hue_direction: HueDirection::from_integer(record.hue_direction)?,
            interpolation_alpha_space: match record.straight_alpha {
                0 => InterpolationAlphaSpace::Premultiplied,
                _ => InterpolationAlphaSpace::Unpremultiplied,
            },
            stops: ColorStops(stops),
        })
    }

    fn stroke(&self, index: u32) -> Option<Stroke> {
        let record = self.block.section::<StrokeRecord>(STROKES).get(index as usize)?;
        let dashes = match record.dashes {
            0 => &[][..],
            count => slice(self.block.section::<f64>(NUMBERS), record.first_dash, count)?,
        };
        let numbers = [record.width, record.miter_limit, record.dash_offset];
        if !numbers.iter().chain(dashes).all(|number| number.is_finite()) {
            return None;
        }
        bounds::stroke(Stroke {
            width: record.width,
            join: match record.join {
                0 => Join::Bevel,
                1 => Join::Miter,
                _ => Join::Round,
            },
            miter_limit: record.miter_limit,
            start_cap: cap(record.start_cap),
            end_cap: cap(record.end_cap),
            dash_pattern: dashes.into(),
            dash_offset: record.dash_offset,
        })
    }
}

fn color_stop(stop: &Stop) -> Option<ColorStop> {
    let mut missing = Missing::default();
    for component in (0..4).filter(|component| stop.missing & 1 << component != 0) {
        missing.insert(component);
    }
    let color = DynamicColor {
        cs: ColorSpaceTag::from_integer(stop.color_space)?,
        flags: Flags::from_missing(missing),
        components: components(stop.components)?,
    };
    Some(ColorStop { offset: opacity(stop.offset)?, color })
}

fn cap(code: u8) -> Cap {
    match code {
        0 => Cap::Butt,
        1 => Cap::Square,
        _ => Cap::Round,
    }
}

fn fill_of(even_odd: bool) -> Fill {
    match even_odd {
        true => Fill::EvenOdd,
        false => Fill::NonZero,
    }
}

/// Returns the value if it is within bounds. It may slightly exceed 1, because layout rounds.
fn opacity(number: f32) -> Option<f32> {
    (number.abs() <= bounds::COMPONENT_MAX).then_some(number)
}

fn components(components: [f32; 4]) -> Option<[f32; 4]> {
    components
        .iter()
        .all(|component| component.abs() <= bounds::COMPONENT_MAX)
        .then_some(components)
}
