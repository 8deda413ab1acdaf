//! Bounds the work that a page can cause in the rasterizer.
//!
//! A damaged block may contain values that no page has: a line a million pixels thick, dashes of a
//! millionth of a pixel, or a path of a million points in each of a million commands. The
//! rasterizer would take hours, run out of memory, or panic. So a command with values beyond these
//! bounds is skipped, like one with an invalid index. The work of each band is counted before it is
//! done. Once the budget is used up, the rest of the band stays unpainted.

use anyrender::Filter;
use anyrender::filters::FilterEffect;
use kurbo::{Affine, PathEl, Point, Rect, Shape, Stroke};

/// Maximum distance from the upper left corner, in device pixels: four times the height of the
/// highest page.
pub(crate) const COORDINATE_MAX: f64 = 67_108_864.0;
/// Maximum factor of a transform. A larger one would enlarge a single point to a page.
pub(crate) const SCALE_MAX: f64 = 65_536.0;
/// Maximum thickness of lines, in pixels.
pub(crate) const LINE_WIDTH_MAX: f64 = 65_536.0;
/// Maximum length of a miter, in line widths.
pub(crate) const MITER_MAX: f64 = 65_536.0;
/// Maximum number of lengths in a dash pattern.
pub(crate) const DASHES_MAX: usize = 256;
/// Maximum font size, in pixels per em.
pub(crate) const FONT_SIZE_MAX: f32 = 16_384.0;
/// Maximum number of axes of a variable font.
pub(crate) const AXES_MAX: u32 = 256;
/// Maximum standard deviation of shadows and blurs, in pixels.
pub(crate) const DEVIATION_MAX: f64 = 1_024.0;
/// Maximum offset of a filter, in pixels.
pub(crate) const OFFSET_MAX: f64 = 16_384.0;
/// Maximum size of a filter's description, in bytes.
pub(crate) const FILTER_BYTES_MAX: u32 = 65_536;
/// Maximum depth of nested filters. Each takes separate memory, more than its content.
pub(crate) const FILTERS_NESTED_MAX: usize = 8;
/// Maximum number of stops of a gradient.
pub(crate) const STOPS_MAX: u32 = 4_096;
/// Maximum absolute value of colour components. Hues go up to 360, and rounding may exceed a colour
/// space's range.
pub(crate) const COMPONENT_MAX: f32 = 65_536.0;
/// Maximum width and height of an image, in pixels. The rasterizer counts them in 16 bits.
pub(crate) const IMAGE_SIDE_MAX: u32 = 65_535;

/// Maximum work of one band, in pixels filled with one colour; a few seconds.
const WORK_MAX: u64 = 1 << 31;
/// Maximum work of one command. More would need too much memory at once.
const COMMAND_WORK_MAX: u64 = 1 << 29;
/// Work of a pixel of a gradient, an image, a shadow or a layer.
pub(crate) const RICH_PIXEL: u64 = 8;
/// Work of a pixel of a filter.
const FILTERED_PIXEL: u64 = 16;
/// Work of a path element, without the pixels that it touches.
const ELEMENT: u64 = 64;
/// Work of a pixel of an edge. Every four of them take a tile.
const EDGE_PIXEL: f64 = 16.0;
/// Factor for strokes, which are filled as the area around the line: two edges, joins and caps.
const STROKED: u64 = 8;
/// Work of a dash of a straight line, and of a curve, whose length must be measured.
const DASH: f64 = 512.0;
const CURVED_DASH: f64 = 8_192.0;
/// Work of a glyph, whose outline has a few hundred elements.
const GLYPH: u64 = 8_192;
/// Assumed length of a glyph's outline, in ems.
const OUTLINE_EMS: f64 = 16.0;
/// Work of preparing a gradient.
pub(crate) const GRADIENT: u64 = 65_536;
/// Visible extent of a blur, in standard deviations.
const BLUR_REACH: f64 = 3.0;

/// Remaining work of a band.
pub(crate) struct Budget {
    left: u64,
    view: Rect,
}

impl Budget {
    /// Returns the budget for a band of this size.
    pub(crate) fn new(width: f64, height: f64) -> Budget {
        Budget { left: WORK_MAX, view: Rect::new(0.0, 0.0, width, height) }
    }

    /// Returns true if the budget is used up.
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Subtracts `work`. Returns `None` if it exceeds the budget or the limit of a command.
    pub(crate) fn take(&mut self, work: u64) -> Option<()> {
        let enough = work <= self.left;
        self.left = self.left.saturating_sub(work);
        (enough && work <= COMMAND_WORK_MAX).then_some(())
    }

