//! An object's picture in characters: half blocks with colours, or letters.

use console::Term;
use evermap::tools::{Cell, CellKind, Colour, ObjectMap, Picture};

use crate::failure::Failure;
use crate::output::{self, Output};

/// Lines of cells that a picture has at most; it has fewer on a low terminal.
const LINES: u16 = 24;
/// Columns where there is no terminal.
const COLUMNS_WITHOUT_TERMINAL: u16 = 80;
/// What dark parts are mixed with, and pale ones.
const DARK: Colour = Colour::new(0x12, 0x16, 0x1e);
const PALE: Colour = Colour::new(0x3a, 0x42, 0x50);

/// How a picture is drawn.
pub struct Looks {
    pub columns: usize,
    pub lines: usize,
    pub colours: Colours,
}

/// What colours there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// Letters instead.
    None,
    /// The 6 by 6 by 6 cube that every terminal has.
    Few,
    All,
}

impl Looks {
    pub fn of_terminal(wide: bool, no_color: bool) -> Looks {
        let terminal = Term::stdout();
        let (lines, columns) = terminal.size_checked().unwrap_or((0, COLUMNS_WITHOUT_TERMINAL));
        // Room for what stands around the cells, if the terminal has it.
        let lines = lines.saturating_sub(12).clamp(8, LINES);
        let all = std::env::var("COLORTERM").is_ok_and(|c| c == "truecolor" || c == "24bit");
        let colours = match (no_color || !console::colors_enabled(), all) {
            (true, _) => Colours::None,
            (false, true) => Colours::All,
            (false, false) => Colours::Few,
        };
        let columns_max = if wide { u16::MAX } else { 128 };
        Looks { columns: columns.clamp(24, columns_max) as usize, lines: lines as usize, colours }
    }

    /// `words` in a colour, on another one.
    fn painted(&self, words: &str, ink: Colour, paper: Option<Colour>) -> String {
        let code = |layer: u8, colour: Colour| match self.colours {
            Colours::All => {
                format!("\x1b[{layer};2;{};{};{}m", colour.red, colour.green, colour.blue)
            }
            _ => format!("\x1b[{layer};5;{}m", cube(colour)),
        };
        match self.colours {
            Colours::None => words.to_string(),
            _ => {
                let paper = paper.map(|paper| code(48, paper)).unwrap_or_default();
                format!("{}{paper}{words}\x1b[0m", code(38, ink))
            }
        }
    }
}

/// The nearest of the 216 colours.
fn cube(colour: Colour) -> u8 {
    const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let nearest = |part: u8| {
        (0..6u8).min_by_key(|step| STEPS[*step as usize].abs_diff(part)).unwrap_or_default()
    };
    16 + 36 * nearest(colour.red) + 6 * nearest(colour.green) + nearest(colour.blue)
}

/// Draws an object: title, cells, legend.
pub fn draw(map: &ObjectMap, looks: &Looks, output: &mut Output) -> Result<(), Failure> {
    let rows = match looks.colours {
        Colours::None => looks.lines,
        _ => looks.lines * 2,
    };
    let picture = map.picture(looks.columns * rows);
    let totals = &picture.totals;
    output.line(&format!(
        "{}: commit {}, file {}, {} blocks with {}, {} in memory",
        output::plain(&picture.name),
        picture.sequence,
        output::bytes(picture.file_bytes),
        output::count(totals.blocks),
        output::bytes(totals.allocated_bytes),
        output::bytes(totals.resident_bytes),
    ))?;
    for (number, region) in picture.regions.iter().enumerate() {
        output.line("")?;
        output.line(&format!(
            "region {number} at {:#x}: {} in the file, room for {}",
            region.base,
            output::bytes(region.length_bytes),
            output::bytes(region.capacity_bytes)
        ))?;
        match looks.colours {
            Colours::None => letters(&picture, &region.cells, looks, output)?,
            _ => half_blocks(&picture, &region.cells, looks, output)?,
        }
    }
    output.line("")?;
    legend(&picture, looks, output)
}

/// Two rows of cells a line: the upper one in the character's colour, the lower one behind it.
fn half_blocks(
    picture: &Picture,
    cells: &[Cell],
    looks: &Looks,
    output: &mut Output,
) -> Result<(), Failure> {
    for rows in cells.chunks(looks.columns * 2) {
        let (upper, lower) = rows.split_at(rows.len().min(looks.columns));
        let mut line = String::new();
        for (column, cell) in upper.iter().enumerate() {
            let below = lower.get(column).map(|cell| shade(picture, cell));
            line.push_str(&looks.painted("▀", shade(picture, cell), below));
        }
        output.line(&line)?;
    }
    Ok(())
}

/// A cell as one colour: the paler the emptier, dark where nothing was written, and darker when it is
/// not in memory.
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
    looks: &Looks,
    output: &mut Output,
) -> Result<(), Failure> {
    for row in cells.chunks(looks.columns) {
        let line: String = row.iter().map(|cell| letter(picture, cell)).collect();
        output.line(&line)?;
    }
    Ok(())
}

/// A cell as a character: capitals where it is at least half full.
fn letter(picture: &Picture, cell: &Cell) -> char {
    match cell.kind {
        _ if cell.stored == 0.0 && cell.allocated == 0.0 => ' ',
        CellKind::Slab(_) if cell.allocated == 0.0 => '.',
        kind if cell.allocated >= 0.5 => sign(picture, kind).to_ascii_uppercase(),
        kind => sign(picture, kind),
    }
}

/// The character of a kind.
fn sign(picture: &Picture, kind: CellKind) -> char {
    match kind {
        CellKind::Metadata => '#',
        // More than there are letters for share the last one.
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

fn legend(picture: &Picture, looks: &Looks, output: &mut Output) -> Result<(), Failure> {
    let swatch = |kind: CellKind| match looks.colours {
        Colours::None => match kind {
            CellKind::Large(_) => "= +".to_string(),
            kind => format!("{}  ", sign(picture, kind)),
        },
        _ => {
            let colour = if kind == CellKind::Free { PALE } else { picture.colour(kind) };
            looks.painted("███", colour, None)
        }
    };
    let mut say = |kind: CellKind, what: String, rest: String| {
        output.line(&format!("{} {what:<14} {rest}", swatch(kind)))
    };
    for (class, of) in picture.classes.iter().enumerate() {
        let in_all = output::bytes(of.blocks * u64::from(of.block_bytes));
        let blocks =
            format!("{} of {} blocks", output::count(of.blocks), output::count(of.blocks_max));
        let what = format!("{} bytes", output::count(u64::from(of.block_bytes)));
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
    let reading = match looks.colours {
        Colours::None => "capital: at least half allocated; blank: never written",
        _ => "paler: emptier; darker: not in memory; black: never written",
    };
    output.line(&format!("{reading}; one cell: {} KiB", picture.cell_bytes >> 10))
}
