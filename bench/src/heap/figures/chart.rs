//! Bar charts as SVG: panels of groups of bars, on one logarithmic scale. Each bar has its value
//! above it and its spread as a thin line. Text is dark on white, and the series differ in
//! lightness as well as in colour, so that they remain distinct in print.

use std::fmt::Write;

use crate::samples::figure;

const PANEL: (f64, f64) = (330.0, 230.0);
const MARGIN: (f64, f64) = (52.0, 34.0);
const HEAD: f64 = 64.0;
const COLOURS: [&str; 3] = ["#c6ccd6", "#7d8ca3", "#1d5fa8"];

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
    pub fn svg(&self) -> String {
        let rows = self.panels.len().div_ceil(self.columns);
        let cell = (PANEL.0 + MARGIN.0, PANEL.1 + 2.0 * MARGIN.1);
        let (width, height) = (cell.0 * self.columns as f64 + 20.0, cell.1 * rows as f64 + HEAD);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\" \
             fill=\"#222\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
        );
        text(&mut svg, (12.0, 20.0), "start", 15, &self.title);
        text(&mut svg, (12.0, 37.0), "start", 11, self.unit);
        self.legend(&mut svg);
        let (low, high) = self.decades();
        for (index, panel) in self.panels.iter().enumerate() {
            let column = (index % self.columns) as f64;
            let row = (index / self.columns) as f64;
            let place = (column * cell.0 + MARGIN.0, row * cell.1 + HEAD + MARGIN.1);
            panel.draw(&mut svg, place, (low, high));
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn legend(&self, svg: &mut String) {
        let mut x = 12.0;
        for (name, colour) in self.series.iter().zip(COLOURS) {
            rectangle(svg, (x, 46.0), (11.0, 11.0), colour);
            text(svg, (x + 15.0, 55.5), "start", 11, name);
            x += 38.0 + 6.2 * name.len() as f64;
        }
    }

    /// Returns the powers of ten that enclose all spreads.
    fn decades(&self) -> (i32, i32) {
        let bars = || self.panels.iter().flat_map(|panel| panel.bars.iter().flatten());
        let least = bars().map(|bar| bar.1).fold(f64::INFINITY, f64::min).max(0.1);
        let most = bars().map(|bar| bar.2).fold(1.0, f64::max);
        // One decade more for the text of the values.
        (least.log10().floor() as i32, most.log10().ceil() as i32 + 1)
    }
}

impl Panel {
    fn draw(&self, svg: &mut String, (left, top): (f64, f64), (low, high): (i32, i32)) {
        let bottom = top + PANEL.1;
        let height = |value: f64| {
            let part = (value.max(1e-9).log10() - f64::from(low)) / f64::from(high - low);
            part.clamp(0.0, 1.0) * PANEL.1
        };
        text(svg, (left, top - 8.0), "start", 13, &self.title);
        for decade in low..=high {
            let y = bottom - height(10f64.powi(decade));
            line(svg, (left, y), (left + PANEL.0 - 14.0, y), "#e4e4e4");
            text(svg, (left - 5.0, y + 4.0), "end", 10, &power(decade));
        }
        let group = (PANEL.0 - 14.0) / self.groups.len().max(1) as f64;
        for (index, (name, bars)) in self.groups.iter().zip(&self.bars).enumerate() {
            let start = left + group * index as f64;
            text(svg, (start + group / 2.0, bottom + 15.0), "middle", 11, name);
            let bar = (group - 12.0) / bars.len().max(1) as f64;
            for (index, ((median, least, most), colour)) in bars.iter().zip(COLOURS).enumerate() {
                let x = start + 6.0 + bar * index as f64;
                let y = bottom - height(*median);
                rectangle(svg, (x, y), (bar - 2.0, bottom - y), colour);
                let middle = x + bar / 2.0 - 1.0;
                let top = bottom - height(*most);
                line(svg, (middle, bottom - height(*least)), (middle, top), "#222");
                upright(svg, (middle + 3.5, top - 4.0), &short(*median));
            }
        }
        line(svg, (left, bottom), (left + PANEL.0 - 14.0, bottom), "#222");
    }
}

/// `1 us`, `10 us`, `100 us`, `1 ms`, ...
fn power(decade: i32) -> String {
    match decade {
        ..0 => format!("{} us", figure(10f64.powi(decade))),
        0..3 => format!("{} us", 10u64.pow(decade as u32)),
        3..6 => format!("{} ms", 10u64.pow(decade as u32 - 3)),
        _ => format!("{} s", 10u64.pow((decade as u32).saturating_sub(6))),
    }
}

fn short(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", figure(us / 1e6)),
        us if us >= 1e3 => format!("{} ms", figure(us / 1e3)),
        us => figure(us),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

// Writing to a string cannot fail.

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, size: u32, content: &str) {
    let content = escaped(content);
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">\
         {content}</text>"
    );
}

/// Draws text that runs upwards.
fn upright(svg: &mut String, (x, y): (f64, f64), content: &str) {
    let content = escaped(content);
    let _ = writeln!(
        svg,
        "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" font-size=\"9.5\">\
         {content}</text>"
    );
}

fn rectangle(svg: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"{colour}\"/>"
    );
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
        from.0, from.1, to.0, to.1
    );
}
