//! Stacked bars as SVG: a row of bars for each page, a column for each medium or kind of work. The
//! page names are at the left. Every column has its own scale, unless all values are relative to
//! the first bars.

use evermap_plot::canvas::{
    Align, Canvas, Legend, RGBColor, TEXT, TITLE, colour, picture, width_of,
};
use harness::Outcome;
use harness::plots::{Drawn, axis, line};
use harness::samples::figure;

/// Parts of a bar, in ms.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    pub parts: [f64; 6],
    /// Bytes read from the device in that time.
    pub read_bytes: u64,
}

impl Bar {
    pub fn whole(&self) -> f64 {
        self.parts.iter().sum()
    }
}

pub struct Column {
    pub title: String,
    /// Bars of each row. A bar of zero length is not drawn.
    pub bars: Vec<Vec<Bar>>,
}

pub struct Chart {
    pub title: String,
    /// Explains the order of the bars.
    pub order: String,
    pub parts: Vec<String>,
    pub rows: Vec<String>,
    pub columns: Vec<Column>,
    /// Draws percentages of each row's first bar instead of ms.
    pub of_first: bool,
}

const NAMES: f64 = 170.0;
const COLUMN: f64 = 250.0;
/// Width of the bars in a column; the rest is for the number after the longest.
const BARS: f64 = 185.0;
const HEAD: f64 = 92.0;
const FOOT: f64 = 30.0;
const BAR: f64 = 10.0;
const BETWEEN_ROWS: f64 = 7.0;
/// Background of every second row.
const STRIPE: RGBColor = RGBColor(0xf6, 0xf6, 0xf6);

impl Chart {
    fn size(&self) -> (f64, f64) {
        (NAMES + COLUMN * self.columns.len().max(3) as f64, self.bottom() + FOOT)
    }

    fn row_height(&self) -> f64 {
        let rows = self.columns.iter().flat_map(|column| &column.bars);
        let most = rows.map(Vec::len).max().unwrap_or(1);
        (BAR + 1.0) * most as f64 + BETWEEN_ROWS
    }

    fn bottom(&self) -> f64 {
        HEAD + self.row_height() * self.rows.len() as f64
    }

    pub fn svg(&self) -> Outcome<String> {
        Ok(picture(self.size(), |canvas| self.draw(canvas))?)
    }

    fn draw(&self, canvas: &Canvas<'_>) -> Drawn {
        let (width, _) = self.size();
        canvas.text(&self.title, (12.0, 20.0), TITLE, Align::Left)?;
        let order = (width - 12.0 - width_of(&self.order, TEXT), 44.0);
        canvas.text(&self.order, order, TEXT, Align::Left)?;
        let legend = Legend::of(self.parts.iter().map(String::as_str), order.0 - 24.0);
        canvas.legend(&legend, (12.0, 35.0))?;
        for (index, name) in self.rows.iter().enumerate() {
            let top = HEAD + self.row_height() * index as f64;
            if index % 2 == 1 {
                let corner = (width - 4.0, top + self.row_height());
                canvas.rectangle((4.0, top), corner, STRIPE)?;
            }
            let middle = (NAMES - 10.0, top + self.row_height() / 2.0);
            canvas.text(&short(name), middle, TEXT, Align::Right)?;
        }
        for (index, column) in self.columns.iter().enumerate() {
            self.column(canvas, column, NAMES + COLUMN * index as f64)?;
        }
        Ok(())
    }

    fn column(&self, canvas: &Canvas<'_>, column: &Column, left: f64) -> Drawn {
        canvas.text(&column.title, (left, HEAD - 24.0), TEXT, Align::Left)?;
        let bottom = self.bottom();
        let most = match self.of_first {
            true => self.columns.iter().map(|column| self.most(column)).fold(0.0, f64::max),
            false => self.most(column),
        };
        let step = step(most);
        let scale = BARS / most.max(step);
        let mut tick = 0.0;
        while tick <= most.max(step) * 1.001 {
            let x = left + tick * scale;
            line(canvas, (x, HEAD - 4.0), (x, bottom + 4.0))?;
            let unit = if self.of_first { "%" } else { "ms" };
            let label = if tick == 0.0 { format!("0 {unit}") } else { format!("{tick:.0}") };
            canvas.text(&label, (x, bottom + 13.0), TEXT, Align::Centre)?;
            tick += step;
        }
        for (index, bars) in column.bars.iter().enumerate() {
            let top = HEAD + self.row_height() * index as f64 + (BETWEEN_ROWS / 2.0).ceil();
            for (place, bar) in bars.iter().enumerate().filter(|(_, bar)| bar.whole() > 0.0) {
                let top = top + (BAR + 1.0) * place as f64;
                self.bar(canvas, (bar, &bars[0]), (left, top), scale)?;
            }
        }
        axis(canvas, (left, HEAD - 4.0), (left, bottom + 4.0))
    }

