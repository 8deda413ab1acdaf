//! Vertical extents of drawn content. Culling by an extent must never remove visible pixels.

use kurbo::{Point, Rect};

use super::layout::Command;

/// A vertical range.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    top: f64,
    bottom: f64,
}

impl Extent {
    pub const EMPTY: Extent = Extent { top: f64::INFINITY, bottom: f64::NEG_INFINITY };
    pub const ALL: Extent = Extent { top: f64::NEG_INFINITY, bottom: f64::INFINITY };

    pub fn of(rect: Rect) -> Extent {
        match rect.is_finite() {
            true => Extent { top: rect.min_y(), bottom: rect.max_y() },
            false => Extent::ALL,
        }
    }

    pub fn grow(&mut self, other: Extent) {
        self.top = self.top.min(other.top);
        self.bottom = self.bottom.max(other.bottom);
    }

    /// Writes the range to a command.
    pub fn put_into(self, command: &mut Command) {
        // One pixel of margin on each side, so that rounding to `f32` never culls visible content.
        command.top = (self.top - 1.0).floor() as f32;
        command.bottom = (self.bottom + 1.0).ceil() as f32;
    }
}

/// The smallest rectangle around some points.
#[derive(Default)]
pub(super) struct Bounds(Option<Rect>);

impl Bounds {
    pub fn add(&mut self, point: Point) {
        self.0 = Some(match self.0 {
            Some(rect) => rect.union_pt(point),
            None => Rect::from_points(point, point),
        });
    }

    /// Returns the rectangle, or `Rect::ZERO` without points.
    pub fn rect(&self) -> Rect {
        self.0.unwrap_or(Rect::ZERO)
    }
}
