//! Types of an object, read from the description in its superblock.
//!
//! `docs/persist.md` defines the grammar. A description is text from a file, and a walk takes its
//! steps from it. So each type is verified first: offsets in order and inside their struct, no type
//! inside itself. A type that fails becomes [`Kind::Unknown`], which a walk reads conservatively.

use std::collections::HashMap;

use crate::format::{SCHEMA_BYTES_MAX, Superblock};

use super::grammar::{Body, Definition, Expression, parse};

/// Number of a type in its [`Schema`].
pub(in crate::tools) type TypeNumber = usize;

/// Structure of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tools) enum Kind {
    /// Numbers and enums, without pointers.
    Plain,
    Struct(Vec<Field>),
    Array(TypeNumber, u64),
    Vec(TypeNumber),
    String,
    Map(TypeNumber, TypeNumber),
    Tree(TypeNumber, TypeNumber),
    /// The flag is true for `Option<PBox<T>>`, which may be null.
    Box(TypeNumber, bool),
    Ptr(TypeNumber),
    /// Unknown contents, to be read conservatively.
    Unknown,
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tools) struct Field {
    pub(in crate::tools) name: String,
    pub(in crate::tools) offset: u64,
    /// Offset of the next field, or the size of the struct.
    pub(in crate::tools) end: u64,
    pub(in crate::tools) is: TypeNumber,
}

/// Type with its size and structure.
#[derive(Clone, Debug)]
pub(in crate::tools) struct Type {
    pub(in crate::tools) name: String,
    /// Size of a value in bytes; `None` if unknown.
    pub(in crate::tools) size: Option<u64>,
    pub(in crate::tools) align: u64,
    pub(in crate::tools) kind: Kind,
    /// True if values contain pointers or unknown parts.
    pub(in crate::tools) has_pointers: bool,
}

/// Capacity of a tree node in entries. An inner node has one child more.
pub(in crate::tools) const NODE_ENTRIES: u64 = 15;
/// Maximum height of a tree.
pub(in crate::tools) const HEIGHT_MAX: u64 = 20;

/// Layout of a tree node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools) struct Node {
    /// Offset of the keys and size of one key.
    pub(in crate::tools) keys: (u64, u64),
    /// Offset of the values and size of one value.
    pub(in crate::tools) values: (u64, u64),
    pub(in crate::tools) leaf_bytes: u64,
    pub(in crate::tools) children_at: u64,
}

/// The types of an object.
#[derive(Clone, Debug)]
pub(in crate::tools) struct Schema {
    pub(in crate::tools) types: Vec<Type>,
    pub(in crate::tools) root: TypeNumber,
    /// True if the end of the description is missing. Types defined there are unknown.
    pub(in crate::tools) is_truncated: bool,
}

/// Maximum size of a value. A description with a larger one is not accepted.
const VALUE_BYTES_MAX: u64 = 1 << 40;
/// Maximum alignment of a type.
const ALIGN_MAX: u64 = 4096;

impl Schema {
    /// Reads the types of an object. Returns `None` if its root has no description in this grammar.
    pub(in crate::tools) fn of(superblock: &Superblock) -> Option<Schema> {
        let text = superblock.schema();
        // Truncation may remove up to three more bytes: the rest of a character.
        let is_truncated = text.len() > SCHEMA_BYTES_MAX - 4;
        let id = xxhash_rust::xxh3::xxh3_128(text.as_bytes()).to_be_bytes();
        if id != superblock.root_type_id && !is_truncated {
            return None;
        }
        let is_truncated = id != superblock.root_type_id;
        let schema = Schema::read(&text, is_truncated)?;
        let size = schema.types[schema.root].size;
        size.is_none_or(|size| size == superblock.root_bytes).then_some(schema)
    }

    fn read(text: &str, is_truncated: bool) -> Option<Schema> {
        let parsed = parse(text, is_truncated)?;
        let definitions: HashMap<String, &Definition> =
            parsed.definitions.iter().map(|d| (d.name.clone(), d)).collect();
        let mut reader = Reader { definitions, numbers: HashMap::new(), types: Vec::new() };
        let root = match &parsed.root {
            Some((root, size, align)) => {
                let number = reader.number(root);
                let known = &mut reader.types[number];
                if known.size.is_none() {
                    (known.size, known.align) = (Some(*size), *align);
                }
                number
            }
            None => reader.number(&Expression::named(&parsed.definitions.first()?.name)),
        };
        let mut types = reader.types;
        let mut states = vec![Resolution::Pending; types.len()];
        (0..types.len()).for_each(|number| resolve(&mut types, &mut states, number));
        Some(Schema { types, root, is_truncated })
    }

