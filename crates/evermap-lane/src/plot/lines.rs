//! Lines or dots over an x axis, with horizontal marks.

use super::canvas::{At, Canvas, DARK, Legend, PALE, TEXT, TITLE, colour, cut, picture, width_of};
use super::scale::{Scale, Steps, range_of};
use super::{Error, Kind, POINTS_MAX, SERIES_MAX, Series, at_most};

/// How wide the field is that lines are drawn in.
pub(super) const ACROSS_POINTS: u16 = 620;
const UP: f64 = 300.0;
const EDGE: f64 = 14.0;
/// With more points than this, dots would hide the line.
const DOTS_MAX: usize = 60;

/// Lines or dots over an x axis. All of it has a default: an empty chart, whose axes come from its points.
///
/// ```
/// use evermap_lane::plot::{LineChart, Series};
///
/// let chart = LineChart {
///     title: "Misses over capacity".into(),
///     x_label: "cache capacity [%]".into(),
///     y_label: "deadlines missed [%]".into(),
///     series: vec![Series { name: "blocking".into(), points: vec![(10.0, 97.0), (80.0, 52.0)] }],
///     levels: vec![(50.0, "half".into())],
///     ..LineChart::default()
/// };
/// assert!(chart.svg()?.contains("deadlines missed"));
/// # Ok::<(), evermap_lane::plot::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineChart {
    /// Above it.
    pub title: String,
    /// What the x axis counts, with its unit.
    pub x_label: String,
    /// What the y axis counts, with its unit.
    pub y_label: String,
    /// From where to where; from the points, unless given.
    pub x_range: Option<(f64, f64)>,
    /// From where to where; from the points and levels, and from 0, unless given.
    pub y_range: Option<(f64, f64)>,
    /// Whether equal distances upwards are equal ratios.
    pub log_y: bool,
    /// In this order in the legend; later ones are drawn over earlier ones.
    pub series: Vec<Series>,
    /// Horizontal marks with a text, such as the deadline.
    pub levels: Vec<(f64, String)>,
    /// Lines, or dots alone.
    pub kind: Kind,
}

impl LineChart {
    /// The chart as an SVG document. Cost: linear in its points, and about 10 bytes for each.
    ///
    /// # Errors
    ///
    /// A given range that cannot be; more than 64 series, 64 levels or a million points.
    pub fn svg(&self) -> Result<String, Error> {
        at_most("series", self.series.len(), SERIES_MAX)?;
        at_most("levels", self.levels.len(), SERIES_MAX)?;
        let count = self.series.iter().map(|series| series.points.len()).sum();
        at_most("points", count, POINTS_MAX)?;
        let frame = self.frame()?;
        picture(frame.size, |canvas| {
            canvas.text(&frame.title, (EDGE, EDGE + TITLE / 2.0), TITLE, At::Left)?;
            canvas.legend(&frame.legend, (EDGE, EDGE + TITLE + 8.0))?;
            self.draw_axes(canvas, &frame)?;
            self.series
                .iter()
                .enumerate()
                .try_for_each(|(index, series)| self.draw_series(canvas, &frame, index, series))?;
            self.draw_levels(canvas, &frame)
        })
    }

    fn y_steps(&self) -> Steps {
        if self.log_y { Steps::Ratios } else { Steps::Equal }
    }

    /// The points that have a place.
    fn can_show(&self, (x, y): (f64, f64)) -> bool {
        Steps::Equal.can_show(x) && self.y_steps().can_show(y)
    }

    fn frame(&self) -> Result<Frame, Error> {
        let points = || {
            let all = self.series.iter().flat_map(|series| series.points.iter().copied());
            all.filter(|&point| self.can_show(point))
        };
        let x_range = match self.x_range {
            Some(range) => possible("x", range, Steps::Equal)?,
            None => range_of(points().map(|(x, _)| x), Steps::Equal, false),
        };
        let y_range = match self.y_range {
            Some(range) => possible("y", range, self.y_steps())?,
            None => {
                let levels = self.levels.iter().map(|(level, _)| *level);
                let values = points().map(|(_, y)| y).chain(levels);
                with_room(range_of(values, self.y_steps(), true), self.y_steps())
            }
        };
        let names = self.series.iter().map(|series| series.name.as_str());
        let ticks = Scale::new(y_range, (0.0, 1.0), self.y_steps()).ticks();
        let widest = ticks.iter().map(|(_, text)| width_of(text, TEXT)).fold(0.0, f64::max);
        let left = (EDGE + TEXT + 10.0 + widest + 8.0).ceil();
        let width = left + f64::from(ACROSS_POINTS) + 2.0 * EDGE;
        let legend = Legend::of(names, width - 2.0 * EDGE);
        let top = EDGE + TITLE + 8.0 + legend.height + 12.0;
        let bottom = top + UP;
        Ok(Frame {
            size: (width, bottom + 20.0 + TEXT + EDGE),
            title: cut(&self.title, TITLE, width - 2.0 * EDGE),
            legend,
            x: Scale::new(x_range, (left, left + f64::from(ACROSS_POINTS)), Steps::Equal),
            y: Scale::new(y_range, (bottom, top), self.y_steps()),
            left,
            top,
        })
    }

