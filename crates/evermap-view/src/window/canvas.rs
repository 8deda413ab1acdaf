//! Draws pixels, colours and rectangles over a page without the rasterizer.

use kurbo::Rect;
use peniko::Color;

use super::geometry::Rectangle;

/// Colours of the window, 0x00RRGGBB: greys, and one blue for the focus.
pub(crate) mod colors {
    pub(crate) const BAR: u32 = 0x00F4_F5F7;
    pub(crate) const LINE: u32 = 0x00D9_DCE1;
    pub(crate) const ICON: u32 = 0x0044_4A54;
    pub(crate) const FAINT: u32 = 0x00B9_BEC7;
    pub(crate) const LIT: u32 = 0x00E4_E7EB;
    pub(crate) const HELD: u32 = 0x00D4_D8DE;
    pub(crate) const FIELD: u32 = 0x00FF_FFFF;
    pub(crate) const TEXT: u32 = 0x0022_262C;
    pub(crate) const QUIET: u32 = 0x0061_6873;
    pub(crate) const SELECTED: u32 = 0x00BE_D8FA;
    pub(crate) const FOCUS: u32 = 0x0030_70D8;
    pub(crate) const TRACK: u32 = 0x00F0_F1F3;
    pub(crate) const THUMB: u32 = 0x00BF_C4CC;
    pub(crate) const THUMB_HELD: u32 = 0x008E_959F;
    pub(crate) const FOUND: u32 = 0x00FF_E27A;
    pub(crate) const FOUND_CURRENT: u32 = 0x00FF_B04A;
    pub(crate) const WARNING: u32 = 0x00C7_7B1E;
    pub(crate) const WARM: u32 = 0x0046_A36C;
    pub(crate) const COLD: u32 = 0x00A5_ACB8;
    pub(crate) const PAPER: u32 = 0x00FF_FFFF;
}

/// Converts a colour for the rasterizer.
pub(crate) fn color(rgb: u32) -> Color {
    let [_, red, green, blue] = rgb.to_be_bytes();
    Color::from_rgb8(red, green, blue)
}

/// Pixels of the window.
pub(crate) struct Canvas<'a> {
    pub pixels: &'a mut [u32],
    pub width: u32,
    pub height: u32,
}

impl Canvas<'_> {
    /// Returns the part of a row that is inside the window.
    fn row(&mut self, y: u32, left: u32, right: u32) -> &mut [u32] {
        let (left, right) = (left.min(self.width), right.min(self.width));
        if y >= self.height || left >= right {
            return &mut [];
        }
        let start = y as usize * self.width as usize;
        &mut self.pixels[start + left as usize..start + right as usize]
    }

    pub(crate) fn fill(&mut self, rect: Rectangle, color: u32) {
        for y in rect.top..rect.bottom().min(self.height) {
            self.row(y, rect.left, rect.right()).fill(color);
        }
    }

    /// Copies rows of `width` pixels to (`left`, `top`), clipped to the window.
    pub(crate) fn copy(&mut self, pixels: &[u32], width: u32, left: u32, top: u32) {
        for (y, row) in (top..self.height).zip(pixels.chunks_exact(width.max(1) as usize)) {
            let target = self.row(y, left, left.saturating_add(width));
            let length = target.len();
            target.copy_from_slice(&row[..length]);
        }
    }

    /// Highlights a rectangle: tints light pixels, and keeps text legible.
    pub(crate) fn highlight(&mut self, rect: Rectangle, color: u32) {
        let ends = color.to_be_bytes().map(u32::from);
        let mut light = 0_u64;
        for y in rect.top..rect.bottom().min(self.height) {
            let row = self.row(y, rect.left, rect.right()).iter();
            light += row.map(|pixel| u64::from(pixel.to_be_bytes()[2])).sum::<u64>();
        }
        // Multiplying has no visible effect on a dark background, so the colour is mixed in there.
        let is_dark = light < 110 * u64::from(rect.width) * u64::from(rect.height);
        for y in rect.top..rect.bottom().min(self.height) {
            for pixel in self.row(y, rect.left, rect.right()) {
                let was = pixel.to_be_bytes().map(u32::from);
                let mixed = |n: usize| match is_dark {
                    true => (was[n] + ends[n]) / 2,
                    false => was[n] * ends[n] / 255,
                };
                *pixel = mixed(1) << 16 | mixed(2) << 8 | mixed(3);
            }
        }
    }

    /// Draws four lines `thick` pixels wide, outside of `rect` and inside of `clip`.
    pub(crate) fn outline(&mut self, rect: Rect, thick: f64, clip: Rectangle, color: u32) {
        let outer = rect.inflate(thick, thick);
        let sides = [
            Rect::new(outer.x0, outer.y0, outer.x1, rect.y0),
            Rect::new(outer.x0, rect.y1, outer.x1, outer.y1),
            Rect::new(outer.x0, rect.y0, rect.x0, rect.y1),
            Rect::new(rect.x1, rect.y0, outer.x1, rect.y1),
        ];
        for side in sides {
            self.fill(clipped(side, clip), color);
        }
    }

    /// Draws a bar with rounded ends.
    pub(crate) fn pill(&mut self, rect: Rectangle, color: u32) {
        let radius = f64::from(rect.width.min(rect.height)) / 2.0;
        for y in 0..rect.height {
            let from_end = f64::from(y.min(rect.height - 1 - y)) + 0.5;
            for x in 0..rect.width {
                let from_side = f64::from(x.min(rect.width - 1 - x)) + 0.5;
                let (dx, dy) = ((radius - from_side).max(0.0), (radius - from_end).max(0.0));
                let cover = (radius - dx.hypot(dy) + 0.5).clamp(0.0, 1.0);
                for pixel in self.row(rect.top + y, rect.left + x, rect.left + x + 1) {
                    *pixel = mix(*pixel, color, cover);
                }
            }
        }
    }
}

