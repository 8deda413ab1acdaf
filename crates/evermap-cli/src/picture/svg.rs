//! Draws a picture as SVG: one document without scripts, fonts or external resources.
//!
//! A cell is a pale square with a stripe per use, filled from below as far as it is allocated. A
//! line below the square shows the part in memory, and a corner marks changes since the last
//! commit. Names come from files, so all text is escaped.

use std::fmt::{Display, Write};

use evermap::tools::{PAGES_PER_CHUNK, RegionMap};
use humansize::DECIMAL;

use super::{Cell, CellKind, CellPart, PAGE_BYTES, Picture};
use crate::output::{count, counted};

/// Margin around the drawing.
const MARGIN: f64 = 36.0;
/// Width of the addresses to the left of the cells.
const GUTTER: f64 = 104.0;
/// Height of a region's heading.
const HEADING: f64 = 30.0;
/// Height of a line of the legend.
const LINE: f64 = 22.0;
/// Space between the legend's columns.
const LEGEND_GAP: f64 = 48.0;
/// Number of lines above which the legend has two columns.
const LEGEND_LINES: usize = 8;
/// An address is shown every so many rows.
const ADDRESS_EVERY: usize = 8;

/// Bytes of a chunk.
const CHUNK_BYTES: u64 = PAGES_PER_CHUNK as u64 * PAGE_BYTES;

const STYLE: &str = "\
text{font-family:Inter,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2937;font-size:13px}\
.title{font-size:24px;font-weight:600}\
.faint{fill:#6b7280}\
.heading{font-weight:600}\
.address{font-family:ui-monospace,'DejaVu Sans Mono',Menlo,monospace;font-size:10px;fill:#6b7280}\
.number{font-variant-numeric:tabular-nums;text-anchor:end}\
.pale{fill-opacity:.24}\
.hole{fill:#fff;stroke:#c3cad5;stroke-width:1;stroke-dasharray:2 2}\
.memory{fill:#64748b}\
.slack{fill:#f3f4f6}\
.dirty{fill:#111827;stroke:#fff;stroke-width:.8}";

/// Grid of cells.
struct Grid {
    columns: usize,
    /// Distance between corners of neighbouring cells.
    pitch: f64,
    width: f64,
}

impl Grid {
    fn of(picture: &Picture, wide: bool) -> Grid {
        let width = if wide { 1900.0 } else { 1000.0 };
        let columns = match (picture.cells().count(), wide) {
            (0..=256, false) => 32,
            (_, false) => 64,
            (_, true) => 128,
        };
        Grid { columns, pitch: (width - 2.0 * MARGIN - GUTTER) / columns as f64, width }
    }

    /// Returns the side length of a cell.
    fn side(&self) -> f64 {
        self.pitch - if self.pitch > 20.0 { 3.0 } else { 1.6 }
    }

    fn rows(&self, cells: &[Cell]) -> usize {
        cells.len().div_ceil(self.columns)
    }
}

pub(super) fn draw(picture: &Picture, wide: bool) -> String {
    let grid = Grid::of(picture, wide);
    let mut body = String::new();
    let mut y = title(&mut body, picture, &grid);
    for (number, (region, cells)) in picture.regions.iter().enumerate() {
        heading(&mut body, number, region, y);
        y += HEADING;
        squares(&mut body, picture, &grid, (region.base, cells), y);
        y += grid.rows(cells) as f64 * grid.pitch + 16.0;
    }
    y = legend(&mut body, picture, &grid, y + 8.0);
    let height = y + MARGIN - 8.0;
    let mut style = STYLE.to_string();
    for kind in kinds(picture) {
        let _ = write!(style, ".{}{{fill:{}}}", class_of(kind), picture.colour(kind));
    }
    let width = grid.width;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width} {height:.0}\">\n<title>{name}</title>\n<style>{style}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n",
        name = escaped(&picture.map.name)
    )
}

/// Returns all kinds that may occur in this picture.
fn kinds(picture: &Picture) -> Vec<CellKind> {
    let mut kinds = vec![CellKind::Metadata];
    kinds.extend((0..picture.classes.len()).map(CellKind::Slab));
    kinds.extend([CellKind::Large(0), CellKind::Large(1), CellKind::Free, CellKind::Unknown]);
    kinds
}

fn class_of(kind: CellKind) -> String {
    match kind {
        CellKind::Metadata => "meta".to_string(),
        CellKind::Slab(class) => format!("s{class}"),
        CellKind::Large(which) => format!("l{which}"),
        CellKind::Free => "free".to_string(),
        CellKind::Unknown => "odd".to_string(),
    }
}

