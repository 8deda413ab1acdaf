//! Icons of the buttons, drawn as shapes, so that they need no font.

use anyrender::PaintScene;
use kurbo::{Affine, Arc, BezPath, Cap, Join, Point, Rect, Shape, Stroke, Vec2};

use super::canvas::{color, colors};
use super::geometry::Button;

/// Side of the square on which icons are designed.
const SIDE: f64 = 24.0;

/// Draws the icon of a button, centred in `at`. While a page is loading, the reload button shows a
/// cross.
pub(crate) fn icon(scene: &mut impl PaintScene, button: Button, loading: bool, at: Rect, ink: u32) {
    let scale = at.height() / SIDE * 0.8;
    let corner = at.center() - Vec2::new(SIDE, SIDE) * (scale / 2.0);
    let to_place = Affine::translate(corner.to_vec2()) * Affine::scale(scale);
    let path = match button {
        Button::Back => {
            lines(&[&[(19.0, 12.0), (5.0, 12.0)], &[(11.5, 5.5), (5.0, 12.0), (11.5, 18.5)]])
        }
        Button::Forward => {
            lines(&[&[(5.0, 12.0), (19.0, 12.0)], &[(12.5, 5.5), (19.0, 12.0), (12.5, 18.5)]])
        }
        Button::Reload if loading => cross(),
        Button::Reload => turn(),
        Button::Home => lines(&[
            &[(3.5, 11.5), (12.0, 4.0), (20.5, 11.5)],
            &[(6.0, 10.0), (6.0, 20.0), (18.0, 20.0), (18.0, 10.0)],
        ]),
        Button::FindPrevious => lines(&[&[(6.0, 15.0), (12.0, 9.0), (18.0, 15.0)]]),
        Button::FindNext => lines(&[&[(6.0, 9.0), (12.0, 15.0), (18.0, 9.0)]]),
        Button::FindClose => cross(),
    };
    let stroke = Stroke::new(2.0).with_caps(Cap::Round).with_join(Join::Round);
    scene.stroke(&stroke, to_place, color(ink), None, &path);
}

/// Draws a triangle with an exclamation mark.
pub(crate) fn warning(scene: &mut impl PaintScene, at: Rect) {
    let scale = at.height() / SIDE;
    let to_place = Affine::translate(at.origin().to_vec2()) * Affine::scale(scale);
    let mut path = lines(&[&[(12.0, 3.0), (22.0, 20.5), (2.0, 20.5)]]);
    path.close_path();
    path.extend(lines(&[&[(12.0, 9.5), (12.0, 14.0)], &[(12.0, 17.0), (12.0, 17.1)]]));
    let stroke = Stroke::new(2.0).with_caps(Cap::Round).with_join(Join::Round);
    scene.stroke(&stroke, to_place, color(colors::WARNING), None, &path);
}

fn cross() -> BezPath {
    lines(&[&[(6.5, 6.5), (17.5, 17.5)], &[(17.5, 6.5), (6.5, 17.5)]])
}

/// Returns most of a circle, with an arrow at its end.
fn turn() -> BezPath {
    let arc = Arc::new((12.0, 12.0), (7.0, 7.0), 0.35, 5.3, 0.0);
    let mut path = arc.to_path(0.05);
    path.extend(lines(&[&[(19.2, 3.6), (19.2, 9.2), (13.6, 9.2)]]));
    path
}

fn lines(lines: &[&[(f64, f64)]]) -> BezPath {
    let mut path = BezPath::new();
    for line in lines {
        let mut points = line.iter().map(|(x, y)| Point::new(*x, *y));
        if let Some(first) = points.next() {
            path.move_to(first);
        }
        for point in points {
            path.line_to(point);
        }
    }
    path
}
