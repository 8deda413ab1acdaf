//! Draws random pages, and an image and a font for them.

use std::sync::Arc;

use anyrender::filters::FilterEffect;
use anyrender::{Filter, Glyph, PaintScene};
use evermap_view::page::PageSize;
use kurbo::{Affine, BezPath, Circle, Rect, RoundedRect, Stroke, Vec2};
use peniko::{
    BlendMode, Blob, Color, Compose, Fill, FontData, Gradient, ImageAlphaType, ImageBrush,
    ImageData, ImageFormat, Mix,
};

use super::random::Random;

pub const WIDTH: u32 = 200;
pub const HEIGHT: u32 = 700;

/// Returns a length between 0 and `end`. Half of them are multiples of a quarter, which are exact
/// in `f32`.
fn length(random: &mut Random, end: f64) -> f64 {
    let value = (random.number() >> 11) as f64 / (1_u64 << 53) as f64 * end;
    if random.below(2) == 0 { (value * 4.0).round() / 4.0 } else { value }
}

/// Shared parts of the pages: an image, and a font if this machine has one.
pub struct TestParts {
    image: ImageBrush,
    pub font: Option<FontData>,
}

impl TestParts {
    pub fn new() -> TestParts {
        let pixels: Vec<u8> = (0..16 * 8 * 4).map(|at| (at * 37 % 256) as u8).collect();
        let image = ImageBrush::new(ImageData {
            data: Blob::from(pixels),
            format: ImageFormat::Rgba8,
            alpha_type: ImageAlphaType::Alpha,
            width: 16,
            height: 8,
        });
        TestParts { image, font: font().map(|bytes| FontData::new(Blob::from(bytes), 0)) }
    }
}

fn font() -> Option<Vec<u8>> {
    let folders = ["dejavu/DejaVuSans.ttf", "liberation/LiberationSans-Regular.ttf"];
    let found = folders
        .iter()
        .find_map(|name| std::fs::read(format!("/usr/share/fonts/truetype/{name}")).ok());
    if found.is_none() {
        println!("no font on this machine: glyphs are skipped");
    }
    found
}

pub fn size() -> PageSize {
    PageSize { width: WIDTH, height: HEIGHT, window: (WIDTH, 100), scale: 1.5 }
}

fn color(random: &mut Random) -> Color {
    let [r, g, b, a, ..] = random.number().to_le_bytes();
    Color::from_rgba8(r, g, b, a)
}

fn gradient(random: &mut Random) -> Gradient {
    let (x, y) = (length(random, 100.0), length(random, 100.0));
    let gradient = match random.below(3) {
        0 => Gradient::new_linear((0.0, y), (x + 1.0, 50.0)),
        1 => Gradient::new_two_point_radial((x, y), 3.0, (x + 5.0, y), 40.0),
        _ => Gradient::new_sweep((x, y), 0.0, 4.0),
    };
    gradient.with_stops([color(random), color(random), color(random)])
}

fn path(random: &mut Random) -> BezPath {
    let mut path = BezPath::new();
    let mut point = || (length(random, 120.0), length(random, 90.0));
    path.move_to(point());
    path.line_to(point());
    path.quad_to(point(), point());
    path.curve_to(point(), point(), point());
    path.close_path();
    path
}

fn stroke(random: &mut Random) -> Stroke {
    let stroke = Stroke::new(length(random, 6.0));
    match random.below(2) {
        0 => stroke.with_dashes(length(random, 20.0), [4.0 + length(random, 4.0), 3.0]),
        _ => stroke,
    }
}

fn random_transform(random: &mut Random) -> Affine {
    let moved = Affine::translate((length(random, 150.0), length(random, 640.0) - 20.0));
    match random.below(4) {
        0 => {
            moved * Affine::rotate(length(random, 3.0)) * Affine::scale(0.25 + length(random, 1.5))
        }
        _ => moved,
    }
}

/// Draws `commands` random shapes, transformed by `at`. The same seed gives the same shapes.
pub fn draw(
    scene: &mut impl PaintScene,
    at: Affine,
    parts: &TestParts,
    seed: u64,
    commands: usize,
) {
    let random = &mut Random(seed | 1);
    let mut open = 0;
    for _ in 0..commands {
        let transform = at * random_transform(random);
        let rect = Rect::new(0.0, 0.0, length(random, 90.0), length(random, 60.0));
        match random.below(12) {
            0 => scene.fill(Fill::NonZero, transform, color(random), None, &rect),
            1 => scene.fill(Fill::EvenOdd, transform, &gradient(random), None, &path(random)),
            2 => {
                let shape = RoundedRect::from_rect(rect, length(random, 9.0));
                let brush = Some(Affine::scale(0.5));
                scene.fill(Fill::NonZero, transform, &gradient(random), brush, &shape);
            }
            3 => scene.fill(Fill::NonZero, transform, parts.image.as_ref(), None, &rect),
            4 => scene.stroke(&stroke(random), transform, color(random), None, &path(random)),
            5 => scene.stroke(
                &stroke(random),
                transform,
                &gradient(random),
                None,
                &Circle::new((30.0, 30.0), 25.0),
            ),
            6 => scene.draw_box_shadow(transform, rect, color(random), 4.0, length(random, 8.0)),
            7 | 8 => glyphs(scene, transform, parts, random),
            9 if open < 5 => {
                scene.push_clip_layer(Fill::NonZero, transform, &rect.inflate(60.0, 80.0));
                open += 1;
            }
            10 if open < 5 => {
                layer(scene, transform, random, rect.inflate(90.0, 90.0));
                open += 1;
            }
            _ if open > 0 => {
                scene.pop_layer();
                open -= 1;
            }
            _ => (),
        }
    }
    for _ in 0..open {
        scene.pop_layer();
    }
}

fn layer(scene: &mut impl PaintScene, transform: Affine, random: &mut Random, clip: Rect) {
    let (blend, filter) = match random.below(6) {
        0 => (BlendMode::new(Mix::Multiply, Compose::SrcOver), None),
        1 => (BlendMode::new(Mix::Normal, Compose::DestOut), None),
        2 => (BlendMode::default(), Some(FilterEffect::blur(3.0))),
        3 => {
            let shadow = FilterEffect::drop_shadow(4.0, 6.0, 2.0, color(random));
            (BlendMode::default(), Some(shadow))
        }
        _ => (BlendMode::default(), None),
    };
    let filter = filter.map(|effect| Arc::new(Filter::single(effect)));
    scene.push_layer(Fill::NonZero, blend, 0.75, transform, &clip, filter, None);
}

fn glyphs(scene: &mut impl PaintScene, transform: Affine, parts: &TestParts, random: &mut Random) {
    let Some(font) = &parts.font else { return };
    let (level, slanted, size) =
        (random.below(2) == 0, random.below(3) == 0, 8.0 + length(random, 16.0));
    let glyphs: Vec<Glyph> = (0..10)
        .map(|at| Glyph {
            id: 36 + random.below(60) as u32,
            x: at as f32 * 9.3,
            y: if level { 12.25 } else { 12.0 + at as f32 },
        })
        .collect();
    let glyph_transform = slanted.then(|| Affine::skew(-0.25, 0.0));
    scene.draw_glyphs(
        font,
        size as f32,
        false,
        &[],
        Vec2::ZERO,
        Fill::NonZero,
        color(random),
        1.0,
        transform,
        glyph_transform,
        glyphs.into_iter(),
    );
}
