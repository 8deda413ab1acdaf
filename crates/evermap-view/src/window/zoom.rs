//! Zoom levels of pages.

/// Levels of Ctrl+plus and Ctrl+minus.
const LEVELS: [f32; 17] =
    [0.25, 0.33, 0.5, 0.67, 0.75, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0];

/// Returns the nearest zoom in the range of the levels.
pub(super) fn clamped(zoom: f32) -> f32 {
    zoom.clamp(LEVELS[0], LEVELS[LEVELS.len() - 1])
}

/// Returns the next larger level, the next smaller one if `steps` is negative, or the normal size
/// if it is zero. `None` if the zoom does not change.
pub(super) fn stepped(zoom: f32, steps: i32) -> Option<f32> {
    let next = match steps {
        0 => Some(1.0),
        1.. => LEVELS.into_iter().find(|level| *level > zoom + 0.001),
        _ => LEVELS.into_iter().rev().find(|level| *level < zoom - 0.001),
    };
    next.filter(|next| *next != zoom)
}