fn mix(under: u32, over: u32, part: f64) -> u32 {
    let (under, over) = (under.to_be_bytes(), over.to_be_bytes());
    let channel = |n: usize| {
        let (under, over) = (f64::from(under[n]), f64::from(over[n]));
        (under + (over - under) * part).round() as u32
    };
    channel(1) << 16 | channel(2) << 8 | channel(3)
}

/// Returns the pixels of a rectangle that are in `clip`.
pub(crate) fn clipped(rect: Rect, clip: Rectangle) -> Rectangle {
    let inside = |at: f64, from: u32, to: u32| {
        if at.is_finite() { at.clamp(f64::from(from), f64::from(to)).round() as u32 } else { from }
    };
    let (left, right) =
        (inside(rect.x0, clip.left, clip.right()), inside(rect.x1, clip.left, clip.right()));
    let (top, bottom) =
        (inside(rect.y0, clip.top, clip.bottom()), inside(rect.y1, clip.top, clip.bottom()));
    Rectangle::new(left, top, right.saturating_sub(left), bottom.saturating_sub(top))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn drawing_is_clipped_to_the_window() {
        let mut pixels = vec![0; 12];
        let mut canvas = Canvas { pixels: &mut pixels, width: 4, height: 3 };
        canvas.fill(Rectangle::new(2, 1, 100, 100), 7);
        canvas.copy(&[9; 10], 5, 3, 0);
        canvas.highlight(Rectangle::new(3, 2, 9, 9), 0xFFFF_FFFF);
        canvas.pill(Rectangle::new(0, 2, 1, 5), 5);
        canvas.outline(Rect::new(-5.0, -5.0, 50.0, 50.0), 2.0, Rectangle::new(0, 0, 4, 3), 1);
        assert_eq!(pixels[..8], [0, 0, 0, 9, 0, 0, 7, 9]);
    }

    #[test]
    fn a_highlight_tints_light_pixels_and_keeps_dark_ones() {
        let mut pixels = vec![0x00FF_FFFF, 0x00FF_FFFF, 0];
        let mut canvas = Canvas { pixels: &mut pixels, width: 3, height: 1 };
        canvas.highlight(Rectangle::new(0, 0, 3, 1), 0x00FF_E000);
        assert_eq!(pixels, [0x00FF_E000, 0x00FF_E000, 0]);
    }

    #[test]
    fn a_highlight_is_visible_on_a_dark_background() {
        let mut pixels = vec![0x0010_1010; 4];
        let mut canvas = Canvas { pixels: &mut pixels, width: 4, height: 1 };
        canvas.highlight(Rectangle::new(0, 0, 2, 1), 0x00FF_E000);
        assert_eq!(pixels, [0x0087_7808, 0x0087_7808, 0x0010_1010, 0x0010_1010]);
    }
}
