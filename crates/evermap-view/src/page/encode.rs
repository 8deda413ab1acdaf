//! Encodes the values of paint commands: transforms, shapes, paints and strokes.
//!
//! Nothing is rounded: a value that is not exact in 32 bits is stored in 64.

use anyrender::{Paint, PaintRef};
use kurbo::{Affine, PathEl, Rect, Shape, Stroke};
use peniko::{Gradient, GradientKind, ImageBrushRef, InterpolationAlphaSpace};

use super::extent::Bounds;
use super::layout::*;
use super::tables::{Tables, all_exact};

/// Maximum distance of curves from the exact shapes, in pixels. The rasterizer uses the same
/// tolerance for its own paths. Another value would change pixels.
const TOLERANCE: f64 = 0.1;

/// Encodes a transform: its kind, and its data.
pub(super) fn transform(tables: &mut Tables, transform: Affine) -> (u8, [u32; 2]) {
    let c = transform.as_coeffs();
    if c[..4] != [1.0, 0.0, 0.0, 1.0] {
        return (TRANSFORM_AFFINE, [tables.numbers(&c), 0]);
    }
    match all_exact([c[4], c[5]]) {
        Some(moved) => (TRANSFORM_MOVE, moved.map(f32::to_bits)),
        None => (TRANSFORM_MOVE_PRECISE, [tables.numbers(&c[4..]), 0]),
    }
}

/// Encodes a shape: its kind, its index, and its bounds.
pub(super) fn shape(tables: &mut Tables, shape: &impl Shape) -> (u8, u32, Rect) {
    if let Some(rect) = shape.as_rect() {
        let edges = [rect.x0, rect.y0, rect.x1, rect.y1];
        return match all_exact(edges) {
            Some(edges) => (SHAPE_RECT, tables.rect(edges), rect.abs()),
            None => (SHAPE_RECT_PRECISE, tables.numbers(&edges), rect.abs()),
        };
    }
    if let Some(rounded) = shape.as_rounded_rect() {
        let (rect, radii) = (rounded.rect(), rounded.radii());
        let numbers = [
            rect.x0,
            rect.y0,
            rect.x1,
            rect.y1,
            radii.top_left,
            radii.top_right,
            radii.bottom_right,
            radii.bottom_left,
        ];
        return (SHAPE_ROUNDED, tables.numbers(&numbers), rect.abs());
    }
    let (mut verbs, mut points) = (Vec::new(), Vec::new());
    let mut bounds = Bounds::default();
    for element in shape.path_elements(TOLERANCE) {
        let (verb, used): (u8, &[kurbo::Point]) = match &element {
            PathEl::MoveTo(a) => (VERB_MOVE, &[*a]),
            PathEl::LineTo(a) => (VERB_LINE, &[*a]),
            PathEl::QuadTo(a, b) => (VERB_QUAD, &[*a, *b]),
            PathEl::CurveTo(a, b, c) => (VERB_CUBIC, &[*a, *b, *c]),
            PathEl::ClosePath => (VERB_CLOSE, &[]),
        };
        verbs.push(verb);
        for point in used {
            points.extend([point.x, point.y]);
            bounds.add(*point);
        }
    }
    (SHAPE_PATH, tables.path(verbs, &points), bounds.rect())
}

/// Encodes a paint. Returns its index, or `None` for custom paints, which the rasterizer does not
/// paint either.
pub(super) fn paint(
    tables: &mut Tables,
    paint: PaintRef<'_>,
    transform: Option<Affine>,
) -> Option<u32> {
    let transform = match transform {
        Some(transform) => tables.numbers(&transform.as_coeffs()),
        None => NONE,
    };
    let (kind, data) = match paint {
        Paint::Solid(color) => (PAINT_SOLID, color.components.map(f32::to_bits)),
        Paint::Gradient(gradient) => (PAINT_GRADIENT, [self::gradient(tables, gradient), 0, 0, 0]),
        Paint::Image(image) => (PAINT_IMAGE, self::image(tables, image)),
        Paint::Resource(_) | Paint::Custom(_) => return None,
    };
    Some(tables.paint(PaintRecord { kind, transform, data }))
}

fn gradient(tables: &mut Tables, gradient: &Gradient) -> u32 {
    let (kind, geometry) = match gradient.kind {
        GradientKind::Linear(g) => {
            (GRADIENT_LINEAR, [g.start.x, g.start.y, g.end.x, g.end.y, 0.0, 0.0])
        }
        GradientKind::Radial(g) => (
            GRADIENT_RADIAL,
            [
                g.start_center.x,
                g.start_center.y,
                g.end_center.x,
                g.end_center.y,
                f64::from(g.start_radius),
                f64::from(g.end_radius),
            ],
        ),
        GradientKind::Sweep(g) => (
            GRADIENT_SWEEP,
            [g.center.x, g.center.y, f64::from(g.start_angle), f64::from(g.end_angle), 0.0, 0.0],
        ),
    };
    let stops: Vec<Stop> = gradient
        .stops
        .iter()
        .map(|stop| {
            let missing = stop.color.flags.missing();
            Stop {
                offset: stop.offset,
                color_space: stop.color.cs as u8,
                missing: (0..4).filter(|n| missing.contains(*n)).map(|n| 1 << n).sum(),
                reserved: [0; 2],
                components: stop.color.components,
            }
        })
        .collect();
    let record = GradientRecord {
        kind,
        extend: gradient.extend as u8,
        color_space: gradient.interpolation_cs as u8,
        hue_direction: gradient.hue_direction as u8,
        straight_alpha: u8::from(
            gradient.interpolation_alpha_space == InterpolationAlphaSpace::Unpremultiplied,
        ),
        geometry,
        ..Default::default()
    };
    tables.gradient(record, &stops)
}

fn image(tables: &mut Tables, brush: ImageBrushRef<'_>) -> [u32; 4] {
    let index = tables.shared.image(brush.image);
    let sampler = brush.sampler;
    let how =
        sampler.x_extend as u32 | (sampler.y_extend as u32) << 8 | (sampler.quality as u32) << 16;
    [index, how, sampler.alpha.to_bits(), 0]
}

/// Encodes the style of a stroke.
pub(super) fn stroke_style(tables: &mut Tables, style: &Stroke) -> u32 {
    let first_dash = match style.dash_pattern.is_empty() {
        true => 0,
        false => tables.numbers(&style.dash_pattern),
    };
    tables.stroke(StrokeRecord {
        width: style.width,
        miter_limit: style.miter_limit,
        dash_offset: style.dash_offset,
        first_dash,
        dashes: style.dash_pattern.len() as u32,
        join: join_code(style.join),
        start_cap: cap_code(style.start_cap),
        end_cap: cap_code(style.end_cap),
        reserved: [0; 5],
    })
}

fn join_code(join: kurbo::Join) -> u8 {
    match join {
        kurbo::Join::Bevel => 0,
        kurbo::Join::Miter => 1,
        kurbo::Join::Round => 2,
    }
}

fn cap_code(cap: kurbo::Cap) -> u8 {
    match cap {
        kurbo::Cap::Butt => 0,
        kurbo::Cap::Square => 1,
        kurbo::Cap::Round => 2,
    }
}