fn text(body: &mut String, class: &str, (x, y): (f64, f64), words: impl Display) {
    let words = escaped(&words.to_string());
    let _ = writeln!(body, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>");
}

fn rect(body: &mut String, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
    let _ = write!(
        body,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\"/>"
    );
}

fn title(body: &mut String, picture: &Picture, grid: &Grid) -> f64 {
    text(body, "title", (MARGIN, MARGIN + 18.0), shortened(&picture.map.name, 60));
    let totals = &picture.totals;
    let mut parts = vec![
        match picture.map.uncommitted {
            true => format!("after commit {}", picture.map.sequence),
            false => format!("commit {}", picture.map.sequence),
        },
        format!("file {}", bytes(picture.map.file_bytes)),
        format!("{} of {}", counted(totals.blocks, "block"), bytes(totals.allocated_bytes)),
        format!("{} in memory", bytes(totals.resident_bytes)),
    ];
    if picture.map.uncommitted {
        parts.push(format!("{} changed", bytes(totals.dirty_bytes)));
    }
    if picture.map.log_bytes > 0 {
        parts.push(format!("log {}", bytes(picture.map.log_bytes)));
    }
    if picture.map.written && !picture.map.uncommitted {
        parts.push("being written".to_string());
    }
    text(body, "faint", (MARGIN, MARGIN + 42.0), parts.join("  ·  "));
    shares(body, picture, (MARGIN, MARGIN + 58.0), grid.width - 2.0 * MARGIN);
    MARGIN + 98.0
}

/// Draws a bar that shows the use of the file's bytes.
fn shares(body: &mut String, picture: &Picture, (mut x, y): (f64, f64), width: f64) {
    let totals = &picture.totals;
    let mut parts = vec![("meta".to_string(), "metadata".to_string(), totals.metadata_bytes)];
    for (class, of) in picture.classes.iter().enumerate() {
        let size = u64::from(of.block_bytes);
        let what = format!("blocks of {}", counted(size, "byte"));
        parts.push((class_of(CellKind::Slab(class)), what, size * of.blocks));
    }
    parts.push((class_of(CellKind::Large(0)), "large blocks".to_string(), totals.large_bytes));
    let free = totals.free_chunks * CHUNK_BYTES;
    let known: u64 = parts.iter().map(|(_, _, bytes)| bytes).sum();
    let all = totals.backed_bytes.max(known).max(1);
    let slack = all.saturating_sub(known + free);
    parts.push((
        "slack".to_string(),
        "unused space in slabs and after large blocks".to_string(),
        slack,
    ));
    parts.push(("free".to_string(), "free chunks".to_string(), free.min(all - known)));
    for (class, what, of) in parts {
        let share = of as f64 / all as f64 * width;
        // A narrower part would only blur its neighbours.
        if share >= 0.2 {
            let title = format!("{what}: {}", bytes(of));
            let _ = write!(body, "<g class=\"share\"><title>{}</title>", escaped(&title));
            rect(body, &class, (x, y), (share, 16.0));
            body.push_str("</g>\n");
        }
        x += share;
    }
}

fn heading(body: &mut String, number: usize, region: &RegionMap, y: f64) {
    let words = format!(
        "Region {number}: {} in the file, capacity {}",
        bytes(region.length_bytes),
        bytes(region.capacity_bytes)
    );
    text(body, "heading", (MARGIN, y + 14.0), words);
}

/// Draws the cells of a region, whose first address is `base`.
fn squares(
    body: &mut String,
    picture: &Picture,
    grid: &Grid,
    (base, cells): (u64, &[Cell]),
    top: f64,
) {
    for (row, cells) in cells.chunks(grid.columns).enumerate() {
        let y = top + row as f64 * grid.pitch;
        let first = row * grid.columns;
        if row.is_multiple_of(ADDRESS_EVERY) {
            let address = base + first as u64 * picture.cell_bytes;
            text(body, "address", (MARGIN, y + grid.side() - 2.0), format!("{address:#x}"));
        }
        for (column, cell) in cells.iter().enumerate() {
            let x = MARGIN + GUTTER + column as f64 * grid.pitch;
            let address = base + (first + column) as u64 * picture.cell_bytes;
            let _ = write!(
                body,
                "<g class=\"cell\"><title>{}</title>",
                describe(picture, cell, address)
            );
            square(body, cell, (x, y), grid.side());
            body.push_str("</g>\n");
        }
    }
}

/// Draws a cell.
fn square(body: &mut String, cell: &Cell, (x, y): (f64, f64), side: f64) {
    // Height of the line at the bottom.
    let line = (side / 7.0).clamp(1.4, 3.0);
    let full = side - line - 0.8;
    let never_written = cell.stored == 0.0;
    if never_written {
        rect(body, "hole", (x + 0.5, y + 0.5), (side - 1.0, full - 1.0));
    }
    let mut left = x;
    for part in &cell.parts {
        let width = side * f64::from(part.share);
        stripe(body, part, never_written, (left, y), (width, full));
        left += width;
    }
    if cell.resident > 0.0 {
        let width = (side * f64::from(cell.resident)).max(1.0);
        rect(body, "memory", (x, y + side - line), (width, line));
    }
    if cell.dirty > 0.0 {
        let corner = side * 0.5;
        let _ = write!(
            body,
            "<path class=\"dirty\" d=\"M{x:.1} {y:.1}h{corner:.1}L{x:.1} {:.1}z\"/>",
            y + corner
        );
    }
}

/// Draws one part of a cell.
fn stripe(
    body: &mut String,
    part: &CellPart,
    never_written: bool,
    (x, y): (f64, f64),
    (width, full): (f64, f64),
) {
    let class = class_of(part.kind);
    let is_free = part.kind == CellKind::Free;
    if !never_written && is_free {
        rect(body, &class, (x, y), (width, full));
    } else if !never_written && part.allocated < 0.995 {
        rect(body, &format!("pale {class}"), (x, y), (width, full));
    }
    if !is_free && part.allocated > 0.0 {
        // Even a small allocation stays visible.
        let height = (full * f64::from(part.allocated)).max(1.0);
        let faded = if never_written { "pale " } else { "" };
        rect(body, &format!("{faded}{class}"), (x, y + full - height), (width, height));
    }
}

/// Describes a cell in words, for its tooltip.
fn describe(picture: &Picture, cell: &Cell, address: u64) -> String {
    let percent = |share: f32| format!("{:.0} %", share * 100.0);
    let kind = |part: &CellPart| match part.kind {
        CellKind::Metadata => "metadata".to_string(),
        CellKind::Slab(class) => {
            format!("blocks of {}", counted(picture.classes[class].block_bytes.into(), "byte"))
        }
        CellKind::Large(_) => "a large block".to_string(),
        CellKind::Free => "free".to_string(),
        CellKind::Unknown => "damaged metadata".to_string(),
    };
    let kinds: Vec<String> = cell.parts.iter().map(kind).collect();
    let (kinds, allocated) = (kinds.join(", "), percent(cell.allocated));
    let mut words = format!("{address:#x}: {kinds}; {allocated} allocated");
    let mut add = |share: f32, what: &str| {
        if share > 0.0 {
            let _ = write!(words, ", {} {what}", percent(share));
        }
    };
    add(cell.resident, "in memory");
    add(cell.dirty, "changed since the last commit");
    add(1.0 - cell.stored, "never written");
    words
}

fn legend(body: &mut String, picture: &Picture, grid: &Grid, top: f64) -> f64 {
    let right = grid.width - MARGIN;
    let line = |body: &mut String, y: f64| {
        let _ = writeln!(body, "<path d=\"M{MARGIN} {y:.1}H{right:.1}\" stroke=\"#e5e7eb\"/>");
    };
    line(body, top);
    let y = marks(body, picture, top + 28.0);
    line(body, y + 18.0);
    table(body, picture, y + 46.0)
}

/// Draws the two lines of examples that explain the cells.
fn marks(body: &mut String, picture: &Picture, y: f64) -> f64 {
    text(body, "heading", (MARGIN, y), format!("One cell: {}", binary(picture.cell_bytes)));
    let kind = match picture.classes.is_empty() {
        true => CellKind::Metadata,
        false => CellKind::Slab(0),
    };
    let example = |kind: CellKind, allocated: f32| Cell {
        kind,
        parts: vec![CellPart { kind, share: 1.0, allocated }],
        allocated,
        stored: 1.0,
        resident: 0.0,
        dirty: 0.0,
    };
    let mut examples = vec![
        (example(kind, 0.4), "filled: allocated"),
        (Cell { resident: 1.0, ..example(kind, 1.0) }, "line: in memory (page cache)"),
        (example(CellKind::Free, 0.0), "free, written once"),
        (Cell { stored: 0.0, ..example(CellKind::Free, 0.0) }, "never written, no space on disk"),
    ];
    if picture.map.uncommitted {
        let dirty = Cell { dirty: 1.0, ..example(kind, 1.0) };
        examples.push((dirty, "corner: changed since the commit"));
    }
    for (at, (cell, words)) in examples.iter().enumerate() {
        let x = MARGIN + 170.0 + 260.0 * (at % 3) as f64;
        let y = y + 28.0 * (at / 3) as f64;
        square(body, cell, (x, y - 13.0), 18.0);
        text(body, "", (x + 28.0, y), words);
    }
    y + 28.0
}

/// Draws the table of block sizes and other uses, in one or two columns.
fn table(body: &mut String, picture: &Picture, top: f64) -> f64 {
    let lines = entries(picture);
    let columns = if lines.len() > LEGEND_LINES { 2 } else { 1 };
    let width = (1000.0 - 2.0 * MARGIN - LEGEND_GAP) / 2.0;
    let per_column = lines.len().div_ceil(columns);
    for (column, lines) in lines.chunks(per_column).enumerate() {
        let left = MARGIN + column as f64 * (width + LEGEND_GAP);
        let numbers = [left + 170.0, left + 340.0, left + width];
        text(body, "heading", (left, top), if column == 0 { "Use" } else { "" });
        for (x, words) in numbers.into_iter().zip(["slabs", "blocks", "bytes"]) {
            text(body, "faint number", (x, top), words);
        }
        for (at, (kind, what, cells)) in lines.iter().enumerate() {
            let y = top + LINE * (at + 1) as f64;
            body.push_str("<g class=\"entry\">");
            rect(body, &class_of(*kind), (left, y - 11.0), (13.0, 13.0));
            text(body, "", (left + 22.0, y), what);
            for (x, words) in numbers.into_iter().zip(cells) {
                if !words.is_empty() {
                    text(body, "number", (x, y), words);
                }
            }
            body.push_str("</g>\n");
        }
    }
    top + LINE * per_column as f64
}

/// Returns the rows of the table: kind, name, and the numbers of slabs, blocks and bytes.
fn entries(picture: &Picture) -> Vec<(CellKind, String, [String; 3])> {
    let totals = &picture.totals;
    let mut entries = Vec::new();
    for (class, of) in picture.classes.iter().enumerate() {
        let blocks = format!("{} of {}", count(of.blocks), count(of.blocks_max));
        let in_all = bytes(of.blocks * u64::from(of.block_bytes));
        let what = counted(of.block_bytes.into(), "byte");
        entries.push((CellKind::Slab(class), what, [count(of.slabs), blocks, in_all]));
    }
    let none = String::new;
    if totals.large_blocks > 0 {
        let cells = [none(), count(totals.large_blocks), bytes(totals.large_bytes)];
        entries.push((CellKind::Large(0), "large blocks".to_string(), cells));
    }
    let cells = [none(), none(), bytes(totals.metadata_bytes)];
    entries.push((CellKind::Metadata, "metadata".to_string(), cells));
    let cells = [none(), none(), bytes(totals.free_chunks * CHUNK_BYTES)];
    entries.push((CellKind::Free, "free".to_string(), cells));
    if picture.has(CellKind::Unknown) {
        entries.push((CellKind::Unknown, "damaged metadata".to_string(), Default::default()));
    }
    entries
}

/// Formats bytes in decimal units: `12.3 kB`.
fn bytes(number: u64) -> String {
    humansize::format_size(number, DECIMAL.decimal_places(1).decimal_zeroes(1))
}

/// Formats a power of two in binary units: `64 KiB`.
fn binary(number: u64) -> String {
    match number {
        number if number >= 1 << 30 => format!("{} GiB", number >> 30),
        number if number >= 1 << 20 => format!("{} MiB", number >> 20),
        number => format!("{} KiB", number >> 10),
    }
}

fn shortened(name: &str, characters_max: usize) -> String {
    match name.chars().count() > characters_max {
        true => name.chars().take(characters_max - 1).chain(['…']).collect(),
        false => name.to_string(),
    }
}

/// Escapes text for XML. Characters that XML does not allow become replacement characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            character if character.is_control() => escaped.push('\u{fffd}'),
            character => escaped.push(character),
        }
    }
    escaped
}
