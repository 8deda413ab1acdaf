//! Generates `PersistDeserialize`: tables of names, and a `match` over the fields that builds each
//! one.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, Fields, Ident, Member, Result, Variant};

use crate::input::{Exporter, Input, Shape, bare, member};
use crate::serde_names::{MemberNames, Missing, TypeNames};

pub fn expand(item: &DeriveInput, exporter: Exporter) -> Result<TokenStream> {
    let input = Input::read(item, exporter)?;
    let names = TypeNames::read(input.ident, &item.attrs)?;
    match &input.shape {
        Shape::Struct(fields) => of_struct(&input, &names, fields),
        Shape::Enum { variants, .. } => of_enum(&input, &names, variants),
    }
}

fn of_struct(input: &Input<'_>, type_names: &TypeNames, fields: &Fields) -> Result<TokenStream> {
    let krate = &input.attributes.krate;
    let inner = quote!(#krate::__private::deserialize);
    let ident = input.ident;
    let members: Vec<Member> = fields.iter().enumerate().map(|(i, f)| member(f, i)).collect();
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    let names = fields
        .iter()
        .zip(&members)
        .map(|(field, member)| {
            let plain = match member {
                Member::Named(ident) => bare(ident),
                Member::Unnamed(index) => index.index.to_string(),
            };
            MemberNames::read(plain, &field.attrs, |plain| type_names.rule.field(plain))
        })
        .collect::<Result<Vec<_>>>()?;

    let mut generics = input.bounded(&quote!(#krate::Persist));
    let (_, type_generics, _) = input.generics.split_for_impl();
    let type_generics = quote!(#type_generics);
    generics.params.insert(0, syn::parse_quote!('de));
    // Bounds on the parameters, not on the fields' types, which may be recursive.
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(syn::parse_quote!(#krate::serde::PersistDeserialize<'de>));
    }
    if input.generics.type_params().next().is_some() {
        let clause = generics.make_where_clause();
        if type_names.default {
            let ident = input.ident;
            clause
                .predicates
                .push(syn::parse_quote!(#ident #type_generics: ::core::default::Default));
        }
        for (ty, _) in
            types.iter().zip(&names).filter(|(_, n)| matches!(n.missing, Missing::Default))
        {
            clause.predicates.push(syn::parse_quote!(#ty: ::core::default::Default));
        }
    }
    let mut by_deserializer = generics.clone();
    by_deserializer
        .params
        .push(syn::parse_quote!(EvermapDeserializer: #inner::__serde::Deserializer<'de>));
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let (build_generics, _, build_clause) = by_deserializer.split_for_impl();

    let shape = match fields {
        Fields::Named(_) => quote!(Named),
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => quote!(Newtype),
        Fields::Unnamed(_) => quote!(Tuple),
        Fields::Unit => quote!(Unit),
    };
    let (name, denies) = (&type_names.name, type_names.denies_unknown);
    let count = members.len();
    let first_names = names.iter().filter_map(|names| names.names.first());
    let all_names = names.iter().map(|names| {
        let names = &names.names;
        quote!(&[#(#names),*])
    });
    let next = members.iter().zip(&names).enumerate().filter(|(_, (_, n))| !n.names.is_empty());
    // With the field's span, so that a missing `PersistDeserialize` is reported there.
    let next = next.map(|(index, (member, _))| {
        let ty = types[index];
        let seed = quote_spanned!(ty.span()=> #inner::Place::seed::<#ty>);
        // SAFETY (generated code): the member's place lies in the value's place, which `place`
        // owns.
        quote!(#index => values.next(unsafe { #seed(place, &raw mut (*value).#member) }),)
    });
    let absent =
        members.iter().zip(&names).zip(&types).enumerate().map(|(index, ((member, names), ty))| {
            let field = quote!(&raw mut (*value).#member);
            // SAFETY (generated code): the member lies in the place that `place` owns, not yet
            // written.
            let from_value = |source| quote!(#index => unsafe { place.value(#field, #source) },);
            match (&names.missing, names.names.first()) {
                (Missing::By(path), _) => from_value(quote!(#path())),
                (Missing::Refused, Some(name)) if !type_names.default => {
                    let missing =
                        quote_spanned!(ty.span()=> #inner::Place::missing::<#ty, EvermapError>);
                    // SAFETY (generated code): as for `from_value`.
                    quote!(#index => unsafe { #missing(place, #field, #name) },)
                }
                _ if type_names.default => {
                    from_value(quote!(<Self as ::core::default::Default>::default().#member))
                }
                _ => from_value(quote!(<#ty as ::core::default::Default>::default())),
            }
        });
    Ok(quote! {
        const _: () = {
            // SAFETY: each number builds the field of that number.
            #[automatically_derived]
            unsafe impl #impl_generics #inner::Fill<'de> for #ident #type_generics #where_clause {
                const NAME: &'static str = #name;
                const NAMES: &'static [&'static str] = &[#(#first_names),*];
                const FIELDS: &'static [&'static [&'static str]] = &[#(#all_names),*];
                const SHAPE: #inner::Shape = #inner::Shape::#shape;
                const DENIES_UNKNOWN: bool = #denies;
                type Guards<'evermap> =
                    [::core::option::Option<#krate::__private::Part<'evermap>>; #count];

                fn guards<'evermap>() -> Self::Guards<'evermap> {
                    [const { ::core::option::Option::None }; #count]
                }

                #[allow(unused_variables)]
                unsafe fn next<'evermap, EvermapValues: #inner::Values<'de>>(
                    place: &#inner::Place<'evermap, Self>,
                    field: usize,
                    values: &mut EvermapValues,
                ) -> ::core::result::Result<
                    ::core::option::Option<#krate::__private::Part<'evermap>>,
                    EvermapValues::Error,
                > {
                    let value: *mut Self = place.as_ptr();
                    match field {
                        #(#next)*
                        _ => ::core::result::Result::Ok(::core::option::Option::None),
                    }
                }

                #[allow(unused_variables)]
                unsafe fn absent<'evermap, EvermapError: #inner::__serde::de::Error>(
                    place: &#inner::Place<'evermap, Self>,
                    field: usize,
                ) -> ::core::result::Result<#krate::__private::Part<'evermap>, EvermapError> {
                    let value: *mut Self = place.as_ptr();
                    match field {
                        #(#absent)*
                        _ => ::core::result::Result::Err(EvermapError::missing_field("?")),
                    }
                }
            }

            #[automatically_derived]
            impl #impl_generics #krate::serde::PersistDeserialize<'de>
                for #ident #type_generics #where_clause
            {
                fn deserialize_into<'evermap, EvermapDeserializer: #inner::__serde::Deserializer<'de>>(
                    seed: #krate::serde::Seed<'evermap, Self>,
                    deserializer: EvermapDeserializer,
                ) -> ::core::result::Result<#krate::Built<'evermap, Self>, EvermapDeserializer::Error> {
                    #inner::fill(seed, deserializer)
                }
            }

            #[automatically_derived]
            impl #build_generics #krate::Build<#krate::serde::FromDeserializer<EvermapDeserializer>>
                for #ident #type_generics #build_clause
            {
                fn build<'evermap>(
                    source: #krate::serde::FromDeserializer<EvermapDeserializer>,
                    slot: #krate::Slot<'evermap, Self>,
                ) -> ::core::result::Result<#krate::Built<'evermap, Self>, #krate::HeapError> {
                    source.build_in(slot)
                }
            }
        };
    })
}

fn of_enum(
    input: &Input<'_>,
    type_names: &TypeNames,
    variants: &[&Variant],
) -> Result<TokenStream> {
    let krate = &input.attributes.krate;
    let inner = quote!(#krate::__private::deserialize);
    let (ident, name) = (input.ident, &type_names.name);
    let names = variants
        .iter()
        .map(|variant| {
            MemberNames::read(bare(&variant.ident), &variant.attrs, |plain| {
                type_names.rule.variant(plain)
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let first_names = names.iter().filter_map(|names| names.names.first());
    let all_names = names.iter().map(|names| {
        let names = &names.names;
        quote!(&[#(#names),*])
    });
    let idents: Vec<&Ident> = variants.iter().map(|variant| &variant.ident).collect();
    Ok(quote! {
        const _: () = {
            #[automatically_derived]
            impl<'de> #krate::serde::PersistDeserialize<'de> for #ident {
                fn deserialize_into<'evermap, EvermapDeserializer: #inner::__serde::Deserializer<'de>>(
                    seed: #krate::serde::Seed<'evermap, Self>,
                    deserializer: EvermapDeserializer,
                ) -> ::core::result::Result<#krate::Built<'evermap, Self>, EvermapDeserializer::Error> {
                    let variants = [#(#ident::#idents),*];
                    let number = #inner::variant(
                        #name,
                        &[#(#first_names),*],
                        &[#(#all_names),*],
                        deserializer,
                    )?;
                    let value = variants.into_iter().nth(number);
                    let value = value.ok_or_else(|| {
                        <EvermapDeserializer::Error as #inner::__serde::de::Error>::custom("no such variant")
                    })?;
                    seed.fill(value)
                }
            }

            #[automatically_derived]
            impl<'de, EvermapDeserializer: #inner::__serde::Deserializer<'de>>
                #krate::Build<#krate::serde::FromDeserializer<EvermapDeserializer>> for #ident
            {
                fn build<'evermap>(
                    source: #krate::serde::FromDeserializer<EvermapDeserializer>,
                    slot: #krate::Slot<'evermap, Self>,
                ) -> ::core::result::Result<#krate::Built<'evermap, Self>, #krate::HeapError> {
                    source.build_in(slot)
                }
            }
        };
    })
}
