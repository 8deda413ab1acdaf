//! Changes a page after its first layout. These changes depend on styles and on loaded resources.
//! If there are any, the page is laid out again.
//!
//! The changes are: alternative text of missing images, list markers that the engine can't count,
//! room for captions, cells as high as their rows, and borders of tables whose cells span columns
//! or rows, which the engine would draw across those cells.

use std::collections::HashMap;

use blitz_dom::{BaseDocument, LocalName, Namespace, Node, NodeId, QualName};

use super::adapt::CAPTION;
use super::markers;
use super::node::{attribute, children_named, name_of, style_of};

/// Tables with more cells keep their borders.
const CELLS_MAX: usize = 20_000;
/// Maximum number of images and of tables to change. A change costs a walk over the siblings.
const CHANGES_MAX: usize = 5_000;
/// Smallest width and height of an image whose text gets a box of that size, in CSS pixels.
const BOX_MIN: f32 = 16.0;

/// Attribute whose change makes the engine rebuild a table. The engine builds a table only once
/// from the styles of its cells.
const REBUILT: &str = "evermap-rebuilt";

/// Makes the changes. Returns true if there were any.
pub(super) fn adjust(document: &mut BaseDocument) -> bool {
    let found = Candidates::on(document);
    let mut changed = false;
    for image in found.images.iter().take(CHANGES_MAX) {
        changed |= show_alternative_text(document, *image);
    }
    changed |= markers::set(document, &found.lists);
    for table in found.tables.iter().take(CHANGES_MAX) {
        let grid = Grid::of(document, *table);
        changed |= stretch_cells(document, &grid);
        changed |= separate_borders(document, *table, &grid);
        changed |= make_room_for_caption(document, *table);
    }
    changed
}

/// Elements that may change, in document order.
#[derive(Default)]
struct Candidates {
    images: Vec<NodeId>,
    lists: Vec<NodeId>,
    tables: Vec<NodeId>,
}

impl Candidates {
    fn on(document: &BaseDocument) -> Candidates {
        let mut found = Candidates::default();
        let mut waiting = vec![document.root_node().id];
        while let Some(id) = waiting.pop() {
            let Some(node) = document.get_node(id) else { continue };
            match name_of(node) {
                "img" => found.images.push(id),
                "ol" | "ul" | "menu" | "dir" => found.lists.push(id),
                "table" => found.tables.push(id),
                _ => (),
            }
            waiting.extend(node.children.iter().rev().copied());
        }
        found
    }
}

/// Replaces a missing image by its alternative text.
fn show_alternative_text(document: &mut BaseDocument, image: NodeId) -> bool {
    let Some(node) = document.get_node(image) else { return false };
    let missing = node.element_data().is_some_and(|element| element.image_data().is_none());
    let alternative = attribute(node, "alt").map(str::trim).unwrap_or_default().to_string();
    if !missing || alternative.is_empty() {
        return false;
    }
    let display = style_of(document, image, "display");
    if display.is_empty() || display == "none" {
        return false;
    }
    let size = document.get_node(image).map(|node| node.final_layout().size);
    let (width, height) = size.map_or((0.0, 0.0), |size| (size.width, size.height));
    let mut attributes = Vec::new();
    let mut style = String::new();
    if width >= BOX_MIN && height >= BOX_MIN {
        attributes.push(("evermap-box", String::new()));
        style = format!("width:{width}px;height:{height}px;");
    }
    if display == "block" {
        style.push_str("display:block;");
    }
    let float = style_of(document, image, "float");
    if matches!(float.as_str(), "left" | "right") {
        style.push_str(&format!("float:{float};"));
    }
    if !style.is_empty() {
        attributes.push(("style", style));
    }
    let attributes = attributes.into_iter().map(|(name, value)| blitz_dom::Attribute {
        name: plain(name),
        value: value.as_str().into(),
    });
    let attributes = attributes.collect();
    let mut mutator = document.mutate();
    let text = mutator.create_text_node(&alternative);
    let html = Namespace::from("http://www.w3.org/1999/xhtml");
    let name = QualName { prefix: None, ns: html, local: LocalName::from("evermap-alt") };
    let shown = mutator.create_element(name, attributes);
    mutator.append_children(shown, &[text]);
    mutator.insert_nodes_before(image, &[shown]);
    mutator.set_style_property(image, "display", "none");
    true
}

fn plain(name: &str) -> QualName {
    QualName { prefix: None, ns: Namespace::from(""), local: LocalName::from(name) }
}

