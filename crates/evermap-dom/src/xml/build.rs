//! Converts XML events to tables.
//!
//! Events come in document order, so nodes are appended with their final ids. The open elements are
//! a list, not the call stack: depth costs only memory. Entities that contain markup are parsed
//! recursively, with limits on their nesting and their total length.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use quick_xml::Reader;
use quick_xml::events::Event;

use super::XmlOptions;
use super::bindings::Bindings;
use super::doctype::{self, Entity};
use super::scan::*;
use crate::arena::Arena;
use crate::classes::ClassTable;
use crate::error::{ParseError, ParseErrorKind};
use crate::hash::Seeded;
use crate::known::{CLASS, ID};
use crate::layout::*;
use crate::names::*;
use crate::room::{has_room, has_room_for_node};
use crate::tables::{Parts, Tables};

/// Maximum nesting of entities.
const ENTITY_DEPTH_MAX: u32 = 16;
/// Bytes that all expansions of a document may have in total, whatever its length.
const ENTITY_BYTES_MAX: usize = 16 << 20;
/// From this many attributes per element on, duplicates are found with a hash set.
const FEW_ATTRIBUTES: usize = 16;
const CACHE_SLOTS: usize = 1024;

pub(super) fn parse(
    text: &str,
    options: &XmlOptions,
    source_bytes: u64,
) -> Result<Tables, ParseError> {
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    if let Some(at) = first_forbidden(text) {
        let kind = not_well_formed("a character that XML does not allow");
        return Err(ParseError::at(kind, text, at));
    }
    let mut builder = Builder::new(text.len());
    builder
        .content(text, 0)
        .and_then(|()| builder.end_document())
        .map_err(|kind| ParseError::at(kind, text, builder.at))?;
    let parts = Parts {
        document_kind: 1,
        quirks: 0,
        nodes: builder.nodes,
        attributes: builder.attributes,
        arena: builder.arena,
        names: builder.names,
        classes: builder.classes,
        source_bytes,
        index: options.index,
        scripting: false,
        too_many_nodes: builder.overflow,
        no_memory: builder.no_memory,
    };
    parts.finish()
}

struct Builder {
    nodes: Vec<Node>,
    attributes: Vec<Attribute>,
    arena: Arena,
    names: NameTable,
    classes: ClassTable,
    entities: HashMap<String, Entity>,
    entity_bytes: usize,
    /// The open elements, innermost last, each with the number of declarations in scope before it.
    open: Vec<(u32, u32)>,
    bindings: Bindings,
    /// From qualified name and namespace to name id, checked against the name table.
    cache: Vec<(u32, u32)>,
    seed: Seeded,
    /// The last node is a text that can still grow.
    text_open: bool,
    has_root: bool,
    has_doctype: bool,
    overflow: bool,
    no_memory: bool,
    /// Offset of the current event in the document.
    at: usize,
}

type Outcome<T = ()> = Result<T, ParseErrorKind>;

impl Builder {
    fn new(bytes: usize) -> Builder {
        Builder {
            nodes: vec![Node { word: DOCUMENT, parent: 0, extent: 1, data: NONE }],
            attributes: Vec::new(),
            arena: Arena::new(bytes / 2),
            names: NameTable::default(),
            classes: ClassTable::default(),
            entities: HashMap::new(),
            entity_bytes: 0,
            open: Vec::new(),
            bindings: Bindings::new(),
            cache: vec![(NONE, 0); CACHE_SLOTS],
            seed: Seeded::new(),
            text_open: false,
            has_root: false,
            has_doctype: false,
            overflow: false,
            no_memory: false,
            at: 0,
        }
    }

