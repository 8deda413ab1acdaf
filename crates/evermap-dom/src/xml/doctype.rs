//! The document type declaration: its name and ids, and the entities of its internal subset.

use std::collections::HashMap;
use std::rc::Rc;

use super::scan::{character, check_name, is_space, not_well_formed};
use crate::error::ParseErrorKind;

/// The replacement of an entity.
#[derive(Clone, Debug)]
pub(super) enum Entity {
    Text(Rc<str>),
    External,
}

#[derive(Debug, Default)]
pub(super) struct Doctype<'a> {
    pub name: &'a str,
    pub public_id: &'a str,
    pub system_id: &'a str,
    pub entities: HashMap<String, Entity>,
}

/// A cursor over a declaration.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn skip_space(&mut self) -> bool {
        let before = self.rest.len();
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        self.rest.len() < before
    }

    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> &'a str {
        let ends = |byte: u8| is_space(byte) || matches!(byte, b'[' | b']' | b'>' | b'"' | b'\'');
        let end = self.rest.bytes().position(ends).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn quoted(&mut self) -> Result<&'a str, ParseErrorKind> {
        self.skip_space();
        let quote = match self.rest.as_bytes().first() {
            Some(&quote @ (b'"' | b'\'')) => quote,
            _ => return Err(not_well_formed("a quoted text is missing in the DOCTYPE")),
        };
        let after = &self.rest[1..];
        let end = memchr::memchr(quote, after.as_bytes())
            .ok_or_else(|| not_well_formed("a quote is not closed in the DOCTYPE"))?;
        self.rest = &after[end + 1..];
        Ok(&after[..end])
    }

    /// `PUBLIC "..." "..."` or `SYSTEM "..."`.
    fn external_id(&mut self) -> Result<Option<(&'a str, &'a str)>, ParseErrorKind> {
        if self.eat("PUBLIC") {
            return Ok(Some((self.quoted()?, self.quoted()?)));
        }
        if self.eat("SYSTEM") {
            return Ok(Some(("", self.quoted()?)));
        }
        Ok(None)
    }

    /// Skips a declaration up to its `>`, past quoted texts.
    fn skip_declaration(&mut self) -> Result<(), ParseErrorKind> {
        let unclosed = || not_well_formed("a declaration is not closed in the DOCTYPE");
        loop {
            let at = self.rest.find(['"', '\'', '>']).ok_or_else(unclosed)?;
            if self.rest.as_bytes()[at] == b'>' {
                self.rest = &self.rest[at + 1..];
                return Ok(());
            }
            self.rest = &self.rest[at..];
            self.quoted()?;
        }
    }

    fn skip_past(&mut self, end: &str) -> Result<(), ParseErrorKind> {
        let at = self
            .rest
            .find(end)
            .ok_or_else(|| not_well_formed("a declaration is not closed in the DOCTYPE"))?;
        self.rest = &self.rest[at + end.len()..];
        Ok(())
    }
}

/// Parses the text between `<!DOCTYPE` and `>`.
pub(super) fn parse(source: &str) -> Result<Doctype<'_>, ParseErrorKind> {
    let mut cursor = Cursor { rest: source };
    cursor.skip_space();
    let mut doctype = Doctype { name: cursor.word(), ..Doctype::default() };
    check_name(doctype.name)?;
    cursor.skip_space();
    if let Some((public_id, system_id)) = cursor.external_id()? {
        (doctype.public_id, doctype.system_id) = (public_id, system_id);
    }
    cursor.skip_space();
    if cursor.eat("[") {
        subset(&mut cursor, &mut doctype.entities)?;
        cursor.skip_space();
    }
    match cursor.rest {
        "" => Ok(doctype),
        _ => Err(not_well_formed("unexpected text in the DOCTYPE")),
    }
}

fn subset(
    cursor: &mut Cursor<'_>,
    entities: &mut HashMap<String, Entity>,
) -> Result<(), ParseErrorKind> {
    loop {
        cursor.skip_space();
        if cursor.eat("]") {
            return Ok(());
        }
        if cursor.eat("<!--") {
            cursor.skip_past("-->")?;
        } else if cursor.eat("<?") {
            cursor.skip_past("?>")?;
        } else if cursor.eat("<!ENTITY") {
            entity(cursor, entities)?;
        } else if ["<!ELEMENT", "<!ATTLIST", "<!NOTATION"]
            .iter()
            .any(|declaration| cursor.eat(declaration))
        {
            cursor.skip_declaration()?;
        } else if cursor.eat("%") {
            // A parameter entity. Its external text is not read.
            cursor.skip_past(";")?;
        } else {
            return Err(not_well_formed("unexpected text in the DOCTYPE's subset"));
        }
    }
}

fn entity(
    cursor: &mut Cursor<'_>,
    entities: &mut HashMap<String, Entity>,
) -> Result<(), ParseErrorKind> {
    if !cursor.skip_space() {
        return Err(not_well_formed("no white space after <!ENTITY"));
    }
    if cursor.rest.starts_with('%') {
        return cursor.skip_declaration();
    }
    let name = cursor.word();
    check_name(name)?;
    cursor.skip_space();
    let entity = match cursor.external_id()? {
        Some(_) => Entity::External,
        None => Entity::Text(replacement(cursor.quoted()?)?.into()),
    };
    // The first declaration of a name counts.
    entities.entry(name.to_owned()).or_insert(entity);
    cursor.skip_declaration()
}

/// Returns the replacement text of an entity value. Character references are resolved now,
/// references to other entities when this one is used.
fn replacement(value: &str) -> Result<String, ParseErrorKind> {
    let mut text = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find("&#") {
        text.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let end = after
            .find(';')
            .ok_or_else(|| not_well_formed("a character reference without its ;"))?;
        text.push(character(&after[..end])?);
        rest = &after[end + 1..];
    }
    text.push_str(rest);
    Ok(text.replace("\r\n", "\n").replace('\r', "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_internal_subset_declares_entities() {
        let doctype = parse(
            "r PUBLIC '-//x' \"x.dtd\" [ <!-- > --> <!ELEMENT r ANY>\n\
             <!ENTITY a 'x&#65;&b;'> <!ENTITY a 'second'> <!ENTITY e SYSTEM 'e.txt'>\
             <!ENTITY % p \"<!ENTITY b '>'>\"> %p; ]",
        )
        .unwrap();
        let ids = (doctype.name, doctype.public_id, doctype.system_id);
        assert_eq!(ids, ("r", "-//x", "x.dtd"));
        assert!(matches!(&doctype.entities["a"], Entity::Text(text) if &**text == "xA&b;"));
        assert!(matches!(doctype.entities["e"], Entity::External));
        assert_eq!(doctype.entities.len(), 2);
        assert!(parse("r [ <!ENTITY a ]").is_err());
        assert!(parse("r junk").is_err());
    }
}
