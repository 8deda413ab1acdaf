//! What a page may ask of the rasterizer.
//!
//! A damaged block says numbers that no page has: a line a million pixels thick, dashes of a millionth of a pixel, a path of
//! a million points in each of a million commands. The rasterizer would take hours over them, or all memory, or give up in
//! the middle. So numbers beyond these bounds are left out like an index that leads nowhere, and what is painted of a band is
//! counted beforehand: where the work is used up, the rest stays unpainted.

use anyrender::Filter;
use anyrender::filters::FilterEffect;
use kurbo::{Affine, PathEl, Point, Rect, Shape, Stroke};

/// Nothing is drawn further away from the upper left corner, in device pixels: four times the height of the highest page.
pub(crate) const COORDINATE_MAX: f64 = 67_108_864.0;
/// The factors of a transform: larger ones make pages of one point.
pub(crate) const SCALE_MAX: f64 = 65_536.0;
/// Thickness of lines, in pixels.
pub(crate) const LINE_WIDTH_MAX: f64 = 65_536.0;
/// How far the corner of a line may reach out, in line widths.
pub(crate) const MITER_MAX: f64 = 65_536.0;
/// Lengths in one pattern of dashes.
pub(crate) const DASHES_MAX: usize = 256;
/// Pixels an em.
pub(crate) const FONT_SIZE_MAX: f32 = 16_384.0;
/// Axes of a variable font.
pub(crate) const AXES_MAX: u32 = 256;
/// Standard deviation of shadows and blurs, in pixels.
pub(crate) const DEVIATION_MAX: f64 = 1_024.0;
/// How far a filter moves what it is given, in pixels.
pub(crate) const OFFSET_MAX: f64 = 16_384.0;
/// Bytes of a filter's description.
pub(crate) const FILTER_BYTES_MAX: u32 = 65_536;
/// Filters inside each other: each takes memory of its own, larger than what it is around.
pub(crate) const FILTERS_NESTED_MAX: usize = 8;
/// Stops of a gradient.
pub(crate) const STOPS_MAX: u32 = 4_096;
/// Components of colours: hues have up to 360, and rounding may leave what a colour space has.
pub(crate) const COMPONENT_MAX: f32 = 65_536.0;
/// Pixels of an image, across and down: the rasterizer counts them in 16 bits.
pub(crate) const IMAGE_SIDE_MAX: u32 = 65_535;

/// The work of one band, in pixels that are filled with one colour: some seconds.
const WORK_MAX: u64 = 1 << 31;
/// The work of one command: more would need too much memory at once.
const COMMAND_WORK_MAX: u64 = 1 << 29;
/// A pixel of a gradient, an image, a shadow or a layer.
pub(crate) const RICH_PIXEL: u64 = 8;
/// A pixel of a filter.
const FILTERED_PIXEL: u64 = 16;
/// A piece of a path, without the pixels that it touches.
const ELEMENT: u64 = 64;
/// What a pixel of an edge costs: each four of them take a tile.
const EDGE_PIXEL: f64 = 16.0;
/// Lines are filled as the area around them: two edges, joins and caps.
const STROKED: u64 = 8;
/// A dash of a straight line, and of a curve, whose length has to be measured.
const DASH: f64 = 512.0;
const CURVED_DASH: f64 = 8_192.0;
/// A glyph: its outline has some hundred pieces.
const GLYPH: u64 = 8_192;
/// How long the outline of a glyph is.
const OUTLINE_EMS: f64 = 16.0;
/// A gradient is prepared before it is painted.
pub(crate) const GRADIENT: u64 = 65_536;
/// How far a blur is seen, in standard deviations.
const BLUR_REACH: f64 = 3.0;

/// What may still be done for a band.
pub(crate) struct Budget {
    left: u64,
    view: Rect,
}

impl Budget {
    /// For what is seen of a band of this size.
    pub(crate) fn new(width: f64, height: f64) -> Budget {
        Budget { left: WORK_MAX, view: Rect::new(0.0, 0.0, width, height) }
    }

    /// Whether everything is used up.
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Takes `work` off, or `None` where it is too much.
    pub(crate) fn take(&mut self, work: u64) -> Option<()> {
        let enough = work <= self.left;
        self.left = self.left.saturating_sub(work);
        (enough && work <= COMMAND_WORK_MAX).then_some(())
    }

    /// Before `count` pieces of a path are read.
    pub(crate) fn take_elements(&mut self, count: u64) -> Option<()> {
        self.take(count.saturating_mul(ELEMENT))
    }

    /// Before a shape is filled: its edges, and its pixels of `pixel` work each.
    pub(crate) fn take_fill(
        &mut self,
        shape: &impl Shape,
        transform: Affine,
        pixel: u64,
    ) -> Option<()> {
        let outline = self.outline(shape, transform, 0.0)?;
        self.take(outline.edges.saturating_add(self.pixels(outline.bounds) * pixel))
    }

