//! Generates `PersistHash`: a fold over the fields, or over an enum's integer.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Result};

use crate::input::{Exporter, Input, Shape, bounded, member};

pub fn expand(item: &DeriveInput, exporter: Exporter) -> Result<TokenStream> {
    if let Data::Enum(data) = &item.data
        && data.variants.is_empty()
    {
        return Err(Error::new(
            data.enum_token.span(),
            "an enum without variants has no values to hash",
        ));
    }
    let input = Input::read(item, exporter)?;
    let krate = &input.attributes.krate;
    let ident = input.ident;
    let body = match &input.shape {
        Shape::Struct(fields) => {
            let members = fields.iter().enumerate().map(|(i, field)| member(field, i));
            quote! {
                #(let state = #krate::PersistHash::persist_hash(&self.#members, state);)*
                state
            }
        }
        Shape::Enum { variants, repr } => {
            let variants = variants.iter().map(|variant| &variant.ident);
            quote! {
                let value = match self {
                    #(Self::#variants => Self::#variants as #repr,)*
                };
                #krate::PersistHash::persist_hash(&value, state)
            }
        }
    };
    let generics = bounded(input.generics, &quote!(#krate::PersistHash));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::PersistHash for #ident #type_generics #where_clause {
            fn persist_hash(&self, state: u64) -> u64 {
                #body
            }
        }
    })
}
