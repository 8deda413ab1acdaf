//! Bar charts: panels of groups of bars, on one logarithmic scale. Each bar has its value above it
//! and its spread as a thin line.

use evermap_plot::canvas::{Align, Canvas, DARK, Legend, TEXT, TITLE, colour, picture};
use harness::Outcome;
use harness::plots::{Drawn, Powers, axis, line};
use harness::samples::figure;

const PANEL: (f64, f64) = (330.0, 230.0);
const MARGIN: (f64, f64) = (52.0, 34.0);

pub struct Chart {
    pub title: String,
    pub unit: &'static str,
    /// Names of the bars in each group.
    pub series: Vec<String>,
    /// Panels, row by row.
    pub panels: Vec<Panel>,
    /// Number of panels in a row.
    pub columns: usize,
}

pub struct Panel {
    pub title: String,
    pub groups: Vec<String>,
    /// Bars of each group, one for each series: median, minimum, maximum.
    pub bars: Vec<Vec<(f64, f64, f64)>>,
}

impl Chart {
    pub fn svg(&self) -> Outcome<String> {
        let rows = self.panels.len().div_ceil(self.columns) as f64;
        let cell = (PANEL.0 + MARGIN.0, PANEL.1 + 2.0 * MARGIN.1);
        let width = cell.0 * self.columns as f64 + 20.0;
        let legend = Legend::of(self.series.iter().map(String::as_str), width - 24.0);
        let head = 48.0 + legend.height;
        let bars = || self.panels.iter().flat_map(|panel| panel.bars.iter().flatten());
        let values: Vec<f64> = bars().flat_map(|(_, least, most)| [*least, *most]).collect();
        let svg = picture((width, cell.1 * rows + head), |canvas| {
            canvas.text(&self.title, (12.0, 16.0), TITLE, Align::Left)?;
            canvas.text(self.unit, (12.0, 33.0), TEXT, Align::Left)?;
            canvas.legend(&legend, (12.0, 44.0))?;
            for (index, panel) in self.panels.iter().enumerate() {
                let (row, column) = (index / self.columns, index % self.columns);
                let left = column as f64 * cell.0 + MARGIN.0;
                let top = row as f64 * cell.1 + head + MARGIN.1;
                // The texts of the values are above the bars.
                let up = (top + PANEL.1, top + 40.0);
                panel.draw(canvas, (left, top), &Powers::of(values.iter().copied(), up, 10.0))?;
            }
            Ok(())
        });
        Ok(svg?)
    }
}

impl Panel {
    fn draw(&self, canvas: &Canvas<'_>, (left, top): (f64, f64), up: &Powers) -> Drawn {
        let (right, bottom) = (left + PANEL.0 - 14.0, top + PANEL.1);
        canvas.text(&self.title, (left, top - 10.0), TEXT + 2.0, Align::Left)?;
        for tick in up.ticks() {
            let y = up.position(tick);
            line(canvas, (left, y), (right, y))?;
            canvas.text(&short(tick), (left - 5.0, y), TEXT - 1.0, Align::Right)?;
        }
        let group = (right - left) / self.groups.len().max(1) as f64;
        for (index, (name, bars)) in self.groups.iter().zip(&self.bars).enumerate() {
            let start = left + group * index as f64;
            canvas.text(name, (start + group / 2.0, bottom + 11.0), TEXT, Align::Centre)?;
            let bar = (group - 12.0) / bars.len().max(1) as f64;
            for (index, (median, least, most)) in bars.iter().enumerate() {
                let x = start + 6.0 + bar * index as f64;
                let y = up.position(*median);
                canvas.rectangle((x, y), (x + bar - 2.0, bottom), colour(index))?;
                let (middle, end) = (x + bar / 2.0 - 1.0, up.position(*most));
                canvas.path(&[(middle, up.position(*least)), (middle, end)], 1.0, DARK)?;
                canvas.vertical_text(&short(*median), (middle, end - 20.0), TEXT - 2.0)?;
            }
        }
        axis(canvas, (left, bottom), (right, bottom))
    }
}

/// Formats microseconds: `1 us`, `10 ms`, `1.50 s`.
fn short(us: f64) -> String {
    let (value, unit) = match us {
        us if us >= 1e6 => (us / 1e6, "s"),
        us if us >= 1e3 => (us / 1e3, "ms"),
        us => (us, "us"),
    };
    match value {
        whole if whole == whole.round() => format!("{whole} {unit}"),
        value => format!("{} {unit}", figure(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bar_has_its_value_and_each_tick_its_unit() {
        let bars = vec![vec![(1500.0, 900.0, 2000.0), (20.0, 10.0, 30.0)]];
        let panel = Panel { title: "create, disk".into(), groups: vec!["1 MiB".into()], bars };
        let series = vec!["file".into(), "object".into()];
        let chart =
            Chart { title: "Figure".into(), unit: "us", series, panels: vec![panel], columns: 3 };
        let svg = chart.svg().expect("a chart");
        for text in ["1.50 ms", "20 us", "10 us", "10 ms", "1 MiB", "create, disk", "object"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
