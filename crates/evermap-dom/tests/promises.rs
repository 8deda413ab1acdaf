//! One small test for each promise of the documentation; needs no corpus.
#![allow(clippy::unwrap_used)]

use evermap_dom::html::HtmlOptions;
use evermap_dom::{
    Block, Dom, InvalidDocument, NodeKind, ParseErrorKind, QuirksMode, Selector, SelectorErrorKind,
    html, xml,
};

fn page(text: &str) -> Block {
    html::parse(text, &Default::default()).unwrap().to_block()
}

fn data(text: &str) -> Block {
    xml::parse(text, &Default::default()).unwrap().to_block()
}

fn count(block: &Block, selector: &str) -> usize {
    block.dom().count(&selector.parse().unwrap())
}

fn texts(block: &Block, selector: &str) -> Vec<String> {
    let selector: Selector = selector.parse().unwrap();
    block.dom().select(&selector).map(|node| node.text()).collect()
}

fn xml_error(text: &str) -> ParseErrorKind {
    xml::parse(text, &Default::default()).unwrap_err().kind
}

#[test]
fn the_block_is_position_independent() {
    let block = page("<p class=a id=b>text</p>");
    let moved = Block::from_bytes(block.as_bytes());
    assert_ne!(block.as_bytes().as_ptr(), moved.as_bytes().as_ptr());
    assert_eq!(block.dom().document_node().outer_html(), moved.dom().document_node().outer_html());
    assert_eq!(count(&moved, "p.a#b"), 1);
}

#[test]
fn the_same_source_gives_the_same_block_in_every_run() {
    let text = "<ul class='x y'><li id=1>a<li id=2>a<li class=y>b</ul>";
    assert!(page(text) == page(text));
}

#[test]
fn bytes_after_the_block_are_ignored() {
    let block = page("<p>x");
    let mut bytes = block.as_bytes().to_vec();
    bytes.extend([0xAA; 64]);
    let longer = Block::from_bytes(&bytes);
    assert_eq!(Dom::new(longer.as_bytes()).unwrap().validate(), Ok(()));
}

#[test]
fn opening_names_what_is_wrong() {
    let block = page("<p>x");
    let with = |at: usize, byte: u8| {
        let mut bytes = block.as_bytes().to_vec();
        bytes[at] = byte;
        Dom::new(Block::from_bytes(&bytes).as_bytes()).unwrap_err()
    };
    assert_eq!(with(0, b'X'), InvalidDocument::NotADocument);
    assert!(matches!(with(8, 9), InvalidDocument::Version { found: 9, .. }));
    assert!(matches!(with(48, 1), InvalidDocument::Header { .. }));
    assert!(matches!(with(34, 0xFF), InvalidDocument::Truncated { .. }));
    let shifted: Vec<u8> = [&[0u8; 8][..4], block.as_bytes()].concat();
    let shifted = Block::from_bytes(&shifted);
    assert_eq!(Dom::new(&shifted.as_bytes()[4..]).unwrap_err(), InvalidDocument::Misaligned);
}

#[test]
fn the_empty_document_supports_all_queries() {
    let dom = Dom::default();
    assert_eq!((dom.node_count(), dom.title(), dom.root_element()), (1, None, None));
    assert_eq!(dom.count(&"*".parse().unwrap()), 0);
    assert_eq!(dom.document_node().outer_html(), "");
}

#[test]
fn misnested_markup_is_moved_as_in_the_standard() {
    let block = page("<table><tr><td>1</td>stray</table><b>x<p>y</b>z");
    assert_eq!(
        block.dom().root_element().unwrap().outer_html(),
        "<html><head></head><body>stray<table><tbody><tr><td>1</td></tr></tbody></table>\
         <b>x</b><p><b>y</b>z</p></body></html>"
    );
    assert_eq!(block.dom().validate(), Ok(()));
}

#[test]
fn a_second_body_tag_adds_the_attributes_that_are_missing() {
    let block = page("<body class=a title=t>x<body class=b id=i lang=de>");
    let body = block.dom().select_first(&"body".parse().unwrap()).unwrap();
    let attributes: Vec<_> = body.attributes().map(|a| (a.name(), a.value())).collect();
    assert_eq!(attributes, [("class", "a"), ("title", "t"), ("id", "i"), ("lang", "de")]);
    assert_eq!((count(&block, "#i"), count(&block, ".b")), (1, 0));
    assert_eq!(block.dom().validate(), Ok(()));
}

