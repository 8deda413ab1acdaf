//! Adapts a page's tree for the engine: replaces elements that the engine lacks by equivalents, and
//! bounds structures that would take it too long.
//!
//! The engine has no `select`, `progress`, `meter` or placeholders, and does not lay out captions.
//! Elements created here are named `evermap-...` and styled by `user_agent.css`. The bounds are
//! those of browsers where browsers have any.

use std::collections::HashMap;

use evermap_dom::{Dom, NodeKind, NodeRef};

/// Maximum nesting depth. Deeper elements become siblings, as in Chromium.
pub(super) const DEPTH_MAX: u32 = 512;
/// Maximum number of columns that a cell or a column may span, as in HTML.
const SPAN_MAX: u32 = 1_000;
/// Maximum numbers of columns and rows of a table. The engine counts both in 16 bits.
const COLUMNS_MAX: u32 = 10_000;
const ROWS_MAX: u32 = 32_000;
/// Maximum number of sibling inline elements in a block. The engine counts styles in 16 bits.
const INLINE_MAX: u32 = 30_000;

/// Result of adapting an attribute.
pub(super) enum Change {
    Unchanged,
    Value(String),
}

/// Enforces the table limits while the tree is built.
#[derive(Default)]
pub(super) struct Bounds {
    columns: HashMap<u32, u32>,
    rows: HashMap<u32, u32>,
    /// Messages for people about the parts that were left out.
    pub notes: Vec<&'static str>,
}

impl Bounds {
    /// Counts the element. Returns false if it exceeds the bounds of its table.
    pub fn count(&mut self, node: &NodeRef<'_>) -> bool {
        let Some(parent) = node.parent() else { return true };
        match node.local_name() {
            "td" | "th" => {
                let columns = self.columns.entry(parent.id()).or_default();
                *columns = columns.saturating_add(span_of(node, "colspan"));
                if *columns > COLUMNS_MAX {
                    self.note("table cells beyond 10,000 columns are left out");
                    return false;
                }
            }
            "col" => {
                let columns = self.columns.entry(parent.id()).or_default();
                *columns = columns.saturating_add(span_of(node, "span"));
                if *columns > COLUMNS_MAX {
                    self.note("table columns beyond 10,000 are left out");
                    return false;
                }
            }
            "tr" => {
                let group = matches!(parent.local_name(), "tbody" | "thead" | "tfoot");
                let table = if group { parent.parent().unwrap_or(parent) } else { parent };
                let rows = self.rows.entry(table.id()).or_default();
                *rows += 1;
                if *rows > ROWS_MAX {
                    self.note("table rows beyond 32,000 are left out");
                    return false;
                }
            }
            _ => (),
        }
        true
    }

