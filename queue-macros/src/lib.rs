//! `#[derive(Task)]`.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::{DeriveInput, Ident, LitInt, LitStr};

/// Makes a type a task.
///
/// `#[task(kind = "email:welcome")]` is required; `codec = "json"` (or `"msgpack"`, `"protobuf"`, `"raw"`),
/// `queue = "mail"`, `max_retry = 5`, `timeout = "30s"`, `unique = "10m"`, `retention = "1h"` and
/// `group = "name"` are the options of every task of the type. Durations are checked when the program is
/// compiled.
#[proc_macro_derive(Task, attributes(task))]
pub fn derive_task(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

fn expand(input: &DeriveInput) -> syn::Result<Tokens> {
    let mut kind = None;
    let mut codec = quote!(Json);
    let mut options = Vec::new();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("task")) {
        attribute.parse_nested_meta(|meta| {
            let name = meta.path.require_ident()?.to_string();
            match name.as_str() {
                "kind" => kind = Some(text(&meta)?),
                "codec" => codec = codec_named(&text(&meta)?)?,
                "queue" | "group" => {
                    let (setter, value) = (&meta.path, text(&meta)?);
                    options.push(quote!(.#setter(#value)));
                }
                "max_retry" => {
                    let count: u32 = meta.value()?.parse::<LitInt>()?.base10_parse()?;
                    options.push(quote!(.max_retry(#count)));
                }
                "timeout" | "unique" | "retention" => options.push(duration(&meta)?),
                _ => {
                    return Err(meta.error(
                        "unknown option; known are kind, codec, queue, max_retry, timeout, unique, retention, group",
                    ));
                }
            }
            Ok(())
        })?;
    }
    let kind = kind.ok_or_else(|| {
        syn::Error::new_spanned(&input.ident, "a task needs a kind: #[task(kind = \"email:welcome\")]")
    })?;
    let name: &Ident = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impl_generics ::queue_worker::private::Task for #name #type_generics #where_clause {
            const KIND: &'static str = #kind;
            type Codec = ::queue_worker::private::#codec;
            fn options() -> ::queue_worker::private::TaskOptions {
                ::queue_worker::private::TaskOptions::new()#(#options)*
            }
        }
    })
}

fn text(meta: &ParseNestedMeta<'_>) -> syn::Result<LitStr> {
    let literal: LitStr = meta.value()?.parse()?;
    if literal.value().trim().is_empty() {
        return Err(syn::Error::new_spanned(literal, "this must not be blank"));
    }
    Ok(literal)
}

fn duration(meta: &ParseNestedMeta<'_>) -> syn::Result<Tokens> {
    let literal = text(meta)?;
    let duration =
        queue_core::duration::parse(&literal.value()).map_err(|error| syn::Error::new_spanned(&literal, error))?;
    if meta.path.is_ident("unique") && duration.as_secs() == 0 {
        return Err(syn::Error::new_spanned(&literal, "unique must be at least 1s"));
    }
    let (setter, seconds, nanos) = (&meta.path, duration.as_secs(), duration.subsec_nanos());
    Ok(quote!(.#setter(::core::time::Duration::new(#seconds, #nanos))))
}

fn codec_named(name: &LitStr) -> syn::Result<Tokens> {
    match name.value().as_str() {
        "json" => Ok(quote!(Json)),
        "msgpack" => Ok(quote!(MessagePack)),
        "protobuf" => Ok(quote!(Protobuf)),
        "raw" => Ok(quote!(Raw)),
        _ => Err(syn::Error::new_spanned(name, "unknown codec; known are json, msgpack, protobuf, raw")),
    }
}
