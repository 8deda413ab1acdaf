//! Draws an object's map in the terminal: half blocks with colours, or letters.

use console::Term;
use evermap::tools::ObjectMap;

use super::{Cell, CellKind, Colour, Picture};
use crate::failure::Failure;
use crate::output::{self, Output};

/// Maximum number of lines of cells, without `--wide`. A terminal with few lines has fewer.
const LINES_MAX: u16 = 24;
/// Number of columns if the output is not a terminal.
const COLUMNS_WITHOUT_TERMINAL: u16 = 80;
/// Colour that cells are mixed with if they are not in memory.
const DARK: Colour = Colour::new(0x12, 0x16, 0x1e);
/// Colour that cells are mixed with if they are partly free.
const PALE: Colour = Colour::new(0x3a, 0x42, 0x50);

/// Size and colours of a picture.
pub struct Style {
    pub columns: usize,
    pub lines: usize,
    pub colours: Colours,
}

/// Colours of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// No colours: letters are drawn instead.
    None,
    /// The cube of 6 by 6 by 6 colours, which every colour terminal has.
    Few,
    All,
}

impl Style {
    /// Returns the style for the terminal on stdout.
    pub fn of_terminal(wide: bool, no_color: bool) -> Style {
        let terminal = Term::stdout();
        let of_terminal = terminal.size_checked();
        // A pipe or a file takes lines of any width.
        let without = if wide { 2 * COLUMNS_WITHOUT_TERMINAL } else { COLUMNS_WITHOUT_TERMINAL };
        let (lines, columns) = of_terminal.unwrap_or((0, without));
        // Twelve lines are left for the title and the legend, if the terminal has them.
        let lines = lines.saturating_sub(12).clamp(8, LINES_MAX);
        // A terminal cannot be wider than it is, but it can scroll.
        let lines = if wide { 2 * lines } else { lines };
        let all = std::env::var("COLORTERM").is_ok_and(|c| c == "truecolor" || c == "24bit");
        let colours = match (no_color || !console::colors_enabled(), all) {
            (true, _) => Colours::None,
            (false, true) => Colours::All,
            (false, false) => Colours::Few,
        };
        let columns_max = if wide { u16::MAX } else { 128 };
        Style { columns: columns.clamp(24, columns_max) as usize, lines: lines as usize, colours }
    }

    /// Returns `text` with the escape codes of a foreground and a background colour.
    fn coloured(&self, text: &str, foreground: Colour, background: Option<Colour>) -> String {
        let code = |layer: u8, colour: Colour| match self.colours {
            Colours::All => {
                format!("\x1b[{layer};2;{};{};{}m", colour.red, colour.green, colour.blue)
            }
            _ => format!("\x1b[{layer};5;{}m", cube(colour)),
        };
        match self.colours {
            Colours::None => text.to_string(),
            _ => {
                let background = background.map(|colour| code(48, colour)).unwrap_or_default();
                format!("{}{background}{text}\x1b[0m", code(38, foreground))
            }
        }
    }
}

/// Returns the number of the nearest of the 216 colours.
fn cube(colour: Colour) -> u8 {
    const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let nearest = |part: u8| {
        (0..6u8).min_by_key(|step| STEPS[*step as usize].abs_diff(part)).unwrap_or_default()
    };
    16 + 36 * nearest(colour.red) + 6 * nearest(colour.green) + nearest(colour.blue)
}

/// Draws an object: title, cells, legend.
pub fn draw(map: &ObjectMap, style: &Style, output: &mut Output) -> Result<(), Failure> {
    let rows = match style.colours {
        Colours::None => style.lines,
        _ => style.lines * 2,
    };
    let picture = Picture::of(map, style.columns * rows);
    let totals = &picture.totals;
    output.line(&format!(
        "{}: commit {}, file {}, {} with {}, {} in memory",
        output::plain(&map.name),
        map.sequence,
        output::bytes(map.file_bytes),
        output::counted(totals.blocks, "block"),
        output::bytes(totals.allocated_bytes),
        output::bytes(totals.resident_bytes),
    ))?;
    for (number, (region, cells)) in picture.regions.iter().enumerate() {
        output.line("")?;
        output.line(&format!(
            "region {number} at {:#x}: {} in the file, room for {}",
            region.base,
            output::bytes(region.length_bytes),
            output::bytes(region.capacity_bytes)
        ))?;
        match style.colours {
            Colours::None => letters(&picture, cells, style, output)?,
            _ => half_blocks(&picture, cells, style, output)?,
        }
    }
    output.line("")?;
    legend(&picture, style, output)
}

