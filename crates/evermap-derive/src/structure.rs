//! Generates `Persist` for structs, the struct of cursors and the struct of sources.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Fields, Member, Type};

use crate::input::{Input, bare, member};

pub fn expand(input: &Input<'_>, fields: &Fields) -> TokenStream {
    let parts = Parts::of(input, fields);
    let persist = parts.persist_impl();
    let build_self = build_self(input);
    // A struct without fields needs neither of the two.
    let (mut companions, mut build_sources) = (TokenStream::new(), TokenStream::new());
    if !fields.is_empty() {
        companions.extend(parts.cursors_struct());
        companions.extend(parts.sources_struct());
        build_sources = parts.build_sources();
    }
    let no_drop = no_drop(input);
    quote! {
        #companions
        const _: () = {
            #persist
            #build_self
            #build_sources
            #no_drop
        };
    }
}

/// Generates `Build<Self>`: by value. A type that owns memory must be empty.
pub fn build_self(input: &Input<'_>) -> TokenStream {
    let krate = &input.attributes.krate;
    let ident = input.ident;
    let bounded = input.bounded(&quote!(#krate::Persist));
    let (impl_generics, type_generics, where_clause) = bounded.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics #krate::Build<Self> for #ident #type_generics #where_clause {
            #[inline]
            fn build<'evermap>(
                source: Self,
                slot: #krate::Slot<'evermap, Self>,
            ) -> ::core::result::Result<#krate::Built<'evermap, Self>, #krate::HeapError> {
                ::core::result::Result::Ok(slot.write(source))
            }
        }
    }
}

