//! Pages and documents made to be expensive. Each parse returns the document, or an error that
//! names the place, the limit and the remedy. The work is limited by the input's length, not by a
//! clock.
//!
//! `EVERMAP_HOSTILE_BYTES` sets the length of each page. The time of each parse is printed.
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use evermap_dom::{ParseError, ParseErrorKind, Tables, html, xml};

/// Allowed outcomes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// The document.
    Parsed,
    /// An error of the work limit.
    Refused,
    /// Either of the two.
    Either,
}

use Ends::{Either, Parsed, Refused};

fn bytes() -> usize {
    let given = std::env::var("EVERMAP_HOSTILE_BYTES").ok();
    given.map_or(300_000, |text| text.parse().unwrap())
}

/// Repeats `piece` as often as it fits.
fn fill(bytes: usize, piece: &str) -> String {
    piece.repeat(bytes / piece.len())
}

/// Repeats a piece with an increasing number.
fn numbered(bytes: usize, piece: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for number in 0.. {
        if text.len() >= bytes {
            break;
        }
        text += &piece(number);
    }
    text
}

/// All known ways to make the standard's tree construction expensive.
fn pages(bytes: usize) -> Vec<(&'static str, Ends, String)> {
    let half = bytes / 2;
    let attributes = |count: usize| numbered_count(count, |n| format!(" a{n}=x"));
    vec![
        ("nested div", Refused, fill(bytes, "<div>")),
        ("nested p and button", Either, fill(bytes, "<p><button>")),
        ("nested lists", Refused, fill(bytes, "<ul><li>")),
        ("list items in spans", Either, fill(bytes, "<li><span>")),
        ("definition lists", Refused, fill(bytes, "<dl><dd>")),
        ("nested span", Parsed, fill(bytes, "<span>")),
        ("end tags in deep spans", Refused, fill(half, "<span>") + &fill(half, "</x>")),
        ("nested tables", Either, fill(bytes, "<table><tr><td>")),
        ("tables without cells", Either, fill(bytes, "<table>")),
        ("select and option", Either, fill(bytes, "<select><option>")),
        ("nested templates", Either, fill(bytes, "<template>")),
        ("nested svg", Either, fill(bytes, "<svg><g>")),
        ("breaking out of svg", Either, format!("{}<p>", fill(bytes, "<svg><desc>"))),
        ("end tags in svg", Either, format!("<svg>{}{}", fill(half, "<g>"), fill(half, "</h>"))),
        ("nested headings", Either, fill(bytes, "<h1><h2>")),
        ("nested forms", Either, fill(half, "<form><div>") + &fill(half, "</form>")),
        ("paragraph ends", Parsed, fill(bytes, "</p>")),
        (
            "adoption over spans",
            Either,
            format!("<b>{}{}</b>", fill(half, "<span>"), fill(half, "<div>")),
        ),
        ("adoption in adoption", Either, fill(half, "<b><i><div>") + &fill(half, "</b></i>")),
        ("links in links", Either, fill(bytes, "<a><div>")),
        ("links in tables", Either, fill(bytes, "<a><table><a>")),
        ("adoption of many children", Either, format!("<b><div>{}", fill(bytes, "<br></b><b>"))),
        ("formatting that differs", Refused, numbered(bytes, |n| format!("<b x={n}>"))),
        ("formatting that is equal", Parsed, fill(bytes, "<b></b>")),
        (
            "reconstruction",
            Refused,
            format!("<p>{}</p>{}", numbered(half, |n| format!("<b x={n}>")), fill(half, "<p>x")),
        ),
        (
            "reconstruction of long values",
            Refused,
            format!("<p><b x='{}'></p>{}", "y".repeat(half), fill(half, "<p>x</p>")),
        ),
        ("markers", Either, fill(bytes, "<b><object>")),
        ("text before tables", Refused, format!("<table>{}", fill(bytes, "x<!---->"))),
        ("html again", Refused, numbered(bytes, |n| format!("<html a{n}=x>"))),
        ("body again", Refused, numbered(bytes, |n| format!("<body a{n}=x>"))),
        (
            "attributes of a tag",
            Refused,
            numbered(bytes, |n| format!(" a{n}=x")).replacen(' ', "<p ", 1),
        ),
        (
            "attributes of an end tag",
            Refused,
            format!("</p{}>", numbered(bytes, |n| format!(" a{n}"))),
        ),
        ("the same attribute", Refused, format!("<p{}{}", attributes(5000), fill(bytes, " a4999"))),
        (
            "attributes of a tag that is left out",
            Refused,
            format!("<body>{}", fill(bytes, &format!("<head{}>", attributes(5000)))),
        ),
        ("attributes of many end tags", Refused, fill(bytes, &format!("</x{}>", attributes(5000)))),
        (
            "attributes without spaces",
            Refused,
            numbered(bytes, |n| format!("a{n}=''")).replacen('a', "<p a", 1),
        ),
        ("a long value", Parsed, format!("<p title=\"{}\">", fill(bytes, "a b=c/d <e ' "))),
        ("a long comment", Parsed, format!("<!--{}-->", fill(bytes, "<p a b c "))),
        ("a long script", Parsed, format!("<script>{}</script>", fill(bytes, "i<n && a b c\n"))),
        ("references", Parsed, fill(bytes, "&amp;&notit;&")),
        ("nothing but text", Parsed, fill(bytes, "word ")),
    ]
}

fn numbered_count(count: usize, piece: impl Fn(usize) -> String) -> String {
    (0..count).map(piece).collect()
}

