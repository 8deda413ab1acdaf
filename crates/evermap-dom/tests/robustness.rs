//! Hostile input: garbage markup, damaged blocks, trees a million levels deep. Nothing panics,
//! hangs or overflows the stack.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashSet;

use common::{Random, peer};
use evermap_dom::{Block, Dom, NodeRef, Selector, html, xml};
use proptest::prelude::*;

const TAGS: [&str; 24] = [
    "table",
    "tr",
    "td",
    "b",
    "i",
    "a",
    "p",
    "div",
    "select",
    "option",
    "template",
    "svg",
    "math",
    "mi",
    "foreignObject",
    "form",
    "body",
    "html",
    "head",
    "frameset",
    "script",
    "textarea",
    "nobr",
    "annotation-xml",
];

fn piece() -> impl Strategy<Value = String> {
    let tag = prop::sample::select(&TAGS[..]);
    prop_oneof![
        4 => tag.clone().prop_map(|tag| format!("<{tag}>")),
        2 => (tag.clone(), "[a-c]", "[ a-c]{0,3}")
            .prop_map(|(tag, name, value)| format!("<{tag} {name}='{value}' class='{value}'>")),
        3 => tag.prop_map(|tag| format!("</{tag}>")),
        3 => "[a-z ]{1,4}".prop_map(|text| text),
        1 => "[<>&;/='\"!\\-\\[\\]a-z]{1,6}",
        1 => Just("<!--x-->".to_owned()),
        1 => Just("&amp;&nbsp;&#0;".to_owned()),
        1 => Just("\0\r\n\u{FFFD}é".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn garbage_gives_rcdoms_tree(pieces in prop::collection::vec(piece(), 0..40)) {
        let text = pieces.concat();
        let block = html::parse(&text, &Default::default()).unwrap().to_block();
        let dom = Dom::new(block.as_bytes()).unwrap();
        prop_assert_eq!(dom.validate(), Ok(()));
        prop_assert_eq!(peer::describe(dom), peer::describe_peer(&peer::parse(&text).document));
    }

    #[test]
    fn any_bytes_parse_as_html(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let block = html::parse_bytes(&bytes, &Default::default()).unwrap().to_block();
        prop_assert_eq!(block.dom().validate(), Ok(()));
    }

    #[test]
    fn any_text_is_xml_or_a_typed_error(pieces in prop::collection::vec(
        prop_oneof![piece(), Just("<a/>".to_owned()), Just("<?p x?>".to_owned()),
            Just("<!DOCTYPE a [<!ENTITY e '&e;<b/>'>]>".to_owned()), Just("&e;".to_owned()),
            Just("<x:a xmlns:x='u'>".to_owned()), Just("<![CDATA[".to_owned())], 0..12))
    {
        let text = pieces.concat();
        match xml::parse(&text, &Default::default()) {
            Ok(tables) => prop_assert_eq!(tables.to_block().dom().validate(), Ok(())),
            Err(error) => prop_assert!(error.offset_bytes as usize <= text.len()),
        }
    }

    #[test]
    fn any_selector_text_parses_or_gives_a_typed_error(text in "[a-c.#\\[\\]=>+~*:() ,|'\"\\\\é&-]{0,30}") {
        if let Err(error) = text.parse::<Selector>() {
            prop_assert!(error.offset_bytes <= text.len());
        }
    }
}

const PAGE: &str = "<!DOCTYPE html><title>T</title><template><p class=x>in</p></template>\
    <div id=main class='a b'><p class=a>one<br><svg xlink:href='#q'><g id=g/></svg>\
    <custom-element data-x=1 class='b c'>two</custom-element><!--c--><p id=last>three</div>";

fn samples() -> Vec<Block> {
    let source = "<?go on?><!DOCTYPE r [<!ENTITY e 'v'>]><r xmlns='urn:r' xmlns:p='urn:p' class='k'>\
        <p:a p:x='1' id='i'>&e;<b/>t</p:a><!--c--><b/></r>";
    vec![
        html::parse(PAGE, &Default::default()).unwrap().to_block(),
        html::parse(&PAGE[15..], &Default::default()).unwrap().to_block(),
        xml::parse(source, &Default::default()).unwrap().to_block(),
    ]
}

/// Makes all queries on a document. The results do not matter, only that each query returns.
fn ask_everything(dom: Dom<'_>) {
    let selectors = [
        "p",
        ".a",
        "#main",
        "div > p + svg ~ *",
        ":not(.b):nth-child(2n+1)",
        "*:has(> p)",
        "[id$=n]",
        "svg|g, custom-element",
        ":empty",
        ":disabled, :link",
        "b:last-of-type",
    ];
    for selector in selectors {
        let selector: Selector = selector.parse().unwrap();
        let found: Vec<u32> = dom.select(&selector).map(|node| node.id()).collect();
        assert!(found.is_sorted_by(|a, b| a < b), "document order");
    }
    let _ = (dom.title(), dom.element_by_id("main"), dom.root_element(), dom.quirks_mode());
    for id in 0..dom.node_count() as u32 {
        let Some(node) = dom.node(id) else { continue };
        let all: (Vec<NodeRef<'_>>, Vec<NodeRef<'_>>) =
            (node.children().collect(), node.ancestors().collect());
        assert!(all.0.len() <= dom.node_count() && all.1.len() <= dom.node_count());
        let names = (node.name(), node.local_name(), node.prefix(), node.namespace(), node.value());
        let links = (node.prev_sibling(), node.last_child(), node.template_contents(), node.host());
        let _ = format!("{names:?} {links:?} {:?}", node.doctype());
        for attribute in node.attributes().take(50) {
            let _ = format!("{attribute:?} {:?} {:?}", attribute.prefix(), attribute.namespace());
        }
        let _ = (node.text(), node.attr("class"), node.attr("data-x"));
    }
    let _ = (dom.document_node().outer_html(), dom.document_node().inner_html());
}

#[test]
fn a_damaged_block_never_panics_or_hangs() {
    let rounds = if cfg!(debug_assertions) { 3000 } else { 60_000 };
    let mut random = Random::new(11);
    let samples = samples();
    let (mut refused, mut caught) = (0, 0);
    for _ in 0..rounds {
        let sample = random.pick(&samples);
        let mut bytes = sample.as_bytes().to_vec();
        for _ in 0..1 + random.below(4) {
            // Mostly after the header, which is checked at once.
            let at = match random.one_in(8) {
                true => random.below(bytes.len()),
                false => 256 + random.below(bytes.len() - 256),
            };
            bytes[at] = match random.below(4) {
                0 => 0xFF,
                1 => bytes[at].wrapping_add(1),
                2 => bytes[at] ^ 1 << random.below(8),
                _ => random.number() as u8,
            };
        }
        if random.one_in(10) {
            bytes.truncate(random.below(bytes.len()));
        }
        let damaged = Block::from_bytes(&bytes);
        match Dom::new(damaged.as_bytes()) {
            Err(_) => refused += 1,
            Ok(dom) => {
                caught += usize::from(dom.validate().is_err());
                ask_everything(dom);
            }
        }
    }
    eprintln!("{rounds} damaged blocks: {refused} refused at once, {caught} by validation");
}

/// Inverts every byte of the structural tables, one at a time. Validation detects each change,
/// unless the result is another valid document.
#[test]
fn validation_detects_damage_to_the_structure() {
    for sample in samples() {
        let dom = sample.dom();
        let nodes = 256..256 + 16 * dom.node_count();
        let mut missed = Vec::new();
        for at in nodes {
            for flip in [0x01, 0x10, 0x80] {
                let mut bytes = sample.as_bytes().to_vec();
                bytes[at] ^= flip;
                let damaged = Block::from_bytes(&bytes);
                let noticed = damaged.dom().validate().is_err();
                // Bytes 8-11 and 12-15 of a leaf, and 1-3 of any node, can refer to other valid
                // content.
                let is_link = (4..8).contains(&(at % 16));
                if !noticed && is_link {
                    missed.push(at);
                }
                if !noticed {
                    ask_everything(damaged.dom());
                }
            }
        }
        assert!(missed.is_empty(), "changed parent links were not detected at {missed:?}");
    }
}

#[test]
fn every_truncation_is_refused() {
    for sample in samples() {
        for length in 0..sample.as_bytes().len() {
            let cut = Block::from_bytes(&sample.as_bytes()[..length]);
            assert!(Dom::new(&cut.as_bytes()[..length]).is_err());
        }
    }
}

const DEEP: usize = 1_000_000;

fn check_deep(dom: Dom<'_>, name: &str, levels: usize) {
    dom.validate().unwrap();
    let leaf = dom.element_by_id("leaf").unwrap();
    assert!(leaf.ancestors().count() >= levels);
    let selectors = [
        (name.to_owned(), levels),
        ("#leaf".to_owned(), 1),
        (format!("{name} > #leaf"), 1),
        (format!("{name} #leaf:empty"), 1),
        (format!("{name}:first-child:last-child"), levels),
    ];
    for (selector, count) in selectors {
        assert_eq!(dom.count(&selector.parse().unwrap()), count, "{selector}");
    }
    // One query a million levels deep.
    let has: Selector = format!("{name}:has(#leaf)").parse().unwrap();
    assert!(dom.select_first(&has).is_some());
    assert_eq!(dom.document_node().text(), "");
    assert!(dom.document_node().outer_html().len() > 7 * levels);
}

#[test]
fn xml_a_million_levels_deep_is_parsed_queried_written_and_validated() {
    let text = ["<d>".repeat(DEEP), "<x id='leaf'/>".into(), "</d>".repeat(DEEP)].concat();
    let block = xml::parse(&text, &Default::default()).unwrap().to_block();
    check_deep(block.dom(), "d", DEEP);
    assert_eq!(block.dom().document_node().outer_html().len(), text.len());
}

/// With spans: html5ever itself takes time quadratic in the depth for nested divs.
#[test]
fn html_a_million_levels_deep_is_parsed_queried_written_and_validated() {
    let text = ["<!DOCTYPE html><body>", &"<span>".repeat(DEEP), "<x id=leaf>"].concat();
    let block = html::parse(&text, &Default::default()).unwrap().to_block();
    check_deep(block.dom(), "span", DEEP);
}

#[test]
fn html_with_five_thousand_nested_divs_works_as_well() {
    let text = ["<!DOCTYPE html><body>", &"<div>".repeat(5000), "<x id=leaf>"].concat();
    let block = html::parse(&text, &Default::default()).unwrap().to_block();
    check_deep(block.dom(), "div", 5000);
}

#[test]
fn many_attributes_classes_and_names_work() {
    let classes: Vec<String> = (0..20_000).map(|n| format!("c{n}")).collect();
    let attributes: Vec<String> = (0..5000).map(|n| format!("a{n}='{n}'")).collect();
    let page = format!("<p class='{}'><x {}>", classes.join(" "), attributes.join(" "));
    let block = html::parse(&page, &Default::default()).unwrap().to_block();
    block.dom().validate().unwrap();
    assert_eq!(block.dom().count(&".c19999".parse().unwrap()), 1);
    let x = block.dom().select_first(&"x".parse().unwrap()).unwrap();
    let names: HashSet<&str> = x.attributes().map(|attribute| attribute.name()).collect();
    assert_eq!(names.len(), 5000);

    let source = format!("<x {}/>", attributes.join(" "));
    xml::parse(&source, &Default::default()).unwrap();
    let twice = format!("<x {} a7='again'/>", attributes.join(" "));
    assert!(xml::parse(&twice, &Default::default()).is_err());
}

#[test]
fn entities_that_explode_are_refused() {
    let mut dtd = String::from("<!ENTITY a0 'aaaaaaaaaa'>");
    for n in 1..12 {
        dtd += &format!("<!ENTITY a{n} '{}'>", format!("&a{};", n - 1).repeat(10));
    }
    let text = format!("<!DOCTYPE r [{dtd}]><r>&a11;</r>");
    let error = xml::parse(&text, &Default::default()).unwrap_err();
    assert_eq!(error.kind, evermap_dom::ParseErrorKind::EntityLimit);
    let text = "<!DOCTYPE r [<!ENTITY a '&b;'><!ENTITY b '&a;'>]><r x='&a;'/>";
    let error = xml::parse(text, &Default::default()).unwrap_err();
    assert_eq!(error.kind, evermap_dom::ParseErrorKind::EntityLimit);
}
