//! Heat map of ratios: a row for each subject, a column for each file. Green is faster than one,
//! red is slower.

use evermap_plot::canvas::{Align, RGBColor, TEXT, picture};

use super::{names_width, titles};
use crate::Outcome;
use crate::samples::figure;

pub struct Heat {
    pub title: String,
    /// Meaning of the numbers.
    pub meaning: String,
    pub columns: Vec<String>,
    /// Rows of ratios; `None` where nothing was measured.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

const CELL: (f64, f64) = (76.0, 20.0);
const HEAD: f64 = 86.0;
/// Ratio at which green and red are strongest.
const MOST: f64 = 4.0;
const QUICKER: (f64, f64, f64) = (0x2f as f64, 0x8f as f64, 0x83 as f64);
const SLOWER: (f64, f64, f64) = (0xd6 as f64, 0x5a as f64, 0x4e as f64);

impl Heat {
    fn left(&self) -> f64 {
        names_width(self.rows.iter().map(|(name, _)| name))
    }

    pub fn svg(&self) -> Outcome<String> {
        let names = self.left();
        let width = names + CELL.0 * self.columns.len().max(4) as f64 + 12.0;
        let height = HEAD + CELL.1 * self.rows.len() as f64 + 12.0;
        let svg = picture((width, height), |canvas| {
            titles(canvas, &self.title, &self.meaning)?;
            for (index, name) in self.columns.iter().enumerate() {
                // The first word is above the rest.
                let x = names + CELL.0 * (index as f64 + 0.5);
                let (kind, size) = name.split_once(' ').unwrap_or(("", name));
                canvas.text(kind, (x, HEAD - 24.0), TEXT, Align::Centre)?;
                canvas.text(size, (x, HEAD - 10.0), TEXT, Align::Centre)?;
            }
            for (row, (name, ratios)) in self.rows.iter().enumerate() {
                let top = HEAD + CELL.1 * row as f64;
                let middle = top + CELL.1 / 2.0;
                canvas.text(name, (names - 8.0, middle), TEXT, Align::Right)?;
                for (column, ratio) in ratios.iter().enumerate() {
                    let left = names + CELL.0 * column as f64;
                    let Some(ratio) = ratio else {
                        canvas.text("-", (left + CELL.0 / 2.0, middle), TEXT, Align::Centre)?;
                        continue;
                    };
                    let corner = (left + CELL.0 - 1.0, top + CELL.1 - 1.0);
                    canvas.rectangle((left, top), corner, colour(*ratio))?;
                    let text = figure(*ratio);
                    canvas.text(&text, (left + CELL.0 / 2.0, middle), TEXT, Align::Centre)?;
                }
            }
            Ok(())
        });
        Ok(svg?)
    }
}

fn colour(ratio: f64) -> RGBColor {
    let strength = (ratio.ln() / MOST.ln()).clamp(-1.0, 1.0);
    let full = if strength < 0.0 { QUICKER } else { SLOWER };
    let mix = |full: f64| (250.0 + (full - 250.0) * strength.abs()).round() as u8;
    RGBColor(mix(full.0), mix(full.1), mix(full.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_fits() {
        let heat = |name: &str| Heat {
            title: String::new(),
            meaning: String::new(),
            columns: Vec::new(),
            rows: vec![(name.to_string(), Vec::new())],
        };
        assert_eq!(heat("cp").left(), super::super::NAMES_LEAST);
        assert!(heat("evermap mmap-populate-write").left() > 27.0 * 6.5);
    }

    #[test]
    fn one_is_pale_and_half_is_as_strong_as_double() {
        assert_eq!(colour(1.0), RGBColor(250, 250, 250));
        assert_eq!(colour(100.0), RGBColor(0xd6, 0x5a, 0x4e));
        assert_eq!(colour(0.01), RGBColor(0x2f, 0x8f, 0x83));
        assert!(colour(0.5).0 < 200 && colour(2.0).1 < 200);
    }
}
