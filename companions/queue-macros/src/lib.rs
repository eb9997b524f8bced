#![doc = include_str!("../README.md")]

mod handler;
mod task;

use proc_macro::TokenStream;
use syn::{DeriveInput, ItemFn, Path, parse_macro_input, parse_quote};

/// Makes a type a task.
///
/// `#[task(type = "email:welcome")]` is required; `codec = "json"` (or `"msgpack"`, `"protobuf"`, `"raw"`),
/// `queue = "mail"`, `max_retry = 5`, `timeout = "30s"`, `unique = "10m"`, `retention = "1h"`,
/// `group = "name"`, `priority = 9` (or `only = "web-1"`, or `label = "gpu"`, which may be given more than once;
/// then `fallback = "10m"`, too), `max_crashes = 2`,
/// `max_snoozes = 50`, `give_up_after = "24h"`, `backoff = "10s..1h"`,
/// `on_exhausted = "ops:alert"` and `on_exhausted_queue = "ops"` are the options of every task of the type. Each is checked
/// when the program is compiled, as a client checks it when it sends the task. `crate = "path"` names the crate that has the macro where the program knows it by another name.
#[proc_macro_derive(Task, attributes(task))]
pub fn derive_task(input: TokenStream) -> TokenStream {
    derive(input, parse_quote!(::queue_worker))
}

/// The same for programs without the worker's crate, where `queue-redis` hands it on as `Task`.
#[proc_macro_derive(ClientTask, attributes(task))]
pub fn derive_client_task(input: TokenStream) -> TokenStream {
    derive(input, parse_quote!(::queue_redis))
}

/// The same for programs that name the crate `queue` alone, which hands it on as `Task`.
#[proc_macro_derive(FacadeTask, attributes(task))]
pub fn derive_facade_task(input: TokenStream) -> TokenStream {
    derive(input, parse_quote!(::queue))
}

fn derive(input: TokenStream, found: Path) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    task::expand(&input, found).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Says what is wrong with a function that the router does not accept as a handler.
///
/// ```text
/// #[debug_handler(state = App)]
/// async fn welcome(task: Welcome, State(app): State<App>) -> Result<(), Failure> { ... }
/// ```
///
/// Each piece is checked by itself, and the compiler points at the one that does not fit: payload, extractors, return
/// type, error type, and whether the future can be sent between threads. `state = App` is the state of the router; without
/// it, the type in the first `State<…>` argument is taken for it. `blocking` is for handlers of `Router::blocking`. The
/// function is not changed, so that the attribute can stay.
#[proc_macro_attribute]
pub fn debug_handler(options: TokenStream, item: TokenStream) -> TokenStream {
    check(options, item, parse_quote!(::queue_worker))
}

/// The same for programs that name the crate `queue` alone, which hands it on as `debug_handler`.
#[proc_macro_attribute]
pub fn facade_debug_handler(options: TokenStream, item: TokenStream) -> TokenStream {
    check(options, item, parse_quote!(::queue))
}

fn check(options: TokenStream, item: TokenStream, found: Path) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    let mut checks = handler::Options::default();
    let parser = syn::meta::parser(|meta| checks.read(&meta));
    parse_macro_input!(options with parser);
    let checks = handler::check(&function, &checks, &found).unwrap_or_else(syn::Error::into_compile_error);
    quote::quote!(#function #checks).into()
}
