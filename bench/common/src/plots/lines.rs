//! Line chart over file sizes; both scales are logarithmic.

use super::{At, COLOURS, DARK, PALE, Scale, Steps, picture};
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
const TOP: f64 = 90.0;
const RIGHT: f64 = 24.0;
const BOTTOM: f64 = 44.0;

impl Lines {
    pub fn svg(&self) -> Outcome<String> {
        let points = || self.series.iter().flat_map(|(_, points)| points.iter().copied());
        let across = (LEFT, SIZE.0 - RIGHT);
        let up = (SIZE.1 - BOTTOM, TOP);
        let x = Scale::of(points().map(|(bytes, _)| bytes as f64), across, Steps::Powers(4.0));
        let y = Scale::of(points().map(|(_, value)| value), up, Steps::Powers(10.0));
        picture((SIZE.0 as i32, SIZE.1 as i32), |canvas| {
            canvas.text(&self.title, (12.0, 18.0), 15, At::Left, DARK)?;
            canvas.text(&self.meaning, (12.0, 38.0), 11, At::Left, DARK)?;
            let names: Vec<String> = self.series.iter().map(|(name, _)| name.clone()).collect();
            canvas.legend(&names, (12.0, 62.0))?;
            for tick in y.ticks() {
                let place = y.place(tick);
                canvas.path(&[(across.0, place), (across.1, place)], 1.0, PALE)?;
                canvas.text(&thousands(tick), (LEFT - 8.0, place), 11, At::Right, DARK)?;
            }
            for tick in x.ticks() {
                let place = x.place(tick);
                canvas.path(&[(place, up.0), (place, up.1)], 1.0, PALE)?;
                canvas.text(&size(tick as u64), (place, up.0 + 14.0), 11, At::Centre, DARK)?;
            }
            for ((_, points), colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
                let places: Vec<(f64, f64)> = points
                    .iter()
                    .map(|(bytes, value)| (x.place(*bytes as f64), y.place(*value)))
                    .collect();
                canvas.path(&places, 1.6, *colour)?;
                places.iter().try_for_each(|place| canvas.dot(*place, 3.0, *colour))?;
            }
            Ok(())
        })
    }
}

fn thousands(value: f64) -> String {
    match value {
        v if v >= 1.0 => crate::units::grouped(v),
        v => format!("{v}"),
    }
}
