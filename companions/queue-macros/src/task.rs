//! What `#[derive(Task)]` writes.

use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::{DeriveInput, Ident, LitInt, LitStr, Path};

/// The implementation of the trait, by what `found::private` has.
pub(crate) fn expand(input: &DeriveInput, found: Path) -> syn::Result<Tokens> {
    let mut path = found;
    let mut task_type = None;
    let mut codec = quote!(Json);
    let mut options = Vec::new();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("task")) {
        attribute.parse_nested_meta(|meta| {
            let name = meta.path.require_ident()?.to_string();
            match name.as_str() {
                "type" => task_type = Some(text(&meta)?),
                "crate" => path = meta.value()?.parse::<LitStr>()?.parse()?,
                "codec" => codec = codec_named(&text(&meta)?)?,
                "queue" | "group" => {
                    let (setter, value) = (&meta.path, text(&meta)?);
                    options.push(quote!(.#setter(#value)));
                }
                "max_retry" => {
                    let count: u32 = meta.value()?.parse::<LitInt>()?.base10_parse()?;
                    options.push(quote!(.max_retry(#count)));
                }
                "priority" => {
                    let literal: LitInt = meta.value()?.parse()?;
                    let level: u8 = literal.base10_parse()?;
                    if let Err(error) = queue_core::queue_name::Family::Level(level).check() {
                        return Err(syn::Error::new_spanned(&literal, error));
                    }
                    options.push(quote!(.priority(#level)));
                }
                "timeout" | "unique" | "retention" => options.push(duration(&meta)?),
                _ => {
                    return Err(meta.error(
                        "unknown option; known are type, codec, queue, max_retry, timeout, unique, retention, group, priority, crate",
                    ));
                }
            }
            Ok(())
        })?;
    }
    let task_type = task_type.ok_or_else(|| {
        syn::Error::new_spanned(&input.ident, "a task needs a type: #[task(type = \"email:welcome\")]")
    })?;
    let name: &Ident = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impl_generics #path::private::Task for #name #type_generics #where_clause {
            const TYPE: &'static str = #task_type;
            type Codec = #path::private::#codec;
            fn options() -> #path::private::TaskOptions {
                #path::private::TaskOptions::new()#(#options)*
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