    /// Subtracts the work of reading `count` path elements.
    pub(crate) fn take_elements(&mut self, count: u64) -> Option<()> {
        self.take(count.saturating_mul(ELEMENT))
    }

    /// Subtracts the work of filling a shape: its edges, and its pixels with `pixel` work each.
    pub(crate) fn take_fill(
        &mut self,
        shape: &impl Shape,
        transform: Affine,
        pixel: u64,
    ) -> Option<()> {
        let outline = self.outline(shape, transform, 0.0)?;
        self.take(outline.edges.saturating_add(self.pixels(outline.bounds) * pixel))
    }

    /// Subtracts the work of drawing a line.
    pub(crate) fn take_stroke(
        &mut self,
        shape: &impl Shape,
        transform: Affine,
        style: &Stroke,
        pixel: u64,
    ) -> Option<()> {
        let reach = style.width * scale_of(transform);
        let outline = self.outline(shape, transform, reach)?;
        let dashes = dash_work(shape, style, reach);
        let work = outline.edges.saturating_mul(STROKED).saturating_add(dashes);
        self.take(work.saturating_add(self.pixels(outline.bounds) * pixel))
    }

    /// Subtracts the work of drawing `count` glyphs of `size` pixels, or of stroking their
    /// outlines.
    pub(crate) fn take_glyphs(
        &mut self,
        count: u32,
        size: f32,
        transform: Affine,
        stroke: Option<&Stroke>,
    ) -> Option<()> {
        let side = f64::from(size) * scale_of(transform);
        let pixels = (side * side).min(self.view.area()) as u64;
        let mut work = GLYPH + pixels;
        if let Some(style) = stroke {
            let period: f64 = style.dash_pattern.iter().sum();
            let dashes = match style.dash_pattern.len() {
                0 => 0.0,
                lengths => f64::from(size) * OUTLINE_EMS * lengths as f64 / period,
            };
            work = work.saturating_mul(STROKED).saturating_add((dashes * CURVED_DASH) as u64);
        }
        self.take(u64::from(count).saturating_mul(work))
    }

    /// Subtracts the work of painting a shadow.
    pub(crate) fn take_shadow(
        &mut self,
        rect: Rect,
        transform: Affine,
        deviation: f64,
    ) -> Option<()> {
        let reach = deviation * BLUR_REACH;
        let rect = inside(transform.transform_rect_bbox(rect.abs().inflate(reach, reach)))?;
        self.take(self.pixels(rect) * RICH_PIXEL)
    }

    /// Subtracts the work of a layer with a filter. A blur also needs pixels around the view.
    pub(crate) fn take_filter(&mut self, filter: &Filter, transform: Affine) -> Option<()> {
        let reach = filter_reach(filter)? * scale_of(transform);
        if reach > OFFSET_MAX {
            return None;
        }
        let area = self.view.inflate(reach, reach).area();
        self.take((area as u64).saturating_mul(FILTERED_PIXEL))
    }

    fn pixels(&self, rect: Rect) -> u64 {
        self.view.intersect(rect).area() as u64
    }

    /// Returns the work of a shape's edges, and its bounds. Returns `None` if it is too far away. A
    /// line is `reach` thick.
    fn outline(&self, shape: &impl Shape, transform: Affine, reach: f64) -> Option<Outline> {
        let mut bounds: Option<Rect> = None;
        let mut edges = 0_u64;
        let mut last = Point::ZERO;
        for element in shape.path_elements(0.1) {
            let (points, count) = control_points(&element);
            let first = transform * last;
            let mut rect = Rect::from_points(first, first);
            let mut length = 0.0;
            for point in &points[..count] {
                let moved = transform * *point;
                length += (moved - transform * last).hypot();
                rect = rect.union_pt(moved);
                last = *point;
            }
            if matches!(element, PathEl::MoveTo(_)) {
                rect = Rect::from_points(transform * last, transform * last);
                length = 0.0;
            }
            let rect = inside(rect.inflate(reach, reach))?;
            bounds = Some(bounds.map_or(rect, |bounds| bounds.union(rect)));
            // Curves are flattened into lines; larger ones into more.
            let lines = if count > 1 { 1.0 + length.sqrt() / 2.0 } else { 1.0 };
            let seen = self.view.intersect(rect);
            // Edges above or below the view are skipped. Edges beside it still determine what is
            // inside.
            let touched = match rect.y1 < self.view.y0 || rect.y0 > self.view.y1 {
                true => 0.0,
                false => seen.width().max(0.0) + seen.height().max(0.0),
            };
            let work = lines * ELEMENT as f64 + touched * EDGE_PIXEL;
            edges = edges.saturating_add(work as u64);
        }
        Some(Outline { bounds: bounds.unwrap_or(Rect::ZERO), edges })
    }
}

