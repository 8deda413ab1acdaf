//! Draws posters from their recipes, and icons.

use anyrender::PaintScene;
use kurbo::{BezPath, Point, Rect};

use crate::canvas::{Canvas, circle, color, faded, rect};
use crate::model::{Frame, Recipe};

/// Random numbers. Equal seeds give equal pictures.
struct Parts(u64);

impl Parts {
    /// Returns a number between 0 and 1.
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1u64 << 24) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next()
    }
}

/// Fills a frame with the picture of a recipe. The caller must clip what extends beyond the frame.
pub(crate) fn picture<S: PaintScene>(canvas: &mut Canvas<'_, S>, frame: Frame, recipe: Recipe) {
    let [above, below, accent] = recipe.colors;
    canvas.shade(frame, color(above), color(below));
    let area = rect(frame);
    let mut parts = Parts(u64::from(recipe.seed).wrapping_mul(2_654_435_761) + 1);
    match recipe.shape % 6 {
        0 => {
            sun(canvas, area, accent, &mut parts);
            hills(canvas, area, below, &mut parts);
        }
        1 => lighthouse(canvas, area, [above, below, accent], &mut parts),
        2 => waves(canvas, area, accent, &mut parts),
        3 => rings(canvas, area, accent, &mut parts),
        4 => peaks(canvas, area, [above, below, accent], &mut parts),
        _ => windows(canvas, area, [below, accent], &mut parts),
    }
}

fn at(area: Rect, x: f64, y: f64) -> Point {
    Point::new(area.x0 + area.width() * x, area.y0 + area.height() * y)
}

fn sun<S: PaintScene>(canvas: &mut Canvas<'_, S>, area: Rect, accent: u32, parts: &mut Parts) {
    let middle = at(area, parts.between(0.3, 0.7), parts.between(0.25, 0.42));
    let radius = area.width().min(area.height()) * parts.between(0.14, 0.22);
    canvas.fill(&circle(middle.x, middle.y, radius * 1.9), faded(accent, 0.10));
    canvas.fill(&circle(middle.x, middle.y, radius * 1.4), faded(accent, 0.16));
    canvas.fill(&circle(middle.x, middle.y, radius), faded(accent, 0.92));
}

fn hills<S: PaintScene>(canvas: &mut Canvas<'_, S>, area: Rect, below: u32, parts: &mut Parts) {
    for (number, alpha) in [(0, 0.45), (1, 0.7), (2, 1.0)] {
        let top = 0.48 + 0.13 * f64::from(number);
        let (left, right) = (top + parts.between(-0.06, 0.06), top + parts.between(-0.06, 0.06));
        let mut path = BezPath::new();
        path.move_to(at(area, 0.0, left));
        path.curve_to(
            at(area, 0.3, left - parts.between(0.02, 0.14)),
            at(area, 0.6, right + parts.between(0.0, 0.12)),
            at(area, 1.0, right),
        );
        path.line_to(at(area, 1.0, 1.0));
        path.line_to(at(area, 0.0, 1.0));
        path.close_path();
        canvas.fill(&path, faded(below, alpha));
    }
}

fn lighthouse<S: PaintScene>(
    canvas: &mut Canvas<'_, S>,
    area: Rect,
    [above, below, accent]: [u32; 3],
    parts: &mut Parts,
) {
    let x = parts.between(0.3, 0.7);
    let lamp = at(area, x, 0.24);
    for side in [-1.0, 1.0] {
        let mut beam = BezPath::new();
        beam.move_to(lamp);
        beam.line_to(at(area, x + side * 1.2, parts.between(0.02, 0.12)));
        beam.line_to(at(area, x + side * 1.2, parts.between(0.3, 0.42)));
        beam.close_path();
        canvas.fill(&beam, faded(accent, 0.22));
    }
    let mut tower = BezPath::new();
    let (top, foot) = (0.035, 0.075);
    tower.move_to(at(area, x - top, 0.27));
    tower.line_to(at(area, x + top, 0.27));
    tower.line_to(at(area, x + foot, 0.72));
    tower.line_to(at(area, x - foot, 0.72));
    tower.close_path();
    canvas.fill(&tower, faded(accent, 0.55));
    for band in [0.36, 0.52] {
        let (low, high) = (at(area, x - 0.055, band), at(area, x + 0.055, band + 0.06));
        canvas.fill(&Rect::from_points(low, high), faded(above, 0.8));
    }
    canvas.fill(&circle(lamp.x, lamp.y, area.width() * 0.045), color(accent));
    hills(canvas, area, below, parts);
}

fn waves<S: PaintScene>(canvas: &mut Canvas<'_, S>, area: Rect, accent: u32, parts: &mut Parts) {
    let lift = parts.between(0.04, 0.09);
    for number in 0..6 {
        let y = 0.2 + 0.115 * f64::from(number);
        let shift = parts.between(0.0, 0.5);
        let mut path = BezPath::new();
        path.move_to(at(area, -0.5 + shift, y));
        for step in 0..3 {
            let x = -0.5 + shift + 0.5 * f64::from(step);
            path.curve_to(
                at(area, x + 0.16, y - lift),
                at(area, x + 0.34, y + lift),
                at(area, x + 0.5, y),
            );
        }
        let width = area.height() * 0.012;
        canvas.stroke(&path, width, faded(accent, 0.75 - 0.1 * number as f32));
    }
}