#[test]
fn attributes_keep_the_order_of_the_source() {
    let source = r#"<p title="1" class="b a" data-x="2" id="i" lang="en"></p>"#;
    let block = page(source);
    let p = block.dom().select_first(&"p".parse().unwrap()).unwrap();
    assert_eq!(p.outer_html(), source);
}

#[test]
fn equal_texts_and_values_take_space_once() {
    let size = |text: &str| html::parse(text, &Default::default()).unwrap().section_sizes();
    let text_bytes = |text: &str| size(text).last().unwrap().1;
    let one = text_bytes("<p title='a long value'>a long text</p>");
    let many = text_bytes(&"<p title='a long value'>a long text</p>".repeat(50));
    assert_eq!(one, many);
}

#[test]
fn a_text_split_by_references_and_pieces_is_one_node() {
    let block = page("<p>a&amp;b&#x41;c&lt;</p>");
    let p = block.dom().select_first(&"p".parse().unwrap()).unwrap();
    assert_eq!(p.children().count(), 1);
    assert_eq!(p.text(), "a&bAc<");
    let block = data("<p>a&amp;b&#x41;<![CDATA[<c>]]>d</p>");
    let p = block.dom().root_element().unwrap();
    assert_eq!((p.children().count(), p.text().as_str()), (1, "a&bA<c>d"));
}

#[test]
fn template_contents_are_separate_and_serialized() {
    let block = page("<template id=t><p>in<template><i>deep</i></template></p></template><p>out");
    assert_eq!(texts(&block, "p"), ["out"]);
    let dom = block.dom();
    let template = dom.element_by_id("t").unwrap();
    assert_eq!((template.children().count(), template.text().as_str()), (0, ""));
    assert_eq!(template.first_child(), None);
    assert_eq!(template.last_child(), None);
    let contents = template.template_contents().unwrap();
    assert_eq!((contents.kind(), contents.parent()), (NodeKind::Fragment, None));
    assert_eq!(contents.host(), Some(template));
    assert_eq!(contents.select(&"p".parse().unwrap()).count(), 1);
    assert_eq!(contents.select(&"i".parse().unwrap()).count(), 0);
    assert_eq!(template.inner_html(), "<p>in<template><i>deep</i></template></p>");
    let p = contents.first_child().unwrap();
    assert!(!p.matches(&":root".parse().unwrap()));
    let body = dom.select_first(&"body".parse().unwrap()).unwrap();
    assert_eq!(body.children().map(|n| n.name()).collect::<Vec<_>>(), ["p"]);
}

#[test]
fn void_and_raw_text_elements_are_serialized_as_in_the_standard() {
    let source = "<script>if (a<b && c) {}</script><style>a>b{}</style><br><img src=\"a&amp;b\">\
                  <p title=\"&lt;&quot;&nbsp;\">&lt;&amp;\u{A9}&nbsp;</p><!--c-->";
    let block = html::parse(&format!("<!DOCTYPE html><body>{source}"), &Default::default())
        .unwrap()
        .to_block();
    let body = block.dom().select_first(&"body".parse().unwrap()).unwrap();
    assert_eq!(body.inner_html(), source);
    let whole = block.dom().document_node().outer_html();
    assert!(whole.starts_with("<!DOCTYPE html><html>"));
}

#[test]
fn noscript_follows_the_scripting_option() {
    let source = "<body><noscript><p>a&b</p></noscript>";
    assert_eq!(count(&page(source), "noscript p"), 0);
    let options = HtmlOptions { scripting: false, ..HtmlOptions::default() };
    let block = html::parse(source, &options).unwrap().to_block();
    assert_eq!(count(&block, "noscript p"), 1);
    let written = block.dom().document_node().outer_html();
    assert!(written.contains("<p>a&amp;b</p>"));
}

