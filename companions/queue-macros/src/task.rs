//! What `#[derive(Task)]` writes.

use std::time::Duration;

use proc_macro2::TokenStream as Tokens;
use queue_core::options::compose;
use queue_core::{RawTask, RetryPolicy, TaskOptions};
use quote::{ToTokens, quote};
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
                "type" => {
                    let literal = text(&meta)?;
                    fits(&literal, RawTask::new(literal.value()))?;
                    task_type = Some(literal);
                }
                "crate" => path = meta.value()?.parse::<LitStr>()?.parse()?,
                "codec" => codec = codec_named(&text(&meta)?)?,
                "queue" | "group" | "on_exhausted" | "on_exhausted_queue" => {
                    let (setter, literal) = (&meta.path, text(&meta)?);
                    let (value, given) = (literal.value(), TaskOptions::new());
                    fits_with(
                        &literal,
                        match name.as_str() {
                            "queue" => given.queue(value),
                            "group" => given.group(value),
                            "on_exhausted" => given.on_exhausted(value),
                            // Of a follow-up, which the call may name.
                            _ => given.on_exhausted("t").on_exhausted_queue(value),
                        },
                    )?;
                    options.push(quote!(.#setter(#literal)));
                }
                "max_retry" | "max_crashes" | "max_snoozes" => {
                    let literal: LitInt = meta.value()?.parse()?;
                    let count: u32 = literal.base10_parse()?;
                    if name == "max_retry" {
                        fits_with(&literal, TaskOptions::new().max_retry(count))?;
                    }
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

/// That a client would send such a task.
fn fits(literal: &impl ToTokens, task: RawTask) -> syn::Result<()> {
    compose(task, TaskOptions::new(), 0).map(drop).map_err(|error| syn::Error::new_spanned(literal, error))
}

fn fits_with(literal: &impl ToTokens, options: TaskOptions) -> syn::Result<()> {
    fits(literal, RawTask { options, ..RawTask::new("t") })
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
    let (name, given) = (meta.path.require_ident()?.to_string(), TaskOptions::new());
    fits_with(
        &literal,
        match name.as_str() {
            "timeout" => given.timeout(duration),
            "unique" => given.unique(duration),
            "retention" => given.retention(duration),
            "give_up_after" => given.give_up_after(duration),
            // Of a task for some servers, which the call may name.
            _ => given.label("any").fallback(duration),
        },
    )?;
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
