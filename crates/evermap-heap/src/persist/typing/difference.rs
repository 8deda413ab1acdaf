//! Compares two type descriptions, field by field, for the error when an object holds another type
//! than the program asks for.
//!
//! The stored description comes from a file, may be truncated (a superblock has 1024 bytes for it),
//! and may be any text if a raw session wrote it. So nothing here fails, and text that isn't
//! understood isn't compared.

use std::fmt;

use crate::format::SCHEMA_BYTES_MAX;

/// Differences between the type that an object holds and the type that a program asks for.
///
/// ```
/// use evermap::{Error, Persist, Store};
///
/// mod before {
///     #[derive(evermap::Persist)]
///     #[repr(C)]
///     pub struct Settings { pub volume: u32, pub theme: evermap::PString }
/// }
///
/// #[derive(Persist)]
/// #[repr(C)]
/// struct Settings { volume: f32, theme: evermap::PString, language: evermap::PString }
///
/// # let directory = tempfile::tempdir()?;
/// # let store = Store::create_new(directory.path().join("store"))?;
/// let old = before::Settings { volume: 7, theme: evermap::PString::new() };
/// store.create::<before::Settings, _>("settings", old)?;
/// let Err(Error::SchemaMismatch { difference, .. }) = store.read::<Settings>("settings") else {
///     panic!("the types differ");
/// };
/// let fields: Vec<_> = difference.changes.iter().map(|change| change.field.as_str()).collect();
/// assert_eq!(fields, ["volume", "language"]);
/// assert_eq!(difference.to_string(), "\
/// stored: `Settings`, 32 bytes; expected: `Settings`, 56 bytes
///   Settings.volume: u32 in the object, f32 in the program
///   Settings.language: PString, in the program only");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaDifference {
    /// Name of the type in the object.
    pub stored: String,
    /// Size of the stored type, if its description contains it.
    pub stored_bytes: Option<u64>,
    /// Name of the type that the program asks for.
    pub expected: String,
    /// Size of the expected type.
    pub expected_bytes: Option<u64>,
    /// Fields that differ, in order: first in the root, then in the types within.
    pub changes: Vec<FieldChange>,
    /// True if the stored description was truncated to the first 1024 bytes. The rest was not
    /// compared.
    pub truncated: bool,
}

/// A field (or a variant of an enum) that is different, new or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldChange {
    /// Struct or enum that contains the field.
    pub within: String,
    /// Name of the field.
    pub field: String,
    /// The field in the object, or `None` if it is new.
    pub stored: Option<FieldShape>,
    /// The field in the program, or `None` if it was removed.
    pub expected: Option<FieldShape>,
}

/// Description of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldShape {
    /// Type of the field, or value of the variant.
    pub of: String,
    /// Offset in the struct, or `None` for a variant.
    pub offset: Option<u64>,
}

impl SchemaDifference {
    /// Compares a description from a file with a description from this program.
    #[doc(hidden)]
    pub fn between(stored: &str, expected: &str) -> SchemaDifference {
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

impl fmt::Display for SchemaDifference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: Option<u64>| bytes.map_or(String::new(), |n| format!(", {n} bytes"));
        write!(formatter, "stored: `{}`{}; ", self.stored, size(self.stored_bytes))?;
        write!(formatter, "expected: `{}`{}", self.expected, size(self.expected_bytes))?;
        for change in &self.changes {
            write!(formatter, "\n  {change}")?;
        }
        if self.truncated {
            formatter.write_str(
                "\n  (the object stores only 1024 bytes of its description; the rest was not \
                 compared)",
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}: ", self.within, self.field)?;
        match (&self.stored, &self.expected) {
            (Some(stored), Some(expected)) if stored.of == expected.of => write!(
                formatter,
                "{}, at byte {} in the object, {} in the program",
                stored.of,
                stored.offset.unwrap_or(0),
                expected.offset.unwrap_or(0)
            ),
            (Some(stored), Some(expected)) => {
                write!(formatter, "{} in the object, {} in the program", stored.of, expected.of)
            }
            (Some(stored), None) => write!(formatter, "{}, in the object only", stored.of),
            (None, Some(expected)) => write!(formatter, "{}, in the program only", expected.of),
            (None, None) => formatter.write_str("unknown"),
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
