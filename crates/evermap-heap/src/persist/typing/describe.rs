//! The canonical description of a type, and the id computed from it.
//!
//! An object records the id of its root's type. Opening it as a type with another id is refused.
//! The text names everything that decides how bytes are interpreted (names, types, offsets, sizes,
//! alignment) for every reachable type, and nothing else, so it is the same for every compiler,
//! machine and order of compilation. Both the text and the id are part of the file format: the
//! golden tests in `tests/describe.rs` may only be extended. A container whose layout changes gets
//! a new word.
//!
//! The grammar is in `docs/persist.md`.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::{PoisonError, RwLock};

use crate::persist::{POINTER_BYTES, Persist};

/// Id of a type: the 128-bit XXH3 hash of its description, in canonical (big-endian) order.
///
/// It distinguishes types that were not constructed to collide. A store is trusted input in any
/// case.
///
/// ```
/// use evermap::{PString, PVec, TypeId128, type_id};
///
/// let id: TypeId128 = type_id::<PVec<PString>>();
/// assert_ne!(id, type_id::<PVec<u8>>());
/// assert_eq!(id.to_string().len(), 32);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct TypeId128(pub [u8; 16]);

impl fmt::Display for TypeId128 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for TypeId128 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TypeId128({self})")
    }
}

/// Returns the id of `T`'s [`type_description`].
///
/// The first call for a type writes the description and hashes it. Later calls look it up (a read
/// lock and a hash lookup, some tens of nanoseconds).
///
/// ```
/// assert_eq!(evermap::type_id::<u64>(), evermap::type_id::<u64>());
/// ```
pub fn type_id<T: Persist>() -> TypeId128 {
    known_type::<T>().id
}

/// Returns the canonical text that describes `T` and all types in it.
///
/// Written at the first call for a type, in time linear in the text, which is as long as the
/// definitions of all types in it together. (The name of a generic type contains the names of its
/// arguments, so types nested in each other's arguments take as much text as their full names.)
///
/// # Panics
///
/// When the text would be longer than a mebibyte, which takes generic types that double at each of
/// some twenty levels (`Pair<Pair<..>, Pair<..>>`). Put a struct that isn't generic in between.
///
/// ```
/// use evermap::{PString, PVec, Persist, type_description};
///
/// #[derive(Persist)]
/// #[repr(C)]
/// struct Notes { lines: PVec<PString>, count: u64 }
///
/// assert_eq!(
///     type_description::<Notes>(),
///     "Notes{lines@0:PVec<PString>,count@24:u64}#32/8"
/// );
/// ```
pub fn type_description<T: Persist>() -> &'static str {
    known_type::<T>().text
}

/// Returns the name of `T` in its description.
pub(crate) fn type_name<T: Persist>() -> &'static str {
    let text = type_description::<T>();
    text.find(['{', '#']).map_or(text, |end| &text[..end])
}

#[derive(Clone, Copy)]
struct KnownType {
    id: TypeId128,
    text: &'static str,
}

fn known_type<T: Persist>() -> KnownType {
    static KNOWN: RwLock<BTreeMap<TypeId, KnownType>> = RwLock::new(BTreeMap::new());
    let key = TypeId::of::<T>();
    // A poisoned lock is fine: entries are inserted whole.
    if let Some(found) = KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return *found;
    }
    let text = Description::of::<T>();
    let mut id = TypeId128([0; 16]);
    id.0.copy_from_slice(&xxhash_rust::xxh3::xxh3_128(text.as_bytes()).to_be_bytes());
    *KNOWN
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(key)
        // Leaked once per type of the program, so that a lookup can return a reference.
        .or_insert_with(|| KnownType { id, text: Box::leak(text.into_boxed_str()) })
}

/// Collects a type's description. [`Persist::describe`] writes the *name* of the type where it is
/// used. Structs are queued and each is *defined* once, so the description of recursive types is
/// finite.
///
/// Only needed to implement [`Persist`] by hand; see the example at [`Releaser`](crate::Releaser).
#[derive(Default)]
pub struct Description {
    text: String,
    /// Name of each struct found so far, in this text.
    names: BTreeMap<TypeId, String>,
    /// Structs in the order in which they were found. Those before `defined` have been written.
    queue: Vec<Pending>,
    /// The text is too long. Nothing more is added, so that describing terminates.
    full: bool,
}

/// Maximum length of a description. Names can double with each level of generic arguments.
const TEXT_BYTES_MAX: usize = 1 << 20;