    /// Before a line is drawn.
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

    /// Before `count` glyphs of `size` pixels are drawn; with a `stroke`, their outlines are.
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

    /// Before a shadow is painted.
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

    /// Before a layer with a filter is opened. What it blurs may lie around what is seen.
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

    /// The work that the edges of a shape are, and where it is; `None` where that is too far away. Lines are `reach` thick.
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
            // Curves are taken apart into lines, more for larger ones.
            let lines = if count > 1 { 1.0 + length.sqrt() / 2.0 } else { 1.0 };
            let seen = self.view.intersect(rect);
            // What is above or below is passed over. What is beside still says where the inside is.
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

/// The points of a piece of a path but the first.
fn control_points(element: &PathEl) -> ([Point; 3], usize) {
    match *element {
        PathEl::MoveTo(a) | PathEl::LineTo(a) => ([a, a, a], 1),
        PathEl::QuadTo(a, b) => ([a, b, b], 2),
        PathEl::CurveTo(a, b, c) => ([a, b, c], 3),
        PathEl::ClosePath => ([Point::ZERO; 3], 0),
    }
}

/// What it costs to take a line apart into dashes, which is done over its whole length, seen or not.
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

/// How far a filter reaches, in its own pixels; `None` where it says numbers that no page has, or can't be painted. The
/// rasterizer takes the first effect of a filter and passes over the others.
fn filter_reach(filter: &Filter) -> Option<f64> {
    let (deviation, x, y) = match &filter.nodes().first()?.effect {
        FilterEffect::Flood(_) => (0.0, 0.0, 0.0),
        FilterEffect::GaussianBlur(blur) => (f64::from(blur.std_deviation), 0.0, 0.0),
        FilterEffect::DropShadow(shadow) => {
            (f64::from(shadow.std_deviation), f64::from(shadow.dx), f64::from(shadow.dy))
        }
        FilterEffect::Offset(offset) => (0.0, offset.x, offset.y),
        // It has no others: it leaves some out and panics at the rest.
        _ => return None,
    };
    let known = (0.0..=DEVIATION_MAX).contains(&deviation)
        && [x, y].iter().all(|offset| offset.abs() <= OFFSET_MAX);
    known.then(|| deviation * BLUR_REACH + x.abs().max(y.abs()))
}

/// A transform with numbers that a page can have.
pub(crate) fn transform(transform: Affine) -> Option<Affine> {
    let [a, b, c, d, x, y] = transform.as_coeffs();
    let scales = [a, b, c, d].iter().all(|factor| factor.abs() <= SCALE_MAX);
    (scales && [x, y].iter().all(|place| place.abs() <= COORDINATE_MAX)).then_some(transform)
}

/// A rectangle that a page can have.
pub(crate) fn inside(rect: Rect) -> Option<Rect> {
    let Rect { x0, y0, x1, y1 } = rect;
    [x0, y0, x1, y1].iter().all(|edge| edge.abs() <= COORDINATE_MAX).then_some(rect)
}

/// The style of a line with numbers that a page can have. A pattern of nothing is no pattern.
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

/// How much larger things get, at most.
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

    /// What something takes of a new budget.
    fn cost(work: impl FnOnce(&mut Budget) -> Option<()>) -> u64 {
        let mut budget = budget();
        work(&mut budget).unwrap();
        WORK_MAX - budget.left
    }

    #[test]
    fn a_band_of_an_ordinary_page_is_far_from_its_bounds() {
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
    fn work_that_is_too_much_for_one_command_is_refused_and_counted() {
        let mut budget = budget();
        assert!(budget.take(COMMAND_WORK_MAX + 1).is_none());
        assert!(!budget.is_spent());
        let taken = (0..10).take_while(|_| budget.take(COMMAND_WORK_MAX).is_some()).count();
        assert_eq!(taken as u64, WORK_MAX / COMMAND_WORK_MAX - 2);
        assert!(budget.is_spent(), "what was refused is gone, too");
    }

    #[test]
    fn what_is_out_of_view_costs_its_outline_only() {
        let seen = cost(|budget| budget.take_fill(&SCREEN, Affine::IDENTITY, 1));
        let below = Affine::translate((0.0, 5_000.0));
        let unseen = cost(|budget| budget.take_fill(&SCREEN, below, 1));
        assert!(seen > SCREEN.area() as u64 && unseen < 1_000, "{seen} and {unseen}");
    }

    #[test]
    fn dashes_cost_their_number_seen_or_not() {
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
    fn numbers_that_no_page_has_are_refused() {
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
    fn a_pattern_of_nothing_is_no_pattern() {
        let style = stroke(Stroke::new(1.0).with_dashes(3.0, [0.0, 0.0])).unwrap();
        assert!(style.dash_pattern.is_empty());
    }

    #[test]
    fn a_blur_costs_what_lies_around_the_view() {
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
