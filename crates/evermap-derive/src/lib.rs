//! The derive macros of [Evermap](https://docs.rs/evermap): `Persist`, `Plain`,
//! `PersistHash` and `PersistDeserialize`.
//!
//! Use them through the crate `evermap`, or in guests `evermap-guest`. Both export them next to the
//! traits of the same names. A derive macro does not learn which crate exported it, so each has its
//! own: those for `evermap-guest` are named `Guest..` here, and differ only in the path that the
//! generated code uses.
//!
//! The traits' documentation describes the requirements and the generated code. Attributes:
//!
//! | attribute | on | meaning |
//! |---|---|---|
//! | `#[repr(C)]`, `#[repr(transparent)]` | a struct | required: the layout is stored in files |
//! | `#[repr(u8)]` or another integer | an enum | required |
//! | `#[persist(name = "..")]` | the type | its name in type descriptions, instead of the identifier: old objects still open after a type was renamed |
//! | `#[persist(fields = "..")]` | a struct | the name of the struct of cursors, instead of `..Fields` |
//! | `#[persist(init = "..")]` | a struct | the name of the struct of sources, instead of `..Init` |
//! | `#[persist(crate = "..")]` | the type | the path of the crate `evermap` or `evermap-guest`, if it is renamed |
//!
//! Each module is one step: `input` reads and checks the item, `refuse` rejects types that cannot
//! be stored and names replacements, the others generate code. The generated code calls
//! `__private` of `evermap-heap` and changes together with it.

mod deserialize;
mod enumeration;
mod hash;
mod input;
mod plain;
mod refuse;
mod serde_names;
mod structure;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

use input::{Exporter, Input, Shape};

/// Implements `evermap::Persist`, and `evermap::Build` from the type itself and, for a struct, from
/// its struct of sources.
#[proc_macro_derive(Persist, attributes(persist))]
pub fn derive_persist(item: TokenStream) -> TokenStream {
    expand(item, Exporter::Evermap, persist)
}

/// Implements `evermap::Plain` for a type whose fields are all `Plain`.
#[proc_macro_derive(Plain, attributes(persist))]
pub fn derive_plain(item: TokenStream) -> TokenStream {
    expand(item, Exporter::Evermap, plain::expand)
}

/// Implements `evermap::PersistHash` by folding the fields in order of declaration.
#[proc_macro_derive(PersistHash, attributes(persist))]
pub fn derive_persist_hash(item: TokenStream) -> TokenStream {
    expand(item, Exporter::Evermap, hash::expand)
}

/// Implements `evermap::serde::PersistDeserialize`, and so `evermap::Build` from any deserializer.
/// Follows some of serde's attributes: see the trait.
#[proc_macro_derive(PersistDeserialize, attributes(persist, serde))]
pub fn derive_persist_deserialize(item: TokenStream) -> TokenStream {
    expand(item, Exporter::Evermap, deserialize::expand)
}

/// [`derive@Persist`] for programs that use the crate `evermap-guest`, which exports it as
/// `Persist`.
#[proc_macro_derive(GuestPersist, attributes(persist))]
pub fn derive_guest_persist(item: TokenStream) -> TokenStream {
    expand(item, Exporter::Guest, persist)
}

/// [`derive@Plain`] for programs that use the crate `evermap-guest`.
#[proc_macro_derive(GuestPlain, attributes(persist))]
pub fn derive_guest_plain(item: TokenStream) -> TokenStream {
    expand(item, Exporter::Guest, plain::expand)
}

/// [`derive@PersistHash`] for programs that use the crate `evermap-guest`.
#[proc_macro_derive(GuestPersistHash, attributes(persist))]
pub fn derive_guest_persist_hash(item: TokenStream) -> TokenStream {
    expand(item, Exporter::Guest, hash::expand)
}

/// [`derive@PersistDeserialize`] for programs that use the crate `evermap-guest`.
#[proc_macro_derive(GuestPersistDeserialize, attributes(persist, serde))]
pub fn derive_guest_persist_deserialize(item: TokenStream) -> TokenStream {
    expand(item, Exporter::Guest, deserialize::expand)
}

/// Parses the item and runs a macro over it. An error becomes a `compile_error!`.
fn expand(
    item: TokenStream,
    exporter: Exporter,
    derive: fn(&DeriveInput, Exporter) -> syn::Result<proc_macro2::TokenStream>,
) -> TokenStream {
    let item = parse_macro_input!(item as DeriveInput);
    derive(&item, exporter).unwrap_or_else(syn::Error::into_compile_error).into()
}

fn persist(item: &DeriveInput, exporter: Exporter) -> syn::Result<proc_macro2::TokenStream> {
    let input = Input::read(item, exporter)?;
    match &input.shape {
        Shape::Struct(fields) => {
            refuse::check_fields(fields)?;
            Ok(structure::expand(&input, fields))
        }
        Shape::Enum { variants, repr } => Ok(enumeration::expand(&input, variants, repr)),
    }
}