struct Pending {
    of: TypeId,
    name: String,
    size: usize,
    align: usize,
    define: fn(&mut Definition<'_>),
}

impl Description {
    fn of<T: Persist>() -> String {
        let mut this = Description::default();
        T::describe(&mut this);
        let name = std::mem::take(&mut this.text);
        let mut text = String::new();
        // A root that is not a struct is named before the definitions.
        if this.queue.first().is_none_or(|first| first.of != TypeId::of::<T>()) {
            text = format!("{name}#{}/{}", size_of::<T>(), align_of::<T>());
        }
        let mut defined = 0;
        while let Some(pending) = this.queue.get(defined) {
            defined += 1;
            let (define, size, align) = (pending.define, pending.size, pending.align);
            if !text.is_empty() {
                text.push(';');
            }
            text.push_str(&pending.name);
            text.push('{');
            let mut definition = Definition { description: &mut this, repr: None };
            define(&mut definition);
            let repr = definition.repr;
            text.push_str(&std::mem::take(&mut this.text));
            text.push('}');
            if let Some(repr) = repr {
                text.push(':');
                text.push_str(repr);
            }
            let _ = write!(text, "#{size}/{align}");
            this.full |= text.len() > TEXT_BYTES_MAX;
            if this.full {
                break;
            }
        }
        // With pointers of four bytes, the same text may stand for other layouts: a `PVec` has 24
        // bytes in both.
        if POINTER_BYTES != 8 {
            let _ = write!(text, ";*#{POINTER_BYTES}/{POINTER_BYTES}");
        }
        assert!(
            !this.full,
            "the description of `{}..` takes more than {TEXT_BYTES_MAX} bytes; put a struct that \
             isn't generic between the levels of its arguments",
            text.chars().take(60).collect::<String>()
        );
        text
    }

    /// Names a type that needs no definition: a scalar or a container, with its type arguments.
    pub fn leaf(&mut self, name: &str, arguments: &[fn(&mut Description)]) {
        self.full |= self.text.len() > TEXT_BYTES_MAX;
        if self.full {
            return;
        }
        self.text.push_str(name);
        self.arguments(arguments);
    }

    /// Names an array.
    pub fn array(&mut self, element: fn(&mut Description), len: usize) {
        self.text.push('[');
        element(self);
        let _ = write!(self.text, ";{len}]");
    }

    /// Names a struct or enum, and queues its definition the first time.
    ///
    /// Different types of the same name get a number, in the order in which they are found: `Item`,
    /// `Item'2`.
    pub fn structure<T: Persist>(
        &mut self,
        name: &str,
        arguments: &[fn(&mut Description)],
        define: fn(&mut Definition<'_>),
    ) {
        let key = TypeId::of::<T>();
        self.full |= self.text.len() > TEXT_BYTES_MAX;
        if self.full {
            return;
        }
        if let Some(name) = self.names.get(&key) {
            self.text.push_str(name);
            return;
        }
        let place = self.queue.len();
        let before = std::mem::take(&mut self.text);
        self.leaf(name, arguments);
        let plain = std::mem::replace(&mut self.text, before);
        let mut unique = plain.clone();
        let mut number = 1;
        while self.names.values().any(|taken| *taken == unique) {
            number += 1;
            unique = format!("{plain}'{number}");
        }
        self.text.push_str(&unique);
        self.names.insert(key, unique.clone());
        // Before the structs that its arguments added: the root's definition comes first.
        self.queue.insert(
            place,
            Pending { of: key, name: unique, size: size_of::<T>(), align: align_of::<T>(), define },
        );
    }

    /// Writes a constant, as an argument of a generic type.
    pub fn constant(&mut self, value: impl fmt::Display) {
        let _ = write!(self.text, "{value}");
    }

    fn arguments(&mut self, arguments: &[fn(&mut Description)]) {
        for (index, argument) in arguments.iter().enumerate() {
            self.text.push(if index == 0 { '<' } else { ',' });
            argument(self);
        }
        if !arguments.is_empty() {
            self.text.push('>');
        }
    }
}

/// Collects the definition of one struct or enum, for [`Description::structure`].
pub struct Definition<'d> {
    description: &'d mut Description,
    repr: Option<&'static str>,
}

impl Definition<'_> {
    /// Adds a field of a struct.
    pub fn field<F: Persist>(&mut self, name: &str, offset: usize) {
        self.field_as(name, offset, F::describe);
    }

    pub(in crate::persist) fn field_as(
        &mut self,
        name: &str,
        offset: usize,
        of: fn(&mut Description),
    ) {
        self.comma();
        let _ = write!(self.description.text, "{name}@{offset}:");
        of(self.description);
    }

    /// Adds a variant of a fieldless enum.
    pub fn variant(&mut self, name: &str, value: i128) {
        self.comma();
        let _ = write!(self.description.text, "{name}={value}");
    }

    /// Sets the integer type that represents a fieldless enum.
    pub fn repr(&mut self, name: &'static str) {
        self.repr = Some(name);
    }

    fn comma(&mut self) {
        if !self.description.text.is_empty() {
            self.description.text.push(',');
        }
    }
}
