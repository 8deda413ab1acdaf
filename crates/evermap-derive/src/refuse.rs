//! Types that cannot be stored, and their replacements.
//!
//! The missing `Persist` bound would reject most of them, too; here they get a better message, at
//! the field's type. A macro sees names, not types. So a name counts as the standard library's only
//! if it is bare or has that library's module path, and has type arguments if the library's type
//! does. A type `Cell` of the program passes; write a type `Cell<T>` of the program as
//! `self::Cell<T>`.

use syn::spanned::Spanned;
use syn::{Error, Fields, GenericArgument, PathArguments, Result, Type, TypePath};

const HEAP: &str = "keeps what it holds in the process's own heap, which is gone in the next run";
const INNER: &str = "changes behind a shared reference, and readers rely on what they see";

/// Bare name, true if it takes type arguments, the problem, the replacement.
const STANDARD: &[(&str, bool, &str, &str)] = &[
    ("Vec", true, HEAP, "use `evermap::PVec`"),
    ("VecDeque", true, HEAP, "use `evermap::PVec`"),
    ("BinaryHeap", true, HEAP, "use `evermap::PVec`"),
    ("LinkedList", true, HEAP, "use `evermap::PVec`"),
    ("String", false, HEAP, "use `evermap::PString`"),
    ("Cow", true, HEAP, "use `evermap::PString` or `evermap::PVec`"),
    ("Box", true, HEAP, "use `evermap::PBox`"),
    ("Rc", true, HEAP, "use `evermap::PBox` for the owner and `evermap::Ptr` for the others"),
    ("Arc", true, HEAP, "use `evermap::PBox` for the owner and `evermap::Ptr` for the others"),
    ("Weak", true, HEAP, "use `evermap::Ptr`"),
    ("HashMap", true, HEAP, "use `evermap::PMap`"),
    ("BTreeMap", true, HEAP, "use `evermap::PBTree`"),
    ("HashSet", true, HEAP, "use `evermap::PMap` with `u8` values, or a sorted `evermap::PVec`"),
    ("BTreeSet", true, HEAP, "use `evermap::PBTree` with `[u8; 0]` values"),
    ("Cell", true, INNER, "keep the value itself: a session edits it through `evermap::Mut`"),
    ("RefCell", true, INNER, "keep the value itself: a session edits it through `evermap::Mut`"),
    ("UnsafeCell", true, INNER, "keep the value itself: a session edits it through `evermap::Mut`"),
    ("OnceCell", true, INNER, "keep the value itself: a session edits it through `evermap::Mut`"),
    ("Mutex", true, INNER, "keep the value itself: a session has the object to itself"),
    ("RwLock", true, INNER, "keep the value itself: a session has the object to itself"),
    ("OnceLock", true, INNER, "keep the value itself: a session has the object to itself"),
    ("usize", false, "differs between machines", "use `u64`"),
    ("isize", false, "differs between machines", "use `i64`"),
    ("str", false, "has no fixed size", "use `evermap::PString`"),
];

const MODULES: &[&str] = &[
    "std",
    "core",
    "alloc",
    "vec",
    "string",
    "borrow",
    "boxed",
    "rc",
    "sync",
    "collections",
    "cell",
];

/// Returns errors for all fields whose types cannot be stored.
pub fn check_fields(fields: &Fields) -> Result<()> {
    let errors = fields.iter().filter_map(|field| check(&field.ty).err());
    errors
        .reduce(|mut all, next| {
            all.combine(next);
            all
        })
        .map_or(Ok(()), Err)
}

fn check(ty: &Type) -> Result<()> {
    let refuse = |message: &str| Err(Error::new(ty.span(), message));
    match ty {
        Type::Reference(_) => refuse(
            "a reference points at something that is gone in the next run; own the value \
             (`evermap::PBox`, `PString`, `PVec`), or point at it with `evermap::Ptr`",
        ),
        Type::Ptr(_) => refuse(
            "a raw pointer may point anywhere in the process; use `evermap::Ptr`, which says that it \
             points into the object",
        ),
        Type::BareFn(_) => refuse(
            "the address of a function changes with every run; keep a number or a fieldless enum and \
             choose the function by it",
        ),
        Type::TraitObject(_) | Type::ImplTrait(_) => refuse(
            "a trait object holds the address of a table of functions, which changes with every run; \
             keep the concrete type, or a fieldless enum that says which one it is",
        ),
        Type::Tuple(tuple) if !tuple.elems.is_empty() => refuse(
            "the layout of a tuple isn't fixed; use a struct with `#[repr(C)]` and \
             `#[derive(evermap::Persist)]`",
        ),
        Type::Slice(_) => refuse("a slice has no fixed size; use `evermap::PVec` or an array"),
        Type::Array(array) => check(&array.elem),
        Type::Paren(inner) => check(&inner.elem),
        Type::Group(inner) => check(&inner.elem),
        Type::Path(path) => check_path(path),
        _ => Ok(()),
    }
}

fn check_path(path: &TypePath) -> Result<()> {
    let Some(last) = path.path.segments.last() else {
        return Ok(());
    };
    let arguments = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => Some(arguments),
        _ => None,
    };
    let name = last.ident.to_string();
    if is_standard(path) {
        let entry = STANDARD.iter().find(|entry| entry.0 == name && entry.1 == arguments.is_some());
        if let Some((name, _, wrong, remedy)) = entry {
            return Err(Error::new(path.span(), format!("`{name}` {wrong}; {remedy}")));
        }
    }
    let inner = arguments.into_iter().flat_map(|list| &list.args);
    for argument in inner {
        if let GenericArgument::Type(ty) = argument {
            if name == "Option" && !is_box(ty) {
                // Report the element type first, if it cannot be stored either.
                check(ty)?;
                return Err(Error::new(
                    path.span(),
                    "the layout of this `Option` isn't fixed; use `Option<evermap::PBox<..>>`, or a \
                     value that stands for none",
                ));
            }
            check(ty)?;
        }
    }
    Ok(())
}

fn is_standard(path: &TypePath) -> bool {
    let segments = &path.path.segments;
    path.qself.is_none()
        && (segments.len() == 1
            || segments
                .iter()
                .rev()
                .skip(1)
                .all(|segment| MODULES.iter().any(|module| segment.ident == module)))
}

/// Returns true for `PBox<..>`, or for a bare name, which may be an alias of one or a type
/// parameter.
fn is_box(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            last.ident == "PBox"
                || (last.arguments.is_none()
                    && last.ident.to_string().starts_with(char::is_uppercase)
                    && last.ident != "String")
        }),
        _ => false,
    }
}
