//! serde's attributes that `PersistDeserialize` follows. Attributes that affect only serialization
//! are ignored. Unsupported attributes are errors, so none is ignored silently.

use syn::meta::ParseNestedMeta;
use syn::{Attribute, Error, LitStr, Path, Result};

use crate::input::bare;

/// Attributes without effect here, with or without a value.
const ONLY_WRITING: [&str; 11] = [
    "skip_serializing",
    "skip_serializing_if",
    "serialize_with",
    "into",
    "getter",
    "bound",
    "borrow",
    "crate",
    "expecting",
    "transparent",
    "variant_identifier",
];

/// Source of a missing field's value.
#[derive(Clone)]
pub enum Missing {
    /// An error, unless the type has its own default.
    Refused,
    /// `Default::default()`.
    Default,
    /// A function.
    By(Path),
}

/// Attributes of the type.
pub struct TypeNames {
    pub name: String,
    pub rule: Rule,
    pub denies_unknown: bool,
    pub default: bool,
}

/// Attributes of a field or variant.
pub struct MemberNames {
    /// The name and its aliases; `None` for a field that is not read.
    pub names: Vec<String>,
    pub missing: Missing,
}

impl TypeNames {
    pub fn read(ident: &syn::Ident, attributes: &[Attribute]) -> Result<TypeNames> {
        let mut names = TypeNames {
            name: bare(ident),
            rule: Rule::None,
            denies_unknown: false,
            default: false,
        };
        each(attributes, |word, meta| {
            match word {
                "rename" => {
                    names.name = for_reading(meta)?.map_or(names.name.clone(), |l| l.value())
                }
                "rename_all" => {
                    if let Some(literal) = for_reading(meta)? {
                        names.rule = Rule::parse(&literal)?;
                    }
                }
                "deny_unknown_fields" => names.denies_unknown = true,
                "default" if !meta.input.peek(syn::Token![=]) => names.default = true,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(names)
    }
}

impl MemberNames {
    pub fn read(
        plain: String,
        attributes: &[Attribute],
        rule: impl Fn(&str) -> String,
    ) -> Result<Self> {
        let (mut name, mut aliases, mut skipped) = (None, Vec::new(), false);
        let mut missing = Missing::Refused;
        each(attributes, |word, meta| {
            match word {
                "rename" => {
                    name = for_reading(meta)?.map(|literal| literal.value()).or(name.take())
                }
                "alias" => aliases.push(meta.value()?.parse::<LitStr>()?.value()),
                "skip" | "skip_deserializing" => skipped = true,
                "default" if meta.input.peek(syn::Token![=]) => {
                    missing = Missing::By(meta.value()?.parse::<LitStr>()?.parse()?);
                }
                "default" => missing = Missing::Default,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if skipped {
            let missing = if let Missing::Refused = missing { Missing::Default } else { missing };
            return Ok(MemberNames { names: Vec::new(), missing });
        }
        let mut names = vec![name.unwrap_or_else(|| rule(&plain))];
        names.extend(aliases);
        Ok(MemberNames { names, missing })
    }
}

/// Calls `known` with each word of the `#[serde(..)]` attributes. Words that it does not know are
/// ignored or errors.
fn each(
    attributes: &[Attribute],
    mut known: impl FnMut(&str, &ParseNestedMeta<'_>) -> Result<bool>,
) -> Result<()> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        attribute.parse_nested_meta(|meta| {
            let word = meta.path.get_ident().map(bare).unwrap_or_default();
            if known(&word, &meta)? {
                return Ok(());
            }
            if !ONLY_WRITING.contains(&word.as_str()) {
                return Err(meta.error(format!(
                    "`PersistDeserialize` doesn't follow `{word}`; implement \
                     `evermap::serde::PersistDeserialize` by hand, or leave the attribute out"
                )));
            }
            if meta.input.peek(syn::Token![=]) {
                meta.value()?.parse::<syn::Expr>()?;
            } else if meta.input.peek(syn::token::Paren) {
                let within;
                syn::parenthesized!(within in meta.input);
                within.parse::<proc_macro2::TokenStream>()?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Parses `= ".."` or `(deserialize = "..", serialize = "..")`.
fn for_reading(meta: &ParseNestedMeta<'_>) -> Result<Option<LitStr>> {
    if meta.input.peek(syn::Token![=]) {
        return meta.value()?.parse().map(Some);
    }
    let mut found = None;
    meta.parse_nested_meta(|side| {
        let literal: LitStr = side.value()?.parse()?;
        if side.path.is_ident("deserialize") {
            found = Some(literal);
        }
        Ok(())
    })?;
    Ok(found)
}

/// A rename rule, with serde's names.
#[derive(Clone, Copy)]
pub enum Rule {
    None,
    Lower,
    Upper,
    Pascal,
    Camel,
    Snake,
    ScreamingSnake,
    Kebab,
    ScreamingKebab,
}

impl Rule {
    fn parse(literal: &LitStr) -> Result<Rule> {
        Ok(match literal.value().as_str() {
            "lowercase" => Rule::Lower,
            "UPPERCASE" => Rule::Upper,
            "PascalCase" => Rule::Pascal,
            "camelCase" => Rule::Camel,
            "snake_case" => Rule::Snake,
            "SCREAMING_SNAKE_CASE" => Rule::ScreamingSnake,
            "kebab-case" => Rule::Kebab,
            "SCREAMING-KEBAB-CASE" => Rule::ScreamingKebab,
            _ => {
                return Err(Error::new(
                    literal.span(),
                    "not one of serde's rules: `lowercase`, `UPPERCASE`, `PascalCase`, `camelCase`, \
                     `snake_case`, `SCREAMING_SNAKE_CASE`, `kebab-case`, `SCREAMING-KEBAB-CASE`",
                ));
            }
        })
    }

    /// Renames a field, which is `snake_case` in the program. As in serde, `lowercase` keeps the
    /// underscores.
    pub fn field(self, name: &str) -> String {
        match self {
            Rule::None | Rule::Lower | Rule::Snake => name.to_string(),
            Rule::Upper | Rule::ScreamingSnake => name.to_ascii_uppercase(),
            Rule::Pascal => name.split('_').map(capital).collect(),
            Rule::Camel => uncapital(&Rule::Pascal.field(name)),
            Rule::Kebab => name.replace('_', "-"),
            Rule::ScreamingKebab => name.to_ascii_uppercase().replace('_', "-"),
        }
    }

    /// Renames a variant, which is `PascalCase` in the program.
    pub fn variant(self, name: &str) -> String {
        match self {
            Rule::None | Rule::Pascal => name.to_string(),
            Rule::Lower => name.to_ascii_lowercase(),
            Rule::Upper => name.to_ascii_uppercase(),
            Rule::Camel => uncapital(name),
            Rule::Snake => {
                let mut snake = String::new();
                for (index, letter) in name.char_indices() {
                    if index > 0 && letter.is_uppercase() {
                        snake.push('_');
                    }
                    snake.push(letter.to_ascii_lowercase());
                }
                snake
            }
            Rule::ScreamingSnake => Rule::Snake.variant(name).to_ascii_uppercase(),
            Rule::Kebab => Rule::Snake.variant(name).replace('_', "-"),
            Rule::ScreamingKebab => Rule::ScreamingSnake.variant(name).replace('_', "-"),
        }
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn uncapital(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_ascii_lowercase().to_string() + letters.as_str())
}