    fn draw_axes(&self, canvas: &Canvas<'_>, frame: &Frame) -> Result<(), Error> {
        let (left, right) = (frame.left, frame.right());
        let (top, bottom) = (frame.top, frame.bottom());
        for (value, text) in frame.y.ticks() {
            let y = frame.y.place(value);
            canvas.path(&[(left, y), (right, y)], 0.8, PALE)?;
            canvas.text(&text, (left - 7.0, y), TEXT, At::Right)?;
        }
        for (value, text) in frame.x.ticks() {
            let x = frame.x.place(value);
            canvas.path(&[(x, top), (x, bottom)], 0.8, PALE)?;
            canvas.text(&text, (x, bottom + 12.0), TEXT, At::Centre)?;
        }
        canvas.path(&[(left, top), (left, bottom), (right, bottom)], 1.2, DARK)?;
        let x_label = cut(&self.x_label, TEXT, right - left);
        let middle = (left + right) / 2.0;
        canvas.text(&x_label, (middle, bottom + 20.0 + TEXT), TEXT, At::Centre)?;
        let y_label = cut(&self.y_label, TEXT, bottom - top);
        canvas.upright(&y_label, (EDGE + TEXT / 2.0, (top + bottom) / 2.0), TEXT)
    }

    fn draw_series(
        &self,
        canvas: &Canvas<'_>,
        frame: &Frame,
        index: usize,
        series: &Series,
    ) -> Result<(), Error> {
        let colour = colour(index);
        if self.kind == Kind::Lines {
            for run in series.points.split(|&point| !self.can_show(point)) {
                let shares: Vec<(f64, f64)> =
                    run.iter().map(|&(x, y)| (frame.x.share(x), frame.y.share(y))).collect();
                for part in within(&shares) {
                    let places: Vec<(f64, f64)> =
                        part.iter().map(|&share| frame.place(share)).collect();
                    canvas.path(&places, 1.8, colour)?;
                }
            }
        }
        let with_dots = self.kind == Kind::Points || series.points.len() <= DOTS_MAX;
        if with_dots {
            for &(x, y) in series.points.iter().filter(|&&point| self.can_show(point)) {
                let share = (frame.x.share(x), frame.y.share(y));
                if is_within(share) {
                    let radius = if self.kind == Kind::Points { 2.2 } else { 3.2 };
                    canvas.dot(frame.place(share), radius, colour)?;
                }
            }
        }
        Ok(())
    }

    fn draw_levels(&self, canvas: &Canvas<'_>, frame: &Frame) -> Result<(), Error> {
        for (level, text) in &self.levels {
            if !self.y_steps().can_show(*level) || !is_within((0.0, frame.y.share(*level))) {
                continue;
            }
            let y = frame.y.place(*level);
            canvas.dashes((frame.left, frame.right()), y, DARK)?;
            let text = cut(text, TEXT, frame.right() - frame.left);
            // Below the mark where above it would be in the legend.
            let beside = if y - frame.top < 2.0 * TEXT { TEXT } else { -TEXT };
            canvas.text_on_plate(&text, (frame.right() - 5.0, y + beside), TEXT)?;
        }
        Ok(())
    }
}

/// Where everything is.
struct Frame {
    size: (f64, f64),
    title: String,
    legend: Legend,
    x: Scale,
    y: Scale,
    left: f64,
    top: f64,
}

impl Frame {
    fn right(&self) -> f64 {
        self.left + f64::from(ACROSS_POINTS)
    }

    fn bottom(&self) -> f64 {
        self.top + UP
    }

    fn place(&self, share: (f64, f64)) -> (f64, f64) {
        (self.x.place_of_share(share.0), self.y.place_of_share(share.1))
    }
}

/// Above the highest point and below the lowest, unless that is the axis.
fn with_room((least, most): (f64, f64), steps: Steps) -> (f64, f64) {
    if steps == Steps::Ratios {
        return (least, most);
    }
    let room = (most - least) * 0.04;
    let room_at = |end: f64| if end == 0.0 { 0.0 } else { room };
    (least - room_at(least), most + room_at(most))
}

fn possible(axis: &'static str, range: (f64, f64), steps: Steps) -> Result<(f64, f64), Error> {
    let (from, to) = range;
    if steps.can_span(range) { Ok(range) } else { Err(Error::Range { axis, from, to }) }
}

fn is_within((x, y): (f64, f64)) -> bool {
    let range = -1e-9..=1.0 + 1e-9;
    range.contains(&x) && range.contains(&y)
}

/// The parts of a line that lie in the square from 0 to 1.
fn within(line: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
    let mut parts: Vec<Vec<(f64, f64)>> = Vec::new();
    for pair in line.windows(2) {
        let Some((from, to)) = segment_within(pair[0], pair[1]) else { continue };
        match parts.last_mut() {
            Some(part) if part.last() == Some(&from) => part.push(to),
            _ => parts.push(vec![from, to]),
        }
    }
    parts
}

/// What of a segment lies in the square (Liang and Barsky, 1984).
fn segment_within(a: (f64, f64), b: (f64, f64)) -> Option<((f64, f64), (f64, f64))> {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let (mut from, mut to) = (0.0_f64, 1.0_f64);
    for (direction, room) in [(-dx, a.0), (dx, 1.0 - a.0), (-dy, a.1), (dy, 1.0 - a.1)] {
        if direction == 0.0 && room < -1e-9 {
            return None;
        }
        if direction < 0.0 {
            from = from.max(room / direction);
        } else if direction > 0.0 {
            to = to.min(room / direction);
        }
    }
    if from > to {
        return None;
    }
    // The ends as they are where nothing is cut, so that the next segment continues there.
    let at = |share: f64| match share {
        0.0 => a,
        1.0 => b,
        share => (a.0 + dx * share, a.1 + dy * share),
    };
    Some((at(from), at(to)))
}
