//! Tests features of HTML that the viewer adds to the engine, by comparing layouts with equivalent
//! pages or by the page's text.
#![allow(clippy::unwrap_used)]

use url::Url;

use super::tests::{Laid, lay_out, page_of, painted_from_the_block};
use crate::layout::Layout;
use crate::page::Block;

const LAYOUT: Layout = Layout { width: 400, height: 200, scale: 1.0 };

fn laid(html: &str) -> Laid {
    let page = format!("<!doctype html><body>{html}");
    lay_out(page.as_bytes(), &Url::parse("file:///nowhere/page.html").unwrap(), LAYOUT)
}

fn pixels(html: &str) -> Vec<u32> {
    painted_from_the_block(&page_of(laid(html).recorded), LAYOUT.width, LAYOUT.height)
}

fn text(html: &str) -> String {
    let recorded = laid(html).recorded;
    let text = Block::new(recorded.block.as_bytes()).unwrap().searchable().to_string();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn height(html: &str) -> f64 {
    let all = format!("{html}<p id=end style='margin:0'>x");
    let recorded = laid(&all).recorded;
    Block::new(recorded.block.as_bytes()).unwrap().anchor("end").unwrap()
}

fn assert_alike(one: &str, other: &str) {
    assert!(pixels(one) == pixels(other), "{one} does not look like {other}");
}

fn assert_different(one: &str, other: &str) {
    assert!(pixels(one) != pixels(other), "{one} looks like {other}");
}

#[test]
fn a_missing_image_shows_its_alternative_text() {
    assert_eq!(text("<p>a <img src=missing.png alt='x squared'> b"), "a x squared b");
    assert_eq!(text("<img alt='no address'>"), "no address");
    assert_eq!(text("a<img src=missing.png alt=''><img src=missing.png>b"), "ab");
    let sized = "<img src=missing.png alt=text width=100 height=50>";
    assert_eq!(text(sized), "text");
    assert_eq!(
        height(&format!("<div>{sized}</div>")).floor(),
        height("<div><img width=100 height=50></div>").floor()
    );
    assert_eq!(text("<a href=x style='display:none'><img src=missing.png alt=hidden></a>b"), "b");
}

#[test]
fn closed_details_show_only_their_summary() {
    let body = "text <p>more</p> text";
    assert_eq!(text(&format!("<details><summary>Sum</summary>{body}</details>")), "\u{25b8} Sum");
    assert_eq!(
        text(&format!("<details open><summary>Sum</summary>{body}</details>")),
        "\u{25be} Sum text more text"
    );
    assert_eq!(text(&format!("<details>{body}</details>")), "\u{25b8} Details");
    assert_eq!(
        text(&format!("<style>details p {{ display: block }}</style><details>{body}</details>")),
        "\u{25b8} Details"
    );
    assert_different(
        "<details><summary>S</summary></details>",
        "<details open><summary>S</summary></details>",
    );
}

#[test]
fn a_caption_gets_room_beside_its_table() {
    let table = "<table border=1><caption>Caption</caption><tr><td>cell<td>cell</table>";
    let without = "<table border=1><tr><td>cell<td>cell</table>";
    assert!(text(table).contains("Caption"), "{}", text(table));
    let line = height("<div>Caption</div>") - height("");
    let below = table.replace("<caption>", "<caption align=bottom>");
    assert_different(table, &below);
    // Margins collapse as they do without a caption.
    for (before, after) in [
        ("", ""),
        ("<p>before</p>", "<p>after</p>"),
        ("<div style='margin:30px'>", "</div>"),
        ("<div style='margin:9px'><div style='margin:30px'>", "</div></div>"),
        ("<div style='padding:30px'>", "</div>"),
        ("<div style='display:flex'><p>a</p>", "</div>"),
        ("<p>before</p>some text", "and more"),
    ] {
        let higher = |table: &str| {
            height(&format!("{before}{table}{after}"))
                - height(&format!("{before}{without}{after}"))
        };
        for table in [table, &below] {
            let room = higher(table);
            // A taller neighbour leaves room for the caption too.
            let least = if before.contains("flex") { 0.0 } else { line - 1.0 };
            assert!((least..=line + 1.0).contains(&room), "{before} {table}: {room}, {line}");
        }
    }
}

#[test]
fn table_attributes_set_borders_spacing_and_colours() {
    let cells = "<tr><td>a<td>b";
    let styled = |table: &str, cell: &str| {
        format!("<table style='{table}'><tr><td style='{cell}'>a<td style='{cell}'>b</table>")
    };
    assert_alike(
        &format!("<table border=3>{cells}</table>"),
        &styled("border:3px outset #808080", "border:1px inset #808080"),
    );
    assert_alike(&format!("<table border=0>{cells}</table>"), &styled("", ""));
    assert_alike(
        &format!("<table cellspacing=8 cellpadding=10>{cells}</table>"),
        &styled("border-spacing:8px", "padding:10px"),
    );
    for color in ["#fcc", "#ffcccc"] {
        assert_alike(
            &format!("<table bgcolor={color}>{cells}</table>"),
            &styled("background:#fcc", ""),
        );
        assert_alike(
            &format!("<table><tr><td bgcolor={color}>a<td bgcolor={color}>b</table>"),
            &styled("", "background:#fcc"),
        );
    }
}

/// A cell's height is a minimum.
#[test]
fn cells_are_as_high_as_their_rows() {
    let style = "<style>table { border-spacing: 0 } td { padding: 0; background: #f00; vertical-align: top }</style>";
    let blue = |cells: &str| {
        let html = format!("{style}<table style='background:#00f'>{cells}</table>");
        let pixels = pixels(&html);
        pixels.iter().filter(|pixel| **pixel == 0x0000_00ff).count()
    };
    let tall = "<td style='width:20px'><div style='height:60px'></div>";
    assert_eq!(blue(&format!("<tr><td style='height:20px;width:20px'>{tall}")), 0);
    assert_eq!(blue(&format!("<tr><td height=20 width=20>{tall}")), 0);
    assert_eq!(
        blue(&format!("<tr><td rowspan=2 style='height:20px;width:20px'>{tall}<tr>{tall}")),
        0
    );
}

#[test]
fn a_select_shows_its_selected_option() {
    let options = "<option>One<option selected>Two<option>Three";
    assert_eq!(text(&format!("<select>{options}</select>")), "Two\u{25be}");
    assert_eq!(text("<select><option disabled>No<option label=Yes>y</select>"), "Yes\u{25be}");
    let list = text(&format!("<select multiple>{options}</select>"));
    assert_eq!(list, "One Two Three");
    let group = "<optgroup label=Group><option>One</optgroup>";
    assert_eq!(text(&format!("<select multiple>{group}</select>")), "Group One");
    assert_eq!(text(&format!("<select>{group}</select>")), "One\u{25be}");
    assert_eq!(text("<select></select>"), "\u{25be}");
}

#[test]
fn progress_and_meter_are_bars() {
    let empty = pixels("<progress value=0></progress>");
    let half = pixels("<progress value=.5>50 %</progress>");
    let full = pixels("<progress value=7 max=7></progress>");
    assert!(empty != half && half != full && empty != full);
    assert_eq!(text("<progress value=.5>50 %</progress><meter value=1>one</meter>"), "");
    assert_alike("<meter min=10 max=20 value=15></meter>", "<meter value=.5></meter>");
    assert_different(
        "<meter value=.9 low=.2 high=.8 optimum=.1></meter>",
        "<meter value=.9></meter>",
    );
}

#[test]
fn empty_fields_show_their_placeholder() {
    for (with, without) in [
        ("<input placeholder=Search>", "<input>"),
        ("<input type=password placeholder=Secret>", "<input type=password>"),
        ("<textarea placeholder=Words></textarea>", "<textarea></textarea>"),
    ] {
        assert_different(with, without);
    }
    assert_alike("<input value=text placeholder=Search>", "<input value=text>");
    assert_alike("<textarea placeholder=Words>text</textarea>", "<textarea>text</textarea>");
}

#[test]
fn quotations_have_quotation_marks() {
    assert_eq!(text("<q>a <q>b</q></q>"), "\u{201c}a \u{2018}b\u{2019}\u{201d}");
    assert_eq!(text("<p lang=de><q>a</q>"), "\u{201e}a\u{201c}");
    let nested = "<b lang=de-AT><q>a <q>b</q></q></b> <i lang=fr><q>c</q></i>";
    let marks = "\u{201e}a \u{201a}b\u{2018}\u{201c} \u{ab} c \u{bb}";
    assert_eq!(text(nested), marks);
    // A second layout of the page must not add the marks again.
    assert_eq!(text(&format!("{nested}<img alt=d>")), format!("{marks}d"));
}

#[test]
fn code_uses_a_monospaced_font() {
    let reference = "<span style='font-family:monospace'>iiii mmmm</span>";
    assert_different(reference, "<span>iiii mmmm</span>");
    for name in ["code", "kbd", "samp", "tt"] {
        assert_alike(&format!("<{name}>iiii mmmm</{name}>"), reference);
    }
    let block = "<div style='font-family:monospace;white-space:pre;margin:1em 0'>ii\nmm</div>";
    assert_alike("<pre>ii\nmm</pre>", block);
}

#[test]
fn lists_are_counted_in_every_style() {
    let list = |style: &str, markers: &[&str]| {
        let items = "<li>x".repeat(markers.len());
        let expected: String = markers
            .iter()
            .map(|m| format!("<li style='list-style-type:\"{m}.\u{a0}\"'>x"))
            .collect();
        assert_alike(&format!("<ol {style}>{items}</ol>"), &format!("<ol>{expected}</ol>"));
    };
    list("type=I", &["I", "II", "III", "IV"]);
    list("type=i", &["i", "ii"]);
    list("style='list-style-type:lower-greek'", &["α", "β", "γ"]);
    list("style='list-style-type:upper-latin'", &["A", "B"]);
    list("start=-1", &["-1", "0"]);
    list("style='list-style-type:decimal-leading-zero'", &["01", "02"]);
    list("style='list-style-type:khmer'", &["1", "2"]);
    list("start=0", &["0", "1"]);
    assert_alike(
        "<ol start=9><li>x<li>x</ol>",
        "<ol><li style='list-style-type:\"9. \"'>x<li style='list-style-type:\"10. \"'>x</ol>",
    );
    list("reversed", &["3", "2", "1"]);
    list("reversed start=2 type=I", &["II", "I", "0"]);
    assert_alike(
        "<ol><li>x<li value=7>x<li>x</ol>",
        "<ol><li style='list-style-type:\"1.\u{a0}\"'>x<li style='list-style-type:\"7.\u{a0}\"'>x<li style='list-style-type:\"8.\u{a0}\"'>x</ol>",
    );
}

#[test]
fn no_line_crosses_a_cell_over_several_columns_or_rows() {
    let style = "<style>table { border-collapse: collapse } td { border: 2px solid #f00; padding: 0; width: 60px; height: 20px }</style>";
    let red = |html: &str| {
        let pixels = pixels(&format!("{style}{html}"));
        let row = |y: usize| {
            let row = &pixels[y * LAYOUT.width as usize..][..LAYOUT.width as usize];
            let mut lines = 0;
            let mut before = false;
            for pixel in row {
                let is_red = *pixel == 0x00ff_0000;
                lines += usize::from(is_red && !before);
                before = is_red;
            }
            lines
        };
        // In the middle of the first and of the second row. The page has a margin of 8 pixels.
        (row(8 + 12), row(8 + 34))
    };
    assert_eq!(red("<table><tr><td><td><td><tr><td><td><td></table>"), (4, 4));
    assert_eq!(red("<table><tr><td colspan=2><td><tr><td><td><td></table>"), (3, 4));
    assert_eq!(red("<table><tr><td><td><td><tr><td colspan=3></table>"), (4, 2));
    // A cell that spans two rows has no line between them.
    let tall = pixels(&format!("{style}<table><tr><td rowspan=2><td><tr><td></table>"));
    let column: Vec<bool> =
        (12..50).map(|y| tall[y * LAYOUT.width as usize + 30] == 0x00ff_0000).collect();
    let first_end = column.iter().position(|red| *red);
    assert!(first_end.is_none_or(|at| at > 30), "{column:?}");
}

#[test]
fn elements_nested_too_deep_become_siblings() {
    let html = format!("{}deep", "<div>".repeat(2_000));
    let laid = laid(&html);
    assert_eq!(laid.laid_out.left_out().len(), 1);
    let block = Block::new(laid.recorded.block.as_bytes()).unwrap();
    assert_eq!(block.searchable().trim(), "deep");
}

#[test]
fn a_table_with_too_many_columns_keeps_the_first_ones() {
    let laid = laid(&format!("<table><tr>{}<td>last</table>", "<td colspan=1000>x".repeat(12)));
    assert_eq!(laid.laid_out.left_out().len(), 1);
    let block = Block::new(laid.recorded.block.as_bytes()).unwrap();
    assert_eq!(block.searchable().matches('x').count(), 10);
    assert!(!block.searchable().contains("last"));
}