    /// Parses a document (`depth` 0) or the replacement text of an entity.
    fn content(&mut self, source: &str, depth: u32) -> Outcome {
        let mut reader = Reader::from_str(source);
        reader.config_mut().check_comments = true;
        let outer = self.open.len();
        let mut raw = Vec::new();
        loop {
            let start = reader.buffer_position() as usize;
            if depth == 0 {
                self.at = start;
            }
            let event = reader.read_event().map_err(|error| {
                if depth == 0 {
                    self.at = reader.error_position() as usize;
                }
                from_reader(error)
            })?;
            let end = reader.buffer_position() as usize;
            if self.no_memory || self.arena.has_no_memory() {
                return Err(ParseErrorKind::NoMemory);
            }
            match event {
                Event::Start(_) => self.element(&source[start + 1..end - 1], &mut raw)?,
                Event::Empty(_) => {
                    self.element(&source[start + 1..end - 2], &mut raw)?;
                    self.close();
                }
                Event::End(_) => {
                    if self.open.len() <= outer {
                        return Err(not_well_formed("an end tag of an element outside the entity"));
                    }
                    self.close();
                }
                Event::Text(text) => self.text(&text)?,
                Event::CData(text) => {
                    if self.open.is_empty() {
                        return Err(ParseErrorKind::TextOutsideRoot);
                    }
                    self.append_text(&unify_line_ends(&text));
                }
                Event::GeneralRef(name) => self.reference(&name, depth)?,
                Event::Comment(text) => {
                    self.leaf(COMMENT, &unify_line_ends(&text));
                }
                Event::PI(instruction) => {
                    self.instruction(instruction.target(), instruction.content())?;
                }
                Event::Decl(_) if start > 0 || depth > 0 => {
                    return Err(not_well_formed("an XML declaration that is not at the start"));
                }
                Event::Decl(declaration) => {
                    declaration.version().map_err(from_reader)?;
                }
                Event::DocType(_) if depth > 0 => {
                    return Err(not_well_formed("a DOCTYPE in an entity"));
                }
                Event::DocType(text) => self.doctype(&text)?,
                Event::Eof => break,
            }
        }
        match self.open.len() > outer {
            true => Err(not_well_formed("an element without its end tag")),
            false => Ok(()),
        }
    }

    fn end_document(&mut self) -> Outcome {
        self.finish_text();
        self.nodes[0].extent = self.nodes.len() as u32;
        match self.has_root {
            true => Ok(()),
            false => Err(ParseErrorKind::NoRoot),
        }
    }

    fn parent(&self) -> u32 {
        self.open.last().map_or(0, |&(id, _)| id)
    }

    fn push(&mut self, word: u32, data: u32, bytes: u32) -> u32 {
        if self.nodes.len() >= (NONE - 1) as usize {
            self.overflow = true;
            return 0;
        }
        if !has_room_for_node(&mut self.nodes) {
            self.no_memory = true;
            return 0;
        }
        let id = self.nodes.len() as u32;
        self.nodes.push(Node { word, parent: self.parent(), extent: bytes, data });
        id
    }

    fn finish_text(&mut self) {
        if self.text_open
            && let Some(node) = self.nodes.last_mut()
        {
            node.data = self.arena.intern_tail(node.data, node.extent);
        }
        self.text_open = false;
    }

