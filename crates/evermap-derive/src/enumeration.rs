//! Generates `Persist` for fieldless enums: an integer with names.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::Variant;

use crate::input::{Input, bare};
use crate::structure::build_self;

pub fn expand(input: &Input<'_>, variants: &[&Variant], repr: &Ident) -> TokenStream {
    let krate = &input.attributes.krate;
    let (ident, name) = (input.ident, &input.attributes.name);
    let variants: Vec<_> = variants.iter().map(|variant| &variant.ident).collect();
    let names = variants.iter().map(|variant| bare(variant));
    let repr_name = repr.to_string();
    let build_self = build_self(input);
    quote! {
        const _: () = {
            // SAFETY: the macro has checked that the layout is the integer's; the type owns
            // nothing.
            #[automatically_derived]
            unsafe impl #krate::Persist for #ident {
                type Fields<'evermap> = #krate::Mut<'evermap, Self>;

                const OWNS: bool = false;

                #[inline]
                fn fields(this: #krate::Mut<'_, Self>) -> Self::Fields<'_> {
                    this
                }

                fn describe(description: &mut #krate::Description) {
                    description.structure::<Self>(#name, &[], |definition| {
                        definition.repr(#repr_name);
                        #(definition.variant(#names, #ident::#variants as #repr as i128);)*
                    });
                }

                unsafe fn release(
                    _this: ::core::ptr::NonNull<Self>,
                    _releaser: &mut #krate::Releaser<'_>,
                ) {
                }
            }

            #build_self
        };
    }
}