/// Gives a table a margin as high as its caption, on the caption's side.
fn make_room_for_caption(document: &mut BaseDocument, table: NodeId) -> bool {
    let Some(side) = document.get_node(table).and_then(|node| attribute(node, CAPTION)) else {
        return false;
    };
    let margin = if side == "bottom" { "margin-bottom" } else { "margin-top" };
    let Some(caption) = children_named(document, table, &["caption"]).first().copied() else {
        return false;
    };
    let height = document.get_node(caption).map_or(0.0, |node| node.final_layout().size.height);
    if height <= 0.0 {
        return false;
    }
    let room = height
        + match side {
            "bottom" => gap_below(document, table),
            _ => gap_above(document, table),
        };
    document.mutate().set_style_property(table, margin, &format!("{room}px"));
    true
}

/// Returns the margin above a box after layout. Adjacent margins, including those of a box and its
/// first child, collapse into the largest. The table must keep this distance when it gets room for
/// its caption.
fn gap_above(document: &BaseDocument, table: NodeId) -> f32 {
    let margin = pixels_of(&style_of(document, table, "margin-top"));
    let mut at = table;
    while is_in_flow(document, at) {
        let Some(node) = document.get_node(at) else { break };
        let Some(parent) = node.parent.and_then(|id| document.get_node(id)) else { break };
        let top = node.final_layout().location.y;
        let position = parent.children.iter().position(|id| *id == at).unwrap_or(0);
        match nearest_in_flow(document, parent.children[..position].iter().rev()) {
            Sibling::Line => return margin,
            Sibling::Block(before) => {
                let layout = before.final_layout();
                return margin.max(top - layout.location.y - layout.size.height);
            }
            Sibling::Nothing => (),
        }
        let layout = parent.final_layout();
        let inside = top - layout.border.top - layout.padding.top;
        if inside > 0.0 || layout.border.top + layout.padding.top > 0.0 {
            return margin.max(inside);
        }
        at = parent.id;
    }
    margin
}

/// Returns the margin below a box, like [`gap_above`]. The distance between a box and the end of
/// its parent may include more than margins, so the margins themselves are compared.
fn gap_below(document: &BaseDocument, table: NodeId) -> f32 {
    let margin_of = |id: NodeId| pixels_of(&style_of(document, id, "margin-bottom"));
    let mut margin = margin_of(table);
    let mut at = table;
    while is_in_flow(document, at) {
        let Some(node) = document.get_node(at) else { break };
        let Some(parent) = node.parent.and_then(|id| document.get_node(id)) else { break };
        let layout = node.final_layout();
        let bottom = layout.location.y + layout.size.height;
        match nearest_in_flow(document, parent.children.iter().skip_while(|id| **id != at).skip(1))
        {
            Sibling::Line => break,
            Sibling::Block(next) => return margin.max(next.final_layout().location.y - bottom),
            Sibling::Nothing => (),
        }
        let around = parent.final_layout();
        let inside = around.border.bottom + around.padding.bottom;
        if inside > 0.0 || (around.size.height - bottom).abs() > 0.5 {
            break;
        }
        at = parent.id;
        margin = margin.max(margin_of(at));
    }
    margin
}

/// Neighbour of a block in its parent's flow.
enum Sibling<'a> {
    Block(&'a Node),
    /// A line of text, which has no margins.
    Line,
    Nothing,
}

/// Returns the first of the siblings that takes part in the flow.
fn nearest_in_flow<'a, 'b>(
    document: &'a BaseDocument,
    siblings: impl Iterator<Item = &'b NodeId>,
) -> Sibling<'a> {
    for id in siblings {
        let Some(node) = document.get_node(*id) else { continue };
        if is_in_flow(document, *id) {
            return Sibling::Block(node);
        }
        let is_line = match node.element_data() {
            Some(_) => style_of(document, *id, "display").starts_with("inline"),
            None => node.is_text_node() && !node.is_whitespace_node(),
        };
        if is_line {
            return Sibling::Line;
        }
    }
    Sibling::Nothing
}

/// Returns true for a block whose margins can collapse with others.
fn is_in_flow(document: &BaseDocument, id: NodeId) -> bool {
    let is = |property: &str, values: &[&str]| {
        values.contains(&style_of(document, id, property).as_str())
    };
    is("display", &["block", "table", "list-item"])
        && is("float", &["none"])
        && is("position", &["static", "relative"])
}

