//! Random selectors for a page, from its names, ids and classes.

use super::Random;
use super::peer::{Peer, PeerElement};

/// Returns a selector list made of names, ids, classes and attributes of the page.
pub fn list(random: &mut Random, peer: &Peer) -> String {
    let mut source = complex(random, peer);
    while random.one_in(6) {
        source += ", ";
        source += &complex(random, peer);
    }
    source
}

fn complex(random: &mut Random, peer: &Peer) -> String {
    let mut source = compound(random, peer);
    while random.one_in(3) {
        source += *random.pick::<&str>(&[" ", " > ", " ~ ", " + ", " "]);
        source += &compound(random, peer);
    }
    source
}

fn compound(random: &mut Random, peer: &Peer) -> String {
    let element = random.pick(&peer.elements);
    let mut source = match random.below(8) {
        0 => "*".to_owned(),
        1 => attribute(random, element),
        2 | 3 => class(random, element),
        4 => id(element),
        _ => identifier(&element.name.local),
    };
    if random.one_in(3) {
        source += &match random.below(14) {
            0 => format!(":not({})", simple(random, peer)),
            1 => format!(":nth-child({}n+{})", random.below(4), random.below(5)),
            2 => format!(":nth-last-child({})", 1 + random.below(4)),
            3 => format!(":nth-of-type({}n)", 1 + random.below(3)),
            4 => ":first-child".to_owned(),
            5 => ":last-of-type".to_owned(),
            6 => ":empty".to_owned(),
            7 => ":only-child".to_owned(),
            8 => format!(":is({}, {})", simple(random, peer), simple(random, peer)),
            9 => format!(":nth-child(2n of {})", simple(random, peer)),
            10 => ":root".to_owned(),
            11 | 12 => {
                let combinator = random.pick::<&str>(&["", "> ", "+ ", "~ "]);
                let mut inner = simple(random, peer);
                if random.one_in(3) {
                    inner += *random.pick::<&str>(&[" ", " > ", " ~ "]);
                    inner += &simple(random, peer);
                }
                format!(":has({combinator}{inner})")
            }
            _ => attribute(random, element),
        };
    }
    source
}

fn simple(random: &mut Random, peer: &Peer) -> String {
    let element = random.pick(&peer.elements);
    match random.below(4) {
        0 => class(random, element),
        1 => attribute(random, element),
        _ => identifier(&element.name.local),
    }
}

fn class(random: &mut Random, element: &PeerElement) -> String {
    let classes: Vec<&str> =
        element.attribute("class").unwrap_or_default().split_ascii_whitespace().collect();
    match classes.is_empty() {
        true => identifier(&element.name.local),
        false => format!(".{}", identifier(random.pick::<&str>(&classes))),
    }
}

fn id(element: &PeerElement) -> String {
    match element.attribute("id") {
        Some(id) if !id.is_empty() => format!("#{}", identifier(id)),
        _ => identifier(&element.name.local),
    }
}

fn attribute(random: &mut Random, element: &PeerElement) -> String {
    if element.attributes.is_empty() {
        return "[class]".to_owned();
    }
    let (name, value) = random.pick(&element.attributes);
    let name = identifier(&name.local);
    let chars: Vec<char> = value.chars().take(60).collect();
    let part = |from: usize, to: usize| -> String { chars[from..to].iter().collect() };
    let cut = random.below(chars.len() + 1);
    let (operator, value) = match random.below(8) {
        0 | 1 => return format!("[{name}]"),
        2 => ("=", value.clone()),
        3 => ("^=", part(0, cut)),
        4 => ("$=", value.chars().skip(value.chars().count() / 2).collect()),
        5 => ("*=", part(cut / 2, cut)),
        6 => ("~=", value.split_ascii_whitespace().next().unwrap_or_default().to_owned()),
        _ => ("|=", value.split('-').next().unwrap_or_default().to_owned()),
    };
    let flag = random.pick::<&str>(&["", "", "", " i", " s"]);
    let mut quoted = String::new();
    cssparser::serialize_string(&value, &mut quoted).unwrap();
    format!("[{name}{operator}{quoted}{flag}]")
}

fn identifier(name: &str) -> String {
    let mut escaped = String::new();
    cssparser::serialize_identifier(name, &mut escaped).unwrap();
    escaped
}
