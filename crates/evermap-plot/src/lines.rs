//! Line charts: lines or dots, with horizontal marks.

use crate::canvas::{
    Align, Canvas, DARK, Legend, PALE, TEXT, TITLE, colour, picture, truncate, width_of,
};
use crate::error::{Error, POINTS_MAX, SERIES_MAX, at_most};
use crate::scale::{Scale, Spacing, range_of};

/// Width of the plot area.
pub(crate) const PLOT_WIDTH: u16 = 620;
const PLOT_HEIGHT: f64 = 300.0;
const MARGIN: f64 = 14.0;
/// With more points than this, dots would hide the line.
const DOTS_MAX: usize = 60;

/// Points `(x, y)` of one colour, with a name.
///
/// A point that is not finite or is beyond 1e300 is a gap, as is one that is not above 0 on a
/// logarithmic scale.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name for the legend.
    pub name: String,
    /// Points, in the order in which lines connect them.
    pub points: Vec<(f64, f64)>,
}

/// Style of points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Connected by lines, with dots if there are few.
    #[default]
    Lines,
    /// Dots only.
    Points,
}

/// Lines or dots. The default is an empty chart whose axes are derived from its points.
///
/// ```
/// use evermap_plot::{LineChart, Series};
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
/// # Ok::<(), evermap_plot::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineChart {
    /// Title above the chart.
    pub title: String,
    /// Label of the x axis, with its unit.
    pub x_label: String,
    /// Label of the y axis, with its unit.
    pub y_label: String,
    /// Range of the x axis. `None` uses the range of the points.
    pub x_range: Option<(f64, f64)>,
    /// Range of the y axis. `None` uses the range of the points, the levels and 0.
    pub y_range: Option<(f64, f64)>,
    /// True for a logarithmic y axis.
    pub log_y: bool,
    /// Series in the order of the legend. Later ones are drawn over earlier ones.
    pub series: Vec<Series>,
    /// Horizontal marks with a text, such as a deadline.
    pub levels: Vec<(f64, String)>,
    /// Style of the points.
    pub kind: Kind,
}

impl LineChart {
    /// Draws the chart as an SVG document. Time and size are linear in the number of points, about
    /// 10 bytes for each.
    ///
    /// # Errors
    ///
    /// A given range is invalid; or there are more than 64 series, 64 levels or a million points.
    pub fn svg(&self) -> Result<String, Error> {
        at_most("series", self.series.len(), SERIES_MAX)?;
        at_most("levels", self.levels.len(), SERIES_MAX)?;
        let count = self.series.iter().map(|series| series.points.len()).sum();
        at_most("points", count, POINTS_MAX)?;
        let frame = self.frame()?;
        picture(frame.size, |canvas| {
            canvas.text(&frame.title, (MARGIN, MARGIN + TITLE / 2.0), TITLE, Align::Left)?;
            canvas.legend(&frame.legend, (MARGIN, MARGIN + TITLE + 8.0))?;
            self.draw_axes(canvas, &frame)?;
            self.series
                .iter()
                .enumerate()
                .try_for_each(|(index, series)| self.draw_series(canvas, &frame, index, series))?;
            self.draw_levels(canvas, &frame)
        })
    }

    fn y_spacing(&self) -> Spacing {
        if self.log_y { Spacing::Logarithmic } else { Spacing::Linear }
    }

    /// Returns true if the point can be drawn.
    fn can_show(&self, (x, y): (f64, f64)) -> bool {
        Spacing::Linear.can_show(x) && self.y_spacing().can_show(y)
    }

    fn frame(&self) -> Result<Frame, Error> {
        let points = || {
            let all = self.series.iter().flat_map(|series| series.points.iter().copied());
            all.filter(|&point| self.can_show(point))
        };
        let x_range = match self.x_range {
            Some(range) => valid_range("x", range, Spacing::Linear)?,
            None => range_of(points().map(|(x, _)| x), Spacing::Linear, false),
        };
        let y_range = match self.y_range {
            Some(range) => valid_range("y", range, self.y_spacing())?,
            None => {
                let levels = self.levels.iter().map(|(level, _)| *level);
                let values = points().map(|(_, y)| y).chain(levels);
                with_margin(range_of(values, self.y_spacing(), true), self.y_spacing())
            }
        };
        let names = self.series.iter().map(|series| series.name.as_str());
        let ticks = Scale::new(y_range, (0.0, 1.0), self.y_spacing()).ticks();
        let widest = ticks.iter().map(|(_, text)| width_of(text, TEXT)).fold(0.0, f64::max);
        let left = (MARGIN + TEXT + 10.0 + widest + 8.0).ceil();
        let width = left + f64::from(PLOT_WIDTH) + 2.0 * MARGIN;
        let legend = Legend::of(names, width - 2.0 * MARGIN);
        let top = MARGIN + TITLE + 8.0 + legend.height + 12.0;
        let bottom = top + PLOT_HEIGHT;
        Ok(Frame {
            size: (width, bottom + 20.0 + TEXT + MARGIN),
            title: truncate(&self.title, TITLE, width - 2.0 * MARGIN),
            legend,
            x: Scale::new(x_range, (left, left + f64::from(PLOT_WIDTH)), Spacing::Linear),
            y: Scale::new(y_range, (bottom, top), self.y_spacing()),
            left,
            top,
        })
    }