/// Rejects `Drop`: a type with `Drop` would get two implementations of this trait.
fn no_drop(input: &Input<'_>) -> TokenStream {
    let krate = &input.attributes.krate;
    let ident = input.ident;
    let bounded = input.bounded(&quote!(#krate::Persist));
    let (impl_generics, type_generics, where_clause) = bounded.split_for_impl();
    quote! {
        trait PersistentValuesAreNeverDroppedSoDropIsRefused {}
        #[allow(drop_bounds)]
        impl<T: ::core::ops::Drop> PersistentValuesAreNeverDroppedSoDropIsRefused for T {}
        #[automatically_derived]
        impl #impl_generics PersistentValuesAreNeverDroppedSoDropIsRefused
            for #ident #type_generics #where_clause {}
    }
}

struct Parts<'i> {
    input: &'i Input<'i>,
    fields: &'i Fields,
    members: Vec<Member>,
    names: Vec<String>,
    types: Vec<&'i Type>,
}

impl<'i> Parts<'i> {
    fn of(input: &'i Input<'i>, fields: &'i Fields) -> Self {
        let members: Vec<Member> =
            fields.iter().enumerate().map(|(index, field)| member(field, index)).collect();
        let names = members
            .iter()
            .map(|member| match member {
                Member::Named(ident) => bare(ident),
                Member::Unnamed(index) => index.index.to_string(),
            })
            .collect();
        Parts {
            input,
            fields,
            members,
            names,
            types: fields.iter().map(|field| &field.ty).collect(),
        }
    }

    /// Generates `struct NotesFields<'a> { lines: Mut<'a, PVec<PString>>, .. }`.
    fn cursors_struct(&self) -> TokenStream {
        let krate = &self.input.attributes.krate;
        let types = self.types.iter().map(|ty| quote!(#krate::Mut<'evermap, #ty>));
        let body = self.struct_body(types, "Cursor to");
        let mut generics = self.input.bounded(&quote!(#krate::Persist));
        generics.params.insert(0, syn::parse_quote!('evermap));
        let (impl_generics, _, where_clause) = generics.split_for_impl();
        let (vis, name) = (self.input.vis, &self.input.attributes.fields);
        let doc = format!("Cursors to the fields of a [`{}`].", bare(self.input.ident));
        let generics = quote!(#impl_generics);
        self.struct_item(&doc, quote!(#vis struct #name #generics), quote!(#where_clause), body)
    }

    /// Generates `struct NotesInit<EvermapSource0, ..> { lines: EvermapSource0, .. }`.
    fn sources_struct(&self) -> TokenStream {
        let parameters = self.source_parameters();
        let body =
            self.struct_body(parameters.iter().map(|parameter| quote!(#parameter)), "Source of");
        let (vis, name) = (self.input.vis, &self.input.attributes.init);
        let doc = format!(
            "Sources of the fields of a [`{}`], which is built from them in its object.",
            bare(self.input.ident)
        );
        self.struct_item(&doc, quote!(#vis struct #name <#(#parameters),*>), quote!(), body)
    }

    fn struct_item(
        &self,
        doc: &str,
        head: TokenStream,
        where_clause: TokenStream,
        body: TokenStream,
    ) -> TokenStream {
        let item = match self.fields {
            Fields::Unnamed(_) => quote!(#head (#body) #where_clause;),
            _ => quote!(#head #where_clause { #body }),
        };
        quote! {
            #[doc = #doc]
            #[allow(dead_code, clippy::type_complexity, single_use_lifetimes)]
            #item
        }
    }

    fn struct_body(&self, types: impl Iterator<Item = TokenStream>, what: &str) -> TokenStream {
        let fields = self.fields.iter().zip(&self.names).zip(types);
        let fields = fields.map(|((field, name), ty)| {
            let (vis, ident) = (&field.vis, &field.ident);
            let colon = ident.as_ref().map(|_| quote!(:));
            let doc = format!("{what} `{name}`.");
            quote!(#[doc = #doc] #vis #ident #colon #ty)
        });
        quote!(#(#fields),*)
    }

    /// Names that the program's types do not use.
    fn source_parameters(&self) -> Vec<syn::Ident> {
        (0..self.types.len()).map(|index| format_ident!("EvermapSource{index}")).collect()
    }

    fn persist_impl(&self) -> TokenStream {
        let krate = &self.input.attributes.krate;
        let ident = self.input.ident;
        let name = &self.input.attributes.name;
        let bounded = self.input.bounded(&quote!(#krate::Persist));
        let (impl_generics, type_generics, where_clause) = bounded.split_for_impl();
        let (cursors, project) = self.cursors();
        let arguments = self.input.arguments();
        let (members, names, types) = (&self.members, &self.names, &self.types);
        // With the field's span, so that a missing `Persist` is reported there.
        let known: Vec<_> = types
            .iter()
            .map(|ty| {
                let call = quote_spanned!(ty.span()=> #krate::__private::FieldType::of::<#ty>);
                quote!(#call())
            })
            .collect();
        let table = known.iter().zip(names).zip(members).map(|((known, name), member)| {
            // SAFETY: the offset is the field's offset in the struct.
            quote!(unsafe { #known.at(#name, ::core::mem::offset_of!(Self, #member)) })
        });
        quote! {
            trait EvermapFields {
                const FIELDS: &'static [#krate::__private::Field];
            }

            #[automatically_derived]
            impl #impl_generics EvermapFields for #ident #type_generics #where_clause {
                const FIELDS: &'static [#krate::__private::Field] = &[#(#table),*];
            }

            // SAFETY: `repr(C)` or `repr(transparent)`, as the macro has checked, with fields that
            // are `Persist`; all of them are described and released, and each is projected once.
            #[automatically_derived]
            unsafe impl #impl_generics #krate::Persist for #ident #type_generics #where_clause {
                type Fields<'evermap> = #cursors;

                const OWNS: bool = #krate::__private::any_owns([#(#known),*]);

                #[inline]
                fn fields(this: #krate::Mut<'_, Self>) -> Self::Fields<'_> {
                    #project
                }

                fn describe(description: &mut #krate::Description) {
                    description.structure::<Self>(#name, &[#(#arguments),*], |definition| {
                        #krate::__private::describe_fields(<Self as EvermapFields>::FIELDS, definition);
                    });
                }

                unsafe fn release(
                    this: ::core::ptr::NonNull<Self>,
                    releaser: &mut #krate::Releaser<'_>,
                ) {
                    let fields = <Self as EvermapFields>::FIELDS;
                    // SAFETY: the caller passes a valid value, and the table describes its type.
                    unsafe { #krate::__private::release_fields(fields, this.cast(), releaser) }
                }

                unsafe fn is_bounded(
                    this: ::core::ptr::NonNull<Self>,
                    bounds: &#krate::Bounds<'_>,
                ) -> bool {
                    let fields = <Self as EvermapFields>::FIELDS;
                    // SAFETY: the caller passes aligned, readable bytes, and the table describes
                    // this type.
                    unsafe { #krate::__private::fields_are_bounded(fields, this.cast(), bounds) }
                }
            }
        }
    }

    /// Returns the type of the cursors, and code that makes them from a cursor named `this`.
    fn cursors(&self) -> (TokenStream, TokenStream) {
        let krate = &self.input.attributes.krate;
        if self.types.is_empty() {
            return (quote!(#krate::Mut<'evermap, Self>), quote!(this));
        }
        let members = &self.members;
        let name = &self.input.attributes.fields;
        let mut generics = self.input.generics.clone();
        generics.params.insert(0, syn::parse_quote!('evermap));
        let (_, type_generics, _) = generics.split_for_impl();
        let project = quote! {
            let this = #krate::__private::Projection::of(this);
            let value: *mut Self = this.as_ptr();
            #name {
                // SAFETY: each field is projected once.
                #(#members: unsafe { this.field(&raw mut (*value).#members) },)*
            }
        };
        (quote!(#name #type_generics), project)
    }

    /// Generates `Build<NotesInit<..>>`: builds each field from its source. If a field fails, the
    /// earlier ones are released.
    fn build_sources(&self) -> TokenStream {
        let krate = &self.input.attributes.krate;
        let ident = self.input.ident;
        let init = &self.input.attributes.init;
        let parameters = self.source_parameters();
        let (members, types) = (&self.members, &self.types);
        let mut bounded = self.input.bounded(&quote!(#krate::Persist));
        let (_, type_generics, _) = self.input.generics.split_for_impl();
        let type_generics = quote!(#type_generics);
        for parameter in &parameters {
            bounded.params.push(syn::parse_quote!(#parameter));
        }
        let clause = bounded.make_where_clause();
        for (ty, parameter) in types.iter().zip(&parameters) {
            clause
                .predicates
                .push(syn::parse_quote!(#parameter: #krate::__private::FieldSource<#ty>));
        }
        let (impl_generics, _, where_clause) = bounded.split_for_impl();
        let guards: Vec<_> = (0..types.len()).map(|index| format_ident!("part{index}")).collect();
        quote! {
            #[automatically_derived]
            impl #impl_generics #krate::Build<#init<#(#parameters),*>>
                for #ident #type_generics #where_clause
            {
                fn build<'evermap>(
                    source: #init<#(#parameters),*>,
                    slot: #krate::Slot<'evermap, Self>,
                ) -> ::core::result::Result<#krate::Built<'evermap, Self>, #krate::HeapError> {
                    let parts = #krate::__private::Parts::of(slot);
                    let value: *mut Self = parts.as_ptr();
                    // SAFETY: each field of the slot is built once, and kept only when all of them
                    // are built.
                    unsafe {
                        #(
                            let #guards = #krate::__private::FieldSource::<#types>::build_field(
                                source.#members,
                                &parts,
                                &raw mut (*value).#members,
                            )?;
                        )*
                        #(#guards.keep();)*
                        ::core::result::Result::Ok(parts.finish())
                    }
                }
            }
        }
    }
}
