//! The mouse and touch: what is pressed, and movements that have not had an effect yet.

use super::geometry::{Button, Geometry};

/// Maximum movement of a tap, in CSS pixels.
const TAP: f64 = 8.0;
/// Distance of one notch of a mouse wheel, in CSS pixels.
pub(crate) const NOTCH: f64 = 60.0;

/// Target of a pressed pointer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Grab {
    Button(Button),
    /// Distance of the grabbed point from the thumb's start.
    Thumb {
        horizontal: bool,
        offset: f64,
    },
    Link(String),
    /// A text selection. `first` is true for the click that focuses the field.
    Field {
        first: bool,
    },
    Finger {
        start: (f64, f64),
        last: (f64, f64),
        moved: bool,
    },
}

#[derive(Default)]
pub(crate) struct Pointer {
    pub at: Option<(f64, f64)>,
    pub pressed: Option<Grab>,
    /// Target of the link under the pointer.
    pub hover: Option<String>,
    /// Button under the pointer, and whether it is pressed.
    pub lit: Option<(Button, bool)>,
    /// Wheel movement that has not had an effect yet.
    turned: (f64, f64),
}

impl Pointer {
    /// Returns the number of whole steps, and keeps the remainder of a step for the next event.
    /// Wheels turn by notches, touchpads by fractions of a pixel.
    pub(super) fn wheel(&mut self, (x, y): (f64, f64), step: f64) -> (i64, i64) {
        let whole = |turned: f64, rest: &mut f64| {
            // A change of direction takes effect at once.
            let remainder = if turned * *rest < 0.0 { 0.0 } else { *rest };
            let steps = ((turned + remainder) / step).trunc();
            *rest = turned + remainder - steps * step;
            steps as i64
        };
        (whole(x, &mut self.turned.0), whole(y, &mut self.turned.1))
    }

    pub(super) fn touched(&mut self, point: (f64, f64)) {
        self.pressed = Some(Grab::Finger { start: point, last: point, moved: false });
    }

    /// Returns the distance to scroll by.
    pub(super) fn touch_moved(&mut self, point: (f64, f64), scale: f64) -> Option<(i64, i64)> {
        let Some(Grab::Finger { start, last, moved }) = self.pressed else { return None };
        let far = (point.0 - start.0).hypot(point.1 - start.1) > TAP * scale;
        if !moved && !far {
            return None;
        }
        let (x, y) = ((last.0 - point.0).round(), (last.1 - point.1).round());
        // Keep the rounding error for the next move.
        let last = (last.0 - x, last.1 - y);
        self.pressed = Some(Grab::Finger { start, last, moved: true });
        Some((x as i64, y as i64))
    }

    /// Returns the point of a tap: a finger that did not move acts as a click.
    pub(super) fn touch_ended(&mut self) -> Option<(f64, f64)> {
        match self.pressed.take() {
            Some(Grab::Finger { start, moved: false, .. }) => Some(start),
            _ => None,
        }
    }

    /// Returns the button under the pointer, and whether it is pressed. Returns `None` if something
    /// else is pressed.
    pub(super) fn button(&self, geometry: &Geometry, finding: bool) -> Option<(Button, bool)> {
        let button = geometry.button_at(self.at?, finding)?;
        match &self.pressed {
            None => Some((button, false)),
            Some(grab) => (*grab == Grab::Button(button)).then_some((button, true)),
        }
    }
}
