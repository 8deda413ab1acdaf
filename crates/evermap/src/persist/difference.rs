//! Compares two type descriptions, field by field, for the error when an object holds another type
//! than the program asks for.
//!
//! The stored description comes from a file, may be truncated (a superblock has 1024 bytes for it),
//! and may be any text if a raw session wrote it. So nothing here fails, and text that isn't
//! understood isn't compared.

use crate::format::SCHEMA_BYTES_MAX;
use crate::schema_difference::{FieldChange, FieldShape, SchemaDifference};

impl SchemaDifference {
    /// Compares a description from a file with a description from this program.
    pub(crate) fn between(stored: &str, expected: &str) -> SchemaDifference {
        let truncated = stored.len() + 4 > SCHEMA_BYTES_MAX;
        let (there, here) = (Definition::all(stored), Definition::all(expected));
        let mut changes = Vec::new();
        for (index, definition) in here.iter().enumerate() {
            // Roots are compared with each other even if their names differ.
            let other = match index {
                0 => there.first(),
                _ => there.iter().skip(1).find(|other| other.name == definition.name),
            };
            if let Some(other) = other {
                other.compare(definition, &mut changes);
            }
        }
        let name = |all: &[Definition<'_>], text: &str| {
            all.first().map_or_else(|| shown(text), |root| root.name.to_string())
        };
        SchemaDifference {
            stored: name(&there, stored),
            stored_bytes: there.first().and_then(|root| root.bytes),
            expected: name(&here, expected),
            expected_bytes: here.first().and_then(|root| root.bytes),
            changes,
            truncated,
        }
    }
}

/// Returns the beginning of a text that isn't a description.
fn shown(text: &str) -> String {
    text.escape_debug().take(60).collect()
}

/// `name{..}:repr#size/align`, or `type#size/align` at the beginning.
struct Definition<'t> {
    name: &'t str,
    fields: Vec<(&'t str, FieldShape)>,
    bytes: Option<u64>,
    /// The text ends before the definition does.
    truncated: bool,
}

impl<'t> Definition<'t> {
    fn all(text: &'t str) -> Vec<Definition<'t>> {
        let parts = split(text, ';').into_iter().filter(|part| !part.is_empty());
        parts.map(Definition::read).collect()
    }

    fn read(text: &'t str) -> Definition<'t> {
        let end = text.rfind('#').filter(|end| text[*end..].contains('/'));
        let bytes = end.and_then(|end| text[end + 1..].split('/').next()?.parse().ok());
        let body = end.map_or(text, |end| &text[..end]);
        let Some(open) = body.find('{') else {
            return Definition { name: body, fields: Vec::new(), bytes, truncated: end.is_none() };
        };
        let close = body.rfind('}').filter(|close| *close > open);
        let inside = &body[open + 1..close.unwrap_or(body.len())];
        let mut fields: Vec<_> = split(inside, ',').into_iter().filter_map(field).collect();
        if close.is_none() {
            // The last field may be truncated.
            fields.pop();
        }
        Definition {
            name: &body[..open],
            fields,
            bytes,
            truncated: end.is_none() || close.is_none(),
        }
    }

    /// Adds the differences of `expected` from this definition.
    fn compare(&self, expected: &Definition<'_>, changes: &mut Vec<FieldChange>) {
        let find = |fields: &[(&str, FieldShape)], name: &str| {
            fields.iter().find(|(there, _)| *there == name).map(|(_, shape)| shape.clone())
        };
        let mut add = |field: &str, stored, expected_shape| {
            if stored != expected_shape {
                changes.push(FieldChange {
                    within: expected.name.to_string(),
                    field: field.to_string(),
                    stored,
                    expected: expected_shape,
                });
            }
        };
        for (name, shape) in &self.fields {
            add(name, Some(shape.clone()), find(&expected.fields, name));
        }
        for (name, shape) in &expected.fields {
            let stored = find(&self.fields, name);
            // A truncated definition may have more fields, so its missing fields are not reported.
            if stored.is_none() && !self.truncated {
                add(name, None, Some(shape.clone()));
            }
        }
    }
}

/// `name@offset:type` or `name=value`.
fn field(text: &str) -> Option<(&str, FieldShape)> {
    if let Some((name, value)) = text.split_once('=') {
        return Some((name, FieldShape { of: value.to_string(), offset: None }));
    }
    let (name, rest) = text.split_once('@')?;
    let (offset, of) = rest.split_once(':')?;
    Some((name, FieldShape { of: of.to_string(), offset: Some(offset.parse().ok()?) }))
}

/// Splits at separators that aren't within brackets.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '<' | '[' | '{' => depth += 1,
            '>' | ']' | '}' => depth = depth.saturating_sub(1),
            _ if letter == separator && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + separator.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}
