//! The html5lib tree construction tests. For each test, this builder produces rcdom's tree, and the
//! suite's expected tree as often as html5ever does.
#![allow(clippy::unwrap_used)]

mod common;

use common::{files, peer};
use evermap_dom::html::{self, HtmlOptions};
use evermap_dom::{Dom, NodeKind, NodeRef};
use html5ever::parse_document;
use html5ever::tendril::{StrTendril, TendrilSink};
use markup5ever_rcdom::RcDom;

#[derive(Default)]
struct Case {
    data: String,
    context: Option<String>,
    expected: String,
    scripting: Option<bool>,
}

fn cases(file: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut section = "";
    for line in file.split_inclusive('\n') {
        let bare = line.trim_end_matches('\n');
        match bare {
            "#data" => {
                cases.push(Case::default());
                section = "data";
                continue;
            }
            "#errors" | "#new-errors" | "#document" | "#document-fragment" => {
                section = &bare[1..];
                continue;
            }
            _ => {}
        }
        let Some(case) = cases.last_mut() else {
            continue;
        };
        match bare {
            "#script-on" => case.scripting = Some(true),
            "#script-off" => case.scripting = Some(false),
            _ => match section {
                "data" => case.data += line,
                "document" => case.expected += line,
                "document-fragment" => case.context = Some(bare.to_owned()),
                _ => {}
            },
        }
    }
    for case in &mut cases {
        case.data.pop();
        case.expected = case.expected.trim_end_matches('\n').to_owned();
    }
    cases
}

fn below<'a>(node: NodeRef<'a>, depth: usize, left: &mut Vec<(NodeRef<'a>, usize)>) {
    let children: Vec<_> = node.children().map(|child| (child, depth)).collect();
    left.extend(children.into_iter().rev());
    left.extend(node.template_contents().map(|contents| (contents, depth)));
}

/// The tree in the notation of the suite.
fn notation(dom: Dom<'_>, is_fragment: bool) -> String {
    let mut out = String::new();
    let top = match is_fragment {
        true => dom.root_element().unwrap(),
        false => dom.document_node(),
    };
    let mut left: Vec<(NodeRef<'_>, usize)> = Vec::new();
    below(top, 0, &mut left);
    while let Some((node, depth)) = left.pop() {
        let indent = "  ".repeat(depth);
        let value = node.value().unwrap_or_default();
        out += &match node.kind() {
            NodeKind::Text => format!("| {indent}\"{value}\"\n"),
            NodeKind::Comment => format!("| {indent}<!-- {value} -->\n"),
            NodeKind::Fragment => format!("| {indent}content\n"),
            NodeKind::Doctype => {
                let doctype = node.doctype().unwrap();
                match (doctype.public_id, doctype.system_id) {
                    ("", "") => format!("| <!DOCTYPE {}>\n", doctype.name),
                    (p, s) => format!("| <!DOCTYPE {} \"{p}\" \"{s}\">\n", doctype.name),
                }
            }
            _ => format!("| {indent}<{}{}>\n", prefix(node.namespace()), node.local_name()),
        };
        let mut attributes: Vec<String> = node
            .attributes()
            .map(|attribute| {
                let name = match attribute.prefix() {
                    Some(prefix) => format!("{prefix} {}", attribute.local_name()),
                    None => attribute.local_name().to_owned(),
                };
                format!("| {indent}  {name}=\"{}\"\n", attribute.value())
            })
            .collect();
        attributes.sort();
        out += &attributes.concat();
        below(node, depth + 1, &mut left);
    }
    out.trim_end_matches('\n').to_owned()
}

fn prefix(namespace: Option<&str>) -> &'static str {
    match namespace {
        Some("http://www.w3.org/2000/svg") => "svg ",
        Some("http://www.w3.org/1998/Math/MathML") => "math ",
        _ => "",
    }
}

#[test]
fn the_tree_construction_suite_gives_rcdoms_trees() {
    let (mut run, mut as_expected) = (0, 0);
    for (name, file) in files("html5lib-tree", "dat") {
        for case in cases(&file) {
            let modes = case.scripting.map_or(vec![false, true], |mode| vec![mode]);
            for scripting in modes {
                let options = HtmlOptions { scripting, ..HtmlOptions::default() };
                let (tables, theirs) = match &case.context {
                    Some(context) => (
                        html::parse_fragment(&case.data, context, &options),
                        peer::parse_in(&case.data, context, scripting),
                    ),
                    None => (
                        html::parse(&case.data, &options),
                        parse_document(RcDom::default(), peer::options(scripting))
                            .one(StrTendril::from_slice(&case.data)),
                    ),
                };
                let block = tables.unwrap().to_block();
                block.dom().validate().unwrap_or_else(|error| panic!("{name}: {error}"));
                peer::assert_same(&format!("{name}: {:?}", case.data), block.dom(), &theirs);
                run += 1;
                let ours = notation(block.dom(), case.context.is_some());
                as_expected += usize::from(ours == case.expected);
            }
        }
    }
    eprintln!("{run} runs, all equal to rcdom, {as_expected} equal to the suite's expectation");
    assert!(as_expected * 100 >= run * 97);
}