    fn bar(
        &self,
        canvas: &Canvas<'_>,
        (bar, first): (&Bar, &Bar),
        (left, top): (f64, f64),
        scale: f64,
    ) -> Drawn {
        let whole = self.value(bar, first);
        let mut x = left;
        for (index, part) in bar.parts.iter().enumerate().filter(|(_, part)| **part > 0.0) {
            let end = x + whole * scale * part / bar.whole().max(f64::MIN_POSITIVE);
            canvas.rectangle((x, top), (end, top + BAR - 1.0), colour(index))?;
            x = end;
        }
        let label = match self.of_first {
            true => format!("{whole:.0}"),
            false => figure(whole),
        };
        canvas.text(&label, (x + 4.0, top + BAR / 2.0), TEXT - 1.0, Align::Left)
    }

    /// Returns the length of the longest bar.
    fn most(&self, column: &Column) -> f64 {
        let rows = column.bars.iter();
        let values = rows.flat_map(|bars| bars.iter().map(|bar| self.value(bar, &bars[0])));
        values.fold(0.0, f64::max)
    }

    fn value(&self, bar: &Bar, first: &Bar) -> f64 {
        match self.of_first {
            true => 100.0 * bar.whole() / first.whole().max(f64::MIN_POSITIVE),
            false => bar.whole(),
        }
    }
}

/// Returns the distance of grid lines: 1, 2 or 5 times a power of ten, for about four lines.
fn step(most: f64) -> f64 {
    let raw = (most / 4.0).max(0.25);
    let power = 10f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= raw);
    (factor.unwrap_or(10.0) * power).max(1.0)
}

/// Shortens a long name to its end, which distinguishes it better than its start.
fn short(name: &str) -> String {
    const MOST: usize = 23;
    let length = name.chars().count();
    if length <= MOST {
        return name.to_string();
    }
    let end: String = name.chars().skip(length - MOST + 1).collect();
    format!("\u{2026}{end}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn chart(of_first: bool) -> Chart {
        let bar = |factor: f64| Bar {
            parts: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(|ms| ms * factor),
            read_bytes: 0,
        };
        let column = |title: &str| Column {
            title: title.to_string(),
            bars: vec![
                vec![bar(10.0), bar(1.0)],
                vec![bar(5.0), bar(0.25)],
                vec![Bar::default(), Bar::default()],
            ],
        };
        Chart {
            title: "Time & space <ms>".to_string(),
            order: "upper: cold".to_string(),
            parts: ["disk", "parse", "layout", "record", "paint", "rest"]
                .map(str::to_string)
                .to_vec(),
            rows: vec![
                "first".to_string(),
                "second-with-a-name-that-is-too-long".to_string(),
                "none".to_string(),
            ],
            columns: vec![column("memory"), column("disk")],
            of_first,
        }
    }

    fn texts(svg: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(svg).unwrap();
        let nodes = document.descendants().filter(|node| node.has_tag_name("text"));
        nodes.map(|node| node.text().unwrap_or_default().trim().to_string()).collect()
    }

    #[test]
    fn every_bar_has_its_number_and_every_part_its_colour() {
        let texts = texts(&chart(false).svg().unwrap());
        for wanted in
            ["Time & space <ms>", "memory", "disk", "210", "21.0", "105", "5.25", "first", "0 ms"]
        {
            assert!(texts.iter().any(|text| text == wanted), "{wanted} in {texts:?}");
        }
        let svg = chart(false).svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let filled = |colour: RGBColor| {
            let colour = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
            document.descendants().filter(|node| node.attribute("fill") == Some(&colour)).count()
        };
        // Two columns of four visible bars, and the legend.
        for index in 0..6 {
            assert_eq!(filled(colour(index)), 9, "{index}");
        }
    }

    #[test]
    fn relative_bars_are_percentages_of_the_first() {
        let texts = texts(&chart(true).svg().unwrap());
        for wanted in ["100", "10", "5", "0 %"] {
            assert!(texts.iter().any(|text| text == wanted), "{wanted} in {texts:?}");
        }
    }

    #[test]
    fn relative_columns_share_one_scale() {
        let mut chart = chart(true);
        // Warm is half as slow again as cold here.
        chart.columns[1].bars[0][1].parts = chart.columns[1].bars[0][0].parts.map(|ms| ms * 1.5);
        let most: Vec<f64> = chart.columns.iter().map(|column| chart.most(column)).collect();
        assert_eq!(most, [100.0, 150.0]);
        let svg = chart.svg().unwrap();
        let labels = texts(&svg).into_iter().filter(|text| text == "50").count();
        assert_eq!(labels, 2, "a line at 50 % in each column");
    }

    #[test]
    fn everything_is_within_the_picture() {
        let svg = chart(false).svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let (width, height) = chart(false).size();
        for node in document.descendants() {
            for (name, most) in [("x", width), ("y", height)] {
                let Some(value) = node.attribute(name) else { continue };
                let value: f64 = value.parse().unwrap();
                assert!((0.0..=most * 10.0).contains(&value), "{name}={value}");
            }
        }
    }

    #[test]
    fn scales_have_round_steps() {
        assert_eq!([step(4.0), step(17.0), step(457.0), step(100.0)], [1.0, 5.0, 200.0, 50.0]);
        assert_eq!(step(0.0), 1.0);
    }

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(short("library/functions"), "library/functions");
        assert_eq!(short("a/very/long/name/of/a/page-12").chars().count(), 23);
        assert!(short("a/very/long/name/of/a/page-12").ends_with("page-12"));
    }
}