#[test]
fn doctype_comment_and_instruction_keep_their_parts() {
    let block = page("<!DOCTYPE html PUBLIC 'p' 's'><!--hi--><p>");
    let mut top = block.dom().document_node().children();
    let doctype = top.next().unwrap().doctype().unwrap();
    assert_eq!((doctype.name, doctype.public_id, doctype.system_id), ("html", "p", "s"));
    assert_eq!(top.next().unwrap().value(), Some("hi"));
    let block = data("<?go  on ?><a><!-- c --></a>");
    let go = block.dom().document_node().first_child().unwrap();
    assert_eq!((go.name(), go.value()), ("go", Some("on ")));
}

#[test]
fn in_quirks_mode_ids_and_classes_match_without_case() {
    let quirky = page("<p id=Main class='Big'>");
    assert_eq!(quirky.dom().quirks_mode(), QuirksMode::Quirks);
    assert_eq!((count(&quirky, "#mAIN"), count(&quirky, ".bIG")), (1, 1));
    let strict = page("<!DOCTYPE html><p id=Main class='Big'>");
    assert_eq!((count(&strict, "#main"), count(&strict, ".big")), (0, 0));
    assert_eq!((count(&strict, "#Main"), count(&strict, ".Big")), (1, 1));
}

#[test]
fn html_names_match_without_case_and_xml_names_with() {
    let html = page("<!DOCTYPE html><DIV Title=x></DIV><svg><linearGradient/></svg>");
    assert_eq!((count(&html, "DIV"), count(&html, "[TITLE]")), (1, 1));
    assert_eq!(count(&html, "linearGradient"), 1);
    assert_eq!(count(&html, "[type=A]"), 0);
    let xml = data("<Div Title='x'/>");
    assert_eq!((count(&xml, "div"), count(&xml, "Div")), (0, 1));
    assert_eq!((count(&xml, "[title]"), count(&xml, "[Title]")), (0, 1));
    let input = page("<!DOCTYPE html><input type=TEXT><input name=TEXT>");
    assert_eq!((count(&input, "[type=text]"), count(&input, "[name=text]")), (1, 0));
}

#[test]
fn namespaces_are_matched_by_prefix() {
    let block = page("<!DOCTYPE html><a href=1></a><svg><a xlink:href=2></a></svg>");
    assert_eq!((count(&block, "a"), count(&block, "*|a")), (2, 2));
    assert_eq!((count(&block, "svg|a"), count(&block, "html|a"), count(&block, "|a")), (1, 1, 0));
    assert_eq!((count(&block, "[href]"), count(&block, "[*|href]")), (1, 2));
    assert_eq!(count(&block, "[xlink|href='2']"), 1);
    let xml = data("<a><b xmlns='urn:b'/></a>");
    assert_eq!((count(&xml, "|a"), count(&xml, "|b"), count(&xml, "b")), (1, 0, 1));
}

#[test]
fn pseudo_classes_read_the_attributes() {
    let block = page(
        "<!DOCTYPE html><a href=x></a><a></a><input type=checkbox checked><input type=text checked>\
         <fieldset disabled><legend><input></legend><select><option selected><option></select>\
         </fieldset><input required>",
    );
    assert_eq!((count(&block, ":link"), count(&block, ":any-link")), (1, 1));
    assert_eq!(count(&block, ":checked"), 2);
    assert_eq!((count(&block, "input:disabled"), count(&block, "select:disabled")), (0, 1));
    assert_eq!((count(&block, "input:enabled"), count(&block, "fieldset:enabled")), (4, 0));
    assert_eq!((count(&block, ":required"), count(&block, "input:optional")), (1, 3));
}

#[test]
fn has_works_in_every_direction() {
    let block = page(
        "<!DOCTYPE html><section><h1>a</h1><p><b>x</b></p></section><section><p>y</p></section>",
    );
    assert_eq!(count(&block, "section:has(b)"), 1);
    assert_eq!(count(&block, "section:has(> b)"), 0);
    assert_eq!(count(&block, "section:has(> p > b)"), 1);
    assert_eq!(count(&block, "h1:has(+ p)"), 1);
    assert_eq!(count(&block, "section:has(~ section p)"), 1);
    assert_eq!(count(&block, "section:not(:has(h1))"), 1);
    assert!("a:has(b:has(c))".parse::<Selector>().is_err());
}