struct Outline {
    bounds: Rect,
    edges: u64,
}

/// Returns the points of a path element except the first, and their number.
fn control_points(element: &PathEl) -> ([Point; 3], usize) {
    match *element {
        PathEl::MoveTo(a) | PathEl::LineTo(a) => ([a, a, a], 1),
        PathEl::QuadTo(a, b) => ([a, b, b], 2),
        PathEl::CurveTo(a, b, c) => ([a, b, c], 3),
        PathEl::ClosePath => ([Point::ZERO; 3], 0),
    }
}

/// Returns the work of splitting a line into dashes. This is done for its whole length, visible or
/// not.
fn dash_work(shape: &impl Shape, style: &Stroke, reach: f64) -> u64 {
    let period: f64 = style.dash_pattern.iter().sum();
    if style.dash_pattern.is_empty() {
        return 0;
    }
    let mean = period / style.dash_pattern.len() as f64;
    let mut work = 0.0;
    let (mut start, mut last) = (Point::ZERO, Point::ZERO);
    for element in shape.path_elements(0.1) {
        let (points, count) = control_points(&element);
        let mut length = 0.0;
        for point in &points[..count] {
            length += (*point - last).hypot();
            last = *point;
        }
        match element {
            PathEl::MoveTo(point) => (start, length) = (point, 0.0),
            PathEl::ClosePath => (length, last) = ((start - last).hypot(), start),
            _ => (),
        }
        let dash = if count > 1 { CURVED_DASH * (1.0 + length.sqrt() / 16.0) } else { DASH };
        work += (1.0 + length / mean) * (dash + reach.min(4_096.0) * EDGE_PIXEL);
    }
    work as u64
}

/// Returns the extent of a filter in its own pixels. Returns `None` if its values are out of bounds
/// or it can't be painted. The rasterizer applies only the first effect of a filter.
fn filter_reach(filter: &Filter) -> Option<f64> {
    let (deviation, x, y) = match &filter.nodes().first()?.effect {
        FilterEffect::Flood(_) => (0.0, 0.0, 0.0),
        FilterEffect::GaussianBlur(blur) => (f64::from(blur.std_deviation), 0.0, 0.0),
        FilterEffect::DropShadow(shadow) => {
            (f64::from(shadow.std_deviation), f64::from(shadow.dx), f64::from(shadow.dy))
        }
        FilterEffect::Offset(offset) => (0.0, offset.x, offset.y),
        // The rasterizer ignores some of the other effects and panics at the rest.
        _ => return None,
    };
    let known = (0.0..=DEVIATION_MAX).contains(&deviation)
        && [x, y].iter().all(|offset| offset.abs() <= OFFSET_MAX);
    known.then(|| deviation * BLUR_REACH + x.abs().max(y.abs()))
}

/// Returns the transform if its values are within bounds.
pub(crate) fn transform(transform: Affine) -> Option<Affine> {
    let [a, b, c, d, x, y] = transform.as_coeffs();
    let scales = [a, b, c, d].iter().all(|factor| factor.abs() <= SCALE_MAX);
    (scales && [x, y].iter().all(|place| place.abs() <= COORDINATE_MAX)).then_some(transform)
}

/// Returns the rectangle if its edges are within bounds.
pub(crate) fn inside(rect: Rect) -> Option<Rect> {
    let Rect { x0, y0, x1, y1 } = rect;
    [x0, y0, x1, y1].iter().all(|edge| edge.abs() <= COORDINATE_MAX).then_some(rect)
}

/// Returns the stroke style if its values are within bounds. Clears a dash pattern of zero length.
pub(crate) fn stroke(mut style: Stroke) -> Option<Stroke> {
    let dashes = &style.dash_pattern;
    let known = (0.0..=LINE_WIDTH_MAX).contains(&style.width)
        && (0.0..=MITER_MAX).contains(&style.miter_limit)
        && style.dash_offset.abs() <= COORDINATE_MAX
        && dashes.len() <= DASHES_MAX
        && dashes.iter().all(|dash| (0.0..=COORDINATE_MAX).contains(dash));
    if dashes.iter().sum::<f64>() == 0.0 {
        style.dash_pattern.clear();
    }
    known.then_some(style)
}

