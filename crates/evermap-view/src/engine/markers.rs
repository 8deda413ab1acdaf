//! Sets list markers as text if the engine can't count them: Roman and Greek numbers, leading
//! zeros, and lists with a start, reversed order or explicit values.

use blitz_dom::{BaseDocument, NodeId};

use super::node::{attribute, children_named, name_of, style_of};

/// Sets the markers of these lists. Returns true if any marker was set.
pub(super) fn set(document: &mut BaseDocument, lists: &[NodeId]) -> bool {
    let mut changes = Vec::new();
    for list in lists {
        let items = children_named(document, *list, &["li"]);
        let Some(node) = document.get_node(*list) else { continue };
        let is_ordered = name_of(node) == "ol";
        let number = |name: &str| attribute(node, name).and_then(|text| text.trim().parse().ok());
        let backwards = is_ordered && attribute(node, "reversed").is_some();
        let start: Option<i64> = number("evermap-start").or_else(|| number("start"));
        let first = match (start.filter(|_| is_ordered), backwards) {
            (Some(start), _) => start,
            (None, true) => items.len() as i64,
            (None, false) => 1,
        };
        // Number that the engine would show next.
        let mut engine = number("start").filter(|_| is_ordered).unwrap_or(1_i64);
        let mut next = first;
        let mut counted = Vec::new();
        let mut is_changed = false;
        for item in items {
            let value = document.get_node(item).and_then(|node| attribute(node, "value"));
            let ordinal = value.and_then(|text| text.trim().parse().ok()).unwrap_or(next);
            next = if backwards { ordinal.saturating_sub(1) } else { ordinal.saturating_add(1) };
            let style = style_of(document, item, "list-style-type");
            let is_right = ordinal == engine || !is_counted(&style);
            engine = engine.saturating_add(1);
            is_changed |= !(is_known(&style) && is_right);
            if is_counted(&style) {
                // The engine drops an ordinary trailing space.
                counted.push((item, format!("\"{}.\u{a0}\"", marker(&style, ordinal))));
            }
        }
        // Set all markers of the list, so that they look alike.
        changes.extend(counted.into_iter().filter(|_| is_changed));
    }
    let mut mutator = document.mutate();
    for (item, marker) in &changes {
        mutator.set_style_property(*item, "list-style-type", marker);
    }
    !changes.is_empty()
}

/// Returns true if the engine supports this style. It also supports strings and symbols.
fn is_known(style: &str) -> bool {
    let named = style.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    !named
        || matches!(
            style,
            "" | "none"
                | "disc"
                | "circle"
                | "square"
                | "disclosure-open"
                | "disclosure-closed"
                | "decimal"
                | "lower-alpha"
                | "upper-alpha"
        )
}

/// Returns true if the marker depends on the number.
fn is_counted(style: &str) -> bool {
    let named = style.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    let same = ["", "none", "disc", "circle", "square", "disclosure-open", "disclosure-closed"];
    named && !same.contains(&style)
}

/// Formats `number` in `style`. An unknown style gives digits.
fn marker(style: &str, number: i64) -> String {
    let counted = usize::try_from(number).ok().filter(|number| *number > 0);
    let text = counted.and_then(|number| match style {
        "lower-roman" => roman(number),
        "upper-roman" => roman(number).map(|text| text.to_uppercase()),
        "lower-alpha" | "lower-latin" => Some(letters(number, &LATIN)),
        "upper-alpha" | "upper-latin" => Some(letters(number, &LATIN).to_uppercase()),
        "lower-greek" => Some(letters(number, &GREEK)),
        _ => None,
    });
    match (text, style) {
        (Some(text), _) => text,
        (None, "decimal-leading-zero") if (0..10).contains(&number) => format!("0{number}"),
        (None, _) => number.to_string(),
    }
}

const LATIN: [char; 26] = [
    'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r', 's',
    't', 'u', 'v', 'w', 'x', 'y', 'z',
];
const GREEK: [char; 24] = [
    'α', 'β', 'γ', 'δ', 'ε', 'ζ', 'η', 'θ', 'ι', 'κ', 'λ', 'μ', 'ν', 'ξ', 'ο', 'π', 'ρ', 'σ', 'τ',
    'υ', 'φ', 'χ', 'ψ', 'ω',
];

fn letters(mut number: usize, alphabet: &[char]) -> String {
    let mut text = Vec::new();
    while number > 0 {
        number -= 1;
        text.push(alphabet[number % alphabet.len()]);
        number /= alphabet.len();
    }
    text.iter().rev().collect()
}

/// Returns the Roman numeral, or `None` above 3999.
fn roman(mut number: usize) -> Option<String> {
    const SIGNS: [(usize, &str); 13] = [
        (1000, "m"),
        (900, "cm"),
        (500, "d"),
        (400, "cd"),
        (100, "c"),
        (90, "xc"),
        (50, "l"),
        (40, "xl"),
        (10, "x"),
        (9, "ix"),
        (5, "v"),
        (4, "iv"),
        (1, "i"),
    ];
    if number > 3999 {
        return None;
    }
    let mut text = String::new();
    for (value, sign) in SIGNS {
        while number >= value {
            text.push_str(sign);
            number -= value;
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_match_their_style() {
        for (style, number, text) in [
            ("upper-roman", 1994, "MCMXCIV"),
            ("lower-roman", 4, "iv"),
            ("lower-roman", 4000, "4000"),
            ("lower-roman", 0, "0"),
            ("lower-latin", 27, "aa"),
            ("upper-alpha", 702, "ZZ"),
            ("upper-alpha", 703, "AAA"),
            ("lower-greek", 24, "ω"),
            ("lower-greek", 25, "αα"),
            ("decimal-leading-zero", 7, "07"),
            ("decimal", -3, "-3"),
            ("ethiopic-numeric", 12, "12"),
        ] {
            assert_eq!(marker(style, number), text, "{style} {number}");
        }
    }
}
