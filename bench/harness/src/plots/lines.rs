//! Line chart over file sizes; both scales are logarithmic.

use evermap_plot::canvas::{Align, Legend, TEXT, colour, picture};

use super::{Powers, line, titles};
use crate::Outcome;
use crate::units::size;

pub struct Lines {
    pub title: String,
    /// Meaning of the numbers.
    pub meaning: String,
    /// Name and points of each line: bytes and value.
    pub series: Vec<(String, Vec<(u64, f64)>)>,
}

const SIZE: (f64, f64) = (760.0, 420.0);
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const BOTTOM: f64 = 44.0;

impl Lines {
    pub fn svg(&self) -> Outcome<String> {
        let points = || self.series.iter().flat_map(|(_, points)| points.iter().copied());
        let legend = Legend::of(self.series.iter().map(|(name, _)| name.as_str()), SIZE.0 - 24.0);
        let across = (LEFT, SIZE.0 - RIGHT);
        let up = (SIZE.1 - BOTTOM, 72.0 + legend.height);
        let x = Powers::of(points().map(|(bytes, _)| bytes as f64), across, 4.0);
        let y = Powers::of(points().map(|(_, value)| value), up, 10.0);
        let svg = picture(SIZE, |canvas| {
            titles(canvas, &self.title, &self.meaning)?;
            canvas.legend(&legend, (12.0, 53.0))?;
            for tick in y.ticks() {
                let place = y.position(tick);
                line(canvas, (across.0, place), (across.1, place))?;
                canvas.text(&thousands(tick), (LEFT - 8.0, place), TEXT, Align::Right)?;
            }
            for tick in x.ticks() {
                let place = x.position(tick);
                line(canvas, (place, up.0), (place, up.1))?;
                canvas.text(&size(tick as u64), (place, up.0 + 14.0), TEXT, Align::Centre)?;
            }
            for (index, (_, points)) in self.series.iter().enumerate() {
                let places: Vec<(f64, f64)> = points
                    .iter()
                    .map(|(bytes, value)| (x.position(*bytes as f64), y.position(*value)))
                    .collect();
                canvas.path(&places, 1.6, colour(index))?;
                places.iter().try_for_each(|place| canvas.dot(*place, 3.0, colour(index)))?;
            }
            Ok(())
        });
        Ok(svg?)
    }
}

fn thousands(value: f64) -> String {
    match value {
        v if v >= 1.0 => crate::units::grouped(v),
        v => format!("{v}"),
    }
}
