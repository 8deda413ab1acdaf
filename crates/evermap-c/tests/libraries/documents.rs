//! Reproducible documents from a seed: XML, JSON, Markdown, rules (a pattern and a text for it) and
//! words, with difficult contents: empty texts, escapes, multi-byte characters, deep nesting.

use std::fmt::Write;

/// xorshift64*, seeded through a mix so that neighbouring seeds differ.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        let mixed = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Random((mixed ^ mixed >> 31).max(1))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as usize % bound
    }

    fn word(&mut self) -> String {
        (0..1 + self.below(9)).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }

    /// Returns some words, some of them with characters that are special in an encoding.
    fn text(&mut self) -> String {
        let words: Vec<String> = (0..self.below(12))
            .map(|_| match self.below(8) {
                0 => "día €5 漢字 🌲".to_string(),
                _ => self.word(),
            })
            .collect();
        words.join(" ")
    }
}

/// Returns a document of a format with about `things` elements. All formats except XML and JSON end
/// a line with a line feed.
pub fn document(format: &str, seed: u64, things: usize) -> String {
    let random = &mut Random::new(seed);
    match format {
        "xml" => xml(random, things),
        "json" => json(random, things),
        "markdown" => (0..things).fold(String::new(), |text, _| text + &markdown(random)),
        "rules" => (0..things).fold(String::new(), |text, number| text + &rule(random, number)),
        "words" => words(random, things),
        other => panic!("no document is called {other}"),
    }
}

fn xml(random: &mut Random, things: usize) -> String {
    let mut text = String::from("<?xml version=\"1.0\"?><items>");
    for number in 0..things {
        let (name, kind) = (random.word(), random.below(7));
        let _ = write!(text, "<item id=\"{number}\" kind='k{kind}' e=\"\"><name>{name}</name>");
        let depth = if random.below(200) == 0 { 60 } else { random.below(4) };
        (0..depth).for_each(|level| text += &format!("<b{level}>"));
        text += &random.text();
        match random.below(4) {
            0 => text += " &amp; &lt;tag&gt; &#233;",
            1 => text += &format!("<!-- {} -->", random.text()),
            2 => text += &format!("<![CDATA[<{}>]]>", random.text()),
            _ => text += "<empty/>",
        }
        (0..depth).rev().for_each(|level| text += &format!("</b{level}>"));
        text += "</item>";
    }
    text + "</items>"
}

fn json(random: &mut Random, things: usize) -> String {
    let mut items = Vec::with_capacity(things);
    for number in 0..things {
        let tags: Vec<String> = (0..random.below(4)).map(|_| json_value(random, 3)).collect();
        items.push(format!(
            "{{\"id\": {number}, \"name\": \"{} \\u00e9\\n{}\", \"ok\": {}, \"price\": {}.25, \
             \"tags\": [{}]}}",
            random.word(),
            random.text(),
            number % 2 == 0,
            random.below(100_000),
            tags.join(", "),
        ));
    }
    format!("{{\"items\": [{}]}}", items.join(",\n"))
}

fn json_value(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 5 } else { 7 }) {
        0 => "null".to_string(),
        1 => "true".to_string(),
        2 => format!("-{}", random.below(1000)),
        3 => format!("{}e-3", random.below(1000)),
        4 => format!("\"{}\"", random.text()),
        5 => format!("[{}, {}]", json_value(random, depth - 1), json_value(random, depth - 1)),
        _ => format!("{{\"{}\": {}}}", random.word(), json_value(random, depth - 1)),
    }
}

fn markdown(random: &mut Random) -> String {
    match random.below(8) {
        0 => format!("{} {}\n\n", "#".repeat(1 + random.below(6)), random.word()),
        1 => format!("- {}\n- {}\n\n", random.word(), random.text()),
        2 => format!("> {}\n\n", random.text()),
        3 => format!("```{}\n{}\n```\n\n", random.word(), random.text()),
        4 => format!("<p>{}</p>\n\n", random.text()),
        _ => format!(
            "{} *{}* `{}` [{}](http://example.org/{} \"{}\") **{}**\n\n",
            random.text(),
            random.word(),
            random.word(),
            random.word(),
            random.word(),
            random.word(),
            random.word(),
        ),
    }
}

/// Every third text does not match its pattern.
fn rule(random: &mut Random, number: usize) -> String {
    let (word, other) = (random.word(), random.word());
    let text =
        if number.is_multiple_of(3) { random.text() } else { format!("{word}{number} {other} 42") };
    let pattern = match random.below(4) {
        0 => format!("^{word}{number}\\s+(\\w+)(?:\\s+(\\d{{1,4}}))?"),
        1 => format!("(?i)({}|{other})\\b.*?(\\d+)$", word.to_uppercase()),
        2 => format!("(?<=\\s)(?P<name>{other})(?!x)|{word}{number}$"),
        _ => format!("[{word}-]+{number}\\W+(\\p{{L}}+)"),
    };
    format!("{pattern}\t{text}\n")
}

fn words(random: &mut Random, things: usize) -> String {
    let mut text = String::from("persistent\n");
    for _ in 0..things {
        text += &random.word();
        text.push('\n');
    }
    text
}