    fn append_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.nodes.last_mut() {
            Some(node) if self.text_open => {
                let (data, bytes) =
                    self.arena.extend(true, node.data, node.extent, text.as_bytes());
                (node.data, node.extent) = (data, bytes);
            }
            _ => {
                let offset = self.arena.push(text.as_bytes());
                self.push(TEXT_NODE, offset, text.len() as u32);
                self.text_open = true;
            }
        }
    }

    fn leaf(&mut self, word: u32, text: &str) {
        self.finish_text();
        let offset = self.arena.text(text.as_bytes());
        self.push(word, offset, text.len() as u32);
    }

    fn text(&mut self, text: &str) -> Outcome {
        if self.open.is_empty() {
            return match text.bytes().all(is_space) {
                true => Ok(()),
                false => Err(ParseErrorKind::TextOutsideRoot),
            };
        }
        if memchr::memmem::find(text.as_bytes(), b"]]>").is_some() {
            return Err(not_well_formed("]]> in a text"));
        }
        self.append_text(&unify_line_ends(text));
        Ok(())
    }

    fn reference(&mut self, name: &str, depth: u32) -> Outcome {
        if self.open.is_empty() {
            return Err(ParseErrorKind::TextOutsideRoot);
        }
        if name.starts_with('#') {
            let character = character(name)?;
            self.append_text(character.encode_utf8(&mut [0; 4]));
            return Ok(());
        }
        if let Some(text) = predefined(name) {
            self.append_text(text);
            return Ok(());
        }
        let text = self.entity(name, depth)?;
        match text.contains(['<', '&']) {
            true => self.content(&text, depth + 1),
            false => self.text(&text),
        }
    }

    /// Returns the replacement text of an entity, and counts its length.
    fn entity(&mut self, name: &str, depth: u32) -> Outcome<std::rc::Rc<str>> {
        let text = match self.entities.get(name) {
            Some(Entity::Text(text)) => text.clone(),
            Some(Entity::External) => return Err(ParseErrorKind::ExternalEntity(name.to_owned())),
            None => return Err(ParseErrorKind::UnknownEntity(name.to_owned())),
        };
        self.entity_bytes += text.len() + 1;
        match depth >= ENTITY_DEPTH_MAX || self.entity_bytes > ENTITY_BYTES_MAX {
            true => Err(ParseErrorKind::EntityLimit),
            false => Ok(text),
        }
    }

    fn instruction(&mut self, target: &str, content: &str) -> Outcome {
        let content = content.trim_start_matches([' ', '\t', '\n', '\r']);
        if check_name(target)? > 0 || target.eq_ignore_ascii_case("xml") {
            return Err(not_well_formed("a processing instruction with a reserved target"));
        }
        self.finish_text();
        let name = self.names.intern(&mut self.arena, target, 0, NAMESPACE_DEFAULT);
        let word = PROCESSING_INSTRUCTION | name << NAME_SHIFT;
        self.leaf(word, &unify_line_ends(content));
        Ok(())
    }

    fn doctype(&mut self, source: &str) -> Outcome {
        if self.has_root || self.has_doctype {
            return Err(not_well_formed("a DOCTYPE after the first element or another DOCTYPE"));
        }
        self.has_doctype = true;
        let source = source.trim();
        let doctype = doctype::parse(source)?;
        let doctype::Doctype { name, public_id, system_id, entities } = doctype;
        self.entities = entities;
        self.leaf(DOCTYPE, &format!("{name}\0{public_id}\0{system_id}\0{source}"));
        Ok(())
    }

    /// A start tag without its brackets.
    fn element<'s>(&mut self, tag: &'s str, raw: &mut Vec<RawAttribute<'s>>) -> Outcome {
        let name_end = tag.bytes().position(is_space).unwrap_or(tag.len());
        let (name, rest) = tag.split_at(name_end);
        if self.open.is_empty() {
            if self.has_root {
                return Err(ParseErrorKind::SecondRoot(name.to_owned()));
            }
            self.has_root = true;
        }
        self.finish_text();
        attributes(rest, raw)?;
        let bindings_before = self.bindings.len() as u32;
        for attribute in raw.iter().filter(|attribute| attribute.name.starts_with("xmlns")) {
            self.declare(attribute)?;
        }
        let name = self.name(name, true)?;
        let first = self.attributes.len();
        let flags = self.push_attributes(raw)?;
        let data = match raw.is_empty() {
            true => NONE,
            false => first as u32,
        };
        let id = self.push(ELEMENT | flags | name << NAME_SHIFT, data, 0);
        self.open.push((id, bindings_before));
        Ok(())
    }

    fn close(&mut self) {
        self.finish_text();
        if let Some((id, bindings)) = self.open.pop() {
            self.bindings.truncate(bindings as usize);
            self.nodes[id as usize].extent = self.nodes.len() as u32;
        }
    }

    fn push_attributes(&mut self, raw: &[RawAttribute<'_>]) -> Outcome<u32> {
        let first = self.attributes.len();
        let mut flags = 0;
        for attribute in raw {
            let name = self.name(attribute.name, false)?;
            let value = self.normalized(attribute.value, 0)?;
            let value = match name {
                CLASS => {
                    flags |= HAS_CLASS;
                    self.classes.list(&mut self.arena, &value)
                }
                _ => {
                    if name == ID && !value.is_empty() {
                        flags |= HAS_ID;
                    }
                    self.arena.value(value.as_bytes())
                }
            };
            if !has_room(&mut self.attributes, 1) {
                return Err(ParseErrorKind::NoMemory);
            }
            self.attributes.push(Attribute { word: name, value });
        }
        if raw.len() > 1 {
            self.check_duplicates(first)?;
        }
        if let Some(last) = self.attributes[first..].last_mut() {
            last.word |= LAST_ATTRIBUTE;
        }
        Ok(flags)
    }

    /// No two attributes may have the same namespace and local name.
    fn check_duplicates(&self, first: usize) -> Outcome {
        let run = &self.attributes[first..];
        let expanded = |attribute: &Attribute| {
            let name = attribute.name();
            (self.names.namespace_of(name), self.names.local(name))
        };
        let duplicate = match run.len() <= FEW_ATTRIBUTES {
            true => run.iter().enumerate().find(|&(at, attribute)| {
                run[..at].iter().any(|other| expanded(other) == expanded(attribute))
            }),
            false => {
                let mut seen = HashSet::with_capacity(run.len());
                run.iter().enumerate().find(|(_, attribute)| !seen.insert(expanded(attribute)))
            }
        };
        match duplicate {
            None => Ok(()),
            Some((_, attribute)) => {
                let name = self.names.qualified(&self.arena, attribute.name());
                let name = String::from_utf8_lossy(name).into_owned();
                Err(ParseErrorKind::DuplicateAttribute(name))
            }
        }
    }

    /// Adds a namespace declaration.
    fn declare(&mut self, attribute: &RawAttribute<'_>) -> Outcome {
        let prefix = match attribute.name {
            "xmlns" => "",
            name => match name.strip_prefix("xmlns:") {
                Some(prefix) => prefix,
                None => return Ok(()),
            },
        };
        let uri = self.normalized(attribute.value, 0)?;
        let namespace = self.names.namespace(&mut self.arena, &uri);
        let reserved = match prefix {
            "xml" => namespace != NAMESPACE_XML,
            "xmlns" => true,
            prefix => {
                namespace == NAMESPACE_XML
                    || namespace == NAMESPACE_XMLNS
                    || uri.is_empty() && !prefix.is_empty()
            }
        };
        if reserved {
            return Err(ParseErrorKind::NotWellFormed(format!(
                "the namespace declaration {}={uri:?} is not allowed",
                attribute.name
            )));
        }
        self.bindings.push(prefix, namespace);
        Ok(())
    }

    /// Returns the id of an element's or attribute's name in the current namespaces.
    fn name(&mut self, qualified: &str, is_element: bool) -> Outcome<u32> {
        let colon = memchr::memchr(b':', qualified.as_bytes());
        let namespace = match colon {
            None if is_element => self.bindings.of("").unwrap_or(NAMESPACE_DEFAULT),
            None if qualified == "xmlns" => NAMESPACE_XMLNS,
            None => NAMESPACE_DEFAULT,
            Some(colon) => match &qualified[..colon] {
                "xmlns" if !is_element => NAMESPACE_XMLNS,
                prefix => self
                    .bindings
                    .of(prefix)
                    .ok_or_else(|| ParseErrorKind::UnboundPrefix(prefix.to_owned()))?,
            },
        };
        let hash = self.seed.hash(qualified.as_bytes()) ^ namespace.wrapping_mul(0x9E37_79B9);
        let slot = hash as usize % CACHE_SLOTS;
        let (cached, cached_namespace) = self.cache[slot];
        if cached != NONE
            && cached_namespace == namespace
            && self.names.qualified(&self.arena, cached) == qualified.as_bytes()
        {
            return Ok(cached);
        }
        let prefix_bytes = check_name(qualified)?;
        let name = self.names.intern(&mut self.arena, qualified, prefix_bytes, namespace);
        self.cache[slot] = (name, namespace);
        Ok(name)
    }

    /// Returns an attribute value with resolved references and each white space character as a
    /// space.
    fn normalized<'v>(&mut self, value: &'v str, depth: u32) -> Outcome<Cow<'v, str>> {
        let special = |byte: u8| matches!(byte, b'&' | b'\t' | b'\n' | b'\r');
        if !value.bytes().any(special) {
            return Ok(Cow::Borrowed(value));
        }
        let mut text = String::with_capacity(value.len());
        let mut rest = value;
        while let Some(at) = rest.bytes().position(special) {
            text.push_str(&rest[..at]);
            let byte = rest.as_bytes()[at];
            rest = &rest[at + 1..];
            if byte != b'&' {
                if byte == b'\r' {
                    rest = rest.strip_prefix('\n').unwrap_or(rest);
                }
                text.push(' ');
                continue;
            }
            let end = rest
                .find(';')
                .ok_or_else(|| not_well_formed("a & that does not start a reference"))?;
            let name = &rest[..end];
            rest = &rest[end + 1..];
            if name.starts_with('#') {
                text.push(character(name)?);
            } else if let Some(predefined) = predefined(name) {
                text.push_str(predefined);
            } else {
                let replacement = self.entity(name, depth)?;
                if replacement.contains('<') {
                    return Err(not_well_formed("an entity with a < in an attribute value"));
                }
                text.push_str(&self.normalized(&replacement, depth + 1)?);
            }
        }
        text.push_str(rest);
        Ok(Cow::Owned(text))
    }
}

/// XML turns all line ends into line feeds.
fn unify_line_ends(text: &str) -> Cow<'_, str> {
    match memchr::memchr(b'\r', text.as_bytes()) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n")),
    }
}

fn from_reader(error: quick_xml::Error) -> ParseErrorKind {
    let text = error.to_string();
    let text = text.strip_prefix("ill-formed document: ").unwrap_or(&text);
    ParseErrorKind::NotWellFormed(text.strip_prefix("syntax error: ").unwrap_or(text).to_owned())
}