    pub fn note(&mut self, note: &'static str) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// Returns the number of columns that a cell or a column spans.
pub(super) fn span_of(node: &NodeRef<'_>, attribute: &str) -> u32 {
    let span = node.attr(attribute).and_then(|text| text.trim().parse::<u32>().ok());
    span.unwrap_or(1).clamp(1, SPAN_MAX)
}

/// Adapts an attribute for the engine.
pub(super) fn attribute(node: &NodeRef<'_>, name: &str, value: &str) -> Change {
    match (node.local_name(), name) {
        (_, "style") => match super::css::declarations(value) {
            std::borrow::Cow::Borrowed(_) => Change::Unchanged,
            std::borrow::Cow::Owned(changed) => Change::Value(changed),
        },
        ("td" | "th", "colspan") | ("col" | "colgroup", "span") => {
            Change::Value(span_of(node, name).to_string())
        }
        ("td" | "th", "rowspan") => {
            let rows = value.trim().parse::<u32>().unwrap_or(1);
            Change::Value(rows.clamp(1, ROWS_MAX).to_string())
        }
        (_, "bgcolor") => match long_color(value.trim()) {
            Some(color) => Change::Value(color),
            None => Change::Unchanged,
        },
        // The engine subtracts 1, so it needs a positive number. `after.rs` sets the markers of
        // other starts.
        ("ol", "start") if value.trim().parse::<u32>().unwrap_or(0) == 0 => {
            Change::Value("1".to_string())
        }
        (_, "width" | "height") => match value.trim().parse::<f64>() {
            Ok(length) if length > 100_000.0 => Change::Value("100000".to_string()),
            _ => Change::Unchanged,
        },
        // The placeholder is set as text, which a password field would show as dots.
        ("input", "type") if value == "password" && placeholder(node).is_some() => {
            Change::Value("text".to_string())
        }
        ("input", "value") => match placeholder(node) {
            Some(text) => Change::Value(text.to_string()),
            None => Change::Unchanged,
        },
        _ => Change::Unchanged,
    }
}

/// Returns the six-digit form of a three-digit colour, which the engine misreads.
fn long_color(color: &str) -> Option<String> {
    let digits = color.strip_prefix('#').unwrap_or(color);
    let short = digits.len() == 3 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    short.then(|| {
        digits.chars().fold("#".to_string(), |long, digit| format!("{long}{digit}{digit}"))
    })
}

/// Returns attributes to add to an element.
pub(super) fn more_attributes(node: &NodeRef<'_>) -> Vec<(&'static str, String)> {
    let mut more = Vec::new();
    match node.local_name() {
        "input" | "textarea" => {
            if let Some(text) = placeholder(node) {
                more.push(("evermap-placeholder", String::new()));
                if node.attr("value").is_none() && node.local_name() == "input" {
                    more.push(("value", text.to_string()));
                }
            }
        }
        "font" if node.attr("style").is_none() => {
            if let Some(color) = node.attr("color") {
                more.push(("style", format!("color:{}", color.replace([';', '{', '}'], ""))));
            }
        }
        "ol" => {
            if let Some(start) = node.attr("start") {
                more.push(("evermap-start", start.to_string()));
            }
        }
        // The quotation marks are text nodes, see `inner_marks`.
        "q" if inner_marks(node).is_some() => more.push(("evermap-marks", String::new())),
        "select" if is_list(node) => {
            more.push(("evermap-list", String::new()));
        }
        "table" => {
            if let Some(caption) = children(node).find(|child| child.local_name() == "caption") {
                let below = caption.attr("align").is_some_and(|align| align == "bottom")
                    || caption.attr("style").is_some_and(|style| {
                        style.contains("caption-side") && style.contains("bottom")
                    });
                more.push((CAPTION, if below { "bottom" } else { "top" }.to_string()));
            }
        }
        _ => (),
    }
    more
}

/// Attribute of a table with a caption. Its value is the caption's side.
pub(super) const CAPTION: &str = "evermap-caption";

/// Returns the placeholder text if the field is empty.
fn placeholder<'a>(node: &NodeRef<'a>) -> Option<&'a str> {
    let is_field = match node.local_name() {
        "textarea" => children(node).next().is_none() && node.text().is_empty(),
        "input" => {
            let kind = node.attr("type").unwrap_or("text");
            let known = ["text", "password", "email", "number", "search", "tel", "url"];
            known.contains(&kind) && node.attr("value").is_none_or(str::is_empty)
        }
        _ => false,
    };
    node.attr("placeholder").filter(|text| is_field && !text.is_empty())
}

fn is_list(select: &NodeRef<'_>) -> bool {
    let size = select.attr("size").and_then(|size| size.trim().parse::<u32>().ok());
    select.attr("multiple").is_some() || size.is_some_and(|size| size > 1)
}

/// Returns true if `node`, a child of `parent`, is not shown.
pub(super) fn is_hidden(node: &NodeRef<'_>, parent: &NodeRef<'_>) -> bool {
    match parent.local_name() {
        // Fallback content for browsers without these elements.
        "progress" | "meter" => true,
        // The style sheet hides elements but can't hide text.
        "details" => node.is_text() && parent.attr("open").is_none(),
        _ => false,
    }
}