fn rings<S: PaintScene>(canvas: &mut Canvas<'_, S>, area: Rect, accent: u32, parts: &mut Parts) {
    let middle = at(area, parts.between(0.2, 0.8), parts.between(0.2, 0.45));
    let reach = area.width().max(area.height());
    for number in (1..=6).rev() {
        let radius = reach * 0.095 * f64::from(number);
        canvas.fill(&circle(middle.x, middle.y, radius), faded(accent, 0.10));
    }
    canvas.fill(&circle(middle.x, middle.y, reach * 0.035), color(accent));
}

fn peaks<S: PaintScene>(
    canvas: &mut Canvas<'_, S>,
    area: Rect,
    [above, below, accent]: [u32; 3],
    parts: &mut Parts,
) {
    let moon = at(area, parts.between(0.2, 0.8), 0.2);
    let radius = area.width().min(area.height()) * 0.09;
    canvas.fill(&circle(moon.x, moon.y, radius), faded(accent, 0.9));
    for (number, alpha) in [(0, 0.45f32), (1, 0.75), (2, 1.0)] {
        let y = 0.36 + 0.14 * f64::from(number);
        let x = parts.between(0.15, 0.85);
        let mut path = BezPath::new();
        path.move_to(at(area, x, y));
        path.line_to(at(area, x + 0.75, 1.0));
        path.line_to(at(area, x - 0.75, 1.0));
        path.close_path();
        canvas.fill(&path, faded(if number == 0 { above } else { below }, alpha));
        let mut snow = BezPath::new();
        snow.move_to(at(area, x, y));
        snow.line_to(at(area, x + 0.07, y + 0.06));
        snow.line_to(at(area, x, y + 0.045));
        snow.line_to(at(area, x - 0.07, y + 0.06));
        snow.close_path();
        canvas.fill(&snow, faded(accent, 0.5));
    }
}

fn windows<S: PaintScene>(
    canvas: &mut Canvas<'_, S>,
    area: Rect,
    [below, accent]: [u32; 2],
    parts: &mut Parts,
) {
    let mut x = 0.0;
    while x < 1.0 {
        let width = parts.between(0.16, 0.28);
        let top = parts.between(0.24, 0.5);
        let house = Rect::from_points(at(area, x, top), at(area, x + width - 0.015, 1.0));
        canvas.fill(&house, faded(below, 0.9));
        let mut y = top + 0.04;
        while y < 0.74 {
            for column in [0.25, 0.6] {
                if parts.next() < 0.45 {
                    let from = at(area, x + width * column, y);
                    let to = at(area, x + width * (column + 0.17), y + 0.035);
                    canvas.fill(&Rect::from_points(from, to), faded(accent, 0.8));
                }
            }
            y += 0.075;
        }
        x += width;
    }
}

/// Draws an icon in a square around a point; see [`crate::contents::ICONS`].
pub(crate) fn icon<S: PaintScene>(
    canvas: &mut Canvas<'_, S>,
    number: u32,
    (x, y): (f32, f32),
    size: f32,
    rgb: u32,
) {
    let (x, y, half) = (f64::from(x), f64::from(y), f64::from(size) / 2.0);
    let square = Rect::new(x - half, y - half, x + half, y + half);
    let ink = color(rgb);
    let width = half * 0.2;
    let mut lines = |corners: &[&[(f64, f64)]]| {
        let mut path = BezPath::new();
        for line in corners {
            for (number, (x, y)) in line.iter().enumerate() {
                let point = at(square, *x, *y);
                if number == 0 { path.move_to(point) } else { path.line_to(point) }
            }
        }
        canvas.stroke(&path, width, ink);
    };
    let frame: &[(f64, f64)] =
        &[(0.05, 0.15), (0.95, 0.15), (0.95, 0.75), (0.05, 0.75), (0.05, 0.15)];
    match number {
        1 => lines(&[frame, &[(0.3, 0.95), (0.7, 0.95)]]),
        2 => lines(&[
            &[(0.05, 0.2), (0.95, 0.2)],
            &[(0.05, 0.5), (0.6, 0.5)],
            &[(0.05, 0.8), (0.8, 0.8)],
        ]),
        3 => lines(&[frame, &[(0.4, 0.3), (0.65, 0.45), (0.4, 0.6), (0.4, 0.3)]]),
        4 => canvas.fill(&circle(x, y, half * 0.75), ink),
        5 => lines(&[
            &[(0.1, 0.1), (0.4, 0.1), (0.4, 0.4), (0.1, 0.4), (0.1, 0.1)],
            &[(0.6, 0.6), (0.9, 0.6), (0.9, 0.9), (0.6, 0.9), (0.6, 0.6)],
            &[(0.1, 0.75), (0.4, 0.75)],
            &[(0.75, 0.1), (0.75, 0.4)],
        ]),
        6 => lines(&[
            &[(0.05, 0.25), (0.95, 0.25)],
            &[(0.3, 0.12), (0.3, 0.38)],
            &[(0.05, 0.75), (0.95, 0.75)],
            &[(0.7, 0.62), (0.7, 0.88)],
        ]),
        7 => lines(&[
            &[
                (0.1, 0.35),
                (0.3, 0.35),
                (0.55, 0.1),
                (0.55, 0.9),
                (0.3, 0.65),
                (0.1, 0.65),
                (0.1, 0.35),
            ],
            &[(0.8, 0.3), (0.8, 0.7)],
        ]),
        8 => lines(&[
            &[(0.1, 0.9), (0.1, 0.65)],
            &[(0.37, 0.9), (0.37, 0.45)],
            &[(0.63, 0.9), (0.63, 0.25)],
            &[(0.9, 0.9), (0.9, 0.05)],
        ]),
        _ => canvas.fill(&circle(x, y, half * 0.3), ink),
    }
}
