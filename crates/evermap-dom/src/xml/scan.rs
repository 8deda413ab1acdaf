//! The small grammar inside tags: names, attributes, references.

use crate::error::ParseErrorKind;

pub(super) fn not_well_formed(what: &str) -> ParseErrorKind {
    ParseErrorKind::NotWellFormed(what.to_owned())
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// One attribute as written in a tag.
#[derive(Clone, Copy)]
pub(super) struct RawAttribute<'a> {
    pub name: &'a str,
    pub value: &'a str,
}

/// Splits the text between a tag's name and its end into attributes.
pub(super) fn attributes<'a>(
    mut rest: &'a str,
    found: &mut Vec<RawAttribute<'a>>,
) -> Result<(), ParseErrorKind> {
    found.clear();
    loop {
        let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        if trimmed.is_empty() {
            return Ok(());
        }
        if trimmed.len() == rest.len() {
            return Err(not_well_formed("no white space before an attribute"));
        }
        let bytes = trimmed.as_bytes();
        let name_end = bytes
            .iter()
            .position(|&byte| byte == b'=' || is_space(byte))
            .ok_or_else(|| not_well_formed("an attribute without a value"))?;
        let (name, after) = trimmed.split_at(name_end);
        let after = after.trim_start_matches([' ', '\t', '\n', '\r']);
        let after = after
            .strip_prefix('=')
            .ok_or_else(|| not_well_formed("an attribute without a value"))?
            .trim_start_matches([' ', '\t', '\n', '\r']);
        let quote = match after.as_bytes().first() {
            Some(&quote @ (b'"' | b'\'')) => quote,
            _ => return Err(not_well_formed("an attribute value without quotes")),
        };
        let after = &after[1..];
        let value_end = memchr::memchr(quote, after.as_bytes())
            .ok_or_else(|| not_well_formed("an attribute value without its closing quote"))?;
        let value = &after[..value_end];
        if value.contains('<') {
            return Err(not_well_formed("a < in an attribute value"));
        }
        found.push(RawAttribute { name, value });
        rest = &after[value_end + 1..];
    }
}

/// Checks a qualified name. Returns the length of its prefix, 0 without one.
pub(super) fn check_name(name: &str) -> Result<usize, ParseErrorKind> {
    let bad = || ParseErrorKind::NotWellFormed(format!("{name:?} is not a name"));
    let (prefix, local) = match name.split_once(':') {
        Some((prefix, local)) => (Some(prefix), local),
        None => (None, name),
    };
    let good = |part: &str| {
        let mut chars = part.chars();
        chars.next().is_some_and(starts_name) && chars.all(continues_name)
    };
    if !good(local) || !prefix.is_none_or(good) {
        return Err(bad());
    }
    Ok(prefix.map_or(0, str::len))
}

fn starts_name(c: char) -> bool {
    matches!(c,
        'A'..='Z' | 'a'..='z' | '_'
        | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}'
        | '\u{370}'..='\u{37D}' | '\u{37F}'..='\u{1FFF}' | '\u{200C}'..='\u{200D}'
        | '\u{2070}'..='\u{218F}' | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}'
        | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}' | '\u{10000}'..='\u{EFFFF}')
}

fn continues_name(c: char) -> bool {
    starts_name(c)
        || matches!(c, '-' | '.' | '0'..='9' | '\u{B7}'
            | '\u{300}'..='\u{36F}' | '\u{203F}'..='\u{2040}')
}

/// Returns the offset of the first character that XML does not allow: a control character or a
/// noncharacter.
pub(super) fn first_forbidden(text: &str) -> Option<usize> {
    let forbidden = |byte: u8| byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r');
    let bytes = text.as_bytes();
    // Block by block, so that the compiler can use wide registers for the usual case.
    let control = bytes
        .chunks(4096)
        .position(|block| block.iter().fold(false, |any, &byte| any | forbidden(byte)))
        .and_then(|block| {
            let start = block * 4096;
            Some(start + bytes[start..].iter().position(|&byte| forbidden(byte))?)
        });
    let first = ["\u{FFFE}", "\u{FFFF}"]
        .into_iter()
        .filter_map(|not_a_character| memchr::memmem::find(bytes, not_a_character.as_bytes()))
        .min();
    control.into_iter().chain(first).min()
}

/// Returns the character of a reference such as `#65` or `#x41`.
pub(super) fn character(reference: &str) -> Result<char, ParseErrorKind> {
    let bad = || ParseErrorKind::NotWellFormed(format!("&{reference}; is not a character"));
    let digits = reference.strip_prefix('#').ok_or_else(bad)?;
    let (digits, radix) = match digits.strip_prefix('x') {
        Some(digits) => (digits, 16),
        None => (digits, 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(bad());
    }
    let number = u32::from_str_radix(digits, radix).map_err(|_| bad())?;
    char::from_u32(number)
        .filter(|c| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..))
        .ok_or_else(bad)
}

/// The five entities that every document has.
pub(super) fn predefined(name: &str) -> Option<&'static str> {
    Some(match name {
        "lt" => "<",
        "gt" => ">",
        "amp" => "&",
        "apos" => "'",
        "quot" => "\"",
        _ => return None,
    })
}