/// An element to create. Without a name, it is a text node.
pub(super) struct Addition {
    pub name: &'static str,
    pub attributes: Vec<(&'static str, String)>,
    pub text: Option<String>,
}

/// Returns the nodes to insert before and after an element's own children.
pub(super) fn additions(node: &NodeRef<'_>) -> (Vec<Addition>, Vec<Addition>) {
    let made = |name, attributes, text: Option<&str>| Addition {
        name,
        attributes,
        text: text.map(str::to_string),
    };
    let before = match node.local_name() {
        "details" if children(node).all(|child| child.local_name() != "summary") => {
            vec![made("summary", Vec::new(), Some("Details"))]
        }
        "q" => inner_marks(node)
            .map(|(mark, _)| vec![made("", Vec::new(), Some(mark))])
            .unwrap_or_default(),
        "optgroup" => node
            .attr("label")
            .map(|label| vec![made("evermap-group", Vec::new(), Some(label))])
            .unwrap_or_default(),
        _ => Vec::new(),
    };
    let after = match node.local_name() {
        "select" if !is_list(node) => vec![
            made("evermap-choice", Vec::new(), Some(&chosen(node))),
            made("evermap-arrow", Vec::new(), Some("\u{25be}")),
        ],
        "progress" | "meter" => bar(node)
            .map(|(percent, level)| {
                let style = format!("width:{percent}%");
                let attributes = vec![("style", style), ("evermap-level", level.to_string())];
                vec![made("evermap-bar", attributes, None)]
            })
            .unwrap_or_default(),
        "textarea" => {
            placeholder(node).map(|text| vec![made("", Vec::new(), Some(text))]).unwrap_or_default()
        }
        "q" => inner_marks(node)
            .map(|(_, mark)| vec![made("", Vec::new(), Some(mark))])
            .unwrap_or_default(),
        _ => Vec::new(),
    };
    (before, after)
}

/// Maximum number of ancestors that are checked for a quotation's nesting and language.
const QUOTATION_DEPTH_MAX: usize = 64;

/// Returns the marks of a quotation inside an inline element, where the engine does not always
/// support `::before`. The style sheet adds all other marks.
fn inner_marks(quotation: &NodeRef<'_>) -> Option<(&'static str, &'static str)> {
    let parent = quotation.parent().filter(|parent| is_inline(parent.local_name()))?;
    let around = || std::iter::successors(Some(parent), |node| node.parent());
    let around = || around().take(QUOTATION_DEPTH_MAX);
    let outer = around().filter(|node| node.local_name() == "q").count() % 2 == 0;
    let own = std::iter::once(*quotation).chain(around());
    let language = own.into_iter().find_map(|node| node.attr("lang")).unwrap_or_default();
    let language = language.split('-').next().unwrap_or_default().to_ascii_lowercase();
    Some(match (language.as_str(), outer) {
        ("de", true) => ("\u{201e}", "\u{201c}"),
        ("de", false) => ("\u{201a}", "\u{2018}"),
        ("fr", _) => ("\u{ab}\u{202f}", "\u{202f}\u{bb}"),
        (_, true) => ("\u{201c}", "\u{201d}"),
        (_, false) => ("\u{2018}", "\u{2019}"),
    })
}

/// Returns the label of the selected option.
fn chosen(select: &NodeRef<'_>) -> String {
    let options: Vec<NodeRef<'_>> = select
        .descendants()
        .filter(|inside| inside.is_element() && inside.local_name() == "option")
        .collect();
    let chosen = options.iter().rfind(|option| option.attr("selected").is_some());
    let first = || options.iter().find(|option| option.attr("disabled").is_none());
    chosen.or_else(first).map(label_of).unwrap_or_default()
}

fn label_of(option: &NodeRef<'_>) -> String {
    match option.attr("label").filter(|label| !label.is_empty()) {
        Some(label) => label.to_string(),
        None => option.text().split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// Returns the filled part of a `progress` or `meter` in percent, and how good its value is.
fn bar(node: &NodeRef<'_>) -> Option<(f64, &'static str)> {
    let number = |name: &str| {
        let number = node.attr(name)?.trim().parse::<f64>().ok()?;
        number.is_finite().then_some(number)
    };
    if node.local_name() == "progress" {
        let max = number("max").filter(|max| *max > 0.0).unwrap_or(1.0);
        return Some((number("value")?.clamp(0.0, max) / max * 100.0, "good"));
    }
    let min = number("min").unwrap_or(0.0);
    let max = number("max").unwrap_or(1.0).max(min);
    let value = number("value").unwrap_or(0.0).clamp(min, max);
    let low = number("low").unwrap_or(min).clamp(min, max);
    let high = number("high").unwrap_or(max).clamp(low, max);
    let best = number("optimum").unwrap_or((min + max) / 2.0).clamp(min, max);
    let part = |value: f64| match value {
        value if value < low => 0_i32,
        value if value > high => 2,
        _ => 1,
    };
    let level = match (part(value) - part(best)).abs() {
        0 => "good",
        1 => "poor",
        _ => "bad",
    };
    let full = if max > min { (value - min) / (max - min) * 100.0 } else { 0.0 };
    Some((full, level))
}

fn children<'a>(node: &NodeRef<'a>) -> impl Iterator<Item = NodeRef<'a>> + use<'a> {
    node.children().filter(|child| child.is_element())
}

/// Returns the elements at which a new block starts, because their parent has too many inline
/// children: every [`INLINE_MAX`]th of them.
pub(super) fn inline_breaks(dom: &Dom<'_>) -> Vec<u32> {
    let mut breaks = Vec::new();
    let mut counts: HashMap<u32, u32> = HashMap::new();
    for id in 0..dom.node_count() as u32 {
        let Some(node) = dom.node(id).filter(|node| node.kind() == NodeKind::Element) else {
            continue;
        };
        if !is_inline(node.local_name()) {
            continue;
        }
        let Some(parent) = node.parent() else { continue };
        let count = counts.entry(parent.id()).or_default();
        *count += 1;
        if *count > INLINE_MAX {
            *count = 1;
            breaks.push(id);
        }
    }
    breaks
}

fn is_inline(name: &str) -> bool {
    const NAMES: [&str; 33] = [
        "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "br", "cite", "code", "data", "del",
        "dfn", "em", "font", "i", "img", "ins", "kbd", "label", "mark", "q", "s", "samp", "small",
        "span", "strong", "sub", "sup", "time", "tt", "u", "var",
    ];
    NAMES.binary_search(&name).is_ok()
}
