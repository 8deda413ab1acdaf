//! Stacked bars as SVG: a row of bars for each page, a column for each medium or kind of work. The
//! page names are at the left. Every column has its own scale, unless all values are relative to
//! the first bars.
//!
//! The plotting library draws at integer coordinates, so everything is drawn ten times as large as
//! it is shown.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Outcome;
use crate::samples::figure;

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

const LARGER: i32 = 10;
const NAMES: i32 = 170;
const COLUMN: i32 = 250;
/// Width of the bars in a column; the rest is for the number after the longest.
const BARS: i32 = 185;
const HEAD: i32 = 92;
const FOOT: i32 = 30;
const BAR: i32 = 10;
const BETWEEN_ROWS: i32 = 7;
/// Colours that differ in lightness as well as in hue.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x1b, 0x1b, 0x3a),
    RGBColor(0xc4, 0x4e, 0x52),
    RGBColor(0xf0, 0xb4, 0x5a),
    RGBColor(0x8c, 0x6b, 0xb1),
    RGBColor(0x2f, 0x8f, 0x83),
    RGBColor(0xc9, 0xce, 0xd6),
];
const DARK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const PALE: RGBColor = RGBColor(0xe2, 0xe2, 0xe2);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Chart {
    fn size(&self) -> (i32, i32) {
        let columns = self.columns.len().max(3) as i32;
        (NAMES + COLUMN * columns, self.bottom() + FOOT)
    }

    fn row_height(&self) -> i32 {
        let rows = self.columns.iter().flat_map(|column| &column.bars);
        let most = rows.map(Vec::len).max().unwrap_or(1);
        (BAR + 1) * most as i32 + BETWEEN_ROWS
    }

    fn bottom(&self) -> i32 {
        HEAD + self.row_height() * self.rows.len() as i32
    }

    pub fn svg(&self) -> Outcome<String> {
        let (width, height) = self.size();
        let large = ((width * LARGER) as u32, (height * LARGER) as u32);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, large).into_drawing_area();
            area.fill(&WHITE)?;
            self.draw(&area)?;
            area.present()?;
        }
        // Shows the picture at its nominal size.
        let drawn = format!("width=\"{}\" height=\"{}\"", large.0, large.1);
        Ok(svg.replacen(&drawn, &format!("width=\"{width}\" height=\"{height}\""), 1))
    }

    fn draw(&self, area: &Area) -> Outcome {
        text(area, &self.title, (12, 20), 15, HPos::Left)?;
        self.legend(area)?;
        for (index, name) in self.rows.iter().enumerate() {
            let top = HEAD + self.row_height() * index as i32;
            if index % 2 == 1 {
                let (width, _) = self.size();
                rectangle(
                    area,
                    (4.0, width as f64 - 4.0),
                    (top, top + self.row_height()),
                    &RGBColor(0xf6, 0xf6, 0xf6),
                )?;
            }
            text(area, &short(name), (NAMES - 10, top + self.row_height() / 2), 12, HPos::Right)?;
        }
        for (index, column) in self.columns.iter().enumerate() {
            self.column(area, column, NAMES + COLUMN * index as i32)?;
        }
        Ok(())
    }

    fn legend(&self, area: &Area) -> Outcome {
        let mut x = 12;
        for (name, colour) in self.parts.iter().zip(&COLOURS) {
            rectangle(area, (f64::from(x), f64::from(x + 12)), (38, 50), colour)?;
            text(area, name, (x + 17, 44), 12, HPos::Left)?;
            x += 34 + (6.3 * name.len() as f64) as i32;
        }
        text(area, &self.order, (x + 6, 44), 12, HPos::Left)
    }

    fn column(&self, area: &Area, column: &Column, left: i32) -> Outcome {
        text(area, &column.title, (left, HEAD - 24), 12, HPos::Left)?;
        let bottom = self.bottom();
        let most = match self.of_first {
            true => self.columns.iter().map(|column| self.most(column)).fold(0.0, f64::max),
            false => self.most(column),
        };
        let step = step(most);
        let scale = f64::from(BARS) / most.max(step);
        let mut tick = 0.0;
        while tick <= most.max(step) * 1.001 {
            let x = f64::from(left) + tick * scale;
            line(area, x, (HEAD - 4, bottom + 4), &PALE)?;
            let unit = if self.of_first { "%" } else { "ms" };
            let label = if tick == 0.0 { format!("0 {unit}") } else { format!("{tick:.0}") };
            text(area, &label, (x.round() as i32, bottom + 13), 11, HPos::Center)?;
            tick += step;
        }
        for (index, bars) in column.bars.iter().enumerate() {
            let top = HEAD + self.row_height() * index as i32 + BETWEEN_ROWS / 2 + 1;
            for (place, bar) in bars.iter().enumerate().filter(|(_, bar)| bar.whole() > 0.0) {
                let top = top + (BAR + 1) * place as i32;
                self.bar(area, (bar, &bars[0]), (left, top), scale)?;
            }
        }
        line(area, f64::from(left), (HEAD - 4, bottom + 4), &DARK)
    }

    fn bar(
        &self,
        area: &Area,
        (bar, first): (&Bar, &Bar),
        (left, top): (i32, i32),
        scale: f64,
    ) -> Outcome {
        let whole = self.value(bar, first);
        let mut x = f64::from(left);
        for (part, colour) in bar.parts.iter().zip(&COLOURS) {
            let end = x + whole * scale * part / bar.whole().max(f64::MIN_POSITIVE);
            rectangle(area, (x, end), (top, top + BAR - 1), colour)?;
            x = end;
        }
        let label = match self.of_first {
            true => format!("{whole:.0}"),
            false => figure(whole),
        };
        text(area, &label, (x.round() as i32 + 4, top + BAR / 2), 10, HPos::Left)
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

fn text(area: &Area, content: &str, (x, y): (i32, i32), size: i32, anchor: HPos) -> Outcome {
    // The library divides the given size by this factor.
    let size = f64::from(size * LARGER) * 1.24;
    let style = TextStyle::from(("sans-serif", size).into_font())
        .color(&DARK)
        .pos(Pos::new(anchor, VPos::Center));
    area.draw(&Text::new(content.to_string(), (x * LARGER, y * LARGER), style))?;
    Ok(())
}

fn rectangle(
    area: &Area,
    (from, to): (f64, f64),
    (top, bottom): (i32, i32),
    colour: &RGBColor,
) -> Outcome {
    let large = |x: f64| (x * f64::from(LARGER)).round() as i32;
    if large(to) > large(from) {
        let corners = [(large(from), top * LARGER), (large(to), bottom * LARGER)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
    }
    Ok(())
}

fn line(area: &Area, x: f64, (top, bottom): (i32, i32), colour: &RGBColor) -> Outcome {
    let x = (x * f64::from(LARGER)).round() as i32;
    let style = ShapeStyle::from(colour).stroke_width(LARGER as u32);
    area.draw(&PathElement::new([(x, top * LARGER), (x, bottom * LARGER)], style))?;
    Ok(())
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
    fn the_picture_is_well_formed_and_has_its_nominal_size() {
        let svg = chart(false).svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let root = document.root_element();
        let (width, height) = chart(false).size();
        assert_eq!(root.attribute("width"), Some(width.to_string().as_str()));
        let drawn = format!("0 0 {} {}", width * LARGER, height * LARGER);
        assert_eq!(root.attribute("viewBox"), Some(drawn.as_str()));
        assert_eq!(root.attribute("height"), Some(height.to_string().as_str()));
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
        let filled = |colour: &RGBColor| {
            let colour = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
            document.descendants().filter(|node| node.attribute("fill") == Some(&colour)).count()
        };
        // Two columns of four visible bars, and the legend.
        for colour in &COLOURS {
            assert_eq!(filled(colour), 9, "{colour:?}");
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
                assert!((0.0..=f64::from(most * LARGER)).contains(&value), "{name}={value}");
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