#[test]
fn results_are_in_document_order_without_an_index_too() {
    let text = "<p class=a id=x>1<div class=a>2</div><p>3<p class=a>4";
    let options = HtmlOptions { index: false, ..HtmlOptions::default() };
    let plain = html::parse(text, &options).unwrap().to_block();
    assert_eq!(plain.dom().validate(), Ok(()));
    let indexed = page(text);
    for selector in ["p, .a", ".a", "#x", "p", "div, #x, p:last-child", ":is(p, div)"] {
        assert_eq!(texts(&plain, selector), texts(&indexed, selector), "{selector}");
    }
    assert_eq!(texts(&indexed, "p, .a, div"), ["1", "2", "3", "4"]);
    assert_eq!(plain.dom().element_by_id("x").unwrap().text(), "1");
}

#[test]
fn a_query_below_a_node_returns_only_descendants() {
    let block = page("<div id=o><p>1</p><div id=i><p>2</p></div></div><p>3</p>");
    let inner = block.dom().element_by_id("i").unwrap();
    let p: Selector = "p".parse().unwrap();
    assert_eq!(inner.select(&p).count(), 1);
    assert_eq!(inner.select(&"div p".parse().unwrap()).count(), 1);
    assert_eq!(inner.select(&":scope > p".parse().unwrap()).count(), 1);
    assert_eq!(block.dom().element_by_id("o").unwrap().select(&p).count(), 2);
}

#[test]
fn selector_errors_have_place_and_kind() {
    let error = |text: &str| text.parse::<Selector>().unwrap_err();
    assert_eq!(error("").kind, SelectorErrorKind::Empty);
    assert_eq!(error("a >").kind, SelectorErrorKind::DanglingCombinator);
    assert_eq!(error("p::before").kind, SelectorErrorKind::UnsupportedPseudo);
    assert_eq!(error("nope|p").kind, SelectorErrorKind::UnknownPrefix);
    let error = error("ul li:hover b");
    assert_eq!((error.found.as_str(), error.selector.as_str()), ("li:hover", "ul li:hover b"));
}

#[test]
fn deeply_nested_selectors_are_refused_without_overflow() {
    let text = format!("{}a{}", ":not(".repeat(100_000), ")".repeat(100_000));
    assert!(text.parse::<Selector>().is_err());
}

#[test]
fn encodings_come_from_mark_label_meta_and_declaration() {
    let title = |bytes: &[u8], label: Option<&str>| {
        let options = HtmlOptions { encoding: label.map(str::to_owned), ..HtmlOptions::default() };
        let block = html::parse_bytes(bytes, &options).unwrap().to_block();
        block.dom().title()
    };
    assert_eq!(title(b"<title>\xE9</title>", None).unwrap(), "\u{FFFD}");
    assert_eq!(title(b"<title>\xE9</title>", Some("latin1")).unwrap(), "é");
    assert_eq!(title("\u{FEFF}<title>é".as_bytes(), Some("latin1")).unwrap(), "é");
    let wide: Vec<u8> = "\u{FEFF}<title>é".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(title(&wide, None).unwrap(), "é");
    let late = [b" ".repeat(3000).as_slice(), b"<title>\xC3\xA9</title>"].concat();
    assert_eq!(title(&late, None).unwrap(), "é");

    let xml = |bytes: &[u8]| xml::parse_bytes(bytes, &Default::default());
    assert!(matches!(xml(b"<a>\xE9</a>").unwrap_err().kind, ParseErrorKind::Encoding { .. }));
    let wide: Vec<u8> = "<?xml version='1.0' encoding='UTF-16'?><a>é</a>"
        .encode_utf16()
        .flat_map(u16::to_be_bytes)
        .collect();
    assert_eq!(xml(&wide).unwrap().to_block().dom().document_node().text(), "é");
    assert!(matches!(
        xml(b"<?xml version='1.0' encoding='klingon'?><a/>").unwrap_err().kind,
        ParseErrorKind::Encoding { .. }
    ));
}

#[test]
fn xml_round_trips() {
    let sources = [
        "<a/>",
        "<!DOCTYPE r SYSTEM \"r.dtd\" [<!ENTITY e \"x\">]><r b=\"1\"><!--c--><?p q?>t</r>",
        "<p:r xmlns:p=\"urn:1\" xmlns=\"urn:2\"><p:a p:b=\"x\" b=\"y\"/><c xmlns=\"\"/></p:r>",
        "<r a=\"&lt;&amp;&quot;&#10;&#9;&#13;\">&lt;&amp;&gt;&#13;\n</r>",
    ];
    for source in sources {
        let block = data(source);
        assert_eq!(block.dom().validate(), Ok(()));
        assert_eq!(block.dom().document_node().outer_html(), source);
    }
}

