//! `#[derive(Dtype)]` of `dtl-binding`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Error, Path, Result, parse_macro_input, parse_quote};

/// Implements `Plain` and `Dtype` for a `#[repr(C)]` or `#[repr(transparent)]` struct without
/// generic parameters and without padding, whose fields are all `Plain`. The dtype is created at its
/// first use, once for the process.
///
/// If the program calls the crate by another name, `#[dtype(crate = name)]` has that name.
#[proc_macro_derive(Dtype, attributes(dtype))]
pub fn derive_dtype(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "only a struct can be a Dtype"));
    };
    if !input.generics.params.is_empty() {
        let text = "a Dtype has no generic parameters: each of its types needs a dtype of its own";
        return Err(Error::new_spanned(&input.generics, text));
    }
    if !is_laid_out(&input.attrs)? {
        let text =
            "a Dtype needs #[repr(C)] or #[repr(transparent)]: all ranks must have one layout";
        return Err(Error::new_spanned(&input.ident, text));
    }
    let (dtl, name, text) = (crate_path(&input.attrs)?, &input.ident, input.ident.to_string());
    let fields: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    let padding = format!(
        "{text} has padding, whose bytes are not initialized: add fields (for example an array of \
         u8) in its place"
    );
    Ok(quote! {
        const _: () = {
            const fn is_plain<T: #dtl::Plain>() {}
            #(is_plain::<#fields>();)*
            ::core::assert!(
                ::core::mem::size_of::<#name>() == 0 #(+ ::core::mem::size_of::<#fields>())*,
                #padding
            );
        };
        // SAFETY: every field takes every bit pattern, and there is no padding.
        unsafe impl #dtl::Plain for #name {}
        // SAFETY: the dtype has the size of the type.
        unsafe impl #dtl::Dtype for #name {
            #[inline]
            fn dtype() -> #dtl::Result<#dtl::sys::dtl_dtype_t> {
                static DTYPE: #dtl::DtypeCell = #dtl::DtypeCell::new();
                DTYPE.get(::core::mem::size_of::<#name>(), #text)
            }
        }
    })
}

/// Returns true if the layout of the struct is defined.
fn is_laid_out(attributes: &[Attribute]) -> Result<bool> {
    let mut is_laid_out = false;
    for attribute in attributes.iter().filter(|one| one.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            is_laid_out |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            // The number of align(8).
            if meta.input.peek(syn::token::Paren) {
                let number;
                syn::parenthesized!(number in meta.input);
                number.parse::<TokenStream>()?;
            }
            Ok(())
        })?;
    }
    Ok(is_laid_out)
}

/// Returns the path of dtl-binding.
fn crate_path(attributes: &[Attribute]) -> Result<Path> {
    let mut path = parse_quote!(::dtl_binding);
    for attribute in attributes.iter().filter(|one| one.path().is_ident("dtype")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("the only option is: crate = path"));
            }
            path = meta.value()?.parse()?;
            Ok(())
        })?;
    }
    Ok(path)
}
