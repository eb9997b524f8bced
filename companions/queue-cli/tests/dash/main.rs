//! `queuectl dash` in a real terminal: a tmux of its own for each test, with a Redis of its own.

mod actions;
#[path = "../common/as_go.rs"]
mod as_go;
mod endings;
mod fleet;
mod outages;
mod screens;
mod terminal;
