//! Reads the item: its attributes and its shape. Checks the requirements of a layout in a file.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Field, Fields, Generics, LitStr, Meta, Path, Result,
    Token, Variant, Visibility, parse_quote,
};

const INTEGERS: [&str; 8] = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"];

/// Input of the `Persist` derive.
pub struct Input<'i> {
    pub ident: &'i Ident,
    pub vis: &'i Visibility,
    pub generics: &'i Generics,
    pub attributes: Attributes,
    pub shape: Shape<'i>,
}

/// A struct with its fields, or a fieldless enum with its integer type.
pub enum Shape<'i> {
    Struct(&'i Fields),
    Enum { variants: Vec<&'i Variant>, repr: Ident },
}

/// The crate that exports a macro: the generated code names the traits' items by its path.
#[derive(Clone, Copy)]
pub enum Exporter {
    Evermap,
    Guest,
}

impl Exporter {
    fn path(self) -> Path {
        match self {
            Exporter::Evermap => parse_quote!(::evermap),
            Exporter::Guest => parse_quote!(::evermap_guest),
        }
    }
}

/// The contents of `#[persist(..)]`.
pub struct Attributes {
    pub name: String,
    pub fields: Ident,
    pub init: Ident,
    pub krate: Path,
}

impl<'i> Input<'i> {
    pub fn read(item: &'i DeriveInput, exporter: Exporter) -> Result<Self> {
        if let Some(lifetime) = item.generics.lifetimes().next() {
            return Err(Error::new(
                lifetime.span(),
                "a persistent type can't borrow: what it refers to is gone in the next run",
            ));
        }
        Ok(Input {
            ident: &item.ident,
            vis: &item.vis,
            generics: &item.generics,
            attributes: Attributes::read(item, exporter)?,
            shape: Shape::read(item)?,
        })
    }

    /// Returns the item's generics with a trait bound on each type parameter.
    pub fn bounded(&self, bound: &TokenStream) -> Generics {
        bounded(self.generics, bound)
    }

    /// Generates calls to `Description` that name the generic arguments.
    pub fn arguments(&self) -> Vec<TokenStream> {
        let krate = &self.attributes.krate;
        let types = self.generics.type_params().map(|parameter| {
            let ident = &parameter.ident;
            quote!(<#ident as #krate::Persist>::describe)
        });
        let constants = self.generics.const_params().map(|parameter| {
            let ident = &parameter.ident;
            quote!(|description| description.constant(#ident))
        });
        types.chain(constants).collect()
    }
}

/// Adds a trait bound to each type parameter.
pub fn bounded(generics: &Generics, bound: &TokenStream) -> Generics {
    let mut generics = generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(#bound));
    }
    generics
}

impl<'i> Shape<'i> {
    fn read(item: &'i DeriveInput) -> Result<Self> {
        let repr = repr_words(&item.attrs)?;
        let has = |word: &str| repr.iter().any(|there| there == word);
        if let Some(packed) = repr.iter().find(|word| *word == "packed") {
            return Err(Error::new(
                packed.span(),
                "a packed struct can't be kept in an object: its fields are unaligned, and there \
                 would be no cursors to them; order the fields by falling alignment instead",
            ));
        }
        match &item.data {
            Data::Struct(data) => {
                if !has("C") && !has("transparent") {
                    return Err(Error::new(
                        item.ident.span(),
                        format!(
                            "the layout of `{}` isn't fixed: the compiler may order its fields \
                             differently in the next build; add `#[repr(C)]`",
                            item.ident
                        ),
                    ));
                }
                Ok(Shape::Struct(&data.fields))
            }
            Data::Enum(data) => {
                if let Some(variant) = data.variants.iter().find(|v| !v.fields.is_empty()) {
                    return Err(Error::new(
                        variant.fields.span(),
                        "an enum that carries data can't be kept in an object; use a fieldless enum \
                         as a tag beside the data, or one `Option<PBox<..>>` for each case",
                    ));
                }
                let integer = repr.iter().find(|word| INTEGERS.iter().any(|i| word == i));
                let Some(integer) = integer else {
                    return Err(Error::new(
                        item.ident.span(),
                        format!(
                            "the size of `{}` isn't fixed; add `#[repr(u8)]` (or another integer of \
                             fixed size)",
                            item.ident
                        ),
                    ));
                };
                Ok(Shape::Enum { variants: data.variants.iter().collect(), repr: integer.clone() })
            }
            Data::Union(data) => Err(Error::new(
                data.union_token.span(),
                "a union can't be kept in an object: it is not known which of its fields is valid",
            )),
        }
    }
}

impl Attributes {
    pub fn read(item: &DeriveInput, exporter: Exporter) -> Result<Self> {
        let ident = &item.ident;
        let mut attributes = Attributes {
            name: ident.to_string().trim_start_matches("r#").to_owned(),
            fields: Ident::new(&format!("{}Fields", bare(ident)), ident.span()),
            init: Ident::new(&format!("{}Init", bare(ident)), ident.span()),
            krate: exporter.path(),
        };
        for attribute in item.attrs.iter().filter(|a| a.path().is_ident("persist")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("name") {
                    attributes.name = described_name(&meta.value()?.parse()?)?;
                } else if meta.path.is_ident("fields") {
                    attributes.fields = meta.value()?.parse::<LitStr>()?.parse()?;
                } else if meta.path.is_ident("init") {
                    attributes.init = meta.value()?.parse::<LitStr>()?.parse()?;
                } else if meta.path.is_ident("crate") {
                    attributes.krate = meta.value()?.parse::<LitStr>()?.parse()?;
                } else {
                    return Err(meta.error(
                        "unknown attribute; `name`, `fields`, `init` and `crate` are known, each \
                         as `key = \"value\"`",
                    ));
                }
                Ok(())
            })?;
        }
        Ok(attributes)
    }
}

/// Checks a name for type descriptions: it must not contain characters of their grammar.
fn described_name(literal: &LitStr) -> Result<String> {
    let name = literal.value();
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(plain) {
        return Err(Error::new(
            literal.span(),
            "a name in a type description is made of letters, digits, `_`, `-` and `.`",
        ));
    }
    Ok(name)
}

/// Returns an identifier without `r#`.
pub fn bare(ident: &Ident) -> String {
    ident.to_string().trim_start_matches("r#").to_owned()
}

fn repr_words(attributes: &[Attribute]) -> Result<Vec<Ident>> {
    let mut words = Vec::new();
    for attribute in attributes.iter().filter(|a| a.path().is_ident("repr")) {
        let metas = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?;
        words.extend(metas.iter().filter_map(|m| m.path().get_ident().cloned()));
    }
    Ok(words)
}

/// Returns a field's name for struct expressions and patterns: its identifier or its number.
pub fn member(field: &Field, index: usize) -> syn::Member {
    match &field.ident {
        Some(ident) => ident.clone().into(),
        None => syn::Member::Unnamed(syn::Index { index: index as u32, span: Span::mixed_site() }),
    }
}
