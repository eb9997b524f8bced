//! What `#[debug_handler]` writes: for each piece of a handler an item that compiles only if the piece fits.

use proc_macro2::{Ident, Span, TokenStream as Tokens};
use quote::{quote, quote_spanned};
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned as _;
use syn::{Error, FnArg, GenericArgument, ItemFn, Path, PathArguments, ReturnType, Type};

/// The most extractors that a handler can have.
const MOST: usize = 8;

/// What the attribute says.
#[derive(Default)]
pub(crate) struct Options {
    state: Option<Type>,
    blocking: bool,
}

impl Options {
    pub(crate) fn read(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        if meta.path.is_ident("state") {
            self.state = Some(meta.value()?.parse()?);
        } else if meta.path.is_ident("blocking") {
            self.blocking = true;
        } else {
            return Err(meta.error("unknown option; known are state = Type and blocking"));
        }
        Ok(())
    }
}

/// The checks of a function, by what `found::private` has.
pub(crate) fn check(function: &ItemFn, options: &Options, found: &Path) -> syn::Result<Tokens> {
    let signature = &function.sig;
    let refuse = |span: Span, text: &str| Err(Error::new(span, text));
    if !signature.generics.params.is_empty() {
        return refuse(signature.generics.span(), "debug_handler cannot check a generic function");
    }
    let returns_impl = matches!(&signature.output, ReturnType::Type(_, of) if matches!(**of, Type::ImplTrait(_)));
    match (signature.asyncness, options.blocking) {
        (None, false) if !returns_impl => {
            let text = "a handler is an async fn: write `async fn`, or hand the function to Router::blocking and write \
                        #[debug_handler(blocking)]";
            return refuse(signature.fn_token.span, text);
        }
        (Some(word), true) => {
            return refuse(word.span, "a handler of Router::blocking is no async fn: leave out `async`, or `blocking`");
        }
        _ => {}
    }
    let mut arguments = Vec::new();
    for argument in &signature.inputs {
        match argument {
            FnArg::Receiver(this) => return refuse(this.span(), "a handler is a function without `self`"),
            FnArg::Typed(argument) => arguments.push(&*argument.ty),
        }
    }
    let Some((payload, extractors)) = arguments.split_first() else {
        return refuse(signature.ident.span(), "a handler has an argument: the task, as a type with #[derive(Task)]");
    };
    if let Some(further) = extractors.get(MOST) {
        return refuse(
            further.span(),
            "a handler has the task and up to eight extractors; make one extractor of several",
        );
    }
    for argument in &arguments {
        if let Type::Reference(reference) = argument {
            return refuse(reference.span(), "a handler owns its arguments: take the type itself, without `&`");
        }
    }

    let state = options.state.clone().or_else(|| extractors.iter().find_map(|extractor| state_of(extractor)));
    let state = state.unwrap_or_else(|| syn::parse_quote!(()));
    let fits = |of: &Type, name: &str, arguments: Tokens| {
        let (span, name) = (of.span(), Ident::new(name, of.span()));
        // The compiler points at the type, and not at the attribute, only if all of the check stands there.
        let path = quote!(#found::private).into_iter().map(|mut token| {
            token.set_span(span);
            token
        });
        let path: Tokens = path.collect();
        quote_spanned!(span=> fn __check() where #of: #path::#name #arguments {})
    };
    let mut checks = vec![fits(payload, "Task", Tokens::new())];
    checks.extend(
        extractors.iter().map(|extractor| fits(extractor, "FromJob", quote_spanned!(extractor.span()=> <#state>))),
    );
    if !returns_impl {
        checks.extend(returned(&signature.output).into_iter().map(|(of, name)| fits(&of, name, Tokens::new())));
    }
    if !options.blocking {
        checks.push(sent(function, arguments.len()));
    }
    // The types are named as in the user's text, so nothing here may have a name that could stand there.
    // The checks are compiled in the crate of the user and never run: they are dead code there, and whatever its lints say
    // of them would be about text that nobody there has written.
    Ok(quote! {
        #(
            #[allow(warnings, clippy::all)]
            const _: () = { #checks };
        )*
    })
}

/// `T` of `State<T>`.
fn state_of(extractor: &Type) -> Option<Type> {
    arguments_of(extractor, "State")?.into_iter().next()
}

/// The types between the angle brackets, if the type has this name.
fn arguments_of(of: &Type, name: &str) -> Option<Vec<Type>> {
    let Type::Path(path) = of else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(of) => Some(of.clone()),
        _ => None,
    });
    Some(types.collect())
}

/// What has to be what, so that what comes back says what happens to the task; of a `Result` both sides by themselves.
fn returned(output: &ReturnType) -> Vec<(Type, &'static str)> {
    let ReturnType::Type(_, output) = output else { return Vec::new() };
    match arguments_of(output, "Result").as_deref() {
        Some([good, bad]) => vec![(good.clone(), "IntoOutcome"), (bad.clone(), "HandlerError")],
        _ => vec![(Type::clone(output), "IntoOutcome")],
    }
}

/// That the future can go from thread to thread.
fn sent(function: &ItemFn, arguments: usize) -> Tokens {
    let name = &function.sig.ident;
    let any = std::iter::repeat_n(quote!(loop {}), arguments);
    quote_spanned! {name.span()=>
        fn __check() {
            fn __sent_between_threads<T: ::core::marker::Send>(_: T) {}
            __sent_between_threads(#name(#(#any),*));
        }
    }
}