    pub(in crate::tools) fn at(&self, number: TypeNumber) -> &Type {
        &self.types[number]
    }

    /// Returns the offsets of key and value in a map entry, and the size of an entry.
    pub(in crate::tools) fn entry(
        &self,
        key: TypeNumber,
        value: TypeNumber,
    ) -> Option<(u64, u64, u64)> {
        let (k, v) = (self.at(key), self.at(value));
        let key_at = 8u64.next_multiple_of(k.align);
        let value_at = (key_at + k.size?).next_multiple_of(v.align);
        let align = k.align.max(v.align).max(8);
        Some((key_at, value_at, (value_at + v.size?).next_multiple_of(align)))
    }

    /// Returns the layout of a tree node.
    pub(in crate::tools) fn node(&self, key: TypeNumber, value: TypeNumber) -> Option<Node> {
        let (k, v) = (self.at(key), self.at(value));
        let keys_at = 8u64.next_multiple_of(k.align);
        let keys_end = k.size?.checked_mul(NODE_ENTRIES)?.checked_add(keys_at)?;
        let values_at = keys_end.next_multiple_of(v.align);
        let values_end = v.size?.checked_mul(NODE_ENTRIES)?.checked_add(values_at)?;
        let leaf_bytes = values_end.next_multiple_of(k.align.max(v.align).max(2));
        let children_at = leaf_bytes.next_multiple_of(8);
        Some(Node {
            keys: (keys_at, k.size?),
            values: (values_at, v.size?),
            leaf_bytes,
            children_at,
        })
    }

    /// Returns for each type how many values of every type one of its values contains, including
    /// itself.
    pub(in crate::tools) fn contained(&self) -> Vec<Vec<(TypeNumber, u64)>> {
        let mut all: Vec<Option<Vec<(TypeNumber, u64)>>> = vec![None; self.types.len()];
        for number in 0..self.types.len() {
            self.count(number, &mut all);
        }
        all.into_iter().map(Option::unwrap_or_default).collect()
    }

    fn count(&self, number: TypeNumber, all: &mut [Option<Vec<(TypeNumber, u64)>>]) {
        if all[number].is_some() {
            return;
        }
        let mut sums: HashMap<TypeNumber, u64> = HashMap::from([(number, 1)]);
        let parts: Vec<(TypeNumber, u64)> = match &self.types[number].kind {
            Kind::Struct(fields) => fields.iter().map(|field| (field.is, 1)).collect(),
            Kind::Array(element, len) => vec![(*element, *len)],
            _ => Vec::new(),
        };
        for (part, times) in parts {
            self.count(part, all);
            for (inner, count) in all[part].iter().flatten() {
                let sum = sums.entry(*inner).or_default();
                *sum = sum.saturating_add(count.saturating_mul(times));
            }
        }
        all[number] = Some(sums.into_iter().collect());
    }
}

/// Assigns numbers to types.
struct Reader<'a> {
    definitions: HashMap<String, &'a Definition>,
    numbers: HashMap<String, TypeNumber>,
    types: Vec<Type>,
}