    fn draw_axes(&self, canvas: &Canvas<'_>, frame: &Frame) -> Result<(), Error> {
        let (left, right) = (frame.left, frame.right());
        let (top, bottom) = (frame.top, frame.bottom());
        for (value, text) in frame.y.ticks() {
            let y = frame.y.position(value);
            canvas.path(&[(left, y), (right, y)], 0.8, PALE)?;
            canvas.text(&text, (left - 7.0, y), TEXT, Align::Right)?;
        }
        for (value, text) in frame.x.ticks() {
            let x = frame.x.position(value);
            canvas.path(&[(x, top), (x, bottom)], 0.8, PALE)?;
            canvas.text(&text, (x, bottom + 12.0), TEXT, Align::Centre)?;
        }
        canvas.path(&[(left, top), (left, bottom), (right, bottom)], 1.2, DARK)?;
        let x_label = truncate(&self.x_label, TEXT, right - left);
        let middle = (left + right) / 2.0;
        canvas.text(&x_label, (middle, bottom + 20.0 + TEXT), TEXT, Align::Centre)?;
        let y_label = truncate(&self.y_label, TEXT, bottom - top);
        canvas.vertical_text(&y_label, (MARGIN + TEXT / 2.0, (top + bottom) / 2.0), TEXT)
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
                for part in clip_line(&shares) {
                    let positions: Vec<(f64, f64)> =
                        part.iter().map(|&share| frame.position(share)).collect();
                    canvas.path(&positions, 1.8, colour)?;
                }
            }
        }
        let with_dots = self.kind == Kind::Points || series.points.len() <= DOTS_MAX;
        if with_dots {
            for &(x, y) in series.points.iter().filter(|&&point| self.can_show(point)) {
                let share = (frame.x.share(x), frame.y.share(y));
                if is_within(share) {
                    let radius = if self.kind == Kind::Points { 2.2 } else { 3.2 };
                    canvas.dot(frame.position(share), radius, colour)?;
                }
            }
        }
        Ok(())
    }

    fn draw_levels(&self, canvas: &Canvas<'_>, frame: &Frame) -> Result<(), Error> {
        for (level, text) in &self.levels {
            if !self.y_spacing().can_show(*level) || !is_within((0.0, frame.y.share(*level))) {
                continue;
            }
            let y = frame.y.position(*level);
            canvas.dashes((frame.left, frame.right()), y, DARK)?;
            let text = truncate(text, TEXT, frame.right() - frame.left);
            // Put the text below the mark if it would overlap the legend above it.
            let offset = if y - frame.top < 2.0 * TEXT { TEXT } else { -TEXT };
            canvas.text_on_background(&text, (frame.right() - 5.0, y + offset), TEXT)?;
        }
        Ok(())
    }
}

/// Layout of the chart.
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
        self.left + f64::from(PLOT_WIDTH)
    }

    fn bottom(&self) -> f64 {
        self.top + PLOT_HEIGHT
    }

    fn position(&self, share: (f64, f64)) -> (f64, f64) {
        (self.x.position_of_share(share.0), self.y.position_of_share(share.1))
    }
}

/// Adds space above the highest and below the lowest value, except at 0.
fn with_margin((least, most): (f64, f64), spacing: Spacing) -> (f64, f64) {
    if spacing == Spacing::Logarithmic {
        return (least, most);
    }
    let room = (most - least) * 0.04;
    let room_at = |end: f64| if end == 0.0 { 0.0 } else { room };
    (least - room_at(least), most + room_at(most))
}

fn valid_range(
    axis: &'static str,
    range: (f64, f64),
    spacing: Spacing,
) -> Result<(f64, f64), Error> {
    let (from, to) = range;
    if spacing.can_span(range) { Ok(range) } else { Err(Error::Range { axis, from, to }) }
}

fn is_within((x, y): (f64, f64)) -> bool {
    let range = -1e-9..=1.0 + 1e-9;
    range.contains(&x) && range.contains(&y)
}

/// Clips a line to the unit square. Returns its visible parts.
fn clip_line(line: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
    let mut parts: Vec<Vec<(f64, f64)>> = Vec::new();
    for pair in line.windows(2) {
        let Some((from, to)) = clip_segment(pair[0], pair[1]) else { continue };
        match parts.last_mut() {
            Some(part) if part.last() == Some(&from) => part.push(to),
            _ => parts.push(vec![from, to]),
        }
    }
    parts
}

/// Clips a segment to the unit square (Liang and Barsky, 1984).
fn clip_segment(a: (f64, f64), b: (f64, f64)) -> Option<((f64, f64), (f64, f64))> {
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
    // Keep an unclipped end exact, so that the next segment continues there.
    let at = |share: f64| match share {
        0.0 => a,
        1.0 => b,
        share => (a.0 + dx * share, a.1 + dy * share),
    };
    Some((at(from), at(to)))
}
