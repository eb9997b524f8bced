//! Asking before something that cannot be undone.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use clap::Args;
use queue_admin::payload::one_line;

use crate::error::CliError;

/// Whether to ask.
#[derive(Debug, Clone, Copy, Args)]
#[group(skip)]
pub(crate) struct ConfirmArgs {
    /// Do it without asking
    #[arg(short, long)]
    yes: bool,
}

impl ConfirmArgs {
    /// Asks on the terminal whether to `act` (`delete 1,204 archived tasks of queue "mail"`). Without a terminal
    /// nobody could answer: then only `--yes` will do.
    pub(crate) async fn ask(self, act: &str) -> Result<(), CliError> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            let text = format!("this would {act}; there is no terminal to ask on, so give --yes to do it");
            return Err(CliError::Coded(2, text));
        }
        let question = format!("{}? [y/N] ", one_line(act));
        // On a thread of its own, so that a signal ends the wait.
        let answer = tokio::task::spawn_blocking(move || -> io::Result<String> {
            io::stderr().lock().write_all(question.as_bytes())?;
            let mut answer = String::new();
            io::stdin().lock().read_line(&mut answer)?;
            Ok(answer)
        });
        let answer = match answer.await {
            Ok(Ok(answer)) => answer.trim().to_lowercase(),
            Ok(Err(error)) => return Err(CliError::failed(format!("cannot ask: {error}"))),
            Err(error) => return Err(CliError::failed(format!("cannot ask: {error}"))),
        };
        match answer.as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(CliError::failed("nothing was changed")),
        }
    }
}