impl Reader<'_> {
    fn number(&mut self, of: &Expression) -> TypeNumber {
        let name = of.to_string();
        if let Some(known) = self.numbers.get(&name) {
            return *known;
        }
        let number = self.types.len();
        self.numbers.insert(name.clone(), number);
        // Register the number first, because types may contain pointers to themselves.
        let unknown = Type {
            name: name.clone(),
            size: None,
            align: 1,
            kind: Kind::Unknown,
            has_pointers: true,
        };
        self.types.push(unknown);
        let read = match self.definitions.get(&name).copied() {
            Some(definition) => self.defined(definition),
            None => self.built_in(of),
        };
        if let Some((size, align, kind)) = read
            && align.is_power_of_two()
            && align <= ALIGN_MAX
            && size.is_none_or(|size| size <= VALUE_BYTES_MAX)
        {
            self.types[number] = Type { name, size, align, kind, has_pointers: true };
        }
        number
    }

    fn defined(&mut self, definition: &Definition) -> Option<(Option<u64>, u64, Kind)> {
        let kind = match &definition.body {
            Body::Enum => Kind::Plain,
            Body::Struct(fields) => {
                let ends: Vec<u64> =
                    fields.iter().skip(1).map(|f| f.offset).chain([definition.size]).collect();
                let fields = fields.iter().zip(ends).map(|(field, end)| Field {
                    name: field.name.clone(),
                    offset: field.offset,
                    end,
                    is: self.number(&field.is),
                });
                Kind::Struct(fields.collect())
            }
        };
        Some((Some(definition.size), definition.align, kind))
    }

    fn built_in(&mut self, of: &Expression) -> Option<(Option<u64>, u64, Kind)> {
        let (name, arguments) = match of {
            Expression::Array(element, len) => {
                let element = self.number(element);
                // `resolve` computes its size from the element's.
                return Some((None, 1, Kind::Array(element, *len)));
            }
            Expression::Named(name, arguments) => (name.as_str(), arguments.as_slice()),
            Expression::Number(_) => return None,
        };
        let plain = |size| Some((Some(size), size, Kind::Plain));
        match (name, arguments) {
            ("bool" | "u8" | "i8", []) => plain(1),
            ("u16" | "i16", []) => plain(2),
            ("u32" | "i32" | "f32" | "char", []) => plain(4),
            ("u64" | "i64" | "f64", []) => plain(8),
            ("u128" | "i128", []) => plain(16),
            ("PhantomData", [_]) => Some((Some(0), 1, Kind::Plain)),
            ("PString", []) => Some((Some(24), 8, Kind::String)),
            ("PTextMap", []) => {
                let of = |name: &str| Expression::Named(name.to_string(), Vec::new());
                let vec = |of| Expression::Named("PVec".to_string(), vec![of]);
                let blocks = self.number(&vec(vec(of("u8"))));
                let cells = self.number(&vec(of("u32")));
                let field = |name: &str, offset, is| Field {
                    name: name.to_string(),
                    offset,
                    end: offset + 24,
                    is,
                };
                let fields = vec![field("blocks", 0, blocks), field("cells", 24, cells)];
                Some((Some(88), 8, Kind::Struct(fields)))
            }
            ("PVec", [element]) => Some((Some(24), 8, Kind::Vec(self.number(element)))),
            ("PMap", [key, value]) => {
                let (key, value) = (self.number(key), self.number(value));
                Some((Some(40), 8, Kind::Map(key, value)))
            }
            ("PBTree", [key, value]) => {
                let (key, value) = (self.number(key), self.number(value));
                Some((Some(24), 8, Kind::Tree(key, value)))
            }
            ("PBox", [of]) => Some((Some(8), 8, Kind::Box(self.number(of), false))),
            ("Ptr", [of]) => Some((Some(8), 8, Kind::Ptr(self.number(of)))),
            ("Option", [Expression::Named(inner, of)]) if inner == "PBox" && of.len() == 1 => {
                Some((Some(8), 8, Kind::Box(self.number(&of[0]), true)))
            }
            _ => None,
        }
    }
}

/// State of a type while sizes are computed. Finds types that contain themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resolution {
    Pending,
    Active,
    Done,
}

/// Computes a type's size and whether it has pointers, and verifies it. An invalid type becomes
/// [`Kind::Unknown`].
fn resolve(types: &mut [Type], states: &mut [Resolution], number: TypeNumber) {
    if states[number] != Resolution::Pending {
        return;
    }
    states[number] = Resolution::Active;
    let resolved = match types[number].kind.clone() {
        Kind::Plain => Some(false),
        Kind::Array(element, len) => {
            resolve(types, states, element);
            resolve_array(types, states, number, (element, len))
        }
        Kind::Struct(fields) => {
            fields.iter().for_each(|field| resolve(types, states, field.is));
            resolve_struct(types, states, &fields, types[number].size.unwrap_or(0))
        }
        _ => Some(true),
    };
    states[number] = Resolution::Done;
    match resolved {
        Some(has_pointers) => types[number].has_pointers = has_pointers,
        None => (types[number].kind, types[number].has_pointers) = (Kind::Unknown, true),
    }
}

fn resolve_array(
    types: &mut [Type],
    states: &[Resolution],
    number: TypeNumber,
    (element, len): (TypeNumber, u64),
) -> Option<bool> {
    let of = types[element].clone();
    let size = of.size.and_then(|size| size.checked_mul(len)).filter(|s| *s <= VALUE_BYTES_MAX);
    if states[element] != Resolution::Done || size.is_none() {
        return None;
    }
    (types[number].size, types[number].align) = (size, of.align);
    Some(of.has_pointers && len > 0)
}