#[test]
fn a_part_of_an_xml_document_is_serialized_with_its_namespaces() {
    let block = data("<p:r xmlns:p=\"urn:1\" xmlns=\"urn:2\"><p:a/></p:r>");
    let a = block.dom().select_first(&"a".parse().unwrap()).unwrap();
    assert_eq!(a.outer_html(), "<p:a xmlns:p=\"urn:1\" xmlns=\"urn:2\"/>");
    assert_eq!((a.name(), a.local_name(), a.prefix()), ("p:a", "a", Some("p")));
    assert_eq!(a.namespace(), Some("urn:1"));
}

#[test]
fn xml_values_are_normalised_and_entities_expanded() {
    let block = data(
        "<!DOCTYPE r [<!ENTITY e 'v&#65;'><!ENTITY m '<b>&e;</b>'>]>\n\
         <r a='x\ty\r\nz&#10;&e;'>1\r\n2&e;&m;</r>",
    );
    let r = block.dom().root_element().unwrap();
    assert_eq!(r.attr("a"), Some("x y z\nvA"));
    assert_eq!(r.text(), "1\n2vAvA");
    assert_eq!(count(&block, "r > b"), 1);
}

#[test]
fn xml_errors_have_kind_and_place() {
    use ParseErrorKind as Kind;
    assert_eq!(xml_error(""), Kind::NoRoot);
    assert_eq!(xml_error("<a/>x"), Kind::TextOutsideRoot);
    assert_eq!(xml_error("<a/><b/>"), Kind::SecondRoot("b".into()));
    assert_eq!(xml_error("<a x='1' x='2'/>"), Kind::DuplicateAttribute("x".into()));
    assert_eq!(
        xml_error("<a xmlns:p='u' xmlns:q='u' p:x='1' q:x='2'/>"),
        Kind::DuplicateAttribute("q:x".into())
    );
    assert_eq!(xml_error("<p:a/>"), Kind::UnboundPrefix("p".into()));
    assert_eq!(xml_error("<a>&nbsp;</a>"), Kind::UnknownEntity("nbsp".into()));
    assert_eq!(
        xml_error("<!DOCTYPE a [<!ENTITY e SYSTEM 'f'>]><a>&e;</a>"),
        Kind::ExternalEntity("e".into())
    );
    for bad in [
        "<a>",
        "<a></b>",
        "<a b></a>",
        "<a b=c/>",
        "<a b='<'/>",
        "<a b='1'c='2'/>",
        "<1/>",
        "<a>]]></a>",
        "<a>\u{1}</a>",
        "<a>&#0;</a>",
        "<a>& b</a>",
        "<!-- a -- b --><a/>",
        "<a/><?xml version='1.0'?>",
        "<a/><!DOCTYPE a>",
        "<?XML x?><a/>",
        "<a:b:c/>",
        "<a xmlns:p=''/>",
        "<a>&#xFFFE;</a>",
        "<![CDATA[x]]><a/>",
    ] {
        assert!(xml::parse(bad, &Default::default()).is_err(), "{bad}");
    }
    let error = xml::parse("<a>\n\n  <é></a>", &Default::default()).unwrap_err();
    assert_eq!((error.line, error.column, error.offset_bytes), (3, 6, 11));
}

#[test]
fn navigation_goes_both_ways() {
    let block = data("<r><a><x><y/></x></a>t<b/><!--c--><d/></r>");
    let root = block.dom().root_element().unwrap();
    let forward: Vec<u32> = root.children().map(|n| n.id()).collect();
    let mut backward = Vec::new();
    let mut node = root.last_child();
    while let Some(found) = node {
        backward.push(found.id());
        node = found.prev_sibling();
    }
    backward.reverse();
    assert_eq!(forward, backward);
    assert_eq!(forward.len(), 5);
    assert!(root.children().all(|child| child.parent() == Some(root)));
}
