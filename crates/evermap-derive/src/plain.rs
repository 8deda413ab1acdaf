//! Generates `Plain`: a marker with a check of each field.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Result};

use crate::input::{Attributes, Exporter, bounded};

pub fn expand(item: &DeriveInput, exporter: Exporter) -> Result<TokenStream> {
    let krate = &Attributes::read(item, exporter)?.krate;
    let types: Vec<_> = match &item.data {
        Data::Struct(data) => data.fields.iter().map(|field| &field.ty).collect(),
        Data::Enum(data) => data
            .variants
            .iter()
            .flat_map(|variant| variant.fields.iter().map(|field| &field.ty))
            .collect(),
        Data::Union(data) => {
            return Err(Error::new(
                data.union_token.span(),
                "a union can't be `Plain`: it is not known which of its fields is valid",
            ));
        }
    };
    let ident = &item.ident;
    let generics = bounded(&item.generics, &quote!(#krate::Plain));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let checks = types.iter().map(|ty| quote_spanned!(ty.span()=> plain::<#ty>();));
    Ok(quote! {
        const _: () = {
            // SAFETY: every field is `Plain`, which the function below checks.
            #[automatically_derived]
            unsafe impl #impl_generics #krate::Plain for #ident #type_generics #where_clause {}

            #[allow(dead_code)]
            fn fields_are_plain #impl_generics () #where_clause {
                #[allow(clippy::extra_unused_type_parameters)]
                fn plain<T: #krate::Plain>() {}
                #(#checks)*
            }
        };
    })
}
