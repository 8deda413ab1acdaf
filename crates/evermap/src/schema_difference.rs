//! Differences between two types, as an error shows them. `persist` compares the descriptions.

use std::fmt;

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
