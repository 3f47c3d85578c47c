//! Reads the C headers and the declarations of dtl-sys, and writes the tests that compare them.

#![allow(clippy::expect_used, reason = "a build script fails with the text of the error")]

use proc_macro2::TokenStream;
use quote::quote;
use std::path::Path;
use std::{env, fs};
use syn::{Fields, ForeignItem, Ident, ItemStruct, ItemType, Signature, Type};

const HEADERS: [&str; 4] = ["dtl.h", "dtl_select.h", "dtl_backend.h", "dtl_rdma.h"];
const INCLUDE: &str = "../../../include";

fn main() {
    println!("cargo::rerun-if-changed={INCLUDE}");
    println!("cargo::rerun-if-changed=../dtl-sys/src");
    println!("cargo::rerun-if-changed=build.rs");
    // For the test.
    if let Ok(directory) = env::var("DEP_DTL_LIB_DIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{directory}");
    }
    values();
    signatures();
}

/// Sizes, alignments, offsets, constants and initial values, by ctest: a C compiler states them, and
/// the test compares.
fn values() {
    let mut c = ctest::TestGenerator::new();
    c.edition(2024).include(INCLUDE);
    for header in HEADERS {
        c.header(header);
    }
    // Their types have no counterpart in C. src/lib.rs compares their values.
    c.skip_const(|constant| ["DTL_VERSION_STRING", "DTL_IN_PLACE"].contains(&constant.ident()))
        // The structs are named by typedefs.
        .rename_struct_ty(|name| Some(name.to_owned()))
        .rename_union_ty(|name| Some(name.to_owned()));
    ctest::generate_test(&mut c, "../dtl-sys/src/lib.rs", "values.rs").expect("ctest");
}

/// Types of functions, fields and function pointers, by bindgen, which reads the headers with clang.
/// The types in what it writes are replaced by those of dtl-sys, so the compiler compares both.
fn signatures() {
    let mut reader = bindgen::Builder::default()
        .allowlist_file(".*/dtl[_a-z]*\\.h")
        .default_macro_constant_type(bindgen::MacroTypeVariation::Unsigned)
        .size_t_is_usize(true)
        .layout_tests(false)
        .derive_copy(false);
    for header in HEADERS {
        reader = reader.header(format!("{INCLUDE}/{header}"));
    }
    let text = reader.generate().expect("bindgen reads the headers").to_string();
    let file = syn::parse_file(&text).expect("bindgen writes Rust");

    let (mut functions, mut structs, mut aliases) = (Vec::new(), Vec::new(), Vec::new());
    for item in file.items {
        match item {
            syn::Item::ForeignMod(block) => {
                functions.extend(block.items.into_iter().filter_map(|item| match item {
                    ForeignItem::Fn(function) => Some(function.sig),
                    _ => None,
                }));
            }
            syn::Item::Struct(found) => structs.push(found),
            syn::Item::Type(found) => aliases.push(found),
            _ => {}
        }
    }
    let functions: Vec<_> = functions.iter().map(function).collect();
    let structs: Vec<_> = structs.iter().filter_map(fields).collect();
    let aliases: Vec<_> = aliases.iter().filter_map(alias).collect();
    let (functions_read, structs_read, aliases_read) =
        (functions.len(), structs.len(), aliases.len());
    let declared = declared();
    let code = quote! {
        /// Functions, structs and typedefs that clang has read, and those of dtl-sys.
        const READ: [usize; 3] = [#functions_read, #structs_read, #aliases_read];
        const DECLARED: [usize; 3] = [#(#declared),*];
        fn functions() { #(#functions)* }
        fn structs() { #(#structs)* }
        fn aliases() { #(#aliases)* }
    };
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("signatures.rs"), code.to_string())
        .expect("OUT_DIR is writable");
}

/// Numbers of the functions, structs and aliases in dtl-sys.
fn declared() -> [usize; 3] {
    let text = fs::read_to_string("../dtl-sys/src/items.rs").expect("dtl-sys has its declarations");
    let items = syn::parse_file(&text).expect("they are Rust").items;
    let mut counts = [0; 3];
    for item in items {
        match item {
            syn::Item::ForeignMod(block) => counts[0] += block.items.len(),
            syn::Item::Struct(_) => counts[1] += 1,
            syn::Item::Type(_) => counts[2] += 1,
            _ => {}
        }
    }
    counts
}

/// The function of dtl-sys has the type of the header's.
fn function(found: &Signature) -> TokenStream {
    let (name, output) = (&found.ident, &found.output);
    let inputs = found.inputs.iter().map(|input| match input {
        syn::FnArg::Typed(input) => &input.ty,
        syn::FnArg::Receiver(_) => unreachable!("C has no methods"),
    });
    quote!(let _: unsafe extern "C" fn(#(#inputs),*) #output = dtl_sys::#name;)
}

/// The fields of the struct of dtl-sys have the types of the header's.
fn fields(found: &ItemStruct) -> Option<TokenStream> {
    let Fields::Named(fields) = &found.fields else { return None };
    let name = &found.ident;
    if !is_ours(name) {
        return None;
    }
    let fields = fields.named.iter().map(|field| {
        let (ident, ty) = (&field.ident, &field.ty);
        if is_function(ty) {
            return quote!(let _: fn(&dtl_sys::#name) -> #ty = |found| found.#ident.map(|it| it as _););
        }
        quote!(let _: fn(&dtl_sys::#name) -> *const #ty = |found| &raw const found.#ident;)
    });
    Some(quote!(#(#fields)*))
}

/// The typedef of dtl-sys is that of the header.
fn alias(found: &ItemType) -> Option<TokenStream> {
    let (name, ty) = (&found.ident, &found.ty);
    is_ours(name).then(|| {
        if is_function(ty) {
            return quote!(let _: fn(dtl_sys::#name) -> #ty = |found| found.map(|it| it as _););
        }
        quote!(let _: fn(*const dtl_sys::#name) -> *const #ty = |found| found;)
    })
}

fn is_ours(name: &Ident) -> bool {
    name.to_string().starts_with("dtl_")
}

/// A function pointer. In dtl-sys those that any caller may call are not `unsafe`, so they are
/// converted.
fn is_function(ty: &Type) -> bool {
    quote!(#ty).to_string().contains("unsafe extern")
}