/// Stretches the cells of a table to the height of their rows. The engine treats a cell's height as
/// exact instead of as a minimum.
fn stretch_cells(document: &mut BaseDocument, grid: &Grid) -> bool {
    let edges = |document: &BaseDocument, cell: &Cell| {
        let layout = document.get_node(cell.id)?.final_layout();
        Some((cell.row + cell.rows, layout.location.y + layout.size.height))
    };
    let mut ends: HashMap<usize, f32> = HashMap::new();
    for (row, bottom) in grid.cells.iter().filter_map(|cell| edges(document, cell)) {
        let end = ends.entry(row).or_insert(bottom);
        *end = end.max(bottom);
    }
    let short: Vec<(NodeId, String)> = grid
        .cells
        .iter()
        .filter(|cell| edges(document, cell).is_some_and(|(row, bottom)| bottom + 0.5 < ends[&row]))
        .map(|cell| (cell.id, style_of(document, cell.id, "height")))
        .filter(|(_, height)| pixels_of(height) > 0.0)
        .collect();
    let mut mutator = document.mutate();
    for (cell, height) in &short {
        mutator.set_style_property(*cell, "min-height", height);
        mutator.set_style_property(*cell, "height", "auto");
        mutator.set_attribute(*cell, plain(REBUILT), "");
    }
    !short.is_empty()
}

fn pixels_of(value: &str) -> f32 {
    value.trim_end_matches("px").parse().unwrap_or(0.0)
}

/// Separates the collapsed borders of a table if any cell spans columns or rows. Each cell keeps
/// its right and bottom border. Cells at the table's edges also keep their left and top border.
fn separate_borders(document: &mut BaseDocument, table: NodeId, grid: &Grid) -> bool {
    if !grid.has_spans || style_of(document, table, "border-collapse") != "collapse" {
        return false;
    }
    let has_border = |document: &BaseDocument, id: NodeId, side: &str| {
        let style = style_of(document, id, &format!("border-{side}-style"));
        let width = pixels_of(&style_of(document, id, &format!("border-{side}-width")));
        width > 0.0 && style != "none" && style != "hidden"
    };
    let bordered: Vec<&Cell> =
        grid.cells.iter().filter(|cell| has_border(document, cell.id, "right")).collect();
    let mut changes = vec![(table, "border-collapse", "separate"), (table, "border-spacing", "0")];
    for cell in &bordered {
        if cell.column > 0 {
            changes.push((cell.id, "border-left-width", "0"));
        }
        if cell.row > 0 {
            changes.push((cell.id, "border-top-width", "0"));
        }
    }
    if !bordered.is_empty() && has_border(document, table, "right") {
        // Only one of the table's border and the cell's is visible.
        changes.push((table, "border-width", "0"));
    }
    let mut mutator = document.mutate();
    for (id, property, value) in changes {
        mutator.set_style_property(id, property, value);
        mutator.set_attribute(id, plain(REBUILT), "");
    }
    true
}

struct Cell {
    id: NodeId,
    row: usize,
    /// Number of rows that the cell spans.
    rows: usize,
    column: usize,
}

/// Positions of the cells of a table.
#[derive(Default)]
struct Grid {
    cells: Vec<Cell>,
    has_spans: bool,
}

impl Grid {
    fn of(document: &BaseDocument, table: NodeId) -> Grid {
        let mut rows = Vec::new();
        for id in children_named(document, table, &["thead", "tbody", "tfoot", "tr"]) {
            match document.get_node(id).map(name_of) {
                Some("tr") => rows.push(id),
                _ => rows.extend(children_named(document, id, &["tr"])),
            }
        }
        let mut grid = Grid::default();
        // For each column, the number of rows that a cell from above still covers.
        let mut taken: Vec<usize> = Vec::new();
        let count = rows.len();
        for (row, id) in rows.into_iter().enumerate() {
            let mut column = 0;
            for id in children_named(document, id, &["td", "th"]) {
                let span = |name: &str| {
                    let node = document.get_node(id)?;
                    attribute(node, name)?.parse::<usize>().ok()
                };
                let columns = span("colspan").unwrap_or(1).clamp(1, 1000);
                let rows = span("rowspan").unwrap_or(1).max(1);
                while taken.get(column).is_some_and(|rows| *rows > 0) {
                    column += 1;
                }
                grid.has_spans |= columns > 1 || rows > 1;
                grid.cells.push(Cell { id, row, rows: rows.min(count - row), column });
                if grid.cells.len() > CELLS_MAX {
                    return Grid::default();
                }
                if taken.len() < column + columns {
                    taken.resize(column + columns, 0);
                }
                taken[column..column + columns].fill(rows);
                column += columns;
            }
            taken.iter_mut().for_each(|rows| *rows = rows.saturating_sub(1));
        }
        grid
    }
}
