//! What `#[derive(Task)]` writes.

use std::time::Duration;

use proc_macro2::TokenStream as Tokens;
use queue_core::RetryPolicy;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::{DeriveInput, Ident, LitInt, LitStr, Path};

/// The implementation of the trait, by what `found::private` has.
pub(crate) fn expand(input: &DeriveInput, found: Path) -> syn::Result<Tokens> {
    let mut path = found;
    let mut task_type = None;
    let mut codec = quote!(Json);
    let mut options = Vec::new();
    let mut backoff = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("task")) {
        attribute.parse_nested_meta(|meta| {
            let name = meta.path.require_ident()?.to_string();
            match name.as_str() {
                "type" => task_type = Some(text(&meta)?),
                "crate" => path = meta.value()?.parse::<LitStr>()?.parse()?,
                "codec" => codec = codec_named(&text(&meta)?)?,
                "queue" | "group" | "on_exhausted" | "on_exhausted_queue" => {
                    let (setter, value) = (&meta.path, text(&meta)?);
                    options.push(quote!(.#setter(#value)));
                }
                "max_retry" | "max_crashes" | "max_snoozes" => {
                    let count: u32 = meta.value()?.parse::<LitInt>()?.base10_parse()?;
                    let setter = &meta.path;
                    options.push(quote!(.#setter(#count)));
                }
                "backoff" => backoff = Some(policy(&meta)?),
                "priority" => {
                    let literal: LitInt = meta.value()?.parse()?;
                    let level: u8 = literal.base10_parse()?;
                    if let Err(error) = queue_core::queue_name::Family::Level(level).check() {
                        return Err(syn::Error::new_spanned(&literal, error));
                    }
                    options.push(quote!(.priority(#level)));
                }
                "only" | "label" => {
                    let literal = text(&meta)?;
                    let mailbox = queue_core::queue_name::Family::Mailbox(literal.value());
                    if mailbox.check().is_err() {
                        let reason = "this has 1 to 100 letters, digits, '.', '_' and '-'";
                        return Err(syn::Error::new_spanned(&literal, reason));
                    }
                    let setter = &meta.path;
                    options.push(quote!(.#setter(#literal)));
                }
                "timeout" | "unique" | "retention" | "give_up_after" | "fallback" => options.push(duration(&meta)?),
                _ => {
                    return Err(meta.error(
                        "unknown option; known are type, codec, queue, max_retry, timeout, unique, retention, group, priority, only, label, fallback, max_crashes, max_snoozes, give_up_after, backoff, on_exhausted, on_exhausted_queue, crate",
                    ));
                }
            }
            Ok(())
        })?;
    }
    let task_type = task_type.ok_or_else(|| {
        syn::Error::new_spanned(&input.ident, "a task needs a type: #[task(type = \"email:welcome\")]")
    })?;
    // By the path, which the attribute may name after this.
    options.extend(backoff.map(|(policy, fields)| quote!(.backoff(#path::private::RetryPolicy::#policy #fields))));
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
    if duration.as_secs() == 0
        && let Some(option) = ["unique", "give_up_after"].into_iter().find(|option| meta.path.is_ident(option))
    {
        return Err(syn::Error::new_spanned(&literal, format!("{option} must be at least 1s")));
    }
    let (setter, duration) = (&meta.path, written(duration));
    Ok(quote!(.#setter(#duration)))
}

fn written(duration: Duration) -> Tokens {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    quote!(::core::time::Duration::new(#seconds, #nanos))
}

/// The variant of a retry policy, and its fields.
fn policy(meta: &ParseNestedMeta<'_>) -> syn::Result<(Ident, Tokens)> {
    let literal = text(meta)?;
    let policy = literal.value().parse().map_err(|error| syn::Error::new_spanned(&literal, error))?;
    let variant = |name: &str| Ident::new(name, literal.span());
    let range = |base, max| {
        let (base, max) = (written(base), written(max));
        quote!({ base: #base, max: #max })
    };
    Ok(match policy {
        RetryPolicy::Asynq => (variant("Asynq"), Tokens::new()),
        RetryPolicy::Fixed(delay) => {
            let delay = written(delay);
            (variant("Fixed"), quote!((#delay)))
        }
        RetryPolicy::Linear { base, max } => (variant("Linear"), range(base, max)),
        RetryPolicy::Exponential { base, max } => (variant("Exponential"), range(base, max)),
        _ => return Err(syn::Error::new_spanned(&literal, "a function has no text")),
    })
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