/// Returns the maximum scale factor of a transform.
fn scale_of(transform: Affine) -> f64 {
    let [a, b, c, d, ..] = transform.as_coeffs();
    a.hypot(b).max(c.hypot(d)) * std::f64::consts::SQRT_2
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SCREEN: Rect = Rect::new(0.0, 0.0, 1024.0, 256.0);

    fn budget() -> Budget {
        Budget::new(SCREEN.width(), SCREEN.height())
    }

    /// Returns the work that a call subtracts from a new budget.
    fn cost(work: impl FnOnce(&mut Budget) -> Option<()>) -> u64 {
        let mut budget = budget();
        work(&mut budget).unwrap();
        WORK_MAX - budget.left
    }

    #[test]
    fn an_ordinary_band_stays_far_below_its_budget() {
        let mut budget = budget();
        for _ in 0..100 {
            budget.take_fill(&SCREEN, Affine::IDENTITY, RICH_PIXEL).unwrap();
            budget.take_glyphs(150, 32.0, Affine::IDENTITY, None).unwrap();
            budget.take_stroke(&SCREEN, Affine::IDENTITY, &Stroke::new(2.0), 1).unwrap();
            budget.take_shadow(SCREEN, Affine::IDENTITY, 20.0).unwrap();
        }
        assert!(budget.left > WORK_MAX / 2, "{}", budget.left);
    }

    #[test]
    fn excessive_work_of_one_command_is_refused_and_counted() {
        let mut budget = budget();
        assert!(budget.take(COMMAND_WORK_MAX + 1).is_none());
        assert!(!budget.is_spent());
        let taken = (0..10).take_while(|_| budget.take(COMMAND_WORK_MAX).is_some()).count();
        assert_eq!(taken as u64, WORK_MAX / COMMAND_WORK_MAX - 2);
        assert!(budget.is_spent(), "refused work is subtracted too");
    }

    #[test]
    fn a_shape_outside_the_view_costs_only_its_outline() {
        let seen = cost(|budget| budget.take_fill(&SCREEN, Affine::IDENTITY, 1));
        let below = Affine::translate((0.0, 5_000.0));
        let unseen = cost(|budget| budget.take_fill(&SCREEN, below, 1));
        assert!(seen > SCREEN.area() as u64 && unseen < 1_000, "{seen} and {unseen}");
    }

    #[test]
    fn dashes_cost_their_number_even_outside_the_view() {
        let dashed = |length: f64| Stroke::new(1.0).with_dashes(0.0, [length, length]);
        let line = kurbo::Line::new((0.0, 9_000.0), (60_000.0, 9_000.0));
        let cost_of = |length: f64| {
            let style = dashed(length);
            cost(|budget| budget.take_stroke(&line, Affine::IDENTITY, &style, 1))
        };
        assert!(cost_of(1.0) > 9 * cost_of(10.0));
        let tiny = dashed(1e-6);
        assert!(budget().take_stroke(&line, Affine::IDENTITY, &tiny, 1).is_none());
    }

    #[test]
    fn values_out_of_bounds_are_refused() {
        assert!(inside(Rect::new(0.0, 0.0, COORDINATE_MAX * 2.0, 1.0)).is_none());
        assert!(inside(Rect::new(0.0, f64::NAN, 1.0, 1.0)).is_none());
        assert!(transform(Affine::scale(SCALE_MAX * 2.0)).is_none());
        assert!(transform(Affine::translate((f64::INFINITY, 0.0))).is_none());
        assert!(stroke(Stroke::new(-1.0)).is_none());
        assert!(stroke(Stroke::new(LINE_WIDTH_MAX * 2.0)).is_none());
        assert!(stroke(Stroke::new(1.0).with_dashes(0.0, [f64::NAN])).is_none());
        assert!(stroke(Stroke::new(1.0).with_dashes(0.0, vec![1.0; DASHES_MAX + 1])).is_none());
    }

    #[test]
    fn a_dash_pattern_of_zero_length_is_cleared() {
        let style = stroke(Stroke::new(1.0).with_dashes(3.0, [0.0, 0.0])).unwrap();
        assert!(style.dash_pattern.is_empty());
    }

    #[test]
    fn a_blur_costs_the_pixels_around_the_view() {
        let blur = |deviation: f32| {
            let filter = Filter::single(FilterEffect::blur(deviation));
            cost(|budget| budget.take_filter(&filter, Affine::IDENTITY))
        };
        assert!(blur(100.0) > 2 * blur(1.0));
        let too_wide = FilterEffect::blur(DEVIATION_MAX as f32 * 2.0);
        let not_painted = FilterEffect::grayscale(1.0);
        for effect in [too_wide, not_painted] {
            assert!(budget().take_filter(&Filter::single(effect), Affine::IDENTITY).is_none());
        }
    }
}
