//! Drawing primitives of the screens: boxes, lines of text, pictures.

use anyrender::{Glyph, PaintScene};
use kurbo::{Affine, BezPath, Cap, Circle, Join, Point, Rect, RoundedRect, Shape, Stroke, Vec2};
use peniko::{Color, Fill, Gradient};

use crate::fonts::{Fonts, Weight};
use crate::model::Frame;

/// Colours of the user interface, 0x00RRGGBB: calm and dark, so that only the focus is bright.
pub(crate) mod palette {
    pub const BACK_ABOVE: u32 = 0x16_20_2e;
    pub const BACK_BELOW: u32 = 0x0b_10_18;
    pub const PANEL: u32 = 0x1b_26_36;
    pub const PANEL_ON: u32 = 0x28_39_50;
    pub const PANEL_PAST: u32 = 0x14_1c_28;
    pub const TEXT: u32 = 0xee_f2_f7;
    pub const DIM: u32 = 0xa9_b8_ca;
    pub const FAINT: u32 = 0x74_84_98;
    pub const FOCUS: u32 = 0xf4_f7_fb;
    pub const ON_FOCUS: u32 = 0x10_18_24;
    pub const ACCENT: u32 = 0xf0_b4_5e;
}

pub(crate) fn color(rgb: u32) -> Color {
    let [_, red, green, blue] = rgb.to_be_bytes();
    Color::from_rgb8(red, green, blue)
}

pub(crate) fn faded(rgb: u32, alpha: f32) -> Color {
    color(rgb).with_alpha(alpha)
}

pub(crate) fn rect(frame: Frame) -> Rect {
    let [x0, y0, x1, y1] = [frame.left, frame.top, frame.right(), frame.bottom()].map(f64::from);
    Rect { x0, y0, x1, y1 }
}

/// Style of a line of text.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    pub weight: Weight,
    /// Size of an em in pixels, at a height of 1080.
    pub size: f32,
    pub color: u32,
}

pub(crate) const fn style(weight: Weight, size: f32, color: u32) -> Style {
    Style { weight, size, color }
}

/// Scene with the fonts and the scale of the user interface.
pub(crate) struct Canvas<'a, S> {
    pub scene: &'a mut S,
    pub fonts: &'a Fonts,
    /// Pixels for a length of 1.
    pub unit: f32,
}

impl<S: PaintScene> Canvas<'_, S> {
    pub fn length(&self, length: f32) -> f32 {
        (length * self.unit).round()
    }

    pub fn fill(&mut self, shape: &impl Shape, color: Color) {
        self.scene.fill(Fill::NonZero, Affine::IDENTITY, color, None, shape);
    }

    pub fn fill_gradient(&mut self, shape: &impl Shape, gradient: &Gradient) {
        self.scene.fill(Fill::NonZero, Affine::IDENTITY, gradient, None, shape);
    }

    /// Fills a frame with a gradient from top to bottom.
    pub fn shade(&mut self, frame: Frame, above: Color, below: Color) {
        let rect = rect(frame);
        let gradient = Gradient::new_linear((rect.x0, rect.y0), (rect.x0, rect.y1));
        self.fill_gradient(&rect, &gradient.with_stops([above, below]));
    }

    /// Fills a frame with a gradient from left to right.
    pub fn shade_across(&mut self, frame: Frame, left: Color, right: Color) {
        let rect = rect(frame);
        let gradient = Gradient::new_linear((rect.x0, rect.y0), (rect.x1, rect.y0));
        self.fill_gradient(&rect, &gradient.with_stops([left, right]));
    }

    pub fn panel(&mut self, frame: Frame, radius: f32, color: Color) {
        let radius = f64::from(radius * self.unit);
        self.fill(&RoundedRect::from_rect(rect(frame), radius), color);
    }

    /// Draws the focus ring around a picture.
    pub fn ring(&mut self, frame: Frame, radius: f32) {
        let around = rect(frame.grown(self.length(7.0)));
        let radius = f64::from((radius + 7.0) * self.unit);
        let stroke = Stroke::new(f64::from(6.0 * self.unit));
        let shape = RoundedRect::from_rect(around, radius);
        let bright = color(palette::FOCUS);
        self.scene.stroke(&stroke, Affine::IDENTITY, bright, None, &shape);
    }

    pub fn shadow(&mut self, frame: Frame, radius: f32) {
        let deviation = f64::from(14.0 * self.unit);
        let radius = f64::from(radius * self.unit);
        let below = rect(frame.moved(0.0, self.length(8.0)));
        let black = faded(0, 0.6);
        self.scene.draw_box_shadow(Affine::IDENTITY, below, black, radius, deviation);
    }

    pub fn stroke(&mut self, path: &BezPath, width: f64, color: Color) {
        let stroke = Stroke::new(width).with_caps(Cap::Round).with_join(Join::Round);
        self.scene.stroke(&stroke, Affine::IDENTITY, color, None, path);
    }

    /// Draws clipped to a shape.
    pub fn clipped(&mut self, shape: &impl Shape, draw: impl FnOnce(&mut Self)) {
        self.scene.push_clip_layer(Fill::NonZero, Affine::IDENTITY, shape);
        draw(self);
        self.scene.pop_layer();
    }

    /// Draws a line of text that begins at `left` and ends before `left + room`, on the base line
    /// `base`. Returns its width.
    pub fn text(&mut self, style: Style, text: &str, left: f32, base: f32, room: f32) -> f32 {
        let size = style.size * self.unit;
        let line = self.fonts.line(style.weight, size, text, room);
        let Some(face) = self.fonts.face(style.weight) else { return 0.0 };
        let glyphs = line.glyphs.iter().map(|(id, x)| Glyph { id: *id, x: *x, y: 0.0 });
        let at = Affine::translate((f64::from(left.round()), f64::from(base.round())));
        self.scene.draw_glyphs(
            &face.data,
            size,
            true,
            &[],
            Vec2::ZERO,
            Fill::NonZero,
            color(style.color),
            1.0,
            at,
            None,
            glyphs,
        );
        line.width
    }

    /// Draws a line of text that ends at `right`.
    pub fn text_ending(&mut self, style: Style, text: &str, right: f32, base: f32, room: f32) {
        let line = self.fonts.line(style.weight, style.size * self.unit, text, room);
        self.text(style, text, right - line.width, base, room);
    }

    /// Draws lines of text `step` apart, and returns the base line of the next.
    pub fn paragraph(
        &mut self,
        style: Style,
        text: &str,
        place: Frame,
        step: f32,
        count: usize,
    ) -> f32 {
        let fonts = self.fonts;
        let size = style.size * self.unit;
        let mut base = place.top;
        for line in fonts.broken(style.weight, size, text, place.width, count) {
            self.text(style, line, place.left, base, place.width);
            base += step * self.unit;
        }
        base
    }
}

pub(crate) fn circle(x: f64, y: f64, radius: f64) -> Circle {
    Circle::new(Point::new(x, y), radius)
}
