//! Shell completions and manual pages, made from the definition of the command line.

use std::path::PathBuf;

use clap::Args;

use crate::command::{Alone, Command};
use crate::error::CliError;
use crate::output::Output;

/// Which shell to complete for.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

const COMPLETIONS_HELP: &str = "\
bash:  queuectl completions bash > ~/.local/share/bash-completion/completions/queuectl
zsh:   queuectl completions zsh > DIR/_queuectl, with DIR in $fpath
fish:  queuectl completions fish > ~/.config/fish/completions/queuectl.fish";

/// Where to write the manual.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory, which is made if it is missing
    ///
    /// Without it, the page of queuectl itself goes to standard output: `queuectl man | man -l -`.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Command for CompletionsArgs {
    fn alone(&self, whole: Alone, out: &Output) -> Option<Result<(), CliError>> {
        Some(completions(self, whole, out))
    }
}

impl Command for ManArgs {
    fn alone(&self, whole: Alone, out: &Output) -> Option<Result<(), CliError>> {
        Some(man(self, whole, out))
    }
}

fn completions(args: &CompletionsArgs, whole: Alone, out: &Output) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut whole(), "queuectl", &mut script);
    out.text(&String::from_utf8_lossy(&script))
}

fn man(args: &ManArgs, whole: Alone, out: &Output) -> Result<(), CliError> {
    // The page of `help` would repeat all the others.
    let command = whole().disable_help_subcommand(true);
    let Some(directory) = &args.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return out.text(&String::from_utf8_lossy(&page));
    };
    let failed = |error| CliError::failed(format!("cannot write the manual into {}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(command, directory).map_err(failed)
}