/// Draws two rows of cells in each line: the upper row in the foreground, the lower one in the
/// background colour.
fn half_blocks(
    picture: &Picture,
    cells: &[Cell],
    style: &Style,
    output: &mut Output,
) -> Result<(), Failure> {
    for rows in cells.chunks(style.columns * 2) {
        let (upper, lower) = rows.split_at(rows.len().min(style.columns));
        let mut line = String::new();
        for (column, cell) in upper.iter().enumerate() {
            let below = lower.get(column).map(|cell| shade(picture, cell));
            line.push_str(&style.coloured("▀", shade(picture, cell), below));
        }
        output.line(&line)?;
    }
    Ok(())
}

/// Returns the colour of a cell: paler if it is emptier, darker if it is not in memory, dark if it
/// was never written.
fn shade(picture: &Picture, cell: &Cell) -> Colour {
    let colour = match cell.kind {
        _ if cell.stored == 0.0 && cell.allocated == 0.0 => return DARK,
        CellKind::Free => PALE,
        kind => picture.colour(kind).over(PALE, 0.35 + 0.65 * cell.allocated),
    };
    colour.over(DARK, 0.5 + 0.5 * cell.resident)
}

fn letters(
    picture: &Picture,
    cells: &[Cell],
    style: &Style,
    output: &mut Output,
) -> Result<(), Failure> {
    for row in cells.chunks(style.columns) {
        let line: String = row.iter().map(|cell| letter(picture, cell)).collect();
        output.line(&line)?;
    }
    Ok(())
}

/// Returns the character of a cell: a capital letter if at least half of the cell is allocated.
fn letter(picture: &Picture, cell: &Cell) -> char {
    match cell.kind {
        _ if cell.stored == 0.0 && cell.allocated == 0.0 => ' ',
        CellKind::Slab(_) if cell.allocated == 0.0 => '.',
        kind if cell.allocated >= 0.5 => sign(picture, kind).to_ascii_uppercase(),
        kind => sign(picture, kind),
    }
}

/// Returns the character of a kind of cells.
fn sign(picture: &Picture, kind: CellKind) -> char {
    match kind {
        CellKind::Metadata => '#',
        // Size classes beyond the alphabet share its last letter.
        CellKind::Slab(class) if class + 1 < picture.classes.len().min(26) => {
            (b'a' + class as u8) as char
        }
        CellKind::Slab(class) => (b'a' + class.min(25) as u8) as char,
        CellKind::Large(0) => '=',
        CellKind::Large(_) => '+',
        CellKind::Free => '.',
        CellKind::Unknown => '?',
    }
}

fn legend(picture: &Picture, style: &Style, output: &mut Output) -> Result<(), Failure> {
    let swatch = |kind: CellKind| match style.colours {
        Colours::None => match kind {
            CellKind::Large(_) => "= +".to_string(),
            kind => format!("{}  ", sign(picture, kind)),
        },
        _ => {
            let colour = if kind == CellKind::Free { PALE } else { picture.colour(kind) };
            style.coloured("███", colour, None)
        }
    };
    let mut say = |kind: CellKind, what: String, rest: String| {
        output.line(&format!("{} {what:<14} {rest}", swatch(kind)))
    };
    for (class, of) in picture.classes.iter().enumerate() {
        let in_all = output::bytes(of.blocks * u64::from(of.block_bytes));
        let blocks =
            format!("{} of {}", output::count(of.blocks), output::counted(of.blocks_max, "block"));
        let what = output::counted(u64::from(of.block_bytes), "byte");
        say(CellKind::Slab(class), what, format!("{blocks}, {in_all}"))?;
    }
    let totals = &picture.totals;
    if totals.large_blocks > 0 {
        let rest = format!(
            "{}, {}",
            output::count(totals.large_blocks),
            output::bytes(totals.large_bytes)
        );
        say(CellKind::Large(0), "large blocks".to_string(), rest)?;
    }
    say(CellKind::Metadata, "metadata".to_string(), output::bytes(totals.metadata_bytes))?;
    let free = output::bytes(totals.free_chunks * 65_536);
    say(CellKind::Free, "free".to_string(), free)?;
    if picture.has(CellKind::Unknown) {
        say(CellKind::Unknown, "damaged".to_string(), String::new())?;
    }
    let key = match style.colours {
        Colours::None => "capital: at least half allocated; blank: never written",
        _ => "paler: emptier; darker: not in memory; black: never written",
    };
    output.line(&format!("{key}; one cell: {} KiB", picture.cell_bytes >> 10))
}