/// Returns true if the page has an allowed outcome.
fn check(name: &str, ends: Ends, result: &Result<Tables, ParseError>, length: usize) -> bool {
    match result {
        Ok(_) => ends != Refused,
        Err(error) => {
            let limit = matches!(
                error.kind,
                ParseErrorKind::WorkLimit { .. } | ParseErrorKind::TooManyAttributes { .. }
            );
            assert!(limit, "{name}: {error}");
            let text = error.to_string();
            assert!(text.contains("limit") && text.contains("; close the"), "{name}: {text}");
            assert!(text.contains(&format!("(byte {})", error.offset_bytes)), "{name}: {text}");
            assert!(error.offset_bytes as usize <= length, "{name}: {text}");
            ends != Parsed
        }
    }
}

fn judge(bytes: usize) {
    let mut wrong = Vec::new();
    for (number, (name, ends, page)) in pages(bytes).into_iter().enumerate() {
        let start = Instant::now();
        let result = html::parse(&page, &Default::default());
        let outcome = result.as_ref().map_or_else(ToString::to_string, |_| "parsed".to_string());
        eprintln!("{name}, {} bytes, {:?}: {outcome}", page.len(), start.elapsed());
        if !check(name, ends, &result, page.len()) {
            wrong.push(name);
        }
        // Also in pieces.
        if number % 4 == 0 {
            let mut parser = html::HtmlParser::new(&Default::default());
            for piece in page.as_bytes().chunks(10_007) {
                parser.feed(piece);
            }
            let pieces = parser.finish();
            assert_eq!(result.is_ok(), pieces.is_ok(), "{name}");
        }
    }
    assert!(wrong.is_empty(), "unexpected outcomes: {wrong:?}");
}

#[test]
fn an_expensive_page_returns_the_document_or_a_limit_error() {
    judge(bytes());
}

#[test]
#[ignore = "takes long"]
fn five_expensive_megabytes_return_the_document_or_a_limit_error() {
    judge(5_000_000);
}

#[test]
fn the_error_for_too_many_attributes_has_the_place_of_the_limit() {
    let page = format!("<p>one\n<p{}>", numbered_count(200_000, |n| format!(" a{n}=x")));
    let error = html::parse(&page, &Default::default()).unwrap_err();
    assert_eq!(error.kind, ParseErrorKind::TooManyAttributes { limit: 8_000 });
    assert_eq!(error.line, 2, "{error}");
    assert!(error.offset_bytes < 200_000, "{error}");
}

#[test]
fn the_work_limit_error_has_the_place_of_the_limit() {
    let page = format!("{}{}", "line\n".repeat(1000), fill(1 << 20, "<div>"));
    let error = html::parse(&page, &Default::default()).unwrap_err();
    assert!(matches!(error.kind, ParseErrorKind::WorkLimit { .. }), "{error}");
    assert_eq!(error.line, 1001);
    let divs = (error.offset_bytes - 5000) / 5;
    assert!((5000..50_000).contains(&divs), "{error}");
    assert_eq!(u64::from(error.column), error.offset_bytes - 5000 + 1, "{error}");
}

#[test]
fn a_fragment_has_the_same_limits() {
    let text = fill(1 << 20, "<div>");
    let error = html::parse_fragment(&text, "div", &Default::default()).unwrap_err();
    assert!(matches!(error.kind, ParseErrorKind::WorkLimit { .. }), "{error}");
}

/// The same kinds of documents in XML, whose grammar needs no repairs: all take linear time.
#[test]
fn expensive_xml_takes_linear_time() {
    let bytes = bytes();
    let deep = |open: &dyn Fn(usize) -> String, close: &str| {
        let levels = bytes / (open(0).len() + close.len() + 5);
        numbered_count(levels, open) + &close.repeat(levels)
    };
    let entities = numbered(bytes, |n| format!("<!ENTITY e{n} 'v'>"));
    for (name, text) in [
        ("nested", deep(&|_| "<d>".into(), "</d>")),
        ("a prefix at each level", deep(&|n| format!("<d xmlns:p{n}='u'>"), "</d>")),
        ("the same prefix at each level", deep(&|n| format!("<p:d xmlns:p='u{n}'>"), "</p:d>")),
        ("a default namespace at each level", deep(&|n| format!("<d xmlns='u{n}'>"), "</d>")),
        ("attributes", format!("<d{}/>", numbered(bytes, |n| format!(" a{n}='x'")))),
        ("prefixes", format!("<d{}/>", numbered(bytes, |n| format!(" xmlns:p{n}='u'")))),
        ("entities", format!("<!DOCTYPE d [{entities}]><d/>")),
        ("references", format!("<d>{}</d>", fill(bytes, "&amp;&#65;"))),
        ("cdata", format!("<d>{}</d>", fill(bytes, "<![CDATA[x]]>"))),
        ("classes", format!("<d class='{}'/>", numbered(bytes, |n| format!("c{n} ")))),
    ] {
        let start = Instant::now();
        let tables = xml::parse(&text, &Default::default());
        eprintln!("{name}, {} bytes, {:?}", text.len(), start.elapsed());
        assert_eq!(tables.map(|_| ()), Ok(()), "{name}");
    }
}

/// U+FEFF is a byte order mark at the beginning of a page, and a character everywhere else.
#[test]
fn a_byte_order_mark_is_dropped_only_at_the_beginning() {
    let text = format!("\u{FEFF}<p>{}", "\u{FEFF}a".repeat(20_000));
    let block = html::parse(&text, &Default::default()).unwrap().to_block();
    let paragraph = block.dom().select_first(&"p".parse().unwrap()).unwrap();
    assert_eq!(paragraph.text(), &text["\u{FEFF}<p>".len()..]);
    let mut parser = html::HtmlParser::new(&Default::default());
    for piece in text.as_bytes().chunks(4) {
        parser.feed(piece);
    }
    let pieces = parser.finish().unwrap().to_block();
    assert_eq!(pieces.dom().document_node().text(), block.dom().document_node().text());
}
