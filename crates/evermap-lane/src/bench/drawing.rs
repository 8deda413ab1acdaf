//! Charts of the results.

use evermap_plot::{BarChart, Error, Series};

use super::results::Results;
use crate::report::drawing::{completion_chart, points};

impl Results {
    /// Draws SVGs by name: `completion-24.svg` for each rate (the first turn of each rung), and
    /// `missed.svg`.
    ///
    /// # Errors
    /// Errors of the chart library only.
    pub fn svgs(&self) -> Result<Vec<(String, String)>, Error> {
        let mut rates: Vec<u32> = self.cells.iter().map(|cell| cell.preset.fps).collect();
        rates.dedup();
        let mut svgs = Vec::new();
        for fps in &rates {
            svgs.push((format!("completion-{fps}.svg"), self.completions(*fps)?));
        }
        let mut names: Vec<String> = Vec::new();
        for cell in &self.cells {
            if !names.contains(&cell.name) {
                names.push(cell.name.clone());
            }
        }
        let missed = |fps: u32, name: &String| {
            let cell = self.cells.iter().find(|cell| cell.preset.fps == fps && cell.name == *name);
            cell.map_or(f64::NAN, |cell| cell.missed_percent)
        };
        let series = rates
            .iter()
            .map(|fps| {
                (format!("{fps} a second"), names.iter().map(|name| missed(*fps, name)).collect())
            })
            .collect();
        let title = "Missed deadlines".into();
        let chart = BarChart { title, y_label: "missed [%]".into(), groups: names, series };
        svgs.push(("missed.svg".into(), chart.svg()?));
        Ok(svgs)
    }

    fn completions(&self, fps: u32) -> Result<String, Error> {
        let first = |name: &str| {
            let turn = self.turns.iter().find(|turn| {
                turn.preset.fps == fps && turn.played.is_some() && turn.subject.name() == name
            });
            turn.and_then(|turn| turn.played.as_ref())
        };
        let series = self
            .cells
            .iter()
            .filter(|cell| cell.preset.fps == fps)
            .filter_map(|cell| {
                Some(Series { name: cell.name.clone(), points: points(&first(&cell.name)?.timed) })
            })
            .collect();
        let title = format!("Completion of each period, {fps} a second");
        completion_chart(&title, 1e3 / f64::from(fps), series).svg()
    }
}
