//! The derive macros of [Evermap](https://docs.rs/evermap): `Persist`, `Plain`,
//! `PersistHash` and `PersistDeserialize`.
//!
//! Use them through the `evermap` crate, which exports them next to the traits of the same names.
//! The traits' documentation describes the requirements and the generated code. Attributes:
//!
//! | attribute | on | meaning |
//! |---|---|---|
//! | `#[repr(C)]`, `#[repr(transparent)]` | a struct | required: the layout is stored in files |
//! | `#[repr(u8)]` or another integer | an enum | required |
//! | `#[persist(name = "..")]` | the type | its name in type descriptions, instead of the identifier: old objects still open after a type was renamed |
//! | `#[persist(fields = "..")]` | a struct | the name of the struct of cursors, instead of `..Fields` |
//! | `#[persist(init = "..")]` | a struct | the name of the struct of sources, instead of `..Init` |
//! | `#[persist(crate = "..")]` | the type | the path of the `evermap` crate, if it is renamed |
//!
//! Each module is one step: `input` reads and checks the item, `refuse` rejects types that cannot
//! be stored and names replacements, the others generate code. The generated code calls
//! `evermap::__private` and changes together with it.

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

use input::{Input, Shape};

/// Implements `evermap::Persist`, and `evermap::Build` from the type itself and, for a struct, from
/// its struct of sources.
#[proc_macro_derive(Persist, attributes(persist))]
pub fn derive_persist(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as DeriveInput);
    let expanded = Input::read(&item).and_then(|input| match &input.shape {
        Shape::Struct(fields) => {
            refuse::check_fields(fields)?;
            Ok(structure::expand(&input, fields))
        }
        Shape::Enum { variants, repr } => Ok(enumeration::expand(&input, variants, repr)),
    });
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `evermap::Plain` for a type whose fields are all `Plain`.
#[proc_macro_derive(Plain, attributes(persist))]
pub fn derive_plain(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as DeriveInput);
    plain::expand(&item).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `evermap::PersistHash` by folding the fields in order of declaration.
#[proc_macro_derive(PersistHash, attributes(persist))]
pub fn derive_persist_hash(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as DeriveInput);
    hash::expand(&item).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `evermap::serde::PersistDeserialize`, and so `evermap::Build` from any deserializer.
/// Follows some of serde's attributes: see the trait.
#[proc_macro_derive(PersistDeserialize, attributes(persist, serde))]
pub fn derive_persist_deserialize(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as DeriveInput);
    deserialize::expand(&item).unwrap_or_else(syn::Error::into_compile_error).into()
}