fn resolve_struct(
    types: &[Type],
    states: &[Resolution],
    fields: &[Field],
    size: u64,
) -> Option<bool> {
    let mut end = 0;
    let mut has_pointers = false;
    for field in fields {
        let of = &types[field.is];
        let inside = states[field.is] == Resolution::Done
            && field.offset >= end
            && field.offset <= field.end
            && field.end <= size
            && of.size.is_none_or(|bytes| bytes <= field.end - field.offset);
        let aligned = !of.has_pointers || field.offset.is_multiple_of(8);
        if !inside || !aligned {
            return None;
        }
        end = field.offset + of.size.unwrap_or(0);
        has_pointers |= of.has_pointers && field.end > field.offset;
    }
    Some(has_pointers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Schema {
        Schema::read(text, false).unwrap()
    }

    #[test]
    fn struct_fields_and_pointees_are_resolved() {
        let schema = read(
            "Notes{lines@0:PVec<PString>,by@24:PMap<u64,Item'2>,count@64:u64,first@72:[Item;2]}#88/8;\
             Item{0@0:Option<PBox<Notes>>}#8/8;Item'2{x@0:u32,kind@4:Kind}#8/4;\
             Kind{A=0,B=-7}:i8#1/1",
        );
        let Kind::Struct(fields) = &schema.at(schema.root).kind else { panic!("a struct") };
        let names: Vec<&str> = fields.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["lines", "by", "count", "first"]);
        assert!(
            matches!(schema.at(fields[0].is).kind, Kind::Vec(s) if schema.at(s).kind == Kind::String)
        );
        let Kind::Map(key, item) = schema.at(fields[1].is).kind else { panic!("a map") };
        assert_eq!(schema.entry(key, item), Some((8, 16, 24)));
        assert!(!schema.at(item).has_pointers && !schema.at(fields[2].is).has_pointers);
        let Kind::Array(first, 2) = schema.at(fields[3].is).kind else { panic!("an array") };
        assert!(schema.at(fields[3].is).has_pointers);
        let Kind::Struct(inner) = &schema.at(first).kind else { panic!("a struct") };
        assert_eq!(schema.at(inner[0].is).kind, Kind::Box(schema.root, true));
    }

    #[test]
    fn root_that_is_not_a_struct_has_a_part_of_its_own() {
        let schema = read("PVec<Pair<u8,3>>#24/8;Pair<u8,3>{a@0:u8,b@1:[u8;3]}#4/1");
        let Kind::Vec(pair) = schema.at(schema.root).kind else { panic!("a vector") };
        assert_eq!((schema.at(pair).size, schema.at(pair).has_pointers), (Some(4), false));
    }

    #[test]
    fn unknown_containers_extend_to_the_next_field() {
        let schema = read("Root{tree@0:PNew<u64,PString>,after@32:PString}#56/8");
        let Kind::Struct(fields) = &schema.at(schema.root).kind else { panic!("a struct") };
        assert_eq!(schema.at(fields[0].is).kind, Kind::Unknown);
        assert_eq!((fields[0].offset, fields[0].end), (0, 32));
        assert_eq!(schema.at(fields[1].is).kind, Kind::String);
    }

    #[test]
    fn inconsistent_types_are_unknown() {
        for text in [
            "A{a@0:A}#8/8",
            "A{a@4:PString}#32/8",
            "A{a@0:PString,b@8:PString}#32/8",
            "A{a@8:u64}#8/8",
            "A{b@0:PString,a@0:u8}#32/8",
        ] {
            let schema = read(text);
            assert_eq!(schema.at(schema.root).kind, Kind::Unknown, "{text}");
        }
        for text in ["", "A", "A{", "A{}", "A{}#8", "A{a@0:u8}#8/8;", "A{a@x:u8}#8/8", "PVec<u8"] {
            assert!(Schema::read(text, false).is_none(), "{text}");
        }
    }

    #[test]
    fn truncated_description_keeps_its_complete_definitions() {
        let schema = Schema::read("A{b@0:B,c@8:C}#32/8;B{x@0:u64}#8/8;C{s@0:PStr", true).unwrap();
        let Kind::Struct(fields) = &schema.at(schema.root).kind else { panic!("a struct") };
        assert!(!schema.at(fields[0].is).has_pointers);
        assert_eq!(schema.at(fields[1].is).kind, Kind::Unknown);
    }

    #[test]
    fn nested_structs_are_counted_in_linear_time() {
        let mut text = String::from("S0{a@0:S1,b@0:S1}#0/1");
        for n in 1..60 {
            text += &format!(";S{n}{{a@0:S{m},b@0:S{m}}}#0/1", m = n + 1);
        }
        let schema = Schema::read(&(text + ";S60{}#0/1"), false).unwrap();
        let contained = schema.contained();
        assert!(contained[schema.root].iter().any(|(_, count)| *count == 1 << 60));
    }
}
