//! `queuectl version`, as `--version`.

use clap::Args;

use crate::command::{Alone, Command};
use crate::error::CliError;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {}

impl Command for VersionArgs {
    fn alone(&self, _: Alone, out: &Output) -> Option<Result<(), CliError>> {
        Some(out.line(concat!("queuectl ", env!("CARGO_PKG_VERSION"))))
    }
}
